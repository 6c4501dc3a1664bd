"""Which tests `make test-changed` runs, in a small project of its own: a library `shop`, its tests `checks`, vectors and pages."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.changed_tests import NEVER_COLLECTED, PACKAGES, ROOT, Selection, changed_files, selection
from tests.support.import_reach import Reach

PROJECT = {
    ".gitignore": "ignored.txt\n",
    "pyproject.toml": "",
    "README.md": "",
    "docs/page.md": "",
    "lib/shop/__init__.py": "from shop.orders import Order",
    "lib/shop/orders/__init__.py": "from shop.orders.order import Order",
    "lib/shop/orders/order.py": "from shop.money import Money\nclass Order: ...",
    "lib/shop/money.py": "class Money: ...",
    "lib/shop/lonely.py": "",
    "lib/shop/printer/java/Printer.java": "",
    "lib/shop/printer/__init__.py": "",
    "lib/shop/printer/jar.py": "FOLDER = 'java'",
    "lib/shop/printer/other.py": "",
    "checks/conftest.py": """
        import pytest
        from checks.support.server import Server
        PLUGINS = ["checks.support.plugin"]

        @pytest.fixture
        def server(clock): return Server()

        @pytest.fixture
        def clock():
            from checks.support.clock import Clock
            return Clock()
    """,
    "checks/support/server.py": "class Server: ...",
    "checks/support/clock.py": "class Clock: ...",
    "checks/support/plugin.py": "",
    "checks/support/rows.py": "from pathlib import Path\nGOLDEN = Path('checks') / 'vectors' / 'golden'",
    "checks/vectors/golden/one.bin": "",
    "checks/vectors/other/one.dat": "",
    "checks/test_shop.py": "from shop import Order",
    "checks/test_money.py": "",
    "checks/test_inside.py": "def test_it():\n    from shop.money import Money",
    "checks/test_command.py": "COMMAND = ['python', '-m', 'shop.orders.order']",
    "checks/test_far.py": "from checks.support.far import far",
    "checks/support/far.py": "from checks.support.farther import far",
    "checks/support/farther.py": "from shop.orders.order import Order",
    "checks/test_server.py": "def test_it(server): ...",
    "checks/test_clock.py": "import pytest\npytestmark = pytest.mark.usefixtures('clock')",
    "checks/test_vectors.py": "from checks.support.rows import GOLDEN",
    "checks/test_page.py": "PAGES = 'docs/'",
    "checks/test_docstring.py": "'''It says docs/page.md and shop.money.'''",
    "checks/printer/test_jar.py": "from shop.printer.jar import FOLDER",
    "checks/printer/test_other.py": "from shop.printer import other",
    "checks/printer/conftest.py": "",
}


def written(root: Path) -> Path:
    for name, text in PROJECT.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        lines = [line.removeprefix("        ") for line in text.splitlines()]
        path.write_text("\n".join(lines) + "\n")
    return root


@pytest.fixture(scope="module")
def reach(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Reach]:
    root = written(tmp_path_factory.mktemp("project"))
    yield Reach(root, {"shop": "lib/shop", "checks": "checks"}, tests="checks")
    assert not [name for name in sys.modules if name.partition(".")[0] in ("shop", "checks")]


def chosen(reach: Reach, *changed: str, steps: int = 2) -> dict[str, str]:
    return {choice.path.removeprefix("checks/"): choice.reason for choice in selection(reach, changed, steps, ("pyproject.toml",)).chosen}


def test_a_changed_test_runs_itself(reach: Reach) -> None:
    assert chosen(reach, "checks/test_page.py") == {"test_page.py": "changed"}


def test_an_import_inside_a_function_counts(reach: Reach) -> None:
    assert chosen(reach, "lib/shop/money.py", steps=1)["test_inside.py"] == "imports lib/shop/money.py"


def test_a_module_that_is_named_in_a_command_counts(reach: Reach) -> None:
    assert chosen(reach, "lib/shop/orders/order.py")["test_command.py"] == "imports lib/shop/orders/order.py"


def test_passing_through_packages_that_hand_a_name_on_is_no_step(reach: Reach) -> None:
    assert chosen(reach, "lib/shop/orders/order.py", steps=1).keys() >= {"test_shop.py"}


def test_a_change_of_a_package_reaches_who_imports_a_module_of_it(reach: Reach) -> None:
    assert chosen(reach, "lib/shop/printer/__init__.py")["printer/test_jar.py"] == "2 steps from lib/shop/printer/__init__.py"


def test_tests_farther_away_are_left_out_and_counted(reach: Reach) -> None:
    near = selection(reach, ["lib/shop/money.py"], 2)
    far = selection(reach, ["lib/shop/money.py"], 4)

    assert [choice.path for choice in near.too_far] == ["checks/test_far.py"]
    assert {choice.path for choice in far.chosen} == {choice.path for choice in (*near.chosen, *near.too_far)}
    assert [choice.reason for choice in far.chosen if choice.path == "checks/test_far.py"] == ["4 steps from lib/shop/money.py"]


def test_pages_run_the_tests_that_read_their_folder(reach: Reach) -> None:
    assert chosen(reach, "docs/page.md") == {"test_page.py": "reads docs/page.md"}


@pytest.mark.parametrize(
    ("changed", "names"),
    [
        (["checks/support/server.py"], {"test_server.py"}),
        (["checks/support/clock.py"], {"test_server.py", "test_clock.py"}),
        (["checks/printer/conftest.py"], {"printer/test_jar.py", "printer/test_other.py"}),
        (["checks/vectors/golden/one.bin"], {"test_vectors.py"}),
        (["lib/shop/printer/java/Printer.java"], {"printer/test_jar.py"}),
        (["lib/shop/gone.py", "checks/test_gone.py", "checks/test_page.py"], {"test_page.py"}),
    ],
    ids=[
        "fixture",
        "fixture that another one uses",
        "conftest",
        "vectors",
        "data beside a module that names their folder",
        "removed files",
    ],
)
def test_a_change_runs_these_tests_and_no_others(reach: Reach, changed: list[str], names: set[str]) -> None:
    assert chosen(reach, *changed).keys() == names


def test_vectors_that_no_test_reads_are_named_and_run_none(reach: Reach) -> None:
    assert selection(reach, ["checks/vectors/other/one.dat"], 2) == Selection((), unread=("checks/vectors/other/one.dat",))


def test_a_file_that_no_test_reads_is_named(reach: Reach) -> None:
    assert selection(reach, ["README.md", "lib/shop/lonely.py"], 2).unread == ("README.md", "lib/shop/lonely.py")


def test_locked_packages_run_everything(reach: Reach) -> None:
    everything = {path.removeprefix("checks/") for path in PROJECT if "/test_" in path}

    assert chosen(reach, "docs/page.md", "pyproject.toml").keys() == everything


def test_the_plugins_of_a_conftest_are_known(reach: Reach) -> None:
    assert reach.plugins("checks.conftest") == {"checks.support.plugin"}


def test_the_choice_does_not_depend_on_the_order_of_changes(reach: Reach) -> None:
    changed = ["lib/shop/money.py", "docs/page.md", "checks/support/clock.py"]

    assert selection(reach, changed, 2) == selection(reach, changed[::-1], 2)


def git(root: Path, *arguments: str) -> None:
    identity = ("-c", "user.name=tests", "-c", "user.email=tests@localhost")
    subprocess.run(["git", *identity, *arguments], cwd=root, check=True, capture_output=True)


def test_what_differs_from_where_the_branch_left_is_committed_changed_and_unknown(tmp_path: Path) -> None:
    git(written(tmp_path), "init", "--quiet", "--initial-branch", "main")
    git(tmp_path, "add", "--all")
    git(tmp_path, "commit", "--quiet", "--message", "all")
    git(tmp_path, "checkout", "--quiet", "-b", "work")
    (tmp_path / "README.md").write_text("committed")
    git(tmp_path, "commit", "--quiet", "--all", "--message", "page")
    (tmp_path / "docs" / "page.md").write_text("changed")
    (tmp_path / "lib" / "shop" / "money.py").rename(tmp_path / "lib" / "shop" / "coins.py")
    (tmp_path / "ignored.txt").write_text("ignored")
    git(tmp_path, "checkout", "--quiet", "main")
    (tmp_path / "pyproject.toml").write_text("later on main")
    git(tmp_path, "commit", "--quiet", "--message", "later", "pyproject.toml")
    git(tmp_path, "checkout", "--quiet", "work")

    assert changed_files(tmp_path, "main") == ["README.md", "docs/page.md", "lib/shop/coins.py", "lib/shop/money.py"]


def test_a_base_that_git_does_not_know_is_refused_in_one_line(tmp_path: Path) -> None:
    git(written(tmp_path), "init", "--quiet")

    with pytest.raises(SystemExit, match=r"test-changed: git merge-base nowhere HEAD: .*; try BASE=<a commit>"):
        changed_files(tmp_path, "nowhere")


@pytest.fixture(scope="module")
def own() -> Reach:
    return Reach(ROOT, PACKAGES)


@pytest.mark.nightly
@pytest.mark.slow
def test_every_module_of_the_library_has_tests_that_it_reaches(own: Reach) -> None:
    library = [source.path for source in own.sources.values() if not source.path.startswith("tests/")]
    unread = [path for path in library if selection(own, [path], 9).unread]

    assert len(library) > 200
    assert unread == []


@pytest.mark.nightly
@pytest.mark.slow
def test_every_file_of_tests_that_pytest_collects_can_be_chosen(own: Reach) -> None:
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "--collect-only", "-qq", "-p", "no:cacheprovider"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    collected = {line.rpartition(":")[0] for line in run.stdout.splitlines() if line.startswith("tests/")}
    possible = {choice.path for choice in selection(own, ["pyproject.toml"], 2).chosen}

    assert collected <= possible
    assert not [path for path in possible if path.startswith(NEVER_COLLECTED)]
