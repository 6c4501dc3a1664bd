"""Checks against real key services. Never part of the suite: run `pytest tests/live` with the variables of the service set.

    service   the master keys that may wrap and unwrap, and the rest of what the client needs
    aws       TABLECRYPT_LIVE_AWS_KEY_ID, TABLECRYPT_LIVE_AWS_OTHER_KEY_ID            and boto3's own environment
    gcp       TABLECRYPT_LIVE_GCP_KEY_ID, TABLECRYPT_LIVE_GCP_OTHER_KEY_ID            and Application Default Credentials
    azure     TABLECRYPT_LIVE_AZURE_KEY_ID, TABLECRYPT_LIVE_AZURE_OTHER_KEY_ID        and TABLECRYPT_LIVE_AZURE_VAULT_URL
    vault     TABLECRYPT_LIVE_VAULT_KEY_ID, TABLECRYPT_LIVE_VAULT_OTHER_KEY_ID        and VAULT_ADDR, VAULT_TOKEN
    hadoop    TABLECRYPT_LIVE_HADOOP_KMS_KEY_ID, a key of the KMS for ORC             and TABLECRYPT_LIVE_HADOOP_KMS_URL, …_USER

A file whose variables are not set is not collected. With any of them set, the AWS credentials of this machine are left as they are.
"""

from __future__ import annotations

import os

collect_ignore = [
    f"test_{service}.py"
    for service in ("aws", "gcp", "azure", "vault", "hadoop_kms")
    if f"TABLECRYPT_LIVE_{service.upper()}_KEY_ID" not in os.environ
]
