"""What a partner tries with his share, as data: to open, with all that he has, anything of the source that was not shared.

    key_attacks       every file of the source that was not shared, of every snapshot: under every key that the share holds
    entry_attacks     every data file of the source that was not shared: named in a manifest of his own, with the key of a shared file
    column_attacks    every protected column of every file of the source, as if its DEK had been given to him
    field_attacks     every field of the share's metadata.json in which the source has another value: with the source's

The source has files from before they were written again, two protected columns of which one is shared, and two partitions of which one is.
The partner may use both of his keys, reads every byte of the source's folder, and writes his own table as he likes. Another who works for
him may use the key of the share alone.
"""

from __future__ import annotations

import copy
import json
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final, Self

from pyiceberg.manifest import DataFile
from pyiceberg.table.name_mapping import NameMapping

from tablecrypt.crypto.key_metadata import StandardKeyMetadata
from tablecrypt.maintenance import compact, share
from tablecrypt.maintenance.columns.footers import FooterWork, inspect_hidden_columns
from tablecrypt.maintenance.reachable import FileKind, ReachableFile, reachable_files
from tablecrypt.manifests.records import DATA_FILE_POSITIONS, EncryptedDataFile
from tablecrypt.table.protection.policy import column_keys
from tablecrypt.table.table import EncryptedTable
from tests.security.matrix.attacks import METADATA, Attack
from tests.security.matrix.cells import Cell, Outcome, outcome_of_error
from tests.support.aws import AwsServer
from tests.support.shares import NORTH, Partner
from tests.support.tables import BY_TEAM, TEAM_SCHEMA, encrypted_sql_catalog, encrypted_table, new_table, path_of, team_rows

PARTNER: Final = "partner"
SHARED, WITHHELD = "note", "id"
BOTH_KEYS, KEY_OF_SHARE = "both of his keys", "the share's key alone"
CLIENTS: Final = (BOTH_KEYS, KEY_OF_SHARE)
Values = frozenset[str]


@dataclass(frozen=True)
class PartnerScene:
    """A table, of which a partner has a share.

    Attributes:
        source: the table.
        partner: with a catalog of his own.
        metadata: of the share, as it was made.
        allowed: what each client may read of it: every value of the shared rows that the client has the key of.
    """

    source: EncryptedTable
    partner: Partner
    metadata: dict[str, Any]
    allowed: dict[str, Values]

    @classmethod
    def make(cls, folder: Path, aws: AwsServer) -> Self:
        """Make all of it in a folder."""
        properties = {"encryption.column-keys": f"{aws.new_key()}: {SHARED}; {aws.new_key()}: {WITHHELD}"}
        catalog, partner = encrypted_sql_catalog(folder, aws), Partner.of(folder, aws)
        rows = [team_rows(0), team_rows(100)]
        source = new_table(catalog, schema=TEAM_SCHEMA, appends=rows, partitioned_by=BY_TEAM, properties=properties)
        compact(source, NORTH, rewrite_all=True)
        shared = share(source, partner.key_id, partner.location, NORTH, columns={SHARED: partner.column_key_id})
        metadata = json.loads(path_of(shared.metadata_location).read_text(encoding="utf-8"))
        scene = cls(encrypted_table(source.refresh()), partner, metadata, {})
        of_share = values_of(source, NORTH, (SHARED, "team"))
        scene.allowed.update({BOTH_KEYS: of_share, KEY_OF_SHARE: values_of(source, NORTH, ("team",))})
        assert {client: scene.read(client, metadata) for client in CLIENTS} == scene.allowed
        return scene

    def register(self, client: str, metadata: dict[str, Any]) -> EncryptedTable:
        """The share as one of the partner's people has it from metadata that somebody has written."""
        location = path_of(self.partner.location) / "metadata" / f"00009-{uuid.uuid4()}.metadata.json"
        location.write_text(json.dumps(metadata), encoding="utf-8")
        catalog = self.partner.catalog if client == BOTH_KEYS else self.partner.user()
        return encrypted_table(catalog.register_table(f"db.share_{uuid.uuid4().hex}", f"file://{location}"))

    def read(self, client: str, metadata: dict[str, Any]) -> Values:
        """Every value that a client reads of a share with such metadata."""
        return values_of(self.register(client, metadata))


def values_of(table: Any, row_filter: str = "", columns: tuple[str, ...] = ("*",)) -> Values:
    """Every value that a scan shows."""
    scan = table.scan(row_filter, selected_fields=columns) if row_filter else table.scan(selected_fields=columns)
    shown = scan.to_arrow()
    return frozenset(f"{name}: {value}" for name in shown.column_names for value in shown[name].to_pylist() if value is not None)


def key_attacks(scene: PartnerScene) -> Iterator[Attack]:
    """Every file that was not shared, under every key of the share."""
    keys = [file.key for file in _files(_theirs(scene)).values() if file.key is not None]
    for file in _others(scene):
        for number, key in enumerate(keys):
            yield Attack(PARTNER, file.kind, "opened with a key of the share", f"{file.location}, key {number}", partial(_open, file, key))


def _open(file: ReachableFile, key: StandardKeyMetadata, scene: PartnerScene, _: str) -> Values:
    io = scene.source.io
    if file.kind == FileKind.DATA:
        return frozenset({str(inspect_hidden_columns(io, FooterWork(file.location, frozenset(), NameMapping([])), (key,)).result.columns)})
    with io.decrypting_input(file.location, key).open() as stream:
        return frozenset({stream.read().hex()})


def entry_attacks(scene: PartnerScene) -> Iterator[Attack]:
    """Every data file that was not shared, named in the share."""
    for file in _others(scene):
        if file.kind == FileKind.DATA:
            yield Attack(PARTNER, file.kind, "named in a manifest of his own", file.location, partial(_name, file.location))


def _name(location: str, scene: PartnerScene, client: str) -> Values:
    theirs = scene.register(client, scene.metadata)
    [mine, *_] = [task.file for task in theirs.scan().plan_files()]
    with theirs.transaction() as transaction, transaction.update_snapshot().fast_append() as append:
        append.append_data_file(named_otherwise(mine, location))
    return values_of(theirs.refresh())


def named_otherwise(file: DataFile, location: str) -> EncryptedDataFile:
    """The entry of a file as a partner writes it anew to get at another file."""
    other = copy.copy(EncryptedDataFile.of(file))
    other.spec_id = file.spec_id
    other[DATA_FILE_POSITIONS["file_path"]] = location
    return other


def column_attacks(scene: PartnerScene) -> Iterator[Attack]:
    """Every hidden column of every file of the source that the share has not, as if somebody had given away the file's own DEK."""
    shared = {task.file.file_path for task in _theirs(scene).scan().plan_files()}
    for location, file in _files(scene.source).items():
        if file.kind != FileKind.DATA or file.key is None:
            continue
        stored = inspect_hidden_columns(scene.source.io, FooterWork(location, frozenset(), NameMapping([])), (file.key,)).result
        for field_id, wrapped in stored.keys:
            name = TEAM_SCHEMA.find_column_name(field_id)
            if name == WITHHELD or location not in shared:
                act = partial(_unwrap, field_id, wrapped, file.key.aad_prefix, stored.schemas[field_id])
                yield Attack(PARTNER, "protected column", "its DEK asked for", f"{name} in {location}", act)


def _unwrap(field_id: int, wrapped: bytes, aad_prefix: bytes, schema: Any, scene: PartnerScene, client: str) -> Values:
    theirs = scene.register(client, scene.metadata)
    return frozenset({column_keys(theirs.metadata, theirs.io).unwrap(field_id, wrapped, aad_prefix, schema, 1).hex()})


def field_attacks(scene: PartnerScene) -> Iterator[Attack]:
    """Every field in which the source's metadata differs, with what the source has there; and the keys of the source beside his own."""
    source = json.loads(path_of(scene.source.metadata_location).read_text(encoding="utf-8"))
    for path, value in _differing(scene.metadata, source):
        target = ": ".join([METADATA, ".".join(map(str, path))])
        yield Attack(PARTNER, target, "with the source's", ".".join(map(str, path)), partial(_edit, path, value))
    for key_id in (scene.partner.key_id, scene.partner.column_key_id):
        act = partial(_with_keys, source["encryption-keys"], key_id)
        yield Attack(PARTNER, f"{METADATA}: encryption-keys", "with the source's beside his own", f"under {key_id}", act)


def _differing(theirs: Any, source: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[tuple[str | int, ...], Any]]:
    if theirs == source:
        return
    if path:
        yield path, source
    if isinstance(theirs, dict) and isinstance(source, dict):
        for name in sorted(theirs.keys() | source.keys()):
            yield from _differing(theirs.get(name), source.get(name), (*path, name))
    elif isinstance(theirs, list) and isinstance(source, list):
        for number, (mine, other) in enumerate(zip(theirs, source, strict=False)):
            yield from _differing(mine, other, (*path, number))


def _edit(path: tuple[str | int, ...], value: Any, scene: PartnerScene, client: str) -> Values:
    metadata: Any = copy.deepcopy(scene.metadata)
    at = metadata
    for step in path[:-1]:
        at = at[step]
    if value is None and isinstance(at, dict):
        at.pop(path[-1], None)
    else:
        at[path[-1]] = value
    return scene.read(client, metadata)


def _with_keys(entries: list[dict[str, Any]], key_id: str, scene: PartnerScene, client: str) -> Values:
    """Say that a key of his own wraps the source's keys, name them for the withheld column, and put that into the schema."""
    metadata = copy.deepcopy(scene.metadata)
    known = {entry["key-id"] for entry in metadata["encryption-keys"]}
    wrapped = [{**entry, "encrypted-by-id": key_id} if "KEY_TIMESTAMP" in entry.get("properties", {}) else entry for entry in entries]
    metadata["encryption-keys"] += [entry for entry in wrapped if entry["key-id"] not in known]
    metadata["properties"]["encryption.column.1.key-id"] = scene.partner.column_key_id
    metadata["schemas"][0]["fields"].append({"id": 1, "name": WITHHELD, "type": "long", "required": False})
    return scene.read(client, metadata)


def every_attack(scene: PartnerScene) -> list[Attack]:
    """All of them."""
    kinds: tuple[Callable[[PartnerScene], Iterator[Attack]], ...] = (key_attacks, entry_attacks, column_attacks, field_attacks)
    return [attack for kind in kinds for attack in kind(scene)]


def run(scene: PartnerScene, attacks: list[Attack]) -> Iterator[Cell]:
    """Carry attacks out, as each of the partner's people."""
    for attack in attacks:
        for client in CLIENTS:
            yield Cell(attack, client, "scan", *_outcome(scene, attack, client))


def _outcome(scene: PartnerScene, attack: Attack, client: str) -> tuple[Outcome, str]:
    try:
        read = attack.act(scene, client)  # type: ignore[call-arg]
    except Exception as error:  # noqa: BLE001  a cell is what came of it, whatever that is
        return outcome_of_error(error)
    # Fewer rows than he was given are his own affair: it is his table.
    stolen = read - scene.allowed[client]  # type: ignore[operator]
    return (Outcome.ACCEPTED, f"he read {sorted(stolen)[:2]}") if stolen else (Outcome.UNCHANGED, "")


def _theirs(scene: PartnerScene) -> EncryptedTable:
    return scene.register(BOTH_KEYS, scene.metadata)


def _files(table: EncryptedTable) -> dict[str, ReachableFile]:
    return dict(reachable_files(table.metadata, table.io).files)


def _others(scene: PartnerScene) -> list[ReachableFile]:
    given = _files(_theirs(scene))
    return [file for location, file in _files(scene.source).items() if location not in given]
