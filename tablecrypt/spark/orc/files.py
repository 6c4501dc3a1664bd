"""Writing and reading ORC files with encrypted columns through Spark's own writer and reader.

    write_orc    options, checked ─► Spark's write ─► every new file's footer: are the columns encrypted, under these keys?
    read_orc     a DataFrame whose reads end in an error where a key is refused or the KMS fails

A file that is not encrypted as asked is a PlaintextRefusedError that names it; the files stay for an investigation.

Reads have key providers that never turn a failure into masks, brought to the session when first needed:

    orc.key.provider    the KMS refuses      the KMS fails      the KMS is unreachable
    hadoop              masks                masks              masks                     what ORC has
    tablecrypt          error                error              error
    tablecrypt-masks    masks                error              error

All three ask the KMS that hadoop.security.key.provider.path names. A refusal is Hadoop's AuthorizationException; a server that refuses with
something else than an IOException, as `tablecrypt hadoop-kms` does, is an error with every provider.

Executors get the classes with the application's jars, before their next task. Where ORC does not find a provider it reads masks, so a small
job asks executors whether they have it before anything is read. ORC keeps one provider of each kind for the life of a JVM.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from threading import Lock
from typing import TYPE_CHECKING, Any, Final

from tablecrypt.errors import ConfigurationError, PlaintextRefusedError
from tablecrypt.spark.orc.options import BLOOM_FILTER_COLUMNS, Path, orc_options, shown, split_column
from tablecrypt.spark.orc.plaintext_settings import check_orc_session, session_setting
from tablecrypt.spark.shared.install import jar_for
from tablecrypt.spark.shared.sources import KEY_PROVIDER_FACTORY, orc_sources

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

KEY_PROVIDER: Final = "orc.key.provider"
ERRORS: Final = "tablecrypt"
MASKS_WHERE_REFUSED: Final = "tablecrypt-masks"
_MOST_TASKS: Final = 64

_installed: set[str] = set()
_lock = Lock()


def write_orc(
    df: DataFrame,
    path: str,
    encrypt: Mapping[str, Sequence[str]],
    mask: Mapping[str, str] | None = None,
    *,
    mode: str = "errorifexists",
    partition_by: Sequence[str] = (),
    options: Mapping[str, str] | None = None,
) -> None:
    """Write rows as ORC files, with columns encrypted for readers that have no key.

    Args:
        df: the rows.
        path: the folder, as Spark takes it.
        encrypt: for each key of the KMS the columns under it: {"pii": ["ssn", "home.zip"]}.
        mask: what readers without the key see of encrypted columns: {"ssn": "nullify"}, which is the default.
        mode: that of df.write: errorifexists, overwrite, append or ignore.
        partition_by: columns by which the files are partitioned; encrypted ones are refused.
        options: more options of the ORC writer. Those of encryption come from the arguments above.

    Raises:
        ConfigurationError: the session or an argument would write plaintext; see options.py and plaintext_settings.py.
        KeyNotFoundError, KmsAccessDeniedError, KmsUnavailableError: the KMS does not give a key.
        PlaintextRefusedError: Spark wrote a file without the encryption asked for.
    """
    spark = df.sparkSession
    given = dict(options or {})
    # These would come in place of the checked ones, and Spark compares names of options without case.
    if taken := [name for name in given if name.lower() in {"orc.encrypt", "orc.mask", KEY_PROVIDER}]:
        raise ConfigurationError(f"the option {taken[0]} comes from the arguments of write_orc")

    bloom_filters = next((value for name, value in given.items() if name.lower() == BLOOM_FILTER_COLUMNS), None)
    made = orc_options(
        df.schema,
        encrypt,
        mask,
        partition_by=partition_by,
        bloom_filter_columns=session_setting(spark, BLOOM_FILTER_COLUMNS) if bloom_filters is None else bloom_filters,
    )
    check_orc_session(spark, encrypt)
    install_checked_keys(spark)
    # Also with overwrite, which may leave files of other partitions as they were.
    before = _files(spark, path)
    writer = df.write.mode(mode).options(**given, **made, **{KEY_PROVIDER: ERRORS})
    if partition_by:
        writer = writer.partitionBy(*partition_by)
    writer.orc(path)
    wanted = {split_column(column): key for key, columns in encrypt.items() for column in columns}
    # What ORC was asked for proves nothing: a setting that it does not know makes plaintext without an error.
    for location in _files(spark, path) - before:
        _check_file(spark, location, wanted)


def read_orc(
    spark: SparkSession, path: str | list[str], *, masked: bool = False, schema: StructType | str | None = None, **options: str
) -> DataFrame:
    """Return a DataFrame of ORC files, whose encrypted columns are read with the keys of the KMS or not at all.

    Args:
        spark: the session.
        path: one or more files or folders, as spark.read.orc takes them.
        masked: show the masks of columns whose keys the KMS refuses; `tablecrypt hadoop-kms` refuses so where its allow list says masks.
            A KMS that fails is an error all the same.
        schema: that of the rows, where it should not be read from the files.
        options: more options of the ORC reader.
    """
    check_orc_session(spark)
    install_checked_keys(spark)
    reader = spark.read.options(**{**options, KEY_PROVIDER: MASKS_WHERE_REFUSED if masked else ERRORS})
    if schema is not None:
        reader = reader.schema(schema)
    return reader.orc(path)


def _files(spark: SparkSession, path: str) -> set[str]:
    """The data files below a folder: what Spark reads of it."""
    context: Any = spark.sparkContext
    root = context._jvm.org.apache.hadoop.fs.Path(path)
    system = root.getFileSystem(context._jsc.hadoopConfiguration())
    found: set[str] = set()
    if not system.exists(root):
        return found

    listed = system.listFiles(root, True)
    while listed.hasNext():
        file = listed.next().getPath()
        if not file.getName().startswith(("_", ".")):
            found.add(file.toString())

    return found


def _check_file(spark: SparkSession, location: str, wanted: Mapping[Path, str]) -> None:
    context: Any = spark.sparkContext
    jvm, configuration = context._jvm, context._jsc.hadoopConfiguration()
    reader = jvm.org.apache.orc.OrcFile.createReader(
        jvm.org.apache.hadoop.fs.Path(location), jvm.org.apache.orc.OrcFile.readerOptions(configuration)
    )

    try:
        found = {each.getRoot().getId(): each.getKeyDescription().getKeyName() for each in reader.getEncryptionVariants()}
        for path, key in wanted.items():
            # Under this key and no other: encrypted under another one, the values are open to other readers.
            if found.get(reader.getSchema().findSubtype(shown(path)).getId()) != key:
                raise PlaintextRefusedError(location, f"column {shown(path)} was written without encryption under the key {key!r}")
    finally:
        reader.close()


def install_checked_keys(spark: SparkSession) -> None:
    """Give the session's application the two providers, once.

    Raises:
        ConfigurationError: this Spark cannot compile or take them.
    """
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    context = spark.sparkContext

    with _lock:
        if context.applicationId in _installed:
            return

        try:
            # Unlike SparkContext.addJar, this gives the classes to the driver too, where the probe is analysed.
            spark.sql(f"ADD JAR '{jar_for(spark, orc_sources())}'")
            answers = _ask_executors(spark)
        except (Py4JError, PySparkException) as error:
            raise ConfigurationError(f"Spark {spark.version} does not take tablecrypt's key provider for ORC: {error}") from error

        # ORC takes a provider that it does not find for none at all, and shows masks without an error.
        if answers != {"found"}:
            raise ConfigurationError("executors do not find tablecrypt's key provider for ORC, and would read masks in place of values")

        _installed.add(context.applicationId)


def _ask_executors(spark: SparkSession) -> set[str]:
    """Run one probe per core and return the distinct answers."""
    tasks = min(spark.sparkContext.defaultParallelism, _MOST_TASKS)
    probe = spark.range(0, tasks, 1, tasks).selectExpr(f"java_method('{KEY_PROVIDER_FACTORY}', 'find') AS found")
    return {row["found"] for row in probe.collect()}
