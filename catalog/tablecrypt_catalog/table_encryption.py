"""What every encrypting catalog does with a table, however the catalog loads and commits it.

A table is encrypted when its property encryption.key-id names a master key. These functions tell such a table from a plain one and open it
with our metadata and a FileIO that refuses plaintext. They fail closed: metadata that holds keys, or a key id on a table that is not
encrypted, is an error and never a plaintext table. What an entry leads to and cannot be read is an error that says so, whatever PyIceberg
or Arrow raise on the way.

What a new table is asked to be is checked before it is made, since a slip in a property must not make a table that is not encrypted:

    encryption.key-id given                        that master key, once the KMS has wrapped a key under it
    not given, encryption.default-key-id set       the default of the namespace, which encryption.allowed-key-ids must allow, else the
                                                   catalog's
    neither, encryption.required=true              refused
    neither                                        a plain table
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Final, cast

from pyiceberg.catalog import Catalog
from pyiceberg.io import FileIO
from pyiceberg.schema import Schema
from pyiceberg.table import Table, TableProperties
from pyiceberg.table.metadata import TableMetadata, TableMetadataV3
from pyiceberg.table.update import SetPropertiesUpdate, SetSnapshotRefUpdate, TableUpdate, update_table_metadata
from pyiceberg.typedef import EMPTY_DICT, IcebergBaseModel, Identifier, Properties

from tablecrypt import properties as names
from tablecrypt._parsed_json import problem_of
from tablecrypt.arguments import check_name_parts, check_text
from tablecrypt.errors import ConfigurationError, FormatError, KeyIdChangedError, PlaintextRefusedError, TablecryptError
from tablecrypt.files.deletion import NOTHING, DeletionScope
from tablecrypt.files.encrypting_file_io import ReadRestrictions
from tablecrypt.iceberg_properties import OF_TABLES
from tablecrypt.keys.column_keys import ColumnPolicy
from tablecrypt.keys.manager import EncryptionManager, KeySettings
from tablecrypt.kms.factory import shared_kms
from tablecrypt.kms.resilient import AllowedKeys
from tablecrypt.setting_kinds import check_spelling, check_values
from tablecrypt.table._pyiceberg.transactions import table_identifier
from tablecrypt.table.foreign_engines import refuse_to_ray
from tablecrypt.table.metadata import (
    UNREADABLE,
    EncryptedTableMetadata,
    MetadataFile,
    check_metadata_location,
    check_name_mapping,
    check_whole,
    encrypted_metadata,
    has_encryption_traces,
    read_metadata_file,
)
from tablecrypt.table.other_tables import OtherTables
from tablecrypt.table.planning.missing_main import cut_off_head, described
from tablecrypt.table.protection.declaration import check_master_keys
from tablecrypt.table.protection.declaring import first_declarations
from tablecrypt.table.snapshots import check_retention, check_shown_partitions
from tablecrypt.table.table import EncryptedTable, are_plain_tables_opened
from tablecrypt.table.table_files import TableFileIO, folders_named, folders_of
from tablecrypt.table.updates import AddEncryptionKeyUpdate, with_copies
from tablecrypt_catalog.pins.protected_columns import PinnedColumn
from tablecrypt_catalog.pins.proven_heads import Proof, ProvenHeads
from tablecrypt_catalog.pins.record import TableVersion, folders_on_first_sight, table_version

logger = logging.getLogger(__name__)
_WARNED_UNPINNED: Final[set[tuple[str, Identifier]]] = set()


def check_new_name(identifier: str | Identifier) -> None:
    """Refuse a name that a table which is there should not get. ConfigurationError: UTF-8 cannot hold it, or a part of it is blank."""
    check_text("the new name of a table", identifier)
    check_name_parts(".".join(Catalog.identifier_to_tuple(identifier)))


def check_registration(identifier: str | Identifier, metadata_location: str) -> None:
    """Refuse to register a table by a name or a location that nothing can have.

    Raises:
        ConfigurationError: UTF-8 cannot hold one of them, or the location or a part of the name is blank.
    """
    check_new_name(identifier)
    check_text("the metadata location of a table", metadata_location)
    check_metadata_location(metadata_location)


@contextmanager
def refusing_unreadable(identifier: str | Identifier) -> Iterator[None]:
    """Turn errors of parsing a location or the metadata there into FormatError. Errors of the store and of this package stay what they are.

    Raises:
        FormatError: the location is not valid, or has no table metadata.
        FileNotFoundError: there is no file; it says what to do.
    """
    name = ".".join(Catalog.identifier_to_tuple(identifier))
    try:
        yield
    except TablecryptError:
        raise  # a ConfigurationError is a ValueError too
    except FileNotFoundError as error:
        raise FileNotFoundError(
            f"{name}: its metadata file is not in storage. Restore it from a backup, or register the newest one that there is "
            f"(docs/how-to/restore.md): {error}"
        ) from error
    except UNREADABLE as error:
        raise FormatError(f"{name}: what the catalog's entry leads to cannot be read as table metadata: {problem_of(error)}") from error


def opened_table(catalog: Catalog, table: Table, verify: Callable[[TableVersion, Proof], TableVersion | None]) -> Table:
    """Return a table that a catalog loaded as an EncryptedTable where it is encrypted, else as it is.

    Args:
        catalog: the catalog that loaded it.
        table: as PyIceberg loaded it.
        verify: gets what was seen of the table, and the proof of its heads; it raises what the pins refuse, and returns what is trusted.

    Raises:
        KeyIdChangedError: the metadata holds keys, but encryption.key-id is gone.
        PlaintextRefusedError: as `refuse_plain_table`.
        ConfigurationError: the table is encrypted and the catalog has no usable KMS properties.
    """
    if isinstance(table, EncryptedTable) or table.metadata.format_version != 3:
        loaded, digest = table, None
    else:
        loaded = table if isinstance(table, UnverifiedTable) else _reloaded(catalog, table)
        digest = loaded.digest

    check_metadata(catalog.client_properties, table_identifier(loaded), loaded.metadata, loaded.metadata_location)  # type: ignore[attr-defined]
    proof = proof_of_heads(loaded.metadata, lambda: loaded.io, lambda: names.client_properties(catalog))
    # Before the table is built: a version that the pins refuse gets no FileIO and no key.
    pin = verify(table_version(loaded.metadata, loaded.metadata_location, digest), proof)

    return table_from_metadata(catalog, loaded, pin) if isinstance(loaded, UnverifiedTable) else loaded


def proof_of_heads(metadata: TableMetadata, inner: Callable[[], FileIO], kms_properties: Callable[[], Mapping[str, str]]) -> Proof:
    """Return what says how much of a table that was loaded may be pinned.

    Args:
        metadata: the table's.
        inner: gives the FileIO that stores its files.
        kms_properties: gives those with which the KMS is reached.
    """
    return ProvenHeads(metadata, lambda: table_file_io(kms_properties(), inner(), metadata))


NO_COLUMNS: Final[Mapping[int, PinnedColumn]] = {}


class UnverifiedTable(Table):
    """A table as its metadata file says, before anything is verified or opened: `opened_table` does both.

    Attributes:
        digest: of its metadata file.
        trusted_folders: those in which its files may be deleted, as the catalog's entry says; empty where it says nothing.
        pinned_columns: the protected columns that the catalog's entry has pinned, by field id.
    """

    def __init__(
        self,
        catalog: Catalog,
        identifier: Identifier,
        file: MetadataFile,
        io: FileIO,
        config: Properties = EMPTY_DICT,
        trusted_folders: tuple[str, ...] = (),
        pinned_columns: Mapping[int, PinnedColumn] = NO_COLUMNS,
    ) -> None:
        super().__init__(identifier, file.parse(), file.location, io, catalog, dict(config))
        self.digest = file.digest
        self.trusted_folders = trusted_folders
        self.pinned_columns = pinned_columns


def _reloaded(catalog: Catalog, table: Table) -> UnverifiedTable:
    """PyIceberg's models drop what encryption needs, so the file is read again."""
    file = read_metadata_file(table.io.new_input(table.metadata_location))
    return UnverifiedTable(catalog, table_identifier(table), file, table.io, table.config)


def check_metadata(client_properties: Properties, identifier: Identifier, metadata: TableMetadata, location: str) -> None:
    """Check what a table's metadata says before pins are compared with it, and before anything of it is opened or built.

    Raises:
        TamperedFileError, FormatError: it is an encrypted table's, and contradicts itself (`check_whole`).
        KeyIdChangedError: it holds keys, but encryption.key-id is gone.
        PlaintextRefusedError: as `refuse_plain_table`.
        MasterKeyRefusedError: it names a master key that this client does not allow.
        ConfigurationError: its properties name code to import, or an encrypted table's name mapping cannot be read.
    """
    # First of all: what follows makes objects, whose classes the properties must not name.
    names.check_table_properties(".".join(identifier), metadata.properties, client_properties)
    _check_master_keys(client_properties, identifier, metadata)
    if not isinstance(metadata, EncryptedTableMetadata) or not is_encrypted(identifier, metadata):
        refuse_plain_table(client_properties, identifier, metadata)
        return

    check_whole(location, metadata)


def _check_master_keys(client_properties: Properties, identifier: Identifier, metadata: TableMetadata) -> None:
    entries = metadata.encryption_keys if isinstance(metadata, EncryptedTableMetadata) else ()
    # The KEKs' master keys too: metadata may have an allowed encryption.key-id and a KEK under the attacker's key.
    wrapping = {key.encrypted_by_id for key in entries if key.is_kek}
    named = (metadata.properties.get(names.KEY_ID.name), *sorted(filter(None, wrapping)))
    AllowedKeys.of(client_properties).check(named, f"the metadata of table {'.'.join(identifier)}")


def check_updates(client_properties: Properties, identifier: Identifier, updates: Collection[TableUpdate]) -> None:
    """Refuse a commit after which no client could load the table, or that sets an unknown property of ours.

    Raises:
        MasterKeyRefusedError: an update names a master key that this client does not allow.
        ConfigurationError: an update sets a property that names code, a misspelt one, or one to a value that it cannot have; or holds
            text that UTF-8 cannot, or a limit of a branch or tag that metadata cannot.
    """
    check_text(f"the commit to table {'.'.join(identifier)}", *updates)
    allowed = AllowedKeys.of(client_properties)
    for update in cast("Iterable[IcebergBaseModel]", updates):
        if isinstance(update, SetPropertiesUpdate):
            names.check_own_properties(update.updates, "table")
            names.check_table_properties(".".join(identifier), update.updates, client_properties)
            allowed.check((update.updates.get(names.KEY_ID.name),), f"the commit to table {'.'.join(identifier)}")
        elif isinstance(update, SetSnapshotRefUpdate):
            check_retention(f"{'.'.join(identifier)}, {update.ref_name}", dict(update))
        elif isinstance(update, AddEncryptionKeyUpdate) and update.key.is_wrapped_by_kms:
            allowed.check((update.key.encrypted_by_id,), f"the commit to table {'.'.join(identifier)}")


def table_from_metadata(catalog: Catalog, loaded: UnverifiedTable, pin: TableVersion | None = None) -> Table:
    """Return the table of metadata that `check_metadata` has passed, with everything that encryption needs (see `MetadataFile.parse`).

    Raises:
        ConfigurationError: the table is encrypted and the catalog has no usable KMS properties.
    """
    identifier, metadata = table_identifier(loaded), loaded.metadata
    if isinstance(metadata, EncryptedTableMetadata):
        if is_encrypted(identifier, metadata):
            return encrypted_table(catalog, loaded, metadata, pin)
        # In PyIceberg's class again, so that a plain table behaves as in PyIceberg.
        metadata = TableMetadataV3.model_validate(IcebergBaseModel.model_dump(metadata))

    return Table(identifier, metadata, loaded.metadata_location, loaded.io, catalog, dict(loaded.config))


def base_of_commit(catalog: Catalog, loaded: UnverifiedTable) -> Table:
    """Return what a commit is based on, once it was held against the pins. An encrypted table gets no key: its metadata is all it takes."""
    is_ours = isinstance(loaded.metadata, EncryptedTableMetadata) and is_encrypted(table_identifier(loaded), loaded.metadata)
    return loaded if is_ours else table_from_metadata(catalog, loaded)


def is_encrypted(identifier: Identifier, metadata: EncryptedTableMetadata) -> bool:
    """Whether version 3 metadata is that of an encrypted table.

    Raises:
        KeyIdChangedError: it holds keys or names them, but has no encryption.key-id.
    """
    if names.KEY_ID.name in metadata.properties:
        return True
    # The property alone was removed: taken for plain, the table would get plaintext from its next writer.
    if has_encryption_traces(metadata):
        raise KeyIdChangedError(
            f"{'.'.join(identifier)}: its metadata holds encryption keys but no {names.KEY_ID.name}: the property was removed, "
            "and the table must not be read or written as plaintext"
        )

    return False


def encrypted_table(
    catalog: Catalog,
    table: Table,
    metadata: EncryptedTableMetadata,
    pin: TableVersion | None = None,
    read_restrictions: ReadRestrictions | None = None,
    kms_properties: Mapping[str, str] | None = None,
) -> EncryptedTable:
    """Return the encrypted table that a catalog loaded as a plain one.

    Args:
        catalog: the catalog that loaded it.
        table: as it was loaded.
        metadata: the table's, in the class that keeps its keys.
        pin: what is trusted of it.
        read_restrictions: what readers of its rows have to apply.
        kms_properties: with what the KMS is reached, if not with those of the catalog.

    Raises:
        FormatError: Ray's own source or sink for Iceberg loads it, which opens data files by itself.
    """
    refuse_to_ray(".".join(table_identifier(table)))
    warn_if_unpinned(catalog, table_identifier(table))
    if metadata.current_snapshot_id is None and (head := cut_off_head(metadata)) is not None:
        logger.warning("%s: %s", ".".join(table_identifier(table)), described(head))
    deletable = pinned_folders(catalog, table, pin)
    io = table_file_io(kms_properties or names.client_properties(catalog), table.io, metadata, deletable, read_restrictions)

    return with_metadata(table, catalog, metadata, io)


def with_metadata(table: Table, catalog: Catalog, metadata: EncryptedTableMetadata, io: TableFileIO) -> EncryptedTable:
    """Return a table as an encrypted one, with this metadata and this FileIO."""
    return EncryptedTable(
        identifier=table_identifier(table),
        metadata=metadata,
        metadata_location=table.metadata_location,
        io=io,
        catalog=catalog,
        config=table.config,
    )


def warn_if_unpinned(catalog: Catalog, identifier: Identifier) -> None:
    """Say, once for each encrypted table, that nothing remembers what was seen of it. An audit finds it too."""
    place = (str(catalog.name), identifier)
    if getattr(catalog, "pin_places", ()) or place in _WARNED_UNPINNED:
        return

    _WARNED_UNPINNED.add(place)
    logger.warning(
        "%s is not pinned: neither its catalog nor a file of this client records what was seen of it, so an older or edited state of it "
        "is accepted. Set the catalog property %s",
        *(".".join(identifier), names.PINS.name),
    )


def pinned_folders(catalog: Catalog, table: Table, pin: TableVersion | None) -> DeletionScope:
    """Return the folders in which a table's files may be deleted without the caller naming them.

    Args:
        catalog: that of the table.
        table: as it was loaded, and held against the pins.
        pin: what is trusted of it. None where the catalog's own pins are parameters of its entry: these say the folders.
    """
    owners = OtherTables(table.io, table.metadata.table_uuid)
    if pin is not None and pin.folders:
        return DeletionScope(pin.folders, owners=owners)
    # Nothing remembers where the table lies, so its metadata alone would say what may be deleted.
    if not getattr(catalog, "pin_places", ()):
        return DeletionScope(owners=owners)

    trusted = table.trusted_folders if isinstance(table, UnverifiedTable) else ()
    # Without an entry that says it, metadata is as on first sight, at each load: a client without memory cannot tell.
    return DeletionScope(trusted or folders_on_first_sight(table.metadata_location, folders_named(table.metadata)), owners=owners)


def table_file_io(
    catalog_properties: Mapping[str, str],
    inner: FileIO,
    metadata: TableMetadata,
    deletable: DeletionScope = NOTHING,
    read_restrictions: ReadRestrictions | None = None,
) -> TableFileIO:
    """Return a table's fail-closed FileIO with its encryption manager.

    Args:
        catalog_properties: with what the KMS is reached.
        inner: does the storing.
        metadata: the table's.
        deletable: where its files may be deleted: `pinned_folders`.
        read_restrictions: what readers of the table's rows have to apply.
    """
    manager = encryption_manager(catalog_properties, metadata.properties)
    return TableFileIO(inner, manager, folders_of(metadata), deletable, read_restrictions)


def encryption_manager(catalog_properties: Mapping[str, str], table_properties: Mapping[str, str]) -> EncryptionManager:
    """Return the manager of a table's key hierarchy: the KMS as the catalog says, key id and lengths as the table says.

    Raises:
        MasterKeyRefusedError: this client does not allow the master key.
        ConfigurationError: a property of the catalog cannot be used, or the table's key id is empty.
    """
    settings = KeySettings.of_stored(table_properties)
    # Here too, since new tables and those of a migration come here without a load that checks them.
    AllowedKeys.of(catalog_properties).check((str(table_properties[names.KEY_ID.name]),), f"the table property {names.KEY_ID.name}")
    return EncryptionManager(
        shared_kms(catalog_properties),
        str(table_properties[names.KEY_ID.name]),
        data_key_length=settings.data_key_length,
        kek_lifespan_ms=settings.kek_lifespan_ms,
    )


def new_metadata(client_properties: Mapping[str, str], staged: TableMetadata) -> EncryptedTableMetadata:
    """Return a new encrypted table's metadata in the class that holds keys, with the declarations of its protected columns.

    Args:
        client_properties: with what the KMS is reached.
        staged: as PyIceberg makes it.
    """
    metadata = encrypted_metadata(staged)
    if not ColumnPolicy.from_properties(metadata.properties):
        return metadata
    maker = encryption_manager(client_properties, metadata.properties).columns
    updates = with_copies(metadata, first_declarations(metadata, maker))
    return cast("EncryptedTableMetadata", update_table_metadata(metadata, updates))


def refuse_plain_table(client_properties: Properties, identifier: Identifier, metadata: TableMetadata) -> None:
    """Refuse a table that is not encrypted, but promises it by encryption.key-id, or is in a catalog with encryption.required.

    Audit and migration open such tables (see `plain_tables_opened`).

    Raises:
        PlaintextRefusedError: it is such a table.
    """
    # An audit has to see such tables, and a migration has to read them; both ask for it by name.
    if are_plain_tables_opened():
        return

    name = ".".join(identifier)
    if names.KEY_ID.name in metadata.properties:
        raise PlaintextRefusedError(
            metadata.location,
            f"table {name} has {names.KEY_ID.name} but is not encrypted (format version {metadata.format_version}); "
            "setting the property does not encrypt what is there: migrate the table",
        )

    if names.REQUIRED.is_true(client_properties):
        raise PlaintextRefusedError(
            metadata.location,
            f"table {name} is not encrypted, and the catalog has {names.REQUIRED.name}=true: migrate the table, or open it with a catalog "
            "that allows plain tables",
        )


def check_catalog_properties(client_properties: Properties) -> None:
    """Refuse a catalog's configuration with an unknown property of ours, or with a value that its property cannot have.

    Raises:
        ConfigurationError: it does.
    """
    names.check_own_properties(client_properties, "catalog", names.is_foreign_kms(client_properties))


def creation_properties(client_properties: Properties, table_properties: Properties) -> Properties:
    """Return a new table's properties, checked, and with format version 3 if it is encrypted.

    Raises:
        MasterKeyRefusedError: this client does not allow the master key.
        ConfigurationError: a name is misspelt, a property cannot be used or names code, format-version 1 or 2 was asked for, or the
            catalog requires encryption and nothing names a master key.
    """
    creation = dict(table_properties)
    names.check_own_properties(creation, "table")
    names.check_table_properties("to be created", creation, client_properties)
    if names.KEY_ID.name not in creation:
        _refuse_where_required(client_properties)
        return creation

    version = str(creation.setdefault(TableProperties.FORMAT_VERSION, "3"))
    if version != "3":
        raise ConfigurationError(
            f"{TableProperties.FORMAT_VERSION}={version} cannot hold encryption keys: "
            f"leave it out, or set 3, when {names.KEY_ID.name} is given"
        )

    check_name_mapping(creation)
    check_spelling(creation, OF_TABLES)
    check_values(creation, OF_TABLES)
    check_shown_partitions(creation, client_properties)
    KeySettings.of(creation)
    AllowedKeys.of(client_properties).check((str(creation[names.KEY_ID.name]),), f"the table property {names.KEY_ID.name}")

    return creation


def check_new_keys(kms_properties: Mapping[str, str], table_properties: Mapping[str, str], schema: Schema) -> None:
    """Have the KMS use each master key of a new table, once.

    Better here than at the first append, when somebody else may find the table without a key that works.

    Raises:
        KeyNotFoundError, KmsAccessDeniedError: there is no such master key, or this user may not use it.
        MasterKeyRefusedError: this client does not allow it.
        KmsError: the KMS failed.
    """
    manager = encryption_manager(kms_properties, table_properties)
    manager.new_kek()
    check_master_keys(manager, {}, table_properties, schema)


def _refuse_where_required(client_properties: Properties) -> None:
    if names.REQUIRED.is_true(client_properties):
        raise ConfigurationError(
            f"the table would not be encrypted, and the catalog has {names.REQUIRED.name}=true: give it {names.KEY_ID.name}, or set "
            f"{names.DEFAULT_KEY_ID.name} for the catalog"
        )
