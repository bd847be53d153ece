"""Imports of the modules of scikit-learn that stages import lazily, for their models."""

from __future__ import annotations

from daskfs.execution.clusters.forkserver import import_shared

import_shared({f"sklearn.{name}" for name in ("cluster", "dummy", "metrics", "model_selection", "neighbors", "svm")})
