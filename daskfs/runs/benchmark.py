"""Studies: the same methods over several data sets, one run for each, and a comparison of the runs.

A study file is a job file with `datasets` instead of `data`. Each data set becomes its own job, with its run in
``output.path/NAME``. A data set leaves out the methods and models that its labels do not support, so `methods: all` can
mean every method of the registry.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import Field, field_validator

from daskfs.block import Block
from daskfs.criteria.registry import check_labels, criterion_named
from daskfs.data_block import DataBlock
from daskfs.errors import InputError, JobError
from daskfs.execution.clusters.blocks import ClusterBlock
from daskfs.execution.connection import SharedCluster
from daskfs.execution.progress import OfSeveral, Progress, Silent
from daskfs.execution.signals import stoppable
from daskfs.job.blocks import OutputBlock
from daskfs.job.checks import check_block
from daskfs.job.dask import DaskKeys
from daskfs.job.job import METHOD_LABEL_BYTES, Job, make_job
from daskfs.job.keys import read_keys
from daskfs.job.methods import EVERY, check_names, with_every
from daskfs.job.storage import DESCRIPTION, StorageKeys, with_storage_access
from daskfs.kernels.labels import LabelCounts
from daskfs.runs.comparison import CompareBlock, compare, open_evaluated, study_facts
from daskfs.runs.manifest import lock_directory
from daskfs.runs.pipeline import run_job
from daskfs.runs.repair import error_context
from daskfs.runs.status import plan_job
from daskfs.runs.tiles import is_tile_store, source_spec
from daskfs.sources.labels import encode_labels
from daskfs.storage import as_path
from daskfs.store import layout
from daskfs.store.context import label_counts_of, open_tiles
from daskfs.store.store import Store
from daskfs.store.subset import open_part_or_source

OVERRIDES = ("transform", "graph", "methods", "select", "evaluate")
"""Blocks of a job whose keys a data set may override."""


class Study(Block):
    """The keys of a study file."""

    datasets: dict[str, dict[str, Any]] = Field(min_length=1)
    transform: dict[str, Any] = Field(default_factory=dict)
    graph: dict[str, Any] = Field(default_factory=dict)
    methods: str | list[Any] = Field("all", description="As in a job; all stands for every method that serves.")
    select: dict[str, Any] = Field(default_factory=dict)
    evaluate: dict[str, Any] = Field(default_factory=dict)
    compare: CompareBlock = CompareBlock()
    cluster: ClusterBlock = ClusterBlock()
    dask: DaskKeys = Field(default_factory=dict, description="As in a job.")
    storage: StorageKeys = Field(default_factory=dict, description=DESCRIPTION)
    output: OutputBlock

    @field_validator("datasets", mode="before")
    @classmethod
    def _sources_alone(cls, value: Any) -> Any:
        if not isinstance(value, Mapping):
            msg = "datasets names data sets, for example {digits: sklearn:digits, mine: {source: X.npz, labels: y}}"
            raise ValueError(msg)
        return {name: {"source": entry} if isinstance(entry, str) else entry for name, entry in value.items()}

    @field_validator("methods")
    @classmethod
    def _a_list(cls, value: str | list[Any]) -> str | list[Any]:
        if isinstance(value, str) and value not in EVERY:
            msg = "methods is 'all' or a list, for example [VarianceScore, {name: LaplacianScore, n_neighbors: 10}]"
            raise ValueError(msg)
        return value


@dataclass(frozen=True)
class Member:
    """One data set of a study: its job, and notes on what its labels exclude."""

    name: str
    job: Job
    notes: tuple[str, ...]


# -------------------------------------------------------------------------------------------------- from file to jobs
def load_study(path: str | Path, overrides: Sequence[str] = ()) -> Study:
    """Read a study file, as :func:`daskfs.load_job` reads a job.

    Raises
    ------
    JobError
        The message names the file and the key.

    Examples
    --------
    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> from daskfs import load_study
    >>> with TemporaryDirectory() as folder:
    ...     file = Path(folder, "study.yaml")
    ...     _ = file.write_text(
    ...         "{datasets: {iris: {source: sklearn:iris}}, methods: all, output: {path: runs/study}}"
    ...     )
    ...     study = load_study(file)
    >>> list(study.datasets)
    ['iris']
    """
    return make_study(read_keys(path, overrides), str(path))


def make_study(raw: Mapping[str, Any], where: str = "study") -> Study:
    """Make a study from nested dictionaries and check it.

    The keys are those of a job, with `datasets` (name to data block) instead of `data`, and `compare`.

    Raises
    ------
    JobError
        The message names the key, and its data set.

    Examples
    --------
    >>> from daskfs import make_study
    >>> study = make_study({
    ...     "datasets": {"iris": {"source": "sklearn:iris"}, "wine": {"source": "sklearn:wine"}},
    ...     "methods": ["VarianceScore", "FisherScore"],
    ...     "output": {"path": "runs/study"},
    ... })
    >>> list(study.datasets)
    ['iris', 'wine']
    """
    study: Study = check_block(Study, raw, where)
    try:
        check_names(list(study.datasets), "data set", METHOD_LABEL_BYTES, "it names a directory")
    except JobError as error:
        msg = f"{where}: {error}"
        raise JobError(msg) from None
    for name in study.datasets:
        if name.endswith((".csv", ".parquet", ".html", ".json")):
            msg = f"{where}: data set name '{name}' looks like a file of the study: leave the ending out."
            raise JobError(msg)
        if raw_evaluate(study, name) is None:
            msg = f"{where}: a study compares by evaluate, and evaluate of '{name}' is null."
            raise JobError(msg)
        candidate(study, name, where)
    return study


def raw_evaluate(study: Study, name: str) -> dict[str, Any] | None:
    """Return the evaluate block of a data set, completed by the study's keys; None if the data set sets it to null."""
    own_keys = study.datasets[name].get("evaluate", {})
    return None if own_keys is None else {**study.evaluate, **own_keys}


def candidate(study: Study, name: str, where: str = "study") -> Job:
    """Return the job of a data set with all methods, whether or not its labels support them."""
    entry = study.datasets[name]
    title = None if study.output.title is None else f"{study.output.title}: {name}"
    raw = {
        "data": {key: value for key, value in entry.items() if key not in OVERRIDES},
        **{key: {**getattr(study, key), **(entry.get(key) or {})} for key in ("transform", "graph", "select")},
        "methods": entry.get("methods", study.methods),
        "evaluate": raw_evaluate(study, name),
        "cluster": study.cluster,
        "dask": study.dask,
        "storage": {name: bucket.model_dump() for name, bucket in study.storage.items()},
        "output": {"path": str(as_path(study.output.path) / name), "title": title},
    }
    return make_job(raw, f"{where}, data set {name}")


def members(study: Study) -> list[Member]:
    """Read all labels, and return the job of each data set without the methods and models that they do not support.

    Raise :class:`DaskfsError` if labels are missing, cannot be read, or support no method or model; a note names the
    data set.
    """
    study_members = []
    for name in study.datasets:
        with error_context("data set", name):
            study_members.append(_member(study, name))
    return study_members


def _member(study: Study, name: str) -> Member:
    job = candidate(study, name)
    labels = _labels_of(job.data)
    if labels is None:
        msg = f"a study compares by evaluation, and the data have no labels: set datasets.{name}.labels."
        raise InputError(msg)
    notes, methods = [], []
    for entry, _ in with_every(job.methods):
        try:
            check_labels(criterion_named(entry.name), entry.base_label, labels)
            methods.append(entry)
        except InputError as error:
            notes.append(f"{name}: left out, {error}")
    if not methods:
        msg = f"no method serves the labels. {' '.join(notes)}"
        raise InputError(msg)
    assert job.evaluate is not None
    models = []
    for model in job.evaluate.models:
        try:
            job.evaluate.model_copy(update={"models": (model,)}).model_specs(labels.task)
            models.append(model)
        except JobError as error:
            notes.append(f"{name}: model left out, {error}")
    if not models:
        msg = f"no model serves the labels. {' '.join(notes)}"
        raise JobError(msg)
    evaluate = job.evaluate.model_copy(update={"models": tuple(models)})
    data = job.data.model_copy(update={"task": labels.task} if job.data.task == "auto" else {})
    member_job = job.model_copy(update={"methods": tuple(methods), "evaluate": evaluate, "data": data})
    return Member(name, member_job, tuple(notes))


def _labels_of(data: DataBlock) -> LabelCounts | None:
    spec = source_spec(data)
    if is_tile_store(spec):
        return label_counts_of(open_tiles(spec.source))[0]
    source = open_part_or_source(spec)
    raw = source.read_labels()
    if raw is None:
        return None
    labels = encode_labels(raw, source.info.n_samples, data.task, spec.unlabeled)
    return LabelCounts.of(labels, source.read_sample_column("weights"))


# -------------------------------------------------------------------------------------------------------- all the runs
@with_storage_access
def run_study(
    study: Study, progress: Progress | None = None, *, overwrite: bool = False, command: str | None = None
) -> dict[str, Any]:
    """Run or resume a study: one run after the other on one cluster, then the comparison.

    Parameters
    ----------
    study
        The study.
    progress
        Receives the progress of the runs.
    overwrite
        First delete runs of other jobs in these directories.
    command
        Command line to show in the reports.

    Returns
    -------
    dict
        Content of ``study.json``, and ``recomputed``: units that this call ran, by data set and stage.

    Raises
    ------
    DaskfsError
        Any subclass; a note names the data set. Finished runs are kept, and the same call resumes the study.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> from daskfs import make_study, run_study
    >>> with TemporaryDirectory() as folder:
    ...     study = make_study({
    ...         "datasets": {"iris": {"source": "sklearn:iris"}, "wine": {"source": "sklearn:wine"}},
    ...         "methods": ["VarianceScore", "FisherScore"],
    ...         "evaluate": {"n_selected": [2]},
    ...         "cluster": {"workers": 0},
    ...         "output": {"path": folder},
    ...     })
    ...     found = run_study(study)
    >>> [row["method"] for row in found["average_ranks"]]
    ['FisherScore', 'VarianceScore']
    """
    progress = progress or Silent()
    store = Store(as_path(study.output.path))
    started = time.monotonic()
    wait_seconds = study.cluster.wait_seconds
    locking = lock_directory(store, layout.STUDY_JSON, "daskfs study", "output.path", progress.message, wait_seconds)
    with stoppable(), locking, SharedCluster() as cluster:
        study_members = members(study)
        store.write_json(layout.STUDY_JSON, study_facts("running"))
        results = {}
        for member in study_members:
            display = OfSeveral(progress, f"data set {member.name}")
            with error_context("data set", member.name):
                results[member.name] = run_job(
                    member.job, display, overwrite=overwrite, command=command, connect=cluster.connected
                )
        runs = [open_evaluated(member.name, member.job.output.path) for member in study_members]
        notes = [note for member in study_members for note in member.notes]
        title = study.output.title
        summary = compare(runs, store, study.compare.model_dump(), title=title, notes=notes)
        warnings = [f"{name}: {one['text']}" for name, result in results.items() for one in result["warnings"]]
        seconds = {name: result["seconds"] for name, result in results.items()}
        facts = {**study_facts("done"), **summary, "warnings": warnings, "seconds": seconds, "command": command}
        store.write_json(layout.STUDY_JSON, facts)
    recomputed = {name: result["recomputed"] for name, result in results.items()}
    page = str(store.path(layout.COMPARISON_HTML))
    return {**facts, "recomputed": recomputed, "wall_seconds": round(time.monotonic() - started, 3), "page": page}


@with_storage_access
def plan_study(study: Study) -> dict[str, Any]:
    """Plan a study without running or writing anything.

    The result holds that of :func:`daskfs.runs.status.plan_job` for each data set, with notes on what is left out.
    """
    plans = {}
    for member in members(study):
        with error_context("data set", member.name):
            plans[member.name] = {**plan_job(member.job), "notes": list(member.notes)}
    return {
        "output": str(as_path(study.output.path)),
        "units": sum(stage["units"] for plan in plans.values() for stage in plan["stages"]),
        "peak_bytes": max(plan["peak_bytes"] for plan in plans.values()),
        "data_sets": plans,
    }
