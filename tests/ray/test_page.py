"""The page on Ray works as a reader copies it."""

from __future__ import annotations

import os
from pathlib import Path

from tests.support.pages import DOCS, run_page


def test_the_page_runs_and_prints_what_it_shows(tmp_path: Path) -> None:
    environment = {"HOME": str(tmp_path), "PYICEBERG_HOME": str(tmp_path), "RAY_AUTH_MODE": os.environ["RAY_AUTH_MODE"]}

    run_page((DOCS / "ray.md").read_text(encoding="utf-8"), tmp_path, environment)
