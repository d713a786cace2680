"""What a save costs, against the raw driver and against others: `python -m benchmarks --help`.

Nothing is imported here: the runners in `benchmarks.peers` share `benchmarks.turns` with us, and they run in
environments that have no Locus.
"""
