"""A table sent to another process: no key travels, and the copy scans there, and commits where its catalog can be reached."""

from __future__ import annotations

import os
import pickle
import pickletools
import subprocess
import sys
import uuid
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.table import Table

from tablecrypt_catalog import EncryptedSqlCatalog, encrypted
from tablecrypt_catalog._pyiceberg.sql import SqlCatalogAdapter
from tests.support.aws import AwsServer
from tests.support.compare import assert_same_rows
from tests.support.glue import glue_properties
from tests.support.rest_server import RestServer, encrypted_rest_catalog, new_namespace
from tests.support.tables import ROWS, new_table

pytestmark = pytest.mark.slow

WORKER = """
import pickle, sys, pyarrow as pa
table = pickle.load(sys.stdin.buffer)
rows = table.scan("id > 1").to_arrow()
with pa.ipc.new_stream(sys.stdout.buffer, rows.schema) as stream:
    stream.write_table(rows)
"""


def filled(catalog: Catalog, identifier: str = "db.t") -> Table:
    return new_table(catalog, identifier, appends=[ROWS])


def scanned_elsewhere(pickled: bytes) -> pa.Table:
    """Rows with id > 1, read by a process that has nothing but the pickle."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    run = subprocess.run([sys.executable, "-c", WORKER], input=pickled, capture_output=True, env=environment, check=False)
    assert run.returncode == 0, run.stderr.decode(errors="replace")
    return pa.ipc.open_stream(run.stdout).read_all()


def assert_it_works_elsewhere(table: Table) -> None:
    pickled = pickle.dumps(table)
    assert_same_rows(scanned_elsewhere(pickled), ROWS.filter(pa.compute.field("id") > 1))
    copy = pickle.loads(pickled)
    copy.append(ROWS)
    assert table.refresh().scan().count() == 2 * ROWS.num_rows


def test_a_table_of_a_sql_catalog_scans_in_another_process_and_commits(catalog: EncryptedSqlCatalog) -> None:
    assert_it_works_elsewhere(filled(catalog))


def test_a_table_of_a_glue_catalog_scans_in_another_process_and_commits(aws: AwsServer) -> None:
    catalog = load_catalog("glue", **glue_properties(aws, aws.bucket(f"pickle-{uuid.uuid4().hex[:12]}")))
    catalog.create_namespace("pickled")
    assert_it_works_elsewhere(filled(catalog, "pickled.t"))


@pytest.mark.java
def test_a_table_of_a_rest_catalog_scans_in_another_process_and_commits(rest_server: RestServer, aws: AwsServer) -> None:
    catalog = encrypted_rest_catalog(rest_server.uri, aws)
    assert_it_works_elsewhere(filled(catalog, f"{new_namespace(rest_server)}.t"))


def test_a_worker_that_only_scans_needs_no_catalog(warehouse: Path, catalog: EncryptedSqlCatalog) -> None:
    table = filled(catalog)
    pickled = pickle.dumps(table)
    (warehouse / "catalog.db").rename(warehouse / "away.db")
    assert scanned_elsewhere(pickled).num_rows == 2
    assert not (warehouse / "catalog.db").exists()


def test_no_key_is_in_a_pickled_table_scan_or_task(catalog: EncryptedSqlCatalog) -> None:
    table = filled(catalog)
    table.scan().to_arrow()
    snapshot = table.current_snapshot()
    assert snapshot is not None
    (manifest,) = snapshot.manifests(table.io)
    (entry,) = manifest.fetch_manifest_entry(table.io)
    pickled = pickle.dumps((table, table.scan()))
    held = [argument for _, argument, _ in pickletools.genops(pickled) if isinstance(argument, (bytes, str))]
    for key_metadata in (entry.data_file.key_metadata, manifest.key_metadata):
        assert isinstance(key_metadata, bytes)
        assert key_metadata[2:18] not in pickled
        assert not any(key_metadata[2:18].hex() in str(argument) for argument in held)


def test_a_catalog_in_memory_says_why_it_cannot_travel(tmp_path: Path) -> None:
    catalog = EncryptedSqlCatalog("memory", uri="sqlite:///:memory:", warehouse=f"file://{tmp_path}")
    with pytest.raises(pickle.PicklingError, match="memory of this process"):
        pickle.dumps(catalog)


def test_a_table_of_a_catalog_made_by_encrypted_scans_in_another_process_and_commits(warehouse: Path, aws: AwsServer) -> None:
    catalog = encrypted(SqlCatalogAdapter)("made", uri=f"sqlite:///{warehouse}/made.db", warehouse=warehouse.as_uri(), **aws.kms_properties)
    catalog.create_namespace("db")
    assert_it_works_elsewhere(filled(catalog))


def test_one_class_has_one_encrypting_version() -> None:
    assert encrypted(SqlCatalogAdapter) is encrypted(SqlCatalogAdapter)
