"""Migrating plain tables: operation.py says how one goes, attempt.py reads, encrypts and commits one state of a table, and
plaintext.py finds what was plain, to delete it or to say that it is left.
"""

from tablecrypt.maintenance._migrate.operation import Migrated, migrate

__all__ = ["Migrated", "migrate"]
