"""Writing a Parquet file again: under keys, under other keys, or in the clear, module by module (tablecrypt.parquet.module_writer).

    encrypt     plaintext → encrypted
    decrypt     encrypted → plaintext; of a file that `encrypt` made from one of pyarrow's, the same bytes as before
    reencrypt   encrypted → encrypted under other keys, another algorithm or AAD prefix

Raises TamperedFileError, KeyMismatchError where a key opens nothing of the file, PlaintextRefusedError, FormatError, KeyNotFoundError, and
ConfigurationError for what encryption has no room for.

A sink that is a path is written only when all went well; in a file object an error leaves a part that no reader takes for a Parquet file.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from typing import Any

from tablecrypt.arguments import checked_arguments
from tablecrypt.errors import ConfigurationError, TamperedFileError
from tablecrypt.parquet.footer import read_footer
from tablecrypt.parquet.keys import FileKeys, required_keys
from tablecrypt.parquet.layout import FileCiphers, FileLayout
from tablecrypt.parquet.module_writer import ModularWriter
from tablecrypt.parquet.sealing import Sealing
from tablecrypt.parquet.storage import Sink, Source, open_sink, open_source

Random = Callable[[int], bytes]


@checked_arguments(but=("keys",))
def encrypt(source: Any, sink: Any, keys: FileKeys, *, location: str | None = None, random: Random = secrets.token_bytes) -> int:
    """Write a plaintext Parquet file encrypted. Returns how many bytes the encrypted file has.

    Args:
        source: a path, URI, buffer or seekable binary file with plaintext Parquet.
        sink: a path, URI or binary file that is open for writing.
        keys: what to encrypt with; give each file keys or an AAD prefix of its own.
        location: names the source in errors.
        random: gives nonces and the random part of the AAD.

    Raises:
        ConfigurationError: there are no keys or they name columns that the file lacks, it is encrypted already, or has too many pages.
        FormatError: it is no Parquet file that can be encrypted.
    """
    sealed_with = required_keys(keys)
    with open_source(source, location) as opened, open_sink(sink) as out:
        return rewrite(plain_layout(opened), out, sealed_with, random)


@checked_arguments(but=("keys",))
def decrypt(source: Any, sink: Any, keys: FileKeys, *, location: str | None = None) -> int:
    """Write an encrypted Parquet file in the clear. Returns how many bytes the plaintext file has. All its keys are needed.

    Every module is authenticated before it is written, but for pages' bodies in AES_GCM_CTR_V1 and columns in the clear. Arguments and
    errors as for `reencrypt`.
    """
    with open_source(source, location) as opened, open_sink(sink) as out:
        return rewrite(encrypted_layout(opened, keys), out, None, secrets.token_bytes)


@checked_arguments(
    but=(
        "old",
        "new",
    )
)
def reencrypt(
    source: Any, sink: Any, old: FileKeys, new: FileKeys, *, location: str | None = None, random: Random = secrets.token_bytes
) -> int:
    """Write an encrypted Parquet file under other keys, another algorithm or AAD prefix. Returns how many bytes the new file has.

    Args:
        source: a path, URI, buffer or seekable binary file.
        sink: a path, URI or binary file that is open for writing.
        old: keys of the source: those of all its columns.
        new: keys of the new file.
        location: names the source in errors.
        random: gives nonces and the random part of the AAD.

    Raises:
        TamperedFileError: a module does not authenticate, or the file is not what its footer says.
        KeyMismatchError: one of the old keys opens no module: it does not fit, or the file was changed.
        FormatError: the source is empty, or no Parquet file.
        PlaintextRefusedError: the source is plaintext.
        KeyNotFoundError: a key of the source is missing.
        ConfigurationError: there are no new keys, or they name columns that the file does not have.
    """
    sealed_with = required_keys(new)
    with open_source(source, location) as opened, open_sink(sink) as out:
        return rewrite(encrypted_layout(opened, old), out, sealed_with, random)


def plain_layout(source: Source) -> FileLayout:
    """Open a plaintext file. ConfigurationError for an encrypted one."""
    footer = read_footer(source)
    if footer.algorithm is not None:
        raise ConfigurationError(f"{source.location}: is encrypted already; reencrypt it, or decrypt it first")
    return FileLayout(source, footer, None)


def encrypted_layout(source: Source, keys: FileKeys) -> FileLayout:
    """Open an encrypted file, its footer authenticated. PlaintextRefusedError for a plaintext one."""
    keys = required_keys(keys)
    if keys.of_a_table:
        _check_length(source, keys)
    footer = read_footer(source, of_a_table=keys.of_a_table)
    layout = FileLayout(source, footer, FileCiphers(footer, keys))
    # Keys of the caller's are shown to be this file's first: otherwise their length says nothing about it.
    _check_length(source, keys)
    return layout


def _check_length(source: Source, keys: FileKeys) -> None:
    if keys.file_length is not None and source.length != keys.file_length:
        raise TamperedFileError(source.location, f"has {source.length} bytes, but its key metadata says {keys.file_length}")


def rewrite(layout: FileLayout, sink: Sink, keys: FileKeys | None, random: Random) -> int:
    """Write the file again with these keys, or in the clear without. Returns the length in bytes."""
    writer = ModularWriter(sink, Sealing(keys, layout.location, random))
    writer.add(layout)
    return writer.finish()
