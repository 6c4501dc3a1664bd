"""A file with a column under another key, or in the clear, is no file of a table: whatever would read it says so, and the process goes on.

The careless user adds a file that he wrote with column keys; the adversary with the right to commit names one in a manifest.
"""

from __future__ import annotations

import io
import json
import secrets
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tablecrypt import parquet
from tablecrypt.crypto.key_metadata import StandardKeyMetadata
from tablecrypt.errors import FormatError, PlaintextRefusedError
from tests.support.column_key_files import KINDS, READERS
from tests.support.uniform_files import LOCATION, read

ERRORS = {"column key": "FormatError", "in the clear": "PlaintextRefusedError"}
SAID = {"column key": "ssn is encrypted with a key of its own", "in the clear": "ssn in the clear, which nothing authenticates"}


@pytest.mark.slow
def test_no_reader_takes_such_a_file_and_none_ends_the_process(unwatched_warehouse: Path) -> None:
    command = [sys.executable, "-m", "tests.support.column_key_files", str(unwatched_warehouse)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    outcomes = {(each["kind"], each["reader"]): each for each in map(json.loads, done.stdout.splitlines())}
    assert done.returncode == 0, (list(outcomes)[-1:], done.stderr[-2000:])
    for kind in KINDS:
        location = (unwatched_warehouse / f"{kind.replace(' ', '-')}0.parquet").as_uri()
        for reader in ("add_files", *READERS, "verify, quick=False", "verify, quick=True"):
            outcome = outcomes[kind, reader]
            # verify reports the file, and DuckDB puts an error of its source into one of its own.
            shown = f"{outcome['error']}: {outcome['message']}"
            assert ("RuntimeError" if "verify" in reader else ERRORS[kind]) in shown, outcome
            assert location in outcome["message"], outcome
            assert SAID[kind] in outcome["message"], outcome
        assert outcomes[kind, "migrate"]["error"] == "ConfigurationError", outcomes[kind, "migrate"]


NUMBERS = st.sampled_from([0x1C, 0x1C5C, 0x192C1C, 0x1C1C, -1, 7])
"""What a chunk's statistics store of them looks like the crypto metadata of a chunk."""


@given(
    st.lists(st.tuples(st.sampled_from(["footer", "own", "plain"]), st.lists(NUMBERS, min_size=1, max_size=3)), min_size=1, max_size=18),
    st.integers(1, 3),
)
@example([("plain", [28, 7260])], 2)
def test_a_file_is_read_if_every_column_is_under_its_key(columns: list[tuple[str, list[int]]], row_group_size: int) -> None:
    rows = pa.table({f"c{at}": (numbers * 3)[:3] for at, (_, numbers) in enumerate(columns)})
    names: dict[str, list[str]] = {kind: [f"c{at}" for at, each in enumerate(columns) if each[0] == kind] for kind in ("own", "plain")}
    key = StandardKeyMetadata.generate(16, secrets.token_bytes)
    more: dict[str, Any] = {"column_keys": dict.fromkeys(names["own"], b"o" * 16), "plaintext_columns": names["plain"]}
    sink = io.BytesIO()
    parquet.write_table(rows, sink, parquet.FileKeys(key.encryption_key, aad_prefix=key.aad_prefix, **more), row_group_size=row_group_size)
    if not names["own"] and not names["plain"]:
        assert read(sink.getvalue(), key) == rows
        return
    with pytest.raises((FormatError, PlaintextRefusedError), match=LOCATION) as refused:
        read(sink.getvalue(), key)
    assert any(name in str(refused.value) for name in (*names["own"], *names["plain"]))
    assert "o" * 16 not in str(refused.value)
