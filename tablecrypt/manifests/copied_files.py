"""Which files the rows of a table were copied from: what add_files remembers, so that no file is copied twice.

    metadata/<commit>-m0-copied.avro    a data manifest of copied rows, whose Avro header has one field more than Iceberg's:
    tablecrypt.copied-files             base64 of fingerprints, one after the other, in ascending order
    fingerprint                         first 16 bytes of SHA-256 of a source file's location

The header is encrypted and authenticated as the whole manifest is: only a holder of the table's key can read or make it. A
manifest's name says whether it has the field, so that a check opens those manifests alone, and no data file.

A file counts as copied while a manifest that says so has live files. A commit that writes such a manifest again, or that writes its rows to
other files (compaction, copy-on-write), hands the fingerprints on: `EncryptedProducer`. Other engines ignore the field. They keep the
manifest as it is until they write it again, and drop the field then.

Raises:
    AlreadyAddedError: a file was added before.
    FormatError: the field in a header is not a list of fingerprints.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from pyiceberg.exceptions import ValidationException
from pyiceberg.io import FileIO
from pyiceberg.manifest import ManifestFile
from pyiceberg.table.metadata import TableMetadata

from tablecrypt.errors import ConfigurationError, FormatError
from tablecrypt.files.encrypting_file_io import encrypting_io
from tablecrypt.manifests.manifest_file import EncryptedManifestFile, read_manifest_header, remembers_files

HEADER_FIELD: Final = "tablecrypt.copied-files"
_LENGTH: Final = 16
_NAMED: Final = 10
_ALIASES: Final = ((re.compile("^s3[an]://"), "s3://"), (re.compile("^file:/+"), "file:///"))
"""Spellings of one location: Hadoop has three names for S3, and writes local paths with one slash or three."""


class AlreadyAddedError(ConfigurationError, ValidationException):
    """A file was added to the table before. Nothing is committed."""


@dataclass(frozen=True)
class CopiedFiles:
    """The source files of rows that are being copied.

    Attributes:
        locations: of the files, by their fingerprints.
        is_checked: whether none of them may have been copied before.
    """

    locations: Mapping[bytes, str]
    is_checked: bool = True

    @classmethod
    def of(cls, locations: Iterable[str], is_checked: bool = True) -> CopiedFiles:
        """Take files by their locations."""
        return cls({fingerprint(location): location for location in locations}, is_checked)

    @property
    def fingerprints(self) -> frozenset[bytes]:
        """What is remembered of the files."""
        return frozenset(self.locations)

    def check(self, io: FileIO, metadata: TableMetadata, branch: str | None) -> None:
        """Check that the branch has no rows of these files. AlreadyAddedError names those of which it has some."""
        snapshot = metadata.snapshot_by_name(branch)
        if not self.is_checked or snapshot is None:
            return

        known = self.fingerprints & copied_files_of(io, snapshot.manifests(io))

        if known:
            names = sorted(self.locations[each] for each in known)
            more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
            raise AlreadyAddedError(
                f"the table has rows of {len(names)} of the source's files already: {', '.join(names[:_NAMED])}{more}; "
                "check_duplicate_files => false adds their rows once more"
            )


def fingerprint(location: str) -> bytes:
    """Return the fingerprint of a file's location, the same for each of its spellings."""
    for pattern, spelling in _ALIASES:
        location = pattern.sub(spelling, location)
    return hashlib.sha256(location.encode()).digest()[:_LENGTH]


def header_field(fingerprints: Collection[bytes]) -> dict[str, str]:
    """Return what a manifest's header says of the files that its rows were copied from; nothing where there are none."""
    return {HEADER_FIELD: base64.b64encode(b"".join(sorted(fingerprints))).decode()} if fingerprints else {}


def fingerprints_in(header: Mapping[str, str], location: str) -> frozenset[bytes]:
    """Return the fingerprints that a manifest's header has.

    Args:
        header: of the Avro file.
        location: of the manifest, for the error.
    """
    try:
        content = base64.b64decode(header.get(HEADER_FIELD, ""), validate=True)
    except binascii.Error as error:
        raise FormatError(f"{location}: {HEADER_FIELD} in the manifest's header is not base64") from error

    if len(content) % _LENGTH:
        raise FormatError(f"{location}: {HEADER_FIELD} in the manifest's header has {len(content)} bytes, no multiple of {_LENGTH}")

    return frozenset(content[at : at + _LENGTH] for at in range(0, len(content), _LENGTH))


def copied_files_of(io: FileIO, manifests: Iterable[ManifestFile]) -> frozenset[bytes]:
    """Return the fingerprints of the files that manifests' rows were copied from."""
    found: set[bytes] = set()
    for manifest in manifests:
        if remembers_files(manifest):
            row = EncryptedManifestFile.of(manifest)
            opened = encrypting_io(io, f"{row.manifest_path}: an encrypted manifest")
            found |= fingerprints_in(read_manifest_header(opened, row.manifest_path, row.open_key_metadata()), row.manifest_path)

    return frozenset(found)
