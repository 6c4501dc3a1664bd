"""Statements that Spark does not know: Iceberg's own ALTER TABLE, and views of what changed between snapshots."""
