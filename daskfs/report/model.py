"""Facts of a run as the report shows them, of a checked type: a part that is missing or null has its default.

Runs of earlier versions have fewer keys or other ones; unknown keys are ignored. Numbers may be NaN, infinite or None.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Self

from pydantic import BaseModel, ConfigDict, PlainValidator, ValidationError, model_validator

from daskfs.errors import StoreError
from daskfs.report.values import DASH, as_number, format_text
from daskfs.run_warning import RunWarning

Number = Annotated[int | float | None, PlainValidator(as_number)]
Text = Annotated[str, PlainValidator(format_text)]
Numbers = dict[str, Number]
Series = dict[str, list[Number]]


class ReportPart(BaseModel):
    """Facts of one kind."""

    model_config = ConfigDict(extra="ignore", frozen=True, coerce_numbers_to_str=True)

    @model_validator(mode="before")
    @classmethod
    def _without_nulls(cls, facts: object) -> object:
        return {key: fact for key, fact in facts.items() if fact is not None} if isinstance(facts, Mapping) else facts

    @classmethod
    def read(cls, facts: Mapping[str, Any], origin: str) -> Self:
        """Return the block of facts from `origin`; :class:`StoreError` names the first one that is of another type."""
        try:
            return cls.model_validate(facts)
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(str(key) for key in first["loc"])
            where += f": {first['msg']}. Restore it from a copy, or run the job with --overwrite."
            msg = f"{origin} is damaged: {where}"
            raise StoreError(msg) from error


class MissingReport(ReportPart):
    """Missing values: their number, and the columns with the most."""

    total: Number = None
    n_columns: Number = None
    policy: str = ""
    columns: list[tuple[str, Number]] = []


class SampleColumn(ReportPart):
    """Times of rows, or the names of their batches."""

    n_distinct: Number = None
    first: str = DASH
    last: str = DASH
    names: list[str] = []


class DataReport(ReportPart):
    """Data and labels."""

    source: str | None = None
    n_samples: Number = None
    n_features: Number = None
    task: str | None = None
    n_labeled: Number = None
    weights: Numbers = {}
    groups: Numbers = {}
    times: SampleColumn | None = None
    batch: SampleColumn | None = None
    classes: Numbers = {}
    target: Numbers = {}
    sparse: bool | None = None
    density: Number = None
    dtype: str | None = None
    tile_shape: list[Number] = []
    bytes: Number = None
    n_constant: Number = None
    n_duplicate: Number = None
    missing: MissingReport | None = None


class StageReport(ReportPart):
    """Work, time, traffic and peak memory of a stage."""

    name: str | None = None
    units: Number = None
    rounds: Number = None
    recomputed: Number = None
    seconds: Number = None
    bytes_read: Number = None
    bytes_written: Number = None
    peak_bytes: Number = None
    planned_peak_bytes: Number = None


class WeightingReport(ReportPart):
    """Edge weights of a graph."""

    kind: str | None = None
    t: Number = None
    t_rule: str | None = None
    self_loops: bool | None = None
    labeled_factor: Number = None
    n_underflow: Number = None
    n_isolated: Number = None
    used_by: list[str] = []


class GraphReport(ReportPart):
    """A neighbor graph and its search."""

    name: str = ""
    metric: str | None = None
    scaling: str = "none"
    n_neighbors: Number = None
    engine: str | None = None
    source: str = ""
    nearest_by: str = ""
    n_candidates: Number = None
    n_open: Number = None
    n_short: Number = None
    list_length: Number = None
    recall: Numbers = {}
    groups: Numbers = {}
    explained_variance_ratio: list[Number] = []
    n_nodes: Number = None
    n_edges: Number = None
    n_components: Number = None
    largest_component: Number = None
    n_isolated: Number = None
    max_degree: Number = None
    mean_degree: Number = None
    length_histogram: Series = {}
    degree_histogram: Series = {}
    weight_histogram: Series = {}
    weightings: list[WeightingReport] = []


class FeatureRow(ReportPart):
    """A feature in a table: with its rank, also within batches, why it is dropped, or how often it is selected."""

    rank: Number = None
    feature: Number = None
    name: str = ""
    values: list[Number] = []
    score: Number = None
    ranks: list[Number] = []
    label: str | None = None
    reason: str | None = None
    note: str | None = None
    methods: list[str] = []
    frequency: Number = None
    mean_rank: Number = None
    rank_low: Number = None
    rank_high: Number = None


class TradeOff(ReportPart):
    """Trade-offs that were tried, and the chosen one."""

    chosen: Number = None
    n_rows: Number = None
    n_features: Number = None
    trade_off: list[Number] = []
    cut_value: list[Number] = []
    kernel_cut_value: list[Number] = []
    n_components: list[Number] = []
    largest_component: list[Number] = []
    n_distinct: list[Number] = []


class Correlation(ReportPart):
    """Distance correlations of a regression, and their errors."""

    correlation: str = ""
    n_rows: Number = None
    n_components: Number = None
    error_bound: Number = None
    sampling_error: Number = None


class SolutionReport(ReportPart):
    """Solution of a regression, and of the one that it starts from."""

    solver: str = ""
    n_iter: Number = None
    n_rounds: Number = None
    converged: bool = False
    n_active: Number = None
    kkt_active: Number = None
    kkt_inactive: Number = None
    free_objective: list[Number] = []
    objective: list[Number] = []
    eta: Number = None
    eta_used: Number = None
    halvings: Number = None
    correlation: Correlation | None = None


class Round(ReportPart):
    """A round of an elimination."""

    n_left: Number = None
    n_support: Number = None
    bound_share: Number = None
    gap: Number = None
    radius: str | None = None


class EliminationReport(ReportPart):
    """Elimination of features."""

    route: str = ""
    n_landmarks: Number = None
    n_rows: Number = None
    rounds: list[Round] = []


class Image(ReportPart):
    """Scores and first features as images."""

    shape: list[Number] = []
    sizes: list[Number] = []
    by_rank: bool = False
    scores: list[list[Number]] = []
    selected: list[list[Number]] = []


class MethodReport(ReportPart):
    """The ranking of a method."""

    label: str = ""
    method: str = ""
    parameters: dict[str, Any] = {}
    direction: str = ""
    citation: str = ""
    n_ranked: Number = None
    n_excluded: Number = None
    n_significant: Number = None
    pvalues: Series = {}
    curve: Series = {}
    columns: list[str] = []
    top: list[FeatureRow] = []
    best: list[str] = []
    trade_off: TradeOff | None = None
    solution: SolutionReport | None = None
    elimination: EliminationReport | None = None
    image: Image | None = None
    along: Series = {}


class Tested(ReportPart):
    """Numbers of features of a method that were tested, and that are more than chance, and what these do."""

    method: str = ""
    meaning: str = ""
    n_tested: Number = None
    n_significant: Number = None


class Tests(ReportPart):
    """Tests of single features, at a false discovery rate."""

    level: Number = None
    methods: list[Tested] = []


class Agreement(ReportPart):
    """Jaccard indices of the first features of each two methods."""

    labels: list[str] = []
    top_k: Number = None
    jaccard: list[list[Number]] = []

    @property
    def is_shown(self) -> bool:
        """Whether there are methods to compare."""
        return len(self.labels) > 1 and bool(self.jaccard)


class Kept(ReportPart):
    """Numbers of features of a method that the redundancy filter keeps and drops."""

    label: str | None = None
    n_kept: Number = None
    n_selected: Number = None
    n_dropped: Number = None


class Redundancy(ReportPart):
    """Filter of redundant features."""

    measure: str = ""
    threshold: Number = None
    n_candidates: Number = None
    max_per_group: Number = None
    n_keep: Number = None
    methods: list[Kept] = []
    rows: list[FeatureRow] = []


class BatchReport(ReportPart):
    """Rows and labels of a batch."""

    name: str | None = None
    n_rows: Number = None
    n_labeled: Number = None
    classes: Numbers = {}
    seconds: Number = None


class BatchMethod(ReportPart):
    """Agreement of the rankings of a method within batches."""

    label: str | None = None
    batches: list[str] = []
    concordance: Number = None
    correlations: list[list[Number]] = []
    top: list[FeatureRow] = []


class BatchRanks(ReportPart):
    """Batches, and the rankings within them."""

    batches: list[BatchReport] = []
    methods: list[BatchMethod] = []


class Excluded(ReportPart):
    """Features without a rank."""

    total: Number = None
    rows: list[FeatureRow] = []


class Curve(ReportPart):
    """Values of a method by number of selected features or by amount of labels or grid value."""

    label: str = ""
    n_selected: list[Number] = []
    mean: list[Number] = []
    std: list[Number] = []
    low: list[Number] = []
    high: list[Number] = []
    rankings: list[Number] = []


class Difference(ReportPart):
    """A method's means, and their paired difference to the best method or between settings."""

    label: str = ""
    mean: Number = None
    transductive: Number = None
    inductive: Number = None
    difference: Number = None
    low: Number = None
    high: Number = None
    p_value: Number = None


class Frequent(ReportPart):
    """Features that a method selects most often, among some number of classes and with some amount of labels."""

    method: str = ""
    n_classes: Number = None
    labels: Number = None
    n_selected: Number = None
    rows: list[FeatureRow] = []


class CurvePanel(ReportPart):
    """Curves, and differences of means over all numbers of features, of a model, metric and amount of labels."""

    model: str = ""
    metric: str = ""
    higher_is_better: bool = True
    n_classes: Number = None
    labels: Number = None
    curves: list[Curve] = []
    best: str = ""
    rows: list[Difference] = []


class Sensitivity(CurvePanel):
    """Means over all numbers of features by amount of labels, or by a grid parameter of the method `base`."""

    name: str = ""
    base: str = ""
    ticks: list[Text] = []
    places: list[Number] = []


class Setting(ReportPart):
    """Figures and tables of one setting of the evaluation."""

    setting: str = ""
    saw_labels: list[str] = []
    panels: list[CurvePanel] = []
    sensitivity: list[Sensitivity] = []
    stability: list[CurvePanel] = []
    frequent: list[Frequent] = []
    comparisons: list[CurvePanel] = []


class EvaluationDesign(ReportPart):
    """Models, metrics, folds and draws of the evaluation."""

    models: list[Text] = []
    metrics: dict[Text, bool] = {}
    n_splits: Number = None
    n_repeats: Number = None
    folds: str = "stratified"
    n_rows: Number = None
    n_rows_total: Number = None
    n_unlabeled: Number = None
    task: str = ""
    labels: list[Number] = []
    n_draws: Number = None
    train_on: str = ""
    n_classes: list[Number] = []
    n_subsets: Number = None
    n_informative: Number = None
    seed: Text = DASH


class Cost(ReportPart):
    """Rankings, units and time of the evaluation."""

    n_selections: Number = None
    n_tests: Number = None
    stages: list[StageReport] = []
    wall_seconds: Number = None
    threads: Number = None
    overhead: Number = None


class EvaluationReport(ReportPart):
    """Evaluation of the rankings: its design, settings, the gap between them, and its cost."""

    is_simple: bool = False
    facts: EvaluationDesign = EvaluationDesign()
    settings: list[Setting] = []
    gap: list[CurvePanel] = []
    cost: Cost | None = None


class Verdict(ReportPart):
    """The best method and number of features, and what stands beside them."""

    method: str = ""
    n_selected: int = 0
    metric: str = ""
    setting: str = ""
    score: Number = None
    low: Number = None
    high: Number = None
    is_corrected: bool = False
    n_compared: int = 0
    all_features: Number = None
    random_order: Number = None
    no_feature: Number = None
    no_feature_name: str = ""
    agreement: Number = None
    doubts: list[str] = []


class Shown(ReportPart):
    """Facts of ``run.json`` that the report shows as they are."""

    title: str = ""
    created: str | None = None
    command: str = ""
    seconds: Number = None
    verdict: Verdict | None = None
    significance: Tests | None = None
    data: DataReport | None = None
    graphs: list[GraphReport] = []
    stages: list[StageReport] = []
    warnings: list[RunWarning] = []
    job: dict[str, Any] = {}
    versions: dict[str, Text] = {}


class Manifest(Shown):
    """Facts of ``run.json`` that the report is made of."""

    evaluation: Cost | None = None
    batches: list[BatchReport] = []
    recomputed: dict[str, int] = {}
    feature_axis: str = ""


class Report(Shown):
    """Everything that a report shows."""

    version: str = ""
    axis: str = ""
    files: list[str] = []
    methods: list[MethodReport] = []
    agreement: Agreement = Agreement()
    redundancy: Redundancy | None = None
    batches: BatchRanks = BatchRanks()
    evaluation: EvaluationReport = EvaluationReport()
    excluded: Excluded | None = None
