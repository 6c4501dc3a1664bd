"""What pyproject.toml cannot say of the package by itself.

The long description is README.md, in which nothing leads to files that only a clone has. The links are those of pyproject.toml below the
one setting `repository` there.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

_PICTURE = re.compile(r"^!\[[^\]]*\]\((?!https?://)[^)]*\)\n\n", re.MULTILINE)
_LINK = re.compile(r"\[([^\]]*)\]\((?!https?://)[^)]*\)")


class PackageHook(MetadataHookInterface):
    """Sets `readme` and `urls`."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Take README.md without its pictures, and with the text of its links alone; put the links below the repository.

        Raises:
            ValueError: the repository is no https:// address.
        """
        text = (Path(self.root) / "README.md").read_text(encoding="utf-8")
        metadata["readme"] = {"content-type": "text/markdown", "text": _LINK.sub(r"\1", _PICTURE.sub("", text))}
        metadata["urls"] = self._urls(self.config["repository"].rstrip("/"))

    def _urls(self, repository: str) -> dict[str, str]:
        if not repository:
            return {}
        if not repository.startswith("https://"):
            raise ValueError(f"pyproject.toml, tool.hatch.metadata.hooks.custom: repository = {repository!r} is no https:// address")
        return {name: f"{repository}/{path}".rstrip("/") for name, path in self.config["urls"].items()}
