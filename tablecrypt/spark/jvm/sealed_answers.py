"""What a writing task answers, sealed to a public key that the driver makes for one write.

    sealed = length of the task's public key (2) | task's public key | nonce (12) | ciphertext | tag (16)

    public keys   P-256, each a SubjectPublicKeyInfo in DER; the task's is made for this one answer
    key           SHA-256(00000001 | Z | write id | task's public key | driver's public key), Z the shared secret of ECDH:
                  the one-step key derivation of NIST SP 800-56C
    cipher        AES-256-GCM under that key, AAD = write id (16) | number of the task (4)

Numbers are big endian. So an answer opens in its own write and as the answer of its own task, and nobody opens it when the driver has
forgotten the private key, which it does at the end of the write. Sealing does not tell who sealed: that the answer is of an executor is
for Spark's authenticated messages to say.

Raises AuthenticationError for bytes that do not open.
"""

from __future__ import annotations

import secrets
from typing import Final

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.kdf.concatkdf import ConcatKDFHash

from tablecrypt.crypto.aes_gcm import AesGcm
from tablecrypt.crypto.secret import Secret
from tablecrypt.errors import AuthenticationError

WRITE_ID_LENGTH: Final = 16
_KEY_LENGTH: Final = 32
_LENGTH_SIZE: Final = 2


class AnswerKey:
    """The driver's key pair of one write, and the write's random id."""

    def __init__(self) -> None:
        self._private = ec.generate_private_key(ec.SECP256R1())
        self.write_id: Final = secrets.token_bytes(WRITE_ID_LENGTH)
        self.public_key: Final = _encoded(self._private.public_key())

    def open(self, task: int, sealed: bytes) -> bytes:
        """Return what a task answered. AuthenticationError unless it was sealed in this write as the answer of this task."""
        try:
            ephemeral, message = self._split(sealed)
            shared = self._private.exchange(ec.ECDH(), ephemeral)
            info = self.write_id + _encoded(ephemeral) + self.public_key
            key = ConcatKDFHash(hashes.SHA256(), _KEY_LENGTH, info).derive(shared)
            return AesGcm(Secret(key)).decrypt(message, self.write_id + task.to_bytes(4, "big"))
        except (AuthenticationError, UnsupportedAlgorithm, ValueError) as error:
            raise AuthenticationError(
                f"the answer of writing task {task} does not authenticate: it was changed, or belongs to another task or write"
            ) from error

    def _split(self, sealed: bytes) -> tuple[ec.EllipticCurvePublicKey, bytes]:
        end = _LENGTH_SIZE + int.from_bytes(sealed[:_LENGTH_SIZE], "big")
        ephemeral = serialization.load_der_public_key(sealed[_LENGTH_SIZE:end])
        if not isinstance(ephemeral, ec.EllipticCurvePublicKey):
            raise ValueError("a public key of another kind")
        return ephemeral, sealed[end:]


def _encoded(key: ec.EllipticCurvePublicKey) -> bytes:
    return key.public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
