"""What bad can be done to a store: one kind of harm a module."""
