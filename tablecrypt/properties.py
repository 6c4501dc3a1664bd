"""Every property name that tablecrypt reads: its default, what it means and who reads it.

Names that Iceberg Java has keep Java's spelling. `kms.*` and `client.region` belong to a KMS client, the rest to the table or the catalog.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True)
class Property:
    """One property: where it is set (`catalog` or `table`), what it defaults to, and which package reads it."""

    name: str
    scope: str
    default: str | None
    reader: str
    meaning: str


KEY_ID: Final = Property(
    "encryption.key-id",
    "table",
    None,
    "tablecrypt_catalog",
    "The master key that wraps the table's KEKs. Set at creation, never changed or removed.",
)
DATA_KEY_LENGTH: Final = Property(
    "encryption.data-key-length", "table", "16", "tablecrypt.keys", "Length in bytes of every DEK and KEK: 16, 24 or 32."
)
KEK_LIFESPAN_MS: Final = Property(
    "encryption.kek-lifespan-ms",
    "table",
    str(730 * 24 * 60 * 60 * 1000),
    "tablecrypt.keys",
    "Age at which a KEK wraps nothing new. May shorten the 730 days that Iceberg Java uses, never lengthen them.",
)
PINS: Final = Property(
    "encryption.pins",
    "catalog",
    None,
    "tablecrypt_catalog",
    "Path of a JSON file where this client keeps what it has seen of each encrypted table: an older, edited or plaintext one is refused.",
)
SPARK_REQUIRE_ENCRYPTED_RPC: Final = Property(
    "tablecrypt.spark.require-encrypted-rpc",
    "catalog",
    "false",
    "tablecrypt.spark",
    "Refuse to run on Spark where spark.authenticate and spark.network.crypto.enabled do not protect what its processes tell each other.",
)
SPARK_EXECUTOR_KEYS: Final = Property(
    "tablecrypt.spark.executor-keys",
    "catalog",
    "kms",
    "tablecrypt.spark",
    "kms: executors open a job's key with their own rights in the KMS. spark: Spark brings it, in an encrypted broadcast.",
)
KMS_TYPE: Final = Property("encryption.kms-type", "catalog", None, "tablecrypt.kms", "aws, gcp, azure, vault, local or memory.")
KMS_IMPL: Final = Property(
    "encryption.kms-impl",
    "catalog",
    None,
    "tablecrypt.kms",
    "A Python class path, or one of Iceberg Java's class names for the same service. Excludes encryption.kms-type.",
)
KMS_CACHE_TTL_MS: Final = Property(
    "encryption.kms.cache-ttl-ms",
    "catalog",
    str(60 * 60 * 1000),
    "tablecrypt.kms",
    "How long an unwrapped KEK stays in this process's memory.",
)
KMS_CACHE_MAX_KEYS: Final = Property(
    "encryption.kms.cache-max-keys",
    "catalog",
    "1000",
    "tablecrypt.kms",
    "How many unwrapped KEKs are kept at once; the one read longest ago goes first.",
)
KMS_RETRY_BUDGET_MS: Final = Property(
    "encryption.kms.retry-budget-ms",
    "catalog",
    str(30 * 1000),
    "tablecrypt.kms",
    "How long a call goes on while the KMS is unavailable or throttles; 0 asks once.",
)
KMS_ENDPOINT: Final = Property(
    "kms.endpoint", "catalog", None, "tablecrypt.kms.aws", "URL of the KMS, instead of the region's own. Kept under an assumed role."
)
KMS_ALGORITHM_SPEC: Final = Property(
    "kms.encryption-algorithm-spec",
    "catalog",
    "SYMMETRIC_DEFAULT",
    "tablecrypt.kms.aws",
    "SYMMETRIC_DEFAULT, RSAES_OAEP_SHA_1 or RSAES_OAEP_SHA_256: what the master key can do.",
)
KMS_DATA_KEY_SPEC: Final = Property(
    "kms.data-key-spec",
    "catalog",
    "AES_256",
    "tablecrypt.kms.aws",
    "AES_128 or AES_256: the length that Java generates. Checked only: here the caller names the length of each key.",
)
STS_ENDPOINT: Final = Property(
    "sts.endpoint", "catalog", None, "tablecrypt.kms.aws", "URL of the STS that gives the assumed role's credentials."
)
CLIENT_REGION: Final = Property(
    "client.region", "catalog", None, "tablecrypt.kms.aws", "AWS region; else AWS_REGION, AWS_DEFAULT_REGION or the profile's."
)
CLIENT_PROFILE_NAME: Final = Property(
    "client.profile-name", "catalog", None, "tablecrypt.kms.aws", "A profile of the AWS configuration files."
)
CLIENT_ACCESS_KEY_ID: Final = Property(
    "client.access-key-id", "catalog", None, "tablecrypt.kms.aws", "Static AWS credentials, with the next two."
)
CLIENT_SECRET_ACCESS_KEY: Final = Property(
    "client.secret-access-key", "catalog", None, "tablecrypt.kms.aws", "The secret of client.access-key-id."
)
CLIENT_SESSION_TOKEN: Final = Property(
    "client.session-token", "catalog", None, "tablecrypt.kms.aws", "The session token of temporary credentials."
)
CLIENT_ASSUME_ROLE_ARN: Final = Property(
    "client.assume-role.arn", "catalog", None, "tablecrypt.kms.aws", "The role to assume (Java's name)."
)
CLIENT_ASSUME_ROLE_REGION: Final = Property(
    "client.assume-role.region", "catalog", None, "tablecrypt.kms.aws", "Region of KMS and STS under the assumed role; else client.region."
)
CLIENT_ASSUME_ROLE_SESSION_NAME: Final = Property(
    "client.assume-role.session-name", "catalog", "tablecrypt", "tablecrypt.kms.aws", "How the role's session is named in CloudTrail."
)
CLIENT_ASSUME_ROLE_EXTERNAL_ID: Final = Property(
    "client.assume-role.external-id", "catalog", None, "tablecrypt.kms.aws", "The external id that the role's trust policy asks for."
)
CLIENT_ASSUME_ROLE_TIMEOUT_SEC: Final = Property(
    "client.assume-role.timeout-sec",
    "catalog",
    "3600",
    "tablecrypt.kms.aws",
    "Life of the role's credentials, which refresh by themselves.",
)
CLIENT_ASSUME_ROLE_TAGS: Final = Property(
    "client.assume-role.tags.", "catalog", None, "tablecrypt.kms.aws", "Prefix: client.assume-role.tags.team=a is the session tag team=a."
)
CLIENT_ROLE_ARN: Final = Property("client.role-arn", "catalog", None, "tablecrypt.kms.aws", "PyIceberg's name for client.assume-role.arn.")
CLIENT_ROLE_SESSION_NAME: Final = Property(
    "client.role-session-name", "catalog", None, "tablecrypt.kms.aws", "PyIceberg's name for client.assume-role.session-name."
)
KMS_MEMORY_NAME: Final = Property(
    "kms.memory.name", "catalog", "default", "tablecrypt.kms.memory", "The keyring of this process to use. For tests."
)
KMS_LOCAL_KEY_FILE: Final = Property(
    "kms.local.key-file", "catalog", None, "tablecrypt.kms.local_file", "Path of the key file that tablecrypt keygen made."
)
GCP_KMS_ENDPOINT: Final = Property(
    "gcp.kms.endpoint", "catalog", None, "tablecrypt.kms.gcp", "URL of Cloud KMS, instead of https://cloudkms.googleapis.com."
)
GCS_OAUTH2_TOKEN: Final = Property(
    "gcs.oauth2.token", "catalog", None, "tablecrypt.kms.gcp", "An OAuth2 access token; without it, Application Default Credentials."
)
AZURE_KEYVAULT_URL: Final = Property(
    "azure.keyvault.url", "catalog", None, "tablecrypt.kms.azure", "URL of the Key Vault or Managed HSM. Required."
)
AZURE_KEY_WRAP_ALGORITHM: Final = Property(
    "azure.keyvault.key-wrap-algorithm",
    "catalog",
    "RSA-OAEP-256",
    "tablecrypt.kms.azure",
    "RSA-OAEP-256, RSA-OAEP, A128KW, A192KW or A256KW.",
)
ADLS_TENANT_ID: Final = Property(
    "adls.tenant-id", "catalog", None, "tablecrypt.kms.azure", "Service principal, with the next two; else DefaultAzureCredential."
)
ADLS_CLIENT_ID: Final = Property("adls.client-id", "catalog", None, "tablecrypt.kms.azure", "The service principal's application id.")
ADLS_CLIENT_SECRET: Final = Property("adls.client-secret", "catalog", None, "tablecrypt.kms.azure", "The service principal's secret.")
VAULT_URL: Final = Property("vault.url", "catalog", None, "tablecrypt.kms.vault", "URL of Vault or OpenBao; else VAULT_ADDR.")
VAULT_TOKEN: Final = Property(
    "vault.token", "catalog", None, "tablecrypt.kms.vault", "A token; else AppRole, VAULT_TOKEN or ~/.vault-token."
)
VAULT_ROLE_ID: Final = Property("vault.role-id", "catalog", None, "tablecrypt.kms.vault", "AppRole login, with vault.secret-id.")
VAULT_SECRET_ID: Final = Property("vault.secret-id", "catalog", None, "tablecrypt.kms.vault", "The secret of vault.role-id.")
VAULT_NAMESPACE: Final = Property("vault.namespace", "catalog", None, "tablecrypt.kms.vault", "Namespace; else VAULT_NAMESPACE.")
VAULT_TRANSIT_MOUNT: Final = Property(
    "vault.transit-mount", "catalog", "transit", "tablecrypt.kms.vault", "Where the transit engine is mounted."
)
VAULT_CA_CERT: Final = Property(
    "vault.ca-cert", "catalog", None, "tablecrypt.kms.vault", "PEM file of the server's certificate authority; else VAULT_CACERT."
)
