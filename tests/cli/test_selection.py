"""Greedy and filtered selection from the command line: what is dropped and why, what is evaluated, mistakes, resume."""

from __future__ import annotations

import csv
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr

from daskfs import RRPC, FisherScore, RedundancyFilter, VarianceScore
from tests.execution import runs
from tests.optional import pandas as pd

from .command import Outcome, daskfs, refused, rows_of, told, write_job

pytestmark = pytest.mark.cluster

N = 400
NAMES = ["strong", "copy", "near", "bent", "other", "weak", "noise", "flat"]


def data() -> tuple[np.ndarray, np.ndarray]:
    """X, whose first columns are a feature, its copy, one that resembles it, and a bent form of it; and two classes."""
    rng = np.random.default_rng(7)
    y = np.arange(N) % 2
    strong = 2.5 * y + rng.normal(size=N)
    other = 1.5 * y + rng.normal(size=N)
    near = strong + 0.15 * rng.normal(size=N)
    bent = (strong - strong.mean()) ** 2 + 0.3 * other
    return np.column_stack(
        [strong, strong, near, bent, other, 0.7 * y + rng.normal(size=N), rng.normal(size=N), np.ones(N)]
    ), y


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A CSV table with the names."""
    X, y = data()
    with (tmp_path / "data.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow([*NAMES, "label"])
        writer.writerows([*map(repr, map(float, row)), int(c)] for row, c in zip(X, y, strict=True))
    return tmp_path / "data.csv"


def job(source: Path, redundancy: dict[str, Any] | None, **blocks: Any) -> dict[str, Any]:
    """A job in this process, without evaluation."""
    select = {"n_features": 3} if redundancy is None else {"n_features": 3, "redundancy": redundancy}
    return {
        "data": {"source": str(source), "labels": "label", "task": "classification"},
        "methods": ["FisherScore"],
        "select": select,
        "evaluate": None,
        "cluster": {"workers": 0},
        "output": {"path": str(source.parent / "run")},
        **blocks,
    }


def ran(source: Path, redundancy: dict[str, Any] | None, **blocks: Any) -> Path:
    outcome = daskfs("run", write_job(source.parent, job(source, redundancy, **blocks)), "-q")
    assert (outcome.code, told(outcome)) == (0, "")
    return source.parent / "run"


def selected(run: Path, method: str = "FisherScore") -> list[str]:
    return [row["name"] for row in rows_of(run / "selected_features.csv") if row["method"] == method]


def reasons(run: Path, method: str = "FisherScore") -> dict[str, str]:
    return {row["name"]: row["reason"] for row in rows_of(run / "dropped_features.csv") if row["method"] == method}


class TestWhatIsDropped:
    def test_copies_and_near_copies(self, source: Path) -> None:
        run = ran(source, {"threshold": 0.9})
        assert selected(run) == ["strong", "other", "weak"]
        found = reasons(run)
        assert found["copy"] == "redundant with strong (1.00)"
        assert found["near"].startswith("redundant with strong (0.9")
        assert list(found) == ["copy", "near"]

    def test_the_ranking_stays_whole(self, source: Path) -> None:
        run = ran(source, {"threshold": 0.9})
        rows = rows_of(run / "ranking.csv")
        assert [row["name"] for row in rows[:3]] == ["strong", "copy", "near"]
        assert len(rows) == len(NAMES)
        dropped = rows_of(run / "dropped_features.csv")
        assert list(dropped[0]) == ["method", "rank", "feature", "name", "score", "reason"]
        by_name = {row["name"]: row for row in rows}
        assert all(row["score"] == by_name[row["name"]]["score"] for row in dropped)
        assert [row["rank"] for row in dropped] == ["2", "3"]

    def test_what_is_not_linear_by_distance(self, source: Path) -> None:
        assert "bent" not in reasons(ran(source, {"threshold": 0.4}))
        shutil.rmtree(source.parent / "run")
        found = reasons(ran(source, {"measure": "distance_correlation", "threshold": 0.4}))
        assert found["bent"].startswith("redundant with strong (0.")
        assert found["copy"] == "redundant with strong (1.00)"

    @pytest.mark.parametrize("measure", ["correlation", "distance_correlation", None])
    def test_like_the_selector(self, source: Path, measure: Any) -> None:
        X, y = data()
        more = dict[str, Any](threshold=0.8, keep=["weak"], drop=["other"], groups={"(co|ne).*": "g"}, max_per_group=1)
        run = ran(source, {"measure": measure, "n_candidates": 6, **more}, methods=["FisherScore", "VarianceScore"])
        for estimator in (FisherScore(), VarianceScore()):
            fitted = RedundancyFilter(estimator, measure=measure, n_candidates=6, **more, n_features_to_select=3)
            fitted.fit(pd.DataFrame(X, columns=NAMES), y)
            name = type(estimator).__name__
            best = np.argsort(fitted.ranking_)[: min(3, fitted.n_kept_)]
            assert selected(run, name) == [NAMES[i] for i in best]
            scored = np.flatnonzero(np.isfinite(fitted.scores_))  # others are excluded, not dropped
            assert reasons(run, name) == {NAMES[i]: fitted.reasons_[i] for i in scored if fitted.reasons_[i]}
            assert fitted.reasons_[NAMES.index("flat")] == "constant feature"


class TestLists:
    def test_kept_ones_come_first_in_the_order_of_their_ranks(self, source: Path) -> None:
        run = ran(source, {"keep": ["noise", "copy"]})
        assert selected(run) == ["copy", "noise", "other"]
        assert reasons(run)["strong"] == "redundant with copy (1.00)"

    def test_dropped_ones_make_room_for_their_copies(self, source: Path) -> None:
        run = ran(source, {"drop": "strong"})
        assert selected(run) == ["copy", "other", "weak"]
        assert reasons(run) == {"strong": "dropped by name", "near": reasons(run)["near"]}

    def test_without_a_measure(self, source: Path) -> None:
        run = ran(source, {"measure": None, "drop": ["copy"], "keep": ["flat"]})
        assert selected(run) == ["flat", "strong", "near"], "also one that the method cannot rank"
        assert reasons(run) == {"copy": "dropped by name"}

    def test_groups_by_name_and_expression(self, source: Path) -> None:
        groups = {"strong": "alone", "strong|copy|ne.*": "family"}
        run = ran(source, {"measure": None, "groups": groups, "max_per_group": 1})
        assert selected(run) == ["strong", "copy", "other"]
        assert reasons(run) == {"near": "group family is full"}

    def test_groups_in_a_file(self, source: Path) -> None:
        path = source.parent / "groups.csv"
        path.write_text('feature,group\nstrong,"a, b"\ncopy,"a, b"\nnear,"a, b"\n')
        run = ran(source, {"measure": None, "groups": str(path), "max_per_group": 2})
        assert selected(run) == ["strong", "copy", "other"]
        assert reasons(run) == {"near": "group a, b is full"}

    def test_another_file_is_another_job(self, source: Path) -> None:
        path = source.parent / "groups.csv"
        path.write_text("feature,group\nstrong,a\n")
        wanted = {"measure": None, "groups": str(path), "max_per_group": 1}
        ran(source, wanted)
        path.write_text("feature,group\nstrong,a\ncopy,a\n")
        outcome = daskfs("run", write_job(source.parent, job(source, wanted)), "-q")
        refused(outcome, 3, "another job")


class TestBesideTheSelection:
    def test_evaluation_takes_the_first_that_are_kept(self, source: Path) -> None:
        evaluate = {"n_selected": [1, 2, 4], "n_splits": 2, "setting": "transductive", "baselines": False}
        assert (
            daskfs("run", write_job(source.parent, job(source, {"threshold": 0.9}, evaluate=evaluate)), "-q").code == 0
        )
        run = source.parent / "run"
        with np.load(run / "evaluation/orders/0.npz") as found:
            order = found["a-order"][:4]
        assert [NAMES[i] for i in order] == ["strong", "other", "weak", "bent"]
        assert {row["n_selected"] for row in rows_of(run / "evaluation.csv")} == {"1", "2", "4"}

    @pytest.mark.parametrize("setting", ["inductive", "transductive"])
    def test_too_few_are_left(self, source: Path, setting: str) -> None:
        evaluate = {"n_selected": [1, 4], "n_splits": 2, "setting": setting}
        wanted = job(source, {"threshold": 0.01}, evaluate=evaluate)
        outcome = daskfs("run", write_job(source.parent, wanted), "-q")
        assert outcome.code == 0
        n_left = len(selected(source.parent / "run"))
        assert n_left < 3
        assert f"leaves {n_left} of the 3 features" in outcome.err
        report = (source.parent / "run/report.html").read_text()
        if setting == "transductive":
            assert f"method FisherScore: {n_left} feature to select, not evaluated at 4 features." in report
        else:
            words = r"FisherScore: \d features? to select in one of the rankings, not evaluated there at 4"
            assert re.search(words, report)

    def test_report_tells(self, source: Path) -> None:
        report = (ran(source, {"threshold": 0.9}) / "report.html").read_text()
        assert "Redundancy filter" in report
        assert "redundant with strong (1.00)" in report

    def test_nothing_of_it_without_the_block(self, source: Path) -> None:
        run = ran(source, None)
        assert selected(run) == ["strong", "copy", "near"]
        assert not (run / "dropped_features.csv").exists()
        assert not (run / "filtered").exists()
        assert not [path for path in run.glob("records/*") if path.name.startswith(("filter", "como"))]
        assert "Redundancy filter" not in (run / "report.html").read_text()

    def test_what_has_served_is_gone(self, source: Path) -> None:
        run = ran(source, {"measure": "correlation"}, methods=["FisherScore", "RRPC"])
        assert not (run / "comoments/redundancy").exists()
        assert not (run / "comoments/greedy/RRPC").exists()
        shutil.rmtree(run)
        assert not (ran(source, {"measure": "distance_correlation"}) / "binned").exists()


class TestResume:
    @pytest.mark.parametrize(
        ("lost", "again"),
        [
            ("greedy-RRPC", {"comoments-RRPC", "greedy-RRPC"}),
            ("filter", {"filter-comoments", "filter"}),
            ("rank", {"rank"}),
        ],
    )
    def test_only_what_is_missing_runs(self, source: Path, lost: str, again: set[str]) -> None:
        wanted = job(source, {"threshold": 0.9}, methods=["RRPC", "FisherScore"])
        path, run = write_job(source.parent, wanted), source.parent / "run"
        assert daskfs("run", path, "-q").code == 0
        tables = [
            (run / name).read_bytes() for name in ("ranking.csv", "selected_features.csv", "dropped_features.csv")
        ]
        shutil.rmtree(run / "records" / lost)
        second = daskfs("run", path, "--json", "-q")
        assert set(second.json["recomputed"]) == again
        assert daskfs("run", path, "--json", "-q").json["recomputed"] == {}
        names = ("ranking.csv", "selected_features.csv", "dropped_features.csv")
        assert [(run / name).read_bytes() for name in names] == tables


class TestGreedy:
    def test_like_the_selector(self, source: Path) -> None:
        X, y = data()
        run = ran(source, None, methods=[{"name": "RRPC", "n_candidates": 4}])
        fitted = RRPC(n_candidates=4).fit(X, y)
        rows = rows_of(run / "ranking.csv")
        assert [int(row["feature"]) for row in rows] == np.argsort(fitted.ranking_).tolist()
        assert [float(row["score"]) for row in rows[:4]] == [fitted.scores_[int(row["feature"])] for row in rows[:4]]

    def test_notes_of_what_has_no_score(self, source: Path) -> None:
        rows = rows_of(ran(source, None, methods=[{"name": "RRPC", "n_candidates": 4}]) / "ranking.csv")
        note = "not among the n_candidates most relevant: ranked by relevance after these"
        assert [row["note"] for row in rows] == [""] * 4 + [note] * 3 + ["constant feature"]
        assert [bool(row["score"]) for row in rows] == [True] * 4 + [False] * 4

    def test_copies_are_picked_late(self, source: Path) -> None:
        names = [row["name"] for row in rows_of(ran(source, None, methods=["RRPC"]) / "ranking.csv")]
        assert names[0] == "strong"
        assert names.index("copy") > names.index("other")


def scores_of(run: Path) -> dict[str, bytes]:
    return {path.name: zarr.open_array(str(path))[...].tobytes() for path in sorted((run / "scores").iterdir())}


class TestBits:
    """Not one bit of a score, nor of a reason, depends on tiles or workers."""

    METHODS = ("RRPC", "VarianceScore")

    def run(self, folder: Path, source: str, address: str | None = None, **redundancy: Any) -> tuple[Any, ...]:
        blocks = {
            "data": {"source": source, "labels": str(folder.parent / "y.npy")},
            "methods": list(self.METHODS),
            "select": {"n_features": 4, "redundancy": {"threshold": 0.5, **redundancy}},
            "evaluate": None,
            "cluster": {"workers": 0, "address": address, "memory_limit": "1GiB"},
        }
        assert daskfs("run", runs.write_job(folder, source, **blocks), "-q").code == 0
        tables = [(folder / "run" / name).read_bytes() for name in ("ranking.csv", "dropped_features.csv")]
        return scores_of(folder / "run"), tables

    def write(self, folder: Path, n: int, chunks: tuple[int, int]) -> str:
        rng = np.random.default_rng(1)
        X = rng.normal(size=(n, 3)) @ rng.normal(size=(3, 12)) + rng.normal(size=(n, 12)) + 1e5
        np.save(folder / "y.npy", X[:, 0] + X[:, 7])
        path = folder / f"{chunks[0]}-{chunks[1]}.zarr"
        zarr.create_array(store=str(path), shape=X.shape, dtype=X.dtype, chunks=chunks)[...] = X
        return str(path)

    @pytest.mark.parametrize("measure", ["correlation", "distance_correlation"])
    def test_tiles(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, measure: str) -> None:
        monkeypatch.setattr(
            "daskfs.kernels.statistics.comoments.COMOMENT_STRETCH_ROWS", 4096
        )  # three stretches of 10,000 rows
        found = [
            self.run(tmp_path / f"run{chunks}", self.write(tmp_path, 10_000, chunks), measure=measure)
            for chunks in ((10_000, 12), (777, 5), (4096, 1), (5000, 12))
        ]
        assert all(other == found[0] for other in found[1:])

    @pytest.mark.long
    @pytest.mark.cluster
    def test_workers(self, tmp_path: Path, two_workers: str) -> None:
        source = self.write(tmp_path, 70_000, (10_000, 6))
        assert self.run(tmp_path / "here", source) == self.run(tmp_path / "there", source, two_workers)


class TestMistakes:
    def given(self, source: Path, redundancy: Any, **select: Any) -> Outcome:
        wanted = job(source, None)
        wanted["select"] = {"n_features": 3, **select, "redundancy": redundancy}
        return daskfs("run", write_job(source.parent, wanted), "-q")

    @pytest.mark.parametrize(
        ("redundancy", "parts"),
        [
            ({"keep": ["strnog"]}, ["select.redundancy.keep names 'strnog'", "Did you mean 'strong'?"]),
            ({"drop": ["Copy"]}, ["select.redundancy.drop names 'Copy'", "Did you mean 'copy'?"]),
            (
                {"keep": ["copy"], "drop": ["copy"]},
                ["'copy' is in select.redundancy.keep and in select.redundancy.drop"],
            ),
            ({"drop": NAMES}, ["drop names all 8 features"]),
            (
                {"groups": {"noisy": "g"}, "max_per_group": 1},
                ["select.redundancy.groups: 'noisy' is no feature's name and matches none", "Did you mean 'noise'?"],
            ),
            ({"groups": {"a(": "g"}, "max_per_group": 1}, ["'a(' is no feature's name and no regular expression"]),
            (
                {"groups": "gone.csv", "max_per_group": 1},
                ["cannot read select.redundancy.groups gone.csv", "No such file"],
            ),
            ({"groups": {"copy": "g"}}, ["groups need max_per_group"]),
            ({"max_per_group": 2}, ["select.redundancy.max_per_group", "needs groups"]),
            ({"threshold": 1.5}, ["select.redundancy.threshold", "less than 1"]),
            ({"threshold": 0}, ["select.redundancy.threshold", "greater than 0"]),
            ({"measure": "mutual"}, ["select.redundancy.measure", "'distance_correlation'"]),
            ({"treshold": 0.5}, ["unknown key 'select.redundancy.treshold'", "Did you mean 'threshold'?"]),
            ({"keep": ["copy", "near", "weak", "bent"]}, ["keep has 4 names, and 3 features are to be selected"]),
            ({"n_candidates": 2}, ["n_candidates is 2, and 3 features are to be selected: raise it"]),
            (True, ["select.redundancy"]),
        ],
    )
    def test_exit_code_and_message(self, source: Path, redundancy: Any, parts: list[str]) -> None:
        refused(self.given(source, redundancy), 2, *parts)
        assert not (source.parent / "run/tiles").exists(), "nothing was converted first"

    def test_plan_tells_it_too(self, source: Path) -> None:
        path = write_job(source.parent, job(source, {"keep": ["strnog"]}))
        refused(daskfs("plan", path), 2, "Did you mean 'strong'?")
        path = write_job(source.parent, job(source, {"keep": ["strong"]}))
        names = [stage["stage"] for stage in daskfs("plan", path, "--json").json["stages"]]
        assert names[-4:] == ["filter-candidates", "filter-comoments", "filter", "rank"]

    def test_names_that_a_tile_store_holds(self, source: Path) -> None:
        tiles = source.parent / "tiles.zarr"
        assert (
            daskfs("convert", source, tiles, "--labels", "label", "--task", "classification", "--workers", 0, "-q").code
            == 0
        )
        for names, code in ((["copy"], 0), (["cpoy"], 2)):
            wanted = job(source, {"keep": names}, data={"source": str(tiles)})
            assert daskfs("run", write_job(source.parent, wanted), "-q", "--overwrite").code == code
            assert code or selected(source.parent / "run")[0] == "copy"

    @pytest.mark.parametrize(
        ("text", "part"),
        [
            ("name,group\nstrong,a\n", "must begin with a line 'feature,group'"),
            ("", "must begin with a line 'feature,group'"),
            ("feature,group\nstrong\n", "line 2: 1 cells"),
            ("feature,group\nstrong,a\nstrong,b\n", "line 3: 'strong' is in group 'a' already"),
            ("feature,group\nstrnog,a\n", "Did you mean 'strong'?"),
        ],
    )
    def test_files_of_groups(self, source: Path, text: str, part: str) -> None:
        path = source.parent / "groups.csv"
        path.write_text(text)
        refused(self.given(source, {"groups": str(path), "max_per_group": 1}), 2, part)

    def test_nothing_left_of_what_a_method_ranks(self, source: Path) -> None:
        outcome = self.given(source, {"drop": NAMES[:-1]}, n_features=1)
        refused(outcome, 3, "method FisherScore can select nothing")
