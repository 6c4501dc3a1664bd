"""The check-up: configuration, keys, table, storage, pins and versions, each tried whatever came of the others.

catalog ──▶ whether it refuses plaintext, what programs written for PyIceberg make of its configuration, its namespaces
   ├──▶ key service ─▶ a probe wrapped and unwrapped under each master key, and the table's KEKs (master_keys.py)
   ├──▶ table ─▶ its folders: list, read; a probe written, read back and deleted
   └──▶ pins
this installation ─▶ versions, Java (installation.py)

The probe that is wrapped is random and no key of anything; what it was wrapped to is stored nowhere. A reader may be refused to wrap: that
he can read a table shows the table's own KEK.

The probe that is written is an AGS1 file of random bytes under a key that nobody keeps, under a name of its own, so that not even a probe
that may not be deleted again is plaintext. Nothing but the probe is deleted.

For what other programs make of a catalog's configuration, PyIceberg is asked for the type; nothing is loaded.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final, Protocol, runtime_checkable

from pyiceberg.catalog import PY_CATALOG_IMPL, TYPE, Catalog, CatalogType, infer_catalog_type
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.io import FileIO
from pyiceberg.table import Table
from pyiceberg.typedef import Identifier
from pyiceberg.utils.config import Config

from tablecrypt import properties as names
from tablecrypt.arguments import checked_arguments, file_path, names_of
from tablecrypt.crypto.key_metadata import StandardKeyMetadata
from tablecrypt.errors import TamperedFileError
from tablecrypt.files.encrypting_file_io import EncryptingFileIO, EncryptingOutputFile, store_io
from tablecrypt.files.stores import stored_files
from tablecrypt.kms.resilient import AllowedKeys
from tablecrypt.maintenance._audit.table_audit import PinsTables
from tablecrypt.maintenance._doctor.checks import Check, CheckState, CheckUp, failed, tried
from tablecrypt.maintenance._doctor.installation import version_checks
from tablecrypt.maintenance._doctor.master_keys import key_checks
from tablecrypt.maintenance.catalog_tables import first_table, tables_near
from tablecrypt.printable import counted
from tablecrypt.table.table import EncryptedTable
from tablecrypt.table.table_files import name_of

_CONFIGURATION: Final = "configuration"
_TABLE: Final = "table"
_PINS: Final = "pins"
_STORAGE: Final = "storage"
PROBE: Final = "tablecrypt-probe-"
_PROBE_FILE_LENGTH: Final = 64
_PROBE_KEY_LENGTH: Final = 16
_OURS: Final = "tablecrypt"
_ADVICE: Final = "write 'type: tablecrypt' into the catalog's configuration, which PyIceberg's own loader refuses"


@checked_arguments()
def doctor(catalog: Catalog, table: str | None = None, *, key_ids: Sequence[str] = (), read_only: bool = False) -> CheckUp:
    """Test whether a catalog, its key service and its stores let this client work.

    Args:
        catalog: an encrypting catalog.
        table: the name of a table, whose keys and folders are tried too.
        key_ids: further master keys to try.
        read_only: whether to wrap nothing and write nothing.

    Raises:
        ConfigurationError: an argument has a wrong type. Everything else that is wrong becomes a failed check.
    """
    asked = names_of("key_ids", key_ids)
    refuses = names.REQUIRED.is_true(names.client_properties(catalog))
    return CheckUp(catalog.name, table, read_only, refuses, tuple(_checks(catalog, table, asked, read_only)))


@checked_arguments()
def doctor_without_catalog(name: str, error: Exception) -> CheckUp:
    """Run the checks that are possible if the catalog cannot be loaded."""
    advice = "correct .pyiceberg.yaml, the environment or --property; docs/how-to/configure.md has one that works"
    return CheckUp(name, None, True, None, (failed(_CONFIGURATION, "load the catalog", error, advice), *version_checks()))


def _checks(catalog: Catalog, name: str | None, key_ids: tuple[str, ...], read_only: bool) -> Iterator[Check]:
    properties = names.client_properties(catalog)
    defaults: list[str] = []
    yield _plaintext(catalog, name, defaults)
    yield from _configuration_checks(catalog)
    loaded: list[Table] = []

    if name is None:
        yield _any_table(catalog)
    else:
        yield _loading(catalog, name, loaded)
        yield from (_plain(each) for each in loaded if not isinstance(each, EncryptedTable))

    others = (*key_ids, *defaults, *AllowedKeys.of(properties).key_ids)
    yield from key_checks(properties, loaded[0] if loaded else None, others, read_only)
    for table in loaded:
        yield from _storage_checks(table, read_only)
    if not loaded:
        why, advice = ("no table was named", "name one") if name is None else ("the table could not be loaded", "")
        yield Check(_STORAGE, "list, read, write, delete", CheckState.UNTRIED, f"not tried: {why}", advice)
    yield from _pin_checks(catalog, properties)
    yield from version_checks()


def _configuration_checks(catalog: Catalog) -> Iterator[Check]:
    yield from plain_program_checks(_CONFIGURATION, catalog.name)

    def reach() -> str:
        return f"{type(catalog).__name__}, namespaces: {len(catalog.list_namespaces()):,}"

    yield tried(_CONFIGURATION, "reach the catalog", reach, "check its uri, and that its database or server runs and lets this client in")


@runtime_checkable
class _NamesDefaultKeys(Protocol):
    """A catalog that says which master key a new table gets that names none."""

    def default_key_id(self, namespace: str | Identifier) -> str | None:
        """Return the master key of new tables in a namespace; with an empty one, that of all others."""


def _plaintext(catalog: Catalog, table: str | None, defaults: list[str]) -> Check:
    """Say what the catalog does with plain tables, and what decides it. Put the master key of new tables into `defaults`."""
    name, namespace = "this catalog refuses plaintext", "" if table is None else table.rpartition(".")[0]
    try:
        default = catalog.default_key_id(namespace) if isinstance(catalog, _NamesDefaultKeys) else None
    except Exception as error:  # noqa: BLE001  what a catalog raises is what a check-up is to tell
        return failed(_CONFIGURATION, name, error, f"correct {names.DEFAULT_KEY_ID.name} of namespace {namespace}, or of the catalog")

    defaults += filter(None, (default,))
    if names.REQUIRED.is_true(names.client_properties(catalog)):
        return Check(_CONFIGURATION, name, CheckState.WORKS, f"yes: {names.REQUIRED.name}=true, so no plain table is made or opened")

    new = f"gets {default} by {names.DEFAULT_KEY_ID.name}, and plain tables are opened" if default else "is a plain one"
    found = f"no: {names.REQUIRED.name} is not true; a new table without {names.KEY_ID.name} {new}"

    return Check(_CONFIGURATION, name, CheckState.NOTED, found, f"set {names.REQUIRED.name}=true")


def _any_table(catalog: Catalog) -> Check:
    found: list[str] = []

    def look() -> str:
        found.extend(first_table(catalog) or ())
        return f"{'.'.join(found)}, among others"

    check = tried(_TABLE, "the catalog has tables", look, "give this client the right to list namespaces and tables")
    if check.state == CheckState.FAILS or found:
        return check

    return replace(check, state=CheckState.NOTED, found="there is no table in it", advice="check that it is the catalog that you mean")


def _loading(catalog: Catalog, name: str, loaded: list[Table]) -> Check:
    """Try to load a table, and put it into `loaded`."""

    def load() -> str:
        try:
            table = catalog.load_table(name)
        except NoSuchTableError as error:
            raise NoSuchTableError(f"{error}{tables_near(catalog, name)}") from error
        loaded.append(table)
        return table.location()

    return tried(_TABLE, f"load {name}", load, "check the name; if the table was tampered with or rolled back, the error says so")


def _plain(table: Table) -> Check:
    found = "a plain table: what is written to it is not encrypted"
    return Check(_TABLE, "is encrypted", CheckState.NOTED, found, f"tablecrypt migrate makes {name_of(table)} an encrypted one")


def _storage_checks(table: Table, read_only: bool) -> Iterator[Check]:
    # The store's own FileIO: whether files can be reached is asked without any key.
    io = store_io(table.io)
    folder = table.metadata_location.rpartition("/")[0]
    data = table.properties.get("write.data.path", f"{table.location()}/data").rstrip("/")
    yield try_to_list(io, folder)
    yield try_to_read(io, table.metadata_location)
    if read_only:
        yield Check(_STORAGE, "write and delete", CheckState.UNTRIED, "not tried: the check is read-only")
        return

    for place in (folder, data):
        yield from try_to_write(io, place)


def _pin_checks(catalog: Catalog, properties: Mapping[str, str]) -> Iterator[Check]:
    places = catalog.pin_places if isinstance(catalog, PinsTables) else ()
    if not places:
        found = "nothing pins tables: older or edited metadata is accepted"
        advice = f"set {names.PINS.name} to a file of this client"
        yield Check(_PINS, "tables are pinned", CheckState.NOTED, found, advice)
        return

    yield Check(_PINS, "tables are pinned", CheckState.WORKS, "; ".join(places))
    if names.PINS.name in properties:
        yield tried(_PINS, "write the pin file", lambda: _writable(properties[names.PINS.name]), "let its owner write it")


def _writable(named: str) -> str:
    """Say that a pin file, and the folder in which a new one takes its place, may be written.

    Raises:
        PermissionError: they may not.
        ConfigurationError: no file can have the path that is named.
    """
    path = file_path(names.PINS.name, named)
    for each in (path.absolute().parent, path):
        if each.exists() and not os.access(each, os.W_OK):
            raise PermissionError(f"{each} may not be written")
    return f"{path} {'is there' if path.exists() else 'is made when the first table is loaded'}"


def try_to_list(io: FileIO, folder: str) -> Check:
    """Try to list a folder."""

    def attempt() -> str:
        return counted(sum(1 for _ in stored_files(io, folder)), "file", "files")

    return tried(_STORAGE, f"list {folder}", attempt, "give this client the right to list it: audit, orphans and shred need it")


def try_to_read(io: FileIO, location: str) -> Check:
    """Try to read the beginning of a file."""

    def attempt() -> str:
        with io.new_input(location).open() as stream:
            return "its first byte was read" if stream.read(1) else "it is empty"

    return tried(
        _STORAGE, f"read {location}", attempt, "give this client the right to read below the table's location: nothing works without it"
    )


def try_to_write(io: FileIO, folder: str) -> Iterator[Check]:
    """Try to write, read back and delete a probe in a folder."""
    probe, location = secrets.token_bytes(_PROBE_FILE_LENGTH), f"{folder}/{PROBE}{secrets.token_hex(8)}.ags1"
    encrypting = EncryptingFileIO(io)
    outputs: list[EncryptingOutputFile] = []

    def write() -> str:
        output = encrypting.encrypting_output(location, StandardKeyMetadata.generate(_PROBE_KEY_LENGTH, secrets.token_bytes))
        try:
            with output.create() as stream:
                stream.write(probe)
        except BaseException:
            # On a full disk an empty file is left of it.
            with suppress(Exception):
                encrypting.delete(location)
            raise

        outputs.append(output)
        return f"a probe of {len(output):,} encrypted bytes was written"

    def read_back() -> str:
        with outputs[0].to_input_file().open() as stream:
            if stream.read() != probe:
                raise TamperedFileError(location, "contains other bytes than were written")
        return "the probe came back unchanged"

    def delete() -> str:
        encrypting.delete(location)
        return "the probe is gone"

    written = tried(
        _STORAGE,
        f"write to {folder}",
        write,
        "give this client the right to write there; readers do not need it (--read-only)",
    )
    yield written
    if written.state == CheckState.WORKS:
        yield tried(_STORAGE, f"read back from {folder}", read_back, "find out what changes data between this client and the store")
        yield tried(_STORAGE, f"delete from {folder}", delete, f"give this client the right to delete there; {location} stays until then")


def plain_program_checks(area: str, name: str) -> Iterator[Check]:
    """Say whether a program that calls PyIceberg's load_catalog by a catalog's name would write plaintext. Nothing if none is configured.

    Args:
        area: of the check.
        name: the catalog's.
    """
    configured = Config().get_catalog_config(name) or {}
    if not configured:
        # Nothing by that name is in PyIceberg's own configuration, so such a program does not find the catalog at all.
        return

    kind = str(configured.get(TYPE) or "").lower()
    if kind == _OURS:
        yield Check(area, "programs written for PyIceberg", CheckState.WORKS, f"'type: {_OURS}': PyIceberg's own loader {_what_it_does()}")
        return

    said = f"'type: {kind}'" if kind else f"{PY_CATALOG_IMPL} alone" if configured.get(PY_CATALOG_IMPL) else f"no 'type: {_OURS}'"
    ignores = "ignores it and " if not kind and configured.get(PY_CATALOG_IMPL) else ""
    plain = kind or _inferred(name, configured)

    if plain:
        # This is the silent case: the program opens the tables' catalog, and writes plaintext there.
        found, state = f"{said}: PyIceberg's loader {ignores}opens a plain catalog ({plain})", CheckState.FAILS
    else:
        found, state = f"{said}: PyIceberg's loader {ignores}finds no catalog without it", CheckState.NOTED

    yield Check(area, "programs written for PyIceberg", state, found, _ADVICE)


def _what_it_does() -> str:
    try:
        CatalogType(_OURS)
    except ValueError:
        return "refuses it; tablecrypt run, tablecrypt activate and tablecrypt.register() let it open the encrypting catalog"
    return "opens the encrypting catalog in this environment, where it is registered, and refuses it elsewhere"


def _inferred(name: str, configured: Mapping[str, Any]) -> str | None:
    """Return the type that PyIceberg infers without the class, which it does not look at; None where it infers none."""
    try:
        found = infer_catalog_type(name, {each: value for each, value in configured.items() if each != PY_CATALOG_IMPL})
    except ValueError:
        return None
    return None if found is None else str(found.value)
