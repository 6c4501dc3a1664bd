"""The options before the command, --catalog and --property, and how a command gets its catalog, table or key service from them."""

from __future__ import annotations

import logging
import re
from dataclasses import dataclass, field
from glob import escape
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from tablecrypt.arguments import check_name_parts, check_text
from tablecrypt.cli._output import say
from tablecrypt.errors import ConfigurationError
from tablecrypt.setting_kinds import MOST_NAMES, names_near, question

logger = logging.getLogger(__name__)

_OF_FILES: Final = frozenset({".parquet", ".orc", ".avro", ".ags1", ".json", ".puffin", ".bin"})
"""Ends of names that look like files."""

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyiceberg.catalog import Catalog
    from pyiceberg.table import Table

    from tablecrypt_catalog.configuration import Configured


@dataclass
class Settings:
    """The catalog's name, the properties that were given beside its configuration, and how much stderr is to be told.

    Attributes:
        quiet: neither progress nor retries are shown.
        progress: progress is shown where stderr is no terminal too.
    """

    catalog_name: str | None = None
    properties: dict[str, str] = field(default_factory=dict)
    quiet: bool = False
    progress: bool = False

    def check_loudness(self) -> None:
        """Refuse two options that contradict each other."""
        if self.quiet and self.progress:
            raise ConfigurationError("--quiet and --progress exclude each other")

    def catalog(self, may_be_new: bool = False) -> Catalog:
        """Return the catalog as .pyiceberg.yaml, environment variables and --property describe it.

        Args:
            may_be_new: whether its database may be made now, as `doctor` does before there is a table.

        Raises:
            ConfigurationError: no encrypting catalog is configured under that name, its properties do not make one, or its database is
                not there.
        """
        from tablecrypt_catalog.configuration import Configured

        found = Configured.of(self.catalog_name, self.properties)
        self._check(found, may_be_new)

        try:
            catalog = found.load()
        # A ValueError too, and already says what is wrong.
        except ConfigurationError:
            raise
        except (ValueError, TypeError) as wrong:
            raise ConfigurationError(f"catalog {self.catalog_name or 'default'} cannot be loaded: {wrong}") from wrong

        if not may_be_new:
            _check_spelling(catalog)
        return catalog

    def catalog_with(self, namespace: str | None) -> Catalog:
        """Return the catalog, after checking that it has a namespace, if one is named.

        Raises:
            NoSuchNamespaceError: it does not; the error lists similar names.
            ConfigurationError: as `catalog` does.
        """
        check_text("the namespace", namespace)
        catalog = self.catalog()
        if namespace is None or catalog.namespace_exists(namespace):
            return catalog

        from pyiceberg.exceptions import NoSuchNamespaceError

        near = question(_namespaces_near(catalog, namespace))
        raise NoSuchNamespaceError(f"there is no namespace {namespace} in catalog {catalog.name}{near}")

    def table(self, name: str) -> Table:
        """Return a table of the catalog.

        Raises:
            NoSuchTableError: no table has that name; the error lists similar names.
            ConfigurationError: as `catalog` does, or the name has no namespace.
        """
        # Before the catalog is asked: without --catalog a word that is a file here is rarely meant as a table.
        if self.catalog_name is None and Path(name).is_file():
            # Who has written it as a path must not be told to do so.
            if "/" in name:
                raise ConfigurationError(f"{name} is a file, which cat, inspect and decrypt-file take: this command takes a table")
            raise ConfigurationError(
                f"{name} is understood as a table: write ./{name} for the file, which cat and inspect take, or --catalog NAME before the "
                "command"
            )
        if Path(name).suffix in _OF_FILES and self.catalog_name is None:
            raise ConfigurationError(
                f"there is no file {name} in {Path.cwd()}; if it is a table's name, put --catalog NAME before the command"
            )

        check_text("the table's name", name)
        name = named_by(name)
        if "." not in name:
            raise ConfigurationError(f"{name!r} is not a table's name: write namespace.name{question(self._tables_named(name))}")
        check_name_parts(name)

        from pyiceberg.exceptions import NoSuchTableError

        catalog = self.catalog()

        try:
            return catalog.load_table(name)
        except FileNotFoundError as error:
            raise ConfigurationError(str(error)) from error
        except NoSuchTableError as error:
            from tablecrypt.maintenance.catalog_tables import tables_near

            path = f". If it is a file, write its path with a /: ./{name}" if Path(name).suffix in _OF_FILES else ""
            raise NoSuchTableError(f"{error}{tables_near(catalog, name)}{path}") from error

    def _tables_named(self, name: str) -> list[str]:
        """Return the tables that have a name of their own, or are in a namespace of it; none where the catalog cannot be asked."""
        if self.catalog_name is None:
            return []

        try:
            catalog = self.catalog()
            tables = [each for place in catalog.list_namespaces() for each in catalog.list_tables(place)]
        except Exception as error:  # noqa: BLE001  the error that follows says what is wrong without it
            logger.debug("no tables to suggest for %s: %s", name, error)
            return []

        return [".".join(each) for each in tables if name in (each[-1], ".".join(each[:-1]))][:MOST_NAMES]

    def plain_table(self, name: str) -> Table:
        """Return a table of the catalog, also one that has encryption.key-id and is not encrypted. Raises as `table` does."""
        from tablecrypt.table.table import plain_tables_opened

        with plain_tables_opened():
            return self.table(name)

    def _check(self, found: Configured, may_be_new: bool) -> None:
        """Refuse a catalog that is not configured, or whose database is not there; say which folder relative settings mean."""
        from tablecrypt_catalog.configuration import not_configured
        from tablecrypt_catalog.local_places import check_database, is_missing, relative_places

        if not found.is_described:
            missing = not_configured(found.name)
            if self.catalog_name:
                raise missing
            raise ConfigurationError(f"no catalog is named: put --catalog NAME before the command; {missing}")

        # SQLite makes an empty database of a misspelt path, and the table would seem to be missing.
        if not may_be_new:
            check_database(found.properties)
        places = relative_places(found.name, found.properties)
        # Of a database that is made, the catalog's own warning says where.
        if places is not None and not self.quiet and not is_missing(found.properties):
            say(places, err=True)

    def kms_properties(self) -> Mapping[str, str]:
        """Return the properties of the key service: those given, before those configured for the catalog where one is named."""
        if self.catalog_name is None:
            return self.properties
        from tablecrypt_catalog.configuration import Configured

        return {name: str(value) for name, value in Configured.of(self.catalog_name, self.properties).properties.items()}


def _check_spelling(catalog: Catalog) -> None:
    """Refuse a catalog that is empty where another of its database is meant: a configuration has names in any case, and a database has not.

    Raises:
        ConfigurationError: there is one whose name differs in case alone.
    """
    # Of SQL catalogs alone, which no other command has to import.
    spelled = getattr(catalog, "spelled_otherwise", None)
    other = None if spelled is None else spelled()
    if other is not None:
        raise ConfigurationError(f"catalog {catalog.name} holds nothing, and its database holds catalog {other}: write --catalog {other}")


def _namespaces_near(catalog: Catalog, name: str) -> list[str]:
    """Return the namespaces whose names come near to one, among those below the same namespace."""
    try:
        around = catalog.identifier_to_tuple(name)[:-1]
        return names_near(name, (".".join(each) for each in catalog.list_namespaces(around)))
    except Exception as error:  # noqa: BLE001  without permission to list, the error says only that there is no such namespace
        logger.debug("no names near %s: %s", name, error)
        return []


def named_by(glob: str) -> str:
    """Return the one name that a glob stands for, as `db.a[*]b` does for `db.a*b`. ConfigurationError: it may stand for several."""
    name = re.sub(r"\[([*?[])]", r"\1", glob)
    if escape(name) == glob:
        return name

    raise ConfigurationError(
        f"{glob!r} is a glob, and this command takes the name of one table: write namespace.name, or {escape(glob)} for a table of that "
        "name"
    )


def is_glob(name: str) -> bool:
    """Whether a table's name has a character of globs, as few names have."""
    return any(each in name for each in "*?[")


def parse_properties(pairs: tuple[str, ...], option: str = "--property") -> dict[str, str]:
    """Return name=value pairs as a mapping.

    Args:
        pairs: what was given.
        option: the option that took them.

    Raises:
        ConfigurationError: one of them has no =.
    """
    properties: dict[str, str] = {}
    for pair in pairs:
        name, separator, value = pair.partition("=")
        if not separator or not name:
            raise ConfigurationError(f"{option} {name}: write name=value")
        if not value and option == "--property":
            raise ConfigurationError(f"{option} {name} has no value, and an empty one would leave the configured one in force")
        if properties.get(name, value) != value:
            raise ConfigurationError(f"{option} {name} is given twice, with two values: leave one out")
        properties[name] = value

    return properties


pass_settings = click.make_pass_decorator(Settings, ensure=True)
