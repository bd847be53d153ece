"""CPU seconds of ``daskfs inspect`` for tables of 300 rows, by their number of columns, beside the same table as CSV.

python -m tests.benchmarks.wide [COLUMNS ...]
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pandas as pd

from daskfs.data_block import DataBlock
from daskfs.runs.inspection import inspect_data

N_ROWS = 300
COLUMNS = (1_000, 10_000, 20_000, 100_000)
MOST_MEMBERS = 10_000
"""Columns up to which each is a member of a group."""


def write_csv(path: Path, table: pd.DataFrame) -> None:
    """Write a table of text."""
    table.to_csv(path, index=False)


def write_parquet(path: Path, table: pd.DataFrame) -> None:
    """Write Parquet, in one row group."""
    table.to_parquet(path)


def write_anndata(path: Path, table: pd.DataFrame) -> None:
    """Write AnnData with the columns as features."""
    import anndata as ad

    obs = pd.DataFrame({"lab": table["lab"].to_numpy()}, index=[f"c{row}" for row in range(len(table))])
    features = table.drop(columns="lab")
    ad.AnnData(features.to_numpy(), obs=obs, var=pd.DataFrame(index=features.columns)).write_h5ad(path)


def write_hdf5(path: Path, table: pd.DataFrame) -> None:
    """Write one member for each column, and X."""
    import h5py

    with h5py.File(path, "w") as file:
        for name in table:
            file[str(name)] = table[name].to_numpy()
        file["X"] = table.to_numpy()


def write_zarr(path: Path, table: pd.DataFrame) -> None:
    """Write one array for each column, and X."""
    import zarr

    group = zarr.open_group(path, mode="w")
    for name in table:
        group.create_array(str(name), data=table[name].to_numpy())
    group.create_array("X", data=table.to_numpy())


WRITERS: dict[str, tuple[Callable[[Path, pd.DataFrame], None], bool]] = {
    "csv": (write_csv, False),
    "parquet": (write_parquet, False),
    "h5ad": (write_anndata, False),
    "h5": (write_hdf5, True),
    "zarr": (write_zarr, True),
}
"""Writer of each ending, and whether it makes a member for each column."""


def measure(folder: Path, n_columns: int) -> Iterator[tuple[str, float]]:
    """Yield the ending and the CPU seconds of the description of each source."""
    rng = np.random.default_rng(0)
    table = pd.DataFrame(rng.normal(size=(N_ROWS, n_columns)), columns=[f"g{column}" for column in range(n_columns)])
    table = pd.concat([table, pd.Series(np.arange(N_ROWS) % 3, name="lab")], axis=1)
    for ending, (write, has_members) in WRITERS.items():
        if has_members and n_columns > MOST_MEMBERS:
            continue
        path = folder / f"table{n_columns}.{ending}"
        write(path, table)
        start = time.process_time()
        inspect_data(DataBlock(source=str(path), labels="lab"))
        yield ending, time.process_time() - start


def main(columns: tuple[int, ...] = COLUMNS) -> None:
    """Print a table of CPU seconds."""
    with tempfile.TemporaryDirectory() as folder:
        list(measure(Path(folder), 10))  # imports
        print("| columns | " + " | ".join(WRITERS) + " |")
        print("| --- |" + " --- |" * len(WRITERS))
        for n_columns in columns:
            seconds = dict(measure(Path(folder), n_columns))
            cells = (f"{seconds[ending]:.2f}" if ending in seconds else "" for ending in WRITERS)
            print(f"| {n_columns:,} | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main(tuple(map(int, sys.argv[1:])) or COLUMNS)
