"""AWS KMS that a file turns against its callers, in whatever process they are.

denied   it refuses to unwrap
gone     it has no such key any more
wrong    it unwraps with another key: the bytes are not those that were wrapped
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from tablecrypt.errors import KeyNotFoundError, KmsAccessDeniedError
from tablecrypt.kms.aws import AwsKeyManagementClient

_SWITCH: Final = "test.kms.switch"
STATES: Final = ("denied", "gone", "wrong")


class SwitchedKms(AwsKeyManagementClient):
    """Does what the file says that the properties name; all is well while there is none."""

    def __init__(self, properties: Mapping[str, str]) -> None:
        super().__init__(properties)
        self._switch = Path(properties[_SWITCH])

    def unwrap_key(self, wrapped_key: bytes, wrapping_key_id: str) -> bytes:
        match self._switch.read_text() if self._switch.exists() else "":
            case "denied":
                raise KmsAccessDeniedError(f"this user may not decrypt with {wrapping_key_id}")
            case "gone":
                raise KeyNotFoundError(f"there is no key {wrapping_key_id}")
            case "wrong":
                return bytes(byte ^ 1 for byte in super().unwrap_key(wrapped_key, wrapping_key_id))
        return super().unwrap_key(wrapped_key, wrapping_key_id)


def switched(properties: Mapping[str, str], switch: Path) -> dict[str, str]:
    """Return a catalog's properties with this KMS, which is asked for every key."""
    kept = {name: value for name, value in properties.items() if name != "encryption.kms-type"}
    own = {"encryption.kms-impl": f"{__name__}.{SwitchedKms.__name__}", _SWITCH: str(switch), "encryption.kms.cache-ttl-ms": "0"}
    return kept | own
