"""Laws of names: ids are data, and namespaces keep separate histories."""
