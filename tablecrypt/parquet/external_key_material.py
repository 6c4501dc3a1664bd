"""Key material in a file beside the Parquet file, so that master keys can be rotated without touching the data.

    folder/orders.parquet                                 key metadata: {"internalStorage": false, "keyReference": "columnKey0"}
    folder/_KEY_MATERIAL_FOR_orders.parquet.json          {"footerKey": "<PKMT1 JSON>", "columnKey0": "<PKMT1 JSON>", …}

The name begins with _ so that readers of the folder pass it over. Raises KeyNotFoundError for a file or an entry that is not there,
FormatError for one that is not readable.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from pyarrow import fs

from tablecrypt.errors import ConfigurationError, FormatError, KeyNotFoundError
from tablecrypt.parquet.key_material import KeyMaterial

_PREFIX: Final = "_KEY_MATERIAL_FOR_"
_SUFFIX: Final = ".json"


@dataclass(frozen=True)
class ExternalKeyMaterial:
    """The key material of one Parquet file, in a file beside it.

    Args:
        location: path or URI of the Parquet file.
    """

    location: str

    @property
    def path(self) -> str:
        """Where the key material is."""
        folder, separator, name = self.location.rpartition("/")
        return f"{folder}{separator}{_PREFIX}{name}{_SUFFIX}"

    def save(self, materials: Mapping[str, KeyMaterial]) -> None:
        """Write the file: the name of each key, and how it is wrapped. One that is there is replaced."""
        content = json.dumps({name: material.encode(internal=False) for name, material in materials.items()})
        file_system, path = _file_system(self.path)
        with file_system.open_output_stream(path) as sink:
            sink.write(content.encode())

    def load(self) -> dict[str, KeyMaterial]:
        """Read the file."""
        file_system, path = _file_system(self.path)
        try:
            with file_system.open_input_stream(path) as source:
                content = source.readall()
        except FileNotFoundError as error:
            raise KeyNotFoundError(f"{self.location}: its keys are in {self.path}, which is not there") from error
        try:
            entries = json.loads(content)
        except ValueError as error:
            raise FormatError(f"{self.path}: not JSON") from error
        if not isinstance(entries, dict) or not all(isinstance(entry, str) for entry in entries.values()):
            raise FormatError(f"{self.path}: not a file of key material")
        return {name: KeyMaterial.decode(entry, f"{self.path}: {name}") for name, entry in entries.items()}


def files_with_external_keys(folder: str) -> list[ExternalKeyMaterial]:
    """Return every Parquet file in a folder that has its key material beside it."""
    file_system, path = _file_system(folder)
    found = file_system.get_file_info(fs.FileSelector(path))
    names = [info.base_name for info in found if info.base_name.startswith(_PREFIX) and info.base_name.endswith(_SUFFIX)]
    return [ExternalKeyMaterial(f"{folder.rstrip('/')}/{name[len(_PREFIX) : -len(_SUFFIX)]}") for name in sorted(names)]


def _file_system(location: str) -> tuple[fs.FileSystem, str]:
    if "://" not in location:
        return fs.LocalFileSystem(), location
    try:
        file_system, path = fs.FileSystem.from_uri(location)
    except (ValueError, OSError) as error:
        raise ConfigurationError(f"{location}: not a location where key material can be kept: {error}") from error
    return file_system, path
