"""The contract of key services whose key ids are plain names."""

from __future__ import annotations

import pytest

from tablecrypt.testing.kms_contract import KeyManagementClientContract


class NamedKeys(KeyManagementClientContract):
    """Services whose key ids are plain names."""

    @pytest.fixture
    def wrapping_key_id(self) -> str:
        return "orders"

    @pytest.fixture
    def other_wrapping_key_id(self) -> str:
        return "people"

    @pytest.fixture
    def missing_key_id(self) -> str:
        return "nobody"
