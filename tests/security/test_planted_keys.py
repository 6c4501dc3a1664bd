"""Who writes storage plants keys under another KEK of the master key, where an operation looks for some: none becomes the table's.

The attackers: who knew the KEK before it was rotated, and who may wrap under the master key, or knows a KEK of another table under it.
They put a part into the journal of `reencrypt`, or an older metadata file and a manifest list before `rescue`.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tablecrypt.files.raw_output import RawContent
from tablecrypt.keys.key_ring import KeyRing
from tablecrypt.maintenance import reencrypt, rescue, rewrap, rotate_kek
from tablecrypt.maintenance._file_rewrite import Journal
from tablecrypt.maintenance._reencrypt import OPERATION
from tablecrypt.manifests.records import EncryptedDataFile
from tablecrypt.table.table import EncryptedTable
from tablecrypt.table.table_files import FreshKeys
from tablecrypt.table.write import write_data_files
from tests.support.aws import AwsServer
from tests.support.kill_points import Killed
from tests.support.listeners import stopping_after
from tests.support.tables import data_files, encrypted_sql_catalog, ids, metadata_of, new_table, rows


@pytest.fixture
def table(tmp_path: Path, aws: AwsServer) -> EncryptedTable:
    return new_table(encrypted_sql_catalog(tmp_path, aws), appends=[rows(0, 2), rows(2, 2)])


def plant(table: EncryptedTable, *, is_under_own_kek: bool) -> None:
    """Write a part that says a file of the table was written again already, as one with other rows."""
    metadata, key_id = table.metadata, table.metadata.head_key_id("main") if is_under_own_kek else None
    [forged] = write_data_files(metadata, rows(900, 2), table.io, FreshKeys(16))
    journal = Journal(table.io, metadata, metadata.encryption_keys, key_id, OPERATION)
    with journal.keeping({}) as keep:
        keep(data_files(table)[0].file_path, EncryptedDataFile.of(forged))


@pytest.mark.parametrize("is_retired", [True, False], ids=["a retired KEK", "another KEK of the master key"])
def test_a_file_whose_key_is_under_another_kek_takes_no_files_place(
    table: EncryptedTable, is_retired: bool, caplog: pytest.LogCaptureFixture
) -> None:
    plant(table, is_under_own_kek=is_retired)
    if is_retired:
        rotate_kek(table)

    result = reencrypt(table)

    assert (result.data_files, result.resumed) == (2, 0)
    assert ids(table) == [0, 1, 2, 3]
    assert "a part of a journal that does not open" in caplog.text


def test_keys_that_a_run_made_before_the_kek_was_rotated_are_not_those_of_the_next(table: EncryptedTable) -> None:
    with pytest.raises(Killed):
        reencrypt(table, progress=stopping_after(1, Killed))
    rotate_kek(table)

    assert reencrypt(table).resumed == 0
    assert ids(table) == [0, 1, 2, 3]


def test_a_run_goes_on_after_its_kek_was_wrapped_anew(table: EncryptedTable) -> None:
    with pytest.raises(Killed):
        reencrypt(table, progress=stopping_after(1, Killed))
    rewrap(table)

    assert reencrypt(table).resumed == 1
    assert ids(table) == [0, 1, 2, 3]


def test_a_manifest_list_that_somebody_exchanged_is_not_rescued_by_a_key_under_a_retired_kek(table: EncryptedTable) -> None:
    snapshot, manager = metadata_of(table).snapshots[0], table.io.manager
    chain = table.metadata.key_ring.chain(str(snapshot.key_id))
    with table.io.decrypting_input(snapshot.manifest_list, manager.decrypt_manifest_list_key_metadata(chain)).open() as stream:
        content = stream.read()
    rotate_kek(table)
    forged = table.io.encrypting_output(snapshot.manifest_list, manager.new_key_metadata())
    with forged.create(overwrite=True) as sink:
        sink.write(content)
    key_under = manager.encrypt_manifest_list_key_metadata(
        forged.key_metadata, KeyRing([chain.kek, chain.manifest_list_key]), snapshot.key_id
    )
    planted = [chain.kek, key_under.added[0].model_copy(update={"key_id": snapshot.key_id})]
    older = metadata_of(table).model_copy(update={"encryption_keys": planted})
    with table.io.raw_output(f"{table.location()}/metadata/00000-older.metadata.json", RawContent.METADATA_JSON).create() as sink:
        sink.write(older.model_dump_json().encode())

    result = rescue(table)

    assert (result.damaged, result.keys) == ((snapshot.snapshot_id,), ())
