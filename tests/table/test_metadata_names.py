"""What metadata calls a metadata file may have any name: one that cannot be is refused before anything is opened."""

from __future__ import annotations

import pytest
from pyiceberg.io.pyarrow import PyArrowFileIO

from tablecrypt.errors import FormatError
from tablecrypt.files.deletion import DeletionScope
from tablecrypt.table.metadata import read_named_metadata_file


@pytest.mark.parametrize(
    ("location", "said"),
    [
        ("s3://b/t/data/1.parquet", "s3://b/t/data/1.parquet: not named as a metadata file is"),
        ("s3:///t/1.metadata.json", "'s3:///t/1.metadata.json' names no bucket"),
        ("file://host/t/1.metadata.json", "'file://host/t/1.metadata.json' names a host, but a local file has no host"),
    ],
)
def test_a_name_that_no_metadata_file_has_is_refused_and_said_once(location: str, said: str) -> None:
    with pytest.raises(FormatError) as refused:
        read_named_metadata_file(PyArrowFileIO(), location, DeletionScope(("s3://b/t",)))

    assert str(refused.value) == said
