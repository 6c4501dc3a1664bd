"""A key service and a store that give one client the rights which a declaration names, and note what it uses.

    grant(folder, {"wrap orders", "read metadata"})                 what is not named is refused, as a service's policy refuses it
    with noted() as used: maintenance.rewrap(table)                 used holds these texts, of whatever was done

Keys are in the memory of this process, files below one folder: `metadata` are those of the folders of that name, `data` all others.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from pyarrow import NativeFile
from pyarrow.fs import FileInfo, FileSelector, FileSystem, FileSystemHandler, PyFileSystem
from pyiceberg.io.pyarrow import PyArrowFileIO

from tablecrypt.errors import KmsAccessDeniedError
from tablecrypt.kms.memory import MemoryKeyManagementClient

KMS: Final = f"{__name__}.GrantedKeys"
IO: Final = f"{__name__}.GrantedFiles"
RIGHTS: Final = "test.rights"
"""The property of a catalog that names whose rights its client has; without it, all."""
_granted: Final[dict[str, frozenset[str]]] = {}
_listening: Final[list[set[str]]] = []


def grant(name: str, rights: Collection[str]) -> None:
    """Give the clients of a name these rights and no others, from now on."""
    _granted[name] = frozenset(rights)


@contextmanager
def noted() -> Iterator[set[str]]:
    """Note the rights that are used in this block."""
    used: set[str] = set()
    _listening.append(used)
    try:
        yield used
    finally:
        _listening.remove(used)


def properties(keyring: Path, name: str | None = None) -> dict[str, str]:
    """The properties of a catalog whose client has the rights of a name."""
    of_client = {} if name is None else {RIGHTS: name}
    return {"encryption.kms-impl": KMS, "kms.memory.name": str(keyring), "encryption.kms.cache-ttl-ms": "0", "py-io-impl": IO, **of_client}


def _use(client: str | None, right: str, refused: type[Exception]) -> None:
    for used in _listening:
        used.add(right)
    if client is not None and right not in _granted[client]:
        raise refused(f"the policy does not allow to {right}")


class GrantedKeys(MemoryKeyManagementClient):
    """Wraps and unwraps as its client's rights allow."""

    def __init__(self, properties: Mapping[str, str]) -> None:
        super().__init__(properties)
        self._client = properties.get(RIGHTS)

    def wrap_key(self, key: bytes, wrapping_key_id: str) -> bytes:
        _use(self._client, f"wrap {wrapping_key_id}", KmsAccessDeniedError)
        return super().wrap_key(key, wrapping_key_id)

    def unwrap_key(self, wrapped_key: bytes, wrapping_key_id: str) -> bytes:
        _use(self._client, f"unwrap {wrapping_key_id}", KmsAccessDeniedError)
        return super().unwrap_key(wrapped_key, wrapping_key_id)


class GrantedFiles(PyArrowFileIO):
    """Files of this machine, as its client's rights allow."""

    def _initialize_fs(self, scheme: str, netloc: str | None = None) -> FileSystem:
        return PyFileSystem(_Handler(super()._initialize_fs(scheme, netloc), self.properties.get(RIGHTS)))


class _Handler(FileSystemHandler):  # type: ignore[misc]
    def __init__(self, files: FileSystem, client: str | None) -> None:
        self._files = files
        self._client = client

    def _use(self, right: str, path: str) -> None:
        _use(self._client, f"{right} {'metadata' if '/metadata' in path else 'data'}", PermissionError)

    def get_type_name(self) -> str:
        return "granted"

    def normalize_path(self, path: str) -> str:
        return str(self._files.normalize_path(path))

    def get_file_info(self, paths: list[str]) -> list[FileInfo]:
        return list(self._files.get_file_info(paths))

    def get_file_info_selector(self, selector: FileSelector) -> list[FileInfo]:
        self._use("list", selector.base_dir)
        return list(self._files.get_file_info(selector))

    def open_input_file(self, path: str) -> NativeFile:
        self._use("read", path)
        return self._files.open_input_file(path)

    def open_input_stream(self, path: str) -> NativeFile:
        self._use("read", path)
        return self._files.open_input_stream(path)

    def open_output_stream(self, path: str, metadata: Any) -> NativeFile:
        self._use("write", path)
        return self._files.open_output_stream(path, metadata=metadata)

    def delete_file(self, path: str) -> None:
        self._use("delete", path)
        self._files.delete_file(path)

    def open_append_stream(self, path: str, metadata: Any) -> NativeFile:
        raise NotImplementedError

    def copy_file(self, src: str, dest: str) -> None:
        raise NotImplementedError

    def create_dir(self, path: str, recursive: bool) -> None:
        raise NotImplementedError

    def delete_dir(self, path: str) -> None:
        raise NotImplementedError

    def delete_dir_contents(self, path: str, missing_dir_ok: bool = False) -> None:
        raise NotImplementedError

    def delete_root_dir_contents(self) -> None:
        raise NotImplementedError

    def move(self, src: str, dest: str) -> None:
        raise NotImplementedError
