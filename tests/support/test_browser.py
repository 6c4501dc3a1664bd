"""The browser of the tests: it sees a page's errors, and what a page asks of the outside."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from tests.support.browser import DESKTOP, PHONE, Browser, is_local, served, sideways_scroll

pytestmark = pytest.mark.browser


def _page(folder: Path, body: str) -> Path:
    path = folder / "page.html"
    path.write_text(f"<!doctype html><html><head><meta charset=utf-8><title>t</title></head><body>{body}</body></html>", encoding="utf-8")
    return path


def test_a_page_without_faults_passes(browser: Browser, tmp_path: Path) -> None:
    path = _page(tmp_path, "<h1>Hello</h1><script>document.title = 'changed'</script>")

    with browser.open(path) as page:
        assert page.title() == "changed"
        assert page.inner_text("h1") == "Hello"


@pytest.mark.parametrize(
    ("body", "reported"),
    [
        ("<script>missing()</script>", "exception: missing is not defined"),
        ("<script>console.error('broken')</script>", "console: broken"),
        ("<img src='https://fonts.example/a.png'>", "request to outside: https://fonts.example/a.png"),
        ("<script>fetch('http://10.0.0.1:9/').catch(() => 0)</script>", "request to outside: http://10.0.0.1:9/"),
        ("<link rel=stylesheet href='gone.css'>", "gone.css"),
    ],
    ids=["exception", "console", "image", "fetch", "missing-file"],
)
def test_a_faulty_page_fails_the_test(browser: Browser, tmp_path: Path, body: str, reported: str) -> None:
    path = _page(tmp_path, body)

    with pytest.raises(AssertionError, match=reported), browser.open(path) as page:
        page.wait_for_timeout(50)


def test_a_page_that_is_left_while_something_loads_is_not_faulty(browser: Browser, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        body = f"<script>onload = () => {{ new Image().src = 'http://127.0.0.1:{silent.getsockname()[1]}/' }}</script>"
        with browser.open(_page(tmp_path, body)) as page, page.expect_event("requestfailed"):
            page.goto("about:blank")


def test_an_expected_problem_is_allowed(browser: Browser, tmp_path: Path) -> None:
    with browser.open(_page(tmp_path, "<script>console.error('broken')</script>"), expected=("broken",)):
        pass


def test_the_width_and_the_colours_are_those_asked_for(browser: Browser, tmp_path: Path) -> None:
    path = _page(tmp_path, "<div style='width:600px'>wide</div>")

    with browser.open(path, width=PHONE, dark=True) as page:
        assert page.evaluate("innerWidth") == PHONE
        assert page.evaluate("matchMedia('(prefers-color-scheme: dark)').matches")
        assert sideways_scroll(page) > 0
    with browser.open(path, width=DESKTOP) as page:
        assert sideways_scroll(page) == 0
        assert not page.evaluate("matchMedia('(prefers-color-scheme: dark)').matches")


def test_a_folder_is_served_to_the_browser(browser: Browser, tmp_path: Path) -> None:
    (tmp_path / "data.json").write_text('{"n": 7}')
    _page(tmp_path, "<script>fetch('data.json').then(r => r.json()).then(d => { document.title = d.n })</script>")

    with served(tmp_path) as address, browser.open(f"{address}/page.html") as page:
        page.wait_for_function("document.title === '7'")


@pytest.mark.parametrize("url", ["https://example.com", "http://127.0.0.1.example.com/", "http://localhost.example", "ws://10.0.0.1"])
def test_an_address_elsewhere_is_not_local(url: str) -> None:
    assert not is_local(url)
