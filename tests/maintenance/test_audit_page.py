"""The audit's HTML page: well formed, self-contained, without room for others' markup, and it shows what was found."""

from __future__ import annotations

import dataclasses
import datetime as dt
import re
import subprocess
import sys
import unicodedata
from html.parser import HTMLParser
from xml.etree import ElementTree

import pytest

from tablecrypt.maintenance import Audit, Finding, FindingKind, TableAudit
from tablecrypt.maintenance._audit import AuditedFile, AuditedKek, Coverage
from tablecrypt.maintenance._audit.file_signatures import Signature
from tablecrypt.maintenance.report import html_page

NOW = dt.datetime(2026, 5, 4, 3, 2, tzinfo=dt.UTC)
VOID = {"meta", "br", "rect", "path"}
EVIL = '<script>alert("x")</script><img src=x onerror=y>\'"&{{ 7 * 191 }}\x1b[2J\u202e'


def table(name: str = "db.orders", **changes: object) -> TableAudit:
    keks = (
        AuditedKek("AAAAAAAAAAAAAAAAAAAAAA==", "alias/orders", NOW - dt.timedelta(days=900), 16, False, 2, 4, 9),
        AuditedKek("BBBBBBBBBBBBBBBBBBBBBB==", "alias/orders", NOW - dt.timedelta(days=3), 32, True, 1, 5, 12),
        AuditedKek("CCCCCCCCCCCCCCCCCCCCCC==", "alias/other", None, None, False, 0, 0, 0),
    )
    encrypted = AuditedFile("s3://b/a.parquet", "data", Signature.PARQUET, 16, ("AAAAAAAAAAAAAAAAAAAAAA==",), 2000, NOW, "region=north")
    plain = AuditedFile("s3://b/b.parquet", "data", Signature.PLAINTEXT, None, (), 6000, NOW, "region=south")
    made = TableAudit(
        table=name,
        location="s3://b",
        metadata_location="s3://b/metadata/1.metadata.json",
        key_id="alias/orders",
        data_key_length=16,
        snapshots=3,
        keks=keks,
        files=(encrypted, plain),
        partitions=(Coverage("region=north", 1, 1, 2000, 2000), Coverage("region=south", 4, 3, 8000, 2000)),
        findings=(Finding(FindingKind.PLAINTEXT_FILE, "s3://b/b.parquet", "begins as plaintext"),),
    )
    return dataclasses.replace(made, **changes)  # type: ignore[arg-type]


class Page(HTMLParser):
    """Checks that tags are closed in order, and gathers what is there."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open, f"</{tag}> closes nothing"
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text.append(data)


@pytest.fixture
def page() -> Page:
    return Page(html_page(Audit(NOW, (table(),))))


def test_the_page_is_well_formed(page: Page) -> None:
    assert page.open == []
    assert len({attributes["id"] for _, attributes in page.tags if "id" in attributes}) == sum("id" in each for _, each in page.tags)


def test_the_page_loads_nothing_and_runs_nothing(page: Page) -> None:
    names = {tag for tag, _ in page.tags}
    attributes = {name for _, each in page.tags for name in each}

    assert not names & {"script", "link", "img", "iframe", "object", "embed", "form", "base"}
    assert not attributes & {"src", "srcset", "data", "action"}
    assert not [name for name in attributes if name.startswith("on")]
    assert not re.search(r"url\(|@import|https?:", html_page(Audit(NOW, (table(),))))
    policy = next(each["content"] for tag, each in page.tags if tag == "meta" and each.get("http-equiv") == "Content-Security-Policy")
    assert policy == "default-src 'none'; style-src 'unsafe-inline'"


def test_links_lead_to_places_on_the_page() -> None:
    page = Page(html_page(Audit(NOW, (table(), table("db.people")))))
    places = {f"#{each['id']}" for _, each in page.tags if "id" in each}

    assert {each["href"] for tag, each in page.tags if tag == "a"} <= places


def test_names_of_others_are_never_markup() -> None:
    evil = table(
        EVIL,
        location=EVIL,
        metadata_location=EVIL,
        key_id=EVIL,
        keks=(AuditedKek(EVIL, EVIL, NOW, 16, True, 1, 1, 1),),
        files=(AuditedFile(EVIL, EVIL, Signature.PLAINTEXT, None, (EVIL,), 1, NOW, EVIL),),
        partitions=(Coverage(EVIL, 1, 0, 1, 0),),
        findings=(Finding(FindingKind.PLAINTEXT_FILE, EVIL, EVIL),),
    )
    text = html_page(Audit(NOW, (evil, evil)))
    page = Page(text)

    assert page.open == []
    assert not {tag for tag, _ in page.tags} & {"script", "img"}
    assert not any(unicodedata.category(each) in ("Cc", "Cf") for each in text if each != "\n")
    assert "1337" not in text
    assert {"\\x1b", "\\u202e"} <= set(re.findall(r"\\x1b|\\u202e", text))


@pytest.mark.slow
def test_without_jinja_the_extra_is_named() -> None:
    code = (
        "import sys; sys.modules['jinja2'] = None\n"
        "import datetime as dt\n"
        "from tablecrypt.maintenance import Audit\n"
        "from tablecrypt.maintenance.report import html_page\n"
        "html_page(Audit(dt.datetime.now(dt.UTC), ()))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=120)

    assert done.stderr.splitlines()[-1].endswith('needs the package Jinja2: pip install "tablecrypt[report]"')


def test_the_key_tree_is_drawn_with_its_counts(page: Page) -> None:
    text = html_page(Audit(NOW, (table(),)))
    drawing = ElementTree.fromstring(re.search(r"<svg.*?</svg>", text, re.DOTALL)[0])  # type: ignore[index]
    counts = [each.text for each in drawing.iter("text") if each.get("class") == "count"]

    assert {("2", "4", "9"), ("1", "5", "12"), ("0", "0", "0"), ("0", "0", "1")} == {
        tuple(counts[at : at + 3]) for at in range(0, len(counts), 3)
    }
    assert drawing.get("role") == "img"
    shown = " ".join(each.text or "" for each in drawing.iter("text"))
    assert "wraps new keys" in shown
    assert "900 days old" in shown
    assert "not the table's key" in shown


def test_each_partition_has_a_bar_as_long_as_its_share(page: Page) -> None:
    bars = [each["style"] for tag, each in page.tags if tag == "i"]

    assert bars == ["width:25.00%", "width:100.00%"]
    assert [each["aria-label"] for _, each in page.tags if each.get("class") == "bar"] == [
        "25.0% of region=south is encrypted",
        "100% of region=north is encrypted",
    ]


def test_the_verdict_says_the_gravest(page: Page) -> None:
    def verdict(*kinds: FindingKind) -> str:
        text = html_page(Audit(NOW, (table(findings=tuple(Finding(kind, "here", "so") for kind in kinds)),)))
        return re.search(r'class="verdict \w+" role="status">([^<]*)<', text)[1]  # type: ignore[index]

    assert verdict() == "No plaintext was found."
    assert verdict(FindingKind.UNUSED_KEY) == "No plaintext was found."
    assert verdict(FindingKind.PINS_MISSING).startswith("No plaintext was found. Some")
    assert verdict(FindingKind.MISSING_FILE).startswith("No plaintext was found, but")
    assert verdict(FindingKind.MISSING_FILE, FindingKind.PLAINTEXT_FILE) == "Plaintext was found."


def test_many_findings_partitions_and_files_are_cut_short() -> None:
    file = table().files[0]
    many = table(
        files=tuple(dataclasses.replace(file, location=f"s3://b/{each}") for each in range(5000)),
        partitions=tuple(Coverage(f"day={each}", 1, 1, 1, 1) for each in range(5000)),
        findings=tuple(Finding(FindingKind.PLAINTEXT_FILE, f"s3://b/{each}", "so") for each in range(5000)),
    )
    text = html_page(Audit(NOW, (many,)))

    assert len(text) < 2_000_000
    assert "4,940 more partitions are encrypted whole" in text
    assert "and 4,960 more" in text


def test_a_table_that_could_not_be_loaded_and_an_empty_one_have_a_section() -> None:
    refused = TableAudit("db.x", "", "", None, None, 0, (), (), (), (Finding(FindingKind.REFUSED_TABLE, "db.x", "why"),))
    empty = table(keks=(), files=(), partitions=(), findings=(), snapshots=0)
    page = Page(html_page(Audit(NOW, (refused, empty))))

    assert page.open == []
    assert "Nothing was found." in page.text
