"""Arrays in, arrays out: no Dask, no Zarr, no configuration, no logging.

A *panel* is a C-ordered (n_rows, width) array of columns that are scored together. Every sum over rows here runs column
by column in a fixed order of rows, so a feature's result does not depend, to the last bit, on which other columns share
its panel.
"""
