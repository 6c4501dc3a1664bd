"""Encrypting catalogs on a SQL database: SQLite, PostgreSQL and others that SQLAlchemy knows.

    load      one query for the row of iceberg_tables and its pin → metadata.json read once → rules of the pins → table
    commit    write metadata.json → { compare and swap the row, rules of the pins, write the pin } in one transaction

What SqlCatalog does with tables that are not encrypted, with namespaces and with its own rows stays as it is.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cached_property, partial
from importlib.util import find_spec
from typing import Any, TypeVar

from pyiceberg.catalog import URI, Catalog
from pyiceberg.catalog.memory import InMemoryCatalog
from pyiceberg.catalog.sql import IcebergNamespaceProperties
from pyiceberg.exceptions import CommitFailedException, CommitStateUnknownException, NoSuchTableError, TableAlreadyExistsError
from pyiceberg.io import FileIO
from pyiceberg.table import CommitTableResponse, StagedTable, Table
from pyiceberg.table.update import TableRequirement, TableUpdate
from pyiceberg.typedef import EMPTY_DICT, Identifier
from pyiceberg.types import strtobool
from sqlalchemy import Delete, Select, Update, bindparam, delete, make_url, select, union, update
from sqlalchemy.exc import ArgumentError as SQLArgumentError
from sqlalchemy.exc import DBAPIError, IntegrityError, NoSuchModuleError
from sqlalchemy.orm import Session

from tablecrypt.arguments import checked_arguments
from tablecrypt.errors import ConfigurationError, MissingExtraError, TamperedFileError
from tablecrypt.files.locations import is_relative, scheme_of
from tablecrypt.table.metadata import PARSED, EncryptedTableMetadata, MetadataFile, read_metadata_file, write_metadata_file
from tablecrypt_catalog._pyiceberg.metastore import Commit, delete_refused
from tablecrypt_catalog._pyiceberg.sql import SqlCatalogAdapter
from tablecrypt_catalog.encrypting_catalog import EncryptionMixin
from tablecrypt_catalog.local_places import check_folder
from tablecrypt_catalog.new_table import NewTable
from tablecrypt_catalog.pins.client import PinCheck
from tablecrypt_catalog.pins.proven_heads import Proof
from tablecrypt_catalog.pins.record import NO_MOVES, Moves, TableVersion, TrustedTable, creation, moves_of, table_version
from tablecrypt_catalog.pins.sql import (
    PIN_COLUMNS,
    ROWS,
    WITH_PINS,
    create_pins_table,
    delete_pin,
    drop_pins_table,
    find_name,
    find_pin,
    key_of,
    other_entries,
    pin_of_row,
    rename_pin,
    row_names,
    write_pin,
)
from tablecrypt_catalog.table_encryption import (
    UnverifiedTable,
    base_of_commit,
    check_metadata,
    check_registration,
    encrypted_table,
    new_metadata,
    proof_of_heads,
    refusing_unreadable,
    table_from_metadata,
)

logger = logging.getLogger(__name__)

A = TypeVar("A")


def _with_driver(uri: str) -> str:
    """Return a URI that names the driver which the extra brings. Which one SQLAlchemy takes otherwise differs between its versions."""
    named_by_default = uri.startswith("postgresql://") and find_spec("psycopg2") is not None
    return uri.replace("postgresql://", "postgresql+psycopg2://", 1) if named_by_default else uri


@contextmanager
def _refusals_named(name: str, uri: str) -> Iterator[None]:
    """Say in our words that a driver is missing, or that a URI is no database's. The URI may hold a password: its scheme alone is shown."""
    scheme = "a uri without a scheme" if (found := scheme_of(uri)) is None else f"{found}://"
    no_database = ConfigurationError(
        f"the uri of catalog {name!r} ({scheme}) is no database that SQLAlchemy knows; sqlite:///folder/catalog.db and "
        "postgresql://user@host/database are. In a password, write @ as %40, : as %3A and / as %2F"
    )
    try:
        if uri:
            make_url(uri)
    except (SQLArgumentError, ValueError):
        raise no_database from None  # SQLAlchemy's own error may show the URI, or the part of a password that it takes for a port

    try:
        yield
    except ImportError as error:
        need = f"catalog {name!r} is at {scheme} and needs the package"
        if scheme in ("postgresql://", "postgresql+psycopg2://"):
            raise MissingExtraError.named(f"{need} psycopg2", "sql-postgres") from error
        raise MissingExtraError(
            f"{need} {error.name}, which no extra brings: install it, or name another driver, as in mysql+pymysql://"
        ) from error
    except (NoSuchModuleError, SQLArgumentError):
        raise no_database from None


class EncryptedSqlCatalog(EncryptionMixin, SqlCatalogAdapter):
    """PyIceberg's SqlCatalog with encrypted tables, pinned in the table tablecrypt_pins of the same database."""

    OWN_PINS = ("table tablecrypt_pins of the catalog's database",)

    def __init__(self, name: str, **properties: str) -> None:
        uri = str(properties.get(URI, ""))
        check_folder(properties)
        with _refusals_named(name, uri):
            super().__init__(name, **(properties | ({URI: _with_driver(uri)} if uri else {})))
        create_pins_table(self.engine, allowed=strtobool(str(self.properties.get("init_catalog_tables", "true"))))

    def create_tables(self) -> None:
        """Create the catalog's tables in the database, that of the pins included."""
        super().create_tables()
        create_pins_table(self.engine)

    def destroy_tables(self) -> None:
        """Drop the catalog's tables from the database, that of the pins included."""
        super().destroy_tables()
        drop_pins_table(self.engine)

    def spelled_otherwise(self) -> str | None:
        """Return the name of a catalog of the same database that differs in case alone, if there is one and this one holds nothing."""
        with Session(self.engine) as session:
            held = set(session.scalars(union(select(ROWS.c.catalog_name), select(IcebergNamespaceProperties.catalog_name))))
        alike = sorted(name for name in held if name.casefold() == self.name.casefold())

        return alike[0] if alike and self.name not in alike else None

    def load_table(self, identifier: str | Identifier) -> Table:
        """Load a table. If it has encryption.key-id, it is an EncryptedTable.

        Raises:
            NoSuchTableError: no table has that name.
            KeyIdChangedError: encryption.key-id differs from what was pinned, or is gone.
            TamperedFileError: metadata.json was edited.
            MetadataRollbackError: the catalog names older metadata than is pinned.
            FormatError: what the catalog's entry leads to is not table metadata, or the pin cannot be read.
            ConfigurationError: the table is encrypted and the catalog has no usable KMS properties.
        """
        return self._while_current(identifier, partial(self._load, identifier))

    def _while_current(self, identifier: str | Identifier, look: Callable[[str, TableVersion | None], A]) -> A:
        """Look at the metadata file and the pin of a table, and once more where others have committed meanwhile.

        `shred` and `erase` write over metadata that is current no more, or delete it: between the database's answer and the reading of the
        file it may have become so.
        """
        location, pin = self._location_and_pin(identifier)
        try:
            return look(location, pin)
        except (TamperedFileError, FileNotFoundError):
            now, pin = self._location_and_pin(identifier)
            if now == location:
                raise
            return look(now, pin)

    def _load(self, identifier: str | Identifier, location: str, pin: TableVersion | None) -> Table:
        pin_check = self.client_pins.begin_check(identifier)
        loaded, seen = self._found(identifier, location)
        verified = self._verified(identifier, pin, seen)
        proof = self._proof_of(loaded)
        # Proven only where the pin would move: to open manifest lists takes the KMS and requests to the store.
        if verified is not None and verified != pin and (proven := proof(pin, seen)) is not None:
            self._adopt(identifier, pin, self._verified(identifier, pin, proven))
        return table_from_metadata(self, loaded, pin_check.verify(seen, proof) or verified)

    @checked_arguments()
    def accept_rollback(self, identifier: str | Identifier) -> Table:
        """Load a table that somebody you trust rolled back, and move the pins in the database and in this client's file to it.

        Raises:
            KeyIdChangedError, TamperedFileError: the table has another key id or shorter keys, is another table, or was edited in place.
        """
        pin_check = self.client_pins.begin_check(identifier)
        location, pin = self._location_and_pin(identifier)
        loaded, seen = self._found(identifier, location)
        key = row_names(identifier)
        accepted = TrustedTable(".".join(key), pin).accept_rollback(seen, self._pinned_as(identifier, pin, seen))
        pin_check.accept_rollback(seen)

        if accepted is not None:
            with Session(self.engine) as session:
                moved = write_pin(session, self.name, key, pin, accepted)
                session.commit()
            if not moved:
                # The caller accepted what the pin was then, and not what another process has seen since.
                raise CommitFailedException(f"The pin of {'.'.join(key)} was moved by another process meanwhile: look again")

        return table_from_metadata(self, loaded, seen)

    def created_table(self, new: NewTable, pin_check: PinCheck) -> Table:
        """Create a table; an encrypted one in one transaction with its pin."""
        self.check_namespace(new.identifier)
        self._refuse_existing(new.identifier)
        if not new.is_encrypted:
            # Before the table is made: writers that find it would put plaintext where an encrypted table was.
            self._refuse_plaintext(new.identifier)
            return super().created_table(new, pin_check)

        staged = self.stage_new_table(*new)
        staged.metadata = metadata = new_metadata(self.properties, staged.metadata)
        file = write_metadata_file(metadata, staged.io, staged.metadata_location)
        seen = table_version(metadata, file.location, file.digest)
        self._insert(new.identifier, seen, creation(new.properties))
        pin_check.verify(seen, moved=creation(new.properties))
        _keep(file, metadata)

        return encrypted_table(self, staged, metadata, seen)

    def register_table(self, identifier: str | Identifier, metadata_location: str, overwrite: bool = False) -> Table:
        """Register a table that exists already, encrypted or not, by its metadata file.

        Raises:
            TableAlreadyExistsError: there is a table of that name.
            KeyIdChangedError, MetadataRollbackError, TamperedFileError: the identifier has a pin that speaks against it.
        """
        check_registration(identifier, metadata_location)
        if overwrite:
            raise NotImplementedError("`overwrite` isn't supported")

        self.check_namespace(identifier)
        pin_check = self.client_pins.begin_check(identifier)
        io = self.load_file_io(EMPTY_DICT, metadata_location)
        with refusing_unreadable(identifier):
            loaded, seen = self._loaded(identifier, read_metadata_file(io.new_input(metadata_location)), io)
        proof = self._proof_of(loaded)
        with Session(self.engine) as session:
            before = find_pin(session, self.name, row_names(identifier))
        pin_check.check_before(seen)
        # Before the transaction: it reads the table's storage.
        proven = proof(before, seen)
        pin = self._insert(identifier, proven or seen, is_proven=proven is not None)

        return table_from_metadata(self, loaded, pin_check.verify(seen, proof) or pin)

    def rename_table(self, from_identifier: str | Identifier, to_identifier: str | Identifier) -> Table:
        """Rename a table; its pin goes with it.

        Raises:
            NoSuchTableError, TableAlreadyExistsError, NoSuchNamespaceError: as PyIceberg's.
            KeyIdChangedError, MetadataRollbackError, TamperedFileError: the new identifier has a pin that speaks against the table.
        """
        self.check_rename(from_identifier, to_identifier)
        self.check_namespace(to_identifier)
        old, new = row_names(from_identifier), row_names(to_identifier)

        with Session(self.engine) as session:
            try:
                renamed = self.rename_row(session, from_identifier, to_identifier)
            except IntegrityError as error:
                raise TableAlreadyExistsError(f"Table {'.'.join(new)} already exists") from error

            if not renamed:
                raise NoSuchTableError(f"Table does not exist: {old[1]}")

            # The new name may be pinned of an encrypted table that was dropped by other means.
            self._check_new_name(session, old, new)
            if new != old:
                # A table that keeps its name keeps its pin: without it, edited metadata would be trusted at first sight.
                delete_pin(session, self.name, new)
                rename_pin(session, self.name, old, new)

            session.commit()

        self.client_pins.rename(from_identifier, to_identifier)

        return self.load_table(to_identifier)

    def drop_table(self, identifier: str | Identifier) -> None:
        """Drop a table, and forget its pin.

        Raises:
            NoSuchTableError: no table has that name.
        """
        with Session(self.engine) as session:
            if not self.delete_row(session, identifier):
                raise NoSuchTableError(f"Table does not exist: {_shown(identifier)}")
            delete_pin(session, self.name, row_names(identifier))
            session.commit()
        self.client_pins.forget(identifier)

    @checked_arguments()
    def forget_pin(self, identifier: str | Identifier) -> None:
        """Forget what is pinned of an identifier, in the database and in this client's pin file."""
        with Session(self.engine) as session:
            delete_pin(session, self.name, row_names(identifier))
            session.commit()
        super().forget_pin(identifier)

    def commit_table(
        self, table: Table, requirements: tuple[TableRequirement, ...], updates: tuple[TableUpdate, ...]
    ) -> CommitTableResponse:
        """Commit updates to a table.

        Raises:
            CommitFailedException: a requirement is not met, or another writer was first; nothing has changed.
            CommitStateUnknownException: the database did not confirm the transaction, which may have landed.
            KeyIdChangedError, PlaintextRefusedError, ConfigurationError: the commit breaks a rule of encrypted tables.
        """
        if not isinstance(table.metadata, EncryptedTableMetadata):
            if isinstance(table, StagedTable):
                self._refuse_plaintext(table.name())
            return super().commit_table(table, requirements, updates)

        pin_check = self.client_pins.begin_check(table.name())
        current = self._current(table.name(), pin_check)
        staged = self.stage_on(current, Commit(table.name(), requirements, updates))
        if current is not None and staged.metadata == current.metadata:
            return CommitTableResponse(metadata=current.metadata, metadata_location=current.metadata_location)

        metadata = self.metadata_to_write(staged.metadata)
        file = write_metadata_file(metadata, staged.io, staged.metadata_location)
        seen = table_version(metadata, file.location, file.digest)
        moved = moves_of(updates)
        try:
            if current is None:
                self._insert(table.name(), seen, moved)
            else:
                self._swap(table.name(), current.metadata_location, seen, moved)
        except CommitStateUnknownException:
            raise
        except Exception:
            # Nothing else lands: the transaction was not asked to end, and is rolled back.
            delete_refused(staged)
            raise

        pin_check.record_commit(metadata, file.location, file.digest, moved)
        if isinstance(metadata, EncryptedTableMetadata):
            _keep(file, metadata)
        return CommitTableResponse(metadata=staged.metadata, metadata_location=staged.metadata_location)

    def _current(self, identifier: Identifier, pin_check: PinCheck) -> Table | None:
        """Return the base of a commit, held against all pins. Those in the database move with the commit, in its transaction."""

        def look(location: str, pin: TableVersion | None) -> Table:
            loaded, seen = self._found(identifier, location)
            # A commit on edited metadata would make the edit authentic.
            self._verified(identifier, pin, seen)
            pin_check.verify(seen, self._proof_of(loaded))
            return base_of_commit(self, loaded)

        try:
            return self._while_current(identifier, look)
        except NoSuchTableError:
            return None

    def _proof_of(self, loaded: UnverifiedTable) -> Proof:
        return proof_of_heads(loaded.metadata, lambda: loaded.io, lambda: self.client_properties)

    def _found(self, identifier: str | Identifier, location: str) -> tuple[UnverifiedTable, TableVersion]:
        with refusing_unreadable(identifier):
            io = self.load_file_io(EMPTY_DICT, location)
            return self._loaded(identifier, self._read_metadata(identifier, location, io), io)

    def _read_metadata(self, identifier: str | Identifier, location: str, io: FileIO) -> MetadataFile:
        try:
            return read_metadata_file(io.new_input(location))
        except FileNotFoundError as error:
            # In a table's own folder the file may have gone with a purge. Where there is no such folder, this is another one.
            folder = os.path.dirname(os.path.abspath(location))
            if not is_relative(location) or os.path.isdir(folder):
                raise

            raise ConfigurationError(
                f"{_shown(identifier)}: its metadata {location} would be {os.path.abspath(location)}, and is not there: its "
                "location is relative to the current folder. Run this in the folder in which the table was made"
            ) from error

    def _loaded(self, identifier: str | Identifier, file: MetadataFile, io: FileIO) -> tuple[UnverifiedTable, TableVersion]:
        name = Catalog.identifier_to_tuple(identifier)
        loaded = UnverifiedTable(self, name, file, io)
        check_metadata(self.client_properties, name, loaded.metadata, file.location)
        return loaded, table_version(loaded.metadata, file.location, file.digest)

    def _location_and_pin(self, identifier: str | Identifier) -> tuple[str, TableVersion | None]:
        """Return both from one query: an answer of one moment, even if others commit meanwhile."""
        with Session(self.engine) as session:
            row = session.execute(self._row_and_pin, self._row_key(identifier)).mappings().first()
        if row is None or not row["metadata_location"]:
            raise NoSuchTableError(f"Table does not exist: {_shown(identifier)}")

        return row["metadata_location"], pin_of_row(row)

    @cached_property
    def _row_and_pin(self) -> Select[Any]:
        return select(ROWS.c.metadata_location, *PIN_COLUMNS).select_from(WITH_PINS).where(self.is_row)

    def _verified(
        self, identifier: str | Identifier, pin: TableVersion | None, seen: TableVersion, moved: Moves = NO_MOVES
    ) -> TableVersion | None:
        return TrustedTable(_shown(identifier), pin).verify_update(seen, self._pinned_as(identifier, pin, seen), moved)

    def _pinned_as(self, identifier: str | Identifier, pin: TableVersion | None, seen: TableVersion) -> str | None:
        if pin is None or pin.table_uuid == seen.table_uuid:
            return None
        with Session(self.engine) as session:
            return find_name(session, self.name, row_names(identifier), seen.table_uuid)

    def other_names(self, table: Table) -> list[str]:
        """Return the other names under which the database has a table: one of another catalog in it begins with that catalog."""
        with Session(self.engine) as session:
            uuid, location = str(table.metadata.table_uuid), table.metadata_location
            found = other_entries(session, self.name, row_names(table.name()), uuid, location)
        return [".".join(names if catalog == self.name else (catalog, *names)) for catalog, *names in found]

    def _adopt(self, identifier: str | Identifier, before: TableVersion | None, pin: TableVersion | None) -> None:
        """Pin what was loaded: a table without a pin, or one that another client of the database has committed to."""
        if pin is None or pin == before:
            return

        try:
            with Session(self.engine) as session:
                write_pin(session, self.name, row_names(identifier), before, pin)
                session.commit()
        except DBAPIError as error:
            # Another client pinned it first, or this one may only read.
            logger.info("the pin of %s was not written: %s", _shown(identifier), error)

    def _insert(
        self, identifier: str | Identifier, seen: TableVersion, moved: Moves = NO_MOVES, is_proven: bool = True
    ) -> TableVersion | None:
        """Make the row of a table, and its pin if its heads are proven; return what is trusted of the table."""
        with Session(self.engine) as session:
            try:
                self.insert_row(session, identifier, seen.metadata_location)
            except IntegrityError as error:
                raise TableAlreadyExistsError(f"Table {_shown(identifier)} already exists") from error

            pin = self._move_pin(session, identifier, seen, moved, is_proven)
            self._finish(session, identifier, seen)
            return pin

    def _swap(self, identifier: Identifier, expected: str, seen: TableVersion, moved: Moves) -> None:
        with Session(self.engine) as session:
            if not self.swap_location(session, identifier, expected, seen.metadata_location):
                raise CommitFailedException(f"Table has been updated by another process: {'.'.join(identifier)}")
            # After the swap, whose lock on the row keeps other commits from the pin until this transaction ends.
            self._move_pin(session, identifier, seen, moved)
            self._finish(session, identifier, seen)

    def _move_pin(
        self, session: Session, identifier: str | Identifier, seen: TableVersion, moved: Moves, is_proven: bool = True
    ) -> TableVersion | None:
        """Move the pin in the transaction that has changed the table's row, and so keeps others from moving it."""
        key = row_names(identifier)
        before = find_pin(session, self.name, key)
        pin = self._verified(identifier, before, seen, moved)
        if pin is None or not is_proven:
            return pin

        try:
            is_moved = write_pin(session, self.name, key, before, pin)
        except IntegrityError as error:
            raise CommitFailedException(f"Table was pinned by another process meanwhile: {'.'.join(key)}") from error

        if not is_moved:
            raise CommitFailedException(f"The pin of {'.'.join(key)} was moved by another process meanwhile")

        return pin

    def _finish(self, session: Session, identifier: str | Identifier, seen: TableVersion) -> None:
        try:
            session.commit()
        except DBAPIError as error:
            raise CommitStateUnknownException(
                f"{_shown(identifier)}: the database did not confirm the commit of {seen.metadata_location}, which may have "
                f"landed: load the table and look before you write again. No file was deleted. {error}"
            ) from error

    def _row_key(self, identifier: str | Identifier) -> dict[str, str]:
        """Return the parameters of `is_row` that find a table."""
        return key_of(self.name, row_names(identifier))

    def swap_location(self, session: Session, identifier: str | Identifier, expected: str, location: str) -> bool:
        """Compare and swap metadata_location; return whether the row held the expected one. The row stays locked until the session ends."""
        changed = {"metadata_location": location, "previous_metadata_location": expected}
        return self._change_row(session, self._swapping, {**self._row_key(identifier), **changed, "expected": expected})

    def rename_row(self, session: Session, old: str | Identifier, new: str | Identifier) -> bool:
        """Give a table's row another name; return whether there was one.

        Raises:
            sqlalchemy.exc.IntegrityError: the new name is taken.
        """
        namespace, name = row_names(new)
        renaming = update(ROWS).where(self.is_row).values(table_namespace=namespace, table_name=name)
        return self._change_row(session, renaming, self._row_key(old))

    def delete_row(self, session: Session, identifier: str | Identifier) -> bool:
        """Delete a table's row; return whether there was one."""
        return self._change_row(session, delete(ROWS).where(self.is_row), self._row_key(identifier))

    @cached_property
    def _swapping(self) -> Update:
        return update(ROWS).where(self.is_row, ROWS.c.metadata_location == bindparam("expected"))

    def _change_row(self, session: Session, changing: Update | Delete, parameters: dict[str, Any]) -> bool:
        """Change the row that a statement finds; return whether there was one. It stays locked until the session ends."""
        if self.engine.dialect.supports_sane_rowcount:
            return bool(session.execute(changing, parameters).rowcount)  # type: ignore[attr-defined]
        # A database that does not count changed rows: the lock makes the look and the change one step.
        assert changing.whereclause is not None, "every statement here finds one row"
        if session.execute(select(ROWS.c.table_name).where(changing.whereclause).with_for_update(), parameters).first() is None:
            return False

        session.execute(changing, parameters)

        return True

    def _check_new_name(self, session: Session, old: tuple[str, str], new: tuple[str, str]) -> None:
        trusted, moved = TrustedTable(".".join(new), find_pin(session, self.name, new)), find_pin(session, self.name, old)
        if moved is None:
            trusted.refuse_plaintext()
        else:
            trusted.verify_update(moved)

    def _refuse_plaintext(self, identifier: str | Identifier) -> None:
        with Session(self.engine) as session:
            pin = find_pin(session, self.name, row_names(identifier))
        TrustedTable(_shown(identifier), pin).refuse_plaintext()

    def _refuse_existing(self, identifier: str | Identifier) -> None:
        """Refuse a name that is taken before anything is written. Whoever takes it meanwhile is found by the insertion."""
        with Session(self.engine) as session:
            if session.execute(select(ROWS.c.table_name).where(self.is_row), self._row_key(identifier)).first() is not None:
                raise TableAlreadyExistsError(f"Table {_shown(identifier)} already exists")


def _shown(identifier: str | Identifier) -> str:
    return ".".join(row_names(identifier))


def _keep(file: MetadataFile, metadata: EncryptedTableMetadata) -> None:
    """Keep metadata that is written: the next load in this process need not parse it."""
    PARSED.put(file.digest, metadata.as_read(), len(file.content))


class EncryptedInMemoryCatalog(EncryptedSqlCatalog, InMemoryCatalog):
    """PyIceberg's InMemoryCatalog with encrypted tables: for tests and notebooks. Its pins end with it, as its tables' entries do."""
