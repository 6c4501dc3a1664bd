"""The list of master keys that a client allows: what its globs mean, and what is an error and never everything or nothing."""

from __future__ import annotations

import pickle

import pytest

from tablecrypt import load_kms
from tablecrypt.errors import ConfigurationError, MasterKeyRefusedError
from tablecrypt.kms.resilient import AllowedKeys


@pytest.mark.parametrize(
    ("globs", "allowed", "refused"),
    [
        ("alias/orders", "alias/orders", "alias/orders-2"),
        ("alias/*", "alias/a/b", "arn:aws:kms:eu-central-1:1:alias/a"),
        ("arn:*:key/1234-?", "arn:aws:kms:eu-central-1:1:key/1234-a", "arn:aws:kms:eu-central-1:1:key/1234-"),
        ("a,  b ", "b", " b"),
        ("Orders", "Orders", "orders"),
    ],
)
def test_a_glob_is_held_against_the_whole_id(globs: str, allowed: str, refused: str) -> None:
    keys = AllowedKeys.of({"encryption.allowed-key-ids": globs})
    assert keys.allows(allowed)
    assert not keys.allows(refused)
    assert AllowedKeys.of({}).allows(refused)


@pytest.mark.parametrize("globs", ["", ",", "alias/a,", " , alias/a"])
def test_an_empty_entry_is_an_error_and_not_everything_or_nothing(globs: str) -> None:
    with pytest.raises(ConfigurationError, match="empty entry"):
        load_kms({"encryption.kms-type": "memory", "encryption.allowed-key-ids": globs})
    with pytest.raises(ConfigurationError, match="empty entry"):
        AllowedKeys.listed([])


def test_an_argument_is_a_glob_several_or_none() -> None:
    assert AllowedKeys.listed("alias/*").allows("alias/a")
    assert not AllowedKeys.listed("alias/*").allows("*")
    assert AllowedKeys.listed(["a", "b"]).allows("b")
    assert AllowedKeys.listed(None).allows("anything")
    assert AllowedKeys.listed(iter(("a", "b"))) == AllowedKeys(("a", "b"))


def test_the_first_that_is_not_allowed_is_named_and_none_is_no_id() -> None:
    keys = AllowedKeys(("a", "b"))
    keys.check(("a", None, "b"), "a file")
    keys.check((), "a file")
    with pytest.raises(MasterKeyRefusedError, match="a file names master key 'c'") as refused:
        keys.check((None, "a", "c", "d"), "a file")
    assert (refused.value.key_id, refused.value.where) == ("c", "a file")
    AllowedKeys().check(("c", "d"), "a file")


def test_the_error_names_the_key_and_survives_pickling() -> None:
    error = pickle.loads(pickle.dumps(MasterKeyRefusedError("alias/theirs", "the metadata of table db.t")))
    assert (error.key_id, error.where) == ("alias/theirs", "the metadata of table db.t")
    assert "encryption.allowed-key-ids" in str(error)
