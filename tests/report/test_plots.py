"""The figures: what they draw, and that drawing leaves matplotlib as it was."""

from __future__ import annotations

import math
import subprocess
import sys
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import numpy as np
import pytest

from daskfs.errors import StoreError
from daskfs.report.model import Curve, CurvePanel, Image, SolutionReport
from daskfs.report.plots import (
    THEME,
    critical_difference_diagram,
    histogram,
    interval_curves,
    objective_curve,
    pixel_image,
    score_curve,
    spread,
    svg_of,
)
from daskfs.report.values import clean
from tests.report.example import HOSTILE_NAMES, full_summary

pytestmark = pytest.mark.figures

# So that a fresh interpreter finds the tests package.
ROOT = Path(__file__).parents[2]


def draw_curve(ranks: list[Any], scores: list[Any], *, log_rank: bool = False) -> str | None:
    curve = {"rank": ranks, "score": scores}
    return svg_of(score_curve(curve, label="m", direction="ascending", log_rank=log_rank), "p")


def draw_curves(facts: list[dict[str, Any]] | None, **more: Any) -> str | None:
    """Draw curves as a report reads them."""
    curves = CurvePanel.read({"curves": facts}, "the summary").curves
    return svg_of(interval_curves(curves, **{"y_name": "y", "what": "accuracy", **more}), "i")


def labels(svg: str | None) -> list[str]:
    assert svg is not None
    return [str(text.text) for text in ET.fromstring(svg).iter("text")]


def test_score_curve_scales() -> None:
    ranks = np.unique(np.geomspace(1, 5000, 200).astype(int)).tolist()
    scores = np.linspace(0, 1, len(ranks)).tolist()
    assert "1,000" in labels(draw_curve(ranks, scores, log_rank=True))
    assert "4000" in labels(draw_curve(ranks, scores))


@pytest.mark.parametrize("log_rank", [False, True])
@pytest.mark.parametrize("scores", [[1.0], [0.0, 0.0], [1.0, 1.0 + 1e-16], [1e-300, 2e-300], [-9e99, 9e99], [1e99]])
def test_score_curve_degenerate_ranges(scores: list[float], *, log_rank: bool) -> None:
    assert labels(draw_curve(list(range(1, len(scores) + 1)), scores, log_rank=log_rank))


def test_objective_curve_begins_where_the_one_before_ends() -> None:
    svg = svg_of(objective_curve([9.0, 5.0, 4.0], [3.5, 3.0], label="m"), "p")
    assert svg is not None
    assert "Objective by round of m, from 9 to 3" in svg
    assert svg.count("stroke-dasharray") >= 1
    assert {"round", "objective"} <= set(labels(svg))
    alone = svg_of(objective_curve([], [3.5, 3.0], label="m"), "p")
    assert alone is not None
    assert "stroke-dasharray" not in alone


@pytest.mark.parametrize("values", [[1.0], [5.0, 5.0], [1e-300, 2e-300], [math.nan, 2.0, 1.0], [1e99, -1e99]])
def test_objective_curve_degenerate_ranges(values: list[float]) -> None:
    assert labels(svg_of(objective_curve([], values, label="m"), "p"))
    assert labels(svg_of(objective_curve(values, [None], label="m"), "p"))


def test_objective_curve_without_finite_points() -> None:
    for values in ([], [math.nan], None, [None]):
        found = SolutionReport.read({"free_objective": values, "objective": values}, "the summary")
        assert objective_curve(found.free_objective, found.objective, label="m") is None
    with pytest.raises(StoreError, match=r"objective: Input should be a valid list"):
        SolutionReport.read({"objective": "text"}, "the summary")


def test_score_curve_without_finite_points() -> None:
    assert draw_curve([1, 2], [math.nan, None]) is None
    assert draw_curve([0, None], [1.0, 1.0]) is None
    assert draw_curve([], []) is None
    assert score_curve({}, label="m", direction=None, log_rank=True) is None


def test_histogram_needs_one_edge_more() -> None:
    def draw(edges: list[Any], counts: list[Any]) -> str | None:
        return svg_of(histogram({"edges": edges, "counts": counts}, name="n", x_name="x"), "h")

    assert "x" in labels(draw([0, 1, 2], [3, 4]))
    assert labels(draw([0, 1, 2], [math.nan, 0]))
    assert labels(draw([2.0, 2.0], [7]))
    assert draw([0, 1], [3, 4]) is None
    assert draw([0, math.inf, 2], [3, 4]) is None
    assert draw([2, 1, 0], [3, 4]) is None
    assert draw([], []) is None


def test_evaluation_labels_every_curve() -> None:
    curves = full_summary(10)["evaluation"]["settings"][0]["panels"][0]["curves"]
    svg = draw_curves(curves, y_name="accuracy (higher is better)")
    assert {curve["label"] for curve in curves} <= set(labels(svg))
    assert {"accuracy (higher is better)", "number of selected features"} <= set(labels(svg))


def test_evaluation_with_ragged_curves() -> None:
    curves = [
        {"label": "no std", "n_selected": [1, 2, 4], "mean": [0.1, 0.2, 0.3]},
        {"label": "unsorted", "n_selected": [4, 1], "mean": [0.5, 0.25], "std": [0.1], "low": [0.5]},
        {"label": "nothing", "n_selected": [1], "mean": [None]},
        {"label": "x" * 90, "n_selected": [3], "mean": [0.4], "std": [None], "low": [None], "high": ["x"]},
    ]
    found = labels(draw_curves(curves))
    assert {"no std", "unsorted", "x" * 25 + "…"} <= set(found)
    assert "nothing" not in found
    assert draw_curves([]) is None
    assert draw_curves(None) is None


def test_pixel_images_draw_runs_of_equal_levels() -> None:
    svg = pixel_image([[0, 0, 255], [-1, -2, 255]], description="a <b>")
    assert svg is not None
    root = ET.fromstring(svg)
    paths = {path.get("style"): path.get("d") for path in root.iter("path")}
    assert paths == {
        "fill: #000000": "M0 0h2v1h-2z",
        "fill: #ffffff": "M2 0h1v1h-1zM2 1h1v1h-1z",
        "fill: var(--series-1, #d55e00)": "M0 1h1v1h-1z",
    }
    assert root.get("aria-label") == "a <b>"
    assert (root.get("viewBox"), root.get("width"), root.get("height")) == ("0 0 3 2", "360", "240")
    for empty in list[Any]([[], [[]], None]):
        assert pixel_image(Image.read({"scores": empty}, "the summary").scores, description="") is None
    with pytest.raises(StoreError, match=r"scores: Input should be a valid list"):
        Image.read({"scores": "text"}, "the summary")
    odd = Image.read({"scores": [["x", None, 10**400]]}, "the summary").scores
    assert pixel_image(odd, description="") is not None


def test_labels_that_begin_alike_are_cut_in_the_middle() -> None:
    names = [f"SSelect trade_off=0.5 n_neighbors={k}" for k in (5, 10)]
    curves = [{"label": name, "n_selected": [1], "mean": [0.5]} for name in names]
    found = labels(draw_curves(curves))
    assert {"SSelect trad…n_neighbors=5", "SSelect trad…_neighbors=10"} <= set(found)


def test_interval_curves_name_their_ticks() -> None:
    curve: dict[str, Any] = {"label": "a", "n_selected": [1, 2, 3], "mean": [0.5, None, 0.75]}
    curve |= {"low": [0.4], "high": [0.6, 0.7]}

    def draw(**more: Any) -> str | None:
        return draw_curves([curve], x_name="trade_off", **more)

    named = draw(ticks=["0", "$auto$ <b>", "t" * 90])
    assert named is not None
    assert {"0", "$auto$ <b>", "t" * 13 + "…", "trade_off", "a"} <= set(labels(named))
    assert "<b>" not in named
    assert "accuracy by trade_off for a" in named
    assert {"1", "3"} <= set(labels(draw()))
    assert "0.0" in labels(draw(with_zero=True))
    assert "0.0" not in labels(draw())
    curve["high"] = [90.0]
    assert max(float(text) for text in labels(draw()) if text.replace(".", "").isdigit()) >= 50
    assert max(float(text) for text in labels(draw(cut_bars=True)) if text.replace(".", "").isdigit()) < 4
    many = labels(draw(ticks=[f"value {i}" for i in range(60)]))
    assert 3 < sum(text.startswith("value ") for text in many) < 12
    assert interval_curves([], x_name="x", y_name="y", what="w", ticks=[]) is None


STRANGE_NAMES = (
    *(name for name in HOSTILE_NAMES if len(name) < 60),
    r"\$ \frac $x^2$ %",
    "two\nlines\tand a tab",
    'id="a" #0072b2 xlink: --> ]]>',
    "עברית العربية हिन्दी",
    "\U0010ffff \u0378 e\u0301\u0301",
)


def test_names_are_text_in_any_script() -> None:
    for name in STRANGE_NAMES:
        curves = [Curve(label=name, n_selected=[1], mean=[0.5])]
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            named = svg_of(interval_curves(curves, x_name=name, y_name=f"y {name}", what=name, ticks=[name]), "i")
            ranked = critical_difference_diagram(
                [1.0, 2.0], [name[:20], "b"], groups=[], critical_difference=None, prefix="c"
            )
        text = clean(name).replace("\n", " ")
        assert not name or {text, f"y {text}"} <= set(labels(named)), name
        assert f"{text[:20]} (1.00)" in labels(ranked), name


def test_powers_of_ten_leave_room_for_names() -> None:
    svg = svg_of(histogram({"edges": [0, 1e6, 2e6], "counts": [1e7, 2e7]}, name="n", x_name="edge length"), "h")
    assert svg is not None
    places = {str(text.text): text for text in ET.fromstring(svg).iter("text")}
    assert float(places["1e7"].get("y", 0)) > 12
    assert float(places["1e6"].get("x", 0)) == 54
    assert float(places["edge length"].get("x", 0)) == 346
    svg = draw_curve([1, 2], [1e8, 2e8])
    assert svg is not None
    places = {str(text.text): text for text in ET.fromstring(svg).iter("text")}
    assert float(places["score (small is good)"].get("y", 0)) + 10 < float(places["1e8"].get("y", 0))


def test_colors_follow_the_theme() -> None:
    svg = draw_curve([1, 2, 3], [1.0, 2.0, 3.0])
    assert svg is not None
    for name in ("series-0", "plot-ink", "plot-grid", "plot-line"):
        assert f"var(--{name}, {THEME[name][0]})" in svg
    assert "font-family" not in svg
    assert "xmlns" not in svg


def test_ids_carry_the_prefix() -> None:
    svg = draw_curve([1, 2, 3], [1.0, 2.0, 3.0])
    assert svg is not None
    ids = [found for element in ET.fromstring(svg).iter() if (found := element.get("id")) is not None]
    assert ids
    assert all(name.startswith("p-") for name in ids)


def test_settings_neither_leak_nor_matter() -> None:
    import matplotlib as mpl

    expected = draw_curve([1, 2], [1.0, 2.0])
    changes: Any = {
        "lines.linewidth": 9.0,
        "font.size": 30,
        "svg.fonttype": "path",
        "axes.formatter.use_mathtext": True,
    }
    with mpl.rc_context(changes):
        before = dict(mpl.rcParams)
        assert draw_curve([1, 2], [1.0, 2.0]) == expected
        assert dict(mpl.rcParams) == before


@pytest.mark.cluster
def test_pyplot_is_not_imported() -> None:
    code = (
        "import sys; from tests.report.example import full_summary;"
        "from daskfs.report.render import render_report;"
        "render_report(full_summary(2, 2)); assert 'matplotlib.pyplot' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT)


def test_threads_draw_the_same() -> None:
    expected = draw_curve([1, 2, 9], [1.0, 2.0, 3.0])
    with ThreadPoolExecutor(4) as pool:
        drawn = list(pool.map(lambda _: draw_curve([1, 2, 9], [1.0, 2.0, 3.0]), range(12)))
    assert drawn == [expected] * 12


@pytest.mark.parametrize(
    ("places", "expected"),
    [
        ([], []),
        ([50.0], [50.0]),
        ([120.0], [100.0]),
        ([80.0, 20.0], [80.0, 20.0]),
        ([50.0, 50.0, 50.0], [50.0, 40.0, 30.0]),
        ([5.0, 5.0, 1.0], [20.0, 10.0, 0.0]),
    ],
)
def test_spread(places: list[float], expected: list[float]) -> None:
    assert spread(places, gap=10, low=0, high=100) == expected
