"""The attack matrix: attackers × clients × every object and field × every reader. No cell accepts wrong rows, and none crashes.

What the parts are stands in tests/security/matrix/. Here a sample runs. The campaign runs every attack, and writes the tables of
docs/security-campaign.md.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from tests.security.matrix.admissions import ADMISSIONS
from tests.security.matrix.attacks import (
    Attack,
    catalog_attacks,
    document_attacks,
    field_attacks,
    file_attacks,
    kms_attacks,
)
from tests.security.matrix.cells import Cell, Matrix, Outcome
from tests.security.matrix.clients import CLIENTS, Clients
from tests.security.matrix.page import write
from tests.security.matrix.readers import READERS
from tests.security.matrix.scene import Scene
from tests.support.aws import AwsServer
from tests.support.misleading_kms import CLASS as MISLEADING_KMS

THREAT_MODEL = Path(__file__).parents[2] / "docs" / "threat-model.md"
LYING = {"encryption.kms-type": "", "encryption.kms-impl": MISLEADING_KMS, "encryption.kms.cache-ttl-ms": "0"}

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory, aws: AwsServer, plaintext_registry: object) -> Iterator[Scene]:
    folder = tmp_path_factory.mktemp("matrix")
    logging.disable(logging.WARNING)
    yield Scene.make(folder, aws)
    logging.disable(logging.NOTSET)


@pytest.fixture(scope="module")
def matrix(scene: Scene) -> Matrix:
    """The clients of a key service that tells the truth."""
    return _learned(scene, Clients(scene))


@pytest.fixture(scope="module")
def misled(scene: Scene) -> Matrix:
    """The clients of one that can be told to lie, and of which no answer is remembered."""
    return _learned(scene, Clients(scene, LYING))


def _learned(scene: Scene, clients: Clients) -> Matrix:
    matrix = Matrix(scene, clients, CLIENTS, READERS)
    matrix.learn()
    return matrix


def _sampled(attacks: Iterable[Attack]) -> list[Attack]:
    """One attack on each field, in ways that change from one to the next, and each way of attacking a file, on files that change too."""
    groups: dict[str, list[Attack]] = {}
    for attack in attacks:
        groups.setdefault(attack.target if ": " in attack.target else attack.how, []).append(attack)
    return [group[7 * number % len(group)] for number, group in enumerate(groups.values())]


def _failed(cells: Iterable[Cell]) -> list[str]:
    return [str(cell) for cell in cells if cell.outcome in {Outcome.ACCEPTED, Outcome.CRASHED}]


def _every_attack(scene: Scene) -> list[Attack]:
    return [*file_attacks(scene), *document_attacks(scene), *field_attacks(scene), *catalog_attacks(scene)]


@pytest.mark.parametrize("attacks", [file_attacks, document_attacks, catalog_attacks], ids=lambda each: each.__name__)
def test_no_sampled_attack_is_accepted_and_none_crashes_a_reader(matrix: Matrix, attacks: object) -> None:
    cells = list(matrix.run(_sampled(attacks(matrix.scene))))  # type: ignore[operator]
    assert _failed(cells) == []
    assert {Outcome.REFUSED} <= {cell.outcome for cell in cells}


def test_no_wrong_answer_of_the_key_service_is_accepted(misled: Matrix) -> None:
    cells = list(misled.run(kms_attacks(misled.scene)))
    assert _failed(cells) == []


@pytest.mark.campaign
def test_no_attack_is_accepted_and_the_page_says_what_came_of_each(matrix: Matrix, misled: Matrix) -> None:
    cells = [*matrix.run(_every_attack(matrix.scene)), *misled.run(kms_attacks(misled.scene))]
    assert _failed(cells) == []
    write("matrix", cells)


def test_the_threat_model_says_what_is_admitted_word_by_word() -> None:
    text = re.sub(r"\s+", " ", THREAT_MODEL.read_text(encoding="utf-8"))
    assert [each.name for each in ADMISSIONS if each.sentence not in text] == []
