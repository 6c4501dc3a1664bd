"""Which differences between the protection that files were written under and that of the table keep the files out of it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import NestedField, StringType

from tablecrypt.keys.column_keys import ColumnMask, ColumnPolicy, ProtectedColumn
from tablecrypt.table.metadata import EncryptedTableMetadata
from tablecrypt.table.protection.writing import StaleWriteError, WrittenUnder
from tests.support.protected_tables import EMAIL, SSN, clients, declare, protected_table
from tests.support.tables import metadata_of

LATER = 7
NEW_COLUMN = 12


@pytest.fixture
def metadata(tmp_path: Path) -> EncryptedTableMetadata:
    """A table whose files may lack the protection of ssn up to sequence number 1."""
    table = protected_table(clients(tmp_path).payroll, **{"encryption.column-keys": "pii: person.email"})
    table.append(pa.table({"id": [1], "ssn": ["x"]}))
    declare(table, "pii: ssn, person.email", ssn="truncate(2)")
    return metadata_of(table)


def written(metadata: EncryptedTableMetadata, ssn: ProtectedColumn | None) -> WrittenUnder:
    now = WrittenUnder.of(metadata)
    others = [column for column in now.policy.columns.values() if column.field_id != SSN]
    return replace(now, policy=ColumnPolicy.of([*others, *([ssn] if ssn else [])]))


@pytest.mark.parametrize(
    ("then", "sequence_number", "what"),
    [
        (ProtectedColumn(SSN, "pii", ColumnMask("truncate", 2)), LATER, None),
        (ProtectedColumn(SSN, "pii", ColumnMask("null")), LATER, None),
        (ProtectedColumn(SSN, "pii", ColumnMask("error")), LATER, None),
        (ProtectedColumn(SSN, "pii", ColumnMask("truncate", 3)), LATER, "column 'ssn' has got another mask"),
        (ProtectedColumn(SSN, "fin", ColumnMask("null")), LATER, "column 'ssn' has come under another master key"),
        (None, LATER, "column 'ssn' was declared protected"),
        (None, None, "column 'ssn' was declared protected"),
        (None, 1, None),
    ],
)
def test_files_fit_a_table_whose_columns_they_hold_under_the_same_key_and_no_weaker_mask(
    metadata: EncryptedTableMetadata, then: ProtectedColumn | None, sequence_number: int | None, what: str | None
) -> None:
    assert written(metadata, then).differs_from(metadata, sequence_number) == what


def test_a_column_that_was_declared_keeps_them_out_when_somebody_drops_it_too(metadata: EncryptedTableMetadata) -> None:
    then, without = written(metadata, None), Schema(*(each for each in metadata.schema().fields if each.field_id != SSN), schema_id=7)
    dropped = metadata.model_copy(update={"schemas": [*metadata.schemas, without], "current_schema_id": 7})
    assert then.differs_from(dropped, LATER) == "column 'ssn' was declared protected"
    assert written(metadata, ProtectedColumn(SSN, "pii", ColumnMask("null"))).differs_from(dropped, LATER) is None
    assert WrittenUnder.of(dropped).differs_from(dropped, LATER) is None


def test_a_column_key_that_is_gone_keeps_the_files_out(metadata: EncryptedTableMetadata) -> None:
    gone = replace(WrittenUnder.of(metadata), column_keys=frozenset({"abc"}))
    with pytest.raises(StaleWriteError, match="column key abc was destroyed since the rows were written; nothing was committed") as refused:
        gone.check(metadata, LATER)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("name", ["ssn", "SSN"])
def test_a_name_that_led_to_a_column_without_protection_keeps_the_files_out(metadata: EncryptedTableMetadata, name: str) -> None:
    schema = Schema(NestedField(SSN, "ssn_old", StringType()), NestedField(NEW_COLUMN, name, StringType()))
    then = replace(WrittenUnder.of(metadata), schema=schema)
    assert then.differs_from(metadata, LATER) == "column 'ssn' has taken the name of another column"

    under_a_key = ColumnPolicy.of([*then.policy.columns.values(), ProtectedColumn(NEW_COLUMN, "pii")])
    assert replace(then, policy=under_a_key).differs_from(metadata, LATER) is None


def test_of_files_in_a_snapshot_its_header_says_which_columns_have_hidden_columns(metadata: EncryptedTableMetadata) -> None:
    assert WrittenUnder.with_hidden_columns({SSN, EMAIL}, metadata, 1).differs_from(metadata, LATER) is None
    assert WrittenUnder.with_hidden_columns({EMAIL}, metadata, 1).differs_from(metadata, LATER) == "column 'ssn' was declared protected"
