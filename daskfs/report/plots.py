"""Figures of the report as inline SVG.

Matplotlib draws the geometry and the tick labels; text that comes from data is put into the finished SVG
instead. It is thus never measured, never parsed as mathtext and never asks for a glyph that the bundled font
lacks. The colors drawn here are those of the light theme; in the SVG they become CSS variables, so that the
page can restyle the plots.
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

# Okabe and Ito's color-blind-safe hues, darkened (light page) or lightened (dark page) to 3:1 contrast.
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

# The SVG back end reads matplotlib's process-wide rcParams, which are put back after each figure.
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
    """Score against rank for one method.

    Parameters
    ----------
    curve
        ``rank`` and ``score``, lists of equal length. Points that are not finite are left out.
    prefix
        Starts every id in the SVG; unique on the page.
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
    """Objective against round for one method, on from where what it began with came to.

    Parameters
    ----------
    before
        Objective of what the method began with, by round; drawn dashed. The first of `values` stands above its last.
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
    """Bars for ``edges`` (one more than bars) and ``counts``; ``None`` when they do not make a histogram."""
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


@dataclass(frozen=True)
class _Series:
    """One method's evaluation by number of features: mean, standard deviation, worst and best fold."""

    label: str
    x: Vector
    mean: Vector
    std: Vector
    low: Vector
    high: Vector

    @classmethod
    def read(cls, curve: Mapping[str, Any]) -> _Series | None:
        """Take what is finite from a curve of the summary; ``None`` when nothing is."""
        x, mean = _vector(curve.get("n_selected")), _vector(curve.get("mean"))
        n = min(x.size, mean.size)
        std = np.nan_to_num(_fitted(_vector(curve.get("std")), n))
        folds = [_vector(values) for values in sequence(curve.get("values"))]
        finite = [values[np.isfinite(values)] for values in folds]
        low = _fitted(np.array([values.min() if values.size else math.nan for values in finite]), n)
        high = _fitted(np.array([values.max() if values.size else math.nan for values in finite]), n)
        x, mean = x[:n], mean[:n]
        order = np.argsort(x, kind="stable")
        order = order[(np.isfinite(x) & np.isfinite(mean) & (x > 0))[order]]
        if not order.size:
            return None
        return cls(str(curve.get("label") or "?"), x[order], mean[order], std[order], low[order], high[order])


def evaluation_curves(curves: object, *, prefix: str, metric: str, higher_is_better: bool) -> str | None:
    """All methods' quality by number of selected features, with bands of one standard deviation.

    Thin bars span the folds. The curves are shifted sideways by a point or two each, so that the bars stay
    apart.
    """
    series = [found for curve in mappings(curves) if (found := _Series.read(curve)) is not None]
    if not series:
        return None
    with _drawing():
        height = max(360, 17 * len(series) + 80)
        figure, axes = _panel(800, height, left=54, right=204, top=28, bottom=42)
        x = np.unique(np.concatenate([one.x for one in series]))
        if x[-1] / x[0] >= 10:
            _log_x(axes, x)
        else:
            axes.set_xlim(*_padded(x, 0.03))
        axes.set_xticks(_spaced(axes, x))
        _plain_ticks(axes.xaxis, located=True)
        spans = [one.mean + sign * one.std for one in series for sign in (-1, 1)]
        extremes = [part for one in series for part in (one.low, one.high)]
        axes.set_ylim(*_padded(np.concatenate(spans + extremes), 0.04))
        step = 2.2 if len(series) <= 6 else 12.0 / len(series)
        for i, one in enumerate(series):
            _draw_series(axes, one, i, (i - (len(series) - 1) / 2) * step, band=0.13 if len(series) <= 4 else 0.07)
        texts = _direct_labels(axes, series, height)
        better = "higher" if higher_is_better else "lower"
        texts |= _axis_names(axes, "number of selected features", f"{metric} ({better} is better)")
        names = ", ".join(one.label for one in series)
        text = f"{metric} by number of selected features for {names}"
        return _svg(figure, prefix=prefix, description=text, texts=texts)


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
    """Color, marker and dash of the n-th curve; no pair of the first 63 looks the same."""
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
    """Write the methods' names beside the ends of their curves, pushed apart where they would overlap."""
    box = axes.bbox
    ends = [float(axes.transData.transform((one.x[-1], one.mean[-1]))[1]) for one in series]
    order = sorted(range(len(series)), key=lambda i: -ends[i])
    gap = min(_LABEL_GAP, (height - 40) / max(1, len(series) - 1))
    places = spread([ends[i] for i in order], gap=gap, low=float(box.y0), high=float(box.y1))
    texts = {}
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
        texts[f"name-{i}"] = shorten(series[i].label, _LABEL_LENGTH)
    return texts


def spread(places: Sequence[float], *, gap: float, low: float, high: float) -> list[float]:
    """Push descending positions between ``low`` and ``high`` apart until neighbors differ by ``gap``."""
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
    """The first ``n`` values, NaN where there are fewer."""
    fitted = np.full(n, math.nan)
    fitted[: min(n, values.size)] = values[:n]
    return fitted


def _finite(first: object, second: object) -> tuple[Vector, Vector]:
    """Two lists as vectors of the positions where both are finite."""
    a, b = _vector(first), _vector(second)
    n = min(a.size, b.size)
    keep = np.isfinite(a[:n]) & np.isfinite(b[:n])
    return a[:n][keep], b[:n][keep]


def _padded(values: Vector, share: float) -> tuple[float, float]:
    """Axis limits with some air around the finite values, never empty."""
    values = values[np.isfinite(values)]
    low, high = float(values.min()), float(values.max())
    size = max(abs(low), abs(high))
    # Differences at the level of rounding are not worth an axis: its ticks would all read the same.
    pad = (high - low) * share if high - low > 1e-9 * size else 0.05 * size or 1.0
    return low - pad, high + pad


def _panel(width: int, height: int, *, left: int, right: int, top: int, bottom: int) -> tuple[Figure, Axes]:
    """A transparent figure with one set of axes; all sizes in CSS pixels."""
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
    """Tick labels in plain text. The default ones may be mathtext."""
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
    # Less than a decade has no power of ten inside.
    subs = (1.0,) if high / low >= 100 else (1.0, 2.0, 5.0)
    axes.xaxis.set_major_locator(LogLocator(subs=subs, numticks=7))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))


def _spaced(axes: Axes, values: Vector) -> list[float]:
    """Those of the values whose tick labels have room, the largest first."""
    places = axes.transData.transform(np.column_stack([values, np.zeros_like(values)]))[:, 0]
    kept: list[int] = []
    for i in reversed(range(values.size)):
        if not kept or places[kept[-1]] - places[i] >= 34:
            kept.append(i)
    return [float(values[i]) for i in reversed(kept)]


def _axis_names(axes: Axes, x_name: str, y_name: str) -> dict[str, str]:
    """Room for the x name below the axis and the y name above the plot; returns both by text gid."""
    from matplotlib.transforms import IdentityTransform

    box = axes.bbox
    style: dict[str, Any] = {"color": INK[0], "parse_math": False, "clip_on": False, "va": "bottom"}
    axes.text(box.x1, box.y0 - 40, "-", ha="right", gid="x-name", transform=IdentityTransform(), **style)
    axes.text(box.x0 - 46, box.y1 + 9, "-", ha="left", gid="y-name", transform=IdentityTransform(), **style)
    return {"x-name": x_name, "y-name": y_name}


def _svg(figure: Figure, *, prefix: str, description: str, texts: Mapping[str, str]) -> str:
    """The figure as an ``<svg>`` element for an HTML page.

    Parameters
    ----------
    figure
        What to draw.
    prefix
        Starts every id that stays.
    description
        What a screen reader says; also the tooltip.
    texts
        By the gid of a text artist, the text that goes in its place.
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
    """Drop namespaces (HTML knows SVG), the style sheet (it would apply to the page), fonts, white space."""
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
    """Keep the ids that something refers to and put the prefix before them."""
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
