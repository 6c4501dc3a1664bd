"""What an interrupted verification had found good is in a state file, whose lines only the holder of the files' keys can have written:

    {"tablecrypt": "verify", "version": 1, "table-uuid": "…"}
    {"location": "…", "length": …, "modified": "…", "parts": …, "full": true, "mac": "<hexadecimal>"}       one for each good file

    mac     = HMAC-SHA256(MAC key, JSON of [table uuid, location, length, modified, parts, full])
    MAC key = HKDF-SHA256(the file's DEK, salt = its AAD prefix, info = "tablecrypt verify state 1"), 32 bytes

A line is believed when its MAC is right under the key that the file has *now*, and the store gives the file the same length and time of
last writing as then. So an attacker who can write the state file cannot have a bad file passed over, and a file under a new key is verified
again. It is for going on soon after an interruption: an attacker who can rewrite a file in the store and set its time back hides the change
from a run that resumes. A run that reaches its end removes the file.

A line that was cut when the process was killed, or is not one of these, is passed over. Raises ConfigurationError for a file that is not of
this kind, or of another table.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.hmac import HMAC
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from tablecrypt.crypto.key_metadata import StandardKeyMetadata
from tablecrypt.errors import ConfigurationError
from tablecrypt.maintenance._storage import StoredFile

_STATE_VERSION: Final = 1
_STATE_INFO: Final = b"tablecrypt verify state 1"
_STATE_MODE: Final = 0o600


@dataclass(frozen=True)
class _Line:
    location: str
    length: int
    modified: str
    parts: int
    full: bool

    def mac(self, table_uuid: str, key: StandardKeyMetadata) -> HMAC:
        # Derived, so that the DEK is used as the key of one cipher alone.
        mac_key = HKDF(SHA256(), 32, salt=key.aad_prefix, info=_STATE_INFO).derive(key.encryption_key.reveal())
        mac = HMAC(mac_key, SHA256())
        # A list in JSON: no two sets of values make the same bytes.
        mac.update(json.dumps([table_uuid, self.location, self.length, self.modified, self.parts, self.full]).encode())
        return mac


class VerifyState:
    """The state file at `path` of one table's run; made with mode 0600 where there is none."""

    def __init__(self, path: Path, table_uuid: str) -> None:
        self._path = path
        self._uuid = table_uuid
        self._lines: dict[str, tuple[_Line, bytes]] = {}
        if not path.absolute().parent.is_dir():
            raise ConfigurationError(f"{path}: there is no folder {path.parent}")

        if path.exists():
            self._read()
        else:
            self._append({"tablecrypt": "verify", "version": _STATE_VERSION, "table-uuid": table_uuid})

    def parts_of(self, stored: StoredFile, key: StandardKeyMetadata, full: bool) -> int | None:
        """How many parts of a file authenticated in the run before; None where it has to be looked at."""
        remembered = self._lines.get(stored.location)
        if remembered is None or stored.modified is None:
            # Without the time of writing, a file that was replaced by one of the same length would pass.
            return None

        line, mac = remembered
        # A line of a quick look does not count for a full one.
        if line != _Line(stored.location, stored.size, stored.modified.isoformat(), line.parts, full):
            return None

        try:
            line.mac(self._uuid, key).verify(mac)
        except InvalidSignature:
            # The line is forged, or the file has another key since.
            return None

        return line.parts

    def remember(self, stored: StoredFile, key: StandardKeyMetadata, full: bool, parts: int) -> None:
        """Note that a file was good. Nothing is noted where the store does not say when a file was written."""
        if stored.modified is None:
            return
        line = _Line(stored.location, stored.size, stored.modified.isoformat(), parts, full)
        self._append({**vars(line), "mac": line.mac(self._uuid, key).finalize().hex()})

    def remove(self) -> None:
        """Remove the file: the run has ended."""
        self._path.unlink(missing_ok=True)

    def _read(self) -> None:
        content = self._path.read_bytes()
        lines = list(_objects(content))
        header = lines[0] if lines else {}
        if header.get("tablecrypt") != "verify" or header.get("version") != _STATE_VERSION:
            raise ConfigurationError(f"{self._path} is not a state file of verify: name a file that does not exist yet")
        if header.get("table-uuid") != self._uuid:
            raise ConfigurationError(f"{self._path} is the state of verifying another table: name a file that does not exist yet")

        for fields in lines[1:]:
            self._take(fields)
        # A run that was killed may have left half a line: the next one must not be joined to it.
        if not content.endswith(b"\n"):
            with self._path.open("ab") as file:
                file.write(b"\n")

    def _take(self, fields: dict[str, Any]) -> None:
        try:
            mac = bytes.fromhex(fields.pop("mac"))
            line = _Line(**fields)
        except (KeyError, TypeError, ValueError):
            return
        self._lines[line.location] = line, mac

    def _append(self, fields: dict[str, Any]) -> None:
        # With its mode from the start: a chmod afterwards would leave a moment in which others read the locations.
        descriptor = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, _STATE_MODE)
        with os.fdopen(descriptor, "ab") as file:
            file.write(json.dumps(fields).encode() + b"\n")


def _objects(content: bytes) -> Iterator[dict[str, Any]]:
    for line in content.splitlines():
        try:
            value = json.loads(line)
        except ValueError:
            value = None
        yield value if isinstance(value, dict) else {}
