"""A write that fails: what is told is the error that was raised, not what followed from it."""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from daskfs.execution import retries
from daskfs.storage import LocalPath
from tests.cli.command import Outcome, daskfs
from tests.cli.test_moved_runs import job_of, tables, write_data

pytestmark = pytest.mark.cluster
OTHERS = re.compile(r"taken over|another daskfs process|deleted or moved|is damaged|is missing")
"""What other causes would be told as."""


def run(job: Path, fails: Callable[[int], bool], number: int) -> tuple[Outcome, int]:
    """Run a job whose writes fail by their place; return its outcome and the number of writes."""
    places = itertools.count()

    def failing(write: Callable[..., Any]) -> Callable[..., Any]:
        def put(path: LocalPath, *arguments: Any, **options: Any) -> Any:
            if fails(next(places)):
                raise OSError(number, os.strerror(number), str(path))
            return write(path, *arguments, **options)

        return put

    with contextlib.ExitStack() as stack:
        stack.enter_context(mock.patch.object(retries, "PAUSES", (0.0,)))
        for name in ("put_blocks", "put_first"):
            stack.enter_context(mock.patch.object(LocalPath, name, failing(getattr(LocalPath, name))))
        return daskfs("run", job, "-q"), next(places)


@pytest.mark.parametrize("cause", ["a disk that is full from then on", "one error of a device"])
def test_the_first_error_is_told(tmp_path: Path, cause: str) -> None:
    write_data(tmp_path)
    job = job_of(tmp_path, tmp_path / "whole", "graph")
    whole, n_writes = run(job, lambda _: False, 0)
    assert whole.code == 0
    number = errno.ENOSPC if "full" in cause else errno.EIO
    for place in (*range(8), *range(8, n_writes, 11)):
        job = job_of(tmp_path, tmp_path / f"run-{place}", "graph")
        fails = (lambda n, place=place: n >= place) if "full" in cause else (lambda n, place=place: n == place)
        outcome, _ = run(job, fails, number)
        assert outcome.code == 1 or (outcome.code == 0 and number == errno.EIO), (place, outcome.err)
        if outcome.code:
            assert os.strerror(number) in outcome.err, (place, outcome.err)
            assert not OTHERS.search(outcome.err), (place, outcome.err)
        assert daskfs("run", job, "-q").code == 0
        assert tables(tmp_path / f"run-{place}") == tables(tmp_path / "whole")
