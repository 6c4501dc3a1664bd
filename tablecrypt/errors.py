"""Every error a caller of tablecrypt can meet, grouped by what the caller can do about it.

    TablecryptError
    ├── AuthenticationError      the bytes or the key are wrong: do not use what was read
    │   ├── TamperedFileError    … and this file, for this reason
    │   └── KeyMismatchError     a key that the caller gave opens nothing of this file: it does not fit, or the file was changed
    ├── PlaintextRefusedError    plaintext was found, or would have been written, where only ciphertext may be
    ├── KeyNotFoundError         a key that the metadata names is not there
    ├── KeyIdChangedError        the table's master key id was changed or removed
    ├── MasterKeyRefusedError    something names a master key that this client's configuration does not allow
    ├── MetadataRollbackError    the catalog answered with older metadata than was seen before
    ├── KmsError                 the key service refused or failed; `retryable` says whether to try again
    │   ├── KmsAccessDeniedError
    │   │   └── ColumnKeyDeniedError   … of the master key of a protected column
    │   └── KmsUnavailableError
    ├── FormatError              the bytes are not of the format they should be of, or of one we do not read
    ├── DeletionRefusedError     a file that is not the table's own, as far as can be told, was to be deleted or written over
    ├── ReadRestrictionError     the catalog's server restricts what may be read, and this would not keep to it
    ├── PurgeIncompleteError     files of a table could not be deleted: purging it again continues
    ├── ConfigurationError       a property or an argument cannot be used as given
    └── MissingExtraError        an optional package is not installed; the message names the pip extra

No message holds key bytes. Every error survives pickling, so that it reaches the driver from a worker process whole.
"""

from __future__ import annotations


class TablecryptError(Exception):
    """Base class of every error that tablecrypt raises on purpose."""


class _OfAFile(TablecryptError):
    """An error about one file: `location` names it, `what` says the rest.

    Polars, among others, raises in place of an error another of the same class that it makes of the message alone.
    """

    def __init__(self, location: str, what: str = "") -> None:
        super().__init__(location, what)
        self.location = location
        self.what = what

    def __str__(self) -> str:
        return f"{self.location}: {self.what}" if self.what else self.location


class AuthenticationError(TablecryptError):
    """AES-GCM did not authenticate: the ciphertext, its place (AAD) or the key is not what it was when written."""


class TamperedFileError(_OfAFile, AuthenticationError):
    """A file's bytes are not what its writer left: `location` names the file, `what` the part that failed."""


class KeyMismatchError(_OfAFile, AuthenticationError):
    """A key that the caller gave for a file without a table has opened nothing of it: it does not fit, or the file was changed.

    AES-GCM cannot tell which. Once a key has opened one part of a file, another part that does not open is a TamperedFileError; so is all
    that does not fit in a table, where the key is no choice of the caller's. To refuse either, catch AuthenticationError.

    Attributes:
        location: the file.
        what: the part that failed, and under which key.
    """


class PlaintextRefusedError(_OfAFile):
    """Plaintext at `location`, where the table's property encryption.key-id promises ciphertext."""


class KeyNotFoundError(TablecryptError):
    """A key id that a snapshot, a key entry or a caller names is not known where it was looked for."""


class KeyIdChangedError(TablecryptError):
    """encryption.key-id differs from what the table was created with, or is gone. It never changes in a table's life."""


class MasterKeyRefusedError(TablecryptError):
    """Something names a master key that encryption.allowed-key-ids does not allow. The key service was not asked.

    Attributes:
        key_id: the master key.
        where: what names it.
    """

    def __init__(self, key_id: str, where: str) -> None:
        super().__init__(key_id, where)
        self.key_id = key_id
        self.where = where

    def __str__(self) -> str:
        return (
            f"{self.where} names master key {self.key_id!r}, which this client does not allow; the key service was not asked. "
            "If it is right, add it to encryption.allowed-key-ids (or to allowed_key_ids); else somebody forged what names it"
        )


class MetadataRollbackError(TablecryptError):
    """The catalog answered with metadata older than this client has seen before."""


class KmsError(TablecryptError):
    """A key management service refused or failed.

    Attributes:
        retryable: whether the same call may succeed later without any change by the caller.
    """

    def __init__(self, message: str, retryable: bool = False) -> None:
        super().__init__(message, retryable)
        self.message = message
        self.retryable = retryable

    def __str__(self) -> str:
        return self.message


class KmsAccessDeniedError(KmsError):
    """The KMS knows the caller and says no: a permission, a disabled key, or a key of another owner."""


class ColumnKeyDeniedError(KmsAccessDeniedError):
    """The KMS does not let this caller use the master key of a protected column: values of that column cannot be read or written.

    Attributes:
        field_id: the column's.
        column_key_id: the master key's.
    """

    def __init__(self, field_id: int, column_key_id: str, reason: str) -> None:
        super().__init__(reason)
        self.args = (field_id, column_key_id, reason)
        self.field_id = field_id
        self.column_key_id = column_key_id

    def __str__(self) -> str:
        return (
            f"column {self.field_id} is protected by master key {self.column_key_id!r}, which the key service does not let you use: "
            f"{self.message}. Leave the column out, or ask for the right to that key"
        )


class KmsUnavailableError(KmsError):
    """The KMS could not be reached or did not answer in time, after the retries that the properties allow."""

    def __init__(self, message: str, retryable: bool = True) -> None:
        super().__init__(message, retryable)


class FormatError(TablecryptError):
    """The bytes are not of the format they should be of, or of a version that this library does not read."""


class DeletionRefusedError(_OfAFile, PermissionError):
    """A file that something in storage calls the table's was not deleted or written over, since it lies or is named as none of it does.

    It is a PermissionError too, so that code which goes on where a store refuses a deletion goes on here.

    Attributes:
        location: the file.
        what: why not.
    """

    def __str__(self) -> str:
        return f"{self.location} is not deleted or written over: it {self.what}"


class ReadRestrictionError(TablecryptError):
    """A catalog's server restricts what may be read of a table: a restriction cannot be applied, or the operation would go past it."""


class PurgeIncompleteError(TablecryptError):
    """Some files of a table that is being purged could not be deleted. The table is still in the catalog: purge it again.

    Attributes:
        table: the table's name.
        failed: for each location that is left, what the store said.
    """

    def __init__(self, table: str, failed: dict[str, str]) -> None:
        super().__init__(table, failed)
        self.table = table
        self.failed = failed

    def __str__(self) -> str:
        location, problem = next(iter(self.failed.items()))
        return f"{self.table}: {len(self.failed)} files could not be deleted (first {location}: {problem}); purge it again to continue"


class ConfigurationError(TablecryptError, ValueError):
    """A property or an argument has a value that cannot be used, or two of them contradict each other."""


class MissingExtraError(TablecryptError, ImportError):
    """An optional dependency is missing. The message names the extra: pip install "tablecrypt[aws]"."""
