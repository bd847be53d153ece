"""How the distance correlations of all features with each other are to be had: one choice, that others pass on."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal, Protocol

from daskfs.errors import InputError
from daskfs.kernels.scaling import Scaling, without_zscore

Correlation = Literal["auto", "exact", "feature_map", "matrix_free"]
CORRELATIONS: tuple[Correlation, ...] = ("auto", "exact", "feature_map", "matrix_free")
MATRIX_FREE_FEATURES = 20_000
"""Features above which the matrix is not formed: of so many it takes 3.2 GB."""
MATRIX_FREE_ROWS = 1_000
"""Rows that a product with the matrix never formed is taken over: it takes their square for each feature."""
EXACT_ROWS = 256
EXACT_PRODUCTS = 2e10
"""Multiplications that the exact matrix may take before the feature map is the choice: some seconds of one core."""


class Sized(Protocol):
    """What has rows and features."""

    @property
    def n_samples(self) -> int: ...

    @property
    def n_features(self) -> int: ...


@dataclass(frozen=True)
class CorrelationSpec:
    """Squared distance correlations of all pairs of features.

    Parameters
    ----------
    correlation
        "exact", from the distances of all pairs of rows; "feature_map", from few components of the distance kernel of
        each feature in bins; "matrix_free", only products with the matrix, which is never formed; or "auto".
    n_components
        Components of a feature of many values under "feature_map", up to twice as many where tails are heavy. A
        feature of at most ``2 * n_components + 1`` values has all of its own, and is exact. The matrix takes
        ``n_rows * (n_features * n_components)**2`` operations: 20 seconds of one core for 100,000 rows of 500
        features, and 8 hours for 20,000 features.
    n_rows
        Rows in use, drawn evenly over all of them; None for all. "matrix_free" uses at most 1,000.
    bias_corrected
        Whether each entry is the ratio of U-statistics, 0 where that is negative, which is 0 in the mean for
        independent features; else that of V-statistics, which few rows make too large.
    scaling
        What X is rescaled by on the fly. No correlation feels "zscore".
    """

    correlation: Correlation = "auto"
    n_components: int = 8
    n_rows: int | None = 100_000
    bias_corrected: bool = False
    scaling: Scaling | None = None

    @property
    def name(self) -> str:
        """Name of these correlations in a store; that of equal ones is equal."""
        parts = [self.correlation.replace("_", "-")]
        if self.correlation in ("auto", "feature_map"):
            parts.append(str(self.n_components))
        parts.append("all" if self.n_rows is None else str(self.n_rows))
        if self.bias_corrected:
            parts.append("corrected")
        if self.felt is not None:
            parts.append(self.felt)
        return "-".join(parts)

    @property
    def felt(self) -> Scaling | None:
        """The scaling without z-scores, which no correlation feels."""
        return without_zscore(self.scaling)

    def rows_used(self, n_samples: int) -> int:
        """Return how many of so many rows are in use."""
        wanted = n_samples if self.n_rows is None else min(n_samples, self.n_rows)
        return min(wanted, MATRIX_FREE_ROWS) if self.correlation == "matrix_free" else wanted

    def resolved(self, shape: Sized) -> CorrelationSpec:
        """Return the same with "auto" settled, by the numbers of rows and features alone: "matrix_free" above 20,000
        features; "exact" up to 256 rows in use, or 2e10 multiplications (200 features of 1,000 rows, 60 of 3,300);
        else "feature_map".

        Raises
        ------
        InputError
            Where bias is to be corrected without forming the matrix: its entries are then none that could be cut off
            at 0.
        """
        settled = self
        if self.correlation == "auto":
            rows, features = self.rows_used(shape.n_samples), shape.n_features
            few = rows <= EXACT_ROWS or (rows * features) ** 2 / 2 <= EXACT_PRODUCTS
            way: Correlation = "exact" if few else "feature_map"
            settled = replace(self, correlation="matrix_free" if features > MATRIX_FREE_FEATURES else way)
        if settled.correlation == "matrix_free" and self.bias_corrected:
            msg = (
                f"bias_corrected needs every distance correlation by itself, and those of {shape.n_features} features "
                "are not formed (correlation 'matrix_free'): set bias_corrected to false, or correlation to "
                "'feature_map'."
            )
            raise InputError(msg)
        return settled
