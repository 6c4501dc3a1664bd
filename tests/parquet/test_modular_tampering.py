"""Attacks on files of every mode: none of them gives a row that was not written, and each error names the file and the module."""

from __future__ import annotations

import struct
import traceback

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tablecrypt.errors import (
    AuthenticationError,
    ConfigurationError,
    FormatError,
    KeyMismatchError,
    KeyNotFoundError,
    PlaintextRefusedError,
    TablecryptError,
    TamperedFileError,
)
from tablecrypt.parquet import FileKeys, decrypt, inspect, read_table, verify
from tablecrypt.parquet.footer import read_footer
from tablecrypt.parquet.inspection import ModuleInspection
from tablecrypt.parquet.modules import ModuleType
from tablecrypt.parquet.storage import open_source
from tests.support.modular_files import (
    AAD_PREFIX,
    CTR_MODES,
    FOOTER_KEY,
    GCM_MODES,
    ID_KEY,
    MODES,
    NAME_KEY,
    Mode,
    encrypted,
    every_module,
    plain_file,
    sample_table,
)
from tests.support.mutations import flipped

pytestmark = pytest.mark.slow

LOCATION = "s3://bucket/part-0.parquet"
TABLE = sample_table(20)
PLAINTEXT = plain_file(TABLE, **every_module(row_group_size=10))
FILES = {str(mode): encrypted(PLAINTEXT, mode.keys) for mode in MODES}

# Modules of every type under the footer key and under a column's own, in few bytes.
SMALL_TABLE = TABLE.select(["id", "ratio"])
SMALL_OPTIONS = {"write_page_index": True, "bloom_filter_options": {name: {"ndv": 2, "fpp": 0.2} for name in ("id", "ratio")}}
SMALL_PLAINTEXT = plain_file(SMALL_TABLE.slice(0, 4), **SMALL_OPTIONS)
SMALL_MODES = [mode for mode in MODES if list(mode.column_keys) == ["id"]]

every_mode = pytest.mark.parametrize("mode", MODES, ids=str)


def modules_of(data: bytes, mode: Mode) -> list[ModuleInspection]:
    return [module for module in inspect(data, mode.keys).modules() if module.offset is not None]


def in_a_ctr_body(modules: list[ModuleInspection], at: int) -> bool:
    """Past the length field, which the authenticated header repeats."""
    return any(module.cipher == "AES_CTR" and module.offset + 4 <= at < module.offset + module.size for module in modules if module.offset)


@pytest.mark.parametrize("mode", SMALL_MODES, ids=str)
def test_a_flip_of_any_byte_outside_of_ctr_bodies_is_found(mode: Mode) -> None:
    """A bit in each byte of the file: the magics, the crypto metadata, lengths, nonces, ciphertexts, tags and signature."""
    data = encrypted(SMALL_PLAINTEXT, mode.keys)
    modules = modules_of(data, mode)
    assert {module.type for module in inspect(data, mode.keys).modules()} == {module_type.label for module_type in ModuleType}
    unseen = []
    for at in range(len(data)):
        try:
            verify(flipped(data, at, at * 3 % 8), mode.keys, location=LOCATION)
        except (TamperedFileError, KeyMismatchError) as error:
            assert error.location == LOCATION
        except ConfigurationError:
            assert not mode.plaintext_footer, "only in the crypto metadata of an encrypted footer nothing is authenticated on its own"
        else:
            unseen.append(at)
    assert [at for at in unseen if not in_a_ctr_body(modules, at)] == []
    assert bool(unseen) is mode.ctr


@pytest.mark.parametrize("mode", GCM_MODES, ids=str)
def test_a_flip_anywhere_changes_no_row(mode: Mode) -> None:
    data = FILES[str(mode)]
    for at in range(0, len(data), 23):
        try:
            assert read_table(flipped(data, at, at * 3 % 8), mode.keys, location=LOCATION) == TABLE
        except TablecryptError as error:
            assert LOCATION in str(error)


@every_mode
def test_decryption_of_a_damaged_file_leaves_nothing_that_is_read(mode: Mode) -> None:
    data = FILES[str(mode)]
    for module in modules_of(data, mode):
        if module.cipher == "AES_CTR" or module.offset is None:
            continue
        sink = pa.BufferOutputStream()
        with pytest.raises(AuthenticationError):
            decrypt(flipped(data, module.offset + module.size - 1), sink, mode.keys)
        with pytest.raises(pa.ArrowInvalid):
            pq.read_table(pa.BufferReader(sink.getvalue()))


@every_mode
def test_a_damaged_module_is_named(mode: Mode) -> None:
    data = FILES[str(mode)]
    for chunk in inspect(data, mode.keys).row_groups[1].chunks:  # type: ignore[index]
        for module in chunk.modules:
            if module.cipher != "AES_GCM" or module.offset is None:
                continue
            with pytest.raises(TamperedFileError) as refused:
                verify(flipped(data, module.offset + 20), mode.keys, location=LOCATION)
            page = "" if module.page is None else f" {module.page}"
            assert f"{module.type}{page} of column {chunk.path} in row group 1 does not authenticate" in str(refused.value)


def _swapped(data: bytes, one: ModuleInspection, other: ModuleInspection) -> bytes:
    assert one.offset is not None and other.offset is not None and one.size == other.size
    changed = bytearray(data)
    changed[one.offset : one.offset + one.size] = data[other.offset : other.offset + other.size]
    changed[other.offset : other.offset + other.size] = data[one.offset : one.offset + one.size]
    return bytes(changed)


@every_mode
def test_no_two_modules_of_one_length_can_be_swapped(mode: Mode) -> None:
    data = FILES[str(mode)]
    modules = [module for module in modules_of(data, mode) if module.cipher == "AES_GCM"]
    pairs = [(one, other) for number, one in enumerate(modules) for other in modules[number + 1 :] if one.size == other.size]
    assert len(pairs) > 20
    for one, other in pairs:
        with pytest.raises(AuthenticationError):
            verify(_swapped(data, one, other), mode.keys)


@pytest.mark.parametrize("mode", GCM_MODES, ids=str)
def test_pages_do_not_fit_into_another_file_under_the_same_keys(mode: Mode) -> None:
    one, other = FILES[str(mode)], encrypted(PLAINTEXT, mode.keys, seed=1)
    module = next(module for module in modules_of(one, mode) if module.type == "data page")
    assert module.offset is not None
    span = slice(module.offset, module.offset + module.size)
    changed = one[: span.start] + other[span] + one[span.stop :]
    for work in (verify, read_table):
        with pytest.raises(TamperedFileError, match="column"):
            work(changed, mode.keys)


@every_mode
def test_a_file_cut_anywhere_is_refused(mode: Mode) -> None:
    data = FILES[str(mode)]
    for length in [*range(30), *range(30, len(data), 37), len(data) - 4, len(data) - 1]:
        with pytest.raises(TamperedFileError if length >= len(b"PARE") else FormatError):
            read_table(data[:length], mode.keys)


@every_mode
@pytest.mark.parametrize("extra", [b"\0", b"PAR1", b"PARE"])
def test_bytes_before_or_after_are_refused(mode: Mode, extra: bytes) -> None:
    for changed in (FILES[str(mode)] + extra, extra + FILES[str(mode)]):
        with pytest.raises(TamperedFileError):
            verify(changed, mode.keys)


@every_mode
def test_a_wrong_footer_key_is_told_from_an_attack(mode: Mode) -> None:
    keys = FileKeys(bytes(16), mode.column_keys, mode.aad_prefix, algorithm=mode.algorithm)
    for work in (read_table, verify):
        with pytest.raises(KeyMismatchError, match=r"footer.*does not fit, or the file was changed"):
            work(FILES[str(mode)], keys, location=LOCATION)


@every_mode
def test_a_wrong_column_key_is_told_from_an_attack_and_named(mode: Mode) -> None:
    if not mode.column_keys:
        return
    keys = FileKeys(FOOTER_KEY, {**mode.column_keys, "id": NAME_KEY}, mode.aad_prefix, algorithm=mode.algorithm)
    for work in (read_table, verify):
        with pytest.raises(KeyMismatchError, match=r"under the key of column id: .* does not fit, or the file was changed"):
            work(FILES[str(mode)], keys)
    assert read_table(FILES[str(mode)], keys, ["ratio"]) == TABLE.select(["ratio"])


@every_mode
@pytest.mark.parametrize("prefix", [b"table/part-1", b"table/part-", b"x" * 16])
def test_a_wrong_aad_prefix_is_refused(mode: Mode, prefix: bytes) -> None:
    with pytest.raises(KeyMismatchError):
        read_table(FILES[str(mode)], FileKeys(FOOTER_KEY, mode.column_keys, prefix, algorithm=mode.algorithm))


@every_mode
def test_a_missing_aad_prefix_is_asked_for(mode: Mode) -> None:
    with pytest.raises(ConfigurationError, match="AAD prefix that is not stored"):
        read_table(FILES[str(mode)], FileKeys(FOOTER_KEY, mode.column_keys, algorithm=mode.algorithm))


def test_a_stored_prefix_must_be_the_supplied_one() -> None:
    data = encrypted(PLAINTEXT, Mode(store_aad_prefix=True).keys)
    with pytest.raises(TamperedFileError, match="another AAD prefix"):
        read_table(data, FileKeys(FOOTER_KEY, aad_prefix=b"other"))
    with pytest.raises(TamperedFileError, match="where none is expected"):
        read_table(data, FileKeys(FOOTER_KEY, strict=True))


def test_a_prefix_is_refused_for_a_file_that_was_written_without() -> None:
    data = encrypted(PLAINTEXT, Mode(aad_prefix=b"").keys)
    with pytest.raises(TamperedFileError, match="without an AAD prefix"):
        read_table(data, FileKeys(FOOTER_KEY, aad_prefix=AAD_PREFIX))


@every_mode
def test_a_plaintext_file_in_its_place_is_refused(mode: Mode) -> None:
    for work in (read_table, verify):
        with pytest.raises(PlaintextRefusedError) as refused:
            work(PLAINTEXT, mode.keys, location=LOCATION)
        assert refused.value.location == LOCATION


@pytest.mark.parametrize("plaintext_footer", [False, True])
def test_gcm_pages_are_not_read_as_ctr_pages(plaintext_footer: bool) -> None:
    """Renaming the algorithm would take the authentication of pages away: field 1 of the union becomes field 2."""
    mode = Mode(plaintext_footer=plaintext_footer)
    data = FILES[str(mode)]
    with open_source(data, LOCATION) as source:
        algorithm = read_footer(source).algorithm
    assert algorithm is not None
    # The header of the union's field 1, then of the field 2 within, the id's length and the id itself.
    at = data.index(b"\x1c\x28\x08" + algorithm.aad_file_unique)
    changed = data[:at] + b"\x2c" + data[at + 1 :]
    for work in (read_table, verify):
        with pytest.raises(TamperedFileError, match="AES_GCM_CTR_V1"):
            work(changed, mode.keys)
        asked_for = FileKeys(FOOTER_KEY, aad_prefix=mode.aad_prefix, algorithm="AES_GCM_CTR_V1")
        refusal = (KeyMismatchError, "signature") if plaintext_footer else (TamperedFileError, "encrypted with AES_GCM_V1")
        with pytest.raises(refusal[0], match=refusal[1]):
            work(changed, asked_for)


def test_the_length_of_the_file_is_held_to_what_the_keys_say() -> None:
    mode = MODES[1]
    data = FILES[str(mode)]
    keys = FileKeys(FOOTER_KEY, mode.column_keys, AAD_PREFIX, file_length=len(data))
    assert read_table(data, keys) == TABLE
    for length in (len(data) - 1, len(data) + 1):
        with pytest.raises(TamperedFileError, match=f"has {len(data)} bytes, but its key metadata says {length}"):
            read_table(data, FileKeys(FOOTER_KEY, mode.column_keys, AAD_PREFIX, file_length=length))


def test_a_checksum_finds_accidents_in_ctr_pages() -> None:
    mode = CTR_MODES[1]
    data = encrypted(plain_file(TABLE, write_page_checksum=True), mode.keys)
    module = next(module for module in modules_of(data, mode) if module.cipher == "AES_CTR")
    assert module.offset is not None
    with pytest.raises(TamperedFileError, match="checksum"):
        read_table(flipped(data, module.offset + 20), mode.keys)


def test_what_ctr_does_not_see_is_what_the_documentation_says() -> None:
    mode = CTR_MODES[0]
    data = encrypted(plain_file(TABLE, row_group_size=10, compression="none", use_dictionary=False), mode.keys)
    one, other = [module for module in modules_of(data, mode) if module.type == "data page"][::4]
    changed = _swapped(data, one, other)
    report = verify(changed, mode.keys)
    assert (report.complete, report.unauthenticated_pages) == (False, 8)
    assert read_table(changed, mode.keys, ["id"])["id"].to_pylist() == [*range(10, 20), *range(10)]


def test_a_column_cannot_be_declared_plain_in_a_signed_footer() -> None:
    mode = Mode(plaintext_footer=True)
    data = FILES[str(mode)]
    (length,) = struct.unpack("<I", data[-8:-4])
    footer = PLAINTEXT[-8 - struct.unpack("<I", PLAINTEXT[-8:-4])[0] : -8]
    forged = data[: len(data) - 8 - length] + footer + struct.pack("<I", len(footer)) + b"PAR1"
    with pytest.raises(PlaintextRefusedError):
        read_table(forged, mode.keys)


@every_mode
def test_no_error_shows_a_key(mode: Mode) -> None:
    data = FILES[str(mode)]
    wrong = FileKeys(FOOTER_KEY, {"id": NAME_KEY, "name": ID_KEY}, AAD_PREFIX)
    for changed, keys in (
        (flipped(data, 30), mode.keys),
        (flipped(data, len(data) - 60), mode.keys),
        (data, wrong),
        (data[:-9], mode.keys),
    ):
        try:
            verify(changed, keys)
        except (TamperedFileError, KeyMismatchError, KeyNotFoundError) as error:
            shown = "".join(traceback.format_exception(error))
            for key in (FOOTER_KEY, ID_KEY, NAME_KEY):
                assert key.decode() not in shown
                assert key.hex() not in shown
