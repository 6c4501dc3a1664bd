"""Streams that read a table: which snapshots come next (history.py), and Spark SQL's requests about them (requests.py)."""
