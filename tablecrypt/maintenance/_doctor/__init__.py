"""The check-up: whether the configuration, keys, stores and pins let this client work."""

from __future__ import annotations

from tablecrypt.maintenance._doctor.check_up import PROBE, doctor, doctor_without_catalog
from tablecrypt.maintenance._doctor.checks import Check, CheckState, CheckUp
from tablecrypt.maintenance._doctor.installation import fits

__all__ = ["PROBE", "Check", "CheckState", "CheckUp", "doctor", "doctor_without_catalog", "fits"]
