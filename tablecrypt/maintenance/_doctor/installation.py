"""What a check-up says of this installation: versions of packages, and Java. No service is asked."""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path
from typing import Final

from tablecrypt.maintenance._doctor.checks import Check, CheckState, tried

_VERSIONS: Final = "versions"
_SHOWN: Final = ("pyiceberg", "pyarrow", "cryptography", "pyspark")
_OPTIONAL: Final = frozenset({"pyspark"})
_BOUND: Final = re.compile(r"(>=|<)\s*([0-9.]+)")
_JAVA_SECONDS: Final = 20


def version_checks() -> Iterator[Check]:
    """Look up this installation. No service is asked."""
    yield tried(
        _VERSIONS, "tablecrypt", lambda: f"{version('tablecrypt')} on Python {platform.python_version()}", "install it: pip install …"
    )
    required = _required()
    for package in _SHOWN:
        yield _package(package, required.get(package, ""))
    yield _java()


def fits(installed: str, bounds: str) -> bool:
    """Whether a version lies in bounds such as `>=0.12,<0.13`."""
    return all(
        (_numbers(installed) >= _numbers(bound)) if comparison == ">=" else (_numbers(installed) < _numbers(bound))
        for comparison, bound in _BOUND.findall(bounds)
    )


def _package(package: str, bounds: str) -> Check:
    try:
        installed = version(package)
    except PackageNotFoundError:
        if package in _OPTIONAL:
            return Check(_VERSIONS, package, CheckState.NOTED, "not installed: only Spark needs it")
        return Check(_VERSIONS, package, CheckState.FAILS, "not installed", f'pip install "{package}{bounds}"')

    if not fits(installed, bounds):
        return Check(
            _VERSIONS, package, CheckState.FAILS, f"{installed}, but tablecrypt needs {bounds}", f'pip install "{package}{bounds}"'
        )

    return Check(_VERSIONS, package, CheckState.WORKS, installed)


def _required() -> dict[str, str]:
    """What tablecrypt asks of other packages, by their names."""
    try:
        stated = requires("tablecrypt") or []
    except PackageNotFoundError:
        # A checkout that is not installed has no metadata to compare with.
        return {}

    found = (re.match(r"([\w.-]+)(?:\[[^]]*\])?([^;]*)", each) for each in stated)
    return {each[1]: each[2].strip() for each in found if each is not None and each[2].strip()}


def _java() -> Check:
    # JAVA_HOME first, as Spark does.
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    if java is None:
        return Check(_VERSIONS, "java", CheckState.NOTED, "not there: only Spark needs it")

    def attempt() -> str:
        # Bounded: a broken java may hang, and the check-up goes on.
        done = subprocess.run([java, "-version"], capture_output=True, text=True, check=True, timeout=_JAVA_SECONDS)
        # Java prints its version to stderr.
        return (done.stderr or done.stdout).splitlines()[0]

    return tried(_VERSIONS, "java", attempt, "correct JAVA_HOME, or remove the broken java from the PATH: Spark uses it")


def _numbers(text: str) -> tuple[int, ...]:
    """The leading numbers of a version, for comparing."""
    # A local version, as in 2.4.0+cpu, is no part of the comparison.
    numbers = [int(each) for each in re.findall(r"[0-9]+", text.partition("+")[0])[:3]]
    return tuple(numbers + [0] * (3 - len(numbers)))
