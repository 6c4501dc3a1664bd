"""Protected columns of a table: how they are declared, what must hold for every commit, and what keeps Iceberg Java from undoing it."""
