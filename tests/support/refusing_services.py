"""A key service and a store that refuse what `refused` names, and count what they are asked."""

from __future__ import annotations

from collections import Counter

from pyiceberg.io import InputFile, OutputFile
from pyiceberg.io.pyarrow import PyArrowFile, PyArrowFileIO

from tablecrypt.errors import KmsAccessDeniedError
from tablecrypt.kms.local_file import LocalFileKeyManagementClient

KMS: str = f"{__name__}.RefusingKms"
IO: str = f"{__name__}.RefusingIO"
refused: set[str] = set()
asked: Counter[str] = Counter()


def _ask(what: str, error: type[Exception]) -> None:
    asked[what] += 1
    if what in refused:
        raise error(f"this client may not {what}")


class RefusingKms(LocalFileKeyManagementClient):
    """The keys of a key file."""

    def wrap_key(self, key: bytes, wrapping_key_id: str) -> bytes:
        _ask("wrap", KmsAccessDeniedError)
        return super().wrap_key(key, wrapping_key_id)

    def unwrap_key(self, wrapped_key: bytes, wrapping_key_id: str) -> bytes:
        _ask("unwrap", KmsAccessDeniedError)
        return super().unwrap_key(wrapped_key, wrapping_key_id)


class RefusingIO(PyArrowFileIO):
    """Local files."""

    def new_input(self, location: str) -> PyArrowFile:
        _ask("read", PermissionError)
        return super().new_input(location)

    def new_output(self, location: str) -> PyArrowFile:
        _ask("write", PermissionError)
        return super().new_output(location)

    def delete(self, location: str | InputFile | OutputFile) -> None:
        _ask("delete", PermissionError)
        super().delete(location)
