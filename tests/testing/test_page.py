"""docs/how-to/test-your-own.md runs as a reader copies it, and nothing of it needs this suite."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.pages import DOCS, ROOT, blocks

PAGE = DOCS / "how-to" / "test-your-own.md"
WITHOUT_THE_SUITE = """
import sys

def test_the_suite_of_tablecrypt_is_not_needed():
    import tablecrypt, tablecrypt_catalog
    assert tablecrypt.__file__.startswith({place!r}) and tablecrypt_catalog.__file__.startswith({place!r})
    assert not [name for name in sys.modules if name.partition(".")[0] == "tests"]
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The page's modules, and the packages as a wheel brings them."""
    for package in (ROOT / "tablecrypt", ROOT / "catalog" / "tablecrypt_catalog"):
        shutil.copytree(package, tmp_path / "site" / package.name, ignore=shutil.ignore_patterns("__pycache__"))
    work = tmp_path / "work"
    work.mkdir()
    for _, text in blocks(PAGE.read_text(encoding="utf-8")):
        named = re.match(r"# (\w+\.py)\n", text)
        assert named, f"a block of {PAGE.name} does not say which file it is:\n{text}"
        (work / named.group(1)).write_text(text)
    (work / "test_zzz.py").write_text(WITHOUT_THE_SUITE.format(place=str(tmp_path / "site")))
    return work


def run_pytest(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run pytest on the page's modules, with the packages of the folder beside it."""
    environment = {**os.environ, "PYTHONPATH": str(folder.parent / "site"), "COLUMNS": "300"}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", *arguments]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=600)


@pytest.mark.slow
def test_the_page_runs_without_our_suite(folder: Path) -> None:
    done = run_pytest(folder)

    assert done.returncode == 0, done.stdout[-3000:] + done.stderr
    passed = re.search(r"^(\d+) passed", done.stdout, re.MULTILINE)
    assert passed and int(passed.group(1)) > 50


BROKEN = {
    "the KMS gives another key": (
        "test_kms.py",
        """
from tablecrypt.kms.memory import MemoryKeyManagementClient as Client

class Wrong(Client):
    def unwrap_key(self, wrapped_key, wrapping_key_id):
        return bytes(len(super().unwrap_key(wrapped_key, wrapping_key_id)))

def my_client():
    return Wrong(KMS, {"orders": bytes(range(32)), "people": bytes(32)})
""",
        "test_a_wrapped_key_unwraps_to_itself",
    ),
    "the catalog writes over the commits of others": (
        "test_catalog.py",
        """
def my_catalog(folder):
    my_client()
    place = {"uri": f"sqlite:///{folder}/catalog.db", "warehouse": f"file://{folder}", "encryption.pins": f"{folder}/pins.json"}
    class Loses(encrypted(SqlCatalog)):
        def commit_table(self, table, requirements, updates):
            return super().commit_table(table, (), updates)
    return Loses("mine", **place, **KMS)
""",
        "test_a_schema_change_of_a_writer_that_is_behind_is_refused",
    ),
    "the catalog does not encrypt": (
        "test_tables.py",
        """
def my_catalog(folder):
    return SqlCatalog("plain", uri=f"sqlite:///{folder}/catalog.db", warehouse=f"file://{folder}")
""",
        "a table with encryption.key-id is encrypted: db.t",
    ),
    "the catalog forgets rows": (
        "test_tables.py",
        """
from tablecrypt.table.table import EncryptedTable

append = EncryptedTable.append
EncryptedTable.append = lambda self, rows, **named: append(self, getattr(rows, "read_all", lambda: rows)()[1:], **named)
""",
        "branch main has the rows of the model: 1 missing, such as (",
    ),
}


@pytest.mark.nightly
@pytest.mark.slow
@pytest.mark.parametrize("fault", BROKEN)
def test_a_part_that_breaks_its_promise_fails_with_the_property(folder: Path, fault: str) -> None:
    module, change, shown = BROKEN[fault]
    with (folder / "my_parts.py").open("a") as parts:
        parts.write(change)

    done = run_pytest(folder, module)

    assert done.returncode == 1, done.stdout[-3000:] + done.stderr
    assert [line for line in done.stdout.splitlines() if shown in line], done.stdout[-3000:]


@pytest.mark.parametrize("missing", ["pytest", "hypothesis"])
def test_without_what_it_needs_the_extra_is_named_in_one_line(missing: str) -> None:
    look = f"import sys; sys.modules[{missing!r}] = None"
    program = f"{look}\ntry:\n    import tablecrypt.testing\nexcept ImportError as error:\n    print(error)"

    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)

    (line,) = done.stdout.splitlines()
    assert f"needs the package {missing}" in line
    assert "…[testing]" in line
