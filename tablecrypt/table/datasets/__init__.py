"""Scans as Arrow datasets, which engines such as DuckDB, Polars and DataFusion read from with their own projections and filters."""
