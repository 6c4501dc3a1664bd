"""The clients, as data: what each remembers of the table before the attack."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, cast

from pyiceberg.catalog import load_catalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table
from sqlalchemy import text

from tests.security.matrix.scene import NAME, OTHER, Scene
from tests.support.catalogs import encrypted_sql_catalog

FIRST_USE: Final = "first use"
BY_CATALOG: Final = "pinned by the catalog"
BY_FILE: Final = "pinned by a file"
CLIENTS: Final = (FIRST_USE, BY_CATALOG, BY_FILE)


@dataclass
class Clients:
    """The catalogs of a scene's clients, which live as long as it."""

    scene: Scene
    properties: Mapping[str, str] = field(default_factory=dict)
    _catalogs: dict[str, SqlCatalog] = field(default_factory=dict)

    def load(self, client: str) -> Table:
        """Load the table, wherever the catalog points now, as a client that remembers what it is to remember."""
        if client not in self._catalogs:
            self._catalogs[client] = _MAKERS[client](self)
        catalog = self._catalogs[client]
        if client != BY_CATALOG:
            self._point(catalog, self.scene.pointed())
        return catalog.load_table(NAME)

    def _pinless(self, **properties: str) -> SqlCatalog:
        """A catalog without pins of its own, whose one row is set to what the scene's catalog says."""
        catalog = load_catalog(
            "memory",
            **{
                "py-catalog-impl": "tablecrypt_catalog.EncryptedInMemoryCatalog",
                "warehouse": f"file://{self.scene.folder}/warehouse",
                **self.scene.aws.kms_properties,
                **self.properties,
                **properties,
            },
        )
        catalog.create_namespace("db")
        return cast(SqlCatalog, catalog)

    def first_use(self) -> SqlCatalog:
        """A client that has seen nothing."""
        catalog = self._pinless()
        catalog.register_table(NAME, self.scene.pointer)
        return catalog

    def pinned_by_catalog(self) -> SqlCatalog:
        """A client of the catalog that has the pins in its database."""
        return encrypted_sql_catalog(self.scene.folder, self.scene.aws, self.properties)

    def pinned_by_file(self) -> SqlCatalog:
        """A client that has seen both tables, and remembers them in a file."""
        pins = self.scene.folder / "pins.json"
        catalog = self._pinless(**{"encryption.pins": str(pins)})
        for name, location in ((NAME, self.scene.pointer), (OTHER, self.scene.other_pointer)):
            catalog.register_table(name, location)
        self.scene.saved_files[pins] = pins.read_bytes()
        self.scene.volatile.add(pins)
        return catalog

    def _point(self, catalog: SqlCatalog, location: str) -> None:
        with catalog.engine.begin() as connection:
            name = NAME.partition(".")[2]
            connection.execute(
                text("UPDATE iceberg_tables SET metadata_location = :location WHERE table_name = :name"),
                {"location": location, "name": name},
            )


_MAKERS: Final[Mapping[str, Callable[[Clients], SqlCatalog]]] = {
    FIRST_USE: Clients.first_use,
    BY_CATALOG: Clients.pinned_by_catalog,
    BY_FILE: Clients.pinned_by_file,
}
