"""`tablecrypt run`: a program of any kind and its child processes open encrypted tables through PyIceberg's own load_catalog."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import pytest

from tests.support.aws import AwsServer
from tests.support.command import ROOT, environment
from tests.support.configuration import configure, fails_closed, run_python
from tests.support.environments import DEPENDENCIES, OWN, Environment
from tests.support.plaintext import findings
from tests.support.tables import ROWS, contents_below, encrypted_sql_catalog, new_table

COMMAND: Final = [sys.executable, "-m", "tablecrypt.cli", "run"]
PIPELINE: Final = """
import multiprocessing, subprocess, sys

def append():
    from pyiceberg.catalog import load_catalog
    table = load_catalog("prod").load_table("db.t")
    table.append(table.scan().to_arrow())

if __name__ == "__main__":
    append()
    child = multiprocessing.get_context("spawn").Process(target=append)
    child.start()
    child.join()
    subprocess.run([sys.executable, "-c", "import pipeline; pipeline.append()"], check=True)
    sys.exit(child.exitcode)
"""
IS_REGISTERED: Final = "from tablecrypt_catalog.registration import is_registered; print(is_registered())"


@pytest.fixture
def home(tmp_path: Path, warehouse: Path, aws: AwsServer) -> Path:
    """A folder with .pyiceberg.yaml, in which db.t is an encrypted table of catalog prod."""
    catalog = encrypted_sql_catalog(warehouse, aws)
    new_table(catalog, "db.t", appends=[ROWS])
    properties = {name: catalog.properties[name] for name in ("uri", "warehouse")} | aws.kms_properties
    configure(tmp_path, {"prod": fails_closed(properties)})
    return tmp_path


def run_in(folder: Path, *command: str, **variables: str) -> subprocess.CompletedProcess[str]:
    given = environment() | {"HOME": str(folder), "PYICEBERG_HOME": str(folder)} | variables
    return subprocess.run([*COMMAND, *command], cwd=folder, env=given, capture_output=True, text=True, check=False, timeout=120)


def test_pyicebergs_own_command_shows_the_files_of_an_encrypted_table(home: Path) -> None:
    files = run_in(home, "pyiceberg", "--catalog", "prod", "files", "db.t")

    assert (files.returncode, files.stdout.count(".parquet")) == (0, 1), files.stderr


def test_a_program_that_looks_for_the_configuration_itself_finds_the_one_in_the_home_folder(home: Path, tmp_path: Path) -> None:
    """dlt asks PYICEBERG_HOME and not the home folder, and makes a plain catalog where it finds none."""
    elsewhere = str(tmp_path / "elsewhere")
    shown = "import os; print(os.environ.get('PYICEBERG_HOME'))"

    assert run_in(home, "python", "-c", shown, PYICEBERG_HOME="").stdout == f"{home}\n"
    assert run_in(home, "python", "-c", shown, PYICEBERG_HOME=elsewhere).stdout == f"{elsewhere}\n"
    assert run_in(home, "python", "-c", shown, PYICEBERG_HOME="", HOME=elsewhere).stdout == "\n"


@pytest.mark.slow
def test_a_script_and_the_processes_that_it_starts_write_ciphertext(home: Path, warehouse: Path) -> None:
    (home / "pipeline.py").write_text(PIPELINE)
    (home / "tmp").mkdir()

    done = run_in(home, "python", "pipeline.py", TMPDIR=str(home / "tmp"))

    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    written = {**contents_below(warehouse), **contents_below(home)}
    assert len([path for path in written if path.suffix == ".parquet"]) == 4
    assert not [found for path, content in written.items() for found in findings(str(path), content)]


def test_the_program_takes_the_place_of_the_command(tmp_path: Path) -> None:
    script = tmp_path / "waits.py"
    script.write_text("import os, sys, time; print(os.getpid(), *sys.argv[1:], flush=True); time.sleep(100)\n")
    arguments = ["--catalog", "a b", "--help", ""]
    with subprocess.Popen([*COMMAND, str(script), *arguments], env=environment(), stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == " ".join([str(process.pid), *arguments]) + "\n"
        process.terminate()
        assert process.wait(60) == -signal.SIGTERM


def test_exit_codes_input_and_broken_pipes_are_the_programs(tmp_path: Path) -> None:
    assert run_in(tmp_path, "python", "-c", "raise SystemExit(77)").returncode == 77
    piped = run_in(tmp_path, "bash", "-c", "yes | head -1; exit ${PIPESTATUS[0]}")
    assert (piped.returncode, piped.stdout, piped.stderr) == (128 + signal.SIGPIPE, "y\n", "")


def test_a_script_may_name_its_python_and_need_not(tmp_path: Path) -> None:
    script = tmp_path / "report"
    script.write_text(f"#!{sys.executable} -bs\n{IS_REGISTERED}\n")
    script.chmod(0o755)
    (tmp_path / "report.py").write_text(IS_REGISTERED)

    for command in (
        [str(script)],
        ["./report"],
        ["report.py"],
        ["python", "-bm", "report"],
        [sys.executable, "-Xutf8", "-W", "error", "report.py"],
    ):
        done = run_in(tmp_path, *command)
        assert (done.returncode, done.stdout, done.stderr) == (0, "True\n", ""), command


def test_a_sitecustomize_that_was_there_runs_too(tmp_path: Path) -> None:
    folder = tmp_path / "theirs"
    folder.mkdir()
    (folder / "sitecustomize.py").write_text("print('theirs', __name__, __file__)\nVALUE = 7\n")
    path = os.pathsep.join([str(folder), str(ROOT), str(ROOT / "catalog")])
    program = f"import sitecustomize; print(sitecustomize.VALUE); {IS_REGISTERED}"

    nested = [*COMMAND, "python", "-c", program]
    done = run_in(tmp_path, *nested, PYTHONPATH=path)

    said = f"theirs sitecustomize {folder / 'sitecustomize.py'}"
    assert (done.returncode, done.stdout.splitlines(), done.stderr) == (0, [said] * 3 + ["7", "True"], "")


def test_a_python_without_tablecrypt_runs_until_it_imports_pyiceberg(tmp_path: Path) -> None:
    other = Environment(tmp_path / "other", DEPENDENCIES)
    command = f"import sys; sys.path[:0] = {[str(each) for each in OWN]}; from tablecrypt.cli.main import main; main()"
    variables = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}

    def run_there(program: str) -> tuple[int, str, str]:
        arguments = [sys.executable, "-c", command, "run", str(other.python), "-c", program]
        done = subprocess.run(arguments, env=variables, capture_output=True, text=True, check=False, timeout=120)
        return done.returncode, done.stdout, done.stderr

    assert run_there("print(1)") == (0, "1\n", "")
    code, printed, said = run_there("import pyiceberg.catalog; print(2)")
    assert (code, printed) == (1, "")
    assert f"its Python, {other.python}, has no tablecrypt to register it with" in said.splitlines()[-1]


EACH: Final = """
import json, sys
from tests.support.command import run
answers = [run(*arguments) for arguments in json.loads(sys.argv[1])]
print(json.dumps([[done.code, done.stdout, done.stderr] for done in answers]))
"""


def refused(folder: Path, *commands: Sequence[str]) -> list[str]:
    """What each command says that is refused. They run in one process of their own, of which a command that is not refused makes an end."""
    done = run_python("-c", EACH, json.dumps(commands), cwd=folder)
    answers = json.loads(done.stdout)
    assert all((code, printed) == (2, "") and said.startswith("tablecrypt: ") and said.count("\n") == 1 for code, printed, said in answers)
    return [said for _, _, said in answers]


def test_what_cannot_be_run_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "plain.txt").write_text("text")
    script = tmp_path / "report"
    script.write_text("#!/usr/bin/env -S python3.11 -I\n")
    script.chmod(0o755)
    cases = {
        ("run", "python", "-I", "x.py"): "python -I ignores PYTHONPATH",
        ("run", "python", "-bWerror", "-sE", "x.py"): "python -E ignores PYTHONPATH",
        ("run", "python", "-X", "-b", "--check-hash-based-pycs", "never", "-Ic", "pass"): "python -I ignores PYTHONPATH",
        ("run", "python", "-S", "-m", "x"): "python -S imports no sitecustomize",
        ("run", str(script)): f"{script} begins with #!/usr/bin/env -S python3.11 -I: python3.11 -I ignores PYTHONPATH",
        ("run", "no-such-program"): "there is no program 'no-such-program', neither in ",
        ("run", "./no-such.py"): "there is no program ./no-such.py",
        ("run", "no-such.py"): "there is no program 'no-such.py'",
        ("run", str(tmp_path)): f"there is no program {tmp_path}",
        ("run", "./plain.txt"): "./plain.txt may not be executed",
        ("--catalog", "prod", "run", "python"): "run takes no --catalog and no --property",
        ("-p", "a=b", "run", "python"): "run takes no --catalog and no --property",
    }
    for part, said in zip(cases.values(), refused(tmp_path, *cases), strict=True):
        assert part in said


def test_what_the_system_cannot_run_is_one_line(tmp_path: Path) -> None:
    for name, content in {"text": "no program\n", "gone": "#!/no/such/interpreter\n"}.items():
        script = tmp_path / name
        script.write_text(content)
        script.chmod(0o755)
        done = run_in(tmp_path, str(script))
        assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
        assert f"tablecrypt: {script} cannot be run: " in done.stderr
