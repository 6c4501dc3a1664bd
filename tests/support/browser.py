"""Chromium, driven by Playwright, for pages that must work in a browser and must not need a network.

The fixture `browser` of conftest.py starts Debian's Chromium once for each test module. Playwright's own download is not used.

    with browser.open(path_or_url, width=PHONE) as page:
        page.get_by_role("searchbox").fill("rotate")
        assert not sideways_scroll(page)

Leaving the block fails the test if the page logged an error, threw one, missed a file or tried to reach anything that is not a local file
or a loopback address; Chromium itself resolves no other name. `served(folder)` is a web server for pages that need one, such as those that
fetch a search index.
"""

from __future__ import annotations

import functools
import os
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from playwright.sync_api import Browser as Chromium
    from playwright.sync_api import Page

PHONE: Final = 390
TABLET: Final = 820
LAPTOP: Final = 1280
DESKTOP: Final = 1360
_HEIGHT: Final = 900
_NAMES: Final = ("chromium", "chromium-browser", "google-chrome", "chrome")
_LOCAL_SCHEMES: Final = frozenset({"file", "data", "blob", "about"})
# Of a request that the page itself gave up, as when it is left while its icon loads. A missing or refused file fails otherwise.
_GIVEN_UP: Final = "net::ERR_ABORTED"
_ARGUMENTS: Final = ("--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1", "--disable-dev-shm-usage", "--disable-gpu")


def chromium_executable() -> str | None:
    """The Chromium that tests start: the one that CHROMIUM names, or the first on the PATH."""
    return os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, _NAMES)), None)


def browser_problem() -> str | None:
    """None where browser tests can run, otherwise a sentence that says what is missing."""
    if find_spec("playwright") is None:
        return "Browser tests need playwright: make setup"
    if chromium_executable() is None:
        return "Browser tests need Chromium on the PATH or in CHROMIUM: apt-get install chromium"
    return None


class Browser:
    """A running Chromium. Each page that it opens has storage of its own, so tests do not see each other's settings."""

    def __init__(self, chromium: Chromium) -> None:
        self._chromium = chromium

    @contextmanager
    def open(
        self, where: Path | str, *, width: int = DESKTOP, dark: bool = False, expected: tuple[str, ...] = (), **options: Any
    ) -> Iterator[Page]:
        """A page on a local file or a loopback URL, `width` CSS pixels wide. Problems that contain a text of `expected` are allowed.

        `options` go to Playwright's `new_context`, for example `java_script_enabled=False`.
        """
        viewport: Any = {"width": width, "height": _HEIGHT}
        context = self._chromium.new_context(viewport=viewport, color_scheme="dark" if dark else "light", **options)
        try:
            page = context.new_page()
            page.set_default_timeout(10_000)
            problems = _recorded_problems(page)
            page.goto(where.absolute().as_uri() if isinstance(where, Path) else where, wait_until="load")
            yield page
            unexpected = [problem for problem in problems if not any(text in problem for text in expected)]
            assert not unexpected, "\n".join([f"{where}:", *unexpected])
        finally:
            context.close()


def _recorded_problems(page: Page) -> list[str]:
    """A list that grows with each error of the page and each request that leaves this machine."""
    problems: list[str] = []
    page.on("pageerror", lambda error: problems.append(f"exception: {error}"))
    page.on("console", lambda message: problems.append(f"console: {message.text}") if message.type == "error" else None)
    page.on("request", lambda request: None if is_local(request.url) else problems.append(f"request to outside: {request.url}"))
    page.on(
        "requestfailed",
        lambda request: None if request.failure == _GIVEN_UP else problems.append(f"failed: {request.url} ({request.failure})"),
    )
    page.on("response", lambda response: problems.append(f"{response.status}: {response.url}") if response.status >= 400 else None)
    return problems


def is_local(url: str) -> bool:
    """Whether a request for this URL stays on this machine."""
    parts = urlsplit(url)
    return parts.scheme in _LOCAL_SCHEMES or parts.hostname == "127.0.0.1"


def sideways_scroll(page: Page) -> int:
    """How many CSS pixels the page is wider than its window."""
    beyond: int = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
    return beyond


@contextmanager
def started_browser() -> Iterator[Browser]:
    """Chromium without a window. Ask `browser_problem` first."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=chromium_executable(), args=list(_ARGUMENTS))
        try:
            yield Browser(chromium)
        finally:
            chromium.close()


class _QuietHandler(SimpleHTTPRequestHandler):
    def do_GET(self) -> None:
        """Answer a file, and nothing for the icon that browsers ask for on their own."""
        if self.path == "/favicon.ico":
            self.send_response(204)
            self.end_headers()
            return
        super().do_GET()

    def log_message(self, *_: Any) -> None:
        """Write nothing: the browser reports what was not found."""


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """The address of a web server for a folder, on a free port of 127.0.0.1, without a slash at the end."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(_QuietHandler, directory=str(folder)))
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
