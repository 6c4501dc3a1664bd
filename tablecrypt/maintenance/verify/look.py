"""Looking at one file, wherever it runs: the function that a Runner carries to the files.

    PARQUET data and delete files     Parquet Modular Encryption, module by module
    everything else                   AGS1, block by block

A file that is missing or cannot be what it should be is a finding, as a bad block is. Any other error of the store stops the run: it says
nothing about the file.
"""

from __future__ import annotations

from dataclasses import dataclass

from pyiceberg.manifest import FileFormat

from tablecrypt.crypto.key_metadata import StandardKeyMetadata
from tablecrypt.files.encrypting_file_io import EncryptingFileIO
from tablecrypt.maintenance.runner import FileDone
from tablecrypt.maintenance.verify.ags1_file import verify_ags1
from tablecrypt.maintenance.verify.parquet_file import verify_parquet
from tablecrypt.maintenance.verify.problems import FileLook, Problem


@dataclass(frozen=True)
class LookAt:
    """Which file, what it holds, and whether to look at every byte. Its key travels apart."""

    location: str
    file_format: str
    is_content: bool
    full: bool


def look_at_file(io: EncryptingFileIO, work: LookAt, keys: tuple[StandardKeyMetadata, ...]) -> FileDone[FileLook]:
    """Authenticate one file with its key, `keys[0]`, and tell everything that is wrong with it."""
    if work.is_content and work.file_format == FileFormat.ORC.value:
        problem = Problem(
            "format", "an ORC file: encrypted Iceberg tables hold Parquet and Avro data files, and nothing here reads this one"
        )
        return FileDone(FileLook(0, 0, (problem,)))
    is_parquet = work.is_content and work.file_format == FileFormat.PARQUET.value
    check = verify_parquet if is_parquet else verify_ags1
    try:
        with io.raw_input(work.location).open() as raw:
            return FileDone(check(raw, keys[0], work.location, work.full))
    except FileNotFoundError:
        return FileDone(FileLook(0, 0, (Problem("file", "is missing"),)))
