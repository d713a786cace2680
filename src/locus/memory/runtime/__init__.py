"""Event loops, worker threads and forks: what every backend needs, written once."""
