"""Protected columns of a table: which column is under which master key, what others see of it, and how a file stores its column's key.

    column master key ── wraps ──▶ column KEK ── AES-GCM ──▶ column key of one field ── AES-GCM ──▶ DEK of the column in one file
        in the KMS            entry of encryption-keys      entry of encryption-keys           in the Parquet file's footer

The column key stays the same for the life of the column: rotating a KEK is a change of metadata alone, and without its column key nobody
opens the column in any file. column_key_ring.py makes and opens the entries; here is what needs neither metadata nor KMS.

What a table's properties say, by field id, so that renames change nothing:

    encryption.column.8.key-id = alias/pii       the column's master key in the KMS, never the table's own
    encryption.column.8.mask = truncate(4)       what readers see who may not use it; null where there is none
    encryption.column.8.since = 12               the sequence number up to which files, written before it was declared, lack the protection
    encryption.column.8.former-key-id = alias/old    files from before hold it under that key, which is not its key now
    encryption.column.8.former-until = 41        the greatest sequence number that such a file may have: former_keys.py

What a user writes, by name, and what a table's catalog turns into the above:

    encryption.column-keys = alias/pii: ssn, person.email; alias/fin: salary
    encryption.column-mask.ssn = truncate(4)

The key metadata of a protected column in a Parquet file (ColumnCryptoMetaData), inside the encrypted footer:

    version (1 byte) = 2 | length of the column key's id (1 byte) | id (UTF-8) | nonce (12) | DEK encrypted (16, 24 or 32) | tag (16)

    key: the column key; AAD: "tablecrypt column DEK" | version (1) | length of the id (1) | id | field id (4, big endian) | schema (32) |
    the file's AAD prefix, where schema is the SHA-256 of the column's nodes in the footer: bound_schemas.py. So the DEK of another file, of
    another column or of another table does not open in its place, nor beside a footer that says another type.

    Version 1 is read and no longer written: its AAD has no schema. What the footer says of such a column is compared with the table's
    schemas before the DEK is opened. The version is in the AAD, so that nobody makes one version of the other.

Masks:

    null            null in place of each value; an empty value of the type where the column is required
    error           no value: reading the column is refused
    redact          text with x for small letters, X for capital ones and 9 for digits
    hash            HMAC-SHA-256, 64 hexadecimal digits of text or 32 bytes: equal values of the column have equal hashes in all files
    truncate(n)     the first n characters of text, at least 1 and at most 64
    constant(text)  one value of the column's type, as Iceberg's literals are written

The last four are stored in the file when it is written, since nobody could make them without the column key; an empty text stays empty.

Raises ConfigurationError for properties that cannot be used, FormatError for key metadata that is none.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Final, NoReturn, Protocol, Self

from pyiceberg.expressions.literals import literal
from pyiceberg.schema import Schema
from pyiceberg.types import BinaryType, FixedType, IcebergType, PrimitiveType, StringType, StructType

from tablecrypt._bytes import ByteReader
from tablecrypt.crypto.aes_gcm import KEY_LENGTHS, NONCE_LENGTH, OVERHEAD, AesGcm
from tablecrypt.crypto.secret import Secret
from tablecrypt.errors import AuthenticationError, ConfigurationError, FormatError, TamperedFileError
from tablecrypt.keys.bound_schemas import BoundSchema, FieldsOf
from tablecrypt.keys.former_keys import FORMER_UNTIL, FormerKey, sequence_number_in
from tablecrypt.keys.nested_columns import ancestors, covering

COLUMN_PREFIX: Final = "encryption.column."
DECLARED_KEYS: Final = "encryption.column-keys"
DECLARED_MASK_PREFIX: Final = "encryption.column-mask."
_OF_COLUMNS: Final = (COLUMN_PREFIX, DECLARED_KEYS, DECLARED_MASK_PREFIX)
LAYOUT_VERSION: Final = 2
UNBOUND_VERSION: Final = 1
"""Of files from before version 2, which does not bind the column's schema."""

_KEY_ID: Final = "key-id"
_MASK: Final = "mask"
_SINCE: Final = "since"
_FIELD: Final = r"encryption\.column\.(0|[1-9][0-9]{0,9})"
_OF_FIELD: Final = re.compile(_FIELD + r"(?:\.|\Z)")
_BY_ID: Final = re.compile(_FIELD + r"\.(key-id|mask|since|former-key-id|former-until)")
_MASK_TEXT: Final = re.compile(r"(null|error|redact|hash|truncate|constant)(?:\((.*)\))?", re.DOTALL)
_LONGEST_PREFIX: Final = 64
_LONGEST_ID: Final = 255
_LARGEST_FIELD_ID: Final = 2**31 - 1
_AAD: Final = b"tablecrypt column DEK"
_MASKS_OF_TEXT: Final = frozenset({"redact", "truncate"})


@dataclass(frozen=True)
class ColumnMask:
    """What readers see of a protected column whose key they may not use.

    Attributes:
        kind: null, error, redact, hash, truncate or constant.
        argument: the number of characters of `truncate`, the text of `constant`; None for the others.

    Raises:
        ConfigurationError: it is no such kind, or the argument is not the kind's.
    """

    kind: str = "null"
    argument: int | str | None = None

    def __post_init__(self) -> None:
        right = {
            # Not isinstance: True would be one character.
            "truncate": type(self.argument) is int and 0 < self.argument <= _LONGEST_PREFIX,
            "constant": isinstance(self.argument, str),
        }
        if not right.get(self.kind, self.argument is None) or _MASK_TEXT.fullmatch(self.kind) is None:
            given = self.kind if self.argument is None else f"{self.kind}({self.argument})"
            raise ConfigurationError(
                f"unknown mask {given!r}; use null, error, redact, hash, truncate(n) with n from 1 to {_LONGEST_PREFIX}, or constant(value)"
            )

    def __str__(self) -> str:
        return self.kind if self.argument is None else f"{self.kind}({self.argument})"

    @classmethod
    def parse(cls, text: str) -> Self:
        """Return the mask that a property names: `truncate(4)`.

        Raises:
            ConfigurationError: it names none.
        """
        found = _MASK_TEXT.fullmatch(text.strip())
        # Not a mask that this release knows: `__post_init__` raises the error that lists them.
        if found is None:
            return cls(text)
        kind, argument = found.groups()
        # int() takes more than digits, and a number of four digits is longer than any prefix may be.
        is_number = kind == "truncate" and argument is not None and argument.isascii() and argument.isdigit() and len(argument) < 4
        return cls(kind, int(argument) if is_number else argument)

    @property
    def is_stored(self) -> bool:
        """Whether files hold the masked values, which nobody can make without the column key."""
        return self.kind not in ("null", "error")

    @property
    def needs_key(self) -> bool:
        """Whether the masked values are made with a key that the table keeps: see `column_key_ring.py`."""
        return self.kind == "hash"

    def check_type(self, column: str, column_type: IcebergType) -> None:
        """Raise ConfigurationError where values of this type cannot be masked so.

        Args:
            column: its name, for the message.
            column_type: its type. Structs, lists and maps can be masked by null and error alone.
        """
        if not self.is_stored:
            return

        text = isinstance(column_type, StringType)
        if self.kind in _MASKS_OF_TEXT and not text:
            raise ConfigurationError(f"column {column!r} is {column_type} and cannot be masked by {self}, which is for text")
        if self.kind == "hash" and not text and not isinstance(column_type, BinaryType):
            raise ConfigurationError(f"column {column!r} is {column_type} and cannot be masked by {self}, which is for text and binary")

        if self.kind == "constant":
            constant_of(self, column, column_type)


def constant_of(mask: ColumnMask, column: str, column_type: IcebergType) -> Any:
    """Return the value of a `constant` mask as PyIceberg holds values of this type.

    Raises:
        ConfigurationError: the text is no value of the type.
    """
    if not isinstance(column_type, PrimitiveType) or isinstance(column_type, (BinaryType, FixedType)):
        raise ConfigurationError(f"column {column!r} is {column_type} and cannot be masked by a constant")
    try:
        return literal(str(mask.argument)).to(column_type).value
    except (ValueError, TypeError, ArithmeticError) as error:
        raise ConfigurationError(f"column {column!r}: {mask} is no value of the type {column_type}") from error


@dataclass(frozen=True)
class ProtectedColumn:
    """A column under a master key of its own.

    Attributes:
        field_id: the column's, 1 or more.
        column_key_id: the master key's id in the KMS.
        mask: what others see.
        since: the data sequence number up to which files hold the column under the table's key; None where no file does.

    Raises:
        ConfigurationError: the id is none, or there is no master key.
    """

    field_id: int
    column_key_id: str
    mask: ColumnMask = field(default_factory=ColumnMask)
    since: int | None = None

    def __post_init__(self) -> None:
        if not 0 < self.field_id <= _LARGEST_FIELD_ID:
            raise ConfigurationError(f"{self.field_id} is not the id of a column")
        if not self.column_key_id:
            raise ConfigurationError(
                f"the column with field id {self.field_id} has no master key: {COLUMN_PREFIX}{self.field_id}.{_KEY_ID} is empty"
            )


def is_from_before(since: int | None, sequence_number: int | None) -> bool:
    """Whether a file is from before a column was protected, so that it holds the column under the table's key.

    Args:
        since: of the column, see `ProtectedColumn`.
        sequence_number: the file's data sequence number; None where it is not known.
    """
    return since is not None and sequence_number is not None and sequence_number <= since


def not_told(told_until: Mapping[int, int | None], sequence_number: int | None) -> frozenset[int]:
    """Return the columns of which a manifest entry tells nothing: whatever it says of them, no holder of their keys has said.

    Args:
        told_until: by field id, the data sequence number up to which entries tell of a protected column; None: none does.
        sequence_number: the entry's data sequence number; None where it is not known.
    """
    return frozenset(field_id for field_id, since in told_until.items() if not is_from_before(since, sequence_number))


@dataclass(frozen=True)
class ColumnPolicy:
    """The protected columns of a table, by field id. One without protected columns is false.

    Attributes:
        columns: those that are protected now.
        former: by field id, the master keys under which files from before hold a column.
    """

    columns: Mapping[int, ProtectedColumn] = field(default_factory=dict)
    former: Mapping[int, FormerKey] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.columns)

    @classmethod
    def of(cls, columns: Iterable[ProtectedColumn], former: Mapping[int, FormerKey] | None = None) -> Self:
        """Return the policy of these columns, in the order of their ids."""
        return cls({column.field_id: column for column in sorted(columns, key=lambda column: column.field_id)}, dict(former or {}))

    def master_keys(self, field_id: int) -> tuple[str, ...]:
        """Return the master keys under which files may hold a column; none for a column that never was protected."""
        column, former = self.columns.get(field_id), self.former.get(field_id)
        named = (column.column_key_id if column else None, former.key_id if former else None)
        return tuple(dict.fromkeys(key for key in named if key is not None))

    @classmethod
    def from_properties(cls, properties: Mapping[str, Any], schema: Schema | None = None) -> Self:
        """Return what a table's properties say.

        Args:
            properties: of the table's metadata.
            schema: leaves out columns that it does not have; None for all that are named, of earlier schemas too.

        Raises:
            ConfigurationError: they cannot be used; or hold what is for users to write, which a catalog that does not know it has stored.
        """
        policy = _policy_of(tuple((name, str(value)) for name, value in properties.items() if name.startswith(_OF_COLUMNS)))
        if schema is None:
            return cls(policy.columns, policy.former)
        present = {field_id: each for field_id, each in policy.columns.items() if schema.find_column_name(field_id) is not None}
        return cls(present, policy.former)

    def to_properties(self) -> dict[str, str]:
        """Return the properties that `from_properties` reads."""
        written: dict[str, str] = {}
        for column in self.columns.values():
            written[f"{COLUMN_PREFIX}{column.field_id}.{_KEY_ID}"] = column.column_key_id
            written[f"{COLUMN_PREFIX}{column.field_id}.{_MASK}"] = str(column.mask)
            if column.since is not None:
                written[f"{COLUMN_PREFIX}{column.field_id}.{_SINCE}"] = str(column.since)

        for field_id, former in self.former.items():
            written |= former.to_properties(f"{COLUMN_PREFIX}{field_id}.")
        return written

    def check(self, schema: Schema, table_key_id: str) -> None:
        """Check that the columns which a schema has can be protected so.

        Raises:
            ConfigurationError: a column is under the table's own master key; lies in a list or map, or in another protected column; or
                cannot be masked so.
        """
        for field_id, column in self.columns.items():
            name = schema.find_column_name(field_id)
            if name is None:
                continue
            if column.column_key_id == table_key_id:
                raise ConfigurationError(
                    f"column {name!r} is to be under {table_key_id!r}, which is the table's own master key: whoever reads the table would "
                    "read the column too. Name another key"
                )

            self._check_place(schema, field_id, name)
            column.mask.check_type(name, schema.find_type(field_id))

    def _check_place(self, schema: Schema, field_id: int, name: str) -> None:
        for ancestor in ancestors(schema, field_id):
            above = schema.find_column_name(ancestor)
            if ancestor in self.columns:
                raise ConfigurationError(f"column {name!r} lies in {above!r}, which is protected as a whole: leave one of the two out")
            if not isinstance(schema.find_type(ancestor), StructType):
                raise ConfigurationError(
                    f"column {name!r} lies in {above!r}, whose rows have any number of it: protect {above!r} as a whole"
                )


def field_id_in(name: str) -> int | None:
    """Return the field id that a property `encryption.column.<field id>.…` names; None where a name has none."""
    found = _OF_FIELD.match(name)
    return None if found is None else int(found[1])


def told_until(properties: Mapping[str, Any], schema: Schema) -> dict[int, int | None]:
    """Return up to which data sequence number manifest entries tell of protected columns and of what lies in them, by field id.

    Entries of files with hidden columns say nothing of these (None). Whoever may commit can say something in their place: bounds that keep
    rows from whoever filters by the column, or have a delete take a file whole.

    Args:
        properties: of the table's metadata.
        schema: of the table.
    """
    columns = ColumnPolicy.from_properties(properties).columns
    return {field_id: column.since for field_id, column in covering(columns, schema).items()} if columns else {}


@lru_cache(maxsize=256)
def _policy_of(said: tuple[tuple[str, str], ...]) -> ColumnPolicy:
    """Return what properties of columns say, which a commit asks some thirty times."""
    masks: dict[int, ColumnMask] = {}
    since: dict[int, int] = {}
    keys: dict[int, str] = {}
    former: dict[int, str] = {}
    until: dict[int, int] = {}

    for name, value in said:
        _refuse_undeclared(name)
        if not name.startswith(COLUMN_PREFIX):
            continue

        found = _BY_ID.fullmatch(name)
        # Passed over, a property that is misspelt would leave its column under the table's key.
        if found is None:
            raise ConfigurationError(f"{name} is not a property of a column: {COLUMN_PREFIX}<field id>.{_KEY_ID} and .{_MASK} are")

        field_id = int(found[1])

        if found[2] == _MASK:
            masks[field_id] = ColumnMask.parse(value)
        elif found[2] in (_SINCE, FORMER_UNTIL):
            (since if found[2] == _SINCE else until)[field_id] = sequence_number_in(name, value)
        else:
            (keys if found[2] == _KEY_ID else former)[field_id] = value

    if alone := sorted({*masks, *since} - keys.keys()):
        raise ConfigurationError(
            f"properties {COLUMN_PREFIX}{alone[0]}.* are of a column without a key: {COLUMN_PREFIX}{alone[0]}.{_KEY_ID} is missing. "
            "Restore it: without it, the column would be written under the table's key"
        )

    columns = [
        ProtectedColumn(field_id, key_id, masks.get(field_id, ColumnMask()), since.get(field_id)) for field_id, key_id in keys.items()
    ]
    # An end without a key says nothing: it opens no file.
    ended = {field_id: FormerKey(key_id, until.get(field_id)) for field_id, key_id in former.items()}

    return ColumnPolicy.of(columns, ended)


def _refuse_undeclared(name: str) -> None:
    if name == DECLARED_KEYS or name.startswith(DECLARED_MASK_PREFIX):
        raise ConfigurationError(
            f"the table's metadata holds the property {name}, which another engine has set: it protects nothing by itself. Remove it, and "
            "set it through tablecrypt, which keeps it by field id"
        )


@dataclass(frozen=True)
class ColumnKey:
    """The key of one protected column in one file.

    Attributes:
        field_id: the column's.
        secret: the DEK, 16, 24 or 32 bytes. Not in the repr; the object refuses to be pickled.
        column_key_id: of the column key that it is wrapped under.
        key_metadata: returns what the footer of a file with this schema of the column stores of it, as above.
    """

    field_id: int
    secret: bytes = field(repr=False)
    column_key_id: str
    key_metadata: Callable[[BoundSchema], bytes] = field(repr=False)

    def __reduce__(self) -> NoReturn:
        raise TypeError("a ColumnKey is never pickled: it holds a key in the clear")


class ColumnKeys(Protocol):
    """Makes and opens the keys of one table's protected columns. Safe for many threads."""

    def generate(self, field_ids: Iterable[int], aad_prefix: bytes) -> dict[int, ColumnKey]:
        """Return a fresh key for each of these columns in the file with this AAD prefix.

        Raises:
            ColumnKeyDeniedError: the KMS does not let this user use the master key of one.
            ConfigurationError: a column is not protected.
            KmsError: the KMS failed.
        """
        ...

    def unwrap(self, field_id: int, key_metadata: bytes, aad_prefix: bytes, schema: BoundSchema, sequence_number: int | None) -> bytes:
        """Return the DEK of a column in the file with this AAD prefix and data sequence number, whose footer says this of the column.

        Raises:
            ColumnKeyDeniedError: the KMS does not let this user use the column's master key.
            KeyNotFoundError: the table has no such column key: the column was shredded, or somebody removed the entry.
            TamperedFileError: it is another column's or file's, or was changed; or the footer says another type than was written; or it is
                under a former master key, and the file is younger than that.
            AuthenticationError, FormatError: an entry of encryption-keys was changed, or the bytes are no key metadata.
            KmsError: the KMS failed.
        """
        ...

    def check_readable(self, field_ids: Iterable[int]) -> None:
        """Return if this user may open the column keys of all these columns.

        Raises:
            ColumnKeyDeniedError: the KMS does not let this user use the master key of one.
            AuthenticationError, FormatError, KmsError: as `unwrap`.
        """
        ...

    def mask_key(self, field_id: int) -> Secret:
        """Return the key of a column's `hash` mask. Raises as `generate`."""
        ...


def key_id_in(key_metadata: bytes) -> str:
    """Return the id of the column key under which a file's column key is.

    Raises:
        FormatError: the bytes are no key metadata of a column of a version that this release reads.
    """
    return _split(key_metadata)[1]


def wrap_dek(key_id: str, column_key: Secret, field_id: int, aad_prefix: bytes, dek: Secret, random: Callable[[int], bytes]) -> ColumnKey:
    """Return a column's key in one file, under a column key.

    Args:
        key_id: the column key's id, at most 255 bytes of UTF-8.
        column_key: that key.
        field_id: the column's.
        aad_prefix: the file's, never empty: nothing else tells one file from another.
        dek: fresh.
        random: the source of nonces.
    """
    if not aad_prefix:
        raise ConfigurationError("a file with protected columns needs an AAD prefix")
    header = _header(LAYOUT_VERSION, key_id)

    def key_metadata(schema: BoundSchema) -> bytes:
        return header + AesGcm(column_key).encrypt(random(NONCE_LENGTH), dek.reveal(), _aad(header, field_id, schema.digest(), aad_prefix))

    return ColumnKey(field_id, dek.reveal(), key_id, key_metadata)


def unwrap_dek(
    column_key: Secret,
    field_id: int,
    key_metadata: bytes,
    aad_prefix: bytes,
    schema: BoundSchema,
    fields_of: FieldsOf = lambda field_id: (),
) -> bytes:
    """Return the DEK that `wrap_dek` was given.

    Args:
        column_key: the key that it is under.
        field_id: the column's.
        key_metadata: what the footer stores.
        aad_prefix: the file's.
        schema: what the footer says of the column.
        fields_of: what the table says, for version 1.

    Raises:
        TamperedFileError: it is another column's or file's, or another key's, or was changed; or the footer says another type.
        FormatError: the bytes are no key metadata of a column.
    """
    version, key_id, wrapped = _split(key_metadata)
    bound = schema.digest() if version == LAYOUT_VERSION else b""
    # Nothing authenticates the schema of version 1: only what the table's own schemas would be written as is taken for true.
    if version == UNBOUND_VERSION and not schema.is_of(fields_of):
        raise TamperedFileError(
            schema.location,
            f"its footer says another type of the column with field id {field_id} than the table's schemas say",
        )

    try:
        return AesGcm(column_key).decrypt(wrapped, _aad(_header(version, key_id), field_id, bound, aad_prefix))
    except AuthenticationError as error:
        raise TamperedFileError(
            schema.location,
            f"the key of the column with field id {field_id} does not open under column key {key_id}: it is that of another file or "
            "column, or it was changed, or the type of the column in the footer",
        ) from error


def _header(version: int, key_id: str) -> bytes:
    encoded = key_id.encode()
    if not 0 < len(encoded) <= _LONGEST_ID:
        raise FormatError(f"a column key's id has 1 to {_LONGEST_ID} bytes, not {len(encoded)}")
    return bytes([version, len(encoded)]) + encoded


def _aad(header: bytes, field_id: int, bound: bytes, aad_prefix: bytes) -> bytes:
    # Of one meaning only: the header says its own length, and its version whether the schema's 32 bytes follow.
    return _AAD + header + struct.pack(">I", field_id) + bound + aad_prefix


def _split(key_metadata: bytes) -> tuple[int, str, bytes]:
    """Return the version, the column key's id, and the wrapped DEK."""
    reader = ByteReader(key_metadata, "a column's key metadata")
    version = reader.number(1)
    if version not in (LAYOUT_VERSION, UNBOUND_VERSION):
        raise FormatError(
            f"a column's key metadata has layout version {version}; this release reads versions {UNBOUND_VERSION} and {LAYOUT_VERSION}"
        )

    try:
        key_id = reader.take(reader.number(1)).decode()
    except UnicodeDecodeError as error:
        raise FormatError("a column's key metadata names a column key in bytes that are not UTF-8") from error

    wrapped = reader.rest()
    if not key_id or len(wrapped) - OVERHEAD not in KEY_LENGTHS:
        raise FormatError(f"a column's key metadata ends with {len(wrapped)} bytes, which are no wrapped key")

    return version, key_id, wrapped
