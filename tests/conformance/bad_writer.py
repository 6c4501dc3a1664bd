"""An adapter that does wrong as each case says by `fault`, the name of a function below: the subject of tests of the kit's runner."""

from __future__ import annotations

import io
import os
import random
from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq

from conformance.adapters import plain_python, tablecrypt_reader
from conformance.adapters.protocol import Case, serve
from conformance.adapters.tablecrypt_parts import file_keys
from conformance.rows import read_rows
from conformance.streams import KeyMetadata, encrypt_stream
from tablecrypt.crypto.key_metadata import StandardKeyMetadata
from tablecrypt.parquet import FileKeys, encrypt, write_table


def right(case: Case) -> str | None:
    return tablecrypt_reader.write(case)


def plaintext(case: Case) -> str | None:
    if case["level"] == "ags1":
        Path(case["out"]).write_bytes(Path(case["source"]).read_bytes())
    elif case["level"] == "parquet":
        pq.write_table(read_rows(case["rows"]), case["out"], compression="none")
    else:
        properties = {name: value for name, value in case["properties"].items() if name != "encryption.key-id"}
        return tablecrypt_reader.write(case | {"properties": properties})
    return None


def same_nonces(case: Case) -> None:
    same = random.Random(0).randbytes
    if case["level"] == "ags1":
        fresh, os.urandom = os.urandom, bytes
        try:
            plain_python.write(case)
        finally:
            os.urandom = fresh
        return
    plain = io.BytesIO()
    pq.write_table(read_rows(case["rows"]), plain, compression="none")
    encrypt(plain.getvalue(), case["out"], file_keys(case), random=same)


def same_dek(case: Case) -> str | None:
    # A program of its own that is to do wrong: no argument of the product makes DEKs that are not fresh.
    key = bytes(range(int(case["properties"]["encryption.data-key-length"])))
    fresh = StandardKeyMetadata.generate
    StandardKeyMetadata.generate = staticmethod(  # type: ignore[assignment, method-assign]
        lambda length, source: fresh(length, lambda wanted: key if wanted == length else source(wanted))
    )
    try:
        return tablecrypt_reader.write(case)
    finally:
        StandardKeyMetadata.generate = fresh  # type: ignore[method-assign]


def short_dek(case: Case) -> str | None:
    return tablecrypt_reader.write(case | {"properties": case["properties"] | {"encryption.data-key-length": "16"}})


def no_aad_prefix(case: Case) -> str | None:
    return tablecrypt_reader.write(case | {"aad_prefix": ""})


def aad_prefix_not_in_the_file(case: Case) -> str | None:
    return tablecrypt_reader.write(case | {"aad_prefix_is_stored": False})


def aad_prefix_in_the_file(case: Case) -> str | None:
    return tablecrypt_reader.write(case | {"aad_prefix_is_stored": True})


def cut(case: Case) -> None:
    tablecrypt_reader.write(case)
    path = Path(case["out"])
    path.write_bytes(path.read_bytes()[:-1])


def one_block_too_few(case: Case) -> None:
    plain = Path(case["source"]).read_bytes()[: 1 << 20]
    key = KeyMetadata(bytes.fromhex(case["key"]), bytes.fromhex(case["aad_prefix"]))
    Path(case["out"]).write_bytes(encrypt_stream(plain, key))


def column_in_the_clear(case: Case) -> None:
    keys = FileKeys(
        bytes.fromhex(case["footer_key"]), {"name": bytes(range(16))}, bytes.fromhex(case["aad_prefix"]), plaintext_columns=("id", "ratio")
    )
    write_table(read_rows(case["rows"]), case["out"], keys, compression="none")


def other_spelling(case: Case) -> None:
    """A null AAD prefix as empty bytes."""
    right(case)
    path = Path(case["out"])
    path.write_bytes(path.read_bytes()[:-2] + b"\x02\x00" + path.read_bytes()[-1:])


def nothing(case: Case) -> None:
    return


def write(case: Case) -> str | None:
    """Write one case with its fault."""
    fault: Callable[[Case], str | None] = globals()[case["fault"]]
    return fault(case)


if __name__ == "__main__":
    levels = ["table", "parquet", "ags1", "key-metadata"]
    serve("bad writer", "0", [], tablecrypt_reader.read, (), tablecrypt_reader.refused, write, levels)
