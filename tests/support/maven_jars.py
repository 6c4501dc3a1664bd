"""Jars from Maven Central, fetched the first time by the Ivy that pyspark carries, and kept in the user's cache folder."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from tests.support.java_version import java_executable

_CACHE: Final = Path.home() / ".cache" / "tablecrypt-tests"
_ATTEMPTS: Final = 3
"""A connection that breaks is no failed test. What has come stays, in Ivy's cache."""


def pyspark_jars() -> Path:
    """The folder of the jars that pyspark brings along."""
    import pyspark

    return Path(pyspark.__file__).parent / "jars"


def hadoop_version() -> str:
    """The release of Hadoop that pyspark brings along."""
    jar = next(pyspark_jars().glob("hadoop-client-api-*.jar"))
    return jar.stem.removeprefix("hadoop-client-api-")


def fetched_jars(ivy_file: Path, name: str, variables: Mapping[str, str] | None = None) -> Path:
    """Return the cache's folder `name` with all jars that an Ivy file names, in which `${…}` stands for variables."""

    def fetching(jars: Path) -> list[str]:
        ivy = next(pyspark_jars().glob("ivy-[0-9]*.jar"))
        pattern = f"{jars}/[artifact](-[classifier])-[revision].[ext]"
        java = [java_executable() or "java", *(f"-D{variable}={value}" for variable, value in (variables or {}).items())]
        return [*java, "-jar", str(ivy), "-warn", "-ivy", str(ivy_file), "-cache", f"{jars.parent}/cache", "-retrieve", pattern]

    return kept_jars(name, fetching)


def kept_jars(name: str, fetching: Callable[[Path], list[str]]) -> Path:
    """Return the cache's folder `name`. The first time a command fetches what is in it, into a folder that it is given."""
    folder = _CACHE / name
    if not folder.is_dir():
        _fetch(folder, fetching)
    return folder


def _fetch(folder: Path, fetching: Callable[[Path], list[str]]) -> None:
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
        jars = Path(scratch) / "jars"
        for _ in range(_ATTEMPTS):
            run = subprocess.run(fetching(jars), capture_output=True, text=True, check=False)
            if run.returncode == 0:
                break
        else:
            raise RuntimeError(f"the jars of {folder.name} could not be fetched:\n{(run.stdout + run.stderr)[-4000:]}")
        try:
            jars.rename(folder)
        except OSError:
            # Another process was faster: its folder is complete, since it came here by a rename too.
            if not folder.is_dir():
                raise
