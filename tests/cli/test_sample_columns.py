"""Groups and times of rows through the command line: named like labels, stored with the tiles, shown, refused by row,
and what folds go by.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zarr

from daskfs.store.context import Context, open_tiles
from daskfs.store.store import Store

from .command import N_SAMPLES, basic_job, daskfs, labels, matrix, refused, rows_of, write_job

pytestmark = pytest.mark.cluster

Data = dict[str, Any]
SHOWN = {
    "groups": {"n_groups": 10, "smallest": 3, "largest": 3},
    "times": {"n_distinct": 15, "first": "2024-02-27T00:00:00", "last": "2024-03-12T00:00:00"},
}
LINES = {
    "groups": "groups: 10, each of 3 to 3 rows\n",
    "times": "times: 15 different ones, from 2024-02-27T00:00:00 to 2024-03-12T00:00:00\n",
}


def groups() -> np.ndarray:
    """Return groups, shape (30,), three rows in each."""
    return np.array([f"g{i * 7 % 10}" for i in range(N_SAMPLES)])


def days() -> np.ndarray:
    """Return dates, shape (30,), two rows on each."""
    return np.datetime64("2024-02-27") + (np.arange(N_SAMPLES) * 7 % 15)


COLUMNS: dict[str, Callable[[], np.ndarray]] = {"groups": groups, "times": days}
STORED = {
    "groups": np.unique(groups(), return_inverse=True)[1],
    "times": (days() - np.datetime64(0, "D")) / np.timedelta64(1, "s"),
}


def from_text(folder: Path, key: str) -> Data:
    (folder / "c.txt").write_text("\n".join(map(str, COLUMNS[key]())) + "\n", encoding="utf-8")
    return {"source": str(folder / "X.npy"), "labels": str(folder / "y.npy"), key: str(folder / "c.txt")}


def from_npy(folder: Path, key: str) -> Data:
    np.save(folder / "c.npy", COLUMNS[key]())
    return {**from_text(folder, key), key: str(folder / "c.npy")}


def from_csv(folder: Path, key: str) -> Data:
    lines = ["a,which,b,c,class,d"]
    rows = zip(matrix(), COLUMNS[key](), labels(), strict=True)
    lines += [f"{x[0]},{value},{x[1]},{x[2]},{y},{x[3]}" for x, value, y in rows]
    (folder / "X.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return {"source": str(folder / "X.csv"), "labels": "class", key: "which"}


def from_parquet(folder: Path, key: str) -> Data:
    columns = [pa.array(COLUMNS[key]()), pa.array(labels()), *(pa.array(column) for column in matrix().T)]
    pq.write_table(pa.Table.from_arrays(columns, names=["which", "class", *"abcd"]), folder / "X.parquet")
    return {"source": str(folder / "X.parquet"), "labels": "class", key: "which"}


def from_npz(folder: Path, key: str) -> Data:
    np.savez(folder / "X.npz", X=matrix(), y=labels(), which=COLUMNS[key]()[:, None])
    return {"source": str(folder / "X.npz"), "labels": "y", key: "which"}


def from_zarr(folder: Path, key: str) -> Data:
    group = zarr.open_group(folder / "X.zarr", mode="w")
    for name, values in (("X", matrix()), ("y", labels()), ("which", STORED[key])):
        group.create_array(name, data=values)
    return {"source": str(folder / "X.zarr"), "labels": "y", key: "which"}


FORMATS: dict[str, Callable[[Path, str], Data]] = {
    "text": from_text,
    "npy": from_npy,
    "csv": from_csv,
    "parquet": from_parquet,
    "npz": from_npz,
    "zarr": from_zarr,
}


def options(data: Data) -> list[str]:
    """Return the options of a verb that name the same data."""
    return [data["source"], *(part for key, value in data.items() if key != "source" for part in (f"--{key}", value))]


def stored(tiles: Path, key: str) -> np.ndarray | None:
    context = Context(Store(tiles), open_tiles(str(tiles)))
    return context.sample_column(key)


@pytest.mark.parametrize("key", COLUMNS)
@pytest.mark.parametrize("name", FORMATS)
def test_are_no_features_and_are_kept_with_the_tiles(tmp_path: Path, name: str, key: str) -> None:
    job = basic_job(tmp_path, methods=["VarianceScore"])
    plain = daskfs("run", write_job(tmp_path, job), "-q", "--json")
    job["data"], job["output"] = FORMATS[name](tmp_path, key), {"path": str(tmp_path / "other")}
    outcome = daskfs("run", write_job(tmp_path, job), "-q", "--json")
    assert (outcome.code, outcome.err) == (0, "")
    facts = outcome.json["data"]
    numbers = {"n_distinct": 15, "first": STORED["times"].min(), "last": STORED["times"].max()}
    shown = numbers if (name, key) == ("zarr", "times") else SHOWN[key]
    assert (facts["n_features"], facts[key]) == (4, shown)
    assert plain.json["data"][key] is None
    np.testing.assert_array_equal(stored(tmp_path / "other" / "tiles", key), STORED[key])
    assert stored(tmp_path / "run" / "tiles", key) is None
    scores = [[row["score"] for row in rows_of(tmp_path / run / "ranking.csv")] for run in ("run", "other")]
    assert scores[0] == scores[1]
    report = (tmp_path / "other" / "report.html").read_text(encoding="utf-8")
    assert {"groups": "10, each of 3 to 3 rows", "times": "15 different ones"}[key] in report


@pytest.mark.parametrize("key", COLUMNS)
@pytest.mark.parametrize("name", ["npy", "csv", "npz"])
def test_inspect_and_convert_show_them(tmp_path: Path, name: str, key: str) -> None:
    basic_job(tmp_path)
    data = FORMATS[name](tmp_path, key)
    assert daskfs("inspect", *options(data), "--json").json[key] == SHOWN[key]
    source, *named = options(data)
    target = tmp_path / "t.zarr"
    assert daskfs("convert", source, target, *named, "--workers", 0, "-q", "--json").json[key] == SHOWN[key]
    assert daskfs("inspect", target, "--json").json[key] == SHOWN[key]
    assert LINES[key] in daskfs("inspect", target).out


@pytest.mark.parametrize("key", COLUMNS)
def test_finished_tiles_keep_theirs(tmp_path: Path, key: str) -> None:
    basic_job(tmp_path)
    source, *named = options(from_csv(tmp_path, key))
    tiles = tmp_path / "t.zarr"
    assert daskfs("convert", source, tiles, *named, "--workers", 0, "-q").code == 0
    np.testing.assert_array_equal(stored(tiles, key), STORED[key])
    (tiles / f"sample_{key}" / "c" / "0").unlink()
    again = daskfs("convert", source, tiles, *named, "--workers", 0, "-q", "--json")
    assert (again.code, again.json["recomputed"]["labels"]) == (0, 1)
    np.testing.assert_array_equal(stored(tiles, key), STORED[key])
    job = basic_job(tmp_path, data={"source": str(tiles), key: "which"}, methods=["VarianceScore"])
    path = write_job(tmp_path, job)
    refused(daskfs("run", path, "-q"), 2, f"data.{key} was settled when", "convert again with it")


def test_other_groups_are_another_run(tmp_path: Path) -> None:
    job = basic_job(tmp_path)
    job["data"] = from_npy(tmp_path, "groups")
    path = write_job(tmp_path, job)
    assert daskfs("run", path, "-q").code == 0
    np.save(tmp_path / "c.npy", np.arange(N_SAMPLES) // 10)
    refused(daskfs("run", path, "-q"), 3, "changed since the run", "--overwrite")
    job["data"].pop("groups")
    refused(daskfs("run", write_job(tmp_path, job), "-q"), 3, "another job", "--overwrite")


def changed(row: int, key: str, value: str) -> Callable[[Path], Data]:
    def write(folder: Path) -> Data:
        data = from_text(folder, key)
        lines = [str(cell) for cell in COLUMNS[key]()]
        lines[row] = value
        (folder / "c.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
        return data

    return write


def named(key: str, **data: Any) -> Callable[[Path], Data]:
    return lambda folder: {**from_csv(folder, key), **data}


@pytest.mark.parametrize(
    ("write", "code", "parts"),
    [
        (changed(7, "groups", ""), 3, ("c.txt has no group in row 7",)),
        (changed(3, "times", "12"), 3, ("c.txt has '12' in row 3, after '2024-02-27' in row 0",)),
        (named("groups", groups="whoch"), 3, ("data.groups", "no column 'whoch'", "Did you mean 'which'?")),
        (named("times", times="class"), 3, ("data.labels and data.times both name 'class'",)),
        (named("groups", weights="which"), 3, ("data.weights and data.groups both name 'which'",)),
        (named("times", times="gone.npy"), 3, ("data.times", "gone.npy")),
        (named("groups", exclude=["which"]), 3, ("column 'which' is both data.groups and in data.exclude",)),
        (named("groups", times="a"), 2, ("data.times", "folds go by groups or by times, not by both")),
    ],
    ids=["missing", "mixed", "unknown", "labels", "weights", "no file", "excluded", "both"],
)
def test_refused(tmp_path: Path, write: Callable[[Path], Data], code: int, parts: tuple[str, ...]) -> None:
    job = basic_job(tmp_path)
    job["data"] = write(tmp_path)
    refused(daskfs("run", write_job(tmp_path, job), "-q"), code, *parts)
    if code == 2:
        assert "key 'data.times'" in daskfs("inspect", *options(job["data"])).err
    elif "exclude" not in job["data"]:
        refused(daskfs("inspect", *options(job["data"])), code, *parts)


@pytest.mark.parametrize("key", COLUMNS)
def test_the_plan_counts_their_bytes(tmp_path: Path, key: str) -> None:
    job = basic_job(tmp_path)
    plain = daskfs("plan", write_job(tmp_path, job), "--json").json
    job["data"] = from_npy(tmp_path, key)
    with_column = daskfs("plan", write_job(tmp_path, job), "--json").json
    first, second = (next(s for s in p["stages"] if s["stage"] == "labels") for p in (plain, with_column))
    assert [s["bytes_written"] for s in (first, second)] == [8 * N_SAMPLES, 16 * N_SAMPLES]
    assert second["peak_bytes"] > first["peak_bytes"]


# ------------------------------------------------------------------ folds
def evaluated(folder: Path, table: str, **data: Any) -> list[float]:
    """Return the values of a job's evaluation by one neighbor."""
    folder.mkdir()
    (folder / "X.csv").write_text(table, encoding="utf-8")
    job = {
        "data": {"source": str(folder / "X.csv"), "labels": "y", **data},
        "methods": ["VarianceScore"],
        "evaluate": {"n_selected": [1], "n_splits": 3, "n_neighbors": 1, "baselines": False},
        "cluster": {"workers": 0},
        "output": {"path": str(folder / "run")},
    }
    outcome = daskfs("run", write_job(folder, job), "-q", "--json")
    assert (outcome.code, outcome.err) == (0, "")
    return [float(row["value"]) for row in rows_of(folder / "run" / "evaluation.csv")]


def test_models_are_tested_on_groups_that_they_have_not_seen(tmp_path: Path) -> None:
    """Rows tell their group exactly, and the group its class, which says nothing of other groups."""
    rng = np.random.default_rng(0)
    numbers = np.repeat(rng.permutation(24), 5)
    lines = [f"{9 * g + rng.random()},{rng.random()},p{g},{'ab'[g % 2]}" for g in numbers]
    table = "\n".join(["x,z,patient,y", *lines]) + "\n"
    assert evaluated(tmp_path / "rows", table, exclude=["patient"]) == [1.0] * 3
    apart = evaluated(tmp_path / "groups", table, groups="patient")
    assert len(apart) == 3
    assert max(apart) < 0.5


def test_models_are_tested_on_later_rows(tmp_path: Path) -> None:
    """A target that grows by one a day: the day before is all that one neighbor knows of the days to come."""
    order = np.random.default_rng(0).permutation(40)
    days = np.datetime64("2024-02-27") + order
    lines = [f"{i}.0,0.5,{day},{i}.5" for i, day in zip(order, days, strict=True)]
    table = "\n".join(["x,z,day,y", *lines]) + "\n"
    assert max(evaluated(tmp_path / "rows", table, exclude=["day"])) < 2
    later = evaluated(tmp_path / "times", table, times="day")
    # ten days in each test part, of which the i-th is i days after the last one that is known
    assert later == pytest.approx([np.sqrt(np.mean(np.arange(1, 11) ** 2))] * 3)


def test_repeats_of_folds_by_time_are_refused(tmp_path: Path) -> None:
    job = basic_job(tmp_path, evaluate={"n_selected": [2], "n_repeats": 2})
    job["data"] = from_csv(tmp_path, "times")
    refused(daskfs("plan", write_job(tmp_path, job)), 2, "evaluate.n_repeats", "data.times", "set it to 1")
    job["data"] = from_csv(tmp_path, "groups")
    assert daskfs("plan", write_job(tmp_path, job)).code == 0
