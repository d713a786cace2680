"""The HTTP protocol: what the client (`memory.backends.http`) and the server share."""
