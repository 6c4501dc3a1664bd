"""The key file: who may read it, how it changes, what it refuses, and what a rotation keeps readable."""

from __future__ import annotations

import base64
import json
import os
import stat
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tablecrypt.crypto.secret import Secret
from tablecrypt.errors import ConfigurationError, KeyNotFoundError, TablecryptError
from tablecrypt.kms.client import unwrap_with_master_key, wrap_with_master_key
from tablecrypt.kms.local_file import LocalFileKeyManagementClient, add_key, add_key_version, create_key_file, read_key_file
from tests.support.mutations import mutated
from tests.support.observed_calls import observed

KEY = base64.b64encode(bytes(range(32))).decode()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "keys.json"


def _client(path: Path) -> LocalFileKeyManagementClient:
    return LocalFileKeyManagementClient({"kms.local.key-file": str(path)})


def _write(path: Path, content: str) -> None:
    path.write_text(content)
    path.chmod(0o600)


def test_a_new_file_is_the_owners_alone_and_nothing_else_is_left(path: Path) -> None:
    create_key_file(path, "orders")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert list(path.parent.iterdir()) == [path]
    assert len(read_key_file(path)["orders"][1]) == 32


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o602, 0o610, 0o601, 0o644, 0o666, 0o777])
def test_a_file_that_others_can_touch_is_refused(path: Path, mode: int) -> None:
    create_key_file(path, "orders")
    path.chmod(mode)
    for ask in (lambda: _client(path).generate_key("orders"), lambda: add_key(path, "people")):
        with pytest.raises(ConfigurationError, match=f"mode {mode:04o}.*chmod 600"):
            ask()


@pytest.mark.parametrize("mode", [0o600, 0o400])
def test_a_file_that_only_its_owner_can_read_is_taken(path: Path, mode: int) -> None:
    create_key_file(path, "orders")
    path.chmod(mode)
    assert len(_client(path).generate_key("orders", 24).key) == 24


def test_a_file_opened_up_later_is_refused_at_the_next_call(path: Path) -> None:
    create_key_file(path, "orders")
    client = _client(path)
    wrapped = client.generate_key("orders").wrapped_key
    path.chmod(0o644)
    with pytest.raises(ConfigurationError):
        client.unwrap_key(wrapped, "orders")


def test_a_file_that_is_not_there_or_is_a_folder_is_said_so(path: Path) -> None:
    with pytest.raises(ConfigurationError, match="tablecrypt keygen"):
        _client(path).generate_key("orders")
    path.mkdir()
    with pytest.raises(ConfigurationError):
        _client(path).generate_key("orders")


def test_an_existing_file_or_key_is_never_replaced(path: Path) -> None:
    create_key_file(path, "orders")
    before = path.read_bytes()
    with pytest.raises(ConfigurationError, match="already"):
        create_key_file(path, "people")
    with pytest.raises(ConfigurationError, match="already"):
        add_key(path, "orders")
    assert path.read_bytes() == before


def test_two_changes_at_once_are_one_too_many(path: Path) -> None:
    create_key_file(path, "orders")
    before = path.read_bytes()
    path.with_name("keys.json.new").touch()
    with pytest.raises(ConfigurationError, match=r"keys\.json\.new exists"):
        add_key(path, "people")
    assert path.read_bytes() == before


def test_a_failed_change_leaves_the_file_as_it_was(path: Path) -> None:
    create_key_file(path, "orders")
    before = path.read_bytes()

    def fail(length: int) -> bytes:
        raise OSError("no randomness")

    with pytest.raises(OSError, match="no randomness"):
        add_key(path, "people", random=fail)
    assert path.read_bytes() == before
    assert list(path.parent.iterdir()) == [path]


def test_adding_a_key_keeps_the_others(path: Path) -> None:
    create_key_file(path, "orders")
    wrapped = _client(path).wrap_key(bytes(16), "orders")
    add_key(path, "people", 24)
    assert _client(path).unwrap_key(wrapped, "orders") == bytes(16)
    assert len(read_key_file(path)["people"][1]) == 24


def test_after_a_rotation_old_keys_open_and_new_ones_need_the_new_version(path: Path) -> None:
    create_key_file(path, "orders", 16)
    client = _client(path)
    old = client.wrap_key(bytes(16), "orders")
    before = read_key_file(path)["orders"]
    assert add_key_version(path, "orders") == 2
    new = client.wrap_key(bytes(16), "orders")
    assert client.unwrap_key(old, "orders") == client.unwrap_key(new, "orders") == bytes(16)
    with pytest.raises(KeyNotFoundError, match="version 2"):
        unwrap_with_master_key(new, before, "orders")


def test_a_key_that_is_not_there_cannot_be_rotated(path: Path) -> None:
    create_key_file(path, "orders")
    with pytest.raises(ConfigurationError, match="'people'"):
        add_key_version(path, "people")


@pytest.mark.parametrize("key_id", ["", " orders", "orders\n", "or\x00ders"])
def test_a_key_id_that_nobody_could_type_is_refused(path: Path, key_id: str) -> None:
    with pytest.raises(ConfigurationError):
        create_key_file(path, key_id)
    assert not list(path.parent.iterdir())


@pytest.mark.parametrize("length", [0, 8, 33])
def test_a_master_key_is_an_aes_key(path: Path, length: int) -> None:
    with pytest.raises(ConfigurationError):
        create_key_file(path, "orders", length)


@pytest.mark.parametrize(
    "content",
    [
        "",
        "[]",
        "{}",
        '{"format": "tablecrypt-key-file"}',
        '{"format": "tablecrypt-key-file", "version": 2, "keys": {}}',
        '{"format": "tablecrypt-key-file", "version": 1, "keys": []}',
        '{"format": "tablecrypt-key-file", "version": 1, "keys": {"orders": {}}}',
        '{"format": "tablecrypt-key-file", "version": 1, "keys": {"orders": "' + KEY + '"}}',
        '{"format": "tablecrypt-key-file", "version": 1, "keys": {"orders": {"0": "' + KEY + '"}}}',
        '{"format": "tablecrypt-key-file", "version": 1, "keys": {"orders": {"-1": "' + KEY + '"}}}',
        '{"format": "tablecrypt-key-file", "version": 1, "keys": {"orders": {"4294967296": "' + KEY + '"}}}',
        '{"format": "tablecrypt-key-file", "version": 1, "keys": {"orders": {"²": "' + KEY + '"}}}',
        '{"format": "tablecrypt-key-file", "version": 1, "keys": {"orders": {"1": "' + KEY[:-8] + '"}}}',
        '{"format": "tablecrypt-key-file", "version": 1, "keys": {"orders": {"1": 7}}}',
        '{"format": "tablecrypt-key-file", "version": 1, "keys": {"orders": {"1": "' + KEY + '"}}',
    ],
)
def test_a_file_that_is_not_a_key_file_is_refused_without_showing_it(path: Path, content: str) -> None:
    _write(path, content)
    with pytest.raises(ConfigurationError) as refusal:
        read_key_file(path)
    assert KEY[:-8] not in "".join(traceback.format_exception(refusal.value))


@given(blob=st.binary(max_size=80), key_id=st.text(max_size=8))
def test_any_bytes_as_a_wrapped_key_are_refused(blob: bytes, key_id: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.mktemp("keys") / "keys.json"
    create_key_file(path, "orders")
    for asked in (key_id, "orders"):
        with pytest.raises(TablecryptError):
            _client(path).unwrap_key(blob, asked)


@pytest.fixture(scope="module")
def wrapped_keys(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, bytes, bytes]:
    """A key file and two keys that are wrapped under it: the same for all examples, since what changes them looks at their bytes."""
    path = tmp_path_factory.mktemp("keys") / "keys.json"
    create_key_file(path, "orders")
    return path, _client(path).wrap_key(bytes(32), "orders"), _client(path).wrap_key(bytes(32), "orders")


@given(data=st.data())
def test_a_changed_wrapped_key_is_refused(data: st.DataObject, wrapped_keys: tuple[Path, bytes, bytes]) -> None:
    path, one, other = wrapped_keys
    changed = mutated(one, [other], lambda low, high: data.draw(st.integers(low, high)))
    if changed not in (one, other):
        with pytest.raises(TablecryptError):
            _client(path).unwrap_key(changed, "orders")


@given(position=st.integers(0, 64), bit=st.integers(0, 7))
def test_a_wrapped_key_with_any_bit_flipped_is_refused(position: int, bit: int, tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.mktemp("keys") / "keys.json"
    create_key_file(path, "orders")
    wrapped = bytearray(_client(path).wrap_key(bytes(32), "orders"))
    wrapped[position] ^= 1 << bit
    with pytest.raises(TablecryptError):
        _client(path).unwrap_key(bytes(wrapped), "orders")


def test_the_layout_is_the_one_that_is_drawn(path: Path) -> None:
    create_key_file(path, "orders")
    wrapped = _client(path).wrap_key(bytes(16), "orders")
    assert wrapped[:5] == bytes([1, 0, 0, 0, 1])
    assert len(wrapped) == 5 + 12 + 16 + 16


def test_the_file_is_the_json_that_is_drawn(path: Path) -> None:
    create_key_file(path, "orders", random=bytes)
    document = json.loads(path.read_bytes())
    zeros = base64.b64encode(bytes(32)).decode()
    assert document == {"format": "tablecrypt-key-file", "version": 1, "keys": {"orders": {"1": zeros}}}


def test_the_folder_is_flushed_after_the_file_has_its_name(path: Path) -> None:
    """Without that a power cut may bring the folder back without the file, or with the old one."""
    flushed: list[tuple[bool, list[str]]] = []

    def look(names: Mapping[str, Any]) -> None:
        is_folder = stat.S_ISDIR(os.fstat(names["descriptor"]).st_mode)
        flushed.append((is_folder, sorted(each.name for each in path.parent.iterdir())))

    with observed(os.fsync, look):
        create_key_file(path, "orders")
    assert flushed == [(False, ["keys.json.new"]), (True, ["keys.json"])]


def test_a_missing_key_is_told_from_those_that_are_there(path: Path) -> None:
    create_key_file(path, "orders")
    add_key(path, "alias/people")
    with pytest.raises(KeyNotFoundError, match=r"has no key 'order'; it has 'alias/people', 'orders'\. Did you mean orders\?$"):
        _client(path).generate_key("order")
    for number in range(20):
        add_key(path, f"tenant-{number:02}")
    with pytest.raises(KeyNotFoundError, match=r"'tenant-05', 14 more$"):
        _client(path).generate_key("pii")


def test_a_file_that_is_not_there_is_said_with_its_folder(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(path.parent)
    with pytest.raises(
        ConfigurationError,
        match=f"orders.keys cannot be read: there is none in {path.parent}: put yours there, or make a first one \\(tablecrypt keygen\\)",
    ):
        _client(Path("orders.keys")).generate_key("orders")


@pytest.mark.parametrize("length", [16, 24, 32])
def test_a_key_of_zeros_wraps_nothing_and_still_unwraps(path: Path, length: int) -> None:
    zeros = base64.b64encode(bytes(length)).decode()
    _write(path, json.dumps({"format": "tablecrypt-key-file", "version": 1, "keys": {"orders": {"1": zeros}}}))
    with pytest.raises(ConfigurationError, match=r"newest version of key 'orders' .* is all zeros, which everybody can guess"):
        _client(path).generate_key("orders")

    wrapped = wrap_with_master_key(bytes(range(16)), {1: Secret(bytes(length))}, "orders")
    add_key_version(path, "orders")
    assert _client(path).unwrap_key(wrapped, "orders") == bytes(range(16))
    assert len(_client(path).generate_key("orders").key) == 16
