"""Authenticating a whole table, and saying which parts of which files are bad."""

from __future__ import annotations

from tablecrypt.maintenance._verify.files import Problem
from tablecrypt.maintenance._verify.run import BadFile, Verification, verify

__all__ = ["BadFile", "Problem", "Verification", "verify"]
