"""The consensus of several rankings, the median of their ranks: in a run, in each fold, of batches, in Python."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from sklearn.base import clone
from sklearn.datasets import load_wine
from sklearn.model_selection import StratifiedKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from daskfs import (
    Consensus,
    FisherScore,
    LaplacianScore,
    RandomOrder,
    RedundancyFilter,
    VarianceScore,
    evaluate_selectors,
)
from daskfs.errors import InputError
from daskfs.evaluation.design import Design, EvaluationParameters
from daskfs.store import layout
from daskfs.store.store import Store
from tests.cli.command import daskfs, refused, rows_of

pytestmark = pytest.mark.cluster

X, Y = load_wine(return_X_y=True)
X = X / X.std(axis=0) * np.linspace(1, 2, 13)
X = np.column_stack([X, np.ones(len(X)), X[:, 0]])  # a constant feature, and one of a shared rank
METHODS: list[Any] = ["FisherScore", {"name": "LaplacianScore", "n_neighbors": 5}, "VarianceScore"]
SELECTORS = (FisherScore(), LaplacianScore(n_neighbors=5), VarianceScore())
LABELS = ("FisherScore", "LaplacianScore", "VarianceScore")
SHORT: dict[str, Any] = {"n_selected": [2, 5], "n_splits": 3}


def median_ranks(*selectors: Any) -> np.ndarray:
    """Return the median over selectors of ranks in which equal scores share the mean of theirs."""
    found = []
    for fitted in selectors:
        scores = fitted.scores_ * (1 if isinstance(fitted, LaplacianScore) else -1)
        known = ~np.isnan(scores)
        below, upto = ((scores[known, None] > scores[known]).sum(1), (scores[known, None] >= scores[known]).sum(1))
        own = np.full(scores.size, float(scores.size))
        own[known] = (below + 1 + upto) / 2
        found.append(own)
    return np.median(found, axis=0)


def ran(folder: Path, **blocks: Any) -> Path:
    """Run a job with a consensus; return the directory of the run."""
    np.save(folder / "X.npy", X)
    np.save(folder / "y.npy", Y)
    job: dict[str, Any] = {
        "data": {"source": str(folder / "X.npy"), "labels": str(folder / "y.npy")},
        "methods": [*METHODS, "RandomOrder"],
        "consensus": True,
        "evaluate": None,
        "cluster": {"workers": 0},
        "output": {"path": str(folder / "run")},
    }
    job |= {key: {**job[key], **value} if key == "data" else value for key, value in blocks.items()}
    (folder / "job.yaml").write_text(yaml.safe_dump(job))
    outcome = daskfs("run", folder / "job.yaml", "-q")
    assert outcome.code == 0, outcome.err
    assert daskfs("verify", folder / "run").code == 0
    return folder / "run"


def order_of(run: Path, table: str = "ranking.csv") -> list[int]:
    return [int(row["feature"]) for row in rows_of(run / table) if row["method"] == "Consensus"]


def test_it_is_the_median_of_ranks() -> None:
    fitted = Consensus(SELECTORS).fit(X, Y)
    expected = median_ranks(*fitted.estimators_)
    assert fitted.scores_[:13].tolist() == expected[:13].tolist()
    assert np.isnan(fitted.scores_[13])
    assert fitted.ranking_[13] == X.shape[1]
    known = ~np.isnan(fitted.scores_)
    by_rank = np.argsort(fitted.ranking_)[: known.sum()]
    assert (np.diff(fitted.scores_[by_rank]) >= 0).all()


def test_equal_rankings_count_once_and_excluded_features_rank_last_there() -> None:
    once, twice = (Consensus(some).fit(X, Y) for some in (SELECTORS[:2], (*SELECTORS[:2], clone(SELECTORS[0]))))
    assert twice.ranking_.tolist() == once.ranking_.tolist()
    kept = Consensus([RedundancyFilter(FisherScore(), threshold=0.5), VarianceScore()]).fit(X, Y)
    dropped = np.flatnonzero(kept.estimators_[0].reasons_ != "")
    assert (kept.score_fields_["n_rankings"][dropped] <= 1).all()


def test_it_serves_pipelines_and_names_what_it_cannot_take() -> None:
    chain = make_pipeline(StandardScaler(), Consensus(SELECTORS, n_features_to_select=4))
    assert chain.fit(X, Y).transform(X).shape == (len(X), 4)
    for wrong in ([FisherScore()], [FisherScore(), StandardScaler()]):
        with pytest.raises(InputError, match="must list two selectors of daskfs or more"):
            Consensus(wrong).fit(X, Y)
    found = evaluate_selectors([Consensus(SELECTORS)], X, Y, n_selected=2)
    assert "Consensus" in found.means().index


def test_a_run_ranks_as_the_selector_does_and_a_random_order_does_not_vote(tmp_path: Path) -> None:
    run = ran(tmp_path)
    fitted = Consensus(SELECTORS).fit(X, Y)
    assert order_of(run) == np.argsort(fitted.ranking_).tolist()
    notes = {row["feature"]: row["note"] for row in rows_of(run / "ranking.csv") if row["method"] == "Consensus"}
    assert notes.pop("13").startswith("constant")
    assert set(notes.values()) == {""}


def test_it_is_filtered_like_any_ranking(tmp_path: Path) -> None:
    run = ran(tmp_path, select={"n_features": 3, "redundancy": {"threshold": 0.9}})
    assert len(order_of(run, "selected_features.csv")) == 3
    assert {0, 14} - set(order_of(run, "selected_features.csv")), "copies should not both be selected"
    assert "Consensus" in {row["method"] for row in rows_of(run / "dropped_features.csv")}


@pytest.mark.parametrize("setting", ["inductive", "both"])
def test_each_fold_has_its_own(tmp_path: Path, setting: str) -> None:
    """Its order is that of the selector on the rows of the fold; and the values are those from Python."""
    run = ran(tmp_path, evaluate={**SHORT, "setting": setting})
    store = Store(run)
    plan = store.need_json(layout.PLAN_JSON)
    raw = next(stage["parameters"] for stage in plan["stages"] if stage["name"] == "evaluate")
    design, worlds = (
        Design(EvaluationParameters.from_json(raw)),
        store.read_arrays(layout.EVALUATION_CLASS_SUBSET.format(0))[0],
    )
    seen = 0
    for number in range(design.n_selections):
        selection = design.selection(number)
        if selection.method == "Consensus":
            name = f"train-{selection.repeat}-{selection.fold}"
            rows = slice(None) if selection.fold is None else worlds[name]
            fitted = Consensus(SELECTORS).fit(X[rows], Y[rows])
            order = store.read_arrays(layout.EVALUATION_ORDER.format(number))[0]["order"]
            known = np.flatnonzero(~np.isnan(fitted.scores_))
            assert order.tolist() == known[np.argsort(fitted.ranking_[known])].tolist()
            seen += 1
    assert seen == 3 + (setting == "both")
    found = evaluate_selectors(
        {
            **dict(zip(["FisherScore", "LaplacianScore", "VarianceScore"], SELECTORS, strict=True)),
            "RandomOrder": RandomOrder(),
        },
        X,
        Y,
        consensus=True,
        setting=setting,  # type: ignore[arg-type]
        **SHORT,
    )
    rows_found = [(row["method"], row["n_selected"], row["value"]) for row in found.values.to_pylist()]
    stored = [(row["method"], int(row["n_selected"]), float(row["value"])) for row in rows_of(run / "evaluation.csv")]
    assert rows_found == stored
    assert found.verdict is not None
    assert found.verdict["n_compared"] == 8, "three methods and the consensus, two sizes each"


def test_a_ranking_that_fails_in_a_fold_is_left_out() -> None:
    """And where all fail, the consensus does, and says so."""
    few = [LaplacianScore(n_neighbors=50), FisherScore()]
    half = np.sort(next(StratifiedKFold(3).split(X, Y))[1])
    found = evaluate_selectors(few, X[half], Y[half], consensus=True, n_selected=[3], n_splits=3)
    values = {
        method: [row["value"] for row in found.values.to_pylist() if row["method"] == method]
        for method in ("FisherScore", "Consensus")
    }
    assert values["Consensus"] == values["FisherScore"]
    far = {"near": LaplacianScore(n_neighbors=50), "far": LaplacianScore(n_neighbors=51)}
    none = evaluate_selectors(
        far, X[half], Y[half], consensus=True, n_selected=[3], n_splits=3, baselines=False, setting="both"
    )
    assert any("Consensus" in str(one) and "no other method has a ranking" in str(one) for one in none.warnings)


def test_batches_are_combined_first(tmp_path: Path) -> None:
    (tmp_path / "batch.txt").write_text("\n".join("ab"[row % 2] for row in range(len(X))) + "\n")
    run = ran(tmp_path, data={"batch": str(tmp_path / "batch.txt")}, methods=METHODS)
    assert "Consensus" not in {row["method"] for row in rows_of(run / "batches.csv")}
    tables = {
        name: np.asarray(Store(run).open(layout.SCORES.format(name))[...])
        for name in ("FisherScore", "VarianceScore", "LaplacianScore", "Consensus")
    }
    places = [tables[name][3] for name in ("FisherScore", "VarianceScore", "LaplacianScore")]
    assert tables["Consensus"][0][:13].tolist() == np.median(places, axis=0)[:13].tolist()


def test_a_job_of_one_method_is_refused(tmp_path: Path) -> None:
    job = {
        "data": {"source": "sklearn:wine"},
        "methods": ["VarianceScore", "RandomOrder"],
        "consensus": True,
        "output": {"path": str(tmp_path / "run")},
    }
    (tmp_path / "job.yaml").write_text(yaml.safe_dump(job))
    refused(daskfs("run", tmp_path / "job.yaml"), 2, "consensus is made of the rankings of two methods or more")
