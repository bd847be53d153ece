"""Passes over a panel of columns, in NumPy and compiled by numba."""
