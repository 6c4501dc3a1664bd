"""An AGS1 file under a key that the caller chose: a key that does not fit is told from a changed file. In a table both are tampering."""

from __future__ import annotations

import io

import pytest

from tablecrypt.crypto.key_metadata import StandardKeyMetadata
from tablecrypt.crypto.secret import Secret
from tablecrypt.errors import KeyMismatchError, TamperedFileError
from tablecrypt.files.ags1_streams import Ags1InputStream
from tests.support.ags1_files import ENCRYPTED_MIB, LOCATION, MIB, PREFIX, ags1_file, key_metadata, pattern

DATA = ags1_file(pattern(2 * MIB + 99))
WRONG = StandardKeyMetadata(Secret(b"another key of16"), PREFIX)
OTHER_PREFIX = StandardKeyMetadata(key_metadata(None).encryption_key, b"another file")


def chosen(data: bytes, metadata: StandardKeyMetadata) -> Ags1InputStream:
    return Ags1InputStream(io.BytesIO(data), metadata, LOCATION, len(data), may_not_fit=True)


def flipped(at: int) -> bytes:
    changed = bytearray(DATA)
    changed[at] ^= 1
    return bytes(changed)


@pytest.mark.parametrize("metadata", [WRONG, OTHER_PREFIX], ids=["key", "prefix"])
@pytest.mark.parametrize("start", [0, MIB + 5], ids=["first block", "second block"])
def test_a_key_that_opens_nothing_does_not_fit_or_the_file_was_changed(metadata: StandardKeyMetadata, start: int) -> None:
    stream = chosen(DATA, metadata)
    stream.seek(start)
    for _ in range(2):
        with pytest.raises(KeyMismatchError, match="does not fit, or the file was changed") as refused:
            stream.read(10)
        assert refused.value.location == LOCATION


def test_a_key_that_has_opened_a_block_shows_that_another_was_changed() -> None:
    stream = chosen(flipped(8 + ENCRYPTED_MIB + 20), key_metadata(None))
    assert len(stream.read(MIB)) == MIB
    with pytest.raises(TamperedFileError, match="block 1"):
        stream.read()


def test_another_length_than_the_key_says_may_be_the_keys_fault() -> None:
    with pytest.raises(KeyMismatchError, match=f"has {len(DATA)} bytes in the store, but {len(DATA) + 1} according to its key metadata"):
        chosen(DATA, key_metadata(len(DATA) + 1))


def test_in_a_table_all_of_this_is_tampering() -> None:
    for metadata in (WRONG, OTHER_PREFIX, key_metadata(len(DATA) + 1)):
        with pytest.raises(TamperedFileError):
            Ags1InputStream(io.BytesIO(DATA), metadata, LOCATION, len(DATA)).read()
