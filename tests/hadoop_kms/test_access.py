"""The allow list: deny by default, one user per proof, no secret in the file or in a message."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given

from tablecrypt.errors import ConfigurationError
from tablecrypt.hadoop_kms.access import AccessDecision, AllowList, AllowListFile, Proofs, new_token, token_hash
from tests.support.mutations import arbitrary

pytestmark = pytest.mark.slow

TOKEN = new_token()
LIST = f"""
[users.etl]
keys = ["pii", "cards"]
token-sha256 = ["{token_hash(TOKEN)}"]
certificates = ["etl.example.org"]

[users.analyst]
keys = ["cards"]
masks = ["pii"]
certificates = ["analyst.example.org"]

[users."svc-1@example"]
keys = ["pii"]
masks = ["pii"]
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "allow.toml"


def _read(path: Path, content: str = LIST) -> AllowList:
    path.write_text(content)
    return AllowListFile(path).read()


def test_what_is_not_listed_is_denied(path: Path) -> None:
    allowed = _read(path)
    assert allowed.decision("etl", "pii") is AccessDecision.ALLOWED
    assert allowed.decision("analyst", "pii") is AccessDecision.MASKS
    assert [allowed.decision(*pair) for pair in (("etl", "other"), ("analyst", "PII"), ("nobody", "pii"), ("", ""))] == [
        AccessDecision.DENIED
    ] * 4
    assert allowed.allowed("etl", ["cards", "other", "pii"]) == ["cards", "pii"]
    assert allowed.allowed("analyst", ["cards", "pii"]) == ["cards"]


def test_a_key_that_is_both_allowed_and_masked_is_masked(path: Path) -> None:
    assert _read(path).decision("svc-1@example", "pii") is AccessDecision.MASKS


def test_each_proof_finds_its_user(path: Path) -> None:
    allowed = _read(path)
    assert allowed.user(Proofs(token=TOKEN)) == "etl"
    assert allowed.user(Proofs(certificate="analyst.example.org")) == "analyst"
    assert allowed.user(Proofs(token=TOKEN, certificate="etl.example.org")) == "etl"
    assert allowed.user(Proofs(claimed="analyst")) == "analyst"


@pytest.mark.parametrize(
    "proofs",
    [
        Proofs(),
        Proofs(token=""),
        Proofs(token="guess"),
        Proofs(token=token_hash(TOKEN)),
        Proofs(certificate="nobody.example.org"),
        Proofs(claimed="nobody"),
        Proofs(token=TOKEN, certificate="analyst.example.org"),
        Proofs(token=TOKEN, certificate="nobody.example.org"),
        Proofs(token="guess", certificate="etl.example.org"),
        Proofs(token="guess", claimed="etl"),
    ],
)
def test_no_proof_a_wrong_one_or_two_that_differ_find_nobody(path: Path, proofs: Proofs) -> None:
    assert _read(path).user(proofs) is None


def test_proofs_do_not_show_their_token() -> None:
    assert TOKEN not in repr(Proofs(token=TOKEN))


def test_a_line_taken_out_counts_at_the_next_reading(path: Path) -> None:
    assert _read(path).user(Proofs(token=TOKEN)) == "etl"
    assert _read(path, LIST.replace(token_hash(TOKEN), "0" * 64)).user(Proofs(token=TOKEN)) is None


BAD = [
    "users = 1",
    "[users.a]\nkeys = 'pii'",
    "[users.a]\nkyes = ['pii']",
    "[users.a]\ntoken-sha256 = ['short']",
    "[users.a]\ntoken-sha256 = ['" + "A" * 64 + "']",
    '[users."a b"]\nkeys = []',
    '[users."a\\nb"]\nkeys = []',
    "[groups.a]\nkeys = []",
    "[users.a",
    "[users.a]\n[users.a]",
    "[users.a]\ncertificates = ['c']\n[users.b]\ncertificates = ['c']",
    f"[users.a]\ntoken-sha256 = ['{'0' * 64}']\n[users.b]\ntoken-sha256 = ['{'0' * 64}']",
]


@pytest.mark.parametrize("content", BAD)
def test_a_list_that_is_not_understood_allows_nothing(path: Path, content: str) -> None:
    with pytest.raises(ConfigurationError, match=re.escape(str(path))):
        _read(path, content)


def test_a_missing_or_huge_list_is_an_error(path: Path) -> None:
    with pytest.raises(ConfigurationError, match="cannot be read"):
        AllowListFile(path).read()
    with path.open("wb") as file:
        file.truncate(64 * 1024 * 1024)
    with pytest.raises(ConfigurationError, match="longer than"):
        AllowListFile(path).read()


@given(content=arbitrary([each.encode() for each in (LIST, *BAD)], max_size=200))
def test_no_content_raises_anything_but_a_configuration_error(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    path = tmp_path_factory.getbasetemp() / "fuzzed-allow.toml"
    path.write_bytes(content)
    try:
        AllowListFile(path).read().user(Proofs(token="x"))
    except ConfigurationError:
        return


def test_tokens_are_long_and_never_the_same() -> None:
    tokens = {new_token() for _ in range(100)}
    assert len(tokens) == 100
    assert min(map(len, tokens)) >= 43
