"""Laws of saving: values come back equal, and no save is lost to a race, a retry or a stale base."""
