"""Inspection of data from Python."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from daskfs.api.rank import open_container
from daskfs.api.run import ScratchDirectory
from daskfs.estimators.opening import as_source, open_client
from daskfs.job.job import make_data
from daskfs.runs.inspection import inspect_data
from daskfs.sources.values import is_of

if TYPE_CHECKING:
    from distributed import Client


def inspect(X: Any, *, data: Mapping[str, Any] | None = None, client: Client | None = None) -> dict[str, Any]:
    """Describe data as ``daskfs inspect --json`` does, and change nothing.

    Parameters
    ----------
    X
        Anything that :func:`rank` takes, shape (n_samples, n_features). A collection of dask is computed once and read
        in this process, some blocks at a time.
    data
        Keys of the block ``data`` beside ``source``, such as ``{"labels": "cultivar"}`` of a table in a file.
    client
        Client whose workers compute a collection; None for Dask's current one, else threads.

    Returns
    -------
    dict
        Shape (``n_samples``, ``n_features``), ``dtype``, ``is_sparse``, tiles, labels, numbers of missing and infinite
        values by column, constant and duplicate features; of a table also its ``columns``, and of a file that holds
        several arrays its ``members``. The ``source`` of what lies in no file is the name of its class.

    Raises
    ------
    InputError
        If X cannot be read as a matrix of numbers, or does not hold what `data` names.

    Examples
    --------
    >>> import numpy as np
    >>> from daskfs import inspect
    >>> X = np.array([[1.0, 5.0, np.nan], [2.0, 5.0, 0.5], [3.0, 5.0, 0.1]])
    >>> description = inspect(X)
    >>> description["n_samples"], description["missing"], description["constant"]
    (3, {'x2': 1}, ['x1'])
    """
    scratch = ScratchDirectory()
    values, names, keys, _ = open_container(X, None, None, scratch.path)
    client = open_client(client, by_default=is_of(values, "dask"))
    source, collection = as_source(values, scratch.path, client, names)
    description = inspect_data(make_data({"source": source, **keys, **(data or {})}))
    is_in_memory = collection is not None or source.startswith(str(scratch.path))
    return {**description, "source": type(X).__name__} if is_in_memory else description
