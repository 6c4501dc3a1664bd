"""Which encrypted columns of a file a caller may see, and the local keys that decrypt them.

A column may be encrypted several times, under several keys (variants); the first whose key the provider gives is the one that is read.
Rights are requested only when a column is wanted, once for each column and file: the local key of the tail is decrypted, and the column's
file statistics with it. AES-CTR itself cannot detect a wrong key, but statistics decrypted with one do not parse.

Raises KeyMismatchError when the statistics do not decrypt. KeyNotFoundError and KmsAccessDeniedError of a provider mean "no rights";
all its other errors pass through, so that an outage never looks like a missing right.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from tablecrypt.crypto.secret import Secret
from tablecrypt.errors import FormatError, KeyMismatchError, KeyNotFoundError, KmsAccessDeniedError
from tablecrypt.orc.key_providers import KeyProvider
from tablecrypt.orc.messages import Encryption, Stream, StreamKind, Variant
from tablecrypt.orc.protobuf import Message
from tablecrypt.orc.stream_cipher import crypt_stream
from tablecrypt.orc.tail import Stripe, Tail

NoRights = KeyNotFoundError | KmsAccessDeniedError


@dataclass(frozen=True)
class _Granted:
    tail_key: Secret
    statistics: list[bytes]


@dataclass(frozen=True)
class _Choice:
    """The variant that a column is read from; if there is none, the first one that was denied, and why."""

    granted: int | None = None
    first_denied: int | None = None
    refusal: NoRights | None = None


_NO_CHOICE: Final = _Choice()


class LocalColumnKeys:
    """The local keys of one file.

    Args:
        tail: the tail of the file.
        provider: gives the local keys; None gives none.
    """

    def __init__(self, tail: Tail, provider: KeyProvider | None) -> None:
        self.encryption: Encryption = tail.require_encryption()
        self._tail = tail
        self._provider = provider
        self._granted: dict[int, _Granted | NoRights] = {}
        self._choices: dict[int, _Choice] = {}
        # A footer may have thousands of columns and of variants, so that nobody looks through all variants for each column.
        self._by_root: dict[int, list[int]] = {}
        for number, variant in enumerate(self.encryption.variants):
            self._by_root.setdefault(variant.root, []).append(number)
        self._local_keys: dict[tuple[int, bytes], Secret] = {}

    def choose(self, column_id: int) -> tuple[int | None, NoRights | None]:
        """Return the variant to read a column from, or None and the refusal. Both are None for a column that is not encrypted.

        The columns above are asked first: a variant that holds one of them holds this column too.
        """
        unknown: list[int] = []
        above: int | None = column_id
        while above is not None and above not in self._choices:
            unknown.append(above)
            above = self._tail.schema.parent_of(above)

        choice = _NO_CHOICE if above is None else self._choices[above]
        for column in reversed(unknown):
            choice = self._choices[column] = self._choose_below(choice, self._by_root.get(column, ()))
        return choice.granted, choice.refusal

    def _choose_below(self, inherited: _Choice, own: Sequence[int]) -> _Choice:
        """Return a column's choice: the first variant that opens, of those of its parent and of its own."""
        first, refusal = inherited.first_denied, inherited.refusal
        # Several variants may hold the column. A denied first one is no refusal while a later one opens.
        for number in own:
            if inherited.granted is not None and number > inherited.granted:
                break
            granted = self._try(number)
            if isinstance(granted, _Granted):
                return _Choice(number)

            if first is None or number < first:
                first, refusal = number, granted

        return inherited if inherited.granted is not None else _Choice(None, first, refusal)

    def stripe_key(self, number: int, stripe: Stripe) -> Secret:
        """Return the local key of a granted variant in a stripe."""
        return self._local_key(number, stripe.encrypted_keys[number])

    def file_statistics(self, number: int) -> list[bytes]:
        """Return the file statistics of each column of a granted variant, from its root on."""
        return self._require(number).statistics

    def stripe_statistics(self, number: int, stream: Stream, raw: bytes) -> list[bytes]:
        """Decrypt one column's stripe statistics: one entry for each stripe."""
        what = f"{self._tail.location}: the encrypted stripe statistics of column {stream.column}"
        key = self._require(number).tail_key
        opened = crypt_stream(key, stream.column, stream.kind, len(self._tail.stripes) + 1, raw)
        statistics = Message.parse(self._tail.compression.decompress(opened, what), what).blobs(1)
        # The view copies them stripe by stripe: one too few would leave a stripe with the mask's bounds, and filters would skip its rows.
        if len(statistics) != len(self._tail.stripes):
            raise FormatError(f"{what} cover {len(statistics)} stripes, the file has {len(self._tail.stripes)}")

        return statistics

    def describe(self, number: int) -> str:
        """Name a variant's column and key for a message."""
        variant = self.encryption.variants[number]
        return f"column {self._tail.schema.name_of(variant.root)!r} (key {self.encryption.keys[variant.key]})"

    def _require(self, number: int) -> _Granted:
        granted = self._try(number)
        if isinstance(granted, _Granted):
            return granted
        raise granted

    def _try(self, number: int) -> _Granted | NoRights:
        if number not in self._granted:
            try:
                self._granted[number] = self._open(number, self.encryption.variants[number])
            # The answer holds for the whole file: a right that changes halfway must not mix masks and values in one column.
            except (KeyNotFoundError, KmsAccessDeniedError) as refusal:
                self._granted[number] = refusal
        return self._granted[number]

    def _open(self, number: int, variant: Variant) -> _Granted:
        key = self._local_key(number, variant.encrypted_key)
        stripe_id = len(self._tail.stripes) + 1
        opened = crypt_stream(key, variant.root, StreamKind.FILE_STATISTICS, stripe_id, variant.file_statistics)

        try:
            statistics = Message.parse(self._tail.compression.decompress(opened, "its statistics"), "its statistics").blobs(1)
        # CTR decrypts under any key. Under a wrong one the result is noise, which almost never parses.
        except FormatError as error:
            raise self._wrong_key(number) from error

        # Noise may parse by chance as a message without statistics.
        if len(statistics) != len(self._tail.schema[variant.root].subtree):
            raise self._wrong_key(number)

        return _Granted(key, statistics)

    def _local_key(self, number: int, encrypted: bytes) -> Secret:
        variant = self.encryption.variants[number]
        # Counts as a missing right, so that keys=None with masked=True reads the masks of all columns.
        if self._provider is None:
            raise KeyNotFoundError(f"no key provider was given for the key {self.encryption.keys[variant.key]}")
        # The stripes of a file share one local key: without this, each stripe would cost a KMS call.
        if (variant.key, encrypted) not in self._local_keys:
            self._local_keys[variant.key, encrypted] = self._provider.decrypt_local_key(self.encryption.keys[variant.key], encrypted)
        return self._local_keys[variant.key, encrypted]

    def _wrong_key(self, number: int) -> KeyMismatchError:
        what = f"the statistics of {self.describe(number)} do not decrypt: the provider's key does not fit, or the file was changed"
        return KeyMismatchError(self._tail.location, what)
