"""Is there a Java that Spark 4 can use? Spark needs version 17 or newer, from JAVA_HOME or from the PATH.

Needs only the standard library, so that it also runs before anything is installed: `python tests/support/java_version.py` exits with 1 and
one sentence where Java is missing or too old.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

REQUIRED: Final = 17


def java_executable() -> str | None:
    """The `java` that Spark would start, or None."""
    home = os.environ.get("JAVA_HOME")
    return shutil.which(str(Path(home) / "bin" / "java") if home else "java")


def parse_version(banner: str) -> int | None:
    """The major version in what `java -version` prints: 17 for "17.0.15", 8 for the old style "1.8.0_392"."""
    match = re.search(r'version "(?:1\.)?(\d+)', banner)
    return int(match.group(1)) if match else None


def java_problem() -> str | None:
    """None where Java is new enough, else a sentence that says what is missing."""
    executable = java_executable()
    if executable is None:
        return f"Spark needs Java {REQUIRED} or newer, and there is no java in JAVA_HOME or on the PATH."
    banner = subprocess.run([executable, "-version"], capture_output=True, text=True, check=False).stderr
    version = parse_version(banner)
    if version is None or version < REQUIRED:
        return f"Spark needs Java {REQUIRED} or newer, and {executable} is {version or 'of an unknown version'}."
    return None


def java_home(required: int) -> Path | None:
    """Where a JDK of this version or newer is.

    JAVA_25_HOME, JAVA_HOME_25_X64 (of setup-java) or JAVA_HOME says so, or it is in the folder in which Debian installs them.
    """
    named = [os.environ[name] for name in ("JAVA_25_HOME", "JAVA_HOME_25_X64", "JAVA_HOME") if name in os.environ]
    installed = sorted(Path("/usr/lib/jvm").glob("*"))
    return next((home for home in [*map(Path, named), *installed] if _is_jdk(home, required)), None)


def _is_jdk(home: Path, required: int) -> bool:
    # The compiler is needed as well: servers are started from their source.
    if not (home / "bin" / "javac").is_file():
        return False
    banner = subprocess.run([home / "bin" / "java", "-version"], capture_output=True, text=True, check=False).stderr
    return (parse_version(banner) or 0) >= required


if __name__ == "__main__":
    sys.exit(java_problem())
