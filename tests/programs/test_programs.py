"""Each program of docs/programs.md, called as its own page says: what becomes of it, and that no plaintext is left anywhere.

The catalog is in .pyiceberg.yaml, and the program gets it by its name through PyIceberg. All that it writes is searched: the warehouse, its
working folder, home and temporary folder, and what it printed; also where it is killed while it writes.

In every run there are the programs that the environment of the tests has. `make test-programs` runs all, each in an environment of its own.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest
from packaging.version import Version
from strictyaml import as_document

from tablecrypt import load_catalog
from tests.programs import ways
from tests.programs.environments import chosen, executables, release
from tests.programs.programs import PROGRAMS, Program
from tests.support.plaintext import CANARY, findings
from tests.support.tables import key_file_kms

ROOT: Final = Path(__file__).parents[2]
NAMED: Final = os.environ.get("TABLECRYPT_PROGRAMS")
RUN: Final = [each for each in PROGRAMS if not each.installs] if NAMED is None else list(chosen(NAMED.split()))
DEATHS: Final = [pytest.param(each, part, id=f"{each.slug}-{part}") for each in RUN for part in each.dies_at]

pytestmark = pytest.mark.slow


@dataclass(frozen=True)
class Place:
    """Where a program runs: a catalog with a table, and the folders into which it may write.

    Attributes:
        folder: has home, tmp, work and warehouse.
        memory: stands for a folder in memory, for programs that need one.
        configured: the catalog's properties.
    """

    folder: Path
    memory: Path
    configured: dict[str, str]

    def run(self, program: Program, **environment: str) -> subprocess.CompletedProcess[str]:
        """Run a program's calls, under the catalog's configuration."""
        home, bin_folder = self.folder / "home", executables(program)
        (home / ".pyiceberg.yaml").write_text(as_document({"catalog": {"prod": self.configured}}).as_yaml(), encoding="utf-8")
        inherited = {name: value for name, value in os.environ.items() if not name.startswith(("PYICEBERG_", "PYTHON"))}
        done = subprocess.run(
            [bin_folder / "tablecrypt", "run", "python", "-m", f"tests.programs.{program.module}", self.folder / "answers.json"],
            cwd=self.folder / "work",
            env={
                **inherited,
                "HOME": str(home),
                "TMPDIR": str(self.folder / "tmp"),
                "PATH": f"{bin_folder}{os.pathsep}{os.environ['PATH']}",
                "PYTHONPATH": str(ROOT),
                **{name: value.format(memory=self.memory) for name, value in program.environment},
                **environment,
            },
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            timeout=600,
            check=False,
        )
        (self.folder / "printed.txt").write_text(done.stdout + done.stderr, encoding="utf-8")
        return done

    def plaintext(self) -> list[str]:
        """What is plaintext in the folders, and in what the program printed."""
        return plaintext_below(self.folder)

    def ids(self) -> list[int]:
        """Those of the table's rows."""
        found: list[int] = load_catalog("prod", **self.configured).load_table("db.orders").scan().to_arrow()["id"].to_pylist()
        return sorted(found)


def plaintext_below(folder: Path) -> list[str]:
    return [str(found) for path in folder.rglob("*") if path.is_file() for found in findings(str(path), path.read_bytes())]


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    for name in ("home", "tmp", "work", "warehouse"):
        (tmp_path / name).mkdir()
    configured = {
        "type": "tablecrypt",
        "uri": f"sqlite:///{tmp_path}/catalog.db",
        "warehouse": f"file://{tmp_path}/warehouse",
        "encryption.required": "true",
        "encryption.default-key-id": "orders",
        **key_file_kms(tmp_path / "orders.keys", "orders"),
    }
    catalog = load_catalog("prod", **configured)
    catalog.create_namespace("db")
    for name in ("db.orders", "db.purged"):
        catalog.create_table(name, ways.FIRST_ROWS.schema).append(ways.FIRST_ROWS)
    memory = Path(tempfile.mkdtemp(dir="/dev/shm" if Path("/dev/shm").is_dir() else None))
    yield Place(tmp_path, memory, configured)
    shutil.rmtree(memory)


@pytest.mark.parametrize("program", RUN, ids=[each.slug for each in RUN])
def test_each_call_of_a_program_ends_as_the_page_says(place: Place, program: Program) -> None:
    done = place.run(program)

    assert done.returncode == 0, done.stderr
    answers = json.loads((place.folder / "answers.json").read_text(encoding="utf-8"))
    assert list(answers) == [call.code for call in program.calls]
    for call in program.calls:
        answer = answers[call.code]
        if call.outcome == "works":
            assert answer == ways.WORKS, call.code
        elif call.outcome == "refused":
            assert call.says in answer.splitlines()[0], f"{call.code}: the first line says it all"
        else:
            assert call.says in answer, call.code
    assert place.plaintext() == []
    keeps_plaintext_in_memory = any("{memory}" in value for _, value in program.environment)
    assert bool(plaintext_below(place.memory)) == keeps_plaintext_in_memory, "as the page says"


@pytest.mark.parametrize(("program", "part"), DEATHS)
def test_a_program_that_is_killed_while_it_writes_leaves_no_plaintext(place: Place, program: Program, part: str) -> None:
    place.configured["py-io-impl"] = "tests.programs.dying_io.DyingFileIO"

    done = place.run(program, TABLECRYPT_TESTS_DIE_AT=part)

    del place.configured["py-io-impl"]
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert place.plaintext() == []
    assert place.ids() == [1, 2, 3], "as nothing was committed"


@pytest.mark.parametrize("program", RUN, ids=[each.slug for each in RUN])
def test_the_release_that_is_tested_is_no_older_than_the_one_on_the_page(program: Program) -> None:
    assert Version(release(program)) >= Version(program.release)


def test_the_canary_of_the_programs_is_the_one_that_is_searched_for() -> None:
    assert ways.CANARY == CANARY
