"""Teaching PyIceberg's own load_catalog what `type: tablecrypt` is, so that programs written for PyIceberg open encrypted tables.

register()      in this process, and in those that multiprocessing forks or spawns from it
at_start()      what a Python process calls at its start under `tablecrypt run`, and in an environment that `tablecrypt activate` changed

Nothing is imported before it is needed. PyIceberg is taught when a program imports `pyiceberg.catalog`: a finder before all others has the
module found and executed as always, and then adds to it what _pyiceberg/loader.py says. If that fails, so does the import: a program that
was to encrypt never goes on with a PyIceberg that does not. As every Python process of an activated environment imports this module,
it imports none itself, and its package none either.
"""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType
    from typing import Any

_CATALOGS = "pyiceberg.catalog"
_PROCESSES = "multiprocessing.process"


def register() -> None:
    """Let PyIceberg's own `load_catalog` open the catalogs that `tablecrypt.load_catalog` opens.

    From here on, in this process, and for programs too that imported `load_catalog` before:

    - `type: tablecrypt`, in .pyiceberg.yaml, the environment or the arguments, is an encrypting catalog;
    - `py-catalog-impl` in .pyiceberg.yaml or the environment is honoured where it names an encrypting class, even without the type.
      PyIceberg ignores it there. Beside another `type` it is refused;
    - every other configuration means what it meant;
    - making a catalog that does not encrypt, by the name of one that is configured to, raises ConfigurationError.

    Processes that `multiprocessing` forks or spawns are registered too; others need `tablecrypt run` or `tablecrypt activate`. Calling it
    again changes nothing, and any thread may. A catalog that was made before, by the name of an encrypting one, and that does not encrypt
    is named in a warning: it stays as it is.
    """
    was_registered = is_registered()
    at_start()
    for name in _CHANGES:
        # Another thread may have found the module before our finder was there, and not have begun to execute it.
        sys.modules["_frozen_importlib"]._lock_unlock_module(name)
    at_start()
    if not was_registered and sys.modules.get(_CATALOGS) is not None:
        from tablecrypt_catalog._pyiceberg.loader import warn_of_plain_catalogs

        warn_of_plain_catalogs()


def at_start() -> None:
    """As `register`, but for the warning: no catalog is older than the process."""
    if not is_registered():
        # Before all others, one of which would find and execute the module without the change.
        sys.meta_path.insert(0, _Finder())
    for name, change in _CHANGES.items():
        if sys.modules.get(name) is not None:
            from importlib import import_module

            change(import_module(name))  # which waits for another thread that has begun with it


def is_registered() -> bool:
    """Whether PyIceberg's `load_catalog` in this process knows encrypting catalogs, or will as soon as it is imported."""
    return any(isinstance(finder, _Finder) for finder in sys.meta_path)


def _teach(catalogs: ModuleType) -> None:
    from tablecrypt_catalog._pyiceberg.loader import teach

    teach(catalogs)


def _tell_children(processes: ModuleType) -> None:
    """Have processes that this one spawns registered: each unpickles the configuration of the process that started it."""
    processes.current_process()._config["tablecrypt"] = _ForChildren()


class _ForChildren:
    """Registers the process in which it is unpickled."""

    def __reduce__(self) -> tuple[Callable[[], _ForChildren], tuple[()]]:
        return _registered, ()


def _registered() -> _ForChildren:
    register()
    return _ForChildren()


_CHANGES: dict[str, Callable[[ModuleType], None]] = {_CATALOGS: _teach, _PROCESSES: _tell_children}


class _Finder:
    """Finds the modules of _CHANGES as the finders behind it do, with a loader that changes them once they are executed."""

    def find_spec(self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None) -> ModuleSpec | None:
        if name not in _CHANGES:
            return None

        for finder in sys.meta_path:
            find = None if isinstance(finder, _Finder) else getattr(finder, "find_spec", None)
            spec: ModuleSpec | None = None if find is None else find(name, path, target)
            if spec is not None:
                if spec.loader is not None:
                    spec.loader = _Loader(spec.loader)  # type: ignore[assignment]
                return spec

        return None


class _Loader:
    """Another loader, which it gives its place back before the module is executed."""

    def __init__(self, loader: Any) -> None:
        self._loader = loader

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)

    def exec_module(self, module: ModuleType) -> None:
        module.__loader__ = self._loader
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
        self._loader.exec_module(module)
        _CHANGES[module.__name__](module)
