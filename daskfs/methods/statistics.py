"""The statistics of a panel that criteria are made of.

A criterion names the statistics it needs. All methods of a job that score the same slab name theirs, duplicates fall
together, each is computed once per panel, and every criterion then turns a few short arrays into scores.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from daskfs.graph.spec import Weighting
from daskfs.kernels.labels import Labels
from daskfs.kernels.moments import ClassMoments, Moments, TargetMoments, class_moments, column_moments, target_moments
from daskfs.kernels.scaling import Scaling


@dataclass(frozen=True)
class GraphForms:
    """Quadratic forms of a graph: f'Lf and f~'D f~, and the mean by degrees, f'D1 / 1'D1, shape (width,); NaN-worthy
    columns are marked in `is_constant`.
    """

    numerator: np.ndarray
    denominator: np.ndarray
    mean: np.ndarray
    is_constant: np.ndarray


@dataclass(frozen=True)
class NeedMoments:
    """Moments over all rows."""

    scaling: Scaling | None


@dataclass(frozen=True)
class NeedClassMoments:
    """Moments of each class over labelled rows."""

    scaling: Scaling | None


@dataclass(frozen=True)
class NeedTargetMoments:
    """Joint moments with the target over labelled rows."""

    scaling: Scaling | None


@dataclass(frozen=True)
class NeedGraphForms:
    """Quadratic forms of one weighted graph."""

    scaling: Scaling | None
    weighting: Weighting


Need = NeedMoments | NeedClassMoments | NeedTargetMoments | NeedGraphForms
Statistic = Moments | ClassMoments | TargetMoments | GraphForms
Statistics = Mapping[Need, Statistic]


def panel_statistic(need: Need, F: np.ndarray, labels: Labels | None) -> Statistic:
    """Compute a statistic that needs the panel and the labels only.

    Parameters
    ----------
    need
        Any need but :class:`NeedGraphForms`, which all panels of a slab compute together while the graph streams by.
    F
        Panel, shape (n_samples, width).
    labels
        Labels of all rows.
    """
    if isinstance(need, NeedMoments):
        return column_moments(F)
    assert labels is not None
    if isinstance(need, NeedClassMoments):
        return class_moments(F, labels.values, len(labels.classes))
    known = labels.is_labelled
    return target_moments(F[known], labels.values[known].astype(np.float64))
