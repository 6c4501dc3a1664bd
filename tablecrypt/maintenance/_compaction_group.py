"""One group of a compaction, rewritten: what a runner's thread or executor does.

    data files with their delete files ──decrypted, deletes applied──▶ rows, each with _row_id and _last_updated_sequence_number
        ──in order, or sorted in memory──▶ new files under fresh DEKs, in the table's current schema and partitioning

Work and result are entries as table/file_entries.py has them, without the keys, which travel beside them.

Raises what reading a table raises, naming the file; a group that fails deletes the files that it has written.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

import pyarrow as pa
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.manifest import DataFile
from pyiceberg.table import ALWAYS_TRUE

from tablecrypt.crypto.key_metadata import StandardKeyMetadata
from tablecrypt.errors import FormatError
from tablecrypt.files.encrypting_file_io import EncryptingFileIO
from tablecrypt.maintenance.compaction_plan import FileGroup, check_rows
from tablecrypt.maintenance.runner import FileDone, FileWork
from tablecrypt.manifests.records import EncryptedDataFile
from tablecrypt.table.file_entries import FileEntryCodec
from tablecrypt.table.lineage import with_lineage
from tablecrypt.table.metadata import EncryptedTableMetadata
from tablecrypt.table.parquet_options import with_target_file_size
from tablecrypt.table.planning import EncryptedFileScanTask
from tablecrypt.table.reader import TaskReader, cast_batch
from tablecrypt.table.scan import prefetched
from tablecrypt.table.table_files import FreshKeys, delete_written, key_metadata_of, with_key
from tablecrypt.table.write import write_data_files

_WORKERS: Final = 2
_QUEUE_LENGTH: Final = 4
_READ_AHEAD: Final = 16 * 1024 * 1024


@dataclass(frozen=True)
class RewriteFacts:
    """What all groups of a compaction share.

    Attributes:
        metadata_json: the table's, without history.
        data_key_length: bytes of the new DEKs.
        sort_by: columns to order the rows of each group by, ascending, nulls last.
    """

    metadata_json: str
    data_key_length: int
    sort_by: tuple[str, ...] = ()


@dataclass(frozen=True)
class GroupWork:
    """A group as it travels: its scan tasks without keys, where a new file ends, and how many rows are left, if that is known."""

    entries: bytes
    roll_size: int
    live_rows: int | None


def group_work(codec: FileEntryCodec, group: FileGroup) -> FileWork[GroupWork]:
    """Return the work of a group, its keys apart."""
    without_keys = [
        EncryptedFileScanTask(
            with_key(task.file, None),
            {with_key(file, None) for file in task.delete_files},
            data_sequence_number=task.data_sequence_number,
        )
        for task in group.tasks
    ]
    keys = tuple(key_metadata_of(file) for file in _files_in_order(group.tasks))
    return FileWork(GroupWork(codec.encode_tasks(without_keys), group.roll_size, group.live_rows), keys, group.size)


def rewrite_group(facts: RewriteFacts, io: EncryptingFileIO, work: GroupWork, keys: tuple[StandardKeyMetadata, ...]) -> FileDone[bytes]:
    """Rewrite a group; the result is the entries of the new files, without keys.

    Raises:
        FormatError: the files do not hold as many live rows as their manifests say.
    """
    metadata = EncryptedTableMetadata.model_validate_json(facts.metadata_json)
    codec = FileEntryCodec(metadata)
    tasks = _with_keys(codec.decode_tasks(work.entries), keys)
    rows = _sorted(_rows(metadata, io, tasks), facts.sort_by)
    rolling = with_target_file_size(metadata, work.roll_size)
    files = write_data_files(rolling, rows, io, FreshKeys(facts.data_key_length), uuid.uuid4())
    try:
        check_rows([work.live_rows], files, tasks[0].file.file_path)
    except FormatError:
        delete_written(io, [file.file_path for file in files])
        raise
    return FileDone(codec.encode_files(with_key(file, None) for file in files), tuple(key_metadata_of(file) for file in files))


def new_files(codec: FileEntryCodec, done: FileDone[bytes]) -> list[DataFile]:
    """Return the files that a group was rewritten into, with their keys."""
    return [with_key(file, key) for file, key in zip(codec.decode_files(done.result), done.keys, strict=True)]


def _rows(metadata: EncryptedTableMetadata, io: EncryptingFileIO, tasks: Sequence[EncryptedFileScanTask]) -> pa.RecordBatchReader:
    projected = with_lineage(metadata.schema())
    reader = TaskReader(metadata, io, projected, ALWAYS_TRUE, read_ahead=_READ_AHEAD)
    schema = schema_to_pyarrow(projected, include_field_ids=False)

    def batches() -> Iterator[pa.RecordBatch]:
        sources: list[Callable[[], Iterator[pa.RecordBatch]]] = [partial(reader.batches, task) for task in tasks]
        for rows in prefetched(sources, _WORKERS, _QUEUE_LENGTH):
            yield cast_batch(rows, schema)

    return pa.RecordBatchReader.from_batches(schema, batches())


def _sorted(rows: pa.RecordBatchReader, sort_by: Sequence[str]) -> pa.Table | pa.RecordBatchReader:
    return rows.read_all().sort_by([(name, "ascending") for name in sort_by]) if sort_by else rows


def _with_keys(tasks: Sequence[EncryptedFileScanTask], keys: Iterable[StandardKeyMetadata]) -> list[EncryptedFileScanTask]:
    files = _files_in_order(tasks)
    keyed = {file: with_key(file, key) for file, key in zip(files, keys, strict=True)}
    return [
        EncryptedFileScanTask(
            keyed[EncryptedDataFile.of(task.file)],
            {keyed[EncryptedDataFile.of(file)] for file in task.delete_files},
            data_sequence_number=task.data_sequence_number,
        )
        for task in tasks
    ]


def _files_in_order(tasks: Iterable[EncryptedFileScanTask]) -> list[EncryptedDataFile]:
    """Return all data and delete files once each, in an order that is the same in every process."""
    files = {EncryptedDataFile.of(file) for task in tasks for file in (task.file, *task.delete_files)}
    return sorted(files, key=lambda file: (file.file_path, file.content_offset or 0))
