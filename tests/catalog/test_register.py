"""tablecrypt.register(): PyIceberg's own load_catalog opens encrypting catalogs, and every other configuration means what it meant."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import pyiceberg.catalog
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.catalog import Catalog
from pyiceberg.utils.config import Config

from tablecrypt.errors import ConfigurationError
from tablecrypt_catalog._pyiceberg.loader import teach
from tests.support.configuration import configure, fails_closed, run_python
from tests.support.plaintext import findings
from tests.support.tables import contents_below

pytestmark = pytest.mark.usefixtures("home")

CLASS: Final = "py-catalog-impl"
MISSING: Final = "no.such.Class"


def catalogs_module(configured: Mapping[str, Any] | None = None, *, source: str | None = None) -> ModuleType:
    """Another pyiceberg.catalog than the one of this process, which stays as it is."""
    spec = importlib.util.spec_from_file_location("pyiceberg.catalog", pyiceberg.catalog.__file__)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    if source is None:
        spec.loader.exec_module(module)
    else:
        exec(compile(source, "pyiceberg.catalog", "exec"), vars(module))
    if configured is not None:
        vars(module)["_ENV_CONFIG"] = configuration(configured)
    return module


def configuration(catalog: Mapping[str, Any]) -> Config:
    config = Config()
    config.config = {"catalog": {"prod": dict(catalog)}}
    return config


def printed(program: str, variables: Mapping[str, str] | None = None) -> Any:
    """What a program prints as JSON."""
    done = run_python("-c", program, variables=variables)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture
def catalogs(home: Path, sql: dict[str, str]) -> dict[str, dict[str, str]]:
    """A catalog by its type, by its class, by both, and a plain one."""
    plain = {name: value for name, value in sql.items() if not name.startswith(("encryption.", "kms.")) and name != CLASS}
    described = {
        "by-type": fails_closed(sql),
        "by-class": sql,
        "by-both": {**sql, "type": "tablecrypt"},
        "plain": {**plain, "type": "sql"},
        "inferred": plain,
    }
    configure(home, described)
    return described


NAMES: Final = ("by-type", "by-class", "by-both", "plain", "inferred")
CLASSES: Final = ["EncryptedSqlCatalog"] * 3 + ["SqlCatalog"] * 2


@pytest.mark.usefixtures("catalogs")
def test_a_program_that_holds_load_catalog_already_opens_encrypting_catalogs(sql: dict[str, str]) -> None:
    program = f"""
import json, sys
from pyiceberg.catalog import load_catalog as held
import tablecrypt
tablecrypt.register()
tablecrypt.register()
from pyiceberg.catalog import load_catalog
assert held is load_catalog
loaded = [load_catalog(name) for name in {NAMES!r}]
given = load_catalog("given", type="TableCrypt", uri="sqlite:///:memory:", **{{"encryption.kms-type": "memory"}})
of_environment = load_catalog("prod")
print(json.dumps([type(each).__name__ for each in (*loaded, given, of_environment)]))
"""
    variables = {f"PYICEBERG_CATALOG__PROD__{name.replace('.', '__').replace('-', '_').upper()}": value for name, value in sql.items()}
    assert printed(program, variables) == [*CLASSES, "EncryptedSqlCatalog", "EncryptedSqlCatalog"]


@pytest.mark.usefixtures("catalogs")
def test_registration_imports_nothing_until_a_program_uses_pyiceberg() -> None:
    program = f"""
import sys
before = set(sys.modules)
from tablecrypt_catalog import registration
assert set(sys.modules) - before <= {{"__future__", "tablecrypt_catalog", "tablecrypt_catalog.registration"}}, set(sys.modules) - before
registration.register()
assert "pyiceberg" not in sys.modules and "multiprocessing" not in sys.modules
import json, pyiceberg.catalog
assert "tablecrypt" not in sys.modules
import importlib, inspect
assert "def load_catalog" in inspect.getsource(pyiceberg.catalog)
assert type(pyiceberg.catalog.__spec__.loader) is type(json.__spec__.loader)
importlib.reload(pyiceberg.catalog)
print(json.dumps([type(pyiceberg.catalog.load_catalog(name)).__name__ for name in {NAMES!r}]))
"""
    assert printed(program) == CLASSES


def test_threads_that_register_and_import_at_once_all_find_it() -> None:
    program = """
import json
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
barrier = Barrier(8)

def one(number):
    barrier.wait()
    if number % 2:
        import pyiceberg.catalog
    from tablecrypt import register
    register()
    from pyiceberg.catalog import load_catalog
    return type(load_catalog("x", type="tablecrypt", uri="sqlite:///:memory:", **{"encryption.kms-type": "memory"})).__name__

with ThreadPoolExecutor(8) as threads:
    classes = set(threads.map(one, range(8)))
from pyiceberg.catalog import AVAILABLE_CATALOGS
kinds = [kind.value for kind in AVAILABLE_CATALOGS]
print(json.dumps([sorted(classes), kinds.count("tablecrypt")]))
"""
    assert printed(program) == [["EncryptedSqlCatalog"], 1]


def test_an_import_that_another_thread_has_begun_is_waited_for() -> None:
    program = """
import json, sys
from importlib.machinery import PathFinder
from threading import Event, Thread
import pyiceberg
from tablecrypt_catalog.registration import register

found, release = Event(), Event()

class Slow:
    def find_spec(self, name, path=None, target=None):
        if name != "pyiceberg.catalog":
            return None
        spec = PathFinder.find_spec(name, path)
        found.set()
        release.wait()
        return spec

sys.meta_path.insert(0, Slow())
importing = Thread(target=lambda: __import__("pyiceberg.catalog"))
registering = Thread(target=register)
importing.start()
found.wait()
registering.start()
registering.join(0.3)
release.set()
importing.join()
registering.join()
from pyiceberg.catalog import CatalogType
print(json.dumps(CatalogType("tablecrypt").name))
"""
    assert printed(program) == "TABLECRYPT"


@pytest.mark.slow
@pytest.mark.usefixtures("catalogs")
@pytest.mark.parametrize("early", ["import multiprocessing.process", ""], ids=["multiprocessing first", "register first"])
def test_processes_that_are_forked_or_spawned_keep_it(home: Path, early: str) -> None:
    (home / "children.py").write_text(
        f"""
{early}
import json

def kind(name):
    from pyiceberg.catalog import load_catalog
    return type(load_catalog(name)).__name__

def in_a_child(method, function, *arguments):
    import multiprocessing
    from concurrent.futures import ProcessPoolExecutor
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context(method)) as processes:
        return processes.submit(function, *arguments).result()

if __name__ == "__main__":
    import tablecrypt
    tablecrypt.register()
    found = {{method: in_a_child(method, kind, "by-class") for method in ("fork", "forkserver")}}
    print(json.dumps([found, in_a_child("spawn", in_a_child, "spawn", kind, "by-type")]))
"""
    )
    done = run_python(str(home / "children.py"))
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == [dict.fromkeys(("fork", "forkserver"), "EncryptedSqlCatalog"), "EncryptedSqlCatalog"]


@pytest.mark.usefixtures("catalogs")
def test_a_plain_catalog_that_was_made_before_is_named_once() -> None:
    program = """
from pyiceberg.catalog import load_catalog
plain = [load_catalog("by-class"), load_catalog("by-class"), load_catalog("plain"), load_catalog("elsewhere", uri="sqlite:///:memory:")]
import tablecrypt
tablecrypt.register()
tablecrypt.register()
"""
    done = run_python("-c", program)
    assert (done.returncode, done.stderr.splitlines()) == (
        0,
        [
            "Catalog by-class was loaded as a SqlCatalog before tablecrypt.register(), and does not encrypt: "
            "call register() first, and load it again"
        ],
    )


@pytest.mark.usefixtures("catalogs")
def test_no_plain_catalog_is_made_by_the_name_of_an_encrypting_one() -> None:
    """As dlt does, which makes a SqlCatalog in memory where it finds no .pyiceberg.yaml in the places that it knows."""
    program = """
import json, sys
import tablecrypt
tablecrypt.register()
from pyiceberg.catalog import load_catalog
from pyiceberg.catalog.sql import SqlCatalog
from tablecrypt.errors import ConfigurationError
memory = {"uri": "sqlite:///:memory:"}
ways = [*(lambda name=name: SqlCatalog(name, **memory) for name in ("by-type", "by-class", "by-both", "plain", "other")),
        lambda: load_catalog("by-type", type="in-memory")]
ended = []
for way in ways:
    try:
        ended.append(type(way()).__name__)
    except ConfigurationError as error:
        ended.append(str(error))
print(json.dumps(ended))
"""
    by_type, by_class, by_both, plain, other, overridden = printed(program)

    assert (plain, other) == ("SqlCatalog", "SqlCatalog")
    for name, said in {"by-class": by_class, "by-both": by_both, "by-type": by_type}.items():
        assert f"catalog '{name}' is configured to encrypt" in said
        assert "PYICEBERG_HOME" in said
    assert "makes a InMemoryCatalog of that name" in overridden


@pytest.mark.usefixtures("catalogs")
def test_what_a_registered_program_writes_is_ciphertext(warehouse: Path) -> None:
    program = """
import json, tablecrypt
from pyiceberg.catalog import load_catalog
from tests.support.tables import ENCRYPTED, ROWS
tablecrypt.register()
for name in ("by-type", "by-class"):
    catalog = load_catalog(name)
    catalog.create_namespace_if_not_exists("db")
    catalog.create_table_if_not_exists("db.t", ROWS.schema, properties=ENCRYPTED).append(ROWS)
print(catalog.load_table("db.t").scan().to_arrow().num_rows)
"""
    assert printed(program) == 3
    written = contents_below(warehouse)
    assert len([path for path in written if path.suffix == ".parquet"]) == 2
    assert not [found for path, content in written.items() for found in findings(str(path), content)]


def test_an_encrypting_class_beside_another_type_is_refused(sql: dict[str, str], home: Path) -> None:
    before = contents_below(home)
    for kind in ("sql", "SQL", "rest", "in-memory"):
        module = catalogs_module({**sql, "type": kind})
        teach(module)
        with pytest.raises(ConfigurationError, match=f"'prod' has 'type: {kind.lower()}', which does not encrypt, and {CLASS} '"):
            module.load_catalog("prod")
    assert contents_below(home) == before


@pytest.mark.parametrize(
    ("configured", "said"),
    [
        ({"type": "tablecrypt"}, "the uri of catalog 'prod' is not set"),
        ({"type": "tablecrypt", "uri": "ftp://x"}, "the uri of catalog 'prod' begins with ftp://"),
        ({"type": "tablecrypt", CLASS: "pyiceberg.catalog.sql.SqlCatalog", "uri": "sqlite:///:memory:"}, "does not encrypt"),
        ({CLASS: "tablecrypt_catalog.EncryptedSqlCatalogue", "uri": "sqlite:///:memory:"}, "Did you mean EncryptedSqlCatalog?"),
        ({CLASS: MISSING, "uri": "sqlite:///:memory:", "encryption.kms-type": "memory"}, f"'{MISSING}' cannot be imported"),
    ],
)
def test_what_can_mean_no_catalog_is_refused(configured: dict[str, str], said: str) -> None:
    module = catalogs_module(configured)
    teach(module)
    with pytest.raises(ConfigurationError) as refused:
        module.load_catalog("prod")
    assert said in str(refused.value)


def test_a_class_of_the_users_own_encrypts_where_tablecrypt_made_it(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (home / "own_catalogs.py").write_text(
        "from pyiceberg.catalog.sql import SqlCatalog\n"
        "from tablecrypt_catalog import encrypted\n"
        "Ours = encrypted(SqlCatalog)\n"
        "class Theirs(SqlCatalog):\n    pass\n"
    )
    monkeypatch.syspath_prepend(str(home))
    classes = {}
    for name in ("Ours", "Theirs"):
        module = catalogs_module({CLASS: f"own_catalogs.{name}", "uri": "sqlite:///:memory:", "encryption.kms-type": "memory"})
        teach(module)
        classes[name] = hasattr(module.load_catalog("prod"), "as_encrypted")
    assert classes == {"Ours": True, "Theirs": False}


def test_a_program_stops_if_pyiceberg_cannot_be_taught() -> None:
    program = """
import sys, tablecrypt
tablecrypt.register()
sys.modules["tablecrypt_catalog._pyiceberg.loader"] = None
import pyiceberg.catalog
"""
    done = run_python("-c", program)
    assert done.returncode == 1
    assert "tablecrypt_catalog._pyiceberg.loader" in done.stderr.splitlines()[-1]


def test_a_pyiceberg_that_takes_the_class_from_the_file_itself_encrypts_too(sql: dict[str, str]) -> None:
    source = Path(pyiceberg.catalog.__file__).read_text(encoding="utf-8")
    learnt = source.replace("properties.get(PY_CATALOG_IMPL)", "conf.get(PY_CATALOG_IMPL)")
    learnt = learnt.replace("_import_catalog(name, catalog_impl, properties)", "_import_catalog(name, catalog_impl, conf)")
    assert learnt != source
    for configured in (sql, fails_closed(sql)):
        module = catalogs_module(configured, source=learnt)
        teach(module)
        assert type(module.load_catalog("prod")).__name__ == "EncryptedSqlCatalog"
    module = catalogs_module({**sql, "type": "tablecrypt"}, source=learnt)
    teach(module)
    with pytest.raises(ValueError, match="Must not set both"):
        module.load_catalog("prod")


PLAIN: Final = st.fixed_dictionaries(
    {},
    optional={
        "type": st.sampled_from(["sql", "SQL", "rest", "hive", "glue", "dynamodb", "in-memory", "bigquery", "", "iceberg", "tablecrypted"]),
        "uri": st.sampled_from(["sqlite:///x.db", "postgresql://h/d", "http://h", "https://h", "thrift://h:1", "ftp://h", "", "x"]),
        CLASS: st.sampled_from([MISSING, "pathlib.Path", "pyiceberg.catalog.memory.InMemoryCatalog", "Nothing", ""]),
        "warehouse": st.sampled_from(["file:///w", ""]),
    },
)
BEFORE: Final = catalogs_module({})
AFTER: Final = catalogs_module({})


class Made(Exception):
    """Which type of catalog was to be made, and of what."""


def _recording(module: ModuleType) -> None:
    def recording(kind: str) -> Any:
        def load(name: str, conf: Mapping[str, Any]) -> Catalog:
            raise Made(kind, name, dict(conf))

        return load

    module.AVAILABLE_CATALOGS.update({kind: recording(kind.value) for kind in module.AVAILABLE_CATALOGS})


_recording(BEFORE)
_recording(AFTER)
teach(AFTER)


def outcome(module: ModuleType, configured: Mapping[str, Any], arguments: Mapping[str, str]) -> tuple[Any, ...]:
    """What load_catalog makes of a configuration, or raises."""
    vars(module)["_ENV_CONFIG"] = configuration(configured)
    try:
        made = module.load_catalog("prod", **arguments)
    except Exception as error:  # noqa: BLE001  whatever it is, the two are to be alike
        return type(error).__name__, error.args
    return type(made).__name__, getattr(made, "properties", made)


@given(configured=PLAIN, arguments=PLAIN)
def test_every_other_configuration_means_what_it_meant(configured: dict[str, str], arguments: dict[str, str]) -> None:
    assert outcome(AFTER, configured, arguments) == outcome(BEFORE, configured, arguments)


def test_the_types_that_pyiceberg_lists_are_its_own() -> None:
    assert [kind.value for kind in AFTER.CatalogType] == [kind.value for kind in BEFORE.CatalogType]
    assert AFTER.CatalogType("tablecrypt") is AFTER.CatalogType("tablecrypt")
    assert repr(AFTER.CatalogType("tablecrypt")) == "<CatalogType.TABLECRYPT: 'tablecrypt'>"
    for wrong in ("tablecrypt ", "", None, 1):
        with pytest.raises(ValueError, match="is not a valid CatalogType"):
            AFTER.CatalogType(wrong)
