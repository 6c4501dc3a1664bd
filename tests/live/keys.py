"""The contract of a real key service, whose master keys the environment names."""

from __future__ import annotations

import os
from typing import ClassVar

import pytest

from tablecrypt.testing.kms_contract import KeyManagementClientContract


class LiveKeys(KeyManagementClientContract):
    """Master keys of TABLECRYPT_LIVE_<service>_KEY_ID and …_OTHER_KEY_ID."""

    service: ClassVar[str]

    @pytest.fixture
    def wrapping_key_id(self) -> str:
        return os.environ[f"TABLECRYPT_LIVE_{self.service}_KEY_ID"]

    @pytest.fixture
    def other_wrapping_key_id(self) -> str:
        return os.environ[f"TABLECRYPT_LIVE_{self.service}_OTHER_KEY_ID"]

    @pytest.fixture
    def missing_key_id(self) -> str:
        return "tablecrypt-no-such-key"
