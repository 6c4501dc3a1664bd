"""Modules: the parts of a Parquet file that are encrypted one by one, and what binds each to its place.

    encrypted module        = length of what follows (4, LE) | nonce (12) | ciphertext | tag (16)
    encrypted page, CTR     = length of what follows (4, LE) | nonce (12) | ciphertext                (body of a page in AES_GCM_CTR_V1)
    signature of a plaintext footer = nonce (12) | tag (16)

    AAD                  = AAD prefix | aad_file_unique | module type (1) | row group (2, LE) | column (2, LE) | page (2, LE)
        the footer has no ordinals; only data pages and their headers have that of the page, counted from 0 without the dictionary page

AES-GCM binds a module to its file and place. AES-CTR binds a page's body to nothing: its bytes can be changed unseen, and its header,
which is encrypted with AES-GCM, holds only its size. The counter of CTR begins at 1, the lowest bit of the last four bytes of the IV.

Ordinals are 0 to 32767: the format's i16. Every module gets a new random nonce; one key encrypts at most 2^32 modules of a file.

Raises TamperedFileError, naming the module, for what does not authenticate, KeyMismatchError where a key that the caller chose has
decrypted nothing of the file yet, and ConfigurationError for what the format has no space for.

Specification: Apache Parquet, "Parquet Modular Encryption", sections 4.1.3, 4.1.4, 4.4 and 5.1.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum
from functools import cache
from typing import TYPE_CHECKING, Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.ciphers.modes import CTR

from tablecrypt._bytes import flat_view
from tablecrypt.crypto.aes_gcm import NONCE_LENGTH, OVERHEAD, TAG_LENGTH
from tablecrypt.crypto.secret import Secret
from tablecrypt.errors import AuthenticationError, ConfigurationError, FormatError, KeyMismatchError, TamperedFileError

if TYPE_CHECKING:
    from typing_extensions import Buffer

LENGTH_BYTES: Final = 4
GCM_OVERHEAD: Final = LENGTH_BYTES + OVERHEAD
CTR_OVERHEAD: Final = LENGTH_BYTES + NONCE_LENGTH
SIGNATURE_LENGTH: Final = OVERHEAD
MAX_ORDINAL: Final = 2**15 - 1
MAX_MODULES_OF_A_KEY: Final = 2**32
MAX_MODULE_LENGTH: Final = 2**31 - 1

_LENGTH: Final = struct.Struct("<I")
_SUFFIX: Final = struct.Struct("<Bhh")
_PAGE_SUFFIX: Final = struct.Struct("<Bhhh")
_COUNTER: Final = struct.pack(">I", 1)
_SPARE: Final = 15
"""How much more space than it fills the cipher wants for its output in counter mode: a block less one byte."""


class ModuleType(IntEnum):
    """What a module holds; the number is part of its AAD."""

    FOOTER = 0
    COLUMN_METADATA = 1
    DATA_PAGE = 2
    DICTIONARY_PAGE = 3
    DATA_PAGE_HEADER = 4
    DICTIONARY_PAGE_HEADER = 5
    COLUMN_INDEX = 6
    OFFSET_INDEX = 7
    BLOOM_FILTER_HEADER = 8
    BLOOM_FILTER_BITSET = 9

    @property
    @cache
    def label(self) -> str:
        return self.name.lower().replace("_", " ")

    @property
    def has_page(self) -> bool:
        return _HAS_PAGE[self]


_HAS_PAGE: Final = tuple(each in (ModuleType.DATA_PAGE, ModuleType.DATA_PAGE_HEADER) for each in ModuleType)


@dataclass(frozen=True, slots=True)
class ModuleOrdinals:
    """A column chunk of a file: the ordinals of its row group and column, and the column's dotted path for messages."""

    row_group: int
    column: int
    path: str

    def __post_init__(self) -> None:
        for name, ordinal in (("row group", self.row_group), ("column", self.column)):
            if not 0 <= ordinal <= MAX_ORDINAL:
                raise ConfigurationError(f"{name} {ordinal} cannot be encrypted: modular encryption counts from 0 to {MAX_ORDINAL}")

    def __str__(self) -> str:
        return f"column {self.path} in row group {self.row_group}"

    def suffix(self, module_type: ModuleType, page: int = 0) -> bytes:
        """What follows aad_file_unique in the AAD of a module here."""
        if not _HAS_PAGE[module_type]:
            return _SUFFIX.pack(module_type, self.row_group, self.column)
        # The AAD has two bytes for the page (section 4.4): past them two pages would share one, and could be exchanged.
        if not 0 <= page <= MAX_ORDINAL:
            raise ConfigurationError(
                f"page {page} of {self} cannot be encrypted: modular encryption has pages 0 to {MAX_ORDINAL} of a chunk"
            )

        return _PAGE_SUFFIX.pack(module_type, self.row_group, self.column, page)

    def describe(self, module_type: ModuleType, page: int = 0) -> str:
        return f"{module_type.label} {page} of {self}" if module_type.has_page else f"the {module_type.label} of {self}"


def check_stated(ordinal: int, what: str) -> None:
    """FormatError for an ordinal that a file has or states, and that its AADs have no room for.

    A writer that counts on in two bytes comes to -32768, and from then on to AADs that other modules of the file have.
    """
    if not 0 <= ordinal <= MAX_ORDINAL:
        raise FormatError(f"it has {what} {ordinal}: modular encryption counts from 0 to {MAX_ORDINAL}")


def check_page(number: int, ordinals: ModuleOrdinals, location: str) -> None:
    """FormatError for a page of a chunk that its AADs have no room for."""
    if number > MAX_ORDINAL:
        raise FormatError(f"{location}: page {number} of {ordinals} cannot be: modular encryption has pages 0 to {MAX_ORDINAL} of a chunk")


FOOTER_SUFFIX: Final = bytes([ModuleType.FOOTER])


def stated_length(framed: memoryview | bytearray) -> int:
    """How long the module says it is that begins with these bytes, its length field included; 0 where they are too few to say it."""
    return 0 if len(framed) < LENGTH_BYTES else _LENGTH.unpack_from(framed)[0] + LENGTH_BYTES


def module_length(framed: Buffer, available: int, what: str, location: str, least: int = GCM_OVERHEAD) -> int:
    """As `stated_length`. TamperedFileError when that is less than `least`, or more than the `available` bytes that it has."""
    view = memoryview(framed)
    length = stated_length(view)
    if not least <= length <= available:
        raise impossible_length(view, available, what, location, least)
    return length


def impossible_length(framed: memoryview, available: int, what: str, location: str, least: int = GCM_OVERHEAD) -> TamperedFileError:
    """The error that says why the module which begins with these bytes is none."""
    if framed.nbytes < LENGTH_BYTES:
        return TamperedFileError(location, f"{what} is cut off: {framed.nbytes} bytes are left for it")
    return TamperedFileError(location, f"{what} says it has {stated_length(framed)} bytes, where {least} to {available} can be")


class ModuleCipher:
    """Encrypts and decrypts the modules of one file that are under one key.

    Args:
        key: 16, 24 or 32 bytes.
        key_name: what the key is called in messages and inspections.
        aad_base: AAD prefix | aad_file_unique.
        ctr: AES_GCM_CTR_V1, so page bodies are not authenticated.
        location: names the file in errors.
        random: gives nonces.
        may_not_fit: the caller chose the key, so until it decrypts a first module nothing shows that it is this file's.
        max_modules: how many modules the key may encrypt. Each takes a random nonce.
    """

    def __init__(
        self,
        key: Secret,
        key_name: str,
        aad_base: bytes,
        ctr: bool,
        location: str,
        random: Callable[[int], bytes] | None = None,
        may_not_fit: bool = False,
        max_modules: int = MAX_MODULES_OF_A_KEY,
    ) -> None:
        self._key = key
        self.key_name = key_name
        self.ctr = ctr
        self._aad_base = aad_base
        self._location = location
        self._random = random
        self._gcm = AESGCM(key.reveal())
        self._aes = AES(key.reveal())
        self._nonces_drawn = 0
        self._max_modules = max_modules
        self.may_not_fit = may_not_fit

    def __repr__(self) -> str:
        return f"ModuleCipher({self.key_name!r}, {self._key!r})"

    def decrypt(self, suffix: bytes, framed: memoryview, what: str) -> bytearray:
        """Return the plaintext of a whole module. The error for one that does not authenticate says `what` it is."""
        plaintext = bytearray(framed.nbytes - GCM_OVERHEAD)
        self.decrypt_into(suffix, framed, what, memoryview(plaintext))
        return plaintext

    def decrypt_into(self, suffix: bytes, framed: memoryview, what: str, out: memoryview) -> memoryview:
        """As `decrypt`, into the beginning of `out`, which is returned. What an error leaves in `out` is not authentic."""
        plaintext = out[: framed.nbytes - GCM_OVERHEAD]
        if not self.opens(suffix, framed, plaintext):
            raise self.refusal(what)
        return plaintext

    def opens(self, suffix: bytes, framed: memoryview, plaintext: memoryview) -> bool:
        """Whether a whole module authenticates; `plaintext`, exactly as long as its own, is what it says only then."""
        nonce = bytes(framed[LENGTH_BYTES:CTR_OVERHEAD])
        try:
            self._gcm.decrypt_into(nonce, framed[CTR_OVERHEAD:], self._aad_base + suffix, plaintext)
        except InvalidTag:
            return False

        # A module that opens proves that the key is the file's. What fails from now on was changed.
        self.may_not_fit = False
        return True

    def decrypt_page(self, suffix: bytes, framed: memoryview, what: str) -> bytearray:
        """Return the body of a page, which in AES_GCM_CTR_V1 is not authenticated."""
        if not self.ctr:
            return self.decrypt(suffix, framed, what)
        body = bytearray(framed.nbytes - CTR_OVERHEAD + _SPARE)
        self.decrypt_page_into(suffix, framed, what, memoryview(body))
        del body[-_SPARE:]
        return body

    def decrypt_page_into(self, suffix: bytes, framed: memoryview, what: str, out: memoryview) -> memoryview:
        """As `decrypt_page`, into the beginning of `out`, which is returned; `out` is at least as long as `framed`."""
        if not self.ctr:
            return self.decrypt_into(suffix, framed, what, out)
        body = out[: framed.nbytes - CTR_OVERHEAD]
        self._count(bytes(framed[LENGTH_BYTES:CTR_OVERHEAD]), framed[CTR_OVERHEAD:], out)
        return body

    def authenticates(self, suffix: bytes, framed: memoryview) -> bool:
        """Whether the bytes are a module encrypted with AES-GCM at that place."""
        # A page in counter mode can be shorter than the overhead of GCM.
        if framed.nbytes < GCM_OVERHEAD:
            return False

        try:
            self.decrypt(suffix, framed, "")
        except AuthenticationError:
            return False

        return True

    def encrypt(self, suffix: bytes, plaintext: Buffer) -> bytearray:
        """Return the encrypted module: length | nonce | ciphertext | tag."""
        with flat_view(plaintext) as source:
            module, nonce = self._framed(source.nbytes + GCM_OVERHEAD)
            with memoryview(module) as view:
                self._gcm.encrypt_into(nonce, source, self._aad_base + suffix, view[LENGTH_BYTES + NONCE_LENGTH :])
        return module

    def encrypt_page(self, suffix: bytes, body: Buffer) -> bytearray:
        """Return the encrypted body of a page: as `encrypt` does; in AES_GCM_CTR_V1 without a tag."""
        if not self.ctr:
            return self.encrypt(suffix, body)

        with flat_view(body) as source:
            module, nonce = self._framed(source.nbytes + CTR_OVERHEAD, _SPARE)
            # Released before the spare bytes go: a bytearray with a view on it cannot shrink.
            with memoryview(module) as view:
                self._count(nonce, source, view[CTR_OVERHEAD:])

        del module[-_SPARE:]
        return module

    def sign(self, footer: bytes) -> bytes:
        """Return nonce | tag over a plaintext footer."""
        nonce = self._nonce()
        # The footer itself stays in the clear beside its signature (section 5.5), so the ciphertext is not stored.
        return nonce + self._gcm.encrypt(nonce, footer, self._aad_base + FOOTER_SUFFIX)[-TAG_LENGTH:]

    def check_signature(self, footer: bytes, signature: bytes) -> None:
        """An error as the module says, unless `sign` made this signature for this footer."""
        nonce, tag = signature[:NONCE_LENGTH], signature[NONCE_LENGTH:]
        aad = self._aad_base + FOOTER_SUFFIX
        # The ciphertext is not stored: encrypting the footer again gives it, and decrypting it checks the tag in constant time.
        ciphertext = self._gcm.encrypt(nonce, footer, aad)[:-TAG_LENGTH]
        try:
            self._gcm.decrypt(nonce, ciphertext + tag, aad)
        except InvalidTag:
            raise self.refusal("the signature of the plaintext footer") from None

        self.may_not_fit = False

    def refusal(self, what: str) -> TamperedFileError | KeyMismatchError:
        """The error for a module that does not authenticate."""
        refused = f"{what} does not authenticate under {self.key_name}"
        if self.may_not_fit:
            return KeyMismatchError(self._location, f"{refused}: the key or the AAD prefix does not fit, or the file was changed")
        return TamperedFileError(self._location, f"{refused}: changed or moved bytes, or the key or AAD prefix of another file")

    def _framed(self, length: int, spare: int = 0) -> tuple[bytearray, bytes]:
        if length > MAX_MODULE_LENGTH:
            raise ConfigurationError(f"{self._location}: a module of {length} bytes is too long for a Parquet file")
        nonce = self._nonce()
        module = bytearray(length + spare)
        _LENGTH.pack_into(module, 0, length - LENGTH_BYTES)
        module[LENGTH_BYTES : LENGTH_BYTES + NONCE_LENGTH] = nonce
        return module, nonce

    def _nonce(self) -> bytes:
        assert self._random is not None, "a cipher that encrypts was given randomness"
        self._nonces_drawn += 1
        # NIST SP 800-38D, section 8.3: with random nonces, a key encrypts no more than 2^32 messages.
        if self._nonces_drawn > self._max_modules:
            raise ConfigurationError(f"{self._location}: {self.key_name} has encrypted {self._max_modules} modules, as many as a key may")
        return self._random(NONCE_LENGTH)

    def _count(self, nonce: bytes, source: memoryview, out: bytearray | memoryview) -> None:
        """Encrypt or decrypt in counter mode, which is the same."""
        Cipher(self._aes, CTR(nonce + _COUNTER)).encryptor().update_into(source, out)
