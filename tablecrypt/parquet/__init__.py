"""Parquet Modular Encryption: files whose every module is encrypted and authenticated, on their own or as data files of a table."""
