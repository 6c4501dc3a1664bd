"""What metadata.json says of a table's schemas and partition specs, held against what the headers of its manifests say.

    metadata.json   schemas, partition-specs                    plaintext, which any writer of the storage can edit
    manifest        header: schema, partition-spec, its id      authenticated with the file

A filter is projected onto partitions by the spec, and columns are found by the schema: an edited one makes a scan lose rows, or give them
under another name. So each is compared where both say something of it:

    partition spec    that of the header's id is in the metadata, with the same fields (source, id, name, transform)
    schema            where the metadata still has one of the header's schema-id, it is the same in every field
    current schema    the type of each column is that of the header, or one that it may be promoted to

A header's schema is that of its time. Expiry may have removed it from the metadata, and a table may have a newer one that no manifest
knows: then only the types are compared. A header without schema-id, of older Java, is compared like one whose schema was removed.

Equal headers are compared once: a table of thousands of manifests has a few.

Raises TamperedFileError, naming the manifest, for a contradiction; FormatError for a header that cannot be read.
Specification: "Manifests" of the Iceberg table specification.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

from pydantic import ValidationError
from pyiceberg.exceptions import ResolveError
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema, promote
from pyiceberg.types import DateType, IcebergType, PrimitiveType, TimestampNanoType, TimestampType, UnknownType

from tablecrypt.errors import FormatError, TamperedFileError
from tablecrypt.keys.nested_columns import fields_in
from tablecrypt.manifests.table_state import StatedTable

_UNREADABLE: Final = (ValidationError, ValueError, KeyError, TypeError, AttributeError, RecursionError)


class StatedLayout:
    """The schemas and partition specs of one version of a table's metadata. Used by many threads."""

    def __init__(
        self, schemas: Iterable[Schema], current_schema_id: int, specs: Iterable[PartitionSpec], table: StatedTable | None = None
    ) -> None:
        """Take what the metadata says.

        Args:
            table: what manifest lists are held against. None: nothing.
        """
        self.table = table
        self._schemas = {schema.schema_id: schema for schema in schemas}
        self._current_schema_id = current_schema_id
        self._specs = {spec.spec_id: spec for spec in specs}
        self._agreeing: set[tuple[str | None, ...]] = set()
        self._checked: set[str] = set()

    def check(self, header: Mapping[str, str], spec_id: int, location: str) -> None:
        """Compare the header of one manifest.

        Args:
            header: the metadata of its Avro file.
            spec_id: the partition spec that the authenticated manifest list names for it.
            location: the manifest's.
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

        current = self._schemas.get(self._current_schema_id)
        if current is None or current is stated:
            return

        types = dict(_types(written.as_struct()))

        for field_id, name, now in _named_types(current.as_struct()):
            # A column that the manifest does not have is newer than it.
            before = types.get(field_id, now)
            if not (_may_become(before, now) or _may_become(now, before)):
                raise TamperedFileError(
                    location, f"column {name} ({field_id}) is {before} in the manifest, but {now} in the table metadata"
                )


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


def _types(owner: IcebergType) -> Iterator[tuple[int, IcebergType]]:
    return ((field_id, each) for field_id, _, each in _named_types(owner))


def _may_become(before: IcebergType, now: IcebergType) -> bool:
    """Whether schema evolution allows it. What is inside a struct, list or map is compared by itself."""
    if not isinstance(before, PrimitiveType) or not isinstance(now, PrimitiveType):
        return type(before) is type(now) or isinstance(before, UnknownType)
    if before == now or isinstance(before, UnknownType):
        return True
    if isinstance(before, DateType) and isinstance(now, (TimestampType, TimestampNanoType)):
        return True

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
