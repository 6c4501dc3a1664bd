"""StandardKeyMetadata: one string of bytes for one record, and a sentence for anything else."""

from __future__ import annotations

import io

import fastavro
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tablecrypt.crypto.key_metadata import StandardKeyMetadata
from tablecrypt.crypto.secret import Secret
from tablecrypt.errors import ConfigurationError, FormatError
from tablecrypt.testing.strategies import key_metadata, keys
from tests.support.mutations import arbitrary
from tests.support.parsers import seeds_of

AVRO_SCHEMA = {
    "type": "record",
    "name": "key_metadata",
    "fields": [
        {"name": "encryption_key", "type": "bytes"},
        {"name": "aad_prefix", "type": ["null", "bytes"]},
        {"name": "file_length", "type": ["null", "long"]},
    ],
}


def avro(key: bytes, prefix: bytes | None, length: int | None) -> bytes:
    """What another Avro implementation writes."""
    out = io.BytesIO()
    fastavro.schemaless_writer(out, AVRO_SCHEMA, {"encryption_key": key, "aad_prefix": prefix, "file_length": length})
    return b"\x01" + out.getvalue()


@given(key_metadata())
def test_what_was_encoded_decodes_to_the_same_record(record: StandardKeyMetadata) -> None:
    assert StandardKeyMetadata.decode(record.encode()) == record


@given(key_metadata())
def test_another_avro_implementation_writes_the_same_bytes(record: StandardKeyMetadata) -> None:
    assert record.encode() == avro(record.encryption_key.reveal(), record.aad_prefix or None, record.file_length)


def test_an_empty_prefix_and_a_null_one_are_the_same() -> None:
    assert StandardKeyMetadata.decode(avro(bytes(16), b"", None)) == StandardKeyMetadata.decode(avro(bytes(16), None, None))


@given(key_metadata(), st.data())
def test_a_record_cut_anywhere_is_refused(record: StandardKeyMetadata, data: st.DataObject) -> None:
    encoded = record.encode()
    with pytest.raises(FormatError):
        StandardKeyMetadata.decode(encoded[: data.draw(st.integers(0, len(encoded) - 1))])


@given(key_metadata(), st.binary(min_size=1, max_size=9))
def test_bytes_after_the_record_are_refused(record: StandardKeyMetadata, rest: bytes) -> None:
    with pytest.raises(FormatError, match="do not belong"):
        StandardKeyMetadata.decode(record.encode() + rest)


@given(key_metadata(), st.integers(0, 255).filter(lambda version: version != 1))
def test_an_unknown_version_is_refused_and_named(record: StandardKeyMetadata, version: int) -> None:
    with pytest.raises(FormatError, match=f"version {version}"):
        StandardKeyMetadata.decode(bytes([version]) + record.encode()[1:])


@given(arbitrary(seeds_of("key metadata")))
def test_arbitrary_bytes_are_a_record_or_a_format_error(data: bytes) -> None:
    check_canonical(b"\x01" + data)
    check_canonical(data)


@given(keys(), st.binary(max_size=40))
def test_a_key_followed_by_arbitrary_bytes_is_a_record_or_a_format_error(key: bytes, data: bytes) -> None:
    check_canonical(b"\x01" + bytes([len(key) * 2]) + key + data)


def check_canonical(data: bytes) -> None:
    try:
        record = StandardKeyMetadata.decode(data)
    except FormatError:
        return
    assert record.encode() == data or not record.aad_prefix


@pytest.mark.parametrize("length", [0, 1, 15, 17, 20, 31, 33, 64])
def test_a_key_length_that_aes_does_not_have_is_refused(length: int) -> None:
    with pytest.raises(FormatError, match=f"key of {length} bytes"):
        StandardKeyMetadata.decode(avro(bytes(length), None, None))
    with pytest.raises(ConfigurationError):
        StandardKeyMetadata(Secret(bytes(length)), b"")
    with pytest.raises(ConfigurationError):
        StandardKeyMetadata.generate(length, bytes)


def test_a_negative_file_length_is_refused() -> None:
    with pytest.raises(FormatError, match="-1 bytes"):
        StandardKeyMetadata.decode(avro(bytes(16), None, -1))
    with pytest.raises(ConfigurationError):
        StandardKeyMetadata(Secret(bytes(16)), b"", -1)


@pytest.mark.parametrize(
    "number",
    [b"\x80" * 10 + b"\x01", b"\xff" * 9 + b"\x7f", b"\x80" * 9 + b"\x02", b"\xff" * 9 + b"\x03", b"\x80\x00", b"\x82\x80\x00"],
    ids=["eleven bytes", "more than 64 bits", "2^64", "2^65 - 1", "overlong zero", "overlong one"],
)
def test_a_number_that_is_not_one_avro_long_is_refused(number: bytes) -> None:
    with pytest.raises(FormatError, match=r"64 bits|longer than it needs"):
        StandardKeyMetadata.decode(b"\x01\x20" + bytes(16) + b"\x00" + b"\x02" + number)


def test_the_longest_file_that_a_long_can_say_is_taken() -> None:
    record = StandardKeyMetadata(Secret(bytes(16)), b"", 2**63 - 1)
    assert StandardKeyMetadata.decode(record.encode()).file_length == 2**63 - 1
    with pytest.raises(ConfigurationError, match=str(2**63)):
        StandardKeyMetadata(Secret(bytes(16)), b"", 2**63)


def test_an_unknown_union_branch_is_refused() -> None:
    with pytest.raises(FormatError, match="branch 2"):
        StandardKeyMetadata.decode(b"\x01\x20" + bytes(16) + b"\x04")


@pytest.mark.parametrize("key_length", [16, 24, 32])
def test_generated_metadata_draws_key_and_prefix_from_the_given_randomness(key_length: int) -> None:
    drawn: list[int] = []

    def random(length: int) -> bytes:
        drawn.append(length)
        return bytes([len(drawn)]) * length

    record = StandardKeyMetadata.generate(key_length, random)
    assert drawn == [key_length, 16]
    assert record.encryption_key == Secret(b"\x01" * key_length)
    assert record.aad_prefix == b"\x02" * 16
    assert record.file_length is None


def test_setting_the_file_length_changes_nothing_else() -> None:
    record = StandardKeyMetadata(Secret(bytes(16)), b"prefix")
    assert record.with_file_length(99) == StandardKeyMetadata(Secret(bytes(16)), b"prefix", 99)
    assert record.file_length is None
