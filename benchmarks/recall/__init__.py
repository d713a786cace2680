"""Recall of facts: a set that was written by hand, and `python -m benchmarks.recall`, which prints how it is found."""
