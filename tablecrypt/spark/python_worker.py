"""What PySpark makes a Python worker do for every task, and what of it once is enough for.

A worker serves one task after the other, with this package and its libraries loaded. Around each task PySpark calls

    importlib.invalidate_caches()     before Python 3.13 reads the whole directory of an archive for every package that was imported from
                                      it or looked for in it: some 0.2 s for Spark's own (pyspark.zip, py4j, the jar of its core). Archives
                                      that the process was started with stay as they are, so their finders are forgotten: Python makes
                                      one again when it next imports from there. Those that were added to the session keep theirs.
    gc.collect()                      looks at every object of every module: some 0.1 s. Objects of modules live as long as the process,
                                      so they are set aside with gc.freeze(), and the collector looks at what tasks made.

For a short task both together take longer than its work.
"""

from __future__ import annotations

import gc
import os
import sys
from dataclasses import dataclass
from zipimport import zipimporter


@dataclass
class _Frozen:
    """How many modules were loaded when objects were last set aside."""

    modules: int = 0


_frozen = _Frozen()


def spare_worker() -> None:
    """Spare this process, a Python worker at the beginning of a task, what is said above. In any other process, do nothing."""
    from pyspark import TaskContext

    if TaskContext.get() is None:
        return
    _forget_finders()
    # Only when modules came: what the task itself holds by now is set aside with them, and would be in every task.
    if len(sys.modules) > _frozen.modules:
        gc.freeze()
        _frozen.modules = len(sys.modules)


def _forget_finders() -> None:
    started_with = set(os.environ.get("PYTHONPATH", "").split(os.pathsep))
    for path, finder in list(sys.path_importer_cache.items()):
        if isinstance(finder, zipimporter) and finder.archive in started_with:
            sys.path_importer_cache.pop(path, None)
