"""What sharing tells: what the partner gets, what he can read beside what he is shown, and the storage policy that he needs."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import urlsplit

from tablecrypt.maintenance.operation import OperationResult
from tablecrypt.printable import bytes_shown, counted, shown

_S3: Final = ("s3", "s3a", "s3n")
_WILD: Final = re.compile(r"[*?$]")


@dataclass(frozen=True)
class Shared(OperationResult):
    """What `share` gave to a partner.

    Attributes:
        location: the share's folder.
        metadata_location: the metadata.json that the partner registers in his catalog; empty for a dry run.
        share_uuid: the table-uuid of the share.
        to_key_id: the partner's master key.
        snapshot_id: of the table, from which the files are.
        files: how many data files of the table the share names.
        rows: how many rows a reader of the share sees; in a dry run without those of files that would be written again.
        bytes: stored bytes of these files. None of them was copied.
        came, went: how many of these files came, and how many went, since the share was last brought up to date.
        rewritten: how many files hold rows that match and could not be shared as they are: these rows are written once.
        rewritten_bytes: stored bytes of what was written of them.
        written_bytes: how many bytes of metadata were written.
        columns: names of the columns that the partner can read: none of these can be withheld while files are not written again.
        protected: those of them that are protected, each with the master key that he needs beside that of the share.
        withheld: names of the columns that he cannot read, protected ones and those that were left out.
        masked: names of those of which he can read the masked values that files hold.
        dropped: names of columns that were dropped from the table, and that he can read in files which hold them still.
        deleted_rows: how many rows a deletion vector marks, and he can read in the files all the same.
        policy: the policy that lets him read these objects of S3 and no others, as JSON; empty for another store. Never applied here.
    """

    location: str
    metadata_location: str = field(metadata=shown("metadata"))
    share_uuid: str
    to_key_id: str
    snapshot_id: int
    files: int
    rows: int
    bytes: int
    came: int = 0
    went: int = field(default=0, metadata=shown("files that went since", "count"))
    rewritten: int = field(default=0, metadata=shown("files whose matching rows were written again", "count"))
    rewritten_bytes: int = field(default=0, metadata=shown("data written", "bytes"))
    written_bytes: int = field(default=0, metadata=shown("metadata written", "bytes"))
    columns: tuple[str, ...] = field(default=(), metadata=shown("columns that the partner can read", is_whole=True))
    protected: dict[str, str] = field(default_factory=dict, metadata=shown("of these, under a second key of his", is_whole=True))
    withheld: tuple[str, ...] = field(default=(), metadata=shown("columns that stay closed to him", is_whole=True))
    masked: tuple[str, ...] = field(default=(), metadata=shown("of these, masked values are readable", is_whole=True))
    dropped: tuple[str, ...] = field(default=(), metadata=shown("dropped columns that files may hold still, readable", is_whole=True))
    deleted_rows: int = field(default=0, metadata=shown("deleted rows that files hold still, readable", "count"))
    policy: str = field(default="", metadata=shown("storage policy, to be applied by you"))

    def summary(self) -> str:
        """Return what was done in one sentence."""
        files, size = f"{counted(self.files, 'file', 'files')} of {self.table}", bytes_shown(self.bytes)
        if self.rewritten:
            given = f"{files} ({size}), and matching rows of {counted(self.rewritten, 'more file', 'more files')} written once,"
        else:
            given = f"{files} ({counted(self.rows, 'row', 'rows')}, {size})"

        # An update of a share that has all writes nothing.
        did = "Still shares" if not self.dry_run and not self.written_bytes else self._did("Shared", "Would share")
        return f"{did} {given} with {self.to_key_id} at {self.location}."


def storage_policy(objects: Iterable[str], folder: str) -> str:
    """Return the statement of a policy by which objects of S3 are read and no others; empty where all is in another store.

    Args:
        objects: locations of the table's own files.
        folder: the share's, of which all may be read.
    """
    resources = [arn for location in objects if (arn := _arn(location)) is not None]
    if (of_share := _arn(folder)) is not None:
        resources.append(f"{of_share}/*")
    if not resources:
        return ""

    statement = {"Sid": "TablecryptShare", "Effect": "Allow", "Action": "s3:GetObject", "Resource": resources}
    return json.dumps({"Version": "2012-10-17", "Statement": [statement]})


def _arn(location: str) -> str | None:
    """Return the name of an object in policies."""
    parts = urlsplit(location, allow_fragments=False)
    if parts.scheme.lower() not in _S3:
        return None
    key = location.partition("://")[2].partition("/")[2]
    # In a policy these stand for other objects: an object named so would open its neighbours.
    return f"arn:aws:s3:::{parts.netloc}/{_WILD.sub(lambda found: f'${{{found[0]}}}', key)}"
