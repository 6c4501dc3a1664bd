"""What pyproject.toml cannot say of the package by itself.

The long description is README.md, in which nothing leads to files that only a clone has. The links are those of pyproject.toml below the
one setting `repository` there.

The wheel carries the Java classes as jars, compiled here by the PySpark of the environment that builds it. Where there is no PySpark or no
Java 17, it is built without them, and each user's first statement of Spark compiles them. HATCH_BUILD_NO_HOOKS=true leaves them out too.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
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


class JarHook(BuildHookInterface[Any]):
    """Puts the compiled jars into the wheel."""

    _FOLDER: Final = "tablecrypt/spark/shared/jars"
    _NO_JAVA: Final = 3

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile the jars of the sources that are built.

        Raises:
            RuntimeError: the sources do not compile.
        """
        if version == "editable":
            return
        if find_spec("pyspark") is None or find_spec("pyiceberg") is None:
            self.app.display_warning("The wheel has no compiled Java classes: they need PySpark, and the dependencies of tablecrypt.")
            return
        self._scratch = tempfile.TemporaryDirectory()
        command = [sys.executable, "-m", "tablecrypt.spark.shared.jar", self._scratch.name]
        environment = os.environ | {"PYTHONPATH": os.pathsep.join([self.root, str(Path(self.root) / "catalog")])}
        run = subprocess.run(command, cwd=self.root, env=environment, capture_output=True, text=True, check=False)
        if run.returncode == self._NO_JAVA:
            self.app.display_warning(f"The wheel has no compiled Java classes: {run.stderr.strip()}.")
        elif run.returncode:
            raise RuntimeError(f"the Java classes do not compile; HATCH_BUILD_NO_HOOKS=true builds without them:\n{run.stderr[-4000:]}")
        for jar in sorted(Path(self._scratch.name).iterdir()):
            jar.chmod(0o644)
            build_data["force_include"][str(jar)] = f"{self._FOLDER}/{jar.name}"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Remove what was compiled, which is in the wheel now."""
        if hasattr(self, "_scratch"):
            self._scratch.cleanup()
