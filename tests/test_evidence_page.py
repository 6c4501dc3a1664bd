"""The page on evidence holds: what its readers copy runs as it stands, from any folder, and so does the command that the bundle names."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest
import strictyaml

from tablecrypt import load_catalog
from tests.support.pages import DOCS, ROOT, blocks
from tests.support.tables import team_rows

pytestmark = pytest.mark.slow

PAGE: Final = (DOCS / "how-to" / "evidence.md").read_text(encoding="utf-8")


def copied(text: str, folder: Path, home: Path) -> str:
    """What lines print that are pasted into a shell."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    python_path = os.pathsep.join([str(ROOT), str(ROOT / "catalog")])
    environment = {**os.environ, "HOME": str(home), "PYICEBERG_HOME": str(home), "PATH": path, "PYTHONPATH": python_path}
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", text], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"{text}\n{done.stdout}{done.stderr}"
    return done.stdout


@pytest.fixture
def home(warehouse: Path) -> Path:
    """A reader's home, with the catalog `prod` and a table."""
    home = warehouse / "home"
    home.mkdir()
    (warehouse / "elsewhere").mkdir()
    copied(f"tablecrypt keygen --key-file {home}/prod.keys --key-id orders", home, home)
    properties = {
        "type": "tablecrypt",
        "uri": f"sqlite:///{home}/catalog.db",
        "warehouse": f"file://{home}/lake",
        "encryption.required": "true",
        "encryption.kms-type": "local",
        "kms.local.key-file": f"{home}/prod.keys",
    }
    (home / ".pyiceberg.yaml").write_text(strictyaml.as_document({"catalog": {"prod": properties}}).as_yaml(), encoding="utf-8")
    catalog = load_catalog("prod", **properties)
    catalog.create_namespace("db")
    catalog.create_table("db.orders", team_rows(0).schema, properties={"encryption.key-id": "orders"}).append(team_rows(0))
    return home


def test_what_a_reader_copies_runs_as_it_stands(home: Path, warehouse: Path) -> None:
    elsewhere = warehouse / "elsewhere"
    printed = [copied(text, elsewhere, home) for language, text in blocks(PAGE) if language in {"sh", "bash"}]

    handed_over, checked = printed[0].splitlines()[-1], printed[-1].splitlines()
    assert handed_over == f"SHA-256 of evidence.zip: {checked[0].split()[0]}"
    assert len(checked) == 6
    assert all(line.endswith(": OK") for line in checked[1:])
    readme = (elsewhere / "evidence" / "README.txt").read_text(encoding="utf-8")
    (repeat,) = re.findall(r"^ *(tablecrypt .* --since .*)$", readme, re.MULTILINE)
    assert "0 new findings, 0 resolved" in copied(repeat, elsewhere / "evidence", home)


def test_the_program_runs_as_it_stands(home: Path, warehouse: Path) -> None:
    (program,) = [text for language, text in blocks(PAGE) if language == "python"]
    given = f"from tablecrypt import load_catalog\ncatalog = load_catalog('prod')\n{program}"

    copied(f'{sys.executable} -c "$(cat <<"EOF"\n{given}EOF\n)"', warehouse / "elsewhere", home)

    assert (warehouse / "elsewhere" / "from-python.zip").stat().st_size > 1000


def test_the_page_names_every_file_of_the_bundle(home: Path, warehouse: Path) -> None:
    copied("tablecrypt --catalog prod audit --bundle evidence.zip", warehouse / "elsewhere", home)
    listed = copied("python3 -m zipfile -l evidence.zip", warehouse / "elsewhere", home)

    assert sorted(re.findall(r"^\| `([\w.]+)` \|", PAGE, re.MULTILINE)) == sorted(re.findall(r"^(\S+) +\d{4}-", listed, re.MULTILINE))
