"""Which key is for which column, which keys cannot be used, and that none is shown."""

from __future__ import annotations

import pickle
import secrets
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.parquet.encryption as pe
import pytest

from tablecrypt.crypto.key_metadata import StandardKeyMetadata
from tablecrypt.crypto.secret import Secret
from tablecrypt.errors import ConfigurationError, FormatError, KeyNotFoundError, PlaintextRefusedError, TablecryptError
from tablecrypt.parquet import FileKeys, read_table
from tests.support.modular_files import FOOTER_KEY, ID_KEY, NAME_KEY, encrypted, plain_file, sample_table

NESTED = ("l", "list", "element")


def _name(keys: FileKeys, path: tuple[str, ...]) -> str | None:
    column_key = keys.column_key(path)
    return None if column_key is None else column_key.name


def test_a_leaf_has_the_key_of_the_nearest_name() -> None:
    keys = FileKeys(FOOTER_KEY, {"l": ID_KEY, "l.list.element": NAME_KEY, "s.b": ID_KEY})
    assert _name(keys, NESTED) == "the key of column l.list.element"
    assert _name(keys, ("l", "list", "other")) == "the key of column l"
    assert _name(keys, ("s", "b")) == "the key of column s.b"
    assert _name(keys, ("s", "c")) == "the footer key"


def test_only_a_named_column_stays_in_the_clear() -> None:
    keys = FileKeys(FOOTER_KEY, {"s.b": ID_KEY}, plaintext_columns=["s"])
    assert _name(keys, ("s", "a")) is None
    assert _name(keys, ("s", "b")) == "the key of column s.b"
    assert _name(keys, ("t",)) == "the footer key"


@pytest.mark.parametrize("name", ["idd", "tags.list", "id.x", ""])
@pytest.mark.parametrize("argument", ["column_keys", "plaintext_columns"])
def test_a_name_that_stands_for_no_column_is_refused(name: str, argument: str) -> None:
    data = plain_file(sample_table())
    keys = FileKeys(FOOTER_KEY, {name: ID_KEY}) if argument == "column_keys" else FileKeys(FOOTER_KEY, plaintext_columns=[name])
    if name == "tags.list":
        encrypted(data, keys)  # a group between the column and its leaf
        return
    with pytest.raises(ConfigurationError, match="no column"):
        encrypted(data, keys)


def test_a_name_that_stands_for_a_column_and_for_a_field_is_refused() -> None:
    data = plain_file(pa.table({"s": [{"a": 1}], "s.a": [2]}))
    for keys in (FileKeys(FOOTER_KEY, {"s": ID_KEY}, plaintext_columns=["s.a"]), FileKeys(FOOTER_KEY, {"s.a": ID_KEY})):
        with pytest.raises(ConfigurationError, match="is the name of a column and of a field in a struct"):
            encrypted(data, keys)
    by_column = FileKeys(FOOTER_KEY, {"s": ID_KEY})
    assert read_table(encrypted(data, by_column), by_column).to_pylist() == [{"s": {"a": 1}, "s.a": 2}]


@pytest.mark.parametrize("length", [0, 15, 17, 31, 33])
def test_a_key_of_another_length_is_refused_and_named(length: int) -> None:
    with pytest.raises(ConfigurationError, match=f"the footer key has {length} bytes"):
        FileKeys(bytes(length))
    with pytest.raises(ConfigurationError, match=f"the key of column a has {length} bytes"):
        FileKeys(FOOTER_KEY, {"a": bytes(length)})
    with pytest.raises(ConfigurationError, match="the footer key"):
        FileKeys(key_retriever=lambda _: bytes(length)).find_footer_key(b"any", "file")


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({"algorithm": "AES_CBC"}, "AES_CBC"),
        ({"store_aad_prefix": True}, "no aad_prefix"),
        ({"column_keys": {"a": ID_KEY}, "plaintext_columns": ["a"]}, "can be in one of them"),
        ({"column_key_metadata": {"a": b"m"}}, "no key for"),
    ],
)
def test_arguments_that_contradict_each_other_are_refused(arguments: dict[str, object], reason: str) -> None:
    with pytest.raises(ConfigurationError, match=reason):
        FileKeys(FOOTER_KEY, **arguments)  # type: ignore[arg-type]


@pytest.mark.parametrize(("metadata", "what"), [("text", "a str"), (5, "an int"), (True, "a bool"), ([], "a list"), (None, "None")])
def test_key_metadata_of_a_column_is_bytes(metadata: Any, what: str) -> None:
    with pytest.raises(ConfigurationError, match=f"^the key metadata of column 'a' is {what}; it must be bytes$"):
        FileKeys(FOOTER_KEY, {"a": ID_KEY}, column_key_metadata={"a": metadata})


@pytest.mark.parametrize("key", ["sixteen letters.", 16, None, [1] * 16])
def test_what_is_no_key_is_refused(key: object) -> None:
    if key is not None:
        with pytest.raises(ConfigurationError, match="the footer key is a"):
            FileKeys(key)  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="the key of column a is a"):
        FileKeys(FOOTER_KEY, {"a": key})  # type: ignore[dict-item]
    with pytest.raises(ConfigurationError, match="the footer key is a"):
        FileKeys(key_retriever=lambda _: key).find_footer_key(b"kf", "file")  # type: ignore[arg-type,return-value]
    with pytest.raises(ConfigurationError, match="aad_prefix is"):
        FileKeys(FOOTER_KEY, aad_prefix=key)  # type: ignore[arg-type]


def test_writing_takes_a_footer_key() -> None:
    with pytest.raises(ConfigurationError, match="footer_key"):
        encrypted(plain_file(sample_table()), FileKeys(column_keys={"id": ID_KEY}))


def test_a_given_key_comes_before_a_retrieved_one() -> None:
    asked: list[bytes] = []

    def retrieve(key_metadata: bytes) -> bytes:
        asked.append(key_metadata)
        return NAME_KEY

    keys = FileKeys(FOOTER_KEY, {"a": ID_KEY}, key_retriever=retrieve)
    assert keys.find_footer_key(b"f", "file") == Secret(FOOTER_KEY)
    assert keys.find_column_key(("a",), b"a", "file") == Secret(ID_KEY)
    assert asked == []
    assert keys.find_column_key(("b",), b"b", "file") == Secret(NAME_KEY)
    assert asked == [b"b"]


def test_a_missing_key_is_named_with_the_file() -> None:
    with pytest.raises(KeyNotFoundError, match=r"^file: the key of column a\.b is needed"):
        FileKeys(FOOTER_KEY).find_column_key(("a", "b"), b"m", "file")
    with pytest.raises(KeyNotFoundError, match="stores no key metadata"):
        FileKeys(key_retriever=lambda _: FOOTER_KEY).find_footer_key(None, "file")


def test_keys_of_a_table_file_are_strict() -> None:
    key_metadata = StandardKeyMetadata.generate(16, secrets.token_bytes).with_file_length(99)
    keys = FileKeys.of_table_file(key_metadata)
    assert (keys.footer_key, keys.aad_prefix, keys.file_length, keys.strict) == (
        key_metadata.encryption_key,
        key_metadata.aad_prefix,
        99,
        True,
    )


def test_a_tables_file_has_no_column_in_the_clear_and_none_under_a_key_of_its_own() -> None:
    keys = FileKeys.of_table_file(StandardKeyMetadata.generate(16, secrets.token_bytes))
    with pytest.raises(PlaintextRefusedError, match=r"^part-0: has column s\.b in the clear"):
        keys.accept_plain(("s", "b"), "part-0")
    with pytest.raises(FormatError, match=r"^part-0: column s\.b is encrypted with a key of its own"):
        keys.find_column_key(("s", "b"), None, "part-0")


def test_looking_at_a_file_is_lenient_except_in_a_table() -> None:
    keys = FileKeys(FOOTER_KEY)
    keys.for_inspection().accept_plain(("s", "b"), "part-0")
    with pytest.raises(PlaintextRefusedError, match=r"^part-0: column s\.b is in the clear"):
        keys.accept_plain(("s", "b"), "part-0")

    of_a_table = FileKeys.of_table_file(StandardKeyMetadata.generate(16, secrets.token_bytes))
    assert of_a_table.for_inspection() is of_a_table


def test_a_column_that_no_argument_names_is_under_the_footer_key() -> None:
    keys = FileKeys(FOOTER_KEY, {"l": ID_KEY})
    own, other = keys.column_key(NESTED), keys.column_key(("s", "c"))
    assert own is not None
    assert other is not None
    assert (own.key.reveal(), own.is_footer_key) == (ID_KEY, False)
    assert (other.key.reveal(), other.is_footer_key) == (FOOTER_KEY, True)


def test_no_key_is_shown_or_pickled() -> None:
    keys = FileKeys(FOOTER_KEY, {"id": ID_KEY})
    for text in (repr(keys), str(keys), f"{keys}"):
        assert "footer-key" not in text
        assert ID_KEY.decode() not in text
    with pytest.raises(TypeError):
        pickle.dumps(keys)
    with pytest.raises(TablecryptError) as refused:
        FileKeys(b"seventeen bytes!!")
    assert "seventeen" not in str(refused.value)


def test_keys_without_a_key_are_refused() -> None:
    for given in ({}, {"footer_key": None}, {"aad_prefix": b"orders", "plaintext_columns": ["id"]}):
        with pytest.raises(ConfigurationError, match="FileKeys has no key: give a footer_key of 16, 24 or 32 bytes"):
            FileKeys(**given)
    assert FileKeys(column_keys={"id": ID_KEY}).footer_key is None


@pytest.mark.parametrize("given", ["name", "n", ""])
def test_what_stays_in_the_clear_is_listed_and_never_text(given: str) -> None:
    with pytest.raises(ConfigurationError, match="plaintext_columns is a str; give a list of the columns that stay in the clear"):
        FileKeys(FOOTER_KEY, plaintext_columns=given)


@pytest.mark.parametrize("given", [None, 3, b"name", {"name": 1}, [b"name"]])
def test_what_stays_in_the_clear_is_names(given: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"plaintext_columns .* must be a name or a list of names"):
        FileKeys(FOOTER_KEY, plaintext_columns=given)


@pytest.mark.parametrize("length", [16, 24, 32])
def test_nothing_is_written_under_a_key_of_zeros(length: int) -> None:
    data = plain_file(sample_table())
    with pytest.raises(ConfigurationError, match="the footer key is all zeros, which everybody can guess"):
        encrypted(data, FileKeys(bytes(length)))
    with pytest.raises(ConfigurationError, match="the key of column id is all zeros"):
        encrypted(data, FileKeys(FOOTER_KEY, {"id": bytes(length)}))


def test_what_others_wrote_under_zeros_is_read() -> None:
    sink = pa.BufferOutputStream()
    pq.write_table(sample_table(), sink, encryption_properties=pe.create_encryption_properties(bytes(16)))
    one_name: Any = "id"
    assert read_table(sink.getvalue(), FileKeys(bytes(16)), columns=one_name) == sample_table().select(["id"])
