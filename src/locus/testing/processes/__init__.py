"""Worker processes for the contract suite. They start in milliseconds, and tests may kill them."""
