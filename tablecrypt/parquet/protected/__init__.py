"""Parquet files with protected columns: hidden columns and their placeholders, written, read and written again."""
