"""Migrating plain tables: operation.py says how one goes, attempt.py encrypts and commits one state of a table, plain_snapshot.py reads
what its last snapshot has, orc_files.py rewrites ORC, and plaintext.py finds what was plain, to delete it or to say that it is left.
"""

from tablecrypt.maintenance._migrate.operation import Migrated, migrate

__all__ = ["Migrated", "migrate"]
