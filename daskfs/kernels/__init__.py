"""Numerical kernels on arrays: no Dask, no Zarr, no configuration, no logging.

A *panel* is a C-ordered array of shape (n_rows, width) whose columns are scored together. Every sum over rows adds each
column in a fixed order of rows, so a feature's result is bit-identical whichever other columns share its panel.
"""
