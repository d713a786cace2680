"""Flips: one thing in a store is changed behind its back, and every answer is held against what was saved.

`stories` writes a store and asks it everything, `stores` changes one bit (or field, name, score, object) of it, and
`campaign` judges the answers. `make test` makes a few hundred changes of each store, always the same ones.
`python -m tests.flips --changes 10000` makes as many as you like, and prints the figures that the docs publish.
"""
