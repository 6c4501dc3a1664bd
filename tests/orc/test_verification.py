"""What verify finds out about a file without a manifest, and how far rights go."""

from __future__ import annotations

import pytest

from tablecrypt import orc
from tablecrypt.crypto.secret import Secret
from tablecrypt.errors import FormatError, KmsUnavailableError, PlaintextRefusedError
from tests.support.orc_files import VECTOR_NAMES, encrypted, local_keys, plain, sample_rows, vector, vector_keys, vector_rows

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
