"""Figures of the report as inline SVG.

Matplotlib draws figures in the colors of the light theme; in the SVG these become CSS variables, so that the page can
restyle the plots. Text stays text, without mathtext: fonts are those of the page.
"""

from __future__ import annotations

import io
import math
import re
import threading
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from html import escape
from itertools import groupby, zip_longest
from typing import TYPE_CHECKING, Any

import numpy as np

from daskfs.report.values import clean, plottable, shorten

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from daskfs.report.model import Curve, Number

FloatArray = np.ndarray[Any, np.dtype[np.float64]]

# Okabe and Ito's color-blind-safe hues, darkened (light page) or lightened (dark page) to a contrast of 3:1.
SERIES: tuple[tuple[str, str], ...] = (
    ("#0072b2", "#5ab0e8"),
    ("#d55e00", "#ff8a3d"),
    ("#008f68", "#33c79a"),
    ("#b5548a", "#e59bc4"),
    ("#a87a00", "#e6b84d"),
    ("#3f8fc6", "#9ad0f5"),
    ("#4d5661", "#b8c2cc"),
)
INK = ("#4a5665", "#b4bfcc")
LINE = ("#9aa5b1", "#5d6875")
GRID_COLORS = ("#e3e7ec", "#2b343e")
PAPER = ("#fefeff", "#171d24")

THEME: dict[str, tuple[str, str]] = {
    "plot-ink": INK,
    "plot-line": LINE,
    "plot-grid": GRID_COLORS,
    "plot-paper": PAPER,
    **{f"series-{i}": pair for i, pair in enumerate(SERIES)},
}
"""CSS variable names (without the dashes) and their colors on a light and on a dark page."""

_THEME_VARIABLES = {light: f"var(--{name}, {light})" for name, (light, _) in THEME.items()}
_MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<", ">")
_DASHES = ("-", "--", ":", "-.")
_SETTINGS: dict[Any, dict[str, Any]] = {
    "svg": {"fonttype": "none", "hashsalt": "daskfs.report"},
    "path": {"simplify_threshold": 0.2},
    # Only the bundled font measures text, so that bytes do not depend on the fonts of a machine.
    "font": {"sans-serif": ["DejaVu Sans"], "size": 12},
    "text": {"parse_math": False, "color": INK[0]},
    "figure": {"frameon": False, "dpi": 72},
    "lines": {"linewidth": 1.8, "markersize": 5},
    "axes": {"facecolor": "none", "edgecolor": LINE[0], "axisbelow": True, "grid": True}
    | {"titlecolor": INK[0], "titlesize": "medium", "titlepad": 8, "labelcolor": INK[0], "labelpad": 7},
    "axes.grid": {"axis": "y"},
    "axes.spines": {"left": False, "right": False, "top": False},
    "axes.formatter": {"limits": (-4, 5), "useoffset": False},
    "grid": {"color": GRID_COLORS[0], "linewidth": 1},
    "xtick": {"color": LINE[0], "labelcolor": INK[0]},
    "ytick": {"labelcolor": INK[0]},
    "xtick.major": {"size": 4},
    "ytick.major": {"size": 0, "pad": 5},
}
"""Settings of Matplotlib by group, as for :func:`matplotlib.rc`."""

# Matplotlib escapes "<" and ">" in text and in attributes, so that this is all of the tags and nothing else.
_TAG = re.compile("<[^>]*>")
_DROPPED = re.compile(r"""(?<=<g) id="[^"]*"| transform="rotate\(-0 [^"]*"| ?font-family: [^;"]*;?|xlink:""")
_HEX = re.compile(r"#[0-9a-f]{6}\b")
_ID = re.compile(r"""(?<= id=")|(?<= href="#)|(?<=url\(#)""")
LOG_RANKS = 200
"""Number of ranked features beyond which the axis of ranks is logarithmic."""
_LABEL_LENGTH = 26
_TICK_LENGTH = 14

# Matplotlib's rcParams are process-wide, and restored after each figure.
_lock = threading.Lock()


@contextmanager
def _drawing() -> Iterator[None]:
    import matplotlib as mpl

    with _lock, mpl.rc_context():
        # A user's matplotlibrc must not change the bytes of a report.
        mpl.rcdefaults()
        for group, settings in _SETTINGS.items():
            mpl.rc(group, **settings)
        # Matplotlib's font only measures the text; a browser shows it in fonts of its own. The filter is for warnings
        # of this module and stays: to restore filters would undo those that another thread has set meanwhile.
        unmeasured = "Glyph .* missing from|Matplotlib currently does not support"
        warnings.filterwarnings("ignore", unmeasured, module=re.escape(__name__))
        yield


@dataclass(frozen=True)
class Plot:
    """A figure of one panel: as an ``<svg>`` element of a report, or on axes of the caller.

    Parameters
    ----------
    size
        Width and height in CSS pixels.
    x_name, y_name
        Names of the axes.
    draw
        Draws on axes.
    description
        Text for readers who cannot see the figure.
    right, left, bottom
        Room for the names of curves, rows and columns, in CSS pixels; 0 for that of ticks.
    """

    size: tuple[int, int]
    x_name: str
    y_name: str
    draw: Callable[[Axes], None]
    description: str
    right: int = 14
    left: int = 0
    bottom: int = 0

    def svg(self, prefix: str, scale: float = 1) -> str:
        """Return the ``<svg>`` element, scaled; ids in it begin with `prefix`, which is unique on the page."""
        with _drawing():
            figure, axes = _panel(*self.size, self.x_name, self.y_name, right=self.right)
            self.draw(axes)
            return _svg(figure, prefix, self.description, scale)

    def on(self, axes: Axes | None) -> Axes:
        """Draw on axes, new ones of pyplot for None, and return them."""
        if axes is None:
            from matplotlib import pyplot as plt

            width, height = self.size
            figure, axes = plt.subplots(figsize=(width / 72, height / 72))
            sides = {"right": 1 - self.right / width, "left": self.left / width, "bottom": self.bottom / height}
            figure.subplots_adjust(**{side: share for side, share in sides.items() if share})
        axes.set_xlabel(self.x_name)
        axes.set_ylabel(self.y_name)
        self.draw(axes)
        return axes


def score_curve(
    curve: Mapping[str, Sequence[Number]],
    *,
    label: str,
    direction: str | None,
    log_rank: bool,
    n_significant: Number = None,
) -> Plot | None:
    """Plot score by rank for one method, named by its label; None when no point is finite.

    `curve` has ``rank`` and ``score``, lists of equal length; points that are not finite are left out. A line is drawn
    at `n_significant`, the number of features that are more than chance.
    """
    rank, score = _points(curve.get("rank", ()), curve.get("score", ()))
    if not rank.size:
        return None
    ends = " to ".join(f"{score[i]:.4g} at rank {rank[i]:,.0f}" for i in (0, -1))

    def draw(axes: Axes) -> None:
        _set_x(axes, rank, log=log_rank)
        axes.set_ylim(*_axis_limits(score, 0.06))
        axes.plot(rank, score, color=SERIES[0][0], marker="o" if rank.size == 1 else "")
        if passing > 0:
            axes.axvline(passing, color=SERIES[1][0], linestyle="--", linewidth=1)

    passing = plottable(n_significant)
    cut = f", with a line at rank {passing:,.0f}" if passing > 0 else ""
    return Plot((360, 250), "rank", score_name(direction), draw, f"Score by rank of {label}, from {ends}{cut}")


def score_name(direction: str | None) -> str:
    """Return the name of an axis of scores, with what is good."""
    return "score" + {"ascending": " (small is good)", "descending": " (large is good)"}.get(direction or "", "")


def along_axis(points: Mapping[str, Sequence[Number]], *, label: str, x_name: str, y_name: str) -> Plot | None:
    """Plot scores along the axis that the features lie on, with the first features as dots.

    `points` has ``x`` and ``score`` of the features, ``best_x`` and ``best_score`` of the first ones. None when no
    point is finite.
    """
    x, y = _vector(points.get("x", ())), _vector(points.get("score", ()))
    if x.size != y.size or not (np.isfinite(x) & np.isfinite(y)).any():
        return None
    best = _points(points.get("best_x", ()), points.get("best_score", ()))

    def draw(axes: Axes) -> None:
        axes.set_xlim(*_axis_limits(x[np.isfinite(x)], 0.02))
        axes.set_ylim(*_axis_limits(y[np.isfinite(y)], 0.08))
        axes.plot(x, y, color=SERIES[0][0])
        axes.plot(*best, color=SERIES[1][0], linestyle="", marker="o")

    description = f"Scores of {label} along {x_name}, the first {best[0].size} features as dots"
    return Plot((760, 230), x_name, y_name, draw, description)


def first_features(names: Sequence[str], scores: Sequence[Number], *, label: str, direction: str | None) -> Plot | None:
    """Plot the scores of the first features by name, the best one on top; None without features."""
    values = _vector(scores)
    if not values.size:
        return None

    def draw(axes: Axes) -> None:
        places = np.arange(values.size)
        axes.plot(values, places, color=SERIES[0][0], marker="o", linestyle="")
        axes.set_yticks(places, [shorten(clean(name), _LABEL_LENGTH) for name in names])
        axes.set_ylim(values.size - 0.5, -0.5)
        axes.grid(axis="y", alpha=0.3)

    height = 60 + 22 * values.size
    return Plot((480, height), score_name(direction), "", draw, f"First {values.size} features of {label}", left=170)


def matrix(labels: Sequence[str], values: Sequence[Sequence[Number]], *, description: str) -> Plot:
    """Plot values from 0 to 1 of each two labels, as shades and numbers."""
    shown = np.array([[plottable(value) for value in row] for row in values])

    def draw(axes: Axes) -> None:
        axes.imshow(shown, cmap="Blues", vmin=0, vmax=1)
        places = np.arange(len(labels))
        names = [shorten(clean(label), _LABEL_LENGTH) for label in labels]
        axes.set_xticks(places, names, rotation=45, ha="right")
        axes.set_yticks(places, names)
        axes.grid(visible=False)
        for (row, column), value in np.ndenumerate(shown):
            color = PAPER[0] if value > 0.5 else "black"
            axes.text(column, row, f"{value:.2f}", ha="center", va="center", color=color)

    side = 220 + 40 * len(labels)
    return Plot((side, side), "", "", draw, description, left=170, bottom=170)


def pixels(levels: Sequence[Sequence[Number]], *, description: str) -> Plot:
    """Plot gray levels from 0 to 255 as an image; other pixels are left out."""
    shown = np.array([[plottable(level) for level in row] for row in levels])

    def draw(axes: Axes) -> None:
        axes.imshow(np.ma.masked_less(shown, 0), cmap="gray", vmin=0, vmax=255)
        axes.set_axis_off()

    return Plot((360, 360), "", "", draw, description)


def svg_of(plot: Plot | None, prefix: str) -> str | None:
    """Return the ``<svg>`` element of a plot, None for none."""
    return None if plot is None else plot.svg(prefix)


def small_plot(plot: Plot | None, owner: object) -> str:
    """Return the ``<svg>`` element of a plot in two thirds of its size, for the output of a notebook's cell."""
    return "" if plot is None else plot.svg(f"daskfs-{id(owner)}", 2 / 3)


def objective_curve(before: Sequence[Number], values: Sequence[Number], *, label: str) -> Plot | None:
    """Plot the objective by round for one method; None when no value is finite.

    The objective of its initial method, `before`, is drawn dashed; its last round is the first of `values`.
    """
    earlier, later = _vector(before), _vector(values)
    x = np.concatenate([np.arange(earlier.size) + 1.0, np.arange(later.size) + max(earlier.size, 1)])
    y = np.concatenate([earlier, later])
    is_finite = np.isfinite(y)
    if not is_finite.any():
        return None

    def draw(axes: Axes) -> None:
        axes.set_xlim(*_axis_limits(x[is_finite], 0.02))
        axes.set_ylim(*_axis_limits(y[is_finite], 0.06))
        for part, dash in ((np.arange(y.size) < earlier.size, "--"), (np.arange(y.size) >= earlier.size, "-")):
            part &= is_finite
            axes.plot(x[part], y[part], color=SERIES[2][0], linestyle=dash, marker="o" if part.sum() == 1 else "")

    ends = f"from {y[is_finite][0]:.4g} to {y[is_finite][-1]:.4g}"
    return Plot((360, 210), "round", "objective", draw, f"Objective by round of {label}, {ends}")


def histogram(data: Mapping[str, Sequence[Number]], *, name: str, x_name: str) -> Plot | None:
    """Plot bars for ``edges`` (one more than bars) and ``counts``; ``None`` if these are invalid."""
    edges, counts = _vector(data.get("edges", ())), np.nan_to_num(_vector(data.get("counts", ())))
    width = np.diff(edges)
    if not counts.size or edges.size != counts.size + 1 or not np.isfinite(edges).all() or (width < 0).any():
        return None

    def draw(axes: Axes) -> None:
        axes.set_xlim(*_axis_limits(edges, 0.02))
        axes.set_ylim(0.0, max(1.0, float(counts.max())) * 1.06)
        outline: dict[str, Any] = {"edgecolor": PAPER[0], "linewidth": 0.8} if counts.size <= 60 else {}
        widths = np.where(width > 0, width, 1.0)
        axes.bar(edges[:-1], counts, width=widths, align="edge", color=SERIES[5][0], **outline)

    description = f"{name}: {counts.sum():,.0f} values from {edges[0]:.4g} to {edges[-1]:.4g}"
    return Plot((360, 210), x_name, "count", draw, description)


def pixel_image(levels: Sequence[Sequence[Number]], *, description: str) -> str | None:
    """Return the ``<svg>`` element of an image with a square for each pixel; None when there is no pixel.

    `levels` are rows of gray levels from 0 to 255; -1 marks a pixel, and -2 leaves it out. It is drawn as large as fits
    into 360 by 240 CSS pixels.
    """
    rows = [[_pixel_color(plottable(level)) for level in row] for row in levels]
    n_columns = max((len(row) for row in rows), default=0)
    if not n_columns:
        return None
    by_color = defaultdict(list)
    for y, row in enumerate(rows):
        x = 0
        for color, run in groupby(row):
            length = len(list(run))
            by_color[color].append(f"M{x} {y}h{length}v1h-{length}z")
            x += length
    body = "".join(
        f'<path d="{"".join(runs)}" style="fill: {color}" shape-rendering="crispEdges"/>'
        for color, runs in sorted(by_color.items())
        if color
    )
    return _svg_element((n_columns, len(rows)), min(360 / n_columns, 240 / len(rows)), description, body)


def _pixel_color(level: float) -> str:
    """Return one of 32 grays, the color of a marked pixel, or an empty string."""
    if level == -1:
        return _THEME_VARIABLES[SERIES[1][0]]
    if not level >= 0:
        return ""
    gray = min(int(level) // 8, 31) * 255 // 31
    return f"#{gray:02x}{gray:02x}{gray:02x}"


def interval_curves(
    curves: Sequence[Curve],
    *,
    y_name: str,
    what: str,
    x_name: str = "number of selected features",
    ticks: Sequence[str] | None = None,
    with_zero: bool = False,
    cut_bars: bool = False,
) -> Plot | None:
    """Plot curves with a band of ``std`` around the mean, and a thin bar from ``low`` to ``high`` at each point.

    Curves are shifted sideways so that bars do not overlap. None when no point is finite.

    Parameters
    ----------
    curves
        Curves by ``n_selected``, the x coordinate, above 0.
    y_name, what, x_name
        Names of the y axis, of the values, for readers who cannot see the figure, and of the x axis.
    ticks
        Names of the x coordinates 1, 2, ...; None for numbers.
    with_zero
        Whether the y axis includes zero, with a line there.
    cut_bars
        Whether bars are cut that are so long that they would flatten the curves.
    """
    series = [
        (curve.label or "?", points)
        for curve in curves
        if (points := _points(curve.n_selected, curve.mean, curve.std, curve.low, curve.high)).size
    ]
    if not series:
        return None
    labels = [label for label, _ in series]
    x, mean, std, low, high = np.hstack([points for _, points in series])
    std = np.nan_to_num(std)
    inner = np.concatenate([mean - std, mean + std, np.zeros(int(with_zero))])
    outer = np.concatenate([inner, low, high])
    if cut_bars:
        outer = np.clip(outer, *_axis_limits(inner, 0.5))

    def draw(axes: Axes) -> None:
        if ticks is not None:
            _named_ticks(axes, ticks)
        else:
            places = np.unique(x)
            _set_x(axes, places, log=bool(places[-1] / places[0] >= 10))
            axes.set_xticks(_ticks_that_fit(axes, places))
            axes.xaxis.set_major_formatter("{x:.7g}")
        axes.set_ylim(*_axis_limits(outer, 0.04))
        if with_zero:
            axes.axhline(0, color=LINE[0], linewidth=1)
        step = 2.2 if len(series) <= 6 else 12.0 / len(series)
        for i, (_, points) in enumerate(series):
            _draw_series(axes, points, i, (i - (len(series) - 1) / 2) * step, band=0.13 if len(series) <= 4 else 0.07)
        _direct_labels(axes, labels, np.array([points[:2, -1] for _, points in series]))

    size = 800, max(360, 17 * len(series) + 80)
    return Plot(size, x_name, y_name, draw, f"{what} by {x_name} for {', '.join(labels)}", right=204)


def _named_ticks(axes: Axes, names: Sequence[str]) -> None:
    """Set ticks at 1, 2, ... on the x axis, with as many names as fit."""
    axes.set_xlim(0.5, len(names) + 0.5)
    names = [shorten(name, _TICK_LENGTH) for name in names]
    every = max(1, -(-max(map(len, names), default=0) * 8 * len(names) // 540))
    axes.set_xticks(range(1, len(names) + 1), ["" if i % every else _line(name) for i, name in enumerate(names)])


def _draw_series(axes: Axes, points: FloatArray, index: int, shift: float, *, band: float) -> None:
    from matplotlib.transforms import Affine2D

    x, mean, std, low, high = points
    dash, marker = _look(index)
    style: dict[str, Any] = {"color": dash["color"], "transform": axes.transData + Affine2D().translate(shift, 0)}
    std = np.nan_to_num(std)
    if std.any():
        axes.fill_between(x, mean - std, mean + std, alpha=band, linewidth=0, **style)
    bars = [np.column_stack(ends).ravel() for ends in ((x, x, x), (low, high, np.full_like(x, math.nan)))]
    axes.plot(*bars, linewidth=1.0, alpha=0.65, **style)
    axes.plot(x, mean, **style | dash)
    axes.plot(x, mean, **style | marker)


def _look(index: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the styles of line and markers of the n-th curve; the first 63 are all different."""
    color = SERIES[index % len(SERIES)][0]
    edge = {"markersize": 6.5, "markeredgecolor": PAPER[0], "markeredgewidth": 0.9}
    return (
        {"color": color, "linestyle": _DASHES[index // len(SERIES) % len(_DASHES)]},
        {"color": color, "linestyle": "none", "marker": _MARKERS[index % len(_MARKERS)], **edge},
    )


def _direct_labels(axes: Axes, labels: Sequence[str], ends: FloatArray) -> None:
    """Add names next to the ends (x, y) of the curves, without overlaps."""
    ends = (axes.transData - axes.transAxes).transform(ends)
    order = np.argsort(-ends[:, 1], kind="stable")
    gap = min(16 / axes.bbox.height, 1.1 / max(1, len(labels) - 1))
    names = _short_names(labels)
    style: dict[str, Any] = {"transform": axes.transAxes, "clip_on": False}
    for i, y in zip(order, spread(ends[order, 1], gap=gap, low=0, high=1), strict=True):
        marker = _look(i)[1]
        axes.plot([ends[i, 0], 1.02], [ends[i, 1], y], linewidth=0.8, alpha=0.6, color=marker["color"], **style)
        axes.plot([1.033], [y], **style, **marker)
        axes.text(1.05, y, names[i], va="center_baseline", **style)


def _short_names(labels: Sequence[str]) -> list[str]:
    """Cut labels to the available length: at the end, or in the middle if they would become equal."""
    cut = [shorten(_line(label), _LABEL_LENGTH) for label in labels]
    half = _LABEL_LENGTH // 2
    return [
        f"{label[: half - 1]}…{label[-half:]}" if cut.count(short) > 1 and short != label else short
        for label, short in zip(map(_line, labels), cut, strict=True)
    ]


def spread(places: Sequence[float], *, gap: float, low: float, high: float) -> list[float]:
    """Move descending positions in [``low``, ``high``] apart until neighbors differ by ``gap``."""
    steps = gap * np.arange(len(places))
    lowered = np.minimum.accumulate(np.minimum(places, high) + steps) - steps
    raised = np.maximum.accumulate(np.maximum(lowered, low)[::-1] - steps) + steps
    return [float(place) for place in raised[::-1]]


def _vector(values: Iterable[Number]) -> FloatArray:
    return np.array([plottable(value) for value in values], dtype=np.float64)


def _points(*lists: Iterable[Number]) -> FloatArray:
    """Read lists as rows of an array (len(lists), n_points), by the first list, ascending.

    The first two values of a point are finite and the first is above 0; others are NaN if missing.
    """
    rows = zip_longest(*map(_vector, lists), fillvalue=math.nan)
    points = np.array(list(rows), dtype=np.float64).reshape(-1, len(lists))
    points = points[np.isfinite(points[:, :2]).all(axis=1) & (points[:, 0] > 0)]
    return points[np.argsort(points[:, 0], kind="stable")].T


def _axis_limits(values: FloatArray, share: float) -> tuple[float, float]:
    """Return distinct axis limits with padding around the finite values."""
    values = values[np.isfinite(values)]
    low, high = float(values.min()), float(values.max())
    size = max(abs(low), abs(high))
    # Do not resolve differences at the level of rounding: all tick labels would be equal.
    pad = (high - low) * share if high - low > 1e-9 * size else 0.05 * size or 1.0
    return low - pad, high + pad


def _panel(
    width: int, height: int, x_name: str = "", y_name: str = "", *, left: int = 54, right: int = 14, top: int = 32
) -> tuple[Figure, Axes]:
    """Return a figure and its axes, with the x name below and the y name above; sizes are in CSS pixels."""
    from matplotlib.figure import Figure

    bottom = 42 if x_name else 0
    area = (left / width, bottom / height, (width - left - right) / width, (height - top - bottom) / height)
    figure = Figure(figsize=(width / 72, height / 72))
    axes = figure.add_axes(area)
    axes.locator_params(nbins=6, min_n_ticks=3)
    axes.set_xlabel(_line(x_name), loc="right")
    axes.set_title(_line(y_name), loc="left", x=-46 / axes.bbox.width)
    axes.yaxis.offsetText.set_fontsize(10)
    # On the other side, the power of ten would cover the name of the axis.
    axes.xaxis.offsetText.set(x=0, ha="left", fontsize=10)
    return figure, axes


def _set_x(axes: Axes, values: FloatArray, *, log: bool) -> None:
    """Set the range of the x axis, and its ticks if it is logarithmic."""
    from matplotlib.ticker import LogLocator, NullLocator

    if not log:
        axes.set_xlim(*_axis_limits(values, 0.02))
        return
    low, high = float(values.min()), float(values.max())
    pad = (high / low) ** 0.03 if high > low else 2.0
    axes.set_xscale("log")
    axes.set_xlim(low / pad, high * pad)
    axes.xaxis.set_minor_locator(NullLocator())
    # A range below two decades may contain only one power of ten, or none.
    subs = (1.0,) if high / low >= 100 else (1.0, 2.0, 5.0)
    axes.xaxis.set_major_locator(LogLocator(subs=subs, numticks=7))
    axes.xaxis.set_major_formatter("{x:,.0f}")


def _ticks_that_fit(axes: Axes, values: FloatArray) -> list[float]:
    """Return the values whose tick labels fit, giving priority to the largest."""
    places = axes.transData.transform(np.column_stack([values, np.zeros_like(values)]))[:, 0]
    ticks: list[int] = []
    for i in reversed(range(values.size)):
        if not ticks or places[ticks[-1]] - places[i] >= max(34, 8 * len(f"{values[ticks[-1]]:.7g}") + 6):
            ticks.append(i)
    return [float(values[i]) for i in reversed(ticks)]


def _line(text: str) -> str:
    """Return text for Matplotlib, without the line breaks that a page shows as spaces."""
    return clean(text).replace("\n", " ")


def _svg(figure: Figure, prefix: str, description: str, scale: float = 1) -> str:
    """Convert a figure to an ``<svg>`` element for an HTML page.

    Ids of definitions get the prefix. Those of groups are dropped, and so are namespaces (not needed), the style sheet
    (it would apply to the page), fonts and white space.
    """
    buffer = io.StringIO()
    figure.savefig(buffer, format="svg", metadata=dict.fromkeys(("Date", "Creator", "Format", "Type")))

    def restyled(tag: re.Match[str]) -> str:
        text = _DROPPED.sub("", " ".join(tag[0].split()))
        return _ID.sub(f"{prefix}-", _HEX.sub(lambda color: _THEME_VARIABLES.get(color[0], color[0]), text))

    # The first definition is the style sheet.
    body = buffer.getvalue().partition("</defs>")[2].rpartition("</svg>")[0]
    body = re.sub(r">\s+<", "><", _TAG.sub(restyled, body)).strip()
    return _svg_element((figure.bbox.width, figure.bbox.height), scale, description, body)


def _svg_element(size: tuple[float, float], scale: float, description: str, body: str) -> str:
    """Return an ``<svg>`` element with a description for screen readers, which is also its tooltip."""
    width, height = size
    text = escape(clean(description))
    return (
        f'<svg viewBox="0 0 {width:.0f} {height:.0f}" width="{scale * width:.0f}" height="{scale * height:.0f}" '
        f'role="img" aria-label="{text}"><title>{text}</title>{body}</svg>'
    )


def critical_difference_diagram(
    ranks: Sequence[float],
    labels: Sequence[str],
    *,
    groups: Iterable[Sequence[int]],
    critical_difference: float | None,
    prefix: str,
) -> str | None:
    """Plot average ranks, ascending, on a line, with bars that join methods that do not differ.

    Each of `groups` is the first and last index in `ranks` that a bar joins. The critical difference is the length of
    the ruler above the line; None for no ruler. Ids in the ``<svg>`` element begin with `prefix`, which is unique on
    the page. Return None for fewer than two methods.
    """
    places, bars = _vector(ranks), list(groups)
    if places.size < 2 or not np.isfinite(places).all():
        return None
    n_left, length = -(-places.size // 2), places.size - 1
    bars_height = 12 * len(bars) + 10
    size = bars_height + 20 * n_left + 10
    with _drawing():
        figure, axes = _panel(680, 64 + size, left=200, right=200, top=64)
        axes.set_xlim(1, places.size)
        axes.set_ylim(size, 0)
        axes.yaxis.set_visible(False)
        axes.spines["bottom"].set_visible(False)
        axes.spines["top"].set_visible(True)
        axes.xaxis.tick_top()
        for i, place in enumerate(places):
            side, end, away, row = ("right", 1, -length, i) if i < n_left else ("left", places.size, length, length - i)
            y = bars_height + 20 * (row + 0.5)
            axes.plot([place, place, end + 0.03 * away], [0, y, y], color=LINE[0], linewidth=1, clip_on=False)
            name = _line(f"{shorten(labels[i], _LABEL_LENGTH)} ({place:.2f})")
            axes.text(end + 0.04 * away, y, name, va="center_baseline", ha=side)
        axes.plot(places, np.zeros_like(places), "o", color=SERIES[0][0], clip_on=False)
        for k, (first, last) in enumerate(bars):
            ends = [places[first] - 0.005 * length, places[last] + 0.005 * length]
            axes.plot(ends, [12 * k + 10] * 2, color=SERIES[1][0], linewidth=4, solid_capstyle="round", clip_on=False)
        width = plottable(critical_difference)
        if math.isfinite(width):
            shown, more = (width, "") if width <= length else (length, " (longer than the axis)")
            axes.plot([1, 1 + shown], [-38, -38], color=INK[0], linewidth=1.5, clip_on=False, marker="|", markersize=7)
            axes.text(1, -44, f"critical difference {width:.2f}{more}", va="bottom")
        named = ", ".join(f"{label} {place:.2f}" for label, place in zip(labels, places, strict=True))
        return _svg(figure, prefix, f"Average ranks: {named}")
