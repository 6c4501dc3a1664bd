"""Whatever stands in the wrong place of a public function is refused by name, before anything is read or written, and is not shown."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.table import Table

import tablecrypt
from tablecrypt import maintenance, orc, parquet
from tablecrypt.arguments import checked_arguments, file_path, names_of
from tablecrypt.errors import ConfigurationError
from tablecrypt.kms.local_file import LocalFileKeyManagementClient
from tablecrypt.kms.memory import MemoryKeyManagementClient
from tablecrypt_catalog.pins.client import PinFile
from tests.support.tables import MASTER_KEY, memory_catalog, memory_kms, new_table, rows

UNSHOWN: Final = "a-value-that-no-message-shows"
KMS: Final = memory_kms("wrong-types")
FILE_KEYS: Final = parquet.FileKeys(footer_key=b"k" * 16)
ROWS: Final = pa.table({"id": [1, 2], "ssn": ["a", "b"]})


class Foreign:
    """A value of no kind that any function takes."""

    def __repr__(self) -> str:
        return UNSHOWN


WRONG: Final = {"an object": Foreign(), "a list of objects": [Foreign()], "half": 0.5}
UNCHECKED: Final = {"options", "filters", "delete_ratio", "lifetime_s"}
"""What pyarrow takes, it looks at itself; a ratio may be a half, and so may seconds."""

LAZY: Final = ("orc.read_batches", "source")
"""Opened when the first batch is asked for."""

GIVEN: Final[Mapping[str, Any]] = {
    "sink": "a.out",
    "source": "a.in",
    "sources": "a.in",
    "keys": FILE_KEYS,
    "old": FILE_KEYS,
    "new": FILE_KEYS,
    "schema": ROWS.schema,
    "key_id": MASTER_KEY,
    "column": "ssn",
    "earlier": "{}",
    "location": "file:///nowhere",
    "to_key_id": "alias/people",
    "share": "file:///nowhere",
    "metadata_location": "file:///nowhere/metadata/00001-0c9f3a52-9a4f-4a86-8f61-0d2c7f4be8a1.metadata.json",
    "path": "evidence.zip",
    "row_filter": "id = 1",
    "operation": maintenance.verify,
    "kms": MemoryKeyManagementClient(KMS),
    "client": MemoryKeyManagementClient(KMS),
    "table_key_id": MASTER_KEY,
    "properties": KMS,
    "key_name": "pii",
    "key": b"k" * 16,
    "configuration": {"parquet.encryption.footer.key": MASTER_KEY},
    "folder": "a.folder",
    "name": "prod",
    "error": ValueError("no such catalog"),
}
OF_ORC: Final[Mapping[str, Any]] = {"table": ROWS, "keys": orc.LocalKeys({"pii": [b"k" * 16]}), "encrypt": {"pii": ["ssn"]}}


def functions() -> Iterator[tuple[str, Callable[..., Any]]]:
    yield from ((f"maintenance.{name}", getattr(maintenance, name)) for name in maintenance.__all__ if name[0].islower())
    yield from ((f"parquet.{name}", getattr(parquet, name)) for name in parquet.__all__ if name[0].islower())
    yield from ((f"orc.{name}", getattr(orc, name)) for name in orc.__all__ if name[0].islower())
    yield from (("parquet.FileKeys", parquet.FileKeys), ("parquet.EncryptedParquetWriter", parquet.EncryptedParquetWriter))
    factory = parquet.PropertiesDrivenCryptoFactory
    yield from ((f"parquet.{name}", getattr(factory(GIVEN["kms"]), name)) for name in vars(factory) if not name.startswith("_"))
    yield ("parquet.PropertiesDrivenCryptoFactory", factory)
    yield from (("orc.KeyedHash", orc.KeyedHash), ("orc.IntegrityManifestWriter", orc.IntegrityManifestWriter))
    yield from (("orc.LocalKeys", orc.LocalKeys), ("orc.KmsKeys", orc.KmsKeys), ("orc.KmsMasterKeys", orc.KmsMasterKeys))
    yield from (("load_kms", tablecrypt.load_kms), ("EncryptionManager", tablecrypt.EncryptionManager))


FUNCTIONS: Final = dict(functions())
PLACES: Final = [(function, name) for function, called in FUNCTIONS.items() for name in inspect.signature(called).parameters]
CHECKED: Final = [(function, name) for function, name in PLACES if name not in UNCHECKED and (function, name) != LAZY]


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Table:
    return new_table(memory_catalog(tmp_path_factory.mktemp("wrong-types")), appends=[rows(0)])


def given(function: str, table: Table) -> dict[str, Any]:
    """Arguments that fit, as far as they have to be given."""
    right = {**GIVEN, "table": table, "target": table, "catalog": table.catalog, "found": maintenance.audit(table)}
    right |= {"table": ROWS} if function.startswith("parquet.") else OF_ORC if function.startswith("orc.") else {}
    if function == "orc.LocalKeys":
        right["keys"] = {"pii": [b"k" * 16]}
    if function in {"orc.KmsKeys", "orc.KmsMasterKeys"}:
        right["keys"] = {}
    required = inspect.signature(FUNCTIONS[function]).parameters.values()
    return {each.name: right[each.name] for each in required if each.default is each.empty and each.kind is not each.VAR_KEYWORD}


def source_of(function: str) -> list[Path]:
    """The file that a function reads, in the folder that is the current one."""
    path = Path.cwd() / GIVEN["source"]
    if function.startswith("orc."):
        orc.write_table(sink=str(path), **OF_ORC)
    elif function.startswith("parquet."):
        pq.write_table(ROWS, path) if function == "parquet.encrypt" else parquet.write_table(ROWS, str(path), FILE_KEYS)
    return [path] if path.exists() else []


@pytest.mark.parametrize(("function", "name"), CHECKED, ids=[f"{function}-{name}" for function, name in CHECKED])
def test_what_fits_nowhere_is_refused_everywhere(
    table: Table, function: str, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    source = source_of(function)
    for wrong in WRONG.values():
        with pytest.raises(ConfigurationError) as refused:
            FUNCTIONS[function](**{**given(function, table), name: wrong})
        assert UNSHOWN not in str(refused.value)
    assert list(tmp_path.iterdir()) == source


@checked_arguments()
def takes_names(names: Sequence[str] = (), optional: list[str] | None = None, count: int = 1, flag: bool = False) -> tuple[Any, ...]:
    return names, optional, count, flag


def test_one_name_is_one_name() -> None:
    assert takes_names("id", "id")[:2] == (("id",), ("id",))  # type: ignore[arg-type]
    assert takes_names(["id", "x"], None)[:2] == (["id", "x"], None)
    assert names_of("columns", (each for each in ("id", "x"))) == ("id", "x")


@pytest.mark.parametrize("wrong", [None, 3, b"id", {"id": 1}, [None], ["id", 3]])
def test_what_is_no_list_of_names_is_refused(wrong: Any) -> None:
    with pytest.raises(ConfigurationError, match="a name or a list of names"):
        takes_names(wrong)


@pytest.mark.parametrize(("name", "wrong"), [("count", True), ("count", "3"), ("count", 1.0), ("flag", "no"), ("flag", 0), ("flag", None)])
def test_a_flag_is_no_number_and_a_text_is_neither(name: str, wrong: Any) -> None:
    with pytest.raises(ConfigurationError, match=name):
        takes_names(**{name: wrong})


def test_numbers_of_numpy_are_numbers() -> None:
    assert takes_names(count=np.int64(3), flag=np.bool_(True))[2:] == (3, True)  # type: ignore[arg-type]


def test_arguments_that_are_missing_or_too_many_are_told_as_python_does() -> None:
    with pytest.raises(TypeError, match="unexpected keyword argument 'colour'"):
        takes_names(colour="red")  # type: ignore[call-arg]


def test_a_scan_takes_one_name_too(table: Table) -> None:
    assert table.scan(selected_fields="id").to_arrow().column_names == ["id"]  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "path", ["~nobody-of-that-name/file", "a\0b", "\ud800", " ", "\n", "a.keys\n", "true", "OFF", "0", "file:///a.keys", "s3://bucket/a"]
)
def test_a_file_that_no_path_leads_to_is_refused_by_the_setting_that_names_it(path: str) -> None:
    with pytest.raises(ConfigurationError, match=r"kms\.local\.key-file"):
        LocalFileKeyManagementClient({"kms.local.key-file": path})
    with pytest.raises(ConfigurationError, match=r"encryption\.pins"):
        PinFile(path)
    with pytest.raises(ConfigurationError, match="the key file"):
        file_path("the key file", path)


def test_a_path_begins_in_the_home_folder_after_a_tilde(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert file_path("the key file", "~/a.keys") == tmp_path / "a.keys"
