"""Parquet files and AGS1 streams by themselves, for readers that know no tables. Their keys stand in the manifest."""

from __future__ import annotations

import io
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from conformance.build.fixed import FIXED
from conformance.build.odd_files import AFTER_THE_LAST, first_letters, with_columns_apart, with_wrapped_ordinals
from tablecrypt.crypto import ags1
from tablecrypt.crypto.aes_gcm import AesGcm
from tablecrypt.crypto.key_metadata import StandardKeyMetadata
from tablecrypt.crypto.secret import Secret
from tablecrypt.parquet import FileKeys, encrypt, inspect
from tablecrypt.parquet.inspection import ModuleInspection
from tests.support.modular_files import sample_table
from tests.support.uniform_files import downgraded

PARQUET: Final = "Parquet Modular Encryption"
AGS1: Final = "Iceberg AES GCM Stream file format"
KEY_METADATA: Final = "Iceberg table spec, Standard Key Metadata"
KEY_LENGTHS: Final = (16, 24, 32)
_BLOCK: Final = ags1.BLOCK_LENGTH
_PREFIX: Final = b"conformance-aad!"


_ROWS: Final = sample_table(40).drop_columns("tags")
"""Flat, as some readers need them."""
_REQUIRED_ROWS: Final = pa.table(
    {"id": range(8), "ratio": [each / 3 for each in range(8)]},
    schema=pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("ratio", pa.float64(), nullable=False)]),
)
"""Uncompressed, they have no structure that a decoder could stumble over."""


@dataclass(frozen=True)
class FileCase:
    """A file, how it is opened, and what of it is expected: rows, plaintext or a refusal."""

    name: str
    level: str
    clause: str
    data: bytes
    opening: dict[str, Any]
    rows: pa.Table | None = None
    plaintext: bytes | None = None
    refusal: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()
    has_own_rows: bool = False
    """Whether no other case has rows of these columns and other values."""
    first_of: str | None = None
    """The case of whose file these are the first bytes: it is not kept twice."""


@dataclass(frozen=True)
class Layout:
    """How a Parquet file is written and encrypted."""

    name: str
    clause: str
    algorithm: str = "AES_GCM_V1"
    plaintext_footer: bool = False
    columns: tuple[str, ...] = ()
    store_aad_prefix: bool = False
    aad_prefix: bytes = _PREFIX
    options: dict[str, Any] = field(default_factory=dict)
    rows: pa.Table = field(default_factory=lambda: _ROWS)


_PAGES: Final[dict[str, Any]] = {"data_page_size": 1, "write_batch_size": 7, "use_dictionary": False, "row_group_size": 30}
_EVERY: Final[dict[str, Any]] = {
    "row_group_size": 20,
    "write_page_index": True,
    "bloom_filter_options": {name: {"ndv": 20, "fpp": 0.1} for name in ("id", "name")},
}
LAYOUTS: Final = [
    Layout("footer-key", "5.3 encrypted footer"),
    Layout("no-aad-prefix", "4.4.1 AAD prefix", aad_prefix=b""),
    Layout("stored-aad-prefix", "4.4.1 AAD prefix", store_aad_prefix=True),
    Layout("plaintext-footer", "5.4 plaintext footer with its signature", plaintext_footer=True),
    Layout("column-keys", "5.1 encrypted module serialization; column keys", columns=("id", "name")),
    Layout("plaintext-footer-column-keys", "5.4 plaintext footer with its signature; column keys", plaintext_footer=True, columns=("id",)),
    Layout("ctr", "4.3.2 AES_GCM_CTR_V1", algorithm="AES_GCM_CTR_V1"),
    Layout("many-pages", "4.4.2 AAD suffix: page ordinals", options=_PAGES),
    Layout("page-version-2", "5.1 data page version 2", options={**_PAGES, "data_page_version": "2.0"}),
    Layout("indexes-and-bloom-filters", "5.1 column index, offset index, bloom filter", options=_EVERY),
    Layout("uncompressed", "5.1", options={"compression": "none"}),
    Layout("many-pages-without-aad-prefix", "4.4.2 AAD suffix: page ordinals", aad_prefix=b"", options=_PAGES),
]


def every_file() -> Iterator[FileCase]:
    """The cases below the level of tables."""
    yield from _parquet()
    yield from _streams()
    yield from _key_metadata()


def _parquet() -> Iterator[FileCase]:
    for layout, length in product(LAYOUTS, KEY_LENGTHS):
        name = f"parquet-{layout.name}-{length}"
        keys, data = _file(name, layout, length)
        yield FileCase(name, "parquet", f"{PARQUET}, {layout.clause}", data, _opening(keys), rows=_ROWS)
    yield from _columns_apart()
    yield from _forged_parquet()


def _columns_apart() -> Iterator[FileCase]:
    """Who has the footer's key alone reads the columns that the footer lists."""
    shown = _ROWS.set_column(1, "name", first_letters(_ROWS["name"]))
    for length, (what, prefix) in product(KEY_LENGTHS, (("", _PREFIX), ("-without-aad-prefix", b""))):
        name = f"parquet-columns-apart{what}-{length}"
        FIXED.begin(name)
        keys = FileKeys(text_key(length), aad_prefix=prefix)
        assert keys.footer_key is not None
        data = with_columns_apart(_ROWS, "name", StandardKeyMetadata(keys.footer_key, prefix), text_key(length))
        yield FileCase(
            name,
            "parquet",
            "Parquet format, key-value metadata: readers pass over keys they do not know",
            data,
            _opening(keys),
            shown,
            has_own_rows=True,
        )


def _file(name: str, layout: Layout, length: int) -> tuple[FileKeys, bytes]:
    FIXED.begin(name)
    keys = FileKeys(
        text_key(length),
        {column: text_key(length) for column in layout.columns},
        layout.aad_prefix,
        layout.store_aad_prefix,
        layout.algorithm,
        layout.plaintext_footer,
    )
    plain, encrypted = io.BytesIO(), io.BytesIO()
    pq.write_table(layout.rows, plain, **layout.options)
    encrypt(plain.getvalue(), encrypted, keys, random=FIXED.randbytes)
    return keys, encrypted.getvalue()


def text_key(length: int) -> bytes:
    """A key that is text as well: there are readers that take no other."""
    return FIXED.randbytes(length // 2).hex().encode()


def file_rows() -> pa.Table:
    """What most files hold."""
    return _ROWS


def _opening(keys: FileKeys) -> dict[str, Any]:
    assert keys.footer_key is not None
    return {
        "footer_key": keys.footer_key.reveal().hex(),
        "column_keys": {name: key.reveal().hex() for name, key in keys.column_keys.items()},
        "aad_prefix": keys.aad_prefix.hex(),
        "aad_prefix_is_stored": keys.store_aad_prefix,
        "algorithm": keys.algorithm,
        "plaintext_footer": keys.plaintext_footer,
    }


def _modules(data: bytes, keys: FileKeys) -> list[tuple[str, ModuleInspection]]:
    found = inspect(data, keys)
    chunks = [module for group in found.row_groups or () for chunk in group.chunks for module in chunk.modules]
    placed = [module for module in [*chunks, *found.footer_modules] if module.offset is not None and module.cipher]
    kinds: dict[str, ModuleInspection] = {}
    for module in placed:
        kinds.setdefault(module.type, module)
    return sorted(kinds.items())


def _forged_parquet() -> Iterator[FileCase]:
    whole = Layout("", "", options={**_EVERY})
    base = {
        "flipped": whole,
        "column-keys-flipped": Layout("", "", columns=("id", "name"), options=_EVERY),
        "without-aad-prefix-flipped": Layout("", "", aad_prefix=b""),
    }
    for what, layout in base.items():
        keys, data = _file(f"forged-{what}", layout, 16)
        for kind, module in _modules(data, keys):
            assert module.offset is not None
            at = module.offset + module.size // 2
            changed = data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]
            needs = ("bloom-filters",) if "bloom" in kind else ("page-indexes",) if "index" in kind else ()
            yield _refused(f"{kind.replace(' ', '-').lower()}-{what}", "4.2 GCM tags of every module", changed, keys, needs)

    plain: dict[str, Any] = {"compression": "none", "use_dictionary": False}
    renamed = {
        "cipher-renamed": Layout("", "", options=plain),
        "cipher-renamed-without-aad-prefix": Layout("", "", aad_prefix=b"", options=plain),
        "cipher-renamed-required-columns": Layout("", "", options=plain, rows=_REQUIRED_ROWS),
    }
    for length, (what, layout) in product(KEY_LENGTHS, renamed.items()):
        keys, data = _file(f"forged-{what}-{length}", layout, length)
        forged = _refused(f"{what}-{length}", "4.3, 5.3: the algorithm stands in plaintext", downgraded(data), keys)
        yield replace(forged, rows=layout.rows)
    keys, data = _file("forged-pages", Layout("", "", options=_PAGES), 16)
    yield _refused("data-pages-exchanged", "4.4.2 AAD suffix: page ordinals", _exchanged_pages(data, keys), keys)
    other = FileKeys(keys.footer_key, aad_prefix=b"another-prefix!!")
    FIXED.begin("forged-ordinal")
    plain_rows = io.BytesIO()
    pq.write_table(_ROWS, plain_rows)
    wrapped = with_wrapped_ordinals(plain_rows.getvalue(), keys, FIXED.randbytes, AFTER_THE_LAST)
    yield _refused(
        "row-group-ordinal-beyond-32767", "4.4.2 AAD suffix: ordinals of two bytes", wrapped, keys, refusal=("format", "tampered")
    )
    yield _refused("another-aad-prefix", "4.4.1 AAD prefix", data, other)
    yield _refused("without-aad-prefix", "4.4.1 AAD prefix", data, FileKeys(keys.footer_key), refusal=("tampered", "key"))
    yield _refused("another-key", "4.2 GCM", data, FileKeys(bytes(range(16)), aad_prefix=keys.aad_prefix))
    yield _refused("cut", "5.3", data[:-1], keys, refusal=("tampered", "format"))
    signed, footer = _file("forged-signature", Layout("", "", plaintext_footer=True), 16)
    broken = bytearray(footer)
    broken[-9] ^= 1
    yield _refused("plaintext-footer-signature-flipped", "5.4 signature", bytes(broken), signed)
    renamed_column = bytearray(footer)
    at = footer.rindex(b"ratio")
    renamed_column[at : at + 5] = b"Ratio"
    yield _refused("plaintext-footer-changed", "5.4 signature", bytes(renamed_column), signed)


def _exchanged_pages(data: bytes, keys: FileKeys) -> bytes:
    """Two pages of one length with their headers, exchanged within a column chunk."""
    found = inspect(data, keys)
    assert found.row_groups is not None
    modules = [module for module in found.row_groups[0].chunks[0].modules if module.page is not None and module.offset is not None]
    pages = [(one, other) for one, other in zip(modules[::2], modules[1::2], strict=False)]
    for first, second in product(pages, pages):
        sizes = [(each[0].size, each[1].size) for each in (first, second)]
        if first[0].offset < second[0].offset and sizes[0] == sizes[1]:  # type: ignore[operator]
            size = sum(sizes[0])
            a, b = first[0].offset, second[0].offset
            assert a is not None and b is not None
            return data[:a] + data[b : b + size] + data[a + size : b] + data[a : a + size] + data[b + size :]
    raise AssertionError("no two pages of one length")


def _refused(
    name: str, clause: str, data: bytes, keys: FileKeys, needs: tuple[str, ...] = (), refusal: tuple[str, ...] = ("tampered",)
) -> FileCase:
    return FileCase(f"parquet-{name}", "parquet", f"{PARQUET}, {clause}", data, _opening(keys), _ROWS, refusal=refusal, needs=needs)


def _stream(plaintext: bytes, key: StandardKeyMetadata) -> bytes:
    cipher, parts = AesGcm(key.encryption_key), [b"AGS1", _BLOCK.to_bytes(4, "little")]
    for number, start in enumerate(range(0, max(1, len(plaintext)), _BLOCK)):
        aad = key.aad_prefix + number.to_bytes(4, "little")
        parts.append(cipher.encrypt(FIXED.randbytes(12), plaintext[start : start + _BLOCK], aad))
    return b"".join(parts)


def _streams() -> Iterator[FileCase]:
    for length, (name, size) in product(KEY_LENGTHS, (("empty", 0), ("one-byte", 1), ("short", 5000))):
        case, key = _named(f"ags1-{name}-{length}", length)
        plaintext = FIXED.randbytes(size)
        data = _stream(plaintext, key)
        yield FileCase(case, "ags1", AGS1, data, _stream_opening(key, len(data)), plaintext=plaintext)

    case, key = _named("ags1-two-blocks", 16)
    plaintext = bytes(_BLOCK) + b"the last block"
    data = _stream(plaintext, key)
    end = 8 + _BLOCK + 28
    yield FileCase(case, "ags1", AGS1, data, _stream_opening(key, len(data)), plaintext=plaintext)
    yield replace(_no_stream("cut-at-a-block", data[:end], key, len(data)), first_of=case)
    yield _no_stream("first-block-removed", data[:8] + data[end:], key, 8 + len(data) - end)

    case, key = _named("ags1-forged", 16)
    data = _stream(FIXED.randbytes(500), key)
    yield _no_stream("flipped-bit", data[:100] + bytes([data[100] ^ 1]) + data[101:], key, len(data))
    yield _no_stream("header-alone", data[:8], key, 8)
    yield _no_stream("no-bytes", b"", key, 0)
    yield _no_stream("other-block-length", data[:4] + (65536).to_bytes(4, "little") + data[8:], key, len(data))
    yield _no_stream("other-magic", b"AGS2" + data[4:], key, len(data))
    yield _no_stream("file-length-too-long", data, key, len(data) + 1)
    yield _no_stream("file-length-too-short", data, key, len(data) - 1)
    yield _no_stream("block-cut-inside-its-tag", data[:-1], key, len(data) - 1)
    yield _no_stream("another-aad-prefix", data, StandardKeyMetadata(key.encryption_key, b"another-prefix!!"), len(data))


def _named(name: str, length: int) -> tuple[str, StandardKeyMetadata]:
    FIXED.begin(name)
    return name, StandardKeyMetadata.generate(length, FIXED.randbytes)


def _stream_opening(key: StandardKeyMetadata, length: int) -> dict[str, Any]:
    return {"key": key.encryption_key.reveal().hex(), "aad_prefix": key.aad_prefix.hex(), "file_length": length}


def _no_stream(name: str, data: bytes, key: StandardKeyMetadata, length: int) -> FileCase:
    return FileCase(f"ags1-{name}", "ags1", AGS1, data, _stream_opening(key, length), refusal=("tampered", "format"))


def _key_metadata() -> Iterator[FileCase]:
    for length in KEY_LENGTHS:
        for what, key in {
            "whole": StandardKeyMetadata(Secret(bytes(range(length))), _PREFIX, 12345),
            "key-alone": StandardKeyMetadata(Secret(bytes(range(length))), b""),
        }.items():
            plaintext = b"|".join(
                [key.encryption_key.reveal().hex().encode(), key.aad_prefix.hex().encode(), str(key.file_length).encode()]
            )
            yield FileCase(f"key-metadata-{what}-{length}", "key-metadata", KEY_METADATA, key.encode(), {}, plaintext=plaintext)

    whole = StandardKeyMetadata(Secret(bytes(range(16))), _PREFIX, 12345).encode()
    forged = {
        "bytes-behind": whole + b"\x00",
        "other-version": b"\x02" + whole[1:],
        "cut": whole[:-1],
        "empty": b"",
        "key-of-15-bytes": b"\x01\x1e" + bytes(15) + b"\x00\x00",
        "negative-length": b"\x01\x20" + bytes(16) + b"\x00\x02\x01",
    }
    for name, data in forged.items():
        yield FileCase(f"key-metadata-{name}", "key-metadata", KEY_METADATA, data, {}, refusal=("format",))
