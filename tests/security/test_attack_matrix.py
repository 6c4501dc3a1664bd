"""The attack matrix: attackers × clients × every object and field × every reader. No cell accepts wrong rows, and none crashes.

What the parts are stands in tests/security/matrix/. Here a sample runs. The campaign runs every attack, and writes the tables of
docs/security-campaign.md.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Iterator, Sequence
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
    server_attacks,
)
from tests.security.matrix.cells import Cell, Matrix, Outcome, check
from tests.security.matrix.clients import CLIENTS, REST_CLIENTS, Clients, Loading, RestClients
from tests.security.matrix.holder import holder_attacks
from tests.security.matrix.page import attack_counts, write, written_counts
from tests.security.matrix.readers import READERS, Reader
from tests.security.matrix.scene import NAME, Scene
from tests.support.aws import AwsServer
from tests.support.lying_rest_server import LyingRestServer
from tests.support.misleading_kms import CLASS as MISLEADING_KMS
from tests.support.tables import path_of

THREAT_MODEL = Path(__file__).parents[2] / "docs" / "threat-model.md"
LYING = {"encryption.kms-type": "", "encryption.kms-impl": MISLEADING_KMS, "encryption.kms.cache-ttl-ms": "0"}
ON_A_DATABASE = (file_attacks, document_attacks, field_attacks, catalog_attacks, holder_attacks)

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


@pytest.fixture(scope="module")
def served(scene: Scene) -> Iterator[Matrix]:
    """The clients of a REST server. Once they have loaded a table its rows are read as any other's, so that few readers are enough."""
    with LyingRestServer(scene.catalog, lambda: path_of(scene.pointed(NAME))) as server:
        readers = [reader for reader in READERS if reader.name in {"to_arrow", "count", "row filter"}]
        yield _learned(scene, RestClients(scene, server), REST_CLIENTS, readers)


def _learned(scene: Scene, clients: Loading, names: Sequence[str] = CLIENTS, readers: Sequence[Reader] = READERS) -> Matrix:
    matrix = Matrix(scene, clients, names, readers)
    matrix.learn()
    return matrix


def _sampled(attacks: Iterable[Attack]) -> list[Attack]:
    """One attack on each field, in ways that change from one to the next, and each way of attacking a file, on files that change too."""
    groups: dict[str, list[Attack]] = {}
    for attack in attacks:
        groups.setdefault(attack.target if attack.is_on_metadata and ": " in attack.target else attack.how, []).append(attack)
    return [group[7 * number % len(group)] for number, group in enumerate(groups.values())]


def _every_attack(scene: Scene) -> list[Attack]:
    """Those on a catalog in a database."""
    return [attack for kind in ON_A_DATABASE for attack in kind(scene)]


def _every_answer(matrix: Matrix) -> list[Attack]:
    """Those of a REST server."""
    return [*field_attacks(matrix.scene, "REST server"), *server_attacks(matrix.scene, _server_of(matrix))]


def _server_of(matrix: Matrix) -> LyingRestServer:
    assert isinstance(matrix.clients, RestClients)
    return matrix.clients.server


def _refused(cells: Iterable[Cell]) -> list[Attack]:
    """The attacks that some client refused."""
    return [cell.attack for cell in cells if cell.outcome == Outcome.REFUSED]


@pytest.mark.parametrize("attacks", ON_A_DATABASE, ids=lambda each: each.__name__)
def test_no_sampled_attack_is_accepted_and_none_crashes_a_reader(matrix: Matrix, attacks: object) -> None:
    cells = list(matrix.run(_sampled(attacks(matrix.scene))))  # type: ignore[operator]
    check(cells)
    assert {Outcome.REFUSED} <= {cell.outcome for cell in cells}
    if attacks is file_attacks:
        # A client that refuses whatever it loads would pass everything else here.
        assert {cell.client for cell in cells if cell.outcome == Outcome.UNCHANGED} == set(CLIENTS)


def test_no_wrong_answer_of_the_key_service_is_accepted(misled: Matrix) -> None:
    attacks = list(kms_attacks(misled.scene))
    cells = list(misled.run(attacks))
    check(cells)
    assert {attack.how for attack in _refused(cells)} == {attack.how for attack in attacks}


def test_no_sampled_answer_of_a_rest_server_is_accepted(served: Matrix) -> None:
    cells = list(served.run(_every_answer(served)[::41]))
    check(cells)
    of_the_server = {attack.target for attack in server_attacks(served.scene, _server_of(served))}
    assert {attack.target for attack in _refused(cells)} & of_the_server


@pytest.mark.campaign
@pytest.mark.timeout(7200)
def test_no_attack_is_accepted_and_the_page_says_what_came_of_each(matrix: Matrix, misled: Matrix, served: Matrix) -> None:
    cells = [*matrix.run(_every_attack(matrix.scene)), *misled.run(kms_attacks(misled.scene)), *served.run(_every_answer(served))]
    write("matrix", cells)
    check(cells)


def test_the_page_counts_the_attacks_that_there_are(scene: Scene, served: Matrix) -> None:
    """Where it does not, `make campaign` writes it again. A property more is no reason for that."""
    attacks = [*_every_attack(scene), *kms_attacks(scene), *_every_answer(served)]
    assert _without_properties(written_counts("matrix")) == _without_properties(attack_counts(attacks))


def _without_properties(counts: dict[tuple[str, str], int]) -> dict[tuple[str, str], int]:
    return {row: 0 if row[1].startswith("configuration") else count for row, count in counts.items()}


def test_the_threat_model_says_what_is_admitted_word_by_word() -> None:
    text = re.sub(r"\s+", " ", THREAT_MODEL.read_text(encoding="utf-8"))
    assert [each.name for each in ADMISSIONS if each.sentence not in text] == []
