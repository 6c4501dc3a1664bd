"""Which files of a project a file can affect, by what they import and which data they read.

A file is reached in as many steps as there are imports between: one for a direct import, none for the passage through the `__init__.py` of
a package, which only hands names on. Imports inside functions count. So do

- modules that are named in a string (`python -m tests.support.journeys`, `tablecrypt_catalog.EncryptedSqlCatalog`),
- fixtures: a test that takes one from a conftest.py reaches what the fixture uses, and not what other fixtures there do.

A file that is no module (a page, a vector, a Java source) affects the modules that name it or its folder in a string.
"""

from __future__ import annotations

import ast
import heapq
import itertools
import re
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import Final

import grimp

_DOTTED: Final = re.compile(r"[A-Za-z_]\w*(?:\.\w+)+")
_WORD: Final = re.compile(r"[^/\\\s*?\[\]{}'\"]+")


@dataclass(frozen=True)
class Source:
    """One module: its name, its file below the root, and its syntax tree."""

    name: str
    path: str
    tree: ast.Module = field(repr=False, compare=False)

    @property
    def is_package(self) -> bool:
        return self.path.endswith("/__init__.py")

    @cached_property
    def words(self) -> frozenset[str]:
        """What its strings are made of: names of folders and files among them. Docstrings do not count."""
        return frozenset(word for text in self.strings for word in _WORD.findall(text))

    @cached_property
    def strings(self) -> tuple[str, ...]:
        own = {id(node.value) for node in ast.walk(self.tree) if isinstance(node, ast.Expr)}
        constants = (node for node in ast.walk(self.tree) if isinstance(node, ast.Constant) and id(node) not in own)
        return tuple(node.value for node in constants if isinstance(node.value, str))

    @cached_property
    def arguments(self) -> frozenset[str]:
        """The names of all arguments of its functions, which are fixtures where it is a test, and strings for `usefixtures`."""
        functions = (node for node in ast.walk(self.tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))
        return frozenset(argument.arg for function in functions for argument in function.args.args) | self.words


class Reach:
    """The graph of a project.

    Args:
        root: the folder of the project.
        packages: the import name of each package, and where it lies below the root.
        tests: the one of them that the tests are in.
    """

    def __init__(self, root: Path, packages: Mapping[str, str], tests: str = "tests") -> None:
        self._tests = tests
        self._graph = _graph(root, packages)
        self.sources = {source.name: source for source in _sources(root, packages)}
        self._names = {source.path: source.name for source in self.sources.values()}
        self._importers = self._all_importers()

    def module(self, path: str) -> str | None:
        """The module in a file, if it has one."""
        return self._names.get(path)

    def modules_in(self, package: str) -> set[str]:
        """The modules that lie right in a package; none for a module that is no package."""
        return {name for name in self.sources if name.rpartition(".")[0] == package and self.sources[package].is_package}

    def plugins(self, conftest: str) -> set[str]:
        """The modules that a conftest.py names as strings."""
        return self._named(conftest) if conftest in self.sources else set()

    def readers(self, path: str) -> set[str]:
        """The modules that read a file that is no module, as far as their strings tell."""
        *folders, name = PurePosixPath(path).parts
        if name.endswith(".py") and self._beside("/".join(folders)):
            return set()  # a module that was removed: who imported it had to change too
        by_name = self._naming({name}) if "." in name or not folders else set()
        return by_name | self._readers_of_folder(folders)

    def _readers_of_folder(self, folders: list[str]) -> set[str]:
        """Vectors are read by who names `vectors` and the folder in it; data beside modules by those that name its folder, or by all of
        them; and any other folder by who names it."""
        if "vectors" in folders[:-1]:
            return self._naming({"vectors", folders[folders.index("vectors") + 1]})
        for depth in range(len(folders), 0, -1):
            beside = self._beside("/".join(folders[:depth]))
            if beside:
                return (self._naming(set(folders[depth : depth + 1])) & beside) or beside
        return {name for name in self._naming(set(folders[:1])) if self._is_test(name)} if folders else set()

    def _is_test(self, name: str) -> bool:
        """The library does not read what lies beside it, although its sentences may name it."""
        return name.partition(".")[0] == self._tests

    def _naming(self, words: set[str]) -> set[str]:
        return {source.name for source in self.sources.values() if words <= source.words | {*source.path.split("/")[:-1]}}

    def _beside(self, folder: str) -> set[str]:
        return {name for path, name in self._names.items() if path.rpartition("/")[0] == folder}

    def steps(self, modules: Iterable[str]) -> dict[str, int]:
        """How many steps away each module is that these can affect, these among them with 0."""
        found: dict[str, int] = {}
        waiting = [(0, name) for name in sorted(modules)]
        while waiting:
            steps, name = heapq.heappop(waiting)
            if name in found:
                continue
            found[name] = steps
            for importer in self._importers.get(name, ()):
                if importer not in found:
                    heapq.heappush(waiting, (steps + (not self.sources[importer].is_package), importer))
        return found

    def _all_importers(self) -> dict[str, set[str]]:
        importers: dict[str, set[str]] = defaultdict(set)
        for name in itertools.filterfalse(_is_conftest, self.sources):
            for imported in self._imported(name) | self._named(name):
                importers[imported].add(name)
        for name, used in self._fixtures_used():
            importers[used].add(name)
        return importers

    def _imported(self, name: str) -> set[str]:
        return self._graph.find_modules_directly_imported_by(name) if name in self._graph.modules else set()

    def _named(self, name: str) -> set[str]:
        """The modules that a string of this one names."""
        dotted = (match for text in self.sources[name].strings for match in _DOTTED.findall(text))
        return {module for each in dotted if (module := self._longest_module(each)) and module != name}

    def _longest_module(self, dotted: str) -> str | None:
        while dotted:
            if dotted in self.sources and "." in dotted:
                return dotted
            dotted = dotted.rpartition(".")[0]
        return None

    def _fixtures_used(self) -> Iterator[tuple[str, str]]:
        """Each module below a conftest.py, with each module that a fixture uses which it takes."""
        for conftest in filter(_is_conftest, self.sources):
            folder = self.sources[conftest].path.rpartition("/")[0]
            uses = _uses_of_fixtures(self.sources[conftest].tree)
            for name, source in self.sources.items():
                if not source.path.startswith(f"{folder}/") or name == conftest:
                    continue
                for fixture in uses.keys() & source.arguments:
                    yield from ((name, used) for used in uses[fixture] if used in self.sources)


def _is_conftest(name: str) -> bool:
    return name.rpartition(".")[2] == "conftest"


def _graph(root: Path, packages: Mapping[str, str]) -> grimp.ImportGraph:
    former = list(sys.path)
    sys.path[:0] = sorted({str((root / path).parent) for path in packages.values()})
    try:
        return grimp.build_graph(*packages, cache_dir=None)
    finally:
        sys.path[:] = former


def _sources(root: Path, packages: Mapping[str, str]) -> Iterator[Source]:
    for package, place in sorted(packages.items()):
        folder = root / place
        for path in sorted(folder.rglob("*.py")):
            parts = path.relative_to(folder).with_suffix("").parts
            name = ".".join([package, *(parts[:-1] if parts[-1] == "__init__" else parts)])
            yield Source(name, path.relative_to(root).as_posix(), ast.parse(path.read_bytes(), filename=str(path)))


def _uses_of_fixtures(conftest: ast.Module) -> dict[str, set[str]]:
    """For each function of a conftest.py, the modules that it and the functions among its arguments import."""
    outside = _imports(statement for statement in conftest.body if not isinstance(statement, ast.FunctionDef))
    functions = {node.name: node for node in conftest.body if isinstance(node, ast.FunctionDef)}
    own = {name: _used_by(function, outside) for name, function in functions.items()}

    def with_arguments(name: str, seen: frozenset[str]) -> set[str]:
        needed = {argument.arg for argument in functions[name].args.args} & functions.keys() - seen
        return own[name].union(*(with_arguments(each, seen | {name}) for each in needed))

    return {name: with_arguments(name, frozenset({name})) for name in functions}


def _used_by(function: ast.FunctionDef, outside: Mapping[str, str]) -> set[str]:
    names = {node.id for node in ast.walk(function) if isinstance(node, ast.Name)}
    return {module for name, module in outside.items() if name in names} | set(_imports(function.body).values())


def _imports(statements: Iterable[ast.stmt]) -> dict[str, str]:
    """The names that these statements import, each with the module that it comes from."""
    found: dict[str, str] = {}
    for statement in statements:
        for node in ast.walk(statement):
            if isinstance(node, ast.Import):
                found |= {alias.asname or alias.name.partition(".")[0]: alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                found |= {alias.asname or alias.name: node.module for alias in node.names}
    return found
