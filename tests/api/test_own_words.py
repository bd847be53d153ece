"""Mistakes are answered by daskfs, and not by the library that comes upon them first."""

from __future__ import annotations

import errno
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import dask.array as da
import dask.dataframe as dd
import numpy as np
import pyarrow as pa
import pytest

import daskfs
from daskfs.errors import ClusterError, DaskfsError, InputError, RunStoppedError, StoreError
from daskfs.estimators.base import ScoreSelector
from daskfs.execution.pool import lost_scheduler
from daskfs.storage import as_path
from daskfs.store.write_errors import no_room
from tests.cases import case, each
from tests.optional import anndata
from tests.optional import pandas as pd
from tests.optional import polars as pl

X = np.random.default_rng(0).normal(size=(40, 3))
Y = np.arange(40) % 2

SELECTORS = [
    one for name in daskfs.__all__ if isinstance(one := getattr(daskfs, name), type) and issubclass(one, ScoreSelector)
]


@each("kind", SELECTORS)
def test_a_parameter_that_no_selector_has(kind: Any) -> None:
    """Some classes have the ``__init__`` of a base class, whose name nobody wrote."""
    known = list(kind._get_param_names())
    for name in known:
        with pytest.raises(TypeError, match=rf"^{kind.__name__}\(\) has no parameter '{name}z'\..*'{name}'\?$"):
            kind(**{f"{name}z": 3})
    with pytest.raises(TypeError, match=rf"^{kind.__name__}\(\) takes .* positional argument"):
        kind(*range(9))


# ------------------------------------------------------------------------------------------------ columns of one name
def tables() -> dict[str, Any]:
    """Return tables of which two columns have one name."""
    frame = pd.DataFrame(X, columns=["a", "b", "a"])
    apart = dd.from_pandas(frame.set_axis(["a", "b", "c"], axis=1), npartitions=2)
    arrow = pa.Table.from_arrays([pa.array(column) for column in X.T], names=list(frame.columns))
    return {"pandas": frame, "Arrow": arrow, "dask": apart.rename(columns={"c": "a"})}


def test_columns_of_one_name_cannot_be_named() -> None:
    for kind, table in tables().items():
        for name in ("y", "groups", "weights"):
            named: dict[str, Any] = {"y": Y, name: "a"}
            with case(kind, name), pytest.raises(InputError, match="X has more than one column 'a'"):
                daskfs.rank(table, **named)


def test_a_query_that_polars_refuses(tmp_path: Path) -> None:
    query = pl.DataFrame(X, schema=["a", "b", "c"]).lazy()
    twice = query.select(pl.col("a"), pl.col("b").alias("a"))
    lazy = {"'a'": twice, '"d"': query.select("d"), "i64": query.with_columns(pl.lit("word").cast(pl.Int64).alias("b"))}
    job = {"data": {"source": "X"}, "methods": ["VarianceScore"], "output": {"path": str(tmp_path / "run")}}
    calls: dict[str, Callable[[Any], Any]] = {
        "rank": daskfs.rank,
        "run": lambda X: daskfs.run(job, data=X),
        "fit": daskfs.VarianceScore().fit,
        "knn_graph": daskfs.knn_graph,
    }
    for part, table in lazy.items():
        for name, call in calls.items():
            with case(part, name), pytest.raises(InputError, match=rf"^X is a query that Polars refuses: .*{part}"):
                call(table)


def test_a_table_of_arrow_keeps_its_names() -> None:
    table = pa.table({"a": X[:, 0], "b": X[:, 1], "y": Y})
    assert list(daskfs.VarianceScore().fit(table).feature_names_in_) == ["a", "b", "y"]
    assert daskfs.rank(table, "y", methods="FisherScore", evaluate=None).ranking["name"].isin(["a", "b"]).all()


# --------------------------------------------------------------------------------------------- temporary directories
def test_no_result_names_a_temporary_file() -> None:
    adata = anndata.AnnData(X, obs=pd.DataFrame({"y": Y.astype(str)}, index=list(map(str, range(40)))))
    options: dict[str, Any] = {"groups": np.arange(40) // 4, "methods": ["FisherScore"], "evaluate": None}
    for key in ("daskfs", "other"):  # columns of the default key have the names that files have
        result = daskfs.rank(adata, "y", key_added=key, **options)
        assert result["data"]["source"] == "AnnData in memory"
        assert "rank_FisherScore" in {name.removeprefix("other_" if key == "other" else "") for name in adata.var}
        assert "daskfs-" not in json.dumps(adata.uns[key], default=str)
    assert len(adata.var.columns) == 6
    assert daskfs.rank(X, Y, **options)["data"]["source"] == "ndarray in memory"


def job_in(folder: Path) -> dict[str, Any]:
    return {
        "data": {"source": "X"},
        "methods": ["VarianceScore"],
        "evaluate": None,
        "output": {"path": str(folder / "data")},
    }


ERRORS: dict[str, DaskfsError | None] = {
    "scheduler": ClusterError(lost_scheduler(OSError("no connection"))),
    "disk": no_room(as_path(__file__), OSError(errno.ENOSPC, "No space left on device")),
    "signal": None,
}


@pytest.mark.parametrize("name", ERRORS)
def test_nothing_goes_on_where_nothing_is_kept(tmp_path: Path, name: str) -> None:
    error = ERRORS[name]
    kind = RunStoppedError if error is None else type(error)
    np.save(tmp_path / "X.npy", X)
    calls: dict[str, tuple[Callable[[], Any], str]] = {
        "rank": (lambda: daskfs.rank(X, Y), r"; nothing is kept\.$"),
        "output": (lambda: daskfs.rank(X, Y, output=tmp_path / "run"), "; values in memory are not recognized"),
        "path": (lambda: daskfs.rank(tmp_path / "X.npy", output=tmp_path / "own"), "; the same command goes on"),
        "data": (lambda: daskfs.run(job_in(tmp_path), data=X), "; values in memory are not recognized"),
        "fit": (lambda: daskfs.VarianceScore().fit(tmp_path / "X.npy"), r"; nothing is kept\.$"),
    }

    def effect(*_: Any) -> None:
        if error is None:
            signal.raise_signal(signal.SIGTERM)
        else:
            raise type(error)(*error.args)

    with mock.patch("daskfs.runs.runner.check_room", side_effect=effect):
        for call, (made, part) in calls.items():
            if error is not None or call != "fit":  # signals do not stop a fit
                with case(call), pytest.raises(kind, match=part):
                    made()


def test_the_output_of_values_in_memory_is_not_taken_for_that_of_others(tmp_path: Path) -> None:
    earlier = "holds the run of an earlier call; values in memory are not recognized"
    daskfs.run(job_in(tmp_path), data=X)
    with pytest.raises(StoreError, match=f"^{tmp_path}/data {earlier}"):
        daskfs.run(job_in(tmp_path), data=X)
    options: dict[str, Any] = {"methods": ["FisherScore"], "evaluate": None, "output": tmp_path / "run"}
    for M in (X, da.from_array(X, chunks=(10, 3))):
        daskfs.rank(M, Y, **options)
        with pytest.raises(StoreError, match=f"^{tmp_path}/run {earlier}") as caught:
            daskfs.rank(M, Y, **options)
        assert "daskfs-" not in str(caught.value)
        shutil.rmtree(tmp_path / "run")


# -------------------------------------------------------------------------------------------------------------- cores
@pytest.mark.cluster
def test_cores_that_cannot_be_counted(tmp_path: Path) -> None:
    """As in containers, whose ``lscpu`` tells nothing: scikit-learn counts them for some models."""
    (tmp_path / "lscpu").write_text("#!/bin/sh\nexit 1\n")
    (tmp_path / "lscpu").chmod(0o700)
    code = (
        "import daskfs, numpy as np\n"
        "from joblib.externals.loky.backend import context\n"
        "context._cpu_count_user = lambda count: count\n"
        "X = np.random.default_rng(0).normal(size=(40, 3))\n"
        "daskfs.evaluate_selectors(daskfs.VarianceScore(), X, np.arange(40) % 2, models=['kmeans'], n_selected=[1])\n"
        "print(context._count_physical_cores()[0])\n"
    )
    unset = {key: value for key, value in os.environ.items() if not key.startswith(("OMP_", "LOKY_"))}
    env = {**unset, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, env=env)
    assert (done.stdout, done.stderr) == ("not found\n", "")
