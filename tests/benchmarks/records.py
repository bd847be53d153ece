"""Benchmark of records: what it takes to see which units are done, on a disk and in an object store that answers late.

    python -m tests.benchmarks.records [--units 100000] [--object-units 100000] [--delay 0.05]

Each unit has written one small chunk. Prints seconds and, for objects, requests: of the resume, which compares sizes
of outputs with records; of the seal, which the inputs of the next stage take; and of reading all facts, as ``status``
does.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from daskfs.storage import StoragePath, as_path, clients, map_concurrent
from daskfs.store.completeness import units_not_done
from daskfs.store.record_files import TOGETHER
from daskfs.store.records import Record, encode
from daskfs.store.store import Store
from tests.storage.proxy import Proxy, proxy
from tests.storage.server import environment, object_server

STAGE, FINGERPRINT, CHUNK = "score", "f" * 24, b"0123456789abcdef"


def record_of(unit: int) -> Record:
    """Return a record as a small unit leaves it."""
    measured = {"seconds": 0.01, "peak_bytes": 300 << 20, "bytes_read": 10**6, "bytes_written": 10**3, "process": 7}
    whose = {"stage": STAGE, "unit": unit, "fingerprint": FINGERPRINT, "inputs": "i" * 24, "facts": {"n": unit}}
    return {**whose, **measured, "chunks": {f"scores/x/c/0/{unit}": [len(CHUNK), unit]}, "objects": {}}


def build(root: StoragePath, n_units: int) -> None:
    """Write outputs and records, as drivers put them together."""
    store = Store(root)
    store.begin_epoch()

    def put_output(unit: int) -> None:
        path = root / f"scores/x/c/0/{unit}"
        if isinstance(path, Path):
            path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(CHUNK)

    for _ in map_concurrent(root, put_output, range(n_units)):
        pass
    folder = store.record_files.folder(STAGE)
    if isinstance(folder, Path):
        folder.mkdir(parents=True)
    for number, start in enumerate(range(0, n_units, TOGETHER)):
        lines = [encode(record_of(unit)) for unit in range(start, min(start + TOGETHER, n_units))]
        (folder / f"{number:06d}.{store.epoch.name}.jsonl").write_bytes(b"".join(lines))


@contextmanager
def timed(what: str, counted: Proxy | None = None) -> Iterator[None]:
    """Print how long a block takes."""
    n_before, started = counted.requests.total() if counted else 0, time.perf_counter()
    yield
    n_requests = f", {counted.requests.total() - n_before} requests" if counted else ""
    print(f"    {what}: {time.perf_counter() - started:.2f} s{n_requests}")


def measure(root: StoragePath, n_units: int, counted: Proxy | None = None) -> None:
    """Print the figures of a store."""
    store = Store(root)
    with timed("resume", counted):
        pending = units_not_done(store, STAGE, range(n_units), FINGERPRINT, "i" * 24)
    assert pending == []
    recorded = store.records.matching(STAGE, range(n_units), FINGERPRINT, "i" * 24)
    with timed("seal", counted):
        sealed = store.seals.seal(0, "i" * 24, STAGE, recorded, n_units)
    assert sealed is not None
    store = Store(root)
    with timed("facts", counted):
        total = sum(record["facts"]["n"] for record in store.records.need(STAGE, range(n_units)))
    assert total == n_units * (n_units - 1) // 2


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure from the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--units", type=int, default=100_000)
    parser.add_argument("--object-units", type=int, default=100_000)
    parser.add_argument("--delay", type=float, default=0.05)
    given = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        build(as_path(folder), given.units)
        print(f"disk: {given.units} units")
        measure(as_path(folder), given.units)
    with object_server() as server:
        os.environ.update(environment(server))
        clients._client.cache_clear()
        build(as_path("s3://runs/records"), given.object_units)
        print(f"objects, at once: {given.object_units} units")  # what the stand-in takes for itself
        measure(as_path("s3://runs/records"), given.object_units)
        with proxy(Proxy(server, delay=given.delay)) as between:
            os.environ.update(environment(between.url))
            clients._client.cache_clear()
            print(f"objects, {1000 * given.delay:.0f} ms a request: {given.object_units} units")
            measure(as_path("s3://runs/records"), given.object_units, between)


if __name__ == "__main__":
    main()
