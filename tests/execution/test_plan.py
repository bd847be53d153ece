"""Plans: tiles that fit, partitions that cover, numbers that grow with the data, JSON and back."""

from __future__ import annotations

import dataclasses
import json
import math

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from daskfs.criteria.plan import slab_columns
from daskfs.criteria.registry import make_method
from daskfs.criteria.rescaled_regression.passes import LoopParameters
from daskfs.criteria.rescaled_regression.plan import plan_rescaled
from daskfs.criteria.slab import SCORE_STAGE
from daskfs.criteria.svmrfe.elimination import EliminationParameters
from daskfs.criteria.svmrfe.plan import plan_svm
from daskfs.errors import MemoryPlanError, StoreError
from daskfs.execution.submission import pending_units, reached_round
from daskfs.graph.edges import EdgesParameters
from daskfs.graph.partition import block_rows, search_units
from daskfs.graph.plan import plan_edges, plan_graph, plan_weights
from daskfs.graph.spec import Engine, GraphSpec, Weighting
from daskfs.job.job import make_job
from daskfs.kernels.neighbors.metrics import Metric
from daskfs.kernels.statistics.moments import cell_rows
from daskfs.ranking.plan import plan_redundancy
from daskfs.ranking.redundancy import FeatureChoice, Measure, RedundancySpec
from daskfs.runs.plan import plan_run
from daskfs.runs.tiles import plan_tiles
from daskfs.stages.cost import PROCESS, PROCESS_BYTES, MiB, Workers
from daskfs.stages.limits import check_memory
from daskfs.stages.parameters import StageParameters
from daskfs.stages.stage import Plan, Stage, with_fingerprints
from daskfs.stages.units import shared_arrays
from daskfs.store.context import Context
from daskfs.store.store import Store
from daskfs.store.tiles import TileInfo, Tiles
from daskfs.tiles.plan import TilePlan, plan_ingest
from daskfs.tiles.shapes import MIN_SLAB_COLUMNS, MIN_TILE_BYTES, plan_shape, serves_in_place, slab_budget
from tests.planning import tile_parameters

GiB = 2**30
SIZES = st.integers(2, 10**8), st.integers(1, 10**5), st.integers(GiB, 64 * GiB)
COUNTS = st.integers(1, 500)


@given(*SIZES, st.sampled_from(["float32", "float64", "uint8"]), COUNTS)
@example(5, 64_351, GiB, "float32", 150)
@example(4, 34_291, GiB, "float64", 90)
def test_tiles_fit(n_samples: int, n_features: int, limit: int, dtype: str, n_workers: int) -> None:
    n_units = Workers(limit, 1, n_workers).n_units
    shape = plan_shape(n_samples, n_features, dtype, None, limit, n_units=n_units)
    budget = slab_budget(limit)
    assert 1 <= shape.tile_rows <= n_samples
    assert 1 <= shape.tile_columns <= n_features
    assert shape.tile_rows * shape.tile_columns * shape.itemsize <= 64 * 2**20 or shape.tile_rows == 1
    assert shape.tile_columns == 1 or n_samples * shape.tile_columns * shape.itemsize <= budget
    assert shape.tile_rows == 1 or shape.tile_rows * n_features * shape.itemsize <= budget
    assert shape.tile_rows == n_samples or shape.tile_rows & (shape.tile_rows - 1) == 0
    assert shape.tile_rows >= min(n_samples, cell_rows(n_features, sparse=False))
    assert [shape.band(0).start, shape.band(shape.n_bands - 1).stop] == [0, n_samples]
    columns = slab_columns(shape, limit, n_units, scaled=True)
    assert 1 <= columns <= n_features
    n_tiles = n_units * -(-n_features // shape.tile_columns)
    assert shape.n_bands >= n_units or shape.x_bytes < 2 * n_tiles * MIN_TILE_BYTES
    # rounded up: one slab more than n_units would keep all workers waiting for it, one less keeps one of them waiting
    share = -(-n_features // n_units)
    assert columns <= share or columns < 2 * MIN_SLAB_COLUMNS or shape.x_bytes <= MIN_TILE_BYTES
    assert columns <= shape.tile_columns or columns % shape.tile_columns == 0 or columns == n_features


@given(*SIZES, st.floats(1e-5, 0.3), COUNTS)
def test_sparse_tiles_fit(n_samples: int, n_features: int, limit: int, density: float, n_workers: int) -> None:
    nnz = int(n_samples * n_features * density)
    shape = plan_shape(n_samples, n_features, "float32", nnz, limit, n_units=Workers(limit, 1, n_workers).n_units)
    assert 1 <= shape.tile_rows <= n_samples
    assert 1 <= shape.tile_columns <= n_features
    assert shape.tile_columns == 1 or n_samples * shape.tile_columns * 4 <= slab_budget(limit)


@given(st.integers(2, 10**9), st.integers(1, 64), st.integers(0, 64))
def test_units_that_mark_edges_cover_the_rows_and_stay_small(n_samples: int, k: int, longer: int) -> None:
    *entries, edges, summary = plan_edges(n_samples, "g", k, (), k + longer)
    for stage, size in zip([edges, *entries], ["rows_each", "rows_sent"], strict=False):
        assert isinstance(stage.parameters, EdgesParameters)
        rows = getattr(stage.parameters.stretches, size)
        assert (stage.n_units - 1) * rows < n_samples <= stage.n_units * rows
    assert max(stage.peak_bytes for stage in (edges, *entries)) <= 1024 * 2**20
    streamed = 2**16 * (60 * k + 36 * (k + longer))
    assert summary.peak_bytes <= 40 * n_samples + streamed + 512 * 2**20
    median, weights = plan_weights(n_samples, [Weighting("g", k, "heat", "median")], ())
    assert median.peak_bytes <= streamed + 160 * 2**20
    assert weights.peak_bytes <= min(24 * n_samples, 1024 * 2**20) + streamed + 512 * 2**20


@settings(max_examples=30)
@given(
    st.integers(2, 10**9),
    st.integers(1, 10**5),
    st.integers(1, 500),
    st.integers(GiB, 256 * GiB),
    st.sampled_from(["exact", "cells"]),
)
def test_chunks_of_shared_arrays_are_small_enough_for_their_codec(
    n: int, m: int, k: int, limit: int, engine: Engine
) -> None:
    shape = plan_shape(n, m, "float64", None, limit)
    method = {"name": "LaplacianScore", "n_neighbors": min(k, n - 1)}
    job = make_job({"data": {"source": "x"}, "methods": [method], "output": {"path": "x"}, "graph": {"engine": engine}})
    stages = plan_ingest(tile_parameters(shape), 1)
    planned = plan_run(job, TilePlan("x/tiles", shape, "", False), None, Workers(limit))
    tiles = Tiles(Store(None), TileInfo(shape, "", "x"))
    arrays = shared_arrays(Context(Store(None), tiles), (*stages, *planned.stages))
    assert arrays
    for name, (whole, dtype, chunks) in arrays.items():
        chunk_bytes = math.prod(map(min, chunks, whole)) * np.dtype(dtype).itemsize
        assert chunk_bytes < 2**30, name


@given(st.integers(2, 10**8))
def test_blocks_of_the_graph_follow_from_the_rows_alone(n_samples: int) -> None:
    rows = block_rows(n_samples)
    assert 4096 <= rows <= 2**16
    assert rows & (rows - 1) == 0


@given(st.integers(2, 10**6))
def test_search_units_cover_every_row_once(n_samples: int) -> None:
    units = search_units(n_samples)
    assert [queries.start for queries in units] == list(range(0, n_samples, block_rows(n_samples)))
    assert units[-1].stop == n_samples
    assert all(queries.stop - queries.start <= block_rows(n_samples) for queries in units)


class TestApproximateSearch:
    @settings(max_examples=60)
    @given(
        st.integers(1000, 10**8),
        st.integers(2, 2000),
        st.integers(1, 30),
        st.sampled_from(["cells", "descent"]),
        st.sampled_from(["euclidean", "cosine"]),
        st.integers(4, 64),
    )
    def test_fits_workers_of_a_few_gigabytes(
        self, n: int, m: int, k: int, engine: Engine, metric: Metric, gigabytes: int
    ) -> None:
        limit = gigabytes * GiB
        stages = plan_graph(plan_shape(n, m, "float32", None, limit), GraphSpec(metric, engine=engine), k, limit)
        check_memory(stages, Workers(limit))
        assert [stage.kind_name for stage in stages] == ["cells", "assign", "build", "merge", "recall"]

    def test_a_hundred_million_rows(self) -> None:
        limit = 16 * GiB
        shape = plan_shape(10**8, 1000, "float32", None, limit)
        stages = {stage.kind_name: stage for stage in plan_graph(shape, GraphSpec(), 10, limit)}
        check_memory(list(stages.values()), Workers(limit))
        assert stages["build"].n_units < 1000
        assert sum(stage.n_units for stage in stages.values()) < 2000
        assert stages["cells"].bytes_read < GiB
        assert shape.x_bytes <= stages["assign"].bytes_read < 1.1 * shape.x_bytes
        assert stages["build"].bytes_read < 4 * shape.x_bytes
        assert stages["merge"].bytes_written == 10**8 * 10 * 12

    def test_wide_rows_take_what_their_bands_do(self) -> None:
        """Bands of few rows are compared band by band, and a million columns in 128."""
        limit = 16 * GiB
        stages = plan_graph(plan_shape(10**4, 10**6, "float32", None, limit), GraphSpec(engine="cells"), 10, limit)
        check_memory(stages, Workers(limit))

    def test_stages_know_how_long_they_are_needed(self) -> None:
        spec = GraphSpec("cosine", engine="cells")
        stages = plan_graph(plan_shape(10**5, 20, "float32", None, None), spec, 10)
        assert [(stage.name, stage.needed_until, stage.clears) for stage in stages] == [
            ("cells-cosine", "", ""),
            ("assign-cosine", "recall-cosine", ""),
            ("build-cosine", "recall-cosine", ""),
            ("merge-cosine", "", ""),
            ("recall-cosine", "", "spill/cosine"),
        ]


def test_chunks_that_serve_in_place() -> None:
    assert serves_in_place(100_000, (10_000, 64), 256, "float32", GiB)
    assert not serves_in_place(100_000, (100_000, 256), 256, "float64", GiB), "a chunk of 200 MB"
    assert not serves_in_place(10**7, (100_000, 64), 64, "float32", GiB), "a slab of 2.5 GB"
    assert not serves_in_place(10**6, (10, 10), 100, "float32", GiB), "a million chunks of 400 bytes"
    assert serves_in_place(50, (50, 4), 4, "float32", GiB), "one small chunk"


def planned(source: str, **blocks: object) -> Plan:
    job = make_job(
        {"data": {"source": source}, "methods": ["LaplacianScore", "PearsonScore"], "output": {"path": "x"}, **blocks}
    )
    return plan_run(job, plan_tiles(job.data, "/x/tiles", Workers(4 * GiB)), "regression", Workers(4 * GiB))


def test_json_and_back() -> None:
    plan = planned("synthetic:lowrank?n_samples=30000&n_features=50")
    assert Plan.from_json(json.loads(json.dumps(plan.to_json("here"))), "here") == plan
    with pytest.raises(StoreError, match="here was written in format version 99"):
        Plan.from_json({**plan.to_json("here"), "format_version": 99}, "here")


def test_bytes_grow_with_the_rows() -> None:
    small, large = (planned(f"synthetic:lowrank?n_samples={n}&n_features=50") for n in (10_000, 20_000))
    for a, b in zip(small.stages, large.stages, strict=True):
        assert a.name == b.name
        assert a.peak_bytes <= b.peak_bytes
        assert a.bytes_read <= b.bytes_read


def test_fingerprints_follow_from_everything_before() -> None:
    source = "synthetic:lowrank?n_samples=3000&n_features=50"
    plain = {stage.name: stage.fingerprint for stage in planned(source).stages}
    again = {stage.name: stage.fingerprint for stage in planned(source).stages}
    other_data = {stage.name: stage.fingerprint for stage in planned(source + "&seed=5").stages}
    evaluated = {s.name: s.fingerprint for s in planned(source, evaluate={"n_splits": 3}).stages}
    assert plain == again
    assert not set(plain.values()) & set(other_data.values())
    changed = {name for name in plain if plain[name] != evaluated[name]}
    made_anew = {"evaluation-sample", "evaluation-candidates", "evaluation-lists", "select"}
    # the summary of edges runs beside the last stages
    assert changed == {"design", *made_anew, "evaluate", "evaluation-tables", "edges-summary-euclidean-5"}


def test_too_small_a_limit_names_the_setting_and_what_would_do() -> None:
    stage = Stage("score", SCORE_STAGE.reference, 1, StageParameters(), 900 * 2**20)
    check_memory([stage], Workers(GiB))
    with pytest.raises(
        MemoryPlanError, match=r"stage score needs 900 MiB .*memory_limit is 512 MiB.* to 1000 MiB or more"
    ):
        check_memory([stage], Workers(GiB // 2))
    check_memory([stage], Workers(None))


def test_threads_share_a_worker() -> None:
    stage = Stage("score", SCORE_STAGE.reference, 1, StageParameters(), 600 * 2**20)
    check_memory([stage], Workers(GiB, 2))
    with pytest.raises(MemoryPlanError, match=r"1000 MiB in a worker process for 3 units at once.* fewer threads"):
        check_memory([stage], Workers(GiB, 3))
    assert Workers(GiB, 1).unit_limit == GiB
    check_memory(
        [Stage("score", SCORE_STAGE.reference, 1, StageParameters(), int(0.9 * (Workers(GiB, 2).unit_limit or 0)))],
        Workers(GiB, 2),
    )


@pytest.mark.parametrize("measure", ["correlation", "distance_correlation"])
@pytest.mark.parametrize(("n", "m"), [(10**8, 1000), (10**4, 10**5)])
def test_redundancy_filter_of_large_data(n: int, m: int, measure: Measure) -> None:
    """One read of X serves all methods, in what a worker of 16 GiB has."""
    limit = 16 * GiB
    shape = plan_shape(n, m, "float32", None, limit)
    wanted = RedundancySpec(measure, 0.9, False, 500, None, FeatureChoice((3,)), None)
    methods = [make_method("VarianceScore", {}, f"method {i}") for i in range(8)]
    stages = plan_redundancy(shape, methods, wanted, slab_columns(shape, limit, scaled=False), ())
    check_memory(stages, Workers(limit))
    assert [stage.name for stage in stages][-1] == "filter"
    assert stages[-1].n_units == 8
    assert shape.x_bytes <= stages[1].bytes_read < 1.3 * shape.x_bytes
    assert stages[1].needed_until == "filter"
    assert stages[1].bytes_written < 8 * 64 * 8 * 502**2


@pytest.mark.parametrize(("transform", "n_notes"), [(None, 1), ("pca=50", 0)])
def test_cells_larger_than_a_worker_are_noted(transform: str | None, n_notes: int) -> None:
    source = "synthetic:mixture?n_samples=1000000&n_features=100000"
    notes = planned(source, transform={"graph": transform}, graph={"engine": "cells"}).facts["warnings"]
    assert len([note for note in notes if "searched in pieces" in note["text"]]) == n_notes


def test_candidates_that_are_too_many() -> None:
    shape = plan_shape(10**4, 10**5, "float32", None, None)
    wanted = RedundancySpec("correlation", 0.9, False, 30_000, None, FeatureChoice(), None)
    methods = [make_method("VarianceScore", {}, "a")]
    with pytest.raises(MemoryPlanError, match=r"30000 features .* set select\.redundancy\.n_candidates to 20000"):
        plan_redundancy(shape, methods, wanted, 100, ())
    alone = plan_redundancy(shape, methods, dataclasses.replace(wanted, measure=None), 100, ())
    assert [stage.name for stage in alone] == ["filter-candidates", "filter"], "nothing is compared"


class TestLoops:
    """RLSR, SSUFS and DSSFS: passes over the rows and solutions in turn."""

    def staged(self, n: int, m: int, limit: int, *names: str, **parameters: object) -> dict[str, Stage]:
        shape = plan_shape(n, m, "float32", None, limit)
        labels = [f"{name} {place}" for place, name in enumerate(names)]
        found = [make_method(name, parameters, label) for name, label in zip(names, labels, strict=True)]
        return {
            s.name: s for s in plan_rescaled(shape, found, slab_columns(shape, limit, scaled=False), (PROCESS,), limit)
        }

    @pytest.mark.parametrize(("n", "m"), [(10**8, 500), (10**6, 500), (10**6, 10_000), (2000, 5000), (10**5, 10**5)])
    def test_of_large_data_fit_sixteen_gigabytes(self, n: int, m: int) -> None:
        stages = self.staged(n, m, 16 * GiB, "RLSR", "DSSFS")
        check_memory(list(stages.values()), Workers(16 * GiB))
        for stage in stages.values():
            if stage.kind_name == "rescaled-rows":
                assert stage.n_units <= 1024
                assert n * m * 4 <= stage.bytes_read < 3 * n * m * 4
                assert isinstance(stage.parameters, LoopParameters)
                assert stage.parameters.held_bytes > 0

    def test_what_does_not_fit_names_the_solver_that_does(self) -> None:
        stages = self.staged(10**6, 20_000, 8 * GiB, "RLSR")
        with pytest.raises(MemoryPlanError, match=r"memory_limit to .* Methods with solver 'cg' need less"):
            check_memory(list(stages.values()), Workers(8 * GiB))
        check_memory(list(self.staged(10**6, 20_000, 8 * GiB, "RLSR", solver="cg").values()), Workers(8 * GiB))

    def test_a_million_rows_fit_two_gigabytes(self) -> None:
        stages = self.staged(10**6, 500, 2 * GiB, "RLSR", "SSUFS", "DSSFS")
        check_memory(list(stages.values()), Workers(2 * GiB))

    def test_stages_share_loops_and_know_how_long_they_are_needed(self) -> None:
        stages = self.staged(10**5, 20, GiB, "RLSR", "RLSR", "DSSFS", max_iter=7)
        assert [(s.name, s.n_units, s.loop, s.max_rounds, s.needed_until) for s in stages.values()][:5] == [
            ("rescaled-comoments-zscore-cholesky", 2, "", 1, "rescaled-scale-zscore-cholesky"),
            ("rescaled-scale-zscore-cholesky", 1, "", 1, "rescaled-tables-zscore-cholesky"),
            ("rescaled-rows-zscore-cholesky", 7, "rescaled-zscore-cholesky", 7, "rescaled-tables-zscore-cholesky"),
            ("rescaled-solve-zscore-cholesky", 2, "rescaled-zscore-cholesky", 7, "rescaled-tables-zscore-cholesky"),
            ("rescaled-tables-zscore-cholesky", 2, "", 1, ""),
        ]
        assert stages["rescaled-rows-zscore-cholesky-dragged"].max_rounds == 7
        assert len(stages) == 10

    def test_what_is_needed_only_by_what_has_served_is_not_made_again(self) -> None:
        """Sums of products until S is made, S until the tables are."""
        context = Context(Store(None))
        stages = with_fingerprints(list(self.staged(1000, 20, GiB, "RLSR").values()), "test")
        comoments, scale, rows, solve, tables = stages
        records = context.store.records._records

        def pending() -> list[str]:
            return [stage.kind_name for stage in stages if pending_units(context, stage, stages)]

        def record(stage: Stage, unit: int = 0, **facts: object) -> None:
            whose = {"stage": stage.name, "unit": unit, "fingerprint": stage.fingerprint}
            context.store.records.write({**whose, "chunks": {}, "objects": {}, "facts": facts})

        functions = [stage.kind_name for stage in stages]
        assert pending() == functions
        record(comoments)
        assert pending() == functions[1:]
        record(scale)
        del records[comoments.name][0]  # as good as what it wrote
        assert pending() == functions[2:]
        record(rows)
        assert pending() == functions[3:]
        record(solve, finished=False)
        assert (reached_round(context, rows.loop, stages), pending()) == ((1, False), functions[2:])
        record(rows, 1)
        record(solve, 1, finished=True)
        assert (reached_round(context, rows.loop, stages), pending()) == ((2, True), functions[4:])
        del records[scale.name][0]
        assert pending() == [comoments.kind_name, scale.kind_name, tables.kind_name]
        record(tables)
        assert pending() == []
        del records[solve.name][1]
        assert pending() == []


class TestEliminations:
    """SVMRFE: which route, and what it takes."""

    def staged(
        self, n: int, m: int, limit: int | None, n_labeled: int | None, **parameters: object
    ) -> dict[str, Stage]:
        shape = plan_shape(n, m, "float32", None, limit)
        methods = [make_method("SVMRFE", parameters)]
        return {s.kind_name: s for s in plan_svm(shape, methods, (PROCESS,), limit, 2, n_labeled)}

    @pytest.mark.parametrize(
        ("n", "n_labeled", "limit", "parameters", "route"),
        [
            (10**6, 1000, GiB, {}, "exact"),
            (10**6, 10**6, 16 * GiB, {}, "landmarks"),
            (10**6, 12_000, 2 * GiB, {}, "landmarks"),
            (10**6, 12_000, 16 * GiB, {}, "exact"),
            (10**6, 1000, 16 * GiB, {"laplacian": True}, "landmarks"),
            (5000, 100, 16 * GiB, {"laplacian": True}, "exact"),
            (5000, 100, GiB, {"laplacian": True}, "landmarks"),
            (10**6, 12_000, 2 * GiB, {"retrain": True}, "exact"),
            (10**6, 12_000, 2 * GiB, {"criterion": "rmb"}, "exact"),
            (10**6, 1000, GiB, {"large_n": "landmarks"}, "landmarks"),
            (10**6, 10**6, 2 * GiB, {"large_n": "exact"}, "exact"),
            (3000, 3000, None, {}, "exact"),
            (30_000, None, None, {}, "landmarks"),
        ],
    )
    def test_route_follows_from_labeled_rows_and_memory(
        self, n: int, n_labeled: int | None, limit: int | None, parameters: dict[str, object], route: str
    ) -> None:
        stages = self.staged(n, 52, limit, n_labeled, **parameters)
        tables = stages["svm-tables"].parameters
        assert isinstance(tables, EliminationParameters)
        assert tables.route == route
        assert ("svm-judge" in stages) == (route == "exact")
        if parameters.get("large_n", "auto") == "auto" and not {"retrain", "criterion"} & set(parameters):
            check_memory(list(stages.values()), Workers(limit))

    @pytest.mark.parametrize("laplacian", [False, True])
    @pytest.mark.parametrize(("n", "m"), [(10**8, 1000), (10**6, 10_000), (10**5, 10**5)])
    def test_landmarks_of_large_data_fit_sixteen_gigabytes(self, n: int, m: int, laplacian: bool) -> None:
        limit = 16 * GiB
        stages = self.staged(n, m, limit, n, laplacian=laplacian)
        check_memory(list(stages.values()), Workers(limit))
        shape = plan_shape(n, m, "float32", None, limit)
        passes = stages["svm-sums"]
        assert shape.x_bytes <= passes.bytes_read < 1.2 * shape.x_bytes
        assert passes.bytes_written <= 128 * 8 * (3 * 200**2 + 200 * 4 + 4)
        assert passes.max_rounds < 60  # type: ignore[operator]
        tables = stages["svm-tables"].parameters
        assert isinstance(tables, EliminationParameters)
        assert (tables.counted, tables.sizes) == ("n_landmarks", (200,))

    def test_labels_that_nobody_has_counted_refuse_nothing(self) -> None:
        """Of 40,000 rows few may be labeled; once they are counted the plan says what they take."""
        for criterion in ("rfe", "rmb"):
            check_memory(list(self.staged(40_000, 52, GiB, None, criterion=criterion).values()), Workers(GiB))
        few = self.staged(40_000, 52, GiB, 500, criterion="rmb")
        check_memory(list(few.values()), Workers(GiB))
        assert few["svm-judge"].peak_bytes < PROCESS_BYTES + 64 * MiB
        many = self.staged(40_000, 52, GiB, 10_000, criterion="rmb")
        with pytest.raises(MemoryPlanError, match=r"takes the square of the labeled rows, with laplacian of all"):
            check_memory(list(many.values()), Workers(GiB))

    def test_a_refusal_names_landmarks_where_these_serve(self) -> None:
        stages = self.staged(40_000, 52, GiB, 10_000, large_n="exact")
        with pytest.raises(MemoryPlanError, match=r"stage svm-judge .* SVMRFE with large_n 'landmarks' takes as much"):
            check_memory(list(stages.values()), Workers(GiB))
