"""Trying out whether a catalog, its key service, its stores and this installation let a user work, before rows are at stake."""

from __future__ import annotations

from tablecrypt.maintenance._doctor.checks import Check, CheckState, CheckUp
from tablecrypt.maintenance._doctor.run import doctor, doctor_without_catalog

__all__ = ["Check", "CheckState", "CheckUp", "doctor", "doctor_without_catalog"]
