"""Parquet files in every mode of modular encryption, in memory, for tests that read, rewrite or tamper with one."""

from __future__ import annotations

import io
from dataclasses import dataclass, field
from itertools import product
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tablecrypt.parquet import FileKeys, decrypt, encrypt, reencrypt
from tests.support.plaintext import CANARY

FOOTER_KEY = b"footer-key-0123."
ID_KEY = b"id-key-of-24-bytes-long."
NAME_KEY = b"name-key-that-has-32-bytes-of-it"
AAD_PREFIX = b"table/part-0"


@dataclass(frozen=True)
class Mode:
    """One way of encrypting a file of `sample_table`."""

    algorithm: str = "AES_GCM_V1"
    plaintext_footer: bool = False
    column_keys: dict[str, bytes] = field(default_factory=dict)
    plaintext_columns: tuple[str, ...] = ()
    aad_prefix: bytes = AAD_PREFIX
    store_aad_prefix: bool = False

    @property
    def keys(self) -> FileKeys:
        return FileKeys(
            FOOTER_KEY,
            self.column_keys,
            self.aad_prefix,
            self.store_aad_prefix,
            self.algorithm,
            self.plaintext_footer,
            plaintext_columns=self.plaintext_columns,
        )

    @property
    def ctr(self) -> bool:
        return self.algorithm == "AES_GCM_CTR_V1"

    def __str__(self) -> str:
        footer = "plain footer" if self.plaintext_footer else "encrypted footer"
        keys = f"{len(self.column_keys)} column keys, {len(self.plaintext_columns)} plain"
        return f"{self.algorithm[4:-3]}, {footer}, {keys}"


COLUMN_KEYS: tuple[dict[str, bytes], ...] = ({}, {"id": ID_KEY}, {"id": ID_KEY, "name": NAME_KEY})
MODES = [
    Mode(algorithm, plaintext_footer, column_keys)
    for algorithm, plaintext_footer, column_keys in product(("AES_GCM_V1", "AES_GCM_CTR_V1"), (False, True), COLUMN_KEYS)
]
PARTLY_PLAIN = Mode(column_keys={"id": ID_KEY}, plaintext_columns=("ratio",))
GCM_MODES = [mode for mode in MODES if not mode.ctr]
CTR_MODES = [mode for mode in MODES if mode.ctr]


def sample_table(rows: int = 40) -> pa.Table:
    return pa.table(
        {
            "id": pa.array(range(rows), pa.int64()),
            "name": pa.array([None if number % 5 == 0 else f"{CANARY} {number % 7}" for number in range(rows)], pa.string()),
            "ratio": pa.array([number / 3 for number in range(rows)], pa.float64()),
            "tags": pa.array([[f"t{number}"] * (number % 3) for number in range(rows)], pa.list_(pa.string())),
        }
    )


def every_module(**more: Any) -> dict[str, Any]:
    """Options of a file that has modules of every type."""
    bloom = {name: {"ndv": 20, "fpp": 0.1} for name in ("id", "name")}
    return {"row_group_size": 20, "write_page_index": True, "bloom_filter_options": bloom, **more}


def plain_file(table: pa.Table, **options: Any) -> bytes:
    """What pyarrow writes."""
    sink = io.BytesIO()
    pq.write_table(table, sink, **options)
    return sink.getvalue()


def encrypted(plaintext: bytes, keys: FileKeys, *, seed: int = 0, **options: Any) -> bytes:
    """The same bytes in every run: a test that changes one of them finds out the same."""
    sink = io.BytesIO()
    assert encrypt(plaintext, sink, keys, random=Random(seed).randbytes, **options) == len(sink.getvalue())
    return sink.getvalue()


def decrypted(data: bytes, keys: FileKeys) -> bytes:
    sink = io.BytesIO()
    assert decrypt(data, sink, keys) == len(sink.getvalue())
    return sink.getvalue()


def reencrypted(data: bytes, old: FileKeys, new: FileKeys) -> bytes:
    sink = io.BytesIO()
    assert reencrypt(data, sink, old, new) == len(sink.getvalue())
    return sink.getvalue()
