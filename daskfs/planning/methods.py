"""Stages from the neighbor lists to the scores of all methods."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

from daskfs.errors import JobError
from daskfs.graph.edges import GIVEN
from daskfs.graph.given import Graph
from daskfs.graph.spec import Lists, Weighting
from daskfs.methods.registry import Method
from daskfs.plan.graph import plan_edges, plan_weights
from daskfs.plan.rescaled import plan_rescaled
from daskfs.plan.scores import compiled_bytes, plan_finish, plan_scores
from daskfs.plan.stages import (
    WEIGHT_BYTES,
    Stage,
)
from daskfs.plan.svm import plan_svm
from daskfs.planning.given import plan_streams
from daskfs.scores.slab import graph_needs, method_to_json
from daskfs.store.tiles import Shape

WEIGHTED = frozenset(
    {
        "transform",
        "targets",
        "mixed",
        "edges-summary",
        "weights",
        "score",
        "trade-off",
        "comoments",
        "bins",
        "distance-maps",
        "distance-values",
        "correlate",
        "rescaled-rows",
        "rescaled-solve",
        "rescaled-tables",
        "svm-choose",
        "svm-rows",
        "svm-judge",
        "svm-sums",
    }
)
"""Functions that read the weights of rows."""


def check_missing(policy: str, methods: Sequence[Method], *others: str) -> None:
    """Raise :class:`JobError` for what needs every value of its rows, where "pairwise" leaves some of them missing.

    Parameters
    ----------
    policy
        What becomes of missing values.
    methods
        Methods, of which some may need every value.
    others
        What else does.
    """
    wanted = [*(f"method {method.label}" for method in methods if method.criterion.is_joint), *others]
    if policy == "pairwise" and wanted:
        msg = (
            f"{wanted[0]} compares features, or rows, in all their values, and data.missing is pairwise, which leaves "
            f"some missing: set data.missing: mean, or leave {wanted[0]} out."
        )
        raise JobError(msg)


def is_scaled(methods: Sequence[Method]) -> bool:
    """Return whether any of the methods scores rescaled columns, which take room beside a slab."""
    return any(need.scaling is not None for method in methods for need in method.needs)


def plan_methods(
    shape: Shape,
    methods: Sequence[Method],
    lists: Mapping[str, tuple[Lists, int]],
    columns: int,
    process: int,
    memory_limit: int | None = None,
    counts: tuple[int | None, int | None] = (None, None),
    given: Graph | None = None,
    *,
    pairwise: bool = False,
) -> list[Stage]:
    """Stages from the neighbor lists to the scores of all methods.

    Parameters
    ----------
    shape, methods
        The data and the methods.
    lists
        The lists of :func:`needed_lists`, with their lengths.
    columns
        Of a slab.
    process
        Bytes that a process takes before a unit starts.
    memory_limit
        Of one worker, bytes.
    counts
        How many classes and how many labelled rows there are; None where that is not known yet.
    given
        A graph that is not to be found.
    pairwise
        Whether features are scored from the rows that have them.
    """
    weightings = graph_needs(list(methods))
    widths = {name: k for name, (_, k) in lists.items()}
    stages: list[Stage] = []
    for name, k in dict.fromkeys((w.graph, w.n_neighbors) for w in weightings):
        if name != GIVEN:
            stages += plan_edges(shape.n_samples, name, k, process, widths[name])
    streaming = [plan_weights(shape.n_samples, w, process, widths.get(w.graph)) for w in weightings]
    scaled = is_scaled(methods)
    raw_methods = [method_to_json(m) for m in methods]
    beside = max(method.criterion.row_bytes for method in methods) * shape.n_samples
    labels = label_bytes(methods, weightings, shape.n_samples)
    process_bytes = process + beside
    slabs = plan_scores(
        shape, raw_methods, weightings, scaled, columns, process_bytes, widths, labels, pairwise=pairwise
    )
    n_fields = sum(len(method.fields) for method in methods)
    streaming.append(dataclasses.replace(slabs, bytes_written=8 * n_fields * shape.n_features))
    stages += plan_streams(streaming, given, shape.n_samples, process)
    process += compiled_bytes(shape, scaled)
    return stages + plan_finishes(shape, methods, columns, process, memory_limit, *counts)


def plan_weighted(stages: Sequence[Stage], n_samples: int) -> list[Stage]:
    """Return the stages with what the weights of rows take, where these are read: the weights themselves, those of the
    rows that count, and the marks of these.
    """
    return [
        dataclasses.replace(
            stage,
            peak_bytes=stage.peak_bytes + WEIGHT_BYTES * n_samples,
            bytes_read=stage.bytes_read + stage.n_units * 8 * n_samples,
        )
        if stage.function in WEIGHTED
        else stage
        for stage in stages
    ]


def label_bytes(methods: Sequence[Method], weightings: Sequence[Weighting], n_samples: int) -> int:
    """Return what a scoring unit reads of labels: once for all methods, and once for each graph whose weights go by
    them.
    """
    by_label = {(w.graph, w.n_neighbors) for w in weightings if w.labelled_factor != 1}
    reads = any(method.criterion.needs_labels for method in methods) + len(by_label)
    return 8 * reads * n_samples


def plan_finishes(
    shape: Shape,
    methods: Sequence[Method],
    columns: int,
    process: int,
    memory_limit: int | None = None,
    n_classes: int | None = None,
    n_labelled: int | None = None,
) -> list[Stage]:
    """Stages of the methods whose scores take more than one slab."""
    single = [
        stage
        for method in methods
        if (finish := method.finish) and finish not in ("rescaled", "svm")
        for stage in plan_finish(shape, method_to_json(method), finish, columns, process)
    ]
    together = plan_rescaled(shape, methods, columns, process, memory_limit, n_classes)
    return single + together + plan_svm(shape, methods, process, memory_limit, n_classes, n_labelled)
