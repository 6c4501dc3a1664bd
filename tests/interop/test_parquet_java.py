"""parquet-java reads what we write, in every mode and by either way to the keys, and we read what it writes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tablecrypt.errors import PlaintextRefusedError, TamperedFileError
from tablecrypt.parquet import FileKeys, PropertiesDrivenCryptoFactory, inspect, read_table, verify, write_table
from tests.support.modular_files import MODES, PARTLY_PLAIN, Mode
from tests.support.parquet_java import InMemoryKms, ParquetJava, PeerError

pytestmark = pytest.mark.java

ROWS = pa.table(
    {
        "id": pa.array(range(100), pa.int64()),
        "name": pa.array([None if each % 5 == 0 else f"name {each % 7}" for each in range(100)], pa.string()),
        "ratio": pa.array([each / 3 for each in range(100)], pa.float64()),
    },
    schema=pa.schema([pa.field("id", pa.int64(), nullable=False), ("name", pa.string()), pa.field("ratio", pa.float64(), nullable=False)]),
)
EXPECTED: list[dict[str, Any]] = ROWS.to_pylist()
BY_PROPERTIES = {"parquet.encryption.footer.key": "kf", "parquet.encryption.column.keys": "kc1:id;kc2:name"}
PROPERTY_MODES = {
    "defaults": {},
    "single wrapping": {"parquet.encryption.double.wrapping": "false"},
    "ctr": {"parquet.encryption.algorithm": "AES_GCM_CTR_V1"},
    "plaintext footer": {"parquet.encryption.plaintext.footer": "true"},
    "long keys": {"parquet.encryption.data.key.length.bits": "256", "parquet.encryption.kek.length.bits": "256"},
    "keys beside the file": {"parquet.encryption.key.material.store.internally": "false"},
}
every_property_mode = pytest.mark.parametrize("properties", PROPERTY_MODES.values(), ids=PROPERTY_MODES.keys())


@pytest.fixture(scope="module")
def peer(java_runtime: None) -> Iterator[ParquetJava]:
    with ParquetJava() as peer:
        yield peer


@pytest.mark.parametrize("mode", [*MODES, PARTLY_PLAIN], ids=str)
def test_it_reads_every_mode_under_given_keys(peer: ParquetJava, tmp_path: Path, mode: Mode) -> None:
    path = tmp_path / "ours.parquet"
    write_table(ROWS, str(path), mode.keys, row_group_size=40, write_page_index=True)
    assert peer.open(path, mode.keys, {}) == EXPECTED
    other = FileKeys(bytes(16), mode.column_keys, mode.aad_prefix, algorithm=mode.algorithm)
    with pytest.raises(PeerError):
        peer.open(path, other, {})


def test_it_skips_by_our_encrypted_bloom_filters_and_indexes_without_complaint(peer: ParquetJava, tmp_path: Path) -> None:
    path = tmp_path / "ours.parquet"
    keys = Mode(column_keys={"id": b"id-key-of-24-bytes-long."}).keys
    write_table(ROWS, str(path), keys, write_page_index=True, bloom_filter_options={"id": {"ndv": 100, "fpp": 0.01}})
    assert peer.open(path, keys, {}) == EXPECTED


@every_property_mode
def test_it_finds_our_wrapped_keys(peer: ParquetJava, tmp_path: Path, properties: dict[str, str]) -> None:
    path = tmp_path / "ours.parquet"
    factory = PropertiesDrivenCryptoFactory(InMemoryKms())
    keys = factory.encryption_keys({**BY_PROPERTIES, **properties}, ROWS.schema, str(path))
    write_table(ROWS, str(path), keys)
    assert peer.read(path, properties) == EXPECTED


@every_property_mode
def test_we_find_its_wrapped_keys(peer: ParquetJava, tmp_path: Path, properties: dict[str, str]) -> None:
    path = tmp_path / "theirs.parquet"
    peer.write(path, {**BY_PROPERTIES, **properties})
    factory = PropertiesDrivenCryptoFactory(InMemoryKms())
    algorithm = properties.get("parquet.encryption.algorithm", "AES_GCM_V1")
    if algorithm != "AES_GCM_V1":
        with pytest.raises(TamperedFileError, match="ask for it"):
            read_table(str(path), factory.decryption_keys(str(path)))
    with pytest.raises(PlaintextRefusedError, match="column ratio is in the clear"):
        read_table(str(path), factory.decryption_keys(str(path), algorithm=algorithm))
    keys = factory.decryption_keys(str(path), algorithm=algorithm, plaintext_columns=["ratio"])
    assert read_table(str(path), keys).to_pylist() == EXPECTED
    assert verify(str(path), keys).columns_in_the_clear == ("ratio",)


def test_it_leaves_unnamed_columns_plain_and_we_do_not(peer: ParquetJava, tmp_path: Path) -> None:
    theirs, ours = tmp_path / "theirs.parquet", tmp_path / "ours.parquet"
    peer.write(theirs, BY_PROPERTIES)
    factory = PropertiesDrivenCryptoFactory(InMemoryKms())
    write_table(ROWS, str(ours), factory.encryption_keys(BY_PROPERTIES))
    assert verify(str(theirs), factory.decryption_keys(plaintext_columns=["ratio"])).columns_in_the_clear == ("ratio",)
    assert verify(str(ours), factory.decryption_keys()).columns_in_the_clear == ()
    assert peer.read(ours, {}) == EXPECTED


def test_a_uniform_key_encrypts_all_columns_on_both_sides(peer: ParquetJava, tmp_path: Path) -> None:
    theirs, ours = tmp_path / "theirs.parquet", tmp_path / "ours.parquet"
    uniform = {"parquet.encryption.uniform.key": "kf"}
    peer.write(theirs, uniform)
    factory = PropertiesDrivenCryptoFactory(InMemoryKms())
    write_table(ROWS, str(ours), factory.encryption_keys(uniform))
    for path in (theirs, ours):
        assert read_table(str(path), factory.decryption_keys()).to_pylist() == EXPECTED
        assert verify(str(path), factory.decryption_keys()).columns_in_the_clear == ()
    assert peer.read(ours, {}) == EXPECTED


def test_its_flipped_bytes_are_refused(peer: ParquetJava, tmp_path: Path) -> None:
    path = tmp_path / "theirs.parquet"
    peer.write(path, BY_PROPERTIES)
    factory = PropertiesDrivenCryptoFactory(InMemoryKms())
    content = bytearray(path.read_bytes())
    content[30] ^= 1
    path.write_bytes(content)
    with pytest.raises(TamperedFileError):
        read_table(str(path), factory.decryption_keys(), columns=["id"])
    assert inspect(str(path), factory.decryption_keys()).row_groups
