"""What a table remembers of its shares, and that the files which these name are not deleted."""
