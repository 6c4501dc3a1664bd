"""ORC files for tests: the ones that Java wrote, rows of every type, and a look at all that a file shows without keys."""

from __future__ import annotations

import base64
import datetime
import decimal
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.orc as pyarrow_orc
import pyarrow.parquet as pq

from tablecrypt.orc import LocalKeys, write_table
from tablecrypt.orc.source import FileSource
from tablecrypt.orc.tail import UNENCRYPTED, locate_streams, read_tail
from tests.support.plaintext import CANARY

VECTORS: Final = Path(__file__).parents[1] / "vectors" / "orc"
VECTOR_NAMES: Final = ("flat_zlib", "nested_zstd", "mixed_lzo")
CODECS: Final = ("uncompressed", "zlib", "snappy", "lz4", "zstd")
MASTER_KEYS: Final = {"pii": [bytes(range(16)), bytes(range(1, 17))], "pii256": [bytes(range(32))], "other": [bytes(range(2, 18))]}

EPOCH: Final = datetime.datetime(2020, 1, 1)
EVERY_COLUMN: Final = ("flag", "small", "number", "big", "real", "ratio", "amount", "born", "seen", "text", "raw", "home", "tags", "attrs")


def vector(name: str) -> Path:
    return VECTORS / f"{name}.orc"


def vector_rows(name: str, kind: str = "expected") -> pa.Table:
    """What Spark read: `expected` with the keys, `masked` without."""
    return pq.read_table(VECTORS / kind / f"{name}.parquet")


def vector_keys(*names: str) -> LocalKeys:
    """The keys of the vectors, or only those named."""
    stored = json.loads((VECTORS / "keys.json").read_text())
    return LocalKeys({name: [base64.b64decode(key) for key in keys] for name, keys in stored.items() if not names or name in names})


def local_keys(*names: str) -> LocalKeys:
    """The keys that tests write with, or only those named."""
    return LocalKeys({name: keys for name, keys in MASTER_KEYS.items() if not names or name in names})


def repeatable_keys() -> LocalKeys:
    """The same keys, with local keys that are the same in every run: for tests that change bytes of ciphertext."""
    return LocalKeys(MASTER_KEYS, random=lambda length: bytes(range(length)))


def sample_rows(count: int = 100, first: int = 0) -> pa.Table:
    """Rows with every type that ORC takes from Arrow, nested ones too; one value in seven is null. Text holds the canary."""
    numbers = range(first, first + count)

    def column(value: Any, kind: pa.DataType, shift: int) -> pa.Array:
        return pa.array([None if (number + shift) % 7 == 0 else value(number) for number in numbers], kind)

    home = pa.struct([("zip", pa.string()), ("geo", pa.struct([("lat", pa.float64())]))])
    columns = {
        "id": pa.array(numbers, pa.int64()),
        "flag": column(lambda number: number % 2 == 0, pa.bool_(), 1),
        "small": column(lambda number: number % 100, pa.int8(), 2),
        "number": column(lambda number: number * 3, pa.int32(), 3),
        "big": column(lambda number: number * 10**12, pa.int64(), 4),
        "real": column(lambda number: number / 2, pa.float32(), 5),
        "ratio": column(lambda number: number / 8, pa.float64(), 6),
        "amount": column(lambda number: decimal.Decimal(number * 25) / 100, pa.decimal128(12, 2), 0),
        "born": column(lambda number: datetime.date(1970, 1, 1) + datetime.timedelta(days=number), pa.date32(), 1),
        "seen": column(lambda number: EPOCH + datetime.timedelta(seconds=number), pa.timestamp("ns"), 2),
        "text": column(lambda number: f"{CANARY} {number % 50}", pa.string(), 3),
        "raw": column(lambda number: f"{CANARY} {number}".encode(), pa.binary(), 4),
        "home": column(lambda number: {"zip": f"{CANARY} {number}", "geo": {"lat": number / 4}}, home, 5),
        "tags": column(lambda number: [f"{CANARY} {number}", None, "x"][: number % 4], pa.list_(pa.string()), 6),
        "attrs": column(lambda number: [(f"key {number}", f"{CANARY} {number}")], pa.map_(pa.string(), pa.string()), 0),
        "public": column(lambda number: f"name {number}", pa.string(), 1),
    }
    return pa.table(columns)


def encrypted(rows: pa.Table, encrypt: dict[str, list[str]], keys: Any = None, **options: Any) -> bytes:
    """Write rows into memory."""
    sink = pa.BufferOutputStream()
    write_table(rows, sink, encrypt=encrypt, keys=keys or local_keys(), **options)
    return bytes(sink.getvalue())


def plain(rows: pa.Table, **options: Any) -> bytes:
    """What pyarrow writes, which encrypts nothing."""
    sink = pa.BufferOutputStream()
    pyarrow_orc.write_table(rows, sink, **options)
    return bytes(sink.getvalue())


def same_rows(left: pa.Table, right: pa.Table) -> bool:
    """Whether names and values are the same; ORC names neither the elements of lists nor the entries of maps."""
    return bool(left.cast(right.schema).replace_schema_metadata(None).equals(right.replace_schema_metadata(None)))


def visible_parts(data: bytes) -> Iterator[tuple[str, bytes]]:
    """Everything that somebody without keys finds in a file: its bytes, and each unencrypted section and stream decompressed."""
    source = FileSource(data)
    tail = read_tail(source)
    yield "the file", data
    yield "the footer", b"".join(value for _, _, value in tail.footer.fields if isinstance(value, bytes))
    yield "the stripe statistics", tail.compression.decompress(tail.metadata, "the stripe statistics")
    for stripe in tail.stripes:
        footer = tail.read_stripe_footer(source, stripe)
        yield "a stripe footer", footer.encode()
        for located in locate_streams(footer, stripe, "memory"):
            if located.group == UNENCRYPTED:
                raw = source.read_at(located.offset, located.stream.length)
                yield f"stream {located.stream}", tail.compression.decompress(raw, "a stream")
