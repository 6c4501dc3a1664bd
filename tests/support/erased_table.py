"""The result of an erasure as one meets it, with the values of the erased rows wherever a location or a message may hold them."""

from __future__ import annotations

import dataclasses
import datetime as dt
import uuid
from typing import Final

from tablecrypt.maintenance.erasure.result import Erased, ErasedRef, HiddenColumn, Searched, TableState
from tests.support.plaintext import CANARY

VALUE: Final = "7391846"
"""What the filter compares with."""
LOCATION: Final = "s3://lakehouse/db/people"
TIME: Final = dt.datetime(2026, 5, 4, 3, 2, 9, tzinfo=dt.UTC)


def _uuid(number: int) -> str:
    return str(uuid.UUID(int=0x5B0C << 112 | 4 << 76 | 8 << 60 | number))


def data_file(number: int) -> str:
    """The location of a data file, in the folder of its partition."""
    return f"{LOCATION}/data/customer_id={VALUE}/name={CANARY}/00000-{number}-{_uuid(number)}.parquet"


EXPORT: Final = f"{LOCATION}/data/export-of-{VALUE}-{CANARY}.parquet"
MESSAGE: Final = f"PermissionError: [Errno 13] Permission denied: '{data_file(9)}', customer_id={VALUE}"


def erased_table() -> Erased:
    """An erasure that is complete."""
    metadata = f"{LOCATION}/metadata/{{:05}}-{_uuid(77)}.metadata.json"
    return Erased(
        table="db.people",
        dry_run=False,
        table_uuid=_uuid(1),
        time=TIME,
        shape="customer_id = ? and name = ?",
        columns=("customer_id", "name"),
        before=TableState(metadata.format(41), "ab" * 32, 118, "cd" * 32),
        after=TableState(metadata.format(44), "12" * 32, 117, "34" * 32),
        refs=(
            ErasedRef("main", "branch", 12, 3, 2, 48_000_000, 8_312_456_709_123_650_118, 4_301_997_214_452_077_263),
            ErasedRef("audit-2026", "tag", 12, 0, 1, 23_000_000, 6_614_321_998_201_340_951, 7_702_145_690_331_286_402),
        ),
        snapshots=tuple(4_100_000_000_000_000_000 + 7919 * each for each in range(19)),
        retired_keks=("UHbR0T4ojJvTwHDDX3cJ0w==",),
        deleted=(*map(data_file, range(100, 160)), EXPORT, f"{LOCATION}/metadata/snap-4100-0-{_uuid(5)}.avro"),
        deleted_bytes=71_000_000,
        metadata_rewritten=(metadata.format(40), f"{LOCATION}/metadata/v3-{VALUE}.metadata.json"),
        searched=Searched(2, 98, 4, 9_999_988, 4_800_000_000, 12, 7, 1),
        outside=(
            "A copy of an older metadata file (backup, replica, file system snapshot) still opens what it did for anybody with "
            "alias/people. Destroying that key ends it: relocate the table under another key first.",
            f"The bucket keeps 4 older versions of metadata files below {LOCATION}/metadata, with retired keys: delete those versions.",
            "A process that has read the snapshots may hold their keys in memory, KEKs for encryption.kms.cache-ttl-ms.",
        ),
    )


def unfinished() -> Erased:
    """The same, in which everything that can be left to do is left."""
    return dataclasses.replace(
        erased_table(),
        remaining={data_file(7): f"12 rows with customer_id={VALUE}", data_file(8): "values of a delete file"},
        not_searched={data_file(9): MESSAGE, EXPORT: "a plaintext file that no snapshot names"},
        refused={EXPORT: MESSAGE},
        failed={data_file(11): MESSAGE},
        hidden_columns=(HiddenColumn("ssn", 3, "alias/pii", 2, 12),),
    )
