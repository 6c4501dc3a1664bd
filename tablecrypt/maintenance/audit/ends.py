"""How a table's Parquet data and delete files end: which algorithm and AAD prefix their plaintext file crypto metadata claims.

Nothing authenticates that claim, and a file that says AES_GCM_CTR_V1 asks its readers to take pages that nobody vouches for. The check is
the readers' own (parquet/checked_end.py); of each file the last 64 KiB are read, of many files at once.
"""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
from pyiceberg.io import FileIO

from tablecrypt.crypto.key_metadata import StandardKeyMetadata
from tablecrypt.errors import PlaintextRefusedError, TamperedFileError
from tablecrypt.maintenance.audit.heads import THREADS
from tablecrypt.parquet.uniform import check_end


def wrong_ends(io: FileIO, files: Iterable[tuple[str, StandardKeyMetadata]]) -> dict[str, str]:
    """Return what is wrong with the ends of files, by location; files that end as they should are left out.

    Args:
        io: the store's own FileIO.
        files: locations of encrypted Parquet files, each with its key metadata. Those that are missing or may not be read are passed over.
    """

    def look(file: tuple[str, StandardKeyMetadata]) -> tuple[str, str | None]:
        location, key_metadata = file
        try:
            with io.new_input(location).open() as stream:
                check_end(stream if isinstance(stream, pa.NativeFile) else pa.PythonFile(stream, mode="r"), key_metadata, location)
        except (TamperedFileError, PlaintextRefusedError) as refused:
            return location, refused.what
        except (FileNotFoundError, PermissionError):
            return location, None
        return location, None

    with ThreadPoolExecutor(THREADS, thread_name_prefix="tablecrypt-ends") as pool:
        return {location: what for location, what in pool.map(look, files) if what is not None}
