"""Verifying whole tables: table.py says what is verified, files.py how a file is, state.py how an interrupted run goes on."""

from tablecrypt.maintenance._verify.table import BadFile, Verified, verify

__all__ = ["BadFile", "Verified", "verify"]
