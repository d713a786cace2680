"""The HTTP protocol between the client (`locus.memory.backends.http`) and `locus.server`."""
