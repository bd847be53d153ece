"""Names inside a store; no other module spells them.

A *tile store* holds X once, with statistics of its columns and rows, and its labels. A *run store* holds everything
derived from it. In a run directory the tile store is ``tiles/``, unless the source is a tile store or is used in place.
"""

from __future__ import annotations

FORMAT_VERSION = 6

TILES_DIR = "tiles"
TILES_JSON = "tiles.json"
LABELS_JSON = "labels.json"
LABEL_COUNTS = "label_counts.json"  # of all rows, and of each batch
SAMPLE_COLUMN_JSON = "sample_{}.json"  # summary of a per-sample column
FEATURE_NAMES = "feature_names.json"
SOURCE_WARNINGS = "source_warnings.json"  # what is odd about the source, without full stops
ROW_NAMES_JSON = "row_names.json"  # summary of the row names
PLAN_JSON = "plan.json"
RUN_JSON = "run.json"
RECORDS_DIR = "records"
SEALS_OF_ALL = "*.seals"
SEALS = "records/{}.seals"  # seals of an epoch, in order
STUDY_JSON = "study.json"
COMPARISON_HTML = "comparison.html"
EVENTS = "events.jsonl"
FAILURE = "failures/{}.txt"  # where and why a unit, or what is outside of units, failed
LOCK = ".lock"
EPOCH = ".epoch"
OWNERSHIP = (LOCK, EPOCH)
"""Files that say which process owns a directory; they stay when a run starts over."""
FAILURES_DIR = FAILURE.partition("/")[0]
RANKING_CSV = "ranking.csv"
RANKING_PARQUET = "ranking.parquet"
SELECTED_CSV = "selected_features.csv"
DROPPED_CSV = "dropped_features.csv"
EVALUATION_PARQUET = "evaluation.parquet"
EVALUATION_TABLES = ("evaluation", "evaluation_summary", "comparisons", "gap", "stability", "selection_frequency")
BATCHES_CSV = "batches.csv"
BATCHES_PARQUET = "batches.parquet"
TABLE_CSV = "{}.csv"
TABLE_PARQUET = "{}.parquet"
SCORE_IMAGE = "score_images/{}.png"  # scores of one method as gray levels, if features are pixels
SELECTED_IMAGE = "score_images/{}-selected.png"  # its first features
REPORT_HTML = "report.html"

# Arrays, each with its shape, dtype and content. A {} is a band, a slab, the name of a graph, its k, the key of its
# weights or the label of a method.
X = "X"  # (n_samples, n_features), dtype of the data: dense, in tiles of rows x features
SPARSE_DATA = "bands/{}/data"  # (nnz,), dtype of the data: sparse data of one band, column by column (CSC)
SPARSE_INDICES = "bands/{}/indices"  # (nnz,), int32: row in the band of each entry
SPARSE_INDPTR = "bands/{}/indptr"  # (n_features + 1,), int64: where each column starts
LABELS = "labels"  # (n_samples,), int32 class codes (-1 unlabeled) or float64 target (NaN unlabeled)
# Per-sample columns, absent if the data name none: weights, float64, number of rows that each row counts for; groups,
# int64, group number; times, float64, as given or seconds since 1970-01-01 UTC; batch, int64, batch number.
SAMPLE_COLUMN = "sample_{}"  # (n_samples,)
ROW_NAMES = "row_names"  # (n_samples, width), uint8: row names in UTF-8, padded with zeros
ROW_NORMS = "row_norms"  # (n_samples,), float64: Euclidean norm of each row
ROW_SUMS = "row_sums"  # (n_samples,), float64: sum of each row
PARTIALS = "partials"  # (n_bands, 7, n_features), float64: moments of each band, rows of PARTIAL_ROWS
OBSERVED = "observed"  # (n_bands, 4, n_features), float64: observed values of each band, rows of OBSERVED_ROWS;
# only if values may be missing
FILL = "fill"  # (2, n_features), float64: fill values of missing values, and their number; likewise
HASHES = "hashes"  # (n_bands, 2, n_features), uint64: terms of each band in the hashes of the columns
FIRST_EQUAL = "first_equal"  # (n_features,), int64: first feature with the same values; a constant one maps to itself
SAMPLE = "sample/{}/{}"  # the sampled rows of one band: values, or the data, indices and indptr of CSR rows
COLUMNS = "columns"  # (6, n_features), float64: moments over all rows, rows of COLUMN_ROWS

# A {} is a scaling of several steps.
TRANSFORM_NORMS = "transforms/{}/norms"  # (n_samples,), float64: norm of each row after the steps before "unit"
TRANSFORM_PARTIALS = "transforms/{}/partials"  # (n_bands, 6, n_features), float64: moments of each band after the steps
# before "zscore", rows of TRANSFORM_ROWS
TRANSFORM_COLUMNS = "transforms/{}/columns"  # (3, n_features), float64: mean, variance and rest of all rows, likewise

# The first {} is a scaling that ends with "pca".
PCA_SUMS = "pca/{}/sums/{}/{}"  # (n_features, width), float64: products of one stretch of rows in one pass
PCA_SUMS_OF = "pca/{}/sums/{}"
PCA_BLOCKS = "pca/{}/blocks/{}"  # (n_features, width), float64: orthonormal columns that a pass multiplies
PCA_IMAGES = "pca/{}/images/{}"  # (n_features, width), float64: their products with the covariance matrix
PCA_LOADINGS = "pca/{}/loadings"  # (n_features, n_components), float64

# The first {} is such a scaling, for rows in their principal components, or "representation".
OWN_ROWS = "graph-rows/{}/rows"  # (n_samples, n_columns): rows that a search compares instead of those of X
OWN_SAMPLE = "graph-rows/{}/sample/{}"  # the sampled rows of one band of these

KNN_INDICES = (
    "knn/{}/indices"  # (n_samples, k), int32, or int64 from 2**31 rows on: neighbors, nearest first; -1 = missing
)
KNN_DISTANCES = "knn/{}/distances"  # (n_samples, k), float64: distance to each; inf = missing
KNN_QUERIES = "knn/{}/queries"  # (n_queries, n_features): sampled rows, in graph space and dense
KNN_QUERY_ROWS = "knn/{}/query_rows"  # (n_queries,), int64: their numbers, ascending
KNN_RECALL = "knn/{}/recall"  # (n_units, n_queries, k), float64: exact distances from sampled rows, by assign unit
KNN_CELLS = "knn/{}/cells/{}"  # parts of the partition of space into groups and cells
SPILL_ROWS = "spill/{}/rows/{}"  # shards of one assign unit: its rows, a segment for each group
SPILL_LISTS = "spill/{}/lists/{}"  # shards of one group: neighbor lists of its rows, a segment for each merge unit
SHARD, SHARD_INDEX = "{}-{}.bin", "{}.npz"  # one of these shards, and their index
SPILL_KEYS = "spill/{}/keys/{}"  # (n_entries,), int64: pairs of rows in one sorted run of a matrix's entries
SPILL_WEIGHTS = "spill/{}/weights/{}"  # (n_entries,), float64: their weights
EDGES = "edges/{}-{}/of/{}"  # shard of one stretch of rows: its edges, a segment for each of three sets of them
EDGE_PARTS = "edges/{}-{}/parts"  # (n_blocks, 5), float64: EDGE_FACTS of the edges stored with each block of rows
EDGE_FACTS = ("n_edges", "squares", "shortest", "longest", "stretch")
SENT_ENDS = "edges/{}-{}/sent/{}/ends"  # (2, n_entries): sources and targets of one unit's entries, by target
SENT_LENGTHS = "edges/{}-{}/sent/{}/lengths"  # (n_entries,), float64: their distances
SENT_OFFSETS = "edges/{}-{}/sent/{}/offsets"  # (n_stretches + 1,), int64: where the targets of each stretch begin
HALVES = "halves"  # (3, n_features), uint8: whether each makes either graph, and which of them tests it, 2 for none
INVARIANTS = "weights/{}/invariants.json"
WEIGHT_PARTS = "weights/{}/parts"  # (n_blocks, 6), float64: WEIGHT_FACTS, of which counts are in a unit's first block
WEIGHT_FACTS = ("t", "n_edges", "n_underflow", "n_isolated", "n_meant", "volume")
DEGREES = "weights/{}/degrees"  # (n_samples,), float64: row sums of the symmetric weight matrix

GIVEN_SOURCE = "given/source"  # (n_edges,), int64: a precomputed graph, each edge once; the lower row of the two
GIVEN_TARGET = "given/target"  # (n_edges,), int64: the higher row
GIVEN_WEIGHT = "given/weight"  # (n_edges,), float64
GIVEN_DIAGONAL = "given/diagonal"  # (n_samples,), float64: weights of rows with themselves

UNFINISHED = "unfinished/{}"  # like SCORES, for a method whose scores take more than one slab
SCORES = "scores/{}"  # (n_fields, n_features), float64: fields of one method; field 0 is the score

# The first {} is the group of methods that share passes, the others are a round, a unit, the label of a method.
RESCALED_SCALE = "rescaled/{}/scale"  # (3, n_features), float64: subtracted value, factor, diag(S)
RESCALED_GRAM = "rescaled/{}/gram"  # (n_features, n_features), float64: S
RESCALED_SUMS = "rescaled/{}/sums/{}/{}-{}.npz"  # (n_stretches, n_features + 2, n_columns), float64
RESCALED_STATE = "rescaled/{}/states/{}/{}.npz"  # arrays and numbers of a method's state after a round
RESCALED_SUMS_OF = "rescaled/{}/sums/{}"
RESCALED_STATES_OF = "rescaled/{}/states/{}"
RESCALED_OF = "rescaled/{}"
# The first {} is a loop, the others are a group of methods that keep the same rows, a round, a unit, the label of a
# method.
SVM_CHOSEN = "svm/{}/kept/{}/chosen"  # (n_rows,), int64: training rows of the SVMs, or landmarks, ascending
SVM_ROWS = "svm/{}/kept/{}/{}.npz"  # (n_rows, n_features), float64: rows of one part, centered and scaled; their labels
SVM_CRITERIA = "svm/{}/criteria/{}/{}.npz"  # (n_candidates,), float64: of one problem
SVM_SUMS = "svm/{}/sums/{}/{}-{}.npz"  # (n_stretches, ...), float64: sums over rows of products of kernel values
SVM_STATE = "svm/{}/states/{}/{}.npz"  # features left after a round
SVM_CRITERIA_OF = "svm/{}/criteria/{}"
SVM_SUMS_OF = "svm/{}/sums/{}"
SVM_STATES_OF = "svm/{}/states/{}"
SVM_OF = "svm/{}"
SOLUTION_WEIGHTS = "solutions/{}/weights"  # (n_features, n_classes), float64: W of one method, for scaled features
SOLUTION_JSON = "solutions/{}/found.json"  # how the solution was found
ELIMINATION_JSON = "solutions/{}/elimination.json"  # how one method eliminated features, round by round

BATCHES_DIR = "batches"
BATCH_RUN = "batches/{}"  # the run of one batch
BATCH_RANKS = "batch_ranks/{}"  # (2, n_batches, n_features), float64: rank and score of each feature within batches
TRADE_OFFS = "trade_offs/{}.json"  # result of each trade-off of one method

# A {} is a purpose, "greedy" or "redundancy", and the label of a method.
CANDIDATES = "candidates/{}/{}/features"  # (n_candidates,), int64: features compared with each other
COMOMENTS = "comoments/{}/{}/{}/sums"  # (n_candidates, n_candidates), float64: sums of products over some rows
COMOMENT_MEANS = "comoments/{}/{}/{}/means"  # (n_candidates + 1,), float64: their means over these rows; number of rows
COMOMENTS_OF = "comoments/{}/{}"
COMOMENTS_FOR = "comoments/{}"
BINNED_CODES = "binned/{}/codes"  # (n_columns, n_rows), uint8: bins of sampled rows, of the candidates in one slab
BINNED_TABLE = "binned/{}/table"  # (n_columns, 2 + 2 * (n_bins - 1)), float64: size, variance, steps and shares of bins
BINNED_OF = "binned"
# A first {} is the name of distance correlations, a second a slab.
DISTANCE_CODES = "distances/{}/{}/codes"  # (n_columns, n_rows), uint8: bins of the features of a slab, of rows in use
DISTANCE_TABLE = "distances/{}/{}/table"  # (n_columns, n_functions, n_bins), float64: values of bins
DISTANCE_VALUES = "distances/{}/{}/values"  # (n_columns, n_rows), float64: values of rows in use, scaled
DISTANCE_FACTS = "distances/{}/{}/facts"  # (n_columns, 8), float64: facts of each feature
DISTANCES_OF = "distances/{}"
FEATURE_CORRELATIONS = "feature_correlations/{}/{}-{}"  # (n_rows, n_columns), float64: of two blocks of features
FEATURE_FACTS = "feature_correlations/{}/facts-{}"  # (n_features, 8), float64: DISTANCE_FACTS of one block
FILTERED = "filtered/{}/features"  # (n_kept,), int64: features of one method that may be selected, best first
FILTERED_JSON = "filtered/{}/passed.json"  # why each other one was dropped

EVALUATION_ROWS = "evaluation/rows"  # (n_rows,), int64: rows in use, ascending
EVALUATION_FEATURES = "evaluation/features"  # (n_used,), int64: features used by any model, ascending
EVALUATION_SLAB = "evaluation/columns/{}"  # (n_rows, n_used in the slab), dtype of the data: their values
EVALUATION_SAMPLE_COLUMNS = "evaluation/beside.npz"  # labels, weights, groups and times of the rows in use, if any
# A {} is the number of a part of X, a class subset, a set of rows, a selection.
EVALUATION_PART = "evaluation/sample/{}.npz"  # rows in use of one part of X: values, or data, indices and indptr
EVALUATION_HASHES = "evaluation/hashes/{}.npz"  # (n_rows,), uint64: hashes of the rows in use of one part of X
EVALUATION_CLASS_SUBSET = "evaluation/worlds/{}.npz"  # rows and folds, as indices into EVALUATION_ROWS
EVALUATION_CANDIDATES = "evaluation/candidates/{}.npz"  # neighbor lists among all rows in use, of some of them
EVALUATION_LISTS = "evaluation/lists/{}.npz"  # (n_rows, k), int64 and float64: neighbor lists of one set of rows
EVALUATION_ORDER = "evaluation/orders/{}.npz"  # (n_ranked,), int64: first features of one selection, best first
EVALUATION_RANKS = "evaluation/ranks/{}"  # (n_features,), float64: ranks of one selection, for a consensus

RESULTS = (
    RANKING_CSV,
    RANKING_PARQUET,
    SELECTED_CSV,
    DROPPED_CSV,
    BATCHES_CSV,
    BATCHES_PARQUET,
    *(form.format(name) for name in EVALUATION_TABLES for form in (TABLE_CSV, TABLE_PARQUET)),
)
"""Tables of a run, for users and other programs; not every run has all."""

FOLDERS = dict.fromkeys(
    value.split("/")[0]
    for name, value in [*globals().items()]
    if name.isupper() and isinstance(value, str) and "/" in value
)
"""Folders of stores, from the names above."""

RUN_NAMES = (
    TILES_DIR,
    *(name for name in FOLDERS if name not in ("bands", "sample")),  # these are of tile stores
    PLAN_JSON,
    EVENTS,
    *RESULTS,
    REPORT_HTML,
    RUN_JSON,
)
"""All names that a run writes to its directory; the manifest is last, so that a half-deleted run is still recognized.
"""

PARTIAL_ROWS = ("count", "mean", "m2", "minimum", "maximum", "nonzero", "rest")
OBSERVED_ROWS = ("missing", "total", "minimum", "maximum")
TRANSFORM_ROWS = ("count", "mean", "m2", "minimum", "maximum", "rest")
COLUMN_ROWS = ("mean", "variance", "minimum", "maximum", "nonzero", "rest")

GRAPH_SUMMARY = "edges/{}-{}/summary.json"
EDGE_MEDIAN = "edges/{}-{}/median.json"
EDGES_SENT = "edges/{}-{}/sent"
PCA_SUMMARY = "pca/{}/summary.json"
CELLS_SUMMARY = "knn/{}/cells.json"
SPILL = "spill/{}"
RECALL_SUMMARY = "knn/{}/recall.json"
EVALUATION_DESIGN = "evaluation/design.json"


def records_of(stage: str) -> str:
    """Return the prefix of the records of one stage."""
    return f"{RECORDS_DIR}/{stage}/"


def is_seal(name: str) -> bool:
    """Return whether a name is that of seals, or of the checksums behind one; both can be rebuilt from records."""
    return RECORDS_DIR in name.split("/") and name.endswith((".seal", ".seals"))
