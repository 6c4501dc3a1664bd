"""Reading encrypted ORC files that Java wrote: rows, rights, masks, projection, merged files."""

from __future__ import annotations

import io
from typing import Any, Final

import pyarrow as pa
import pytest

from tablecrypt import orc
from tablecrypt.crypto.secret import Secret
from tablecrypt.errors import (
    ConfigurationError,
    FormatError,
    KeyMismatchError,
    KeyNotFoundError,
    KmsAccessDeniedError,
    KmsCredentialsError,
    KmsError,
    KmsUnavailableError,
    PlaintextRefusedError,
)
from tablecrypt.orc.column_keys import LocalColumnKeys
from tablecrypt.orc.key_providers import MasterKeyVersion
from tablecrypt.orc.messages import Encryption, StreamKind, Variant
from tablecrypt.orc.protobuf import Message, blob_field, encode, integer_field, packed_field
from tablecrypt.orc.reader import open_view
from tablecrypt.orc.schema import MAX_DEPTH, OrcColumn, Schema
from tablecrypt.orc.source import FileSource
from tablecrypt.orc.stream_cipher import crypt_stream
from tablecrypt.orc.tail import read_tail
from tests.support.observed_calls import observed
from tests.support.orc_files import VECTOR_NAMES, encrypted, local_keys, plain, same_rows, sample_rows, vector, vector_keys, vector_rows

pytestmark = pytest.mark.slow

ONE_KEY = Secret(bytes(16))
PII = {"pii": ["text", "home"], "pii256": ["born"]}


class CountingFile(io.BytesIO):
    """Counts the bytes that are read."""

    fetched = 0

    def read(self, size: int | None = -1) -> bytes:
        data = super().read(size)
        self.fetched += len(data)
        return data


class CountingKeys(orc.LocalKeys):
    """Counts what is asked of it, and may refuse or fail."""

    def __init__(self, keys: Any, error: Exception | None = None) -> None:
        super().__init__(keys)
        self.asked: list[str] = []
        self._error = error

    def decrypt_local_key(self, master: MasterKeyVersion, encrypted: bytes) -> Secret:
        self.asked.append(str(master))
        if self._error is not None:
            raise self._error
        return super().decrypt_local_key(master, encrypted)


@pytest.mark.parametrize("name", VECTOR_NAMES)
def test_what_java_wrote_reads_as_java_reads_it(name: str) -> None:
    assert orc.read_table(vector(name), vector_keys()).to_pylist() == vector_rows(name).to_pylist()


@pytest.mark.parametrize("name", VECTOR_NAMES)
def test_masks_that_java_wrote_are_read_when_asked_for(name: str) -> None:
    assert orc.read_table(vector(name), masked=True).to_pylist() == vector_rows(name, "masked").to_pylist()


@pytest.mark.parametrize(("name", "column", "key"), [("flat_zlib", "ssn", "pii@0"), ("nested_zstd", "home", "pii256@0")])
def test_without_rights_the_error_names_file_column_and_key(name: str, column: str, key: str) -> None:
    for keys in (None, local_keys("other")):
        with pytest.raises(KeyNotFoundError) as refused:
            orc.read_table(vector(name), keys)
        assert str(vector(name)) in str(refused.value)
        assert repr(column) in str(refused.value)
        if keys is None:
            assert key in str(refused.value)


def test_a_column_that_is_not_encrypted_needs_no_key_and_asks_for_none() -> None:
    keys = CountingKeys({})
    assert orc.read_table(vector("flat_zlib"), keys, columns=["id", "name"]).to_pydict() == {
        name: vector_rows("flat_zlib")[name].to_pylist() for name in ("id", "name")
    }
    assert keys.asked == []


def test_a_key_is_asked_once_for_each_column_and_file() -> None:
    data = encrypted(sample_rows(300), PII, stripe_size=5000)
    keys = CountingKeys({"pii": [bytes(range(16)), bytes(range(1, 17))], "pii256": [bytes(range(32))]})
    orc.read_table(data, keys)
    assert sorted(keys.asked) == ["pii256@0", "pii@1", "pii@1"]


def test_with_the_keys_of_some_columns_the_others_are_masks() -> None:
    rows = sample_rows()
    read = orc.read_table(encrypted(rows, PII), local_keys("pii"), masked=True)
    assert read["text"].to_pylist() == rows["text"].to_pylist()
    assert read["home"].to_pylist() == rows["home"].to_pylist()
    assert read["born"].null_count == len(rows)
    assert read["public"].to_pylist() == rows["public"].to_pylist()


def test_no_column_has_as_many_rows_as_all() -> None:
    data = encrypted(sample_rows(), PII, stripe_size=1000)
    assert orc.read_table(data, columns=[]).num_rows == len(sample_rows())
    stripes = [batch.num_rows for batch in orc.read_batches(data, columns=["id"])]
    assert len(stripes) > 1
    assert [batch.num_rows for batch in orc.read_batches(data, columns=[])] == stripes


@pytest.mark.parametrize("error", [KeyNotFoundError("gone"), KmsAccessDeniedError("denied")])
def test_a_refusal_gives_masks_only_when_they_are_asked_for(error: Exception) -> None:
    data = encrypted(sample_rows(), PII)
    with pytest.raises(type(error), match="born"):
        orc.read_table(data, CountingKeys({}, error))
    assert orc.read_table(data, CountingKeys({}, error), masked=True)["text"].null_count == 100


@pytest.mark.parametrize("failure", [KmsUnavailableError("down"), KmsCredentialsError("expired")], ids=lambda failure: failure.message)
def test_an_outage_is_never_taken_for_a_missing_right(failure: KmsError) -> None:
    data = encrypted(sample_rows(), PII)
    for masked in (False, True):
        with pytest.raises(type(failure)):
            orc.read_table(data, CountingKeys({}, failure), masked=masked)


def test_a_wrong_key_is_told_from_a_missing_one() -> None:
    data = encrypted(sample_rows(), {"pii": ["text"]}, orc.LocalKeys({"pii": [b"k" * 16]}))
    with pytest.raises(KeyMismatchError, match=r"'text'.*the provider's key does not fit, or the file was changed"):
        orc.read_table(data, orc.LocalKeys({"pii": [b"\1" * 16]}), masked=True)


@pytest.mark.parametrize(
    ("data", "looks"),
    [
        (b"", "is empty"),
        (b"PAR1" + bytes(40) + b"PAR1", "begins like a Parquet file"),
        (b"PARE" + bytes(40) + b"PARE", "begins like an encrypted Parquet file"),
        (b"Obj\x01" + bytes(40), "begins like an Avro file"),
        (b"id,name\n1,Ada\n", "begins with b'id,name"),
    ],
    ids=["empty", "Parquet", "encrypted Parquet", "Avro", "text"],
)
def test_a_file_of_another_kind_is_said_to_be_so(data: bytes, looks: str) -> None:
    for read in (orc.read_table, orc.verify):
        with pytest.raises(FormatError) as refused:
            read(data, local_keys())
        assert f"is not an ORC file: it {looks}" in str(refused.value)


def test_a_master_key_of_another_length_is_refused() -> None:
    data = encrypted(sample_rows(), {"pii": ["text"]}, orc.LocalKeys({"pii": [b"k" * 16]}))
    with pytest.raises(FormatError, match="128-bit"):
        orc.read_table(data, orc.LocalKeys({"pii": [b"k" * 32]}))


@pytest.mark.parametrize("columns", [["home.zip"], ["home.geo"], ["home.geo.lat", "public"], ["tags", "id"], []])
def test_parts_of_encrypted_columns_are_read(columns: list[str]) -> None:
    rows = sample_rows()
    read = orc.read_table(encrypted(rows, {"pii": ["home", "tags", "attrs._value"]}), local_keys(), columns=columns)
    for row, whole in zip(read.to_pylist(), rows.to_pylist(), strict=True) if columns else []:
        for column in columns:
            first, *path = column.split(".")
            got, wanted = row[first], whole[first]
            for part in path:
                got, wanted = got and got[part], wanted and wanted[part]
            assert got == wanted
    assert set(read.column_names) == {column.split(".")[0] for column in columns}


@pytest.mark.parametrize("name", ["nope", "home.nope", "tags._elem", "attrs._value", "id.x", ""])
def test_an_unknown_column_is_refused_by_name(name: str) -> None:
    with pytest.raises(ConfigurationError, match=repr(name)):
        orc.read_table(encrypted(sample_rows(), {"pii": ["home"]}), local_keys(), columns=[name])


def test_a_projection_fetches_what_it_needs() -> None:
    wide = pa.table({f"c{number}": [f"{number} {row * 7919 % 100_003}" for row in range(5000)] for number in range(50)})
    data = encrypted(wide, {"pii": wide.column_names}, stripe_size=500_000, compression="uncompressed")
    file = CountingFile(data)
    assert orc.read_table(file, local_keys(), columns=["c7"])["c7"].to_pylist() == wide["c7"].to_pylist()
    assert file.fetched < len(data) / 5


def test_stripes_are_read_one_by_one() -> None:
    rows = sample_rows(300)
    data = encrypted(rows, PII, stripe_size=10_000, compression="uncompressed")
    file = CountingFile(data)
    batches = orc.read_batches(file, local_keys(), columns=["id", "text", "tags"])
    first = next(batches)
    assert file.fetched < len(data)
    wanted = rows.select(["id", "text", "tags"])
    assert same_rows(pa.Table.from_batches([first, *batches]), wanted)
    with pytest.raises(KeyNotFoundError, match="text"):
        next(orc.read_batches(data, columns=["text"]))
    assert list(orc.read_batches(encrypted(sample_rows(0), PII), local_keys())) == []


def test_every_kind_of_source_is_read(tmp_path: Any) -> None:
    rows = sample_rows()
    data = encrypted(rows, PII)
    path = tmp_path / "rows.orc"
    path.write_bytes(data)
    with path.open("rb") as opened, pa.OSFile(str(path)) as arrow_file:
        for source in (path, str(path), data, memoryview(data), pa.py_buffer(data), io.BytesIO(data), opened, arrow_file):
            assert same_rows(orc.read_table(source, local_keys()), rows)
        assert not opened.closed
        assert not arrow_file.closed


def test_a_plain_orc_file_is_refused() -> None:
    with pytest.raises(PlaintextRefusedError, match="pyarrow"):
        orc.read_table(plain(sample_rows()), local_keys())


class BrokenStore(io.BytesIO):
    """Fails once `good` reads are done."""

    def __init__(self, data: bytes, good: int) -> None:
        super().__init__(data)
        self._good = good

    def read(self, size: int | None = -1) -> bytes:
        self._good -= 1
        if self._good < 0:
            raise PermissionError(13, "Access Denied")
        return super().read(size)


@pytest.mark.parametrize("good", range(6))
def test_an_error_of_the_store_passes_through(good: int) -> None:
    data = encrypted(sample_rows(3000), PII, stripe_size=100_000, compression="uncompressed")
    with pytest.raises(PermissionError, match="Access Denied"):
        orc.read_table(BrokenStore(data, good), local_keys())


def file_of_keys(children: dict[int, list[int]], count: int, roots: list[int]) -> bytes:
    """An ORC file without rows: `count` columns, those in `children` structs, and a variant of each of `roots`, under keys k0, k1 …"""
    types, variants = [], []
    for column in range(count):
        below = children.get(column, [])
        names = [blob_field(3, f"c{child}".encode()) for child in below]
        types.append(encode([integer_field(1, 12 if below else 4), packed_field(2, below), *names]))
    schema = Schema.parse([Message.parse(one, "a type") for one in types], "the types")
    for number, root in enumerate(roots):
        statistics = encode([blob_field(1, b"")] * len(schema[root].subtree))
        sealed = crypt_stream(ONE_KEY, root, StreamKind.FILE_STATISTICS, 1, statistics)
        variants.append(Variant(root, number, b"k", (), sealed))
    masters = tuple(MasterKeyVersion(f"k{number}", 0, 16) for number in range(len(roots)))
    encryption = Encryption((), masters, tuple(variants), 0).encode()
    footer = encode([integer_field(6, 0), *(blob_field(4, one) for one in types), blob_field(10, encryption)])
    postscript = encode([integer_field(1, len(footer)), integer_field(3, 262_144)]) + b"\x82\xf4\x03\x03ORC"
    return b"ORC" + footer + postscript + bytes([len(postscript)])


class SomeKeys(orc.LocalKeys):
    """Gives the one local key for master keys of some names."""

    def __init__(self, names: list[str]) -> None:
        super().__init__({})
        self._names = names

    def decrypt_local_key(self, master: MasterKeyVersion, encrypted: bytes) -> Secret:
        if master.name in self._names:
            return ONE_KEY
        raise KeyNotFoundError(master.name)


DEEP: Final = {column: [column + 1] for column in range(MAX_DEPTH - 2)} | {MAX_DEPTH - 2: list(range(MAX_DEPTH - 1, 400))}


@pytest.mark.parametrize("children", [{0: list(range(1, 400))}, DEEP], ids=["flat", "deep"])
@pytest.mark.parametrize("roots", [list(range(400)), [0] * 400], ids=["of each column", "of the root"])
@pytest.mark.parametrize("keys", [None, SomeKeys([])], ids=["without keys", "without rights"])
def test_no_column_is_compared_with_every_column_or_variant(children: dict[int, list[int]], roots: list[int], keys: Any) -> None:
    source = FileSource(file_of_keys(children, 400, roots))
    tail, looked_at = read_tail(source), 0

    def count(_: object) -> None:
        nonlocal looked_at
        looked_at += 1

    with observed(vars(OrcColumn)["subtree"].fget, count):
        open_view(tail, source, keys, None, masked=True)
    assert looked_at <= 5 * 400


@pytest.mark.parametrize("roots", [[1, 2, 3, 0], [3, 2, 1], [2, 0, 2, 3, 1], [0, 1, 3, 3]])
@pytest.mark.parametrize("opened", [[], ["k0"], ["k1", "k2"], ["k2"], ["k3", "k1"]])
def test_a_column_is_read_from_the_first_variant_at_or_above_it_that_opens(roots: list[int], opened: list[str]) -> None:
    tail = read_tail(FileSource(file_of_keys({0: [1], 1: [2], 2: [3, 4]}, 5, roots)))
    keys = LocalColumnKeys(tail, SomeKeys(opened))
    for column in (3, 4, 0, 1, 2):
        holding = [number for number, root in enumerate(roots) if column in tail.schema[root].subtree]
        granted = next((number for number in holding if f"k{number}" in opened), None)
        denied = f"k{holding[0]}" if holding and granted is None else None
        number, refusal = keys.choose(column)
        assert (number, str(refusal) if refusal else None) == (granted, denied)
