"""What a client sees of edited metadata at first sight, without a pin, since each manifest list says what its table was.

The table's last list is of a commit that wrote no manifest: what it says of schema, sort order and uuid no manifest's header says. Somebody
who writes the storage edits metadata.json, or a REST server answers with it. The KMS, the catalogs and the stores are real.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.update import SetSnapshotRefUpdate
from pyiceberg.transforms import BucketTransform, IdentityTransform
from pyiceberg.types import DateType, LongType, NestedField, StringType

from tablecrypt.errors import FormatError, TamperedFileError
from tablecrypt.maintenance import FindingKind, audit, relocate
from tablecrypt.maintenance.reachable import reachable_files
from tablecrypt.manifests.manifest_list import ManifestListHeader, ManifestListWriterV3
from tablecrypt.manifests.table_state import TABLE_STATE, ListedTableState, schema_digest, table_state_in
from tablecrypt.table.metadata import EncryptedSnapshot
from tablecrypt.table.table_files import TableFileIO
from tablecrypt.table.transaction import EncryptedTransaction
from tablecrypt.table.updates import AddEncryptedSnapshotUpdate, AddEncryptionKeyUpdate
from tests.support.aws import AwsServer
from tests.support.edited_metadata import edited, read_metadata
from tests.support.lying_rest_server import LyingRestServer
from tests.support.tables import (
    TEAM_SCHEMA,
    current_snapshot,
    ids,
    metadata_of,
    metadata_path,
    new_table,
    rows,
    table_with_history,
    team_rows,
    unpinned_catalog,
)

Edit = Callable[[dict[str, Any]], object]
DAY = "2020-01-31"


@pytest.fixture
def catalog(tmp_path: Path, aws: AwsServer) -> Catalog:
    return unpinned_catalog(tmp_path, aws)


@pytest.fixture
def table(catalog: Catalog) -> Table:
    """A table with a schema, a partition spec and a sort order that only its last manifest list knows."""
    table = new_table(catalog, schema=TEAM_SCHEMA, appends=[team_rows(0)])
    with table.update_schema() as schema:
        schema.add_column("since", DateType(), doc="from when on", default_value=DAY)
    with table.update_spec() as spec:
        spec.add_field("team", IdentityTransform(), "team")
    with table.update_sort_order() as order:
        order.asc("id", IdentityTransform())
    table.append(_no_rows(table))
    return table.refresh()


def _no_rows(table: Table) -> pa.Table:
    return table.schema().as_arrow().empty_table()


def _column(metadata: dict[str, Any], name: str) -> dict[str, Any]:
    (schema,) = [each for each in metadata["schemas"] if each["schema-id"] == metadata["current-schema-id"]]
    (column,) = [each for each in schema["fields"] if each["name"] == name]
    return cast("dict[str, Any]", column)


def _order(metadata: dict[str, Any]) -> dict[str, Any]:
    (order,) = [each for each in metadata["sort-orders"] if each["order-id"] == metadata["default-sort-order-id"]]
    return cast("dict[str, Any]", order["fields"][0])


def _two_names_exchanged(metadata: dict[str, Any]) -> None:
    team, note = _column(metadata, "team"), _column(metadata, "note")
    team["name"], note["name"] = "note", "team"


EDITS: dict[str, Edit] = {
    "initial default": lambda metadata: _column(metadata, "since").update({"initial-default": "1999-12-31"}),
    "write default": lambda metadata: _column(metadata, "since").update({"write-default": "1999-12-31"}),
    "no default": lambda metadata: _column(metadata, "since").pop("initial-default"),
    "doc": lambda metadata: _column(metadata, "since").update(doc="until when"),
    "column renamed": lambda metadata: _column(metadata, "note").update(name="remark"),
    "names exchanged": _two_names_exchanged,
    "type": lambda metadata: _column(metadata, "since").update(type="string"),
    "required": lambda metadata: _column(metadata, "id").update(required=True),
    "identifier fields": lambda metadata: metadata["schemas"][-1].update({"identifier-field-ids": [1]}),
    "sort order's transform": lambda metadata: _order(metadata).update(transform="bucket[4]"),
    "sort order's direction": lambda metadata: _order(metadata).update(direction="desc"),
    "sort order's column": lambda metadata: _order(metadata).update({"source-id": 2}),
    "table-uuid": lambda metadata: metadata.update({"table-uuid": "11111111-1111-1111-1111-111111111111"}),
    "snapshot's schema": lambda metadata: metadata["snapshots"][-1].update({"schema-id": 0}),
}
READS: dict[str, Callable[[Table], object]] = {
    "scan": lambda table: table.scan().to_arrow(),
    "filtered scan": lambda table: table.scan(row_filter="id = 3").to_arrow(),
    "count": lambda table: table.scan().count(),
    "append": lambda table: table.append(_no_rows(table)),
    "delete": lambda table: table.delete("id = 3"),
}


@pytest.mark.parametrize("read", READS)
@pytest.mark.parametrize("edit", EDITS)
def test_an_edit_of_what_no_commit_changes_is_seen_at_first_sight(table: Table, edit: str, read: str) -> None:
    if edit in {"identifier fields"}:
        # PyIceberg refuses identifier fields that may be null by itself.
        edited(table, lambda metadata: _column(metadata, "id").update(required=True))
    with pytest.raises(TamperedFileError, match=r"snap-.*authenticated manifest list"):
        READS[read](edited(table, EDITS[edit]))


@pytest.mark.parametrize("edit", EDITS)
def test_a_rest_server_that_answers_with_such_an_edit_is_seen_at_first_sight(
    catalog: Catalog, table: Table, aws: AwsServer, edit: str
) -> None:
    metadata = read_metadata(table)
    if edit in {"identifier fields"}:
        _column(metadata, "id")["required"] = True
    EDITS[edit](metadata)
    metadata_path(table).write_text(json.dumps(metadata))
    with LyingRestServer(catalog, lambda: metadata_path(table)) as server:
        seen = server.client(**aws.kms_properties).load_table("db.t")
        with pytest.raises(TamperedFileError, match=r"snap-.*authenticated manifest list"):
            seen.scan().to_arrow()


def test_an_edited_partition_spec_is_seen_where_manifests_are_of_it(catalog: Catalog) -> None:
    table = new_table(catalog, schema=TEAM_SCHEMA)
    with table.update_spec() as spec:
        spec.add_field("id", BucketTransform(8), "bucket")
    table.append(team_rows(0))
    with pytest.raises(TamperedFileError, match="partition spec 1 of the table metadata"):
        edited(table, lambda metadata: metadata["partition-specs"][-1]["fields"][0].update(transform="bucket[4]")).scan().count()


def test_another_table_of_the_same_key_in_this_ones_place_is_seen_where_it_takes_the_uuid(catalog: Catalog) -> None:
    ours, theirs = (new_table(catalog, name, appends=[rows(first)]) for name, first in (("db.t", 0), ("db.other", 500)))
    own_uuid, right, other = read_metadata(ours)["table-uuid"], metadata_path(ours).read_text(), read_metadata(theirs)
    metadata_path(ours).write_text(json.dumps({**other, "table-uuid": own_uuid}))
    with pytest.raises(TamperedFileError, match="another table was put in this one's place"):
        catalog.load_table("db.t").scan().to_arrow()

    metadata_path(ours).write_text(right)
    metadata_path(theirs).write_text(json.dumps({**json.loads(right), "table-uuid": other["table-uuid"]}))
    with pytest.raises(TamperedFileError, match="another table was put in this one's place"):
        catalog.load_table("db.other").scan().to_arrow()


def test_snapshots_of_another_table_of_the_same_key_are_seen_in_this_ones_metadata(catalog: Catalog) -> None:
    ours, theirs = (new_table(catalog, name, appends=[rows(first)]) for name, first in (("db.t", 0), ("db.other", 500)))
    other = read_metadata(theirs)
    names = ("snapshots", "refs", "current-snapshot-id", "snapshot-log", "encryption-keys", "last-sequence-number", "next-row-id")
    with pytest.raises(TamperedFileError, match="another table was put in this one's place"):
        edited(ours, lambda metadata: metadata.update({name: other[name] for name in names})).scan().to_arrow()


# --- what may change without a snapshot: the audit tells


def _messages(table: Table) -> list[str]:
    return [each.message for each in audit(table).findings if each.kind == FindingKind.CHANGED_SINCE_COMMIT]


def _new_current_schema(metadata: dict[str, Any]) -> None:
    schema = json.loads(json.dumps(metadata["schemas"][-1]))
    metadata["schemas"].append({**schema, "schema-id": 9})
    metadata["current-schema-id"] = 9


LATER: dict[str, tuple[Edit, str]] = {
    "a property": (lambda metadata: metadata["properties"].update({"encryption.data-key-length": "32"}), "encryption.data-key-length"),
    "a property that is gone": (lambda metadata: metadata["properties"].pop("owner"), "property owner"),
    "a tag": (
        lambda metadata: metadata["refs"].update(old={"snapshot-id": metadata["snapshots"][0]["snapshot-id"], "type": "tag"}),
        "branch or tag old",
    ),
    "the schema": (_new_current_schema, "current schema"),
    "the sort order": (lambda metadata: metadata.update({"default-sort-order-id": 0}), "default sort order"),
    "the partition spec": (lambda metadata: metadata.update({"default-spec-id": 0}), "default partition spec"),
}


@pytest.mark.parametrize("change", LATER)
def test_the_audit_names_what_no_manifest_list_bears_out(catalog: Catalog, change: str) -> None:
    table = new_table(catalog, schema=TEAM_SCHEMA, properties={"owner": "them"}, appends=[team_rows(0)])
    with table.update_spec() as spec:
        spec.add_field("team", IdentityTransform(), "team")
    with table.update_sort_order() as order:
        order.asc("id", IdentityTransform())
    table.append(_no_rows(table))
    assert _messages(table) == []

    edit, named = LATER[change]
    (message,) = _messages(edited(table, edit))
    assert message == f"metadata.json alone says since snapshot {current_snapshot(table).snapshot_id}: {_described(named)}"


def _described(named: str) -> str:
    return f"property {named}" if named.startswith("encryption.") else named


def test_the_audit_names_a_property_that_somebody_set_until_the_next_commit(catalog: Catalog) -> None:
    table = new_table(catalog, appends=[rows(0)])
    table.transaction().set_properties({"comment": "its value"}).commit_transaction()
    (message,) = _messages(table.refresh())
    assert "property comment" in message
    assert "its value" not in message
    table.append(rows(100))
    assert _messages(table) == []


def _commit_of_another_writer(table: Table) -> Table:
    """Append nothing, as an engine does whose manifest lists say nothing of the table."""
    metadata, io, before = metadata_of(table), cast("TableFileIO", table.io), current_snapshot(table)
    output = io.new_encrypted_output(f"{table.location()}/metadata/snap-7-{metadata.last_sequence_number}.avro")
    snapshot_id, number, row_id = 7 + metadata.last_sequence_number, metadata.last_sequence_number + 1, metadata.next_row_id or 0
    with ManifestListWriterV3(output, snapshot_id, before.snapshot_id, number, row_id, "gzip") as writer:
        writer.add_manifests(before.manifests(io))
    key = io.manager.encrypt_manifest_list_key_metadata(output.key_metadata, metadata.key_ring, before.key_id)
    changed = {
        "snapshot_id": snapshot_id,
        "parent_snapshot_id": before.snapshot_id,
        "manifest_list": output.location,
        "sequence_number": number,
        "first_row_id": row_id,
        "added_rows": 0,
        "key_id": key.key_id,
    }
    with table.transaction() as transaction:
        keys = tuple(AddEncryptionKeyUpdate(key=each) for each in key.added)
        snapshot = AddEncryptedSnapshotUpdate(snapshot=before.model_copy(update=changed))
        head = SetSnapshotRefUpdate.model_validate({"ref-name": "main", "snapshot-id": snapshot_id, "type": "branch"})
        cast("EncryptedTransaction", transaction).apply(cast("Any", (*keys, snapshot, head)))
    return table.refresh()


def test_lists_of_another_writer_say_nothing_and_the_audit_says_so(catalog: Catalog) -> None:
    table: Table = new_table(catalog, appends=[rows(0)])
    ours = current_snapshot(table).snapshot_id
    table = _commit_of_another_writer(_commit_of_another_writer(table))
    assert _header(table).table_state is None
    (message,) = _messages(table)
    assert message == (
        f"metadata.json alone says since snapshot {ours}: branch or tag main; the manifest lists of 2 newer snapshots say nothing of it"
    )
    seen = edited(table, lambda metadata: metadata["properties"].update(owner="them"))
    assert ids(seen) == list(range(20))
    seen.append(rows(100))
    assert _messages(seen.refresh()) == []
    assert ids(seen) == [*range(20), *range(100, 120)]


# --- no false alarm


def _header(table: Table) -> ManifestListHeader:
    return current_snapshot(table).authenticated_header(table.io)


def test_a_list_says_what_the_table_is_once_its_commit_is_done(catalog: Catalog) -> None:
    table = table_with_history(catalog)
    table.append(rows(300))
    assert _header(table).table_state == ListedTableState.of(table.metadata)
    table.append(rows(400), branch="side")
    named = metadata_of(table).snapshot_by_name("side")
    assert isinstance(named, EncryptedSnapshot)
    assert named.authenticated_header(table.io).table_state == ListedTableState.of(table.metadata)


def test_what_a_transaction_changes_after_its_append_is_no_contradiction(catalog: Catalog) -> None:
    table = new_table(catalog, appends=[rows(0)])
    with table.transaction() as transaction:
        with transaction.update_schema() as schema:
            schema.add_column("more", StringType(), doc="")
        transaction.append(transaction.table_metadata.schema().as_arrow().empty_table())
        transaction.set_properties({"comment": "later"})
        with transaction.update_schema() as schema:
            schema.rename_column("more", "less")
        with transaction.update_spec() as spec:
            spec.add_field("id", BucketTransform(4), "bucket")
    fresh = catalog.load_table("db.t")
    assert fresh.scan().to_arrow().column_names == ["id", "note", "less"]
    fresh.append(_no_rows(fresh))
    assert ids(fresh) == list(range(20))


def test_every_state_of_an_evolving_table_is_read_by_any_snapshot_branch_and_tag(catalog: Catalog, table: Table) -> None:
    before = current_snapshot(table).snapshot_id
    table.manage_snapshots().create_tag(before, "then").commit()
    table.manage_snapshots().create_branch(before, "side").commit()
    with table.update_schema() as schema:
        schema.rename_column("since", "start")
    with table.update_sort_order() as order:
        order.desc("id", IdentityTransform())
    table.append(_no_rows(table))
    table.append(_no_rows(table), branch="side")
    fresh = catalog.load_table("db.t")
    for snapshot in fresh.metadata.snapshots:
        assert fresh.scan(snapshot_id=snapshot.snapshot_id).count() == 20
    assert fresh.scan().use_ref("then").count() == fresh.scan().use_ref("side").count() == 20
    fresh.manage_snapshots().set_current_snapshot(before).commit()
    fresh.append(_no_rows(fresh))
    assert catalog.load_table("db.t").scan().count() == 20


def test_an_older_metadata_file_is_restored_and_registered(catalog: Catalog, table: Table) -> None:
    older = table.metadata_location
    with table.update_schema() as schema:
        schema.add_column("more", StringType())
    table.append(_no_rows(table))
    catalog.drop_table("db.t")
    restored = catalog.register_table("db.again", older)
    with restored.update_schema() as schema:
        schema.add_column("other", LongType())
    restored.append(_no_rows(restored))
    assert catalog.load_table("db.again").scan().count() == 20
    catalog.rename_table("db.again", "db.renamed")
    assert catalog.load_table("db.renamed").scan().count() == 20


def test_clean_ups_that_remove_schemas_and_specs_are_no_contradiction(table: Table) -> None:
    """Java's clean-up: a spec that no manifest is of goes, and the next new one gets its id."""

    def cleaned(metadata: dict[str, Any]) -> None:
        metadata["schemas"] = [each for each in metadata["schemas"] if each["schema-id"] == metadata["current-schema-id"]]
        (spec,) = [each for each in metadata["partition-specs"] if each["spec-id"] == metadata["default-spec-id"]]
        spec["fields"] = [{"source-id": 1, "field-id": 1001, "name": "bucket", "transform": "bucket[16]"}]

    assert edited(table, cleaned).scan(row_filter="id < 5").count() == 5


def test_a_table_is_created_and_replaced_in_one_transaction_with_its_rows(catalog: Catalog) -> None:
    with catalog.create_table_transaction("db.t", TEAM_SCHEMA, properties={"encryption.key-id": "alias/orders"}) as transaction:
        transaction.append(team_rows(0))
        transaction.append(team_rows(100))
    created = catalog.load_table("db.t")
    assert created.scan().count() == 40
    assert _header(created).table_state == ListedTableState.of(created.metadata)


@pytest.mark.parametrize("current_only", [False, True])
def test_the_lists_of_a_copy_say_what_the_copy_is(catalog: Catalog, tmp_path: Path, current_only: bool) -> None:
    table = table_with_history(catalog)
    table.transaction().set_properties({"write.data.path": f"{table.location()}/data", "owner": "us"}).commit_transaction()
    table.append(rows(300))
    relocate(table, f"file://{tmp_path}/copy", register_as="db.copy", current_only=current_only)
    copy = catalog.load_table("db.copy")
    assert ids(copy) == ids(table)
    assert _header(copy).table_state == ListedTableState.of(copy.metadata)
    assert _messages(copy) == []
    for snapshot in copy.metadata.snapshots:
        assert copy.scan(snapshot_id=snapshot.snapshot_id).count() == table.scan(snapshot_id=snapshot.snapshot_id).count()
    copy.append(rows(900))
    assert catalog.load_table("db.copy").scan().count() == table.scan().count() + 20


def test_a_copy_of_a_copy_with_no_history_is_read_too(catalog: Catalog, tmp_path: Path) -> None:
    table = new_table(catalog, appends=[rows(0)])
    for name in ("one", "two"):
        relocate(table, f"file://{tmp_path}/{name}", register_as=f"db.{name}")
        table = cast("Any", catalog.load_table(f"db.{name}"))
    assert reachable_files(metadata_of(table), table.io).unopened == []
    assert _messages(table) == []


# --- the header


def _text(table: Table) -> str:
    stated = _header(table).table_state
    assert stated is not None
    return stated.header_fields()[TABLE_STATE]


def test_the_header_says_the_same_after_it_was_read(catalog: Catalog) -> None:
    table = table_with_history(catalog)
    text = _text(table)
    read = table_state_in({TABLE_STATE: text}, "snap.avro")
    assert read is not None
    assert read.header_fields() == {TABLE_STATE: text}
    assert table_state_in({}, "snap.avro") is None
    assert " " not in text


def test_the_header_does_not_grow_with_the_tables_history(catalog: Catalog) -> None:
    table = new_table(catalog, appends=[rows(0)])
    before = len(_text(table))
    for number in range(3):
        with table.update_schema() as schema:
            schema.add_column(f"c{number}", LongType())
        table.append(_no_rows(table))
    assert len(_text(table)) == before


GARBLED: dict[str, Callable[[dict[str, Any]], object]] = {
    "no uuid": lambda content: content.pop("uuid"),
    "odd uuid": lambda content: content.update(uuid="{" + content["uuid"] + "}"),
    "uuid that is no text": lambda content: content.update(uuid=7),
    "no schema": lambda content: content.pop("schema"),
    "schema without digest": lambda content: content.update(schema=[0]),
    "schema id that is a truth value": lambda content: content["schema"].__setitem__(0, True),
    "negative id": lambda content: content["spec"].__setitem__(0, -1),
    "great id": lambda content: content["order"].__setitem__(0, 2**31),
    "short digest": lambda content: content["order"].__setitem__(1, "AAAA"),
    "properties that are a list": lambda content: content.update(properties=[]),
    "a property's digest that is a number": lambda content: content["properties"].update(owner=7),
    "refs that are nothing": lambda content: content.update(refs=None),
}


@pytest.mark.parametrize("garble", GARBLED)
def test_an_odd_header_is_refused_by_name(catalog: Catalog, garble: str) -> None:
    content = json.loads(_text(new_table(catalog, appends=[rows(0)])))
    GARBLED[garble](content)
    with pytest.raises(FormatError, match=r"^snap.avro: the manifest list's tablecrypt.table-state is not readable"):
        table_state_in({TABLE_STATE: json.dumps(content)}, "snap.avro")


@pytest.mark.parametrize("text", ["", "[]", "7", "{", "null", "[" * 100_000, '"\\ud800"'])
def test_a_header_that_is_no_object_is_refused_by_name(text: str) -> None:
    with pytest.raises(FormatError, match=r"^snap.avro: "):
        table_state_in({TABLE_STATE: text}, "snap.avro")


def test_keys_of_a_newer_version_are_skipped(catalog: Catalog) -> None:
    text = _text(new_table(catalog, appends=[rows(0)]))
    newer = table_state_in({TABLE_STATE: json.dumps({**json.loads(text), "newer": [1]})}, "snap.avro")
    assert newer == table_state_in({TABLE_STATE: text}, "snap.avro")


@pytest.mark.parametrize(
    ("kind", "one", "other"),
    [
        ("date", DAY, 18292),
        ("timestamp", "2020-01-31T00:00:00", "2020-01-31T00:00:00.000000"),
        ("float", 1, 1.0),
        ("decimal(4, 2)", "1.50", "1.50"),
    ],
)
def test_a_default_has_one_digest_however_it_is_spelled(kind: str, one: object, other: object) -> None:
    first, second = (Schema(NestedField(1, "a", kind, initial_default=value)) for value in (one, other))
    assert schema_digest(first) == schema_digest(second)


def test_columns_that_read_alike_have_digests_of_their_own() -> None:
    schemas = [
        Schema(NestedField(1, "a", StringType(), doc="b")),
        Schema(NestedField(1, "ab", StringType())),
        Schema(NestedField(1, "a", StringType(), initial_default="b")),
        Schema(NestedField(1, "a", StringType(), write_default="b")),
        Schema(NestedField(1, "a", LongType())),
        Schema(NestedField(1, "a", StringType(), required=True)),
        Schema(NestedField(1, "a", StringType(), required=True), identifier_field_ids=[1]),
        Schema(NestedField(2, "a", StringType())),
        Schema(),
    ]
    assert len({schema_digest(each) for each in schemas}) == len(schemas)


def test_a_digest_is_the_same_in_every_version() -> None:
    """Lists that were written before are read by all that come after: this text does not change."""
    schema = Schema(NestedField(1, "id", LongType(), required=True, doc="the id"), NestedField(2, "day", DateType(), initial_default=DAY))
    assert schema_digest(schema) == "Q-LzMUnhUtWd8KsILe86Xg"
