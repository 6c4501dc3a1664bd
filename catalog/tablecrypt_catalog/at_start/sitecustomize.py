"""What Python runs at its start below `tablecrypt run`, which puts this folder before the others on PYTHONPATH.

It registers the process, and then runs the sitecustomize that it hides, if there is one. The process may be one of another environment,
without tablecrypt. Then it runs as always, unless it imports pyiceberg.catalog: it was to encrypt, and could not.
"""

import os
import sys
from importlib.machinery import PathFinder
from importlib.util import module_from_spec


class _Refusing:
    """Finds nothing, and refuses to look for pyiceberg.catalog."""

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        if name == "pyiceberg.catalog":
            raise ImportError(
                f"this program runs under `tablecrypt run`, and its Python, {sys.executable}, has no tablecrypt to register it with: "
                "install tablecrypt there, or run a program of the environment that has it"
            )


def _register() -> None:
    try:
        from tablecrypt_catalog.registration import at_start
    except Exception:  # noqa: BLE001  whatever is wrong with it, this process must not go on with a PyIceberg that does not encrypt
        sys.meta_path.insert(0, _Refusing())
    else:
        at_start()


def _run_hidden() -> None:
    here = os.path.dirname(os.path.abspath(__file__))
    spec = PathFinder.find_spec("sitecustomize", [place for place in sys.path if os.path.abspath(place) != here])
    if spec is None or spec.loader is None:
        return
    module = module_from_spec(spec)
    sys.modules["sitecustomize"] = module
    spec.loader.exec_module(module)


_register()
_run_hidden()
