"""The page of benchmarks and the figure in README.md show what was measured: ratios with their spread, aims, curves of growth."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

ROOT = Path(__file__).parent.parent
BENCHMARKS = ROOT / "benchmarks"
WRITES = ["append, one file", "append, 64 partitions", "upsert, scattered", "delete of one in 100"]


def test_the_page_shows_every_ratio_with_its_spread(tmp_path: Path) -> None:
    case = {"name": "a scan", "aim": 0.8, "against": "PyIceberg", "took": {}}
    case["took"] = {"tablecrypt": [[1.0, 0.5], [2.0, 0.5], [3.0, 0.5]], "PyIceberg": [[2.0, 1.0], [2.0, 2.0], [2.0, 0.25]]}
    results, docs = tmp_path / "results", tmp_path / "docs"
    results.mkdir()
    docs.mkdir()
    (results / "scans.json").write_text(json.dumps({"arguments": ["--rows", "5"], "cases": [case]}))
    subprocess.run([sys.executable, BENCHMARKS / "_page.py", results, docs], check=True)
    page = (docs / "performance.md").read_text()
    assert "### Rows: Reading\n\n`scans.py --rows 5`" in page
    assert "- beside PyIceberg: 0.50 times" in page
    assert "| a scan | 2000 ms | PyIceberg | 1.00 (0.50 to 1.50) | 0.50 (0.25 to 2.00) | 0.8 |" in page
    assert "](performance/scans.svg)" in page
    ElementTree.parse(docs / "performance" / "scans.svg")


def _grown(folder: Path, **axes: dict[str, list[tuple[int, float]]]) -> Path:
    """What growth.py kept of axes on which one thing was done."""
    kept = {
        name: {"machine": "a machine", "processes": 1.5, "curves": {f"{name}: scan": {"measured": "processor time", "points": points}}}
        for name, points in axes.items()
    }
    path = folder / "growth.json"
    path.write_text(json.dumps({"axes": kept}))
    return path


def _sectioned(folder: Path, code: str) -> str:
    prelude = "import sys; sys.path.insert(0, sys.argv[1]); from pathlib import Path\n"
    prelude += "import _growth_section as growth, _storage_section as storage\n"
    done = subprocess.run([sys.executable, "-c", prelude + code, BENCHMARKS], check=True, capture_output=True, text=True, cwd=folder)
    return done.stdout


def test_the_part_on_growth_says_how_cost_grows_over_all_sizes_and_over_the_last_tenfold(tmp_path: Path) -> None:
    flat_then_steep = [(10, 1.0), (100, 1.0), (1000, 100.0)]
    _grown(tmp_path, rows={"tablecrypt": [(10, 0.1), (100, 1.0), (1000, 10.0)], "PyIceberg": flat_then_steep})
    text = _sectioned(tmp_path, "print(growth.section(Path('growth.json'), Path('.')))")
    assert "| rows: scan | 10 to 1,000 | 10.0 s | 1.00, 1.00 | 100.0 s | 1.00, 2.00 | 0.10 |" in text
    assert "Measured with a machine. " in text
    assert "](performance/rows-scan.svg)" in text
    drawn = ElementTree.parse(tmp_path / "performance" / "rows-scan.svg")
    lines = [each.get("points", "") for each in drawn.iter("{http://www.w3.org/2000/svg}polyline")]
    assert [len(line.split()) for line in lines] == [3, 3]


def test_the_page_keeps_the_curves_that_were_measured_apart(tmp_path: Path) -> None:
    """Those in the repository, whatever `make bench` has run."""
    (tmp_path / "results").mkdir()
    (tmp_path / "docs").mkdir()
    subprocess.run([sys.executable, BENCHMARKS / "_page.py", tmp_path / "results", tmp_path / "docs"], check=True)
    page = (tmp_path / "docs" / "performance.md").read_text()
    for axis in ("files", "snapshots", "columns", "rows", "writers"):
        assert f"![growth with {axis}: " in page
    assert page[page.index("<!-- growth: begin -->") : page.index("<!-- growth: end -->")] in (ROOT / "docs" / "performance.md").read_text()


def test_the_part_on_storage_says_the_range_over_the_shapes_and_names_the_worst(tmp_path: Path) -> None:
    cells = {"full scan": {"mixed": [0.9, None], "wide": [1.1, None]}, "append": {"mixed": [1.25, 2.5]}}
    (tmp_path / "storage.json").write_text(
        json.dumps({"ways": {"snappy": {"machine": "a machine", "processes": 1.5, "rounds": 3, "cells": cells}}})
    )
    text = _sectioned(tmp_path, "print(storage.section(Path('storage.json')))")
    assert "Measured with a machine; 3 rounds.\n" in text
    assert "| snappy | 0.90 to 1.10: wide | – | – | – | 1.25 to 1.25: mixed, +2.5 ms |" in text


def test_the_page_has_every_way_of_storage_that_was_measured_apart() -> None:
    """That of the repository, whatever `make bench` has run."""
    page = (ROOT / "docs" / "performance.md").read_text()
    ways = json.loads((BENCHMARKS / "storage.json").read_text())["ways"]
    assert "files of Iceberg Java" in ways
    assert all(f"| {way} |" in page for way in ways)


@pytest.mark.nightly
@pytest.mark.slow
def test_an_axis_that_is_measured_alone_takes_the_place_of_what_was_kept_of_it_and_of_nothing_else(tmp_path: Path) -> None:
    old = {side: [(10, 7.0), (100, 7.0)] for side in ("tablecrypt", "PyIceberg")}
    kept = _grown(tmp_path, rows=old, snapshots=old)
    (tmp_path / "performance.md").write_text("above\n<!-- growth: begin -->\nold\n<!-- growth: end -->\nbelow\n")
    for only, most in (("snapshots", "10"), ("writers", "2")):
        options = ["--only", only, "--most", most, "--rounds", "1"]
        subprocess.run([sys.executable, BENCHMARKS / "growth.py", kept, tmp_path, *options], check=True, capture_output=True)
    axes = json.loads(kept.read_text())["axes"]
    assert axes["rows"]["curves"]["rows: scan"]["points"] == {side: [list(point) for point in points] for side, points in old.items()}
    assert "snapshots: loading the table" in axes["snapshots"]["curves"]
    assert [size for size, _ in axes["writers"]["curves"]["writers: a commit"]["points"]["PyIceberg"]] == [1, 2]
    page = (tmp_path / "performance.md").read_text()
    assert page.startswith("above\n<!-- growth: begin -->\n## How cost grows")
    assert page.endswith("<!-- growth: end -->\nbelow\n")
    assert page.index("snapshots: one more commit") < page.index("rows: scan") < page.index("writers: a commit")


def test_a_benchmark_keeps_what_it_ran_first_beside_what_it_ran_then(tmp_path: Path) -> None:
    script = tmp_path / "twice.py"
    script.write_text(
        f"import sys; sys.path.insert(0, {str(BENCHMARKS)!r})\n"
        "from _paired import Case, run_rounds\n"
        "for name in ('reads', 'writes'):\n"
        "    run_rounds([Case(name, dict.fromkeys(['tablecrypt', 'pyarrow with the key'], lambda: sum(range(10_000))))], 2)\n"
    )
    done = subprocess.run(
        [sys.executable, script], check=True, capture_output=True, text=True, env={**os.environ, "BENCHMARK_RESULTS": str(tmp_path)}
    )
    kept = json.loads((tmp_path / "twice.json").read_text())
    assert [(case["name"], len(case["took"]["pyarrow with the key"])) for case in kept["cases"]] == [("reads", 2), ("writes", 2)]
    assert done.stdout.count("pyarrow with the key  ") == 2


def test_the_page_says_which_benchmarks_did_not_run_and_shows_what_the_others_printed(tmp_path: Path) -> None:
    results, docs = tmp_path / "results", tmp_path / "docs"
    docs.mkdir()
    only = ["--only", "shred", "import_time", "--minutes"]
    subprocess.run([sys.executable, BENCHMARKS / "_all.py", results, docs, *only, "0"], check=False, capture_output=True)
    run = {"name": "shred", "arguments": "--files 2", "outcome": "done", "printed": "peak 41 MB\n"}
    (results / "shred.run.json").write_text(json.dumps(run))
    subprocess.run([sys.executable, BENCHMARKS / "_page.py", results, docs], check=True)
    page = (docs / "performance.md").read_text()
    assert "### Rows: Importing the package\n\n`import_time.py --rounds 5`\n\nThis benchmark was not begun: no time was left." in page
    assert "### Rows: Shredding\n\n`shred.py --files 2`\n\n```text\npeak 41 MB\n```" in page


def test_the_page_opens_with_a_figure_and_its_headings_are_words() -> None:
    page = (ROOT / "docs" / "performance.md").read_text(encoding="utf-8")
    headings = re.findall(r"^#+ (.*)$", re.sub(r"```.*?```", "", page, flags=re.DOTALL), re.MULTILINE)

    assert page.startswith("# Performance\n\n![")
    assert len(headings) > 15
    assert [each for each in headings if ".py" in each or "--" in each] == []


def test_every_benchmark_has_a_title_and_answers_a_question() -> None:
    code = (
        "import sys; sys.path.insert(0, sys.argv[1]); import _all, _page\n"
        "runs, answering = {run.name for run in _all.RUNS}, {name for names in _page.QUESTIONS.values() for name in names}\n"
        "print(runs ^ set(_page.TITLES), runs ^ answering)"
    )
    done = subprocess.run([sys.executable, "-c", code, BENCHMARKS], check=True, capture_output=True, text=True)

    # Data of many shapes has a section that is written of what was kept.
    assert done.stdout == "set() {'shapes'}\n"


def _shapes_results(folder: Path) -> Path:
    """Results in which the floor takes 100 ms, or 10 ms for one column, and tablecrypt each time as much more as the shape says."""
    cases = []
    for shape, factor in (("narrow", 1.0), ("wide", 1.5)):
        for name, floor in (("full scan", 0.1), ("one column", 0.01), ("append", 0.1)):
            took = {"tablecrypt": [[floor * factor] * 2] * 2, "pyarrow with the key": [[floor] * 2] * 2, "PyIceberg": [[0.1] * 2] * 2}
            cases.append({"name": f"{shape}: {name}", "aim": 1.08, "against": "pyarrow with the key", "took": took})
    folder.mkdir()
    path = folder / "shapes.json"
    path.write_text(json.dumps({"arguments": [], "shapes": {"narrow": "two columns", "wide": "many"}, "cases": cases}))
    return path


def test_the_page_opens_with_what_reading_and_writing_cost_over_all_shapes_and_names_the_worst(tmp_path: Path) -> None:
    _shapes_results(tmp_path / "results")
    (tmp_path / "docs").mkdir()
    subprocess.run([sys.executable, BENCHMARKS / "_page.py", tmp_path / "results", tmp_path / "docs"], check=True)
    page = (tmp_path / "docs" / "performance.md").read_text()
    opening = " ".join(page[: page.index("## ")].split())

    assert "All columns take 1.00 to 1.50 times (the most: wide) the processor time of Arrow alone" in opening
    assert "one column takes 1.00 to 1.50 times (the most: wide)" in opening
    assert "| wide | 1.50 / 1.50 | 1.50 / 1.50, +5.0 ms | – | – | 1.50 / 1.50 |" in page
    assert "- **wide**: many" in page
    assert re.search(r"^Measured with \d+ cores .*; \d+ rounds\. The shapes:$", page, re.MULTILINE)
    assert len(ElementTree.parse(tmp_path / "docs" / "performance" / "shapes.svg").findall("{http://www.w3.org/2000/svg}line")) > 6


def test_the_page_in_the_repository_shows_the_shapes_that_were_kept(tmp_path: Path) -> None:
    code = (
        "import sys; sys.path.insert(0, sys.argv[1]); from pathlib import Path; import _shapes_section as shapes\n"
        "print('\\n'.join(shapes.section(shapes.kept_shapes(), Path(sys.argv[2]))))"
    )
    done = subprocess.run([sys.executable, "-c", code, BENCHMARKS, tmp_path], check=True, capture_output=True, text=True)
    drawn = Path("performance") / "shapes.svg"

    assert done.stdout.strip() in (ROOT / "docs" / "performance.md").read_text()
    assert (tmp_path / drawn).read_text() == (ROOT / "docs" / drawn).read_text()


def _results(folder: Path, names: list[str]) -> None:
    """Results of two rounds, in which the first of these cases takes as long on both sides, and each further one twice as long as plain."""
    cases = [
        {"name": name, "took": {"tablecrypt": [[1, 1 + at], [1, 1 + at]], "PyIceberg": [[1, 1], [1, 1]]}} for at, name in enumerate(names)
    ]
    folder.mkdir()
    (folder / "scans.json").write_text(json.dumps({"cases": cases[:3]}))
    (folder / "writes.json").write_text(json.dumps({"cases": cases[3:]}))


def _plot(results: Path, root: Path) -> subprocess.CompletedProcess[str]:
    for name in ("benchmarks", "docs/images"):
        (root / name).mkdir(parents=True, exist_ok=True)
    (root / "README.md").write_text("before\n<!-- speed: begin -->\nold\n<!-- speed: end -->\nafter\n")
    command = [sys.executable, str(BENCHMARKS / "_readme_plot.py"), str(results), str(root)]
    return subprocess.run(command, check=False, capture_output=True, text=True)


def test_the_readme_gets_its_figure_and_its_sentence_from_the_results(tmp_path: Path) -> None:
    _results(tmp_path / "results", ["full scan", "2 of 6 columns", "filter k = 7", *WRITES])
    done = _plot(tmp_path / "results", tmp_path)
    assert done.returncode == 0, done.stderr
    kept = json.loads((tmp_path / "benchmarks" / "speed.json").read_text())
    assert kept["ratios"]["full scan"] == [1, 1, 1]
    assert kept["ratios"]["upsert"] == [6, 6, 6]
    text = (tmp_path / "README.md").read_text()
    assert text.startswith("before\n<!-- speed: begin -->\n**Speed.**")
    assert text.endswith("<!-- speed: end -->\nafter\n")
    assert "an upsert 6.00 times and a full scan 1.00 times" in text.replace("\n", " ")
    drawn = ElementTree.parse(tmp_path / "docs" / "images" / "speed.svg")
    bars = [float(each.get("width", 0)) for each in drawn.iter("{http://www.w3.org/2000/svg}rect")][1:]
    assert len(bars) == 7
    assert round(max(bars) / min(bars)) == 7


def test_the_readme_stays_as_it_is_where_results_are_missing(tmp_path: Path) -> None:
    _results(tmp_path / "results", ["full scan", "2 of 6 columns", "filter k = 7", *WRITES[1:]])
    done = _plot(tmp_path / "results", tmp_path)
    assert done.returncode == 1
    assert "append, one file" in done.stderr
    assert "old" in (tmp_path / "README.md").read_text()
    assert not list((tmp_path / "docs" / "images").iterdir())


def test_the_figure_and_the_sentence_of_the_readme_are_those_of_the_kept_ratios(tmp_path: Path) -> None:
    """Drawn again from benchmarks/speed.json, they are the same."""
    code = (
        "import json, sys; sys.path.insert(0, sys.argv[1]); import _readme_plot as plot\n"
        "found = json.load(open(sys.argv[1] + '/speed.json'))\n"
        "print(plot.picture(found) + plot.sentence(found))"
    )
    done = subprocess.run([sys.executable, "-c", code, BENCHMARKS], check=True, capture_output=True, text=True, cwd=tmp_path)
    picture, _, sentence = done.stdout.rpartition("</svg>\n")
    assert f"{picture}</svg>\n" == (ROOT / "docs" / "images" / "speed.svg").read_text()
    assert f"<!-- speed: begin -->\n{sentence.strip()}\n<!-- speed: end -->" in (ROOT / "README.md").read_text()


@pytest.mark.parametrize("page", ["index.md", "faq.md"])
def test_other_pages_have_the_range_of_the_readme(page: str) -> None:
    (scans,) = re.findall(r"a full scan takes ([\d.]+ to [\d.]+) times", (ROOT / "README.md").read_text())
    assert f"a full scan took {scans}" in (ROOT / "docs" / page).read_text()
