"""Scans as Arrow datasets, which engines such as DuckDB, Polars and DataFusion read from with projections and filters of their own."""
