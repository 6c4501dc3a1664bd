"""Keys from properties and a KMS: what is wrapped, by what, how often the KMS is asked, and what is refused."""

from __future__ import annotations

import base64
import io
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tablecrypt.errors import AuthenticationError, ConfigurationError, FormatError, KeyNotFoundError, PlaintextRefusedError
from tablecrypt.parquet import EncryptionConfiguration, FileKeys, PropertiesDrivenCryptoFactory, read_table, verify, write_table
from tablecrypt.parquet.key_material import ExternalKeyMaterial, KeyMaterial, reference_in, reference_to
from tests.support.aws import AwsServer
from tests.support.mutations import mutations
from tests.support.parquet_java import InMemoryKms
from tests.support.parsers import seeds_of
from tests.support.plaintext import CANARY

ROWS = pa.table({"id": [1, 2, 3], "name": [CANARY, None, CANARY], "ratio": [0.5, 1.5, 2.5]})
BY_COLUMN = {"parquet.encryption.footer.key": "kf", "parquet.encryption.column.keys": "kc1: id ; kc2: name"}

WRAPPED_AND_OPENED = 2
"""Calls for a new key: what the KMS has wrapped is opened once before it is used."""


def written(keys: FileKeys) -> bytes:
    sink = io.BytesIO()
    write_table(ROWS, sink, keys)
    return sink.getvalue()


def test_a_file_opens_by_what_is_stored_in_it() -> None:
    kms = InMemoryKms()
    data = written(PropertiesDrivenCryptoFactory(kms).encryption_keys(BY_COLUMN))
    assert read_table(data, PropertiesDrivenCryptoFactory(kms).decryption_keys()) == ROWS
    assert CANARY.encode() not in data


def test_every_file_gets_keys_of_its_own() -> None:
    factory = PropertiesDrivenCryptoFactory(InMemoryKms())
    seen = [factory.encryption_keys(BY_COLUMN) for _ in range(3)]
    keys = {key.reveal() for each in seen for key in (each.footer_key, *each.column_keys.values()) if key is not None}
    assert len(keys) == 9


def test_with_double_wrapping_many_files_cost_one_call_for_each_master_key() -> None:
    kms = InMemoryKms()
    factory = PropertiesDrivenCryptoFactory(kms)
    files = [written(factory.encryption_keys(BY_COLUMN)) for _ in range(5)]
    assert kms.calls == 3 * WRAPPED_AND_OPENED
    reader = PropertiesDrivenCryptoFactory(kms)
    for data in files:
        read_table(data, reader.decryption_keys())
    assert kms.calls == 3 * WRAPPED_AND_OPENED + 3


def test_with_single_wrapping_every_key_costs_a_call() -> None:
    kms = InMemoryKms()
    PropertiesDrivenCryptoFactory(kms).encryption_keys({**BY_COLUMN, "parquet.encryption.double.wrapping": "false"})
    assert kms.calls == 3 * WRAPPED_AND_OPENED


def test_a_kek_is_not_used_beyond_its_lifetime() -> None:
    kms = InMemoryKms()
    factory = PropertiesDrivenCryptoFactory(kms, lifetime_s=0)
    for _ in range(2):
        factory.encryption_keys({"parquet.encryption.uniform.key": "kf"})
    assert kms.calls == 2 * WRAPPED_AND_OPENED


def test_columns_that_no_property_names_stay_plain_only_when_asked_for() -> None:
    factory = PropertiesDrivenCryptoFactory(InMemoryKms())
    open_columns = {**BY_COLUMN, "parquet.encryption.complete.columns": "false"}
    assert verify(written(factory.encryption_keys(BY_COLUMN)), factory.decryption_keys()).columns_in_the_clear == ()
    partly = written(factory.encryption_keys(open_columns, ROWS.schema))
    assert verify(partly, factory.decryption_keys(plaintext_columns=["ratio"])).columns_in_the_clear == ("ratio",)
    with pytest.raises(PlaintextRefusedError, match="column ratio is in the clear"):
        read_table(partly, factory.decryption_keys())
    with pytest.raises(ConfigurationError, match="schema"):
        factory.encryption_keys(open_columns)


def test_a_dot_in_the_name_of_a_column_makes_it_no_field_of_a_struct() -> None:
    rows = pa.table({"a.b": [1], "a": [2], "s": [{"x": 3, "y": 4}]})
    factory = PropertiesDrivenCryptoFactory(InMemoryKms())
    configuration = EncryptionConfiguration("kf", {"kc1": ("a.b", "s.x")}, complete_columns=False)
    sink = io.BytesIO()
    write_table(rows, sink, factory.encryption_keys(configuration, rows.schema))
    assert verify(sink.getvalue(), factory.decryption_keys(plaintext_columns=["a"])).columns_in_the_clear == ("a",)
    assert read_table(sink.getvalue(), factory.decryption_keys(plaintext_columns=["a"])) == rows


def test_keys_beside_the_file_can_be_rotated_without_touching_it(tmp_path: Path) -> None:
    factory = PropertiesDrivenCryptoFactory(InMemoryKms())
    path = tmp_path / "rows.parquet"
    beside = {**BY_COLUMN, "parquet.encryption.key.material.store.internally": "false"}
    write_table(ROWS, str(path), factory.encryption_keys(beside, location=str(path)))
    data, material = path.read_bytes(), (tmp_path / "_KEY_MATERIAL_FOR_rows.parquet.json").read_bytes()
    assert PropertiesDrivenCryptoFactory(InMemoryKms()).rotate_master_keys(str(tmp_path)) == 1
    assert path.read_bytes() == data
    assert (tmp_path / "_KEY_MATERIAL_FOR_rows.parquet.json").read_bytes() != material
    assert read_table(str(path), factory.decryption_keys(str(path))) == ROWS
    with pytest.raises(ConfigurationError, match="location"):
        read_table(str(path), factory.decryption_keys())
    assert factory.rotate_master_keys(tmp_path) == 1
    assert read_table(path, factory.decryption_keys(path)) == ROWS
    (tmp_path / "_KEY_MATERIAL_FOR_rows.parquet.json").unlink()
    with pytest.raises(KeyNotFoundError, match="_KEY_MATERIAL_FOR_rows"):
        read_table(str(path), factory.decryption_keys(str(path)))


def test_it_works_on_our_kms_clients(aws: AwsServer) -> None:
    import tablecrypt

    factory = PropertiesDrivenCryptoFactory(tablecrypt.load_kms(aws.kms_properties))
    arn = f"arn:aws:kms:{aws.region}:123456789012:{'alias/orders'}"
    data = written(
        factory.encryption_keys({"parquet.encryption.footer.key": "alias/orders", "parquet.encryption.column.keys": f"{arn}:id"})
    )
    assert read_table(data, factory.decryption_keys()) == ROWS


@pytest.mark.parametrize(
    ("properties", "what"),
    [
        ({}, "no key for the footer"),
        ({"parquet.encryption.column.keys": "kc1:id"}, "no key for the footer"),
        ({"parquet.encryption.uniform.key": "kf", "parquet.encryption.footer.key": "kf"}, "alone"),
        ({**BY_COLUMN, "parquet.encryption.column.keys": "kc1"}, "must be"),
        ({**BY_COLUMN, "parquet.encryption.column.keys": "kc1:"}, "must be"),
        ({**BY_COLUMN, "parquet.encryption.column.keys": "kc1:id;kc2:id"}, "twice"),
        ({**BY_COLUMN, "parquet.encryption.column.keys": {"kc1": ["id"]}}, "column.keys is a dict; it must be text"),
        ({**BY_COLUMN, "parquet.encryption.column.keys": None}, "column.keys is None; it must be text"),
        ({**BY_COLUMN, "parquet.encryption.footer.key": b"kf"}, "footer.key is a bytes; it must be text"),
        *(
            (
                {"parquet.encryption.footer.key": "kf", "parquet.encryption.complete.columns": "false", **columns},
                "column_keys names no column, so that none would be encrypted",
            )
            for columns in ({}, {"parquet.encryption.column.keys": ""}, {"parquet.encryption.column.keys": " ; "})
        ),
        ({**BY_COLUMN, "parquet.encryption.double.wrapping": "maybe"}, "true or false"),
        ({**BY_COLUMN, "parquet.encryption.data.key.length.bits": "64"}, "128, 192 or 256"),
        ({**BY_COLUMN, "parquet.encryption.algorithm": "ROT13"}, "ROT13"),
        ({**BY_COLUMN, "parquet.encryption.key.material.store.internally": "false"}, "location"),
    ],
)
def test_unfit_properties_are_refused(properties: dict[str, Any], what: str) -> None:
    with pytest.raises(ConfigurationError, match=what):
        PropertiesDrivenCryptoFactory(InMemoryKms()).encryption_keys(properties)


@pytest.mark.parametrize(
    ("attributes", "said"),
    [
        ({"plaintext_footer": "no"}, "plaintext_footer is a str; it must be True or False"),
        ({"complete_columns": "false"}, "complete_columns is a str; it must be True or False"),
        ({"double_wrapping": 0}, "double_wrapping is an int; it must be True or False"),
        ({"store_internally": None}, "store_internally is None; it must be True or False"),
        ({"column_keys": "total"}, "column_keys is a str; it must be a mapping of master keys to columns"),
        ({"column_keys": {"k": 3}}, "column_keys is an int; it must be a name or a list of names"),
        (
            {"complete_columns": False, "column_keys": {"k": []}},
            "complete_columns is False and column_keys names no column, so that none would be encrypted: name those that are, or leave "
            "complete_columns out",
        ),
        ({"column_keys": {"k": ["id", "total"], "m": ["total"]}}, "column_keys names the column 'total' twice: it has one master key"),
    ],
)
def test_a_configuration_with_an_unfit_attribute_is_refused(attributes: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigurationError, match=f"^{said}$"):
        EncryptionConfiguration("footer", **attributes)


def test_one_name_of_a_column_is_one_column() -> None:
    one: Any = {"k": "total"}
    assert EncryptionConfiguration("footer", one).column_keys == {"k": ("total",)}


def test_a_master_key_that_is_not_there_is_named() -> None:
    with pytest.raises(KeyNotFoundError, match="nobody"):
        PropertiesDrivenCryptoFactory(InMemoryKms()).encryption_keys({"parquet.encryption.uniform.key": "nobody"})


def test_a_dek_wrapped_for_another_kek_is_refused() -> None:
    factory = PropertiesDrivenCryptoFactory(InMemoryKms())
    keys = factory.encryption_keys({"parquet.encryption.uniform.key": "kf"})
    fields = json.loads(keys.footer_key_metadata or b"")
    fields["keyEncryptionKeyID"] = "AAAAAAAAAAAAAAAAAAAAAA=="
    with pytest.raises(AuthenticationError, match="does not open under its KEK"):
        factory.decryption_keys().find_footer_key(json.dumps(fields).encode(), "a file")


def test_no_key_is_shown() -> None:
    factory = PropertiesDrivenCryptoFactory(InMemoryKms())
    keys = factory.encryption_keys(BY_COLUMN)
    assert keys.footer_key is not None
    shown = repr(keys) + repr(factory.__dict__) + repr(factory.decryption_keys())
    assert keys.footer_key.reveal().hex() not in shown and repr(keys.footer_key.reveal())[2:-1] not in shown


@given(st.binary(max_size=200) | st.text(max_size=200).map(str.encode))
def test_bytes_that_are_no_key_material_get_our_error(content: bytes) -> None:
    with pytest.raises(FormatError):
        reference_in(content, "a file")
    with pytest.raises(FormatError):
        KeyMaterial.decode(content, "a file")


@given(mutations(seeds_of("Parquet key material")))
def test_changed_key_material_is_refused_or_read(content: bytes) -> None:
    for read in (reference_in, KeyMaterial.decode):
        try:
            read(content, "a file")
        except FormatError as error:
            assert "a file" in str(error)


WRAPPED = st.binary().map(lambda wrapped: base64.b64encode(wrapped).decode())
FIELDS = {
    **dict.fromkeys(["internalStorage", "isFooterKey", "doubleWrapping"], st.booleans()),
    **dict.fromkeys(["masterKeyID", "kmsInstanceID", "kmsInstanceURL"], st.text()),
    **dict.fromkeys(["wrappedDEK", "keyEncryptionKeyID", "wrappedKEK"], WRAPPED),
}
ANYTHING = st.none() | st.booleans() | st.text() | st.integers() | st.lists(st.text())


@given(st.fixed_dictionaries(FIELDS) | st.fixed_dictionaries({}, optional={name: right | ANYTHING for name, right in FIELDS.items()}))
def test_key_material_of_any_shape_is_read_or_refused(fields: dict[str, Any]) -> None:
    content = json.dumps({"keyMaterialType": "PKMT1", **fields}).encode()
    try:
        material = KeyMaterial.decode(content, "a file")
    except FormatError:
        return
    assert KeyMaterial.decode(material.encode(internal=True), "again") == material


@given(
    st.builds(KeyMaterial, st.booleans(), st.text(), st.binary(), st.just(b"id"), st.binary())
    | st.builds(KeyMaterial, st.booleans(), st.text(), st.binary())
)
def test_key_material_survives_its_json(material: KeyMaterial) -> None:
    assert KeyMaterial.decode(material.encode(internal=False), "it") == material
    assert reference_in(material.encode(internal=True).encode(), "it") is None
    assert reference_in(reference_to("columnKey3").encode(), "it") == "columnKey3"


def test_damaged_files_of_key_material_are_named(tmp_path: Path) -> None:
    store = ExternalKeyMaterial(str(tmp_path / "rows.parquet"))
    for content in (b"{", b"[]", b"[" * 100_000, b'{"footerKey": 3}', b'{"footerKey": "{}"}'):
        Path(store.path).write_bytes(content)
        with pytest.raises(FormatError, match="_KEY_MATERIAL_FOR_rows"):
            store.load()
