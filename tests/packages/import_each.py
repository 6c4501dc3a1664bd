"""Import each module that is named; print which raised what, as JSON. A module runs once, whether another one imports it or not."""

from __future__ import annotations

import json
import sys
from importlib import import_module


def main(modules: list[str]) -> dict[str, tuple[str, str]]:
    refused = {}
    for name in modules:
        try:
            import_module(name)
        except Exception as error:  # noqa: BLE001  whatever it is, is the answer
            refused[name] = (type(error).__name__, str(error))
    return refused


if __name__ == "__main__":
    sys.stdout.write(json.dumps(main(sys.argv[1:])))
