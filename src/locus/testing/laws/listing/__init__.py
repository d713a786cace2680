"""Laws of listing: checkpoints in the order of their commits, and threads by id, by prefix or newest first."""
