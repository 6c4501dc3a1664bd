"""Adding Parquet files that are encrypted already to a table's metadata.

A file is taken only with the key metadata that opens it: its footer is decrypted and authenticated here, and the statistics for the
manifest come from it. Plaintext is refused, since nothing would encrypt it afterwards.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from pyiceberg.io.pyarrow import compute_statistics_plan, data_file_statistics_from_parquet_metadata, parquet_path_to_id_mapping
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat

from tablecrypt.crypto.key_metadata import StandardKeyMetadata
from tablecrypt.errors import FormatError, PlaintextRefusedError
from tablecrypt.files.encrypting_file_io import EncryptingFileIO
from tablecrypt.parquet.uniform import UniformParquetFile
from tablecrypt.table._pyiceberg.arrow import check_pyarrow_schema_compatible
from tablecrypt.table.metadata import EncryptedTableMetadata


def encrypted_files_to_data_files(
    metadata: EncryptedTableMetadata, io: EncryptingFileIO, paths: list[str], key_metadata: Mapping[str, StandardKeyMetadata | bytes]
) -> Iterator[DataFile]:
    """Yield a manifest entry's data file for each path.

    Raises:
        PlaintextRefusedError: a path has no key metadata, or the file is plaintext.
        FormatError: a file's key metadata is not StandardKeyMetadata version 1.
        TamperedFileError: a file does not open with its key, or has another length than its key metadata says.
        ValueError: a file's schema does not fit the table's.
    """
    for path in paths:
        given = key_metadata.get(path)
        if given is None:
            raise PlaintextRefusedError(path, "add_files takes only encrypted files: give its key in key_metadata={path: ...}")
        yield _data_file(metadata, io, path, _decoded(path, given))


def _decoded(path: str, given: StandardKeyMetadata | bytes) -> StandardKeyMetadata:
    if isinstance(given, StandardKeyMetadata):
        return given
    try:
        return StandardKeyMetadata.decode(given)
    except FormatError as error:
        raise FormatError(f"{path}: its key metadata: {error}") from error


def _data_file(metadata: EncryptedTableMetadata, io: EncryptingFileIO, path: str, key_metadata: StandardKeyMetadata) -> DataFile:
    source = io.raw_input(path)
    length = len(source)
    schema = metadata.schema()
    with source.open() as stream:
        file = UniformParquetFile(stream, key_metadata, path)
        check_pyarrow_schema_compatible(schema, file.schema, format_version=3)
        statistics = data_file_statistics_from_parquet_metadata(
            parquet_metadata=file.footer(),
            stats_columns=compute_statistics_plan(schema, metadata.properties),
            parquet_column_mapping=parquet_path_to_id_mapping(schema),
        )
    data_file = DataFile.from_args(
        _table_format_version=3,
        content=DataFileContent.DATA,
        file_path=path,
        file_format=FileFormat.PARQUET,
        partition=statistics.partition(metadata.spec(), schema),
        file_size_in_bytes=length,
        sort_order_id=None,
        equality_ids=None,
        key_metadata=key_metadata.with_file_length(length).encode(),
        **statistics.to_serialized_dict(),
    )
    data_file.spec_id = metadata.default_spec_id
    return data_file
