"""Locus keeps the state of AI agents: any framework, any database, and a cost that stays flat."""

__version__ = "0.1.0"
