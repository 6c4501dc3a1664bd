"""The bytes of encrypted modules and of their AAD, as the specification lays them out."""

from __future__ import annotations

import mmap
import struct

import pytest
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.ciphers.modes import CTR
from hypothesis import given
from hypothesis import strategies as st

from tablecrypt.crypto.secret import Secret
from tablecrypt.errors import ConfigurationError, TamperedFileError
from tablecrypt.parquet.modules import (
    CTR_OVERHEAD,
    FOOTER_SUFFIX,
    GCM_OVERHEAD,
    MAX_MODULE_LENGTH,
    ModuleCipher,
    ModuleOrdinals,
    ModuleType,
    module_length,
)

KEY = b"k" * 16
BASE = b"prefix" + b"\x01" * 8
ORDINALS = ModuleOrdinals(1, 258, "a.b")
NONCE = bytes(range(12))


def cipher(ctr: bool = False, key: bytes = KEY, base: bytes = BASE) -> ModuleCipher:
    return ModuleCipher(Secret(key), "the footer key", base, ctr, "file.parquet", lambda length: NONCE[:length])


@pytest.mark.parametrize(
    ("module_type", "suffix"),
    [
        (ModuleType.COLUMN_METADATA, "01 0100 0201"),
        (ModuleType.DATA_PAGE, "02 0100 0201 0300"),
        (ModuleType.DICTIONARY_PAGE, "03 0100 0201"),
        (ModuleType.DATA_PAGE_HEADER, "04 0100 0201 0300"),
        (ModuleType.DICTIONARY_PAGE_HEADER, "05 0100 0201"),
        (ModuleType.COLUMN_INDEX, "06 0100 0201"),
        (ModuleType.OFFSET_INDEX, "07 0100 0201"),
        (ModuleType.BLOOM_FILTER_HEADER, "08 0100 0201"),
        (ModuleType.BLOOM_FILTER_BITSET, "09 0100 0201"),
    ],
)
def test_an_aad_suffix_is_type_and_little_endian_ordinals(module_type: ModuleType, suffix: str) -> None:
    assert ORDINALS.suffix(module_type, 3) == bytes.fromhex(suffix)


def test_the_footers_suffix_is_its_type() -> None:
    assert FOOTER_SUFFIX == b"\x00"


def test_a_module_is_length_nonce_ciphertext_tag() -> None:
    suffix = ORDINALS.suffix(ModuleType.DATA_PAGE, 3)
    encrypted = bytes(cipher().encrypt(suffix, b"plaintext"))
    assert encrypted == struct.pack("<I", 12 + 9 + 16) + NONCE + AESGCM(KEY).encrypt(NONCE, b"plaintext", BASE + suffix)


def test_a_ctr_page_is_length_nonce_ciphertext_with_a_counter_from_one() -> None:
    body = bytes(1000)
    encrypted = bytes(cipher(ctr=True).encrypt_page(ORDINALS.suffix(ModuleType.DATA_PAGE, 3), body))
    keystream = Cipher(AES(KEY), CTR(NONCE + b"\0\0\0\1")).encryptor().update(body)
    assert encrypted == struct.pack("<I", 12 + 1000) + NONCE + keystream


def test_a_signature_is_nonce_and_tag_over_the_footer() -> None:
    signature = cipher().sign(b"the footer")
    assert signature == NONCE + AESGCM(KEY).encrypt(NONCE, b"the footer", BASE + b"\0")[-16:]
    cipher().check_signature(b"the footer", signature)
    for footer, changed in ((b"the footer!", signature), (b"the footer", signature[:-1] + b"x"), (b"the footer", b"x" + signature[1:])):
        with pytest.raises(TamperedFileError, match="signature of the plaintext footer"):
            cipher().check_signature(footer, changed)


@given(st.binary(max_size=200), st.booleans(), st.sampled_from([16, 24, 32]))
def test_what_was_encrypted_opens(plaintext: bytes, ctr: bool, key_length: int) -> None:
    either = cipher(ctr, bytes(key_length))
    suffix = ORDINALS.suffix(ModuleType.DATA_PAGE)
    assert either.decrypt(suffix, memoryview(either.encrypt(suffix, plaintext)), "it") == plaintext
    encrypted = either.encrypt_page(suffix, plaintext)
    assert len(encrypted) - len(plaintext) == (CTR_OVERHEAD if ctr else GCM_OVERHEAD)
    assert either.decrypt_page(suffix, memoryview(encrypted), "it") == plaintext


@pytest.mark.parametrize(
    "other",
    [
        cipher(base=b"prefiy" + BASE[6:]),
        cipher(base=BASE[:-1] + b"\x02"),
        cipher(key=b"j" * 16),
    ],
)
def test_a_module_of_another_file_or_key_is_refused(other: ModuleCipher) -> None:
    suffix = ORDINALS.suffix(ModuleType.COLUMN_INDEX)
    with pytest.raises(TamperedFileError, match=r"file\.parquet: the index does not authenticate under the footer key"):
        other.decrypt(suffix, memoryview(cipher().encrypt(suffix, b"index")), "the index")


@pytest.mark.parametrize("ordinal", [-1, 32768])
def test_ordinals_that_the_format_has_no_room_for_are_refused(ordinal: int) -> None:
    for make in (
        lambda: ModuleOrdinals(ordinal, 0, "a"),
        lambda: ModuleOrdinals(0, ordinal, "a"),
        lambda: ORDINALS.suffix(ModuleType.DATA_PAGE, ordinal),
    ):
        with pytest.raises(ConfigurationError, match="cannot be encrypted"):
            make()
    assert ModuleOrdinals(32767, 32767, "a").suffix(ModuleType.DATA_PAGE, 32767).hex() == "02ff7fff7fff7f"
    assert ORDINALS.suffix(ModuleType.DATA_PAGE) == ORDINALS.suffix(ModuleType.DATA_PAGE, 0)


@pytest.mark.parametrize(
    ("framed", "available"), [(b"", 100), (b"\x01\0\0", 100), (b"\x1b\0\0\0", 100), (b"\x61\0\0\0", 100), (b"\xff\xff\xff\xff", 100)]
)
def test_a_length_that_no_module_has_is_refused_before_anything_is_read(framed: bytes, available: int) -> None:
    with pytest.raises(TamperedFileError, match="the page"):
        module_length(framed, available, "the page", "file.parquet")
    assert module_length(b"\x60\0\0\0", 100, "the page", "file.parquet") == 100


def test_a_module_of_nothing_has_the_least_length_and_shorter_bytes_are_none() -> None:
    """Bytes that are too short to have a tag are not authentic: whether a file said to be in counter mode is in GCM is told by that."""
    suffix = ORDINALS.suffix(ModuleType.DATA_PAGE)
    empty = cipher().encrypt(suffix, b"")

    assert module_length(empty, GCM_OVERHEAD, "the page", "file.parquet") == GCM_OVERHEAD == len(empty)
    assert cipher().authenticates(suffix, memoryview(empty))
    assert not cipher().authenticates(suffix, memoryview(empty[:-1]))
    assert not cipher().authenticates(ORDINALS.suffix(ModuleType.DATA_PAGE, 1), memoryview(empty))


def test_one_key_encrypts_no_more_modules_than_gcm_allows() -> None:
    one = ModuleCipher(Secret(KEY), "the footer key", BASE, False, "file.parquet", lambda length: NONCE[:length], max_modules=2)
    one.encrypt(b"", b"")
    one.sign(b"")
    with pytest.raises(ConfigurationError, match="as many as a key may"):
        one.encrypt(b"", b"")


def test_a_module_longer_than_the_format_can_say_is_refused() -> None:
    # Pages that nobody touches take no memory.
    with mmap.mmap(-1, MAX_MODULE_LENGTH - GCM_OVERHEAD + 1) as untouched, pytest.raises(ConfigurationError, match="too long"):
        cipher().encrypt(b"", untouched)


def test_no_key_is_shown() -> None:
    assert KEY.decode() not in repr(cipher())
