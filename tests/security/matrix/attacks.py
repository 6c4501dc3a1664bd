"""The attacks, as data: who does it, to what, how, and the function that does it.

    file_attacks        every data file, deletion vector, manifest and manifest list: each way to damage or exchange a file
    document_attacks    metadata.json as a file: cut, emptied, older, another table's, made that of a plain table
    field_attacks       every field of metadata.json, found by walking it: dropped, changed, of another kind, exchanged
    catalog_attacks     the catalog's row and its pins
    kms_attacks         what the key service answers to a request to unwrap
    server_attacks      what a REST server sends beside the metadata; the metadata in its answers is attacked as that in storage

Who knew a KEK that was replaced has a module of his own (holder.py).

A field that a later version of the format adds is attacked without a word here, as long as the table of the scene has it.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from tablecrypt.maintenance.reachable import FileKind, ReachableFile
from tablecrypt.properties import registered
from tablecrypt_catalog.pins.sql import PINS
from tests.security.matrix.saved import SavedFolder
from tests.security.matrix.scene import NAME, OTHER, Scene, forged
from tests.support.lying_rest_server import LyingRestServer
from tests.support.misleading_kms import ANSWERS, Answer, MisleadingKeyManagementClient

Path = tuple[str | int, ...]
METADATA: Final = "metadata.json"


@dataclass(frozen=True)
class Attack:
    """One attack.

    Attributes:
        attacker: who does it: storage, catalog, REST server, KMS, former key holder.
        target: the kind of object, or the field with its indices left out.
        how: what is done to it.
        which: which one of them it is.
        act: does it to a scene.
    """

    attacker: str
    target: str
    how: str
    which: str
    act: Callable[[Any], object]

    @property
    def is_on_file(self) -> bool:
        """Whether it changes a file that a snapshot leads to."""
        return self.target in set(FileKind)

    @property
    def is_on_metadata(self) -> bool:
        """Whether it changes the current metadata file in its place."""
        return self.target.startswith(METADATA)


def file_attacks(scene: Scene) -> Iterator[Attack]:
    """Every way to damage or exchange, for every file that a snapshot leads to."""
    for number, file in enumerate(scene.files):
        content, at = scene.saved(file.location), file.location
        neighbour = _next_of_its_kind(scene.files, file)
        foreign = next(each for each in scene.other_files if each.kind == file.kind)
        replacements = {
            "cut by a byte": content[:-1],
            "cut in half": content[: len(content) // 2],
            "grown by a byte": content + b"\0",
            "grown by its own end": content + content[-100:],
            "emptied": b"",
            "replaced by plaintext": scene.plaintext[at],
            "replaced by another table's": scene.saved(foreign.location),
            **{f"a byte changed, {name}": _flipped(content, offset) for name, offset in _offsets(content)},
        }
        if neighbour is not None:
            replacements["replaced by a neighbour"] = scene.saved(neighbour.location)
        for how, replacement in replacements.items():
            yield Attack("storage", file.kind, how, str(number), _writes(at, replacement))
        yield Attack("storage", file.kind, "deleted", str(number), _removes(at))
        if neighbour is not None:
            yield Attack("storage", file.kind, "exchanged with a neighbour", str(number), _exchanges(at, neighbour.location))


def document_attacks(scene: Scene) -> Iterator[Attack]:
    """metadata.json as a file."""
    content = scene.saved(scene.pointer)
    replacements = {
        "cut in half": content[: len(content) // 2],
        "grown by garbage": content + b"}",
        "emptied": b"",
        "replaced by no JSON": b"\x93NUMPY\xff\xfe",
        "replaced by another value": b"[]",
        "replaced by an empty object": b"{}",
        "replaced by another table's": scene.saved(scene.other_pointer),
        "an unknown field added": content[:-1] + b',"unknown":{"a":1}}',
        "a field given twice": content[:-1] + b',"current-snapshot-id":-1}',
    }
    for how, replacement in replacements.items():
        yield Attack("storage", METADATA, how, "", _writes(scene.pointer, replacement))
    for number, older in enumerate(scene.earlier_metadata()):
        yield Attack("storage", METADATA, "replaced by an older one", str(number), _writes(scene.pointer, scene.saved(older)))
    for number in range(200):
        flipped = _flipped(content, number * len(content) // 200)
        yield Attack("storage", METADATA, "a byte changed", str(number), _writes(scene.pointer, flipped))
    for number, snapshot in enumerate(scene.metadata["snapshots"]):
        yield Attack("storage", METADATA, "rolled back", str(number), _edits(partial(_set_head, snapshot_id=snapshot["snapshot-id"])))
    yield Attack("storage", METADATA, "deleted", "", _removes(scene.pointer))
    yield Attack("storage", METADATA, "made that of a plain table", "", _make_plain)


def field_attacks(scene: SavedFolder, attacker: str = "storage") -> Iterator[Attack]:
    """Every field of metadata.json, and every element of its lists."""
    metadata = scene.metadata
    for path, value in walk(metadata):
        target, which = f"{METADATA}: {pattern(path)}", "/".join(map(str, path))

        def attack(how: str, edit: Callable[[dict[str, Any]], object], target: str = target, which: str = which) -> Attack:
            return Attack(attacker, target, how, which, _edits(edit))

        yield attack("dropped", partial(_drop, path=path))
        for how, other in _changed(value):
            yield attack(how, partial(_put, path=path, value=other))
        for how, sibling in _siblings(metadata, path, value):
            yield attack(how, partial(_exchange, one=path, other=sibling))


def catalog_attacks(scene: Scene) -> Iterator[Attack]:
    """The pointer to the current metadata file, alone and with the pins beside it; and each column of the pins."""
    pointers = {f"older metadata {number}": older for number, older in enumerate(scene.earlier_metadata())}
    pointers |= {
        "another table's metadata": scene.other_pointer,
        "a file that is not there": f"{scene.pointer}.none",
        "a data file": scene.files[-1].location,
        "a file of the system": "file:///etc/passwd",
        "a folder": f"file://{scene.folder}",
        "nothing": "",
        "a host": "http://127.0.0.1:9/metadata.json",
        "no location": "\0",
    }
    for which, location in pointers.items():
        target = "pointer to metadata.json"
        yield Attack("catalog", target, f"to {which.rstrip('0123456789 ')}", which, _points(location))
        yield Attack(
            "catalog", target, f"to {which.rstrip('0123456789 ')}, and the pins removed", which, _points(location, remove_pins=True)
        )
    both = "exchanged with another table's, and the pins too"
    yield Attack("catalog", "pointer to metadata.json", "exchanged with another table's", "", _exchange_pointers)
    yield Attack("catalog", "pointer to metadata.json", both, "", _exchange_names)
    for column in PIN_COLUMNS:
        for how, value in (("emptied", ""), ("null", None), ("changed", "9"), ("garbage", "{[")):
            yield Attack("catalog", f"pin: {column}", how, "", _sets_pin(column, value))
    yield Attack("catalog", "pin", "removed", "", _remove_pins)


def kms_attacks(scene: Scene) -> Iterator[Attack]:
    """What the key service answers to a request to unwrap."""
    for how, answer in ANSWERS.items():
        yield Attack("KMS", "answer to unwrap", how, "", _answers(answer))


def server_attacks(scene: Scene, server: LyingRestServer) -> Iterator[Attack]:
    """Every property that is known here, set by the server: for all of its tables, and for the one that is loaded."""
    names = sorted({each.name for each in registered()} | {"header.Authorization", "scan-planning-mode", "no-such-property"})
    for sent, target in ((server.overrides, "configuration"), (server.config, "configuration of a table")):
        for name in names:
            for how, value in (("names a host", "http://127.0.0.1:9/"), ("names code", "builtins.exec"), ("a word", "server")):
                yield Attack("REST server", target, how, name, _sends(sent, name, value))


PIN_COLUMNS: Final = tuple(column.name for column in PINS.columns if not column.primary_key)


def walk(value: object, path: Path = ()) -> Iterator[tuple[Path, Any]]:
    """Every field and element below a value, with its path."""
    children: Iterable[tuple[str | int, Any]] = ()
    if isinstance(value, dict):
        children = value.items()
    elif isinstance(value, list):
        children = enumerate(value)
    for name, child in children:
        yield (*path, name), child
        yield from walk(child, (*path, name))


def pattern(path: Path) -> str:
    """A path without the indices in it: "snapshots[].summary.operation"."""
    return "".join("[]" if isinstance(step, int) else f".{step}" for step in path).removeprefix(".")


def _changed(value: object) -> Iterator[tuple[str, object]]:
    if isinstance(value, bool):
        yield "changed", not value
    elif isinstance(value, int):
        yield "changed", value + 1
        yield "lowered", value - 1
        yield "made huge", 2**70
    elif isinstance(value, str):
        yield "changed", value[:-1] + ("A" if value[-1:] != "A" else "B")
        yield "emptied", ""
    elif isinstance(value, dict | list):
        yield "emptied", type(value)()
    if value is not None:
        yield "null", None
    yield "of another kind", [value] if not isinstance(value, list) else {"value": value}


def _siblings(metadata: dict[str, Any], path: Path, value: object) -> Iterator[tuple[str, Path]]:
    """The next field or element of the same kind beside a field, and the same field of the next element."""
    *above, name = path
    parent = _get(metadata, tuple(above))
    beside = list(parent) if isinstance(parent, dict) else list(range(len(parent)))
    for other in beside[beside.index(name) + 1 :]:
        if type(parent[other]) is type(value):
            yield "exchanged with its sibling", (*above, other)
            break
    for depth in range(len(above) - 1, -1, -1):
        step = path[depth]
        if isinstance(step, int):
            cousin = (*path[:depth], step + 1, *path[depth + 1 :])
            if _has(metadata, cousin):
                yield "exchanged with its neighbour's", cousin
            break


def _get(metadata: Any, path: Path) -> Any:
    for step in path:
        metadata = metadata[step]
    return metadata


def _has(metadata: Any, path: Path) -> bool:
    try:
        _get(metadata, path)
    except (KeyError, IndexError, TypeError):
        # Beside a struct a column may have a type that is a word.
        return False
    return True


def _put(metadata: Any, path: Path, value: object) -> None:
    _get(metadata, path[:-1])[path[-1]] = value


def _drop(metadata: Any, path: Path) -> None:
    del _get(metadata, path[:-1])[path[-1]]


def _exchange(metadata: Any, one: Path, other: Path) -> None:
    first, second = _get(metadata, one), _get(metadata, other)
    _put(metadata, one, second)
    _put(metadata, other, first)


def _set_head(metadata: dict[str, Any], snapshot_id: int) -> None:
    """Point `main` to another snapshot, with the log of it that such a commit writes."""
    metadata["current-snapshot-id"] = metadata["refs"]["main"]["snapshot-id"] = snapshot_id
    metadata["snapshot-log"].append({"snapshot-id": snapshot_id, "timestamp-ms": metadata["last-updated-ms"]})


def _edits(edit: Callable[[dict[str, Any]], object]) -> Callable[[SavedFolder], None]:
    def act(scene: SavedFolder) -> None:
        metadata = copy.deepcopy(scene.metadata)
        edit(metadata)
        scene.write_metadata(metadata)

    return act


def _writes(location: str, content: bytes) -> Callable[[Scene], None]:
    return lambda scene: scene.write(location, content)


def _removes(location: str) -> Callable[[Scene], None]:
    return lambda scene: scene.remove(location)


def _exchanges(one: str, other: str) -> Callable[[Scene], None]:
    def act(scene: Scene) -> None:
        scene.write(one, scene.saved(other))
        scene.write(other, scene.saved(one))

    return act


def _points(location: str, remove_pins: bool = False) -> Callable[[Scene], None]:
    def act(scene: Scene) -> None:
        scene.point(location, NAME)
        if remove_pins:
            _remove_pins(scene)

    return act


def _exchange_pointers(scene: Scene) -> None:
    scene.point(scene.other_pointer, NAME)
    scene.point(scene.pointer, OTHER)


def _exchange_names(scene: Scene) -> None:
    for table in ("iceberg_tables", "tablecrypt_pins"):
        for old, new in ((NAME, "db.between"), (OTHER, NAME), ("db.between", OTHER)):
            scene.execute(f"UPDATE {table} SET table_name = ? WHERE table_name = ?", new.partition(".")[2], old.partition(".")[2])


def _remove_pins(scene: Scene) -> None:
    scene.execute("DELETE FROM tablecrypt_pins")


def _sets_pin(column: str, value: object) -> Callable[[Scene], None]:
    return lambda scene: scene.execute(f"UPDATE OR IGNORE tablecrypt_pins SET {column} = ? WHERE table_name = 'orders'", value)


def _answers(answer: Answer) -> Callable[[Scene], None]:
    def act(scene: Scene) -> None:
        MisleadingKeyManagementClient.answer = answer
        scene.undo.append(lambda: setattr(MisleadingKeyManagementClient, "answer", None))

    return act


def _sends(sent: dict[str, str], name: str, value: str) -> Callable[[Scene], None]:
    def act(scene: Scene) -> None:
        sent[name] = value
        scene.undo.append(sent.clear)

    return act


def _make_plain(scene: Scene) -> None:
    """Every file in the clear, and no word of keys: what an encrypted table looks like that never was one."""
    for file in scene.files:
        content = scene.plaintext[file.location]
        scene.write(file.location, forged(content) if file.kind == FileKind.DATA else content)
    metadata = copy.deepcopy(scene.metadata)
    del metadata["encryption-keys"], metadata["properties"]["encryption.key-id"]
    for snapshot in metadata["snapshots"]:
        del snapshot["key-id"]
    scene.write_metadata(metadata)


def _next_of_its_kind(files: tuple[ReachableFile, ...], file: ReachableFile) -> ReachableFile | None:
    kin = [each for each in files if each.kind == file.kind]
    return kin[(kin.index(file) + 1) % len(kin)] if len(kin) > 1 else None


def _offsets(content: bytes) -> list[tuple[str, int]]:
    places = {
        "in its magic": 0,
        "in its block length": 5,
        "in its first nonce": 9,
        "in its first block": 40,
        "at its end": len(content) - 1,
    }
    places |= {"in the middle": len(content) // 2, "in its footer": len(content) - 30, "before its end": len(content) - 6}
    return [(name, offset) for name, offset in places.items() if 0 <= offset < len(content)]


def _flipped(content: bytes, offset: int) -> bytes:
    return content[:offset] + bytes([content[offset] ^ 1]) + content[offset + 1 :]
