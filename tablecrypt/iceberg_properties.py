"""The properties of PyIceberg and Iceberg that this package knows.

    PYICEBERGS   of catalogs and FileIOs; tablecrypt/properties.py decides about them
    OF_TABLES    of tables; this package reads them by itself, or they decide about its commits

Of the second kind only encrypted tables are checked, and only what a commit sets: a plain table behaves as PyIceberg says, and what a table
holds already keeps nobody from reading it.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from tablecrypt.setting_kinds import Choice, Pattern, Property, Switch, WholeNumber

_MOST_OF_JAVA: Final = 2**31 - 1
"""Where Java reads a number as an int, it refuses to commit, write or plan with a greater one."""
_switch: Final = partial(Switch, scope="iceberg")

GC_ENABLED: Final = _switch(
    "gc.enabled",
    "false: others may use the table's files, so none is deleted.",
    reader="tablecrypt.table",
    default="true",
    where_unreadable=False,
)
WAP_ENABLED: Final = _switch(
    "write.wap.enabled",
    "true: a Spark session may write to a branch, or stage a snapshot, and publish it later.",
    reader="tablecrypt.spark",
    default="false",
)
ACCEPT_ANY_SCHEMA: Final = _switch(
    "write.spark.accept-any-schema",
    "true: rows that Spark appends may have other columns than the table.",
    reader="tablecrypt.spark",
    default="false",
    where_unreadable=False,
)
BLOOM_FILTERS: Final = _switch(
    "write.parquet.bloom-filter-enabled.column.",
    "Prefix. true is refused: a plaintext filter would tell which values a column holds.",
    reader="tablecrypt.table",
    default="false",
)

_of_commits: Final = partial(WholeNumber, scope="iceberg", reader="pyiceberg.table", most=_MOST_OF_JAVA)
OF_COMMITS: Final = (
    _of_commits("commit.retry.num-retries", "How often a commit that others were faster than is tried again.", default="4"),
    _of_commits("commit.retry.min-wait-ms", "How long it waits first.", default="100"),
    _of_commits("commit.retry.max-wait-ms", "How long it waits at most.", default="60000"),
    _of_commits("commit.retry.total-timeout-ms", "How long all tries may take.", default="1800000"),
)

PARTITION_SUMMARIES: Final = WholeNumber(
    "write.summary.partition-limit",
    "A snapshot of files in at most this many partitions says in the clear what it did to each, where the catalog's own configuration sets "
    "it too.",
    scope="iceberg",
    also_of="catalog",
    reader="tablecrypt.table",
    default="0",
    most=_MOST_OF_JAVA,
)
COMPRESSION: Final = Choice(
    "write.parquet.compression-codec",
    "zstd, gzip, snappy, brotli, lz4, lz4_raw, or uncompressed (also none).",
    scope="iceberg",
    reader="tablecrypt.table",
    default="zstd",
    choices=("zstd", "gzip", "snappy", "brotli", "lz4", "lz4_raw", "uncompressed", "none"),
)
_of_files: Final = partial(WholeNumber, scope="iceberg", reader="tablecrypt.table", least=1)
_of_pages: Final = partial(_of_files, most=_MOST_OF_JAVA)
_metrics: Final = partial(
    Pattern,
    scope="iceberg",
    reader="tablecrypt.table",
    pattern=r"none|counts|full|truncate\(0*[1-9][0-9]{0,8}\)",
    form="none, counts, full or truncate(n)",
)
_level: Final = partial(Pattern, scope="iceberg", pattern="-?[0-9]{1,9}", form="a whole number, as the codec counts its levels")
ROW_GROUP_BYTES: Final = _of_files("write.parquet.row-group-size-bytes", "Bytes of a row group that Spark writes.", default="134217728")
ROW_GROUP_LIMIT: Final = _of_files("write.parquet.row-group-limit", "Rows of a row group, at most.", default="1048576")
TARGET_FILE_SIZE: Final = _of_files("write.target-file-size-bytes", "Bytes of a data file.", default="536870912")
# 0 rows a page, for one, would let Arrow's writer run for ever.
OF_FILES: Final = (
    COMPRESSION,
    _level("write.parquet.compression-level", "A level of the codec.", reader="tablecrypt.table"),
    _of_pages("write.parquet.page-size-bytes", "Bytes of a data page.", default="1048576"),
    _of_pages("write.parquet.page-row-limit", "Rows of a data page, at most.", default="20000"),
    _of_pages("write.parquet.dict-size-bytes", "Bytes of a dictionary, at most.", default="2097152", least=0),
    ROW_GROUP_BYTES,
    ROW_GROUP_LIMIT,
    TARGET_FILE_SIZE,
    _metrics("write.metadata.metrics.default", "none, counts, full or truncate(n): which statistics.", default="truncate(16)"),
    _metrics("write.metadata.metrics.column.", "Prefix: the same of one column."),
    PARTITION_SUMMARIES,
)
"""How data files are written: checked too where a file is written, as another client may have set what cannot be used."""

# A table is read in other folders, and by other users, than it was written in.
_place: Final = partial(
    Pattern,
    scope="iceberg",
    reader="pyiceberg.table",
    pattern=r"([a-z][a-z0-9+.-]*:)?/.+",
    form="an absolute path or a URI, such as s3://bucket/path: a relative one is another place wherever a program runs",
)
OF_PLACES: Final = (
    _place("write.data.path", "Where data files are, if not in `data` in the table's folder."),
    _place("write.metadata.path", "Where metadata is, if not in `metadata` in the table's folder."),
    _place("write.object-storage.path", "An older name of `write.data.path`."),
    _place("write.folder-storage.path", "An older name of `write.data.path`."),
)

_of_writes: Final = partial(WholeNumber, scope="iceberg", reader="pyiceberg.table")
_switch_of_writes: Final = partial(Switch, scope="iceberg", reader="pyiceberg.table")
OF_WRITES: Final = (
    _switch_of_writes("write.object-storage.enabled", "true: a hash in the path of each data file.", default="false"),
    _switch_of_writes("write.object-storage.partitioned-paths", "false: that hash begins the file's own name.", default="true"),
    _switch_of_writes("commit.manifest-merge.enabled", "true: appends merge small manifests.", default="false"),
    _of_writes("commit.manifest.target-size-bytes", "Bytes of a merged manifest.", default="8388608", least=1),
    _of_commits("commit.manifest.min-count-to-merge", "How many manifests are merged, at least.", default="100"),
    _switch_of_writes("write.metadata.delete-after-commit.enabled", "true: commits delete the oldest metadata files.", default="false"),
    _of_commits("write.metadata.previous-versions-max", "How many metadata files the log of a table names.", default="100"),
)
_word_of_writes: Final = partial(Choice, scope="iceberg", reader="tablecrypt.table")
OF_FORMATS: Final = (
    _word_of_writes("write.format.default", "The format of data files.", default="parquet", choices=("parquet", "orc", "avro")),
    _word_of_writes(
        "write.avro.compression-codec",
        "gzip, zstd, bzip2, uncompressed, or snappy (`pip install pyiceberg[snappy]`): of manifests and manifest lists.",
        default="gzip",
        choices=("gzip", "zstd", "snappy", "bzip2", "uncompressed", "deflate", "zstandard", "null"),
    ),
)
_mode: Final = partial(_word_of_writes, choices=("copy-on-write", "merge-on-read"), default="copy-on-write")
_isolation: Final = partial(_word_of_writes, choices=("serializable", "snapshot"), default="serializable")
ISOLATION_LEVELS: Final = {
    "delete": _isolation("write.delete.isolation-level", "Which changes of others end a delete. snapshot: not that they add rows."),
    "update": _isolation("write.update.isolation-level", "The same of an update, an overwrite and an upsert."),
    "merge": _isolation("write.merge.isolation-level", "The same of MERGE INTO."),
}
ROW_MODES: Final = {
    "delete": _mode("write.delete.mode", "Whether files are written again without deleted rows, or deletion vectors mark these."),
    "update": _mode("write.update.mode", "The same of updated rows."),
    "merge": _mode("write.merge.mode", "The same of MERGE INTO and upserts."),
}

_of_expiry: Final = partial(WholeNumber, scope="iceberg", reader="tablecrypt.maintenance")
MAX_SNAPSHOT_AGE: Final = _of_expiry("history.expire.max-snapshot-age-ms", "Age at which snapshots expire.", default="432000000")
MIN_SNAPSHOTS: Final = _of_expiry(
    "history.expire.min-snapshots-to-keep", "How many snapshots of a branch stay.", default="1", least=1, most=_MOST_OF_JAVA
)
MAX_REF_AGE: Final = _of_expiry(
    "history.expire.max-ref-age-ms", "Age at which branches and tags expire: by default, never.", default=str(2**63 - 1)
)
OF_EXPIRY: Final = (MAX_SNAPSHOT_AGE, MIN_SNAPSHOTS, MAX_REF_AGE)

_of_spark: Final = partial(WholeNumber, scope="iceberg", reader="tablecrypt.spark")
_switch_of_spark: Final = partial(_switch, reader="tablecrypt.spark", default="true")
_distribution: Final = partial(Choice, scope="iceberg", reader="tablecrypt.spark", choices=("none", "hash", "range"))
DISTRIBUTION: Final = _distribution(
    "write.distribution-mode",
    "none, hash or range: how Spark hands rows to tasks. By default range for a table with a sort order, else hash.",
)
DISTRIBUTIONS: Final = {
    "delete": _distribution("write.delete.distribution-mode", "The same of a delete, by default hash."),
    "update": _distribution("write.update.distribution-mode", "The same of an update, by default hash."),
    "merge": _distribution("write.merge.distribution-mode", "The same of MERGE INTO, by default hash."),
}
FANOUT: Final = _switch_of_spark("write.spark.fanout.enabled", "false: Spark sorts rows by partition, so that a task has one file open.")
ADVISORY_BYTES: Final = _of_spark(
    "write.spark.advisory-partition-size-bytes", "Bytes of rows that a task should get. 0: Spark's.", default="0"
)
SPLIT_BYTES: Final = _of_spark("read.split.target-size", "Bytes that a task reads, by default as Spark is set.", least=1)
OPEN_FILE_BYTES: Final = _of_spark("read.split.open-file-cost", "Bytes that a file counts beside its own, by default as Spark is set.")
ADAPTIVE_READS: Final = _switch_of_spark("read.split.adaptive-size.enabled", "true: small reads are split among all cores.")
VECTORIZED_READS: Final = _switch_of_spark("read.parquet.vectorization.enabled", "true: Spark's vectorised reader reads what it can.")
OF_SPARK: Final = (
    DISTRIBUTION,
    *DISTRIBUTIONS.values(),
    FANOUT,
    ADVISORY_BYTES,
    SPLIT_BYTES,
    OPEN_FILE_BYTES,
    ADAPTIVE_READS,
    VECTORIZED_READS,
)

# This package does without them. Iceberg Java refuses to commit to, write or plan a table where it cannot read one.
_long_of_java: Final = partial(WholeNumber, scope="iceberg", reader="org.apache.iceberg")
_of_java: Final = partial(_long_of_java, most=_MOST_OF_JAVA)
_word_of_java: Final = partial(Choice, scope="iceberg", reader="org.apache.iceberg")
OF_JAVA: Final = (
    _word_of_java("write.metadata.compression-codec", "none or gzip: of metadata files.", default="none", choices=("none", "gzip")),
    _of_java("write.metadata.metrics.max-inferred-column-defaults", "How many columns have statistics by default.", default="100"),
    _of_java("write.parquet.row-group-check-min-record-count", "After how many rows a row group is measured.", default="100", least=1),
    _of_java("write.parquet.row-group-check-max-record-count", "The same, at most.", default="10000", least=1),
    _level(
        "write.avro.compression-level", "A level of the codec of manifests and manifest lists.", reader="org.apache.iceberg", default="1"
    ),
    _word_of_java(
        "write.delete.granularity", "file or partition: what a position delete is about.", default="file", choices=("file", "partition")
    ),
    _long_of_java("read.split.metadata-target-size", "Bytes of a metadata table that a task reads.", default="33554432", least=1),
    _of_java("read.split.planning-lookback", "How many tasks are filled at once.", default="10", least=1),
)

_of_catalogs: Final = partial(Property, scope="pyiceberg", reader="pyiceberg.catalog")
_of_storage: Final = partial(Property, scope="pyiceberg", reader="pyiceberg.io")
_vended: Final = partial(Property, scope="pyiceberg", reader="pyiceberg.io", from_server=True)

PYICEBERGS: Final = (
    _of_catalogs("py-catalog-impl", "The catalog's class.", names_code=True),
    _of_catalogs("type", "One of PyIceberg's own catalogs."),
    _of_catalogs("auth", "How to log in; `auth.impl` is a class.", names_code=True, sensitive=True),
    _of_catalogs("auth.", "Prefix: as `auth`.", names_code=True, sensitive=True),
    _of_catalogs("uri", "Where the catalog is."),
    _of_catalogs("oauth2-server-uri", "Who gets `credential`."),
    _of_catalogs("credential", "Client id and secret.", sensitive=True),
    _of_catalogs("token", "The bearer token of the catalog.", sensitive=True),
    _of_catalogs("scope", "Of the token."),
    _of_catalogs("audience", "Of the token."),
    _of_catalogs("resource", "Of the token."),
    _of_catalogs("header.", "Prefix: headers of each request.", sensitive=True),
    _of_catalogs("ssl", "Certificates."),
    _of_catalogs("ssl.", "Prefix: as `ssl`."),
    _of_catalogs("rest.", "Prefix: signed requests."),
    _of_catalogs("snapshot-loading-mode", "Which snapshots a load brings. Of encrypted tables it is all."),
    _of_catalogs("warehouse", "Which warehouse.", from_server=True),
    _of_catalogs("prefix", "The part of the path below the catalog's `uri`.", from_server=True),
    _of_catalogs("namespace-separator", "Between the parts of a namespace in a path.", from_server=True),
    _of_catalogs("view-endpoints-supported", "Whether there are views.", from_server=True),
    WholeNumber("rest-page-size", "Entries in one answer.", scope="pyiceberg", reader="pyiceberg.catalog", from_server=True, least=1),
    _of_catalogs("scan-planning-mode", "`server` is refused for encrypted tables.", from_server=True),
    Property(
        "write.py-location-provider.impl",
        "The class that names new files. A table may repeat what the catalog's own configuration says.",
        scope="pyiceberg",
        reader="pyiceberg.table",
        names_code=True,
    ),
    _of_storage("py-io-impl", "The FileIO's class.", names_code=True),
    _of_storage("s3.retry-strategy-impl", "A class of Arrow's S3 client.", names_code=True),
    _of_storage("s3.endpoint", "Who gets S3 requests."),
    _of_storage("s3.proxy-uri", "Who passes S3 requests on."),
    _of_storage("s3.signer", "Who signs S3 requests; also the prefix `s3.signer.`."),
    _of_storage("s3.signer.", "Prefix: the signer's address, which gets the catalog's token."),
    _of_storage("s3.profile-name", "A profile of the AWS configuration files."),
    _of_storage("s3.role-arn", "A role to assume."),
    _of_storage("s3.role-session-name", "Its session's name."),
    _of_storage("s3.sse-kms-key-id", "With which key S3 encrypts."),
    _of_storage("s3.server-side-encryption", "How S3 encrypts."),
    _vended("s3.access-key-id", "With the next two: credentials, for the client's own endpoint.", sensitive=True),
    _vended("s3.secret-access-key", "The secret of `s3.access-key-id`.", sensitive=True),
    _vended("s3.session-token", "The session token of temporary credentials.", sensitive=True),
    _vended("s3.region", "The bucket's region. From a server: small letters, digits and hyphens."),
    _vended("s3.force-virtual-addressing", "Bucket names as host names."),
    _of_storage("gcs.service.host", "Who gets Cloud Storage requests."),
    _of_storage("gcs.session-kwargs", "Of the HTTP session, proxies among them."),
    _vended("gcs.oauth2.token-expires-at", "When the token expires."),
    _vended("gcs.project-id", "The project."),
    _of_storage("adls.connection-string", "Account and key.", sensitive=True),
    _of_storage("adls.credential", "A credential object.", sensitive=True),
    _of_storage("adls.account-name", "Whose storage."),
    _of_storage("adls.account-key", "Its key.", sensitive=True),
    _of_storage("adls.account-host", "Who gets Azure requests."),
    _of_storage("adls.blob-storage-authority", "As `adls.account-host`."),
    _of_storage("adls.blob-storage-scheme", "http or https."),
    _of_storage("adls.dfs-storage-authority", "As `adls.account-host`."),
    _of_storage("adls.dfs-storage-scheme", "http or https."),
    _vended("adls.token", "An access token.", sensitive=True),
    _vended("adls.sas-token", "A shared access signature.", sensitive=True),
    _vended("adls.sas-token.", "Prefix: that of one account.", sensitive=True),
    _of_storage("hf.endpoint", "Who gets Hugging Face requests."),
    _of_storage("hf.token", "Its token.", sensitive=True),
    _of_storage("hdfs.", "Prefix: host, port, user and ticket."),
)
"""Properties of PyIceberg's catalogs and FileIOs, about which tablecrypt/properties.py decides something."""

OF_TABLES: Final = (
    GC_ENABLED,
    WAP_ENABLED,
    ACCEPT_ANY_SCHEMA,
    BLOOM_FILTERS,
    *OF_FILES,
    *OF_PLACES,
    *OF_WRITES,
    *OF_FORMATS,
    *ROW_MODES.values(),
    *ISOLATION_LEVELS.values(),
    *OF_EXPIRY,
    *OF_COMMITS,
    *OF_SPARK,
    *OF_JAVA,
)
"""Properties of Iceberg's tables whose values are checked: those that this package or PyIceberg reads, those of commits, as in Java, and
those that stop Java."""
