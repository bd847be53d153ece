"""A file that was written again is never answered from the memory of the process; an old one is read once."""

from __future__ import annotations

import gzip
import io
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import permutations
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from daskfs import FisherScore
from daskfs.sources import Source, SourceSpec, csv_table, mtx, open_source, parquet, svmlight, unpacked, zipped
from daskfs.sources.base import SAMPLE_COLUMNS
from daskfs.sources.state import source_state
from daskfs.stages.stage import digest
from daskfs.storage import as_path, file_cache
from daskfs.storage.file_cache import RACY_NS, cached_by_file
from daskfs.store.context import Context
from daskfs.store.store import Store
from daskfs.tiles.ingest import SourceParameters, planned_source
from tests.cases import case
from tests.optional import pandas as pd
from tests.rewriting import HOUR_NS, WAYS, read_before_and_after, swaps, twins

from .writers import KINDS, labels, matrix


def rows_of(source: Source) -> np.ndarray:
    block = source.read_rows(0, source.info.n_samples)
    return block.toarray() if sp.issparse(block) else np.asarray(block)


def planned_rows(spec: SourceSpec) -> tuple[str, np.ndarray]:
    """Plan a run that reads a source, and read it as a unit does; return the fingerprint of the plan, too."""
    state = source_state(spec, open_source(spec))
    fingerprint = digest(state.contents(), spec.model_dump())
    parameters = SourceParameters(source=spec, state=state, fingerprint=fingerprint)
    with planned_source(Context(Store(None)), parameters) as source:
        return fingerprint, rows_of(source)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_a_rewritten_source(kind: Any, way: str, tmp_path: Path) -> None:
    """Also where a plan takes it for the same, as plans compare sizes and modification times."""
    (old, X, name), (new, other, _) = twins(
        tmp_path, swaps(matrix()), lambda folder, values: kind.write(folder, values, labels())
    )
    spec = SourceSpec(source=str(old / name), **kind.fields(old))
    before, after = read_before_and_after(old, new, way, lambda: (rows_of(open_source(spec)), *planned_rows(spec)))
    assert before[1] == after[1]
    for rows, expected in ((before, X), (after, other)):
        np.testing.assert_array_equal(rows[0], expected)
        np.testing.assert_array_equal(rows[2], expected)


def _packed(text: str) -> bytes:
    return gzip.compress(text.encode(), 0, mtime=0)


def _parquet(*names: str) -> bytes:
    pq.write_table(pa.table({name: [1.0, 2.0] for name in names}), stream := io.BytesIO())
    return stream.getvalue()


def _npy(values: np.ndarray) -> bytes:
    np.save(stream := io.BytesIO(), values)
    return stream.getvalue()


MTX = "%%MatrixMarket matrix coordinate real general\n"
LAYOUTS: dict[str, tuple[bytes, bytes]] = {
    "X.csv": (b"a,b\n10,2\n", b"a\n1\n2\n33\n"),
    "X.csv.gz": (_packed("a,b\n10,2\n"), _packed("a\n1\n2\n33\n")),
    "X.svmlight": (b"1 1:5\n2 1:66\n", b"1 1:5\n2 22:6\n"),
    "X.mtx": (f"{MTX}3 4 1\n1 1 5\n".encode(), f"{MTX}4 3 1\n4 3 7\n".encode()),
    "X.parquet": (_parquet("a", "b"), _parquet("b", "c")),
    "X.npy": (_npy(np.ones((2, 3))), _npy(np.ones((3, 2)))),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", LAYOUTS)
def test_a_source_of_another_layout(name: str, way: str, tmp_path: Path) -> None:
    """Of other rows, columns or names, in as many bytes."""
    for folder, content in zip(("old", "new"), LAYOUTS[name], strict=True):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / name).write_bytes(content)

    def read(folder: str) -> list[Any]:
        spec = SourceSpec(source=str(tmp_path / folder / name))
        source = open_source(spec)
        return [source.info.feature_names, rows_of(source).tolist(), planned_rows(spec)[1].tolist()]

    before, after = read_before_and_after(tmp_path / "old", tmp_path / "new", way, lambda: read("old"))
    assert before != after == read("new")


# ----------------------------------------------------------------------------------------------------------- side files
def _write_text(file: Path, values: np.ndarray) -> None:
    content = "\n".join([*(["v"] if ".csv" in file.name else []), *map(str, values)]).encode()
    file.write_bytes(gzip.compress(content, mtime=0) if file.suffix == ".gz" else content)


SIDE_FILES: dict[str, Callable[[Path, np.ndarray], None]] = {
    "v.npy": np.save,
    "v.npz": lambda file, values: np.savez_compressed(file, y=values),
    "v.csv": _write_text,
    "v.csv.gz": _write_text,
    "v.txt": _write_text,
}


def write_side_file(name: str, folder: Path, values: np.ndarray) -> None:
    SIDE_FILES[name](folder / name, values)


SIDE_KEYS = {"labels": tuple(SIDE_FILES), "feature_names": ("v.txt",), "row_names": ("v.txt", "v.csv", "v.npy")} | {
    key: tuple(SIDE_FILES) for key in SAMPLE_COLUMNS
}


def side_values(folder: Path, key: str, file: Path) -> list[Any]:
    """Return the values of a side file of the matrix in a folder."""
    fields: dict[str, Any] = {key: str(file)}
    source = open_source(SourceSpec(source=str(folder / "X.npy"), **fields))
    if key == "feature_names":
        return list(source.info.feature_names or ())
    if key == "row_names":
        return np.concatenate(list(source.read_row_names() or ())).tolist()
    values = source.read_labels() if key == "labels" else source.read_sample_column(key)
    assert values is not None
    return values.tolist()


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("key", SIDE_KEYS)
def test_a_rewritten_side_file(key: str, way: str, tmp_path: Path) -> None:
    np.save(tmp_path / "X.npy", np.eye(5))
    orders = [np.array(order) for order in permutations((3, 1, 4, 2, 5))]
    for name in SIDE_KEYS[key]:
        with case(name):
            (folder := tmp_path / f"in {name}").mkdir()
            (old, _, _), (new, _, _) = twins(folder, orders, partial(write_side_file, name))
            before, after = read_before_and_after(old, new, way, partial(side_values, tmp_path, key, old / name))
            assert before != after == side_values(tmp_path, key, new / name)


# ----------------------------------------------------------------------------------------------------------------- runs
def _frame(X: np.ndarray) -> pd.DataFrame:
    return pd.DataFrame(X, columns=[f"x{column}" for column in range(X.shape[1])]).assign(y=labels())


TABLES: dict[str, Callable[[Path, np.ndarray], None]] = {
    "X.npz": lambda file, X: np.savez_compressed(file, X=X, y=labels()),
    "X.csv": lambda file, X: _frame(X).to_csv(file, index=False),
    "X.parquet": lambda file, X: _frame(X).to_parquet(file, index=False),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", TABLES)
def test_a_selector_ranks_what_a_file_holds_now(name: str, way: str, tmp_path: Path) -> None:
    (old, X, _), (new, other, _) = twins(tmp_path, swaps(matrix()), lambda place, X: TABLES[name](place / name, X))

    def means() -> np.ndarray:
        return FisherScore(1).fit(old / name, "y").scores_

    before, after = read_before_and_after(old, new, way, means)
    for scores, values in ((before, X), (after, other)):
        np.testing.assert_allclose(scores, FisherScore(1).fit(values, labels()).scores_)
    assert not np.allclose(before, after)


# ---------------------------------------------------------------------------------------------------- what is read once
READS: dict[str, tuple[str, Any, str]] = {
    "X.csv": ("csv", csv_table, "_parse_header"),
    "X.csv.gz": ("csv", unpacked, "unpack"),
    "X.svm": ("svmlight", svmlight, "cut_lines"),
    "X.mtx": ("mtx", mtx, "cut_lines"),
    "X.npz": ("npz-deflated", zipped, "unpack"),
    "X.parquet": ("parquet", parquet, "_open_file"),
}


@pytest.mark.parametrize("is_old", [True, False])
@pytest.mark.parametrize("name", READS)
def test_only_an_old_file_is_read_once(
    name: str, is_old: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kind_name, module, function = READS[name]
    kind = KINDS[kind_name]
    path = tmp_path / kind.write(tmp_path, matrix(), labels())
    if name.endswith(".gz"):
        path = tmp_path / name
        path.write_bytes(gzip.compress((tmp_path / "X.csv").read_bytes()))
    changed = path.stat().st_ctime_ns
    monkeypatch.setattr(file_cache, "time_ns", lambda: changed + RACY_NS + is_old)
    monkeypatch.setattr(file_cache, "monotonic_ns", lambda: 0)
    spec, counts = SourceSpec(source=str(path), **kind.fields(as_path(tmp_path))), []
    for _ in range(3):
        with mock.patch.object(module, function, side_effect=getattr(module, function)) as reads:
            np.testing.assert_array_equal(rows_of(open_source(spec)), matrix())
        # Parquet files are opened for each read, with the footer or without
        counts.append(
            sum(call.args[-1] is None for call in reads.mock_calls) if module is parquet else reads.call_count
        )
    assert counts[0] >= 1
    assert counts[1:] == ([0, 0] if is_old else counts[:1] * 2)


@dataclass
class File:
    """File on a server, whose clock has steps and another time than ours."""

    step: int
    ahead: int
    now: int = 10**18
    content: int = 0
    changed: int = 0
    n_reads: int = 0

    def write(self) -> None:
        self.content += 1
        self.changed = (self.now + self.ahead) // self.step * self.step

    def read(self) -> int:
        self.n_reads += 1
        return self.content

    def stat(self) -> SimpleNamespace:
        fields = {"st_mtime_ns": self.changed, "st_ctime_ns": self.changed}
        return SimpleNamespace(st_size=1, st_ino=1, st_dev=1, **fields)

    __hash__ = object.__hash__


TICK = 10**7
CLOCKS = (1, TICK, 10**9, 2 * 10**9)
"""Steps of the clocks of file systems: of the newest, with a tick of 10 ms, of ext3 and of FAT."""


@given(
    step=st.sampled_from(CLOCKS),
    ahead=st.sampled_from([0, 1, TICK, 10**9, HOUR_NS]) | st.integers(TICK - RACY_NS, 0),
    events=st.lists(
        st.tuples(st.sampled_from([0, 1, TICK, 10**8, 10**9, RACY_NS, HOUR_NS]), st.booleans()), max_size=12
    ),
)
def test_what_is_read_is_what_a_file_holds(step: int, ahead: int, events: list[tuple[int, bool]]) -> None:
    """Whenever it is written, also if clocks differ; and it is soon read no more if it is not."""
    file = File(step, ahead if step <= TICK else max(ahead, 0))
    read: Any = cached_by_file(4)(lambda file: file.read())
    with pytest.MonkeyPatch.context() as patched:
        for clock in ("time_ns", "monotonic_ns"):
            patched.setattr(file_cache, clock, lambda: file.now)
        file.write()
        for pause, is_write in events:
            file.now += pause
            if is_write:
                file.write()
            assert read(file) == file.content
        for _ in range(2):
            file.now += RACY_NS + 1
            assert read(file) == file.content
        n_reads = file.n_reads
        assert read(file) == file.content
        assert file.n_reads == n_reads


def test_threads_read_a_file_once() -> None:
    file, started, n_threads = File(1, 0), threading.Barrier(4), 4
    file.write()
    file.now += HOUR_NS
    read: Any = cached_by_file(4)(lambda file: file.read())

    def reading() -> int:
        started.wait()
        return int(read(file))

    with ThreadPoolExecutor(n_threads) as threads, mock.patch.object(file_cache, "time_ns", return_value=file.now):
        assert [future.result() for future in [threads.submit(reading) for _ in range(n_threads)]] == [1] * n_threads
    assert file.n_reads == 1


def test_what_was_read_while_a_file_changed_is_not_kept() -> None:
    """Names that lead to one file and then to another, such as links, may lead back to the first."""
    file = File(1, 0)
    file.write()

    def replaced(file: File) -> int:
        content = file.read()
        if file.n_reads == 1:
            file.now += 1
            file.write()
        return content

    read: Any = cached_by_file(4)(replaced)
    with mock.patch.object(file_cache, "time_ns", return_value=file.now + HOUR_NS):
        first = file.changed
        assert read(file) == 1
        file.changed = first
        assert read(file) == 2
