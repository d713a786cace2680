"""Encryption at rest: an engine that seals whatever passes through it on its way to another engine."""
