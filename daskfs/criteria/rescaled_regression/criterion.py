"""RLSR, SSUFS and DSSFS: features ranked by one regression on class indicators, which also estimates unknown labels.

The slabs find constant features, means and sums of squares; the stages of a loop do the rest (passes.py, solution.py).
"""

from __future__ import annotations

from functools import partial
from typing import Literal

from pydantic import Field, PositiveInt

from daskfs.criteria.centered import centered_criterion
from daskfs.criteria.criterion import Parameters, PositiveNumber
from daskfs.criteria.scaling_field import ScalingChoice
from daskfs.kernels.distance_correlation.spec import Correlation, CorrelationSpec

SolverName = Literal["auto", "cholesky", "woodbury", "cg"]
SolvedBy = Literal["cholesky", "woodbury", "cg"]
CHOLESKY_FEATURES = 20_000
"""Maximum number of features for which S is formed; it then takes 3.2 GB."""
WOODBURY_VALUES = 2**28
"""Maximum values of X that one process holds, in float64, if there are fewer rows than features."""


class RescaledParameters(Parameters):
    """Parameters of RLSR and of the methods built on it."""

    score_scaling: ScalingChoice = "zscore"
    gamma: PositiveNumber = 1.0
    max_iter: PositiveInt = 300
    tol: float = Field(1e-8, ge=0.0)
    solver: SolverName = "auto"
    greedy_filter: bool = False
    correlation: Correlation = "auto"
    n_components: PositiveInt = 8
    n_correlation_rows: PositiveInt | None = 100_000

    def idle(self) -> tuple[str, ...]:
        """Return the parameters that have no effect with these settings."""
        if self.correlations is None:
            return ("correlation", "n_components", "n_correlation_rows")
        return ("n_components",) if self.correlation in ("exact", "matrix_free") else ()

    @property
    def correlations(self) -> CorrelationSpec | None:
        """The distance correlations that the method needs; None for none."""
        return self._spec if self.greedy_filter else None

    @property
    def _spec(self) -> CorrelationSpec:
        return CorrelationSpec(
            self.correlation,
            self.n_components,
            self.n_correlation_rows,
            bias_corrected=False,
            scaling=self.score_scaling,
        )

    def solved_by(self, n_samples: int, n_features: int) -> SolvedBy:
        """Return the solver, which under "auto" depends on the shape of X alone.

        "woodbury", by the rows of X, if these are fewer than features and one process holds X; else "cholesky", with S
        as a matrix, up to 20,000 features; else "cg", by products over all rows.
        """
        if self.solver != "auto":
            return self.solver
        if n_samples < n_features and n_samples * n_features <= WOODBURY_VALUES:
            return "woodbury"
        return "cholesky" if n_features <= CHOLESKY_FEATURES else "cg"


class UncorrelatedParameters(RescaledParameters):
    """Parameters of SSUFS."""

    eta: PositiveNumber | None = None
    eta_relative: PositiveNumber = 0.05

    def idle(self) -> tuple[str, ...]:
        """Return the parameters that have no effect with these settings."""
        return super().idle() + (() if self.eta is None else ("eta_relative",))

    @property
    def correlations(self) -> CorrelationSpec:
        """The distance correlations that the method needs."""
        return self._spec


rescaled_criterion = partial(centered_criterion, fields=("score", "bound", "position"), finish="rescaled")
CRITERIA = (
    rescaled_criterion(
        name="RLSR",
        summary=(
            "Share of a feature in a rescaled linear regression on classes, with those of unlabeled rows learned; "
            "large is good."
        ),
        citation="Chen, Yuan, Nie and Huang (2017), IJCAI, 1525-1531",
        parameters=RescaledParameters,
    ),
    rescaled_criterion(
        name="DSSFS",
        summary="As RLSR, with the targets of labeled rows dragged apart; a reconstruction; large is good.",
        citation="Yuan, Chen, Wang, Nie and Jing (2018), AAAI (student abstract)",
        parameters=RescaledParameters,
    ),
    rescaled_criterion(
        name="SSUFS",
        summary="As RLSR, with a reward for weights that differ between correlated features; large is good.",
        citation="Zhong, Chen and Nie (2019), EasyChair preprint 1690",
        parameters=UncorrelatedParameters,
        pairs_features=True,
    ),
)
