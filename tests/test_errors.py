"""What holds of errors of every kind."""

from __future__ import annotations

import pytest

from tablecrypt.errors import (
    ColumnKeyDeniedError,
    FormatError,
    KmsAccessDeniedError,
    KmsUnavailableError,
    TablecryptError,
    TamperedFileError,
    with_sentence,
)


@pytest.mark.parametrize(
    "error",
    [
        FormatError("no Avro file"),
        TamperedFileError("s3://lake/x.avro", "block 1 differs"),
        KmsAccessDeniedError("not allowed"),
        KmsUnavailableError("timed out", retryable=True),
        ColumnKeyDeniedError(3, "pii", "not allowed"),
        ColumnKeyDeniedError(3, "pii", "not allowed", "person.ssn"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_an_error_with_a_sentence_more_is_the_same_in_all_else(error: TablecryptError) -> None:
    longer = with_sentence(error, "Ask again")

    assert str(longer) == f"{error}. Ask again"
    assert type(longer) is type(error)
    assert [name for name, value in vars(error).items() if vars(longer)[name] != value] in ([], ["what"], ["message"], ["ways_out"])
