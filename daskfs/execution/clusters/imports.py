"""Imports of the packages that units need, made once by the fork server for all local workers."""

from __future__ import annotations

import gc
from importlib import import_module

from daskfs.stages.kind import stage_modules

LATER = {f"sklearn.{name}" for name in ("cluster", "dummy", "metrics", "model_selection", "neighbors", "svm")}
"""Modules that stages import lazily."""

gc.disable()
for module in sorted({"distributed", "zarr", "daskfs.execution.worker", *stage_modules(), *LATER}):
    import_module(module)
gc.freeze()  # so that garbage collection does not copy pages that workers share
gc.enable()
