"""Counts of labels, which the driver reads instead of the labels."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from daskfs import make_job, run_job
from daskfs.kernels.labels import LabelCounter, LabelCounts, Labels
from daskfs.runs.pipeline import check_labels_of
from daskfs.stages.stage import Plan
from daskfs.store import layout
from daskfs.store.context import Context, label_counts_of, open_tiles
from daskfs.store.store import Store


@given(
    st.lists(st.tuples(st.integers(-1, 2), st.sampled_from([0.0, 1.0, 2.5])), min_size=1, max_size=30),
    st.lists(st.integers(0, 30), max_size=3).map(sorted),
    st.booleans(),
    st.booleans(),
)
def test_counts_of_parts_are_those_of_all(
    rows: list[tuple[int, float]], cuts: list[int], regression: bool, weighted: bool
) -> None:
    values, weights = (np.array(one) for one in zip(*rows, strict=True))
    labels = Labels("classification", values.astype(np.int32), ("a", "b", "c"))
    if regression:
        labels = Labels("regression", np.where(values < 0, np.nan, values / 2))
    counter = LabelCounter(labels.task, labels.classes)
    for part, own in zip(np.split(labels.values, cuts), np.split(weights, cuts), strict=True):
        counter.add(part, own if weighted else None)
    found = counter.counts()
    assert found == LabelCounts.of(labels, weights if weighted else None)
    known = values >= 0
    counted = known & (weights > 0) if weighted else known
    assert (found.n_samples, found.n_labeled, found.n_counted) == (len(rows), known.sum(), counted.sum())
    assert found.is_varied == (np.unique(values[counted]).size > 1)
    if regression:
        assert found.by_class == ()
        assert (found.target is None) == (not known.any())
    else:
        assert (found.by_class, found.target) == (tuple(np.bincount(values[known], minlength=3)), None)


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("counted")
    rows = np.arange(90)
    for name, values in (("y", rows % 4 - 1), ("w", rows % 2), ("b", rows // 30)):
        np.save(folder / f"{name}.npy", values)
    np.save(folder / "X.npy", np.random.default_rng(0).normal(size=(90, 3)))
    files = {"source": "X", "labels": "y", "weights": "w", "batch": "b"}
    job: dict[str, Any] = {
        "data": {key: str(folder / f"{name}.npy") for key, name in files.items()},
        "methods": ["FisherScore"],
        "cluster": {"workers": 0},
        "output": {"path": str(folder / "run")},
    }
    run_job(make_job(job))
    return folder / "run"


def test_of_all_rows_and_of_each_batch(done: Path) -> None:
    y, w, batch = np.arange(90) % 4 - 1, np.arange(90) % 2, np.arange(90) // 30
    labels = Labels("classification", y.astype(np.int32), ("0", "1", "2"))
    whole, *of_batches = label_counts_of(open_tiles(str(done / "tiles")))
    assert whole == LabelCounts.of(labels, w.astype(float))
    for number, counts in enumerate(of_batches):
        own = batch == number
        assert counts == LabelCounts.of(Labels("classification", labels.values[own], labels.classes), w[own] * 1.0)
    assert len(of_batches) == 3


def test_tiles_of_earlier_versions_have_none_and_are_counted(done: Path, tmp_path: Path) -> None:
    shutil.copytree(done / "tiles", tmp_path / "tiles")
    (tmp_path / "tiles" / layout.LABEL_COUNTS).unlink()
    shutil.rmtree(tmp_path / "tiles/records")  # which state it
    assert label_counts_of(open_tiles(str(tmp_path / "tiles"))) == label_counts_of(open_tiles(str(done / "tiles")))


def test_the_driver_checks_a_plan_without_labels_and_weights(done: Path, tmp_path: Path) -> None:
    shutil.copytree(done / "tiles", tmp_path / "tiles")
    for name in (layout.LABELS, "sample_weights", "sample_batch"):
        shutil.rmtree(tmp_path / "tiles" / name / "c")
    tiles = open_tiles(str(tmp_path / "tiles"))
    assert label_counts_of(tiles) == label_counts_of(open_tiles(str(done / "tiles")))
    store = Store(done)
    check_labels_of(Plan.from_json(store.read_json(layout.PLAN_JSON), store.url), Context(store, tiles))
