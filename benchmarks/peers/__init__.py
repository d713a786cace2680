"""Runners for other libraries. Each runs in an environment of its own, which has that library and no Locus.

They are started by `benchmarks.peers.environments`, with a JSON object as the only argument, and answer in JSON lines.
"""
