"""The model of what is stored: pure functions and plain data, no I/O."""
