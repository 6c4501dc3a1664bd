"""What a table's properties say of protected columns, held against their declarations before a read, a write and a commit of files.

    the newest declaration of each master key allows what the properties say    nothing happens
    it does not                                                                  KeyIdChangedError
    there is none, and the properties name a former master key or `since`        KeyIdChangedError
    there is none, the properties name a stored mask, and values are written     KeyIdChangedError
    this user may not use the master key                                         nothing: he relies on pins
    another column of the schema has a name that one declares, files are         KeyIdChangedError: earlier schemas may have been taken out,
    written, and that column is not under the same key (policy.py)               in which the name would be seen

keys/column_declarations.py says what a declaration is and allows, declaring.py who writes one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import chain
from typing import Final, cast

from pyiceberg.table.metadata import TableMetadata

from tablecrypt.errors import ColumnKeyDeniedError, KeyIdChangedError, KmsAccessDeniedError, KmsError, TablecryptError
from tablecrypt.files.encrypting_file_io import EncryptingFileIO
from tablecrypt.keys.column_declarations import FORMER, KEY, MASK, PROTECTION, SINCE, UNTIL, ColumnDeclaration, Declarations, weakened
from tablecrypt.keys.column_key_ring import ColumnKeyMaker
from tablecrypt.keys.column_keys import COLUMN_PREFIX, DECLARED_KEYS, DECLARED_MASK_PREFIX, ColumnPolicy
from tablecrypt.keys.column_lookup import KeyedColumn
from tablecrypt.keys.key_ring import KeyRing
from tablecrypt.table.metadata import EncryptedTableMetadata
from tablecrypt.table.protection.policy import folded, keys_of_leaves, taken_message, taken_names
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
            _check_declared_names(metadata, io)


def undeclared_columns(
    metadata: TableMetadata, maker: ColumnKeyMaker, field_ids: Iterable[int] | None = None
) -> dict[int, KeyIdChangedError]:
    """Return which columns are protected less than was declared, by field id, as this user's keys tell.

    Args:
        metadata: the table's.
        maker: opens column keys.
        field_ids: the columns; None for all of the current schema that are or were protected.

    Raises:
        KmsError: the KMS failed, and not by refusing a key.
    """
    found: dict[int, KeyIdChangedError] = {}
    for field_id in _protected(metadata, field_ids) if isinstance(metadata, EncryptedTableMetadata) else ():
        try:
            _check_column(cast("EncryptedTableMetadata", metadata), maker, field_id, writing=True)
        except KeyIdChangedError as error:
            found[field_id] = error
        except TablecryptError as error:
            # A key service that fails says nothing of any column: an audit without these findings would look like a clean one.
            if isinstance(error, KmsError) and not isinstance(error, KmsAccessDeniedError):
                raise
            continue  # keys that do not open are told of where they are used

    return found


def _protected(metadata: EncryptedTableMetadata, field_ids: Iterable[int] | None = None) -> list[int]:
    """The columns of the current schema that are or were protected."""
    policy = ColumnPolicy.from_properties(metadata.properties)
    # By its keys as well: a column whose properties were removed stays among those that are checked.
    known = {*policy.columns, *policy.former, *(entry.field_id for entry in metadata.key_ring.column_keys)}
    wanted = known if field_ids is None else known.intersection(field_ids)
    return sorted(field_id for field_id in wanted if metadata.schema().find_column_name(field_id) is not None)


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


def _check_declared_names(metadata: EncryptedTableMetadata, io: TableFileIO) -> None:
    policy, schema = ColumnPolicy.from_properties(metadata.properties), metadata.schema()
    # Names belong to columns that the properties protect. Where they were removed, `_check_column` has said so.
    if not policy:
        return

    declarations = Declarations(io.manager.columns, metadata.key_ring, str(metadata.table_uuid))
    declared = {field_id: chain.from_iterable(declarations.newest(field_id).values()) for field_id in policy.columns}
    names = {field_id: frozenset(folded(name) for each in found for name in each.names) for field_id, found in declared.items()}
    for taken in taken_names(names, policy, keys_of_leaves(policy, schema).items()):
        raise KeyIdChangedError(taken_message(taken, policy.columns[taken.owner].column_key_id, schema))


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
