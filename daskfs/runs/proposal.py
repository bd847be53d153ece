"""Job proposed for a source, for those who have no job file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any

import yaml

from daskfs.criteria.consensus import BASELINE
from daskfs.job.job import make_data
from daskfs.job.methods import EVERY
from daskfs.kernels.missing import has_missing
from daskfs.runs.tiles import is_tile_store, source_spec
from daskfs.sources import open_source
from daskfs.sources.checks import COLLECTION, is_generated
from daskfs.sources.collection import collection_of
from daskfs.sources.description import table_files
from daskfs.sources.labels import LabelEncoding
from daskfs.sources.marked import unmarked
from daskfs.sources.resolve import NON_NUMERIC
from daskfs.storage import as_path
from daskfs.store.context import open_tiles

METHODS: dict[str | None, tuple[str, ...]] = {
    None: ("LaplacianScore", "VarianceScore"),
    "classification": ("FisherScore", "InformationGainScore", "LaplacianScore", "SSelect", "VarianceScore"),
    "regression": ("PearsonScore", "SupervisedLaplacianScore", "LaplacianScore", "VarianceScore"),
}
"""Methods that are proposed for each task of the labels: of each kind one that takes little time."""
LOOKED_AT = 2**24
"""Bytes of the rows that are searched for missing values."""


@dataclass(frozen=True)
class Proposal:
    """A job as nested dictionaries, and the columns of a table that it leaves out, as they hold no numbers."""

    job: dict[str, Any]
    left_out: tuple[str, ...]


def propose_job(
    source: str,
    *,
    data: Mapping[str, Any] | None = None,
    methods: str | Sequence[str | Mapping[str, Any]] = (),
    n_features: int | None = None,
    fdr: float | None = None,
    redundancy: float | None = None,
    output: str | None = None,
    fills: bool = False,
) -> Proposal:
    """Propose a job for a source; raise :class:`InputError` for a source or labels that cannot be read.

    Parameters
    ----------
    source
        As ``data.source``. Columns of a table that hold no numbers are left out.
    data
        Other keys of ``data``, such as the labels, by which the source is opened.
    methods, n_features, fdr, redundancy
        As in :func:`daskfs.rank`.
    output
        Directory of the run; by default below ``runs``, by the name of the source.
    fills
        Whether the job fills missing values, if the first rows have some.
    """
    data = {"source": source, **(data or {})}
    left_out: tuple[str, ...] = ()
    transform = {}
    block = make_data(data)
    spec = source_spec(block)
    if is_tile_store(spec):
        task = open_tiles(spec.source).info.task
    else:
        is_frame = source.startswith(COLLECTION) and collection_of(source).layout.is_frame
        if is_frame or (not is_generated(source) and table_files(as_path(source))):
            data["exclude"] = [*data.get("exclude", ()), NON_NUMERIC]
        opened = open_source(source_spec(make_data(data)))
        if (of_table := getattr(unmarked(opened), "left_out", None)) is not None:  # its columns have units of their own
            left_out, transform = of_table, {"transform": {"graph": "zscore"}}
        if "exclude" in data and not left_out:
            data["exclude"].remove(NON_NUMERIC)
        data = {key: value for key, value in data.items() if value != []}
        rows = min(opened.info.n_samples, max(1, LOOKED_AT // (8 * opened.info.n_features)))
        if fills and data.get("missing") is None and has_missing(opened.read_rows(0, rows)):
            data["missing"] = "mean"
        column = opened.labels_column()
        task = None if column is None else LabelEncoding(column.parts, block.task, spec.unlabeled).task
    rules = {"n_features": n_features, "fdr": fdr}
    select: dict[str, Any] = {key: value for key, value in rules.items() if value is not None}
    if redundancy is not None:
        select["redundancy"] = {"threshold": redundancy, "demote": True}
    chosen = [methods] if isinstance(methods, str) else list(methods or METHODS[task])
    job = {
        "data": data,
        "methods": chosen,
        **({"consensus": True} if _several(chosen) else {}),
        **transform,
        **({"select": select} if select else {}),
        "output": {"path": output or f"runs/{_stem(source)}"},
    }
    return Proposal(job, left_out)


def _several(methods: Sequence[str | Mapping[str, Any]]) -> bool:
    """Return whether entries of a job stand for several methods, baselines aside."""
    named = [one if isinstance(one, Mapping) else {"name": one} for one in methods]
    named = [one for one in named if one.get("name") != BASELINE]
    return len(named) > 1 or any("grid" in one or one.get("name") in EVERY for one in named)


def _stem(source: str) -> str:
    name = PurePath(source.partition("?")[0].rpartition(":")[2]).stem
    return "".join(sign if sign.isalnum() or sign in "-_." else "-" for sign in name).strip("-.") or "run"


COMMENTS = {
    "data": "where X and the labels are; exclude: columns of a table, by name, by pattern, or all that hold no numbers",
    "methods": "criteria, with parameters as {name: LaplacianScore, n_neighbors: 10}; 'daskfs methods' lists them",
    "consensus": "true ranks by the median of the ranks of all methods, too",
    "select": (
        "n_features: how many, or fdr: 0.05, those that are more than chance; redundancy: {threshold: 0.95} passes "
        "over copies of better features"
    ),
    "transform": "graph: zscore compares rows in standardized columns; score: zscore scores them",
    "evaluate": "models on the first features, in folds; null leaves it out",
    "cluster": "workers: 8, memory_limit: 4GiB of each; by default as the data and the machine ask for",
    "output": "directory of the run; the same command resumes it",
}
"""What each block of a commented job is for."""


def commented(proposal: Proposal) -> str:
    """Return a proposed job as YAML, with a comment above each block, and those that it does not need as comments."""
    lines = ["# Job for 'daskfs run'; 'daskfs schema' describes every key."]
    if proposal.left_out:
        lines.append(f"# These columns hold no numbers: {', '.join(proposal.left_out)}.")
    for key, text in COMMENTS.items():
        lines.append(f"\n# {text}")
        if key in proposal.job:
            lines.append(yaml.safe_dump({key: proposal.job[key]}, allow_unicode=True, sort_keys=False).rstrip())
        else:
            lines.append(f"# {key}:")
    return "\n".join(lines) + "\n"
