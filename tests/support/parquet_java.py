"""parquet-java, the reference implementation of modular encryption, as a process that answers over its standard streams.

Needs a JDK, which runs tests/support/java_src/ParquetPeer.java as it is, with the jars that PySpark brings.
"""

from __future__ import annotations

import base64
import subprocess
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Final

from tablecrypt.crypto.aes_gcm import AesGcm
from tablecrypt.crypto.secret import Secret
from tablecrypt.errors import KeyNotFoundError
from tablecrypt.kms.client import GeneratedKey
from tablecrypt.parquet import FileKeys
from tests.support.java_version import java_executable
from tests.support.server_process import end_of_input

_PEER: Final = Path(__file__).with_name("java_src") / "ParquetPeer.java"
_FACTORY_OPTIONS: Final = ("--add-opens", "java.base/javax.security.auth=ALL-UNNAMED")

MASTER_KEYS: Final = {"kf": b"0123456789012345", "kc1": b"1234567890123450", "kc2": b"1234567890123451"}


class PeerError(Exception):
    """What parquet-java threw."""


class InMemoryKms:
    """A key service with the master keys of parquet-testing, that wraps as parquet-java's own test service does.

    wrapped = nonce (12) | ciphertext | tag (16)    AES-GCM, AAD = the master key's id
    """

    def __init__(self, keys: Mapping[str, bytes] = MASTER_KEYS) -> None:
        self.keys = dict(keys)
        self.calls = 0

    def wrap_key(self, key: bytes, wrapping_key_id: str) -> bytes:
        from secrets import token_bytes

        self.calls += 1
        return self._cipher(wrapping_key_id).encrypt(token_bytes(12), key, wrapping_key_id.encode())

    def unwrap_key(self, wrapped_key: bytes, wrapping_key_id: str) -> bytes:
        self.calls += 1
        return self._cipher(wrapping_key_id).decrypt(wrapped_key, wrapping_key_id.encode())

    def generate_key(self, wrapping_key_id: str, length: int = 16) -> GeneratedKey:
        raise NotImplementedError

    def close(self) -> None:
        return

    def _cipher(self, key_id: str) -> AesGcm:
        if key_id not in self.keys:
            raise KeyNotFoundError(f"no master key {key_id}")
        return AesGcm(Secret(self.keys[key_id]))


class ParquetJava:
    """One running peer; a context manager."""

    def __init__(self) -> None:
        import pyspark

        jars = Path(pyspark.__file__).parent / "jars"
        command = [java_executable() or "java", *_FACTORY_OPTIONS, "-cp", f"{jars}/*", str(_PEER)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)

    def write(self, path: Path, properties: Mapping[str, str]) -> None:
        """Let it write 100 rows."""
        self._ask("write", str(path), *_pairs(properties))

    def read(self, path: Path, properties: Mapping[str, str]) -> list[dict[str, Any]]:
        """Rows of a file whose key metadata says how its keys are wrapped."""
        return self._ask("read", str(path), *_pairs(properties))

    def open(self, path: Path, keys: FileKeys, leaves: Mapping[str, str]) -> list[dict[str, Any]]:
        """Rows of a file under given keys. `leaves` gives the leaf path of each column with a key of its own."""
        assert keys.footer_key is not None
        columns = [f"{leaves.get(name, name)}={_base64(key.reveal())}" for name, key in keys.column_keys.items()]
        prefix = _base64(keys.aad_prefix) if keys.aad_prefix else "-"
        return self._ask("open", str(path), prefix, _base64(keys.footer_key.reveal()), *columns)

    def save(self, path: Path, keys: FileKeys, rows: Iterable[Mapping[str, Any]], page_rows: int) -> None:
        """Write rows under given keys, without compression. Columns without a key of their own are under the footer's."""
        assert keys.footer_key is not None
        prefix = ("stored" if keys.store_aad_prefix else "given", _base64(keys.aad_prefix)) if keys.aad_prefix else ("none", "-")
        footer = "plaintext" if keys.plaintext_footer else "encrypted"
        columns = [f"{name}={_base64(key.reveal())}" for name, key in keys.column_keys.items()]
        with tempfile.NamedTemporaryFile("w", suffix=".tsv") as file:
            # "null" is no name in it, as in what `open` answers.
            for row in rows:
                file.write(f"{row['id']}\t{'null' if row['name'] is None else row['name']}\t{row['ratio']!r}\n")
            file.flush()
            key = _base64(keys.footer_key.reveal())
            self._ask("save", str(path), file.name, str(page_rows), keys.algorithm, footer, *prefix, key, *columns)

    def _ask(self, *words: str) -> list[dict[str, Any]]:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write("\t".join(words) + "\n")
        self._process.stdin.flush()
        rows: list[dict[str, Any]] = []
        for line in self._process.stdout:
            kind, *values = line.rstrip("\n").split("\t")
            if kind == "ok":
                return rows
            if kind.startswith("error"):
                raise PeerError(kind)
            if kind == "row":
                rows.append({"id": int(values[0]), "name": None if values[1] == "null" else values[1], "ratio": float(values[2])})
        raise PeerError("the process ended")

    def __enter__(self) -> ParquetJava:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        end_of_input(self._process)


def _pairs(properties: Mapping[str, str]) -> list[str]:
    keys = ",".join(f"{name}:{_base64(key)}" for name, key in MASTER_KEYS.items())
    return [f"{name}={value}" for name, value in {"test.master.keys": keys, **properties}.items()]


def _base64(value: bytes) -> str:
    return base64.b64encode(value).decode()
