"""What tablecrypt uses of PyIceberg without its promise, read from our source, with the signatures of the installed release.

Three kinds of names count: private ones, what modules without documentation offer (`INTERNAL`), and every method of PyIceberg that a class
of ours overrides. A name that a release no longer has is `gone`.

    python -m tests.support.pyiceberg_surface              prints the surface: tests/vectors/pyiceberg/surface.txt records it
    python -m tests.support.pyiceberg_surface --changes    prints what the installed release changed of what is recorded
"""

from __future__ import annotations

import ast
import importlib
import inspect
import pkgutil
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from enum import EnumMeta
from functools import cache
from importlib.metadata import version
from pathlib import Path
from types import GenericAlias
from typing import Any, Final

ROOT: Final = Path(__file__).parents[2]
SOURCES: Final = tuple(sorted(path for package in ("tablecrypt", "catalog") for path in (ROOT / package).rglob("*.py")))
RECORD: Final = ROOT / "tests" / "vectors" / "pyiceberg" / "surface.txt"
INTERNAL: Final = re.compile(
    r"pyiceberg\.(avro|conversions|expressions\.(literals|visitors)|io\.(fileformat|fsspec|pyarrow)|manifest|serializers"
    r"|catalog\.rest\.\w+|table\.(inspect|locations|maintenance|name_mapping|update)|utils)\b"
)
# Of the names with two underscores those that no decorator and no metaclass makes.
_ELSEWHERE: Final = ("tablecrypt.daft", "tablecrypt.ray", "tablecrypt_catalog.at_start")
"""Daft and Ray are in environments of their own, and what begins a process would begin this one again."""

WRITTEN_BY_HAND: Final = {"__init__", "__enter__", "__exit__", "__len__"}
GONE: Final = "gone"


def surface() -> dict[str, str]:
    """Return what is used and its signature, sorted by name."""
    return installed(sorted({*_imported(), *_of_instances(), *_overridden()}))


def installed(names: Iterable[str]) -> dict[str, str]:
    """Return the signatures that the installed release gives to names, whether our own modules can be imported beside it or not."""
    return {name: _described(name) for name in names}


def _trees() -> Iterator[ast.Module]:
    yield from (ast.parse(path.read_text(encoding="utf-8"), str(path)) for path in SOURCES)


def _is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


def _imported() -> Iterator[str]:
    """Private names that are imported, and any name that comes from an internal module."""
    for tree in _trees():
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "pyiceberg":
                yield from (
                    f"{node.module}.{alias.name}" for alias in node.names if _is_private(alias.name) or INTERNAL.match(node.module or "")
                )


def _own_names() -> set[str]:
    """Private names that our own code binds: an attribute of such a name is taken for ours, unless a class of ours inherits it."""
    own = set()
    for tree in _trees():
        for node in ast.walk(tree):
            if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
                own.add(node.name)
            elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                own.add(node.target.id)
            elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
                own.add(node.attr)
            elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.isidentifier():
                own.add(node.value)
    return own


def _of_instances() -> Iterator[str]:
    """Private attributes of PyIceberg's objects, each under the class that defines it."""
    own = _own_names()
    used = {node.attr for tree in _trees() for node in ast.walk(tree) if isinstance(node, ast.Attribute) and _is_private(node.attr)}
    ancestors = {ancestor for ours in _own_classes() for ancestor in _foreign_ancestors(ours)}
    for owner in _pyiceberg_classes():
        defined = _defined_names(owner)
        yield from (_name_of(owner, name) for name in defined & used if name not in own or owner in ancestors)


def _overridden() -> Iterator[str]:
    """What PyIceberg's classes define and ours define again."""
    for ours in _own_classes():
        for name in (
            name for name in vars(ours) if name in WRITTEN_BY_HAND or not name.startswith(("__", "_abc_", "_is_protocol", "model_"))
        ):
            definers = [ancestor for ancestor in _foreign_ancestors(ours) if name in vars(ancestor)]
            if definers:
                yield _name_of(definers[0], name)


def _foreign_ancestors(ours: type) -> list[type]:
    return [ancestor for ancestor in ours.__mro__[1:] if ancestor.__module__.partition(".")[0] == "pyiceberg"]


def _own_classes() -> list[type]:
    found = {}
    for package in ("tablecrypt", "tablecrypt_catalog"):
        for module in pkgutil.walk_packages(importlib.import_module(package).__path__, f"{package}."):
            if not module.name.endswith("__main__") and not module.name.startswith(_ELSEWHERE):
                found.update(_classes_of(importlib.import_module(module.name)))
    return list(found.values())


def _pyiceberg_classes() -> list[type]:
    """The classes of every module of PyIceberg that our source imports from."""
    modules = {
        node.module
        for tree in _trees()
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module and node.module.partition(".")[0] == "pyiceberg"
    }
    found: dict[str, type] = {}
    for module in modules:
        found.update(_classes_of(importlib.import_module(module)))
    return list(found.values())


def _classes_of(module: Any) -> dict[str, type]:
    """The classes that a module's source defines: none that pydantic makes for a generic model's parameters."""
    named = (thing for name, thing in vars(module).items() if inspect.isclass(thing) and thing.__name__ == name)
    mine = (thing for thing in named if thing.__module__ == module.__name__)
    return {f"{thing.__module__}.{thing.__qualname__}": thing for thing in mine}


def _defined_names(owner: type) -> set[str]:
    """What a class defines by itself: methods, annotations, and attributes that its methods set."""
    definition = _class_definitions(owner.__module__).get(owner.__name__)
    stored = {
        node.attr
        for node in ast.walk(definition or ast.Module([], []))
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)
    }
    return stored | vars(owner).keys() | inspect.get_annotations(owner).keys()


@cache
def _class_definitions(module: str) -> dict[str, ast.ClassDef]:
    tree = ast.parse(inspect.getsource(importlib.import_module(module)))
    return {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}


def _name_of(owner: type, name: str) -> str:
    return f"{owner.__module__}.{owner.__qualname__}.{name}"


def _described(name: str) -> str:
    """Return what the installed release has under a dotted name: a signature, a kind, or `gone`."""
    owner: Any = None
    thing: Any = None
    parts = name.split(".")
    for cut in range(len(parts) - 1, 0, -1):
        try:
            thing = importlib.import_module(".".join(parts[:cut]))
        except ModuleNotFoundError:
            continue
        break
    for part in parts[cut:]:
        owner = thing
        if inspect.isclass(owner) and part not in dir(owner):
            return "attribute" if part in _defined_names(owner) else GONE
        thing = inspect.getattr_static(owner, part, GONE)
        if thing is GONE:
            return GONE
    return _signature(thing)


def _signature(thing: Any) -> str:
    if isinstance(thing, (staticmethod, classmethod)):
        return f"{type(thing).__name__} {_signature(thing.__func__)}"
    if isinstance(thing, property) or type(thing).__name__ == "cached_property":
        return "property"
    if not callable(thing):
        return type(thing).__name__
    if isinstance(thing, EnumMeta):
        return "enum " + ", ".join(thing.__members__)
    return ("class " if inspect.isclass(thing) else "") + _parameters(thing)


def _parameters(thing: Any) -> str:
    """Return the parameters without annotations, whose text depends on the version of Python."""
    # Of tuple[…], for which Python 3.13 has a signature and earlier ones have none.
    if isinstance(thing, GenericAlias):
        return "(…)"
    try:
        parameters = inspect.signature(thing).parameters.values()
    except ValueError:
        return "(…)"
    return "(" + ", ".join(_parameter(each) for each in parameters) + ")"


def _parameter(each: inspect.Parameter) -> str:
    stars = "*" if each.kind is inspect.Parameter.VAR_POSITIONAL else "**" if each.kind is inspect.Parameter.VAR_KEYWORD else ""
    if each.default is inspect.Parameter.empty:
        return stars + each.name
    plain = each.default is None or isinstance(each.default, (bool, int, str))
    return f"{each.name}={each.default!r}" if plain else f"{each.name}=…"


def recorded() -> dict[str, str]:
    """Return the surface as it was when somebody last looked at it."""
    lines = RECORD.read_text(encoding="utf-8").splitlines()
    return dict(line.split(maxsplit=1) for line in lines if not line.startswith("#"))


def differences(before: Mapping[str, str], after: Mapping[str, str]) -> str:
    """Return a table of the names whose signatures differ, three lines for each; empty for none."""
    names = sorted(before.items() ^ after.items())
    rows = {name: (before.get(name, "-"), after.get(name, "-")) for name, _ in names}
    return "\n".join(f"{name}\n    recorded   {was}\n    installed  {now}" for name, (was, now) in rows.items())


def _main(changes: bool) -> str:
    if changes:
        return differences(recorded(), installed(recorded())) or f"PyIceberg {version('pyiceberg')} has every name as it is recorded."
    lines = [f"{name}  {signature}" for name, signature in surface().items()]
    return "\n".join([f"# PyIceberg {version('pyiceberg')}, written by python -m tests.support.pyiceberg_surface", *lines])


if __name__ == "__main__":
    sys.stdout.write(_main("--changes" in sys.argv) + "\n")
