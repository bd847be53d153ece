"""Size of an evaluation: the extents to try, and the time of each.

By default every training fold is ranked again, which may need more memory or time than the run itself. If the job names
`setting`, the evaluation runs in full or is refused. Otherwise it is thinned until it fits a worker's memory and takes
at most :data:`EVALUATION_SHARE` of the time of the run, or :data:`ALWAYS_SECONDS`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from daskfs.criteria.registry import Method
from daskfs.graph.engine import TYPICAL_NEIGHBORS, cells_seconds, exact_seconds
from daskfs.graph.spec import GraphSpec
from daskfs.job.evaluation import EvaluateBlock
from daskfs.store.shape import Shape

EVALUATION_SHARE = 0.5
"""Maximum time of an evaluation by default, as a fraction of the time of the run."""
ALWAYS_SECONDS = 60.0
"""Time allowed for any evaluation, however short the run is, in seconds of one core."""
ENOUGH_ROWS = 1000
"""Labeled rows below which features are thinned before rows."""
FEWEST_LABELED = 100
"""Minimum number of labeled rows; an evaluation that does not fit with so many is left out."""
ENOUGH_FEATURES = 500
"""Minimum number of features that joint methods rank."""
NO_ALL_FEATURES = "leaves out the baseline of all features"
UNPLANNED_BYTES = 4 * 2**30
"""Memory for models tested with all features if no memory limit is known."""

# Seconds of one core to an order of magnitude, fitted to rankings of 100 x 4,000 and 200 x 10,000 random values. Times
# are computed from sizes, never measured: the same job on the same data and workers always uses the same rows.
CELL_SECONDS = 5e-8
"""For each value of X, any criterion."""
JOINT_SECONDS = 2e-9
"""For each value and min(n_samples, n_features), of a joint criterion."""
CORRELATION_SECONDS = 1e-8
"""For each row and pair of features, of a criterion that correlates all pairs of features."""


@dataclass(frozen=True)
class Extent:
    """Size of an evaluation: the maximum number of labeled rows, and whether all features are tested as a baseline.

    `joint_features` is the number of features that joint methods rank; None for all.
    """

    max_samples: int
    all_features: bool
    joint_features: int | None = None


def extents(evaluate: EvaluateBlock, shape: Shape, n_rows: int, methods: Sequence[Method]) -> Iterator[Extent]:
    """Yield the extents of an evaluation in the order to try them, beginning with the one that the job describes.

    Rows are halved first, then the baseline of all features is dropped, then the features of joint methods are halved.
    `n_rows` is the number of labeled rows.
    """
    may_go = evaluate.baselines and "baselines" not in evaluate.model_fields_set
    tested = (True, False) if may_go else (evaluate.baselines,)
    rows = [evaluate.max_samples]
    features: list[int | None] = [None]
    if evaluate.is_thinned:
        rows += _halvings(min(evaluate.max_samples, n_rows), ENOUGH_ROWS)
    if evaluate.is_thinned and any(method.criterion.is_joint for method in methods):
        features += _halvings(shape.n_features, max(ENOUGH_FEATURES, 2 * max(evaluate.n_selected)))
    for joint in features:
        for all_features in tested:
            yield from (Extent(n, all_features, joint) for n in rows)
    if evaluate.is_thinned:
        few = _halvings(min(rows[-1], n_rows), FEWEST_LABELED)
        yield from (Extent(n, tested[-1], joint) for joint in dict.fromkeys((None, features[-1])) for n in few)


def fits_unplanned(used: Shape) -> bool:
    """Return whether models tested with all features fit :data:`UNPLANNED_BYTES`; for use without a memory limit."""
    return 5 * 8 * used.n_samples * used.n_features <= UNPLANNED_BYTES


def _halvings(number: int, least: int) -> list[int]:
    halvings = []
    while (number := number // 2) >= least:
        halvings.append(number)
    return halvings


def is_affordable(
    evaluate: EvaluateBlock, extent: Extent, shape: Shape, used: Shape, methods: Sequence[Method]
) -> bool:
    """Return whether the rankings of an extent, on X of shape `used`, fit in the default time.

    True if the job sets the size or setting of the evaluation.
    """
    if evaluate.is_sized or not evaluate.is_thinned:
        return True
    again = evaluate.n_splits * evaluate.n_repeats * ranking_seconds(used, methods, extent.joint_features)
    return again <= max(ALWAYS_SECONDS, EVALUATION_SHARE * ranking_seconds(shape, methods))


def ranking_seconds(shape: Shape, methods: Sequence[Method], joint_features: int | None = None) -> float:
    """Estimate from sizes the seconds of one core that one ranking by each of the methods takes, in total."""
    n, d = shape.n_samples, shape.n_features
    values = n * d if shape.nnz is None else shape.nnz
    seconds = 0.0
    if any(method.criterion.uses_graph for method in methods):
        spec, k = GraphSpec("euclidean"), TYPICAL_NEIGHBORS
        seconds = min(exact_seconds(shape, k), cells_seconds(shape, spec, k))
    for method in (one for one in methods if not one.criterion.combines):
        seconds += CELL_SECONDS * values
        if method.criterion.is_joint:
            n_ranked = min(d, joint_features or d)
            seconds += JOINT_SECONDS * (values * n_ranked / d) * min(n, n_ranked)
            seconds += method.criterion.pairs_features * CORRELATION_SECONDS * n * n_ranked**2
    return seconds


def describe_extent(extent: Extent, full: Extent, n_rows: int, n_features: int, methods: Sequence[Method]) -> str:
    """Describe what an extent leaves out, as a sentence without final full stop; empty if that is nothing."""
    parts = []
    if extent.max_samples < min(full.max_samples, n_rows):
        parts.append(f"uses {extent.max_samples} of {n_rows} labeled rows")
    if extent.joint_features is not None:
        joint = ", ".join(method.label for method in methods if method.criterion.is_joint)
        parts.append(
            f"lets {joint} rank {extent.joint_features} of {n_features} features in each fold, those that a univariate "
            "criterion ranks first there"
        )
    if extent.all_features != full.all_features:
        parts.append(NO_ALL_FEATURES)
    if not parts:
        return ""
    if parts == [NO_ALL_FEATURES]:
        return f"evaluation: it {NO_ALL_FEATURES}, with which it would not fit a worker"
    return (
        f"evaluation: so that it fits a worker and takes at most about {EVALUATION_SHARE:.0%} of the time of the run "
        f"itself, it {', and '.join(parts)}; name evaluate.setting to evaluate in full"
    )
