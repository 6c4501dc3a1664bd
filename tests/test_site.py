"""The documentation site that `make docs` built: it works in a browser, from a disk and from a server, and needs nothing from outside."""

from __future__ import annotations

import os
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

import pytest

from tests.support.browser import DESKTOP, PHONE, Browser, served, sideways_scroll

pytestmark = pytest.mark.browser

ROOT: Final = Path(__file__).parents[1]
SITE: Final = ROOT / "build" / "site"
SCREENSHOTS: Final = ROOT / "build" / "screenshots"


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
    if not (SITE / "index.html").exists():
        problem = "there is no documentation site: make docs"
        if os.environ.get("CI"):
            pytest.fail(problem)
        pytest.skip(problem)
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

    assert (background == "rgb(255, 255, 255)") is not dark


def test_the_menu_opens_on_a_phone_and_leads_on(browser: Browser, pages: dict[Path, _Page]) -> None:
    with browser.open(SITE / "index.html", width=PHONE) as page:
        page.locator("label.md-header__button[for=__drawer]").click()
        page.locator("nav.md-nav--primary > .md-nav__list").get_by_text("Performance", exact=True).click()
        page.wait_for_url("**/performance.html")
