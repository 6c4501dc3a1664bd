"""The salt of a query: new for each, and one for all of its readers."""

from __future__ import annotations

import pickle

from tablecrypt.files.encrypting_file_io import ReadRestrictions


def test_each_query_has_a_salt_of_its_own_that_its_readers_share() -> None:
    restrictions = ReadRestrictions('{"columns": []}')
    first, second = restrictions.of_query(), restrictions.of_query()
    assert restrictions.salt is None
    assert first.salt is not None
    assert second.salt is not None
    assert len(first.salt) == len(second.salt) == 32
    assert first.salt != second.salt
    assert first.text == restrictions.text
    assert first.of_query() is first
    assert pickle.loads(pickle.dumps(first)).of_query() == first
