"""Every error that tablecrypt raises, grouped by what the caller can do about it.

    TablecryptError
    ├── AuthenticationError      bytes or a key are wrong: do not use what was read
    │   ├── TamperedFileError    … and the error names the file and the reason
    │   ├── KeyMismatchError     a key that the caller gave decrypts nothing of a file: it is the wrong key, or the file was changed
    │   └── MasterKeyMismatchError   a master key did not wrap the KEK that it is asked to unwrap, or the KEK's entry was changed
    ├── PlaintextRefusedError    plaintext was found, or would have been written, where only ciphertext is allowed
    ├── KeyNotFoundError         a key that the metadata names does not exist
    ├── KeyIdChangedError        somebody changed or removed the table's master key id
    ├── MasterKeyRefusedError    metadata, a file or a call names a master key that this client's configuration does not allow
    ├── MetadataRollbackError    the catalog returned older metadata than this client has seen
    ├── KmsError                 the key service refused or failed; `retryable` says whether to try again
    │   ├── KmsAccessDeniedError
    │   │   └── ColumnKeyDeniedError   … of the master key of a protected column
    │   ├── KmsCredentialsError  … does not accept the caller's credentials, which says nothing of his permissions
    │   └── KmsUnavailableError
    ├── FormatError              bytes are not in the expected format, or in one that tablecrypt does not read
    ├── DeletionRefusedError     a file was not deleted or overwritten, because it does not seem to belong to the table
    ├── ReadRestrictionError     the catalog's server restricts what may be read, and the operation would bypass the restriction
    ├── PurgeIncompleteError     some files of a table could not be deleted: purge the table again to continue
    ├── ConfigurationError       a property or an argument cannot be used as given
    └── MissingExtraError        an optional package is missing; the message names the extra

No message contains key bytes. Every error can be pickled, so it travels from a worker process to the driver unchanged.

The docstring of each class says what the error means and, after "What to do:", how to resolve it. docs/reference/errors.md is made from
these docstrings.
"""

from __future__ import annotations

from typing import Self, TypeVar

from tablecrypt.printable import printable

E = TypeVar("E", bound="TablecryptError")


def column_shown(field_id: int, name: str | None) -> str:
    """Return how messages name a column of a table: by its name, where the schema has one, and its field id."""
    return f"the column with field id {field_id}" if name is None else f"column {name!r} (field {field_id})"


class TablecryptError(Exception):
    """Base class of every error that tablecrypt raises on purpose."""

    def __str__(self) -> str:
        # It names what others wrote, such as key ids and columns: it stays one line of a log, and commands no terminal.
        return printable(self._text())

    def _text(self) -> str:
        return super().__str__()


class _OfAFile(TablecryptError):
    """An error about one file: `location` names the file, `what` says what is wrong.

    `what` has a default because some libraries (Polars, for example) raise a new error of the same class, made from the message alone.
    """

    def __init__(self, location: str, what: str = "") -> None:
        super().__init__(location, what)
        self.location = location
        self.what = what

    def _text(self) -> str:
        return f"{self.location}: {self.what}" if self.what else self.location


class AuthenticationError(TablecryptError):
    """Authentication failed: the ciphertext, its position (AAD) or the key differs from what was written.

    A wrapped key cannot be unwrapped if somebody changed it, its KEK or the KEK's timestamp, or if another master key wrapped it.

    What to do: Do not use what you have read. Compare metadata.json with an older version of it.
    """


class TamperedFileError(_OfAFile, AuthenticationError):
    """A file is not as its writer left it: `location` names the file, `what` says which part differs and how.

    What to do: Restore that file from a backup or an object version, and find out who writes to storage.
    """


class KeyMismatchError(_OfAFile, AuthenticationError):
    """A key that you gave for a file without a table decrypts nothing of the file: it is the wrong key, or somebody changed the file.

    AES-GCM cannot tell which of the two it is. This concerns `tablecrypt.parquet`, `tablecrypt.orc` and `decrypt-file`. If the key decrypts
    one part of a file but not another, or if the file belongs to a table, the error is a TamperedFileError instead. To handle both, catch
    AuthenticationError.

    What to do: Look for the key that the file was encrypted with. If you gave that key, restore the file from a backup or an object
    version.

    Attributes:
        location: the file.
        what: the part that failed, and under which key.
    """


class MasterKeyMismatchError(AuthenticationError):
    """A KEK does not unwrap with its master key: another master key of the same id wrapped it, or somebody changed its entry.

    This happens if the key file or the key service is that of another environment, for example staging instead of production. It says
    nothing about the table's files. If it is raised for a whole table, no KEK of the table unwraps. If only some KEKs do not unwrap,
    `verify` and `audit` report the files below them.

    What to do: Configure the key service, the account or the key file with which the table was written. If you did, compare
    `encryption-keys` in metadata.json with an older version of it.
    """


class PlaintextRefusedError(_OfAFile):
    """There is, or would be, plaintext at `location`, where the table's property encryption.key-id promises ciphertext.

    What to do: On reading, restore the file from a backup or an object version, and find out who writes to storage. On writing, use the
    table's own methods; for `add_files`, give `key_metadata`, and no file that has a column in the clear.
    """


class KeyNotFoundError(TablecryptError):
    """The KMS or the table's `encryption-keys` does not have a key with this id.

    What to do: Check `encryption.key-id`, the account and the region. If an entry of `encryption-keys` is missing, look for it in an older
    metadata.json; `tablecrypt rescue` does that.
    """


class KeyIdChangedError(TablecryptError):
    """A change would replace or remove `encryption.key-id`, the property is gone, or a plaintext table has replaced an encrypted one.

    A table keeps the key id with which it was created. The same is raised where somebody else has removed or weakened the protection of a
    column.

    What to do: Leave the property as it is. If it is gone from the metadata, restore metadata.json and find out how that happened. If
    someone recreated the table deliberately, call `catalog.forget_pin(identifier)`. To change the master key, `relocate` the table. If
    somebody you trust has changed protected columns, call `catalog.accept_rollback(identifier)`.
    """


class MasterKeyRefusedError(TablecryptError):
    """Metadata, a file or a call names a master key that `encryption.allowed-key-ids` does not allow. The KMS received no request.

    What to do: If the key is right, add it to the list. Otherwise find out who wrote the metadata or the file that names it.

    Attributes:
        key_id: the master key.
        where: the table, file or call that names it.
    """

    def __init__(self, key_id: str, where: str) -> None:
        super().__init__(key_id, where)
        self.key_id = key_id
        self.where = where

    def _text(self) -> str:
        return (
            f"{self.where} names master key {self.key_id!r}, which this client does not allow; the key service was not asked. "
            "If the key is right, add it to encryption.allowed-key-ids (or to allowed_key_ids); otherwise somebody forged what names it"
        )


class MetadataRollbackError(TablecryptError):
    """The catalog returned older metadata, or an older head of a branch or tag, than this client has seen.

    What to do: Find out who changed the catalog, and let its entry point to the newest metadata.json again. If someone moved a branch back
    or restored a backup deliberately, call `catalog.accept_rollback(identifier)`.
    """


class KmsError(TablecryptError):
    """A key management service refused a request, or failed.

    What to do: See the error code in the message, and the chained exception.

    Attributes:
        retryable: whether the same call may succeed later without any change by the caller.
    """

    def __init__(self, message: str, retryable: bool = False) -> None:
        super().__init__(message, retryable)
        self.message = message
        self.retryable = retryable

    def _text(self) -> str:
        return self.message


class KmsAccessDeniedError(KmsError):
    """The KMS denied access: a permission is missing, or the key is disabled or belongs to somebody else.

    What to do: The message names the action. Grant it, or enable the key. `tablecrypt doctor` tests all permissions.
    """


class ColumnKeyDeniedError(KmsAccessDeniedError):
    """The KMS does not let this caller use the master key of a protected column: values of that column cannot be read or written.

    What to do: Leave the column out of the selected columns, or ask for permission on its master key. An engine such as DuckDB or Polars
    gets masks only by `masked="mask"`.

    Attributes:
        field_id: the column's.
        column_key_id: the master key's.
        column_name: the column's, where the schema has it.
        ways_out: what the caller can do, in sentences.
    """

    def __init__(
        self,
        field_id: int,
        column_key_id: str,
        reason: str,
        column_name: str | None = None,
        ways_out: str = "Leave the column out, or ask for permission to use that key",
    ) -> None:
        super().__init__(reason)
        self.args = (field_id, column_key_id, reason, column_name, ways_out)
        self.field_id = field_id
        self.column_key_id = column_key_id
        self.column_name = column_name
        self.ways_out = ways_out

    def _text(self) -> str:
        return (
            f"{column_shown(self.field_id, self.column_name)} is protected by master key {self.column_key_id!r}, which the key service "
            "does not let you use: "
            f"{self.message}{'' if self.message.endswith('?') else '.'} {self.ways_out}"
        )


class KmsCredentialsError(KmsError):
    """There are no credentials for the KMS, or it does not accept them: they have expired, were revoked or are wrong.

    The KMS has not decided whether the caller may use the key. So this never leads to masks in place of values, as a KmsAccessDeniedError
    of a protected column does.

    What to do: Renew the credentials, for example by logging in, and try again.
    """


class KmsUnavailableError(KmsError):
    """The KMS could not be reached, did not answer in time or throttled requests, after all retries that the properties allow.

    What to do: Wait and try again. Check the network, `kms.endpoint` and the service's quotas. `encryption.kms.retry-budget-ms` sets how
    long a call is retried.
    """

    def __init__(self, message: str, retryable: bool = True) -> None:
        super().__init__(message, retryable)


class FormatError(TablecryptError):
    """Bytes are not in the expected format, or in a version or kind that tablecrypt does not read.

    It does not read ORC data files of tables, for example, nor Parquet files of tables in which a column has its own key.

    What to do: If another program wrote the table, find out its version. Otherwise restore the file from a backup or an object version.
    """


class DeletionRefusedError(_OfAFile, PermissionError):
    """A file was not deleted or overwritten: it lies outside the table's folders, or does not have the name of a table's file.

    It is also a PermissionError, so code that continues when a store refuses a deletion continues here too.

    What to do: If the file belongs to the table, name its folder: `delete_below=`, `--delete-below`.

    Attributes:
        location: the file.
        what: why it was refused.
    """

    def _text(self) -> str:
        return f"{self.location} was not deleted or overwritten: it {self.what}"


class ReadRestrictionError(TablecryptError):
    """The catalog's server restricts what you may read of a table. Either tablecrypt cannot apply it, or the operation would bypass it.

    What to do: The message names the restriction. Connect as a user whom the server does not restrict, or ask the server's administrator.
    """


class PurgeIncompleteError(TablecryptError):
    """A purge could not delete some of the table's files. The table is still in the catalog.

    What to do: Purge the table again. The second purge continues the first.

    Attributes:
        table: the table's name.
        failed: the store's message for each file that is left, by location.
    """

    def __init__(self, table: str, failed: dict[str, str]) -> None:
        super().__init__(table, failed)
        self.table = table
        self.failed = failed

    def _text(self) -> str:
        location, problem = next(iter(self.failed.items()))
        files = "1 file" if len(self.failed) == 1 else f"{len(self.failed)} files"
        return f"{self.table}: {files} could not be deleted (first {location}: {problem}); purge it again to continue"


class ShareRecordError(TablecryptError):
    """What the table remembers of one of its shares cannot be read, so it is not known which files the share needs.

    What to do: Restore the file that the message names from a backup or an object version. If it is lost, `unshare` with `only_forget=True`
    forgets the share, and what deletes files goes on with `break_shares=True`.

    Attributes:
        share_uuid: of the share.
        what: what is wrong.
    """

    def __init__(self, share_uuid: str, what: str = "") -> None:
        super().__init__(share_uuid, what)
        self.share_uuid = share_uuid
        self.what = what

    def _text(self) -> str:
        return (
            f"share {self.share_uuid}: {self.what}. Restore the file from a backup or an object version, or forget the share "
            "(unshare, only_forget); break_shares goes on without knowing which files it needs"
        )


class SharedFilesError(TablecryptError):
    """The operation would delete files that live shares name, or leave them open to whom they were shared with.

    What to do: End the shares first with `unshare`, or go on with `break_shares=True`, `--break-shares`.
    """


class ConfigurationError(TablecryptError, ValueError):
    """A property or an argument has a value that cannot be used, or two of them contradict each other. It is also a ValueError.

    What to do: The message says which values are allowed.
    """


class MissingExtraError(TablecryptError, ImportError):
    """An optional package is missing. It is also an ImportError.

    What to do: Install tablecrypt again from where you installed it, with the extra that the message names. From a clone, for example:
    `pip install ".[aws]"`.
    """

    @classmethod
    def named(cls, need: str, extra: str) -> Self:
        """An error that says what needs which package, and how to install the extra that brings it."""
        return cls(f'{need}. Install tablecrypt again from where you installed it, with this extra: pip install "…[{extra}]"')


def with_sentence(error: E, sentence: str) -> E:
    """Return an error of the same kind and contents that says one sentence more: at the end of the last of its arguments that is text."""
    arguments = list(error.args)
    last = max(index for index, each in enumerate(arguments) if isinstance(each, str))
    arguments[last] = f"{arguments[last]}. {sentence}"
    return type(error)(*arguments)
