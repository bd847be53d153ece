"""What an evaluation's selections see: in the inductive setting no row and no label that is held out; and of what they
see they make what the estimators would.

Everything about the rows of one fold changes (values, labels, weights), the cut into folds does not. Orders are
compared as the files that hold them.
"""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.exceptions import ConvergenceWarning

import daskfs
from daskfs.criteria.registry import criteria
from daskfs.errors import RunStoppedError
from daskfs.evaluation.design import Design, EvaluationParameters, Selection, draw_labels
from daskfs.evaluation.trials import EVALUATE_STAGE
from daskfs.execution.progress import Silent
from daskfs.kernels.labels import Labels, Task
from daskfs.runs.pipeline import run_job
from daskfs.stages.stage import Plan, Stage
from daskfs.store import layout
from daskfs.store.store import Store

pytestmark = pytest.mark.cluster

N, N_FEATURES, N_SPLITS = 108, 9, 3
CLUSTER = {"workers": 0, "memory_limit": "2GiB"}
PARAMETERS: dict[str, dict[str, Any]] = {
    "SemiSupervisedLaplacianScore": {"n_neighbors": 8, "n_label_neighbors": 3},
    "RLSR": {"max_iter": 2},
    "DSSFS": {"max_iter": 2},
    "SSUFS": {"max_iter": 2},
    "SVMRFE": {"step": 3, "n_singly": 2},
}
"""Where the defaults are for more rows, or would take more rounds."""
VARIANTS: dict[str, list[dict[str, Any]]] = {
    "classification": [
        {"name": "SVMRFE", "label": "machines on a graph", "step": 3, "n_singly": 2, "laplacian": True},
        {"name": "SVMRFE", "label": "landmarks", "step": 4, "n_singly": 2, "large_n": "landmarks", "n_landmarks": 12},
        {"name": "SSelect", "label": "trade-off found", "trade_off": "auto", "n_cut_features": 4},
        {"name": "LaplacianScore", "label": "scaled", "graph_scaling": "zscore", "score_scaling": "zscore"},
    ],
    "regression": [{"name": "LaplacianScore", "label": "unit", "graph_scaling": "unit", "score_scaling": "unit"}],
}


def every_method(task: str) -> list[dict[str, Any]]:
    """Return every method of the registry that serves a task, and some of other parameters."""
    names = [name for name, criterion in criteria().items() if task in criterion.tasks]
    return [{"name": name, **PARAMETERS.get(name, {})} for name in names] + VARIANTS[task]


SOME = {
    "classification": ("LaplacianScore", "FisherScore", "RLSR"),
    "regression": ("VarianceScore", "PearsonScore", "SemiSupervisedLaplacianScore"),
}
FEW = {task: [{"name": name, **PARAMETERS.get(name, {})} for name in names] for task, names in SOME.items()}


@dataclasses.dataclass
class Data:
    """Rows of three classes, or of a target; one in four has no label (-1, NaN)."""

    X: np.ndarray
    y: np.ndarray
    weights: np.ndarray | None = None
    groups: np.ndarray | None = None
    times: np.ndarray | None = None

    def copy(self) -> Data:
        return Data(**dict[str, Any]({key: None if a is None else a.copy() for key, a in vars(self).items()}))

    @property
    def is_labeled(self) -> np.ndarray:
        return self.y >= 0 if self.y.dtype.kind == "i" else ~np.isnan(self.y)

    def saved(self, folder: Path, *, sparse: bool = False) -> dict[str, Any]:
        """Save the arrays; return the data block of a job."""
        folder.mkdir(parents=True, exist_ok=True)
        block: dict[str, Any] = {"labels": str(folder / "y.npy"), "task": self.task}
        np.save(folder / "y.npy", self.y)
        for name in ("weights", "groups", "times"):
            if (values := getattr(self, name)) is not None:
                np.save(folder / f"{name}.npy", values)
                block[name] = str(folder / f"{name}.npy")
        if sparse:
            X = sp.csr_matrix(self.X)
            np.savez(folder / "X.npz", data=X.data, indices=X.indices, indptr=X.indptr, shape=X.shape)
            return {**block, "source": str(folder / "X.npz")}
        np.save(folder / "X.npy", self.X)
        return {**block, "source": str(folder / "X.npy")}

    @property
    def task(self) -> Task:
        return "classification" if self.y.dtype.kind == "i" else "regression"


def make_data(task: str, **columns: np.ndarray) -> Data:
    """Return rows whose features all say something of the labels, each less than the one before it."""
    rng = np.random.default_rng(11)
    classes = rng.permutation(np.arange(N) % 3)
    X = rng.normal(size=(N, N_FEATURES)) * np.linspace(1, 2, N_FEATURES)
    X += np.linspace(1.5, 0.3, N_FEATURES) * rng.normal(size=(3, N_FEATURES))[classes]
    y: np.ndarray = classes.astype(np.int64)
    if task == "regression":
        y = X @ np.linspace(1, 0.1, N_FEATURES) + rng.normal(size=N)
    y[rng.permutation(N)[: N // 4]] = -1 if task == "classification" else np.nan
    return Data(np.round(X * 64) / 64, y, **columns)


def job_of(data: dict[str, Any], output: Path, methods: list[Any], **evaluate: Any) -> Any:
    block = {
        "setting": "inductive",
        "baselines": False,
        "n_splits": N_SPLITS,
        "n_selected": [2],
        "n_draws": 1,
        **evaluate,
    }
    raw = {"data": data, "methods": methods, "evaluate": block, "cluster": CLUSTER, "output": {"path": str(output)}}
    return daskfs.make_job(raw)


class Stop(Silent):
    """Stops a run when a stage is to begin."""

    def __init__(self, stage: str) -> None:
        self.stage = stage

    def start_stage(self, stage: Stage, n_pending: int) -> None:
        del n_pending
        if stage.name == self.stage:
            msg = "stopped."
            raise RunStoppedError(msg)


@dataclasses.dataclass
class Ranked:
    """Selections of a run that went as far as these, and what it drew."""

    store: Store
    parameters: EvaluationParameters

    @property
    def design(self) -> Design:
        return Design(self.parameters)

    def orders(self) -> dict[Selection, bytes]:
        design = self.design
        selections = map(design.selection, range(design.n_selections))
        names = ((s, layout.EVALUATION_ORDER.format(s.number)) for s in selections)
        return {s: self.store.path(name).read_bytes() for s, name in names}

    def order(self, selection: Selection) -> np.ndarray:
        return self.store.read_arrays(layout.EVALUATION_ORDER.format(selection.number))[0]["order"]

    def subset_rows(self) -> dict[str, np.ndarray]:
        return self.store.read_arrays(layout.EVALUATION_CLASS_SUBSET.format(0))[0]

    def parts(self, fold: int) -> tuple[np.ndarray, np.ndarray]:
        """Return training and tested rows of a fold of the first repeat."""
        return self.subset_rows()[f"train-0-{fold}"], self.subset_rows()[f"test-0-{fold}"]


def ranked(data: dict[str, Any], output: Path, methods: list[Any], **evaluate: Any) -> Ranked:
    """Run a job until its selections are tested."""
    with pytest.raises(RunStoppedError):
        run_job(job_of(data, output, methods, **evaluate), Stop("evaluate"))
    parameters = Plan.from_json(Store(output).read_json("plan.json"), str(output)).parameters_of(EVALUATE_STAGE)
    assert parameters is not None
    return Ranked(Store(output), parameters)


def disturbed(data: Data, rows: np.ndarray) -> Data:
    """Return data of which some rows have other values, other labels and other weights, and no other row has; the
    classes' shares stay, in any fold that holds these rows.
    """
    changed, rng = data.copy(), np.random.default_rng(5)
    # what mattered most matters least
    changed.X[rows] = np.round(64 * (4 * rng.normal(size=(rows.size, N_FEATURES)) + data.X[rows][:, ::-1] ** 2)) / 64
    if data.weights is not None:
        assert changed.weights is not None
        changed.weights[rows] = 1 + 3 * rng.random(rows.size)
    if data.task == "regression":
        known = rows[data.is_labeled[rows]]
        changed.y[known] = 50 * rng.normal(size=known.size)
    elif data.groups is not None or data.times is not None:
        groups = np.zeros(N) if data.groups is None else data.groups
        for group in np.unique(groups[rows]):  # folds go by how often it has a class
            known = rows[data.is_labeled[rows] & (groups[rows] == group)]
            changed.y[known] = np.roll(data.y[known], 1)
    else:
        swap_neighbors(changed.y, rows)
    return changed


def swap_neighbors(y: np.ndarray, rows: np.ndarray) -> None:
    """Swap labels of pairs of rows with no row of their classes between them: stratified folds deal out the rows of a
    class in their order, so they stay.
    """
    taken: set[int] = set()
    for place, i in enumerate(rows):
        for j in rows[place + 1 :]:
            between = y[i + 1 : j]
            if y[i] == y[j] or min(y[i], y[j]) < 0 or {int(i), int(j)} & taken or i < 6:
                continue
            if not np.isin(between, (y[i], y[j])).any():
                y[i], y[j] = y[j], y[i]
                taken |= {int(i), int(j)}
                break
    assert len(taken) >= 6


def by_fold(orders: dict[Selection, bytes], fold: int | None) -> dict[Selection, bytes]:
    return {s: order for s, order in orders.items() if s.fold == fold}


def assert_held_out(before: Ranked, after: Ranked, fold: int, others: Iterable[int | None]) -> None:
    """Check that the orders of one fold are the same files, and that each method's of some others are not, unless it
    looks at no value.
    """
    then, now = ({k: v.tolist() for k, v in one.subset_rows().items()} for one in (before, after))
    assert then == now
    first, second = before.orders(), after.orders()
    of_fold = by_fold(first, fold)
    assert of_fold
    assert [s for s in of_fold if first[s] != second[s]] == []
    for other in others:
        unchanged = {s.method for s in by_fold(first, other) if first[s] == second[s]}
        assert unchanged <= {"RandomOrder"}, other


# ----------------------------------------------------------------------------------------------------- nothing leaks
@pytest.mark.parametrize("task", ["classification", "regression"])
def test_no_held_out_row_or_label_reaches_a_selection(tmp_path: Path, task: str) -> None:
    """Of any method, with all labels and with few; and in the transductive setting they do."""
    data = make_data(task, weights=np.random.default_rng(1).integers(1, 4, N).astype(float))
    evaluate = {"setting": "both", "labels": [9 if task == "regression" else 6], "n_draws": 1}
    before = ranked(data.saved(tmp_path / "a"), tmp_path / "before", every_method(task), **evaluate)
    _, test = before.parts(1)
    assert data.is_labeled[test].all()
    after = ranked(disturbed(data, test).saved(tmp_path / "b"), tmp_path / "after", every_method(task), **evaluate)
    assert_held_out(before, after, 1, (0, 2, None))
    assert len({s.method for s in before.orders()}) == len(every_method(task))


def test_rows_of_a_tested_group_stay_out_without_a_label_too(tmp_path: Path) -> None:
    groups = np.random.default_rng(2).permutation(np.arange(N) % 12)
    data = make_data("classification", groups=groups)
    methods = FEW["classification"]
    before = ranked(data.saved(tmp_path / "a"), tmp_path / "before", methods, labels=[0.6])
    test = before.parts(1)[1]
    rows = np.flatnonzero(np.isin(groups, groups[test]))
    assert not np.intersect1d(groups[before.parts(1)[0]], groups[test]).size
    assert rows.size > test.size  # those without a label
    after = ranked(disturbed(data, rows).saved(tmp_path / "b"), tmp_path / "after", methods, labels=[0.6])
    assert_held_out(before, after, 1, (0, 2))


def test_rows_without_a_label_of_no_tested_group_are_seen(tmp_path: Path) -> None:
    """By what looks at them: so what stays the same stays so because of the groups."""
    groups = np.random.default_rng(2).permutation(np.arange(N) % 12)
    data = make_data("classification", groups=groups)
    methods = FEW["classification"]
    before = ranked(data.saved(tmp_path / "a"), tmp_path / "before", methods)
    apart = ~np.isin(groups, groups[before.parts(1)[1]])
    rows = np.flatnonzero(apart & ~data.is_labeled)
    after = ranked(disturbed(data, rows).saved(tmp_path / "b"), tmp_path / "after", methods)
    first, second = before.orders(), after.orders()
    assert {s.method for s in by_fold(first, 1) if first[s] == second[s]} == {"FisherScore"}


@pytest.mark.parametrize("task", ["classification", "regression"])
def test_rows_that_are_not_earlier_than_tested_ones_stay_out(tmp_path: Path, task: str) -> None:
    """Those after the tested ones, and those without a label of the same time or later."""
    times = np.random.default_rng(3).permutation(np.arange(N) // 2).astype(float)
    data, methods = make_data(task, times=times), FEW[task]
    before = ranked(data.saved(tmp_path / "a"), tmp_path / "before", methods)
    for fold in range(N_SPLITS - 1):
        rows = np.flatnonzero(times >= times[before.parts(fold)[1]].min())
        assert set(before.parts(fold)[1]) < set(rows)
        assert (~data.is_labeled[rows]).any()
        after = ranked(disturbed(data, rows).saved(tmp_path / f"b{fold}"), tmp_path / f"after{fold}", methods)
        assert_held_out(before, after, fold, range(fold + 1, N_SPLITS))
        assert_held_out(before, after, 0, ())


# ------------------------------------------------------------------------------- a selection is what an estimator finds
def fitted_order(method: dict[str, Any], X: Any, y: np.ndarray, weights: np.ndarray | None, task: str) -> np.ndarray:
    """Return the features that an estimator ranks, best first."""
    parameters = {key: value for key, value in method.items() if key not in ("name", "label")}
    if method["name"] == "SupervisedLaplacianScore":
        parameters["task"] = task
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # few rounds
        fitted = getattr(daskfs, method["name"])(**parameters).fit(X, y, sample_weight=weights)
    order = np.argsort(fitted.ranking_)
    return order[~fitted._is_excluded[order]]


@pytest.mark.parametrize(
    "sparse", [pytest.param(False, id="dense"), pytest.param(True, marks=pytest.mark.long, id="CSR")]
)
@pytest.mark.parametrize("task", ["classification", "regression"])
def test_a_selection_is_what_an_estimator_finds(tmp_path: Path, task: str, sparse: bool) -> None:
    """Of the same rows, labels and weights, in the same order: of any method, in both settings."""
    data = make_data(task, weights=np.random.default_rng(1).integers(1, 4, N).astype(float))
    data.X[:, 4] = 1.5  # is constant, and ranked by none
    if sparse:
        data.X[np.abs(data.X) < 0.8] = 0
    methods = [m for m in every_method(task) if not (sparse and m.get("graph_scaling") == "zscore")]
    found = ranked(
        data.saved(tmp_path, sparse=sparse),
        tmp_path / "run",
        methods,
        setting="inductive" if sparse else "both",
        labels=[7],
        n_draws=1,
    )
    X = sp.csr_matrix(data.X) if sparse else data.X
    of = {method.get("label", method["name"]): method for method in methods}
    for selection in found.orders():
        rows = np.arange(N)
        if selection.fold is not None:
            rows = np.setdiff1d(rows, found.parts(selection.fold)[1])
        y = hidden(data, rows, selection)
        method = dict(of[selection.method])
        if method["name"] == "RandomOrder":
            parameters: Any = criteria()["RandomOrder"].parameters()
            method["random_state"] = parameters.redrawn(selection.place).random_state
        expected = fitted_order(method, X[rows], y, data.weights[rows], task)  # type: ignore[index]
        assert (4 in expected) == (method.get("score_scaling") == "unit")
        np.testing.assert_array_equal(found.order(selection), expected, str(selection))


def hidden(data: Data, rows: np.ndarray, selection: Selection) -> np.ndarray:
    """Return the labels of some rows as an estimator takes them, without those that a selection's draw left out."""
    y = data.y[rows]
    if selection.labels is None:
        return y
    assert selection.draw is not None
    classes = ("0", "1", "2") if data.task == "classification" else ()
    kept = draw_labels(Labels(data.task, y, classes), selection.labels, selection.draw, 0)
    return np.where(kept, y, -1 if data.task == "classification" else np.nan)


def test_a_class_that_is_held_out_whole(tmp_path: Path) -> None:
    """Where its two rows are tested, nothing tells a selection that there is a fourth class."""
    data = make_data("classification")
    names = ("FisherScore", "KolmogorovSmirnovScore", "InformationGainScore", "LSDF", "SSelect", "RLSR", "SVMRFE")
    methods = [{"name": name, **PARAMETERS.get(name, {})} for name in names]
    first = ranked(data_of_four(data, [0, 1]).saved(tmp_path / "a"), tmp_path / "first", methods[:1])
    _, test = first.parts(1)  # plain folds, as a class has too few rows: they do not depend on labels
    data = data_of_four(data, test[[3, 9]])
    found = ranked(data.saved(tmp_path / "b"), tmp_path / "found", methods)
    rows = np.setdiff1d(np.arange(N), found.parts(1)[1])
    assert set(data.y[rows]) == {-1, 0, 1, 2}
    of = {method.get("label", method["name"]): method for method in methods}
    for selection in by_fold(found.orders(), 1):
        expected = fitted_order(of[selection.method], data.X[rows], data.y[rows], None, "classification")
        np.testing.assert_array_equal(found.order(selection), expected, selection.method)


def data_of_four(data: Data, places: Any) -> Data:
    """Return data in which two labeled rows have a class of their own."""
    changed = data.copy()
    changed.y[np.flatnonzero(changed.is_labeled)[places] if max(places) < 2 else places] = 3
    return changed
