"""What manifest lists and manifests say of their table, held against what metadata.json says.

metadata.json is plaintext: any writer of the storage can edit it. So a manifest list that tablecrypt writes has in its header, which is
authenticated with the file, what the table was when it was written, as the text of a JSON object without spaces, its keys sorted:

    tablecrypt.table-state
      uuid          the table-uuid
      schema        [id, digest] of the current schema
      spec          [id, digest] of the default partition spec
      order         [id, digest] of the default sort order
      properties    {name: digest} of the table's properties, without copies of entries of encryption-keys (key_ring.py)
      refs          {name: digest} of branches and tags, the branch that the commit moves among them

A digest is the first 16 bytes of SHA-256, as 22 characters of base64url without padding. What it is made of is laid out here, so that
neither the order of a writer's JSON keys nor its spelling of a value counts. An item is a tag byte, a length of 4 bytes, big-endian, and
that many bytes:

    item        text: "T", UTF-8        number: "N", decimal digits        nothing: "-"        list: "L", its items
    schema      list of columns, list of identifier field ids in ascending order
    column      id, name, required (0 or 1), type, doc, initial default, write default; a list's element, a map's key and value likewise
    type        list: a text with the name of the type, then the columns inside of a struct, list or map
    default     the text of Iceberg's JSON single-value serialization; an empty doc is nothing
    spec        list of [source id, field id, name, transform]
    sort order  list of [source id, transform, direction, null order]
    property    its value
    ref         type, snapshot id, min-snapshots-to-keep, max-snapshot-age-ms, max-ref-age-ms

The size does not grow with a table's history: older schemas and specs are in the headers of the manifests. Of what a list says is held
against the metadata of every reader, as no commit changes it:

    uuid          it is the table's
    schema        where the metadata has one of that id, it is the same; the snapshot names its id
    order         where the metadata has one of that id, it is the same
    spec          likewise, where a manifest of the list is of it. The id of a spec that no manifest is of is free again once it is removed.

Properties and refs change without a snapshot, so a list says what they were: an audit tells what differs. Lists without this, of other
writers and of older versions, say nothing.

The schemas and partition specs of a table's past are in the headers of its manifests, each authenticated with its file. A filter is
projected onto partitions by the spec, and columns are found by the schema: an edited one makes a scan lose rows, or give them under another
name. So each is compared where both say something of it:

    partition spec    that of the header's id is in the metadata, with the same fields (source, id, name, transform)
    schema            where the metadata still has one of the header's schema-id, it is the same in every field
    types             the type of each column in the schema that the rows are read with is that of the header, or one that it may be
                      promoted to. The current snapshot is read with the current schema, another one with the schema that it names.

A header's schema is that of its time. Expiry may have removed it from the metadata, and a table may have a newer one that no manifest
knows: then only the types are compared. A header without schema-id, of older Java, is compared like one whose schema was removed.

Iceberg Java's CREATE OR REPLACE TABLE gives a column the field id that one of its name had, whatever its type: so the current schema may
have a type that no older snapshot can be read with. Its rollback makes such a snapshot current all the same, which then nobody can read as
the table. Where snapshots name both schemas, that is a FormatError: an edit of the metadata looks no different.

Equal headers are compared once: a table of thousands of manifests has a few.

Raises TamperedFileError, naming the manifest list or the manifest, for a contradiction; FormatError for a header that cannot be read.
Specification: "Manifests" of the Iceberg table specification.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from typing import Any, Final, TypeAlias

from pydantic import ValidationError
from pyiceberg.conversions import from_json, to_json
from pyiceberg.exceptions import ResolveError
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema, promote
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import SnapshotRef
from pyiceberg.table.sorting import SortOrder
from pyiceberg.types import (
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IcebergType,
    ListType,
    MapType,
    NestedField,
    PrimitiveType,
    StructType,
    TimestampNanoType,
    TimestampType,
    UnknownType,
)

from tablecrypt.errors import FormatError, TamperedFileError
from tablecrypt.keys.key_ring import is_kept_by_commits
from tablecrypt.keys.nested_columns import fields_in

TABLE_STATE: Final = "tablecrypt.table-state"

_DIGEST_BYTES: Final = 16
_DIGEST: Final = re.compile(r"[A-Za-z0-9_-]{22}", re.ASCII)
_UUID: Final = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.ASCII)
_LENGTH_BYTES: Final = 4
_MAX_ID: Final = 2**31 - 1
_Item: TypeAlias = "str | int | Sequence[_Item] | None"
_UNREADABLE: Final = (ValidationError, ValueError, KeyError, TypeError, AttributeError, RecursionError)


@dataclass(frozen=True)
class Digested:
    """A schema, partition spec or sort order: its id and its digest."""

    id: int
    digest: str


@dataclass(frozen=True)
class ListedTableState:
    """What one manifest list says of its table: digests of properties and refs by name."""

    table_uuid: uuid.UUID
    schema: Digested
    spec: Digested
    order: Digested
    properties: Mapping[str, str]
    refs: Mapping[str, str]

    @classmethod
    def of(cls, metadata: TableMetadata, moved: Mapping[str, SnapshotRef] | None = None) -> ListedTableState:
        """Return the state of a table.

        Args:
            metadata: of the table, with what is staged.
            moved: refs that the commit sets beside those that the metadata has.
        """
        spec, order = metadata.spec(), metadata.sort_order_by_id(metadata.default_sort_order_id) or SortOrder(order_id=0)
        return cls(
            table_uuid=metadata.table_uuid,
            schema=Digested(metadata.current_schema_id, schema_digest(metadata.schema())),
            spec=Digested(spec.spec_id, spec_digest(spec)),
            order=Digested(order.order_id, order_digest(order)),
            properties=property_digests(metadata.properties),
            refs=ref_digests({**metadata.refs, **(moved or {})}),
        )

    def in_copy(self, table_uuid: uuid.UUID, changed: Mapping[str, str | None], dropped_refs: Collection[str]) -> ListedTableState:
        """Return what the same list says in a copy of the table.

        What the copying did not change stays what the list says: changes that came after the list are still to be seen in the copy.

        Args:
            table_uuid: of the copy.
            changed: properties that have another value in the copy, or None.
            dropped_refs: branches and tags that the copy has not.
        """
        set_anew = property_digests({name: value for name, value in changed.items() if value is not None})
        return replace(
            self,
            table_uuid=table_uuid,
            properties={**{name: digest for name, digest in self.properties.items() if name not in changed}, **set_anew},
            refs={name: digest for name, digest in self.refs.items() if name not in dropped_refs},
        )

    def header_fields(self) -> dict[str, str]:
        """Return what the header of a manifest list says of it."""
        content = {
            "uuid": str(self.table_uuid),
            **{name: [each.id, each.digest] for name, each in (("schema", self.schema), ("spec", self.spec), ("order", self.order))},
            "properties": dict(self.properties),
            "refs": dict(self.refs),
        }
        return {TABLE_STATE: json.dumps(content, sort_keys=True, separators=(",", ":"))}


def table_state_in(header: Mapping[str, str], location: str) -> ListedTableState | None:
    """Return what a manifest list's header says of its table; None where it says nothing.

    Raises:
        FormatError: it is not readable. Keys that are not known here are those of a newer version, and skipped.
    """
    if (text := header.get(TABLE_STATE)) is None:
        return None

    try:
        content = json.loads(text)
        # uuid.UUID also takes braces, capitals and "urn:uuid:", which no writer of this field uses.
        if not _UUID.fullmatch(content["uuid"]):
            raise ValueError("the uuid")

        return ListedTableState(
            table_uuid=uuid.UUID(content["uuid"]),
            schema=_digested(content["schema"]),
            spec=_digested(content["spec"]),
            order=_digested(content["order"]),
            properties=_digests(content["properties"]),
            refs=_digests(content["refs"]),
        )
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise FormatError(f"{location}: the manifest list's {TABLE_STATE} is not readable: {type(error).__name__}") from error


def _digested(pair: Any) -> Digested:
    number, digest = pair
    # `true` in JSON is an int to Python, and would be schema 1.
    if type(number) is not int or not 0 <= number <= _MAX_ID or not _DIGEST.fullmatch(digest):
        raise ValueError("an id and a digest")
    return Digested(number, digest)


def _digests(by_name: Any) -> dict[str, str]:
    if not all(_DIGEST.fullmatch(digest) for digest in by_name.values()):
        raise ValueError("digests by name")
    return dict(by_name)


class StatedTable:
    """What one version of a table's metadata says, to hold manifest lists against. Used by many threads.

    Digests are made when a list asks for them. Two threads may make the same one, which is harmless.
    """

    def __init__(
        self, table_uuid: uuid.UUID, schemas: Iterable[Schema], specs: Iterable[PartitionSpec], orders: Iterable[SortOrder]
    ) -> None:
        self._uuid = table_uuid
        self._schemas = {each.schema_id: each for each in schemas}
        self._specs = {each.spec_id: each for each in specs}
        self._orders = {each.order_id: each for each in orders}
        self._agreeing: set[tuple[str, Digested]] = set()

    def check(self, state: ListedTableState, spec_ids: Collection[int], location: str) -> None:
        """Compare what one manifest list says.

        Args:
            state: what its header says.
            spec_ids: of the partition specs that its manifests are of.
            location: the list's.

        Raises:
            TamperedFileError: the metadata says something else.
        """
        # First, because lists of other tables under the same master key authenticate as well: only this says which table it is.
        if state.table_uuid != self._uuid:
            raise TamperedFileError(
                location,
                f"it is of table {state.table_uuid} according to the authenticated manifest list, but the table metadata is of "
                f"{self._uuid}: another table was put in this one's place",
            )

        self._check("schema", state.schema, location)
        self._check("sort order", state.order, location)
        # Clean-ups remove a spec that no manifest is of, and the next new one gets its id: that is no edit.
        if state.spec.id in spec_ids:
            self._check("partition spec", state.spec, location)

    def _check(self, what: str, stated: Digested, location: str) -> None:
        if (what, stated) in self._agreeing:
            return

        found = self._digest(what, stated.id)
        # Expiry may have removed it from the metadata. Ids are given once: under this one the metadata can have no other.
        # Compared as digests, which JSON's order of keys and spelling of values cannot change.
        if found is not None and found != stated.digest:
            raise TamperedFileError(
                location,
                f"{what} {stated.id} of the table metadata is not the one in the authenticated manifest list: somebody edited "
                f"{_PARTS[what]}",
            )

        self._agreeing.add((what, stated))

    def _digest(self, what: str, number: int) -> str | None:
        if what == "schema":
            return schema_digest(self._schemas[number]) if number in self._schemas else None
        if what == "partition spec":
            return spec_digest(self._specs[number]) if number in self._specs else None
        return order_digest(self._orders[number]) if number in self._orders else None


_PARTS: Final = {
    "schema": "a column (its id, name, type, default or doc, or whether it is required), or the identifier fields",
    "partition spec": "its fields",
    "sort order": "its fields",
}


def schema_digest(schema: Schema) -> str:
    """Return the digest of a schema, without its id."""
    return _digest_of([[_column(field) for field in schema.fields], sorted(schema.identifier_field_ids)])


def spec_digest(spec: PartitionSpec) -> str:
    """Return the digest of a partition spec, without its id."""
    return _digest_of([[field.source_id, field.field_id, field.name, str(field.transform)] for field in spec.fields])


def order_digest(order: SortOrder) -> str:
    """Return the digest of a sort order, without its id."""
    fields = order.fields
    return _digest_of([[field.source_id, str(field.transform), field.direction.value, field.null_order.value] for field in fields])


def property_digests(properties: Mapping[str, str]) -> dict[str, str]:
    """Return the digest of each property's value. Copies of entries are left out: commits bring them after their lists."""
    return {name: _digest_of(value) for name, value in properties.items() if not is_kept_by_commits(name)}


def ref_digests(refs: Mapping[str, SnapshotRef]) -> dict[str, str]:
    """Return the digest of each branch and tag."""
    return {name: _digest_of(_ref(ref)) for name, ref in refs.items()}


def _ref(ref: SnapshotRef) -> list[_Item]:
    return [ref.snapshot_ref_type.value, ref.snapshot_id, ref.min_snapshots_to_keep, ref.max_snapshot_age_ms, ref.max_ref_age_ms]


def _column(field: NestedField) -> list[_Item]:
    defaults = (_default(field.field_type, value) for value in (field.initial_default, field.write_default))
    # Writers differ in whether they keep an empty doc.
    return [field.field_id, field.name, int(field.required), _type(field.field_type), field.doc or None, *defaults]


def _type(owner: IcebergType) -> list[_Item]:
    match owner:
        case StructType():
            return ["struct", *(_column(field) for field in owner.fields)]
        case ListType():
            return ["list", _column(owner.element_field)]
        case MapType():
            return ["map", _column(owner.key_field), _column(owner.value_field)]
        case _:
            return [str(owner)]


def _default(of_type: IcebergType, value: Any) -> str | None:
    """Return a default in one spelling: metadata that was read has JSON's values, and metadata that was made has Python's."""
    if value is None:
        return None

    try:
        return json.dumps(_as_json(of_type, value), sort_keys=True)
    except (ValueError, TypeError, ArithmeticError, AttributeError, LookupError, NotImplementedError):
        # Not a value of the type: it is for others to refuse. Here it only has to differ from what it is not.
        return json.dumps(value, sort_keys=True, default=str)


def _as_json(of_type: IcebergType, value: Any) -> Any:
    if isinstance(of_type, (FloatType, DoubleType)):
        return float(value)
    return to_json(of_type, from_json(of_type, value)) if isinstance(of_type, PrimitiveType) else value


def _digest_of(item: _Item) -> str:
    digest = hashlib.sha256(_encoded(item)).digest()[:_DIGEST_BYTES]
    return base64.urlsafe_b64encode(digest).decode().rstrip("=")


def _encoded(item: _Item) -> bytes:
    if isinstance(item, str):
        # JSON can escape half of a surrogate pair. Refusing it is not the digest's task: here it only has to differ.
        return _tagged(b"T", item.encode("utf-8", "surrogatepass"))
    if isinstance(item, int):
        return _tagged(b"N", str(item).encode())
    return _tagged(b"-", b"") if item is None else _tagged(b"L", b"".join(map(_encoded, item)))


def _tagged(tag: bytes, content: bytes) -> bytes:
    # Tag and length keep items apart: ["ab", "c"] and ["a", "bc"] must not have one digest.
    return tag + len(content).to_bytes(_LENGTH_BYTES, "big") + content


class StatedLayout:
    """The schemas and partition specs of one version of a table's metadata, and which schema rows are read with. Used by many threads."""

    def __init__(
        self,
        schemas: Iterable[Schema],
        current_schema_id: int,
        specs: Iterable[PartitionSpec],
        table: StatedTable | None = None,
        named_schemas: frozenset[int | None] = frozenset(),
    ) -> None:
        """Take what the metadata says.

        Args:
            table: what manifest lists are held against. None: nothing.
            named_schemas: the ids of those that snapshots name.
        """
        self.table = table
        self._named = named_schemas
        self._schemas = {schema.schema_id: schema for schema in schemas}
        self._read_with = current_schema_id
        self._specs = {spec.spec_id: spec for spec in specs}
        self._agreeing: set[tuple[str | None, ...]] = set()
        self._checked: set[str] = set()
        self._by_schema = {current_schema_id: self}
        self._of_another_type: dict[int, frozenset[int]] = {}

    def read_with(self, schema_id: int | None) -> StatedLayout:
        """Return this layout for manifests whose rows are read with another of its schemas; itself where it has none of that id."""
        if schema_id is None or schema_id not in self._schemas:
            return self

        if schema_id not in self._by_schema:
            other = copy(self)
            # What agreed with one schema need not agree with another.
            other._read_with, other._agreeing, other._checked, other._of_another_type = schema_id, set(), set(), {}
            self._by_schema.setdefault(schema_id, other)
        return self._by_schema[schema_id]

    def columns_of_another_type(self, schema_id: int) -> frozenset[int]:
        """Return the field ids of a schema's columns, and of those in them, whose values here are not of a type that it could read."""
        if schema_id not in self._of_another_type:
            own, now = self._schemas.get(self._read_with), self._schemas.get(schema_id)
            others = () if own is None or now is None or own is now else _other_types(own, now)
            self._of_another_type[schema_id] = frozenset(each.field_id for each in others)
        return self._of_another_type[schema_id]

    def check(self, header: Mapping[str, str], spec_id: int, location: str) -> None:
        """Compare the header of one manifest.

        Args:
            header: the metadata of its Avro file.
            spec_id: the partition spec that the authenticated manifest list names for it.
            location: the manifest's.

        Raises:
            TamperedFileError: they contradict each other.
            FormatError: the header cannot be read; or the table was replaced, and rolled back to a snapshot of other types.
        """
        key = (header.get("schema"), header.get("schema-id"), header.get("partition-spec"), header.get("partition-spec-id"), str(spec_id))
        # A header is added only when both parts agree, so each manifest that contradicts the metadata raises.
        if key not in self._agreeing:
            self._check_spec(header, spec_id, location)
            self._check_schema(header, location)
            self._agreeing.add(key)
        self._checked.add(location)

    def has_checked(self, location: str) -> bool:
        """Whether the manifest at this location was compared already."""
        return location in self._checked

    def _check_spec(self, header: Mapping[str, str], spec_id: int, location: str) -> None:
        with_id = _read(location, "partition spec", lambda: int(header.get("partition-spec-id", spec_id)))
        # Entries are projected by the list's id and were written by the header's: if they differ, a filter skips the wrong files.
        if with_id != spec_id:
            raise TamperedFileError(location, f"its header says partition spec {with_id}, the manifest list {spec_id}")

        stated = self._specs.get(spec_id)
        # Clean-ups keep every spec that a manifest is of, so one that is missing was removed by an edit.
        if stated is None:
            raise TamperedFileError(location, f"it was written with partition spec {spec_id}, which the table metadata does not have")

        written = _read(location, "partition spec", lambda: _fields_of_spec(header["partition-spec"]))

        if tuple(written) != tuple(stated.fields):
            raise TamperedFileError(
                location,
                f"partition spec {spec_id} is {_shown(written)} in the authenticated manifest, but {_shown(stated.fields)} "
                "in the table metadata",
            )

    def _check_schema(self, header: Mapping[str, str], location: str) -> None:
        schema_id, written = _read(location, "schema", lambda: _schema_of(header))
        stated = None if schema_id is None else self._schemas.get(schema_id)
        if stated is not None and stated != written:
            raise TamperedFileError(
                location,
                f"schema {schema_id} of the table metadata is not the one in the authenticated manifest: {_difference(written, stated)}",
            )

        read_with = self._schemas.get(self._read_with)
        if read_with is None or read_with is stated:
            return

        if (other := other_type(written, read_with)) is None:
            return
        if stated is not None and {stated.schema_id, self._read_with} <= self._named:
            raise FormatError(
                f"{location}: column {other.name} ({other.field_id}) is {other.before} in the manifest, and {other.now} since the table "
                "was replaced. A rollback to a snapshot from before does not bring back its schema: read that snapshot by its id, or make "
                "a newer one current"
            )

        raise TamperedFileError(
            location, f"column {other.name} ({other.field_id}) is {other.before} in the manifest, but {other.now} in the table metadata"
        )


@dataclass(frozen=True)
class OtherType:
    """A column whose type in one schema may not become that in another."""

    field_id: int
    name: str
    before: IcebergType
    now: IcebergType


def other_type(before: Schema, now: Schema) -> OtherType | None:
    """Return the first column of another type, with its name of now; None where rows of one schema can be read with the other."""
    return next(_other_types(before, now), None)


def _other_types(before: Schema, now: Schema) -> Iterator[OtherType]:
    types = {field_id: each for field_id, _, each in _named_types(before.as_struct())}

    for field_id, name, is_now in _named_types(now.as_struct()):
        # A column that is in one of them alone is new or dropped.
        was = types.get(field_id, is_now)
        if not may_become(was, is_now):
            yield OtherType(field_id, name, was, is_now)


def _read(location: str, what: str, read: Callable[[], Any]) -> Any:
    try:
        return read()
    except _UNREADABLE as error:
        raise FormatError(f"{location}: its header has no readable {what}: {type(error).__name__}") from error


def _schema_of(header: Mapping[str, str]) -> tuple[int | None, Schema]:
    fields = json.loads(header["schema"])
    schema_id = fields.get("schema-id", header.get("schema-id"))
    return None if schema_id is None else int(schema_id), Schema.model_validate_json(header["schema"])


def _fields_of_spec(text: str) -> list[PartitionField]:
    fields = json.loads(text)
    return [PartitionField.model_validate(field) for field in (fields["fields"] if isinstance(fields, dict) else fields)]


def _named_types(owner: IcebergType, prefix: str = "") -> Iterator[tuple[int, str, IcebergType]]:
    for field in fields_in(owner):
        yield field.field_id, prefix + field.name, field.field_type
        yield from _named_types(field.field_type, f"{prefix}{field.name}.")


def may_become(before: IcebergType, now: IcebergType) -> bool:
    """Whether schema evolution allows a type to become another. What is inside a struct, list or map is compared by itself."""
    if not isinstance(before, PrimitiveType) or not isinstance(now, PrimitiveType):
        return type(before) is type(now) or isinstance(before, UnknownType)
    if before == now or isinstance(before, UnknownType):
        return True
    if isinstance(before, DateType) and isinstance(now, (TimestampType, TimestampNanoType)):
        return True
    # PyIceberg allows any scale: bounds and values are stored as whole numbers, and would be read as others.
    if isinstance(before, DecimalType) and isinstance(now, DecimalType):
        return before.scale == now.scale and before.precision <= now.precision

    try:
        promote(before, now)
    except ResolveError:
        return False

    return True


def _difference(written: Schema, stated: Schema) -> str:
    fields = {field.field_id: field for field in stated.fields}
    for field in written.fields:
        if fields.pop(field.field_id, None) != field:
            return f"column {field.field_id} is {field.name!r} there"
    return f"column {next(iter(fields))} is not there" if fields else "the identifier columns differ"


def _shown(fields: Iterable[PartitionField]) -> str:
    return "[" + ", ".join(f"{field.name} = {field.transform}({field.source_id})" for field in fields) + "]"
