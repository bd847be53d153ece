"""Planning of a run: the stages after the tiles, with their parameters and sizes."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

from daskfs.errors import InputError, JobError
from daskfs.evaluation.design import DESIGN_STAGE
from daskfs.graph.edges import EDGES_SUMMARY_STAGE
from daskfs.graph.plan import search_warnings
from daskfs.graph.precomputed import WeightMatrix
from daskfs.graph.precomputed_files import open_graph
from daskfs.graph.representation import Representation, open_representation
from daskfs.job.job import Job
from daskfs.kernels.labels import Task
from daskfs.plan.chain import Chain, Data, check_missing
from daskfs.plan.given import check_given
from daskfs.plan.lists import limited_lists, needed_lists
from daskfs.ranking.batches import RankedBatch, combined_method
from daskfs.ranking.images import SCORE_IMAGES_STAGE, ImagesParameters
from daskfs.ranking.settings import RunSettings
from daskfs.ranking.tables import RANK_STAGE
from daskfs.runs.batches import check_batches
from daskfs.runs.evaluation import plan_evaluation
from daskfs.runs.selection import selected_count, tested_blocks, wanted_filter
from daskfs.runs.tiles import is_tile_store, plan_tiles, source_spec
from daskfs.sources import SourceSpec
from daskfs.sources.bundled import IMAGE_SHAPES
from daskfs.sources.checks import split_reference
from daskfs.stages.cost import WORD, Cost, Workers
from daskfs.stages.stage import Plan, Stage, digest, moved_beside, with_fingerprints
from daskfs.storage import as_path, is_url
from daskfs.store.shape import Shape
from daskfs.tiles.plan import TilePlan
from daskfs.version import __version__

IMAGES = 4
"""Maximum number of selection sizes with an image; the smallest are taken."""


def plan_run(
    job: Job,
    tiles: TilePlan,
    task: Task | None,
    workers: Workers,
    names: Sequence[str] | None = None,
    batches: Sequence[RankedBatch] = (),
) -> Plan:
    """Plan all stages of a run after the tiles.

    The task is None without labels or if not known yet, and so are the feature names. `batches` are those whose runs
    come before this one; empty if not known yet. Raise :class:`InputError` or :class:`JobError` if the data do not fit
    the job: n_neighbors >= n_samples, more selected features than n_features.
    """
    shape = tiles.shape
    methods, path = job.make_methods(task), job.graph.precomputed
    uses_graph = any(method.criterion.uses_graph for method in methods)
    graph = open_graph(as_path(path)) if uses_graph and path is not None else None
    if isinstance(graph, WeightMatrix):
        methods = job.make_methods(task, on_matrix=True)
    rep = representation(job) if uses_graph else None
    lists = needed_lists(
        methods,
        shape.n_samples,
        lambda spec: job.completed(spec) if rep is None else rep.completed(job.completed(spec)),
    )
    redundancy = wanted_filter(job, names)
    check_missing(tiles.missing, methods, *(["select.redundancy"] if redundancy and redundancy.measure else []))
    if graph is not None:
        check_given(graph, methods, shape.n_samples)
        lists = limited_lists(lists, graph)
    data = Data(shape, tiles.missing, tiles.has_weights, tiles.n_classes, tiles.n_labeled)
    if tiles.has_batch:
        check_batches(job)
        methods = [combined_method(method) for method in methods]
        # the runs of the batches searched these lists in the same processes: count their memory
        chain = Chain(data, (), lists, lists.keys(), None, batches=batches)
    else:
        chain = Chain(data, methods, lists, (), graph, rep)
    chain = dataclasses.replace(chain, redundancy=redundancy, filtered=methods, blocks=tested_blocks(job, names))
    chain = dataclasses.replace(chain, memory_limit=workers.unit_limit, n_units=workers.n_units)
    stages = chain.stages()
    process, n_selected = chain.scored_process, selected_count(job, shape.n_features)
    fdr = job.select.fdr
    settings = RunSettings(
        methods=tuple(methods),
        n_features=n_selected if fdr is None else None,
        fdr=fdr,
        significance=job.tests is not None,
        filtered=redundancy is not None,
    )
    stages.append(Stage.of(RANK_STAGE, "rank", 1, settings, RANK_STAGE.cost(shape.n_features, len(methods), process)))
    stages += plan_images(job, shape, settings, process)
    tests, warnings = plan_evaluation(job, tiles, chain, names)
    stages += tests
    start = digest(tiles.fingerprint, dataclasses.asdict(shape), __version__)
    settled = with_fingerprints(moved_beside(stages, EDGES_SUMMARY_STAGE), start)
    # rows and folds depend on labels alone: they are drawn, or refused, while the first stages run
    first = settled[0].name
    settled = tuple(dataclasses.replace(one, begins_with=first) if one.is_of(DESIGN_STAGE) else one for one in settled)
    facts: dict[str, Any] = {"n_selected": n_selected, "shape": dataclasses.asdict(shape), "grids": job.grids()}
    facts["warnings"] = [one.to_json() for one in [*search_warnings(settled, shape.n_samples), *warnings]]
    facts["given"] = next((dict(graph_input.identity) for graph_input in (graph, rep) if graph_input is not None), None)
    facts["job_identity"] = digest(job.identity())
    facts["job"] = digest(start, job.identity(), facts["given"])
    identity = digest(facts["job"], [stage.fingerprint for stage in settled])
    return Plan(tiles.url, settled, identity, start, facts=facts, tiles_fingerprint=tiles.fingerprint)


def representation(job: Job) -> Representation | None:
    """Describe the job's representation of the rows; return None if it has none.

    It is a file, a member of a file (``FILE:MEMBER``), a URL, or a member of the job's source. Raise
    :class:`InputError` if there is no such file or member, or its rows are sparse.
    """
    use_rep = job.graph.use_rep
    if use_rep is None:
        return None
    where = f"graph.use_rep {use_rep}"
    if (reference := split_reference(use_rep)) is not None:
        return open_representation(SourceSpec(source=str(reference[0]), array=reference[1]), where)
    if is_url(use_rep) or as_path(use_rep).exists():
        return open_representation(SourceSpec(source=str(as_path(use_rep))), where)
    spec = source_spec(job.data)
    if is_tile_store(spec):
        msg = (
            f"{where}: there is no such file, and tiles, as {spec.source}, keep no other members of their source: give "
            "the path of a file, or FILE:MEMBER."
        )
        raise InputError(msg)
    try:
        return open_representation(SourceSpec(source=spec.source, array=use_rep), where)
    except InputError as error:
        msg = f"{where}: there is no such file, and no such member of data.source: {error}"
        raise InputError(msg) from error


def planner_for_memory(
    job: Job, tiles: TilePlan, task: Task | None, workers: Workers, names: Sequence[str] | None, *, is_cut: bool
) -> Callable[[int], Sequence[Stage]]:
    """Return a function from a worker's memory limit to the stages of the run, those of its tiles first.

    Arguments are those of :func:`plan_run`, for the present limit. If `is_cut`, some tiles exist and keep their shape.
    """

    def planned_at(memory_limit: int) -> Sequence[Stage]:
        workers_at_limit = dataclasses.replace(workers, memory_limit=memory_limit)
        cut = tiles if is_cut else plan_tiles(job.data, tiles.url, workers_at_limit)
        return (*cut.stages, *plan_run(job, cut, task, workers_at_limit, names).stages)

    return planned_at


def plan_images(job: Job, shape: Shape, settings: RunSettings, process: Cost) -> list[Stage]:
    """Plan the stage that writes scores as images; an empty list unless data.image_shape or the source says how.

    Raise :class:`JobError` if the number of pixels is not n_features, or two images would have the same name.
    """
    image_shape = job.data.image_shape or IMAGE_SHAPES.get(job.data.source)
    if image_shape is None:
        return []
    rows, columns = image_shape
    if rows * columns != shape.n_features:
        msg = (
            f"data.image_shape [{rows}, {columns}] stands for {rows * columns} features, and X has {shape.n_features}: "
            "set it to the rows and columns of an image."
        )
        raise JobError(msg)
    labels = {method.label for method in settings.methods}
    for label in labels:
        if f"{label}-selected" in labels:
            msg = f"methods '{label}' and '{label}-selected' would have one image: give one of them another label."
            raise JobError(msg)
    sizes = job.evaluate.n_selected if job.evaluate is not None else ()
    shown = [n for n in sizes if n < shape.n_features][:IMAGES] or [selected_count(job, shape.n_features)]
    parameters = ImagesParameters(settings.methods, settings.filtered, image_shape, job.data.image_order, tuple(shown))
    read = WORD * shape.n_features * sum(len(method.fields) for method in settings.methods)
    cost = SCORE_IMAGES_STAGE.cost(shape.n_features, process)
    return [Stage.of(SCORE_IMAGES_STAGE, "score-images", 1, parameters, cost, bytes_read=read)]
