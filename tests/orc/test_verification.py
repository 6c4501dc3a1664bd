"""What verify finds out about a file without a manifest, and how far rights go."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pyarrow as pa
import pytest

from tablecrypt import orc
from tablecrypt.crypto.secret import Secret
from tablecrypt.errors import FormatError, KmsUnavailableError, PlaintextRefusedError, TablecryptError, TamperedFileError
from tablecrypt.orc.protobuf import Message, blob_field, encode
from tablecrypt.printable import printable
from tests.support.orc_files import VECTOR_NAMES, encrypted, local_keys, plain, sample_rows, vector, vector_keys, vector_rows
from tests.support.orc_parts import STRUCT, OrcParts, type_of

pytestmark = pytest.mark.slow

DATA = encrypted(sample_rows(300), {"pii": ["text", "home.zip"], "pii256": ["born"]}, stripe_size=10_000)


@pytest.mark.parametrize("name", VECTOR_NAMES)
def test_files_that_java_wrote_hold_together(name: str) -> None:
    verified = orc.verify(vector(name), vector_keys())
    assert not verified.authenticated
    assert verified.rows == len(vector_rows(name))
    assert len(verified.opened) == (4 if name == "mixed_lzo" else 2)
    assert verified.unopened == ()


def test_it_is_said_which_columns_were_opened() -> None:
    assert orc.verify(DATA, local_keys()).opened == ("born", "text", "home.zip")
    assert orc.verify(DATA, local_keys("pii")).unopened == ("born",)
    without = orc.verify(DATA)
    assert (without.opened, without.unopened) == ((), ("born", "text", "home.zip"))
    assert without.stripes > 2


def test_an_outage_fails_the_check() -> None:
    class Down(orc.LocalKeys):
        def decrypt_local_key(self, master: orc.MasterKeyVersion, encrypted: bytes) -> Secret:
            raise KmsUnavailableError("down")

    with pytest.raises(KmsUnavailableError):
        orc.verify(DATA, Down({}))


def test_another_head_is_refused() -> None:
    with pytest.raises(FormatError, match="begin"):
        orc.verify(b"PAR" + DATA[3:], local_keys())


def test_a_file_without_encryption_is_refused() -> None:
    with pytest.raises(PlaintextRefusedError):
        orc.verify(plain(sample_rows()))


PEOPLE = pa.table({"name": [f"name {number}" for number in range(50)], "ssn": [f"{number:09d}" for number in range(50)]})
PROTECTED = encrypted(PEOPLE, {"pii": ["ssn"], "other": ["name"]}, mask={"ssn": "redact"}, compression="uncompressed")
NAMES, SSNS = (PEOPLE[name].to_pylist() for name in ("name", "ssn"))


def take_ssn_out_of_the_encryption(parts: OrcParts) -> None:
    parts.take_out(2)


def place_of_root(parts: OrcParts) -> int:
    """Where the footer has the type of the root, which names the columns."""
    return next(index for index, field in enumerate(parts.footer) if field[0] == 4)


def exchange_names(parts: OrcParts) -> None:
    root = place_of_root(parts)
    message = Message.parse(bytes(parts.footer[root][2]), "the root")
    parts.footer[root] = blob_field(4, encode([*message.without(3), *(blob_field(3, name) for name in reversed(message.blobs(3)))]))


def leave_rows_out(parts: OrcParts) -> None:
    parts.stripes[0].rows -= 10


@pytest.mark.parametrize(
    ("change", "read", "opened"),
    [
        (take_ssn_out_of_the_encryption, {"name": NAMES, "ssn": ["999999999"] * 50}, ("name",)),
        (exchange_names, {"ssn": NAMES, "name": SSNS}, ("ssn", "name")),
        (leave_rows_out, {"name": NAMES[:40], "ssn": SSNS[:40]}, ("name", "ssn")),
    ],
)
def test_what_a_file_says_of_itself_is_noticed_by_a_manifest_alone(
    change: Callable[[OrcParts], None], read: dict[str, list[str]], opened: tuple[str, ...]
) -> None:
    """Nobody who changes the file needs a key. Without a manifest only what `verify` names as opened tells that a column was taken out."""
    parts = OrcParts.of(PROTECTED)
    change(parts)
    changed = parts.file()

    assert orc.read_table(changed, local_keys()).to_pydict() == read
    assert orc.verify(changed, local_keys()).opened == opened
    manifest = orc.create_integrity_manifest({"people": PROTECTED}, local_keys(), "pii256")
    with pytest.raises(TamperedFileError):
        orc.read_table(changed, local_keys(), manifest=manifest, name="people")


@pytest.mark.parametrize("name", ["a\nERROR: a line of somebody else", "\x1b[2J", "\u202e"])
def test_names_of_a_file_are_shown_in_one_line_that_commands_no_terminal(name: str) -> None:
    parts = OrcParts.of(PROTECTED)
    parts.encryption = replace(parts.encryption, keys=tuple(replace(key, name=name) for key in parts.encryption.keys))
    root = place_of_root(parts)
    parts.footer[root] = blob_field(4, type_of(STRUCT, 1, 2, fields=[blob_field(3, name.encode()), blob_field(3, b"ssn")]))
    changed = parts.file()

    for wanted in (["ssn"], ["nobody"]):
        with pytest.raises(TablecryptError) as raised:
            orc.read_table(changed, columns=wanted)
        assert printable(raised.value) == str(raised.value)
