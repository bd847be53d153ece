"""Parameters of stages as a plan has them, of which a test changes what it is about."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from daskfs.criteria.registry import make_method
from daskfs.evaluation.design import EvaluationParameters, NewRankings
from daskfs.evaluation.keys import EvaluationKeys
from daskfs.graph.spec import GraphSpec
from daskfs.sources import SourceSpec
from daskfs.sources.state import SourceState
from daskfs.store.shape import Shape
from daskfs.tiles.ingest import TileParameters


def tile_parameters(shape: Shape, missing: str = "mean") -> TileParameters:
    """Return the parameters of stages that write X."""
    return TileParameters(
        source=SourceSpec(source="x", missing=missing),
        state=SourceState({}, {}, {}),
        fingerprint="",
        shape=shape,
        task="auto",
        write_x=True,
        x_path=None,
        named=False,
        row_names=False,
    )


def evaluation_parameters(methods: Sequence[str], **changed: Any) -> EvaluationParameters:
    """Return the parameters of an evaluation of methods with these labels."""
    plain: dict[str, Any] = {
        "methods": tuple(make_method("VarianceScore", {}, label) for label in methods),
        "models": (),
        "n_selected": (5, 10),
        "max_samples": 100,
        "baselines": (),
        "chance": None,
        "is_asked": True,
        "class_subsets": ((None, None),),
        "informative": (),
        "filtered": False,
        "anew": None,
        "slab_columns": 10,
    }
    keys: dict[str, Any] = {"n_splits": 3, "scaling": None, "setting": "transductive"}
    keys |= {key: changed.pop(key) for key in [*changed] if key in EvaluationKeys.model_fields}
    return EvaluationParameters(**{**plain, **changed}, keys=EvaluationKeys(**keys))


def new_rankings(**changed: Any) -> NewRankings:
    """Return how an evaluation ranks anew."""
    plain: dict[str, Any] = {
        "search": GraphSpec(),
        "redundancy": None,
        "given": None,
        "joint_features": None,
        "lists_of_run": False,
        "shared": (),
        "memory_limit": None,
        "bands_per_unit": 1,
        "n_parts": 1,
    }
    return NewRankings(**{**plain, **changed})
