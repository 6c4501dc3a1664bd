"""The encrypted files of apache/parquet-testing: all 13 are read and verified, and none under a wrong key."""

from __future__ import annotations

from pathlib import Path

import pytest

from tablecrypt.crypto.secret import Secret
from tablecrypt.errors import KeyMismatchError, KeyNotFoundError
from tablecrypt.parquet import FileKeys, PropertiesDrivenCryptoFactory, read_table, verify
from tests.support.parquet_java import InMemoryKms

FOLDER = Path(__file__).parents[1] / "vectors" / "parquet_testing"
FOOTER_KEY = b"0123456789012345"
COLUMN_KEYS = {"double_field": b"1234567890123450", "float_field": b"1234567890123451"}
WITH_A_PREFIX = ("encrypt_columns_and_footer_aad", "encrypt_columns_and_footer_disable_aad_storage")
EXTERNAL = "external_key_material_java"


def digits(last: int) -> bytes:
    """The 32-byte keys of the columns in aes256/: bytes 1 to 9 and 0, over and over, then the number of the column."""
    return (b"1234567890" * 3 + b"1")[:31] + str(last).encode()


LONG_FOOTER_KEY = (b"0123456789" * 4)[:32]
LONG_COLUMNS = ("double_field", "float_field", "boolean_field", "int32_field", "ba_field", "flba_field", "int64_field", "int96_field")
LONG_COLUMN_KEYS = {name: digits(number) for number, name in enumerate(LONG_COLUMNS, start=2)}


def keys_of(path: Path) -> FileKeys:
    name = path.name.partition(".")[0]
    if name == EXTERNAL:
        return PropertiesDrivenCryptoFactory(InMemoryKms()).decryption_keys(str(path))
    prefix = b"tester" if name in WITH_A_PREFIX else b""
    if path.parent.name == "aes256":
        return FileKeys(LONG_FOOTER_KEY, LONG_COLUMN_KEYS, aad_prefix=b"tester" if "disable" in name else b"", strict=False)
    # Most of them leave columns in the clear, one stores its AAD prefix and one is of AES_GCM_CTR_V1.
    return FileKeys(FOOTER_KEY, COLUMN_KEYS, aad_prefix=prefix, strict=False)


FILES = sorted(FOLDER.rglob("*.parquet.encrypted"))


def name_of(path: Path) -> str:
    return str(path.relative_to(FOLDER)).removesuffix(".parquet.encrypted")


every_file = pytest.mark.parametrize("path", FILES, ids=name_of)


def test_there_are_thirteen() -> None:
    assert len(FILES) == 13


@every_file
def test_it_is_read_and_every_byte_is_accounted_for(path: Path) -> None:
    table = read_table(str(path), keys_of(path))
    assert table.num_rows > 0
    if path.parent == FOLDER and "bloom" not in path.name and EXTERNAL not in path.name:
        floats, doubles = table["float_field"].to_pylist(), table["double_field"].to_pylist()
        assert floats == pytest.approx([number * 1.1 for number in range(50)], rel=1e-6)
        assert doubles == pytest.approx([number * 1.1111111 for number in range(50)])
    verification = verify(str(path), keys_of(path))
    assert verification.length == path.stat().st_size


@every_file
def test_a_wrong_footer_key_is_refused(path: Path) -> None:
    long = path.parent.name == "aes256"
    wrong = FileKeys(
        bytes(32 if long else 16), LONG_COLUMN_KEYS if long else COLUMN_KEYS, aad_prefix=keys_of(path).aad_prefix, strict=False
    )
    with pytest.raises(KeyMismatchError):
        read_table(str(path), wrong)


@pytest.mark.parametrize("path", [path for path in FILES if "uniform" not in path.name and EXTERNAL not in path.name], ids=name_of)
def test_a_wrong_or_missing_column_key_is_refused(path: Path) -> None:
    right = keys_of(path)
    assert right.footer_key is not None
    wrong: dict[str, Secret | bytes] = {**right.column_keys, "float_field": bytes(len(right.footer_key))}
    with pytest.raises(KeyMismatchError):
        read_table(str(path), FileKeys(right.footer_key, wrong, aad_prefix=right.aad_prefix, strict=False), columns=["float_field"])
    without = {name: key for name, key in right.column_keys.items() if name != "float_field"}
    with pytest.raises(KeyNotFoundError):
        read_table(str(path), FileKeys(right.footer_key, without, aad_prefix=right.aad_prefix, strict=False), columns=["float_field"])


def test_a_missing_prefix_is_refused() -> None:
    path = FOLDER / "encrypt_columns_and_footer_disable_aad_storage.parquet.encrypted"
    with pytest.raises(Exception, match="AAD prefix"):
        read_table(str(path), FileKeys(FOOTER_KEY, COLUMN_KEYS))
