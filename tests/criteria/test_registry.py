"""The table of criteria: what every row must say, and what its names and parameters answer to mistakes."""

from __future__ import annotations

import gc
import inspect
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from inspect import getsource
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

import daskfs
from daskfs.criteria.criterion import Criterion
from daskfs.criteria.registry import _all_criteria, check_labels, criteria, criterion_named, make_method
from daskfs.errors import InputError, JobError
from daskfs.estimators.base import ScoreSelector
from daskfs.kernels.labels import LabelCounts, Labels

NAMES = list(criteria())


def test_no_criterion_is_forgotten() -> None:
    """A file that defines criteria is a family, and its criteria are public names: a new one needs no other list."""
    folder = Path(inspect.getfile(Criterion)).parent
    names = [".".join(path.relative_to(folder).with_suffix("").parts) for path in folder.rglob("[a-z]*.py")]
    modules = {name: import_module(f"daskfs.criteria.{name}") for name in names}
    defining = {name: module.CRITERIA for name, module in modules.items() if "\nCRITERIA = (" in getsource(module)}
    assert set(defining) == set(Criterion.families)
    listed = [criterion for own in defining.values() for criterion in own if not criterion.is_outside]
    assert {criterion.name for criterion in listed} <= set(daskfs.__all__)


@pytest.mark.parametrize("name", NAMES)
class TestEveryRow:
    def test_texts_and_fields(self, name: str) -> None:
        """The citation names authors and year, the summary the direction, and fields begin with the score."""
        row = criteria()[name]
        assert re.search(r"[A-Z]\w+.*\((19|20)\d\d\)", row.citation)
        word = {"ascending": "small", "descending": "large"}[row.direction]
        assert f"{word} is good" in row.summary
        assert row.fields[0] == "score"
        assert len(set(row.fields)) == len(row.fields)

    def test_parameters_all_have_defaults_and_refuse_others(self, name: str) -> None:
        method = make_method(name, {})
        assert (method.label, method.criterion.name) == (name, name)
        assert method.needs
        with pytest.raises(JobError, match=f"method {name} has no parameter 'colour'"):
            make_method(name, {"colour": 1})

    def test_estimator_takes_every_parameter_of_a_job_with_its_default(self, name: str) -> None:
        """And describes each; its `graph` and `task` follow from the data in a job, and blocks are those of a block."""
        row, estimator = criteria()[name], getattr(daskfs, name)()
        assert isinstance(estimator, ScoreSelector)
        assert estimator.__sklearn_tags__().target_tags.required == row.needs_labels
        own = estimator.get_params()
        assert {key: own[key] for key in row.parameters.public_fields()} == {
            key: row.parameters.model_fields[key].default for key in row.parameters.public_fields()
        }
        beside = {"n_features_to_select", "graph", "task", "n_jobs", "significance_blocks", "significance_gap"}
        assert own.keys() - set(row.parameters.public_fields()) <= beside
        described = re.search(r"Parameters\n-+\n(.*?)\n\n\S", inspect.cleandoc(str(type(estimator).__doc__)), re.S)
        assert described
        assert set(re.findall(r"\w+", "\n".join(re.findall(r"(?m)^(\S.*)$", described[1])))) == own.keys()

    @pytest.mark.parametrize("kind", ["dense", "sparse", "missing"])
    def test_no_matrix_waits_for_garbage_collection(self, name: str, kind: str) -> None:
        """A worker would hold the rows of many units; objects that hold each other must hold none of X."""
        X = np.random.default_rng(0).random((60, 12), np.float32)
        given = {"dense": X, "sparse": sp.csr_matrix(np.where(X < 0.5, 0, X)), "missing": np.where(X < 0.1, np.nan, X)}
        garbage: list[object] = []
        with uncollected(garbage), suppress(InputError):  # not every criterion has a form for each kind
            getattr(daskfs, name)().fit(given[kind], np.repeat(["a", "b", "c"], 20))
        held = [r for one in garbage for r in gc.get_referents(one) if isinstance(r, np.ndarray)]
        assert max((array.nbytes for array in held), default=0) < X.nbytes // 4


@contextmanager
def uncollected(garbage: list[object]) -> Iterator[None]:
    """Collect no garbage, then list what a collection would free."""
    gc.collect()
    gc.disable()
    try:
        yield
        gc.set_debug(gc.DEBUG_SAVEALL)
        gc.collect()
        garbage += gc.garbage
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()


class TestUnknownNames:
    @pytest.mark.parametrize(
        ("name", "nearest"),
        [
            ("LaplaceScore", "LaplacianScore"),
            ("laplacian_score", "LaplacianScore"),
            ("fisherscore", "FisherScore"),
            ("PersonScore", "PearsonScore"),
            ("variance", "VarianceScore"),
            ("KolmogorovSmirnov", "KolmogorovSmirnovScore"),
            ("informationgain", "InformationGainScore"),
            ("rlsr", "RLSR"),
            ("SSFUS", "SSUFS"),
            ("SVM-RFE", "SVMRFE"),
        ],
    )
    def test_nearest_method(self, name: str, nearest: str) -> None:
        with pytest.raises(
            JobError, match=f"unknown method '{name}'. Did you mean '{nearest}'?.*Methods: {', '.join(NAMES)}"
        ):
            criterion_named(name)

    def test_nothing_near(self) -> None:
        with pytest.raises(JobError, match=r"unknown method 'xyz'\. Methods: "):
            make_method("xyz", {})

    @pytest.mark.parametrize(
        ("key", "nearest"), [("n_neighbours", "n_neighbors"), ("weight", "weights"), ("selfloops", "self_loops")]
    )
    def test_nearest_parameter(self, key: str, nearest: str) -> None:
        with pytest.raises(JobError, match=f"LaplacianScore has no parameter '{key}'. Did you mean '{nearest}'?"):
            make_method("LaplacianScore", {key: 1})

    @pytest.mark.parametrize(
        ("parameters", "message"),
        [
            ({"n_neighbors": 0}, r"parameter 'n_neighbors'.*greater than 0.*\(got 0\)"),
            ({"n_neighbors": 2.5}, r"parameter 'n_neighbors'.*\(got 2\.5\)"),
            ({"t": -1}, r"parameter 't.*\(got -1\)"),
            ({"t": 0}, r"parameter 't.*\(got 0\)"),
            ({"t": "mode"}, r"parameter 't.*\(got 'mode'\)"),
            (
                {"metric": "manhatten"},
                r"parameter 'metric': metric must be one of .*'manhattan', .*\(got 'manhatten'\)",
            ),
            ({"weights": "gauss"}, r"parameter 'weights'.*'heat'.*\(got 'gauss'\)"),
            ({"graph_scaling": "minmax"}, r"parameter 'graph_scaling'.*'zscore'"),
            ({"score_scaling": "minmax"}, r"parameter 'score_scaling'.*'zscore'"),
            ({"weights": "cosine"}, "weights 'cosine' need metric 'cosine'"),
        ],
    )
    def test_wrong_values(self, parameters: dict[str, Any], message: str) -> None:
        with pytest.raises(JobError, match=message):
            make_method("LaplacianScore", parameters)

    @pytest.mark.parametrize("t", [np.inf, np.nan])
    def test_width_must_be_finite(self, t: float) -> None:
        with pytest.raises(JobError, match="parameter 't"):
            make_method("LaplacianScore", {"t": t})


def classes(*values: int) -> Labels:
    names = tuple(f"c{code}" for code in range(max(values) + 1))
    return Labels("classification", np.array(values, dtype=np.int32), names)


def targets(*values: float) -> Labels:
    return Labels("regression", np.array(values))


class TestLabelChecks:
    @pytest.mark.parametrize("name", ["VarianceScore", "LaplacianScore"])
    def test_no_labels_needed(self, name: str) -> None:
        check_labels(criteria()[name], name, None)
        check_labels(criteria()[name], name, LabelCounts.of(classes(0, 0)))

    @pytest.mark.parametrize(
        ("name", "labels", "message"),
        [
            ("FisherScore", None, "method mine needs labels, and the data have none"),
            ("PearsonScore", None, "method mine needs labels, and the data have none"),
            ("FisherScore", targets(0.5, 1.5), "mine is for classification, and data.task is regression"),
            ("FisherScore", classes(-1, -1), "none of the 2 rows has one"),
            ("PearsonScore", targets(np.nan, np.nan, np.nan), "none of the 3 rows has one"),
            ("FisherScore", classes(1, -1, 1), "all 2 labeled rows have one class"),
            ("PearsonScore", classes(0, 0, -1), "all 2 labeled rows have one class"),
            ("PearsonScore", targets(2.0, np.nan, 2.0), "all 2 labeled rows have one value"),
            ("RLSR", None, "method mine needs labels, and the data have none"),
            ("SSUFS", targets(0.5, 1.5), "mine is for classification, and data.task is regression"),
            ("DSSFS", classes(1, -1, 1), "all 2 labeled rows have one class"),
            ("SVMRFE", targets(0.5, 1.5), "mine is for classification, and data.task is regression"),
            ("SVMRFE", classes(1, -1, 1), "all 2 labeled rows have one class"),
        ],
    )
    def test_labels_that_cannot_serve(self, name: str, labels: Labels | None, message: str) -> None:
        with pytest.raises(InputError, match=message):
            check_labels(criteria()[name], "mine", None if labels is None else LabelCounts.of(labels))

    @pytest.mark.parametrize("labels", [classes(0, 1, -1), targets(1.0, np.nan, 2.0)])
    def test_labels_that_serve(self, labels: Labels) -> None:
        check_labels(criteria()["PearsonScore"], "mine", LabelCounts.of(labels))


def test_no_two_criteria_have_one_name() -> None:
    families = (import_module(f"daskfs.criteria.{family}") for family in Criterion.families)
    assert sum(len(family.CRITERIA) for family in families) == len(_all_criteria())
