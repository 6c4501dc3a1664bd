"""What the KMS refused to unwrap of column KEKs, remembered for a minute: a table of many files would have it say no once for each.

A refusal counts for the client that got it, since another client may be another user's. Both kinds are counted, for metrics.
"""

from __future__ import annotations

import threading
import weakref
from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Final

from tablecrypt._per_process import PerProcess
from tablecrypt.kms.client import KeyManagementClient
from tablecrypt.kms.resilient import cache_name

REFUSAL_SECONDS: Final = 60.0


@dataclass
class Refusals:
    """What the KMS refused to unwrap of column KEKs in this process.

    Attributes:
        asked: by master key, how often the KMS was asked and refused.
        remembered: by master key, how often a refusal was given without asking.
    """

    asked: Counter[str] = field(default_factory=Counter)
    remembered: Counter[str] = field(default_factory=Counter)
    _known: dict[tuple[int, str, bytes], tuple[float, str]] = field(default_factory=dict)
    _clients: weakref.WeakValueDictionary[int, Any] = field(default_factory=weakref.WeakValueDictionary)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def known(self, kms: KeyManagementClient, blob: bytes, master_key_id: str, now: float) -> str | None:
        """Return what a client refused less than REFUSAL_SECONDS ago."""
        with self._lock:
            until, reason = self._known.get((id(kms), *cache_name(blob, master_key_id)), (0.0, ""))
            # Python gives the id of an object that is gone to a new one: that client may be another user's.
            if now >= until or self._clients.get(id(kms)) is not kms:
                return None
            self.remembered[master_key_id] += 1
            return reason

    def add(self, kms: KeyManagementClient, blob: bytes, master_key_id: str, now: float, reason: str) -> None:
        """Remember a refusal."""
        with self._lock:
            self.asked[master_key_id] += 1
            # Here, so that a process which runs for long does not collect old refusals.
            self._known = {name: each for name, each in self._known.items() if each[0] > now}
            self._known[id(kms), *cache_name(blob, master_key_id)] = now + REFUSAL_SECONDS, reason
            self._clients[id(kms)] = kms


_REFUSALS: Final = PerProcess(Refusals)


def refusals() -> Refusals:
    """The refusals of this process; a forked child starts with none."""
    return _REFUSALS.get()
