"""The audit's HTML page: well formed, self-contained, without room for others' markup, and it says what was found."""

from __future__ import annotations

import base64
import dataclasses
import datetime as dt
import hashlib
import re
import subprocess
import sys
import unicodedata
from html.parser import HTMLParser

import pytest

from tablecrypt.maintenance import Audit, AuditChanges, Finding, FindingKind, TableAudit, changes_since
from tablecrypt.maintenance._audit import AuditedFile, AuditedKek, AuditedSnapshot, Coverage
from tablecrypt.maintenance._audit.changes import ChangedFinding, TableChangeKind, TableChanges
from tablecrypt.maintenance._audit.file_signatures import Signature
from tablecrypt.maintenance.report import html_page
from tests.support.audited_catalog import NOW, audit_a_month_before, audited_catalog, table_audit, unloaded

VOID = {"meta", "br", "rect", "path", "input"}
EVIL = '<script>alert("x")</script></style><img src=x onerror=y>\'"&{{ 7 * 191 }}\x1b[2J\u202e'


def audit_of(*tables: TableAudit) -> Audit:
    return Audit("lakehouse", True, NOW, tables)


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
        self.text.append(" ")
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        self.text.append(" ")
        assert self.open, f"</{tag}> closes nothing"
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if not {"script", "style"} & set(self.open):
            self.text.append(data)

    @property
    def shown(self) -> str:
        return re.sub(r"\s+", " ", "".join(self.text))


def evil_table() -> TableAudit:
    made = AuditedSnapshot(1, NOW, True, EVIL, (EVIL,))
    return TableAudit(
        table=EVIL,
        location=EVIL,
        metadata_location=EVIL,
        key_id=EVIL,
        data_key_length=16,
        kek_lifespan=dt.timedelta(days=730),
        snapshots=(made,),
        keks=(AuditedKek(EVIL, EVIL, NOW, 16, True, 1, 1, 1),),
        files=(AuditedFile(EVIL, EVIL, Signature.PLAINTEXT, None, (EVIL,), 1, NOW, EVIL),),
        partitions=(Coverage(EVIL, 1, 0, 1, 0),),
        findings=tuple(Finding(kind, EVIL, EVIL) for kind in FindingKind),
    )


def evil_changes() -> AuditChanges:
    finding = ChangedFinding(EVIL, "critical", EVIL, EVIL, EVIL)
    states = ((EVIL, TableChangeKind.CHANGED), (f"{EVIL} gone", TableChangeKind.GONE))
    return AuditChanges(
        NOW, tuple(TableChanges(name, state, (finding,), (finding,), (finding,), (EVIL,), 1.0, 0.5) for name, state in states)
    )


@pytest.fixture(scope="module")
def text() -> str:
    found = audited_catalog()
    return html_page(found, changes_since(found, audit_a_month_before()))


def test_the_page_is_well_formed(text: str) -> None:
    page = Page(text)
    ids = [attributes["id"] for _, attributes in page.tags if "id" in attributes]

    assert page.open == []
    assert len(set(ids)) == len(ids)


def test_the_same_audit_makes_the_same_page(text: str) -> None:
    found = audited_catalog()

    assert html_page(found, changes_since(found, audit_a_month_before())) == text


def test_the_page_loads_nothing_and_only_its_own_style_and_script_have_a_hash_in_its_policy(text: str) -> None:
    page = Page(text)
    attributes = {name for _, each in page.tags for name in each}

    assert not {tag for tag, _ in page.tags} & {"link", "img", "iframe", "object", "embed", "form", "base"}
    assert not attributes & {"src", "srcset", "data", "action", "style"}
    assert not [name for name in attributes if name.startswith("on")]
    assert not re.search(r"url\(|@import|https?:|innerHTML|eval\(|fetch\(", text)
    policy = next(each["content"] for tag, each in page.tags if tag == "meta" and each.get("http-equiv") == "Content-Security-Policy") or ""
    assert policy.startswith("default-src 'none'; ")
    for tag in ("style", "script"):
        (inline,) = re.findall(rf"<{tag}>(.*?)</{tag}>", text, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(inline.encode()).digest()).decode()
        assert f"{tag}-src 'sha256-{digest}';" in policy


def test_links_lead_to_places_on_the_page(text: str) -> None:
    page = Page(text)
    places = {f"#{each['id']}" for _, each in page.tags if "id" in each}
    links = {each["href"] for tag, each in page.tags if tag == "a"}

    assert links <= places
    assert "#table-0" in links


def test_names_of_others_are_never_markup() -> None:
    text = html_page(audit_of(evil_table(), evil_table()), evil_changes())
    page = Page(text)

    assert page.open == []
    assert [tag for tag, _ in page.tags].count("script") == 1
    assert "img" not in {tag for tag, _ in page.tags}
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
        "html_page(Audit('c', True, dt.datetime.now(dt.UTC), ()))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=120)

    assert done.stderr.splitlines()[-1].endswith('pip install "…[report]"')


def test_the_verdict_says_the_gravest() -> None:
    def verdict(*kinds: FindingKind) -> str:
        text = html_page(audit_of(table_audit(findings=tuple(Finding(kind, "here", "so") for kind in kinds)), table_audit("db.other")))
        return re.search(r'aria-hidden="true">[!✓]</span>(.*?)</p>', text)[1]  # type: ignore[index]

    assert verdict() == "No plaintext was found."
    assert verdict(FindingKind.UNUSED_KEY) == "No plaintext was found."
    assert verdict(FindingKind.PINS_MISSING) == "No plaintext was found, but there are warnings in 1 of 2 tables."
    assert verdict(FindingKind.MISSING_FILE) == "No plaintext was found, but there are errors in 1 of 2 tables."
    assert verdict(FindingKind.REUSED_KEY) == "No plaintext was found, but there are critical findings in 1 of 2 tables."
    assert verdict(FindingKind.REUSED_KEY, FindingKind.PLAINTEXT_FILE) == "Plaintext was found in 1 of 2 tables."
    assert verdict(FindingKind.MISSING_FILE, FindingKind.PLAINTEXT_FILE) == "Plaintext was found in 1 of 2 tables."


def test_the_verdict_counts_tables_with_plaintext_alone() -> None:
    other = table_audit("db.other", findings=(Finding(FindingKind.REUSED_KEY, "here", "so"),))

    assert "Plaintext was found in 1 of 2 tables." in Page(html_page(audit_of(table_audit(plain=1), other))).shown


def test_what_is_not_whole_never_looks_whole() -> None:
    almost = dataclasses.replace(table_audit(partitions=()), partitions=(Coverage("", 2, 1, 10**9, 10**9 - 1),))
    shown = Page(html_page(audit_of(almost))).shown

    assert "99.9%" in shown
    assert "100%" not in shown


def test_keys_in_the_clear_count_as_readable() -> None:
    """A manifest that is plaintext names keys: the files below it are ciphertext, and open to whoever reads the storage."""
    table = table_audit(files=1, partitions=("",))
    opened = dataclasses.replace(table, files=tuple(dataclasses.replace(file, keks=(), has_open_key=True) for file in table.files))
    shown = Page(html_page(audit_of(opened))).shown

    assert "Data keys in the clear 2 files, 48 MB" in shown
    assert "PARE, key in the clear" in shown
    assert "Readable without a key 2 files" in shown


def test_a_missing_file_is_not_readable() -> None:
    table = table_audit(files=1, partitions=("",))
    lost = dataclasses.replace(table, files=tuple(dataclasses.replace(file, signature=Signature.MISSING) for file in table.files))

    assert "Readable without a key 0 files" in Page(html_page(audit_of(lost))).shown


def test_the_key_tree_goes_from_master_key_to_snapshots(text: str) -> None:
    shown = Page(text).shown

    assert "Master key alias/people Whoever may unwrap with this key, and can read the storage, can read 2 tables, 2.06 GB." in shown
    assert "No key Whoever can read the storage can read 1 table, 155 MB. hr.candidates 5 files" in shown
    assert re.search(r"KEK \S{12}… opens older snapshots 3 manifest lists 6 manifests 10 files 3 snapshots", shown)
    assert re.search(r"\d{13} \d{4}-\d\d-\d\d 03:02 main", shown)


def test_a_key_that_another_master_key_wraps_is_shown_below_that_one() -> None:
    table = table_audit(ages=(3, 9))
    foreign = dataclasses.replace(table, keks=(table.keks[0], dataclasses.replace(table.keks[1], encrypted_by_id="alias/other")))

    assert "Master key alias/other" in Page(html_page(audit_of(foreign))).shown
    assert "not the master key of the table" in Page(html_page(audit_of(foreign))).shown


def test_every_key_has_its_age_beside_its_period(text: str) -> None:
    shown = Page(text).shown

    assert "wraps new keys, near its end 700 days wraps for 730 days, opens for 1,825 days 2026-06-03" in shown
    assert "wraps new keys 12 days wraps for 365 days, opens for 1,460 days 2027-04-22" in shown
    assert "past its life, still needed 1,900 days wraps for 730 days, opens for 1,825 days 2026-02-18 overdue" in shown
    assert "86 data keys iot.readings past its life 1,900 days opens for 1,825 days" in shown


def test_a_kek_without_a_credible_date_is_no_reason_to_fail() -> None:
    table = table_audit()
    shown = Page(html_page(audit_of(dataclasses.replace(table, keks=(dataclasses.replace(table.keks[0], created=None),))))).shown

    assert "date is not credible unknown" in shown


def test_many_findings_partitions_files_and_snapshots_are_cut_short() -> None:
    table = table_audit()
    kek = table.keks[0].key_id
    many = dataclasses.replace(
        table,
        files=tuple(dataclasses.replace(table.files[0], location=f"s3://b/{each}") for each in range(20_000)),
        partitions=tuple(Coverage(f"day={each}", 1, 1, 1, 1) for each in range(5000)),
        snapshots=tuple(AuditedSnapshot(each, NOW, True, kek, ()) for each in range(5000)),
        findings=tuple(Finding(FindingKind.PLAINTEXT_FILE, f"s3://b/{each}", "so") for each in range(5000)),
    )
    text = html_page(audit_of(many))
    shown = Page(text).shown

    assert len(text) < 4_000_000
    assert "4,940 more partitions are wholly encrypted." in shown
    assert "and 4,960 more: the JSON report names all" in shown
    assert "and 15,000 more: the JSON report names all" in shown
    assert "and 4,980 older" in shown


def test_plaintext_files_come_before_those_that_are_cut_off() -> None:
    table = table_audit(files=6000, plain=1, partitions=("",))

    assert "export-0.parquet data plaintext" in Page(html_page(audit_of(table))).shown


@pytest.mark.parametrize("moment", [dt.datetime.min, dt.datetime.max], ids=["the first", "the last"])
def test_a_table_whose_dates_are_at_the_ends_of_the_calendar_has_a_page(moment: dt.datetime) -> None:
    table, made = table_audit(), moment.replace(tzinfo=dt.UTC)
    keks = tuple(dataclasses.replace(kek, created=made) for kek in table.keks)
    files = tuple(dataclasses.replace(file, written=made) for file in table.files)

    page = Page(html_page(audit_of(dataclasses.replace(table, keks=keks, files=files))))

    assert page.open == []
    assert table.table in page.shown


def test_a_table_that_could_not_be_loaded_an_empty_one_and_an_empty_catalog_have_a_page() -> None:
    refused = unloaded("db.x", FindingKind.REFUSED_TABLE, "why")
    empty = dataclasses.replace(table_audit(), keks=(), files=(), partitions=(), findings=(), snapshots=())
    page = Page(html_page(audit_of(refused, empty)))

    assert page.open == []
    assert "Nothing was found." in page.shown
    assert "Tables not looked into 1 table" in page.shown
    assert "There are no tables." in Page(html_page(audit_of())).shown


def test_changes_are_told_table_by_table(text: str) -> None:
    shown = Page(text).shown

    assert "Changes since 2026-04-04 2 new and 1 resolved findings." in shown
    assert "archive.logs no longer in the catalog" in shown
    assert "sales.returns new table" in shown
    assert "sales.orders encrypted 100% → 94.8%" in shown
    assert re.search(r"Key KEK \S{24} is new\.", shown)
    assert "Resolved File is missing: s3://lakehouse/sales/orders/data/region=south/00003-3-f00d.parquet" in shown


def test_without_an_earlier_audit_the_page_says_how_to_have_one() -> None:
    assert "--since" in Page(html_page(audited_catalog())).shown
    assert "Changes since" not in Page(html_page(audited_catalog())).shown


def test_a_protected_column_under_the_tables_key_is_an_exposure_and_no_plaintext() -> None:
    twice = (Finding(FindingKind.COLUMN_EXPOSED, "ssn", "in files"), Finding(FindingKind.COLUMN_EXPOSED, "ssn", "in manifests"))
    shown = Page(html_page(audit_of(table_audit(findings=twice)))).shown

    assert "No plaintext was found, but there are critical findings." in shown
    assert "Protected columns under the table’s key 1 column" in shown
