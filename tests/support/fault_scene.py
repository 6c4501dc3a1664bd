"""Tables in a real store and a real catalog that are put back to how they were before each fault, and what must hold after it.

scene = Scene(FolderStorage(folder), f"sqlite:///{folder}/catalog.db")
scene.save(); operation(scene); scene.restore()
scene.view()             the rows of every branch and of every snapshot of every table, read by a client that remembers nothing
scene.plaintext()        every file with plaintext in it
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any, Protocol

from pyiceberg.catalog import load_catalog
from pyiceberg.table import Table
from sqlalchemy import MetaData, create_engine
from sqlalchemy.pool import NullPool

from tablecrypt.manifests.entries import CACHE
from tablecrypt.table.metadata import PARSED
from tablecrypt.table.table import EncryptedTable
from tablecrypt_catalog import EncryptedSqlCatalog
from tests.support.kill_points import MORTAL_IN_MEMORY
from tests.support.plaintext import FolderStore, PlaintextFinding, findings
from tests.support.s3_server import S3Server

Rows = tuple[tuple[int | None, str | None], ...]


class Storage(Protocol):
    """Where a scene's files are."""

    @property
    def warehouse(self) -> str:
        """Its address as a catalog's property."""

    @property
    def properties(self) -> dict[str, str]:
        """What a FileIO needs to reach it."""

    def save(self) -> None:
        """Remember every file."""

    def restore(self) -> None:
        """Make every file as it was when `save` was called."""

    def files(self) -> dict[str, bytes]:
        """Every file there is."""


class FolderStorage:
    """A folder of this machine."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._live, self._saved = folder / "warehouse", folder / "saved"
        self._live.mkdir(parents=True, exist_ok=True)

    @property
    def warehouse(self) -> str:
        return f"file://{self._live}"

    @property
    def properties(self) -> dict[str, str]:
        return {}

    def save(self) -> None:
        shutil.rmtree(self._saved, ignore_errors=True)
        shutil.copytree(self._live, self._saved)

    def restore(self) -> None:
        shutil.rmtree(self._live)
        shutil.copytree(self._saved, self._live)

    def files(self) -> dict[str, bytes]:
        store = FolderStore(self._live)
        return {location: store.read(location) for location in store.locations()}


class BucketStorage:
    """A new bucket of an S3 service."""

    def __init__(self, server: S3Server, bucket: str) -> None:
        self._s3, self._bucket = server.s3, server.bucket(bucket)
        self.properties = server.s3_properties
        self._saved: dict[str, tuple[str, bytes]] = {}

    @property
    def warehouse(self) -> str:
        return f"s3://{self._bucket}"

    def save(self) -> None:
        self._saved = {key: (tag, self._read(key)) for key, tag in self._tags().items()}

    def restore(self) -> None:
        present = self._tags()
        for key in present.keys() - self._saved.keys():
            self._s3.delete_object(Bucket=self._bucket, Key=key)
        for key, (tag, content) in self._saved.items():
            if present.get(key) != tag:
                self._s3.put_object(Bucket=self._bucket, Key=key, Body=content)

    def files(self) -> dict[str, bytes]:
        return {key: self._read(key) for key in self._tags()}

    def _tags(self) -> dict[str, str]:
        pages = self._s3.get_paginator("list_objects_v2").paginate(Bucket=self._bucket)
        return {each["Key"]: each["ETag"] for page in pages for each in page.get("Contents", [])}

    def _read(self, key: str) -> bytes:
        return self._s3.get_object(Bucket=self._bucket, Key=key)["Body"].read()


class Scene:
    """The tables of one catalog. Nothing is remembered from one client to the next, so that every run asks the KMS."""

    def __init__(self, storage: Storage, uri: str) -> None:
        self.storage, self._uri = storage, uri
        self._database: dict[str, list[dict[str, Any]]] = {}
        self.catalog().create_namespace_if_not_exists("db")

    def catalog(self) -> EncryptedSqlCatalog:
        """A new client."""
        catalog = load_catalog(
            "prod",
            **{
                "py-catalog-impl": "tablecrypt_catalog.EncryptedSqlCatalog",
                "uri": self._uri,
                "warehouse": self.storage.warehouse,
                **MORTAL_IN_MEMORY,
                **self.storage.properties,
            },
        )
        assert isinstance(catalog, EncryptedSqlCatalog)
        return catalog

    def table(self, name: str = "db.t") -> Table:
        """A table, as a new client loads it."""
        return self.catalog().load_table(name)

    def save(self) -> None:
        """Remember files and catalog."""
        self.storage.save()
        engine = create_engine(self._uri, poolclass=NullPool)
        with engine.connect() as connection:
            for table in _tables(engine):
                self._database[table.name] = [dict(row) for row in connection.execute(table.select()).mappings()]

    def restore(self) -> None:
        """Put files and catalog back to how they were saved, and forget what was read of them: the next run takes the same steps."""
        CACHE.clear()
        PARSED.clear()
        self.storage.restore()
        engine = create_engine(self._uri, poolclass=NullPool)
        with engine.begin() as connection:
            for table in _tables(engine):
                connection.execute(table.delete())
                if self._database[table.name]:
                    connection.execute(table.insert(), self._database[table.name])

    def view(self) -> dict[str, Any]:
        """For each table the rows of its branches and tags, and the different contents of its snapshots; every snapshot has to open."""
        catalog = self.catalog()
        return {".".join(name): view_of(catalog.load_table(name)) for name in catalog.list_tables("db")}

    def plaintext(self) -> list[PlaintextFinding]:
        """Every reason to call a file plaintext."""
        return [found for location, content in self.storage.files().items() for found in findings(location, content)]


def view_of(table: Table) -> dict[str, Any]:
    """The rows of a table's branches and tags, its snapshots' different contents, and whether it is encrypted."""
    contents = {each.snapshot_id: rows_of(table, each.snapshot_id) for each in table.snapshots()}
    return {
        "encrypted": isinstance(table, EncryptedTable),
        "columns": sorted(table.schema().column_names),
        "refs": {name: contents[ref.snapshot_id] for name, ref in sorted(table.metadata.refs.items())},
        "snapshots": set(contents.values()),
    }


def rows_of(table: Table, snapshot_id: int | None = None) -> Rows:
    """The ids and notes of a snapshot's rows, sorted."""
    found = table.scan(snapshot_id=snapshot_id, selected_fields=("id", "note")).to_arrow().to_pylist()
    return tuple(sorted((row["id"], row["note"]) for row in found))


def _tables(engine: Any) -> list[Any]:
    metadata = MetaData()
    metadata.reflect(engine)
    return list(metadata.sorted_tables)
