"""Other agent frameworks on Locus backends. Each module needs an extra of its own, so nothing is imported here."""
