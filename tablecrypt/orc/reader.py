"""Reading encrypted ORC columns: rights first, then pyarrow over a plain view of the file.

Of the requested columns, the encrypted ones need their keys. Without a key, the default is an error that names column and key.
With `masked=True` a column whose key is given is still read in the clear, and only the others as their masks, as ORC readers in Java do;
`keys=None, masked=True` reads the masks of all. Columns that are not requested need no key and cost no call.

Raises KeyNotFoundError or KmsAccessDeniedError without rights, any other error of a provider (an outage is never taken for a
missing right), KeyMismatchError for a key that decrypts nothing of the file, FormatError for bytes that cannot be read,
PlaintextRefusedError for a file without encryption, TamperedFileError for bytes that are not those of the manifest.

Without a manifest no changed byte is noticed: ORC encrypts with AES-CTR, which authenticates nothing (docs/orc.md).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
import pyarrow.orc as pyarrow_orc

from tablecrypt.arguments import checked_arguments
from tablecrypt.errors import ConfigurationError, FormatError, KeyNotFoundError, KmsAccessDeniedError
from tablecrypt.orc.column_keys import LocalColumnKeys, NoRights
from tablecrypt.orc.integrity_manifest import CheckedSource, IntegrityManifest
from tablecrypt.orc.key_providers import KeyProvider
from tablecrypt.orc.plain_view import PlainView
from tablecrypt.orc.source import FileSource, OrcSource
from tablecrypt.orc.tail import Tail, read_tail


@checked_arguments()
def read_table(
    source: Any,
    keys: KeyProvider | None = None,
    columns: Sequence[str] | None = None,
    masked: bool = False,
    *,
    manifest: bytes | None = None,
    name: str | None = None,
    manifest_key: str | None = None,
) -> pa.Table:
    """Read rows of an ORC file with encrypted columns.

    Args:
        source: a path, bytes, an open Arrow file or any seekable binary stream.
        keys: gives the local keys; None has no key.
        columns: dotted names as pyarrow.orc takes them ("home" or "home.zip"), None for all. Columns come in the file's order.
        masked: whether columns without rights are read as their masks rather than refused.
        manifest: an integrity manifest; every byte that is read is checked against it.
        name: the file's name in the manifest; by default the last part of its path.
        manifest_key: the name of the key that the manifest has to be made with; by default any that `keys` has. Whoever has one of these
            can make a manifest with it.
    """
    with FileSource(source) as opened:
        # The manifest comes first: with it, no byte of the file is parsed before it is checked.
        file = checked_source(opened, keys, manifest, name, manifest_key)
        return DecodedFile(read_tail(file), file, keys, columns, masked).read()


@checked_arguments()
def read_batches(
    source: Any,
    keys: KeyProvider | None = None,
    columns: Sequence[str] | None = None,
    masked: bool = False,
    *,
    manifest: bytes | None = None,
    name: str | None = None,
    manifest_key: str | None = None,
) -> Iterator[pa.RecordBatch]:
    """Yield rows stripe by stripe, with one stripe in memory. Arguments are those of read_table."""
    with FileSource(source) as opened:
        file = checked_source(opened, keys, manifest, name, manifest_key)
        yield from DecodedFile(read_tail(file), file, keys, columns, masked).stripes()


class DecodedFile:
    """An encrypted file behind pyarrow's decoder. Creating one requests the rights; arguments are those of read_table."""

    def __init__(self, tail: Tail, source: OrcSource, keys: KeyProvider | None, columns: Sequence[str] | None, masked: bool) -> None:
        self._location = tail.location
        self._columns = None if columns is None else list(columns)
        self._rows = [stripe.information.rows for stripe in tail.stripes]
        # Outside `_translated`: an OSError of the key provider is an outage and must not pass for a damaged file.
        self._view = open_view(tail, source, keys, columns, masked)
        with self._translated():
            self._file = pyarrow_orc.ORCFile(pa.PythonFile(self._view, mode="r"))

    def read(self) -> pa.Table:
        with self._translated():
            if self._columns == []:
                return pa.Table.from_batches(self.stripes(), pa.schema([]))
            return self._file.read(columns=self._columns)

    def stripes(self) -> Iterator[pa.RecordBatch]:
        for number, rows in enumerate(self._rows):
            # ORCFile forgets how many rows there are of no column, other than pyarrow.orc.read_table.
            if self._columns == []:
                yield pa.record_batch({"": pa.nulls(rows)}).select([])
                continue

            with self._translated():
                batch = self._file.read_stripe(number, columns=self._columns)
            yield batch

    @contextmanager
    def _translated(self) -> Iterator[None]:
        """Translate pyarrow's errors: into the error of the store or the view that caused them, or into FormatError."""
        try:
            yield
        except (OSError, pa.ArrowException, UnicodeDecodeError) as error:
            if self._view.failure is not None:
                raise self._view.failure from None
            raise FormatError(
                f"{self._location}: cannot be decoded: its bytes were changed, or the file has a feature that pyarrow does not read"
            ) from error


def checked_source(
    file: FileSource, keys: KeyProvider | None, manifest: bytes | None, name: str | None, manifest_key: str | None
) -> OrcSource:
    """Return the file, with every byte checked against the manifest if there is one. ConfigurationError for a key or name without one."""
    if manifest is None:
        for argument, value in {"manifest_key": manifest_key, "name": name}.items():
            # Whoever names the key, or the file in the manifest, means that the bytes are checked.
            if value is not None:
                raise ConfigurationError(f"{argument} is given, and no manifest: without one nothing checks the file's bytes")
        return file
    return CheckedSource(file, IntegrityManifest.open(manifest, keys, manifest_key).entry(file.name if name is None else name))


def open_view(tail: Tail, source: OrcSource, keys: KeyProvider | None, columns: Sequence[str] | None, masked: bool) -> PlainView:
    """Return the file as plain ORC, in which those of the requested columns are decrypted that the keys may open."""
    column_keys = LocalColumnKeys(tail, keys)
    owners: dict[int, int] = {}
    wanted = _wanted(tail, columns)

    for column_id in wanted:
        number, refusal = column_keys.choose(column_id)
        if number is not None:
            owners[column_id] = number
        # Java's readers return masks here, and a report over masks looks like one over values: masks come only on request.
        elif refusal is not None and not masked:
            raise _no_rights(tail, column_id, refusal) from refusal

    return PlainView(tail, source, column_keys, frozenset(wanted), owners)


def _wanted(tail: Tail, columns: Sequence[str] | None) -> list[int]:
    """Return the ids of the requested columns, and of the columns below and above them."""
    if columns is None:
        return list(range(len(tail.schema)))
    below: set[int] = set()
    for name in columns:
        below.update(tail.schema.find_for_reading(name))
    # Columns above are wanted too: their streams say which rows are null and how long the lists are.
    return tail.schema.at_or_above(below)


def _no_rights(tail: Tail, column_id: int, refusal: NoRights) -> NoRights:
    message = (
        f"{tail.location}: column {tail.schema.name_of(column_id)!r} is encrypted and cannot be decrypted: {refusal}. "
        "Get the right to its key, leave it out of `columns`, or read its mask with masked=True"
    )
    return KmsAccessDeniedError(message) if isinstance(refusal, KmsAccessDeniedError) else KeyNotFoundError(message)
