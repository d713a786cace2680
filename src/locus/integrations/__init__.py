"""Other frameworks on our backends. Nothing is imported here: each module needs an extra of its own."""
