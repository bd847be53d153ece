"""The chain of stages from tiles to scores.

Jobs, batches, selectors, the rankings within an evaluation and ``daskfs plan`` all take their stages from it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial

from daskfs.criteria.distance_correlation.matrix import plan_correlation
from daskfs.criteria.invariants import are_crossed, plan_invariants, stream_bytes, tests_cost, tests_of
from daskfs.criteria.plan import compiled_cost, plan_finish, plan_scores, scored_columns, slab_columns
from daskfs.criteria.registry import Method
from daskfs.criteria.rescaled_regression.plan import plan_rescaled
from daskfs.criteria.row_blocks import weights_cost
from daskfs.criteria.slab import SCORE_STAGE, graph_needs, reads_labels
from daskfs.criteria.svmrfe.plan import plan_svm
from daskfs.errors import JobError
from daskfs.graph.edges import GIVEN
from daskfs.graph.halves import NO_BLOCKS, FeatureBlocks, plan_halves
from daskfs.graph.plan import plan_edges, plan_weights
from daskfs.graph.precomputed import Graph
from daskfs.graph.representation import Representation, plan_representation
from daskfs.graph.spec import ListsSpec, Weighting
from daskfs.kernels.distance_correlation.spec import CorrelationSpec
from daskfs.kernels.scaling import without_zscore
from daskfs.plan.given import plan_given, plan_streams
from daskfs.plan.lists import check_pairwise, longest_given, plan_all_lists, searches_cost
from daskfs.plan.transforms import asked_scalings
from daskfs.ranking.batches import RankedBatch
from daskfs.ranking.consensus import plan_consensus
from daskfs.ranking.plan import plan_combination, plan_redundancy
from daskfs.ranking.redundancy import RedundancySpec
from daskfs.stages.cost import MIN_UNITS, PROCESS, WORD, Cost, grown
from daskfs.stages.kind import kind_of
from daskfs.stages.stage import Stage
from daskfs.store.shape import Shape
from daskfs.tiles.transforms import plan_transforms


@dataclass(frozen=True)
class Data:
    """Sizes of X, its labels and its weights.

    Parameters
    ----------
    missing
        Policy for missing values: "refuse", "mean" or "pairwise".
    n_classes, n_labeled
        Number of classes and of labeled rows; None if not known yet.
    """

    shape: Shape
    missing: str = "refuse"
    is_weighted: bool = False
    n_classes: int | None = None
    n_labeled: int | None = None

    @property
    def is_pairwise(self) -> bool:
        """Whether missing values are left out instead of filled."""
        return self.missing == "pairwise"


@dataclass(frozen=True)
class Chain:
    """Stages from tiles to scores, in order.

    Parameters
    ----------
    lists
        Neighbor lists that the methods need, with their lengths, of :func:`daskfs.plan.lists.needed_lists`.
    known
        Names of the lists that are in the store already.
    given
        Precomputed graph, which replaces the lists over X.
    rep
        Representation of the rows in which `lists` compare them; None for X.
    is_stored
        Whether `given`, or `rep`, is in the store already.
    batches
        Batches of rows that were ranked separately; the rankings of the `filtered` methods are combined from them.
    filtered
        Methods whose rankings are filtered, by `redundancy`, or combined; scored in this chain or before.
    memory_limit
        Memory of one worker, bytes; None if unknown.
    n_units
        Number of slabs to cut a large X into, unless these were narrow.
    blocks
        Features that are in no graph that tests one of them.
    base
        Memory of a worker process before its first unit; empty if memory is not planned.
    """

    data: Data
    methods: Sequence[Method] = ()
    lists: Mapping[str, tuple[ListsSpec, int]] = dataclasses.field(default_factory=dict)
    known: Collection[str] = ()
    given: Graph | None = None
    rep: Representation | None = None
    is_stored: bool = False
    batches: Sequence[RankedBatch] | None = None
    redundancy: RedundancySpec | None = None
    filtered: Sequence[Method] = ()
    correlation: CorrelationSpec | None = None
    memory_limit: int | None = None
    n_units: int = MIN_UNITS
    blocks: FeatureBlocks = NO_BLOCKS
    base: Cost = (PROCESS,)

    @cached_property
    def process(self) -> Cost:
        """Memory of a process after a neighbor search."""
        if self.given is not None:
            return self.base
        return grown(self.base, *searches_cost(self.lists, self.data.shape, self.memory_limit))

    @cached_property
    def scored_process(self) -> Cost:
        """Memory of a process after a neighbor search and scoring."""
        return grown(self.process, *compiled_cost(self.data.shape, scaled=self.is_scaled))

    @property
    def is_scaled(self) -> bool:
        """Whether any method or the correlation reads rescaled columns, which take memory in addition to a slab."""
        scoring = any(need.scaling is not None for method in self.all_methods for need in method.needs)
        return scoring or (self.correlation is not None and self.correlation.felt is not None)

    @cached_property
    def columns(self) -> int:
        """Number of columns of a slab of the stages beside "score"."""
        return slab_columns(self.data.shape, self.memory_limit, self.n_units, scaled=self.is_scaled)

    @cached_property
    def scored_columns(self) -> int:
        """Number of columns of a slab of the stage "score"."""
        cost = partial(self._slab_cost, self.scored_process[1:])
        return scored_columns(self.data.shape, self.memory_limit, cost, self.n_units)

    def _slab_cost(self, process: Cost, columns: int) -> Cost:
        """List the memory of a unit that scores some columns."""
        data, shape, methods = self.data, self.data.shape, self.scored
        return (
            *SCORE_STAGE.cost(
                shape,
                columns,
                process,
                graph_needs(methods),
                methods,
                weighted=data.is_weighted,
                scaled=self.is_scaled,
                pairwise=data.is_pairwise,
            ),
            *tests_cost(shape, columns, methods),
        )

    @property
    def scored(self) -> Sequence[Method]:
        """The methods that score X: all but a consensus of others."""
        return [method for method in self.methods if not method.criterion.combines]

    @property
    def all_methods(self) -> Sequence[Method]:
        """The methods that this chain scores, else those that were scored before."""
        return self.methods or self.filtered

    def stages(self) -> list[Stage]:
        """Return the stages; :class:`daskfs.errors.DaskfsError` if the data do not meet the methods' requirements."""
        data, shape = self.data, self.data.shape
        searched = {name: list_and_k for name, list_and_k in self.lists.items() if name not in self.known}
        over_rows = {} if self.given is not None else searched
        check_pairwise(data.missing, over_rows)
        other_scalings = [] if self.correlation is None else [self.correlation.felt]
        if self.redundancy is not None and self.redundancy.measure is not None:
            other_scalings.append(without_zscore(self.redundancy.scaling))
        scalings = asked_scalings(self.methods, over_rows, other_scalings, weighted=data.is_weighted)
        check_tested(self.methods, data)
        stages = list(plan_halves(shape.n_features, [spec for spec, _ in over_rows.values()], self.blocks))
        stages += plan_transforms(shape, scalings)
        if self.given is not None and not self.is_stored:
            longest = longest_given(self.lists, self.given)
            stages.append(plan_given(self.given, shape.n_samples, longest, self.process))
        if self.rep is not None and not self.is_stored:
            stages.append(plan_representation(shape, self.rep))
        stages += plan_all_lists(shape, searched, self.memory_limit, self.given, pairwise=data.is_pairwise)
        if self.scored:
            stages += self._scoring()
        if self.batches is not None:
            batched = [method for method in self.filtered if method.combined]
            stages += plan_combination(shape, batched, self.batches, self.process)
        if self.methods or self.batches is not None:
            stages += plan_consensus(self.all_methods, shape.n_features, self.scored_process)
        if self.redundancy is not None:
            stages += plan_redundancy(shape, self.filtered, self.redundancy, self.columns, self.scored_process)
        if self.correlation is not None:
            stages += plan_correlation(shape, self.correlation, self.columns, self.scored_process)
        return with_weights(stages, shape.n_samples) if data.is_weighted else stages

    def _scoring(self) -> list[Stage]:
        """Return the stages from the neighbor lists to the scores of all methods."""
        shape, methods, process = self.data.shape, self.scored, self.process
        weightings = graph_needs(methods)
        stages: list[Stage] = []
        for name, k in dict.fromkeys((w.graph, w.n_neighbors) for w in weightings):
            if name != GIVEN:
                stages += plan_edges(shape.n_samples, name, k, process, self.lists[name][1])
        streaming = plan_weights(shape.n_samples, weightings, process)
        tests, columns, pairwise = tests_of(methods), self.scored_columns, self.data.is_pairwise
        streaming += plan_invariants(tests, shape.n_samples, process)
        cost = self._slab_cost(self.scored_process, columns)
        slabs = plan_scores(shape, methods, weightings, columns, cost, pairwise=pairwise)
        per_unit = label_bytes(weightings, shape.n_samples, labeled=reads_labels(methods, pairwise=pairwise))
        # if features are permuted, each unit reads the graphs on which they are tested once more
        per_unit += sum(stream_bytes(shape.n_samples, need) for need in tests)
        per_unit += 4 * shape.n_features * are_crossed(methods)
        read = slabs.bytes_read + slabs.n_units * per_unit
        streaming.append(dataclasses.replace(slabs, bytes_read=read))
        stages += plan_streams(streaming, self.given, shape.n_samples, process)
        return stages + self._finishes()

    def _finishes(self) -> list[Stage]:
        """Return the stages of the methods whose scores need more than one slab."""
        shape, methods, data = self.data.shape, self.scored, self.data
        single = [
            stage
            for method in methods
            if (finish := method.finish) and finish not in ("rescaled", "svm")
            for stage in plan_finish(shape, method, finish, self.columns, self.scored_process)
        ]
        limits = (self.scored_process, self.memory_limit, data.n_classes)
        together = plan_rescaled(shape, methods, self.columns, *limits)
        return single + together + plan_svm(shape, methods, *limits, data.n_labeled)


def with_weights(stages: Sequence[Stage], n_samples: int) -> list[Stage]:
    """Return the stages, with the memory and bytes of the row weights added to those that read them."""
    return [
        stage.with_more(*weights_cost(n_samples), bytes_read=stage.bytes_read + stage.n_units * WORD * n_samples)
        if kind_of(stage.kind).reads_weights
        else stage
        for stage in stages
    ]


def check_missing(policy: str, methods: Sequence[Method], *others: str) -> None:
    """Raise :class:`JobError` for a consumer that needs every value, if the policy is "pairwise".

    Those are joint methods, and the named others.
    """
    readers = [*(f"method {method.label}" for method in methods if method.criterion.is_joint), *others]
    if policy == "pairwise" and readers:
        msg = (
            f"{readers[0]} compares features, or rows, in all their values, and data.missing is pairwise, which leaves "
            f"some missing: set data.missing: mean, or leave {readers[0]} out."
        )
        raise JobError(msg)


def check_tested(methods: Sequence[Method], data: Data) -> None:
    """Raise :class:`JobError` for p-values of weighted rows, or of features that lack values."""
    tested = [method.label for method in methods if method.test is not None]
    if tested and (data.is_weighted or data.is_pairwise):
        what = "rows have weights" if data.is_weighted else "data.missing is pairwise"
        remedy = "the weights out" if data.is_weighted else "it out (data.missing: mean fills values)"
        msg = (
            f"significance: method {tested[0]} has no p-values where {what}, as rows then do not count alike: leave "
            f"{remedy}, or set significance: false."
        )
        raise JobError(msg)


def label_bytes(weightings: Sequence[Weighting], n_samples: int, *, labeled: bool) -> int:
    """Return the bytes of labels that a scoring unit reads.

    Labels are read once for all methods if these depend on the label of each row (`labeled`), and once for each graph
    whose weights depend on labels.
    """
    by_label = {(w.graph, w.n_neighbors) for w in weightings if w.labeled_factor != 1}
    return WORD * (labeled + len(by_label)) * n_samples
