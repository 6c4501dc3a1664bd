"""Checking whole ORC files, and making an integrity manifest for files that exist.

    with a manifest      every byte is the one in the manifest; then everything below
    without              the structure holds together: header, tail, stripes in order, every stream where the footers say, no byte of
                         a stripe unaccounted for, statistics that decrypt, and every row of every stripe decodes
    in both cases        unencrypted bloom filters of encrypted columns are reported

Without a manifest a changed byte inside a value is not seen: ORC's cipher authenticates nothing. The result says which of the
two was checked.

Raises TamperedFileError where bytes differ from the manifest, FormatError where the file contradicts itself, and what reading raises.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from tablecrypt.arguments import checked_arguments
from tablecrypt.errors import FormatError
from tablecrypt.orc.column_keys import LocalColumnKeys
from tablecrypt.orc.integrity_manifest import FileHasher, IntegrityManifestWriter
from tablecrypt.orc.key_providers import KeyProvider
from tablecrypt.orc.messages import BLOOM_FILTER_KINDS
from tablecrypt.orc.reader import DecodedFile, checked_source
from tablecrypt.orc.source import FileSource, OrcSource
from tablecrypt.orc.tail import MAGIC, UNENCRYPTED, Tail, locate_streams, no_orc_file, read_tail

_PIECE: Final = 8 * 1024 * 1024


@dataclass(frozen=True)
class VerifiedFile:
    """What was checked.

    Attributes:
        authenticated: whether every byte was checked against a manifest; otherwise only the structure was.
        opened: encrypted columns whose true values were decoded.
        unopened: encrypted columns without rights, of which only the masks were decoded.
        exposed: encrypted columns that have an unencrypted bloom filter, which lets anyone test guesses of values. ORC's Java
            writer leaves them there; rewrite such files.
    """

    location: str
    authenticated: bool
    stripes: int
    rows: int
    opened: tuple[str, ...]
    unopened: tuple[str, ...]
    exposed: tuple[str, ...]


@checked_arguments()
def verify(
    source: Any,
    keys: KeyProvider | None = None,
    *,
    manifest: bytes | None = None,
    name: str | None = None,
    manifest_key: str | None = None,
) -> VerifiedFile:
    """Check all of a file that `keys` may open.

    Args:
        source: as in read_table.
        keys: decrypts encrypted columns, and the manifest's key.
        manifest: an integrity manifest that lists the file.
        name: the file's name in the manifest; by default the last part of its path.
        manifest_key: the name of the key that the manifest has to be made with, as in read_table.
    """
    with FileSource(source) as opened:
        file = checked_source(opened, keys, manifest, name, manifest_key)
        if manifest is not None:
            # Reading is what checks: decoding would never fetch some bytes, those of denied columns for one.
            _read_all(file)
        # ORC is read from its end, so no reader notices a header of another format.
        if file.read_at(0, min(len(MAGIC), file.length)) != MAGIC:
            raise no_orc_file(file, f"one begins with {MAGIC!r}")

        tail = read_tail(file)
        exposed = _check_layout(tail, file)
        rows = _decode(tail, file, keys)
        granted, denied = _rights(tail, keys)

        return VerifiedFile(file.location, manifest is not None, len(tail.stripes), rows, granted, denied, exposed)


@checked_arguments()
def create_integrity_manifest(sources: Mapping[str, Any] | Sequence[str | os.PathLike[str]], keys: KeyProvider, key_name: str) -> bytes:
    """Return an integrity manifest of existing files, as they are now.

    Args:
        sources: files by name, or paths, whose last parts are then the names.
        keys: gives the key.
        key_name: the key that makes the MACs.

    Raises:
        ConfigurationError: two paths have the same last part: give such files by name.
    """
    # Pairs, not a dict: of two files of one name it would keep the last, and the manifest would leave the other out without a word.
    named = sources.items() if isinstance(sources, Mapping) else [(os.path.basename(os.fspath(path)), path) for path in sources]
    writer = IntegrityManifestWriter(keys, key_name)
    for name, source in named:
        digest = FileHasher()
        with FileSource(source) as file:
            for offset in range(0, file.length, _PIECE):
                digest.update(file.read_at(offset, min(_PIECE, file.length - offset)))
        writer.add(name, digest.entry())

    return writer.finish()


def _read_all(source: OrcSource) -> None:
    for offset in range(0, source.length, _PIECE):
        source.read_at(offset, min(_PIECE, source.length - offset))


def _check_layout(tail: Tail, source: OrcSource) -> tuple[str, ...]:
    """Check that footers account for every byte of the stripes; return the encrypted columns with unencrypted bloom filters."""
    variants = tail.require_encryption().variants
    encrypted = tail.schema.at_or_below({variant.root for variant in variants})
    exposed: set[int] = set()

    for stripe in tail.stripes:
        located = locate_streams(tail.read_stripe_footer(source, stripe), stripe, tail.location)
        of_index = sum(one.stream.length for one in located if one.stream.is_index)
        of_data = sum(one.stream.length for one in located if not one.stream.is_index)
        at = stripe.information
        # Offsets follow from the lengths before them, so a gap at the end of a section is invisible to readers.
        if (of_index, of_data) != (at.index_length, at.data_length):
            raise FormatError(f"{tail.location}: the streams of the stripe at {at.offset} leave bytes of it unaccounted for")

        filters = {one.stream.column for one in located if one.group == UNENCRYPTED and one.stream.kind in BLOOM_FILTER_KINDS}
        exposed |= filters & encrypted

    described = sum(stream.length for variant in variants for stream in variant.stripe_statistics)
    if described != len(tail.statistics):
        raise FormatError(f"{tail.location}: {len(tail.statistics)} bytes of encrypted statistics, of which {described} are described")

    return tuple(tail.schema.name_of(column) for column in sorted(exposed))


def _decode(tail: Tail, source: OrcSource, keys: KeyProvider | None) -> int:
    rows = 0
    # A missing right does not stop the check: `_rights` reports which columns were seen only as masks.
    decoded = DecodedFile(tail, source, keys, None, masked=True)
    for number, (stripe, batch) in enumerate(zip(tail.stripes, decoded.stripes(), strict=True)):
        if batch.num_rows != stripe.information.rows:
            raise FormatError(f"{tail.location}: stripe {number} has {batch.num_rows} rows, the footer says {stripe.information.rows}")
        rows += batch.num_rows

    return rows


def _rights(tail: Tail, keys: KeyProvider | None) -> tuple[tuple[str, ...], tuple[str, ...]]:
    column_keys = LocalColumnKeys(tail, keys)
    roots = sorted({variant.root for variant in column_keys.encryption.variants})
    granted = [root for root in roots if column_keys.choose(root)[0] is not None]
    return (tuple(tail.schema.name_of(root) for root in granted), tuple(tail.schema.name_of(root) for root in roots if root not in granted))
