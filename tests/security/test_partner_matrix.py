"""The matrix of a partner: with a share in hand, he tries every file, every protected column and every field of metadata of the source.

What the parts are stands in tests/security/matrix/partner.py. Here a sample runs. The campaign runs all, and writes tables of
docs/security-campaign.md.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from tests.security.matrix.cells import Outcome, check
from tests.security.matrix.page import attack_counts, write, written_counts
from tests.security.matrix.partner import PartnerScene, every_attack, run
from tests.support.aws import AwsServer

PAGE = "partner matrix"

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory, aws: AwsServer, plaintext_registry: object) -> Iterator[PartnerScene]:
    logging.disable(logging.WARNING)
    yield PartnerScene.make(tmp_path_factory.mktemp("partner-matrix"), aws)
    logging.disable(logging.NOTSET)


def test_no_sampled_attack_of_a_partner_reads_more_than_was_shared(scene: PartnerScene) -> None:
    cells = list(run(scene, every_attack(scene)[::11]))
    check(cells)
    assert {cell.outcome for cell in cells} == {Outcome.REFUSED, Outcome.UNCHANGED}


@pytest.mark.campaign
def test_no_attack_of_a_partner_reads_more_than_was_shared_and_the_page_says_what_came_of_each(scene: PartnerScene) -> None:
    cells = list(run(scene, every_attack(scene)))
    write(PAGE, cells, ())
    check(cells)


def test_the_page_counts_the_attacks_of_a_partner_that_there_are(scene: PartnerScene) -> None:
    """Where it does not, `make campaign` writes it again."""
    assert written_counts(PAGE) == attack_counts(every_attack(scene))
