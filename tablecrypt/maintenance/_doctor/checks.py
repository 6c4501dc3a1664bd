"""Checks of a check-up: what was tried, what came of it, and what to do about it.

The key service: does it let this client wrap and unwrap? A random probe is wrapped under each master key, unwrapped and compared.
The probe is no key of anything, and what it was wrapped to is stored nowhere. A reader may be refused to wrap: that he can read a table
shows the table's own KEK.

The store: does it let this client list, read, write and delete where a table lies?
What is written is a probe: an AGS1 file of random bytes under a key that nobody keeps, under a name of its own, so that not even a probe
that may not be deleted again is plaintext. Nothing but the probe is deleted.

This installation: are the versions ones that tablecrypt names, and is there a Java for Spark?
"""

from __future__ import annotations

import os
import platform
import re
import secrets
import shutil
import subprocess
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import Enum
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path
from typing import Any, Final

from pyiceberg.io import FileIO

from tablecrypt.crypto.key_metadata import StandardKeyMetadata
from tablecrypt.crypto.secret import Secret
from tablecrypt.errors import TamperedFileError
from tablecrypt.files.encrypting_file_io import EncryptingFileIO, EncryptingOutputFile
from tablecrypt.kms.client import KeyManagementClient
from tablecrypt.kms.new_blobs import check_blob, wrap_unchecked
from tablecrypt.maintenance._storage import stored_files
from tablecrypt.printable import json_fields

KEYS: Final = "keys"
_PROBE_LENGTH: Final = 16
_RIGHTS: Final = "docs/operations.md, “Permissions”, has its name in each key service"
STORAGE: Final = "storage"
PROBE: Final = "tablecrypt-probe-"
_PROBE_FILE_LENGTH: Final = 64
_PROBE_KEY_LENGTH: Final = 16
VERSIONS: Final = "versions"
_SHOWN: Final = ("pyiceberg", "pyarrow", "cryptography", "pyspark")
_OPTIONAL: Final = frozenset({"pyspark"})
_BOUND: Final = re.compile(r"(>=|<)\s*([0-9.]+)")
_JAVA_SECONDS: Final = 20


class CheckState(Enum):
    """What came of a check."""

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
        state: what came of it.
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
    """All that was tried.

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
            yield Check(KEYS, f"wrap and unwrap with {key_id}", CheckState.NOTED, "not tried: only looking was asked for")
        else:
            yield from _probe(client, key_id)
    if not known:
        yield Check(KEYS, "wrap and unwrap", CheckState.NOTED, "not tried: no master key is known", "name a table, or a key with --key-id")


def _probe(client: KeyManagementClient, key_id: str) -> Iterator[Check]:
    probe = Secret(secrets.token_bytes(_PROBE_LENGTH))
    wrapped: list[bytes] = []

    def wrap() -> str:
        wrapped.append(wrap_unchecked(client, probe, key_id))
        return f"a probe of {_PROBE_LENGTH} bytes was wrapped"

    def unwrap() -> str:
        check_blob(client, wrapped[0], key_id, probe)
        return "the probe came back as it was"

    yield tried(KEYS, f"wrap with {key_id}", wrap, _advice("wrap", "writers and most of the commands"))
    name = f"unwrap with {key_id}"
    if wrapped:
        yield tried(KEYS, name, unwrap, _advice("unwrap", "readers and writers"))
    else:
        yield Check(KEYS, name, CheckState.NOTED, "not tried: nothing could be wrapped before", "name a table, whose KEK shows it")


def opens(open_key: Callable[[], object], key_id: str) -> Check:
    """Try to open the KEK of a table's current snapshot, and the key that it wraps."""

    def attempt() -> str:
        open_key()
        return "the key of the current snapshot opens"

    return tried(KEYS, f"open the table's KEK with {key_id}", attempt, _advice("unwrap", "readers and writers"))


def _advice(right: str, users: str) -> str:
    return f"check the key id, the address and the credentials, and that this client may {right} with the key: {users} need it; {_RIGHTS}"


def try_to_list(io: FileIO, folder: str) -> Check:
    """Try to list a folder."""

    def attempt() -> str:
        return f"{sum(1 for _ in stored_files(io, folder)):,} files"

    return tried(STORAGE, f"list {folder}", attempt, "give this client the right to list it: audit, orphans and shred need it")


def try_to_read(io: FileIO, location: str) -> Check:
    """Try to read the beginning of a file."""

    def attempt() -> str:
        with io.new_input(location).open() as stream:
            return "its first byte was read" if stream.read(1) else "it is empty"

    return tried(
        STORAGE, f"read {location}", attempt, "give this client the right to read below the table's location: nothing works without"
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
                raise TamperedFileError(location, "holds other bytes than were written")
        return "the probe came back as it was"

    def delete() -> str:
        encrypting.delete(location)
        return "the probe is gone"

    written = tried(
        STORAGE, f"write to {folder}", write, "give this client the right to write there; readers alone do without (--read-only)"
    )
    yield written
    if written.state == CheckState.WORKS:
        yield tried(STORAGE, f"read back from {folder}", read_back, "look for what stands between this client and the store")
        yield tried(STORAGE, f"delete from {folder}", delete, f"give this client the right to delete there; {location} stays until then")


def version_checks() -> Iterator[Check]:
    """Look up this installation. No service is asked."""
    yield tried(
        VERSIONS, "tablecrypt", lambda: f"{version('tablecrypt')} on Python {platform.python_version()}", "install it: pip install …"
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
            return Check(VERSIONS, package, CheckState.NOTED, "not installed: only Spark needs it")
        return Check(VERSIONS, package, CheckState.FAILS, "not installed", f'pip install "{package}{bounds}"')
    if not fits(installed, bounds):
        return Check(VERSIONS, package, CheckState.FAILS, f"{installed}, but tablecrypt needs {bounds}", f'pip install "{package}{bounds}"')
    return Check(VERSIONS, package, CheckState.WORKS, installed)


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
        return Check(VERSIONS, "java", CheckState.NOTED, "not there: only Spark needs it")

    def attempt() -> str:
        done = subprocess.run([java, "-version"], capture_output=True, text=True, check=True, timeout=_JAVA_SECONDS)
        return (done.stderr or done.stdout).splitlines()[0]

    return tried(VERSIONS, "java", attempt, "correct JAVA_HOME, or take the broken java away from PATH: Spark starts it")


def _numbers(text: str) -> tuple[int, ...]:
    """The leading numbers of a version, for comparing."""
    numbers = [int(each) for each in re.findall(r"[0-9]+", text.partition("+")[0])[:3]]
    return tuple(numbers + [0] * (3 - len(numbers)))
