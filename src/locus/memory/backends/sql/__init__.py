"""What the SQL backends share. A database is one more package that builds on this one."""
