"""The page of a comparison: sound, safe with any text and number, and its picture of ranks."""

from __future__ import annotations

import re
from typing import Any

import pytest

from daskfs.report.plots import critical_difference_diagram
from daskfs.report.render import render_comparison
from tests.report.example import HOSTILE_NAMES
from tests.report.test_render import assert_sound

pytestmark = pytest.mark.figures


def summary(labels: tuple[str, ...] = ("A", "B", "C"), name: str = "set") -> dict[str, Any]:
    means = [{"method": label, "mean": 0.5 + i / 10, "rank": 3.0 - i} for i, label in enumerate(labels)]
    difference = {"labels": 5.0, "difference": 0.1, "low": 0.0, "high": 0.2, "p_value": 0.04, "n_pairs": 9}
    one: dict[str, Any] = {
        "name": name,
        "report": f"{name}/report.html",
        "n_samples": 60,
        "n_features": 6,
        "task": "classification",
        "model": "knn",
        "metric": "accuracy",
        "higher_is_better": True,
        "best": labels[-1],
        "means": means,
        "differences": [{**difference, "other": label} for label in labels[:-1]],
    }
    return {
        "title": f"title of {name}",
        "version": "0.1",
        "created": "2026-01-01T10:00:00+0000",
        "model": "knn",
        "setting": "inductive",
        "n_selected": None,
        "average_ranks": [{"method": label, "average_rank": 1.0 + i} for i, label in enumerate(labels)],
        "friedman": {"chi_square": 4.0, "p_chi_square": 0.13, "f": None, "p_f": 0.0},
        "critical_difference": 1.5,
        "alike": [[0, 1], [1, 2]],
        "data_sets": [one, {**one, "name": f"{name} 2", "report": None, "means": means[:2], "best": labels[1]}],
        "notes": [f"note of {name}"],
    }


def test_page() -> None:
    html = render_comparison(summary())
    page = assert_sound(html, ["set/report.html"])
    for text in ("infinite: all data sets", "0.1", "0 to 0.2", "note of set", "critical difference 1.50", "C (3.00)"):
        assert text in html
    assert len(page.named("svg")) == 1
    assert html == render_comparison(summary())


@pytest.mark.parametrize("name", HOSTILE_NAMES)
def test_hostile_text(name: str) -> None:
    found = summary((name, "plain", f"{name} again"), name)
    page = assert_sound(render_comparison(found), {f"{name}/report.html", *links_of(found)})
    assert "plain" in page.text


def links_of(found: dict[str, Any]) -> set[str]:
    """Return the links of the page as a parser reads them."""
    return {link for link in re.findall(r'href="([^"#]*)"', render_comparison(found)) if "report.html" in link}


@pytest.mark.parametrize(
    "change",
    [
        {"average_ranks": [], "alike": [], "critical_difference": None, "friedman": None},
        {"average_ranks": [{"method": "A", "average_rank": 1.0}], "friedman": None, "critical_difference": None},
        {"data_sets": []},
        {"critical_difference": float("nan"), "friedman": {"chi_square": float("nan")}},
        {"critical_difference": 99.0},
        {"setting": None, "title": None, "created": None, "notes": None},
    ],
)
def test_parts_that_are_missing(change: dict[str, Any]) -> None:
    assert_sound(render_comparison({**summary(), **change}), ["set/report.html"])


class TestDiagram:
    def draw(self, ranks: list[Any], groups: list[Any], difference: Any = 1.0) -> str | None:
        labels = [f"m{i}" for i in range(len(ranks))]
        return critical_difference_diagram(ranks, labels, groups=groups, critical_difference=difference, prefix="x-")

    def test_names_every_method_with_its_rank(self) -> None:
        svg = self.draw([1.5, 2.0, 2.5, 4.0], [[0, 2]])
        assert svg is not None
        for i, rank in enumerate(("1.50", "2.00", "2.50", "4.00")):
            assert f"m{i} ({rank})" in svg

    def test_of_fewer_than_two_methods_there_is_none(self) -> None:
        assert self.draw([], []) is None
        assert self.draw([1.0], []) is None
        assert self.draw([1.0, float("nan")], []) is None

    def test_a_difference_longer_than_the_axis_is_said_to_be(self) -> None:
        assert "(longer than the axis)" in str(self.draw([1.0, 2.0], [], 2.5))
        assert "critical difference" not in str(self.draw([1.0, 2.0], [], None))
