"""The file of ORC master keys: only the KMS decrypts it, entries stay in their place, versions only grow."""

from __future__ import annotations

import json
import re
from base64 import b64encode, urlsafe_b64decode
from pathlib import Path

import pytest
from hypothesis import given

from tablecrypt.errors import AuthenticationError, ConfigurationError, FormatError, KeyNotFoundError, KmsUnavailableError, TablecryptError
from tablecrypt.hadoop_kms.master_keys import MasterKeyFile, create_key, roll_key
from tablecrypt.kms.client import GeneratedKey
from tablecrypt.kms.memory import MemoryKeyManagementClient
from tablecrypt.orc.key_providers import LocalKeys, MasterKeyVersion
from tests.support.mutations import arbitrary
from tests.support.parsers import seeds_of

pytestmark = pytest.mark.slow

MASTER = "orc-master"
OTHER = "other-master"


class CountingRandom:
    """Bytes that are known beforehand: 1, 1, 1, ... at the first call, 2, 2, 2, ... at the second."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, length: int) -> bytes:
        self.calls += 1
        return bytes([self.calls]) * length


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "orc-keys.json"


@pytest.fixture
def kms() -> MemoryKeyManagementClient:
    return MemoryKeyManagementClient({"kms.memory.name": "orc-key-file"}, {MASTER: bytes(32), OTHER: bytes([1]) * 32})


def test_a_local_key_opens_again(path: Path, kms: MemoryKeyManagementClient) -> None:
    for name, length in (("pii", 16), ("cards", 32)):
        create_key(path, kms, name, MASTER, 5, length)
    keys = MasterKeyFile(path, kms)
    assert keys.names() == ["cards", "pii"]
    for name, length in (("pii", 16), ("cards", 32)):
        master = keys.current_version(name)
        assert master == MasterKeyVersion(name, 0, length)
        local = keys.create_local_key(master)
        assert len(local.key) == length
        assert keys.decrypt_local_key(master, local.encrypted) == local.key


def test_local_keys_are_those_that_hadoop_derives_from_the_same_master_key(path: Path, kms: MemoryKeyManagementClient) -> None:
    create_key(path, kms, "pii", MASTER, 5, random=CountingRandom())
    # The first random bytes are the nonce, the second the master key.
    same = LocalKeys({"pii": [bytes([2]) * 16]})
    master = same.current_version("pii")
    local = same.create_local_key(master)
    assert MasterKeyFile(path, kms).decrypt_local_key(master, local.encrypted) == local.key


def test_a_rolled_key_is_used_at_once_and_the_older_version_stays(path: Path, kms: MemoryKeyManagementClient) -> None:
    create_key(path, kms, "pii", MASTER, 5, 32)
    keys = MasterKeyFile(path, kms)
    first = keys.current_version("pii")
    old = keys.create_local_key(first)
    assert roll_key(path, kms, "pii", 6, OTHER) == 1
    second = keys.current_version("pii")
    assert second == MasterKeyVersion("pii", 1, 32)
    assert keys.decrypt_local_key(first, old.encrypted) == old.key
    assert keys.decrypt_local_key(second, old.encrypted) != old.key
    assert (keys.describe("pii").versions, keys.describe("pii").created) == (2, 5)
    assert [version["master-key"] for version in json.loads(path.read_text())["keys"]["pii"]] == [MASTER, OTHER]


def test_the_file_holds_no_master_key(path: Path, kms: MemoryKeyManagementClient) -> None:
    create_key(path, kms, "pii", MASTER, 5, random=CountingRandom())
    key = bytes([2]) * 16
    entry = json.loads(path.read_text())["keys"]["pii"][0]
    stored = path.read_bytes() + b"".join(urlsafe_b64decode(entry[name]) for name in ("wrapped-key", "sealed"))
    assert not [form for form in (key, key.hex().encode(), b64encode(key)) if form in stored]


@pytest.mark.parametrize("place", ["another key", "another version", "another length"])
def test_an_entry_moved_elsewhere_does_not_open(path: Path, kms: MemoryKeyManagementClient, place: str) -> None:
    create_key(path, kms, "pii", MASTER, 5)
    create_key(path, kms, "public", MASTER, 5)
    roll_key(path, kms, "public", 6)
    document = json.loads(path.read_text())
    keys = document["keys"]
    if place == "another key":
        keys["public"][0] = keys["pii"][0]
    elif place == "another version":
        keys["public"].reverse()
    else:
        keys["public"][0]["length"] = 32
    path.write_text(json.dumps(document))
    with pytest.raises(AuthenticationError, match=r"public@0 .* was changed or is another key's"):
        MasterKeyFile(path, kms).decrypt_local_key(MasterKeyVersion("public", 0, 16), bytes(16))


def test_a_changed_blob_does_not_open(path: Path, kms: MemoryKeyManagementClient) -> None:
    create_key(path, kms, "pii", MASTER, 5)
    document = json.loads(path.read_text())
    for name in ("sealed", "wrapped-key"):
        entry = dict(document["keys"]["pii"][0])
        entry[name] = entry[name][:-8] + "AAAAAAA="
        path.write_text(json.dumps({**document, "keys": {"pii": [entry]}}))
        with pytest.raises((AuthenticationError, FormatError)):
            MasterKeyFile(path, kms).decrypt_local_key(MasterKeyVersion("pii", 0, 16), bytes(16))


def test_what_is_not_there_is_said_so(path: Path, kms: MemoryKeyManagementClient) -> None:
    keys = MasterKeyFile(path, kms)
    with pytest.raises(ConfigurationError, match="hadoop-kms-key makes one"):
        keys.names()
    create_key(path, kms, "pii", MASTER, 5)
    for ask in (
        lambda: keys.current_version("cards"),
        lambda: keys.decrypt_local_key(MasterKeyVersion("pii", 1, 16), bytes(16)),
        lambda: keys.decrypt_local_key(MasterKeyVersion("pii", -1, 16), bytes(16)),
        lambda: roll_key(path, kms, "cards", 6),
        lambda: create_key(path, kms, "cards", "no-such-master", 5),
    ):
        with pytest.raises(KeyNotFoundError):
            ask()


@pytest.mark.parametrize("encrypted", [b"", bytes(15), bytes(17), bytes(32)])
def test_a_local_key_of_another_length_is_refused(path: Path, kms: MemoryKeyManagementClient, encrypted: bytes) -> None:
    create_key(path, kms, "pii", MASTER, 5)
    with pytest.raises(FormatError):
        MasterKeyFile(path, kms).decrypt_local_key(MasterKeyVersion("pii", 0, 16), encrypted)


@pytest.mark.parametrize("name", ["", ".hidden", "a@b", "a/b", "a b", "é", "x" * 129, "a\n"])
def test_a_name_that_cannot_be_one_is_refused(path: Path, kms: MemoryKeyManagementClient, name: str) -> None:
    with pytest.raises(ConfigurationError, match="cannot be the name"):
        create_key(path, kms, name, MASTER, 5)
    assert not path.exists()


def test_a_name_is_given_once(path: Path, kms: MemoryKeyManagementClient) -> None:
    create_key(path, kms, "pii", MASTER, 5)
    before = path.read_bytes()
    with pytest.raises(ConfigurationError, match="already"):
        create_key(path, kms, "pii", MASTER, 5)
    assert path.read_bytes() == before


class BrokenKms:
    """A service that is down."""

    def wrap_key(self, key: bytes, wrapping_key_id: str) -> bytes:
        raise KmsUnavailableError("down")

    def unwrap_key(self, wrapped_key: bytes, wrapping_key_id: str) -> bytes:
        raise KmsUnavailableError("down")

    def generate_key(self, wrapping_key_id: str, length: int = 16) -> GeneratedKey:
        raise KmsUnavailableError("down")

    def close(self) -> None:
        """Nothing to close."""


def test_a_kms_that_is_down_leaves_the_file_as_it_was(path: Path, kms: MemoryKeyManagementClient) -> None:
    create_key(path, kms, "pii", MASTER, 5)
    before = path.read_bytes()
    with pytest.raises(KmsUnavailableError):
        roll_key(path, BrokenKms(), "pii", 6)
    assert path.read_bytes() == before
    assert list(path.parent.iterdir()) == [path]


BAD = [
    "",
    "{",
    "[]",
    "{}",
    '{"format": "tablecrypt-orc-keys", "version": 2, "keys": {}}',
    '{"format": "tablecrypt-key-file", "version": 1, "keys": {}}',
    '{"format": "tablecrypt-orc-keys", "version": 1, "keys": {"pii": [{}]}}',
    '{"format": "tablecrypt-orc-keys", "version": 1, "keys": {"pii": [{"created": 1, "length": 24, "master-key": "m", '
    '"wrapped-key": "", "sealed": ""}]}}',
    '{"format": "tablecrypt-orc-keys", "version": 1, "keys": [], "more": 1}',
]


@pytest.mark.parametrize("content", BAD)
def test_other_content_is_a_format_error(path: Path, kms: MemoryKeyManagementClient, content: str) -> None:
    path.write_text(content)
    with pytest.raises(FormatError, match=re.escape(str(path))):
        MasterKeyFile(path, kms).names()


@given(content=arbitrary([*seeds_of("Hadoop KMS key file"), *(each.encode() for each in BAD)], max_size=300))
def test_no_content_raises_anything_but_our_errors(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    path = tmp_path_factory.getbasetemp() / "fuzzed-orc-keys.json"
    path.write_bytes(content)
    try:
        MasterKeyFile(path, BrokenKms()).describe("pii")
    except TablecryptError:
        return


def test_a_huge_file_is_not_read_whole(path: Path, kms: MemoryKeyManagementClient) -> None:
    with path.open("wb") as file:
        file.truncate(64 * 1024 * 1024)
    with pytest.raises(FormatError, match="longer than"):
        MasterKeyFile(path, kms).names()
