"""Helpers for all backends: event loops, worker threads, forks, retries, private files and URLs."""
