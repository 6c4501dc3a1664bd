"""Time and randomness of the builder's process, so that it writes the same bytes each time. Import it before tablecrypt and PyIceberg.

NEVER import it elsewhere: keys and nonces that it gives are known to everyone. It changes this process alone; tablecrypt's own sources of
randomness stay as they are. Arrow encrypts Parquet with nonces of its own, which cannot be replaced: see
fixed_parquet.py.
"""

from __future__ import annotations

import datetime as dt
import os
import random
import secrets
import time
from types import SimpleNamespace
from typing import Final

_BEGIN_MS: Final = 1_750_000_000_000
_STEP_MS: Final = 1_000


class _Fixed:
    """One stream of bytes and one clock, which goes on by a second each time that somebody looks."""

    def __init__(self) -> None:
        self.begin("")

    def begin(self, name: str) -> None:
        """Start again, for the case of this name: what one case draws changes no other."""
        self._random = random.Random(name)
        self._now_ms = _BEGIN_MS

    def randbytes(self, length: int | None = None) -> bytes:
        return self._random.randbytes(32 if length is None else length)

    def now_ms(self) -> int:
        self._now_ms += _STEP_MS
        return self._now_ms

    def now(self, zone: dt.tzinfo | None = None) -> dt.datetime:
        return dt.datetime.fromtimestamp(self.now_ms() / 1000, zone or dt.UTC)


FIXED: Final = _Fixed()


def _replace_sources() -> None:
    # Before tablecrypt is imported, which binds some of them as defaults of arguments.
    os.environ["PYICEBERG_MAX_WORKERS"] = "1"
    os.urandom = FIXED.randbytes
    random._urandom = FIXED.randbytes  # type: ignore[attr-defined]
    secrets.token_bytes = FIXED.randbytes  # type: ignore[assignment]
    time.time = lambda: FIXED.now_ms() / 1000
    time.time_ns = lambda: FIXED.now_ms() * 1_000_000

    import pyiceberg.table.metadata
    import pyiceberg.table.update

    clock = SimpleNamespace(now=FIXED.now)
    pyiceberg.table.update.datetime = clock  # type: ignore[assignment, attr-defined]
    pyiceberg.table.metadata.datetime = SimpleNamespace(datetime=clock)  # type: ignore[assignment, attr-defined]


def _replace_arrow_encryption() -> None:
    from conformance.build.fixed_parquet import FixedParquetWriter
    from tablecrypt.parquet.uniform import UniformParquetWriter

    for method in (FixedParquetWriter.__init__, FixedParquetWriter.aad_file_unique, FixedParquetWriter.write, FixedParquetWriter.close):
        setattr(UniformParquetWriter, method.__name__, method)
    UniformParquetWriter._add = FixedParquetWriter._add  # type: ignore[attr-defined]


_replace_sources()
_replace_arrow_encryption()
