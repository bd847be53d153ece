"""Which worker runs which unit of a loop, as workers come and go."""

from __future__ import annotations

import math
import random
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from daskfs.execution.placement import Places
from daskfs.execution.pool import Pool
from tests.execution.staged import run_made_up, threads_as_workers

SIZES = [(1, 1), (2, 5), (3, 2), (4, 40), (16, 191), (100, 100), (500, 191), (500, 1000), (500, 5000)]


@pytest.mark.parametrize(("n_workers", "n_units"), SIZES)
def test_shares_are_even_and_a_lost_worker_moves_its_own_units_only(n_workers: int, n_units: int) -> None:
    random_state, places = random.Random(n_units), Places()
    workers = [f"tcp://10.0.0.{i}" for i in range(n_workers)]
    before = list(places.of(n_units, workers))
    for event in range(30):
        changed = workers.copy()
        is_lost = event % 3 != 2 and len(changed) > 1
        if is_lost:
            gone = changed.pop(random_state.randrange(len(changed)))
        else:
            changed.append(f"tcp://10.0.1.{event}")
        random_state.shuffle(changed)
        after = list(places.of(n_units, changed))
        load, share = Counter(after), math.ceil(n_units / len(changed))
        assert max(load.values()) <= share
        moved = [(old, new) for old, new in zip(before, after, strict=True) if old != new]
        if is_lost:
            assert {old for old, _ in moved} <= {gone}
        assert len(moved) <= 2 * math.ceil(n_units / len(workers))
        workers, before = changed, after
    assert places.of(n_units, []) == ()


def test_rounds_of_different_sizes_have_places_of_their_own() -> None:
    places, workers = Places(), ["a", "b"]
    four, three = list(places.of(4, workers)), list(places.of(3, workers))
    assert (list(places.of(4, workers)), list(places.of(3, workers))) == (four, three)


@pytest.mark.cluster
def test_units_of_a_loop_stay_where_they_were_when_a_worker_joins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From round to round; of 12 units on three workers those that another one takes move, and no others."""
    n_units, n_rounds, asked = 12, 5, dict[int, str]()
    with threads_as_workers(3) as (cluster, client):
        submit = client.map

        def noted(*arguments: Any, **options: Any) -> Any:
            (worker,) = options["workers"]
            asked.update(dict.fromkeys(arguments[5], worker))
            return submit(*arguments, **options)

        def unit(number: int) -> dict[str, bool]:
            if number == 2 * n_units:
                cluster.scale(4)
                while len(cluster.scheduler.workers) < 4:
                    threading.Event().wait(0.02)
            return {"finished": number >= (n_rounds - 1) * n_units}

        monkeypatch.setattr(client, "map", noted)
        run_made_up(tmp_path, n_units, unit, Pool(client), loop="rounds", max_rounds=None)
    rounds = [[asked[number * n_units + i] for i in range(n_units)] for number in range(n_rounds)]
    assert rounds[0] == rounds[1]
    assert rounds[3] == rounds[4]
    assert sum(old != new for old, new in zip(rounds[0], rounds[4], strict=True)) == n_units // 4
    assert set(Counter(rounds[4]).values()) == {n_units // 4}
