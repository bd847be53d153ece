"""The matrix of distance correlations between features."""
