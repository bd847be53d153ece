"""What units need of packages: the fork server of local workers imports this once, for all of them."""

from __future__ import annotations

import gc
from importlib import import_module

from daskfs.stages.kind import stage_modules

LATER = {f"sklearn.{name}" for name in ("cluster", "dummy", "metrics", "model_selection", "neighbors", "svm")}
"""What stages import when they need it."""

gc.disable()
for module in sorted({"distributed", "zarr", "daskfs.execution.worker", *stage_modules(), *LATER}):
    import_module(module)
gc.freeze()  # so that looking for cycles does not copy what the workers share
gc.enable()
