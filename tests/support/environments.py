"""Virtual environments of their own, which find the packages of this one without an installation."""

from __future__ import annotations

import subprocess
import sysconfig
import venv
from pathlib import Path
from typing import Final

from tests.support.command import ROOT

DEPENDENCIES: Final = Path(sysconfig.get_path("purelib"))
OWN: Final = (ROOT, ROOT / "catalog")
_PACKAGES: Final = "_packages.pth"


class Environment:
    """A virtual environment. Its packages are those of folders, which a file among them names."""

    def __init__(self, folder: Path, *packages: Path) -> None:
        venv.EnvBuilder(symlinks=True).create(folder)
        self.python = folder / "bin" / "python"
        (self.site_packages,) = folder.glob("lib/python*/site-packages")
        self.find(*packages)

    def find(self, *packages: Path) -> None:
        """Find the packages of these folders, and no others."""
        (self.site_packages / _PACKAGES).write_text("".join(f"{folder}\n" for folder in packages))

    def run(self, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
        """Run its Python, without the variables of this process."""
        command = [str(self.python), *arguments]
        given = {"PATH": "/usr/bin:/bin", **variables}
        return subprocess.run(command, env=given, capture_output=True, text=True, check=False, timeout=120, stdin=subprocess.DEVNULL)
