"""`tablecrypt demo` shows ciphertext, keys and calls as they are, and leaves nothing behind unless it is told to."""

from __future__ import annotations

from pathlib import Path

import pytest

from tablecrypt import load_catalog
from tablecrypt.cli.demo import CANARY
from tests.support.command import run, run_process
from tests.support.plaintext import FolderStore, findings


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder in which the process runs, with the one for temporary files in it."""
    (tmp_path / "temporary").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "temporary"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_demo_shows_ciphertext_keys_and_calls_and_leaves_nothing(elsewhere: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")

    done = run_process("demo")

    assert (done.code, done.stderr) == (0, "")
    shown = {" ".join(line.split()) for line in done.stdout.splitlines()}
    assert "table.delete(\"item = 'chair'\")" in shown
    assert {"2 desk 310", "4 shelf 120"} <= shown
    assert any(line.startswith("data file") and "PARE" in line for line in shown)
    assert sum("AGS1" in line for line in shown) == 2
    assert any(line.startswith("encrypted, every file") and line.endswith("none") for line in shown)
    assert any(line.startswith("the same rows, by plain PyIceberg") and line.endswith("a .parquet file") for line in shown)
    assert any(line.endswith("wrap_key × 4") for line in shown)
    assert any(line.endswith("unwrap_key × 1") for line in shown)
    assert not any(line.startswith("it returned") for line in shown)
    assert not any(line.startswith("NoSuchTableError") for line in shown)
    assert {"payroll 1, Ada, 91000 Ada", "analyst 1, Ada, None ColumnKeyDeniedError"} <= shown
    assert any(line.startswith("__protected__.3") and line.endswith("nothing") for line in shown)
    assert {"the partner reads 2 rows", "with the master key partner"} <= shown
    assert any(line.startswith("share(table, …, 'id <= 2')") and line.endswith("none of data") for line in shown)
    assert [path for path in elsewhere.rglob("*") if path.is_file()] == []
    assert list((elsewhere / "temporary").iterdir()) == []


@pytest.mark.parametrize("name", ["first-table", "deeper/first-table", "a folder [1] of ünicode"])
def test_a_kept_demo_is_a_table_that_opens_and_holds_no_plaintext(unwatched_warehouse: Path, name: str) -> None:
    folder = unwatched_warehouse / name

    done = run("demo", "--keep", str(folder))

    assert (done.code, done.stderr) == (0, "")
    assert f"All of it is in {folder}: look for yourself." in done.stdout
    catalog = load_catalog(
        "tablecrypt-demo",
        **{
            "type": "tablecrypt",
            "uri": f"sqlite:///{folder}/catalog.db",
            "encryption.kms-type": "local",
            "kms.local.key-file": f"{folder}/orders.keys",
        },
    )
    assert catalog.load_table("db.orders").scan().to_arrow()["note"].to_pylist() == [CANARY] * 3
    store = FolderStore(folder / "warehouse")
    files = list(store.locations())
    assert len(files) > 5
    assert not [found for location in files for found in findings(location, store.read(location))]
    assert not [path for path in folder.rglob("*") if path.is_file() and CANARY.encode() in path.read_bytes()]


def test_a_folder_that_holds_something_is_left_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "orders.keys").write_text("mine")

    done = run("demo", "--keep", str(tmp_path))

    assert (done.code, done.stdout) == (2, "")
    assert done.stderr == f"tablecrypt: {tmp_path} is not empty: name a new folder\n"
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("orders.keys", "mine")]


def test_a_folder_that_cannot_be_made_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    done = run("demo", "--keep", str(tmp_path / "file" / "folder"))

    assert (done.code, done.stdout) == (2, "")
    assert done.stderr.count("\n") == 1
    assert "Traceback" not in done.stderr
