"""Wrong calls that new users made: each is answered with one line that says what, where and what to do, and with a documented code."""

from __future__ import annotations

import json
import os
import pty
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Final

import pyarrow as pa
import pytest
from pydantic import BaseModel, model_serializer
from pyiceberg.io.pyarrow import PyArrowFile, PyArrowFileIO

from tablecrypt import load_catalog
from tablecrypt.kms.local_file import add_key, create_key_file
from tests.support.command import Done, environment, in_shell, run, run_process, run_terminal
from tests.support.tables import metadata_path, new_table

LONG: Final = "b" * 200
CONFIGURATION: Final = """
catalog:
  prod:
    type: tablecrypt
    uri: sqlite:///{folder}/catalog.db
    warehouse: file://{folder}/warehouse
    encryption.required: "true"
    encryption.kms-type: local
    kms.local.key-file: {folder}/orders.keys
"""


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder as a new user's: a configuration, a key file, and two tables, one with a protected column and a struct."""
    folder = tmp_path_factory.mktemp("home")
    (folder / ".pyiceberg.yaml").write_text(CONFIGURATION.format(folder=folder))
    create_key_file(folder / "orders.keys", "orders")
    for key_id in ("alias/people", "alias/pii"):
        add_key(folder / "orders.keys", key_id)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYICEBERG_HOME", str(folder))
        catalog = load_catalog("prod")
        catalog.create_namespace("db")
        orders = pa.table({"id": [1, 2, 3], "item": ["lamp", "desk", None]})
        new_table(catalog, "db.orders", appends=[orders], properties={"encryption.key-id": "orders"})
        people = pa.table({"id": [1, 2], "ssn": ["111", "222"], "home": [{"city": "a\x1b[31m", "zip": 1}, {"city": LONG, "zip": None}]})
        properties = {"encryption.key-id": "alias/people", "encryption.column-keys": "alias/pii: ssn"}
        catalog.create_table("db.people", people.schema, properties=properties).append(people)
    without(folder, "analyst.keys", "alias/pii")
    (folder / "rows.csv").write_text("id\n1\n")
    return folder


def without(folder: Path, name: str, key_id: str) -> None:
    """Write a key file that lacks one of the keys."""
    content = json.loads((folder / "orders.keys").read_text())
    del content["keys"][key_id]
    (folder / name).touch(mode=0o600)
    (folder / name).write_text(json.dumps(content))


@pytest.fixture(autouse=True)
def at_home(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(home)
    monkeypatch.setenv("PYICEBERG_HOME", str(home))


PROD: Final = ("--catalog", "prod")
ACCEPT: Final = ("--key-file", "partner.key", "--to", "orders", "--location", "{home}/accepted")

CALLS: Final[list[tuple[tuple[str, ...], str]]] = [
    # before the command
    (
        ("--catalog", "prdo", "audit"),
        "no catalog 'prdo' is configured: {home}/.pyiceberg.yaml does not name it, and the environment has no "
        "PYICEBERG_CATALOG__PRDO__…. Did you mean prod?",
    ),
    (("--catalog", "warehouse", "audit"), "PYICEBERG_CATALOG__WAREHOUSE__…. Configured are: prod"),
    (("audit",), "no catalog is named: put --catalog NAME before the command; no catalog 'default' is configured"),
    (("cat", *PROD, "db.orders"), "--catalog belongs before the command: tablecrypt --catalog … cat"),
    (
        (*PROD, "--where", "id = 1", "cat", "db.orders"),
        "No such option --where: only --catalog, --property, --quiet and --progress stand before",
    ),
    (("audit", "--property", "prod", "db.orders"), "--property belongs before the command"),
    (("audit", "-p", "prod", "db.orders"), "-p belongs before the command"),
    (("--catalogue", "prod", "audit"), "No such option --catalogue. Did you mean --catalog?"),
    (("--quiet", "--progress", "verify", "db.t"), "--quiet and --progress exclude each other"),
    (("-q", "verify", "db.t", "--progress"), "--quiet and --progress exclude each other"),
    (("--property", "py-catalog-impl=nowhere.Catalog", "audit", "db.t"), "cannot be imported"),
    ((*PROD, "-p", "uri", "cat", "db.orders"), "--property uri: write name=value"),
    ((*PROD, "-p", "uri=", "cat", "db.orders"), "--property uri has no value"),
    (
        (*PROD, "-p", "kms.local.key-fiel=x", "cat", "db.orders"),
        "kms.local.key-fiel is not a property of a catalog. Did you mean kms.local.key-file?",
    ),
    (
        (*PROD, "-p", "encryption.kms-type=awss", "cat", "db.orders"),
        "encryption.kms-type is 'awss'; it must be aws, gcp, azure, vault, local",
    ),
    ((*PROD, "-p", "type=sql", "cat", "db.orders"), "catalog 'prod' has 'type: sql', which does not encrypt: write 'type: tablecrypt'"),
    (
        (*PROD, "-p", "py-catalog-impl=tablecrypt_catalog.EncryptedSqlCatlog", "cat", "db.orders"),
        "has no attribute 'EncryptedSqlCatlog'. Did you mean EncryptedSqlCatalog?",
    ),
    (("--catalog", "PROD", "list"), "catalog PROD holds nothing, and its database holds catalog prod: write --catalog prod"),
    (("--catalog", "Prod", "describe", "db.orders"), "catalog Prod holds nothing, and its database holds catalog prod"),
    # a database, a server
    (
        (*PROD, "-p", "uri=http://127.0.0.1:9/", "audit"),
        "the server at http://127.0.0.1:9 cannot be reached (Connection refused): check that it runs",
    ),
    (
        (*PROD, "-p", "uri=thrift://127.0.0.1:9", "audit"),
        "the Hive metastore cannot be reached (Could not connect to any of [('127.0.0.1', 9)])",
    ),
    (
        (*PROD, "-p", "uri=postgresql://u:secret@127.0.0.1:9/x", "audit"),
        "the catalog's database refused (OperationalError: connection to server at",
    ),
    (
        (*PROD, "-p", "uri=mysql://u:secret@h/x", "audit"),
        "the uri of catalog 'prod' begins with mysql://: sqlite:// and postgresql:// are SQL",
    ),
    (
        (*PROD, "-p", "uri=mysql://u:secret@h/x", "-p", "py-catalog-impl=tablecrypt_catalog.EncryptedSqlCatalog", "audit"),
        "catalog 'prod' is at mysql:// and needs the package MySQLdb, which no extra brings: install it",
    ),
    (
        (*PROD, "-p", "uri=foo://u:secret@h/x", "-p", "py-catalog-impl=tablecrypt_catalog.EncryptedSqlCatalog", "audit"),
        "the uri of catalog 'prod' (foo://) is no database that SQLAlchemy knows",
    ),
    (
        (*PROD, "-p", "uri=sqlite:////no/such/folder/x.db", "audit"),
        "there is no catalog database at /no/such/folder/x.db",
    ),
    *(
        ((*before, *call), f"{call[0]} takes no --catalog and no --property: it opens no catalog and no key service\n")
        for before in (("--catalog", "prod"), ("-p", "kms.local.key-file=orders.keys"))
        for call in (
            ("keygen", "--key-file", "new.keys", "--key-id", "a"),
            ("share-keygen", "partner.key"),
            ("spark-jar", "-o", "new.jar"),
            ("activate", "--yes"),
            ("deactivate", "--yes"),
            ("completion", "bash"),
            ("hadoop-kms-token", "--token-file", "token"),
            ("demo",),
        )
    ),
    # names
    (("audti",), "No such command 'audti'. Did you mean audit?"),
    (("xyzzy",), "No such command 'xyzzy'\n"),
    (("--catalog", "nowhere", "verify", "orders"), "write namespace.name"),
    ((*PROD, "describe", "db.oders"), "Did you mean db.orders?"),
    (("inspect", "rows.csv"), "write ./rows.csv"),
    ((*PROD, "cat", "db.order"), "Table does not exist: db.order. Did you mean db.orders?"),
    ((*PROD, "cat", "orders"), "'orders' is not a table's name: write namespace.name. Did you mean db.orders?"),
    ((*PROD, "cat", "db"), "'db' is not a table's name: write namespace.name. Did you mean db.orders or db.people?"),
    (
        (*PROD, "compact", "db.*"),
        "'db.*' is a glob, and this command takes the name of one table: write namespace.name, or db.[*] for a table of that name",
    ),
    ((*PROD, "cat", "db.a[*]b"), "Table does not exist: db.a*b"),
    ((*PROD, "rotate_kek", "db.orders"), "No such command 'rotate_kek'. Did you mean rotate-kek?"),
    ((*PROD, "db.orders", "audit"), "No such command 'db.orders': a table's name stands after the command"),
    (
        ("inspect", "nothere.parquet"),
        "there is no file nothere.parquet in {home}; if it is a table's name, put --catalog NAME before the command",
    ),
    (
        (*PROD, "inspect", "nothere.parquet"),
        "Table does not exist: nothere.parquet. If it is a file, write its path with a /: ./nothere.parquet",
    ),
    ((*PROD, "inspect", "./nothere.parquet"), "there is no file ./nothere.parquet"),
    ((*PROD, "cat", "./nothere.parquet"), "there is no file ./nothere.parquet"),
    ((*PROD, "cat", "{home}/"), "{home}/ is a folder: name a file in it"),
    ((*PROD, "inspect", "/dev/null"), "/dev/null is a device or a pipe, whose bytes cannot be read at will: name a file"),
    ((*PROD, "audit", "db.orders", "--html", "-"), "--html -: the page is written into a file, not to stdout: name one"),
    (("decrypt-file", "orders.keys", "-", "--json"), "--json says on stdout what became of TARGET, and with - the plaintext goes there"),
    ((*PROD, "reencrypt", "db.orders", "--branch", "mian"), "db.orders has no branch 'mian'; it has main"),
    ((*PROD, "cat", "db..orders"), "'db..orders' has an empty part: write namespace.name"),
    ((*PROD, "describe", ".orders"), "'.orders' has an empty part: write namespace.name"),
    ((*PROD, "relocate", "db.orders", "{home}/copy", "--as", "db."), "'db.' has an empty part: write namespace.name"),
    ((*PROD, "relocate", "db.orders", "{home}/copy", "--as", "db..o"), "'db..o' has an empty part: write namespace.name"),
    ((*PROD, "doctor", "db..orders"), "'db..orders' has an empty part: write namespace.name"),
    ((*PROD, "accept", "", *ACCEPT), "the location of a metadata file is blank: write that of the table's newest metadata.json"),
    ((*PROD, "accept", "{home}", *ACCEPT), "{home} is a folder: write the location of the newest metadata.json in it"),
    ((*PROD, "accept", "no.metadata.json", *ACCEPT), "there is no metadata file at no.metadata.json: look at what the one who"),
    ((*PROD, "accept", "orders.keys", *ACCEPT), "orders.keys: not readable as table metadata: it has no format-version"),
    ((*PROD, "accept", "s3://", *ACCEPT), "s3:// names no bucket: write s3://bucket/path"),
    (
        (*PROD, "relocate", "db.orders", "abfss://lake@account.dfs.core.windows.net/x"),
        "the account of Azure's storage is not known: set adls.account-name",
    ),
    ((*PROD, "cat", "DB.ORDERS"), "Table does not exist: DB.ORDERS. Did you mean db.orders?"),
    ((*PROD, "cat", "db.orders "), "Did you mean db.orders?"),
    ((*PROD, "cat", "prod.db.orders"), "Table does not exist: prod.db.orders. Did you mean db.orders?"),
    ((*PROD, "list", "DB"), "there is no namespace DB in catalog prod. Did you mean db?"),
    ((*PROD, "cat", "db.\udcff"), "the table's name holds half of a surrogate pair"),
    ((*PROD, "list", "\udcff"), "the namespace holds half of a surrogate pair"),
    # options that would be ignored
    ((*PROD, "cat", "db.orders", "--key-file", "analyst.keys"), "--key-file and --key-id are for files: a table names its own master key"),
    ((*PROD, "inspect", "db.orders", "--key-id", "orders"), "--key-file and --key-id are for files: a table names its own master key"),
    ((*PROD, "cat", "db.orders", "--json", "--format", "csv"), "--json and --format csv exclude each other"),
    ((*PROD, "migrate", "db.orders", "--key-id", "orders", "--set", "nothing", "--yes"), "--set nothing: write name=value"),
    (
        (*PROD, "rewrap", "db.orders", "--manifests-below", "{home}/warehouse"),
        "manifests_below (--manifests-below) counts only with from_key_id (--from-key-id), for keys that another master key wraps",
    ),
    (
        (*PROD, "rewrap", "db.people", "--columns", "--manifests-below", "{home}/warehouse"),
        "--columns excludes --from-key-id and --manifests-below: column KEKs are wrapped again by the master keys that their",
    ),
    (
        (*PROD, "relocate", "db.orders", "file://{home}/copy", "--manifests-below", "{home}/warehouse"),
        "manifests_below (--manifests-below) counts only with key_id (--key-id), for keys that another master key wraps",
    ),
    (("inspect", "./orders.keys", "--key-file", "orders.keys"), "name the master key: --key-id, with --key-file or a key service"),
    (("hadoop-kms-key", "pii", "--roll", "--length", "32", "--key-file", "orc.json"), "--length belongs to a new key: a new version is as"),
    # values that are blank, as those of variables that are not set
    *(
        (call, f"Invalid value for '{option}': it is blank: write a value, or leave the option out")
        for call, option in (
            (("--catalog", "", "audit"), "--catalog"),
            ((*PROD, "reencrypt", "db.orders", "--shared-with", ""), "--shared-with"),
            ((*PROD, "reencrypt", "db.orders", "--file", " "), "--file"),
            ((*PROD, "rewrap", "db.orders", "--from-key-id", ""), "--from-key-id"),
            ((*PROD, "doctor", "db.orders", "--key-id", ""), "--key-id"),
            (("inspect", "./orders.keys", "--key-id", ""), "--key-id"),
            (("hadoop-kms-key", "pii", "--roll", "--master-key", "", "--key-file", "orc.json"), "--master-key"),
        )
    ),
    # a limit that nothing exceeds
    *(
        (
            ("hadoop-kms", "--key-file", "orc.json", "--allow-list", "a.toml", option, "nan"),
            f"Invalid value for '{option}': nan is no number",
        )
        for option in ("--rate", "--seconds")
    ),
    ((*PROD, "compact", "db.orders", "--delete-ratio", "NaN"), "Invalid value for '--delete-ratio': NaN is no number"),
    # places that are not there
    ((*PROD, "audit", "db.orders", "--html", "nowhere/page.html"), "there is no folder"),
    *(
        ((*PROD, command, "db.orders", option, value), f"Invalid value for '{option}': it is blank: name a file")
        for command, option in (("audit", "--html"), ("audit", "--bundle"), ("erase", "--certificate"), ("verify", "--resume-from"))
        for value in ("", " ")
    ),
    ((*PROD, "audit", "db.orders", "--html", "/proc/page.html"), "/proc/page.html: "),
    *(
        ((*command, option, value), f"Invalid value for '{option}': it is blank: name a file")
        for command, option in (
            (("hadoop-kms-token",), "--token-file"),
            ((*PROD, "hadoop-kms-key", "pii", "--master-key", "orders"), "--key-file"),
            (("keygen", "--key-id", "orders"), "--key-file"),
            (("decrypt-file", "rows.csv", "rows.dec", "--key-id", "orders"), "--key-file"),
        )
        for value in ("", " ")
    ),
    (
        ("encrypt-file", "rows.csv", " ", "--key-file", "orders.keys", "--key-id", "orders"),
        "Invalid value for 'TARGET': it is blank: name a file",
    ),
    (("demo", "--keep", ""), "Invalid value for '--keep': it is blank: name a folder"),
    (
        ("keygen", "--key-id", "orders", "--key-file", "new.keys/"),
        "Invalid value for '--key-file': it ends in /, as that of a folder: name a file",
    ),
    (("share-keygen", "no/such/partner.key"), "no/such/partner.key: there is no folder {home}/no/such"),
    ((*PROD, "cat", "db.orders", "--limit", "99999999999999999999"), "99999999999999999999 is not in the range 0<=x<=9223372036854775807"),
    ((*PROD, "accept", "\udcff", *ACCEPT), "a location holds half of a surrogate pair"),
    ((*PROD, "verify", "db.orders", "--resume-from", "no/such/state"), "no/such/state: there is no folder {home}/no/such"),
    # devices, which have no end
    ((*PROD, "verify", "db.orders", "--resume-from", "/dev/zero"), "/dev/zero is a device or a pipe, which cannot be continued from"),
    ((*PROD, "audit", "db.orders", "--since", "/dev/zero"), "--since /dev/zero cannot be read: it is longer than 1073741824 bytes"),
    ((*PROD, "-p", "encryption.pins={home}", "cat", "db.orders"), "the pin file {home} cannot be read: Is a directory"),
    (
        (*PROD, "-p", "encryption.pins=/proc/no/pins.json", "cat", "db.orders"),
        "/proc/no/pins.json.lock, beside the pin file, cannot be made: ",
    ),
    (
        (*PROD, "-p", "encryption.pins=orders.keys", "cat", "db.orders"),
        "orders.keys: not a readable pin file. Without its pins an older or",
    ),
    # options
    ((*PROD, "cat", "db.orders", "--filter", "id = 1"), "No such option --filter. Did you mean --where?"),
    ((*PROD, "compact", "db.orders", "--filter", "id = 1"), "No such option --filter. Did you mean --where?"),
    ((*PROD, "cat", "db.orders", "--colums", "id"), "No such option --colums. Did you mean --columns?"),
    ((*PROD, "verify", "db.orders", "--where", "id = 1"), "No such option --where\n"),
    (("verify", "--quik", "db.t"), "No such option --quik. Did you mean --quick?"),
    ((*PROD, "verify", "db.orders", "--hlep"), "No such option --hlep. Did you mean --help?"),
    ((*PROD, "migrate", "db.orders", "--key", "orders"), "No such option --key. Did you mean --key-id?"),
    ((*PROD, "cat", "db.orders", "--columns", "id,itm"), "db.orders: Could not find column: 'itm'; its columns are id, item"),
    ((*PROD, "cat", "db.orders", "--where", "idd = 1"), "db.orders: Could not find field with name idd; its columns are id, item"),
    ((*PROD, "cat", "db.orders", "--where", "item = 3"), "'item = 3' does not fit db.orders: Cannot convert LongLiteral into string"),
    ((*PROD, "cat", "db.orders", "--where", "id == 'x"), "is not a filter; a valid one is: region = 'north' and total > 3"),
    ((*PROD, "cat", "db.orders", "--where", "id >>> 3"), "is not a filter"),
    *(
        ((*PROD, *command, "--where", "((("), "tablecrypt: the filter cannot be parsed: '((('; a valid one is: region")
        for command in (
            ("reencrypt", "db.orders"),
            ("erase", "db.orders", "--yes"),
            ("share", "db.orders", "--to", "alias/people", "--location", "file://{home}/share"),
        )
    ),
    ((*PROD, "compact", "db.orders", "--where", "nobody = 3"), "it has no column nobody"),
    ((*PROD, "cat", "db.orders", "--snapshot", "4"), "db.orders: Snapshot not found: 4; tablecrypt inspect lists its snapshots"),
    ((*PROD, "cat", "db.people"), "column home is a struct<city: large_string, zip: int64>, which CSV cannot hold: use --format json, or"),
    *(
        (
            (*PROD, "reencrypt", "db.orders", "--older-than", age),
            f"'{age}' is neither a date such as 2024-02-29T12:00 nor an age such as 30d",
        )
        for age in ("30days", "99999999999d", "\u00b2d", "30x", "2023-02-30", "yesterday")
    ),
    *(
        ((*PROD, command, "db.orders", "--older-than", "2999-01-01", "--dry-run"), "'2999-01-01' is in the future: name a moment before 20")
        for command in ("reencrypt", "orphans")
    ),
    *(
        ((*PROD, *command, location), f"{location!r} is not a location for a table")
        for command in (("relocate", "db.orders"), ("share", "db.orders", "--to", "alias/people", "--location"))
        for location in ("/", "s3://")
    ),
    ((*PROD, "relocate", "db.orders", "copy"), "'copy' is not a location for a table: write a complete one, such as s3://bucket/folder"),
    ((*PROD, "migrate", "db.orders", "--key-id", "order"), "db.orders is encrypted already, under orders"),
    # keys
    (
        ("keygen", "--key-file", "orders.keys", "--key-id", "orders"),
        "has a key 'orders' already: give the new one another --key-id, or add --new-",
    ),
    (
        ("keygen", "--key-file", "orders.keys", "--key-id", "order", "--new-version"),
        "has no key 'order'; it has 'alias/people', 'alias/pii', 'orders'. Did you mean orders?",
    ),
    (("keygen", "--key-file", "no/such.keys", "--key-id", "a"), "the key file no/such.keys cannot be written: there is no folder no"),
    (
        (*PROD, "-p", "kms.local.key-file=nope.keys", "cat", "db.orders"),
        "the key file nope.keys cannot be read: there is none in {home}: put yours there, or make a first one (tablecrypt keygen)",
    ),
    (
        (*PROD, "-p", "kms.local.key-file=analyst.keys", "cat", "db.people", "--masked", "error", "--format", "json"),
        "column 'ssn' (field 2) is protected by master key 'alias/pii', which the key service does not let you use: the key file "
        "analyst.keys has no "
        "key 'alias/pii'; it has 'alias/people', 'orders'. Leave the column out, or ask for permission to use that key",
    ),
    (
        ("encrypt-file", "rows.csv", "rows.enc", "--key-file", "orders.keys", "--key-id", "order"),
        "has no key 'order'; it has 'alias/people', 'alias/pii', 'orders'. Did you mean orders?",
    ),
    (("encrypt-file", "rows.csv", "rows.enc"), "name the master key: --key-id, with --key-file or a key service"),
    (
        ("decrypt-file", "rows.csv", "rows.dec", "--key-file", "orders.keys", "--key-id", "orders"),
        "the file's key does not exist: rows.csv.key.json; encrypt-file leaves it beside each file that it encrypts",
    ),
    # what a slip of the shell's completion would destroy, and values of which one would be left out without a word
    (("spark-jar", "--output", "orders.keys"), "--output orders.keys: there is a file that is no jar, and it is not replaced"),
    (
        (*PROD, "audit", "db.orders", "--html", "orders.keys"),
        "orders.keys: there is a file that is no HTML page, and it is",
    ),
    ((*PROD, "erase", "db.orders", "--where", "id = 1", "--where", "id = 2", "--yes"), "--where is given 2 times, and takes one value"),
    (
        (*PROD, "erase", "db.orders", "--where", "id = 1", "--yes", "--certificate", "a.json", "--certificate", "./a.json"),
        "--certificate names one file several times",
    ),
    (("--catalog", "staging", *PROD, "audit", "db.orders"), "--catalog is given 2 times, and takes one value"),
    (
        (*PROD, "-p", "encryption.kms-type=local", "-p", "encryption.kms-type=memory", "audit", "db.orders"),
        "--property encryption.kms-type is given twice, with two values: leave one out",
    ),
]


@pytest.mark.parametrize(("arguments", "said"), CALLS, ids=[" ".join(arguments) for arguments, _ in CALLS])
def test_a_wrong_call_gets_one_line_that_helps(home: Path, arguments: tuple[str, ...], said: str) -> None:
    done = run(*(each.replace("{home}", str(home)) for each in arguments))

    assert done.code == 2
    assert "pydantic" not in done.stderr
    assert said.format(home=home) in done.stderr
    assert done.stdout == ""
    assert len(error_lines(done)) == 1
    assert "secret" not in done.stderr
    assert "Traceback" not in done.stderr


def error_lines(done: Done) -> list[str]:
    """The lines of errors: not the usage that click puts before them, nor what a library logs."""
    return [line for line in done.stderr.splitlines() if line.startswith(("tablecrypt: ", "Error: "))]


def test_from_another_directory_it_says_where_it_looked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYICEBERG_HOME")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)

    said = run(*PROD, "audit").stderr
    assert (
        f"no catalog 'prod' is configured: there is no .pyiceberg.yaml in {tmp_path}/home, {tmp_path}, and the environment has no" in said
    )


def test_a_metadata_file_that_is_not_there_is_named_with_the_way_back(home: Path, tmp_path: Path) -> None:
    shutil.copytree(home, tmp_path, dirs_exist_ok=True)
    rows = pa.table({"id": [1]})
    moved = {"uri": f"sqlite:///{tmp_path}/catalog.db", "warehouse": f"file://{tmp_path}/warehouse"}
    table = new_table(load_catalog("prod", **moved), "db.lost", rows.schema, properties={"encryption.key-id": "orders"})
    metadata_path(table).unlink()

    what_to_do = "db.lost: its metadata file is not in storage. Restore it from a backup"
    prod = (*PROD, "-p", f"uri={moved['uri']}")

    done = run(*prod, "verify", "db.lost")
    assert done.code == 2
    assert done.stderr.startswith(f"tablecrypt: {what_to_do}")
    assert table.metadata_location.rpartition("/")[2] in done.stderr
    assert len(error_lines(done)) == 1
    for command in (("list",), ("doctor", "db.lost"), ("audit", "--include", "db.lost")):
        assert what_to_do in run(*prod, *command).stdout


def test_doctor_gives_no_advice_that_was_followed_already() -> None:
    lacking = (*PROD, "-p", "kms.local.key-file=analyst.keys", "doctor")
    assert "name a table" not in run(*lacking, "db.people").stdout
    assert "name a table, whose KEK shows it" in run(*lacking, "--key-id", "alias/pii").stdout


def test_inspect_shows_keys_of_columns_as_a_table() -> None:
    lines = run(*PROD, "inspect", "db.people").stdout.splitlines()
    head = next(line for line in lines if line.startswith("column KEKs:"))
    assert head.split()[2:] == ["key", "id", "wrapped", "by", "timestamp", "columns"]
    assert lines[lines.index(head) + 1].split()[-1] == "ssn"


def test_migrate_of_an_encrypted_table_asks_nothing_and_does_nothing(home: Path) -> None:
    before = load_catalog("prod").load_table("db.orders").metadata_location
    code, shown = run_terminal(*PROD, "migrate", "db.orders", "--key-id", "orders")

    assert (code, shown) == (0, "db.orders is encrypted already; nothing was done\r\n")
    assert run(*PROD, "migrate", "db.orders", "--key-id", "orders").stdout == "db.orders is encrypted already; nothing was done\n"
    assert json.loads(run(*PROD, "migrate", "db.orders", "--key-id", "orders", "--json").stdout)["files"] == 0
    assert load_catalog("prod").load_table("db.orders").metadata_location == before


def test_migrate_says_of_an_encrypted_table_what_is_left_of_the_plain_one(unwatched_warehouse: Path, home: Path) -> None:
    rows = pa.table({"id": [1]})
    free = ("-p", "encryption.required=false", "-p", f"warehouse=file://{unwatched_warehouse}")
    catalog = load_catalog("prod", **{"encryption.required": "false", "warehouse": f"file://{unwatched_warehouse}"})
    catalog.create_table("db.plain", rows.schema).append(rows)
    migrate = (*PROD, *free, "migrate", "db.plain", "--key-id", "orders")
    assert run(*migrate, "--keep-plaintext", "--yes").code == 0

    code, shown = run_terminal(*migrate, answer="n\n")
    assert code == 2
    assert (
        "db.plain is encrypted already; 3 plaintext files of an earlier migration will be deleted. Go on? [y/N]: nothing was done" in shown
    )
    assert json.loads(run(*migrate, "--yes", "--json").stdout)["deleted"] == 3
    assert run(*migrate).stdout == "db.plain is encrypted already; nothing was done\n"


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("catalog: [secret", ".pyiceberg.yaml is not YAML that PyIceberg reads: line 1: Found ugly disallowed JSONesque flow"),
        ("catalog:\n  prod:\n    uri: x\n\tsecret: 1\n", ".pyiceberg.yaml is not YAML that PyIceberg reads: line 4: found character"),
        ("catalog:\n  prod: secret\n", "catalog 'prod' has a value in .pyiceberg.yaml or the environment where its properties belong"),
        ("", ".pyiceberg.yaml is empty, or no YAML in UTF-8 that lists properties"),
        ("secret", ".pyiceberg.yaml is empty, or no YAML in UTF-8 that lists properties"),
        ("catalogs:\n  prod:\n    uri: secret\n", "no catalog 'prod' is configured: {folder}/.pyiceberg.yaml does not name it"),
        ("catalog:\n  prod:\n    type: tablecrypt\n", "the uri of catalog 'prod' is not set: sqlite:// and postgresql:// are SQL"),
    ],
)
def test_a_configuration_that_cannot_be_read_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: str, said: str) -> None:
    (tmp_path / ".pyiceberg.yaml").write_text(content)
    monkeypatch.setenv("PYICEBERG_HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    done = run_process(*PROD, "cat", "db.orders")

    assert done.code == 2
    assert done.stderr.startswith(f"tablecrypt: {said.format(folder=tmp_path)}")
    assert done.stderr.count("\n") == 1
    assert "secret" not in done.stderr


SHRED: Final = (*PROD, "shred", "db.orders", "--whole-table", "db.orders")


@pytest.mark.parametrize("answer", ["n\n", "\n", "no\n", "Yess\n", "\x04"], ids=["n", "empty", "no", "a typo", "end of input"])
def test_an_answer_that_is_not_yes_is_nothing_was_done(answer: str) -> None:
    code, shown = run_terminal(*SHRED, answer=answer)

    assert code == 2
    assert shown.endswith("nothing was done\r\n")
    assert "interrupted" not in shown
    assert run(*PROD, "cat", "db.orders").code == 0


def status_within(seconds: int, pid: int) -> int | None:
    """The status of a child process once it has ended; None if it goes on for longer."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            return status
        time.sleep(0.05)
    return None


@pytest.mark.parametrize(("stop", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_control_c_and_sigterm_at_the_question_are_interruptions(stop: signal.Signals, code: int) -> None:
    # The terminal is the process's own, as a shell gives it one: Ctrl-C goes to who controls it.
    pid, terminal = pty.fork()
    if pid == 0:
        # Who runs the tests in the background of a script ignores Ctrl-C, and so would this process.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.execve(sys.executable, [sys.executable, "-m", "tablecrypt", *SHRED], environment())
    shown = b""
    while b"[y/N]" not in shown:
        shown += os.read(terminal, 1024)
    status = None
    while status is None:
        # A signal that comes just before Python reads is noticed with the next one: a person presses the keys again.
        if stop == signal.SIGINT:
            os.write(terminal, b"\x03")
        else:
            os.kill(pid, stop)
        status = status_within(20, pid)
    os.close(terminal)

    assert os.waitstatus_to_exitcode(status) == code
    assert run(*PROD, "cat", "db.orders").code == 0


class Quoting(BaseModel):
    """What pydantic calls while it writes it sends this process the signal of `ENDS`, whose end pydantic quotes in an error of its own."""

    @model_serializer
    def sent(self) -> str:
        os.kill(os.getpid(), int(os.environ["ENDS"]))
        # The handler runs at the next step of Python's.
        time.sleep(5)
        return "not ended"


class EndsInPydantic(PyArrowFileIO):
    """Storage at whose first request the process is ended while it writes JSON."""

    def new_input(self, location: str) -> PyArrowFile:
        Quoting().model_dump_json()
        return super().new_input(location)


@pytest.mark.parametrize(("stop", "code", "said"), [(signal.SIGINT, 130, "interrupted"), (signal.SIGTERM, 143, "terminated")])
def test_an_end_that_an_error_quotes_is_the_end_all_the_same(
    stop: signal.Signals, code: int, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ENDS", str(int(stop)))
    # Who runs the tests in the background of a script ignores Ctrl-C, and so does this process.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        done = run(*PROD, "-p", f"py-io-impl={EndsInPydantic.__module__}.{EndsInPydantic.__qualname__}", "cat", "db.orders")
    finally:
        signal.signal(signal.SIGINT, before)

    assert (done.code, done.stderr) == (code, f"tablecrypt: {said}\n")


def test_without_stdin_there_is_no_question() -> None:
    done = in_shell('"$@" <&-', *SHRED)

    assert done.code == 2
    assert "There is no terminal on which to confirm: add --yes" in done.stderr


@pytest.mark.parametrize(("arguments", "closed"), [("list", "2>&-"), ("cat db.orders", ">&-"), ("verify db.orders", ">&- 2>&-")])
def test_a_closed_stream_is_neither_a_bug_nor_a_finding(arguments: str, closed: str) -> None:
    done = in_shell(f'"$@" {closed}', *PROD, *arguments.split())

    assert (done.code, done.stderr) == (0, "")
    assert bool(done.stdout) == (closed == "2>&-")


@pytest.mark.parametrize("arguments", ["verify db.orders", "cat db.orders", "list --json"])
def test_a_pipe_that_nobody_reads_ends_quietly_as_in_other_programs(arguments: str) -> None:
    done = in_shell('"$@" | true; exit ${PIPESTATUS[0]}', *PROD, *arguments.split())

    assert (done.code, done.stderr) == (141, "")


@pytest.mark.parametrize("arguments", ["describe db.nowhere", "verify --no-such-option"])
@pytest.mark.parametrize("line", ['"$@" 2>/dev/full', '"$@" 2>&1 | true; exit ${PIPESTATUS[0]}'])
def test_a_refusal_that_nobody_can_read_is_no_finding(arguments: str, line: str) -> None:
    assert in_shell(line, *PROD, *arguments.split()).code == 2


@pytest.mark.parametrize("written", [("audit", "db.orders", "--html", "page.html"), ("audit", "db.orders", "--bundle", "page.zip")])
def test_a_disk_that_is_full_leaves_no_part_of_a_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, written: tuple[str, ...]) -> None:
    monkeypatch.chdir(tmp_path)
    done = in_shell('ulimit -f 1; "$@"', *PROD, *written)

    # A page goes to where links lead, a bundle to the name that was given.
    place = tmp_path / written[-1] if "--html" in written else written[-1]
    assert (done.code, done.stderr) == (2, f"tablecrypt: File too large: {place}\n")
    assert list(tmp_path.iterdir()) == []


def test_a_page_that_is_replaced_stays_readable_as_its_owner_had_it(tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    (tmp_path / "link.html").symlink_to(page)
    assert run(*PROD, "audit", "db.orders", "--html", str(tmp_path / "link.html")).code == 0
    assert (tmp_path / "link.html").is_symlink()
    assert page.read_text().startswith("<!doctype html>")
    assert run(*PROD, "audit", "db.orders", "--html", "/dev/null").code == 0
    assert not Path("/dev/null").is_file()


@pytest.mark.parametrize("command", ["describe", "verify"])
def test_a_file_in_the_place_of_a_table_is_told_which_commands_take_files(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "rows.parquet").write_bytes(b"PARE")
    monkeypatch.chdir(tmp_path)
    said = {
        "rows.parquet": (
            "rows.parquet is understood as a table: write ./rows.parquet for the file, which cat and inspect take, or --catalog NAME "
            "before the command"
        ),
        "./rows.parquet": "./rows.parquet is a file, which cat, inspect and decrypt-file take: this command takes a table",
    }
    for name, message in said.items():
        done = run(command, name)
        assert (done.code, done.stderr) == (2, f"tablecrypt: {message}\n")


WITHOUT_DRIVERS: Final = "import sys; sys.modules.update(psycopg2=None, psycopg=None); from tablecrypt.cli.main import main; main()"


def test_postgres_without_its_driver_names_the_extra() -> None:
    arguments = [sys.executable, "-c", WITHOUT_DRIVERS, *PROD, "-p", "uri=postgresql://u:secret@localhost/x", "audit"]
    done = subprocess.run(arguments, capture_output=True, text=True, check=False, timeout=100, env=environment())

    assert done.returncode == 2
    assert done.stderr == (
        "tablecrypt: catalog 'prod' is at postgresql:// and needs the package psycopg2. Install tablecrypt again from where "
        'you installed it, with this extra: pip install "…[sql-postgres]"\n'
    )


def test_a_terminal_gets_a_table_in_which_nothing_commands_it() -> None:
    code, shown = run_terminal(*PROD, "cat", "db.people")

    assert code == 0
    assert shown.splitlines() == [
        "id  ssn  home",
        ' 1  111  {"city": "a\\u001b[31m", "zip": 1}',
        f' 2  222  {{"city": "{LONG}'[:99] + "…",
    ]


def test_a_pipe_gets_csv_and_a_table_if_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "30")
    assert run(*PROD, "cat", "db.orders").stdout == '"id","item"\n1,"lamp"\n2,"desk"\n3,\n'
    assert run(*PROD, "cat", "db.orders", "--format", "table").stdout == "id  item\n 1  lamp\n 2  desk\n 3  null\n"
    assert run(*PROD, "cat", "db.orders", "--format", "table", "--where", "id > 9").stdout == "id  item\n"
    assert run(*PROD, "cat", "db.people", "--format", "table").stdout.splitlines()[:2] == [
        "id  ssn  home",
        ' 1  111  {"city": "a\\u001b[31…',
    ]


@pytest.mark.parametrize(
    ("columns", "row"),
    [
        ("*", {"id": 1, "item": "lamp"}),
        ("item,*", {"item": "lamp", "id": 1}),
        ("item,item", {"item": "lamp"}),
        ("home.zip,id", {"home": {"zip": 1}, "id": 1}),
        ("home.zip,home.city", {"home": {"city": "a\x1b[31m", "zip": 1}}),
    ],
)
def test_cat_prints_all_columns_for_a_star_and_fields_of_a_struct_in_their_column(columns: str, row: dict[str, object]) -> None:
    table = "db.people" if "home" in columns else "db.orders"
    done = run(*PROD, "cat", table, "--columns", columns, "--limit", "1", "--json")

    assert (done.code, done.stderr) == (0, "")
    assert list(json.loads(done.stdout).items()) == list(row.items())


def test_more_columns_than_fit_are_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "20")
    assert run(*PROD, "cat", "db.people", "--format", "table", "--limit", "1").stdout.splitlines() == [
        "id    1",
        "ssn   111",
        'home  {"city": "a\\u…',
        "",
    ]


def test_no_rate_is_shown_before_a_second_has_passed() -> None:
    lines = run("--progress", *PROD, "verify", "db.orders").stderr.splitlines()

    assert lines
    assert not [line for line in lines if line.endswith("/s")]
