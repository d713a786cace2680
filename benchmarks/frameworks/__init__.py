"""What a framework's sessions cost on ours, and on what the framework brings itself.

Each module here that is no part of the measuring has `SUBJECTS`: see `benchmarks.frameworks.subject`.
"""
