"""Masks that another engine has copied, so that they stand where values were: an audit finds them, and no re-encryption makes them values.

The careless user has an engine update rows that shows it masks; the adversary of a report is a column whose values look like masks.
"""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.schema import Schema
from pyiceberg.types import BinaryType, DateType, DecimalType, LongType, NestedField, StringType

from tablecrypt import maintenance as m
from tablecrypt.crypto.secret import Secret
from tablecrypt.errors import ConfigurationError
from tablecrypt.keys.column_keys import ColumnMask, ProtectedColumn
from tablecrypt.maintenance import Finding, FindingKind
from tablecrypt.table.protection.stored_masks import are_masks, replacement_of
from tablecrypt.table.table import EncryptedTable
from tests.support.protected_tables import Clients, declare, protected_table, write_as_java_does

DECLARED = {"encryption.column-keys": "pii: ssn, person.email"}
TEXTS = st.lists(st.none() | st.text(st.sampled_from("aZ9-é"), max_size=6), min_size=1, max_size=6)


def rows(*numbers: int) -> pa.Table:
    return pa.Table.from_pylist([{"id": each, "ssn": f"SSN-{each}", "person": {"email": f"{each}@x.org", "age": each}} for each in numbers])


def table_with(both: Clients, **masks: str) -> EncryptedTable:
    table = protected_table(both.payroll, **DECLARED, **{f"encryption.column-mask.{name}": mask for name, mask in masks.items()})
    table.append(rows(10, 11, 12))
    return table


def copied_by_another_engine(both: Clients, table: EncryptedTable) -> pa.Table:
    """What somebody without the right reads, written as an engine does that knows no protected columns."""
    seen = both.analyst.load_table(table.name()).scan().to_arrow()
    write_as_java_does(table, seen)
    return seen


def found(both: Clients, table: EncryptedTable) -> dict[str, Finding]:
    (audited,) = m.audit(both.analyst.load_table(table.name())).tables
    return {finding.where: finding for finding in audited.findings if finding.kind == FindingKind.COLUMN_MASKS_AS_VALUES}


@pytest.mark.parametrize("mask", ["null", "redact", "hash", "truncate(4)", "constant(hidden)"])
def test_copied_masks_are_found_and_not_protected_as_if_they_were_values(both: Clients, mask: str) -> None:
    table = table_with(both, ssn=mask)
    assert found(both, table) == {}
    copied = copied_by_another_engine(both, table)
    finding = found(both, table)["ssn"]
    location = str(table.refresh().inspect.files()["file_path"][0].as_py())
    assert f"1 file holds in every row what its mask ({mask}) shows" in finding.message
    assert location in finding.message
    assert str(table.metadata.current_snapshot_id) in finding.message
    for out_of_line in (True, False):
        with pytest.raises(ConfigurationError, match=r"column 'ssn' holds in every row of .*accept_masks=True"):
            m.reencrypt(table, out_of_line=out_of_line)
    assert table.refresh().metadata.current_snapshot_id == int(finding.message.partition("snapshot ")[2].partition(":")[0])

    m.reencrypt(table, accept_masks=True)
    shown = table.refresh().scan().to_arrow()["ssn"].to_pylist()
    assert sorted(map(str, shown)) == sorted(map(str, ["SSN-10", "SSN-11", "SSN-12", *copied["ssn"].to_pylist()]))


def test_a_nested_column_is_looked_at_alone(both: Clients) -> None:
    table = table_with(both, **{"person.email": "redact"})
    masked = rows(1, 2).set_column(2, "person", pa.array([{"email": "9@x.xxx", "age": 1}, None]))
    write_as_java_does(table, masked)
    assert set(found(both, table)) == {"person.email"}
    with pytest.raises(ConfigurationError, match=r"column 'person\.email'"):
        m.reencrypt(table)


def test_values_that_another_engine_wrote_are_no_masks(both: Clients) -> None:
    for name, mask in (("db.redact", "redact"), ("db.hash", "hash"), ("db.null", "null"), ("db.error", "error"), ("db.cut", "truncate(4)")):
        table = protected_table(both.payroll, name, **DECLARED, **{"encryption.column-mask.ssn": mask})
        write_as_java_does(table, rows(1, 2))
        assert found(both, table) == {}
        assert m.reencrypt(table, out_of_line=True).in_line == 1
        assert sorted(table.refresh().scan().to_arrow()["ssn"].to_pylist()) == ["SSN-1", "SSN-2"]


def test_one_value_among_masks_is_enough_to_take_them_for_values(both: Clients) -> None:
    table = table_with(both, ssn="redact")
    seen = both.analyst.load_table(table.name()).scan(selected_fields=("id", "ssn")).to_arrow()
    write_as_java_does(table, pa.concat_tables([seen, pa.table({"id": [99], "ssn": ["SSN-99"]}).cast(seen.schema)]))
    assert "ssn" not in found(both, table)


def test_files_from_before_the_protection_hold_no_masks(both: Clients) -> None:
    table = protected_table(both.payroll, appends=[pa.table({"id": [1], "ssn": ["xxx-99"]})], **{"encryption.column-keys": ""})
    declare(table, "pii: ssn", ssn="redact")
    assert found(both, table) == {}
    assert m.reencrypt(table).in_line == 1


SCHEMA = Schema(
    NestedField(1, "text", StringType()),
    NestedField(2, "bytes", BinaryType()),
    NestedField(3, "number", LongType()),
    NestedField(4, "day", DateType()),
    NestedField(5, "amount", DecimalType(9, 2)),
)


def parts(values: list[Any], kind: pa.DataType) -> list[pa.ChunkedArray]:
    half = len(values) // 2
    return [pa.chunked_array([values[:half]], kind), pa.chunked_array([values[half:]], kind)]


@given(TEXTS, st.sampled_from([ColumnMask("redact"), ColumnMask("hash"), ColumnMask("truncate", 2), ColumnMask("constant", "x")]))
def test_what_a_mask_made_of_values_is_recognized_unless_it_changed_nothing(values: list[str | None], mask: ColumnMask) -> None:
    column = ProtectedColumn(1, "pii", mask)
    make = replacement_of(column, SCHEMA, lambda _: Secret(b"k" * 32))
    assert make is not None
    masked = make(pa.field("text", pa.string()), pa.array(values, pa.string())).to_pylist()
    assert are_masks(column, SCHEMA, parts(masked, pa.string())) or masked == values
    if are_masks(column, SCHEMA, parts(values, pa.string())):
        assert mask.kind == "hash" or make(pa.field("text", pa.string()), pa.array(values, pa.string())).to_pylist() == values


@pytest.mark.parametrize(
    ("column", "kind", "masks", "values"),
    [
        (ProtectedColumn(2, "pii", ColumnMask("hash")), pa.binary(), [b"h" * 32, None], [b"h" * 32, b"short"]),
        (ProtectedColumn(2, "pii"), pa.binary(), [None, None], [None, b""]),
        (ProtectedColumn(3, "pii", ColumnMask("constant", "7")), pa.int64(), [7, 7], [7, None]),
        (
            ProtectedColumn(4, "pii", ColumnMask("constant", "2020-01-02")),
            pa.date32(),
            [dt.date(2020, 1, 2)] * 2,
            [dt.date(2020, 1, 3)] * 2,
        ),
        (ProtectedColumn(5, "pii", ColumnMask("constant", "1.50")), pa.decimal128(9, 2), [Decimal("1.50")] * 2, [Decimal("1.51")] * 2),
        (ProtectedColumn(1, "pii", ColumnMask("truncate", 3)), pa.string(), ["ab", "abc"], ["ab", "a"]),
        (ProtectedColumn(1, "pii", ColumnMask("redact")), pa.string(), ["x-9", None], ["--", None]),
    ],
    ids=["hash of bytes", "null", "number", "date", "decimal", "prefix", "redacted"],
)
def test_values_of_every_type_are_compared(column: ProtectedColumn, kind: pa.DataType, masks: list[Any], values: list[Any]) -> None:
    assert are_masks(column, SCHEMA, parts(masks, kind))
    assert not are_masks(column, SCHEMA, parts(values, kind))
    assert not are_masks(column, SCHEMA, [pa.chunked_array([[]], kind)]), "no row tells nothing"
