"""Laws of handles: their life cycle, the capabilities that they declare, and the versioned saver."""
