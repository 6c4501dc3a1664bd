"""Every command and every program of README.md and docs/ runs as a reader copies it, from a folder that is not the repository.

Each page is read from top to bottom in a prepared scene. What cannot run here is listed with its reason, and what another test runs with
that test. A new block runs too, unless it is listed; an entry that fits nothing any more fails.
"""

from __future__ import annotations

import ast
import re
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import boto3
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import DoubleType, LongType, NestedField, StringType, StructType

from tests.support.aws import AwsServer
from tests.support.page_scene import Scene
from tests.support.pages import DOCS, ROOT, blocks
from tests.support.plaintext import CANARY

PAGES: Final = [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))]

ALONE: Final = {"docs/cli.md", "docs/start/migrate.md"}
"""Pages whose blocks do not follow each other: each begins with the scene as it was."""

PLAIN: Final = {("docs/start/migrate.md", ""), ("docs/cli.md", " migrate ")}
"""Pages, and lines of pages, for a catalog in which db.orders is not encrypted."""

LONG: Final = {"docs/cli.md"}
"""Pages whose blocks take as long as those of all others together."""

ELSEWHERE: Final = {
    "docs/start/aws.md": "tests/test_start_pages.py runs it in an empty folder, with the commands of AWS",
    "docs/start/azure.md": "needs Azure; tests/test_start_pages.py compares its parts",
    "docs/start/gcp.md": "needs Google Cloud; tests/test_start_pages.py compares its parts",
    "docs/start/vault.md": "needs a Vault; tests/test_start_pages.py compares its parts",
    "docs/start/spark.md": "needs Java: tests/spark/test_local_warehouses.py",
    "docs/ray.md": "tests/ray/test_page.py runs it with Ray",
    "docs/daft.md": "tests/engines/test_daft.py runs it with Daft",
    "docs/how-to/test-your-own.md": "tests/testing/test_page.py runs it with pytest",
}
"""Pages that run as a whole in another place, or nowhere."""

LEFT_OUT: Final = {
    ("docs/cli.md", "hadoop-kms --key-file"): "a server that runs until it is stopped: tests/hadoop_kms starts it",
    ("docs/orc-spark.md", "hadoop-kms --key-file"): "a server that runs until it is stopped: tests/hadoop_kms starts it",
    ("docs/orc-spark.md", "HadoopKmsKeys("): "needs that server: tests/hadoop_kms uses it with this client",
    ("docs/orc-spark.md", "tcs.write_orc("): "needs Spark and a key server: tests/spark/orc",
    ("docs/cli.md", "--shared-with 3f0c5a86"): "needs the uuid of a share: tests/maintenance/test_unshare.py takes one",
    ("docs/how-to/share.md", "--shared-with 3f0c5a86"): "the same",
    ("docs/cli.md", "--key-file partner.key"): "names metadata that a share has made: tests/cli/test_sealed_shares.py accepts one",
    ("docs/how-to/share.md", "--key-file partner.key"): "the same",
    ("docs/cli.md", "accept-update db.shared"): "names metadata that a share has made: tests/maintenance/test_share_moves.py moves to one",
    ("docs/how-to/share.md", "accept-update db.shared"): "the same",
    ("docs/cli.md", "completion zsh"): "needs zsh: tests/cli/test_help.py makes it",
    ("docs/cli.md", "activate --yes"): "changes this environment: tests/cli/test_activation.py has one for it",
    ("docs/how-to/configure.md", "activate --yes"): "the same",
    ("docs/cli.md", "spark-jar"): "needs Java: tests/spark/shared makes it",
    ("docs/spark-sql.md", "spark-jar"): "needs Java: tests/spark/shared makes it",
    ("docs/spark-sql.md", 'tcs.catalog(spark, "prod")'): "needs Java: tests/spark/sql",
    ("docs/spark-sql.md", "df.writeTo("): "needs Java: tests/spark/sql",
    ("docs/index.md", "tcs.catalog(spark"): "needs Java: tests/spark/test_local_warehouses.py",
    ("docs/spark.md", "tcs.write_table("): "needs Spark: tests/spark",
    ("docs/spark.md", "tcs.compact("): "needs Spark: tests/spark",
}
"""Lines of commands, and programs, that do not run here. The text is a part of the line or of the program."""

SHELL: Final = {"cp", "mkdir", "rm"}
"""What runs beside tablecrypt."""

OTHER_PROGRAMS: Final = {
    "pip": "tests/security/test_supply_chain.py installs the wheel",
    "make": "tests/test_readme.py looks for the targets",
    "python": "needs Hive, or takes minutes",
    "aws": "tests/test_start_pages.py",
    "az": "needs Azure",
    "gcloud": "needs Google Cloud",
    "vault": "needs a Vault",
    "spark-sql": "needs Spark",
    "cat": "shows a file",
    "gh": "asks the service that keeps the attestations",
    "git": "tags and clones a release",
    "sha256sum": "checks a release: tests/test_release.py",
}
"""What begins a line in a block of commands beside tablecrypt, and why it is left out."""

IN_THE_LAKE: Final = {"docs/how-to/restore.md"}
"""Pages whose reader stands in the folder that holds the catalog's folder."""

CODES: Final = {
    ("docs/how-to/after-a-leak.md", "kms.local.key-file=leaked.keys"): 2,
    ("docs/how-to/restore.md", "encryption.pins=pins.json cat"): 2,
    ("docs/how-to/restore.md", "prod cat db.orders"): 2,
    ("docs/cli.md", "shred db.orders --snapshot 4358109269873137077 --snapshot 71"): 1,  # live snapshots share all files of the two
    ("docs/cli.md", "--all-but-heads --replace-heads --yes"): 1,  # the same of all
    ("docs/how-to/share.md", "--all-but-heads --replace-heads --yes"): 1,  # the same, since the re-encryption before it is left out
}
"""Commands that end otherwise than with 0."""

_SHARE: Final = "tablecrypt --catalog prod share db.orders --to alias/partner --location s3://partner/orders"
BEFORE: Final = {
    ("README.md", "keygen --key-file orders.keys"): "rm orders.keys",
    ("docs/index.md", "keygen --key-file orders.keys"): "rm orders.keys",
    ("docs/start/sql-catalog.md", "keygen --key-file orders.keys"): "rm orders.keys",
    ("docs/how-to/after-a-leak.md", "without-older.keys verify"): "cp ~/prod.keys without-older.keys",
    ("docs/cli.md", "--since may.json"): "tablecrypt --catalog prod audit --json > may.json",
    ("docs/cli.md", "--new-version"): "tablecrypt keygen --key-file ~/orders.keys --key-id orders",
    ("docs/cli.md", "share db.orders s3://partner/orders"): _SHARE,
    ("docs/cli.md", "s3://partner/orders --update"): _SHARE,
    ("docs/cli.md", "decrypt-file rows.enc.parquet"): "rm rows.parquet",
    ("docs/cli.md", "encrypt-file rows.parquet"): "rm rows.enc.parquet*",
    ("docs/cli.md", "| tablecrypt encrypt-file"): "rm dump.sql.ags1*",
    (
        "docs/cli.md",
        "--key-file k.json --roll",
    ): "tablecrypt -p encryption.kms-type=aws hadoop-kms-key pii --key-file k.json --master-key alias/orc",
}
"""Lines that follow another line of their reader."""


_IMPORTS: Final = re.compile(r"(from [\w.]+ )?import [\w.]+( as \w+)?\n")
"""How a program begins, also in a block that is not highlighted as one."""


@dataclass(frozen=True)
class Block:
    """One fenced block of a page, or a command within a sentence."""

    page: str
    language: str
    text: str

    @property
    def lines(self) -> list[str]:
        """The command lines of a block of commands; none for a block of something else."""
        lines = [line.strip() for line in self.text.replace("\\\n", " ").splitlines() if line.strip()]
        if any(line.startswith("$ ") for line in lines):  # what stands between the prompts is what the commands print
            lines = [line.removeprefix("$ ") for line in lines if line.startswith("$ ")]
        is_shell = self.language == "sh" or (not self.is_python and any(_program(line) == "tablecrypt" for line in lines))
        return [line for line in lines if not line.startswith("#")] if is_shell and "[OPTIONS]" not in self.text else []

    @property
    def is_python(self) -> bool:
        """Whether it is a program."""
        if self.language not in {"python", "text"}:
            return False
        try:
            return any(isinstance(node, ast.Call) for node in ast.walk(ast.parse(self.text)))
        except SyntaxError:
            assert self.language == "text" and not _IMPORTS.match(self.text), f"{self.page}: no Python:\n{self.text}"
            return False


def _program(line: str) -> str:
    """The program that a line runs; tablecrypt where it has a part in the line."""
    return "tablecrypt" if re.search(r"(^|[|(] ?)tablecrypt ", line) else line.split(maxsplit=1)[0]


def _name(page: Path) -> str:
    return str(page.relative_to(ROOT))


def _blocks(page: Path) -> list[Block]:
    name, text = _name(page), page.read_text(encoding="utf-8")
    return [Block(name, language, content) for language, content in blocks(text)]


def _inline(page: Path) -> Iterator[str]:
    """Commands in sentences and tables. A name alone (`tablecrypt cat`) names a command, and one with … shows a form."""
    for text in re.findall(r"`(tablecrypt [^`\n]+)`", page.read_text(encoding="utf-8")):
        words = text.split()
        if len(words) > 2 and "…" not in text:
            yield text


def _is_listed(table: Any, page: str, text: str) -> bool:
    return any(page == listed and part in text for listed, part in table)


@pytest.fixture(scope="module")
def scenes(aws: AwsServer, tmp_path_factory: pytest.TempPathFactory) -> dict[bool, Scene]:
    """The scene with plain tables, and the one without."""
    for region, alias in (
        ("eu-central-1", "alias/orders"),
        ("us-east-1", "alias/orc"),
        ("us-east-1", "alias/files"),
        ("us-east-1", "alias/pii"),
    ):
        kms = boto3.client("kms", endpoint_url=aws.endpoint, region_name=region)
        if alias not in {each["AliasName"] for each in kms.list_aliases()["Aliases"]}:
            kms.create_alias(AliasName=alias, TargetKeyId=kms.create_key()["KeyMetadata"]["KeyId"])
    return {plain: Scene(tmp_path_factory.mktemp("pages") / "root", aws, plain=plain) for plain in (False, True)}


def _run_command(scene: Scene, page: str, line: str) -> None:
    if _is_listed(LEFT_OUT, page, line):
        return
    program = _program(line)
    if program in SHELL:
        subprocess.run(["bash", "-euc", line], check=True, capture_output=True)
    elif program != "tablecrypt":
        assert program in OTHER_PROGRAMS, f"{page}: {line}: neither runs here nor is listed"
    if program != "tablecrypt":
        return
    for (listed, part), before in BEFORE.items():
        if page == listed and part in line:
            subprocess.run(["bash", "-euc", before], check=True, capture_output=True)
    done = scene.command(line)
    expected = next((code for (listed, part), code in CODES.items() if page == listed and part in line), 0)
    assert done.code == expected, f"{page}: {line}\n{done.stdout}{done.stderr}"


@pytest.mark.parametrize(
    "page", [pytest.param(page, id=_name(page), marks=pytest.mark.slow if _name(page) in LONG else ()) for page in PAGES]
)
def test_the_blocks_of_a_page_run_as_a_reader_copies_them(
    page: Path, scenes: dict[bool, Scene], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    name = _name(page)
    if name in ELSEWHERE:
        return
    names: dict[str, Any] = {}
    entered = None
    for block in _blocks(page):
        if not block.lines and not block.is_python:
            continue
        scene = scenes[_is_listed(PLAIN, name, block.text)]
        if scene is not entered or name in ALONE:
            scene.enter(monkeypatch)
            if name in IN_THE_LAKE:
                monkeypatch.chdir(scene.root)
            entered, names = scene, {}
        for line in block.lines:
            _run_command(scene, name, line)
        if block.is_python and not _is_listed(LEFT_OUT, name, block.text):
            names = names or scene.names()
            _given(name, block.text)(names)
            exec(compile(block.text, name, "exec"), names)


@pytest.mark.parametrize("page", PAGES, ids=_name)
def test_a_command_within_a_sentence_runs_as_it_stands(page: Path, scenes: dict[bool, Scene], monkeypatch: pytest.MonkeyPatch) -> None:
    for line in _inline(page):
        scenes[False].enter(monkeypatch)
        _run_command(scenes[False], _name(page), line)


def test_what_is_listed_is_there() -> None:
    everything = [(_name(page), page.read_text(encoding="utf-8").replace("\\\n", " ")) for page in PAGES]
    listed = [*PLAIN, *LEFT_OUT, *CODES, *BEFORE, *GIVEN, *((page, "") for page in (*ELSEWHERE, *ALONE, *IN_THE_LAKE))]

    assert [entry for entry in listed if not any(entry[0] == page and entry[1] in text for page, text in everything)] == []


@pytest.mark.parametrize(
    "text",
    [
        "tablecrypt audit db.orders",
        "tablecrypt --catalog prod audit db.nothing",
        "psql orders",
        "tablecrypt --catalog prod cat db.orders | grep -q 7x",
    ],
)
def test_a_line_that_would_not_work_for_a_reader_fails(text: str, scenes: dict[bool, Scene], monkeypatch: pytest.MonkeyPatch) -> None:
    scenes[False].enter(monkeypatch)
    with pytest.raises(AssertionError, match=re.escape(text)):
        _run_command(scenes[False], "docs/new.md", text)


def _key_files(names: dict[str, Any]) -> None:
    rows = pa.table({"name": [CANARY], "ssn": [CANARY]})
    names |= {"key": bytes(range(16)), "another": bytes(range(1, 17)), "rows": rows}


def _people(names: dict[str, Any]) -> None:
    names["catalog"].drop_table("db.people")
    person = StructType(NestedField(5, "name", StringType()), NestedField(6, "email", StringType()))
    names["schema"] = Schema(
        NestedField(1, "id", LongType()),
        NestedField(2, "ssn", StringType()),
        NestedField(3, "salary", DoubleType()),
        NestedField(4, "person", person),
    )
    one = {"id": 1, "ssn": f"{CANARY} 1", "salary": 1.0, "person": {"name": CANARY, "email": CANARY}}
    names["rows"] = pa.Table.from_pylist([one], schema=names["schema"].as_arrow())


def _customers(names: dict[str, Any]) -> None:
    names["schema"] = Schema(NestedField(1, "id", LongType()))


def _no_orders(names: dict[str, Any]) -> None:
    names["catalog"].drop_table("db.orders")


def _deleted(names: dict[str, Any]) -> None:
    names["table"].delete("id = 3")


def _two_tables(names: dict[str, Any]) -> None:
    _no_orders(names)
    tables = {"orders": {"customer": [1], "amount": [2]}, "customers": {"id": [1], "country": [CANARY]}}
    for name, columns in tables.items():
        rows = pa.table(columns)
        names["catalog"].create_table(f"db.{name}", rows.schema, properties={"encryption.key-id": "orders"}).append(rows)


def _orc_keys(names: dict[str, Any]) -> None:
    people = pa.table({"name": [CANARY], "ssn": [CANARY], "email": [CANARY], "home": [{"zip": CANARY}]})
    names |= {
        "key_2025": bytes(range(16)),
        "key_2026": bytes(range(1, 17)),
        "integrity_key": bytes(range(2, 18)),
        "hash_key": bytes(range(32)),
        "people": people,
    }


def _parquet_keys(names: dict[str, Any]) -> None:
    people = pa.table({"name": [CANARY], "age": [41], "ssn": [CANARY], "address": [{"zip": CANARY}]})
    pq.write_table(people, "plain.parquet")
    names |= {f"k{each}": bytes(range(each, each + 16)) for each in range(3)} | {"people": people}


def _ssn_and_email(names: dict[str, Any]) -> None:
    names["rows"] = pa.table({"ssn": [CANARY], "email": [CANARY]})


GIVEN: Final[dict[tuple[str, str], Callable[[dict[str, Any]], None]]] = {
    ("README.md", "parquet.FileKeys("): _key_files,
    ("docs/column-keys.md", 'create_table("db.people"'): _people,
    ("docs/column-keys.md", "encryption.column-tags"): _customers,
    ("docs/how-to/create.md", "create_table("): _no_orders,
    ("docs/how-to/erase.md", "m.shred("): _deleted,
    ("docs/interop.md", "duckdb.connect("): _two_tables,
    ("docs/orc.md", "orc.LocalKeys("): _orc_keys,
    ("docs/parquet.md", "parquet.FileKeys("): _parquet_keys,
    ("docs/parquet.md", "PropertiesDrivenCryptoFactory("): _ssn_and_email,
}
"""What programs take for granted that their page does not make: schemas, rows, keys."""


def _given(page: str, text: str) -> Callable[[dict[str, Any]], None]:
    return next((given for (listed, part), given in GIVEN.items() if page == listed and part in text), lambda names: None)
