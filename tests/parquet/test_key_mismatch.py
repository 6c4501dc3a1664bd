"""A key that does not fit is told from a changed file, and both from a file that is no Parquet file at all.

Somebody who confuses two keys is no attacker, and somebody who changes a file must not pass for one who confused keys: once a key has
opened a module of the file, what does not open was changed. A file of a table has its key from the layer above, so there nothing is a slip.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from tablecrypt.crypto.key_metadata import StandardKeyMetadata
from tablecrypt.crypto.secret import Secret
from tablecrypt.errors import AuthenticationError, FormatError, KeyMismatchError, TamperedFileError
from tablecrypt.parquet import FileKeys, decrypt, inspect, read_table, reencrypt, verify
from tests.support.modular_files import FOOTER_KEY, ID_KEY, NAME_KEY, encrypted, plain_file, sample_table
from tests.support.mutations import flipped
from tests.support.orc_files import plain as plain_orc

PREFIX = b"table/part-0"
KEYS = FileKeys(FOOTER_KEY, {"id": ID_KEY}, PREFIX)
PLAINTEXT = plain_file(sample_table(20), row_group_size=10)
DATA = encrypted(PLAINTEXT, KEYS)
OF_A_TABLE = StandardKeyMetadata(Secret(FOOTER_KEY), PREFIX)
LOCATION = "s3://bucket/part-0.parquet"


def in_module(kind: str, column: str, group: int) -> int:
    """The offset of a ciphertext byte."""
    chunks = inspect(DATA, KEYS).row_groups[group].chunks  # type: ignore[index]
    module = next(module for chunk in chunks if chunk.path == column for module in chunk.modules if module.type == kind)
    assert module.offset is not None
    return module.offset + 20


WAYS: dict[str, Callable[[bytes, FileKeys], Any]] = {
    "read_table": lambda data, keys: read_table(data, keys, location=LOCATION),
    "verify": lambda data, keys: verify(data, keys, location=LOCATION),
    "inspect": lambda data, keys: inspect(data, keys, location=LOCATION),
    "decrypt": lambda data, keys: decrypt(data, pa.BufferOutputStream(), keys, location=LOCATION),
    "reencrypt": lambda data, keys: reencrypt(data, pa.BufferOutputStream(), keys, KEYS, location=LOCATION),
}
every_way = pytest.mark.parametrize("way", WAYS.values(), ids=list(WAYS))

FOREIGN = {
    "empty": (b"", "is empty"),
    "one byte": (b"x", "begins with b'x'"),
    "ORC": (plain_orc(sample_table(3).select(["id"])), "begins like an ORC file"),
    "AGS1": (b"AGS1" + bytes(100), "begins like an AGS1 file"),
    "Avro": (b"Obj\x01" + bytes(100), "begins like an Avro file"),
    "ZIP": (b"PK\x03\x04" + bytes(100), "begins like a ZIP file"),
    "text": (b"id,name\n1,Ada\n2,Bob\n", "begins with b'id,name"),
    "zeros": (bytes(1000), "begins with b'"),
}


@every_way
@pytest.mark.parametrize(
    "wrong", [FileKeys(NAME_KEY, {"id": ID_KEY}, PREFIX), FileKeys(FOOTER_KEY, {"id": NAME_KEY}, PREFIX)], ids=["footer", "id"]
)
def test_a_key_that_does_not_fit_is_said_to_be_so(way: Callable[[bytes, FileKeys], Any], wrong: FileKeys) -> None:
    with pytest.raises(
        KeyMismatchError, match=r"under the (footer key|key of column id): .* does not fit, or the file was changed"
    ) as refused:
        way(DATA, wrong)

    assert refused.value.location == LOCATION
    assert isinstance(refused.value, AuthenticationError), "who refuses what is not authentic catches both"
    assert not isinstance(refused.value, TamperedFileError)
    for key in (FOOTER_KEY, ID_KEY, NAME_KEY):
        assert key.hex() not in str(refused.value) and key.decode() not in str(refused.value)


@pytest.mark.parametrize("column", ["id", "ratio"])
def test_a_page_that_does_not_open_under_a_key_that_fits_was_changed(column: str) -> None:
    """The column's metadata has opened under its key, or the footer has."""
    for way in (WAYS["read_table"], WAYS["verify"], WAYS["decrypt"]):
        with pytest.raises(TamperedFileError, match=f"data page 0 of column {column}"):
            way(flipped(DATA, in_module("data page", column, 0)), KEYS)


@pytest.mark.parametrize("name", FOREIGN)
@every_way
def test_a_file_of_another_kind_is_not_called_tampered_with(way: Callable[[bytes, FileKeys], Any], name: str) -> None:
    data, looks = FOREIGN[name]

    with pytest.raises(FormatError) as refused:
        way(data, KEYS)

    assert str(refused.value).startswith(f"{LOCATION}: {looks}")


@every_way
def test_a_file_that_lost_its_end_or_its_beginning_is_called_so(way: Callable[[bytes, FileKeys], Any]) -> None:
    for changed in (DATA[:11], DATA[:-1], DATA[1:], DATA[:-8]):
        with pytest.raises(TamperedFileError):
            way(changed, KEYS)


def test_another_length_under_a_key_that_does_not_fit_is_the_keys_fault() -> None:
    """The key file of another file says another length too."""
    with pytest.raises(KeyMismatchError):
        read_table(DATA, FileKeys(NAME_KEY, {"id": ID_KEY}, PREFIX, file_length=len(DATA) + 1))
    with pytest.raises(TamperedFileError, match="but its key metadata says"):
        read_table(DATA, FileKeys(FOOTER_KEY, {"id": ID_KEY}, PREFIX, file_length=len(DATA) + 1))


@pytest.mark.parametrize(
    "way", [WAYS["read_table"], WAYS["verify"], WAYS["inspect"], WAYS["decrypt"]], ids=["read_table", "verify", "inspect", "decrypt"]
)
def test_in_a_table_nothing_that_does_not_fit_is_a_slip(way: Callable[[bytes, FileKeys], Any]) -> None:
    data = encrypted(PLAINTEXT, FileKeys.of_table_file(OF_A_TABLE))
    other = FileKeys.of_table_file(StandardKeyMetadata(Secret(NAME_KEY), PREFIX))
    for changed, keys in ((data, other), *((foreign, other) for foreign, _ in FOREIGN.values())):
        with pytest.raises(TamperedFileError):
            way(changed, keys)


def test_the_error_reaches_a_driver_whole() -> None:
    error = KeyMismatchError(LOCATION, "the footer does not authenticate")

    back = pickle.loads(pickle.dumps(error))

    assert (type(back), back.location, back.what, str(back)) == (KeyMismatchError, error.location, error.what, str(error))
