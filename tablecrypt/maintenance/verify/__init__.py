"""Authenticating a whole table, and saying which parts of which files are bad."""

from __future__ import annotations

from tablecrypt.maintenance.verify.problems import Problem
from tablecrypt.maintenance.verify.result import BadFile, Verification
from tablecrypt.maintenance.verify.run import verify

__all__ = ["BadFile", "Problem", "Verification", "verify"]
