"""The documentation site that `make docs` built: it works in a browser, from a disk and from a server, and needs nothing from outside."""

from __future__ import annotations

import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

import pytest

from tests.support.browser import DESKTOP, LAPTOP, PHONE, Browser, served, sideways_scroll
from tests.support.selection import need

pytestmark = pytest.mark.browser

ROOT: Final = Path(__file__).parents[1]
SITE: Final = ROOT / "build" / "site"
SCREENSHOTS: Final = ROOT / "build" / "screenshots"
AUDIT_STYLE: Final = ROOT / "tablecrypt" / "maintenance" / "report" / "style.css"
CUT_BLOCKS: Final = """() => [...document.querySelectorAll("pre")].filter(block => block.checkVisibility()).flatMap(block => {
    const code = block.querySelector("code") ?? block, wide = [block, code].some(each => each.scrollWidth > each.clientWidth);
    const height = code.offsetHeight;
    code.style.whiteSpace = "pre";
    const breaks = !code.querySelector(".kn") && /[│└├▼]/.test(code.textContent) && code.offsetHeight < height;
    code.style.whiteSpace = "";
    return wide || breaks ? [(wide ? "cut: " : "a drawing breaks: ") + code.textContent.slice(0, 80)] : [];
})"""
"""Blocks of which something is out of sight, and drawings (not programs, which import) with a line that goes on below itself."""
SILENT_DRAWINGS: Final = """() => [...document.querySelectorAll("article p:has(> img)")].filter(drawing =>
    drawing.scrollWidth > drawing.clientWidth && !getComputedStyle(drawing, "::after").content.includes("scroll")).length"""


class _Page(HTMLParser):
    """The ids of a page, where its links lead, and what it loads."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.ids: set[str] = set()
        self.links: list[str] = []
        self.loads: list[str] = []
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        named = {name: value or "" for name, value in attrs}
        self.ids |= {named[name] for name in ("id", "name") if name in named}
        if tag == "a" and "href" in named:
            self.links.append(named["href"])
        if tag in {"script", "img", "iframe", "source"} and "src" in named:
            self.loads.append(named["src"])
        if tag == "link" and named.get("rel") not in {"canonical", "prev", "next"}:
            self.loads.append(named["href"])


@pytest.fixture(scope="module")
def pages() -> dict[Path, _Page]:
    """Every page of the site. Without a site the tests are skipped, on a build machine they fail."""
    need(None if (SITE / "index.html").exists() else "there is no documentation site: make docs")
    return {path: _Page(path) for path in sorted(SITE.rglob("*.html")) if path.name != "404.html"}


def _broken(pages: dict[Path, _Page]) -> Iterator[str]:
    for path, page in pages.items():
        for target in [*page.links, *page.loads]:
            parts = urlsplit(target)
            if parts.scheme or parts.netloc:
                continue
            file = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            if not file.is_file():
                yield f"{path.relative_to(SITE)} → {target}"
            elif parts.fragment and file in pages and unquote(parts.fragment) not in pages[file].ids:
                yield f"{path.relative_to(SITE)} → {target}: no such heading"


def test_every_link_leads_to_a_page_and_a_heading(pages: dict[Path, _Page]) -> None:
    assert len(pages) > 40
    assert list(_broken(pages)) == []


def test_no_page_loads_anything_from_outside(pages: dict[Path, _Page]) -> None:
    outside = [f"{path.name}: {target}" for path, page in pages.items() for target in page.loads if urlsplit(target).netloc]

    assert outside == []


def test_every_page_opens_from_a_disk_without_an_error_and_fits_a_phone(browser: Browser, pages: dict[Path, _Page]) -> None:
    wide = []
    with browser.open(SITE / "index.html", width=PHONE) as page:
        for path in pages:
            page.goto(path.as_uri(), wait_until="load")
            assert page.locator("h1").count() >= 1, path
            if sideways_scroll(page) > 0:
                wide.append(f"{path.relative_to(SITE)} by {sideways_scroll(page)}")

    assert wide == []


def test_every_block_fits_a_laptop_and_no_drawing_breaks(browser: Browser, pages: dict[Path, _Page]) -> None:
    cut = []
    with browser.open(SITE / "index.html", width=LAPTOP) as page:
        for path in pages:
            page.goto(path.as_uri(), wait_until="load")
            cut += [f"{path.relative_to(SITE)}: {block}" for block in page.evaluate(CUT_BLOCKS)]

    assert cut == []


@pytest.mark.parametrize("name", ["index.html", "performance.html", "key-hierarchy.html"])
def test_a_drawing_that_is_wider_than_a_phone_says_that_it_scrolls(browser: Browser, pages: dict[Path, _Page], name: str) -> None:
    with browser.open(SITE / name, width=PHONE) as page:
        assert page.evaluate(SILENT_DRAWINGS) == 0


def test_the_home_page_shows_what_a_user_gets_before_it_explains_keys(browser: Browser, pages: dict[Path, _Page]) -> None:
    with browser.open(SITE / "index.html", width=LAPTOP) as page:
        shown = page.locator("article").inner_text()
        tabs = page.locator(".tabbed-labels label").all_inner_texts()
        pictures = [each.get_attribute("src") for each in page.locator("article img").all()]
        for tab, text in zip(tabs, ("table.append(rows)", "CREATE TABLE", "audit db.orders"), strict=True):
            page.locator(".tabbed-labels label", has_text=tab).click()
            assert text in page.locator(".tabbed-block:visible").inner_text()

    assert tabs == ["Python", "Spark SQL", "The command"]
    assert pictures == ["images/audit.png", "images/speed.svg", "images/key-hierarchy.svg"]
    assert shown.index("pip install") < shown.index("What it costs") < shown.index("KEK")


def test_the_menu_has_at_most_three_levels(pages: dict[Path, _Page]) -> None:
    menu = (ROOT / "mkdocs.yml").read_text(encoding="utf-8").partition("\nnav:\n")[2]

    assert {len(line) - len(line.lstrip()) for line in menu.splitlines()} <= {2, 6, 10}


@pytest.mark.parametrize("where", ["disk", "server"])
def test_search_finds_a_page(browser: Browser, pages: dict[Path, _Page], where: str) -> None:
    with served(SITE) as address:
        start = SITE / "index.html" if where == "disk" else f"{address}/index.html"
        with browser.open(start, width=DESKTOP) as page:
            page.locator(".md-search__input").first.click()
            page.keyboard.type("rotate the master key")
            page.locator(".md-search-result__link").first.click()
            page.wait_for_url("**/how-to/rotate.html*")
            assert page.locator("h1").first.inner_text().startswith("Rotate keys")


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [PHONE, DESKTOP])
def test_pages_are_drawn_in_both_colours_and_widths(browser: Browser, pages: dict[Path, _Page], width: int, dark: bool) -> None:
    SCREENSHOTS.mkdir(parents=True, exist_ok=True)
    with browser.open(SITE / "index.html", width=width, dark=dark) as page:
        background = page.evaluate("getComputedStyle(document.body).backgroundColor")
        picture = page.locator("article img").first
        assert picture.evaluate("image => image.complete && image.naturalWidth > 0")
        page.screenshot(path=SCREENSHOTS / f"index-{width}-{'dark' if dark else 'light'}.png")

    audited = re.findall(r"--page: #(\w\w)(\w\w)(\w\w)", AUDIT_STYLE.read_text(encoding="utf-8"))[dark]
    assert background == f"rgb({', '.join(str(int(part, 16)) for part in audited)})"


def test_the_menu_opens_on_a_phone_and_leads_on(browser: Browser, pages: dict[Path, _Page]) -> None:
    with browser.open(SITE / "index.html", width=PHONE) as page:
        page.locator("label.md-header__button[for=__drawer]").click()
        page.locator("nav.md-nav--primary > .md-nav__list").get_by_text("Performance", exact=True).click()
        page.wait_for_url("**/performance.html")
