"""Parquet Modular Encryption: files whose every module is encrypted and authenticated, on their own or as data files of a table."""

from tablecrypt.parquet.crypto_factory import EncryptionConfiguration, PropertiesDrivenCryptoFactory
from tablecrypt.parquet.file_keys import FileKeys, KeyRetriever
from tablecrypt.parquet.inspection import FileInspection, inspect
from tablecrypt.parquet.reading import dataset, read_schema, read_table
from tablecrypt.parquet.verification import Verification, verify
from tablecrypt.parquet.writing import EncryptedParquetWriter, decrypt, encrypt, reencrypt, write_table

__all__ = [
    "EncryptedParquetWriter",
    "EncryptionConfiguration",
    "FileInspection",
    "FileKeys",
    "KeyRetriever",
    "PropertiesDrivenCryptoFactory",
    "Verification",
    "dataset",
    "decrypt",
    "encrypt",
    "inspect",
    "read_schema",
    "read_table",
    "reencrypt",
    "verify",
    "write_table",
]
