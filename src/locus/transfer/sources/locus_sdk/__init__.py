"""Threads that locus-sdk 3 has kept, wherever its stores are."""
