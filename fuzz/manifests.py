"""Manifests and manifest lists as plaintext: what somebody with the key could have written."""

from __future__ import annotations

import tempfile
from pathlib import Path

import atheris
from harness import fuzz

with atheris.instrument_imports(include=["tablecrypt"]):
    from pyiceberg.manifest import ManifestContent

    from tablecrypt.crypto.key_metadata import StandardKeyMetadata
    from tablecrypt.manifests.manifest_file import parse_manifest
    from tablecrypt.manifests.manifest_list import parse_manifest_list
    from tests.support.manifests import decrypt_file, entry, local_io, write_manifest, write_manifest_list

LIST, MANIFEST = b"L", b"M"


def parse(data: bytes) -> None:
    """The first byte says which of the two it is."""
    if data[:1] == LIST:
        parse_manifest_list(data[1:], "memory")
    else:
        parse_manifest(data[1:], "memory", ManifestContent.DATA)


def seeds() -> list[bytes]:
    """A manifest of two entries, and a list of it."""
    io = local_io()
    with tempfile.TemporaryDirectory() as folder:
        written = write_manifest(io, Path(folder) / "manifest.avro", [entry(), entry()])
        manifest = decrypt_file(io, written.manifest_path, StandardKeyMetadata.decode(written.key_metadata or b""))
        key_metadata = write_manifest_list(io, Path(folder) / "list.avro", [written])
        return [MANIFEST + manifest, LIST + decrypt_file(io, Path(folder) / "list.avro", key_metadata)]


if __name__ == "__main__":
    fuzz(parse, seeds())
