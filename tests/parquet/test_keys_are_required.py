"""None never stands for a file in the clear: without keys nothing is written, and the target stays as it was."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tablecrypt import orc, parquet
from tablecrypt.errors import ConfigurationError
from tests.support.modular_files import FOOTER_KEY, encrypted, plain_file, sample_table

PLAINTEXT = plain_file(sample_table())
ENCRYPTED = encrypted(PLAINTEXT, parquet.FileKeys(FOOTER_KEY))

WRITERS: dict[str, Callable[[Any, Any], object]] = {
    "write_table": lambda sink, keys: parquet.write_table(sample_table(), sink, keys),
    "EncryptedParquetWriter": lambda sink, keys: parquet.EncryptedParquetWriter(sink, sample_table().schema, keys),
    "encrypt": lambda sink, keys: parquet.encrypt(PLAINTEXT, sink, keys),
    "reencrypt": lambda sink, keys: parquet.reencrypt(ENCRYPTED, sink, parquet.FileKeys(FOOTER_KEY), keys),
    "reencrypt from": lambda sink, keys: parquet.reencrypt(ENCRYPTED, sink, keys, parquet.FileKeys(FOOTER_KEY)),
    "decrypt": lambda sink, keys: parquet.decrypt(ENCRYPTED, sink, keys),
}
READERS: dict[str, Callable[[Any], object]] = {
    "read_table": lambda keys: parquet.read_table(ENCRYPTED, keys),
    "read_schema": lambda keys: parquet.read_schema(ENCRYPTED, keys),
    "dataset": lambda keys: parquet.dataset(ENCRYPTED, keys),
    "verify": lambda keys: parquet.verify(ENCRYPTED, keys),
}


@pytest.mark.parametrize("keys", [None, FOOTER_KEY, {"footer_key": FOOTER_KEY}], ids=["None", "bytes", "dict"])
@pytest.mark.parametrize("write", WRITERS.values(), ids=WRITERS.keys())
def test_nothing_is_written_without_keys(tmp_path: Path, write: Callable[[Any, Any], object], keys: object) -> None:
    target = tmp_path / "part-0.parquet"
    with pytest.raises(ConfigurationError, match=r"give parquet\.FileKeys"):
        write(str(target), keys)
    assert list(tmp_path.iterdir()) == []
    target.write_bytes(b"as it was")
    with pytest.raises(ConfigurationError, match=r"give parquet\.FileKeys"):
        write(str(target), keys)
    assert target.read_bytes() == b"as it was"


@pytest.mark.parametrize("read", READERS.values(), ids=READERS.keys())
def test_nothing_is_read_without_keys(read: Callable[[Any], object]) -> None:
    with pytest.raises(ConfigurationError, match=r"keys=None: give parquet\.FileKeys"):
        read(None)


@pytest.mark.parametrize("encrypt", [None, {}, {"k": []}, {"k": ["idd"]}, ["id"]], ids=["None", "empty", "no column", "misspelt", "list"])
def test_no_orc_file_is_written_without_a_column_to_encrypt(tmp_path: Path, encrypt: Any) -> None:
    keys = orc.LocalKeys({"k": [b"k" * 16]})
    with pytest.raises(ConfigurationError):
        orc.write_table(pa.table({"id": [1]}), str(tmp_path / "part-0.orc"), encrypt, keys)
    assert list(tmp_path.iterdir()) == []


def test_no_orc_file_is_written_without_keys(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="keys=None"):
        orc.write_table(pa.table({"id": [1]}), str(tmp_path / "part-0.orc"), {"k": ["id"]}, None)  # type: ignore[arg-type]
    assert list(tmp_path.iterdir()) == []
