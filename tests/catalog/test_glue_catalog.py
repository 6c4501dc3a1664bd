"""The Glue catalog, on moto's Glue and S3: what it keeps in an entry's parameters, what it refuses, and that no commit is lost."""

from __future__ import annotations

import hashlib
import json
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest
from botocore.exceptions import ClientError
from pyiceberg.catalog.glue import GlueCatalog
from pyiceberg.exceptions import CommitFailedException, CommitStateUnknownException, NoSuchTableError, TableAlreadyExistsError
from pyiceberg.table import Table
from pyiceberg.types import DoubleType

from tablecrypt.errors import ConfigurationError, KeyIdChangedError, MasterKeyRefusedError, TablecryptError, TamperedFileError
from tablecrypt.maintenance import FindingKind, accept_update, audit, share, shred
from tablecrypt.table.canonical_metadata import metadata_hash
from tablecrypt.table.protection.writing import StaleWriteError
from tablecrypt_catalog.glue import EncryptedGlueCatalog
from tests.support.aws import AwsServer
from tests.support.compare import assert_same_rows
from tests.support.forking import holds_in_forked_child
from tests.support.glue import LosingAnswers, check_version_ids, encrypted_glue_catalog
from tests.support.kill_points import MORTAL_IO, Place, calling_at
from tests.support.plaintext_scan import unwatch
from tests.support.protected_tables import declare
from tests.support.tables import MASTER_KEY, ROWS, data_files, encrypted_table, new_table

pytestmark = pytest.mark.slow

ENCRYPTED = {"encryption.key-id": MASTER_KEY, "encryption.data-key-length": "32"}
PINS = ("encryption.key-id", "encryption.data-key-length", "metadata_hash", "tablecrypt.metadata-sha256")


@pytest.fixture
def bucket(aws: AwsServer) -> str:
    """A bucket of its own for each test, in which it may tamper."""
    name = aws.bucket(f"glue-{uuid.uuid4().hex[:12]}")
    unwatch(f"s3://{name}")
    return name


@pytest.fixture
def catalog(aws: AwsServer, bucket: str) -> EncryptedGlueCatalog:
    return encrypted_glue_catalog(aws, bucket)


@pytest.fixture
def database(catalog: EncryptedGlueCatalog) -> str:
    name = f"db_{uuid.uuid4().hex[:8]}"
    catalog.create_namespace(name)
    return name


@pytest.fixture
def table(catalog: EncryptedGlueCatalog, database: str) -> Table:
    return new_table(catalog, f"{database}.t", appends=[ROWS], properties=ENCRYPTED)


def test_what_others_shred_while_a_table_is_loaded_is_no_tampering(aws: AwsServer, bucket: str, table: Table) -> None:
    slow, other = encrypted_glue_catalog(aws, bucket, {"py-io-impl": MORTAL_IO}), encrypted_glue_catalog(aws, bucket)
    table.append(ROWS)
    with calling_at(Place("open", 1), lambda: shred(other.load_table(table.name()), all_but_heads=True)) as life:
        loaded = slow.load_table(table.name())

    assert life.came
    assert len(loaded.metadata.snapshots) == 1
    assert loaded.scan().count() == 2 * len(ROWS)


def test_of_a_commit_that_another_writer_beats_no_metadata_file_is_left(aws: AwsServer, bucket: str, table: Table) -> None:
    slow = encrypted_glue_catalog(aws, bucket, {"py-io-impl": MORTAL_IO}).load_table(table.name())
    with calling_at(Place("create", 4), lambda: table.append(ROWS)) as life:
        slow.append(ROWS)

    last_created = [step for step in life.steps if step.startswith("create ")][3]
    assert last_created.endswith(".metadata.json")
    current = table.refresh().metadata
    assert len(current.snapshots) == 3
    written = {each["Key"] for each in aws.s3.list_objects_v2(Bucket=bucket)["Contents"] if each["Key"].endswith(".metadata.json")}
    named = {table.metadata_location, *(entry.metadata_file for entry in current.metadata_log)}
    assert written == {location.removeprefix(f"s3://{bucket}/") for location in named}


class SentTwice:
    """A client behind a proxy that sends an update again whose answer it lost, and says of neither that it did."""

    def __init__(self, client: Any) -> None:
        self._client = client

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    def update_table(self, **given: Any) -> Any:
        """Update, and refuse the same update as the service does then."""
        self._client.update_table(**given)
        answer = {"Error": {"Code": "ConcurrentModificationException"}, "ResponseMetadata": {"RetryAttempts": 0}}
        raise self._client.exceptions.ConcurrentModificationException(answer, "UpdateTable")


def test_of_a_commit_that_landed_and_was_called_refused_the_metadata_stays(aws: AwsServer, bucket: str, table: Table) -> None:
    catalog = encrypted_glue_catalog(aws, bucket)
    mine = catalog.load_table(table.name())
    catalog.glue = cast("Any", SentTwice(catalog.glue))
    mine.append(ROWS)

    assert table.refresh().scan().count() == 2 * len(ROWS)


def parameters(catalog: GlueCatalog, table: Table) -> dict[str, str]:
    database, name = table.name()
    return catalog.glue.get_table(DatabaseName=database, Name=name)["Table"]["Parameters"]


def set_parameters(catalog: GlueCatalog, table: Table, changed: dict[str, str]) -> None:
    database, name = table.name()
    entry = catalog.glue.get_table(DatabaseName=database, Name=name)["Table"]
    keys = ("Name", "TableType", "StorageDescriptor")
    entry_input: Any = {**{key: entry[key] for key in keys}, "Parameters": changed}  # type: ignore[literal-required]
    catalog.glue.update_table(DatabaseName=database, TableInput=entry_input, VersionId=entry["VersionId"])


def metadata_of(aws: AwsServer, table: Table) -> bytes:
    bucket, _, key = table.metadata_location.removeprefix("s3://").partition("/")
    return aws.s3.get_object(Bucket=bucket, Key=key)["Body"].read()


def edit(aws: AwsServer, table: Table, change: Callable[[dict[str, Any]], object]) -> None:
    metadata = json.loads(metadata_of(aws, table))
    change(metadata)
    bucket, _, key = table.metadata_location.removeprefix("s3://").partition("/")
    aws.s3.put_object(Bucket=bucket, Key=key, Body=json.dumps(metadata).encode())


def assert_pinned(aws: AwsServer, catalog: GlueCatalog, table: Table) -> None:
    found = parameters(catalog, table)
    assert found["metadata_location"] == table.metadata_location
    content = metadata_of(aws, table)
    assert found["metadata_hash"] == metadata_hash(content) is not None
    assert found["tablecrypt.metadata-sha256"] == f"{hashlib.sha256(content).hexdigest()} {table.metadata_location}"
    assert found["encryption.key-id"] == MASTER_KEY
    assert found.get("encryption.data-key-length") == table.properties.get("encryption.data-key-length")


def test_a_share_moves_to_its_next_state_and_its_pins_with_it(
    aws: AwsServer, catalog: EncryptedGlueCatalog, database: str, table: Table
) -> None:
    key_id, place = aws.kms_key_id("alias/people"), f"{table.location()}-share"
    theirs = catalog.register_table(f"{database}.theirs", share(table, key_id, place).metadata_location)
    table.append(ROWS)

    moved = accept_update(theirs, share(table, key_id, place, update=True).metadata_location)

    assert (moved.moved, moved.rows) == (True, 2 * len(ROWS))
    assert_same_rows(catalog.load_table(f"{database}.theirs").scan().to_arrow(), table.scan().to_arrow())
    assert parameters(catalog, theirs)["tablecrypt.metadata-sha256"]


def test_every_commit_renews_the_pins(aws: AwsServer, catalog: EncryptedGlueCatalog, database: str, table: Table) -> None:
    assert_pinned(aws, catalog, table)
    table.append(ROWS)
    assert_pinned(aws, catalog, table)
    table.transaction().set_properties(owner="tests").commit_transaction()
    assert_pinned(aws, catalog, table)
    assert_pinned(aws, catalog, catalog.create_table(f"{database}.empty", ROWS.schema, properties=ENCRYPTED))
    with catalog.create_table_transaction(f"{database}.filled", ROWS.schema, properties=ENCRYPTED) as transaction:
        transaction.append(ROWS)
    assert_pinned(aws, catalog, catalog.load_table(f"{database}.filled"))


def test_parameters_of_others_stay(catalog: EncryptedGlueCatalog, table: Table) -> None:
    set_parameters(catalog, table, {**parameters(catalog, table), "crawled-by": "someone"})
    table.refresh().append(ROWS)
    assert parameters(catalog, table)["crawled-by"] == "someone"


@pytest.mark.parametrize("value", ["alias/people", None])
@pytest.mark.parametrize("name", PINS[:2])
def test_a_lost_or_changed_parameter_is_refused(catalog: EncryptedGlueCatalog, table: Table, name: str, value: str | None) -> None:
    others = {key: kept for key, kept in parameters(catalog, table).items() if key != name}
    set_parameters(catalog, table, others if value is None else {**others, name: value})
    for use in (lambda: catalog.load_table(table.name()), lambda: table.append(ROWS), table.refresh):
        with pytest.raises(KeyIdChangedError, match=name.replace(".", r"\.")):
            use()


def test_a_hash_that_is_missing_is_put_back_by_the_next_commit(aws: AwsServer, catalog: EncryptedGlueCatalog, table: Table) -> None:
    set_parameters(catalog, table, {key: kept for key, kept in parameters(catalog, table).items() if key != "metadata_hash"})
    table.refresh().append(ROWS)
    assert_pinned(aws, catalog, table)


def test_metadata_edited_in_place_is_refused(aws: AwsServer, catalog: EncryptedGlueCatalog, table: Table) -> None:
    edit(aws, table, lambda metadata: metadata["properties"].update(owner="someone else"))
    for use in (lambda: catalog.load_table(table.name()), lambda: table.append(ROWS)):
        with pytest.raises(TamperedFileError, match="metadata-sha256"):
            use()


def test_metadata_whose_form_depends_on_java_is_pinned_by_its_bytes(aws: AwsServer, catalog: EncryptedGlueCatalog, table: Table) -> None:
    with table.update_schema() as update:
        update.add_column("d", DoubleType(), default_value=1.5)
    assert parameters(catalog, table)["metadata_hash"] == ""
    assert catalog.load_table(table.name()).scan().to_arrow()["d"].to_pylist() == [1.5] * ROWS.num_rows
    edit(aws, table, lambda metadata: metadata["schemas"][-1]["fields"][-1].update({"initial-default": 2.5}))
    with pytest.raises(TamperedFileError, match="metadata-sha256"):
        catalog.load_table(table.name())


def test_an_entry_without_any_hash_of_its_metadata_is_logged_and_found_by_an_audit(
    catalog: EncryptedGlueCatalog, table: Table, caplog: pytest.LogCaptureFixture
) -> None:
    def findings(each: Table) -> list[FindingKind]:
        return [finding.kind for finding in audit(each).findings]

    assert findings(catalog.load_table(table.name())) == []
    assert "is not pinned" not in caplog.text
    unhashed = {"metadata_hash": "", "tablecrypt.metadata-sha256": "0 s3://of/an/older/file"}
    set_parameters(catalog, table, {**parameters(catalog, table), **unhashed})
    loaded = catalog.load_table(table.name())
    assert "is not pinned" in caplog.text
    assert findings(loaded) == [FindingKind.PINS_MISSING]
    loaded.append(ROWS)
    assert findings(catalog.load_table(table.name())) == []


def test_an_older_metadata_file_is_refused(catalog: EncryptedGlueCatalog, table: Table) -> None:
    older = table.metadata.metadata_log[-1].metadata_file
    set_parameters(catalog, table, {**parameters(catalog, table), "metadata_location": older})
    with pytest.raises(TamperedFileError, match="metadata_hash"):
        catalog.load_table(table.name())


def test_a_vanished_key_id_is_refused(aws: AwsServer, catalog: EncryptedGlueCatalog, table: Table) -> None:
    edit(aws, table, lambda metadata: metadata["properties"].pop("encryption.key-id"))
    with pytest.raises(KeyIdChangedError):
        catalog.load_table(table.name())


def test_a_data_key_length_that_is_no_longer_said_leaves_the_entry_too(
    aws: AwsServer, catalog: EncryptedGlueCatalog, database: str
) -> None:
    table = catalog.create_table(f"{database}.short", ROWS.schema, properties={**ENCRYPTED, "encryption.data-key-length": "16"})
    table.transaction().remove_properties("encryption.data-key-length").commit_transaction()
    assert_pinned(aws, catalog, table)
    assert "encryption.data-key-length" not in parameters(catalog, table)
    assert catalog.load_table(table.name()).properties.get("encryption.data-key-length") is None


def test_a_shorter_data_key_length_is_refused(catalog: EncryptedGlueCatalog, table: Table) -> None:
    with pytest.raises(KeyIdChangedError, match="data-key-length"):
        table.transaction().set_properties({"encryption.data-key-length": "16"}).commit_transaction()
    assert catalog.load_table(table.name()).properties["encryption.data-key-length"] == "32"


def test_of_two_commits_on_the_same_version_one_is_tried_again(catalog: EncryptedGlueCatalog, table: Table) -> None:
    winner, commits = catalog.load_table(table.name()), [ROWS]

    class Overtaken(EncryptedGlueCatalog):
        """Another commits between reading the table's entry and replacing it."""

        def stage_commit(self, *arguments: Any) -> Any:
            staged = super().stage_commit(*arguments)
            if commits:
                winner.append(commits.pop())
            return staged

    overtaken = Overtaken(catalog.name, **catalog.properties)
    check_version_ids(overtaken)
    table = overtaken.load_table(table.name())
    table.append(ROWS)
    assert catalog.load_table(table.name()).scan().to_arrow().num_rows == 3 * ROWS.num_rows
    commits.append(ROWS)
    with pytest.raises(CommitFailedException, match="concurrent update"):
        table.transaction().set_properties(owner="late").commit_transaction()
    assert catalog.load_table(table.name()).scan().to_arrow().num_rows == 4 * ROWS.num_rows


def over(way: LosingAnswers, catalog: EncryptedGlueCatalog) -> EncryptedGlueCatalog:
    """Another client of the same Glue."""
    return EncryptedGlueCatalog(catalog.name, **{**catalog.properties, "glue.endpoint": way.uri})


@pytest.mark.parametrize("others", [0, 2], ids=["", "while others commit"])
def test_a_commit_whose_answer_is_lost_has_landed_once(aws: AwsServer, catalog: EncryptedGlueCatalog, table: Table, others: int) -> None:
    """The client of AWS sends it again by itself, and Glue answers that somebody was faster: the files that it names would be deleted."""
    table.transaction().set_properties({"commit.retry.num-retries": "0"}).commit_transaction()

    def commit_meanwhile() -> None:
        for _ in range(others):
            catalog.load_table(table.name()).append(ROWS)

    with LosingAnswers(aws, "UpdateTable", commit_meanwhile) as way:
        over(way, catalog).load_table(table.name()).append(ROWS)

    found = catalog.load_table(table.name())
    assert len(found.snapshots()) == 2 + others
    assert found.scan().to_arrow().num_rows == (2 + others) * ROWS.num_rows
    assert len({file.file_path for file in data_files(found)}) == 2 + others


def test_a_change_of_properties_whose_answer_is_lost_has_landed(aws: AwsServer, catalog: EncryptedGlueCatalog, table: Table) -> None:
    with LosingAnswers(aws, "UpdateTable") as way:
        over(way, catalog).load_table(table.name()).transaction().set_properties(owner="somebody").commit_transaction()

    assert catalog.load_table(table.name()).properties["owner"] == "somebody"


def test_a_commit_that_is_lost_on_its_way_is_tried_again(aws: AwsServer, catalog: EncryptedGlueCatalog, table: Table) -> None:
    with LosingAnswers(aws, "UpdateTable", lambda: catalog.load_table(table.name()).append(ROWS), lands=False) as way:
        over(way, catalog).load_table(table.name()).append(ROWS)

    assert catalog.load_table(table.name()).scan().to_arrow().num_rows == 3 * ROWS.num_rows


def test_a_new_table_whose_answer_is_lost_is_the_one_that_was_asked_for(
    aws: AwsServer, catalog: EncryptedGlueCatalog, database: str
) -> None:
    """It would pass for somebody else's: CREATE TABLE AS SELECT deletes its files then."""
    with LosingAnswers(aws, "CreateTable") as way:
        made = new_table(over(way, catalog), f"{database}.new", appends=[ROWS], properties=ENCRYPTED)
        # This one is answered.
        with pytest.raises(TableAlreadyExistsError):
            new_table(over(way, catalog), f"{database}.new", properties=ENCRYPTED)

    assert_pinned(aws, catalog, made)
    assert_same_rows(catalog.load_table(made.name()).scan().to_arrow(), ROWS)


def test_a_table_whose_removal_is_answered_late_keeps_its_new_name(
    aws: AwsServer, catalog: EncryptedGlueCatalog, database: str, table: Table
) -> None:
    """The client of AWS sends the removal of the old entry again, and hears that there is none: the new one would be taken back."""
    with LosingAnswers(aws, "DeleteTable") as way:
        over(way, catalog).rename_table(table.name(), f"{database}.u")

    assert catalog.list_tables(database) == [(database, "u")]
    assert_same_rows(catalog.load_table(f"{database}.u").scan().to_arrow(), ROWS)

    with LosingAnswers(aws, "DeleteTable") as way:
        over(way, catalog).purge_table(f"{database}.u")

    assert catalog.list_tables(database) == []


def test_a_commit_during_a_rename_is_not_lost(catalog: EncryptedGlueCatalog, database: str, table: Table) -> None:
    writer = catalog.load_table(table.name())

    class Overtaken(EncryptedGlueCatalog):
        """Another commits between reading the table's entry and making the one of the new name."""

        def _create_glue_table(self, *arguments: Any, **named: Any) -> None:
            writer.append(ROWS)
            super()._create_glue_table(*arguments, **named)

    overtaken = Overtaken(catalog.name, **catalog.properties)
    check_version_ids(overtaken)
    with pytest.raises(CommitFailedException, match="rename it again"):
        overtaken.rename_table(table.name(), f"{database}.u")

    assert catalog.list_tables(database) == [table.name()]
    assert catalog.load_table(table.name()).scan().to_arrow().num_rows == 2 * ROWS.num_rows


def test_no_commit_by_the_old_name_is_lost_to_a_rename_that_has_happened(
    catalog: EncryptedGlueCatalog, database: str, table: Table
) -> None:
    """Glue removes an entry whatever was committed to it since it was looked at."""
    answers: list[str] = []

    def commit_first(**_named: Any) -> None:
        with pytest.raises(TablecryptError, match="was renamed"):
            writer.append(ROWS)
        with pytest.raises(TablecryptError, match=rf"was renamed to {database}\.u: to remove the old entry, rename it again"):
            catalog.load_table(table.name())
        answers.append("refused")

    writer, renaming = catalog.load_table(table.name()), EncryptedGlueCatalog(catalog.name, **catalog.properties)
    renaming.glue.meta.events.register("provide-client-params.glue.DeleteTable", commit_first)

    renamed = renaming.rename_table(table.name(), f"{database}.u")

    assert answers == ["refused"]
    assert_same_rows(renamed.scan().to_arrow(), ROWS)


def test_of_two_renames_at_once_one_is_refused_and_the_table_has_one_name(
    catalog: EncryptedGlueCatalog, database: str, table: Table
) -> None:
    class Overtaken(EncryptedGlueCatalog):
        """Another gives the table another name between reading its entry and making the one of the new name."""

        def _create_glue_table(self, *arguments: Any, **named: Any) -> None:
            catalog.rename_table(table.name(), f"{database}.v")
            super()._create_glue_table(*arguments, **named)

    with pytest.raises(NoSuchTableError):
        Overtaken(catalog.name, **catalog.properties).rename_table(table.name(), f"{database}.u")

    assert catalog.list_tables(database) == [(database, "v")]


class Died(BaseException):
    """The process is gone."""


@pytest.mark.parametrize("landed", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("step", ["CreateTable", "UpdateTable", "second UpdateTable", "DeleteTable"])
def test_a_table_whose_rename_is_killed_takes_commits_by_one_name(
    catalog: EncryptedGlueCatalog, database: str, table: Table, step: str, landed: bool
) -> None:
    """With two, the rows of either are gone once somebody drops it."""
    dying = EncryptedGlueCatalog(catalog.name, **catalog.properties)
    seen: list[None] = []

    def die(**_named: Any) -> None:
        seen.append(None)
        if not step.startswith("second") or len(seen) > 1:
            raise Died

    moment = "after-call" if landed else "provide-client-params"
    dying.glue.meta.events.register(f"{moment}.glue.{step.removeprefix('second ')}", die)
    with pytest.raises(Died):
        dying.rename_table(table.name(), f"{database}.u")

    written = []
    for name in catalog.list_tables(database):
        try:
            catalog.load_table(name).append(ROWS)
        except TablecryptError as error:
            left = str(error)
        else:
            written.append(name)
    assert len(written) == 1

    if written == [table.name()] and len(catalog.list_tables(database)) == 2:
        assert f"drop {database}.u without purge, and rename {database}.t again" in left
        with pytest.raises(TableAlreadyExistsError, match="which did not finish"):
            catalog.rename_table(table.name(), f"{database}.u")
        catalog.drop_table(f"{database}.u")
    if table.name() in catalog.list_tables(database):
        catalog.rename_table(table.name(), f"{database}.u")
    assert catalog.list_tables(database) == [(database, "u")]
    assert catalog.load_table(f"{database}.u").scan().to_arrow().num_rows == 2 * ROWS.num_rows
    assert not [name for name in parameters(catalog, catalog.load_table(f"{database}.u")) if "renamed" in name]


def test_an_entry_that_cannot_be_removed_is_named(catalog: EncryptedGlueCatalog, database: str, table: Table) -> None:
    def refuse(**_named: Any) -> None:
        denied: Any = {"Error": {"Code": "AccessDeniedException", "Message": "not authorized to perform glue:DeleteTable"}}
        raise ClientError(denied, "DeleteTable")

    refusing = EncryptedGlueCatalog(catalog.name, **catalog.properties)
    refusing.glue.meta.events.register("provide-client-params.glue.DeleteTable", refuse)

    with pytest.raises(TablecryptError, match=r"its old entry is still there .*glue:DeleteTable.*rename it again"):
        refusing.rename_table(table.name(), f"{database}.u")
    found = {each.table: [finding.kind for finding in each.findings] for each in audit(catalog, include=[f"{database}.*"]).tables}
    assert found[f"{database}.t"] == [FindingKind.REFUSED_TABLE]
    with pytest.raises(TablecryptError, match=rf"was renamed to {database}\.u, which did not finish"):
        catalog.rename_table(table.name(), f"{database}.v")
    catalog.rename_table(table.name(), f"{database}.u").append(ROWS)

    assert catalog.list_tables(database) == [(database, "u")]


def test_a_rename_that_did_not_finish_goes_on_where_the_new_name_is_pinned(
    aws: AwsServer, bucket: str, database: str, table: Table, tmp_path: Path
) -> None:
    catalog = encrypted_glue_catalog(aws, bucket, {"encryption.pins": str(tmp_path / "pins.json")})

    def refuse(**_named: Any) -> None:
        raise ClientError({"Error": {"Code": "AccessDeniedException", "Message": "not authorized"}}, "DeleteTable")

    catalog.glue.meta.events.register("provide-client-params.glue.DeleteTable", refuse)
    with pytest.raises(TablecryptError, match="rename it again"):
        catalog.rename_table(table.name(), f"{database}.u")
    catalog.glue.meta.events.unregister("provide-client-params.glue.DeleteTable", refuse)

    catalog.load_table(f"{database}.u").append(ROWS)
    catalog.rename_table(table.name(), f"{database}.u").append(ROWS)

    assert catalog.list_tables(database) == [(database, "u")]


def test_a_forked_child_asks_glue_by_a_client_of_its_own(catalog: EncryptedGlueCatalog, database: str, table: Table) -> None:
    parents = catalog.glue

    assert holds_in_forked_child(lambda: catalog.list_tables(database) == [table.name()] and catalog.glue is not parents)
    assert catalog.glue is parents


def test_rename_and_register_keep_a_table_pinned(aws: AwsServer, catalog: EncryptedGlueCatalog, database: str, table: Table) -> None:
    renamed = catalog.rename_table(table.name(), f"{database}.u")
    renamed.append(ROWS)
    assert_pinned(aws, catalog, renamed)
    catalog.drop_table(f"{database}.u")
    registered = catalog.register_table(f"{database}.again", renamed.metadata_location)
    assert_pinned(aws, catalog, registered)
    with pytest.raises(TableAlreadyExistsError):
        catalog.register_table(f"{database}.again", renamed.metadata_location)


def test_a_table_that_this_client_would_not_load_is_not_registered(aws: AwsServer, bucket: str, database: str, table: Table) -> None:
    strict = encrypted_glue_catalog(aws, bucket, {"encryption.allowed-key-ids": "alias/people"})
    with pytest.raises(MasterKeyRefusedError):
        strict.register_table(f"{database}.again", table.metadata_location)
    assert (database, "again") not in strict.list_tables(database)


def test_purge_leaves_nothing_in_the_bucket(aws: AwsServer, catalog: EncryptedGlueCatalog, bucket: str, table: Table) -> None:
    table.delete("id = 2")
    catalog.purge_table(table.name())
    # pyarrow keeps an emptied folder as an object of no bytes.
    assert [each["Key"] for each in aws.s3.list_objects_v2(Bucket=bucket).get("Contents", []) if not each["Key"].endswith("/")] == []
    with pytest.raises(NoSuchTableError):
        catalog.load_table(table.name())


def test_a_table_without_key_id_is_plain_pyicebergs(catalog: EncryptedGlueCatalog, database: str) -> None:
    table = catalog.create_table(f"{database}.plain", ROWS.schema)
    table.append(ROWS)
    assert type(table) is type(catalog.load_table(table.name())) is Table
    assert not set(PINS) & set(parameters(catalog, table))
    again = catalog.register_table(f"{database}.again", table.metadata_location)
    assert type(again) is Table


def test_a_client_side_pin_file_works_beside_the_parameters(aws: AwsServer, bucket: str, database: str, tmp_path: Any) -> None:
    pins = tmp_path / "pins.json"
    catalog = encrypted_glue_catalog(aws, bucket, {"encryption.pins": str(pins)})
    table = new_table(catalog, f"{database}.t", appends=[ROWS], properties=ENCRYPTED)
    content = json.loads(pins.read_text())
    # A KEK that was taken out, which the metadata no longer tells: only a pin that goes with the table refuses it.
    content["pins"][0]["retired-keks"] = ["0" * 64]
    pins.write_text(json.dumps(content))

    catalog.rename_table(table.name(), f"{database}.u").append(ROWS)

    (entry,) = json.loads(pins.read_text())["pins"]
    assert entry["identifier"] == [database, "u"]
    assert entry["last-sequence-number"] == 2
    assert entry["retired-keks"] == ["0" * 64]


def test_a_table_that_is_renamed_in_the_middle_of_a_commit_takes_commits_under_its_new_name_alone(
    catalog: EncryptedGlueCatalog, database: str, table: Table
) -> None:
    renames = [f"{database}.u"]

    class Overtaken(EncryptedGlueCatalog):
        """Another renames the table between reading its entry and replacing it."""

        def stage_commit(self, *arguments: Any) -> Any:
            staged = super().stage_commit(*arguments)
            if renames:
                catalog.rename_table(table.name(), renames.pop())
            return staged

    overtaken = Overtaken(catalog.name, **catalog.properties)
    check_version_ids(overtaken)
    with pytest.raises((NoSuchTableError, CommitStateUnknownException)):
        overtaken.load_table(table.name()).append(ROWS)

    assert catalog.list_tables(database) == [(database, "u")]
    catalog.load_table(f"{database}.u").append(ROWS)
    assert catalog.load_table(f"{database}.u").scan().to_arrow().num_rows == 2 * ROWS.num_rows


class S3TablesCatalog(EncryptedGlueCatalog):
    """One whose databases are all federated, which moto has none of."""

    def is_managed_by_s3_tables(self, _database: str) -> bool:
        return True


def test_a_database_of_s3_tables_is_refused(catalog: EncryptedGlueCatalog, database: str) -> None:
    with pytest.raises(ConfigurationError, match="S3 Tables"):
        S3TablesCatalog(catalog.name, **catalog.properties).create_table(f"{database}.t", ROWS.schema, properties=ENCRYPTED)


def test_concurrent_modification_is_glues_own_error(catalog: EncryptedGlueCatalog, table: Table) -> None:
    entry = catalog.glue.get_table(DatabaseName=table.name()[0], Name=table.name()[1])["Table"]
    set_parameters(catalog, table, entry["Parameters"])
    with pytest.raises(ClientError, match="ConcurrentModificationException"):
        catalog.glue.update_table(DatabaseName=table.name()[0], TableInput={"Name": table.name()[1]}, VersionId=entry["VersionId"])


def test_rows_and_files_of_a_writer_from_before_a_declaration_do_not_stay_in_the_clear(
    catalog: EncryptedGlueCatalog, table: Table, aws: AwsServer, bucket: str
) -> None:
    field_id = table.schema().find_field("text").field_id
    staged = table.transaction()
    staged.append(ROWS)
    loaded = encrypted_glue_catalog(aws, bucket).load_table(table.name())
    other = encrypted_glue_catalog(aws, bucket).load_table(table.name())
    declare(other, f"{aws.new_key()}: text")

    with pytest.raises(StaleWriteError, match="column 'text' was declared protected since the rows were written"):
        staged.commit_transaction()
    assert catalog.load_table(table.name()).metadata_location == other.metadata_location
    loaded.append(ROWS)

    written = catalog.load_table(table.name())
    assert [field_id in (file.lower_bounds or {}) for file in data_files(written)].count(True) == 1
    assert encrypted_table(written).scan(masked="error").count() == 2 * ROWS.num_rows
