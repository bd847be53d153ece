"""The models by which selections are compared: what a job may name, and what it may say of them.

A job names a model by one of the short names below, or by the class name of a classifier, regressor or clusterer of
scikit-learn; nothing else can be reached from a job. :mod:`daskfs.evaluation.predictors` fits and tests them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cache
from inspect import Parameter, signature
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, PositiveInt, ValidationError

from daskfs.errors import JobError, nearest
from daskfs.kernels.labels import Task
from daskfs.stages.cost import Array, Cost, Fixed, Held, MiB, Objects

Setting = Literal["transductive", "inductive"]
Family = Literal["classification", "regression", "clusters", "1nn-loo", "cut"]

CLUSTER_SCORES = (
    "adjusted_mutual_info_score",
    "adjusted_rand_score",
    "completeness_score",
    "fowlkes_mallows_score",
    "homogeneity_score",
    "mutual_info_score",
    "normalized_mutual_info_score",
    "rand_score",
    "v_measure_score",
)
REGRESSION_SCORES = ("r2", "explained_variance", "d2_abs", "max_", "neg_max", "neg_mean", "neg_median", "neg_root")
"""What the names of scikit-learn's scorers for targets begin with."""
DEFAULT_METRICS: Mapping[Family, tuple[str, ...]] = {
    "classification": ("balanced_accuracy",),
    "regression": ("rmse",),
    "clusters": ("accuracy", "nmi"),
    "1nn-loo": ("error",),
    "cut": ("cut",),
}
LOWER_IS_BETTER = frozenset({"rmse", "error", "cut"})
LEAST = Fixed("modules of scikit-learn, and distances between a few rows at a time", 64 * MiB)
SQUARE_MATRICES = {
    "AffinityPropagation": 5,
    "AgglomerativeClustering": 2,
    "Birch": 2,
    "DBSCAN": 4,
    "GaussianProcessClassifier": 10,
    "GaussianProcessRegressor": 10,
    "KernelRidge": 4,
    "LabelPropagation": 4,
    "LabelSpreading": 4,
    "RadiusNeighborsClassifier": 2,
    "RadiusNeighborsRegressor": 2,
    "SpectralClustering": 6,
}
"""Matrices of float64 over all pairs of rows that an estimator was seen to hold at a time, and some more."""
TREES = ("RandomForest", "ExtraTrees", "Bagging")
"""What the names of ensembles of fully grown trees begin with."""
TREE_ROW_BYTES = 200
"""What a fully grown tree takes at most for each row."""
KERNEL_CACHED = ("SVC", "SVR", "NuSVC", "NuSVR")
"""Estimators of libsvm, which keeps so much of the kernel as its cache holds."""
NOT_SET = {
    "n_jobs": "the workers of the cluster are what runs side by side",
    "verbose": "models run in workers, whose output nobody reads",
}
"""Parameters of scikit-learn that a job does not set, and why."""


class OwnParameters(BaseModel):
    """Parameters of a model that is none of scikit-learn's."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class KMeansParameters(OwnParameters):
    """k-means with restarts, of which the one with the best objective counts."""

    n_restarts: PositiveInt = 10
    n_clusters: PositiveInt | None = None
    init: Literal["k-means++", "random"] = "k-means++"
    max_iter: PositiveInt = 300


class CutParameters(OwnParameters):
    """The cut value of the selected columns."""

    n_neighbors: PositiveInt = 10


@dataclass(frozen=True)
class ModelAlias:
    """A short name: the classes of scikit-learn behind it, and the parameters that make it what it is."""

    classifier: str
    regressor: str
    fixed: Mapping[str, Any] = field(default_factory=dict)


SHORT: Mapping[str, ModelAlias] = {
    "knn": ModelAlias("KNeighborsClassifier", "KNeighborsRegressor"),
    "linear-svm": ModelAlias("SVC", "SVR", {"kernel": "linear"}),
    "rbf-svm": ModelAlias("SVC", "SVR", {"kernel": "rbf"}),
    "ridge": ModelAlias("RidgeClassifier", "Ridge"),
}
OWN: Mapping[str, type[OwnParameters]] = {"1nn-loo": OwnParameters, "kmeans": KMeansParameters, "cut": CutParameters}


@dataclass(frozen=True)
class ModelSpec:
    """A model as a job names it.

    `name` is a short name or a class of scikit-learn, `label` what tables show; no `metrics` stand for the usual ones.
    """

    name: str
    label: str
    parameters: Mapping[str, Any] = field(default_factory=dict)
    metrics: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return what :meth:`from_json` takes."""
        return {**asdict(self), "metrics": list(self.metrics)}

    @classmethod
    def from_json(cls, raw: Mapping[str, Any]) -> ModelSpec:
        """Return the model that :meth:`to_json` wrote."""
        return cls(raw["name"], raw["label"], dict(raw["parameters"]), tuple(raw["metrics"]))


# ---------------------------------------------------------------------------------- what a job may say
def make_model(
    name: str,
    parameters: Mapping[str, Any],
    label: str | None = None,
    metrics: Sequence[str] = (),
    *,
    task: Task | None = None,
    key: str = "evaluate.models.0",
) -> ModelSpec:
    """Check a model.

    Parameters
    ----------
    name, parameters, label, metrics
        As :class:`ModelSpec` holds them; the label is the name where none is given.
    task
        Of the labels; None where it is not known, which leaves open whether the model serves it.
    key
        Where the job says it, for messages.

    Raises
    ------
    JobError
        For an unknown name, parameter or metric, with the nearest; for a bad value; for a model that does not serve the
        task.
    """
    spec = ModelSpec(name, label or name, dict(parameters), tuple(metrics))
    families = _families(spec, key)
    if task is not None and (family := _family_for(families, task)) is None:
        msg = f"{key}: model {name} is {_serves(families)}, and the labels are for {task}: {_instead(task)}."
        raise JobError(msg)
    wanted = families if task is None else tuple(f for f in families if f == family)
    _check_parameters(spec, wanted, key)
    for place, metric in enumerate(spec.metrics):
        _check_metric(metric, spec, wanted, f"{key}.metrics.{place}")
    return spec


def _families(spec: ModelSpec, key: str) -> tuple[Family, ...]:
    """Return what a model can be; :class:`JobError` with the nearest name for one that is none."""
    if spec.name in SHORT:
        return ("classification", "regression")
    if spec.name in OWN:
        return ({"kmeans": "clusters", "1nn-loo": "1nn-loo", "cut": "cut"}[spec.name],)  # type: ignore[return-value]
    if spec.name not in _estimators():
        names = (*_estimators(), *SHORT, *OWN)  # of names alike but for case, the short one
        msg = (
            f"{key}: unknown model '{spec.name}'.{nearest(spec.name, names)} Models: {', '.join((*SHORT, *OWN))}, and "
            "the classifiers, regressors and clusterers of scikit-learn that need no other estimator, by class name."
        )
        raise JobError(msg)
    return (_estimator_family(_estimators()[spec.name]),)


def _family_for(families: Sequence[Family], task: Task) -> Family | None:
    if task in families:
        return task
    serves: tuple[Family, ...] = ("clusters", "1nn-loo", "cut") if task == "classification" else ("cut",)
    return next((family for family in families if family in serves), None)


def _serves(families: Sequence[Family]) -> str:
    of = {"clusters": "for classes, which its clusters are held against", "1nn-loo": "for classes"}
    return " or ".join(of.get(family, f"for {family}") for family in families)


def _instead(task: Task) -> str:
    return "take knn, ridge or a classifier" if task == "classification" else "take knn, ridge or a regressor"


@cache
def _estimators() -> Mapping[str, type[Any]]:
    """Return the models of scikit-learn by class name: those that can be made without another estimator."""
    from sklearn.utils.discovery import all_estimators

    found = {}
    for name, kind in all_estimators(type_filter=["classifier", "regressor", "cluster"]):
        own = [p for p in signature(kind).parameters.values() if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
        # the clusters of FeatureAgglomeration are of columns
        if all(p.default is not Parameter.empty for p in own) and name != "FeatureAgglomeration":
            found[name] = kind
    return found


def _estimator_family(kind: type[Any]) -> Family:
    from sklearn.base import ClusterMixin, RegressorMixin

    if issubclass(kind, ClusterMixin):
        return "clusters"
    return "regression" if issubclass(kind, RegressorMixin) else "classification"


def estimator_class(spec: ModelSpec, family: Family) -> type[Any]:
    """Return the class of scikit-learn behind a model, for targets where the family is "regression"."""
    if spec.name not in SHORT:
        return _estimators()[spec.name]
    import sklearn.linear_model
    import sklearn.neighbors
    import sklearn.svm

    short = SHORT[spec.name]
    name = short.regressor if family == "regression" else short.classifier
    homes = (sklearn.neighbors, sklearn.svm, sklearn.linear_model)
    return next(getattr(home, name) for home in homes if hasattr(home, name))


def _check_parameters(spec: ModelSpec, families: Sequence[Family], key: str) -> None:
    if spec.name in OWN:
        own_parameters(spec, key)
    elif spec.parameters:
        problems = [_estimator_problem(spec, estimator_class(spec, family), key) for family in families]
        if all(problems):
            raise JobError(problems[0])


def own_parameters(spec: ModelSpec, key: str = "evaluate.models") -> Any:
    """Return the checked parameters of a model of :data:`OWN`; :class:`JobError` names a wrong one."""
    kind = OWN[spec.name]
    try:
        return kind.model_validate(dict(spec.parameters))
    except ValidationError as error:
        problem = error.errors()[0]
        name = str(problem["loc"][0])
        if problem["type"] == "extra_forbidden":
            raise JobError(_unknown_parameter(spec, name, tuple(kind.model_fields), key)) from None
        messages = dict.fromkeys(p["msg"] for p in error.errors() if p["loc"][0] == name)
        msg = f"{key}.{name}: {'; or: '.join(messages)} (got {problem['input']!r})."
        raise JobError(msg) from None


def _unknown_parameter(spec: ModelSpec, name: str, valid: tuple[str, ...], key: str) -> str:
    if name in NOT_SET:
        return f"{key}.{name}: a job does not set it, as {NOT_SET[name]}."
    choice = f" Parameters: {', '.join(valid)}." if valid else " It has none."
    return f"{key}.{name}: model {spec.name} has no such parameter.{nearest(name, valid)}{choice}"


def _estimator_problem(spec: ModelSpec, kind: type[Any], key: str) -> str:
    """Return what is wrong with parameters of an estimator, an empty string where nothing is."""
    fixed = SHORT[spec.name].fixed if spec.name in SHORT else {}
    known = signature(kind).parameters
    valid = tuple(name for name in known if name not in NOT_SET and name not in fixed)
    for name, value in spec.parameters.items():
        if name not in valid:
            return _unknown_parameter(spec, name, valid, key)
        default = known[name].default
        if isinstance(value, bool) and isinstance(default, int | float) and not isinstance(default, bool):
            return f"{key}.{name}: true and false mean nothing here (got {value!r})."
    try:
        kind(**fixed, **spec.parameters)._validate_params()
    except ValueError as error:
        text = str(error)
        name = next((name for name in spec.parameters if f"'{name}' parameter" in text), "")
        return f"{key}{'.' if name else ''}{name}: {as_sentence(text)}"
    return ""


def as_sentence(text: str) -> str:
    """Return the first line of a message, with a full stop."""
    return f"{text.strip().splitlines()[0].rstrip('. :')}."


def _check_metric(metric: str, spec: ModelSpec, families: Sequence[Family], key: str) -> None:
    valid = tuple(dict.fromkeys(name for family in families for name in known_metrics(family)))
    if metric not in valid:
        msg = (
            f"{key}: '{metric}' is no metric of model {spec.name}.{nearest(metric, valid)} Metrics: {', '.join(valid)}."
        )
        raise JobError(msg)


def known_metrics(family: Family) -> tuple[str, ...]:
    """Return the metrics of a family of models, the usual ones first."""
    own = DEFAULT_METRICS[family]
    if family in ("1nn-loo", "cut"):
        return own
    if family == "clusters":
        return (*own, *CLUSTER_SCORES)
    from sklearn.metrics import get_scorer_names

    # names on "_samples" are for rows of several labels
    names = [name for name in get_scorer_names() if name not in CLUSTER_SCORES and not name.endswith("_samples")]
    targets = family == "regression"
    more = (name for name in names if name.startswith(REGRESSION_SCORES) == targets and name not in own)
    return (*own, *more)


def higher_is_better(metric: str) -> bool:
    """Return whether larger values of a metric are better: all but "rmse", "error" and "cut".

    The scorers of scikit-learn are all larger for better; those of errors have their sign turned ("neg_...").
    """
    return metric not in LOWER_IS_BETTER


# --------------------------------------------------------------------------------- what follows from it
def family_of(spec: ModelSpec, task: Task) -> Family:
    """Return what a checked model is for a task."""
    family = _family_for(_families(spec, "evaluate.models"), task)
    if family is None:
        msg = f"evaluate.models: model {spec.name} does not serve {task}: {_instead(task)}."
        raise JobError(msg)
    return family


def metrics_of(spec: ModelSpec, task: Task) -> tuple[str, ...]:
    """Return the names of the values that a model gives: those that the job names, or the usual ones."""
    return spec.metrics or DEFAULT_METRICS[family_of(spec, task)]


def uses_folds(spec: ModelSpec, setting: Setting = "transductive") -> bool:
    """Return whether a model is fitted to training rows and tested on others, by
    :func:`daskfs.evaluation.predictors.evaluate_model`; else ``evaluate_whole`` judges it by the rows that it sees.

    Clusterers see no labels: in the transductive setting they cluster the very rows that they are judged by, as in the
    papers; in the inductive one they are fitted to the training rows and put the held-out ones into clusters, but for
    those that cannot (DBSCAN, say), which cluster the held-out rows.
    """
    if spec.name in SHORT:
        return True
    if spec.name in OWN:
        return spec.name == "kmeans" and setting == "inductive"
    kind = _estimators()[spec.name]
    return _estimator_family(kind) != "clusters" or (setting == "inductive" and hasattr(kind, "predict"))


def fewest_rows(spec: ModelSpec) -> int:
    """Return how many training rows a model needs: the neighbors of one by neighbors, else 1."""
    if spec.name == "knn" or spec.name.startswith("KNeighbors"):
        return int(spec.parameters.get("n_neighbors", 5))
    return 1


def model_cost(spec: ModelSpec, n_rows: int, n_features: int) -> Cost:
    """Return what fitting and testing a model takes beside the rows, at most.

    Known for the short names and for estimators that hold distances of all rows, kernels of them, or whole trees; of
    the others it is what those that look at a few rows at a time were seen to take.
    """
    name = SHORT[spec.name].classifier if spec.name in SHORT else spec.name
    held = (Array("copies of the rows that a model makes", (6, n_rows, n_features)), LEAST)
    if name in SQUARE_MATRICES:
        return (*held, Array("matrices over all pairs of rows", (SQUARE_MATRICES[name], n_rows, n_rows)))
    if name in KERNEL_CACHED:
        return (*held, _kernel(spec, n_rows))
    if name.startswith(TREES):
        n_trees = int(spec.parameters.get("n_estimators", 100))
        return (*held, Objects("rows in each of the trees", n_rows * n_trees, TREE_ROW_BYTES))
    return held


def _kernel(spec: ModelSpec, n_rows: int) -> Held:
    """Return what libsvm keeps of the kernel: all of it where that fits its cache."""
    cache = Fixed("cache of the kernel", int(spec.parameters.get("cache_size", 200) * MiB))
    kernel = Array("kernel", (n_rows, n_rows), "float32")
    return kernel if kernel.nbytes < cache.nbytes else cache
