"""Jars from Maven Central, fetched the first time by the Ivy that pyspark carries, and kept in the user's cache folder."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from tests.support.java_version import java_executable
from tests.support.kept_folders import kept_folder


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

    return kept_folder(name, fetching)
