"""Programs of services, from the registries of npm, Go and Cargo: fetched the first time, and kept in the user's cache folder."""

from __future__ import annotations

import hashlib
import shutil
from pathlib import Path

from tests.support.kept_folders import kept_folder, shared_cache


def npm_package(name: str, version: str) -> Path:
    """The folder node_modules with a package and all that it needs. No script of a package runs."""

    def fetching(folder: Path) -> list[str]:
        return ["npm", "install", "--silent", "--no-audit", "--no-fund", "--ignore-scripts", "--prefix", str(folder), f"{name}@{version}"]

    return kept_folder(f"{name}-{version}", fetching) / "node_modules"


def go_program(package: str, version: str) -> Path:
    """A program that Go builds. Its checksum database knows the version."""
    name = package.rpartition("/")[2]
    # Without GOFLAGS of this machine, which might build something else.
    fetching = lambda folder: ["env", "GOFLAGS=", f"GOBIN={folder}", "go", "install", "-trimpath", f"{package}@{version}"]  # noqa: E731
    return kept_folder(f"{name}-{version}", fetching) / name


def cargo_program(sources: Path) -> Path:
    """The program of a folder with Cargo.toml, Cargo.lock and src/main.rs, whose name is the folder's."""
    content = b"".join((sources / name).read_bytes() for name in ("Cargo.toml", "Cargo.lock", "src/main.rs"))
    # Not below the sources; and kept, since a change of them then leaves what they depend on as it is.
    target = ["--target-dir", str(shared_cache("cargo-target"))]
    fetching = lambda folder: ["cargo", "install", "--debug", "--locked", "--path", str(sources), "--root", str(folder), *target]  # noqa: E731
    return kept_folder(f"{sources.name}-{hashlib.sha256(content).hexdigest()[:16]}", fetching) / "bin" / sources.name


def problem_without(service: str, *tools: str) -> str | None:
    """None where all tools are on the PATH, else a sentence that says which are missing."""
    missing = [tool for tool in tools if shutil.which(tool) is None]
    return f"{service} needs {' and '.join(missing)} on the PATH." if missing else None
