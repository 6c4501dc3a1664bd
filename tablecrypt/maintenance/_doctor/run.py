"""The check-up: configuration, keys, table, storage, pins and versions, each tried whatever came of the others.

catalog ──▶ its configuration, its namespaces
   ├──▶ key service ─▶ a probe wrapped and unwrapped under each master key
   ├──▶ table ─▶ its KEK, its folders: list, read; a probe written, read back and deleted
   └──▶ pins
this installation ─▶ versions, Java
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from pyiceberg.catalog import PY_CATALOG_IMPL, TYPE, Catalog
from pyiceberg.table import Table
from pyiceberg.utils.config import Config

from tablecrypt import properties as names
from tablecrypt.arguments import checked_arguments, names_of
from tablecrypt.files.encrypting_file_io import EncryptingFileIO
from tablecrypt.keys.manager import EncryptionManager
from tablecrypt.kms.allowed_keys import AllowedKeys
from tablecrypt.kms.client import KeyManagementClient
from tablecrypt.kms.factory import load_kms
from tablecrypt.maintenance._audit.table_audit import PinsTables
from tablecrypt.maintenance._doctor.checks import (
    STORAGE,
    Check,
    CheckState,
    CheckUp,
    failed,
    key_checks,
    opens,
    tried,
    try_to_list,
    try_to_read,
    try_to_write,
    version_checks,
)
from tablecrypt.maintenance._tables import encrypted_metadata_of, name_of
from tablecrypt.table.table import EncryptedTable

_CONFIGURATION: Final = "configuration"
_TABLE: Final = "table"
_PINS: Final = "pins"
_SERVICE: Final = "the key service"


@checked_arguments()
def doctor(catalog: Catalog, table: str | None = None, *, key_ids: Sequence[str] = (), read_only: bool = False) -> CheckUp:
    """Try whether a catalog, its key service and its stores let this client work.

    Args:
        catalog: an encrypting catalog.
        table: the name of a table, whose keys and folders are tried too.
        key_ids: further master keys to try.
        read_only: whether to wrap nothing and write nothing.

    Raises:
        ConfigurationError: an argument has a wrong type. Whatever is wrong beside that is a check that fails.
    """
    asked = names_of("key_ids", key_ids)
    return CheckUp(catalog.name, table, read_only, tuple(_checks(catalog, table, asked, read_only)))


@checked_arguments()
def doctor_without_catalog(name: str, error: Exception) -> CheckUp:
    """Return what can be said where the catalog cannot even be loaded."""
    advice = "correct .pyiceberg.yaml, the environment or --property; docs/operations.md, “Configuration files”, has one that works"
    return CheckUp(name, None, True, (failed(_CONFIGURATION, "load the catalog", error, advice), *version_checks()))


def _checks(catalog: Catalog, name: str | None, key_ids: tuple[str, ...], read_only: bool) -> Iterator[Check]:
    yield from _configuration_checks(catalog)
    properties = names.client_properties(catalog)
    loaded: list[Table] = []
    if name is not None:
        yield _loading(catalog, name, loaded)
        yield from (_plain(each) for each in loaded if not isinstance(each, EncryptedTable))
    of_table = [each.metadata.properties[names.KEY_ID.name] for each in loaded if names.KEY_ID.name in each.metadata.properties]
    clients: list[KeyManagementClient] = []
    yield _service(properties, clients)
    for client in clients:
        yield from key_checks(client, dict.fromkeys((*of_table, *key_ids, *_configured_keys(properties))), read_only)
        for table in loaded:
            yield from _table_key_checks(client, table)
        client.close()
    for table in loaded:
        yield from _storage_checks(table, read_only)
    if not loaded:
        why, advice = ("no table was named", "name one") if name is None else ("the table could not be loaded", "")
        yield Check(STORAGE, "list, read, write, delete", CheckState.NOTED, f"not tried: {why}", advice)
    yield from _pin_checks(catalog, properties)
    yield from version_checks()


def _configuration_checks(catalog: Catalog) -> Iterator[Check]:
    configured = Config().get_catalog_config(catalog.name) or {}
    if PY_CATALOG_IMPL in configured and TYPE not in configured:
        advice = "write 'type: tablecrypt' into the catalog's configuration, which PyIceberg's own load_catalog refuses"
        found = f"{PY_CATALOG_IMPL} without a type: a program with PyIceberg's own load_catalog writes plaintext"
        yield Check(_CONFIGURATION, "fails closed", CheckState.FAILS, found, advice)

    def reach() -> str:
        return f"{type(catalog).__name__}, namespaces: {len(catalog.list_namespaces()):,}"

    yield tried(_CONFIGURATION, "reach the catalog", reach, "check its uri, and that its database or server runs and lets this client in")
    if not names.REQUIRED.is_true(names.client_properties(catalog)):
        found = f"a new table without a key is a plain one: {names.REQUIRED.name} is not true"
        yield Check(_CONFIGURATION, "plain tables are refused", CheckState.NOTED, found, f"set {names.REQUIRED.name}=true")


def _configured_keys(properties: Mapping[str, str]) -> Iterator[str]:
    """Yield the master keys that the configuration names."""
    if names.DEFAULT_KEY_ID.name in properties:
        yield str(properties[names.DEFAULT_KEY_ID.name])
    yield from AllowedKeys.of(properties).key_ids


def _loading(catalog: Catalog, name: str, loaded: list[Table]) -> Check:
    """Try to load a table, and put it into `loaded`."""

    def load() -> str:
        table = catalog.load_table(name)
        loaded.append(table)
        return table.location()

    return tried(_TABLE, f"load {name}", load, "check the name; what refuses a table that was tampered with or rolled back says so")


def _plain(table: Table) -> Check:
    found = "a plain table: what is written to it is not encrypted"
    return Check(_TABLE, "is encrypted", CheckState.NOTED, found, f"tablecrypt migrate makes {name_of(table)} an encrypted one")


def _service(properties: Mapping[str, str], clients: list[KeyManagementClient]) -> Check:
    """Try to make a client of the key service, and put it into `clients`. It has remembered nothing yet."""

    def make() -> str:
        clients.append(load_kms(properties))
        return str(properties.get(names.KMS_TYPE.name) or names.kms_impl(properties))

    return tried("keys", _SERVICE, make, f"set {names.KMS_TYPE.name} and what docs/operations.md lists for that service")


def _table_key_checks(client: KeyManagementClient, table: Table) -> Iterator[Check]:
    if not isinstance(table, EncryptedTable):
        return
    metadata, snapshot = encrypted_metadata_of(table), table.current_snapshot()
    key_id = metadata.properties[names.KEY_ID.name]
    keyed = None if snapshot is None else getattr(snapshot, "key_id", None)
    if keyed is None:
        yield Check("keys", f"open the table's KEK with {key_id}", CheckState.NOTED, "not tried: the table has no snapshot yet")
        return
    yield opens(lambda: EncryptionManager(client, key_id).decrypt_manifest_list_key_metadata(metadata.key_ring.chain(keyed)), key_id)


def _storage_checks(table: Table, read_only: bool) -> Iterator[Check]:
    io = table.io.inner if isinstance(table.io, EncryptingFileIO) else table.io
    folder = table.metadata_location.rpartition("/")[0]
    data = table.properties.get("write.data.path", f"{table.location()}/data").rstrip("/")
    yield try_to_list(io, folder)
    yield try_to_read(io, table.metadata_location)
    if read_only:
        yield Check(STORAGE, "write and delete", CheckState.NOTED, "not tried: only looking was asked for")
        return
    for place in (folder, data):
        yield from try_to_write(io, place)


def _pin_checks(catalog: Catalog, properties: Mapping[str, str]) -> Iterator[Check]:
    places = catalog.pin_places if isinstance(catalog, PinsTables) else ()
    if not places:
        found = "nothing remembers what was seen of a table: older or edited metadata is accepted"
        advice = f"set {names.PINS.name} to a file of this client"
        yield Check(_PINS, "tables are pinned", CheckState.NOTED, found, advice)
        return
    yield Check(_PINS, "tables are pinned", CheckState.WORKS, "; ".join(places))
    if names.PINS.name in properties:
        yield tried(_PINS, "write the pin file", lambda: _writable(Path(properties[names.PINS.name])), "let its owner write it")


def _writable(path: Path) -> str:
    """Say that a pin file, and the folder in which a new one takes its place, may be written.

    Raises:
        PermissionError: they may not.
    """
    path = path.expanduser()
    for each in (path.absolute().parent, path):
        if each.exists() and not os.access(each, os.W_OK):
            raise PermissionError(f"{each} may not be written")
    return f"{path} {'is there' if path.exists() else 'is made when the first table is loaded'}"
