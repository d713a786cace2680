"""What the project had at one time, and may not lose: tests, places of kills, names that users import.

`python -m tests.baseline` writes it anew; see `test_baseline.py` for what is held against it.
"""
