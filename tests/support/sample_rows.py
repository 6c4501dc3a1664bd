"""Rows of many types for tests, as Arrow tables, with the columns that Spark SQL gives a table to hold them.

    extreme_rows     every type: smallest and greatest values, zero and empty ones, nulls inside of values, nulls
    many_rows        plain rows of several types, as many as wanted, every fifth one null but for its id
    partition_rows   few partitions under every transform: values on both sides of zero and of 1970, text to be escaped in a path, nulls

Each string column holds the canary somewhere, but for columns of which a partition value, and so a path, would be made.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from decimal import Decimal
from typing import Any, Final

import pyarrow as pa

from tests.support.plaintext import CANARY

EXTREME_COLUMNS: Final = """
    flag boolean, small int, big bigint, ratio float, exact double,
    price decimal(9, 2), amount decimal(18, 4), large decimal(38, 10),
    day date, instant timestamp, local timestamp_ntz, text string, bytes binary,
    pair struct<left: int, right: string>, many array<bigint>, lookup map<string, decimal(9, 2)>,
    pairs array<struct<left: int, right: string>>, lookups map<int, struct<when: timestamp, text: string>>,
    deep struct<level: struct<level: array<map<string, array<double>>>>>
"""
MANY_COLUMNS: Final = """
    id bigint, text string, price decimal(9, 2), day date, instant timestamp, local timestamp_ntz, bytes binary, ratio double,
    pair struct<left: int, right: string>, many array<string>, lookup map<string, int>
"""
PARTITION_COLUMNS: Final = """
    id bigint, team string, code string, amount decimal(9, 2), day date, month timestamp, local timestamp_ntz, hour timestamp,
    bytes binary, text string
"""


def extreme_rows() -> pa.Table:
    """Two rows of extremes, one of empty and zero values, one of nulls inside of values, one of nulls."""
    early, late = dt.datetime(1, 1, 1), dt.datetime(9999, 12, 31, 23, 59, 59, 999999)
    epoch = dt.datetime(1970, 1, 1)
    pair = pa.struct([("left", pa.int32()), ("right", pa.string())])
    event = pa.struct([("when", pa.timestamp("us", tz="UTC")), ("text", pa.string())])
    deep = pa.struct([("level", pa.struct([("level", pa.list_(pa.map_(pa.string(), pa.list_(pa.float64()))))]))])
    no_text = {"left": None, "right": None}
    columns: dict[str, tuple[pa.DataType, list[Any]]] = {
        "flag": (pa.bool_(), [True, False, False, True, None]),
        "small": (pa.int32(), [-(2**31), 2**31 - 1, 0, 1, None]),
        "big": (pa.int64(), [-(2**63), 2**63 - 1, 0, 1, None]),
        "ratio": (pa.float32(), [float("-inf"), 3.4028234663852886e38, -0.0, float("nan"), None]),
        "exact": (pa.float64(), [float("inf"), 5e-324, -0.0, float("nan"), None]),
        "price": (pa.decimal128(9, 2), [Decimal("-9999999.99"), Decimal("9999999.99"), Decimal("0.00"), Decimal("0.01"), None]),
        "amount": (
            pa.decimal128(18, 4),
            [Decimal("-99999999999999.9999"), Decimal("99999999999999.9999"), Decimal(0), Decimal("0.0001"), None],
        ),
        "large": (
            pa.decimal128(38, 10),
            [Decimal(f"-{'9' * 28}.{'9' * 10}"), Decimal(f"{'9' * 28}.{'9' * 10}"), Decimal(0), Decimal("1E-10"), None],
        ),
        "day": (pa.date32(), [early.date(), late.date(), epoch.date(), dt.date(1969, 12, 31), None]),
        "instant": (pa.timestamp("us", tz="UTC"), [early, late, epoch, dt.datetime(1969, 12, 31, 23, 59, 59, 999999), None]),
        "local": (pa.timestamp("us"), [early, late, epoch, dt.datetime(1582, 10, 10), None]),
        "text": (pa.string(), [CANARY, f"{CANARY} ü 漢字 🔑 \U0010ffff \x00 \n", "", CANARY * 40, None]),
        "bytes": (pa.binary(), [b"\x00", bytes(range(256)), b"", b"PAR1", None]),
        "pair": (pair, [{"left": -(2**31), "right": CANARY}, {"left": 1, "right": "ü"}, {"left": 0, "right": ""}, no_text, None]),
        "many": (pa.list_(pa.int64()), [[-(2**63), 2**63 - 1], list(range(50)), [], [None, None], None]),
        "lookup": (
            pa.map_(pa.string(), pa.decimal128(9, 2)),
            [[(CANARY, Decimal("1.25"))], [("ü", Decimal(0)), ("", Decimal(1))], [], [("null", None)], None],
        ),
        "pairs": (
            pa.list_(pair),
            [[{"left": 1, "right": CANARY}], [{"left": 1, "right": "a"}, {"left": 2, "right": "b"}], [], [None, no_text], None],
        ),
        "lookups": (
            pa.map_(pa.int32(), event),
            [[(1, {"when": early, "text": CANARY})], [(2, {"when": late, "text": "ü"})], [], [(3, None)], None],
        ),
        "deep": (
            deep,
            [
                {"level": {"level": [[(CANARY, [1.0, -0.0])], []]}},
                {"level": {"level": [[("a", [float("nan")]), ("b", [])]]}},
                {"level": {"level": []}},
                {"level": {"level": [None, [("a", None), ("b", [None])]]}},
                None,
            ],
        ),
    }
    return _table(columns)


def many_rows(ids: range) -> pa.Table:
    """Rows with these ids."""

    def unless_fifth(make: Callable[[int], Any]) -> list[Any]:
        return [None if number % 5 == 0 else make(number) for number in ids]

    columns: dict[str, tuple[pa.DataType, list[Any]]] = {
        "id": (pa.int64(), list(ids)),
        "text": (pa.string(), unless_fifth(lambda number: f"{CANARY} {number} ü")),
        "price": (pa.decimal128(9, 2), unless_fifth(lambda number: Decimal(number - 20) / 4)),
        "day": (pa.date32(), unless_fifth(lambda number: dt.date(1960 + number, 2, 28))),
        "instant": (pa.timestamp("us", tz="UTC"), unless_fifth(lambda number: dt.datetime(1960 + number, 1, 2, 3, 4, 5, 678901, dt.UTC))),
        "local": (pa.timestamp("us"), unless_fifth(lambda number: dt.datetime(1960 + number, 12, 31, 23, 59, 59, 999999))),
        "bytes": (pa.binary(), unless_fifth(lambda number: bytes(range(number % 4)))),
        "ratio": (pa.float64(), unless_fifth(lambda number: number / 3)),
        "pair": (pa.struct([("left", pa.int32()), ("right", pa.string())]), unless_fifth(lambda number: {"left": number, "right": CANARY})),
        "many": (pa.list_(pa.string()), unless_fifth(lambda number: [CANARY, None][: number % 3])),
        "lookup": (pa.map_(pa.string(), pa.int32()), unless_fifth(lambda number: [(CANARY, number), ("none", None)][: number % 3])),
    }
    return _table(columns)


def partition_rows() -> pa.Table:
    """Eight rows in four partitions: three rows, two, one, and two of nulls."""

    def spread(after: list[Any], before: list[Any], zero: Any) -> list[Any]:
        return [*after, *before, zero, None, None]

    late, early, epoch = dt.datetime(2024, 2, 29, 1, 30), dt.datetime(1969, 12, 31, 23, 59, 59, 999999), dt.datetime(1970, 1, 1)
    instants = spread([late] * 3, [early] * 2, epoch)
    amounts = spread([Decimal("1.25"), Decimal("1.99"), Decimal("1.00")], [Decimal("-0.01"), Decimal("-1.00")], Decimal(0))
    columns: dict[str, tuple[pa.DataType, list[Any]]] = {
        "id": (pa.int64(), spread([1] * 3, [2] * 2, 3)),
        "team": (pa.string(), spread(["a/b c=d"] * 3, ["ü"] * 2, "")),
        "code": (pa.string(), spread(["abcdef", "abcxyz", "abc"], ["漢字kanji", "漢字k"], "")),
        "amount": (pa.decimal128(9, 2), amounts),
        "day": (pa.date32(), spread([late.date()] * 3, [early.date()] * 2, epoch.date())),
        "month": (pa.timestamp("us", tz="UTC"), instants),
        "local": (pa.timestamp("us"), instants),
        "hour": (pa.timestamp("us", tz="UTC"), instants),
        "bytes": (pa.binary(), spread([b"\x01"] * 3, [b"\x02"] * 2, b"")),
        "text": (pa.string(), [f"{CANARY} {number}" for number in range(8)]),
    }
    return _table(columns)


def _table(columns: dict[str, tuple[pa.DataType, list[Any]]]) -> pa.Table:
    return pa.table({name: pa.array(values, data_type) for name, (data_type, values) in columns.items()})
