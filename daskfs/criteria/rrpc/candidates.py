"""Plan of the stages that compare features with each other: co-moments, greedy picks, and the redundancy filter."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from daskfs.criteria.registry import Method
from daskfs.criteria.rrpc.correlations import COMOMENTS_STAGE, ComomentsParameters, comoment_rows
from daskfs.criteria.rrpc.criterion import GreedyParameters
from daskfs.criteria.rrpc.greedy import GREEDY, GREEDY_STAGE, N_FIELDS, SCREEN_STAGE, OneMethod
from daskfs.errors import MemoryPlanError
from daskfs.kernels.scaling import row_statistics
from daskfs.kernels.statistics.comoments import stretch_rows
from daskfs.kernels.statistics.moments import row_blocks
from daskfs.stages.cost import WORD, Cost
from daskfs.stages.stage import Stage
from daskfs.store import layout
from daskfs.store.shape import Shape

MAX_CANDIDATES = 20_000
"""Maximum number of features compared with each other; their correlations take 3.2 GB."""


def plan_greedy(shape: Shape, method: Method, process: Cost) -> list[Stage]:
    """Plan the stages of a method that picks features one by one: candidates, their co-moments, picks."""
    greedy, label, n_features = method.parameters, method.label, shape.n_features
    assert isinstance(greedy, GreedyParameters)
    count = min(greedy.n_candidates or n_features, n_features)
    check_candidates(count, f"method {label}", "n_candidates")
    done, parameters = f"greedy-{label}", OneMethod(method)
    table, listed = WORD * N_FIELDS * n_features, WORD * count
    comoments = plan_comoments(shape, f"comoments-{label}", (GREEDY, {label: count}), greedy.score_scaling, process)
    return [
        Stage.of(
            SCREEN_STAGE,
            f"candidates-{label}",
            1,
            parameters,
            SCREEN_STAGE.cost(n_features, process),
            bytes_read=table,
            bytes_written=listed,
        ),
        replace(comoments, needed_until=done),
        Stage.of(
            GREEDY_STAGE,
            done,
            1,
            parameters,
            GREEDY_STAGE.cost(n_features, count, process),
            bytes_read=comoments.bytes_written + table + listed,
            bytes_written=table,
            clears=layout.COMOMENTS_OF.format(GREEDY, label),
        ),
    ]


def check_candidates(count: int, where: str, setting: str) -> None:
    """Raise :class:`MemoryPlanError` if `count` features are too many to compare with each other."""
    if count > MAX_CANDIDATES:
        msg = (
            f"{where} would compare {count} features with each other, which takes {WORD * count**2 / 2**30:.0f} GiB: "
            f"set {setting} to {MAX_CANDIDATES} or less."
        )
        raise MemoryPlanError(msg)


def plan_comoments(
    shape: Shape,
    name: str,
    candidates: tuple[str, Mapping[str, int]],
    scaling: str | None,
    process: Cost,
    *,
    all_features: bool = False,
) -> Stage:
    """Plan the stage that sums products of candidates, given their purpose and their number for each method.

    `all_features` are the candidates without a stage that lists them.
    """
    purpose, counts = candidates
    height = stretch_rows(shape.n_samples)
    n_stretches = -(-shape.n_samples // height)
    per_unit = max(1, -(-shape.tile_rows // height))  # a unit reads whole bands
    n_units = -(-n_stretches // per_unit)
    parameters = ComomentsParameters(purpose, tuple(counts), scaling, all_features, per_unit)
    return Stage.of(
        COMOMENTS_STAGE,
        name,
        n_units,
        parameters,
        COMOMENTS_STAGE.cost(shape, counts.values(), scaling, process),
        bytes_read=_bands_bytes(shape, per_unit * height, scaling) + n_units * WORD * sum(counts.values()),
        bytes_written=n_stretches * WORD * sum(stored_values(count) + count + 1 for count in counts.values()),
    )


def _bands_bytes(shape: Shape, height: int, scaling: str | None) -> int:
    """Return the bytes of X, in whole bands, and of row scalings that units of `height` rows read."""
    rows = min(shape.tile_rows, shape.n_samples)
    n_bands = sum(-(-part.stop // rows) - part.start // rows for part in row_blocks(shape.n_samples, height))
    of_band = -(-shape.x_bytes // shape.n_bands) if shape.is_sparse else rows * shape.n_features * shape.itemsize
    return n_bands * (of_band + WORD * rows * row_statistics(scaling))


def stored_values(count: int) -> int:
    """Return the number of values in whole chunks of a matrix of co-moments."""
    rows = min(comoment_rows(count), count)
    return -(-count // rows) * rows * count
