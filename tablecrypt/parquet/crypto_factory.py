"""Keys of Parquet files from properties and a KMS: parquet-java's PropertiesDrivenCryptoFactory, on our KMS clients.

    writing   properties name master keys ─▶ a fresh DEK for the footer and for each master key's columns ─▶ wrapped ─▶ key metadata
    reading   key metadata in the file ─▶ unwrapped

Spark's `parquet.encryption.column.keys` and its kin mean the same here: a file that Spark wrote opens here and the other way round, where
Spark's KmsClient speaks to the KMS that our client speaks to and gives wrapped keys in base64.

One default differs. parquet-java leaves columns that no property names in the clear; here they are encrypted under the footer key, unless
`parquet.encryption.complete.columns` is set to "false".
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import pyarrow as pa

from tablecrypt.arguments import check_switches, checked_arguments, described, names_of
from tablecrypt.crypto.secret import Secret
from tablecrypt.errors import ConfigurationError, KeyNotFoundError
from tablecrypt.kms.client import KeyManagementClient
from tablecrypt.kms.resilient import AllowedKeys
from tablecrypt.parquet.file_keys import AES_GCM_V1, ALGORITHMS, FileKeys
from tablecrypt.parquet.key_material import (
    DEFAULT_LIFETIME_S,
    ExternalKeyMaterial,
    KeyMaterial,
    KeyWrapper,
    files_with_external_keys,
    reference_in,
    reference_to,
)
from tablecrypt.setting_kinds import check_option_names, one_of, truth

FOOTER_KEY: Final = "parquet.encryption.footer.key"
COLUMN_KEYS: Final = "parquet.encryption.column.keys"
UNIFORM_KEY: Final = "parquet.encryption.uniform.key"
COMPLETE_COLUMNS: Final = "parquet.encryption.complete.columns"
ALGORITHM: Final = "parquet.encryption.algorithm"
PLAINTEXT_FOOTER: Final = "parquet.encryption.plaintext.footer"
DOUBLE_WRAPPING: Final = "parquet.encryption.double.wrapping"
STORE_INTERNALLY: Final = "parquet.encryption.key.material.store.internally"
DATA_KEY_BITS: Final = "parquet.encryption.data.key.length.bits"
KEK_BITS: Final = "parquet.encryption.kek.length.bits"
_FOOTER_REFERENCE: Final = "footerKey"
_COLUMN_REFERENCE: Final = "columnKey"
_KEY_BITS: Final = ("128", "192", "256")
_OWN: Final = (
    *(FOOTER_KEY, COLUMN_KEYS, UNIFORM_KEY, COMPLETE_COLUMNS, ALGORITHM),
    *(PLAINTEXT_FOOTER, DOUBLE_WRAPPING, STORE_INTERNALLY, DATA_KEY_BITS, KEK_BITS),
)


@dataclass(frozen=True)
class EncryptionConfiguration:
    """How files are encrypted; see `of` for the properties behind each attribute.

    Raises:
        ConfigurationError: column_keys is no mapping of master keys to columns, names a column twice, or names none and no other column
            is to be encrypted; or what is a switch is neither True nor False.
    """

    footer_key: str
    column_keys: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    complete_columns: bool = True
    algorithm: str = AES_GCM_V1
    plaintext_footer: bool = False
    double_wrapping: bool = True
    store_internally: bool = True
    data_key_length: int = 16
    kek_length: int = 16

    def __post_init__(self) -> None:
        check_switches(
            complete_columns=self.complete_columns,
            plaintext_footer=self.plaintext_footer,
            double_wrapping=self.double_wrapping,
            store_internally=self.store_internally,
        )
        given: object = self.column_keys
        if not isinstance(given, Mapping):
            raise ConfigurationError(f"column_keys is {described(given)}; it must be a mapping of master keys to columns")
        # The letters of one name would be columns, and the column that it names would lie under the footer's key.
        object.__setattr__(self, "column_keys", {key: names_of("column_keys", columns) for key, columns in given.items()})
        # One of the two would get the column, and whoever may use that one alone would read what the other was to protect.
        named = [column for columns in self.column_keys.values() for column in columns]
        if twice := sorted({column for column in named if named.count(column) > 1}):
            raise ConfigurationError(f"column_keys names the column {twice[0]!r} twice: it has one master key")
        # All columns would stay in the clear, in a file that calls itself encrypted.
        if not self.complete_columns and not named:
            raise ConfigurationError(
                "complete_columns is False and column_keys names no column, so that none would be encrypted: name those that are, or leave "
                "complete_columns out"
            )

    @classmethod
    def of(cls, properties: Mapping[str, str]) -> EncryptionConfiguration:
        """Read the properties, all of them parquet.encryption.…; others, those of parquet-java among them, are ignored.

            footer.key          master key for the footer
            column.keys         "master key: column, column; master key: column"
            uniform.key         in place of both: one master key for the footer and all columns
            complete.columns    "true" (here the default): columns not named are encrypted under the footer key; "false": they stay plain
            algorithm           AES_GCM_V1 (default) or AES_GCM_CTR_V1
            plaintext.footer    "true": sign the footer instead of encrypting it
            double.wrapping     "true" (default): see key_material.py
            key.material.store.internally    "true" (default): in the file; "false": beside it
            data.key.length.bits, kek.length.bits    128 (default), 192 or 256

        Raises:
            ConfigurationError: a property is missing, misspelt or cannot be used, or two contradict each other.
        """
        # A slip in column.keys would leave the columns under the footer key.
        check_option_names(properties, _OWN, "the property", "parquet.encryption.")
        for name in (FOOTER_KEY, COLUMN_KEYS, UNIFORM_KEY):
            if not isinstance(value := properties.get(name, ""), str):
                raise ConfigurationError(f"{name} is {described(value)}; it must be text, or left out")
        uniform = properties.get(UNIFORM_KEY)
        if uniform is not None and (FOOTER_KEY in properties or COLUMN_KEYS in properties):
            raise ConfigurationError(f"{UNIFORM_KEY} takes the place of {FOOTER_KEY} and {COLUMN_KEYS}: give it alone")

        footer_key = uniform or properties.get(FOOTER_KEY)
        if not footer_key:
            raise ConfigurationError(f"no key for the footer: give {FOOTER_KEY}, or {UNIFORM_KEY} for all of the file")

        return cls(
            footer_key,
            _column_keys(properties.get(COLUMN_KEYS, "")),
            # uniform.key promises all columns: complete.columns=false beside it must not leave one in the clear.
            uniform is not None or truth(COMPLETE_COLUMNS, properties.get(COMPLETE_COLUMNS, True)),
            one_of(ALGORITHM, properties.get(ALGORITHM, AES_GCM_V1), ALGORITHMS),
            truth(PLAINTEXT_FOOTER, properties.get(PLAINTEXT_FOOTER, False)),
            truth(DOUBLE_WRAPPING, properties.get(DOUBLE_WRAPPING, True)),
            truth(STORE_INTERNALLY, properties.get(STORE_INTERNALLY, True)),
            _key_length(properties, DATA_KEY_BITS),
            _key_length(properties, KEK_BITS),
        )


class PropertiesDrivenCryptoFactory:
    """Makes the keys of Parquet files, and finds them again.

    Args:
        kms: holds the master keys: `tablecrypt.load_kms(properties)`.
        lifetime_s: for how many seconds a KEK is reused.
        random: gives keys and nonces.
        allowed_key_ids: globs of the master keys that files and configurations may name, besides what `encryption.allowed-key-ids` says to
            `load_kms`. Any other is refused with MasterKeyRefusedError before the KMS is asked. None allows every key.
    """

    @checked_arguments()
    def __init__(
        self,
        kms: KeyManagementClient,
        lifetime_s: float = DEFAULT_LIFETIME_S,
        random: Callable[[int], bytes] = secrets.token_bytes,
        *,
        allowed_key_ids: str | Iterable[str] | None = None,
    ) -> None:
        self._wrapper = KeyWrapper(kms, random, lifetime_s, allowed=AllowedKeys.listed(allowed_key_ids))
        self._random = random

    @checked_arguments()
    def encryption_keys(
        self,
        configuration: EncryptionConfiguration | Mapping[str, str],
        schema: pa.Schema | None = None,
        location: str | os.PathLike[str] | None = None,
    ) -> FileKeys:
        """Return fresh keys for one file. Never use them for a second one.

        Args:
            configuration: master keys by name, or the properties that say them.
            schema: of the file; needed where columns may stay plain (complete.columns is "false").
            location: path or URI of the file; needed where key material is kept beside it, which is written now.

        Raises:
            ConfigurationError: the configuration cannot be used, or an argument that it needs is missing.
            MasterKeyRefusedError: a master key is not allowed.
            KmsError, KeyNotFoundError: the KMS refused a master key.
        """
        wanted = configuration if isinstance(configuration, EncryptionConfiguration) else EncryptionConfiguration.of(configuration)
        # First, so that a location that is missing costs no call of the KMS.
        store = _store(wanted, None if location is None else os.fspath(location))
        kek_length = wanted.kek_length if wanted.double_wrapping else None
        materials: dict[str, KeyMaterial] = {}

        def new_key(name: str, master_key_id: str) -> tuple[Secret, bytes]:
            dek = Secret(self._random(wanted.data_key_length))
            material = self._wrapper.wrap(dek, master_key_id, name == _FOOTER_REFERENCE, kek_length)
            materials[name] = material
            return dek, (material.encode(internal=True) if store is None else reference_to(name)).encode()

        footer_key, footer_metadata = new_key(_FOOTER_REFERENCE, wanted.footer_key)
        columns = [(column, master) for master, names in wanted.column_keys.items() for column in names]
        made = {column: new_key(f"{_COLUMN_REFERENCE}{number}", master) for number, (column, master) in enumerate(columns)}
        # Before the caller can write a data file: nothing opens it without its key material.
        if store is not None:
            store.save(materials)
        return FileKeys(
            footer_key,
            {column: key for column, (key, _) in made.items()},
            algorithm=wanted.algorithm,
            plaintext_footer=wanted.plaintext_footer,
            plaintext_columns=_plaintext_columns(wanted, schema),
            footer_key_metadata=footer_metadata,
            column_key_metadata={column: metadata for column, (_, metadata) in made.items()},
        )

    @checked_arguments()
    def decryption_keys(self, location: str | os.PathLike[str] | None = None, **options: Any) -> FileKeys:
        """Return what finds the keys of one file by its key metadata.

        Args:
            location: path or URI of the file; needed where its key material is kept beside it.
            options: further arguments of FileKeys. What the file leaves without authentication is read only where they ask for it:
                algorithm="AES_GCM_CTR_V1", plaintext_columns=[...], or strict=False for whatever the file says.
        """
        external: dict[str, KeyMaterial] = {}

        def retrieve(key_metadata: bytes) -> Secret:
            where = f"the key metadata of {location or 'the file'}"
            name = reference_in(key_metadata, where)
            if name is None:
                return self._wrapper.unwrap(KeyMaterial.decode(key_metadata, where))
            if location is None:
                raise ConfigurationError(f"the file's key {name} is kept beside it: give its location")

            # One file holds the key material of all columns: it is read once.
            if not external:
                external.update(ExternalKeyMaterial(os.fspath(location)).load())
            if name not in external:
                raise KeyNotFoundError(f"{ExternalKeyMaterial(os.fspath(location)).path}: has no key {name}, which the file names")

            return self._wrapper.unwrap(external[name])

        return FileKeys(key_retriever=retrieve, **options)

    @checked_arguments()
    def rotate_master_keys(self, folder: str | os.PathLike[str], double_wrapping: bool = True, kek_length: int = 16) -> int:
        """Rewrap every DEK whose key material is kept beside its file in a folder, under the newest version of the same master keys.

        The data files are not touched. Returns how many files it was. A folder is done again when this fails on the way.
        """
        files = files_with_external_keys(os.fspath(folder))
        for file in files:
            materials = file.load()
            # All of it before the file is replaced, so that a refusal of the KMS leaves the old one as it is.
            wrapped = {
                name: self._wrapper.wrap(
                    self._wrapper.unwrap(material), material.master_key_id, material.is_footer_key, kek_length if double_wrapping else None
                )
                for name, material in materials.items()
            }
            file.save(wrapped)

        return len(files)


def _store(wanted: EncryptionConfiguration, location: str | None) -> ExternalKeyMaterial | None:
    if wanted.store_internally:
        return None
    if location is None:
        raise ConfigurationError(f"{STORE_INTERNALLY} is false: give the location of the file, beside which its keys are kept")
    return ExternalKeyMaterial(location)


def _plaintext_columns(wanted: EncryptionConfiguration, schema: pa.Schema | None) -> frozenset[str]:
    if wanted.complete_columns:
        return frozenset()
    if schema is None:
        raise ConfigurationError(f"{COMPLETE_COLUMNS} is false: give the schema, to say which columns stay in the clear")
    # A struct with one column under a key is left out whole: its other fields are encrypted under the footer key.
    own = frozenset(schema.names)
    return own - {column if column in own else column.partition(".")[0] for names in wanted.column_keys.values() for column in names}


def _column_keys(text: str) -> dict[str, tuple[str, ...]]:
    keys: dict[str, tuple[str, ...]] = {}
    seen: set[str] = set()
    for part in filter(None, (each.strip() for each in text.split(";"))):
        # A key's ARN has colons itself; a column's name has none in this notation.
        master, separator, columns = part.rpartition(":")
        names = tuple(name.strip() for name in columns.split(",") if name.strip())
        if not separator or not master.strip() or not names:
            raise ConfigurationError(f"{COLUMN_KEYS} has {part!r}; it must be 'master key: column, column; master key: column'")
        if master.strip() in keys or seen & set(names):
            raise ConfigurationError(f"{COLUMN_KEYS} names a master key or a column twice in {part!r}")

        seen.update(names)
        keys[master.strip()] = names

    return keys


def _key_length(properties: Mapping[str, str], name: str) -> int:
    return int(one_of(name, properties.get(name, "128"), _KEY_BITS)) // 8
