"""ORC's writer options for encryption, made from mappings and checked against the schema before anything is written.

    orc.encrypt = key:column,column;key:column          column = part.part, each part bare ([A-Za-z0-9_]+) or in backquotes
    orc.mask    = mask[,parameter...]:column,column;...  mask = nullify | redact | sha256

Below a list the part is _elem, below a map _key or _value. ORC would do the following silently, so it is refused here:

    a column that does not exist, or in other case       java.lang.IllegalArgumentException in a task; here before it
    a mask of a column that is not encrypted              ignored
    sha256 of a number or a date                          null for everyone without the key; nullify says so
    redact of text                                        NullPointerException in Spark's writer
    a column below another encrypted column               one of the two keys is left out
    a column whose name is a number                       taken for a column id
    a bloom filter on an encrypted column                 stored unencrypted: it reveals which values are in the column
    a partition column                                    its values appear in the paths

Raises ConfigurationError.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from tablecrypt.errors import ConfigurationError

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, StructType

BLOOM_FILTER_COLUMNS: Final = "orc.bloom.filter.columns"
_BARE: Final = re.compile(r"[A-Za-z0-9_]+")
_MASKS: Final = ("nullify", "redact", "sha256")

Path = tuple[str, ...]


def orc_options(
    schema: StructType,
    encrypt: Mapping[str, Sequence[str]],
    mask: Mapping[str, str] | None = None,
    *,
    partition_by: Sequence[str] = (),
    bloom_filter_columns: str = "",
) -> dict[str, str]:
    """Return the options orc.encrypt and orc.mask for a write of rows of `schema`.

    Args:
        schema: that of the rows.
        encrypt: for each key of the KMS the columns under it: {"pii": ["ssn", "home.zip"]}. A part in backquotes may hold a dot.
        mask: for encrypted columns what readers without the key see: {"ssn": "nullify", "born": "redact"}. nullify where none is given.
        partition_by: the columns by which the files are partitioned.
        bloom_filter_columns: what orc.bloom.filter.columns is for this write.
    """
    keys: dict[Path, str] = {}
    for key, columns in encrypt.items():
        for column in columns:
            path = split_column(column)
            if path in keys:
                raise ConfigurationError(f"column {column} occurs twice among the columns to encrypt")
            # Called for its error: ORC fails in a task where it does not find the column.
            type_at(schema, path)
            keys[path] = key

    # A write that was to encrypt something, and encrypts nothing, must not pass.
    if not keys:
        raise ConfigurationError("no column is to be encrypted")

    _refuse_nested(keys)
    for path, what in _forbidden(partition_by, bloom_filter_columns):
        _refuse_overlap(keys, path, what)
    options = {"orc.encrypt": _joined(keys)}
    masks = _checked_masks(schema, keys, mask or {})
    if masks:
        options["orc.mask"] = _joined(masks, quoted=False)
    return options


def split_column(column: str) -> Path:
    """Return the parts of a column's name: home.zip, or `odd.name`.zip."""
    parts: list[str] = []
    rest = column
    while True:
        match = re.match(r"`((?:[^`]|``)+)`|([^.`]+)", rest)
        if match is None:
            raise ConfigurationError(f"{column!r} is not the name of a column: join its parts by dots, and put unusual ones in backquotes")

        parts.append(match[1].replace("``", "`") if match[1] else match[2])
        rest = rest[match.end() :]
        if not rest:
            break
        if not rest.startswith("."):
            raise ConfigurationError(f"{column!r} is not the name of a column")

        rest = rest[1:]

    if len(parts) == 1 and re.fullmatch(r"[0-9]+", parts[0]):
        raise ConfigurationError(f"ORC takes {column!r} for a column's id: rename the column")

    return tuple(parts)


def type_at(schema: StructType, path: Path) -> DataType:
    """Return the type of the column at a path."""
    from pyspark.sql.types import ArrayType, MapType, StructType

    current: DataType = schema
    for part in path:
        found: DataType | None = None
        if isinstance(current, StructType):
            found = next((each.dataType for each in current.fields if each.name == part), None)
        elif isinstance(current, ArrayType) and part == "_elem":
            found = current.elementType
        elif isinstance(current, MapType):
            found = {"_key": current.keyType, "_value": current.valueType}.get(part)

        if found is None:
            raise ConfigurationError(
                f"there is no column {shown(path)}: names are case-sensitive; write _elem below a list, _key or _value below a map"
            )

        current = found

    return current


def shown(path: Path) -> str:
    """Return the name of a column as ORC reads it."""
    return ".".join(_quoted(part) for part in path)


def _checked_masks(schema: StructType, keys: Mapping[Path, str], mask: Mapping[str, str]) -> dict[Path, str]:
    masks = {split_column(column): text for column, text in mask.items()}
    for path, text in masks.items():
        name = text.partition(",")[0]
        # These signs end a mask in ORC's option: what follows would be read as columns, or as another mask.
        if name not in _MASKS or ":" in text.partition(",")[0] or ";" in text:
            raise ConfigurationError(f"{text!r} is not a mask of ORC in Spark: use one of {', '.join(_MASKS)}")
        if path not in keys:
            raise ConfigurationError(f"column {shown(path)} has a mask and is not encrypted: ORC would write its values as they are")
        _check_fit(name, type_at(schema, path), path)

    return masks


def _check_fit(mask: str, column_type: DataType, path: Path) -> None:
    from pyspark.sql.types import BinaryType, StringType

    for leaf in _leaves(column_type):
        if mask == "sha256" and not isinstance(leaf, (StringType, BinaryType)):
            raise ConfigurationError(f"sha256 makes null of {leaf.simpleString()} in column {shown(path)}: say nullify")
        if mask == "redact" and isinstance(leaf, (StringType, BinaryType)):
            raise ConfigurationError(f"redact fails on text in Spark's ORC writer, column {shown(path)}: use nullify or sha256")


def _leaves(column_type: DataType) -> Iterable[DataType]:
    from pyspark.sql.types import ArrayType, MapType, StructType

    if isinstance(column_type, StructType):
        children = [field.dataType for field in column_type.fields]
    elif isinstance(column_type, ArrayType):
        children = [column_type.elementType]
    elif isinstance(column_type, MapType):
        children = [column_type.keyType, column_type.valueType]
    else:
        return [column_type]

    return [leaf for child in children for leaf in _leaves(child)]


def _forbidden(partition_by: Sequence[str], bloom_filter_columns: str) -> Iterable[tuple[Path, str]]:
    for column in partition_by:
        yield (column,), "its values would appear in the paths of a partitioned write"
    for column in filter(None, (each.strip() for each in bloom_filter_columns.split(","))):
        yield split_column(column), f"{BLOOM_FILTER_COLUMNS} would store an unencrypted bloom filter of it"


def _refuse_nested(keys: Mapping[Path, str]) -> None:
    for outer in keys:
        for inner in keys:
            if len(inner) > len(outer) and inner[: len(outer)] == outer:
                raise ConfigurationError(f"column {shown(inner)} is encrypted with {shown(outer)} already: name one of the two")


def _refuse_overlap(keys: Mapping[Path, str], path: Path, why: str) -> None:
    for encrypted in keys:
        shorter = min(len(encrypted), len(path))
        # Spark and ORC find these columns in any case.
        if [part.lower() for part in encrypted[:shorter]] == [part.lower() for part in path[:shorter]]:
            raise ConfigurationError(f"column {shown(encrypted)} cannot be encrypted: {why}")


def _joined(columns: Mapping[Path, str], *, quoted: bool = True) -> str:
    groups: dict[str, list[str]] = {}
    for path, name in columns.items():
        groups.setdefault(_quoted(name) if quoted else name, []).append(shown(path))
    return ";".join(f"{name}:{','.join(paths)}" for name, paths in groups.items())


def _quoted(name: str) -> str:
    if _BARE.fullmatch(name):
        return name
    return "`" + name.replace("`", "``") + "`"
