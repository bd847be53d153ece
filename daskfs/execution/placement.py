"""Which worker runs which unit of a loop, so that it finds there what it has held since the round before."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Collection, Sequence


class Places:
    """The worker of each unit of a round, kept from round to round.

    Units stay with their workers while these are there, up to an even share; those of workers that are gone, and what
    is beyond a share, go where the fewest are. So a lost worker moves no units but its own, which hashing of workers
    and units cannot do when shares are to be even: of 5,000 units on 500 workers it would move 12 %.
    """

    def __init__(self) -> None:
        self._of: dict[int, list[str]] = {}

    def of(self, n_units: int, workers: Collection[str]) -> Sequence[str]:
        """Return the worker of each unit of a round, none where there are no workers."""
        if not workers:
            return ()
        share, found = -(-n_units // len(workers)), self._of.get(n_units, [""] * n_units)
        load = Counter(dict.fromkeys(workers, 0))
        for unit, worker in enumerate(found):
            if worker in load and load[worker] < share:
                load[worker] += 1
            else:
                found[unit] = ""
        least = [(n, worker) for worker, n in load.items()]
        heapq.heapify(least)
        for unit, worker in enumerate(found):
            if not worker:
                n, found[unit] = least[0]
                heapq.heapreplace(least, (n + 1, found[unit]))
        self._of[n_units] = found
        return found
