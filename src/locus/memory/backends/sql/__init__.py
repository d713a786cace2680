"""The base of the backends on SQL databases."""
