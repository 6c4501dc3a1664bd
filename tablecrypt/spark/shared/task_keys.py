"""Keys of data files between Python and the JVM: files to read, encrypted for the driver's JVM, and written files, for the driver.

The files of one read, as they travel from Python to the driver's JVM:

    content = number of files (4) | file | file | ...
    file    = path | key | deletes | task
              path, key, deletes, task: each its length in bytes (4), then the bytes
    key     = length of the DEK (1) | DEK | length of the file (8) | AAD prefix
    deletes = a 32-bit Roaring bitmap of deleted positions, in its portable form; empty for a file without deletes
    task    = what Python needs to read the file (sql/scans/portable.py); empty for a file that Spark's own reader serves

The planner's process sends them through a pipe, and a program in its encrypted responses (sql/programs/responses.py). Other secrets of a
program, which are the key of these responses and the settings of a catalog, are encrypted for the driver's JVM alone, because Py4J writes
what it sends to debug logs. The result of a writing task (written_files.py) is encrypted for the process that plans the write. All of
them are messages of one kind:

    message = length of the sender's public key (2) | sender's public key | nonce (12) | ciphertext | tag (16)

    public keys   P-256, each a SubjectPublicKeyInfo in DER; the sender's is made for this one message
    key           SHA-256(00000001 | Z | context | sender's public key | receiver's public key), Z the shared secret of ECDH:
                  the one-step key derivation of NIST SP 800-56C
    cipher        AES-256-GCM under that key

                                  receiver's key pair lasts as long as    context        AAD
    for the driver's JVM          its SparkContext                        name           the secret's name
    a task's result               the write                               write id (16)  write id | number of the task (4)

Numbers and lengths are big endian. So a result decrypts in its own write and as the result of its own task, and it cannot be decrypted once
the driver has forgotten the private key, which it does at the end of the write. The encryption does not authenticate the sender: only
Spark's authenticated messages show that a result is of an executor.

Raises AuthenticationError for a result that does not decrypt.
"""

from __future__ import annotations

import secrets
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.kdf.concatkdf import ConcatKDFHash
from pyroaring import BitMap

from tablecrypt.crypto.aes_gcm import NONCE_LENGTH, AesGcm
from tablecrypt.crypto.key_metadata import StandardKeyMetadata
from tablecrypt.crypto.secret import Secret
from tablecrypt.errors import AuthenticationError

if TYPE_CHECKING:
    from tablecrypt.table.deletes import DeletedPositions

_COUNT: Final = struct.Struct(">i")
WRITE_ID_LENGTH: Final = 16
_KEY_LENGTH: Final = 32
_LENGTH_SIZE: Final = 2


@dataclass(frozen=True)
class PlannedFile:
    """One data file: where it is, its length in bytes, its key, the positions (from 0, below 2^31) that are deleted from it, and the task
    with which Python reads it, if Spark's own reader does not serve it."""

    location: str
    length: int
    key_metadata: StandardKeyMetadata
    deletes: DeletedPositions | None
    task: bytes = b""


def encode_planned_files(files: Sequence[PlannedFile]) -> bytes:
    """Return the content drawn above. It holds DEKs in the clear."""
    return _COUNT.pack(len(files)) + b"".join(_encoded_file(file) for file in files)


def encrypt_for_driver(content: bytes, name: str, public_key: bytes) -> bytes:
    """Return the message with this content for the driver's JVM.

    Args:
        content: the secret.
        name: the secret's. The message opens under this name alone.
        public_key: the endpoint's, a SubjectPublicKeyInfo in DER.
    """
    receiver = _public_key(public_key)
    # Made for this one message, so that no two messages have the same key.
    own = ec.generate_private_key(receiver.curve)
    sender, context = _der(own.public_key()), name.encode()
    # Both public keys are in the derivation: under another sender's or receiver's the message does not open.
    key = _message_key(own, receiver, context + sender + public_key)
    encrypted = AesGcm(key).encrypt(secrets.token_bytes(NONCE_LENGTH), content, context)
    return len(sender).to_bytes(_LENGTH_SIZE, "big") + sender + encrypted


def _encoded_file(file: PlannedFile) -> bytes:
    dek = file.key_metadata.encryption_key.reveal()
    key = bytes([len(dek)]) + dek + file.length.to_bytes(8, "big") + file.key_metadata.aad_prefix
    deletes = b"" if file.deletes is None else BitMap(file.deletes).serialize()
    return _sized(file.location.encode()) + _sized(key) + _sized(deletes) + _sized(file.task)


def _sized(content: bytes) -> bytes:
    return _COUNT.pack(len(content)) + content


class ResultKey:
    """The driver's key pair of one write, and the write's random id."""

    def __init__(self) -> None:
        self._private = ec.generate_private_key(ec.SECP256R1())
        self.write_id: Final = secrets.token_bytes(WRITE_ID_LENGTH)
        self.public_key: Final = _der(self._private.public_key())

    def decrypt(self, task: int, message: bytes) -> bytes:
        """Return a task's result. AuthenticationError unless it was encrypted in this write as the result of this task."""
        try:
            sender, ciphertext = self._split(message)
            key = _message_key(self._private, _public_key(sender), self.write_id + sender + self.public_key)
            # The task's number is authenticated, so one task's result cannot be sent as that of another.
            return AesGcm(key).decrypt(ciphertext, self.write_id + task.to_bytes(4, "big"))
        except (AuthenticationError, UnsupportedAlgorithm, ValueError) as error:
            raise AuthenticationError(
                f"the result of writing task {task} does not authenticate: it was changed, or belongs to another task or write"
            ) from error

    def _split(self, message: bytes) -> tuple[bytes, bytes]:
        end = _LENGTH_SIZE + int.from_bytes(message[:_LENGTH_SIZE], "big")
        return message[_LENGTH_SIZE:end], message[end:]


def _message_key(own: ec.EllipticCurvePrivateKey, other: ec.EllipticCurvePublicKey, info: bytes) -> Secret:
    return Secret(ConcatKDFHash(hashes.SHA256(), _KEY_LENGTH, info).derive(own.exchange(ec.ECDH(), other)))


def _public_key(der: bytes) -> ec.EllipticCurvePublicKey:
    key = serialization.load_der_public_key(der)
    # The bytes come with a result that anyone may have sent: any kind of key would be loaded.
    if not isinstance(key, ec.EllipticCurvePublicKey):
        raise ValueError("a public key of another kind")
    return key


def _der(key: ec.EllipticCurvePublicKey) -> bytes:
    return key.public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
