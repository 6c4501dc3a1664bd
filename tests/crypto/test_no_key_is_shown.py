"""No way of printing, formatting or pickling what holds a key shows a byte sequence of it."""

from __future__ import annotations

import base64
import copy
import logging
import pickle
import traceback
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tablecrypt.crypto.aes_gcm import AesGcm
from tablecrypt.crypto.key_metadata import StandardKeyMetadata
from tablecrypt.crypto.secret import Secret
from tablecrypt.errors import FormatError, TablecryptError

KEY = b"k3y-bytes-never!"
HOLDERS: dict[str, Callable[[bytes], object]] = {
    "Secret": Secret,
    "AesGcm": lambda key: AesGcm(Secret(key)),
    "StandardKeyMetadata": lambda key: StandardKeyMetadata(Secret(key), b"prefix", 99),
}

holders = pytest.mark.parametrize("name", HOLDERS)


def spellings(key: bytes) -> list[str]:
    """The ways in which key bytes get into text."""
    encoded = base64.b64encode(key).decode().rstrip("=")
    return [key.hex(), key.hex().upper(), encoded, repr(key)[2:-1], repr(list(key))[1:-1], key.decode("latin-1")]


def assert_not_shown(key: bytes, text: str) -> None:
    for spelling in spellings(key):
        assert spelling not in text


@holders
@given(st.binary(min_size=16, max_size=16))
def test_text_of_a_holder_does_not_show_the_key(name: str, key: bytes) -> None:
    holder = HOLDERS[name](key)
    for text in (repr(holder), str(holder), f"{holder}", f"{holder!s:>80}", f"{holder!r}", "%s %r" % (holder, holder), repr([holder])):  # noqa: UP031
        assert_not_shown(key, text)


@holders
def test_a_log_line_of_a_holder_does_not_show_the_key(name: str, caplog: pytest.LogCaptureFixture) -> None:
    logging.getLogger("tablecrypt.test").warning("using %s and %r", HOLDERS[name](KEY), HOLDERS[name](KEY))
    assert_not_shown(KEY, caplog.text)


@holders
@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_a_holder_cannot_be_pickled(name: str, protocol: int) -> None:
    with pytest.raises(TypeError):
        pickle.dumps(HOLDERS[name](KEY), protocol)


@holders
def test_a_holder_cannot_be_deep_copied(name: str) -> None:
    with pytest.raises(TypeError):
        copy.deepcopy(HOLDERS[name](KEY))


def test_a_secret_is_formatted_as_what_it_shows() -> None:
    assert f"{Secret(KEY):>20}" == "    Secret(16 bytes)"
    assert repr(AesGcm(Secret(KEY))) == "AesGcm(Secret(16 bytes))"


def test_a_secret_turns_into_bytes_only_by_revealing_it() -> None:
    secret = Secret(KEY)
    with pytest.raises(TypeError):
        bytes(secret)
    with pytest.raises(TypeError):
        hash(secret)
    assert secret.reveal() == KEY


@given(st.binary(min_size=16, max_size=16), st.binary(min_size=16, max_size=16))
def test_secrets_are_equal_when_their_bytes_are(one: bytes, other: bytes) -> None:
    assert (Secret(one) == Secret(other)) is (one == other)
    assert Secret(one) != one


@pytest.mark.parametrize("cut", range(1, 20))
def test_a_refused_record_does_not_show_the_key_in_its_error(cut: int) -> None:
    encoded = StandardKeyMetadata(Secret(KEY), b"prefix", 99).encode()
    for data in (encoded[:cut], encoded + b"rest", b"\x02" + encoded[1:], encoded[:1] + bytes([cut * 2 + 1]) + encoded[2:]):
        with pytest.raises(FormatError) as refused:
            StandardKeyMetadata.decode(data)
        assert_error_does_not_show(refused.value)


def test_a_refused_decryption_does_not_show_the_key_in_its_error() -> None:
    with pytest.raises(TablecryptError) as refused:
        AesGcm(Secret(KEY)).decrypt(bytes(40), b"")
    assert_error_does_not_show(refused.value)


def assert_error_does_not_show(error: TablecryptError) -> None:
    assert_not_shown(KEY, repr(error) + str(error) + "".join(traceback.format_exception(error)))
    assert KEY not in pickle.dumps(error)
