"""The batches of a job's data, and the job of each batch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from daskfs.criteria.registry import Method, check_labels
from daskfs.data_block import DataBlock
from daskfs.errors import InputError, JobError
from daskfs.graph.spec import GraphSpec, check_neighbors
from daskfs.job.blocks import OutputBlock, SelectBlock
from daskfs.job.job import Job
from daskfs.kernels.labels import LabelCounts, Task
from daskfs.plan.lists import needed_lists
from daskfs.ranking.batches import check_batch_size
from daskfs.storage import as_path
from daskfs.store import layout
from daskfs.store.context import label_counts_of
from daskfs.store.tiles import Tiles


@dataclass(frozen=True)
class Batch:
    """One batch of rows, with the number of rows of each class.

    `methods` are the labels of those that rank the batch; `left_out` has the reason for each that does not, by label.
    """

    number: int
    name: str
    n_rows: int
    n_labeled: int
    classes: dict[str, int]
    methods: list[str]
    left_out: dict[str, str]


def check_batches(job: Job) -> None:
    """Raise :class:`JobError` for keys that cannot be combined with batches."""
    whole = next((key for key in ("precomputed", "use_rep") if getattr(job.graph, key) is not None), None)
    if whole is not None:
        msg = (
            f"graph.{whole} is of all rows, and batches have a graph each, of their own rows: leave out graph.{whole} "
            "or data.batch."
        )
        raise JobError(msg)


def find_batches(job: Job, tiles: Tiles) -> list[Batch]:
    """Return the batches of finished tiles.

    A method leaves out a batch with too few rows for its n_neighbors, or with labels that it cannot use (missing, or of
    one class). Raise :class:`InputError` if it leaves out all batches; the message says why the first one.
    """
    described, labels = tiles.info.facts["batch"], label_counts_of(tiles)[1:]
    methods = _ranking_batches(job, tiles.info.task)
    batches = []
    for number, (name, n_rows) in enumerate(zip(described["names"], described["rows"], strict=True)):
        batch_labels = labels[number] if labels else None
        left_out = {}
        for method in methods:
            try:
                _check_serves(job, method, batch_labels, n_rows)
            except InputError as error:
                left_out[method.label] = str(error)
        served = [method.label for method in methods if method.label not in left_out]
        batches.append(Batch(number, name, n_rows, *_counts(batch_labels), served, left_out))
    for method in methods:
        if not any(method.label in batch.methods for batch in batches):
            first = batches[0]
            msg = f"no batch serves method {method.label}; batch '{first.name}': {first.left_out[method.label]}"
            raise InputError(msg)
    return batches


def _ranking_batches(job: Job, task: Task | None) -> list[Method]:
    """Return the methods that rank each batch: all but a consensus, which combines their rankings over all batches."""
    return [method for method in job.make_methods(task) if not method.criterion.combines]


def _check_serves(job: Job, method: Method, labels: LabelCounts | None, n_rows: int) -> None:
    check_batch_size(n_rows)
    check_labels(method.criterion, method.label, labels)
    for lists, k in needed_lists([method], n_rows, job.completed).values():
        if isinstance(lists, GraphSpec):
            check_neighbors(k or 1, n_rows)


def _counts(labels: LabelCounts | None) -> tuple[int, dict[str, int]]:
    """Return the number of labeled rows, and of those of each class that there is."""
    if labels is None:
        return 0, {}
    return labels.n_labeled, {name: n for name, n in zip(labels.classes, labels.by_class, strict=True) if n}


def batch_url(run_url: str, number: int) -> str:
    """Return the URL of the run of a batch."""
    return str(as_path(run_url) / layout.BATCH_RUN.format(number))


def batch_jobs(job: Job, run_url: str, tiles: Tiles, batches: Sequence[Batch]) -> dict[str, Job]:
    """Return the jobs of the batches that any method ranks, by batch name."""
    task = tiles.info.task
    members = job.members(task)
    labels = [method.label for method in _ranking_batches(job, task)]
    jobs = {}
    for batch in batches:
        if not batch.methods:
            continue
        chosen = tuple(
            member.model_copy(update={"label": label})
            for member, label in zip(members, labels, strict=True)
            if label in batch.methods
        )
        title = f"{job.output.title}: batch {batch.name}" if job.output.title else None
        jobs[batch.name] = job.model_copy(
            update={
                "data": DataBlock(source=tiles.store.url, only_batch=batch.name),
                "methods": chosen,
                "consensus": False,
                "select": SelectBlock(n_features=job.select.n_features),
                "evaluate": None,
                "output": OutputBlock(path=batch_url(run_url, batch.number), title=title),
            }
        )
    return jobs
