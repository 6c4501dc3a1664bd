"""What a manifest list says of its table's state, and that held against what metadata.json says.

metadata.json is plaintext: any writer of the storage can edit it. So a manifest list that tablecrypt writes has in its header, which is
authenticated with the file, what the table was when it was written, as the text of a JSON object without spaces, its keys sorted:

    tablecrypt.table-state
      uuid          the table-uuid
      schema        [id, digest] of the current schema
      spec          [id, digest] of the default partition spec
      order         [id, digest] of the default sort order
      properties    {name: digest} of the table's properties, without copies of entries of encryption-keys (column_entries.py)
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

The size does not grow with a table's history: older schemas and specs are in the headers of the manifests (stated_layout.py). Of what a
list says is held against the metadata of every reader, as no commit changes it:

    uuid          it is the table's
    schema        where the metadata has one of that id, it is the same; the snapshot names its id
    order         where the metadata has one of that id, it is the same
    spec          likewise, where a manifest of the list is of it. The id of a spec that no manifest is of is free again once it is removed.

Properties and refs change without a snapshot, so a list says what they were: an audit tells what differs. Lists without this, of other
writers and of older versions, say nothing.

Raises TamperedFileError, naming the manifest list, for a contradiction; FormatError for a header that cannot be read.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import uuid
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, TypeAlias

from pyiceberg.conversions import from_json, to_json
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import SnapshotRef
from pyiceberg.table.sorting import SortOrder
from pyiceberg.types import DoubleType, FloatType, IcebergType, ListType, MapType, NestedField, PrimitiveType, StructType

from tablecrypt.errors import FormatError, TamperedFileError
from tablecrypt.keys.column_entries import is_kept_by_commits

TABLE_STATE: Final = "tablecrypt.table-state"

_DIGEST_BYTES: Final = 16
_DIGEST: Final = re.compile(r"[A-Za-z0-9_-]{22}", re.ASCII)
_UUID: Final = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.ASCII)
_LENGTH_BYTES: Final = 4
_MAX_ID: Final = 2**31 - 1
_Item: TypeAlias = "str | int | Sequence[_Item] | None"


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
