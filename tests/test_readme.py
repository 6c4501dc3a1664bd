"""README.md holds: its Python runs as it stands, in an empty folder; what it names exists.

tests/security/test_supply_chain.py runs all of it, from top to bottom, with the wheel.
"""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Final

import pyarrow as pa
import pytest
import strictyaml

import tablecrypt_catalog
from tablecrypt import load_catalog
from tablecrypt.cli.main import run
from tablecrypt.kms.factory import load_kms
from tests.support.plaintext import FolderStore, findings

ROOT: Final = Path(__file__).parents[1]
README: Final = (ROOT / "README.md").read_text(encoding="utf-8")
PYTHON: Final = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
SHELL: Final = [line for block in re.findall(r"```sh\n(.*?)```", README, re.DOTALL) for line in block.splitlines()]


def _cells(heading: str) -> list[str]:
    """The names in the first column of the table under a heading."""
    section = README.partition(f"## {heading}\n")[2].partition("\n## ")[0]
    rows = [line for line in section.partition("\n|---")[2].splitlines() if line.startswith("| `")]
    return [name for row in rows for name in re.findall(r"`([^`]+)`", row.split("|")[1])]


@pytest.fixture
def readme_folder(warehouse: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(warehouse)
    for line in SHELL:
        if line.startswith("tablecrypt keygen "):
            with pytest.raises(SystemExit) as finished:
                run(shlex.split(line, comments=True)[1:])
            assert finished.value.code == 0
    return warehouse


def test_the_python_of_the_readme_runs_and_leaves_only_ciphertext(readme_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    names: dict[str, object] = {}
    assert PYTHON
    for block in PYTHON:
        exec(compile(block, "README.md", "exec"), names)

    assert "desk" in capsys.readouterr().out
    table = load_catalog("prod", **_catalog_properties()).load_table("db.orders")
    assert table.scan().to_arrow().sort_by("id") == pa.table({"id": [1, 2], "item": ["lamp", "desk"]})
    store = FolderStore(readme_folder / "warehouse")
    files = list(store.locations())
    assert len(files) > 5
    assert not [found for location in files for found in findings(location, store.read(location))]


def test_the_python_of_the_readme_runs_twice(readme_folder: Path) -> None:
    for _ in range(2):
        exec(compile("\n".join(PYTHON), "README.md", "exec"), {})

    assert load_catalog("prod", **_catalog_properties()).load_table("db.orders").scan().to_arrow()["id"].to_pylist() == [1, 2, 1, 2]


def _catalog_properties() -> dict[str, str]:
    found = re.search(r"load_catalog\(\"prod\", \*\*(\{.*?\})\)", PYTHON[0], re.DOTALL)
    assert found
    properties = eval(found.group(1), {})
    assert isinstance(properties, dict)
    return properties


def test_the_example_has_no_more_lines_than_promised() -> None:
    statements = PYTHON[0].partition("\n\n")[2].strip().splitlines()

    assert len(statements) <= 10


@pytest.mark.parametrize("document", [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))], ids=lambda path: path.name)
def test_every_catalog_configuration_is_one_that_pyiceberg_refuses(document: Path) -> None:
    for block in re.findall(r"```yaml\n(.*?)```", document.read_text(encoding="utf-8"), re.DOTALL):
        configured = strictyaml.load(block.replace("#", " #")).data
        assert [catalog["type"] for catalog in configured.get("catalog", {}).values()] == ["tablecrypt"] * len(
            configured.get("catalog", {})
        )


@pytest.mark.parametrize(
    "program",
    [README, *(path.read_text(encoding="utf-8") for path in [*sorted((ROOT / "examples").glob("*.py")), ROOT / "tablecrypt/cli/demo.py"])],
    ids=lambda text: text[:30],
)
def test_every_program_that_users_copy_loads_its_catalog_so_that_a_slip_is_refused(program: str) -> None:
    assert '"type": "tablecrypt"' in program
    assert '"py-catalog-impl"' not in program
    assert "from tablecrypt import load_catalog" in program


def test_the_configuration_file_of_the_readme_is_the_catalog_of_its_code() -> None:
    (block,) = re.findall(r"```yaml\n(.*?)```", README, re.DOTALL)

    assert strictyaml.load(block).data["catalog"]["prod"] == _catalog_properties()


def test_an_operation_is_called_by_its_full_name_after_the_import_of_the_package_alone() -> None:
    named = "import tablecrypt; tablecrypt.maintenance.rotate_kek, tablecrypt.orc.write_table, tablecrypt.parquet.write_table"
    subprocess.run([sys.executable, "-c", named], check=True)


def test_the_make_targets_exist() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    named = [line.split()[1] for line in SHELL if line.startswith("make ")]

    assert {"demo", "test", "demo-spark"} <= set(named)
    assert not [target for target in named if not re.search(rf"^{target}:", makefile, re.MULTILINE)]


def test_the_extras_are_those_of_the_package() -> None:
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]

    assert set(_cells("Install")) == set(declared)


def test_the_catalogs_are_those_of_the_plugin() -> None:
    names = tablecrypt_catalog.__all__
    classes = {f"tablecrypt_catalog.{name}" for name in names if name.startswith("Encrypted")}
    assert set(_cells("Catalogs")) == classes


@pytest.mark.parametrize("kms_type", _cells("Key services"))
def test_every_kms_type_has_a_client(kms_type: str, tmp_path: Path) -> None:
    properties = {"kms.local.key-file": str(tmp_path / "keys"), "azure.keyvault.url": "https://example.vault.azure.net"}

    load_kms({"encryption.kms-type": kms_type, **properties}).close()
