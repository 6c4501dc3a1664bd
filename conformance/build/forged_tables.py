"""Tables that somebody changed who can write storage and has no key. Readers have to refuse every one."""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from conformance.build.tables import AGS1, DELETES, HIERARCHY, KEY_LENGTHS, RECIPES, SNAPSHOTS, Recipe, rows
from conformance.verdicts import ROOT
from tablecrypt.table.table import EncryptedTable
from tests.support.tables import current_snapshot
from tests.support.uniform_files import downgraded

PARQUET: Final = "Parquet Modular Encryption, 4.4 AAD and 5 file format; Iceberg: key_metadata of each file"
BEYOND: Final = ("metadata-checks",)
"""Of what the specification asks nobody: metadata.json is not authenticated, but what it says can be compared with what is."""
_HEADER: Final = 8
_SPEC_OF: Final = {recipe.name: recipe for recipe in RECIPES}


@dataclass(frozen=True)
class Scene:
    """A table and its neighbour, of the same schema and master key, as files of the kit."""

    kit: Path
    table: EncryptedTable
    neighbour: EncryptedTable

    def path(self, location: str) -> Path:
        return self.kit / location.removeprefix(f"file://{ROOT}/")

    def data(self, table: EncryptedTable | None = None) -> list[Path]:
        """Data files, in the order of their names."""
        return sorted(self.path(task.file.file_path) for task in (table or self.table).scan().plan_files())

    def deletes(self) -> Path:
        """The one delete file."""
        (path,) = {self.path(each.file_path) for task in self.table.scan().plan_files() for each in task.delete_files}
        return path

    def manifests(self, table: EncryptedTable | None = None) -> list[Path]:
        chosen = table or self.table
        return sorted(self.path(each.manifest_path) for each in current_snapshot(chosen).manifests(chosen.io))

    def manifest_list(self, table: EncryptedTable | None = None) -> Path:
        return self.path(current_snapshot(table or self.table).manifest_list)

    def older_list(self) -> Path:
        return self.path(self.table.snapshots()[0].manifest_list)

    def edit(self, edit: Callable[[dict[str, Any]], object]) -> None:
        path = self.path(self.table.metadata_location)
        metadata = json.loads(path.read_text())
        edit(metadata)
        path.write_text(json.dumps(metadata))


_OF_METADATA: Final = ("manifest", "list-", "snapshot-", "kek-", "key-id-", "column-names-")


@dataclass(frozen=True)
class Forgery:
    """One change, and the classes of refusal that fit it."""

    name: str
    clause: str
    refusal: tuple[str, ...]
    forge: Callable[[Scene], object]
    recipe: str = "appends"
    key_lengths: tuple[int, ...] = (16,)
    needs: tuple[str, ...] = ()

    @property
    def forged(self) -> str:
        """What a reader has to open to find it: metadata.json with its lists and manifests, or a data or delete file."""
        return "metadata" if self.name.startswith(_OF_METADATA) else "content"


def flip(path: Path, offset: int) -> None:
    data = bytearray(path.read_bytes())
    data[offset] ^= 1
    path.write_bytes(data)


def exchange(one: Path, other: Path) -> None:
    contents = one.read_bytes(), other.read_bytes()
    one.write_bytes(contents[1])
    other.write_bytes(contents[0])


def cut(path: Path, length: int) -> None:
    path.write_bytes(path.read_bytes()[:length])


def lengthen(path: Path) -> None:
    path.write_bytes(path.read_bytes() + bytes(16))


def replace_by(path: Path, other: Path) -> None:
    path.write_bytes(other.read_bytes())


def _block_length(path: Path) -> None:
    data = path.read_bytes()
    path.write_bytes(data[:4] + (65536).to_bytes(4, "little") + data[_HEADER:])


def _plain_parquet(path: Path) -> None:
    sink = pa.BufferOutputStream()
    pq.write_table(rows(0), sink)
    path.write_bytes(sink.getvalue().to_pybytes())


def _plain_of(scene: Scene, path: Path) -> None:
    """Put the plaintext of an AGS1 file in its place, as a writer would leave it that does not encrypt."""
    key = next(each for each in _keys(scene) if each[0] == path)[1]
    path.write_bytes(_decrypted(path, key))


def _keys(scene: Scene) -> list[tuple[Path, Any]]:
    from tablecrypt.crypto.key_metadata import StandardKeyMetadata

    manifests = current_snapshot(scene.table).manifests(scene.table.io)
    found = [(scene.path(each.manifest_path), StandardKeyMetadata.decode(each.key_metadata)) for each in manifests if each.key_metadata]
    for task in scene.table.scan().plan_files():
        for file in (task.file, *task.delete_files):
            assert file.key_metadata is not None
            found.append((scene.path(file.file_path), StandardKeyMetadata.decode(file.key_metadata)))
    return found


def _decrypted(path: Path, key: Any) -> bytes:
    from tablecrypt.files.ags1_streams import Ags1InputStream

    data = path.read_bytes()
    import io

    return bytes(Ags1InputStream(io.BytesIO(data), key, str(path), len(data)).read())


def _downgrade(path: Path) -> None:
    path.write_bytes(downgraded(path.read_bytes()))


def _plain_magic(path: Path) -> None:
    path.write_bytes(b"PAR1" + path.read_bytes()[4:])


def _newest(metadata: dict[str, Any]) -> dict[str, Any]:
    return next(each for each in metadata["snapshots"] if each["snapshot-id"] == metadata["current-snapshot-id"])


def _kek(metadata: dict[str, Any]) -> dict[str, Any]:
    return next(each for each in metadata["encryption-keys"] if each.get("properties"))


def _list_key(metadata: dict[str, Any]) -> dict[str, Any]:
    return next(each for each in metadata["encryption-keys"] if each["key-id"] == _newest(metadata)["key-id"])


def flip_entry(entry: dict[str, Any]) -> None:
    """Of `encryption-keys`: change a bit of the wrapped key."""
    data = bytearray(b64decode(entry["encrypted-key-metadata"]))
    data[-1] ^= 1
    entry["encrypted-key-metadata"] = b64encode(bytes(data)).decode()


def _other_snapshots_key(metadata: dict[str, Any]) -> None:
    _newest(metadata)["key-id"] = metadata["snapshots"][0]["key-id"]


def _older_list_named(metadata: dict[str, Any]) -> None:
    older = metadata["snapshots"][0]
    _newest(metadata).update({"manifest-list": older["manifest-list"], "key-id": older["key-id"]})


def _swap_names(metadata: dict[str, Any]) -> None:
    fields = metadata["schemas"][-1]["fields"]
    fields[1]["name"], fields[2]["name"] = fields[2]["name"], fields[1]["name"]


FORGERIES: Final = [
    Forgery("data-file-flipped-bit", PARQUET, ("tampered",), lambda at: flip(at.data()[0], 120), key_lengths=KEY_LENGTHS),
    Forgery("data-files-exchanged", PARQUET, ("tampered",), lambda at: exchange(*at.data()), key_lengths=KEY_LENGTHS),
    Forgery("data-file-plaintext", PARQUET, ("plaintext", "tampered"), lambda at: _plain_parquet(at.data()[0]), key_lengths=KEY_LENGTHS),
    Forgery("data-file-cipher-renamed", PARQUET, ("tampered",), lambda at: _downgrade(at.data()[0]), key_lengths=KEY_LENGTHS),
    Forgery("data-file-cipher-renamed-uncompressed", PARQUET, ("tampered",), lambda at: _downgrade(at.data()[0]), "uncompressed"),
    Forgery(
        "data-file-cipher-renamed-required-columns",
        PARQUET,
        ("tampered",),
        lambda at: _downgrade(at.data()[0]),
        "uncompressed-required-columns",
    ),
    Forgery("data-file-of-a-neighbour", PARQUET, ("tampered",), lambda at: replace_by(at.data()[0], at.data(at.neighbour)[0])),
    Forgery("data-file-cut", PARQUET, ("tampered", "format"), lambda at: cut(at.data()[0], -1)),
    Forgery("data-file-lengthened", PARQUET, ("tampered", "format"), lambda at: lengthen(at.data()[0])),
    Forgery("data-file-begins-as-plaintext", PARQUET, ("tampered",), lambda at: _plain_magic(at.data()[0])),
    Forgery("data-file-empty", PARQUET, ("tampered", "format"), lambda at: cut(at.data()[0], 0)),
    Forgery("data-file-missing", PARQUET, ("missing",), lambda at: at.data()[0].unlink()),
    Forgery("manifest-flipped-bit", AGS1, ("tampered",), lambda at: flip(at.manifests()[0], 60), key_lengths=KEY_LENGTHS),
    Forgery("manifests-exchanged", AGS1, ("tampered",), lambda at: exchange(*at.manifests()), key_lengths=KEY_LENGTHS),
    Forgery("manifest-plaintext", AGS1, ("plaintext", "tampered"), lambda at: _plain_of(at, at.manifests()[0])),
    Forgery("manifest-of-a-neighbour", AGS1, ("tampered",), lambda at: replace_by(at.manifests()[0], at.manifests(at.neighbour)[0])),
    Forgery("manifest-cut-at-a-block", AGS1, ("tampered", "format"), lambda at: cut(at.manifests()[0], _HEADER)),
    Forgery("manifest-cut", AGS1, ("tampered", "format"), lambda at: cut(at.manifests()[0], -1)),
    Forgery("manifest-lengthened", AGS1, ("tampered", "format"), lambda at: lengthen(at.manifests()[0])),
    Forgery("manifest-other-block-length", AGS1, ("tampered", "format"), lambda at: _block_length(at.manifests()[0])),
    Forgery("list-flipped-bit", AGS1, ("tampered",), lambda at: flip(at.manifest_list(), 60), key_lengths=KEY_LENGTHS),
    Forgery("list-of-an-older-snapshot", SNAPSHOTS, ("tampered",), lambda at: replace_by(at.manifest_list(), at.older_list())),
    Forgery("list-of-a-neighbour", SNAPSHOTS, ("tampered",), lambda at: replace_by(at.manifest_list(), at.manifest_list(at.neighbour))),
    Forgery("list-cut-at-a-block", AGS1, ("tampered", "format"), lambda at: cut(at.manifest_list(), _HEADER)),
    Forgery("list-cut", AGS1, ("tampered", "format"), lambda at: cut(at.manifest_list(), -1)),
    Forgery("list-empty", AGS1, ("tampered", "format"), lambda at: cut(at.manifest_list(), 0)),
    Forgery("list-other-block-length", AGS1, ("tampered", "format"), lambda at: _block_length(at.manifest_list())),
    Forgery("snapshot-without-key", SNAPSHOTS, ("plaintext",), lambda at: at.edit(lambda each: _newest(each).pop("key-id"))),
    Forgery("snapshot-with-anothers-key", SNAPSHOTS, ("tampered",), lambda at: at.edit(_other_snapshots_key)),
    Forgery("snapshot-names-an-older-list", SNAPSHOTS, ("tampered",), lambda at: at.edit(_older_list_named), needs=BEYOND),
    Forgery("kek-missing", HIERARCHY, ("key",), lambda at: at.edit(lambda each: each["encryption-keys"].remove(_kek(each)))),
    Forgery("list-key-missing", HIERARCHY, ("key",), lambda at: at.edit(lambda each: each["encryption-keys"].remove(_list_key(each)))),
    Forgery("kek-flipped-bit", HIERARCHY, ("tampered",), lambda at: at.edit(lambda each: flip_entry(_kek(each))), key_lengths=KEY_LENGTHS),
    Forgery(
        "list-key-flipped-bit",
        HIERARCHY,
        ("tampered",),
        lambda at: at.edit(lambda each: flip_entry(_list_key(each))),
        key_lengths=KEY_LENGTHS,
    ),
    Forgery(
        "kek-timestamp-changed",
        HIERARCHY,
        ("tampered",),
        lambda at: at.edit(lambda each: _kek(each)["properties"].update(KEY_TIMESTAMP="1")),
    ),
    Forgery("key-id-removed", HIERARCHY, ("key-id",), lambda at: at.edit(lambda each: each["properties"].pop("encryption.key-id"))),
    Forgery("column-names-swapped", HIERARCHY, ("tampered",), lambda at: at.edit(_swap_names), needs=BEYOND),
    *(
        Forgery(
            f"{kind}-flipped-bit",
            DELETES,
            ("tampered",),
            lambda at: flip(at.deletes(), 60),
            kind,
            KEY_LENGTHS if kind == "deletion-vectors" else (16,),
        )
        for kind in ("deletion-vectors", "position-deletes", "equality-deletes")
    ),
    *(
        Forgery(f"{kind}-missing", DELETES, ("missing",), lambda at: at.deletes().unlink(), kind)
        for kind in ("deletion-vectors", "position-deletes", "equality-deletes")
    ),
    Forgery("deletion-vectors-plaintext", DELETES, ("plaintext", "tampered"), lambda at: _plain_of(at, at.deletes()), "deletion-vectors"),
    Forgery("deletion-vectors-cut-at-a-block", DELETES, ("tampered", "format"), lambda at: cut(at.deletes(), _HEADER), "deletion-vectors"),
    *(
        Forgery(f"{kind}-plaintext", DELETES, ("plaintext", "tampered"), lambda at: _plain_parquet(at.deletes()), kind)
        for kind in ("position-deletes", "equality-deletes")
    ),
    *(
        Forgery(f"{kind}-cipher-renamed", DELETES, ("tampered",), lambda at: _downgrade(at.deletes()), kind)
        for kind in ("position-deletes", "equality-deletes")
    ),
    Forgery("avro-data-flipped-bit", AGS1, ("tampered",), lambda at: flip(_avro(at), 60), "avro-data"),
    Forgery("avro-data-plaintext", AGS1, ("plaintext", "tampered"), lambda at: _plain_of(at, _avro(at)), "avro-data"),
    Forgery("avro-data-cut-at-a-block", AGS1, ("tampered", "format"), lambda at: cut(_avro(at), _HEADER), "avro-data"),
]


def _avro(scene: Scene) -> Path:
    return next(path for path in scene.data() if path.suffix == ".avro")


def recipe_of(forgery: Forgery) -> Recipe:
    """How the table is made that is forged then."""
    return _SPEC_OF[forgery.recipe]
