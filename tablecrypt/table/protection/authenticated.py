"""What a table's properties say of protected columns, held against their declarations before a read, a write and a commit of files.

    the newest declaration of each master key allows what the properties say    nothing happens
    it does not                                                                  KeyIdChangedError
    there is none, and the properties name a former master key or `since`        KeyIdChangedError
    there is none, the properties name a stored mask, and values are written     KeyIdChangedError
    this user may not use the master key                                         nothing: he relies on pins
    another column of the schema has a name that one declares, files are         KeyIdChangedError: earlier schemas may have been taken out,
    written, and that column is not under the same key (policy.py)               in which the name would be seen, or the properties of a
                                                                                 column that was dropped

keys/column_declarations.py says what a declaration is and allows, declaring.py who writes one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Final

from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata

from tablecrypt.errors import ColumnKeyDeniedError, ConfigurationError, KeyIdChangedError, KmsAccessDeniedError, KmsError, TablecryptError
from tablecrypt.files.encrypting_file_io import EncryptingFileIO
from tablecrypt.keys.column_declarations import FORMER, KEY, MASK, PROTECTION, SINCE, UNTIL, ColumnDeclaration, Declarations, weakened
from tablecrypt.keys.column_key_ring import ColumnKeyMaker
from tablecrypt.keys.column_keys import COLUMN_PREFIX, DECLARED_KEYS, DECLARED_MASK_PREFIX, ColumnPolicy, ProtectedColumn
from tablecrypt.keys.column_lookup import KeyedColumn
from tablecrypt.keys.key_ring import KeyRing
from tablecrypt.keys.nested_columns import covering, name_or_id
from tablecrypt.table.metadata import EncryptedTableMetadata
from tablecrypt.table.protection.policy import folded, names_of_protected, protection_of_leaves, taken_message, taken_names
from tablecrypt.table.table_files import TableFileIO

_PROPERTY_OF: Final = {PROTECTION: "key-id", KEY: "key-id", MASK: "mask", SINCE: "since", FORMER: "former-key-id", UNTIL: "former-until"}


def check_declared(metadata: TableMetadata, io: EncryptingFileIO, field_ids: Iterable[int] | None = None, *, writing: bool) -> None:
    """Check that the properties protect columns no less than was declared by somebody who may use their keys.

    Who may not use a column's key cannot tell, and relies on pins. A task of a job has no keys to tell by: its driver has checked.

    Args:
        metadata: what is read or written.
        io: the table's.
        field_ids: the columns; None for all of the current schema that are or were protected.
        writing: whether values are written.

    Raises:
        KeyIdChangedError: somebody without the key of a column has changed how it is protected, or its declaration is missing.
        AuthenticationError, FormatError, KeyNotFoundError, KmsError: a column key does not open.
    """
    if isinstance(metadata, EncryptedTableMetadata) and isinstance(io, TableFileIO):
        for field_id in _protected(metadata, field_ids):
            _check_column(metadata, io.manager.columns, field_id, writing)
        if writing:
            for error in _names_taken(metadata, io.manager.columns).values():
                raise error


def check_chosen(metadata: EncryptedTableMetadata, io: TableFileIO, field_id: int, name: str) -> None:
    """Check that the name by which a user chose a protected column was never that of another one.

    Whoever may commit can have two columns under one key exchange their names. Who has that key reads both, and loses nothing; but what
    gives away or destroys one of them would reach the other.

    Args:
        metadata: the table's.
        io: the table's; opens declarations, where this user may use the keys.
        field_id: the column that has the name.
        name: as the user says it.

    Raises:
        ConfigurationError: another protected column has or had the name.
        KmsError: the KMS failed.
    """
    ring, of_schemas = metadata.key_ring, names_of_protected(metadata)
    declarations = Declarations(io.manager.columns, ring, str(metadata.table_uuid))
    for other in sorted({*of_schemas, *(entry.field_id for entry in ring.column_keys)} - {field_id}):
        # Those of declarations too: whoever edits metadata can take out the schemas that had them.
        if folded(name) in of_schemas.get(other, frozenset()) | set(map(folded, _names_in(declarations.newest(other)))):
            raise ConfigurationError(
                f"{metadata.location}: {name!r} is the column with field id {field_id}, and {ring.column(other)} had that "
                "name: somebody may have exchanged them. See which values it has, give it a name that no other protected column had, and "
                "use that"
            )


def check_compared(metadata: EncryptedTableMetadata, io: TableFileIO, schema: Schema, field_ids: Iterable[int]) -> None:
    """Check the names of the protected columns that a filter compares, as `check_chosen` does: it decides which rows go, or are given away.

    Args:
        metadata, io: the table's.
        schema: by whose names the filter was made.
        field_ids: of the columns that it compares.

    Raises:
        ConfigurationError, KmsError: as `check_chosen`.
    """
    protected = covering({each: each for each in ColumnPolicy.from_properties(metadata.properties).columns}, schema)
    # Other columns have no names of their own that anybody promises: whoever may commit writes their values too.
    for field_id in sorted({protected[each] for each in field_ids if each in protected}):
        check_chosen(metadata, io, field_id, name_or_id(schema, field_id))


def undeclared_columns(
    metadata: TableMetadata, maker: ColumnKeyMaker, field_ids: Iterable[int] | None = None
) -> dict[int, KeyIdChangedError]:
    """Return which columns are protected less than was declared, by field id, as this user's keys tell.

    Args:
        metadata: the table's.
        maker: opens column keys.
        field_ids: the columns; None for all that are or were protected, those that were dropped too.

    Raises:
        KmsError: the KMS failed, and not by refusing a key.
    """
    found: dict[int, KeyIdChangedError] = {}
    if not isinstance(metadata, EncryptedTableMetadata):
        return found

    present = metadata.schema().field_ids
    for field_id in _protected(metadata, field_ids, with_dropped=True):
        with _unless_keys_do_not_open():
            try:
                _check_column(metadata, maker, field_id, writing=field_id in present)
            except KeyIdChangedError as error:
                found[field_id] = error

    if field_ids is None:
        with _unless_keys_do_not_open():
            found = {**_names_taken(metadata, maker), **found}
    return found


@contextmanager
def _unless_keys_do_not_open() -> Iterator[None]:
    try:
        yield
    except TablecryptError as error:
        # A key service that fails says nothing of any column: an audit without these findings would look like a clean one.
        if isinstance(error, KmsError) and not isinstance(error, KmsAccessDeniedError):
            raise
        # keys that do not open are told of where they are used


def _protected(metadata: EncryptedTableMetadata, field_ids: Iterable[int] | None = None, *, with_dropped: bool = False) -> list[int]:
    """Those of the columns that are or were protected; without field ids, of the current schema, and with those that were dropped."""
    policy, present = ColumnPolicy.from_properties(metadata.properties), metadata.schema().field_ids
    named = {*policy.columns, *policy.former}
    # By its keys as well: a column whose properties were removed stays among those that are checked.
    known = {*named, *(entry.field_id for entry in metadata.key_ring.column_keys)}
    if field_ids is not None:
        return sorted(known.intersection(field_ids))
    # Of a dropped column without properties, `_names_taken` says what matters: nobody writes it.
    return sorted(each for each in known if each in present or (with_dropped and each in named))


def _check_column(metadata: EncryptedTableMetadata, maker: ColumnKeyMaker, field_id: int, writing: bool) -> None:
    ring, stated = metadata.key_ring, ColumnDeclaration.stated(ColumnPolicy.from_properties(metadata.properties), field_id)
    declarations = Declarations(maker, ring, str(metadata.table_uuid))
    found = declarations.newest(field_id)
    # Under each master key: whoever may use only one of them could else declare away what holders of another have declared.
    for newest in found.values():
        if newest and all(weakened(each, stated) for each in newest):
            raise changed_error(ring, stated, weakened(newest[0], stated))
    # A user without the key cannot tell a missing declaration from one that does not open: such a user goes on, and relies on pins.
    if _is_missing(declarations, found, stated, writing) and (found or _may_use(maker, ring, stated)):
        raise _undeclared(ring, stated)


def _names_taken(metadata: EncryptedTableMetadata, maker: ColumnKeyMaker) -> dict[int, KeyIdChangedError]:
    """Return the protected columns of which another column has a name that somebody with their keys has declared, by field id."""
    policy, schema = ColumnPolicy.from_properties(metadata.properties), metadata.schema()
    declarations = Declarations(maker, metadata.key_ring, str(metadata.table_uuid))
    owners, names = dict(policy.columns), dict[int, frozenset[str]]()

    for field_id in sorted({*owners, *(entry.field_id for entry in metadata.key_ring.column_keys)}):
        found = declarations.newest(field_id)
        declared = _names_in(found)
        # Whoever may commit can drop a column and remove its properties. Its name would go with them, and others write by names.
        if not policy.master_keys(field_id):
            if (column := _still_protected(field_id, found)) is None:
                continue
            owners[field_id] = column
            declared |= {name for each in metadata.schemas if (name := each.find_column_name(field_id)) is not None}
        names[field_id] = frozenset(map(folded, declared))

    return {
        taken.owner: KeyIdChangedError(
            taken_message(taken, owners[taken.owner].column_key_id, schema, is_stated=taken.owner in policy.columns)
        )
        for taken in taken_names(names, ColumnPolicy(owners), protection_of_leaves(policy, schema).items())
    }


def _names_in(found: Mapping[str, tuple[ColumnDeclaration, ...]]) -> set[str]:
    return {name for newest in found.values() for each in newest for name in each.names}


def _still_protected(field_id: int, found: Mapping[str, tuple[ColumnDeclaration, ...]]) -> ProtectedColumn | None:
    """Return how a column is protected that no property names; None where somebody with its keys has said that it is no more.

    Who removes the properties through tablecrypt leaves such a declaration. So where there is none, somebody has removed both.
    """
    for master_key_id, newest in found.items():
        if not newest:
            return ProtectedColumn(field_id, master_key_id)
        if all(each.column is not None for each in newest):
            return newest[0].column
    return None


def _is_missing(
    declarations: Declarations, found: Mapping[str, tuple[ColumnDeclaration, ...]], stated: ColumnDeclaration, writing: bool
) -> bool:
    """Whether what the properties say takes a declaration to be believed, and a master key that the column has keys under lacks one."""
    if found:
        believes = bool(stated.former) or _has_since(stated) or (writing and stated.shows_stored_mask)
        return believes and not all(found.values())
    # Without column keys nothing of it can be read. New values would be as the properties say: behind a mask, or in the clear.
    return writing and needs_declaration(stated) and not declarations.column_keys(stated.field_id)


def needs_declaration(stated: ColumnDeclaration) -> bool:
    """Whether what the properties say of a column is believed only if somebody with its key has declared it."""
    return stated.shows_stored_mask or bool(stated.former) or _has_since(stated)


def _has_since(stated: ColumnDeclaration) -> bool:
    return stated.column is not None and stated.column.since is not None


def _may_use(maker: ColumnKeyMaker, ring: KeyRing, stated: ColumnDeclaration) -> bool:
    if stated.column is None:
        return True  # nobody is kept from values in the clear: fail closed for all
    try:
        maker.current_column_key(KeyedColumn.of(stated.column, ring))
    except ColumnKeyDeniedError:
        return False
    return True


def changed_error(ring: KeyRing, stated: ColumnDeclaration, respects: Mapping[str, str]) -> KeyIdChangedError:
    """Return the error of a column that is protected less than was declared, in these respects."""
    first = next(iter(respects))
    name = f"{COLUMN_PREFIX}{stated.field_id}.{_PROPERTY_OF[first]}"
    return KeyIdChangedError(
        f"{ring.column(stated.field_id)} {'; it '.join(respects.values())}: somebody without the column's key changed {name}. Restore "
        f"it, or have somebody with the column's key declare the column ({_remedy(ring, stated, first)})"
    )


def _undeclared(ring: KeyRing, stated: ColumnDeclaration) -> KeyIdChangedError:
    if stated.shows_stored_mask and stated.column is not None:
        what, respect = f"is masked by {stated.column.mask}", MASK
    elif stated.former:
        what, respect = f"has the former master key {next(iter(stated.former))!r}", KEY
    else:
        what, respect = "may be unprotected in files from before", KEY

    return KeyIdChangedError(
        f"{ring.column(stated.field_id)} {what}, and no declaration in encryption-keys says so under the column's key: have somebody with "
        f"that key declare it again ({_remedy(ring, stated, respect)})"
    )


def _remedy(ring: KeyRing, stated: ColumnDeclaration, respect: str) -> str:
    return f"{DECLARED_MASK_PREFIX}{ring.name_of(stated.field_id) or stated.field_id}" if respect == MASK else DECLARED_KEYS
