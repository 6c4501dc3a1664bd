"""Declaring protected columns: what users write by name becomes what a table's properties hold by field id.

    encryption.column-keys = alias/pii: ssn, person.email; alias/fin: salary      every protected column of the current schema
    encryption.column-mask.ssn = truncate(4)                                      what others see of one of them
    encryption.column-tags = pii: alias/pii                                       columns with #pii in their documentation, too (tags.py)
    encryption.column-guard = false                                               leaves Iceberg Java unguarded (write_barrier.py)

    set encryption.column-keys        columns that are named are protected from now on; those that are not, no longer
    set it to nothing, or remove it   no column is protected from now on but those with tags
    remove encryption.column-mask.x   x is masked by null

A master key's id may hold colons: the last one of a group ends it. Removing protection leaves `encryption.column.<id>.former-key-id`, by
which files from before are still read, as far as keys/former_keys.py says; `reencrypt` removes it once no snapshot has such a file, with
the column keys that opened these. A column that was dropped keeps its protection for the snapshots that have it.

New files follow the properties of the moment that they are committed in (writing.py); files from before do not change. What a
declaration does not reach is logged, and `reencrypt` makes it conform.

Raises ConfigurationError: a column is unknown or named twice, the text cannot be read, or a property by field id is set by hand.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.update import SetPropertiesUpdate

from tablecrypt import properties as names
from tablecrypt.arguments import described
from tablecrypt.crypto.secret import Secret
from tablecrypt.errors import ConfigurationError, KeyNotFoundError, KmsAccessDeniedError, column_shown, with_sentence
from tablecrypt.keys.column_keys import (
    COLUMN_PREFIX,
    DECLARED_KEYS,
    DECLARED_MASK_PREFIX,
    ColumnMask,
    ColumnPolicy,
    ProtectedColumn,
    field_id_in,
)
from tablecrypt.keys.former_keys import FormerKey
from tablecrypt.keys.key_ring import is_kept_by_commits
from tablecrypt.keys.manager import EncryptionManager
from tablecrypt.keys.nested_columns import name_or_id
from tablecrypt.kms.resilient import wrap_unopened
from tablecrypt.table.protection.exposed_values import ShownPartitions
from tablecrypt.table.protection.policy import check_sizes, was_written_without
from tablecrypt.table.protection.tags import check_undisputed, tagged_columns, tags_of
from tablecrypt.table.protection.write_barrier import METRICS_PREFIX, WRITE_BARRIER, barrier_properties

logger = logging.getLogger(__name__)
NOTHING: Final[Mapping[str, Any]] = {}


@dataclass(frozen=True)
class Declaration:
    """The effect of a change of properties: those to set, and those to remove."""

    updates: dict[str, str]
    removals: tuple[str, ...] = ()


def parse_column_keys(text: str) -> dict[str, str]:
    """Return the master key of each column that `encryption.column-keys` names.

    Raises:
        ConfigurationError: a group has no master key or no column, or a column is named twice.
    """
    found: dict[str, str] = {}
    for group in filter(None, (each.strip() for each in text.split(";"))):
        key_id, colon, columns = group.rpartition(":")
        names = [name.strip() for name in columns.split(",")]
        if not colon or not key_id.strip() or not all(names):
            raise ConfigurationError(f"{DECLARED_KEYS}: {group!r} is not of the form 'master key: column, column'")

        for name in names:
            if name in found:
                raise ConfigurationError(f"{DECLARED_KEYS} names column {name!r} twice")
            found[name] = key_id.strip()

    return found


def declares(properties: Iterable[str]) -> bool:
    """Whether names of properties are among those by which columns are declared."""
    return any(name in (DECLARED_KEYS, names.COLUMN_TAGS.name) or _is_consumed(name) for name in properties)


def of_encrypted_tables_alone(properties: Iterable[str]) -> list[str]:
    """Return those names of properties that say how a table protects its columns, or what it shares. No plain table has one."""
    prefixes = (COLUMN_PREFIX, names.SHARE.name)
    return sorted(name for name in properties if name.startswith(prefixes) or is_kept_by_commits(name) or _is_consumed(name))


def _is_consumed(name: str) -> bool:
    """Whether a property is turned into others, and not stored itself."""
    return name == DECLARED_KEYS or name.startswith(DECLARED_MASK_PREFIX)


def _texts(properties: Mapping[str, Any]) -> dict[str, str]:
    """Return properties with values of text, as PyIceberg makes them. ConfigurationError: one is None, or a name is no text."""
    for name, value in properties.items():
        if not isinstance(name, str):
            raise ConfigurationError(f"the name of a property is {described(name)}; it must be a text")
        if value is None:
            raise ConfigurationError(f"the property {name!r} is None: give it a value, or leave it out")
    return SetPropertiesUpdate(updates=dict(properties)).updates


def declared_at_creation(properties: Mapping[str, Any], schema: Schema) -> dict[str, str]:
    """Return a new table's properties with its declaration by field id.

    Args:
        properties: as the user gave them.
        schema: with the field ids that the table will have.

    Raises:
        ConfigurationError: the declaration cannot be used or names no column, properties are those of another table's columns, or sizes
            are below their floor (policy.py).
    """
    given = _texts(properties)
    _refuse_by_id(given, "a new table: field ids belong to one table. Leave it out")
    if not declares(given):
        return given
    # Of an unset variable: it would end in a table whose columns everybody reads. A change of a table may end the protection so.
    if DECLARED_KEYS in given and not parse_column_keys(given[DECLARED_KEYS]):
        raise ConfigurationError(f"{DECLARED_KEYS} names no column: write 'master key: column, column', or leave it out")

    declared = _declared({}, given, schema, None, tags_of(given)).updates
    check_sizes(declared)

    return declared


def declared_by_update(metadata: TableMetadata, updates: Mapping[str, Any], of_catalog: Mapping[str, Any]) -> Declaration:
    """Return the effect of setting these properties.

    Args:
        metadata: the table's, with what the transaction has staged.
        updates: as the user gave them.
        of_catalog: the catalog's properties.

    Raises:
        ConfigurationError: the declaration cannot be used, or a property by field id is among them.
    """
    given = _texts(updates)
    _refuse_by_id(given, "the table")
    if not declares(given):
        return Declaration(given)

    tags = tags_of(of_catalog, {**metadata.properties, **given})
    _check_tags(metadata, of_catalog, given)
    return _declared(metadata.properties, given, metadata.schema(), _last_sequence_number(metadata), tags)


def _check_tags(metadata: TableMetadata, of_catalog: Mapping[str, Any], given: Mapping[str, str] = NOTHING) -> None:
    schema, earlier = metadata.schema(), ColumnPolicy.from_properties(metadata.properties)
    check_undisputed(schema, of_catalog, metadata.properties, _named(earlier, given, schema), given)


def declared_by_schema(metadata: TableMetadata, of_catalog: Mapping[str, Any], before: Schema) -> dict[str, str]:
    """Return the properties to set after a change of the schema: for tagged columns, for renamed ones, and for those that came back.

    The engine write barrier names columns whose metrics Java must leave out, and it names them by name.

    Args:
        metadata: the table's, with the schema that is staged.
        of_catalog: the catalog's properties.
        before: the schema that it had.

    Raises:
        ConfigurationError: tags cannot be read, or contradict each other.
    """
    tags = tags_of(of_catalog, metadata.properties)
    _check_tags(metadata, of_catalog)
    policy = ColumnPolicy.from_properties(metadata.properties, metadata.schema())
    is_tagged = bool(tagged_columns(metadata.schema(), tags, policy.columns))
    if not is_tagged and not policy:
        return {}

    returned = _returned(metadata, policy, before)
    declared = _declared({**metadata.properties, **returned}, {}, metadata.schema(), _last_sequence_number(metadata), tags).updates
    if not is_tagged:
        barrier = {name: value for name, value in declared.items() if name.startswith(METRICS_PREFIX) and name not in metadata.properties}
        return {**barrier, **returned}

    return {name: value for name, value in declared.items() if metadata.properties.get(name) != value}


def _returned(metadata: TableMetadata, policy: ColumnPolicy, before: Schema) -> dict[str, str]:
    """Return until when files lack protected columns that were dropped and come back, as properties.

    Files that were written in between lack the column, and readers refuse such a file if nobody has said that it may. To say so takes the
    column's key (declaring.py): others could else drop a column, add files with values of theirs in the clear, and have it back.
    """
    came_back = [
        replace(column, since=_last_sequence_number(metadata))
        for field_id, column in policy.columns.items()
        if before.find_column_name(field_id) is None and was_written_without(metadata, field_id)
    ]
    return ColumnPolicy.of(came_back).to_properties()


def declared_by_removal(metadata: TableMetadata, removals: Iterable[str], of_catalog: Mapping[str, Any]) -> Declaration:
    """Return the effect of removing these properties.

    Raises:
        ConfigurationError: a property by field id is among them, of a column that the schema has.
    """
    asked = tuple(removals)
    schema = metadata.schema()
    _refuse_by_id([name for name in asked if is_kept_by_commits(name) or name.startswith(names.SHARE.name)], "the table")
    # Those of a dropped column may go, which frees its names (policy.py).
    by_id = [name for name in asked if (field_id := field_id_in(name)) is not None and schema.find_column_name(field_id) is not None]
    _refuse_by_id(by_id, "the table")
    if not any(_is_consumed(name) for name in asked):
        return Declaration({}, asked)

    updates = {DECLARED_KEYS: ""} if DECLARED_KEYS in asked else {}
    updates |= {name: "null" for name in asked if name.startswith(DECLARED_MASK_PREFIX) and DECLARED_KEYS not in asked}
    declaration = declared_by_update(metadata, updates, of_catalog)
    others = tuple(name for name in asked if not _is_consumed(name))

    return Declaration(declaration.updates, (*declaration.removals, *others))


def check_master_keys(manager: EncryptionManager, before: Mapping[str, Any], after: Mapping[str, Any], schema: Schema) -> None:
    """Have the KMS wrap a key under each master key that a declaration brings, once: better here than at the first append.

    Nobody unwraps it, so that a writer who may only wrap can declare columns.

    Args:
        manager: the table's.
        before, after: the table's properties.
        schema: the table's, for messages.

    Raises:
        KeyNotFoundError, KmsAccessDeniedError: there is no such master key, or this user may not wrap with it; nothing has changed.
        MasterKeyRefusedError: this client does not allow it.
        KmsError: the KMS failed.
    """
    known = {column.column_key_id for column in ColumnPolicy.from_properties(before).columns.values()}
    added: dict[str, int] = {}
    for column in ColumnPolicy.from_properties(after).columns.values():
        if column.column_key_id not in known:
            added.setdefault(column.column_key_id, column.field_id)

    for key_id, field_id in added.items():
        try:
            wrap_unopened(manager.kms, Secret(secrets.token_bytes(manager.data_key_length)), key_id)
        except (KeyNotFoundError, KmsAccessDeniedError) as error:
            name = name_or_id(schema, field_id)
            raise with_sentence(error, f"It is named for column {name!r}; nothing was changed") from error


def _declared(
    before: Mapping[str, Any], given: Mapping[str, str], schema: Schema, since: int | None, tags: Mapping[str, str]
) -> Declaration:
    earlier = ColumnPolicy.from_properties(before)
    others = {name: value for name, value in given.items() if not _is_consumed(name)}
    policy = _policy(earlier, given, schema, since, tags)
    written = policy.to_properties()
    removed = tuple(name for name in earlier.to_properties() if name not in written)
    current = ColumnPolicy.of(each for each in policy.columns.values() if schema.find_column_name(each.field_id) is not None)
    barrier = barrier_properties(current, schema) if current and names.COLUMN_GUARD.is_true({**before, **others}) else {}
    metrics = tuple(
        name for name in before if name.startswith(METRICS_PREFIX) and name not in barrier and _was_protected(name, earlier, schema)
    )
    # Only values that are the barrier's still: the user may have set others since.
    no_barrier = (
        tuple(name for name, value in WRITE_BARRIER.items() if str(before.get(name)).lower() == value and name not in others)
        if earlier
        else ()
    )

    # A user's own setting goes before the barrier's, and nothing goes before what the declaration says by field id.
    return Declaration({**barrier, **others, **written}, (*removed, *metrics, *(no_barrier if not current else ())))


def _named(earlier: ColumnPolicy, given: Mapping[str, str], schema: Schema) -> dict[int, str]:
    """Return the master keys of columns that have one without their tags: those that the user names, or else those of before."""
    if DECLARED_KEYS not in given:
        return _unchanged(earlier, schema)
    return {_field(schema, name): key_id for name, key_id in parse_column_keys(given[DECLARED_KEYS]).items()}


def _policy(earlier: ColumnPolicy, given: Mapping[str, str], schema: Schema, since: int | None, tags: Mapping[str, str]) -> ColumnPolicy:
    columns = dict(earlier.columns)
    former = dict(earlier.former)
    named = _named(earlier, given, schema)
    if tagged := tagged_columns(schema, tags, named):
        named = {**named, **tagged}

    if DECLARED_KEYS in given or tagged:
        for field_id, column in earlier.columns.items():
            if schema.find_column_name(field_id) is not None and named.get(field_id) != column.column_key_id:
                # A table without snapshots has no file under that key: 0 is before its first one.
                _keep_former(former, field_id, FormerKey(column.column_key_id, since or 0), named.get(field_id), schema)
                del columns[field_id]

        for field_id, key_id in named.items():
            columns.setdefault(field_id, ProtectedColumn(field_id, key_id, _mask_of(earlier, field_id), _since(earlier, field_id, since)))
            # Back under a former master key, the column has no other one in any file.
            if (before := former.get(field_id)) is not None and before.key_id == key_id:
                del former[field_id]
            elif before is not None and field_id not in earlier.columns:
                # While it was not protected, nobody refused files of writers who had begun before.
                former[field_id] = replace(before, until=since or 0)

    for name, value in given.items():
        if name.startswith(DECLARED_MASK_PREFIX):
            field_id = _field(schema, name.removeprefix(DECLARED_MASK_PREFIX))
            if field_id not in columns:
                raise ConfigurationError(f"{name}: the column is not protected. Name it in {DECLARED_KEYS}")
            columns[field_id] = replace(columns[field_id], mask=ColumnMask.parse(value))

    return ColumnPolicy.of(columns.values(), former)


def _unchanged(earlier: ColumnPolicy, schema: Schema) -> dict[int, str]:
    return {each.field_id: each.column_key_id for each in earlier.columns.values() if schema.find_column_name(each.field_id) is not None}


def _mask_of(earlier: ColumnPolicy, field_id: int) -> ColumnMask:
    column = earlier.columns.get(field_id)
    return column.mask if column is not None else ColumnMask()


def _last_sequence_number(metadata: TableMetadata) -> int | None:
    """That of a table with snapshots; None where there is no file from before."""
    return max((snapshot.sequence_number or 0 for snapshot in metadata.snapshots), default=None)


def _since(earlier: ColumnPolicy, field_id: int, now: int | None) -> int | None:
    """Up to which data sequence number files may hold a column unprotected that is declared, or comes under another master key, now."""
    known = earlier.columns.get(field_id)
    return now if known is None else known.since


def _keep_former(former: dict[int, FormerKey], field_id: int, key: FormerKey, new: str | None, schema: Schema) -> None:
    if former.get(field_id, key).key_id not in (key.key_id, new):
        column = column_shown(field_id, schema.find_column_name(field_id))
        raise ConfigurationError(
            f"files hold {column} under the master keys {former[field_id].key_id!r} and {key.key_id!r} "
            "already, and a third is one too many: "
            "reencrypt the table and shred the snapshots with the old files first. The next reencrypt forgets the first master key then"
        )

    former[field_id] = key


def _field(schema: Schema, name: str) -> int:
    try:
        return int(schema.find_field(name).field_id)
    except ValueError:
        raise ConfigurationError(f"there is no column {name!r} to protect: the table has {', '.join(schema.column_names)}") from None


def _refuse_by_id(given: Iterable[str], of: str) -> None:
    for name in given:
        if name.startswith(names.SHARE.name):
            raise ConfigurationError(
                f"{name} cannot be set or removed by hand: share and unshare do, and without it nothing knows which files the share needs"
            )
        if is_kept_by_commits(name):
            raise ConfigurationError(
                f"{name} cannot be set or removed by hand for {of}: commits keep it with the entry of encryption-keys that it is about"
            )
        if name.endswith((".former-key-id", ".former-until")):
            raise ConfigurationError(
                f"{name} cannot be set or removed by hand for {of}: it opens files from before a change. reencrypt removes it once no "
                "snapshot has such a file"
            )
        if name.startswith(COLUMN_PREFIX):
            raise ConfigurationError(
                f"{name} cannot be set or removed by hand for {of}: name the column in {DECLARED_KEYS} or {DECLARED_MASK_PREFIX}<column>"
            )


def _was_protected(name: str, earlier: ColumnPolicy, schema: Schema) -> bool:
    from_barrier = barrier_properties(ColumnPolicy.of(earlier.columns.values()), schema)
    return name in from_barrier


def log_unreached(metadata: TableMetadata, properties: Mapping[str, str]) -> None:
    """Log which files a change of protection does not reach, once it is committed.

    Args:
        metadata: the table's before.
        properties: the table's since.
    """
    try:
        earlier, policy = ColumnPolicy.from_properties(metadata.properties), ColumnPolicy.from_properties(properties)
    except ConfigurationError:
        # The commit stands. Readers and writers refuse what cannot be read here, or the commit has repaired it.
        return
    before, now = ({field_id: (each.column_key_id, each.mask) for field_id, each in of.columns.items()} for of in (earlier, policy))
    if not metadata.snapshots or before == now:
        return

    schema = metadata.schema()
    changed = {field_id for field_id in {*before, *now} if before.get(field_id) != now.get(field_id)}
    names = sorted(name for name in map(schema.find_column_name, changed) if name is not None)
    # Of a new column no file has values.
    if not names:
        return

    current = metadata.current_snapshot()
    files = (
        current.summary.additional_properties.get("total-data-files", "?") if current is not None and current.summary is not None else "0"
    )
    logger.warning(
        "%s: the protection of %s changes for files that are written from now on. %s data files of the current snapshot and those of %d "
        "earlier ones stay as they are: reencrypt brings the current ones in line, shredding the snapshots ends the others",
        *(metadata.location, ", ".join(names), files, len(metadata.snapshots) - (current is not None)),
    )

    if shown := ShownPartitions.of(metadata.model_copy(update={"properties": {**metadata.properties, **policy.to_properties()}})):
        specs = metadata.specs()
        logger.warning(
            "%s: files of partition spec %s show values of %s in their names and in manifests, where nothing hides them: reencrypt writes "
            "their rows again under the current spec, and shredding all snapshots but the heads ends the old ones",
            metadata.location,
            ", ".join(f"{spec_id} ({', '.join(field.name for field in specs[spec_id].fields)})" for spec_id in sorted(shown.columns)),
            ", ".join(sorted(set(shown.columns.values()))),
        )
