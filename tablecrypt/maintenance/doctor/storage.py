"""Whether the store lets this client list, read, write and delete where a table lies.

What is written is a probe: an AGS1 file of random bytes under a key that nobody keeps, under a name of its own, so that not even a probe
that may not be deleted again is plaintext. Nothing but the probe is deleted.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from typing import Final

from pyiceberg.io import FileIO

from tablecrypt.crypto.key_metadata import StandardKeyMetadata
from tablecrypt.errors import TamperedFileError
from tablecrypt.files.encrypting_file_io import EncryptingFileIO, EncryptingOutputFile
from tablecrypt.maintenance._storage import stored_files
from tablecrypt.maintenance.doctor.checks import Check, CheckState, tried

AREA: Final = "storage"
PROBE: Final = "tablecrypt-probe-"
_LENGTH: Final = 64
_KEY_LENGTH: Final = 16


def listed(io: FileIO, folder: str) -> Check:
    """Try to list a folder."""

    def attempt() -> str:
        return f"{sum(1 for _ in stored_files(io, folder)):,} files"

    return tried(AREA, f"list {folder}", attempt, "give this client the right to list it: audit, orphans and shred need it")


def read(io: FileIO, location: str) -> Check:
    """Try to read the beginning of a file."""

    def attempt() -> str:
        with io.new_input(location).open() as stream:
            return "its first byte was read" if stream.read(1) else "it is empty"

    return tried(AREA, f"read {location}", attempt, "give this client the right to read below the table's location: nothing works without")


def probed(io: FileIO, folder: str) -> Iterator[Check]:
    """Try to write, read back and delete a probe in a folder."""
    probe, location = secrets.token_bytes(_LENGTH), f"{folder}/{PROBE}{secrets.token_hex(8)}.ags1"
    encrypting = EncryptingFileIO(io)
    outputs: list[EncryptingOutputFile] = []

    def write() -> str:
        output = encrypting.encrypting_output(location, StandardKeyMetadata.generate(_KEY_LENGTH, secrets.token_bytes))
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

    written = tried(AREA, f"write to {folder}", write, "give this client the right to write there; readers alone do without (--read-only)")
    yield written
    if written.state == CheckState.WORKS:
        yield tried(AREA, f"read back from {folder}", read_back, "look for what stands between this client and the store")
        yield tried(AREA, f"delete from {folder}", delete, f"give this client the right to delete there; {location} stays until then")
