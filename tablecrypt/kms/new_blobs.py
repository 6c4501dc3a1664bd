"""Making the blobs that tables and files keep: the one place where a key is wrapped, and where the service's answer is checked.

    wrap        key ──► blob ──► unwrap, asked of the service ──► the same key? ─yes─► the blob may be stored
    generate    key and blob ──► unwrap, asked of the service ──► the same key? ─yes─► both may be used
    rewrap      old blob ──► unwrap ──► key;  new blob ──► unwrap ──► the same key? ─yes─► the new blob may be stored

A service that is faulty or lies could otherwise have a commit store a blob that nothing opens, or that opens to another key: that is found
out when the table cannot be read any more. The comparison takes constant time. The unwrap is asked of the service, never of a cache:
the clients of this package remember what an unwrap returned and nothing else.

A user who stores a new blob therefore needs the right to unwrap as well as the right to wrap. A user who may only wrap is refused before
anything is committed, since no check could show that the commit can be read. Two do without: keys/write_only_keys.py, for writers of
protected columns who are not to read them, and who shares rows under the master key of somebody else.

Raises what the client raises; KmsError for an answer that is wrong; KmsAccessDeniedError, saying which permission is missing, where the
service wraps and does not unwrap.
"""

from __future__ import annotations

from typing import NoReturn

from tablecrypt.crypto.secret import Secret
from tablecrypt.errors import AuthenticationError, FormatError, KeyNotFoundError, KmsAccessDeniedError, KmsError, MasterKeyMismatchError
from tablecrypt.kms import client as calls
from tablecrypt.kms.client import GeneratedKey, KeyManagementClient
from tablecrypt.kms.redaction import without_locals


def wrap_key(client: KeyManagementClient, key: Secret, wrapping_key_id: str) -> bytes:
    """Return `key` as the service wrapped it, after the service has unwrapped it again.

    Raises:
        KmsError: the service answers with a blob that is not this key wrapped, or refuses.
    """
    wrapped = wrap_unchecked(client, key, wrapping_key_id)
    check_blob(client, wrapped, wrapping_key_id, key)
    return wrapped


def wrap_unopened(client: KeyManagementClient, key: Secret, wrapping_key_id: str) -> bytes:
    """Return `key` as the service wrapped it, to be stored by a user who may not unwrap: only other users find out whether it opens.

    Raises:
        KmsError: the service answers with the key in the clear or with nothing, or refuses.
    """
    wrapped = wrap_unchecked(client, key, wrapping_key_id)
    # The only checks that need no right to unwrap. They find a client that returns the key as it is.
    if len(wrapped) <= len(key) or key.reveal() in wrapped:
        _refuse(wrapping_key_id, "is the key in the clear, or too short to be one that was encrypted", None)
    return wrapped


def wrap_for_another(client: KeyManagementClient, key: Secret, wrapping_key_id: str) -> bytes:
    """Return `key` as the service wrapped it for somebody else who may use this master key; checked where this user may unwrap as well.

    Raises:
        KmsError: the service refused to wrap it, or answered wrongly.
    """
    try:
        return wrap_key(client, key, wrapping_key_id)
    except KmsAccessDeniedError:
        # Where wrapping is what was refused, this is refused as well.
        return wrap_unopened(client, key, wrapping_key_id)


def wrap_unchecked(client: KeyManagementClient, key: Secret, wrapping_key_id: str) -> bytes:
    """Return `key` as the service wrapped it: for a blob that is used at once and stored nowhere."""
    try:
        return client.wrap_key(key.reveal(), wrapping_key_id)
    except BaseException as error:
        without_locals(error)
        raise


def generate_key(client: KeyManagementClient, wrapping_key_id: str, length: int) -> GeneratedKey:
    """Return a fresh key of `length` bytes (16, 24 or 32) with its wrapped form, after the service has unwrapped that.

    Raises:
        KmsError: the two forms are not of one key, or the key has another length; or the service refuses.
    """
    try:
        generated = client.generate_key(wrapping_key_id, length)
    except BaseException as error:
        without_locals(error)
        raise

    # A shorter key would encrypt the table with a weaker cipher than its properties promise.
    if len(generated.key) != length:
        raise KmsError(f"the key service answered with a key of {len(generated.key)} bytes under {wrapping_key_id!r}, not of {length}")

    check_blob(client, generated.wrapped_key, wrapping_key_id, Secret(generated.key))
    return generated


def rewrap_key(client: KeyManagementClient, wrapped_key: bytes, wrapping_key_id: str, from_key_id: str, key: Secret) -> bytes:
    """Return the blob that replaces `wrapped_key`, wrapped by the newest version of `wrapping_key_id`.

    Args:
        client: rewraps in the service where it can do that, else through this process.
        wrapped_key: the old blob.
        wrapping_key_id: the master key that wraps from now on.
        from_key_id: the master key that wrapped the old blob.
        key: what is in the old blob, for the comparison.

    Raises:
        KmsError: the new blob does not hold `key`, or the service refuses.
    """
    try:
        rewrapped = calls.rewrap_key(client, wrapped_key, wrapping_key_id, from_key_id)
    except BaseException as error:
        without_locals(error)
        raise

    check_blob(client, rewrapped, wrapping_key_id, key)
    return rewrapped


def unwrap_key(client: KeyManagementClient, wrapped_key: bytes, wrapping_key_id: str) -> Secret:
    """Return the key inside a stored blob."""
    try:
        return Secret(client.unwrap_key(wrapped_key, wrapping_key_id))
    except BaseException as error:
        without_locals(error)
        raise


def unwrap_kek(client: KeyManagementClient, wrapped_key: bytes, wrapping_key_id: str, what: str) -> Secret:
    """Return the KEK inside a blob of `encryption-keys`.

    Args:
        client: asked to unwrap it.
        wrapped_key: the blob.
        wrapping_key_id: the master key that should have wrapped it.
        what: names the KEK in the message.

    Raises:
        MasterKeyMismatchError: the service has a master key of that id, and it does not open the blob.
        KmsError, KeyNotFoundError: as the client raises them.
    """
    try:
        return unwrap_key(client, wrapped_key, wrapping_key_id)
    except (AuthenticationError, FormatError) as error:
        raise MasterKeyMismatchError(
            f"{wrapping_key_id!r} is not the master key that wrapped {what}, or the entry of the KEK was changed: {error}. "
            "Use the key service or the key file with which the table was written"
        ) from error


def check_blob(client: KeyManagementClient, wrapped_key: bytes, wrapping_key_id: str, key: Secret) -> None:
    """Ask the service to open a blob that it has just made, and compare what it holds.

    Raises:
        KmsError: it does not open, or holds another key.
        KmsAccessDeniedError: the service may not be asked to open it.
    """
    try:
        opened = unwrap_key(client, wrapped_key, wrapping_key_id)
    except KmsAccessDeniedError as error:
        raise KmsAccessDeniedError(
            f"a key that {wrapping_key_id!r} has just wrapped cannot be checked, since unwrapping is refused; nothing was committed: "
            f"writers need the permission to unwrap too: {error}"
        ) from error
    except (AuthenticationError, FormatError, KeyNotFoundError) as error:
        _refuse(wrapping_key_id, f"cannot be unwrapped again ({error})", error)

    # A blob of another key would be found out only when the table cannot be read any more.
    if opened != key:
        _refuse(wrapping_key_id, "contains another key than the one that was wrapped", None)


def _refuse(wrapping_key_id: str, what: str, cause: Exception | None) -> NoReturn:
    raise KmsError(
        f"the key service answered wrongly: what it wrapped under {wrapping_key_id!r} {what}; nothing was committed: "
        "find out whether the service, or something between it and this machine, is faulty before writing again"
    ) from cause
