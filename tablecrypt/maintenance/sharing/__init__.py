"""What a table shares with others: records of its shares, which keep the files that these name, and the end of a share."""
