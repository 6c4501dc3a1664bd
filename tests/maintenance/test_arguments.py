"""Arguments that an operation cannot use are refused before any work, with an error that says what is allowed."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pyiceberg.expressions import EqualTo
from pyiceberg.table import Table

from tablecrypt import maintenance as m
from tablecrypt.errors import ConfigurationError
from tablecrypt.maintenance.expiry import expire_snapshots
from tests.support.aws import AwsServer
from tests.support.tables import encrypted_sql_catalog, files_below, folder_of, table_with_history


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory, aws: AwsServer) -> Table:
    made = table_with_history(encrypted_sql_catalog(tmp_path_factory.mktemp("arguments"), aws), "db.t")
    made.manage_snapshots().create_tag(made.snapshots()[0].snapshot_id, "first").commit()
    return made.refresh()


def files_of(table: Table) -> set[Path]:
    return files_below(folder_of(table))


@pytest.fixture(autouse=True)
def nothing_changes(table: Table) -> Any:
    before, location = files_of(table), table.metadata_location
    yield
    assert files_of(table) == before
    assert table.refresh().metadata_location == location


@pytest.mark.parametrize("operation", [m.reencrypt, m.compact])
@pytest.mark.parametrize(
    ("where", "said"),
    [
        ("", "cannot be parsed"),
        ("(((", "cannot be parsed"),
        ("id ==== 3", "cannot be parsed"),
        ("note like '%a'", "LIKE expressions only support"),
        ("nobody = 3", "it has no column"),
        ("id = 'north'", "Could not convert"),
        (EqualTo(term="nobody", value=3), "it has no column"),
        (3, "or an expression, and not an int"),
    ],
)
def test_a_filter_that_does_not_fit_the_table(table: Table, operation: Callable[..., Any], where: Any, said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        operation(table, where=where)


@pytest.mark.parametrize("moment", [dt.datetime(2024, 1, 1), dt.date(2024, 1, 1), dt.timedelta(days=730), "2024-01-01"])
def test_a_moment_that_is_none_or_has_no_time_zone(table: Table, moment: Any) -> None:
    for operation in (m.reencrypt, m.remove_orphan_files):
        with pytest.raises(ConfigurationError, match=r"older_than .* time zone"):
            operation(table, older_than=moment)
    with pytest.raises(ConfigurationError, match=r"now .* time zone"):
        m.audit(table, now=moment)


@pytest.mark.parametrize("operation", [m.reencrypt, m.compact])
@pytest.mark.parametrize(("branch", "said"), [("nobody", "has no branch 'nobody'"), ("first", "'first' is a tag")])
def test_a_branch_that_is_none(table: Table, operation: Callable[..., Any], branch: str, said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        operation(table, branch=branch)


@pytest.mark.parametrize("snapshots", [["first"], ["4358109269873137077"], [1.5], "first", 71])
def test_what_is_no_snapshot_id_is_not_taken_for_a_shredded_one(table: Table, snapshots: Any) -> None:
    with pytest.raises(ConfigurationError, match="snapshot id"):
        m.shred(table, snapshots)


WITH_WORKERS: dict[str, Callable[..., Any]] = {
    "compact": m.compact,
    "erase": lambda table, **given: m.erase(table, "id = 3", **given),
    "reencrypt": m.reencrypt,
    "relocate": lambda table, **given: m.relocate(table, f"{table.location()}-copy", "alias/orders", **given),
    "verify": lambda table, **given: m.verify(table, **{name: value for name, value in given.items() if name != "dry_run"}),
}


@pytest.mark.parametrize("workers", [-1, 0])
@pytest.mark.parametrize("operation", WITH_WORKERS.values(), ids=WITH_WORKERS)
def test_a_dry_run_with_fewer_workers_than_one(table: Table, operation: Callable[..., Any], workers: int) -> None:
    with pytest.raises(ConfigurationError, match="workers"):
        operation(table, workers=workers, dry_run=True)


@pytest.mark.parametrize("metadata", ["", " ", ["\t"]])
def test_a_blank_metadata_file_is_not_the_folder_that_the_process_runs_in(table: Table, metadata: Any) -> None:
    with pytest.raises(ConfigurationError, match="metadata is blank: give the location"):
        m.rescue(table, metadata=metadata)


def test_snapshot_ids_of_numpy_are_ids(table: Table) -> None:
    first: Any = np.int64(table.snapshots()[1].snapshot_id)

    assert m.shred(table, [first], dry_run=True).snapshots == (int(first),)


@pytest.mark.parametrize("dry_run", [False, True])
@pytest.mark.parametrize(
    ("place", "said"),
    [
        ("copies/t", "write a complete one"),
        ("t", "write a complete one"),
        ("filed/t", "write a complete one"),
        ("s3://bucket/t#1", "another"),
        ("nostore://bucket/t", "nostore"),
    ],
)
def test_a_place_in_no_store_and_one_that_is_not_whole(table: Table, place: str, said: str, dry_run: bool) -> None:
    with pytest.raises(ConfigurationError, match=said):
        m.relocate(table, place, dry_run=dry_run)


@pytest.mark.parametrize("name", ["copy", "nowhere.copy"])
def test_a_name_that_no_copy_can_get_is_refused_before_a_file_is_copied(table: Table, tmp_path: Path, name: str) -> None:
    with pytest.raises(ConfigurationError, match="copy"):
        m.relocate(table, f"file://{tmp_path}/copy", register_as=name)
    assert not (tmp_path / "copy").exists()


@pytest.mark.parametrize("snapshots", [["first"], [1.5], "first", 71, b"x", None])
def test_what_is_no_snapshot_id_does_not_expire(table: Table, snapshots: Any) -> None:
    with pytest.raises(ConfigurationError, match="snapshot id"):
        expire_snapshots(table, snapshots=snapshots)


def test_bytes_are_no_snapshot_ids(table: Table) -> None:
    with pytest.raises(ConfigurationError, match="snapshot id"):
        m.shred(table, b"x")


@pytest.mark.parametrize("folder", ["", " ", "\n", ["\t"], "\ud800"])
def test_a_folder_that_is_blank_or_no_text_is_none_of_the_tables(table: Table, folder: Any) -> None:
    operations: dict[str, Callable[[], object]] = {
        "erase": lambda: m.erase(table, "id = 1", delete_below=folder),
        "expire_snapshots": lambda: expire_snapshots(table, delete_below=folder),
        "remove_orphan_files": lambda: m.remove_orphan_files(table, delete_below=folder),
        "shred": lambda: m.shred(table, all_but_heads=True, delete_below=folder),
    }
    for operation in operations.values():
        with pytest.raises(ConfigurationError, match="delete_below"):
            operation()


@pytest.mark.parametrize("path", ["", " ", "\n", "\0", "\ud800", "/", "."])
def test_a_state_file_is_a_file_that_can_be(table: Table, path: str) -> None:
    with pytest.raises(ConfigurationError, match=r"resume_from|is a folder"):
        m.verify(table, resume_from=path)


def test_a_key_id_that_metadata_cannot_hold_is_refused_before_anything_is_copied(table: Table, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="key_id holds half of a surrogate pair"):
        m.relocate(table, str(tmp_path / "copy"), key_id="\ud800")
    assert not (tmp_path / "copy").exists()


def test_a_line_break_in_a_name_makes_no_second_line_of_an_error(table: Table, tmp_path: Path) -> None:
    operations: dict[str, Callable[[], object]] = {
        "compact": lambda: m.compact(table, sort_by="a\nb"),
        "remove_orphan_files": lambda: m.remove_orphan_files(table, folder="a\nb"),
        "share": lambda: m.share(table, "alias/partner", str(tmp_path / "share"), without_columns="a\nb"),
    }
    for name, operation in operations.items():
        with pytest.raises(ConfigurationError) as refused:
            operation()
        assert "\n" not in str(refused.value), name
