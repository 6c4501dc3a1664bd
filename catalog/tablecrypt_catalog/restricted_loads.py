"""What a REST server's answer to a load restricts: read, and checked to be applicable in full, before the table is handed out.

Iceberg REST catalog specification, `loadTable`, `ReadRestrictions`.
"""

from __future__ import annotations

from pyiceberg.table.metadata import TableMetadata
from pyiceberg.typedef import Identifier

from tablecrypt.errors import ReadRestrictionError
from tablecrypt.files.read_restrictions import ReadRestrictions
from tablecrypt.table.metadata import EncryptedTableMetadata
from tablecrypt.table.restrictions.read_restrictions import check_restrictions, parse_restrictions
from tablecrypt_catalog.table_encryption import is_encrypted


def applicable_restrictions(name: Identifier, metadata: TableMetadata, answered: object) -> ReadRestrictions | None:
    """Return what readers of a table have to apply; None where the server restricts nothing.

    Args:
        name: the table's.
        metadata: as the server answered it.
        answered: the answer's `read-restrictions`.

    Raises:
        ReadRestrictionError: something of it cannot be applied, or the table is not encrypted, which PyIceberg reads without applying any.
    """
    try:
        restrictions = parse_restrictions(answered)
        if restrictions is None:
            return None
        if not isinstance(metadata, EncryptedTableMetadata) or not is_encrypted(name, metadata):
            raise ReadRestrictionError("the table is not encrypted, and PyIceberg, which reads it then, applies no restrictions")
        check_restrictions(restrictions, metadata)
    except ReadRestrictionError as error:
        raise ReadRestrictionError(f"{'.'.join(name)} cannot be read as the catalog's server requires: {error}") from None
    return restrictions
