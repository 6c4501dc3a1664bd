"""Time and randomness of the builder's process, so that it writes the same bytes each time. Import it before tablecrypt and PyIceberg.

NEVER import it elsewhere: keys and nonces that it gives are known to everyone. It changes this process alone; tablecrypt's own sources of
randomness stay as they are. Arrow encrypts Parquet with nonces of its own, which cannot be replaced, so here Arrow writes plaintext into
memory and tablecrypt's module writer encrypts it.
"""

from __future__ import annotations

import datetime as dt
import io
import os
import random
import secrets
import time
from types import SimpleNamespace
from typing import Any, Final

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
    import pyarrow as pa
    import pyarrow.parquet as pq

    from tablecrypt.crypto.key_metadata import StandardKeyMetadata
    from tablecrypt.parquet import FileKeys, encrypt
    from tablecrypt.parquet.uniform import UniformParquetWriter, _decryption, check_writer_options

    def begin(self: Any, sink: Any, schema: pa.Schema, key_metadata: StandardKeyMetadata, **options: Any) -> None:
        check_writer_options(options)
        self._sink, self._key_metadata, self._plain = sink, key_metadata, io.BytesIO()
        self._writer = pq.ParquetWriter(self._plain, schema=schema, store_decimal_as_integer=True, **options)

    def close(self: Any) -> tuple[pq.FileMetaData, int]:
        self._writer.close()
        keys = FileKeys(self._key_metadata.encryption_key, aad_prefix=self._key_metadata.aad_prefix)
        encrypted = io.BytesIO()
        encrypt(self._plain.getvalue(), encrypted, keys, random=FIXED.randbytes)
        self._sink.write(encrypted.getvalue())
        opened = pq.ParquetFile(pa.BufferReader(encrypted.getvalue()), decryption_properties=_decryption(self._key_metadata))
        return opened.metadata, self._sink.tell()

    UniformParquetWriter.__init__ = begin  # type: ignore[method-assign]
    UniformParquetWriter.close = close  # type: ignore[method-assign]


_replace_sources()
_replace_arrow_encryption()
