"""The table of docs/column-keys.md says what a run of every operation by every principal comes to."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.column_access import PART, rendered

pytestmark = pytest.mark.slow


def test_the_documented_access_is_what_each_principal_gets(tmp_path: Path) -> None:
    assert PART.read() == rendered(tmp_path), "python -m tests.support.column_access writes it again"
