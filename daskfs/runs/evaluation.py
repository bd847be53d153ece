"""Planning of the evaluation stages of a job."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from daskfs.criteria.consensus import seeing_labels
from daskfs.criteria.outside import OUTSIDE
from daskfs.criteria.registry import Method, make_method
from daskfs.errors import InputError, JobError, nearest
from daskfs.evaluation.design import EvaluationParameters, NewRankings
from daskfs.evaluation.keys import EvaluationKeys
from daskfs.evaluation.neighbor_lists import (
    follows_from_candidates,
    lists_cost,
    lists_over_rows,
    matrix_cost,
    twice,
)
from daskfs.evaluation.plan import MAX_PARTS, Inside, plan_new_rankings, plan_tests_of_run, thinned_columns, used_shape
from daskfs.evaluation.rows import sample_cost
from daskfs.graph.precomputed import Graph, NeighborLists, WeightMatrix, run_entries
from daskfs.graph.spec import GraphSpec
from daskfs.job.blocks import GraphBlock
from daskfs.job.evaluation import EvaluateBlock
from daskfs.job.job import Job
from daskfs.plan.chain import Chain, Data
from daskfs.plan.lists import needed_lists, searches_cost
from daskfs.ranking.batches import within_batch
from daskfs.report.trust import LABELS_SEEN
from daskfs.run_warning import LIMITS, VOIDS, RunWarning
from daskfs.runs.extent import Extent, describe_extent, extents, is_affordable
from daskfs.stages.cost import PROCESS, USABLE, Array, Objects, fullest, total
from daskfs.stages.stage import Stage
from daskfs.store.shape import Shape
from daskfs.tiles.plan import TilePlan

FEW_TESTED = 2**20
"""Values, over all numbers of features of a selection, up to which one unit tests all of them."""
FEWEST_SPLITS = 3
"""Folds from which on one search serves them all: of two, half of the rows fall short of training rows."""
SORTED_ENTRY_BYTES = 150
"""Bytes of an entry of a precomputed weight matrix while its part for the rows in use is sorted."""
CHANCE, ALL_FEATURES = "RandomOrder", "AllFeatures"
NO_FEATURE = {"classification": "MajorityClass", "regression": "MedianTarget"}
"""Names of the baselines."""


def plan_evaluation(
    job: Job, tiles: TilePlan, chain: Chain, names: Sequence[str] | None
) -> tuple[list[Stage], list[RunWarning]]:
    """Plan the stages of a job's evaluation, none without labels, and warn of what it leaves out.

    `chain` is that of the run, with the rankings that are evaluated; `names` are the feature names, None if not known.
    The first extent that fits is used. If none fits, an evaluation whose `setting` the job names is planned, for the
    memory check to refuse, and any other is left out. Raise :class:`InputError` if the job sets one without labels.
    """
    evaluate = job.evaluate
    if evaluate is None:
        return [], []
    if not tiles.has_labels:
        if "evaluate" not in job.model_fields_set:
            return [], []
        msg = "evaluate needs labels, and the data have none: set data.labels, or evaluate: null."
        raise InputError(msg)
    methods, memory_limit = chain.all_methods, chain.memory_limit
    # keep and drop lists refer to features by index, and batches are ranked separately: do not thin features there
    joint = [] if chain.redundancy is not None or tiles.has_batch else methods
    shape, n_rows = tiles.shape, tiles.n_labeled or tiles.shape.n_samples
    stages: list[Stage] = []
    for extent in (all_extents := list(extents(evaluate, shape, n_rows, joint))):
        stages = plan_tests(evaluate, tiles, chain, names, job.graph, extent=extent)
        used = used_shape(shape, extent.max_samples, tiles.n_labeled)
        if _fits(stages, memory_limit) and is_affordable(evaluate, extent, shape, used, methods):
            left_out = describe_extent(extent, all_extents[0], n_rows, shape.n_features, methods)
            in_part = [RunWarning("evaluation in part", LIMITS, left_out)] if left_out else []
            return stages, block_warnings(evaluate, methods, shape.n_features) + in_part
    # if not even a test of the run's own rankings fits, refuse the evaluation
    plain = evaluate.model_copy(update={"setting": "transductive"})
    smallest = Extent(evaluate.max_samples, all_features=False)
    of_run = plan_tests(plain, tiles, chain, names, job.graph, extent=smallest)
    if not evaluate.is_thinned or not _fits(of_run, memory_limit):
        return stages, []
    text = "evaluation: left out, as it does not fit the memory of a worker; name evaluate.setting to see what it needs"
    return [], [RunWarning("evaluation in part", LIMITS, text)]


def _fits(stages: Sequence[Stage], memory_limit: int | None) -> bool:
    return memory_limit is None or max(stage.peak_bytes for stage in stages) <= USABLE * memory_limit


def block_warnings(evaluate: EvaluateBlock, methods: Sequence[Method], n_features: int) -> list[RunWarning]:
    """Warn of methods that saw labels of test rows, and of numbers of features that are more than there are."""
    warnings, saw = [], seeing_labels(methods)
    if saw and evaluate.setting != "inductive" and evaluate.train_on != "labeled":
        text = (
            f"evaluation: {', '.join(saw)} saw the labels of the rows that models are tested on, so their transductive "
            "values are too good, and do not compare with those of methods that saw none: set evaluate.setting: "
            "inductive"
        )
        warnings.append(RunWarning(LABELS_SEEN, VOIDS, text, tuple(saw)))
    is_named = "n_selected" in evaluate.model_fields_set
    if left_out := [str(size) for size in evaluate.n_selected if is_named and size > n_features]:
        text = f"evaluation: n_selected {', '.join(left_out)} left out, as the data have {n_features} features"
        warnings.append(RunWarning("sizes not evaluated", LIMITS, text))
    return warnings


def plan_tests(
    evaluate: EvaluateBlock,
    tiles: TilePlan,
    chain: Chain,
    names: Sequence[str] | None,
    graph: GraphBlock,
    *,
    extent: Extent,
    has_lists: bool = True,
) -> list[Stage]:
    """Plan the stages of an evaluation; :class:`JobError` if a key of `evaluate` does not fit the data or another key.

    Parameters
    ----------
    evaluate
        The evaluate block of the job.
    tiles
        The data, with labels.
    chain
        The chain of the rankings, for its methods, redundancy filter, precomputed graph or representation, columns of a
        slab, memory limit, and memory of a process after scoring.
    names
        Feature names; None if not known yet.
    graph
        Settings of the neighbor search.
    extent
        Size of the evaluation.
    has_lists
        Whether neighbor lists of all rows exist when the evaluation begins.
    """
    if tiles.has_times and evaluate.n_repeats > 1:
        msg = f"evaluate.n_repeats is {evaluate.n_repeats}, and folds by data.times are always the same: set it to 1."
        raise JobError(msg)
    shape, given_graph, memory_limit, redundancy = tiles.shape, chain.given, chain.memory_limit, chain.redundancy
    baselines, chance = _baselines(evaluate, extent, chain.all_methods, tiles)
    methods = [method.without_tests() for method in (*chain.all_methods, *chance)]
    sizes = tuple(n for n in evaluate.n_selected if n <= shape.n_features) or (shape.n_features,)
    parameters = EvaluationParameters(
        methods=tuple(methods),
        models=evaluate.model_specs(tiles.task),
        n_selected=sizes,
        max_samples=extent.max_samples,
        baselines=baselines,
        chance=chance[0].label if chance else None,
        is_asked=not evaluate.is_thinned,
        class_subsets=_class_subsets(evaluate, tiles.n_classes),
        informative=_numbers_of(evaluate.informative, names, "evaluate.informative"),
        filtered=redundancy is not None,
        anew=None,
        slab_columns=chain.columns,
        tests_together=min(extent.max_samples, tiles.n_labeled or shape.n_samples) * sum(sizes) <= FEW_TESTED,
        keys=EvaluationKeys(**evaluate.model_dump(include={*EvaluationKeys.model_fields})),
    )
    if not evaluate.ranks_anew and not any(method.criterion is OUTSIDE for method in methods):
        return plan_tests_of_run(shape, parameters, chain.scored_process)
    is_whole = shape.n_samples <= extent.max_samples
    used = used_shape(shape, extent.max_samples, tiles.n_labeled)
    inside_limit = None if memory_limit is None else max(memory_limit - int(3 * used.x_bytes / USABLE), 1)
    bands = -(-shape.n_bands // MAX_PARTS)
    anew = NewRankings(
        search=graph.search if chain.rep is None else chain.rep.completed(graph.search),
        redundancy=redundancy,
        given=None if given_graph is None else "lists" if isinstance(given_graph, NeighborLists) else "matrix",
        joint_features=extent.joint_features,
        lists_of_run=is_whole and has_lists and not isinstance(given_graph, WeightMatrix),
        shared=(),
        memory_limit=inside_limit,
        bands_per_unit=bands,
        n_parts=-(-shape.n_bands // bands),
    )
    if given_graph is None and not (tiles.has_batch or tiles.has_times) and tiles.missing == "refuse":
        anew = dataclasses.replace(anew, shared=_shared_lists(evaluate, anew, used, methods))
    inside = _ranking_memory(anew, used, methods, given_graph, tiles)
    return plan_new_rankings(shape, used, dataclasses.replace(parameters, anew=anew), chain.scored_process, inside)


def _shared_lists(
    evaluate: EvaluateBlock, anew: NewRankings, used: Shape, methods: Sequence[Method]
) -> tuple[str, ...]:
    """Return the lists over X that a search in each fold and one among all rows in use, of shape `used`, find alike.

    Empty if folds are of some classes alone, or few: then many rows would be searched twice.
    """
    if evaluate.setting == "transductive" or evaluate.n_classes is not None or evaluate.n_splits < FEWEST_SPLITS:
        return ()
    n_rows = used.n_samples - -(-used.n_samples // evaluate.n_splits)
    nnz = None if used.nnz is None else used.nnz * n_rows // used.n_samples
    fold = dataclasses.replace(used, n_samples=n_rows, nnz=nnz, tile_rows=n_rows)
    lists = lists_over_rows(methods, used.n_samples, anew.search)
    return tuple(n for n, (spec, k) in lists.items() if follows_from_candidates(spec, fold, k, anew.memory_limit))


def _baselines(
    evaluate: EvaluateBlock, extent: Extent, methods: Sequence[Method], tiles: TilePlan
) -> tuple[tuple[tuple[str, int], ...], list[Method]]:
    """Return the baselines without ranking, as [name, n_features], and the random order unless the job lists it."""
    if not evaluate.baselines:
        return (), []
    baselines = [(ALL_FEATURES, tiles.shape.n_features)] if extent.all_features else []
    baselines.append((NO_FEATURE[tiles.task or "classification"], 0))
    is_listed = any(method.criterion.name == CHANCE for method in methods)
    chance = [] if is_listed else [make_method(CHANCE, {"random_state": evaluate.random_state})]
    taken = {name for name, _ in baselines} | {method.label for method in chance}
    for method in methods:
        if method.label in taken:
            msg = (
                f"method label '{method.label}' names a baseline of the evaluation: choose another label, or set "
                "evaluate.baselines: false."
            )
            raise JobError(msg)
    return tuple(baselines), chance


def _ranking_memory(
    anew: NewRankings, used: Shape, methods: Sequence[Method], graph: Graph | None, tiles: TilePlan
) -> Inside:
    """Return the peak memory of a re-ranking inside an evaluation unit, on at most the rows in use.

    Rankings within batches search neighbors in one batch after the other, each with a copy of its rows.
    """
    methods, memory_limit = [within_batch(method) for method in methods], anew.memory_limit
    lists = needed_lists(methods, used.n_samples, anew.search.for_lists)
    over_rows = {name: wanted_lists for name, wanted_lists in lists.items() if isinstance(wanted_lists[0], GraphSpec)}
    n_labeled = None if tiles.n_labeled is None else min(tiles.n_labeled, used.n_samples)
    data = Data(used, tiles.missing, tiles.has_weights, tiles.n_classes, n_labeled)
    search_chain = Chain(data, lists=over_rows, given=graph, is_stored=True, memory_limit=memory_limit)
    process = (PROCESS, *searches_cost(lists, used, memory_limit))
    rankings: list[Stage] = []
    for method in methods:
        ranked_shape = thinned_columns(used, anew.joint_features) if method.criterion.is_joint else used
        rankings += Chain(
            dataclasses.replace(data, shape=ranked_shape),
            [method],
            lists,
            over_rows.keys(),
            graph,
            is_stored=True,
            redundancy=anew.redundancy,
            filtered=[method],
            memory_limit=memory_limit,
            base=process,
        ).stages()
    # with pairwise missing values: copies of X in which no value is missing, of sparse X also by column
    filled = sample_cost("rows where nothing is missing", used, 3 if used.is_sparse else 1) if tiles.is_pairwise else ()
    searching, scoring = (
        (*max((stage.cost for stage in stages), key=total, default=process), *filled)
        for stages in (search_chain.stages(), rankings)
    )
    if (columns := anew.search.rep_columns) is not None:
        searching = (*searching, Array("representation of the rows, as read and stored", (2, used.n_samples, columns)))
    list_arrays = lists_cost(over_rows, used.n_samples)
    if isinstance(graph, WeightMatrix):  # factor 2: rows differ in their number of edges
        entries = int(graph.n_entries * min(1.0, 2 * used.n_samples / tiles.shape.n_samples))
        list_arrays = matrix_cost(entries, used.n_samples)
        sorted_entries = min(entries, run_entries(entries))
        scoring = (*scoring, Objects("entries of the matrix while they are sorted", sorted_entries, SORTED_ENTRY_BYTES))
    if tiles.has_batch:
        of_batch = (*twice(list_arrays), *sample_cost("rows of a batch, and those that are seen of it", used, 2))
        return Inside(process, (*fullest(searching, scoring), *of_batch), ())
    return Inside(searching, scoring, list_arrays)


def _class_subsets(evaluate: EvaluateBlock, n_classes: int | None) -> tuple[tuple[int | None, int | None], ...]:
    """Return [number of classes, draw index] of each subset of classes; all classes are drawn once."""
    if evaluate.n_classes is None:
        return ((None, None),)
    return tuple((c, s) for c in evaluate.n_classes for s in range(1 if c == n_classes else evaluate.n_subsets))


def _numbers_of(features: Sequence[str], names: Sequence[str] | None, key: str) -> tuple[int, ...]:
    """Return the indices of named features; empty if the feature names are not known yet."""
    if names is None:
        return ()
    numbers = {name: number for number, name in enumerate(names)}
    for feature in features:
        if feature not in numbers:
            msg = f"{key} names '{feature}', and the data have no such feature.{nearest(feature, tuple(names))}"
            raise JobError(msg)
    return tuple(numbers[feature] for feature in features)
