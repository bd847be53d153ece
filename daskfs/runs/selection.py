"""Selection settings of a job: the number of features, and the redundancy filter."""

from __future__ import annotations

from collections.abc import Sequence

from daskfs.errors import JobError
from daskfs.graph.halves import NO_BLOCKS, FeatureBlocks
from daskfs.job.job import Job
from daskfs.ranking.redundancy import RedundancySpec, check_counts, numbered_choice, numbered_groups
from daskfs.runs.tiles import source_spec
from daskfs.sources import open_source
from daskfs.storage import as_path
from daskfs.store import layout
from daskfs.store.store import Store
from daskfs.tiles.plan import TilePlan


def selected_count(job: Job, n_features: int) -> int:
    """Return the number of selected features, by default half of all; :class:`JobError` if the job wants too many."""
    n_wanted = job.select.n_features
    if n_wanted is not None and n_wanted > n_features:
        msg = f"select.n_features is {n_wanted}, and the data have {n_features} features."
        raise JobError(msg)
    block = job.select.redundancy
    if n_wanted is not None and block is not None:
        reach = None if block.measure is None else block.n_candidates
        check_counts(n_wanted, len(set(block.keep)), reach, "select.redundancy.")
    return n_wanted if n_wanted is not None else max(1, n_features // 2)


def listed_names(job: Job, tiles: TilePlan) -> Sequence[str] | None:
    """Return the feature names before the tiles exist; None for a job that names no feature."""
    block = job.select.redundancy
    listed = block is not None and (block.keep or block.drop or block.groups)
    in_blocks = job.tests is not None and (job.tests.blocks or job.tests.gap)
    if not listed and not in_blocks and not (job.evaluate and job.evaluate.informative):
        return None
    if tiles.stages:
        names = open_source(source_spec(job.data)).info.feature_names
    else:
        names = Store(as_path(tiles.url)).read_json(layout.FEATURE_NAMES, list)
    return names if names is not None else [f"x{i}" for i in range(tiles.shape.n_features)]


def tested_blocks(job: Job, names: Sequence[str] | None) -> FeatureBlocks:
    """Return the blocks of features for tests; none if there are no tests, or if the names are None."""
    if job.tests is None or names is None:
        return NO_BLOCKS
    return FeatureBlocks.of(names, numbered_groups(job.tests.block_of(), names, "significance.blocks"), job.tests.gap)


def wanted_filter(job: Job, names: Sequence[str] | None) -> RedundancySpec | None:
    """Return the job's redundancy filter, or None if it has none.

    Lists and groups are converted to indices by the feature names; :class:`JobError` for a name that no feature has. If
    the names are None, `drop` and groups are empty, and only the length of `keep` is valid.
    """
    block = job.select.redundancy
    if block is None:
        return None
    scalars = block.model_dump(include={"measure", "threshold", "demote", "n_candidates", "max_per_group"})
    known_names = names if names is not None else block.keep
    drop, groups = (block.drop, block.group_of()) if names is not None else ((), {})
    choice = numbered_choice(known_names, block.keep, drop, groups, "select.redundancy.")
    return RedundancySpec(**scalars, choice=choice, scaling=job.transform.score, n_wanted=job.select.n_features)
