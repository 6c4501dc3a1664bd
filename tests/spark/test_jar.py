"""Which jar a process takes: the shipped one, the kept one, or one that it compiles."""

from __future__ import annotations

import contextlib
import io
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import pytest

from tablecrypt.spark.shared.jar import compiling_jvm, jar_of
from tablecrypt.spark.shared.sources import JavaSources
from tests.support.distributions import build, copy_sources
from tests.support.spark_connect import spark_environment

pytestmark = pytest.mark.java
COMPILED: Final = "compiled tablecrypt-spark"
SOURCES: Final = JavaSources("small", {"One": "public class One {}", "Two": "class Two extends One {}"}, {"java.lang.Runnable": "One"})
_WRITE: Final = """
import logging, sys
from pathlib import Path
from tablecrypt.spark.shared.jar import write_spark_jar
logging.basicConfig(level=logging.INFO)
write_spark_jar(Path(sys.argv[1]))
"""


@dataclass
class Compiler:
    """A JVM that compiles, and how often it was asked."""

    gateway: Any
    uses: int = 0

    @contextlib.contextmanager
    def __call__(self) -> Iterator[Any]:
        self.uses += 1
        yield self.gateway


@pytest.fixture(scope="module")
def gateway(java_runtime: None) -> Iterator[Any]:
    with compiling_jvm() as running:
        yield running


@pytest.fixture
def compiler(gateway: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Compiler:
    """With an empty cache folder."""
    monkeypatch.setenv("TABLECRYPT_CACHE", str(tmp_path / "cache"))
    return Compiler(gateway)


def test_sources_are_compiled_once_for_each_release_of_spark(compiler: Compiler) -> None:
    first = jar_of(SOURCES, "4.1.4", compiler)

    assert zipfile.ZipFile(io.BytesIO(first)).namelist() == ["META-INF/services/java.lang.Runnable", "One.class", "Two.class"]
    assert jar_of(SOURCES, "4.1.4", compiler) == first
    assert compiler.uses == 1
    assert jar_of(SOURCES, "4.2.0", compiler) == first
    assert compiler.uses == 2


@pytest.mark.parametrize("part", ["a text", "a name", "a service"])
def test_changed_sources_are_compiled(compiler: Compiler, part: str) -> None:
    jar_of(SOURCES, "4.1.4", compiler)
    changed = {
        "a text": replace(SOURCES, texts={**SOURCES.texts, "Two": "class Two extends One { int x; }"}),
        "a name": replace(SOURCES, texts={"One": SOURCES.texts["One"], "Three": SOURCES.texts["Two"]}),
        "a service": replace(SOURCES, services={"java.lang.Runnable": "Two"}),
    }[part]

    jar_of(changed, "4.1.4", compiler)
    assert compiler.uses == 2
    assert changed.digest() != SOURCES.digest()


def test_a_damaged_jar_is_compiled_again(compiler: Compiler, tmp_path: Path) -> None:
    whole = jar_of(SOURCES, "4.1.4", compiler)
    [path] = (tmp_path / "cache").iterdir()
    path.write_bytes(whole[:-1])

    assert jar_of(SOURCES, "4.1.4", compiler) == whole
    assert compiler.uses == 2
    assert path.read_bytes() == whole


def test_without_a_folder_to_keep_it_each_process_compiles(compiler: Compiler, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("TABLECRYPT_CACHE", str(tmp_path / "file" / "cache"))

    assert jar_of(SOURCES, "4.1.4", compiler) == jar_of(SOURCES, "4.1.4", compiler)
    assert compiler.uses == 2


def _writer(target: Path, cache: Path, packages: Path | None = None) -> subprocess.Popen[str]:
    """A process that writes the jar, and logs where it has it from."""
    environment = spark_environment() | {"TABLECRYPT_CACHE": str(cache), "PYTHONSAFEPATH": "1"}
    if packages:
        environment["PYTHONPATH"] = str(packages)
    return subprocess.Popen([sys.executable, "-c", _WRITE, str(target)], env=environment, stderr=subprocess.PIPE, text=True)


def _log(process: subprocess.Popen[str]) -> str:
    log = process.communicate(timeout=300)[1]
    assert process.returncode == 0, log
    return log


@pytest.mark.slow
def test_two_processes_compile_the_same_bytes_at_once_and_a_third_does_not_compile(java_runtime: None, tmp_path: Path) -> None:
    cache, targets = tmp_path / "cache", [tmp_path / f"{number}.jar" for number in range(3)]
    at_once = [_writer(target, cache) for target in targets[:2]]
    assert all(COMPILED in _log(process) for process in at_once)
    later = _log(_writer(targets[2], cache))

    assert COMPILED not in later
    assert len({target.read_bytes() for target in targets}) == 1
    assert len(list(cache.iterdir())) == 1


@pytest.mark.slow
def test_the_wheel_brings_the_jar_of_its_own_sources(java_runtime: None, tmp_path: Path) -> None:
    """It is the same bytes in each wheel. Where the sources were changed after the installation it does not count."""
    copy_sources(tmp_path / "one")
    wheel = build(tmp_path / "one", "wheel", with_java=True)
    copy_sources(tmp_path / "another", modified=1_700_000_000)
    assert wheel.read_bytes() == build(tmp_path / "another", "wheel", umask=0o077, with_java=True).read_bytes()
    packages = tmp_path / "packages"
    zipfile.ZipFile(wheel).extractall(packages)
    target, no_cache = tmp_path / "a.jar", Path("relative")

    assert COMPILED not in _log(_writer(target, no_cache, packages))
    assert target.read_bytes() in [path.read_bytes() for path in (packages / "tablecrypt/spark/shared/jars").iterdir()]

    source = packages / "tablecrypt/spark/sql/java/SqlName.java"
    source.write_text(source.read_text(encoding="utf-8") + "// changed\n", encoding="utf-8")
    changed = _writer(target, no_cache, packages)
    assert "TABLECRYPT_CACHE is 'relative'" in changed.communicate(timeout=300)[1]
    assert changed.returncode


@pytest.mark.slow
def test_a_wheel_can_be_built_without_java(tmp_path: Path) -> None:
    folder = tmp_path / "path"
    folder.mkdir()
    for program in ("bash", "sh", "env"):
        (folder / program).symlink_to(shutil.which(program) or program)
    environment = {name: value for name, value in os.environ.items() if name != "JAVA_HOME"} | {"PATH": str(folder)}
    copy_sources(tmp_path / "sources")
    wheel = build(tmp_path / "sources", "wheel", with_java=True, environment=environment)

    names = zipfile.ZipFile(wheel).namelist()
    assert "tablecrypt/spark/sql/java/SqlName.java" in names
    assert not [name for name in names if name.endswith(".jar")]
