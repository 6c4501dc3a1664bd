"""erase through a REST server and through Glue, restricted readers, and killed where it blanks rows beside a hidden column."""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

from tablecrypt.errors import TablecryptError
from tablecrypt.maintenance import erase
from tests.maintenance.test_erase import FILTER, PERSON, check_nothing_is_left, people, rows
from tests.support.aws import AwsServer
from tests.support.glue import encrypted_glue_catalog
from tests.support.kill_points import MORTAL_IO, Killed, dying_at, mortal_databases
from tests.support.protected_tables import Clients, clients, protected_table
from tests.support.restricting_server import RestrictingServer
from tests.support.tables import data_files, encrypted_sql_catalog, new_table

pytestmark = pytest.mark.slow

EVERY: Final = 9
"""Which part of the steps a run that blanks rows is killed at."""


class TestOfARestServer:
    @pytest.fixture
    def behind(self, tmp_path: Path, aws: AwsServer) -> Catalog:
        return encrypted_sql_catalog(tmp_path, aws)

    def test_a_person_is_erased(self, behind: Catalog, aws: AwsServer) -> None:
        people(behind, {"write.delete.mode": "merge-on-read"})
        with RestrictingServer(behind) as server:
            table = server.client(**aws.kms_properties).load_table("db.people")
            erased = erase(table, FILTER, delete_below=[table.location()])
            assert erased.is_complete, erased
            assert table.refresh().scan().count() == 59
            check_nothing_is_left(table)
            assert erase(table, FILTER, delete_below=[table.location()]).found_nothing

    def test_who_is_restricted_erases_nothing(self, behind: Catalog, aws: AwsServer) -> None:
        before = people(behind).metadata_location
        with RestrictingServer(behind) as server:
            server.read_restrictions = {"required-row-filter": {"type": "eq", "left": {"type": "reference", "id": 1}, "right": 3}}
            table = server.client(**aws.kms_properties).load_table("db.people")
            with pytest.raises(TablecryptError, match="erase"):
                erase(table, FILTER, delete_below=[table.location()])
        assert behind.load_table("db.people").metadata_location == before

    def test_a_server_that_forgets_the_erasure_is_no_proof(self, behind: Catalog, aws: AwsServer) -> None:
        """It takes the commits, and shows the table of before to whoever loads it."""
        people(behind)

        class Forgetful(RestrictingServer):
            old: dict[str, Any] | None = None

            def answer(self, method: str, path: str, body: bytes) -> tuple[int, dict[str, Any]]:
                status, answer = super().answer(method, path, body)
                if method != "GET" or not path.endswith("/people"):
                    return status, answer
                self.old = self.old or answer
                return status, self.old

        with Forgetful(behind) as server:
            table = server.client(**aws.kms_properties).load_table("db.people")
            try:
                complete = erase(table, FILTER, delete_below=[table.location()]).is_complete
            except Exception:  # noqa: BLE001  any refusal will do: the one thing it must not say is that it is done
                complete = False
        assert not complete
        assert erase(behind.load_table("db.people"), FILTER).is_complete
        check_nothing_is_left(behind.load_table("db.people"))


def test_a_person_is_erased_on_glue(aws: AwsServer) -> None:
    bucket, database = aws.bucket(f"glue-{uuid.uuid4().hex[:12]}"), f"db{uuid.uuid4().hex[:8]}"
    catalog = encrypted_glue_catalog(aws, bucket)
    catalog.create_namespace(database)
    table = new_table(catalog, f"{database}.t", rows(0, 1).schema, appends=[rows(0, 20), rows(30, 40)])
    before = {each["Key"] for each in aws.s3.list_objects_v2(Bucket=bucket)["Contents"]}
    erased = erase(table, FILTER)
    assert erased.is_complete, erased
    after = {each["Key"] for each in aws.s3.list_objects_v2(Bucket=bucket)["Contents"]}
    assert {f"s3://{bucket}/{key}" for key in before - after} <= set(erased.deleted)
    ids = sorted(catalog.load_table(f"{database}.t").scan().to_arrow()["customer_id"].to_pylist())
    assert ids == [each for each in [*range(20), *range(30, 40)] if each != PERSON]
    assert erase(table, FILTER).found_nothing


class TestKilledWhereItBlanksRows:
    """By an analyst, who cannot read ssn; then somebody who can ends it."""

    @pytest.fixture
    def both(self, tmp_path: Path) -> Iterator[Clients]:
        (tmp_path / "live").mkdir()
        with mortal_databases():
            yield clients(tmp_path / "live", {"py-io-impl": MORTAL_IO})

    def ssns(self, table: Table) -> dict[int, str]:
        found = table.refresh().scan(selected_fields=("id", "ssn")).to_arrow().to_pylist()
        return {row["id"]: row["ssn"] for row in found}

    def test_no_other_row_is_lost_and_the_next_runs_finish(self, both: Clients, tmp_path: Path) -> None:
        table = protected_table(both.payroll)
        table.append(pa.table({"id": [1, 2, 3], "ssn": ["SSN-1", "SSN-2", "SSN-3"], "note": ["a", "b", "secret of 3"]}))
        table.append(pa.table({"id": [4], "ssn": ["SSN-4"], "note": ["d"]}))
        shutil.copytree(tmp_path / "live", tmp_path / "saved")
        place = [table.location()]
        others = {1: "SSN-1", 2: "SSN-2", 4: "SSN-4"}
        with dying_at(None) as life:
            erase(both.analyst.load_table("db.people"), "id = 3", delete_below=place)
        killed = 0
        for last in range(1, len(life.steps), EVERY):
            shutil.rmtree(tmp_path / "live")
            shutil.copytree(tmp_path / "saved", tmp_path / "live")
            both.payroll.engine.dispose()
            both.analyst.engine.dispose()
            try:
                with dying_at(last):
                    erase(both.analyst.load_table("db.people"), "id = 3", delete_below=place)
            except Killed:
                killed += 1
            seen = self.ssns(both.payroll.load_table("db.people"))
            assert {each: seen[each] for each in others} == others, life.steps[last - 1]
            assert seen.keys() - others.keys() <= {3}, life.steps[last - 1]

            again = erase(both.analyst.load_table("db.people"), "id = 3", delete_below=place)
            assert not (again.remaining or again.not_searched or again.refused or again.failed), (life.steps[last - 1], again)
            assert again.hidden_columns, life.steps[last - 1]
            ended = erase(both.payroll.load_table("db.people"), "id = 3", delete_below=place)

            assert ended.is_complete, (life.steps[last - 1], ended)
            fresh = both.payroll.load_table("db.people")
            assert self.ssns(fresh) == others
            live = data_files(fresh)
            assert sorted(file.record_count for file in live) == [1, 2], life.steps[last - 1]
            check_nothing_is_left(fresh, "secret of 3")
        assert killed > 5
