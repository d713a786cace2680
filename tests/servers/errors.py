"""What goes wrong with a server, in words that say what to do."""


class ServerError(Exception):
    """A server can't be installed, does not start, or is not in the state that was asked for."""
