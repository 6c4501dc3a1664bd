"""Encrypted tables as Ray Datasets, through Ray Data's own sources and sinks.

    read_table    driver plans ──encrypted tasks──▶ workers decrypt, filter and project ──blocks──▶ Dataset
    datasink      Dataset ──blocks──▶ workers encrypt under fresh DEKs ──encrypted file entries──▶ driver commits once

Workers need this package, access to the table's storage, and the right to decrypt with the table's master key in the KMS. No key is in the
object store, in a spilled object or in a log: see jobs.py. Rows are: Ray keeps the blocks of a Dataset in its object store, and on the
nodes' disks where memory is short, as they are after decryption.

Raises MissingExtraError on import where Ray Data is not installed.
"""

from __future__ import annotations

from tablecrypt.errors import MissingExtraError

try:
    import ray.data as _ray_data
except ImportError as error:
    raise MissingExtraError.named("tablecrypt.ray needs Ray Data", "ray") from error

from tablecrypt.ray.read import read_table
from tablecrypt.ray.write import datasink

del _ray_data

__all__ = ["datasink", "read_table"]
