"""Files after the drafts of 2018, whose fields mean other things, are refused in words that say so."""

from __future__ import annotations

import struct

import pytest

from tablecrypt.errors import FormatError, TamperedFileError
from tablecrypt.parquet import FileKeys, inspect, read_table, thrift, verify
from tablecrypt.parquet.thrift import Struct
from tests.support.modular_files import FOOTER_KEY, plain_file, sample_table

PLAINTEXT = plain_file(sample_table())
KEYS = FileKeys(FOOTER_KEY)


def _struct(*fields: tuple[int, int, object]) -> Struct:
    struct_ = Struct()
    for field_id, kind, value in fields:
        struct_.set(field_id, kind, value)  # type: ignore[arg-type]
    return struct_


def _with_offset_of_the_footer(crypto: Struct) -> bytes:
    """Footer first, then the crypto metadata with the footer's offset, and only the latter's length."""
    body = PLAINTEXT[4:-8]
    encoded = crypto.encode()
    return b"PARE" + body + encoded + struct.pack("<I", len(encoded)) + b"PARE"


def _followed_by_a_module(crypto: Struct) -> bytes:
    encoded = crypto.encode() + struct.pack("<I", 60) + bytes(60)
    return b"PARE" + PLAINTEXT[4:-8] + encoded + struct.pack("<I", len(encoded)) + b"PARE"


GCM = _struct((1, thrift.STRUCT, _struct((1, thrift.BINARY, b"how to find the AAD"), (2, thrift.BINARY, b"ivprefix"))))
DRAFTS = {
    "July 2018": _struct((1, thrift.STRUCT, GCM), (2, thrift.TRUE, True), (3, thrift.BINARY, b"kf"), (4, thrift.I64, 4)),
    "October 2018": _struct((1, thrift.STRUCT, GCM), (2, thrift.BINARY, b"kf"), (3, thrift.I64, 4)),
}


@pytest.mark.parametrize("draft", DRAFTS)
def test_an_encrypted_footer_of_the_drafts_is_refused_by_name(draft: str) -> None:
    data = _with_offset_of_the_footer(DRAFTS[draft])
    for work in (read_table, verify, inspect):
        with pytest.raises(FormatError, match="early draft of Parquet Modular Encryption"):
            work(data, KEYS)


@pytest.mark.parametrize("offset", [0, 3, 10**9])
def test_what_only_resembles_a_draft_is_not_taken_for_one(offset: int) -> None:
    """A wrong length of the footer can make random bytes look like the fields of a draft."""
    elsewhere = _struct((1, thrift.STRUCT, GCM), (3, thrift.I64, offset))
    for data in (_with_offset_of_the_footer(elsewhere), _followed_by_a_module(DRAFTS["October 2018"])):
        with pytest.raises(TamperedFileError, match="file crypto metadata is malformed"):
            read_table(data, KEYS)


def test_an_unsigned_plaintext_footer_is_refused() -> None:
    (length,) = struct.unpack("<I", PLAINTEXT[-8:-4])
    footer = PLAINTEXT[-8 - length : -8]
    assert footer.endswith(b"\x00")
    # The last field is 7; field 8 follows it.
    footer = footer[:-1] + b"\x1c" + GCM.encode() + b"\x00"
    data = PLAINTEXT[: -8 - length] + footer + struct.pack("<I", len(footer)) + b"PAR1"
    for work in (read_table, verify, inspect):
        with pytest.raises(TamperedFileError, match="unsigned plaintext footer"):
            work(data, KEYS)
