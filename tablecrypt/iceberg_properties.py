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

_switch: Final = partial(Switch, scope="iceberg")

GC_ENABLED: Final = _switch(
    name="gc.enabled",
    reader="tablecrypt.table",
    default="true",
    where_unreadable=False,
    doc="false: others may use the table's files, so none is deleted.",
)
WAP_ENABLED: Final = _switch(
    name="write.wap.enabled",
    reader="tablecrypt.spark",
    default="false",
    doc="true: a Spark session may write to a branch, or stage a snapshot, and publish it later.",
)
ACCEPT_ANY_SCHEMA: Final = _switch(
    name="write.spark.accept-any-schema",
    reader="tablecrypt.spark",
    default="false",
    where_unreadable=False,
    doc="true: rows that Spark appends may have other columns than the table.",
)
BLOOM_FILTERS: Final = _switch(
    name="write.parquet.bloom-filter-enabled.column.",
    reader="tablecrypt.table",
    default="false",
    doc="Prefix. true is refused: a plaintext filter would tell which values a column holds.",
)

_of_commits: Final = partial(WholeNumber, scope="iceberg", reader="pyiceberg.table")
OF_COMMITS: Final = (
    _of_commits(name="commit.retry.num-retries", default="4", doc="How often a commit that others were faster than is tried again."),
    _of_commits(name="commit.retry.min-wait-ms", default="100", doc="How long it waits first."),
    _of_commits(name="commit.retry.max-wait-ms", default="60000", doc="How long it waits at most."),
    _of_commits(name="commit.retry.total-timeout-ms", default="1800000", doc="How long all tries may take."),
)

PARTITION_SUMMARIES: Final = WholeNumber(
    name="write.summary.partition-limit",
    scope="iceberg",
    reader="tablecrypt.table",
    default="0",
    doc="A snapshot of files in at most this many partitions says in the clear what it did to each.",
)
COMPRESSION: Final = Choice(
    name="write.parquet.compression-codec",
    scope="iceberg",
    reader="tablecrypt.table",
    default="zstd",
    choices=("zstd", "gzip", "snappy", "brotli", "lz4", "lz4_raw", "uncompressed", "none"),
    doc="zstd, gzip, snappy, brotli, lz4, lz4_raw, or uncompressed (also none).",
)
_of_files: Final = partial(WholeNumber, scope="iceberg", reader="tablecrypt.table", least=1)
_metrics: Final = partial(
    Pattern,
    scope="iceberg",
    reader="tablecrypt.table",
    pattern=r"none|counts|full|truncate\(0*[1-9][0-9]{0,8}\)",
    form="none, counts, full or truncate(n)",
)
ROW_GROUP_BYTES: Final = _of_files(
    name="write.parquet.row-group-size-bytes", default="134217728", doc="Bytes of a row group that Spark writes."
)
ROW_GROUP_LIMIT: Final = _of_files(name="write.parquet.row-group-limit", default="1048576", doc="Rows of a row group, at most.")
TARGET_FILE_SIZE: Final = _of_files(name="write.target-file-size-bytes", default="536870912", doc="Bytes of a data file.")
# 0 rows a page, for one, would let Arrow's writer run for ever.
OF_FILES: Final = (
    COMPRESSION,
    Pattern(
        name="write.parquet.compression-level",
        scope="iceberg",
        reader="tablecrypt.table",
        pattern="-?[0-9]{1,9}",
        form="a whole number, as the codec counts its levels",
        doc="A level of the codec.",
    ),
    _of_files(name="write.parquet.page-size-bytes", default="1048576", doc="Bytes of a data page."),
    _of_files(name="write.parquet.page-row-limit", default="20000", doc="Rows of a data page, at most."),
    _of_files(name="write.parquet.dict-size-bytes", default="2097152", least=0, doc="Bytes of a dictionary, at most."),
    ROW_GROUP_BYTES,
    ROW_GROUP_LIMIT,
    TARGET_FILE_SIZE,
    _metrics(name="write.metadata.metrics.default", default="truncate(16)", doc="none, counts, full or truncate(n): which statistics."),
    _metrics(name="write.metadata.metrics.column.", doc="Prefix: the same of one column."),
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
    _place(name="write.data.path", doc="Where data files are, if not in `data` in the table's folder."),
    _place(name="write.metadata.path", doc="Where metadata is, if not in `metadata` in the table's folder."),
    _place(name="write.object-storage.path", doc="An older name of `write.data.path`."),
    _place(name="write.folder-storage.path", doc="An older name of `write.data.path`."),
)

_of_writes: Final = partial(WholeNumber, scope="iceberg", reader="pyiceberg.table")
_switch_of_writes: Final = partial(Switch, scope="iceberg", reader="pyiceberg.table")
OF_WRITES: Final = (
    _switch_of_writes(name="write.object-storage.enabled", default="false", doc="true: a hash in the path of each data file."),
    _switch_of_writes(name="write.object-storage.partitioned-paths", default="true", doc="false: no partition values in these paths."),
    _switch_of_writes(name="commit.manifest-merge.enabled", default="false", doc="true: appends merge small manifests."),
    _of_writes(name="commit.manifest.target-size-bytes", default="8388608", least=1, doc="Bytes of a merged manifest."),
    _of_writes(name="commit.manifest.min-count-to-merge", default="100", doc="How many manifests are merged, at least."),
    _switch_of_writes(
        name="write.metadata.delete-after-commit.enabled", default="false", doc="true: commits delete the oldest metadata files."
    ),
    _of_writes(name="write.metadata.previous-versions-max", default="100", doc="How many metadata files the log of a table names."),
)
_of_expiry: Final = partial(WholeNumber, scope="iceberg", reader="tablecrypt.maintenance")
MAX_SNAPSHOT_AGE: Final = _of_expiry(name="history.expire.max-snapshot-age-ms", default="432000000", doc="Age at which snapshots expire.")
MIN_SNAPSHOTS: Final = _of_expiry(
    name="history.expire.min-snapshots-to-keep", default="1", least=1, doc="How many snapshots of a branch stay."
)
MAX_REF_AGE: Final = _of_expiry(
    name="history.expire.max-ref-age-ms", default=str(2**63 - 1), doc="Age at which branches and tags expire: by default, never."
)
OF_EXPIRY: Final = (MAX_SNAPSHOT_AGE, MIN_SNAPSHOTS, MAX_REF_AGE)

_of_catalogs: Final = partial(Property, scope="pyiceberg", reader="pyiceberg.catalog")
_of_storage: Final = partial(Property, scope="pyiceberg", reader="pyiceberg.io")
_vended: Final = partial(Property, scope="pyiceberg", reader="pyiceberg.io", from_server=True)

PYICEBERGS: Final = (
    _of_catalogs(name="py-catalog-impl", names_code=True, doc="The catalog's class."),
    _of_catalogs(name="type", doc="One of PyIceberg's own catalogs."),
    _of_catalogs(name="auth", names_code=True, sensitive=True, doc="How to log in; `auth.impl` is a class."),
    _of_catalogs(name="auth.", names_code=True, sensitive=True, doc="Prefix: as `auth`."),
    _of_catalogs(name="uri", doc="Where the catalog is."),
    _of_catalogs(name="oauth2-server-uri", doc="Who gets `credential`."),
    _of_catalogs(name="credential", sensitive=True, doc="Client id and secret."),
    _of_catalogs(name="token", sensitive=True, doc="The bearer token of the catalog."),
    _of_catalogs(name="scope", doc="Of the token."),
    _of_catalogs(name="audience", doc="Of the token."),
    _of_catalogs(name="resource", doc="Of the token."),
    _of_catalogs(name="header.", sensitive=True, doc="Prefix: headers of each request."),
    _of_catalogs(name="ssl", doc="Certificates."),
    _of_catalogs(name="ssl.", doc="Prefix: as `ssl`."),
    _of_catalogs(name="rest.", doc="Prefix: signed requests."),
    _of_catalogs(name="snapshot-loading-mode", doc="Which snapshots a load brings. Of encrypted tables it is all."),
    _of_catalogs(name="warehouse", from_server=True, doc="Which warehouse."),
    _of_catalogs(name="prefix", from_server=True, doc="The part of the path below the catalog's `uri`."),
    _of_catalogs(name="namespace-separator", from_server=True, doc="Between the parts of a namespace in a path."),
    _of_catalogs(name="view-endpoints-supported", from_server=True, doc="Whether there are views."),
    WholeNumber(
        name="rest-page-size", scope="pyiceberg", reader="pyiceberg.catalog", from_server=True, least=1, doc="Entries in one answer."
    ),
    _of_catalogs(name="scan-planning-mode", from_server=True, doc="`server` is refused for encrypted tables."),
    Property(
        name="write.py-location-provider.impl",
        scope="pyiceberg",
        reader="pyiceberg.table",
        names_code=True,
        doc="The class that names new files. A table may repeat what the catalog's own configuration says.",
    ),
    _of_storage(name="py-io-impl", names_code=True, doc="The FileIO's class."),
    _of_storage(name="s3.retry-strategy-impl", names_code=True, doc="A class of Arrow's S3 client."),
    _of_storage(name="s3.endpoint", doc="Who gets S3 requests."),
    _of_storage(name="s3.proxy-uri", doc="Who passes S3 requests on."),
    _of_storage(name="s3.signer", doc="Who signs S3 requests; also the prefix `s3.signer.`."),
    _of_storage(name="s3.signer.", doc="Prefix: the signer's address, which gets the catalog's token."),
    _of_storage(name="s3.profile-name", doc="A profile of the AWS configuration files."),
    _of_storage(name="s3.role-arn", doc="A role to assume."),
    _of_storage(name="s3.role-session-name", doc="Its session's name."),
    _of_storage(name="s3.sse-kms-key-id", doc="With which key S3 encrypts."),
    _of_storage(name="s3.server-side-encryption", doc="How S3 encrypts."),
    _vended(name="s3.access-key-id", sensitive=True, doc="With the next two: credentials, for the client's own endpoint."),
    _vended(name="s3.secret-access-key", sensitive=True, doc="The secret of `s3.access-key-id`."),
    _vended(name="s3.session-token", sensitive=True, doc="The session token of temporary credentials."),
    _vended(name="s3.region", doc="The bucket's region. From a server: small letters, digits and hyphens."),
    _vended(name="s3.force-virtual-addressing", doc="Bucket names as host names."),
    _of_storage(name="gcs.service.host", doc="Who gets Cloud Storage requests."),
    _of_storage(name="gcs.session-kwargs", doc="Of the HTTP session, proxies among them."),
    _vended(name="gcs.oauth2.token-expires-at", doc="When the token expires."),
    _vended(name="gcs.project-id", doc="The project."),
    _of_storage(name="adls.connection-string", sensitive=True, doc="Account and key."),
    _of_storage(name="adls.credential", sensitive=True, doc="A credential object."),
    _of_storage(name="adls.account-name", doc="Whose storage."),
    _of_storage(name="adls.account-key", sensitive=True, doc="Its key."),
    _of_storage(name="adls.account-host", doc="Who gets Azure requests."),
    _of_storage(name="adls.blob-storage-authority", doc="As `adls.account-host`."),
    _of_storage(name="adls.blob-storage-scheme", doc="http or https."),
    _of_storage(name="adls.dfs-storage-authority", doc="As `adls.account-host`."),
    _of_storage(name="adls.dfs-storage-scheme", doc="http or https."),
    _vended(name="adls.token", sensitive=True, doc="An access token."),
    _vended(name="adls.sas-token", sensitive=True, doc="A shared access signature."),
    _vended(name="adls.sas-token.", sensitive=True, doc="Prefix: that of one account."),
    _of_storage(name="hf.endpoint", doc="Who gets Hugging Face requests."),
    _of_storage(name="hf.token", sensitive=True, doc="Its token."),
    _of_storage(name="hdfs.", doc="Prefix: host, port, user and ticket."),
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
    *OF_EXPIRY,
    *OF_COMMITS,
)
"""Properties of Iceberg's tables whose values are checked: those that this package or PyIceberg reads, and those of commits, as in Java."""
