"""What a new table is asked to be, checked before it is made: a slip in a property must not make a table that is not encrypted.

encryption.key-id given                        that master key, once the KMS has wrapped a key under it
not given, encryption.default-key-id set       the catalog's default
neither, encryption.required=true              refused
neither                                        a plain table
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from pyiceberg.table import TableProperties
from pyiceberg.typedef import Properties

from tablecrypt import properties as names
from tablecrypt.errors import ConfigurationError
from tablecrypt.table.updates import check_name_mapping
from tablecrypt_catalog.table_encryption import encryption_manager


def check_catalog_properties(client_properties: Properties) -> None:
    """Refuse a catalog's configuration that names a property of ours that there is not.

    Raises:
        ConfigurationError: it does.
    """
    names.check_own_names(client_properties, "catalog", names.is_foreign_kms(client_properties))


def creation_properties(client_properties: Properties, table_properties: Properties) -> Properties:
    """Return a new table's properties: with the catalog's default key where they name none, and format version 3 if it is encrypted.

    Raises:
        MasterKeyRefusedError: this client does not allow the master key.
        ConfigurationError: a name is misspelt, a property cannot be used or names code, format-version 1 or 2 was asked for, or the
            catalog requires encryption and nothing names a master key.
        KmsError: the KMS does not wrap and unwrap keys under the master key.
    """
    creation = dict(table_properties)
    names.check_own_names(creation, "table")
    names.check_table_properties("to be created", creation, client_properties)
    default_key_id = names.DEFAULT_KEY_ID.read(client_properties)
    if default_key_id:
        creation.setdefault(names.KEY_ID.name, default_key_id)
    if names.KEY_ID.name not in creation:
        _refuse_where_required(client_properties)
        return creation
    version = str(creation.setdefault(TableProperties.FORMAT_VERSION, "3"))
    if version != "3":
        raise ConfigurationError(
            f"{TableProperties.FORMAT_VERSION}={version} cannot hold encryption keys: "
            f"leave it out, or set 3, when {names.KEY_ID.name} is given"
        )
    check_name_mapping(creation)
    # Better here than at the first append, when somebody else may find the table without a key that works.
    encryption_manager(client_properties, cast("Mapping[str, str]", creation)).new_kek()
    return creation


def _refuse_where_required(client_properties: Properties) -> None:
    if names.REQUIRED.is_true(client_properties):
        raise ConfigurationError(
            f"the table would not be encrypted, and the catalog has {names.REQUIRED.name}=true: give it {names.KEY_ID.name}, or set "
            f"{names.DEFAULT_KEY_ID.name} for the catalog"
        )
