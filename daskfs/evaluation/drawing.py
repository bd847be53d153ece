"""Draws of the rows that an evaluation works on, in passes over the labels."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import numpy as np

from daskfs.kernels.labels import Labels
from daskfs.stages.cost import Array, Cost
from daskfs.store.context import LABEL_CHUNK_ROWS

SHUFFLED_ROWS = 2**24
"""Most labeled rows that are shuffled for a draw, which takes memory for each; of more, numbers of rows are drawn."""

LabelBlocks = Callable[[], Iterator[Labels]]
"""Starts a pass over the labels of all rows, some at a time and in order."""


def rows_in_use(blocks: LabelBlocks, max_samples: int, seed: int, *, with_unlabeled: bool) -> tuple[np.ndarray, int]:
    """Return the sorted rows that an evaluation works on, shape (n_rows,), int64, and the number of labeled ones.

    Labeled rows are thinned to `max_samples`, stratified by class. Up to `max_samples` unlabeled rows are added if
    these count.
    """
    labeled = labeled_rows(blocks, max_samples, seed)
    if not with_unlabeled:
        return labeled, labeled.size
    n_others = sum(int(np.count_nonzero(~is_labeled)) for is_labeled in _label_masks(blocks))
    ranks = np.arange(n_others)
    if n_others > max_samples:
        ranks = np.sort(np.random.default_rng([seed, n_others, 1]).choice(n_others, max_samples, replace=False))
    others = _rows_at(_label_masks(blocks), {False: ranks})
    return np.sort(np.concatenate([labeled, others])), labeled.size


def labeled_rows(blocks: LabelBlocks, max_samples: int, random_state: int) -> np.ndarray:
    """Return at most `max_samples` labeled rows, sorted, int64; more are thinned, stratified by class."""
    counts = np.zeros(0, dtype=np.int64)
    for codes in map(_strata, blocks()):
        block_counts = np.bincount(codes[codes >= 0], minlength=counts.size)
        block_counts[: counts.size] += counts
        counts = block_counts
    n_labeled = int(counts.sum())
    if n_labeled <= max_samples:
        return _rows_at(_label_masks(blocks), {True: np.arange(n_labeled)})
    generator = np.random.default_rng([random_state, n_labeled])
    quotas, tied = _quotas(counts, max_samples)
    n_more = max_samples - int(quotas.sum())
    if n_labeled > SHUFFLED_ROWS:
        quotas[tied[:n_more]] += 1
        chosen = {
            code: np.sort(generator.choice(counts[code], quotas[code], replace=False))
            for code in np.flatnonzero(quotas).tolist()
        }
        return _rows_at(map(_strata, blocks()), chosen)
    shuffled = generator.permutation(n_labeled)
    codes = np.concatenate([codes[codes >= 0] for codes in map(_strata, blocks())])[shuffled]
    order, starts = np.argsort(codes, kind="stable"), np.cumsum(counts) - counts
    first = [order[start : start + quota] for start, quota in zip(starts, quotas, strict=True)]
    more = np.sort(order[starts[tied] + quotas[tied]])[:n_more]
    ranks = np.sort(shuffled[np.concatenate([*first, more])])
    return _rows_at(_label_masks(blocks), {True: ranks})


def _label_masks(blocks: LabelBlocks) -> Iterator[np.ndarray]:
    """Yield masks of the labeled rows, shape (n_rows,), bool."""
    return (labels.is_labeled for labels in blocks())


def _strata(labels: Labels) -> np.ndarray:
    """Return the class codes of rows, or 0 for a known target, shape (n_rows,), integers; -1 for an unlabeled row."""
    if labels.task == "regression":
        return labels.is_labeled.astype(np.int8) - np.int8(1)
    # NumPy sorts short integers in linear time
    return labels.values.astype(np.int16) if len(labels.classes) < 2**15 else labels.values


def _quotas(counts: np.ndarray, n_rows: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the least number of rows of each class among `n_rows`, and the classes that share the rest, integers.

    The r-th row of a class of n rows has the place (r - 1/2) / n, and rows with the smallest places are taken, which
    keeps the shares of the classes. At the last place several classes may be tied.
    """
    bound = (n_rows + counts.size) / counts.sum()
    n_candidates = np.minimum(counts, (bound * counts + 0.5).astype(np.int64) + 1)
    places = [(np.arange(few) + 0.5) / count for few, count in zip(n_candidates, counts, strict=True)]
    last = np.partition(np.concatenate(places), n_rows - 1)[n_rows - 1]
    quotas = np.array([np.searchsorted(rows, last) for rows in places])
    tied = [code for code, rows in enumerate(places) if quotas[code] < rows.size and rows[quotas[code]] == last]
    return quotas, np.array(tied)


def _rows_at(blocks: Iterator[np.ndarray], chosen: Mapping[int, np.ndarray]) -> np.ndarray:
    """Return the rows of the given ranks among the rows of each code, sorted, int64.

    `blocks` are codes of all rows, or a mask, in order; `chosen` has ranks by code, shape (n_ranks,), ascending.
    """
    pieces, start, n_seen = [np.empty(0, dtype=np.int64)], 0, dict.fromkeys(chosen, 0)
    for codes in blocks:
        order = np.argsort(codes, kind="stable")
        ordered = codes[order]
        for code, ranks in chosen.items():
            places_of_code = order[slice(*np.searchsorted(ordered, [code, code + 1]))]
            low, high = np.searchsorted(ranks, [n_seen[code], n_seen[code] + places_of_code.size])
            pieces.append(start + places_of_code[ranks[low:high] - n_seen[code]])
            n_seen[code] += places_of_code.size
        start += codes.size
    return np.sort(np.concatenate(pieces))


def drawing_cost(n_samples: int, n_rows: int) -> Cost:
    """Return the memory of a draw of `n_rows` rows."""
    block, shuffled = min(LABEL_CHUNK_ROWS, n_samples), min(SHUFFLED_ROWS, n_samples)
    return (
        Array("labels of some rows, their codes, and the order of these", (8, block)),
        Array("labeled rows in random order, and by class", (3, shuffled), "int64"),
        Array("their classes, in order and in random order", (3, shuffled), "int32"),
        Array("ranks of the rows that are drawn, and these", (8, n_rows), "int64"),
    )
