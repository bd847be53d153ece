"""Models of an evaluation: the names, parameters and metrics that a job may set, and the memory they need.

A job names a model by one of the short names below, or by the class name of a classifier, regressor or clusterer of
scikit-learn; a job can reach nothing else. :mod:`daskfs.evaluation.predictors` fits and tests the models.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from inspect import Parameter, isabstract, signature
from math import inf
from pkgutil import iter_modules
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, JsonValue, PositiveInt, ValidationError

from daskfs.errors import JobError, nearest
from daskfs.kernels.labels import Task
from daskfs.kernels.threads import sklearn_module
from daskfs.stages.cost import Array, Cost, Fixed, MiB, Objects

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
"""Prefixes of the names of scikit-learn's scorers for regression."""
DEFAULT_METRICS: Mapping[Family, tuple[str, ...]] = {
    "classification": ("balanced_accuracy",),
    "regression": ("rmse",),
    "clusters": ("accuracy", "nmi"),
    "1nn-loo": ("error",),
    "cut": ("cut",),
}
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
"""Number of float64 (n_rows, n_rows) matrices that an estimator was measured to hold at once, with a margin."""
TREES = ("RandomForest", "ExtraTrees", "Bagging")
"""Prefixes of the names of ensembles of fully grown trees."""
TREE_ROW_BYTES = 200
"""Largest number of bytes per row of a fully grown tree."""
KERNEL_CACHED = ("SVC", "SVR", "NuSVC", "NuSVR")
"""Estimators of libsvm, which keeps as much of the kernel as its cache holds."""
NOT_SET = {
    "n_jobs": "the workers of the cluster are what runs side by side",
    "verbose": "models run in workers, whose output is not shown",
}
"""Parameters of scikit-learn that a job cannot set, with the reason."""


class OwnParameters(BaseModel):
    """Parameters of a model that is not an estimator of scikit-learn."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class KMeansParameters(OwnParameters):
    """Parameters of k-means; the restart with the best objective counts."""

    n_restarts: PositiveInt = 10
    n_clusters: PositiveInt | None = None
    init: Literal["k-means++", "random"] = "k-means++"
    max_iter: PositiveInt = 300


class CutParameters(OwnParameters):
    """Parameters of the cut value of the selected columns."""

    n_neighbors: PositiveInt = 10


@dataclass(frozen=True)
class ModelAlias:
    """The classes of scikit-learn behind a short name, their module, and the parameters that it fixes."""

    module: str
    classifier: str
    regressor: str
    fixed: Mapping[str, Any] = field(default_factory=dict)


ALIASES: Mapping[str, ModelAlias] = {
    "knn": ModelAlias("neighbors", "KNeighborsClassifier", "KNeighborsRegressor"),
    "linear-svm": ModelAlias("svm", "SVC", "SVR", {"kernel": "linear"}),
    "rbf-svm": ModelAlias("svm", "SVC", "SVR", {"kernel": "rbf"}),
    "ridge": ModelAlias("linear_model", "RidgeClassifier", "Ridge"),
}
OWN: Mapping[str, type[OwnParameters]] = {"1nn-loo": OwnParameters, "kmeans": KMeansParameters, "cut": CutParameters}


@dataclass(frozen=True)
class ModelSpec:
    """A model as a job names it.

    `name` is a short name or a class of scikit-learn; tables show `label`; empty `metrics` means the default ones.
    """

    name: str
    label: str
    parameters: Mapping[str, JsonValue] = field(default_factory=dict)
    metrics: tuple[str, ...] = ()

    def number(self, name: str, default: int) -> int:
        """Return a parameter that is a number."""
        value = self.parameters.get(name)
        return int(value) if isinstance(value, int | float) else default


# ---------------------------------------------------------------------------------- checks of a job's models
def make_model(
    name: str,
    parameters: Mapping[str, Any],
    label: str | None = None,
    metrics: Sequence[str] = (),
    *,
    task: Task | None = None,
    key: str = "evaluate.models.0",
) -> ModelSpec:
    """Check a model and return its specification.

    Parameters
    ----------
    name, parameters, label, metrics
        As in :class:`ModelSpec`; the label defaults to the name.
    task
        Task of the labels; None if not known yet, which skips the check that the model serves it.
    key
        Key of the job, for messages.

    Raises
    ------
    JobError
        For an unknown name, parameter or metric, with the nearest valid one; for a bad value; for a model that does not
        serve the task.
    """
    spec = ModelSpec(name, label or name, dict(parameters), tuple(metrics))
    families = _families(spec, key)
    if task is not None:
        if (family := _family_for(families, task)) is None:
            msg = f"{key}: model {name} is {_serves(families)}, and the labels are for {task}: {_alternatives(task)}."
            raise JobError(msg)
        families = (family,)
    if name in OWN:
        own_parameters(spec, key)
    elif parameters:
        problems = [_estimator_problem(spec, estimator_class(spec, family), key) for family in families]
        if all(problems):
            raise JobError(problems[0])
    for place, metric in enumerate(metrics):
        valid = tuple(dict.fromkeys(name for family in families for name in known_metrics(family)))
        if metric not in valid:
            msg = (
                f"{key}.metrics.{place}: '{metric}' is no metric of model {name}.{nearest(metric, valid)} Metrics: "
                f"{', '.join(valid)}."
            )
            raise JobError(msg)
    return spec


def _families(spec: ModelSpec, key: str) -> tuple[Family, ...]:
    """Return the families of a model; :class:`JobError` with the nearest name for an unknown model."""
    if spec.name in ALIASES:
        return ("classification", "regression")
    if spec.name in OWN:
        return ({"kmeans": "clusters", "1nn-loo": "1nn-loo", "cut": "cut"}[spec.name],)  # type: ignore[return-value]
    if spec.name not in _estimators():
        names = (*_estimators(), *ALIASES, *OWN)  # short names last: they win over names that differ only in case
        msg = (
            f"{key}: unknown model '{spec.name}'.{nearest(spec.name, names)} Models: "
            f"{', '.join((*ALIASES, *OWN))}, and "
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


def _alternatives(task: Task) -> str:
    return "take knn, ridge or a classifier" if task == "classification" else "take knn, ridge or a regressor"


@cache
def _estimators() -> Mapping[str, type[Any]]:
    """Return the models of scikit-learn by class name: those that need no other estimator.

    ``sklearn.utils.discovery`` has them too, but imports what scikit-learn is tested with, which fails in version 1.6
    if array_api_compat is installed, as it is with anndata.
    """
    classes = {}
    base, package = sklearn_module("base"), sys.modules["sklearn"]
    families = base.ClassifierMixin, base.RegressorMixin, base.ClusterMixin
    modules = [sklearn_module(one.name) for one in iter_modules(package.__path__) if one.name in package.__all__]
    members = {name: member for module in modules for name, member in vars(module).items() if isinstance(member, type)}
    for name, kind in members.items():
        is_model = issubclass(kind, base.BaseEstimator) and issubclass(kind, families) and not isabstract(kind)
        if not is_model or name.startswith("_"):
            continue
        parameters = [p for p in signature(kind).parameters.values() if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
        # FeatureAgglomeration clusters columns
        if all(p.default is not Parameter.empty for p in parameters) and name != "FeatureAgglomeration":
            classes[name] = kind
    return classes


def _estimator_family(kind: type[Any]) -> Family:
    base = sklearn_module("base")
    if issubclass(kind, base.ClusterMixin):
        return "clusters"
    return "regression" if issubclass(kind, base.RegressorMixin) else "classification"


def estimator_class(spec: ModelSpec, family: Family) -> type[Any]:
    """Return the class of scikit-learn behind a model: the regressor if the family is "regression"."""
    if spec.name not in ALIASES:
        return _estimators()[spec.name]
    short = ALIASES[spec.name]
    return getattr(sklearn_module(short.module), short.regressor if family == "regression" else short.classifier)


def own_parameters(spec: ModelSpec, key: str = "evaluate.models") -> Any:
    """Check the parameters of a model of :data:`OWN` and return them; :class:`JobError` names a wrong one."""
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
    """Return the error message for the parameters of an estimator, empty if they are valid."""
    fixed = ALIASES[spec.name].fixed if spec.name in ALIASES else {}
    parameters = signature(kind).parameters
    valid = tuple(name for name in parameters if name not in NOT_SET and name not in fixed)
    for name, value in spec.parameters.items():
        if name not in valid:
            return _unknown_parameter(spec, name, valid, key)
        default = parameters[name].default
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


def known_metrics(family: Family) -> tuple[str, ...]:
    """Return the metrics of a family of models, the default ones first."""
    defaults = DEFAULT_METRICS[family]
    if family in ("1nn-loo", "cut"):
        return defaults
    if family == "clusters":
        return (*defaults, *CLUSTER_SCORES)
    names, others = sklearn_module("metrics").get_scorer_names(), {*defaults, *CLUSTER_SCORES}
    # names that end in "_samples" are for multilabel rows
    scorers = [name for name in names if name not in others and not name.endswith("_samples")]
    more = (name for name in scorers if name.startswith(REGRESSION_SCORES) == (family == "regression"))
    return (*defaults, *more)


def higher_is_better(metric: str) -> bool:
    """Return whether larger values of a metric are better: all but "rmse", "error" and "cut".

    All scorers of scikit-learn are larger for better; those of errors are negated ("neg_...").
    """
    return metric not in ("rmse", "error", "cut")


def range_of(metric: str) -> tuple[float, float]:
    """Return the least and the greatest possible value of a metric."""
    if metric in ("rmse", "cut", "mutual_info_score", "positive_likelihood_ratio"):
        return 0.0, inf
    if metric == "max_error" or metric.startswith("neg_"):
        return -inf, 0.0
    if metric in ("matthews_corrcoef", "adjusted_rand_score", "adjusted_mutual_info_score"):
        return -1.0, 1.0
    return (-inf, 1.0) if metric in ("r2", "explained_variance") or metric.startswith("d2_") else (0.0, 1.0)


# --------------------------------------------------------------------------------- properties of a checked model
def family_of(spec: ModelSpec, task: Task) -> Family:
    """Return the family of a checked model for a task; :class:`JobError` if it does not serve the task."""
    family = _family_for(_families(spec, "evaluate.models"), task)
    if family is None:
        msg = f"evaluate.models: model {spec.name} does not serve {task}: {_alternatives(task)}."
        raise JobError(msg)
    return family


def metrics_of(spec: ModelSpec, task: Task) -> tuple[str, ...]:
    """Return the metrics of a model: those that the job names, or the default ones."""
    return spec.metrics or DEFAULT_METRICS[family_of(spec, task)]


def uses_folds(spec: ModelSpec, setting: Setting = "transductive") -> bool:
    """Return whether :func:`daskfs.evaluation.predictors.evaluate_model` tests a model, on rows it is not fitted to.

    Otherwise ``evaluate_whole`` does. In the transductive setting clusterers are scored on the rows that they cluster,
    as in the papers. In the inductive one they are fitted to training rows and predict held-out ones; those without
    ``predict`` (such as DBSCAN) cluster the held-out rows.
    """
    if spec.name in ALIASES:
        return True
    if spec.name in OWN:
        return spec.name == "kmeans" and setting == "inductive"
    kind = _estimators()[spec.name]
    return _estimator_family(kind) != "clusters" or (setting == "inductive" and hasattr(kind, "predict"))


def fewest_rows(spec: ModelSpec) -> int:
    """Return the minimum number of training rows of a model: n_neighbors of a k-neighbors model, else 1."""
    if spec.name == "knn" or spec.name.startswith("KNeighbors"):
        return spec.number("n_neighbors", 5)
    return 1


def model_cost(spec: ModelSpec, n_rows: int, n_features: int) -> Cost:
    """Return the peak memory of fitting and testing a model, without its input rows.

    Terms for all pairs of rows, libsvm kernels and whole trees are known per estimator. All others are taken to work
    on a few rows at a time, with the memory measured for those that do.
    """
    name = ALIASES[spec.name].classifier if spec.name in ALIASES else spec.name
    copies = (Array("copies of the rows that a model makes", (6, n_rows, n_features)), LEAST)
    if name in SQUARE_MATRICES:
        return (*copies, Array("matrices over all pairs of rows", (SQUARE_MATRICES[name], n_rows, n_rows)))
    if name in KERNEL_CACHED:
        cache = Fixed("cache of the kernel", spec.number("cache_size", 200) * MiB)
        kernel = Array("kernel", (n_rows, n_rows), "float32")
        return (*copies, kernel if kernel.nbytes < cache.nbytes else cache)
    if name.startswith(TREES):
        n_trees = spec.number("n_estimators", 100)
        return (*copies, Objects("rows in each of the trees", n_rows * n_trees, TREE_ROW_BYTES))
    return copies
