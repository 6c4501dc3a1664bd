"""What a table's properties may say about its keys."""

from __future__ import annotations

import pytest

from tablecrypt.errors import ConfigurationError
from tablecrypt.keys.key_settings import DEFAULT_KEK_LIFESPAN_MS, KeySettings


def test_without_properties_the_defaults_hold() -> None:
    assert KeySettings.of({}) == KeySettings(16, DEFAULT_KEK_LIFESPAN_MS)


def test_what_is_allowed_is_taken_as_text_or_number() -> None:
    assert KeySettings.of({"encryption.data-key-length": "32", "encryption.kek-lifespan-ms": 1}) == KeySettings(32, 1)


@pytest.mark.parametrize("name", ["encryption.data-key-length", "encryption.kek-lifespan-ms"])
@pytest.mark.parametrize("value", ["", "x", "-1", "0", "1.5", " 16", "१६", "17000000000000", "9" * 5000, None, True])
def test_what_cannot_be_used_is_refused_by_name(name: str, value: object) -> None:
    with pytest.raises(ConfigurationError, match=name):
        KeySettings.of({name: value})
