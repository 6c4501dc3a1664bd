"""Hashes that a table shows in place of a column's values: equal for equal values in all files, for as long as the column has keys.

The careless user rotates, rewraps, prunes and compacts; two writers begin at the same time; the KEK of the column grows too old.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import pyarrow as pa
import pytest
from pyiceberg.exceptions import CommitFailedException

from tablecrypt import maintenance as m
from tablecrypt.table.table import EncryptedTable
from tests.support.protected_tables import OTHER_COLUMN_KEY, Clients, declare, loaded, protected_table
from tests.support.tables import metadata_of

HASHED = {"encryption.column-mask.ssn": "hash"}
BOTH_HASHED = HASHED | {"encryption.column-keys": "pii: ssn, note", "encryption.column-mask.note": "hash"}


def rows(*numbers: int) -> pa.Table:
    return pa.table({"id": list(numbers), "ssn": ["one SSN"] * len(numbers), "note": ["one note"] * len(numbers)})


def hashes(both: Clients, column: str = "ssn") -> list[str]:
    """What the analyst sees of a column, in the order of the rows' ids."""
    seen = both.analyst.load_table("db.people").scan(selected_fields=("id", column)).to_arrow().sort_by("id")
    return cast("list[str]", seen[column].to_pylist())


def make_keks_too_old(table: EncryptedTable) -> None:
    table.transaction().set_properties({"encryption.kek-lifespan-ms": "1"}).commit_transaction()


OPERATIONS: dict[str, Callable[[EncryptedTable], object]] = {
    "rotate_column_keks": m.rotate_column_keks,
    "rewrap_column_keks": m.rewrap_column_keks,
    "rotate_kek": m.rotate_kek,
    "prune_keys": m.prune_keys,
    "compact": lambda table: m.compact(table, rewrite_all=True),
    "reencrypt": m.reencrypt,
    "kek_too_old": make_keks_too_old,
    "shred_another_column": lambda table: m.shred_column(table, "note"),
}


@pytest.mark.parametrize("name", sorted(OPERATIONS))
def test_hashes_are_the_same_before_and_after(both: Clients, name: str) -> None:
    table = protected_table(both.payroll, appends=[rows(1)], **BOTH_HASHED)
    make_keks_too_old(table)
    table.append(rows(2))
    (before, _) = hashes(both)
    OPERATIONS[name](table)
    table.refresh()
    table.append(rows(3))
    assert hashes(both) == [before] * 3
    assert table.scan(selected_fields=("ssn",)).to_arrow()["ssn"].to_pylist() == ["one SSN"] * 3


def test_files_from_before_the_mask_get_the_same_hashes(both: Clients) -> None:
    table = protected_table(both.payroll, appends=[rows(1)])
    table.transaction().set_properties(HASHED).commit_transaction()
    table.append(rows(2))
    m.reencrypt(table)
    assert len(set(hashes(both))) == 1


def test_shredding_the_column_is_the_end_of_its_hashes(both: Clients) -> None:
    table = protected_table(both.payroll, appends=[rows(1)], **BOTH_HASHED)
    m.shred_column(table, "ssn")
    table.refresh()
    table.append(rows(2))
    assert len(set(hashes(both))) == 2
    assert len(set(hashes(both, "note"))) == 1


def test_another_master_key_gives_other_hashes_and_the_first_gives_its_own_again(both: Clients) -> None:
    table = protected_table(both.payroll, appends=[rows(1)], **HASHED)
    for number, master_key_id in ((2, OTHER_COLUMN_KEY), (3, "pii")):
        declare(table, f"{master_key_id}: ssn")
        table.append(rows(number))
    first, other, again = hashes(both)
    assert first == again != other


def test_of_two_first_writers_one_is_refused_and_both_hash_alike_in_the_end(both: Clients) -> None:
    table = protected_table(both.payroll, **HASHED)
    slow = loaded(both.payroll)
    transaction = slow.transaction()
    transaction.append(rows(1))
    table.append(rows(2))
    with pytest.raises(CommitFailedException, match="write the rows again"):
        transaction.commit_transaction()
    assert hashes(both) == hashes(both)[:1]
    slow.refresh()
    slow.append(rows(1))
    assert len(hashes(both)) == 2
    assert len(set(hashes(both))) == 1
    assert len([key for key in metadata_of(slow).key_ring.column_keys if key.is_mask_key]) == 1
