"""The only place that spells a name inside a store.

A *tile store* holds X once, with what is known of its columns, rows and labels. A *run store* holds everything that
follows from it. In a run directory the tile store lies under ``tiles/``, unless the source already is one or serves in
place.
"""

from __future__ import annotations

from dataclasses import dataclass

FORMAT_VERSION = 1

TILES_DIR = "tiles"
TILES_JSON = "tiles.json"
LABELS_JSON = "labels.json"
FEATURE_NAMES = "feature_names.json"
PLAN_JSON = "plan.json"
RUN_JSON = "run.json"
EVENTS = "events.jsonl"
LOCK = ".lock"
RANKING_CSV = "ranking.csv"
RANKING_PARQUET = "ranking.parquet"
SELECTED_CSV = "selected_features.csv"
EVALUATION_CSV = "evaluation.csv"
EVALUATION_PARQUET = "evaluation.parquet"
REPORT_HTML = "report.html"


@dataclass(frozen=True)
class ArraySpec:
    """One kind of array: its name (``{}`` is filled in), dimensions, dtype ("X" = that of the data) and a sentence."""

    name: str
    dims: tuple[str, ...]
    dtype: str
    meaning: str

    def at(self, *parts: object) -> str:
        """Return the name with its places filled in."""
        return self.name.format(*parts)


X = ArraySpec("X", ("n_samples", "n_features"), "X", "Dense data, tiles of rows x features.")
SPARSE_DATA = ArraySpec("bands/{}/data", ("nnz",), "X", "Sparse data of one band, column by column (CSC).")
SPARSE_INDICES = ArraySpec("bands/{}/indices", ("nnz",), "int32", "Row in the band of each entry.")
SPARSE_INDPTR = ArraySpec("bands/{}/indptr", ("n_features + 1",), "int64", "Where each column starts.")
LABELS = ArraySpec(
    "labels", ("n_samples",), "int32 or float64", "Class codes (-1 unlabelled) or target (NaN unlabelled)."
)
ROW_NORMS = ArraySpec("row_norms", ("n_samples",), "float64", "Euclidean norm of each row.")
PARTIALS = ArraySpec(
    "partials", ("n_bands", "6", "n_features"), "float64", "Moments of each band: rows of PARTIAL_ROWS."
)
COLUMNS = ArraySpec("columns", ("5", "n_features"), "float64", "Moments over all rows: rows of COLUMN_ROWS.")

KNN_INDICES = ArraySpec("knn/{}/indices", ("n_samples", "k"), "int64", "Neighbours, nearest first; -1 = missing.")
KNN_DISTANCES = ArraySpec("knn/{}/distances", ("n_samples", "k"), "float64", "Distance to each; inf = missing.")
KNN_RECALL = ArraySpec(
    "knn/{}/recall", ("n_bands", "n_queries", "k"), "float64", "Exact distances from sampled rows, by band."
)
EDGE_ONCE = ArraySpec(
    "edges/{}-{}/once",
    ("n_samples", "k"),
    "uint8",
    "1 where a list entry stands for its undirected edge, so that each counts once.",
)
DEGREES = ArraySpec("weights/{}/degrees", ("n_samples",), "float64", "Row sums of the symmetric weight matrix.")

SCORES = ArraySpec("scores/{}", ("n_fields", "n_features"), "float64", "Fields of one method; field 0 is the score.")

RUN_NAMES = (
    TILES_DIR,
    "knn",
    "edges",
    "weights",
    "scores",
    "evaluation",
    "records",
    PLAN_JSON,
    EVENTS,
    RANKING_CSV,
    RANKING_PARQUET,
    SELECTED_CSV,
    EVALUATION_CSV,
    EVALUATION_PARQUET,
    REPORT_HTML,
    RUN_JSON,
)
"""Everything that a run writes into its directory; the manifest last, so that a half-deleted run is still known as
one.
"""

PARTIAL_ROWS = ("count", "mean", "m2", "minimum", "maximum", "nonzero")
COLUMN_ROWS = ("mean", "variance", "minimum", "maximum", "nonzero")

GRAPH_SUMMARY = "edges/{}-{}/summary.json"
RECALL_SUMMARY = "knn/{}/recall.json"
WEIGHT_SUMMARY = "weights/{}/summary.json"
EVALUATION_DESIGN = "evaluation/design.json"
EVALUATION_RESULT = "evaluation/results/{}.json"


def record_name(stage: str, unit: int) -> str:
    """Name of the record of one finished unit."""
    return f"records/{stage}/{unit:06d}.json"


def records_of(stage: str) -> str:
    """Prefix of the records of one stage."""
    return f"records/{stage}/"
