"""The operations of tablecrypt.maintenance, declared once: what people read of each, and the options of its command.

    function     maintenance.rewrap(table, from_key_id=…)                     all that a signature and a result can say
    method       table.maintenance.rewrap(from_key_id=…)                      maintenance/table_maintenance.py
    procedure    CALL prod.system.rewrap(table => …, from_key_id => …)        spark/sql/statements/operations.py
    command      tablecrypt --catalog prod rewrap db.t --from-key-id …        cli/operations.py
    reference    docs/cli.md                                                  tests/support/cli_reference.py

No function is imported here, so that help and completion answer at once: importing the operations takes seconds. So options say again
what kind of value a parameter takes, and a test holds them against the signatures.
"""

from __future__ import annotations

from typing import Final

from tablecrypt.operations import inspecting, keys, removal, rewriting, sharing

_PARTS: Final = (inspecting, keys, rewriting, sharing, removal)
OPERATIONS: Final = {each.name: each for part in _PARTS for each in part.OPERATIONS}
"""By the names of their functions, in the order of the list of commands."""
OF_COMMANDS: Final = {each.command: each for each in OPERATIONS.values() if each.help}
"""Those with a command of their own, by its name."""
