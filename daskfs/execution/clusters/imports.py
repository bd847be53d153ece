"""Imports of the packages that all units need, made once by the fork server for all local workers."""

from __future__ import annotations

from daskfs.execution.clusters.forkserver import import_shared
from daskfs.stages.kind import stage_modules

import_shared({"distributed", "zarr", "daskfs.execution.worker", *stage_modules()})
