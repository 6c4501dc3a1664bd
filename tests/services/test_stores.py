"""What tables need of a store, from stores that others wrote and that no test imitates."""

from __future__ import annotations

import datetime as dt

import numpy as np
import pyarrow as pa
import pytest

from tablecrypt.errors import TablecryptError
from tablecrypt.maintenance import compact, reencrypt, remove_orphan_files, rotate_kek, verify
from tablecrypt.manifests.entries import CACHE
from tablecrypt.table.metadata import PARSED
from tablecrypt_catalog import EncryptedSqlCatalog
from tests.services.stores import ObjectStore
from tests.support.compare import assert_same_rows
from tests.support.plaintext import CANARY, findings
from tests.support.tables import MERGE_ON_READ, ids, new_table, rows

pytestmark = pytest.mark.services

LATER = dt.datetime.now(dt.UTC) + dt.timedelta(days=1)
MORE_THAN_ONE_PART = 24 * 1024 * 1024


def plaintext_in(store: ObjectStore) -> list[str]:
    return [str(found) for location, content in store.contents().items() for found in findings(location, content)]


def read_afresh(catalog: EncryptedSqlCatalog) -> pa.Table:
    """The rows as a process reads them that has not seen the table before."""
    CACHE.clear()
    PARSED.clear()
    return catalog.load_table("db.t").scan().to_arrow()


def test_a_table_lives_its_life(catalog: EncryptedSqlCatalog, store: ObjectStore) -> None:
    table = new_table(catalog, appends=[rows(0), rows(100)], properties=MERGE_ON_READ)
    table.delete("id = 3")
    table.upsert(rows(110), join_cols=["id"])
    rotate_kek(table)
    expected = [each for each in [*range(20), *range(100, 130)] if each != 3]
    assert ids(catalog.load_table("db.t")) == expected
    assert ids(catalog.load_table("db.t"), row_filter="id >= 125") == [125, 126, 127, 128, 129]

    reencrypt(table)
    compact(table, rewrite_all=True)
    assert ids(catalog.load_table("db.t")) == expected
    assert verify(catalog.load_table("db.t")).is_complete
    assert plaintext_in(store) == []

    catalog.purge_table("db.t")
    assert not catalog.table_exists("db.t")


def test_orphans_are_found_and_removed_and_nothing_else(catalog: EncryptedSqlCatalog, store: ObjectStore) -> None:
    table = new_table(catalog, appends=[rows(0)])
    before = store.contents()
    left = {f"{table.location()}/{name}" for name in ("data/00000-0-left.parquet", "metadata/left-m0.avro", "data/note=a b/x.parquet")}
    for location in left:
        store.replace(location, b"left over")

    assert not remove_orphan_files(table).found, "they are younger than a write may take"
    assert {file.location for file in remove_orphan_files(table, LATER).found} == left
    assert set(remove_orphan_files(table, LATER, dry_run=False).deleted) == left
    assert store.contents() == before


def test_a_bit_flipped_in_any_file_is_refused(catalog: EncryptedSqlCatalog, store: ObjectStore) -> None:
    table = new_table(catalog, appends=[rows(0)], properties=MERGE_ON_READ)
    table.delete("id = 3")
    before = {location: content for location, content in store.contents().items() if not location.endswith(".metadata.json")}
    needed = {location for location in before if _is_refused_without(catalog, store, location)}
    assert {location.rpartition(".")[2] for location in needed} == {"parquet", "puffin", "avro"}

    for location in sorted(needed):
        content = before[location]
        store.replace(location, content[: len(content) // 2] + bytes([content[len(content) // 2] ^ 1]) + content[len(content) // 2 + 1 :])
        with pytest.raises(TablecryptError, match=location.rpartition("/")[2]):
            read_afresh(catalog)
        store.replace(location, content)
    assert catalog.load_table("db.t").scan().count() == 19


def _is_refused_without(catalog: EncryptedSqlCatalog, store: ObjectStore, location: str) -> bool:
    """Whether the newest snapshot is not read without a file's content: the file is one of those that it needs."""
    content = store.contents()[location]
    store.replace(location, b"PAR1")
    try:
        read_afresh(catalog)
    except TablecryptError:
        return True
    finally:
        store.replace(location, content)
    return False


def test_exchanged_files_and_plaintext_are_refused(catalog: EncryptedSqlCatalog, store: ObjectStore) -> None:
    table = new_table(catalog, appends=[rows(0), rows(100)])
    (first, one), (second, other) = [each for each in store.contents().items() if each[0].endswith(".parquet")]
    plain = pa.BufferOutputStream()
    pa.parquet.write_table(table.scan().to_arrow(), plain)

    for forged in ({first: other, second: one}, {first: plain.getvalue().to_pybytes()}):
        for location, content in forged.items():
            store.replace(location, content)
        with pytest.raises(TablecryptError, match=r"\.parquet"):
            read_afresh(catalog)
        store.replace(first, one)
        store.replace(second, other)
    assert catalog.load_table("db.t").scan().count() == 40


def test_a_file_of_many_parts_is_read_as_it_was_written(catalog: EncryptedSqlCatalog, store: ObjectStore) -> None:
    noise = np.random.default_rng(1).bytes(MORE_THAN_ONE_PART)
    pieces = [noise[start : start + 2**20] for start in range(0, len(noise), 2**20)]
    written = pa.table({"id": pa.array(range(24), pa.int64()), "noise": pieces})
    table = new_table(catalog, appends=[written.append_column("note", [[CANARY] * 24])])
    [size] = [len(content) for location, content in store.contents().items() if location.endswith(".parquet")]
    assert size > MORE_THAN_ONE_PART
    assert_same_rows(table.scan(selected_fields=("id", "noise")).to_arrow(), written)
    assert plaintext_in(store) == []
