"""The key of one file that belongs to no table: kept beside it, wrapped as a table keeps its keys.

    <file>.key.json = {"tablecrypt": "file-key", "version": 1, "key-id": "…", "encryption-keys": [KEK, file key]}

    KEK         wrapped by the master key, in a key file or a key service; see keys/key_ring.py
    file key    the file's DEK, AAD prefix and length, encrypted under the KEK: made and opened as a manifest list's key is

Both entries are worth nothing without the master key. Losing the JSON file loses the file. Raises FormatError for one that is malformed.

Nothing but its name ties the JSON file to the file beside it, so a key that opens nothing is a KeyMismatchError: it may be another file's.
"""

from __future__ import annotations

import json
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from tablecrypt import _magics as magics
from tablecrypt._bytes import small_content
from tablecrypt._parsed_json import ParsedJson, problem_of
from tablecrypt.cli._framework import FilePath, refuse_blank
from tablecrypt.errors import ConfigurationError, FormatError, KeyIdChangedError
from tablecrypt.printable import shell_word

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tablecrypt.cli.settings import Settings
    from tablecrypt.crypto.key_metadata import StandardKeyMetadata
    from tablecrypt.files.ags1_streams import Ags1InputStream
    from tablecrypt.keys.manager import EncryptionManager
    from tablecrypt.parquet import FileKeys

VERSION: Final = 1
SUFFIX: Final = ".key.json"
_MOST_BYTES: Final = 1024 * 1024


def key_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add --key-file and --key-id to a command: where the master key is, and which."""
    key_file = click.option(
        "--key-file",
        type=FilePath(dir_okay=False),
        help="The master key is in this key file (keygen makes one). Without it, --property and --catalog name the key service.",
    )
    key_id = click.option("--key-id", callback=refuse_blank, help="The master key's id in the key file or key service.")
    return key_file(key_id(command))


def check_unused(key_file: Path | None, key_id: str | None) -> None:
    """Refuse the options of `key_options` beside a table, whose metadata names its master key.

    Raises:
        ConfigurationError: one is given.
    """
    if key_file is not None or key_id is not None:
        raise ConfigurationError(
            "--key-file and --key-id are for files: a table names its own master key. For another key file, put "
            "--property kms.local.key-file=FILE before the command; a file's path contains a /"
        )


def manager(settings: Settings, key_file: Path | None, key_id: str | None, data_key_length: int = 32) -> EncryptionManager:
    """Return what makes and opens the keys of files under a master key.

    Raises:
        ConfigurationError: no key id, or no key service.
    """
    from tablecrypt.keys.manager import EncryptionManager
    from tablecrypt.kms.factory import load_kms
    from tablecrypt.properties import ALLOWED_KEY_IDS, KMS_LOCAL_KEY_FILE, KMS_TYPE

    if not key_id:
        raise ConfigurationError("name the master key: --key-id, with --key-file or a key service")

    properties = dict(settings.kms_properties())
    if key_file is not None:
        # A key file takes the place of the key service. The list of allowed keys holds for it as well.
        allowed = {name: value for name, value in properties.items() if name == ALLOWED_KEY_IDS.name}
        properties = {KMS_TYPE.name: "local", KMS_LOCAL_KEY_FILE.name: str(key_file), **allowed}

    return EncryptionManager(load_kms(properties), key_id, data_key_length=data_key_length)


def present(path: str) -> Path:
    """Return the path of a file that is there.

    Raises:
        ConfigurationError: it is not, or is no file.
    """
    file = Path(path)
    if file.is_dir():
        raise ConfigurationError(f"{path} is a folder: name a file in it")
    if file.exists() and not file.is_file():
        raise ConfigurationError(f"{path} is a device or a pipe, whose bytes cannot be read at will: name a file")
    if not file.is_file():
        raise ConfigurationError(f"there is no file {path}")
    return file


def key_path(encrypted: Path) -> Path:
    """Return where the key of an encrypted file is kept."""
    return encrypted.with_name(encrypted.name + SUFFIX)


def parquet_keys(key_metadata: StandardKeyMetadata) -> FileKeys:
    """Return a key that a JSON file keeps as the keys of a Parquet file, as strict as those of a table's file."""
    from tablecrypt.parquet import FileKeys

    # Not FileKeys.of_table_file: the JSON file may belong to another file, so that a key that opens nothing is a KeyMismatchError.
    return FileKeys(key_metadata.encryption_key, aad_prefix=key_metadata.aad_prefix, file_length=key_metadata.file_length)


@contextmanager
def opened_stream(path: Path, key_metadata: StandardKeyMetadata) -> Iterator[Ags1InputStream]:
    """Open an AGS1 file with a key that a JSON file keeps.

    Raises:
        FormatError: it is no AGS1 file.
        PlaintextRefusedError: it is a plaintext one.
        KeyMismatchError: the key opens nothing of it.
    """
    from tablecrypt._magics import HEAD_LENGTH, looks_like
    from tablecrypt.crypto import ags1
    from tablecrypt.files.ags1_streams import Ags1InputStream

    with path.open("rb") as raw:
        head = raw.read(HEAD_LENGTH)
        # Before the magic is compared: that it is plaintext says more than that it is not AGS1.
        ags1.refuse_plaintext(head, str(path))
        if not head.startswith(ags1.MAGIC):
            raise FormatError(f"{path}: {looks_like(head)}: it is neither an AGS1 stream nor an encrypted Parquet file")
        # Nothing but its name ties the key to this file, so it may be the key that is wrong.
        with Ags1InputStream(raw, key_metadata, str(path), path.stat().st_size, may_not_fit=True) as stream:
            yield stream


def begins_as_encrypted_parquet(source: Path) -> bool:
    """Whether a file is Parquet with an encrypted footer, by its first bytes."""
    with source.open("rb") as file:
        return file.read(4) == magics.ENCRYPTED_PARQUET


def key_json(keys: EncryptionManager, key_metadata: StandardKeyMetadata) -> str:
    """Return the content of the JSON file that keeps a file's key."""
    from tablecrypt.keys.key_ring import KeyRing

    key = keys.encrypt_manifest_list_key_metadata(key_metadata, KeyRing())
    entries = [entry.model_dump() for entry in key.added]
    content = {"tablecrypt": "file-key", "version": VERSION, "key-id": key.key_id, "encryption-keys": entries}
    return json.dumps(content, indent=2) + "\n"


def read_key(keys: EncryptionManager, path: Path) -> StandardKeyMetadata:
    """Return the key that a JSON file keeps.

    Raises:
        ConfigurationError: it is not there.
        FormatError: it is malformed.
        KeyIdChangedError: another master key wraps it.
        AuthenticationError, KmsError: it does not open.
    """
    from tablecrypt.keys.key_ring import EncryptedKey, KeyRing

    try:
        content = ParsedJson(small_content(path, _MOST_BYTES)).document
    except FileNotFoundError:
        raise ConfigurationError(
            f"the file's key does not exist: {path}; encrypt-file leaves it beside each file that it encrypts"
        ) from None
    except OSError as error:
        raise ConfigurationError(f"the file's key {path} cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise FormatError(f"{path}: is not JSON: {error}") from error

    # A newer version may mean something else by the same fields.
    if not isinstance(content, dict) or content.get("tablecrypt") != "file-key" or content.get("version") != VERSION:
        raise FormatError(f"{path}: is not the key of a file, of version {VERSION}")

    try:
        ring = KeyRing([EncryptedKey.model_validate(entry) for entry in content["encryption-keys"]])
        key_id = str(content["key-id"])
    except (KeyError, TypeError, ValueError) as error:
        raise FormatError(f"{path}: is malformed: {problem_of(error)}") from error

    chain = ring.chain(key_id)
    if (wrapped_by := chain.kek.encrypted_by_id) != keys.table_key_id:
        raise KeyIdChangedError(
            f"{path}: the file's key is wrapped by master key {wrapped_by}, and {keys.table_key_id} was named: write --key-id "
            f"{shell_word(str(wrapped_by))}, if that is the one you mean"
        )
    return keys.decrypt_manifest_list_key_metadata(chain)
