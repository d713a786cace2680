"""What the SQL backends share. Each database is a package that builds on this one."""
