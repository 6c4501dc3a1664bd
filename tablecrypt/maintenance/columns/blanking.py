"""A data file of a table written again with some rows blanked, without the keys of its protected columns.

    file    on this machine: parquet/protected/carried_over_columns.py writes it again under a fresh DEK, its protected columns as they are
    entry   the old one's, with the new location, length and key, and the statistics of what the new file holds

The row count and the positions of rows are the old file's. So a caller that puts the entry in the place of the old one (EncryptedFileSwap,
which carries over deletion vectors) deletes the blanked rows by position, before or after: here they are rows of nulls.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from typing import Final

from pyiceberg.io.pyarrow import pyarrow_to_schema
from pyiceberg.manifest import DataFile

from tablecrypt.crypto.key_metadata import StandardKeyMetadata
from tablecrypt.files.raw_output import RawContent
from tablecrypt.maintenance.columns.footers import name_mapping_of
from tablecrypt.manifests.records import DATA_FILE_POSITIONS, EncryptedDataFile, key_metadata_of, with_key
from tablecrypt.parquet.protected.carried_over_columns import blank_rows_beside_hidden_columns
from tablecrypt.table.lineage import without_lineage_ids
from tablecrypt.table.parquet_options import FileStatistics
from tablecrypt.table.protection.writing import WriteProtection
from tablecrypt.table.table import EncryptedTable
from tablecrypt.table.table_files import deleting_on_error

BLANKED: Final = "-blanked.parquet"
"""Ends the new file's name, by which an erasure whose caller may use the column keys finds what is left to do."""
_SORT_ORDER: Final = DATA_FILE_POSITIONS["sort_order_id"]


def blanked_file(table: EncryptedTable, file: DataFile, positions: Iterable[int]) -> EncryptedDataFile:
    """Write a Parquet data file of a table again with nothing in the visible columns of some rows. Returns its entry, for a commit.

    Args:
        table: as it was loaded.
        file: of the table.
        positions: of the rows in the file, from 0.

    Raises:
        ConfigurationError, FormatError, TamperedFileError: as `blank_rows_beside_hidden_columns` raises them; nothing is left then.
    """
    io, metadata, old = table.io, table.metadata, key_metadata_of(file)
    # With the old AAD prefix: the protected columns are copied as ciphertext, which is bound to it.
    new = StandardKeyMetadata(io.manager.new_key_metadata().encryption_key, old.aad_prefix)
    location = table.location_provider().new_data_location(f"00000-0-{uuid.uuid4()}{BLANKED}")

    with deleting_on_error(io, [location]):
        with io.raw_input(file.file_path).open() as source, io.raw_output(location, RawContent.SELF_ENCRYPTED).create() as out:
            footer, length = blank_rows_beside_hidden_columns(source, out, old, new, positions, file.file_path)
        # Names and ids are those of the file, whose columns may have been renamed since.
        stored = footer.schema.to_arrow_schema()
        schema = pyarrow_to_schema(stored, name_mapping_of(metadata), format_version=metadata.format_version)
        statistics = FileStatistics.of(schema, metadata.properties).read(footer)
        statistics = {name: without_lineage_ids(value) for name, value in statistics.items()}
        protection = WriteProtection.of(metadata, io)
        entry = with_key(file, new.with_file_length(length))
        changed = {"file_path": location, "file_size_in_bytes": length, **statistics}
        # Every reader of the table opens the manifest: bounds of protected columns must not get there.
        for name, value in (changed if protection is None else protection.without_protected(changed)).items():
            entry[DATA_FILE_POSITIONS[name]] = value
        # Blanked rows are nulls now, so the rows are in no order any more.
        entry[_SORT_ORDER] = None

    return entry
