"""What entries of manifests say of a protected column, in bounds, counts and partitions: whoever may commit writes it, and has no key."""

from __future__ import annotations

from typing import Any, Final, cast

import pyarrow as pa
import pytest
from pyiceberg.conversions import to_bytes
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.table.update import AddPartitionSpecUpdate
from pyiceberg.transforms import IdentityTransform
from pyiceberg.typedef import Record
from pyiceberg.types import StringType

from tablecrypt.table.table import EncryptedTable
from tablecrypt.table.transaction import EncryptedTransaction
from tests.support.handwritten_manifests import HandwrittenManifest, commit_by_hand, named_otherwise
from tests.support.protected_tables import EMAIL, SSN, Clients, add_once_more, declare, loaded, persons, protected_table
from tests.support.tables import data_files, path_of

ROWS: Final = [1, 2, 3]
CLAIMS: Final[dict[str, tuple[str, int, tuple[str, str], int]]] = {
    "other values": ("ssn = 'SSN-0002'", SSN, ("X", "Y"), 0),
    "nulls alone": ("ssn = 'SSN-0002'", SSN, ("SSN-0002", "SSN-0002"), 3),
    "one value": ("ssn = 'SSN-0002'", SSN, ("SSN-0002", "SSN-0002"), 0),
    "other values inside a struct": ("person.email = 'mail-2@example.org'", EMAIL, ("X", "Y"), 0),
    "one value inside a struct": ("person.email = 'mail-2@example.org'", EMAIL, ("mail-2@example.org", "mail-2@example.org"), 0),
}
"""By what is claimed: a filter, the column's field id, its bounds and how many nulls it has."""


def claim(table: EncryptedTable, field_id: int, bounds: tuple[str, str], nulls: int) -> None:
    """Add the table's file once more, with an entry that says this of a column."""
    (file,) = data_files(table)
    lower, upper = ({field_id: to_bytes(StringType(), bound)} for bound in bounds)
    said: dict[str, Any] = {"value_counts": {field_id: 3}, "null_value_counts": {field_id: nulls}}
    add_once_more(table, file, path_of(file.file_path).read_bytes(), lower_bounds=lower, upper_bounds=upper, **said)


def claim_partition(table: EncryptedTable, value: str) -> None:
    """Name the table's file in the partition spec of `add_spec`, as a file of this value."""
    (file,) = data_files(table)
    with table.transaction() as transaction, transaction.update_snapshot().overwrite() as overwrite:
        overwrite.delete_data_file(file)
    claimed = named_otherwise(file, partition=Record(value))
    commit_by_hand(table, HandwrittenManifest([claimed], spec_id=7))


def add_spec(table: EncryptedTable, field_id: int) -> None:
    """Add a partition spec by a column, which is not the default."""
    spec = PartitionSpec(PartitionField(field_id, 1077, IdentityTransform(), "claimed"), spec_id=7)
    with table.transaction() as transaction:
        cast("EncryptedTransaction", transaction).apply((AddPartitionSpecUpdate(spec=spec),))


def ids(table: EncryptedTable, row_filter: str = "id > 0") -> list[int]:
    return sorted(table.scan(row_filter, selected_fields=("id",)).to_arrow()["id"].to_pylist())


@pytest.mark.parametrize("claimed", CLAIMS)
def test_a_filter_finds_the_rows_whatever_an_entry_claims_of_the_column(both: Clients, claimed: str) -> None:
    row_filter, *said = CLAIMS[claimed]
    table = protected_table(both.payroll, appends=[persons(*ROWS)])
    claim(table, *said)  # type: ignore[arg-type]  # field id, bounds and nulls
    assert ids(table, row_filter) == [2, 2]
    assert table.scan(row_filter).count() == 2


@pytest.mark.parametrize("claimed", CLAIMS)
def test_a_delete_takes_the_rows_that_it_means_whatever_an_entry_claims_of_the_column(both: Clients, claimed: str) -> None:
    row_filter, *said = CLAIMS[claimed]
    table = protected_table(both.payroll, appends=[persons(*ROWS)])
    claim(table, *said)  # type: ignore[arg-type]  # field id, bounds and nulls
    table.delete(row_filter)
    assert ids(table.refresh()) == [1, 1, 3, 3]  # type: ignore[arg-type]  # the same table


@pytest.mark.parametrize("value", ["SSN-0002", "X"])
def test_rows_are_found_and_deleted_by_their_values_whatever_partition_an_entry_claims(both: Clients, value: str) -> None:
    """They were those of whoever committed: others were shown as the rows that match, or deleted, and these were not."""
    table = protected_table(both.payroll, **{"encryption.column-keys": ""})
    # From before the protection: none is added after that.
    add_spec(table, SSN)
    declare(table, "pii: ssn, person.email")
    table.append(persons(*ROWS))
    claim_partition(loaded(both.analyst), value)
    table = loaded(both.payroll)

    assert ids(table, "ssn = 'SSN-0002'") == [2]
    assert ids(table, "ssn = 'SSN-0001'") == ids(table, "ssn != 'SSN-0002' and id < 3") == [1]
    assert [table.scan(f"ssn = '{each}'").count() for each in ("SSN-0002", "X")] == [1, 0]
    table.delete("ssn = 'SSN-0002'")
    assert ids(loaded(both.payroll)) == [1, 3]


def test_bounds_from_before_the_declaration_rule_files_out_as_they_did(both: Clients) -> None:
    table = protected_table(both.payroll, appends=[persons(1), persons(2)], **{"encryption.column-keys": ""})
    declare(table, "pii: ssn")
    table.append(pa.concat_tables([persons(1), persons(2)]))
    assert len(list(table.scan("ssn = 'SSN-0002'").plan_files())) == 2
    assert ids(table, "ssn = 'SSN-0002'") == [2, 2]


def test_a_count_of_more_than_64_bits_ends_no_filter(both: Clients) -> None:
    table = protected_table(both.payroll, appends=[persons(*ROWS)])
    (file,) = data_files(table)
    counts: dict[str, Any] = {"value_counts": {1: 3}, "null_value_counts": {1: 2**64 - 5}}
    add_once_more(table, file, path_of(file.file_path).read_bytes(), **counts)
    assert ids(table, "id = 2") == [2, 2]
