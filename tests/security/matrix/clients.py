"""The clients, as data: what each remembers of the table before the attack."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, Protocol, cast

from pyiceberg.catalog.memory import InMemoryCatalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table
from sqlalchemy import text

from tablecrypt_catalog import encrypted
from tests.security.matrix.scene import NAME, OTHER, Scene
from tests.support.lying_rest_server import LyingRestServer
from tests.support.tables import encrypted_sql_catalog

FIRST_USE: Final = "first use"
BY_CATALOG: Final = "pinned by the catalog"
BY_FILE: Final = "pinned by a file"
CLIENTS: Final = (FIRST_USE, BY_CATALOG, BY_FILE)
REST_CLIENTS: Final = (FIRST_USE, BY_FILE)


class Loading(Protocol):
    """Clients of one catalog."""

    def load(self, client: str) -> Table:
        """Load the table again, as a client that remembers what it is to remember."""


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
            self._point(catalog, self.scene.pointed(NAME))
        return catalog.load_table(NAME)

    def _pinless(self, **properties: str) -> SqlCatalog:
        """A catalog that pins nothing by itself, unlike EncryptedInMemoryCatalog. Its one row is set to what the scene's catalog says."""
        catalog = encrypted(InMemoryCatalog)(
            "memory",
            **{
                "warehouse": f"file://{self.scene.folder}/warehouse",
                **self.scene.aws.kms_properties,
                **self.properties,
                **properties,
            },
        )
        catalog.create_namespace("db")
        return cast("SqlCatalog", catalog)

    def first_use(self) -> SqlCatalog:
        """A client that has seen nothing."""
        catalog = self._pinless()
        catalog.register_table(NAME, self.scene.pointer)
        return catalog

    def pinned_by_catalog(self) -> SqlCatalog:
        """A client of the catalog that has the pins in its database."""
        return encrypted_sql_catalog(self.scene.folder, self.scene.aws, self.properties)

    def pinned_by_file(self) -> SqlCatalog:
        """A client that has seen every version of the table, and the other one, and remembers them in a file."""
        pins = self.scene.folder / f"pins-{len(list(self.scene.folder.glob('pins-*.json')))}.json"
        catalog = self._pinless(**{"encryption.pins": str(pins)})
        first, *later = [*self.scene.earlier_metadata(), self.scene.pointer]
        catalog.register_table(NAME, first)
        catalog.register_table(OTHER, self.scene.other_pointer)
        for location in later:
            self._point(catalog, location)
            catalog.load_table(NAME)
        self.scene.keep(pins)
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


@dataclass
class RestClients:
    """The clients of a REST server. Each load is of a new one, since a client asks for the server's configuration when it is made."""

    scene: Scene
    server: LyingRestServer

    def __post_init__(self) -> None:
        self._pins = self.scene.folder / "rest-pins.json"
        self.load(BY_FILE)
        self.scene.keep(self._pins)

    def load(self, client: str) -> Table:
        """Load the table, as the server answers now."""
        pins = {"encryption.pins": str(self._pins)} if client == BY_FILE else {}
        return self.server.client(**self.scene.aws.kms_properties, **pins).load_table(NAME)
