"""Worker processes for the contract suite: started in milliseconds, killed on purpose, examined afterwards."""
