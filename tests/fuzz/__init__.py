"""Fuzzing: everything that reads what others wrote, fed with bytes that nobody meant.

A target is a module in `targets` with a function `run(data: bytes) -> int` and `SEEDS` to begin with. It returns how
much it has made of the data, and raises only if something other than an error of Locus came out. `judge` bounds what
a case may take. `make test` runs a few hundred cases of each target, always the same ones, and all that were ever found
(`found`). `python -m tests.fuzz` runs as many as you like, guided by coverage if atheris is installed.
"""
