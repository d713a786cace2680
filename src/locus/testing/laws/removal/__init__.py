"""Laws of removal: deletion, vacuum and expiry take what they name, and nothing that others share with it."""
