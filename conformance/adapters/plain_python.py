"""The kit's own few lines read and write AGS1 streams and key metadata. Needs the package cryptography."""

from __future__ import annotations

from pathlib import Path

import cryptography

from conformance import streams
from conformance.adapters.protocol import Case, serve
from conformance.streams import KeyMetadata, NotAuthenticError, StreamError


def read(case: Case) -> str:
    """Read one file."""
    data = Path(case["file"]).read_bytes()
    if case["level"] == "ags1":
        key = KeyMetadata(bytes.fromhex(case["key"]), bytes.fromhex(case["aad_prefix"]), case["file_length"])
        Path(case["out"]).write_bytes(streams.decrypt_stream(data, key))
    else:
        read = KeyMetadata.decode(data)
        Path(case["out"]).write_text(f"{read.key.hex()}|{(read.aad_prefix or b'').hex()}|{read.file_length}")
    return "plaintext"


def write(case: Case) -> None:
    """Write one file."""
    key = KeyMetadata(bytes.fromhex(case["key"]), bytes.fromhex(case["aad_prefix"]) or None, case.get("file_length"))
    if case["level"] == "ags1":
        Path(case["out"]).write_bytes(streams.encrypt_stream(Path(case["source"]).read_bytes(), key))
    else:
        Path(case["out"]).write_bytes(key.encode())


def refused(error: Exception) -> str:
    """The class of an error."""
    return "tampered" if isinstance(error, NotAuthenticError) else "format"


if __name__ == "__main__":
    levels = ["ags1", "key-metadata"]
    serve("plain Python", f"(cryptography {cryptography.__version__})", levels, read, (StreamError,), refused, write, levels)
