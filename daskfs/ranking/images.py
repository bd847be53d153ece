"""Stage "score-images": scores of pixels as images, bright for relevant pixels."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Literal

import numpy as np

from daskfs.criteria.registry import Method
from daskfs.ranking.dropped import selectable
from daskfs.ranking.tables import method_scores
from daskfs.stages.cost import Cost, Fixed, MiB, Objects
from daskfs.stages.kind import StageKind
from daskfs.stages.parameters import StageParameters
from daskfs.store import layout
from daskfs.store.context import Context

Order = Literal["C", "F"]

EXCLUDED_LEVEL = -1
"""Level of a pixel that has no rank."""
BETWEEN = -2
"""Level of the gap between two images."""
OFF = 48
"""Level of a pixel that is not selected."""
ON = 208
"""Level of a pixel that is selected; it must also stand out against the page."""
EXCLUDED_COLOR = (213, 94, 0)
SIDE = 256
"""Approximate minimum of the longer side of an image in a PNG file, in pixels."""
MAX_PIXELS = 96
"""Rows or columns above which images are averaged, in the report only."""


class ImagesParameters(StageParameters):
    """Parameters of "score-images"; `sizes` are numbers of features whose pixels are shown."""

    methods: tuple[Method, ...]
    filtered: bool
    image_shape: tuple[int, int]
    image_order: Order
    sizes: tuple[int, ...]


def write_images(context: Context, parameters: ImagesParameters, unit: int) -> None:
    """Write an image of the scores of each method, and one of its first features."""
    del unit
    store, shape, order = context.store, parameters.image_shape, parameters.image_order
    for method in parameters.methods:
        table = method_scores(store, method)
        chosen = selectable(store, method, table, filtered=parameters.filtered)
        scores = score_levels(method, table, shape, order)
        first = selected_levels(chosen, parameters.sizes, shape, order)
        store.write_bytes(layout.SCORE_IMAGE.format(method.label), png(scores, max(shape)))
        store.write_bytes(layout.SELECTED_IMAGE.format(method.label), png(first, max(shape)))


def score_levels(method: Method, table: np.ndarray, shape: tuple[int, ...], order: Order) -> np.ndarray:
    """Return gray levels of the pixels, shape `shape`, int64: 0 (worst score) to 255 (best), or :data:`EXCLUDED_LEVEL`.

    `table` holds the method's fields, shape (n_fields, n_features), float64. Ranks are drawn if scores are not
    comparable, as of a method that eliminates features round by round.
    """
    excluded, scores = method.is_excluded(table), table[0]
    if method.ranked_by:
        relevance = -np.argsort(method.order(table)).astype(np.float64)
    else:
        relevance = -scores if method.direction == "ascending" else scores
    is_scored = ~excluded & np.isfinite(relevance)
    low, high = (relevance[is_scored].min(), relevance[is_scored].max()) if is_scored.any() else (0.0, 0.0)
    relevance = np.clip(np.where(np.isnan(relevance), low, relevance), low, high)
    # divide by 2 first: the range of the largest floats overflows
    share = (relevance / 2 - low / 2) / (high / 2 - low / 2) if high > low else np.ones(scores.size)
    levels = np.where(excluded, EXCLUDED_LEVEL, np.rint(255 * share)).astype(np.int64)
    return levels.reshape(shape, order=order)


def selected_levels(chosen: np.ndarray, sizes: Sequence[int], shape: tuple[int, ...], order: Order) -> np.ndarray:
    """Return gray levels, int64, of one image of shape `shape` per number of features, side by side.

    `chosen` holds the selected features, best first, integers.
    """
    between = np.full((shape[0], max(1, shape[1] // 16)), BETWEEN)
    parts: list[np.ndarray] = []
    for size in sizes:
        levels = np.full(shape[0] * shape[1], OFF, dtype=np.int64)
        levels[chosen[:size]] = ON
        parts += [between, levels.reshape(shape, order=order)]
    return np.concatenate(parts[1:], axis=1)


def png(levels: np.ndarray, side: int) -> bytes:
    """Return `levels` (2-D, int64) as a PNG file, each pixel as a square.

    `side` is the longer side of one image, in pixels of the data.
    """
    from matplotlib.image import imsave

    times = max(1, SIDE // side)
    colors = np.zeros((*levels.shape, 4), dtype=np.uint8)
    colors[..., :3] = np.maximum(levels, 0)[..., None]
    colors[..., 3] = np.where(levels == BETWEEN, 0, 255)
    colors[levels == EXCLUDED_LEVEL, :3] = EXCLUDED_COLOR
    buffer = io.BytesIO()
    large = colors.repeat(times, axis=0).repeat(times, axis=1)
    imsave(buffer, large, format="png", metadata={"Software": None})  # type: ignore[dict-item]
    return buffer.getvalue()


def for_report(levels: np.ndarray) -> list[list[int]]:
    """Return `levels` (2-D, int64) for the report: images of many pixels are averaged over squares."""
    step = -(-max(levels.shape[0], levels.shape[1] // 4) // MAX_PIXELS)
    if step == 1:
        return levels.tolist()
    rows = []
    for top in range(0, levels.shape[0], step):
        row = []
        for left in range(0, levels.shape[1], step):
            part = levels[top : top + step, left : left + step]
            ranked = part[part >= 0]
            row.append(int(np.rint(ranked.mean())) if ranked.size else int(part.max()))
        rows.append(row)
    return rows


MATPLOTLIB = Fixed("matplotlib, which writes images", 96 * MiB)
IMAGE_FEATURE_BYTES = 600
"""Bytes of a feature in tables and images."""


def images_cost(n_features: int, process: Cost) -> Cost:
    """Return the memory of the unit."""
    return (*process, MATPLOTLIB, Objects("features in tables and images", n_features, IMAGE_FEATURE_BYTES))


SCORE_IMAGES_STAGE = StageKind("score-images", __name__, write_images, images_cost)
