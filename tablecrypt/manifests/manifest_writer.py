"""Writing one version 3 manifest, encrypted.

    manifest_entry records  →  Avro file in blocks of about 64 kB  →  AGS1 stream

Avro metadata, as Iceberg Java writes it: schema (the table's, as JSON), partition-spec, partition-spec-id, format-version "3",
content "data" or "deletes". A caller may add fields, which readers that do not know them ignore.

`to_manifest_file()` gives the row for the manifest list: manifest_length is the length of the ciphertext, and key_metadata holds the DEK,
the AAD prefix and that same length. Sequence number and first_row_id are left for the manifest list's writer.

Raises:
    PlaintextRefusedError: a live entry whose file has no key metadata.
    ConfigurationError: an entry that does not belong here (content, sequence number), or a manifest asked for before it is complete.

Specification: "Manifests" of the Iceberg table specification.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import TracebackType

from pydantic_core import to_json
from pyiceberg.avro.file import AvroOutputFile
from pyiceberg.manifest import DataFileContent, ManifestContent, ManifestEntry, ManifestEntryStatus, ManifestWriter
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.typedef import EMPTY_DICT, TableVersion

from tablecrypt.errors import ConfigurationError, PlaintextRefusedError
from tablecrypt.files.encrypting_file_io import EncryptingOutputFile
from tablecrypt.manifests.avro_writer import BlockAvroOutputFile, avro_codec_name
from tablecrypt.manifests.manifest_file import CONTENT_NAMES, EncryptedManifestFile
from tablecrypt.manifests.records import FIRST_ROW_ID, FORMAT_VERSION, EncryptedDataFile, entry_records


class ManifestWriterV3(ManifestWriter):
    """PyIceberg's manifest writer for version 3 and an encrypting output file; use as a context manager.

    Left by an exception, or after an entry was refused, there is no manifest: the file is abandoned and `to_manifest_file` refuses.
    """

    def __init__(
        self,
        spec: PartitionSpec,
        schema: Schema,
        output_file: EncryptingOutputFile,
        snapshot_id: int,
        avro_compression: str,
        content: ManifestContent = ManifestContent.DATA,
        further_fields: Mapping[str, str] = EMPTY_DICT,
    ) -> None:
        super().__init__(spec, schema, output_file, snapshot_id, avro_codec_name(avro_compression))  # type: ignore[arg-type]
        self.spec = spec
        self.schema = schema
        self.output_file = output_file
        self.snapshot_id = snapshot_id
        self.compression = avro_compression
        self.manifest_content = content
        self.further_fields = further_fields
        self.entry_count = 0
        self.refused = False
        self.complete = False

    def __enter__(self) -> ManifestWriterV3:
        super().__enter__()
        return self

    def __exit__(self, exc_type: type[BaseException] | None, exc_value: BaseException | None, traceback: TracebackType | None) -> None:
        """Complete the manifest; or abandon the file, on an exception, after a refused entry or with no entries."""
        self.closed = True
        problem = exc_value or self._problem()
        if problem is not None:
            self.avro_file.__exit__(type(problem), problem, traceback)
            if exc_value is None:
                raise problem
            return

        self.avro_file.__exit__(None, None, None)
        self.complete = True

    def content(self) -> ManifestContent:
        """Return whether the manifest lists data files or delete files."""
        return self.manifest_content

    @property
    def version(self) -> TableVersion:
        """The format version, 3."""
        return FORMAT_VERSION

    def new_writer(self) -> AvroOutputFile[ManifestEntry]:
        """Return the Avro file that the entries go to."""
        self.avro_file = BlockAvroOutputFile[ManifestEntry](
            output_file=self.output_file,
            records=entry_records(self.spec.partition_type(self.schema)),
            metadata={
                "schema": self.schema.model_dump_json(),
                "partition-spec": to_json(self.spec.fields).decode("utf-8"),
                "partition-spec-id": str(self.spec.spec_id),
                "format-version": str(FORMAT_VERSION),
                "content": CONTENT_NAMES[self.manifest_content],
                **self.further_fields,
            },
            compression=self.compression,
        )
        return self.avro_file

    def add_entry(self, entry: ManifestEntry) -> ManifestWriterV3:
        """Write `entry` as it is, after checking that it may be written."""
        try:
            self._check_content(entry)
            self._check_key_metadata(entry)
            self._check_sequence_number(entry)
            super().add_entry(entry)
        except BaseException:  # the counts may be off by this entry: no manifest may come of it
            self.refused = True
            raise

        self.entry_count += 1
        return self

    def prepare_entry(self, entry: ManifestEntry) -> ManifestEntry:
        """Return the entry with a data file of version 3; row ids belong to data files alone."""
        data_file = EncryptedDataFile.of(entry.data_file)
        if self.manifest_content == ManifestContent.DELETES and data_file.first_row_id is not None:
            # A copy: the entry may be the caller's, and other manifests may list the same object.
            data_file = EncryptedDataFile(*data_file.values())
            data_file[FIRST_ROW_ID] = None

        if data_file is entry.data_file:
            return entry

        return ManifestEntry(entry.status, entry.snapshot_id, entry.sequence_number, entry.file_sequence_number, data_file)

    def to_manifest_file(self) -> EncryptedManifestFile:
        """Return the manifest's row for a manifest list.

        Raises:
            ConfigurationError: the writer was not left, or was left by an exception.
        """
        if not self.complete:
            raise ConfigurationError(f"{self.output_file.location}: the manifest is not complete")
        row = EncryptedManifestFile.of(super().to_manifest_file())
        # Only a closed file has its length, which the key metadata has to carry: readers trust it against truncation.
        return row.with_key_metadata(self.output_file.key_metadata)

    def _problem(self) -> ConfigurationError | None:
        if self.refused:
            return ConfigurationError(f"{self.output_file.location}: an entry was refused, so the manifest is abandoned")
        if self.entry_count == 0:
            return ConfigurationError(f"{self.output_file.location}: an empty manifest is not written")
        return None

    def _check_content(self, entry: ManifestEntry) -> None:
        is_data = entry.data_file.content == DataFileContent.DATA
        if is_data != (self.manifest_content == ManifestContent.DATA):
            raise ConfigurationError(
                f"{entry.data_file.file_path}: {entry.data_file.content!r} in a manifest of {CONTENT_NAMES[self.manifest_content]}"
            )

    def _check_key_metadata(self, entry: ManifestEntry) -> None:
        if entry.status != ManifestEntryStatus.DELETED and not entry.data_file.key_metadata:
            raise PlaintextRefusedError(entry.data_file.file_path, "no key metadata, so it cannot be listed in an encrypted table")

    def _check_sequence_number(self, entry: ManifestEntry) -> None:
        """A null sequence number is inherited at commit, which is right only for what this commit adds."""
        if entry.sequence_number is not None:
            return
        if entry.snapshot_id is not None and entry.snapshot_id != self.snapshot_id:
            raise ConfigurationError(f"{entry.data_file.file_path}: no sequence number, but from another snapshot ({entry.snapshot_id})")
        if entry.status != ManifestEntryStatus.ADDED:
            raise ConfigurationError(f"{entry.data_file.file_path}: only an added file may have no sequence number")
