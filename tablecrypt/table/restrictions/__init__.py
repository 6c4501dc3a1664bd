"""What a catalog's server lets a reader see of a table: a row filter and masks of columns."""
