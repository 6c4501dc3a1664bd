"""Tags in the documentation of columns, and the master keys that a catalog or a table gives them.

    encryption.column-tags = pii: alias/pii; secret: alias/fin      of a table, or of a catalog for all its tables
    doc of a column        = "Social security number #pii"          the column is under alias/pii

A tag begins with # at the beginning of the text or after a space, and consists of letters, digits, - and _. Case makes no difference. A
catalog's tags are copied into each table that it creates, so that other clients of the table know them. Where the two give a tag different
keys, no column is put under either: the table's may be those of whoever could commit, and the catalog's are the client's own.

A tagged column is protected from the moment that it is tagged or the tag gets a key: at creation, with a change of the schema, with a
change of the property. A column that `encryption.column-keys` names is under the key named there. Taking the tag out of the text removes no
protection.

Raises ConfigurationError: the property cannot be read, a column has tags of several master keys, or the key of a tag is disputed.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Any, Final

from pyiceberg.schema import Schema

from tablecrypt import properties as names
from tablecrypt.errors import ConfigurationError
from tablecrypt.keys.nested_columns import all_ancestors

_TAG: Final = re.compile(r"(?<!\S)#([\w-]+)")
_NAME: Final = re.compile(r"[\w-]+")


def parse_tags(text: str) -> dict[str, str]:
    """Return the master key of each tag that `encryption.column-tags` names, tags in small letters.

    Raises:
        ConfigurationError: a group has no tag or no master key, or a tag is there twice.
    """
    found: dict[str, str] = {}
    for group in filter(None, (each.strip() for each in text.split(";"))):
        tag, _, key_id = (each.strip() for each in group.partition(":"))
        name = tag.removeprefix("#").casefold()
        if not key_id or not _NAME.fullmatch(name):
            raise ConfigurationError(f"{names.COLUMN_TAGS.name}: {group!r} is not of the form 'tag: master key'")
        if name in found:
            raise ConfigurationError(f"{names.COLUMN_TAGS.name} names tag {name!r} twice")

        found[name] = key_id

    return found


def tags_of(*properties: Mapping[str, Any]) -> dict[str, str]:
    """Return the master keys of tags that properties name; those of a later argument take precedence."""
    merged: dict[str, str] = {}
    for each in properties:
        merged |= parse_tags(names.COLUMN_TAGS.read(each))
    return merged


def check_undisputed(
    schema: Schema, of_catalog: Mapping[str, Any], of_table: Mapping[str, Any], declared: Collection[int], given: Mapping[str, Any]
) -> None:
    """Check that a catalog and a table mean the same by the tags of columns that a change protects by them.

    Args:
        schema: the table's.
        of_catalog: the catalog's properties.
        of_table: the table's properties.
        declared: field ids of columns that have a master key without their tags.
        given: the properties that the user sets, whose tags nobody else has put there.

    Raises:
        ConfigurationError: they do not.
    """
    own, stored, said = tags_of(of_catalog), tags_of(of_table), tags_of(given)
    disputed = {tag: key_id for tag, key_id in stored.items() if tag not in said and own.get(tag, key_id) != key_id}
    for field_id, key_id in tagged_columns(schema, disputed, declared).items():
        raise ConfigurationError(
            f"column {schema.find_column_name(field_id)!r} has a tag that stands for {key_id!r} by the table's {names.COLUMN_TAGS.name}, "
            "and for another master key by this catalog's: somebody changed one of them. Set it for the table to what it is to be, or name "
            f"the column in {names.COLUMN_KEYS.name}"
        )


def written_tags(tags: Mapping[str, str]) -> str:
    """Return the text that `parse_tags` reads."""
    return "; ".join(f"{tag}: {key_id}" for tag, key_id in tags.items())


def tagged_columns(schema: Schema, tags: Mapping[str, str], declared: Collection[int] = ()) -> dict[int, str]:
    """Return the master keys of the columns whose tags have one, by field id.

    Args:
        schema: the table's.
        tags: their master keys.
        declared: field ids of columns that are named; they, and what lies in them, are left out.

    Raises:
        ConfigurationError: a column, or it and a column around it, has tags of several master keys.
    """
    found: dict[int, tuple[str, str]] = {}
    if not tags:
        return {}

    # From the outside in: the tag of a struct protects all that lies in it.
    for field_id, around in sorted(all_ancestors(schema).items(), key=lambda each: len(each[1])):
        if not {field_id, *around}.isdisjoint(declared):
            continue

        above = next((found[each] for each in around if each in found), None)
        mapped = [(tag, tags[tag]) for tag in _tags_in(schema.find_field(field_id).doc) if tag in tags]
        keys = {key_id: tag for tag, key_id in (*mapped, *((above,) if above else ()))}

        if len(keys) > 1:
            told = " and ".join(f"#{tag} ({key_id!r})" for key_id, tag in sorted(keys.items(), key=lambda each: each[1]))
            raise ConfigurationError(
                f"column {schema.find_column_name(field_id)!r} has tags of several master keys: {told}. Leave one, or name the column in "
                f"{names.COLUMN_KEYS.name}"
            )

        # Below a tagged struct nothing is protected by itself: a column within a protected one cannot be.
        if mapped and above is None:
            found[field_id] = mapped[0]

    return {field_id: key_id for field_id, (_, key_id) in found.items()}


def check_tagged(schema: Schema, properties: Mapping[str, Any], protected: Collection[int]) -> None:
    """Check that no column of a table has a tag with a master key and is not protected, as another engine would leave it.

    Args:
        schema: the table's.
        properties: the table's.
        protected: field ids of the protected columns.

    Raises:
        ConfigurationError: a column has.
    """
    tags = tags_of(properties)
    for field_id in tagged_columns(schema, tags, protected):
        raise ConfigurationError(
            f"column {schema.find_column_name(field_id)!r} has a tag of {names.COLUMN_TAGS.name} and is not protected: another engine has "
            f"tagged it. Set {names.COLUMN_TAGS.name}={written_tags(tags)!r} again through tablecrypt, which protects it, or remove the tag"
        )


def _tags_in(doc: str | None) -> list[str]:
    return list(dict.fromkeys(tag.casefold() for tag in _TAG.findall(doc or "")))
