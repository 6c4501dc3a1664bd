"""The check-up: configuration, keys, table, storage, pins and versions, each tried whatever came of the others.

catalog ──▶ its configuration, its namespaces
   ├──▶ key service ─▶ a probe wrapped and unwrapped under each master key
   ├──▶ table ─▶ its KEK, its folders: list, read; a probe written, read back and deleted
   └──▶ pins
this installation ─▶ versions, Java

The probe that is wrapped is random and no key of anything; what it was wrapped to is stored nowhere. A reader may be refused to wrap: that
he can read a table shows the table's own KEK.

The probe that is written is an AGS1 file of random bytes under a key that nobody keeps, under a name of its own, so that not even a probe
that may not be deleted again is plaintext. Nothing but the probe is deleted.
"""

from __future__ import annotations

import os
import platform
import re
import secrets
import shutil
import subprocess
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path
from typing import Any, Final

from pyiceberg.catalog import PY_CATALOG_IMPL, TYPE, Catalog
from pyiceberg.io import FileIO
from pyiceberg.table import Table
from pyiceberg.utils.config import Config

from tablecrypt import properties as names
from tablecrypt.arguments import checked_arguments, names_of
from tablecrypt.crypto.key_metadata import StandardKeyMetadata
from tablecrypt.crypto.secret import Secret
from tablecrypt.errors import TamperedFileError
from tablecrypt.files.encrypting_file_io import EncryptingFileIO, EncryptingOutputFile
from tablecrypt.keys.manager import EncryptionManager
from tablecrypt.kms.allowed_keys import AllowedKeys
from tablecrypt.kms.client import KeyManagementClient
from tablecrypt.kms.factory import load_kms
from tablecrypt.kms.new_blobs import check_blob, wrap_unchecked
from tablecrypt.maintenance._audit.table_audit import PinsTables
from tablecrypt.maintenance._storage import stored_files
from tablecrypt.maintenance._tables import encrypted_metadata_of, name_of
from tablecrypt.printable import counted, json_fields
from tablecrypt.table.table import EncryptedTable

_CONFIGURATION: Final = "configuration"
_TABLE: Final = "table"
_PINS: Final = "pins"
_KEYS: Final = "keys"
_STORAGE: Final = "storage"
_VERSIONS: Final = "versions"
_SERVICE: Final = "the key service"
_RIGHTS: Final = "docs/how-to/permissions.md has its name in each key service"
_PROBE_LENGTH: Final = 16
PROBE: Final = "tablecrypt-probe-"
_PROBE_FILE_LENGTH: Final = 64
_PROBE_KEY_LENGTH: Final = 16
_SHOWN: Final = ("pyiceberg", "pyarrow", "cryptography", "pyspark")
_OPTIONAL: Final = frozenset({"pyspark"})
_BOUND: Final = re.compile(r"(>=|<)\s*([0-9.]+)")
_JAVA_SECONDS: Final = 20


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
    return CheckUp(catalog.name, table, read_only, tuple(_checks(catalog, table, asked, read_only)))


@checked_arguments()
def doctor_without_catalog(name: str, error: Exception) -> CheckUp:
    """Run the checks that are possible if the catalog cannot be loaded."""
    advice = "correct .pyiceberg.yaml, the environment or --property; docs/how-to/configure.md has one that works"
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
        yield Check(_STORAGE, "list, read, write, delete", CheckState.NOTED, f"not tried: {why}", advice)
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

    return tried(_TABLE, f"load {name}", load, "check the name; if the table was tampered with or rolled back, the error says so")


def _plain(table: Table) -> Check:
    found = "a plain table: what is written to it is not encrypted"
    return Check(_TABLE, "is encrypted", CheckState.NOTED, found, f"tablecrypt migrate makes {name_of(table)} an encrypted one")


def _service(properties: Mapping[str, str], clients: list[KeyManagementClient]) -> Check:
    """Try to make a client of the key service, and put it into `clients`. It has remembered nothing yet."""

    def make() -> str:
        clients.append(load_kms(properties))
        return str(properties.get(names.KMS_TYPE.name) or names.kms_impl(properties))

    return tried("keys", _SERVICE, make, f"set {names.KMS_TYPE.name} and what docs/reference/properties.md lists for that service")


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
        yield Check(_STORAGE, "write and delete", CheckState.NOTED, "not tried: the check is read-only")
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


class CheckState(Enum):
    """The outcome of a check."""

    WORKS = "works"
    NOTED = "noted"
    """Not tried, or not wrong: worth knowing."""
    FAILS = "fails"


@dataclass(frozen=True)
class Check:
    """One thing that was tried.

    Attributes:
        area: configuration, keys, table, storage, pins or versions.
        name: what was tried.
        state: the outcome.
        found: what was seen, or what the service, the store or the catalog said. Never a key.
        advice: what to do about it; empty where nothing needs doing.
    """

    area: str
    name: str
    state: CheckState
    found: str
    advice: str = ""


@dataclass(frozen=True)
class CheckUp:
    """The results of all checks.

    Attributes:
        catalog: the catalog's name.
        table: the table that was tried; None where none was named.
        read_only: whether nothing was written and nothing wrapped.
        checks: in the order in which they were made.
    """

    catalog: str
    table: str | None
    read_only: bool
    checks: tuple[Check, ...]

    @property
    def is_well(self) -> bool:
        """Whether nothing fails."""
        return all(check.state != CheckState.FAILS for check in self.checks)

    def to_json(self) -> dict[str, Any]:
        """Return all of it as JSON's types."""
        return {**json_fields(self), "well": self.is_well}


def tried(area: str, name: str, attempt: Callable[[], str], advice: str) -> Check:
    """Make one attempt.

    Args:
        area, name: as in `Check`.
        attempt: says what it found, or raises.
        advice: what to do when it raises.
    """
    try:
        return Check(area, name, CheckState.WORKS, attempt())
    except Exception as error:  # noqa: BLE001  what a catalog, a store or a service raises is what a check-up is to tell
        return failed(area, name, error, advice)


def failed(area: str, name: str, error: Exception, advice: str) -> Check:
    """Return the check of an attempt that raised."""
    said = " ".join(str(error).split())
    return Check(area, name, CheckState.FAILS, f"{type(error).__name__}: {said}", advice)


def key_checks(client: KeyManagementClient, key_ids: Iterable[str], read_only: bool) -> Iterator[Check]:
    """Try each master key.

    Args:
        client: a client that remembers nothing from before.
        key_ids: the master keys.
        read_only: whether to wrap nothing, so that only a table's own KEK can show anything.
    """
    known = False
    for key_id in key_ids:
        known = True
        if read_only:
            yield Check(_KEYS, f"wrap and unwrap with {key_id}", CheckState.NOTED, "not tried: the check is read-only")
        else:
            yield from _probe(client, key_id)
    if not known:
        yield Check(_KEYS, "wrap and unwrap", CheckState.NOTED, "not tried: no master key is known", "name a table, or a key with --key-id")


def _probe(client: KeyManagementClient, key_id: str) -> Iterator[Check]:
    probe = Secret(secrets.token_bytes(_PROBE_LENGTH))
    wrapped: list[bytes] = []

    def wrap() -> str:
        wrapped.append(wrap_unchecked(client, probe, key_id))
        return f"a probe of {_PROBE_LENGTH} bytes was wrapped"

    def unwrap() -> str:
        check_blob(client, wrapped[0], key_id, probe)
        return "the probe came back unchanged"

    yield tried(_KEYS, f"wrap with {key_id}", wrap, _advice("wrap", "writers and most of the commands"))
    name = f"unwrap with {key_id}"
    if wrapped:
        yield tried(_KEYS, name, unwrap, _advice("unwrap", "readers and writers"))
    else:
        yield Check(_KEYS, name, CheckState.NOTED, "not tried: no key could be wrapped", "name a table, whose KEK shows it")


def opens(open_key: Callable[[], object], key_id: str) -> Check:
    """Try to open the KEK of a table's current snapshot, and the key that it wraps."""

    def attempt() -> str:
        open_key()
        return "the key of the current snapshot opens"

    return tried(_KEYS, f"open the table's KEK with {key_id}", attempt, _advice("unwrap", "readers and writers"))


def _advice(right: str, users: str) -> str:
    return f"check the key id, the address and the credentials, and that this client may {right} with the key: {users} need it; {_RIGHTS}"


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
        with output.create() as stream:
            stream.write(probe)
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


def version_checks() -> Iterator[Check]:
    """Look up this installation. No service is asked."""
    yield tried(
        _VERSIONS, "tablecrypt", lambda: f"{version('tablecrypt')} on Python {platform.python_version()}", "install it: pip install …"
    )
    required = _required()
    for package in _SHOWN:
        yield _package(package, required.get(package, ""))
    yield _java()


def fits(installed: str, bounds: str) -> bool:
    """Whether a version lies in bounds such as `>=0.12,<0.13`."""
    return all(
        (_numbers(installed) >= _numbers(bound)) if comparison == ">=" else (_numbers(installed) < _numbers(bound))
        for comparison, bound in _BOUND.findall(bounds)
    )


def _package(package: str, bounds: str) -> Check:
    try:
        installed = version(package)
    except PackageNotFoundError:
        if package in _OPTIONAL:
            return Check(_VERSIONS, package, CheckState.NOTED, "not installed: only Spark needs it")
        return Check(_VERSIONS, package, CheckState.FAILS, "not installed", f'pip install "{package}{bounds}"')
    if not fits(installed, bounds):
        return Check(
            _VERSIONS, package, CheckState.FAILS, f"{installed}, but tablecrypt needs {bounds}", f'pip install "{package}{bounds}"'
        )
    return Check(_VERSIONS, package, CheckState.WORKS, installed)


def _required() -> dict[str, str]:
    """What tablecrypt asks of other packages, by their names."""
    try:
        stated = requires("tablecrypt") or []
    except PackageNotFoundError:
        return {}
    found = (re.match(r"([\w.-]+)(?:\[[^]]*\])?([^;]*)", each) for each in stated)
    return {each[1]: each[2].strip() for each in found if each is not None and each[2].strip()}


def _java() -> Check:
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    if java is None:
        return Check(_VERSIONS, "java", CheckState.NOTED, "not there: only Spark needs it")

    def attempt() -> str:
        done = subprocess.run([java, "-version"], capture_output=True, text=True, check=True, timeout=_JAVA_SECONDS)
        return (done.stderr or done.stdout).splitlines()[0]

    return tried(_VERSIONS, "java", attempt, "correct JAVA_HOME, or remove the broken java from the PATH: Spark uses it")


def _numbers(text: str) -> tuple[int, ...]:
    """The leading numbers of a version, for comparing."""
    numbers = [int(each) for each in re.findall(r"[0-9]+", text.partition("+")[0])[:3]]
    return tuple(numbers + [0] * (3 - len(numbers)))
