"""The report as a page: well-formed, self-contained, reproducible, safe with any text and any number."""

from __future__ import annotations

import copy
import json
import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Collection
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from daskfs.errors import StoreError
from daskfs.report.model import GraphReport
from daskfs.report.render import render_report
from daskfs.report.summary import graph_warnings
from daskfs.report.values import DASH, TIMES_SIGN
from tests.conftest import FIGURES
from tests.report.example import HOSTILE_NAMES, evaluation_of_draws, full_summary

pytestmark = pytest.mark.figures

# So that a fresh interpreter finds the tests package.
ROOT = Path(__file__).parents[2]
VOID = {"meta", "link", "br", "hr", "img", "input", "source", "col", "wbr", "base", "area", "embed", "track"}
LOADING = {"src", "srcset", "href", "xlink:href", "data", "action", "poster", "background"}
FORBIDDEN = {"script", "link", "iframe", "img", "object", "embed", "base", "form", "foreignobject", "image"}


class Page(HTMLParser):
    """What the tests need to know of a page; fails on tags that do not match."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[tuple[str, str]] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert len(attrs) == len({name for name, _ in attrs}), f"an attribute twice in {tag}"
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert "svg" in self.open, f"{tag} closes itself outside of SVG"
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open, f"{tag} closes nothing"
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append((self.open[-1] if self.open else "", data))

    def named(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.elements if name == tag]

    def values(self, attribute: str) -> list[str]:
        return [str(found[attribute]) for _, found in self.elements if attribute in found]

    @property
    def text(self) -> str:
        return " ".join("".join(data for tag, data in self.texts if tag != "style").split())


def assert_sound(html: str, links: Collection[str] = ()) -> Page:
    """Check all that holds for every report, and return the parsed page; `links` are files that it may lead to."""
    page = Page(html)
    ids = page.values("id")
    assert [name for name, count in Counter(ids).items() if count > 1] == []
    assert {tag for tag, _ in page.elements}.isdisjoint(FORBIDDEN)
    for tag, attributes in page.elements:
        assert not [name for name in attributes if name.startswith("on")], tag
        for name in LOADING & set(attributes):
            target = str(attributes[name])
            if name == "href" and target in links:
                continue
            assert target.startswith("#"), (tag, name, target)
            assert target[1:] in ids
    styles = [data for tag, data in page.texts if tag == "style"] + page.values("style")
    for style in styles:
        assert "@import" not in style
        assert "url(" not in style
    for value in page.values("clip-path"):
        match = re.fullmatch(r"url\(#([^)]+)\)", value)
        assert match is not None
        assert match.group(1) in ids
    for label in page.values("aria-labelledby"):
        assert label in ids
    tags = Counter(tag for tag, _ in page.elements)
    assert tags["table"] == tags["caption"]
    assert all(found.get("scope") in ("row", "col") for found in page.named("th"))
    assert all(found.get("role") == "img" and found.get("aria-label") for found in page.named("svg"))
    html.encode("utf-8")
    return page


@pytest.fixture(scope="module")
def summary() -> dict[str, Any]:
    return full_summary()


@pytest.fixture(scope="module")
def html(summary: dict[str, Any]) -> str:
    return render_report(summary)


def test_full_summary(html: str) -> None:
    page = assert_sound(html)
    assert html.startswith("<!DOCTYPE html>")
    # Four score curves, one objective, two images, one evaluation, two histograms.
    assert len(page.named("svg")) == 10
    for text in (
        f"70,000 {TIMES_SIGN} 4,096",
        "laplacian",
        "pixel_",
        "1.07 GiB",
        "Run time3 min 01 s",
        "Kononenko (1994)",
        "n_neighbors: 10",
        "Row weights0 to 2.500; 69,500 rows count for 81,250",
    ):
        assert text in page.text
    assert "This evaluation is transductive." in page.text
    assert "redundant with pixel_30_00 (0.97)" in page.text
    assert "Of one group3 at most" in page.text
    assert "neighbors peaked at 858 MiB where 811 MiB were planned" in page.text


def test_no_address_outside_of_text(html: str) -> None:
    assert "http://" not in html
    assert "https://" not in html
    assert "default-src 'none'" in html


def test_nothing_is_changed(summary: dict[str, Any]) -> None:
    before = copy.deepcopy(summary)
    render_report(summary)
    assert summary == before


@pytest.mark.parametrize(
    "minimal",
    [
        {},
        {"title": "Nothing"},
        dict.fromkeys(full_summary(1, 1)),
        {
            "methods": [{}],
            "graphs": [{}],
            "stages": [{}],
            "excluded": {},
            "evaluation": {"settings": [{"panels": [{"curves": [{}]}]}]},
        },
        {
            "graphs": [{"weightings": [{}]}],
            "excluded": {"rows": [{}]},
            "data": {"classes": {}},
        },
        {
            "agreement": {"labels": ["a", "b"], "jaccard": [[1.0]]},
            "evaluation": {"settings": [{}], "gap": [{}], "cost": {"stages": [{}]}},
        },
    ],
)
def test_minimal_summaries(minimal: dict[str, Any]) -> None:
    page = assert_sound(render_report(minimal))
    assert "None" not in page.text
    assert "Undefined" not in page.text


@pytest.mark.parametrize(
    ("damaged", "where"),
    [
        ({"methods": [None]}, "methods.0"),
        ({"methods": "no list"}, "methods"),
        ({"data": 3}, "data"),
        ({"job": []}, "job"),
        ({"versions": 0}, "versions"),
        ({"stages": {"a": 1}}, "stages"),
        ({"graphs": [{"weightings": [{"used_by": 3}]}]}, "graphs.0.weightings.0.used_by"),
        ({"evaluation": {"gap": [{"rows": ["text"]}]}}, "evaluation.gap.0.rows.0"),
        ({"evaluation": {"settings": [{"panels": [{"curves": 3}]}]}}, "evaluation.settings.0.panels.0.curves"),
    ],
)
def test_a_part_of_another_type_is_named(damaged: dict[str, Any], where: str) -> None:
    with pytest.raises(StoreError, match=f"the summary is damaged: {where}: Input should be"):
        render_report(damaged)


def test_absent_parts_are_said() -> None:
    text = assert_sound(render_report({"title": "Nothing", "data": None})).text
    assert "The rankings were not evaluated with a model." in text
    assert "No method of this run used a neighbor graph." in text
    assert "The run has not ranked the features by any method." in text
    assert "Agreement" not in text
    assert "transductive" not in text


def test_same_bytes(summary: dict[str, Any], html: str) -> None:
    FIGURES.clear()
    assert render_report(copy.deepcopy(summary)) == html
    assert render_report(json.loads(json.dumps(summary))) == html


@pytest.mark.cluster
def test_same_bytes_in_another_process(html: str, pytestconfig: pytest.Config) -> None:
    """It warns of nothing where warnings of libraries are errors, but for what this process was told to pass over."""
    code = (
        "import sys; from tests.report.example import full_summary;"
        "from daskfs.report.render import render_report;"
        "sys.stdout.buffer.write(render_report(full_summary()).encode())"
    )
    told = (os.environ.get("DASKFS_WARNINGS", "default"), *(pytestconfig.getoption("pythonwarnings") or ()))
    filters = [f"-W{action}" for action in told]
    done = subprocess.run([sys.executable, *filters, "-c", code], capture_output=True, check=True, cwd=ROOT)
    assert done.stdout.decode() == html


@pytest.mark.cluster
def test_heavy_imports_are_deferred() -> None:
    code = (
        "import sys; import daskfs.report.render;"
        "print([name for name in ('matplotlib', 'jinja2', 'yaml') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True, cwd=ROOT)
    assert done.stdout.strip() == "[]"


def hostile_summary(name: str) -> dict[str, Any]:
    """A summary with the name in every place where text can stand."""

    def replaced(value: Any, key: str = "") -> Any:
        if isinstance(value, dict):
            out = {inner: replaced(item, inner) for inner, item in value.items()}
            if key in ("classes", "parameters", "versions", "job"):
                out[name] = 3
            return out
        if isinstance(value, list):
            return [replaced(item, key) for item in value]
        # Words that choose a branch stay, so that all branches run.
        if isinstance(value, str) and key not in ("direction", "setting", "engine", "created"):
            return name
        return value

    out: dict[str, Any] = replaced(full_summary(4, 3))
    out["graphs"][0]["recall"]["value"] = 0.5
    out["graphs"][0]["weightings"][0]["n_underflow"] = 2
    return out


IN_FULL = ("<script>alert(1)</script>", r"$\frac{1}{2$", "{{ 7 * 7 }}{% raw %}", "a very long name " * 40)


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=() if name in IN_FULL else pytest.mark.long) for name in HOSTILE_NAMES],
    ids=range(len(HOSTILE_NAMES)),
)
def test_hostile_text_everywhere(name: str) -> None:
    html = render_report(hostile_summary(name))
    page = assert_sound(html)
    if name in IN_FULL:
        # In titles and cells, in full; the evaluation's labels are cut.
        assert name in page.values("title")
        assert any(name == data for _, data in page.texts)
    if "<" in name or '"' in name:
        assert name not in html


def test_hostile_text_reaches_the_figures_unparsed() -> None:
    svgs = render_report(hostile_summary("$x_1$ <b>")).split("<svg")[1:]
    texts = [svg.split("</svg>")[0] for svg in svgs]
    assert sum(text.count("$x_1$ &lt;b&gt;</text>") for text in texts) == 4
    assert not any("<b>" in text for text in texts)


def test_hostile_created_and_branch_words() -> None:
    name = '"><script>alert(1)</script>'
    summary = full_summary(2, 2)
    summary["created"] = name
    summary["methods"][0]["direction"] = name
    summary["evaluation"]["settings"][0]["setting"] = name
    summary["graphs"][0]["engine"] = name
    html = render_report(summary)
    assert_sound(html)
    assert "<script" not in html


def test_text_that_cannot_be_written() -> None:
    html = render_report({"title": "a\x00b\x1bc\ud800d\u202ee"})
    assert "a\ufffdb\ufffdc\ufffdd\ufffde" in html
    assert assert_sound(html)


def test_empty_names_are_worded() -> None:
    summary = full_summary(1, 2)
    summary["methods"][0]["top"][0]["name"] = ""
    summary["methods"][0]["top"][1]["name"] = None
    # Twice among the first features, twice in the table.
    assert render_report(summary).count("(no name)") == 4


def test_low_recall_warns() -> None:
    summary = full_summary()
    summary["graphs"][0]["recall"]["value"] = 0.5
    summary["warnings"] = [one.to_json() for one in graph_warnings([GraphReport.model_validate(summary["graphs"][0])])]
    text = assert_sound(render_report(summary)).text
    assert "the search found 50.0% of the true neighbors" in text
    assert "raise graph.n_neighbors" in text
    assert "set graph.engine to exact" in text


@pytest.mark.parametrize("recall", [{"value": 0.99, "n_rows": 10, "k": 5}, {"value": None}, None])
def test_other_recall_does_not_warn(recall: dict[str, Any] | None) -> None:
    summary = full_summary()
    summary["graphs"][0]["recall"] = recall
    summary["warnings"] = []
    html = render_report(summary)
    assert 'class="notice"' not in html
    assert 'id="notices"' not in html


def test_exact_graph_has_recall_one() -> None:
    summary = full_summary()
    summary["graphs"][0] |= {"engine": "exact", "recall": None}
    assert "1 (exact search)" in render_report(summary)


def test_isolated_nodes_and_underflow_warn() -> None:
    summary = full_summary()
    graph = summary["graphs"][0]
    graph["n_isolated"] = 12
    graph["weightings"][0] |= {"n_underflow": 34, "n_isolated": 56}
    # No more than the graph itself isolates: said once.
    graph["weightings"][1] |= {"n_isolated": 12}
    found = graph_warnings([GraphReport.model_validate(graph)])
    assert [(one.kind, one.level) for one in found] == [("isolated rows", "limits"), ("weights of 0", "changes")]
    summary["warnings"] += [one.to_json() for one in found]
    html = render_report(summary)
    text = assert_sound(html).text
    assert all(f"{one}." in text for one in found)
    # Each one among the notices and at the graph; the run's own warning once.
    assert html.count('class="notice"') == 5


def test_eliminations() -> None:
    summary = full_summary()
    page = assert_sound(render_report(summary))
    for text in (
        "Orderfeatures that stay long are good",
        "Routeexact: machines trained with all labeled rows",
        "Rows of the kernel12,345",
        "Rounds80",
        "R\N{SUPERSCRIPT TWO}bounded from below by the variance",
        "Some of the rounds, and features left; support vectors, share of alphas at C, duality gap",
        "RoundLeftSupportAt CGap 14,0961,200 0 % 3.200e\N{MINUS SIGN}10",
        "801461,279 100 % 3.200e\N{MINUS SIGN}10",
        "scores of different rounds do not compare",
    ):
        assert text in page.text, text
    elimination = summary["methods"][3]["elimination"]
    for seen in elimination["rounds"]:
        for key in ("n_support", "bound_share", "gap", "radius"):
            del seen[key]
    elimination |= {"route": "landmarks", "n_landmarks": 200, "n_rows": None, "rounds": elimination["rounds"][:3]}
    page = assert_sound(render_report(summary))
    for text in (
        "Routelandmarks: sums over all rows in every round",
        "Landmarks200",
        "Rounds, and features left RoundLeft 14,096 24,046 33,996",
    ):
        assert text in page.text, text
    assert "support vectors" not in page.text
    assert "Rows of the kernel" not in page.text
    summary["methods"][3]["elimination"] = {"route": "other", "rounds": None}
    assert "Route" + DASH in assert_sound(render_report(summary)).text


def test_solutions() -> None:
    summary = full_summary()
    page = assert_sound(render_report(summary))
    for text in (
        "Updates of targets40, settled; 60 of RLSR before",
        "Rounds of the loop103",
        "Systems solved byX'X as a matrix (Cholesky)",
        "Features of a score above 0317",
        "KKT residual of these3.100e\N{MINUS SIGN}07",
        "KKT value of others (1 at most)0.912",
        "eta, of the paper2,000,000",
        "eta used125,000",
        "Distance correlationsfeature map, 8 components at most",
        "Rows for these100,000",
        "Error of an entry, at most0.0123",
        "Sampling error, about0.00506",
        "eta was halved 4 times, from 2,000,000 to 125,000: with more, the weights left the basin of RLSR's solution",
        "3,708in 103 rounds",
    ):
        assert text in page.text, text
    solution = summary["methods"][2]["solution"]
    for key in ("free_objective", "eta", "eta_used", "halvings", "correlation", "eta_reference"):
        del solution[key]
    solution |= {"converged": False, "solver": "woodbury", "kkt_inactive": None}
    page = assert_sound(render_report(summary))
    assert "Updates of targets40, stopped before they settled" in page.text
    assert "KKT value of others (1 at most)" + DASH in page.text
    assert "halved" not in page.text
    assert "Dashed: the objective" not in page.text
    summary["methods"][2]["solution"] = None
    assert "Updates of targets" not in assert_sound(render_report(summary)).text


@pytest.mark.parametrize("key", ["objective", "free_objective", "n_iter", "halvings", "correlation", "solver", "eta"])
def test_solutions_of_which_a_part_is_missing(key: str) -> None:
    summary = full_summary()
    del summary["methods"][2]["solution"][key]
    assert_sound(render_report(summary))


@pytest.mark.parametrize(("halvings", "words"), [(1, "halved once, from"), (0, None), (None, None)])
def test_guard(halvings: int | None, words: str | None) -> None:
    summary = full_summary()
    summary["methods"][2]["solution"]["halvings"] = halvings
    text = assert_sound(render_report(summary)).text
    assert ("eta was halved" in text) == (words is not None)
    assert words is None or words in text


def test_trade_offs() -> None:
    summary = full_summary()
    curve = summary["methods"][1]["trade_off"]
    html = render_report(summary)
    text = assert_sound(html).text
    assert "Trade-off 0.3 was chosen: on its first 50 features, a sample of 1,000 rows has the lowest cut value" in text
    (table,) = (part for part in html.split("<table") if "Of the full kernel" in part)
    rows = table.split("</table>")[0].split("<tr>")[2:]
    assert len(rows) == 11
    assert DASH in rows[0]
    assert [place for place, row in enumerate(rows) if 'class="n best"' in row] == [3]
    for place, row in enumerate(rows):
        assert f"{curve['trade_off'][place]:g}<" in row
        assert f"{curve['n_distinct'][place]}<" in row
    curve["chosen"] = None
    assert "best" not in render_report(summary).split("Of the full kernel")[1].split("</table>")[0]
    summary["methods"][1]["trade_off"] = None
    assert "Of the full kernel" not in render_report(summary)


@pytest.mark.parametrize("key", ["trade_off", "cut_value", "n_components", "largest_component", "n_distinct"])
def test_trade_offs_of_which_a_part_is_missing(key: str) -> None:
    summary = full_summary()
    del summary["methods"][1]["trade_off"][key]
    assert assert_sound(render_report(summary)).text.count("Trade-off 0.3 was chosen") == 1


def test_graph_ids_differ() -> None:
    summary = full_summary()
    summary["graphs"] = [copy.deepcopy(summary["graphs"][0]) for _ in range(3)]
    summary["methods"] = [copy.deepcopy(summary["methods"][0]) for _ in range(3)]
    assert_sound(render_report(summary))


BAD_NUMBERS = (
    float("nan"),
    float("inf"),
    float("-inf"),
    None,
    1e308,
    -1e308,
    5e-324,
    10**400,
    "NaN",
    "text",
    True,
)


@pytest.mark.parametrize("bad", BAD_NUMBERS, ids=[str(bad)[:9] for bad in BAD_NUMBERS])
def test_bad_numbers_everywhere(bad: object) -> None:
    def replaced(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: replaced(item) for key, item in value.items()}
        if isinstance(value, list):
            return [replaced(item) for item in value]
        return bad if isinstance(value, int | float) and not isinstance(value, bool) else value

    assert_sound(render_report(replaced(full_summary(2, 3))))


@pytest.mark.parametrize("bad", BAD_NUMBERS, ids=[str(bad)[:9] for bad in BAD_NUMBERS])
def test_bad_numbers_here_and_there(bad: object) -> None:
    def replaced(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: replaced(item) for key, item in value.items()}
        if isinstance(value, list) and value and isinstance(value[0], int | float):
            return [bad if i % 3 == 1 else item for i, item in enumerate(value)]
        if isinstance(value, list):
            return [replaced(item) for item in value]
        return value

    page = assert_sound(render_report(replaced(full_summary(2, 3))))
    assert len(page.named("svg")) >= 3


def test_nan_scores_have_no_bar() -> None:
    summary = full_summary(1, 4)
    for row, score in zip(summary["methods"][0]["top"], [float("nan"), float("inf"), None, 2.5], strict=True):
        row["values"][0] = score
    summary["methods"][0]["curve"]["score"][-1] = 3.0
    html = render_report(summary)
    table = html[html.index('aria-label="Top features of laplacian"') :].split("</table>")[0]
    assert table.count('class="bar"') == 1
    for text in ("NaN", "∞", DASH, "2.500"):
        assert f'<span class="v">{text}</span>' in table


def test_bars_are_long_where_scores_are_good() -> None:
    """Of small ones from the score of the last rank, of large ones from zero."""
    for number, name in enumerate(("laplacian", "fisher")):
        summary = full_summary(2, 4)
        method = summary["methods"][number]
        method["direction"], method["curve"]["score"][-1] = ("descending", 0.0) if number else ("ascending", 0.8)
        scores = [8.0, 4.0, 2.0, 0.0] if number else [0.0, 0.2, 0.4, 0.8]
        for row, score in zip(method["top"], scores, strict=True):
            row["values"][0] = score
        method["label"] = name
        html = render_report(summary)
        table = html[html.index(f'aria-label="Top features of {name}"') :].split("</table>")[0]
        lengths = [float(text) for text in re.findall(r'class="bar" style="left:[^;]*;width:([0-9.]+)%', table)]
        assert lengths == sorted(lengths, reverse=True)
        assert (lengths[0], lengths[-1]) == (100, 0)


def test_whole_numbers_are_shown_as_such_and_columns_explained() -> None:
    summary = full_summary(1, 3)
    method = summary["methods"][0]
    method["columns"] = ["score", "n_rankings", "mean_rank"]
    for row, values in zip(method["top"], ([1.0, 3.0, 1.0], [1.5, 3.0, 2.5], [2.0, float("nan"), 3.0]), strict=True):
        row["values"] = values
    html = render_report(summary)
    table = html[html.index("Top features of") :].split("</table>")[0]
    cells = re.findall(r'<span class="v">([^<]*)</span>', table)
    assert cells == ["1.000", "3", "1.000", "1.500", "3", "2.500", "2.000", "NaN", "3.000"]
    assert "<b>n_rankings</b>: rankings that have the feature; <b>mean_rank</b>: mean of the ranks." in html


def test_columns_that_do_not_apply_are_left_out() -> None:
    """Such as p-values where nothing was tested; the score itself stays."""
    summary = full_summary(1, 3)
    method = summary["methods"][0]
    method["columns"] = ["score", "pvalue", "n_rankings"]
    for row in method["top"]:
        row["values"] = [float("nan"), float("nan"), 3.0]
    html = render_report(summary)
    table = html[html.index("Top features of") :].split("</table>")[0]
    assert re.findall(r'<span class="v">([^<]*)</span>', table) == ["NaN", "3"] * 3
    assert "pvalue" not in table


def test_headings_break_between_words_and_long_tables_say_that_they_scroll() -> None:
    summary = full_summary()
    summary["agreement"]["labels"][0] = "SemiSupervisedLaplacianScore"
    html = render_report(summary)
    assert "Semi<wbr>Supervised<wbr>Laplacian<wbr>Score</span>" in html
    for box in html.split('<div class="scroll')[1:]:
        kind, rest = box.split('"', 1)
        rows, after = rest.split("</table>")[0].count("<tr>") - 1, rest.split("</div>", 1)[1][:200]
        assert "whole" in kind or rows <= 13 or f"{rows} rows; scroll the table" in after


def test_the_method_of_the_verdict_is_unfolded() -> None:
    summary = full_summary()
    found = [tag for tag in re.findall(r"<details[^>]*>", render_report(summary)) if "method" in tag]
    assert [" open" in tag for tag in found] == [True, False, False, False]
    summary["verdict"] = {"method": summary["methods"][2]["label"], "n_selected": 5, "metric": "accuracy", "score": 0.9}
    found = [tag for tag in re.findall(r"<details[^>]*>", render_report(summary)) if "method" in tag]
    assert [" open" in tag for tag in found] == [False, False, True, False]
    assert [tag for tag in re.findall(r"<details[^>]*>", render_report(full_summary(2))) if "method" in tag] == [
        '<details class="method" open>'
    ] * 2


def test_columns_that_do_not_match() -> None:
    summary = full_summary(1, 3)
    method = summary["methods"][0]
    method["columns"] = ["score"]
    method["top"][0]["values"] = []
    method["top"][1]["values"] = [1.0]
    page = assert_sound(render_report(summary))
    assert "value 3" in page.text


def test_transductive_only_when_it_says_so() -> None:
    summary = full_summary()
    summary["evaluation"]["settings"][0]["setting"] = "inductive"
    text = assert_sound(render_report(summary)).text
    assert "transductive" not in text
    assert "This evaluation is inductive." in text


def test_rmse_marks_the_smallest() -> None:
    summary = full_summary(2, 1)
    (panel,) = summary["evaluation"]["settings"][0]["panels"]
    panel |= {"metric": "rmse", "higher_is_better": False}
    for curve, mean in zip(panel["curves"], (3.5, 2.25), strict=True):
        curve |= {"n_selected": [10], "mean": [mean], "std": [0.125], "low": [mean], "high": [mean + 1]}
    html = render_report(summary)
    assert 'best"><span class="v">2.250</span><span class="below">± 0.125</span>' in html
    assert 'best"><span class="v">3.500' not in html
    assert "lower is better" in html


def test_images() -> None:
    summary = full_summary()
    html = render_report(summary)
    page = assert_sound(html)
    for text in (
        f"Scores as an image of 2 {TIMES_SIGN} 32 pixels: bright is relevant. Colored pixels are excluded.",
        "The first 5, 10 features.",
    ):
        assert text in page.text, text
    assert f"Scores of fisher as an image of 2 {TIMES_SIGN} 32" in page.values("aria-label")
    (svg,) = (part.split("</svg>")[0] for part in html.split("<svg") if "as an image of 2" in part.split(">")[0])
    # 32 grays and the excluded pixel; a run of equal ones is one stroke
    assert svg.count("<path") == 33
    assert "M0 1h32v1h-32z" in svg
    alone = summary["methods"][2]
    image = alone["image"]
    image |= {"scores": [[3]], "by_rank": True}
    summary = {"methods": [alone]}
    page = assert_sound(render_report(summary))
    assert f"Ranks as an image of 2 {TIMES_SIGN} 32 pixels: bright is relevant." in page.text
    assert "Colored pixels" not in page.text
    for key in ("shape", "sizes", "by_rank", "scores", "selected"):
        alone["image"] = {other: value for other, value in image.items() if other != key}
        assert_sound(render_report(summary))


def test_a_simple_evaluation_has_one_figure_and_no_more() -> None:
    page = assert_sound(render_report(full_summary()))
    for text in (
        "Model1-nearest-neighbor classifier",
        "Metricaccuracy (higher is better)",
        f"Splits {TIMES_SIGN} repeats5 {TIMES_SIGN} 3",
        "Rows used10,000 of 70,000",
        "Settingtransductive Seed0",
    ):
        assert text in page.text, text
    for text in (
        "Differences from the best method",
        "Sensitivity",
        "Stability",
        "Gap between",
        "Cost of the evaluation",
    ):
        assert text not in page.text
    assert len(page.named("details")) == 4 + 2  # methods, stages and job


@pytest.fixture(scope="module")
def drawn() -> str:
    return render_report(evaluation_of_draws(full_summary()))


def test_an_evaluation_of_draws_in_both_settings(drawn: str) -> None:
    page = assert_sound(drawn)
    for text in (
        "This evaluation is transductive.",
        "This evaluation is inductive.",
        "Models5-nearest-neighbor classifier; svm: linear-svm classifier (C=2)",
        "Foldsno group on both sides",
        "Rows without labels500",
        "Labels that the selection sees40 %, 1, 5, 50 of each class, each drawn 5 times",
        "Labels that train modelsthe labels that the selection saw",
        "Classes3, each drawn 20 times",
        "Features known to matter4",
        "Settingtransductive and inductive",
        "knn, accuracy, 3 classes, labels 40 %",
        "7 more, by model, metric and labels",
        "SSelect: knn, accuracy, 3 classes by trade_off",
        "knn, accuracy, 3 classes by labels that the selection sees",
        "15 rankings of each method at most.",
        "pixel_00_0780 %2.5001.000 to 4.250",
        "trace ratio0.9000 \N{MINUS SIGN}0.01250 \N{MINUS SIGN}0.03000 to 0.005000 0.02000",
        "laplacian0.9100 0.8900 \N{MINUS SIGN}0.02000 \N{MINUS SIGN}0.03000 to 0.005000 0.02000",
        "Rankings4",
        "Units of tests28",
        "Time of unitsevaluate 66 s",
        "Wall time40.2 s",
        "Waiting and scheduling18 %",
    ):
        assert text in page.text, text
    anchors = [found["href"] for found in page.named("a")]
    assert {"#evaluation-setting-1", "#evaluation-setting-2", "#evaluation-gap"} <= set(anchors)
    # of each setting eight panels, two of sensitivity, two of stability; eight gaps; nine in other sections
    assert len(page.named("svg")) == 2 * (8 + 2 + 2) + 8 + 9


def test_the_settings_never_share_a_figure_or_a_table(drawn: str) -> None:
    first, second = drawn.split('<article id="evaluation-setting-1">')[1].split('<article id="evaluation-setting-2">')
    assert "inductive" not in first
    assert "transductive" not in second.split('<article id="evaluation-gap">')[0]


@pytest.mark.parametrize("key", ["facts", "gap", "cost", "is_simple"])
def test_evaluations_of_which_a_part_is_missing(key: str) -> None:
    summary = evaluation_of_draws(full_summary(1, 1))
    for setting in summary["evaluation"]["settings"]:
        setting["panels"] = setting["panels"][:1]
    summary["evaluation"]["gap"] = summary["evaluation"]["gap"][:1]
    del summary["evaluation"][key]
    assert_sound(render_report(summary))


@pytest.mark.parametrize("bad", [None, float("nan"), 10**400, "text"], ids=["none", "nan", "huge", "text"])
def test_bad_numbers_in_an_evaluation_of_draws(bad: object) -> None:
    def replaced(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: replaced(item) for key, item in value.items()}
        if isinstance(value, list):
            return [replaced(item) for item in value]
        return bad if isinstance(value, int | float) and not isinstance(value, bool) else value

    summary = evaluation_of_draws(full_summary(1, 1))
    (first, *_) = summary["evaluation"]["settings"]
    summary["evaluation"] |= {"settings": [first], "gap": summary["evaluation"]["gap"][:1]}
    first |= {"panels": first["panels"][:1]}
    assert_sound(render_report({**summary, "evaluation": replaced(summary["evaluation"])}))


def test_hostile_text_in_an_evaluation_of_draws() -> None:
    name = HOSTILE_NAMES[1]

    def replaced(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: replaced(item) for key, item in value.items()}
        if isinstance(value, list):
            return [replaced(item) for item in value]
        return name if isinstance(value, str) else value

    summary = evaluation_of_draws(full_summary(2, 1))
    for setting in summary["evaluation"]["settings"]:
        setting["panels"] = setting["panels"][:2]
    html = render_report({**summary, "evaluation": replaced(summary["evaluation"])})
    assert_sound(html)
    assert name not in html


def test_many_methods_fit_a_page() -> None:
    html = render_report(full_summary(10, 50))
    assert len(html) < 1_000_000
    assert_sound(html)
