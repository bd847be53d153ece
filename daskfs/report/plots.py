"""Figures of the report as inline SVG.

Matplotlib draws the geometry and the tick labels. Text from data is inserted into the finished SVG instead, so it is
never measured, never parsed as mathtext and never needs a glyph that the bundled font lacks. Figures are drawn in the
colors of the light theme; in the SVG these become CSS variables, so that the page can restyle the plots.
"""

from __future__ import annotations

import io
import math
import re
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from daskfs.report.values import clean, mappings, plottable, sequence, shorten

if TYPE_CHECKING:
    from xml.etree.ElementTree import Element

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Vector = np.ndarray[tuple[int], np.dtype[np.float64]]

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
GRID = ("#e3e7ec", "#2b343e")
PAPER = ("#fefeff", "#171d24")

THEME: dict[str, tuple[str, str]] = {
    "plot-ink": INK,
    "plot-line": LINE,
    "plot-grid": GRID,
    "plot-paper": PAPER,
    **{f"series-{i}": pair for i, pair in enumerate(SERIES)},
}
"""CSS variable names (without the dashes) and their colors on a light and on a dark page."""

_VARIABLE = {light: name for name, (light, _) in THEME.items()}
_MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<", ">")
_DASHES = ("-", "--", ":", "-.")
_HEX = re.compile(r"#[0-9a-f]{6}\b")
_REFERENCE = re.compile(r"url\(#([^)]+)\)")
_FONT_FAMILY = re.compile(r"\s*font-family:[^;]*;?")
_SETTINGS: Any = {
    "svg.fonttype": "none",
    "svg.hashsalt": "daskfs.report",
    "font.size": 12,
    "path.simplify_threshold": 0.2,
}
_LABEL_GAP = 16.0
_LABEL_LENGTH = 26
_TICK_LENGTH = 14

# The SVG back end reads matplotlib's process-wide rcParams, which are restored after each figure.
_lock = threading.Lock()


@contextmanager
def _drawing() -> Iterator[None]:
    import matplotlib as mpl

    with _lock, mpl.rc_context():
        # A user's matplotlibrc must not change the bytes of a report.
        mpl.rcdefaults()
        mpl.rcParams.update(_SETTINGS)
        yield


def score_curve(
    curve: Mapping[str, Any], *, prefix: str, label: str, direction: str | None, log_rank: bool
) -> str | None:
    """Plot score by rank for one method.

    Parameters
    ----------
    curve
        ``rank`` and ``score``, lists of equal length. Points that are not finite are left out.
    prefix
        Prefix of every id in the SVG, unique on the page.
    label
        Name of the method, for readers who cannot see the figure.
    direction
        ``"ascending"`` when small scores are good.
    log_rank
        Whether the rank axis is logarithmic.

    Returns
    -------
    str or None
        The ``<svg>`` element, ``None`` when no point is finite.
    """
    rank, score = _finite(curve.get("rank"), curve.get("score"))
    keep = rank > 0
    rank, score = rank[keep], score[keep]
    if not rank.size:
        return None
    with _drawing():
        figure, axes = _panel(360, 250, left=54, right=14, top=28, bottom=42)
        if log_rank:
            _log_x(axes, rank)
        else:
            axes.set_xlim(*_padded(rank, 0.02))
            _plain_ticks(axes.xaxis)
        axes.set_ylim(*_padded(score, 0.06))
        single: dict[str, Any] = {"marker": "o", "markersize": 5} if rank.size == 1 else {}
        axes.plot(rank, score, color=SERIES[0][0], linewidth=1.8, solid_capstyle="round", **single)
        good = {"ascending": " (small is good)", "descending": " (large is good)"}.get(direction or "", "")
        texts = _axis_names(axes, "rank", f"score{good}")
        ends = " to ".join(f"{score[i]:.4g} at rank {rank[i]:,.0f}" for i in (0, -1))
        return _svg(figure, prefix=prefix, description=f"Score by rank of {label}, from {ends}", texts=texts)


def objective_curve(before: object, values: object, *, prefix: str, label: str) -> str | None:
    """Plot the objective by round for one method, after that of its initial method.

    Parameters
    ----------
    before
        Objective of the initial method, drawn dashed. Its last round is the first of `values`.
    values
        Objective by round.
    prefix, label
        As for :func:`score_curve`.

    Returns
    -------
    str or None
        The ``<svg>`` element, ``None`` when no value is finite.
    """
    first, own = _vector(before), _vector(values)
    start = max(first.size, 1)
    parts = [(np.arange(first.size) + 1.0, first, "--"), (np.arange(own.size) + start, own, "-")]
    kept = [(x[np.isfinite(y)], y[np.isfinite(y)], dash) for x, y, dash in parts if np.isfinite(y).any()]
    if not kept:
        return None
    with _drawing():
        figure, axes = _panel(360, 210, left=54, right=14, top=28, bottom=42)
        axes.set_xlim(*_padded(np.concatenate([x for x, _, _ in kept]), 0.02))
        axes.set_ylim(*_padded(np.concatenate([y for _, y, _ in kept]), 0.06))
        for x, y, dash in kept:
            single: dict[str, Any] = {"marker": "o", "markersize": 5} if x.size == 1 else {}
            axes.plot(x, y, color=SERIES[2][0], linewidth=1.8, linestyle=dash, **single)
        _plain_ticks(axes.xaxis)
        texts = _axis_names(axes, "round", "objective")
        ends = f"from {kept[0][1][0]:.4g} to {kept[-1][1][-1]:.4g}"
        return _svg(figure, prefix=prefix, description=f"Objective by round of {label}, {ends}", texts=texts)


def histogram(data: Mapping[str, Any], *, prefix: str, name: str, x_name: str) -> str | None:
    """Plot bars for ``edges`` (one more than bars) and ``counts``; ``None`` if these are invalid."""
    edges = _vector(data.get("edges"))
    counts = _vector(data.get("counts"))
    if not counts.size or edges.size != counts.size + 1 or not np.isfinite(edges).all():
        return None
    counts = np.where(np.isfinite(counts), counts, 0.0)
    if (np.diff(edges) < 0).any():
        return None
    with _drawing():
        figure, axes = _panel(360, 210, left=54, right=14, top=28, bottom=42)
        axes.set_xlim(*_padded(edges, 0.02))
        axes.set_ylim(0.0, max(1.0, float(counts.max())) * 1.06)
        color = SERIES[5][0]
        width = np.diff(edges)
        few = counts.size <= 60
        axes.bar(
            edges[:-1],
            counts,
            width=np.where(width > 0, width, 1.0),
            align="edge",
            color=color,
            edgecolor=PAPER[0] if few else color,
            linewidth=0.8 if few else 0.0,
        )
        _plain_ticks(axes.xaxis)
        texts = _axis_names(axes, x_name, "count")
        text = f"{name}: {counts.sum():,.0f} values from {edges[0]:.4g} to {edges[-1]:.4g}"
        return _svg(figure, prefix=prefix, description=text, texts=texts)


def pixel_image(levels: object, *, description: str, width: int = 360) -> str | None:
    """Draw an image with a square for each pixel.

    Parameters
    ----------
    levels
        Rows of gray levels from 0 to 255; -1 marks a pixel, and -2 leaves it out.
    description
        Text for screen readers, also the tooltip.
    width
        Maximum width in CSS pixels.

    Returns
    -------
    str or None
        The ``<svg>`` element, ``None`` when there is no pixel.
    """
    from xml.etree import ElementTree as ET

    rows = [[plottable(level) for level in sequence(row)] for row in sequence(levels)]
    n_columns = max((len(row) for row in rows), default=0)
    if not n_columns:
        return None
    scale = min(width / n_columns, 240 / len(rows))
    size = {"width": f"{scale * n_columns:.0f}", "height": f"{scale * len(rows):.0f}"}
    text = clean(description)
    root = ET.Element("svg", {"viewBox": f"0 0 {n_columns} {len(rows)}", **size, "role": "img", "aria-label": text})
    ET.SubElement(root, "title").text = text
    by_color: dict[str, list[str]] = {}
    for y, row in enumerate(rows):
        colors = [_pixel_color(level) for level in row]
        start = 0
        for x in range(1, len(colors) + 1):
            if x == len(colors) or colors[x] != colors[start]:
                if colors[start]:
                    by_color.setdefault(colors[start], []).append(f"M{start} {y}h{x - start}v1h{start - x}z")
                start = x
    for color in sorted(by_color):
        style = {"style": f"fill: {color}", "shape-rendering": "crispEdges"}
        ET.SubElement(root, "path", {"d": "".join(by_color[color]), **style})
    return ET.tostring(root, encoding="unicode")


def _pixel_color(level: float) -> str:
    """Return one of 32 grays, the color of a marked pixel, or an empty string."""
    if level == -1:
        return _variable(SERIES[1][0])
    if not level >= 0:
        return ""
    gray = min(int(level) // 8, 31) * 255 // 31
    return f"#{gray:02x}{gray:02x}{gray:02x}"


@dataclass(frozen=True)
class _Series:
    """One curve: mean, standard deviation, and the ends of a thin bar, such as the worst and best fold.

    The arrays are float64 of shape (n_points,); `low` and `high` are NaN at points without a bar.
    """

    label: str
    x: Vector
    mean: Vector
    std: Vector
    low: Vector
    high: Vector

    @classmethod
    def read(cls, curve: Mapping[str, Any]) -> _Series | None:
        """Read the finite points of a curve of the summary; ``None`` if there are none."""
        x, mean = _vector(curve.get("n_selected")), _vector(curve.get("mean"))
        n = min(x.size, mean.size)
        std = np.nan_to_num(_fitted(_vector(curve.get("std")), n))
        low, high = (_fitted(_vector(curve.get(key)), n) for key in ("low", "high"))
        x, mean = x[:n], mean[:n]
        order = np.argsort(x, kind="stable")
        order = order[(np.isfinite(x) & np.isfinite(mean) & (x > 0))[order]]
        if not order.size:
            return None
        return cls(str(curve.get("label") or "?"), x[order], mean[order], std[order], low[order], high[order])


def evaluation_curves(curves: object, *, prefix: str, metric: str, higher_is_better: bool) -> str | None:
    """Plot the quality of all methods by number of selected features, with bands of one standard deviation.

    Thin bars span the folds, from `low` to `high`. Curves are shifted sideways so that bars do not overlap.
    """
    better = "higher" if higher_is_better else "lower"
    y_name = f"{metric} ({better} is better)"
    return interval_curves(curves, prefix=prefix, x_name="number of selected features", y_name=y_name, what=metric)


def interval_curves(
    curves: object,
    *,
    prefix: str,
    x_name: str,
    y_name: str,
    what: str,
    ticks: Sequence[str] | None = None,
    with_zero: bool = False,
    cut_bars: bool = False,
) -> str | None:
    """Plot named curves with a thin bar at each point.

    Parameters
    ----------
    curves
        Dicts with a label and, by point, ``n_selected`` (the x coordinate, above 0), ``mean``, ``std`` (a band around
        the mean), ``low`` and ``high`` (the bar).
    prefix
        Prefix of every id in the SVG, unique on the page.
    x_name, y_name, what
        Names of the axes, and of the values, for readers who cannot see the figure.
    ticks
        Names of the x coordinates 1, 2, ...; None for numbers.
    with_zero
        Whether the y axis includes zero, with a line there.
    cut_bars
        Whether bars are cut that are so long that they would flatten the curves.

    Returns
    -------
    str or None
        The ``<svg>`` element, ``None`` when no point is finite.
    """
    series = [found for curve in mappings(curves) if (found := _Series.read(curve)) is not None]
    if not series:
        return None
    with _drawing():
        height = max(360, 17 * len(series) + 80)
        figure, axes = _panel(800, height, left=54, right=204, top=28, bottom=42)
        x = np.unique(np.concatenate([one.x for one in series]))
        texts = {}
        if ticks is not None:
            axes.set_xlim(0.5, len(ticks) + 0.5)
            texts = _named_ticks(axes, ticks)
        else:
            if x[-1] / x[0] >= 10:
                _log_x(axes, x)
            else:
                axes.set_xlim(*_padded(x, 0.03))
            axes.set_xticks(_spaced(axes, x))
            _plain_ticks(axes.xaxis, located=True)
        spans = [one.mean + sign * one.std for one in series for sign in (-1, 1)]
        extremes = [part for one in series for part in (one.low, one.high)]
        inner = np.concatenate([*spans, np.zeros(int(with_zero))])
        outer = np.concatenate([inner, *extremes])
        if cut_bars:
            low, high = _padded(inner, 0.5)
            outer = np.concatenate([inner, np.clip(outer, low, high)])
        axes.set_ylim(*_padded(outer, 0.04))
        if with_zero:
            axes.axhline(0, color=LINE[0], linewidth=1)
        step = 2.2 if len(series) <= 6 else 12.0 / len(series)
        for i, one in enumerate(series):
            _draw_series(axes, one, i, (i - (len(series) - 1) / 2) * step, band=0.13 if len(series) <= 4 else 0.07)
        texts |= _direct_labels(axes, series, height)
        texts |= _axis_names(axes, x_name, y_name)
        names = ", ".join(one.label for one in series)
        return _svg(figure, prefix=prefix, description=f"{what} by {x_name} for {names}", texts=texts)


def _named_ticks(axes: Axes, names: Sequence[str]) -> dict[str, str]:
    """Set ticks at 1, 2, ... on the x axis, with as many names as fit; return these by text gid."""
    axes.set_xticks(list(range(1, len(names) + 1)), [""] * len(names))
    names = [shorten(name, _TICK_LENGTH) for name in names]
    every = -(-max(len(name) for name in names) * 8 * len(names) // 540) if len(names) > 1 else 1
    texts = {}
    for place in range(0, len(names), max(1, every)):
        style: dict[str, Any] = {"transform": axes.get_xaxis_transform(), "clip_on": False, "parse_math": False}
        axes.text(place + 1, -0.03, "-", ha="center", va="top", color=INK[0], gid=f"tick-{place}", **style)
        texts[f"tick-{place}"] = names[place]
    return texts


def _draw_series(axes: Axes, one: _Series, index: int, shift: float, *, band: float) -> None:
    from matplotlib.transforms import Affine2D

    color, dash = _look(index)[0], _look(index)[2]
    moved = axes.transData + Affine2D().translate(shift, 0)
    if one.std.any():
        axes.fill_between(
            one.x,
            one.mean - one.std,
            one.mean + one.std,
            color=color,
            alpha=band,
            linewidth=0,
            transform=moved,
        )
    gap = np.full_like(one.x, math.nan)
    axes.plot(
        np.column_stack([one.x, one.x, gap]).ravel(),
        np.column_stack([one.low, one.high, gap]).ravel(),
        color=color,
        linewidth=1.0,
        alpha=0.65,
        transform=moved,
    )
    axes.plot(one.x, one.mean, color=color, linewidth=1.8, linestyle=dash, transform=moved)
    axes.plot(one.x, one.mean, transform=moved, **_marker(index))


def _look(index: int) -> tuple[str, str, str]:
    """Return color, marker and dash of the n-th curve; the first 63 are all different."""
    return (
        SERIES[index % len(SERIES)][0],
        _MARKERS[index % len(_MARKERS)],
        _DASHES[index // len(SERIES) % len(_DASHES)],
    )


def _marker(index: int) -> dict[str, Any]:
    color, marker, _ = _look(index)
    return {
        "linestyle": "none",
        "marker": marker,
        "markersize": 6.5,
        "markerfacecolor": color,
        "markeredgecolor": PAPER[0],
        "markeredgewidth": 0.9,
    }


def _direct_labels(axes: Axes, series: Sequence[_Series], height: int) -> dict[str, str]:
    """Add names next to the ends of the curves, without overlaps; return them by text gid."""
    box = axes.bbox
    ends = [float(axes.transData.transform((one.x[-1], one.mean[-1]))[1]) for one in series]
    order = sorted(range(len(series)), key=lambda i: -ends[i])
    gap = min(_LABEL_GAP, (height - 40) / max(1, len(series) - 1))
    places = spread([ends[i] for i in order], gap=gap, low=float(box.y0), high=float(box.y1))
    texts = {}
    names = _short_names([one.label for one in series])
    for i, place in zip(order, places, strict=True):
        y = (place - box.y0) / box.height
        end = axes.transAxes.inverted().transform((0, ends[i]))[1]
        x = float(axes.transAxes.inverted().transform(axes.transData.transform((series[i].x[-1], 0)))[0])
        style: dict[str, Any] = {"transform": axes.transAxes, "clip_on": False}
        axes.plot([x, 1.02], [end, y], color=_look(i)[0], linewidth=0.8, alpha=0.6, **style)
        axes.plot([1.033], [y], **style, **_marker(i))
        axes.text(
            1.05,
            y,
            "-",
            gid=f"name-{i}",
            color=INK[0],
            va="center_baseline",
            parse_math=False,
            transform=axes.transAxes,
        )
        texts[f"name-{i}"] = names[i]
    return texts


def _short_names(labels: Sequence[str]) -> list[str]:
    """Cut labels to the available length: at the end, or in the middle if they would become equal."""
    cut = [shorten(label, _LABEL_LENGTH) for label in labels]
    half = _LABEL_LENGTH // 2
    return [
        f"{label[: half - 1]}…{label[-half:]}" if cut.count(short) > 1 and short != label else short
        for label, short in zip(labels, cut, strict=True)
    ]


def spread(places: Sequence[float], *, gap: float, low: float, high: float) -> list[float]:
    """Move descending positions in [``low``, ``high``] apart until neighbors differ by ``gap``."""
    moved: list[float] = []
    for place in places:
        ceiling = moved[-1] - gap if moved else high
        moved.append(min(place, ceiling))
    floor = low
    for i in reversed(range(len(moved))):
        moved[i] = max(moved[i], floor)
        floor = moved[i] + gap
    return moved


def _vector(values: object) -> Vector:
    return np.array([plottable(value) for value in sequence(values)], dtype=np.float64)


def _fitted(values: Vector, n: int) -> Vector:
    """Return the first ``n`` values, padded with NaN."""
    fitted = np.full(n, math.nan)
    fitted[: min(n, values.size)] = values[:n]
    return fitted


def _finite(first: object, second: object) -> tuple[Vector, Vector]:
    """Convert two lists to vectors of the positions where both are finite."""
    a, b = _vector(first), _vector(second)
    n = min(a.size, b.size)
    keep = np.isfinite(a[:n]) & np.isfinite(b[:n])
    return a[:n][keep], b[:n][keep]


def _padded(values: Vector, share: float) -> tuple[float, float]:
    """Return distinct axis limits with padding around the finite values."""
    values = values[np.isfinite(values)]
    low, high = float(values.min()), float(values.max())
    size = max(abs(low), abs(high))
    # Do not resolve differences at the level of rounding: all tick labels would be equal.
    pad = (high - low) * share if high - low > 1e-9 * size else 0.05 * size or 1.0
    return low - pad, high + pad


def _panel(width: int, height: int, *, left: int, right: int, top: int, bottom: int) -> tuple[Figure, Axes]:
    """Return a transparent figure with one set of axes; all sizes are in CSS pixels."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    figure = Figure(figsize=(width / 72, height / 72), dpi=72, frameon=False)
    area = (left / width, bottom / height, (width - left - right) / width, (height - top - bottom) / height)
    axes = figure.add_axes(area, facecolor="none")
    axes.set_axisbelow(True)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    axes.spines["bottom"].set_color(LINE[0])
    axes.grid(axis="y", color=GRID[0], linewidth=1)
    axes.tick_params(axis="y", length=0, labelcolor=INK[0], pad=5)
    axes.tick_params(axis="x", color=LINE[0], labelcolor=INK[0], length=4)
    axes.yaxis.set_major_locator(MaxNLocator(nbins=6, steps=[1, 2, 2.5, 5, 10], min_n_ticks=3))
    _plain_ticks(axes.yaxis, located=True)
    return figure, axes


def _plain_ticks(axis: Any, *, located: bool = False) -> None:
    """Set plain-text tick labels; the default ones may be mathtext."""
    from matplotlib.ticker import MaxNLocator, ScalarFormatter

    if not located:
        axis.set_major_locator(MaxNLocator(nbins=6, steps=[1, 2, 2.5, 5, 10]))
    formatter = ScalarFormatter(useOffset=False, useMathText=False, useLocale=False)
    formatter.set_powerlimits((-4, 5))
    axis.set_major_formatter(formatter)
    axis.offsetText.set_color(INK[0])
    axis.offsetText.set_fontsize(10)


def _log_x(axes: Axes, values: Vector) -> None:
    from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

    low, high = float(values.min()), float(values.max())
    pad = (high / low) ** 0.03 if high > low else 2.0
    axes.set_xscale("log")
    axes.set_xlim(low / pad, high * pad)
    axes.xaxis.set_minor_locator(NullLocator())
    # A range below two decades may contain only one power of ten, or none.
    subs = (1.0,) if high / low >= 100 else (1.0, 2.0, 5.0)
    axes.xaxis.set_major_locator(LogLocator(subs=subs, numticks=7))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))


def _spaced(axes: Axes, values: Vector) -> list[float]:
    """Return the values whose tick labels fit, giving priority to the largest."""
    places = axes.transData.transform(np.column_stack([values, np.zeros_like(values)]))[:, 0]
    kept: list[int] = []
    for i in reversed(range(values.size)):
        if not kept or places[kept[-1]] - places[i] >= 34:
            kept.append(i)
    return [float(values[i]) for i in reversed(kept)]


def _axis_names(axes: Axes, x_name: str, y_name: str) -> dict[str, str]:
    """Add the x name below the axis and the y name above the plot; return both by text gid."""
    from matplotlib.transforms import IdentityTransform

    box = axes.bbox
    style: dict[str, Any] = {"color": INK[0], "parse_math": False, "clip_on": False, "va": "bottom"}
    axes.text(box.x1, box.y0 - 40, "-", ha="right", gid="x-name", transform=IdentityTransform(), **style)
    axes.text(box.x0 - 46, box.y1 + 9, "-", ha="left", gid="y-name", transform=IdentityTransform(), **style)
    return {"x-name": x_name, "y-name": y_name}


def _svg(figure: Figure, *, prefix: str, description: str, texts: Mapping[str, str]) -> str:
    """Convert a figure to an ``<svg>`` element for an HTML page.

    Parameters
    ----------
    figure
        The figure to draw.
    prefix
        Prefix of every id that is kept.
    description
        Text for screen readers, also the tooltip.
    texts
        Replacement text by gid of the text artist.
    """
    from xml.etree import ElementTree as ET

    buffer = io.StringIO()
    nothing = dict.fromkeys(("Date", "Creator", "Format", "Type"))
    figure.savefig(buffer, format="svg", metadata=nothing, transparent=True)
    root = ET.fromstring(buffer.getvalue())
    for element in list(root.iter()):
        _tidy(element)
    for group in root.iter("g"):
        name = texts.get(group.get("id", ""))
        if name is not None:
            for text in group.iter("text"):
                text.text = clean(name)
    _rename_ids(root, prefix)
    title = ET.Element("title")
    title.text = clean(description)
    root.insert(0, title)
    width, height = root.get("viewBox", "0 0 1 1").split()[2:]
    view = root.get("viewBox", "")
    root.attrib.clear()
    root.attrib.update(
        {"viewBox": view, "width": width, "height": height, "role": "img", "aria-label": clean(description)}
    )
    return ET.tostring(root, encoding="unicode")


def _tidy(element: Element) -> None:
    """Drop namespaces (not needed), the style sheet (it would apply to the page), fonts and white space."""
    for child in list(element):
        if _local(child.tag) in ("metadata", "style"):
            element.remove(child)
    element.tag = _local(element.tag)
    for name, value in list(element.attrib.items()):
        del element.attrib[name]
        if name == "style":
            value = _FONT_FAMILY.sub("", value)
            value = _HEX.sub(lambda match: _variable(match.group()), value)
        elif name == "d":
            value = " ".join(value.split())
        elif name == "transform" and value.startswith("rotate(-0 "):
            continue
        element.set(_local(name), value)
    if element.text is not None and not element.text.strip():
        element.text = None
    if element.tail is not None and not element.tail.strip():
        element.tail = None


def _local(name: str) -> str:
    return name.rpartition("}")[2]


def _variable(color: str) -> str:
    name = _VARIABLE.get(color)
    return color if name is None else f"var(--{name}, {color})"


def _rename_ids(root: Element, prefix: str) -> None:
    """Add the prefix to the ids that are referenced, and drop all others."""
    used = set()
    for element in root.iter():
        for value in element.attrib.values():
            used.update(_REFERENCE.findall(value))
        if element.get("href", "").startswith("#"):
            used.add(element.get("href", "")[1:])
    for element in root.iter():
        for name, value in list(element.attrib.items()):
            if name == "id" and value not in used:
                del element.attrib["id"]
            elif name == "id":
                element.set(name, f"{prefix}-{value}")
            elif name == "href" and value.startswith("#"):
                element.set(name, f"#{prefix}-{value[1:]}")
            else:
                element.set(name, _REFERENCE.sub(rf"url(#{prefix}-\1)", value))


def critical_difference_diagram(
    ranks: object, labels: Sequence[str], *, groups: object, critical_difference: object, prefix: str
) -> str | None:
    """Plot average ranks on a line, with bars that join methods that do not differ.

    Parameters
    ----------
    ranks
        Average ranks, ascending.
    labels
        Names of the methods.
    groups
        First and last index in `ranks` of each group that a bar joins.
    critical_difference
        Length of the ruler above the line; None for no ruler.
    prefix
        Prefix of every id in the SVG, unique on the page.

    Returns
    -------
    str or None
        The ``<svg>`` element; ``None`` for fewer than two methods.
    """
    places, bars = _vector(ranks), [(int(first), int(last)) for first, last in sequence(groups)]
    if places.size < 2 or not np.isfinite(places).all():
        return None
    n_left, step = -(-places.size // 2), 20
    top, bars_height = 64, 12 * len(bars) + 10
    height = top + bars_height + step * n_left + 10
    with _drawing():
        figure, axes = _panel(680, height, left=200, right=200, top=top, bottom=0)
        size = height - top
        axes.set_xlim(1, places.size)
        axes.set_ylim(size, 0)
        axes.grid(visible=False)
        axes.yaxis.set_visible(False)
        axes.spines["bottom"].set_visible(False)
        axes.spines["top"].set_visible(True)
        axes.spines["top"].set_color(LINE[0])
        axes.xaxis.tick_top()
        _plain_ticks(axes.xaxis)
        axes.tick_params(axis="x", color=LINE[0], labelcolor=INK[0], length=4)
        texts = {}
        style: dict[str, Any] = {"color": LINE[0], "linewidth": 1.0, "clip_on": False}
        for i, place in enumerate(places):
            is_left = i < n_left
            y = bars_height + step * ((i if is_left else places.size - 1 - i) + 0.5)
            end = 1 - 0.03 * (places.size - 1) if is_left else places.size + 0.03 * (places.size - 1)
            axes.plot([place, place, end], [0, y, y], **style)
            axes.plot([place], [0], marker="o", markersize=5, color=SERIES[0][0], clip_on=False)
            side = "right" if is_left else "left"
            shift = -0.01 if is_left else 0.01
            text: dict[str, Any] = {"color": INK[0], "parse_math": False, "va": "center_baseline", "ha": side}
            axes.text(end + shift * (places.size - 1), y, "-", gid=f"name-{i}", **text)
            texts[f"name-{i}"] = f"{shorten(labels[i], _LABEL_LENGTH)} ({place:.2f})"
        for k, (first, last) in enumerate(bars):
            y, reach = 12 * k + 10, 0.005 * (places.size - 1)
            ends = [places[first] - reach, places[last] + reach]
            axes.plot(ends, [y, y], color=SERIES[1][0], linewidth=4, solid_capstyle="round", clip_on=False)
        _draw_critical_difference(axes, plottable(critical_difference), texts)
        named = ", ".join(f"{label} {place:.2f}" for label, place in zip(labels, places, strict=True))
        return _svg(figure, prefix=prefix, description=f"Average ranks: {named}", texts=texts)


def _draw_critical_difference(axes: Axes, width: float, texts: dict[str, str]) -> None:
    """Draw a ruler of the critical difference above the axis, at most as long as the axis."""
    first, last = axes.get_xlim()
    if not math.isfinite(width):
        return
    shown = min(width, last - first)
    axes.plot([first, first + shown], [-38, -38], color=INK[0], linewidth=1.5, clip_on=False, marker="|", markersize=7)
    style: dict[str, Any] = {"color": INK[0], "parse_math": False, "clip_on": False, "va": "bottom", "ha": "left"}
    axes.text(first, -44, "-", gid="critical", **style)
    more = "" if shown == width else " (longer than the axis)"
    texts["critical"] = f"critical difference {width:.2f}{more}"
