"""The layout of a file with protected columns: its hidden columns found, and every column under the key that it has to be under.

What is checked of a file before any of it is read:

    each hidden column has the shape of a column with its field id, and every leaf of a protected column is in it (hidden_columns.py)
    each hidden column is under a key of its own, and everything else under the file's
    the key metadata of a hidden column opens for this file, this field and its schema in the footer: whoever puts the hidden column of
    another file or field there, or says that its bytes are of another type, is found out by what opens it
    Arrow, which parses the footer anew, finds the columns that were checked, and each has a field id in the schema

The last is what readers go by. Where the schema has no field id for a column, Arrow takes the one in the Arrow schema that the footer may
hold, and PyIceberg the one in the table's name mapping: by either, a column under the table's key would pass for a protected one, and a
protected one for another.

No column key is needed for the layout itself: a hidden column is opened when its pages or its metadata are first asked for.

Raises TamperedFileError, FormatError, and what tablecrypt.parquet.layout raises.

Specification: Apache Parquet, "Parquet Modular Encryption", sections 5.2 and 5.3.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.parquet as pq

from tablecrypt.crypto.key_metadata import StandardKeyMetadata
from tablecrypt.crypto.secret import Secret
from tablecrypt.errors import FormatError, TamperedFileError
from tablecrypt.keys.bound_schemas import BoundSchema
from tablecrypt.parquet import thrift
from tablecrypt.parquet.file_keys import FOOTER_KEY_NAME, FileKeys
from tablecrypt.parquet.footer import PLAIN_MAGIC, FileCiphers, StoredFooter, described, keys_of_chunks, plain_end
from tablecrypt.parquet.layout import FileLayout, encrypted_layout
from tablecrypt.parquet.modules import ModuleCipher
from tablecrypt.parquet.protected.hidden_arrays import FIELD_ID_KEY
from tablecrypt.parquet.protected.hidden_columns import (
    HiddenLeaf,
    Leaf,
    bound_schemas,
    hidden_field_id,
    hidden_leaves_among,
    leaves_of,
    of_shown_columns,
    schema_of_field,
)
from tablecrypt.parquet.protected.mapped_ids import MappedColumn, with_mapped_ids
from tablecrypt.parquet.protected.placeholders import is_error_placeholder
from tablecrypt.parquet.storage import Source
from tablecrypt.parquet.structs import FileMetaData

KeyByField = Callable[[int, bytes], Secret]
"""Returns the DEK of a hidden column: field id, key metadata. Raises what its key service raises."""


@dataclass(frozen=True)
class StoredHiddenColumns:
    """What a file says of protected columns; no column key is needed to see it.

    Attributes:
        columns: the field ids in its schema.
        places: field id and ancestors, the innermost first, of each column but the hidden ones.
        keys: its hidden columns: field id and key metadata, each once. Those of a file without rows have none.
        masked: the field ids of those whose placeholders hold masked values.
        schemas: by field id, what key metadata binds of the hidden columns, and of the columns that were asked for.
    """

    columns: frozenset[int]
    places: frozenset[tuple[int, tuple[int, ...]]]
    keys: tuple[tuple[int, bytes], ...]
    masked: frozenset[int]
    schemas: Mapping[int, BoundSchema]

    @property
    def protected(self) -> frozenset[int]:
        """The field ids of the columns that are hidden."""
        return frozenset(field_id for field_id, _ in self.keys)


class ProtectedLayout:
    """The columns of a file, each under the key that it has to be under.

    Args:
        source: the ciphertext.
        key_metadata: of the file.
        hidden_key: opens hidden columns; each is asked for once. None: they are not to be opened.
        footer: its end, of a caller who has read it, and has checked the file's length.
        known: field ids of the columns that the table says are protected. None: any may be.
        mapping: the table's name mapping, by which files without field ids are read. None: the schema's own ids count alone.

    Attributes:
        file: its layout.
        schema: the nodes in its footer, with the field ids that the mapping gives them where they have none.
        leaves: its columns.
        hidden_leaves: those that are hidden.
        schemas: by field id, what key metadata binds of them.
        protected: their field ids.
        algorithm: of the file.
    """

    def __init__(
        self,
        source: Source,
        key_metadata: StandardKeyMetadata,
        hidden_key: KeyByField | None = None,
        *,
        footer: StoredFooter | None = None,
        known: frozenset[int] | None = None,
        mapping: Sequence[MappedColumn] | None = None,
    ) -> None:
        self._aad_prefix = key_metadata.aad_prefix
        self._hidden_key = hidden_key
        self._found: dict[tuple[int, bytes], Secret] = {}
        keys = FileKeys.of_table_file(key_metadata, self._key_of)
        self.file = encrypted_layout(source, keys) if footer is None else FileLayout(source, footer, FileCiphers(footer, keys))
        algorithm = self.file.footer.algorithm
        assert algorithm is not None, "the layout is that of an encrypted file"
        self.algorithm = algorithm
        self.schema = self.file.metadata.structs(FileMetaData.SCHEMA)
        with described(source.location, "the schema in the footer"):
            self.leaves = leaves_of(self.schema)
            if mapping is not None:
                self.schema = with_mapped_ids(self.schema, mapping)
                self.leaves = leaves_of(self.schema)
        self.hidden_leaves = hidden_leaves_among(self.leaves, source.location)
        with described(source.location, "the schema in the footer"):
            self.schemas = bound_schemas(self.schema, self.hidden_leaves, source.location)
        self.protected = frozenset(hidden.field_id for hidden in self.hidden_leaves)
        if known is not None:
            self._check_known(known)
        self._check_keys()

    @property
    def listed(self) -> list[Leaf]:
        """The columns that the footer lists, in their order: those that Arrow has to find."""
        is_apart = self.file.holds_columns_apart
        return [leaf for leaf in self.leaves if not is_apart or leaf.hidden_field_id is None]

    def stored(self, wanted: Collection[int] = ()) -> StoredHiddenColumns:
        """Return what the file says of protected columns.

        Args:
            wanted: field ids of columns that are to be protected.

        Raises:
            TamperedFileError: Arrow would read the file otherwise.
        """
        self._check_for_arrow()
        groups = self.file.row_groups
        keys = dict.fromkeys(
            (hidden.field_id, chunks[hidden.ordinal].key_metadata or b"") for hidden in self.hidden_leaves for chunks in groups
        )
        without_rows = {(hidden.field_id, b""): None for hidden in self.hidden_leaves if not groups}
        columns = frozenset(each for leaf in self.leaves for each in leaf.field_ids)
        shown = [leaf.field_ids for leaf in self.leaves if leaf.hidden_field_id is None]
        places = frozenset((ids[at], ids[:at][::-1]) for ids in shown for at in range(len(ids)))
        masked = frozenset(hidden.field_id for hidden in self.hidden_leaves if self.has_masks(hidden))

        return StoredHiddenColumns(columns, places, tuple({**keys, **without_rows}), masked, {**self._schemas_of(wanted), **self.schemas})

    def has_masks(self, hidden: HiddenLeaf) -> bool:
        """Whether the placeholder holds masked values."""
        groups = self.file.row_groups
        return bool(groups) and not all(is_error_placeholder(chunks[hidden.placeholder].metadata) for chunks in groups)

    def cipher(self, dek: Secret) -> ModuleCipher:
        """Return what encrypts modules under a DEK with the AAD prefix and aad_file_unique of this file."""
        aad_base = self._aad_prefix + self.algorithm.aad_file_unique
        return ModuleCipher(dek, FOOTER_KEY_NAME, aad_base, False, self.file.location, secrets.token_bytes)

    def _schemas_of(self, wanted: Collection[int]) -> dict[int, BoundSchema]:
        tops = {each: leaf.path[0] for leaf in self.leaves if leaf.hidden_field_id is None for each in leaf.field_ids if each in wanted}
        return {each: schema_of_field(self.schema, top, each, self.file.location) for each, top in tops.items() if each not in self.schemas}

    def _check_for_arrow(self) -> None:
        """Check for Arrow a footer that it has not opened. Without hidden columns there is nothing to confuse."""
        if not self.hidden_leaves:
            return

        metadata, location = self.file.metadata, self.file.location
        listed = of_shown_columns(metadata) if self.file.holds_columns_apart else metadata.copy()
        listed.set(FileMetaData.ROW_GROUPS, thrift.LIST, [])
        try:
            opened = pq.ParquetFile(pa.BufferReader(PLAIN_MAGIC + plain_end(listed)))
            check_as_arrow_reads(opened.metadata, opened.schema_arrow, self.listed, location)
        except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
            raise FormatError(f"{location}: the schema in the footer is malformed: {error}") from error

    def _check_known(self, known: frozenset[int]) -> None:
        if unknown := self.protected - known:
            raise FormatError(
                f"{self.file.location}: column {min(unknown)} is encrypted with a key of its own, and the table's properties do not say "
                "that it is protected: they were changed, or the file is another table's"
            )

    def _check_keys(self) -> None:
        """Check that each hidden column is under a key of its own, and everything else under the file's.

        Raises:
            TamperedFileError: a column is under another key, or in the clear.
        """
        ordinals = {hidden.ordinal for hidden in self.hidden_leaves}
        groups, ciphers = self.file.row_groups, self.file.ciphers
        assert ciphers is not None, "the layout is that of an encrypted file"
        # Chunk by chunk, in row groups of as many chunks as the schema has leaves: by their number alone, a hidden column under the file's
        # key would pass beside another column that has a key of its own.
        expected = tuple(ordinal in ordinals for ordinal in range(len(self.leaves))) * len(groups)
        is_even = all(len(chunks) == len(self.leaves) for chunks in groups)
        if is_even and keys_of_chunks(self.file.footer, ciphers)[1] == expected:
            return

        for chunk in self.file.chunks():
            if chunk.has_own_key != (chunk.ordinals.column in ordinals):
                raise TamperedFileError(self.file.location, f"{chunk.ordinals} is not under the key that it has to be under")
            if not chunk.has_own_key:
                _ = chunk.cipher  # an error for a column in the clear

    def _key_of(self, path: tuple[str, ...], key_metadata: bytes | None) -> Secret:
        field_id = hidden_field_id(path[0])
        if self._hidden_key is None or field_id is None or key_metadata is None:
            raise TamperedFileError(self.file.location, f"column {'.'.join(path)} is encrypted with a key that is no column key")
        known = self._found.get((field_id, key_metadata))
        if known is None:
            known = self._found[field_id, key_metadata] = self._hidden_key(field_id, key_metadata)
        return known


def check_as_arrow_reads(footer: pq.FileMetaData, columns: Iterable[pa.Field], leaves: Sequence[Leaf], location: str) -> None:
    """Check that what Arrow found in a footer is what was checked of it.

    Args:
        footer: of the file or its view, as Arrow has opened it.
        columns: as Arrow gives them.
        leaves: the columns that were checked.
        location: names the file in errors.

    Raises:
        TamperedFileError: it is something else, or a column has no field id, or the name or field id of another one.
    """
    found = [footer.schema.column(at).path for at in range(footer.num_columns)]
    if found != [".".join(leaf.path) for leaf in leaves]:
        raise TamperedFileError(location, "has other columns for Arrow than its schema says")

    shown = [column for column in columns if hidden_field_id(column.name) is None]
    ids = list(_field_ids(shown))
    if None in ids or len({*ids}) < len(ids) or not _have_own_names(shown):
        raise TamperedFileError(location, "has a column without a field id, or with the name or field id of another one")

    # Where the schema has no id of a column, Arrow has the one that a note in the footer gives it. Readers take `02` for 2 there.
    checked = [tuple(str(each).encode() for each in leaf.field_ids) for leaf in leaves if leaf.hidden_field_id is None]
    if list(_ids_of_leaves(shown)) != checked:
        raise TamperedFileError(location, "has other field ids for Arrow than its schema says")


def _field_ids(fields: Iterable[pa.Field]) -> Iterator[bytes | None]:
    for field in fields:
        yield (field.metadata or {}).get(FIELD_ID_KEY)
        yield from _field_ids(_fields_in(field.type))


def _ids_of_leaves(fields: Iterable[pa.Field], above: tuple[bytes, ...] = ()) -> Iterator[tuple[bytes, ...]]:
    """Yield the field ids on the way to each column that has none in it."""
    for field in fields:
        ids = (*above, (field.metadata or {}).get(FIELD_ID_KEY, b""))
        if inner := _fields_in(field.type):
            yield from _ids_of_leaves(inner, ids)
        else:
            yield ids


def _have_own_names(fields: Sequence[pa.Field]) -> bool:
    names = {field.name for field in fields}
    return len(names) == len(fields) and all(_have_own_names(_fields_in(field.type)) for field in fields)


def _fields_in(kind: pa.DataType) -> list[pa.Field]:
    if pa.types.is_map(kind):
        return [kind.key_field, kind.item_field]
    return [kind.field(at) for at in range(kind.num_fields)] if pa.types.is_nested(kind) else []
