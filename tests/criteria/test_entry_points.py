"""Criteria of other packages: named by a job, and needed by nobody who reads its run."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import daskfs
from daskfs.criteria import entry_points
from daskfs.criteria.registry import Method, criteria, make_method
from daskfs.errors import InputError, JobError
from daskfs.kernels.labels import Labels
from daskfs.plan.inline import memory_context, score_features
from tests.cases import each
from tests.cli.command import daskfs as command
from tests.own_criterion import range_score

X = np.random.default_rng(0).normal(size=(60, 9)) * np.arange(1, 10)
Y = np.repeat(["a", "b"], 30)
READ = """
import json, sys, daskfs
from daskfs.errors import JobError
from daskfs.runs.status import rewrite_report, run_status

run = sys.argv[1] + "/run"
rewrite_report(run)
assert "RangeScore" in open(run + "/report.html").read()
assert not (problems := daskfs.verify_run(run)["problems"]), problems
assert run_status(run)["status"] == "done"
try:
    daskfs.run(json.loads(sys.argv[2]), progress=False)
except JobError as error:
    assert "unknown method 'RangeScore'" in str(error)
else:
    raise AssertionError("resumed without the criterion")
"""


def install(folder: Path, points: str = "RangeScore = range_score:RANGE_SCORE", name: str = "ranges") -> Path:
    """Install the package into a folder, as pip does, in version 1.0."""
    folder.mkdir(exist_ok=True)
    shutil.copy(range_score.__file__, folder / "range_score.py")
    facts = folder / f"{name}-1.0.dist-info"
    facts.mkdir()
    (facts / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (facts / "entry_points.txt").write_text(f"[daskfs.criteria]\n{points}\n")
    return folder


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Folder that this process, and those that it starts, import from."""
    site = tmp_path / "site"
    site.mkdir()
    monkeypatch.syspath_prepend(site)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(site), *filter(None, [os.environ.get("PYTHONPATH")])]))
    entry_points.load_criterion.cache_clear()
    yield site
    entry_points.load_criterion.cache_clear()
    sys.modules.pop("range_score", None)


def job(folder: Path, **keys: Any) -> dict[str, Any]:
    np.save(folder / "X.npy", X)
    np.save(folder / "y.npy", Y)
    evaluate = {"n_selected": [3], "n_splits": 2}
    methods = [{"name": "RangeScore", "power": 2}, "VarianceScore"]
    data = {"source": str(folder / "X.npy"), "labels": str(folder / "y.npy")}
    return {"data": data, "methods": methods, "evaluate": evaluate, "output": {"path": str(folder / "run")}, **keys}


@pytest.mark.cluster
@pytest.mark.parametrize("workers", [0, 2])
def test_a_job_ranks_reports_and_evaluates(site: Path, tmp_path: Path, workers: int) -> None:
    """And whoever reads its run imports nothing: the package may be gone."""
    install(site)
    ranking = job(tmp_path, cluster={"workers": workers, "memory_limit": "1GiB"})
    result = daskfs.run(ranking, progress=False)
    ranges = (X.max(axis=0) - X.min(axis=0)) ** 2
    fitted = range_score.RangeScore(power=2).fit(X)
    own = result.ranking[result.ranking["method"] == "RangeScore"].sort_values("rank")
    assert own["feature"].tolist() == np.argsort(-ranges).tolist()
    np.testing.assert_allclose(fitted.scores_, ranges)
    assert "RangeScore" in set(result.evaluation["method"])
    assert "ranges==1.0" in json.dumps(json.loads((tmp_path / "run" / "plan.json").read_text()))
    (tmp_path / "run" / "report.html").unlink()
    shutil.rmtree(site)
    read = subprocess.run([sys.executable, "-c", READ, str(tmp_path), json.dumps(ranking)], check=False)
    assert read.returncode == 0


def test_it_is_listed_and_its_parameters_are_checked(site: Path) -> None:
    install(site)
    listed = json.loads(command("methods", "--json").out)["methods"]
    assert [row["name"] for row in listed] == [*criteria(), "RangeScore"]
    assert (listed[-1]["package"], listed[0]["package"]) == ("ranges==1.0", None)
    assert "RangeScore" in command("schema").out
    with pytest.raises(JobError, match=r"method RangeScore has no parameter 'powr'\. Did you mean 'power'"):
        make_method("RangeScore", {"powr": 2})
    daskfs.check_criterion("RangeScore", power=2)


def test_a_plan_loads_it_when_it_scores_in_the_version_that_it_names(site: Path) -> None:
    install(site)
    raw = json.loads(json.dumps(make_method("RangeScore", {"power": 2}).to_json()))
    entry_points.load_criterion.cache_clear()
    stored = Method.from_json(raw)
    assert stored.to_json() == raw
    assert entry_points.load_criterion.cache_info().currsize == 0
    assert stored.needs == make_method("RangeScore", {}).needs
    with pytest.raises(InputError, match=r"of ranges==0.9, which is installed as ranges==1.0 in this process"):
        _ = Method.from_json({**raw, "criterion": {**raw["criterion"], "package": "ranges==0.9"}}).needs
    shutil.rmtree(site / "ranges-1.0.dist-info")
    entry_points.load_criterion.cache_clear()
    with pytest.raises(InputError, match=r"of ranges==1.0, which is not installed in this process"):
        _ = stored.needs


@each("name", ["LaplacianScore", "FisherScore", "SupervisedLaplacianScore", "RandomOrder"])
def test_a_stored_criterion_scores_as_itself(name: str) -> None:
    """With its graph, its p-values, and its parameters for each ranking of an evaluation."""
    criterion = replace(criteria()[name], name="Elsewhere", package="elsewhere==2.0")
    labels = Labels("classification", np.repeat([0, 1], 30), ("a", "b"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("daskfs.criteria.registry.load_criterion", lambda _: criterion)
        patch.setattr(entry_points, "load_criterion", lambda _: criterion)
        tests = {"significance": True} if criterion.significance else {}
        method = make_method("Elsewhere", {"task": "classification", **tests} if "Super" in name else tests)
        stored = Method.from_json(json.loads(json.dumps(method.to_json())))
        assert (stored.fields, stored.direction, stored.untested) == (method.fields, method.direction, method.untested)
        assert stored.parameters.lists(60) == method.parameters.lists(60)
        drawn = stored.parameters.redrawn((3,))
        assert drawn.model_dump() == {**drawn.model_dump(), **method.parameters.redrawn((3,)).model_dump()}
        tables = [score_features(memory_context(X, labels), [one], labels)["Elsewhere"] for one in (method, stored)]
    np.testing.assert_array_equal(tables[0], tables[1])
    assert ("pvalue" in stored.fields) == (criterion.significance is not None)


@each(
    ("points", "problem"),
    [
        ("RangeScore = nowhere:RANGE_SCORE", r"of ranges==1.0 cannot be loaded: No module named 'nowhere'"),
        ("RangeScore = range_score:NOTHING", "cannot be loaded: .*NOTHING"),
        ("RangeScore = range_score:RangeScore", r"cannot be used: .*, and no daskfs\.criteria\.criterion\.Criterion"),
        ("Range = range_score:RANGE_SCORE", "method Range of ranges==1.0 cannot be used: its name is 'RangeScore'"),
    ],
)
def test_what_is_no_criterion_is_refused_with_its_package(
    tmp_path_factory: pytest.TempPathFactory, points: str, problem: str
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(install(tmp_path_factory.mktemp("site"), points))
        entry_points.load_criterion.cache_clear()
        with pytest.raises(JobError, match=problem):
            make_method(points.split()[0], {})
    entry_points.load_criterion.cache_clear()


def test_two_packages_with_one_name(site: Path) -> None:
    install(site)
    install(site, name="others")
    with pytest.raises(JobError, match=r"defined by others==1.0 and ranges==1.0"):
        make_method("RangeScore", {})


BROKEN: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "the order of features changes no score": lambda scores: scores * np.arange(1, scores.size + 1),
    "other features change no score, to the bit": lambda scores: scores / np.nanmax(scores),
    "a constant feature has no rank": np.nan_to_num,
    "some feature has a rank": lambda scores: np.full(scores.size, np.nan),
}


@each("law", BROKEN)
def test_the_check_names_the_law_that_is_broken(law: str) -> None:
    def broken(statistics: Any, parameters: Any) -> dict[str, np.ndarray]:
        return {"score": BROKEN[law](range_score.score(statistics, parameters)["score"])}

    with pytest.MonkeyPatch.context() as patch:
        criterion = replace(range_score.RANGE_SCORE, score=broken)
        patch.setattr("daskfs.criteria.registry.load_criterion", lambda _: criterion)
        with pytest.raises(AssertionError, match=law):
            daskfs.check_criterion("RangeScore")


@each("name", [name for name in criteria() if name != "RandomOrder"])
def test_all_criteria_of_daskfs_pass_the_check(name: str) -> None:
    daskfs.check_criterion(name)
