"""Warnings about a graph on unscaled columns in which a few columns of large scale determine the neighbors."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from daskfs.graph.spec import GraphSpec, ListsSpec
from daskfs.redaction import strip_control_characters
from daskfs.run_warning import CHANGES, RunWarning
from daskfs.store.tiles import Tiles

DOMINANT_SHARE = 0.75
FEW_COLUMNS = 5
"""A warning is issued if at most `FEW_COLUMNS` columns, and at most one column in `FEW_COLUMNS`, make up
`DOMINANT_SHARE` of the squared distance. Among 34 real tables, those whose columns differ in unit reach 76 to 99 %, and
one integer of 0..16 among 30 values of 0..1 reaches 89 %. All others (pixels, spectra, expression values, word counts)
reach at most 68 %. Principal components are the known exception.
"""


def dominance_warnings(
    tiles: Tiles, lists: Iterable[ListsSpec], setting: str, names: Sequence[str] | None = None
) -> Iterator[RunWarning]:
    """Yield a warning for each neighbor search that a few columns dominate.

    Only Euclidean lists over X as it is are checked: the mean squared distance of two rows is twice the sum of the
    column variances, which tiles store. For other scalings and for cosine the variances are unknown. The message names
    the `setting` that standardizes X for the graph; `names` are those of columns, None for those of the tiles.
    """
    for spec in lists:
        if not isinstance(spec, GraphSpec) or spec.metric != "euclidean" or spec.scaling or spec.own_rows:
            continue
        variance = tiles.column_moments()["variance"]
        columns, share = dominant_columns(variance)
        if not columns.size:
            continue
        names = tiles.feature_names() if names is None else names
        listed = strip_control_characters(", ".join(f"'{names[column]}'" for column in columns))
        make, decide = ("makes", "decides") if columns.size == 1 else ("make", "decide")
        text = (
            f"{columns.size} of {np.count_nonzero(variance)} columns that vary ({listed}) {make} "
            f"{'over 99%' if share > 0.99 else f'{share:.0%}'} of the mean squared distance between rows and {decide} "
            f"which rows are neighbors; unless that is meant, set {setting}"
        )
        yield RunWarning("few columns decide", CHANGES, text, (spec.name,), "graph")


def dominant_columns(variance: np.ndarray) -> tuple[np.ndarray, float]:
    """Return the fewest columns that make up :data:`DOMINANT_SHARE` of the total variance, and their share.

    `variance` has shape (n_features,), float64. Column indices are int64, by decreasing variance; empty, with share 0,
    if these columns are not few.
    """
    largest, n_varying = variance.max(initial=0.0), np.count_nonzero(variance)
    if n_varying > 2 and np.isfinite(largest):
        shares = np.ldexp(variance, -np.frexp(largest)[1])  # by a power of two: no rounding, and no sum overflows
        order = np.argsort(-shares, kind="stable")[: max(1, min(FEW_COLUMNS, n_varying // FEW_COLUMNS))]
        cumulative = np.cumsum(shares[order]) / shares.sum()
        enough = np.flatnonzero(cumulative >= DOMINANT_SHARE)
        if enough.size:
            return order[: enough[0] + 1], float(cumulative[enough[0]])
    return np.empty(0, np.intp), 0.0
