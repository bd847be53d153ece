"""Settings of a run that its tables and its report depend on."""

from __future__ import annotations

from daskfs.criteria.registry import Method
from daskfs.stages.parameters import StageParameters
from daskfs.stages.stage import Plan


class RunSettings(StageParameters):
    """Methods of a run, and the rule by which they select features; the parameters of stage "rank".

    Attributes
    ----------
    methods
        The methods, in the order of the job.
    n_features
        Number of features to select; None if `fdr` selects.
    fdr
        False discovery rate up to which features are selected, none by a method without p-values.
    significance
        Whether p-values are asked for.
    filtered
        Whether the job has ``select.redundancy``.
    """

    methods: tuple[Method, ...]
    n_features: int | None
    fdr: float | None
    significance: bool
    filtered: bool


def settings_of(plan: Plan) -> RunSettings:
    """Return the settings of a run from its plan."""
    return next(stage.parameters for stage in plan.stages if isinstance(stage.parameters, RunSettings))
