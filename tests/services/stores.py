"""An object store that tests look into by its own client, and that catalogs reach through PyIceberg's FileIOs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

FILE_IOS: Final = {"arrow": "pyiceberg.io.pyarrow.PyArrowFileIO", "fsspec": "pyiceberg.io.fsspec.FsspecFileIO"}


@dataclass(frozen=True)
class ObjectStore:
    """A bucket or container of a running service.

    Attributes:
        address: of the bucket, as in abfs://bucket.
        file_io: one of FILE_IOS.
        properties: what that FileIO needs to reach it.
        files: fsspec's client of the store, which the product has no part in; it remembers no listing.
    """

    address: str
    file_io: str
    properties: Mapping[str, str]
    files: Any

    @property
    def catalog_properties(self) -> dict[str, str]:
        """What a catalog needs whose tables are in the store."""
        return {"warehouse": f"{self.address}/warehouse", "py-io-impl": FILE_IOS[self.file_io], **self.properties}

    def contents(self) -> dict[str, bytes]:
        """Every object, by its location, but for the empty ones that stand for folders: Arrow's clients leave them."""
        scheme, _, bucket = self.address.partition("://")
        paths = sorted(path for path in self.files.find(bucket) if not path.endswith("/"))
        return {f"{scheme}://{path}": self.files.cat_file(path) for path in paths}

    def replace(self, location: str, content: bytes) -> None:
        """Write an object over, as whoever writes the store may."""
        self.files.pipe_file(location.partition("://")[2], content)
