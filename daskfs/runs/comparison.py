"""Comparison of finished runs: average ranks over data sets, and paired differences on each data set.

On each data set the value of a method is the mean of one metric of one model over draws, folds, amounts of labels, and
the numbers of features that all methods have.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import Field, PositiveInt

from daskfs.block import Block
from daskfs.errors import InputError, JobError, nearest
from daskfs.evaluation.design import EvaluationParameters
from daskfs.evaluation.models import ModelSpec, Setting, metrics_of
from daskfs.evaluation.significance import average_ranks, friedman, indistinguishable_groups, nemenyi, rank_table
from daskfs.evaluation.tables import AMOUNTS, TESTED, Table, read_table, reversed_pair, typed, write_table
from daskfs.evaluation.trials import EVALUATE_STAGE
from daskfs.execution.progress import Silent
from daskfs.job.checks import check_block
from daskfs.job.job import METHOD_LABEL_BYTES
from daskfs.job.methods import check_names
from daskfs.runs.manifest import lock_directory, open_finished
from daskfs.stages.stage import Plan
from daskfs.storage import as_output_path, as_path
from daskfs.store import layout
from daskfs.store.store import Store
from daskfs.version import __version__


class CompareBlock(Block):
    """Keys that choose the value of a method on a data set."""

    model: str | None = Field(None, description="Label of a model. null: the first one that all runs have.")
    metric: str | None = Field(None, description="null: the first one of the model, on each data set.")
    n_selected: PositiveInt | None = Field(None, description="null: the mean over all numbers of features.")
    setting: Setting | None = Field(None, description="null: inductive where all runs are evaluated so.")


RANK_COLUMNS = typed("method average_rank n_data_sets")
MEAN_COLUMNS = typed("data_set method setting model metric mean rank higher_is_better")
DIFFERENCE_COLUMNS = {**typed("data_set setting model metric"), **AMOUNTS, **typed("best other difference"), **TESTED}


@dataclass(frozen=True)
class Evaluated:
    """A finished run with an evaluation, and the name of its data set."""

    name: str
    store: Store
    manifest: dict[str, Any]
    parameters: EvaluationParameters
    summary: list[dict[str, Any]]

    @property
    def models(self) -> dict[str, ModelSpec]:
        """Models by label, in the order of the job."""
        return {spec.label: spec for spec in self.parameters.models}

    @property
    def settings(self) -> set[str]:
        """Settings for which the run has values."""
        return {str(row["setting"]) for row in self.summary}

    @property
    def methods(self) -> list[str]:
        """Labels of the methods, in the order of the job, without the added baseline."""
        return [method.label for method in self.parameters.methods if method.label != self.parameters.chance]


def open_evaluated(name: str, url: str) -> Evaluated:
    """Open a finished run; raise :class:`StoreError` if there is none, :class:`InputError` without an evaluation."""
    store, manifest = open_finished(url)
    plan = Plan.read(store)
    parameters, summary = plan.parameters_of(EVALUATE_STAGE), read_table(store, "evaluation_summary")
    if parameters is None or not summary:
        msg = (
            f"the run in {store.url} has no evaluation to compare by: its job needs evaluate, and labels. "
            f"Without one, compare the ranks in {layout.RANKING_CSV} of the runs."
        )
        raise InputError(msg)
    return Evaluated(name, store, manifest, parameters, summary)


# -------------------------------------------------------------------------------------------- one value for each method
@dataclass(frozen=True)
class _Judged:
    """A data set with the mean of each method that has one."""

    run: Evaluated
    setting: str
    model: str
    metric: str
    higher_is_better: bool
    means: dict[str, float]
    notes: list[str]

    @property
    def best(self) -> str:
        pick = max if self.higher_is_better else min
        return pick(self.means, key=lambda label: self.means[label])

    @property
    def own(self) -> tuple[str, str, str, str]:
        return (self.run.name, self.setting, self.model, self.metric)


def _judge_run(run: Evaluated, setting: str, model: str, choices: Mapping[str, Any]) -> _Judged:
    task, notes = run.manifest["data"]["task"], []
    # read the metrics from the summary: earlier versions had other default metrics
    metrics = list(dict.fromkeys(str(row["metric"]) for row in run.summary if row["model"] == model))
    metrics = metrics or list(metrics_of(run.models[model], task))
    metric = choices["metric"] or metrics[0]
    if metric not in metrics:
        notes.append(f"{run.name} is judged by {metrics[0]}: model {model} has no {metric} there.")
        metric = metrics[0]
    key = (setting, model, metric)
    rows = [row for row in run.summary if (row["setting"], row["model"], row["metric"]) == key]
    rows = [row for row in rows if row["method"] in run.methods]
    cells: dict[tuple[Any, Any], dict[str, dict[int, float]]] = {}
    for row in rows:
        if row["n_selected"] is not None:
            of_method = cells.setdefault((row["n_classes"], row["labels"]), {}).setdefault(row["method"], {})
            of_method[row["n_selected"]] = float(row["mean"])
    labels = dict.fromkeys(method for of_cell in cells.values() for method in of_cell)
    whole = [label for label in labels if all(label in of_cell for of_cell in cells.values())]
    notes += [
        f"{run.name}: {label} has no values with some of the amounts of labels or classes, and is left out."
        for label in labels
        if label not in whole
    ]
    sizes_of_each = [set(of_cell[label]) for of_cell in cells.values() for label in whole]
    sizes = _common_sizes(run, sizes_of_each, choices["n_selected"], notes)
    means = {
        label: float(np.mean([[of_cell[label][n] for n in sizes] for of_cell in cells.values()])) for label in whole
    }
    if not means:
        msg = f"{run.name}: no method has a value of {metric} by {model} to compare: see {run.store.url}."
        raise InputError(msg)
    return _Judged(run, setting, model, metric, bool(rows[0]["higher_is_better"]), means, notes)


def _common_sizes(run: Evaluated, sizes: Sequence[set[int]], n_best: int | None, notes: list[str]) -> list[int]:
    """Return the numbers of features at which all methods have values, or the wanted one."""
    every, common = sorted(set().union(*sizes)), sorted(set.intersection(*sizes)) if sizes else []
    if n_best is not None and n_best not in common:
        msg = (
            f"compare.n_selected is {n_best}, and on {run.name} the methods have values at "
            f"{', '.join(map(str, common)) or 'no number of'} features."
        )
        raise JobError(msg)
    if n_best is not None:
        return [n_best]
    if sizes and not common:
        msg = f"{run.name}: the methods have values at no number of features that they share."
        raise InputError(msg)
    if common != every:
        notes.append(f"{run.name} is compared at {', '.join(map(str, common))} features, which every method has there.")
    return common


def _common_model(runs: Sequence[Evaluated], name: str | None) -> str:
    shared = [label for label in runs[0].models if all(label in run.models for run in runs)]
    if name is not None and name not in shared:
        models = tuple(dict.fromkeys(label for run in runs for label in run.models))
        msg = f"compare.model is '{name}', and not every run has it.{nearest(name, models)} All have: {shared}."
        raise JobError(msg)
    if not shared:
        each = "; ".join(f"{run.name}: {', '.join(run.models)}" for run in runs)
        msg = f"no model judges every run ({each})."
        raise JobError(msg)
    return name or shared[0]


def _common_setting(runs: Sequence[Evaluated], chosen_setting: str | None) -> str:
    shared = [name for name in ("inductive", "transductive") if all(name in run.settings for run in runs)]
    if chosen_setting is not None and chosen_setting not in shared:
        msg = f"compare.setting is {chosen_setting}, and not every run has it."
        raise JobError(msg)
    if not shared:
        each = "; ".join(f"{run.name}: {', '.join(sorted(run.settings))}" for run in runs)
        msg = (
            f"transductive and inductive values are not compared with each other, and no run has the others' ({each})."
        )
        raise JobError(msg)
    return chosen_setting or shared[0]


# ------------------------------------------------------------------------------------------------------ all data sets
def compare(
    runs: Sequence[Evaluated],
    output: Store,
    choices: Mapping[str, Any],
    *,
    title: str | None = None,
    notes: Sequence[str] = (),
) -> dict[str, Any]:
    """Compare finished runs, write the tables and the page, and return the summary.

    `choices` has the ``model``, ``metric``, ``n_selected`` and ``setting`` to compare by, None for the defaults of
    :func:`compare_runs`. Tables and page, with the title and the notes, are written into `output`.
    """
    model, setting = _common_model(runs, choices["model"]), _common_setting(runs, choices["setting"])
    judged = [_judge_run(run, setting, model, choices) for run in runs]
    methods = list(dict.fromkeys(label for one in judged for label in one.run.methods))
    table = np.array([[one.means.get(label, np.nan) for label in methods] for one in judged])
    table *= np.array([[1.0 if one.higher_is_better else -1.0] for one in judged])
    ranked = average_ranks(table, methods)
    summary: dict[str, Any] = {
        "title": title,
        "version": __version__,
        "created": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        "model": model,
        "setting": setting,
        "n_selected": choices["n_selected"],
        "average_ranks": [
            {"method": label, "average_rank": float(rank)}
            for label, rank in zip(ranked.methods, ranked.ranks, strict=True)
        ],
        "friedman": None,
        "critical_difference": None,
        "alike": [],
        "data_sets": [_comparison_facts(one, output) for one in judged],
        "notes": [*notes, *(text for one in judged for text in one.notes), *ranked.notes],
    }
    if len(runs) > 1 and len(ranked.methods) > 1:
        columns = [methods.index(label) for label in ranked.methods]
        difference = nemenyi(len(ranked.methods), len(runs))
        tested = asdict(friedman(table[:, columns]))
        # JSON has no infinity, which is the value of F if all data sets rank the methods alike
        summary["friedman"] = {key: value if np.isfinite(value) else None for key, value in tested.items()}
        summary["critical_difference"] = difference
        summary["alike"] = [list(pair) for pair in indistinguishable_groups(ranked.ranks, difference)]
    else:
        summary["notes"].append(
            "Ranks are tested over two data sets and two methods that have values on both, at least."
        )
    _write_tables(output, judged, summary)
    return summary


def _comparison_facts(one: _Judged, output: Store) -> dict[str, Any]:
    values = np.array([list(one.means.values())])
    ranks = dict(zip(one.means, rank_table(values, higher_is_better=one.higher_is_better)[0].tolist(), strict=True))
    data = one.run.manifest["data"]
    report = one.run.store.path(layout.REPORT_HTML)
    return {
        "name": one.run.name,
        "run": one.run.store.url,
        "report": report.relative_name(output.path("")),
        **{key: data[key] for key in ("source", "n_samples", "n_features", "task")},
        "model": one.model,
        "metric": one.metric,
        "higher_is_better": one.higher_is_better,
        "best": one.best,
        "means": [
            {"method": label, "mean": one.means.get(label), "rank": ranks.get(label)} for label in one.run.methods
        ],
        "differences": _differences(one),
    }


def _differences(one: _Judged) -> list[dict[str, Any]]:
    """Return the run's paired differences between its best method and every other, over all numbers of features."""
    differences = []
    for row in read_table(one.run.store, "comparisons"):
        names = {row["method"], row["other"]}
        is_own = (row["setting"], row["model"], row["metric"], row["n_selected"]) == (*one.own[1:], None)
        if not is_own or one.best not in names or not names <= {*one.run.methods}:
            continue
        pair = row if row["method"] == one.best else reversed_pair(row)
        kept_keys = ("n_classes", "labels", "n_selected", "p_value", "n_pairs", "other", "difference", "low", "high")
        differences.append({key: pair[key] for key in kept_keys})
    return differences


def _write_tables(output: Store, judged: Sequence[_Judged], summary: Mapping[str, Any]) -> None:
    ranks = [(row["method"], row["average_rank"], len(judged)) for row in summary["average_ranks"]]
    means, differences = [], []
    for one, described in zip(judged, summary["data_sets"], strict=True):
        better = one.higher_is_better
        means += [
            (one.run.name, row["method"], *one.own[1:], row["mean"], row["rank"], better) for row in described["means"]
        ]
        for row in described["differences"]:
            numbers = (row[key] for key in ("difference", "low", "high", "p_value", "n_pairs"))
            key = (row["n_classes"], row["labels"], row["n_selected"])
            differences.append((*one.own, *key, one.best, row["other"], *numbers, better))
    write_table(output, Table("average_ranks", RANK_COLUMNS, ranks))
    write_table(output, Table("means", MEAN_COLUMNS, means))
    write_table(output, Table("comparisons", DIFFERENCE_COLUMNS, differences))
    from daskfs.report.render import render_comparison

    output.write_bytes(layout.COMPARISON_HTML, render_comparison(summary).encode())


def compare_runs(
    runs: Sequence[str | Path], output: str | Path, *, compare_by: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Compare finished runs, each on another data set.

    Parameters
    ----------
    runs
        Directories of the runs. The directory name is the name of the run, with the parent's name before it if two
        runs have the same directory name.
    output
        Directory for ``average_ranks.csv``, ``means.csv``, ``comparisons.csv`` (each also as Parquet),
        ``comparison.html`` and ``study.json``.
    compare_by
        ``model`` (label), ``metric``, ``n_selected`` and ``setting`` to compare by. Default: the first model that all
        runs have, its first metric, the mean over all numbers of features, and the inductive setting if all runs have
        it.

    Returns
    -------
    dict
        Content of ``study.json``: average ranks, the tests of Friedman and Nemenyi, and for each data set the means,
        the best method and its differences to the others. Methods that some run lacks are shown but not ranked, and
        ``notes`` name them.

    Raises
    ------
    StoreError, InputError, JobError
        For a directory without a finished run, a run without evaluation, two runs of the same name, or runs that have
        no model or setting in common.

    References
    ----------
    Demšar (2006), "Statistical Comparisons of Classifiers over Multiple Data Sets", JMLR 7.

    Examples
    --------
    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> from daskfs import compare_runs, make_job, run_job
    >>> def ranked(run):
    ...     return run_job(make_job({
    ...         "data": {"source": f"sklearn:{run.name}"},
    ...         "methods": ["VarianceScore", "FisherScore"],
    ...         "evaluate": {"n_selected": [2]},
    ...         "cluster": {"workers": 0},
    ...         "output": {"path": str(run)},
    ...     }))
    >>> with TemporaryDirectory() as folder:
    ...     runs = [Path(folder, name) for name in ("iris", "wine")]
    ...     _ = [ranked(run) for run in runs]
    ...     found = compare_runs(runs, Path(folder, "comparison"))
    >>> found["average_ranks"][0]["method"]
    'FisherScore'
    """
    choices = check_block(CompareBlock, compare_by or {}, "compare").model_dump()
    if not runs:
        msg = "name the runs to compare."
        raise JobError(msg)
    paths = [as_path(run) for run in runs]
    names = [path.name for path in paths]
    names = [f"{p.parent.name}-{p.name}" if names.count(p.name) > 1 else p.name for p in paths]
    check_names(names, "run", METHOD_LABEL_BYTES, "it stands for a data set")
    evaluated_runs = [open_evaluated(name, str(path)) for name, path in zip(names, paths, strict=True)]
    store = Store(as_output_path(output))
    with lock_directory(store, layout.STUDY_JSON, "daskfs comparison", "--output", Silent().message):
        store.write_json(layout.STUDY_JSON, study_facts("running"))
        summary = compare(evaluated_runs, store, choices)
        facts = {**study_facts("done"), **summary}
        store.write_json(layout.STUDY_JSON, facts)
    return {**facts, "page": str(store.path(layout.COMPARISON_HTML))}


def study_facts(status: str) -> dict[str, Any]:
    """Return the first keys of ``study.json``: versions and status."""
    return {"format_version": layout.FORMAT_VERSION, "daskfs_version": __version__, "status": status}
