"""The registry of properties: what each means, its default, and where it may come from and go to.

Every decision of these kinds is made by the functions at the end of this module and nowhere else:

    may a table's metadata set it?              `check_table_properties`
    may a REST server set it or vend it?        `taken_from_server`
    does an executor get it?                    `for_executors`
    is it a secret that must not be shown?      `is_sensitive`
    does it tell two KMS clients apart?         `for_executors` too: executors get what KMS clients read
    is there a property of that name at all,
    and can its value be read?                  `check_own_properties`

How a value is read, each declaration says by its kind (setting_kinds.py). Names that Iceberg Java has keep Java's spelling. Properties of
PyIceberg and Iceberg are in iceberg_properties.py. A name that ends with a dot is a prefix.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Mapping
from functools import cache, lru_cache, partial
from typing import TYPE_CHECKING, Any, Final, cast

from tablecrypt.addresses import leads_to, repeats
from tablecrypt.arguments import check_text, described
from tablecrypt.errors import ConfigurationError
from tablecrypt.iceberg_properties import PYICEBERGS
from tablecrypt.setting_kinds import Choice, Name, Property, Switch, WholeNumber, nearest, words_of

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog

logger = logging.getLogger(__name__)

_of_keys: Final = partial(Property, scope="table", reader="tablecrypt.keys")
_number_of_keys: Final = partial(WholeNumber, scope="table", reader="tablecrypt.keys")
_of_columns: Final = partial(Property, scope="table", reader="tablecrypt.table")
_of_kms: Final = partial(Property, scope="catalog", reader="tablecrypt.kms", to_executors=True)
_number_of_kms: Final = partial(WholeNumber, scope="catalog", reader="tablecrypt.kms", to_executors=True)
_of_aws: Final = partial(Name, scope="catalog", reader="tablecrypt.kms.aws", to_executors=True)
# Credentials that are not temporary have an empty session token in many programs, and a tag may be empty.
_text_of_aws: Final = partial(Property, scope="catalog", reader="tablecrypt.kms.aws", to_executors=True)
_choice_of_aws: Final = partial(Choice, scope="catalog", reader="tablecrypt.kms.aws", to_executors=True)
_of_memory: Final = partial(Property, scope="catalog", reader="tablecrypt.kms.memory", to_executors=True)
_of_local: Final = partial(Name, scope="catalog", reader="tablecrypt.kms.local_file", to_executors=True)
_of_gcp: Final = partial(Name, scope="catalog", reader="tablecrypt.kms.gcp", to_executors=True)
_of_azure: Final = partial(Name, scope="catalog", reader="tablecrypt.kms.azure", to_executors=True)
_of_vault: Final = partial(Name, scope="catalog", reader="tablecrypt.kms.vault", to_executors=True)

KEY_ID: Final = _of_keys(
    "encryption.key-id",
    "The master key that wraps the table's KEKs. Set at creation, never changed or removed.",
    reader="tablecrypt_catalog",
)
DATA_KEY_LENGTH: Final = _number_of_keys("encryption.data-key-length", "Length in bytes of every DEK and KEK: 16, 24 or 32.", default="16")
KEK_LIFESPAN_MS: Final = _number_of_keys(
    "encryption.kek-lifespan-ms",
    "Age at which a KEK wraps nothing new. May shorten the 730 days that Iceberg Java uses, never lengthen them.",
    default=str(730 * 24 * 60 * 60 * 1000),
)
COLUMN_KEYS: Final = _of_columns(
    "encryption.column-keys", "Columns with master keys of their own: `alias/pii: ssn, person.email; alias/fin: salary`."
)
COLUMN_TAGS: Final = Name(
    "encryption.column-tags",
    "Master keys for tags in the documentation of columns: `pii: alias/pii`.",
    scope="table",
    reader="tablecrypt.table",
    also_of="catalog",
)
COLUMN_MASK: Final = _of_columns(
    "encryption.column-mask.", "Prefix: what others see of the column: null, error, redact, hash, truncate(n), constant(value)."
)
COLUMN: Final = _of_keys(
    "encryption.column.", "Prefix: `<field id>.key-id`, `.mask`, `.since`, `.former-key-id` and `.former-until`. Never set by hand."
)
COLUMN_ENTRY: Final = _of_keys(
    "encryption.column-entry.",
    "Prefix: `<key-id>`, a copy of a column entry of encryption-keys, for engines that drop those. Never set by hand.",
)
COLUMN_GONE: Final = _of_keys(
    "encryption.column-gone.", "Prefix: `<hash of a key-id>`, a column entry that was removed on purpose. Never set by hand."
)
SHARE: Final = Property(
    "encryption.share.",
    "Prefix: `<uuid of a share>`, where the record of a share is, and the wrapped key that opens it. Never set by hand.",
    scope="table",
    reader="tablecrypt.maintenance",
)
COLUMN_GUARD: Final = Switch(
    "encryption.column-guard",
    "false: set no properties that keep Java from writing protected columns.",
    scope="table",
    reader="tablecrypt.table",
    default="true",
    where_unreadable=True,
)
MASKED_READS: Final = Choice(
    "encryption.masked-reads",
    "What scans do with protected columns whose keys the reader may not use: `mask` returns masks, to engines too; `error` refuses to "
    "read them. If unset, rows show masks and engines are refused.",
    scope="catalog",
    reader="tablecrypt.table",
    choices=("mask", "error"),
)
PINS: Final = Name(
    "encryption.pins",
    "Path of a JSON file that records what this client has seen of encrypted tables: older, edited, plaintext states are refused.",
    scope="catalog",
    reader="tablecrypt_catalog",
)
REQUIRED: Final = Switch(
    "encryption.required",
    "true: this catalog neither creates nor opens a table that is not encrypted; audit and migrate still read such tables.",
    scope="catalog",
    reader="tablecrypt_catalog",
    default="false",
)
DEFAULT_KEY_ID: Final = Name(
    "encryption.default-key-id",
    "The master key of every new table that names none in encryption.key-id. A namespace may have it too, for allowed keys.",
    scope="catalog",
    reader="tablecrypt_catalog",
    also_of="namespace",
)
MANIFEST_CACHE_BYTES: Final = WholeNumber(
    "io.manifest.cache.max-total-bytes",
    "Bytes of decoded manifest lists and manifests, with the keys in them, that a process keeps in memory for the next scan. 0: none.",
    scope="catalog",
    reader="tablecrypt.manifests",
    default=str(100 * 1024 * 1024),
)
SPARK_REQUIRE_ENCRYPTED_RPC: Final = Switch(
    "tablecrypt.spark.require-encrypted-rpc",
    "Refuse to run on Spark unless spark.authenticate and spark.network.crypto.enabled protect the messages of its processes.",
    scope="catalog",
    reader="tablecrypt.spark",
    default="false",
)
SPARK_EXECUTOR_KEYS: Final = Choice(
    "tablecrypt.spark.executor-keys",
    "kms: executors unwrap a job's key with their own rights in the KMS. spark: Spark delivers it in an encrypted broadcast.",
    scope="catalog",
    reader="tablecrypt.spark",
    choices=("kms", "spark"),
    default="kms",
)
KMS_TYPE: Final = Choice(
    "encryption.kms-type",
    "aws, gcp, azure, vault, local or memory.",
    scope="catalog",
    reader="tablecrypt.kms",
    to_executors=True,
    choices=("aws", "gcp", "azure", "vault", "local", "memory"),
    may_be_empty=True,
)
KMS_IMPL: Final = _of_kms(
    "encryption.kms-impl",
    "A Python class path, or one of Iceberg Java's class names for the same service. Excludes encryption.kms-type.",
    names_code=True,
)
PY_KMS_IMPL: Final = _of_kms("py-kms-impl", "PyIceberg's name for encryption.kms-impl.", names_code=True)
ALLOWED_KEY_IDS: Final = _of_kms(
    "encryption.allowed-key-ids",
    "Globs of master keys, separated by commas. Any other key that a table or file names is refused before the KMS is called.",
)
KMS_VENDED: Final = Switch(
    "encryption.kms.vended",
    "true: a REST catalog server may send credentials for the key service, for the keys of encryption.allowed-key-ids alone.",
    scope="catalog",
    reader="tablecrypt_catalog",
    default="false",
)
KMS_CACHE_TTL_MS: Final = _number_of_kms(
    "encryption.kms.cache-ttl-ms", "How long an unwrapped KEK stays in this process's memory.", default=str(60 * 60 * 1000)
)
KMS_CACHE_MAX_KEYS: Final = _number_of_kms(
    "encryption.kms.cache-max-keys",
    "How many unwrapped KEKs are kept at once; the least recently used one is dropped first.",
    default="1000",
)
KMS_RETRY_BUDGET_MS: Final = _number_of_kms(
    "encryption.kms.retry-budget-ms",
    "How long a call is retried while the KMS is unavailable or throttles; 0 means one attempt.",
    default=str(30 * 1000),
)
KMS_ENDPOINT: Final = _of_aws("kms.endpoint", "URL of the KMS, instead of the region's own. Used under an assumed role too.")
KMS_ALGORITHM_SPEC: Final = _choice_of_aws(
    "kms.encryption-algorithm-spec",
    "SYMMETRIC_DEFAULT, RSAES_OAEP_SHA_1 or RSAES_OAEP_SHA_256: what the master key can do.",
    choices=("SYMMETRIC_DEFAULT", "RSAES_OAEP_SHA_1", "RSAES_OAEP_SHA_256"),
    default="SYMMETRIC_DEFAULT",
)
KMS_DATA_KEY_SPEC: Final = _choice_of_aws(
    "kms.data-key-spec",
    "AES_128 or AES_256: the length that Java generates. tablecrypt only checks the value; its callers name the length of each key.",
    choices=("AES_128", "AES_256"),
    default="AES_256",
)
STS_ENDPOINT: Final = _of_aws("sts.endpoint", "URL of the STS that gives the assumed role's credentials.")
CLIENT_REGION: Final = _of_aws("client.region", "AWS region; else AWS_REGION, AWS_DEFAULT_REGION or the profile's.", from_server=True)
CLIENT_PROFILE_NAME: Final = _of_aws("client.profile-name", "A profile of the AWS configuration files.")
CLIENT_ACCESS_KEY_ID: Final = _of_aws("client.access-key-id", "Static AWS credentials, with the next two.", sensitive=True)
CLIENT_SECRET_ACCESS_KEY: Final = _of_aws("client.secret-access-key", "The secret of client.access-key-id.", sensitive=True)
CLIENT_SESSION_TOKEN: Final = _text_of_aws("client.session-token", "The session token of temporary credentials.", sensitive=True)
CLIENT_ASSUME_ROLE_ARN: Final = _of_aws("client.assume-role.arn", "The role to assume (Java's name).")
CLIENT_ASSUME_ROLE_REGION: Final = _of_aws("client.assume-role.region", "Region of KMS and STS under the assumed role; else client.region.")
CLIENT_ASSUME_ROLE_SESSION_NAME: Final = _of_aws(
    "client.assume-role.session-name", "How the role's session is named in CloudTrail.", default="tablecrypt"
)
CLIENT_ASSUME_ROLE_EXTERNAL_ID: Final = _of_aws(
    "client.assume-role.external-id", "The external id that the role's trust policy asks for.", sensitive=True
)
CLIENT_ASSUME_ROLE_TIMEOUT_SEC: Final = WholeNumber(
    "client.assume-role.timeout-sec",
    "Life of the role's credentials, which refresh by themselves.",
    scope="catalog",
    reader="tablecrypt.kms.aws",
    to_executors=True,
    default="3600",
)
CLIENT_ASSUME_ROLE_TAGS: Final = _text_of_aws(
    "client.assume-role.tags.", "Prefix: client.assume-role.tags.team=a is the session tag team=a."
)
CLIENT_ROLE_ARN: Final = _of_aws("client.role-arn", "PyIceberg's name for client.assume-role.arn.")
CLIENT_ROLE_SESSION_NAME: Final = _of_aws("client.role-session-name", "PyIceberg's name for client.assume-role.session-name.")
KMS_MEMORY_NAME: Final = _of_memory("kms.memory.name", "The keyring of this process to use. For tests.", default="default")
KMS_LOCAL_KEY_FILE: Final = _of_local("kms.local.key-file", "Path of the key file that tablecrypt keygen made.")
GCP_KMS_ENDPOINT: Final = _of_gcp("gcp.kms.endpoint", "URL of Cloud KMS, instead of https://cloudkms.googleapis.com.")
GCS_OAUTH2_TOKEN: Final = _of_gcp(
    "gcs.oauth2.token", "An OAuth2 access token; without it, Application Default Credentials.", sensitive=True, from_server=True
)
AZURE_KEYVAULT_URL: Final = _of_azure("azure.keyvault.url", "URL of the Key Vault or Managed HSM. Required.")
AZURE_KEY_WRAP_ALGORITHM: Final = Choice(
    "azure.keyvault.key-wrap-algorithm",
    "RSA-OAEP-256, RSA-OAEP, A128KW, A192KW or A256KW.",
    scope="catalog",
    reader="tablecrypt.kms.azure",
    to_executors=True,
    choices=("RSA-OAEP-256", "RSA-OAEP", "A128KW", "A192KW", "A256KW"),
    default="RSA-OAEP-256",
)
ADLS_TENANT_ID: Final = _of_azure("adls.tenant-id", "Service principal, with the next two; else DefaultAzureCredential.")
ADLS_CLIENT_ID: Final = _of_azure("adls.client-id", "The service principal's application id.")
ADLS_CLIENT_SECRET: Final = _of_azure("adls.client-secret", "The service principal's secret.", sensitive=True)
VAULT_URL: Final = _of_vault("vault.url", "URL of Vault or OpenBao; else VAULT_ADDR.")
VAULT_TOKEN: Final = _of_vault("vault.token", "A token; else AppRole, VAULT_TOKEN or ~/.vault-token.", sensitive=True)
VAULT_ROLE_ID: Final = _of_vault("vault.role-id", "AppRole login, with vault.secret-id.")
VAULT_SECRET_ID: Final = _of_vault("vault.secret-id", "The secret of vault.role-id.", sensitive=True)
VAULT_NAMESPACE: Final = _of_vault("vault.namespace", "Namespace; else VAULT_NAMESPACE.")
VAULT_TRANSIT_MOUNT: Final = _of_vault("vault.transit-mount", "Where the transit engine is mounted.", default="transit")
VAULT_CA_CERT: Final = _of_vault("vault.ca-cert", "PEM file of the server's certificate authority; else VAULT_CACERT.")

_SERVICE_PREFIXES: Final = ("kms.", "vault.", "azure.keyvault.", "gcp.kms.")
_OWN_PREFIXES: Final = ("encryption.", "tablecrypt.", *_SERVICE_PREFIXES)
_OWN_WORDS: Final = ("encryption", "tablecrypt")
"""First words of names, which are noticed where they are misspelt too."""

_CLASSES: Final = ("py-catalog-impl", "py-io-impl", PY_KMS_IMPL.name)
_DEFAULTS_OF_JAVA: Final = ("table-default.", "table-override.")
_READERS_OF_SERVICES: Final = "tablecrypt.kms."
_KMS_CLASSES_OF_JAVA: Final = "org.apache.iceberg."
_REGIONS: Final = frozenset({"client.region", "s3.region"})
_REGION: Final = re.compile("[a-z0-9-]{1,64}")
# What a name that is not registered has, where its value is a credential.
_SECRET_MARK: Final = re.compile(
    "secret|token|passw|passphrase|credential|access[-_.]?key|account[-_.]?key|private[-_.]?key|api[-_.]?key|authorization|signature"
    r"|connection[-_.]?string|(^|[-_.])(sas|sig|pwd)([-_.]|$)"
)
_SENT_IN_HEADERS: Final = re.compile(r"token|header\..+|vault\.(token|namespace)|(client|s3|glue)\.(access-key-id|session-token)")
_HEADER_VALUE: Final = re.compile(r"([!-~\xa1-\xff]([ -~\t\xa1-\xff]*[!-~\xa1-\xff])?)?")
_USER_AND_PASSWORD: Final = re.compile(r"//[^/?#@:\s]*:[^@\s]*@|(^|[,;\s])[^/?#@:\s,;]+:[^/?#@\s]+@")
_HTTP_USER: Final = re.compile(r"https?://[^/?#\s]*@", re.IGNORECASE)
_PARAMETER: Final = re.compile("[?&;]([^=&;?#]+)=[^&;#]")


def registered() -> tuple[Property, ...]:
    """Every property, in the order of this module."""
    return (*(each for each in globals().values() if isinstance(each, Property)), *PYICEBERGS)


def property_named(name: str) -> Property | None:
    """The registered property of this name, or the one with the longest prefix of it."""
    exact, prefixes = _lookup()
    found = exact.get(name)
    return found if found is not None else next((each for each in prefixes if name.startswith(each.name)), None)


def as_text(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return a catalog's properties with text for what programs and YAML give in its place: any path, and numbers and switches of ours."""

    def text(name: str, value: Any) -> Any:
        if isinstance(value, os.PathLike):
            return os.fspath(value)
        known = property_named(name) if isinstance(value, (bool, int, float)) else None
        return str(value) if known is not None and known.is_of("catalog") else value

    return {name: text(name, value) for name, value in given.items()}


def names_code(name: str) -> bool:
    """Whether a property of this name has a class or module that is imported."""
    known = property_named(name)
    return known is not None and known.names_code


def is_sensitive(name: str, value: object = "") -> bool:
    """Whether a property is a credential: by the registry, for other names by how they look, and for a URL by what it contains."""
    # Without case: a credential under a name in capitals is one all the same.
    known = property_named(name.lower())
    by_name = known.sensitive if known is not None else _SECRET_MARK.search(name.lower()) is not None
    if by_name:
        return True
    if isinstance(value, Mapping):
        return any(is_sensitive(str(inner), each) for inner, each in value.items())

    return has_credential(str(value))


def has_credential(value: str) -> bool:
    """Whether a text holds a credential as URLs do: user:password@host, a user before an http host, a parameter that names a secret."""
    if _USER_AND_PASSWORD.search(value) or _HTTP_USER.search(value):
        return True
    return any(_SECRET_MARK.search(name.lower()) for name in _PARAMETER.findall(value))


def for_executors(catalog_properties: Mapping[str, Any]) -> dict[str, str]:
    """What a KMS client reads, which executors get. A class that encryption.kms-impl names may read any property, so it gets all."""
    # Nothing here knows which properties a class of the user's reads.
    everything = is_foreign_kms(catalog_properties)
    return {name: str(value) for name, value in catalog_properties.items() if everything or _goes_to_executors(name)}


def client_properties(catalog: Catalog) -> Mapping[str, str]:
    """What this client configured of a catalog, without what a server answered where the catalog keeps the two apart."""
    return cast("Mapping[str, str]", getattr(catalog, "client_properties", catalog.properties))


def kms_impl(catalog_properties: Mapping[str, Any]) -> str | None:
    """The class of the KMS client by either of its names. Raises ConfigurationError where the two differ."""
    ours, theirs = catalog_properties.get(KMS_IMPL.name), catalog_properties.get(PY_KMS_IMPL.name)
    # Whichever one won, tables could go under the keys of the wrong service.
    if ours and theirs and ours != theirs:
        raise ConfigurationError(f"{KMS_IMPL.name} ({ours}) and {PY_KMS_IMPL.name} ({theirs}) name two classes: keep one of them")
    return ours or theirs or None


def is_foreign_kms(catalog_properties: Mapping[str, Any]) -> bool:
    """Whether encryption.kms-impl names a class outside of this package, by Java's name or its own."""
    impl = kms_impl(catalog_properties)
    return bool(impl) and not str(impl).startswith(_KMS_CLASSES_OF_JAVA)


def check_table_properties(table: str, properties: Mapping[str, Any], client: Mapping[str, Any]) -> None:
    """Refuse a table whose properties name code that this client's own configuration does not name.

    Args:
        table: its name or location, for the message.
        properties: those of the table's metadata.
        client: this client's configuration of the catalog.

    Raises:
        ConfigurationError: a property names a class or module; nothing was imported.
    """
    for name, value in properties.items():
        # A table may repeat the client's own class. Any other one would run code that an editor of metadata.json chose.
        if names_code(name) and client.get(name) != value:
            raise ConfigurationError(
                f"table {table}: its property {name}={value!r} names code to import. Classes come from this client's own configuration "
                f"of the catalog alone: set {name} there if it is right, or remove it from the table"
            )


def check_own_properties(given: Mapping[Any, Any], scope: str, is_foreign_kms: bool = False) -> None:
    """Refuse names that look like a property of this package and are not one, and values that cannot be read.

    A slip in one would make a table that is not encrypted, or skip a check, without any sign.

    Args:
        given: the names and values that are to be set.
        scope: whose properties they are to be: `table`, `catalog` or `namespace`.
        is_foreign_kms: encryption.kms-impl names a class of the user's own, which may read any other name below our prefixes, and other
            values of what only our own clients of key services read.

    Raises:
        ConfigurationError: they are no mapping; a name is no property of that scope, and the message says which one may be meant; its value
            is none; or UTF-8 cannot hold one of them, or no HTTP header a value that goes into one.
    """
    asked: object = given
    if not isinstance(asked, Mapping):
        raise ConfigurationError(f"the properties of a {scope} are {described(asked)}; they must be a mapping of names")

    for name, value in given.items():
        check_text(f"the property {name!r} of a {scope}", name, value)
        if not isinstance(name, str):
            # It cannot be a slip in one of our names. PyIceberg and the catalog say in their own words what is wrong with it.
            continue

        if scope == "catalog" and _SENT_IN_HEADERS.fullmatch(name):
            check_header_value(name, value)
        known = property_named(name)

        if known is None or not known.is_of(scope):
            _check_foreign_name(name, value, scope, is_foreign_kms)
        # A class of the user's own may give these names other values.
        elif not (is_foreign_kms and known.reader.startswith(_READERS_OF_SERVICES)):
            known.check(name, value)


def check_header_value(name: str, value: Any) -> None:
    """Refuse a credential that no HTTP header can hold, before an HTTP library does, whose message shows it.

    Args:
        name: of the setting, for the error.
        value: text; whatever else it is, is not looked at.

    Raises:
        ConfigurationError: it begins or ends with a space, or holds the end of a line or a character beyond Latin-1.
    """
    if isinstance(value, str) and not _HEADER_VALUE.fullmatch(value):
        raise ConfigurationError(
            f"{name} begins or ends with a space, or holds the end of a line or another character that no HTTP header can hold: if it was "
            "read from a file, leave the end of its line out"
        )


def _check_foreign_name(name: str, value: Any, scope: str, is_foreign_kms: bool) -> None:
    meant = _spelt(name)
    if isinstance(value, Mapping) and any(prefix.startswith(f"{meant}.") for prefix in _OWN_PREFIXES):
        inner = next(iter(value), "name")
        raise ConfigurationError(
            f"{name} is a block of properties, which is not read: write each in a line of its own, {name}.{inner}: ..."
        )

    # Ignored, it would leave the catalog, or the key service, another one than the user has named.
    if scope == "catalog" and meant.startswith("py-") and name not in _CLASSES and (named := nearest(meant, _CLASSES)) is not None:
        raise ConfigurationError(f"{name} is not a property of a catalog{_advice(meant, scope, named)}")

    is_ours = meant.startswith(_OWN_PREFIXES)
    if not is_ours and not _begins_like_ours(re.split("[._-]", meant, maxsplit=1)[0]):
        return
    # One that comes near to a property of another scope is refused as that property itself would be.
    is_slip = nearest(meant, _own_by_words().values()) is not None
    if scope != "catalog" and meant.startswith(_SERVICE_PREFIXES) and not is_slip:
        # Catalogs alone have key services. vault.layer, on a table of a data vault, is the user's own.
        return

    near = _nearest(meant, scope)
    if near is None and (is_foreign_kms or not (is_ours or is_slip)):
        return

    raise ConfigurationError(f"{name} is not a property of a {scope}{_advice(meant, scope, near)}")


@lru_cache(maxsize=256)
def _begins_like_ours(word: str) -> bool:
    return nearest(word, _OWN_WORDS) is not None


def _spelt(name: str) -> str:
    """A name as it would be registered: in small letters, with hyphens, without the prefix by which Java gives new tables a property."""
    lower = name.strip().lower().replace("_", "-")
    bare = next((lower.removeprefix(each) for each in _DEFAULTS_OF_JAVA if lower.startswith(each)), lower)
    # As a configuration of Spark has it, or who takes "table" or "options" for a part of the name: options.encryption.key-id.
    tail = bare[bare.find(".encryption.") + 1 :]
    # PYICEBERG_CATALOG__PROD__ENCRYPTION_REQUIRED, with one underscore where two make a dot, is encryption-required.
    return _own_by_words().get(words_of(tail)) or _own_by_words().get(words_of(bare), bare)


@cache
def _own_by_words() -> dict[str, str]:
    return {words_of(each.name): each.name for each in registered() if each.name.startswith(_OWN_PREFIXES)}


def _nearest(meant: str, scope: str) -> str | None:
    return nearest(meant, (each for each in _own_by_words().values() if (known := property_named(each)) and known.is_of(scope)))


def _advice(meant: str, scope: str, near: str | None) -> str:
    if scope == "catalog" and meant == KEY_ID.name:
        return f": it is a property of each table. For all new tables of the catalog set {DEFAULT_KEY_ID.name}"
    if scope == "namespace" and meant == KEY_ID.name:
        return f": {DEFAULT_KEY_ID.name} names the master key of new tables"

    known = property_named(meant)
    if known is not None and not known.is_of(scope):
        return f": {meant} is a property of a {known.scope}"
    if near is not None:
        return f": write {near}" if near == meant else f". Did you mean {near}?"

    return ". docs/reference/properties.md lists all properties"


def taken_from_server(server: str, properties: Mapping[str, Any], client: Mapping[str, Any]) -> dict[str, str]:
    """Return what a REST catalog server may set of what it sends. Unknown names are left out.

    Args:
        server: names it in messages.
        properties: what it sent, in whichever part of its answer.
        client: this client's configuration, which a server may repeat: of the uri with the same path, or its first segments.

    Raises:
        ConfigurationError: it names code, an endpoint, a receiver of credentials, or another property that is this client's to set.
    """
    taken: dict[str, str] = {}
    for name, value in properties.items():
        known = property_named(name)
        if known is None:
            logger.debug("%s sent the property %r, which has no meaning here", server, name)
        # Everything that has a meaning here and is not marked as the server's to set is refused or has to be the client's own value.
        elif known.from_server:
            taken[name] = _checked(server, known, name, value)
        elif known.names_code or not _is_repeated(name, value, client):
            # The message goes to a log: a credential that the server sent must not.
            shown = "" if is_sensitive(name, value) else f"={value!r}"
            what = "names code to import" if known.names_code else "is for the client alone to set"
            raise ConfigurationError(
                f"{server} sent the property {name}{shown}, which {what}: a server may not say where requests and credentials go or what "
                f"runs here. Set {name} in this client's own configuration of the catalog if it is right"
            )

    return taken


def _checked(server: str, known: Property, name: str, value: Any) -> str:
    if not isinstance(value, str):
        raise ConfigurationError(f"{server} sent the property {name} with a value that is not text")
    # PyIceberg reads some of them only when it needs them, and says then nothing of the server.
    known.check(f"{name}, which {server} sent,", value)
    if _SENT_IN_HEADERS.fullmatch(name):
        check_header_value(f"{name}, which {server} sent,", value)
    # boto3 builds host names from the region: one with a dot or slash would send the credentials elsewhere.
    if name in _REGIONS and not _REGION.fullmatch(value):
        raise ConfigurationError(f"{server} sent {name}={value!r}, which is not the name of a region")
    return value


def _is_repeated(name: str, value: Any, client: Mapping[str, Any]) -> bool:
    return repeats(client.get(name), value) or (name == "uri" and leads_to(client.get(name), value))


def _goes_to_executors(name: str) -> bool:
    known = property_named(name)
    return known is not None and known.to_executors


@cache
def _lookup() -> tuple[dict[str, Property], list[Property]]:
    exact = {each.name: each for each in registered() if not each.name.endswith(".")}
    prefixes = sorted((each for each in registered() if each.name.endswith(".")), key=lambda each: -len(each.name))
    return exact, prefixes
