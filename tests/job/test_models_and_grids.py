"""Models of the evaluation and grids of parameters, as a job file says them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from daskfs.errors import JobError
from daskfs.evaluation.models import ModelSpec
from daskfs.job.evaluation import EvaluateBlock
from daskfs.job.job import Job, load_job, make_job
from daskfs.job.schema import json_schema
from tests.job.test_job_file import MINIMAL, valid

GRID = {"name": "SSelect", "grid": {"trade_off": [0, 0.1, 0.2]}}


def job_with(**blocks: Any) -> Job:
    return make_job({**MINIMAL, **blocks})


def evaluation(**keys: Any) -> EvaluateBlock:
    block = job_with(evaluate=keys).evaluate
    assert block is not None
    return block


class TestModels:
    def test_default_is_nearest_neighbors_as_the_block_says(self) -> None:
        assert evaluation().model_specs(None) == (ModelSpec("knn", "knn", {"n_neighbors": 5}),)
        assert evaluation(n_neighbors=3).model_specs("regression") == (ModelSpec("knn", "knn", {"n_neighbors": 3}),)
        own = {"name": "knn", "n_neighbors": 1, "label": "1NN"}
        specs = evaluation(n_neighbors=3, models=["knn", own]).model_specs("classification")
        assert [(spec.label, spec.parameters["n_neighbors"]) for spec in specs] == [("knn", 3), ("1NN", 1)]

    @pytest.mark.parametrize(
        "models",
        [
            "ridge",
            ["ridge"],
            [{"name": "ridge"}],
            {"name": "ridge", "parameters": {}},
            [{"name": "ridge", "metrics": []}],
        ],
    )
    def test_forms_of_one_model(self, models: Any) -> None:
        assert evaluation(models=models).model_specs(None) == (ModelSpec("ridge", "ridge"),)

    def test_parameters_label_and_metrics(self) -> None:
        short = {"name": "rbf-svm", "label": "SVM (C=10)", "C": 10, "metrics": ["accuracy", "f1_macro"]}
        long = {"name": "rbf-svm", "label": "SVM (C=10)", "parameters": {"C": 10}, "metrics": ["accuracy", "f1_macro"]}
        expected = (ModelSpec("rbf-svm", "SVM (C=10)", {"C": 10}, ("accuracy", "f1_macro")),)
        assert evaluation(models=[short]).model_specs("classification") == expected
        assert evaluation(models=[long]).model_specs("classification") == expected
        one = evaluation(models=[{"name": "ridge", "metrics": "r2"}]).model_specs("regression")
        assert one[0].metrics == ("r2",)

    def test_overrides(self, tmp_path: Path) -> None:
        path = tmp_path / "job.yaml"
        path.write_text(yaml.safe_dump({**MINIMAL, "evaluate": {"models": ["knn", "kmeans"]}}))
        job = load_job(path, ["evaluate.models.1.n_restarts=3", "evaluate.models.0=ridge"])
        assert job.evaluate is not None
        assert job.evaluate.model_specs(None) == (
            ModelSpec("ridge", "ridge"),
            ModelSpec("kmeans", "kmeans", {"n_restarts": 3}),
        )

    @pytest.mark.parametrize(
        ("models", "parts"),
        [
            ([], ["'evaluate.models'", "at least 1"]),
            ([5], ["'evaluate.models.0'", "Keys should stand here"]),
            ([{"label": "x"}], ["'evaluate.models.0.name' is missing"]),
            (["knn", "nn"], ["evaluate.models.1: unknown model 'nn'"]),
            (["knn", {"name": "rbf-svm", "kernel": "poly"}], ["evaluate.models.1.kernel"]),
            ([{"name": "kmeans", "parameters": {"n_restart": 1}}], ["evaluate.models.0.n_restart", "'n_restarts'"]),
            ([{"name": "knn", "metrics": ["accurracy"]}], ["evaluate.models.0.metrics.0", "Did you mean 'accuracy'?"]),
            ([{"name": "knn", "metrics": 3}], ["'evaluate.models.0.metrics'"]),
            ([{"name": "ridge", "alpha": float("nan")}], ["'evaluate.models.0.parameters'", "'alpha' should be a fin"]),
            ([{"name": "ridge", "alpha": {"a": 1}}], ["'evaluate.models.0.parameters'", "'alpha' should be"]),
            (["knn", "knn"], ["two models are called 'knn': give one of them a label"]),
            ([{"name": "knn", "label": "a/b"}], ["model label 'a/b': use letters"]),
            ([{"name": "knn", "label": "a" * 61}], ["model label 'aaaa", "60 bytes at most"]),
        ],
    )
    def test_bad_ones_are_named(self, models: Any, parts: list[str]) -> None:
        with pytest.raises(JobError) as caught:
            evaluation(models=models)
        assert all(part in str(caught.value) for part in parts), str(caught.value)

    def test_the_task_decides_when_it_is_known(self) -> None:
        block = evaluation(models=["knn", "kmeans"])
        assert len(block.model_specs("classification")) == 2
        with pytest.raises(JobError, match=r"evaluate\.models\.1: model kmeans is for classes"):
            block.model_specs("regression")

    def test_models_decide_the_results(self) -> None:
        assert job_with(evaluate={"models": ["ridge"]}).identity() != job_with(evaluate={}).identity()
        assert job_with(evaluate={"models": "knn"}).identity() == job_with(evaluate={"models": ["knn"]}).identity()


class TestGrids:
    def test_a_grid_is_one_method_for_each_value(self) -> None:
        job = job_with(methods=["VarianceScore", GRID])
        methods = job.make_methods("classification")
        labels = [method.label for method in methods]
        assert labels == ["VarianceScore", "SSelect trade_off=0", "SSelect trade_off=0.1", "SSelect trade_off=0.2"]
        assert [method.parameters.trade_off for method in methods[1:]] == [0, 0.1, 0.2]  # type: ignore[attr-defined]
        written_out = [{"name": "SSelect", "trade_off": t, "label": f"SSelect trade_off={t}"} for t in (0, 0.1, 0.2)]
        assert job_with(methods=["VarianceScore", *written_out]).make_methods("classification") == methods

    def test_where_the_report_finds_what_a_method_was_made_of(self) -> None:
        job = job_with(methods=["VarianceScore", {**GRID, "label": "S4"}])
        assert job.grids() == {f"S4 trade_off={t}": ("S4", {"trade_off": t}) for t in (0, 0.1, 0.2)}
        assert set(job.grids()) == {method.label for method in job.make_methods(None)[1:]}
        assert job_with(methods=["SSelect"]).grids() == {}

    def test_several_keys_and_what_stays_fixed(self) -> None:
        grid = {"weights": ["heat", "binary"], "t": ["mean", 2.5], "self_loops": [True, False]}
        job = job_with(methods=[{"name": "LaplacianScore", "n_neighbors": 7, "grid": grid}])
        methods = job.make_methods(None)
        assert len(methods) == 8
        assert methods[0].label == "LaplacianScore weights=heat t=mean self_loops=true"
        assert methods[-1].label == "LaplacianScore weights=binary t=2.5 self_loops=false"
        assert {method.parameters.n_neighbors for method in methods} == {7}  # type: ignore[attr-defined]
        chosen = [(m.parameters.weights, m.parameters.t, m.parameters.self_loops) for m in methods]  # type: ignore[attr-defined]
        assert len(set(chosen)) == 8
        assert job.grids()[methods[1].label][1] == {"weights": "heat", "t": "mean", "self_loops": False}

    def test_null_and_long_form(self) -> None:
        parameters = {"n_neighbors": 3}
        entry = {"name": "LaplacianScore", "parameters": parameters, "grid": {"graph_scaling": [None, "zscore"]}}
        first, second = job_with(methods=[entry]).make_methods(None)
        assert (first.label, second.label) == (
            "LaplacianScore graph_scaling=null",
            "LaplacianScore graph_scaling=zscore",
        )
        assert first.parameters.model_dump()["graph_scaling"] is None
        assert first.parameters.model_dump()["n_neighbors"] == 3

    @pytest.mark.parametrize(
        ("entry", "parts"),
        [
            ({"grid": {"trade_of": [0.1]}}, ["method SSelect has no parameter 'trade_of'", "'trade_off'"]),
            ({"grid": {"trade_off": []}}, ["'methods.0.grid'", "'trade_off' should be a list of values"]),
            ({"grid": {"trade_off": 0.1}}, ["'methods.0.grid'", "'trade_off' should be a list of values"]),
            ({"grid": {"trade_off": [[0.1]]}}, ["'methods.0.grid'", "not [0.1]"]),
            ({"grid": {"trade_off": [float("inf")]}}, ["'methods.0.grid'", "finite numbers"]),
            ({"grid": {"trade_off": [0.1, 2]}}, ["method SSelect, parameter 'trade_off'", "less than or equal to 1"]),
            ({"grid": {"trade_off": [0.1, 0.1]}}, ["two methods are called 'SSelect trade_off=0.1'"]),
            ({"grid": {"trade_off": [0.1]}, "trade_off": 0.2}, ["'methods.0'", "'trade_off' has a value and a list"]),
            ({"grid": {"task": ["regression"]}}, ["method SSelect has no parameter 'task'"]),
            ({"grid": ["trade_off"]}, ["'methods.0.grid'", "dictionary"]),
            ({"grid": {"n_neighbors": list(range(1, 3))}, "label": "a" * 190}, ["method label 'aaa", "too long"]),
        ],
    )
    def test_bad_ones_are_named(self, entry: dict[str, Any], parts: list[str]) -> None:
        with pytest.raises(JobError) as caught:
            job_with(methods=[{"name": "SSelect", **entry}])
        assert all(part in str(caught.value) for part in parts), str(caught.value)

    def test_a_grid_decides_the_results(self) -> None:
        other = {"name": "SSelect", "grid": {"trade_off": [0, 0.1, 0.3]}}
        assert job_with(methods=[GRID]).identity() != job_with(methods=[other]).identity()

    def test_override(self, tmp_path: Path) -> None:
        path = tmp_path / "job.yaml"
        path.write_text(yaml.safe_dump(MINIMAL))
        job = load_job(path, ["methods.0=SSelect", "methods.0.grid.trade_off=[0, 1]"])
        assert len(job.make_methods(None)) == 2


class TestSchema:
    @pytest.mark.parametrize(
        "blocks",
        [
            {"evaluate": {"models": "knn"}},
            {"evaluate": {"models": {"name": "kmeans", "n_restarts": 2}}},
            {"evaluate": {"models": ["knn", {"name": "ridge", "alpha": 2, "metrics": "r2", "label": "R"}]}},
            {"evaluate": {"models": [{"name": "ridge", "parameters": {"alpha": 2}, "metrics": ["r2", "rmse"]}]}},
            {"methods": [GRID]},
            {"methods": [{"name": "LaplacianScore", "parameters": {"n_neighbors": 3}, "grid": {"t": ["mean", 2]}}]},
        ],
    )
    def test_takes_what_the_loader_takes(self, blocks: dict[str, Any]) -> None:
        job_with(**blocks)
        assert valid({**MINIMAL, **blocks}, json_schema(), json_schema())

    @pytest.mark.parametrize(
        "blocks",
        [
            {"evaluate": {"models": []}},
            {"evaluate": {"models": [{"label": "x"}]}},
            {"evaluate": {"models": [3]}},
            {"evaluate": {"models": [{"name": "knn", "metrics": [1]}]}},
            {"methods": [{"name": "SSelect", "grid": {"trade_of": [0.1]}}]},
            {"methods": [{"name": "SSelect", "grid": {"trade_off": []}}]},
            {"methods": [{"name": "SSelect", "grid": {"trade_off": 0.1}}]},
        ],
    )
    def test_refuses_what_the_loader_refuses(self, blocks: dict[str, Any]) -> None:
        with pytest.raises(JobError):
            job_with(**blocks)
        assert not valid({**MINIMAL, **blocks}, json_schema(), json_schema())

    def test_default_of_models_is_one(self) -> None:
        found = json_schema()["$defs"]["EvaluateBlock"]["properties"]["models"]["default"]
        assert evaluation(models=found) == evaluation()
