"""The key of one job of a distributed engine. It encrypts what driver and executors send each other; executors get it with a ticket.

Executors are the engine's worker processes: Spark's executors, the workers of Ray.

    driver                                                                     executor
    job key (32 random bytes) ── wrapped once, by the KMS, under the table's encryption.key-id ──▶ ticket ── unwrapped by the KMS,
                                                                                                   once per process and KMS cache time
    SHARED  what all tasks need: metadata, storage properties, filter ─────▶
    TASK    data files to read, each with its DEK                     ─────▶
            data files written, each with its DEK                     ◀───── RESULT
            the key columns of rows that an upsert wrote              ◀───── KEYS

    message = nonce (12) | ciphertext | tag (16)                        AES-256-GCM under the job key, the nonce random
    AAD     = job id (16 random bytes) | role (1) | task number (8, little endian, unsigned)

A message decrypts only in its job, in its direction and as the task that it was made for: swapping two tasks, sending a task as a result,
or bringing a message of another job ends in an AuthenticationError. At most 2**32 messages are encrypted in a job (NIST SP 800-38D, 8.3).

The ticket travels in the clear, in the closure of the job: it holds the wrapped key and the properties with which to reach the KMS, so
that executors open the job key with their own rights. A reader of the closure alone cannot open it.

Raises AuthenticationError for bytes that do not decrypt, KmsError where an executor may not use the master key.
"""

from __future__ import annotations

import pickle
import secrets
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, Final

from tablecrypt.crypto.aes_gcm import NONCE_LENGTH, AesGcm
from tablecrypt.crypto.secret import Secret
from tablecrypt.errors import AuthenticationError, ConfigurationError
from tablecrypt.kms.client import KeyManagementClient
from tablecrypt.kms.factory import shared_kms
from tablecrypt.kms.resilient import unwrap_key, wrap_unchecked
from tablecrypt.table.table_files import HALF_LENGTH, RunNames

JOB_ID_LENGTH: Final = 16
JOB_KEY_LENGTH: Final = 32
_MAX_TASK_NUMBER: Final = 2**64 - 1


class Role(IntEnum):
    """The kind of a message, which also says in which direction it is sent."""

    SHARED = 1
    TASK = 2
    RESULT = 3
    KEYS = 4


class JobKey:
    """Encrypts and decrypts the messages of one job. Cannot be pickled: a JobTicket goes to the executors instead."""

    def __init__(self, job_id: bytes, key: Secret, random: Callable[[int], bytes] = secrets.token_bytes) -> None:
        if len(job_id) != JOB_ID_LENGTH:
            raise ConfigurationError(f"a job id has {JOB_ID_LENGTH} bytes, not {len(job_id)}")
        self._job_id = job_id
        self._cipher = AesGcm(key)
        self._random = random

    def __repr__(self) -> str:
        return f"JobKey(job {self._job_id.hex()})"

    def new_uuid(self) -> uuid.UUID:
        """Return a fresh UUID for the names of new files, whose first half is the job's."""
        return self.names.new_uuid(self._random)

    @property
    def names(self) -> RunNames:
        """What the names of the job's files have in common."""
        return RunNames(self._job_id[:HALF_LENGTH])

    def encrypt(self, role: Role, number: int, plaintext: bytes) -> bytes:
        """Return the message encrypted for one role and task number (0 for SHARED). ConfigurationError for an impossible number."""
        return self._cipher.encrypt(self._random(NONCE_LENGTH), plaintext, self._aad(role, number))

    def decrypt(self, role: Role, number: int, message: bytes) -> bytes:
        """Return the message's plaintext. AuthenticationError unless it was encrypted in this job, for this role and number."""
        try:
            return self._cipher.decrypt(message, self._aad(role, number))
        except AuthenticationError as error:
            raise AuthenticationError(
                f"job {self._job_id.hex()}: the {role.name} message of task {number} does not authenticate: "
                "it was changed, or belongs to another task, direction or job"
            ) from error

    def share(self, content: Any) -> bytes:
        """Return the SHARED message: what every task of the job gets, pickled."""
        return self.encrypt(Role.SHARED, 0, pickle.dumps(content))

    def shared(self, message: bytes) -> Any:
        """Return what every task gets. AuthenticationError for another message."""
        # Unpickling runs code, so the bytes have to authenticate as the driver's first.
        return pickle.loads(self.decrypt(Role.SHARED, 0, message))

    def _aad(self, role: Role, number: int) -> bytes:
        if not 0 <= number <= _MAX_TASK_NUMBER:
            raise ConfigurationError(f"{number} is not a task number")
        return self._job_id + bytes([role]) + number.to_bytes(8, "little")


@dataclass(frozen=True)
class JobTicket:
    """What an executor needs to get the job key. It is pickled into the job's closure, in the clear."""

    job_id: bytes
    key_id: str
    wrapped_key: bytes = field(repr=False)
    kms_properties: Mapping[str, str] = field(repr=False)

    def redeem(self) -> JobKey:
        """Unwrap the job key in this process, through its shared KMS client: one call per process while the key stays cached."""
        return JobKey(self.job_id, unwrap_key(shared_kms(self.kms_properties), self.wrapped_key, self.key_id))


def issue_job(
    kms: KeyManagementClient, key_id: str, kms_properties: Mapping[str, str], random: Callable[[int], bytes] = secrets.token_bytes
) -> tuple[JobTicket, JobKey]:
    """Make a job's key and id, and the ticket for its executors.

    Args:
        kms: wraps the job key, in one call. Nothing stores the ticket, so a wrong answer fails only the job.
        key_id: the table's encryption.key-id.
        kms_properties: what executors need to reach the same KMS.

    Raises:
        KmsError: the KMS refused to wrap the key.
    """
    job_id, key = random(JOB_ID_LENGTH), Secret(random(JOB_KEY_LENGTH))
    ticket = JobTicket(job_id, key_id, wrap_unchecked(kms, key, key_id), dict(kms_properties))
    return ticket, JobKey(job_id, key, random)
