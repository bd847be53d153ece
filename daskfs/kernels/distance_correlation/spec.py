"""The choice of method and its settings for the distance correlations of all pairs of features."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal, Protocol

from daskfs.errors import InputError
from daskfs.kernels.scaling import Scaling, without_zscore

Correlation = Literal["auto", "exact", "feature_map", "matrix_free"]
CORRELATIONS: tuple[Correlation, ...] = ("auto", "exact", "feature_map", "matrix_free")
MATRIX_FREE_FEATURES = 20_000
"""Number of features above which the matrix is not formed: at this number it takes 3.2 GB."""
MATRIX_FREE_ROWS = 1_000
"""Rows used for matrix-free products: each feature costs their square."""
EXACT_CORRELATION_ROWS = 256
EXACT_PRODUCTS = 2e10
"""Multiplications up to which "auto" chooses the exact matrix over the feature map: some seconds of one core."""


class Sized(Protocol):
    """An object with numbers of rows and features."""

    @property
    def n_samples(self) -> int:
        """Number of rows."""

    @property
    def n_features(self) -> int:
        """Number of features."""


@dataclass(frozen=True)
class CorrelationSpec:
    """Squared distance correlations of all pairs of features.

    Parameters
    ----------
    correlation
        "exact", from the distances of all pairs of rows; "feature_map", from a few components of the distance kernel of
        each binned feature; "matrix_free", only products with the matrix, which is never formed; or "auto".
    n_components
        Components of a feature of many values under "feature_map", up to twice as many for heavy tails. A feature of at
        most ``2 * n_components + 1`` values keeps all components, and is exact. The matrix takes
        ``n_rows * (n_features * n_components)**2`` operations: 20 seconds of one core for 100,000 rows of 500 features,
        and 8 hours for 20,000 features.
    n_rows
        Number of rows to use, drawn evenly over all of them; None for all. "matrix_free" uses at most 1,000.
    bias_corrected
        Whether each entry is the ratio of U-statistics, with negative ones set to 0, whose mean is 0 for independent
        features; else that of V-statistics, which is too large for few rows.
    scaling
        Rescaling of X on the fly. "zscore" changes no correlation.
    """

    correlation: Correlation = "auto"
    n_components: int = 8
    n_rows: int | None = 100_000
    bias_corrected: bool = False
    scaling: Scaling | None = None

    @property
    def name(self) -> str:
        """Name of these correlations in a store; equal specs have equal names."""
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
        """The scaling without z-scores, which change no correlation."""
        return without_zscore(self.scaling)

    def rows_used(self, n_samples: int) -> int:
        """Return the number of rows used out of n_samples."""
        n_rows = n_samples if self.n_rows is None else min(n_samples, self.n_rows)
        return min(n_rows, MATRIX_FREE_ROWS) if self.correlation == "matrix_free" else n_rows

    def resolved(self, shape: Sized) -> CorrelationSpec:
        """Return the spec with "auto" resolved, by the numbers of rows and features alone.

        The choice is "matrix_free" above 20,000 features; "exact" up to 256 rows in use, or 2e10 multiplications (200
        features of 1,000 rows, 60 of 3,300); else "feature_map".

        Raises
        ------
        InputError
            If bias correction is combined with "matrix_free", which forms no entries to set to 0.
        """
        settled = self
        if self.correlation == "auto":
            rows, features = self.rows_used(shape.n_samples), shape.n_features
            few = rows <= EXACT_CORRELATION_ROWS or (rows * features) ** 2 / 2 <= EXACT_PRODUCTS
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
