"""The project's rules that an author could break without noticing, read from the source itself.

Which package may import which is a contract in pyproject.toml (import-linter); the other rules are checked in the syntax trees here.
"""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
import tomllib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[1]
LIBRARY: Final = ROOT / "tablecrypt"
PACKAGES: Final = (LIBRARY, ROOT / "catalog" / "tablecrypt_catalog")
MODULES: Final = sorted(path for package in PACKAGES for path in package.rglob("*.py"))
PACKAGE_FOLDERS: Final = sorted({path.parent for path in MODULES if (path.parent / "__init__.py").exists()})
LONGEST_FOLDER: Final = 27

PRODUCT: Final = tuple(package.name for package in PACKAGES)
TESTS: Final = sorted(path for path in (ROOT / "tests").rglob("*.py") if "vectors" not in path.parts)

# The packages that may use private names of PyIceberg: one below the tables, one below the catalogs.
ADAPTERS: Final = tuple(package / "_pyiceberg" for package in (LIBRARY / "table", PACKAGES[1]))

# No file, network, clock or randomness of their own: what they need comes in as an argument.
PURE: Final = (
    *sorted((LIBRARY / "crypto").rglob("*.py")),
    *(LIBRARY / "keys" / name for name in ("key_ring.py", "column_keys.py", "column_lookup.py")),
)
IMPURE_MODULES: Final = {
    *(
        "asyncio",
        "datetime",
        "io",
        "mmap",
        "os",
        "pathlib",
        "random",
        "secrets",
        "shutil",
        "socket",
        "subprocess",
        "tempfile",
        "threading",
        "time",
    ),
    *("uuid", "urllib", "http", "requests", "boto3", "fsspec"),
}

WORK_LEFT_OPEN: Final = re.compile(r"\b(?:TO" r"DO|FIX" r"ME|XX" r"X)\b")
AT_THE_TOP: Final = {
    *(".ci", ".editorconfig", ".github", ".gitignore", ".pre-commit-config.yaml", "CHANGELOG.md", "CONTRIBUTING.md", "LICENSE"),
    *("Makefile", "README.md", "SECURITY.md", "benchmarks", "catalog", "changes", "conformance", "docs", "examples", "fuzz"),
    *("hatch_build.py", "mkdocs.yml", "pyproject.toml", "requirements", "tablecrypt", "tests"),
}
TEXT_SUFFIXES: Final = {".cfg", ".ini", ".md", ".py", ".sh", ".toml", ".yaml", ".yml"}
TEXT_NAMES: Final = {"Makefile", "run"}
FOREIGN_FOLDERS: Final = {"build", "demo", "dist", "node_modules", "spark-warehouse", "vectors"}
MARKDOWN_LINK: Final = re.compile(r"\[[^\]]*\]\(([^)\s]+)[^)]*\)")


def _name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def _tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), filename=str(path))


def _own_files() -> Iterator[Path]:
    """Every file of the project that people write: no generated or vendored folder, no hidden one but .ci."""
    for parent, folders, names in os.walk(ROOT):
        folders[:] = [name for name in folders if name == ".ci" or not (name.startswith(".") or name in FOREIGN_FOLDERS)]
        yield from (Path(parent) / name for name in names)


def _imported_modules(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module


def _is_private(name: str) -> bool:
    return name.startswith("_") and not (name.startswith("__") and name.endswith("__"))


def _is_pyiceberg(module: str | None) -> bool:
    return module is not None and module.split(".")[0] == "pyiceberg"


def _names_from_pyiceberg(tree: ast.Module) -> set[str]:
    """What this module calls PyIceberg's modules, classes and functions."""
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.asname or alias.name.split(".")[0] for alias in node.names if _is_pyiceberg(alias.name)}
        elif isinstance(node, ast.ImportFrom) and _is_pyiceberg(node.module):
            names |= {alias.asname or alias.name for alias in node.names}
    return names


def _root_name(node: ast.expr) -> str | None:
    """`a` of `a.b.c`."""
    while isinstance(node, ast.Attribute):
        node = node.value
    return node.id if isinstance(node, ast.Name) else None


def _private_names_of_pyiceberg(tree: ast.Module) -> Iterator[str]:
    foreign = _names_from_pyiceberg(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if _is_pyiceberg(alias.name) and any(map(_is_private, alias.name.split("."))))
        elif isinstance(node, ast.ImportFrom) and _is_pyiceberg(node.module):
            imported = [f"{node.module}.{alias.name}" for alias in node.names]
            yield from (name for name in imported if any(map(_is_private, name.split("."))))
        elif isinstance(node, ast.Attribute) and _is_private(node.attr) and _root_name(node) in foreign:
            yield ast.unparse(node)


def test_imports_between_packages_go_one_way() -> None:
    # Not among what the lowest versions are tested with, since it is a tool of developers.
    pytest.importorskip("importlinter")
    search_path = os.pathsep.join([str(ROOT), str(ROOT / "catalog")])
    command = [
        sys.executable,
        "-c",
        "import sys; from importlinter.cli import lint_imports; sys.exit(lint_imports(no_logo=True, no_cache=True))",
    ]
    run = subprocess.run(command, cwd=ROOT, env=os.environ | {"PYTHONPATH": search_path}, capture_output=True, text=True, check=False)

    assert run.returncode == 0, run.stdout + run.stderr


def test_every_package_has_a_place_among_the_layers() -> None:
    configuration = tomllib.loads((ROOT / "pyproject.toml").read_text())
    contracts = {contract["id"]: contract for contract in configuration["tool"]["importlinter"]["contracts"]}
    placed = set(re.findall(r"[\w.]+", " ".join(contracts["layers"]["layers"])))
    packages = {f"tablecrypt.{path.stem}" for path in LIBRARY.iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()}

    assert packages - {"tablecrypt.__init__"} <= placed


@pytest.mark.parametrize("path", [path for path in MODULES if path.parent not in ADAPTERS], ids=_name)
def test_private_names_of_pyiceberg_stay_in_the_adapters(path: Path) -> None:
    assert not list(_private_names_of_pyiceberg(_tree(path))), f"these belong into {' or '.join(map(_name, ADAPTERS))}"


@pytest.mark.parametrize(
    "source",
    [
        "from pyiceberg.table.update.snapshot import _SnapshotProducer",
        "from pyiceberg._private import thing",
        "import pyiceberg._private",
        "import pyiceberg.manifest\npyiceberg.manifest._manifests",
        "import pyiceberg.manifest as m\nm._manifests()",
        "from pyiceberg import manifest\nmanifest.ManifestFile._data",
        "from pyiceberg.table import Table\nTable._do_commit",
    ],
)
def test_the_look_for_private_names_sees_every_way_to_use_one(source: str) -> None:
    assert list(_private_names_of_pyiceberg(ast.parse(source)))


@pytest.mark.parametrize(
    "source", ["from pyiceberg.table import Table\nTable.__init__", "from tablecrypt.table import _pyiceberg\n_pyiceberg.x"]
)
def test_the_look_for_private_names_lets_public_ones_through(source: str) -> None:
    assert not list(_private_names_of_pyiceberg(ast.parse(source)))


@pytest.mark.parametrize("path", PURE, ids=_name)
def test_formats_and_key_rules_do_no_input_or_output(path: Path) -> None:
    tree = _tree(path)
    imported = {module.split(".")[0] for module in _imported_modules(tree)}
    called = {node.func.id for node in ast.walk(tree) if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)}

    assert not imported & IMPURE_MODULES
    assert not called & {"open", "print", "input", "exec", "eval", "__import__"}


@pytest.mark.parametrize("path", MODULES, ids=_name)
def test_every_module_says_what_it_is(path: Path) -> None:
    assert ast.get_docstring(_tree(path))


@pytest.mark.parametrize("path", MODULES, ids=_name)
def test_what_a_module_imports_stands_together_at_its_top(path: Path) -> None:
    """What only types need comes last, in an `if`; an import that may fail, and what comes of that, in a `try`."""
    body = [node for node in _tree(path).body if not isinstance(node, ast.Expr | ast.Try)]
    imports = [isinstance(node, ast.Import | ast.ImportFrom) for node in body]
    assert imports == sorted(imports, reverse=True)


@pytest.mark.parametrize("package", PACKAGE_FOLDERS, ids=_name)
def test_a_folder_is_no_longer_than_a_table_of_contents(package: Path) -> None:
    assert len(list(package.glob("*.py"))) <= LONGEST_FOLDER


@pytest.mark.parametrize("package", PACKAGE_FOLDERS, ids=_name)
def test_no_name_of_a_package_shadows_one_of_its_modules(package: Path) -> None:
    modules = {path.stem for path in package.glob("*.py")}
    imports = (node for node in ast.walk(_tree(package / "__init__.py")) if isinstance(node, ast.ImportFrom))
    names = {(node.module, alias.name, alias.asname or alias.name) for node in imports for alias in node.names}

    assert not [bound for module, name, bound in names if bound in modules and not (module or "").endswith(package.name)]


@pytest.mark.parametrize("path", MODULES, ids=_name)
def test_no_error_is_swallowed_in_silence(path: Path) -> None:
    handlers = [node for node in ast.walk(_tree(path)) if isinstance(node, ast.ExceptHandler)]

    assert not [node.lineno for node in handlers if all(_does_nothing(statement) for statement in node.body)]


def _does_nothing(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Pass) or (isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant))


def test_the_architecture_page_names_every_module() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    tree = re.findall(r"```\n(.*?)```", page, re.DOTALL)[0]

    named = Counter(re.findall(r"\w+\.py", tree))
    modules = Counter(path.name for path in MODULES if path.name != "__init__.py")

    assert (modules - named, named - modules) == (Counter(), Counter()), "modules that the page leaves out, and names without a module"


def _patches(tree: ast.Module) -> Iterator[str]:
    """What a test replaces an attribute of: whatever pytest's `setattr` is given, and names that are imported from the product; mocks."""
    product: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            product |= {alias.asname or alias.name.split(".")[0] for alias in node.names if alias.name.split(".")[0] in PRODUCT}
        elif isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] in PRODUCT:
            product |= {alias.asname or alias.name for alias in node.names}
        if isinstance(node, (ast.Import, ast.ImportFrom)) and re.search(r"\bmock\b", ast.unparse(node)):
            yield ast.unparse(node)
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] in ("setattr", "delattr"):
            if isinstance(node.func, ast.Attribute) or _root_name(node.args[0]) in product:
                yield ast.unparse(node.args[0])
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, (ast.Store, ast.Del)) and _root_name(node) in product:
            yield ast.unparse(node)


def test_no_test_patches_the_product() -> None:
    """It gives arguments, or comes from outside: CONTRIBUTING.md. What is left is beside its reason in the test."""
    patched = {(_name(path), patch) for path in TESTS for patch in _patches(_tree(path))}
    assert patched == {("tests/maintenance/test_erase.py", "Path"), ("tests/conformance/bad_writer.py", "StandardKeyMetadata.generate")}


@pytest.mark.parametrize(
    "source",
    [
        "monkeypatch.setattr('tablecrypt.kms.aws.X', 1)",
        "def test(patch, table): patch.setattr(table, 'io', 1)",
        "from tablecrypt.kms import aws\naws.X = 1",
        "from tablecrypt_catalog.sql import EncryptedSqlCatalog as Catalog\nsetattr(Catalog, 'load_table', None)",
        "import tablecrypt.kms.aws\ndel tablecrypt.kms.aws.X",
        "from unittest import mock",
        "from unittest.mock import patch",
        "import unittest.mock as fake",
    ],
)
def test_the_look_for_patches_sees_every_way_to_make_one(source: str) -> None:
    assert list(_patches(ast.parse(source)))


def test_nothing_lies_at_the_top_by_accident() -> None:
    """A pin file, a lock or a log that a program left where it ran comes along with `git add --all`."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True, encoding="utf-8").stdout

    assert {name.partition("/")[0] for name in listed.split("\0") if name} == AT_THE_TOP


def test_no_work_is_left_open_in_the_tree() -> None:
    left = []
    for path in _own_files():
        if path.suffix not in TEXT_SUFFIXES and path.name not in TEXT_NAMES:
            continue
        lines = enumerate(path.read_text(encoding="utf-8").splitlines(), start=1)
        left += [f"{_name(path)}:{number}" for number, line in lines if WORK_LEFT_OPEN.search(line)]

    assert not left


def test_links_between_documents_lead_somewhere() -> None:
    broken = []
    for path in _own_files():
        if path.suffix != ".md":
            continue
        for target in MARKDOWN_LINK.findall(path.read_text(encoding="utf-8")):
            file, _, _ = target.partition("#")
            if file and "://" not in file and not file.startswith("mailto:") and not (path.parent / file).exists():
                broken.append(f"{_name(path)} → {target}")

    assert not broken
