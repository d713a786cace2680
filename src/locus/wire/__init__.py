"""The HTTP protocol: what the client (`locus.memory.backends.http`) and `locus.server` share."""
