"""The pages of a bundle and the certificate of an erasure in a real browser: they fit three widths; the cover is one sheet."""

from __future__ import annotations

import re
import zipfile
from pathlib import Path
from typing import Final

import pytest

from tablecrypt.maintenance import changes_since, write_evidence
from tablecrypt.maintenance.erasure.certificate import write_certificate
from tests.maintenance.test_audit_page_in_browser import LOW_CONTRAST, OUT_OF_THE_PAGE, unfold
from tests.support.audited_catalog import audit_a_month_before, audited_catalog
from tests.support.browser import DESKTOP, PHONE, TABLET, Browser, sideways_scroll
from tests.support.erased_table import erased_table, unfinished

pytestmark = [pytest.mark.browser, pytest.mark.slow]

PAGES: Final = ("cover.html", "clauses.html", "erased.html", "unfinished.html")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An unpacked bundle with findings and changes, and two certificates."""
    folder, found = tmp_path_factory.mktemp("evidence"), audited_catalog()
    write_evidence(found, folder / "evidence.zip", changes=changes_since(found, audit_a_month_before()))
    with zipfile.ZipFile(folder / "evidence.zip") as bundle:
        bundle.extractall(folder)
    write_certificate(erased_table(), folder / "erased.html")
    write_certificate(unfinished(), folder / "unfinished.html")
    return folder


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [PHONE, TABLET, DESKTOP], ids=["phone", "tablet", "desktop"])
@pytest.mark.parametrize("name", PAGES)
def test_the_page_fits_and_can_be_read(browser: Browser, folder: Path, name: str, width: int, dark: bool) -> None:
    with browser.open(folder / name, width=width, dark=dark) as page:
        unfold(page)

        assert sideways_scroll(page) == 0
        assert page.evaluate(OUT_OF_THE_PAGE) == []
        assert page.evaluate(LOW_CONTRAST) == []


def test_the_cover_is_one_sheet_of_paper(browser: Browser, folder: Path) -> None:
    with browser.open(folder / "cover.html") as page:
        printed = page.pdf(format="A4")

    assert len(re.findall(rb"/Type */Page\b", printed)) == 1


def test_the_cover_leads_to_the_other_files(browser: Browser, folder: Path) -> None:
    with browser.open(folder / "cover.html") as page:
        links = {each.get_attribute("href") for each in page.get_by_role("link").all()}
        page.get_by_role("link", name="clauses.html").first.click()

        assert page.title() == "Clauses: encryption of lakehouse"
    assert links == {"clauses.html", "audit.html", "audit.json", "README.txt", "SHA256SUMS"}
