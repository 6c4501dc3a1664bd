"""What an inspection lists, with all keys, with some and with none."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tablecrypt.parquet import FileInspection, FileKeys, inspect
from tests.support.modular_files import (
    AAD_PREFIX,
    FOOTER_KEY,
    ID_KEY,
    MODES,
    NAME_KEY,
    PARTLY_PLAIN,
    Mode,
    encrypted,
    every_module,
    plain_file,
    sample_table,
)

TABLE = sample_table()
PLAINTEXT = plain_file(TABLE, **every_module(data_page_size=50))

every_mode = pytest.mark.parametrize("mode", [*MODES, PARTLY_PLAIN], ids=str)


def modules_by_key(file: FileInspection) -> dict[str | None, set[str]]:
    found: dict[str | None, set[str]] = {}
    for module in file.modules():
        found.setdefault(module.key, set()).add(module.type)
    return found


@every_mode
def test_modules_fill_the_file_between_magic_and_footer(mode: Mode) -> None:
    file = inspect(encrypted(PLAINTEXT, mode.keys), mode.keys)
    placed = sorted((module.offset, module.size) for module in file.modules() if module.offset is not None)
    at = 4
    for offset, size in placed[:-1]:
        assert offset == at
        at += size
    assert file.length - at < 40 + placed[-1][1]


@every_mode
def test_every_module_is_listed_with_its_key_and_cipher(mode: Mode) -> None:
    file = inspect(encrypted(PLAINTEXT, mode.keys), mode.keys)
    assert (file.algorithm, file.footer) == (mode.algorithm, "signed" if mode.plaintext_footer else "encrypted")
    assert (file.aad_prefix, file.needs_aad_prefix) == (None, True)
    for group in file.row_groups or ():
        for chunk in group.chunks:
            top = chunk.path.split(".")[0]
            expected = None if top in mode.plaintext_columns else chunk.path if top in mode.column_keys else "footer"
            assert {module.key for module in chunk.modules} == {chunk.key} == {expected}
            assert not chunk.locked
            for module in chunk.modules:
                page = module.type in ("data page", "dictionary page")
                assert module.cipher == (None if expected is None else "AES_CTR" if page and mode.ctr else "AES_GCM")


def test_pages_are_counted_without_the_dictionary() -> None:
    file = inspect(encrypted(PLAINTEXT, Mode().keys), Mode().keys)
    assert file.row_groups is not None
    chunk = file.row_groups[1].chunks[0]
    assert (chunk.column, chunk.path, file.row_groups[1].ordinal) == (0, "id", 1)
    pages = [(module.type, module.page) for module in chunk.modules if "page" in module.type]
    assert pages[:4] == [("dictionary page header", None), ("dictionary page", None), ("data page header", 0), ("data page", 0)]
    assert [page for kind, page in pages if kind == "data page"] == list(range(len(pages) // 2 - 1))


def test_without_keys_an_encrypted_footer_hides_the_rest() -> None:
    file = inspect(encrypted(PLAINTEXT, Mode(store_aad_prefix=True).keys))
    assert file.row_groups is None
    assert [module.type for module in file.modules()] == ["footer"]
    assert (file.aad_prefix, file.needs_aad_prefix) == (AAD_PREFIX, False)


def test_without_keys_a_plaintext_footer_shows_where_the_pages_are() -> None:
    mode = Mode(plaintext_footer=True, column_keys={"id": ID_KEY})
    data = encrypted(PLAINTEXT, mode.keys)
    found = {(module.type, module.offset, module.size) for module in inspect(data).modules()}
    every = {(module.type, module.offset, module.size) for module in inspect(data, mode.keys).modules()}
    assert {kind for kind, _, _ in every - found} == {"bloom filter header", "bloom filter bitset"}
    assert found <= every


def test_a_column_without_its_key_is_locked() -> None:
    mode = Mode(column_keys={"id": ID_KEY, "name": NAME_KEY})
    file = inspect(encrypted(PLAINTEXT, mode.keys), FileKeys(FOOTER_KEY, {"name": NAME_KEY}, AAD_PREFIX))
    for group in file.row_groups or ():
        assert [chunk.path for chunk in group.chunks if chunk.locked] == ["id"]
    assert modules_by_key(file)["id"] == {"column metadata", "column index", "offset index"}


def test_key_metadata_is_shown_and_keys_are_not() -> None:
    keys = FileKeys(FOOTER_KEY, {"id": ID_KEY}, footer_key_metadata=b"kf", column_key_metadata={"id": b"k1"})
    file = inspect(encrypted(PLAINTEXT, keys), keys)
    assert file.footer_key_metadata == b"kf"
    assert file.row_groups is not None
    assert [chunk.key_metadata for chunk in file.row_groups[0].chunks] == [b"k1", None, None, None]
    for text in (str(file), repr(file)):
        assert FOOTER_KEY.decode() not in text
        assert ID_KEY.decode() not in text


def test_the_tree_has_a_line_for_each_module() -> None:
    mode = Mode(column_keys={"id": ID_KEY})
    lines = str(inspect(encrypted(PLAINTEXT, mode.keys), mode.keys, location="part-0")).splitlines()
    assert lines[0].startswith("part-0: ")
    assert lines[0].endswith("footer encrypted, AES_GCM_V1")
    assert lines[1:3] == ["  row group 0", "    column 0 id: key of id"]
    assert any(line.startswith("      data page header 0: ") for line in lines)
    assert lines[-1].startswith("  footer: ")


def test_a_plaintext_file_is_listed_too() -> None:
    file = inspect(PLAINTEXT)
    assert (file.footer, file.algorithm) == ("plaintext", None)
    assert modules_by_key(file) == {
        None: {
            *("dictionary page header", "dictionary page", "data page header", "data page", "column index", "offset index"),
            *("bloom filter header", "bloom filter bitset", "footer"),
        }
    }
    first = pq.ParquetFile(pa.BufferReader(PLAINTEXT)).metadata.row_group(0).column(0)
    assert next(file.modules()).offset == first.dictionary_page_offset
