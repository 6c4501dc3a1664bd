"""`python -m tablecrypt`: the command, where its script is not on the path."""

from __future__ import annotations

from tablecrypt.cli.main import main

main()
