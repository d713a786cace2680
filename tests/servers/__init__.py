"""Real servers for the tests and the benchmarks, on loopback and without root or Docker.

Each is installed once, into a cache folder outside of the tree (install.py), and started as a process of its
own, on a free port and with its data in a folder that the caller names (base.py). `python -m tests.servers`
installs them, or runs one in the foreground.
"""
