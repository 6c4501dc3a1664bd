"""The audit's page in a real browser: it fits three widths, light and dark, sorts, filters, prints all, and runs nothing of others."""

from __future__ import annotations

import dataclasses
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from tablecrypt.maintenance import Audit, changes_since
from tablecrypt.maintenance.report import html_page
from tests.maintenance.test_audit_page import EVIL, evil_changes, evil_table
from tests.support.audited_catalog import NOW, audit_a_month_before, audited_catalog, table_audit
from tests.support.browser import DESKTOP, PHONE, TABLET, Browser, sideways_scroll

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = [pytest.mark.browser, pytest.mark.slow]

PAPER: Final = 690
SHOWN_TABLES: Final = "#tables tbody tr:visible th"
OUT_OF_THE_PAGE: Final = """
() => Array.from(document.querySelectorAll("main *, header *, footer *")).filter((each) => {
  const box = each.getBoundingClientRect();
  return box.width > 0 && box.right > document.documentElement.clientWidth + 1 && !each.closest(".unseen, thead, svg");
}).map((each) => each.outerHTML.slice(0, 120))
"""
# WCAG 2.2, 1.4.3: the contrast of each piece of text with what lies behind it.
LOW_CONTRAST: Final = """
() => {
  const canvas = new OffscreenCanvas(1, 1).getContext("2d", { willReadFrequently: true });
  const rgba = (colour) => {
    canvas.clearRect(0, 0, 1, 1); canvas.fillStyle = colour; canvas.fillRect(0, 0, 1, 1);
    return canvas.getImageData(0, 0, 1, 1).data;
  };
  const light = (colour) => {
    const [r, g, b] = Array.from(rgba(colour)).slice(0, 3).map((c) => (c /= 255) <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const behind = (element) => {
    for (let each = element; each; each = each.parentElement) {
      const colour = getComputedStyle(each).backgroundColor;
      if (rgba(colour)[3] > 200) return colour;
    }
    return "white";
  };
  const low = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const element = walker.currentNode.parentElement;
    if (!walker.currentNode.data.trim() || element.closest("script, style, .unseen") || !element.checkVisibility()) continue;
    const [one, two] = [light(getComputedStyle(element).color), light(behind(element))].sort();
    const contrast = (Math.max(one, two) + 0.05) / (Math.min(one, two) + 0.05);
    if (contrast < 4.5) low.push(`${contrast.toFixed(2)} ${element.outerHTML.slice(0, 100)}`);
  }
  return low;
}
"""


@pytest.fixture(scope="module")
def page_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = audited_catalog()
    file = tmp_path_factory.mktemp("audit") / "audit.html"
    file.write_text(html_page(found, changes_since(found, audit_a_month_before())), encoding="utf-8")
    return file


def names(page: Page) -> list[str]:
    return [(each.get_attribute("data-value") or "") for each in page.locator(SHOWN_TABLES).all()]


def unfold(page: Page) -> None:
    page.evaluate("document.querySelectorAll('details').forEach((each) => { each.open = true; })")


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [PHONE, TABLET, DESKTOP], ids=["phone", "tablet", "desktop"])
def test_the_page_fits_and_can_be_read(browser: Browser, page_file: Path, width: int, dark: bool) -> None:
    with browser.open(page_file, width=width, dark=dark) as page:
        unfold(page)

        assert sideways_scroll(page) == 0
        assert page.evaluate(OUT_OF_THE_PAGE) == []
        assert page.evaluate(LOW_CONTRAST) == []


def test_light_and_dark_differ(browser: Browser, page_file: Path) -> None:
    backgrounds = []
    for dark in (False, True):
        with browser.open(page_file, dark=dark) as page:
            backgrounds.append(page.evaluate("getComputedStyle(document.body).backgroundColor"))

    assert len(set(backgrounds)) == 2


def test_contrast_that_is_too_low_is_seen(browser: Browser, page_file: Path, tmp_path: Path) -> None:
    """The measure itself: grey text on the page's grey is found."""
    faint = tmp_path / "faint.html"
    faint.write_text("<!doctype html><body style='background:#eee'><p style='color:#aaa'>faint</p><p style='color:#222'>clear</p>")
    with browser.open(faint) as page:
        low = page.evaluate(LOW_CONTRAST)

    assert len(low) == 1
    assert "faint" in low[0]


def test_a_heading_sorts_up_and_down_by_mouse_and_by_key(browser: Browser, page_file: Path) -> None:
    with browser.open(page_file) as page:
        by_risk = names(page)
        heading = page.locator("#tables th", has=page.get_by_role("button", name="Table"))
        heading.get_by_role("button").click()
        assert names(page) == sorted(by_risk)
        assert heading.get_attribute("aria-sort") == "ascending"

        heading.get_by_role("button").press("Enter")
        assert names(page) == sorted(by_risk, reverse=True)
        assert heading.get_attribute("aria-sort") == "descending"

        page.locator("#tables").get_by_role("button", name="Data").click()
        sizes = [int(each.get_attribute("data-value") or 0) for each in page.locator("#tables tbody td[data-label=Data]").all()]
        assert sizes == sorted(sizes)
        assert len(set(sizes)) > 5

        page.locator("#tables").get_by_role("button", name="Findings").click()
        assert names(page) == by_risk


def test_a_phone_sorts_by_a_list(browser: Browser, page_file: Path) -> None:
    with browser.open(page_file, width=PHONE) as page:
        page.get_by_label("Sort tables by").select_option("Table, descending")

        assert names(page) == sorted(names(page), reverse=True)
        assert page.locator("#tables thead").evaluate("each => each.getBoundingClientRect().height") <= 1


def test_search_and_severities_choose_tables_everywhere_on_the_page(browser: Browser, page_file: Path) -> None:
    with browser.open(page_file) as page:
        everything = names(page)
        page.get_by_role("searchbox").fill("EXPORT-1 region")
        assert names(page) == ["sales.orders"]
        assert page.locator("#details > details:visible").count() == 1
        assert page.locator(".shown").inner_text() == "1 of 9 tables"

        page.get_by_role("searchbox").fill("")
        page.get_by_role("button", name="critical", exact=True).click()
        assert set(names(page)) == {"sales.orders", "hr.candidates"}
        page.get_by_role("button", name="error", exact=True).press("Space")
        assert set(names(page)) == {"sales.orders", "hr.candidates", "hr.reviews"}
        assert page.get_by_role("button", name="error", exact=True).get_attribute("aria-pressed") == "true"

        page.get_by_role("searchbox").fill("no such thing")
        assert names(page) == []
        assert page.locator(".shown").inner_text() == "0 of 9 tables"

        page.get_by_role("searchbox").fill("")
        for severity in ("critical", "error"):
            page.get_by_role("button", name=severity, exact=True).click()
        assert names(page) == everything


def test_whole_ids_are_found_though_they_are_shown_cut(browser: Browser, page_file: Path) -> None:
    kek = next(table for table in audited_catalog().tables if table.table == "web.events").keks[0].key_id
    with browser.open(page_file) as page:
        page.get_by_role("searchbox").fill(kek)

        assert names(page) == ["web.events"]


def test_paper_shows_all_whatever_is_filtered_or_folded(browser: Browser, page_file: Path) -> None:
    with browser.open(page_file, width=PAPER) as page:
        page.get_by_role("searchbox").fill("web.events")
        page.evaluate("dispatchEvent(new Event('beforeprint'))")
        page.emulate_media(media="print")

        assert page.locator(SHOWN_TABLES).count() == 9
        assert page.locator("#details .files tbody tr:visible").count() == page.locator("#details .files tbody tr").count() > 100
        assert page.locator(".toolbar:visible").count() == 0
        assert sideways_scroll(page) == 0
        assert page.evaluate(OUT_OF_THE_PAGE) == []
        page.evaluate("dispatchEvent(new Event('afterprint'))")
        page.emulate_media(media="screen")
        assert page.locator(SHOWN_TABLES).count() == 1
        assert len(page.pdf()) > 50_000


def test_a_link_to_a_folded_table_unfolds_it(browser: Browser, page_file: Path) -> None:
    with browser.open(page_file) as page:
        link = page.locator("#tables").get_by_role("link", name="web.events")
        details = page.locator(str(link.get_attribute("href")))
        assert details.get_attribute("open") is None
        link.press("Enter")
        details.locator("summary ~ *").first.wait_for()  # the browser follows a link when it gets to it

        assert details.get_attribute("open") == ""
        assert page.get_by_text("3 with 141000 bytes").is_visible()


def test_the_keyboard_reaches_the_content_the_search_and_each_table(browser: Browser, page_file: Path) -> None:
    with browser.open(page_file) as page:
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.textContent") == "Skip to the content"
        assert page.locator(".skip").evaluate("each => each.getBoundingClientRect().x") >= 0
        reached = set()
        for _ in range(90):
            page.keyboard.press("Tab")
            reached.add(page.evaluate("document.activeElement.id || document.activeElement.textContent.trim()"))

        assert {"search", "critical", "sales.orders", "hr.candidates", "Findings", "Due"} <= reached


def test_headings_and_tables_have_a_structure_for_readers_that_see_nothing(browser: Browser, page_file: Path) -> None:
    with browser.open(page_file, width=PHONE) as page:
        levels = [int(each.evaluate("each => each.tagName[1]")) for each in page.locator("h1, h2, h3, h4").all()]
        assert levels.count(1) == 1
        assert all(after - before <= 1 for before, after in pairwise(levels))
        # Cells that a narrow screen shows below each other stay cells of a table with headings.
        assert page.locator("#tables").get_by_role("table").count() == 1
        assert page.locator("#tables").get_by_role("row").count() == 10
        assert page.locator("#tables").get_by_role("columnheader").count() == 6
        assert page.locator("#tables").get_by_role("rowheader").count() == 9


def test_without_its_script_the_page_shows_everything(browser: Browser, page_file: Path) -> None:
    with browser.open(page_file, java_script_enabled=False) as page:
        assert page.locator(SHOWN_TABLES).count() == 9
        assert page.locator(".filter:visible").count() == 0


def test_one_table_has_no_filter(browser: Browser, tmp_path: Path) -> None:
    file = tmp_path / "one.html"
    file.write_text(html_page(Audit("lakehouse", False, NOW, (table_audit(),))), encoding="utf-8")
    with browser.open(file) as page:
        assert page.get_by_role("heading", level=1).inner_text() == "sales.orders"
        assert page.locator(".filter:visible").count() == 0


ATTACKS: Final = (
    EVIL,
    "</script><script>window.ran = 1</script>",
    "<!--<script>",
    "<img src=x onerror=window.ran=1>",
    "<svg onload=window.ran=1>",
    '" autofocus onfocus=window.ran=1 x="',
    "javascript:window.ran=1",
    "${window.ran=1}{{constructor.constructor('window.ran=1')()}}",
    "#table-0\"><a href='javascript:window.ran=1'>",
)


def test_a_name_runs_nothing(browser: Browser, tmp_path: Path) -> None:
    """Whoever can create a table chooses its name, and with a file also paths and messages."""
    named = (dataclasses.replace(table_audit(name, key_id=name, partitions=(name,), plain=2), location=name) for name in ATTACKS)
    file = tmp_path / "evil.html"
    file.write_text(html_page(Audit(EVIL, True, NOW, (*named, evil_table())), evil_changes()), encoding="utf-8")
    with browser.open(file, width=PHONE) as page:
        unfold(page)
        page.get_by_role("searchbox").fill("script")
        page.get_by_role("searchbox").fill("")
        page.get_by_label("Sort tables by").select_option("Table, descending")
        for link in page.locator("#tables a").all():
            link.click()
        shown = set(page.locator("#tables tbody th a").all_inner_texts())

        assert page.evaluate("window.ran") is None
        assert page.locator("script").count() == 1
        assert page.locator("img").count() == 0
        assert set(ATTACKS[1:]) <= shown
        assert sideways_scroll(page) == 0


def test_markup_that_got_in_all_the_same_would_run_and_load_nothing(browser: Browser, page_file: Path, tmp_path: Path) -> None:
    """The page's policy alone: the attack is put into the finished page, where nothing escapes it."""
    attack = (
        "<script>window.ran = 1</script><img src='http://127.0.0.1:9/x' onerror='window.ran = 2'>"
        "<style>body { display: none }</style><base href='http://127.0.0.1:9/'><iframe src='data:text/html,x'></iframe>"
    )
    file = tmp_path / "injected.html"
    file.write_text(page_file.read_text(encoding="utf-8").replace("<main ", f"{attack}<main ", 1), encoding="utf-8")
    with browser.open(file, expected=("Content Security Policy", "csp", "http://127.0.0.1:9/", "TrustedHTML")) as page:
        assert page.evaluate("window.ran") is None
        assert page.locator("h1").is_visible()
        assert page.evaluate("document.baseURI").startswith("file:")
        assert (
            page.evaluate("(() => { try { document.body.innerHTML = '<b>x</b>'; return 'made'; } catch (e) { return e.name; } })()")
            == "TypeError"
        )
        assert page.evaluate("document.querySelector('h1') !== null")


def test_hundreds_of_tables_are_filtered_at_once(browser: Browser, tmp_path: Path) -> None:
    tables = tuple(table_audit(f"db.table{each:04}", files=5) for each in range(300))
    file = tmp_path / "many.html"
    file.write_text(html_page(Audit("lakehouse", True, NOW, tables)), encoding="utf-8")
    with browser.open(file) as page:
        page.get_by_role("searchbox").fill("table0042")
        page.locator(".shown", has_text="1 of 300 tables").wait_for()

        assert names(page) == ["db.table0042"]
