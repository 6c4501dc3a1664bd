"""Encrypted ORC columns with Spark's own reader and writer, with checks where ORC would silently write plaintext or read masks.

    options.py      what to encrypt and how to mask, checked against the schema, as ORC's writer options
    plaintext_settings.py  what of a session or a table would write plaintext, and whether the KMS gives the keys
    files.py        write_orc, which looks at what was written, and read_orc, whose key providers (java/) turn a failing KMS into an error

Keys come from a Hadoop KMS: `tablecrypt hadoop-kms` in front of any key service, or an existing one. Not for Spark Connect.
"""

from __future__ import annotations

from tablecrypt.spark.orc.files import read_orc, write_orc
from tablecrypt.spark.orc.options import orc_options
from tablecrypt.spark.orc.plaintext_settings import check_orc_session, check_orc_table

__all__ = ["check_orc_session", "check_orc_table", "orc_options", "read_orc", "write_orc"]
