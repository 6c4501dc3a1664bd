"""Parquet Modular Encryption: files whose every module is encrypted and authenticated, on their own or as data files of a table."""

from tablecrypt.parquet.keys import FileKeys
from tablecrypt.parquet.reading import dataset, read_schema, read_table
from tablecrypt.parquet.rewrite import decrypt, encrypt, reencrypt

__all__ = ["FileKeys", "dataset", "decrypt", "encrypt", "read_schema", "read_table", "reencrypt"]
