"""The workers that units run on."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from daskfs.errors import ClusterError
from daskfs.execution.cluster import ClusterSettings
from daskfs.execution.placement import Places

if TYPE_CHECKING:
    from distributed import Client, Future

ANSWER_SECONDS, ANSWER_SHARE = 10.0, 0.25
"""Response timeout of a worker in seconds, or as a share of the pool's `patience` if that is longer."""
SEEN_SHARE = 0.25
"""Share of this timeout after which the pool asks again when the scheduler has heard from each worker."""


@runtime_checkable
class Completing(Protocol):
    """A cluster whose lost workers the driver replaces."""

    def complete(self, n_workers: int) -> None:
        """Begin to replace lost workers, up to `n_workers`."""


def _tell_nobody(told: Any) -> None:
    del told


@dataclass(frozen=True)
class Pool:
    """Workers of a client's cluster, or threads of this process, on which units run.

    Parameters
    ----------
    client
        Client of the cluster.
    threads
        Concurrent units without a client.
    patience
        Seconds that a scheduler may take to answer, and a cluster may be without workers.
    n_own
        Number of workers of a cluster started for the run; 0 for one that others manage.
    tell
        Called with messages about units that fail transiently or are slow.
    note_slow
        Called while a unit takes much longer than others, with its stage, number, worker and start.
    places
        Assignment of the units of loops to workers.
    """

    client: Client | None = None
    threads: int = 1
    patience: float = 120.0
    n_own: int = 0
    tell: Callable[[str], None] = _tell_nobody
    note_slow: Callable[[Mapping[str, Any]], None] = _tell_nobody
    places: Places = field(default_factory=Places, compare=False)
    _left: dict[str, Future[Any]] = field(default_factory=dict, compare=False)
    _seen: list[tuple[float, set[str]]] = field(default_factory=list, compare=False)

    @property
    def answer_seconds(self) -> float:
        """Seconds that a worker may take to answer before the others continue without it."""
        return min(self.patience, max(ANSWER_SECONDS, ANSWER_SHARE * self.patience))

    def workers(self) -> dict[str, int]:
        """Return the threads of each responsive worker by address; raises as :meth:`heard` does.

        Empty if units run in this process.
        """
        return self.heard()[0]

    def heard(self) -> tuple[dict[str, int], set[str]]:
        """Return the threads of each responsive worker by address, and the addresses of silent workers.

        Processes of silent workers may be frozen, or their machines unreachable.

        Raises
        ------
        ClusterError
            If the scheduler is lost or does not answer.
        """
        if self.client is None:
            return {}, set()
        threads = self._answer("ncores")
        if not self._seen or time.monotonic() - self._seen[-1][0] > SEEN_SHARE * self.answer_seconds:
            # of 500 workers the answer is 1 MB
            found = self._answer("identity")["workers"]
            last = max((worker["last_seen"] for worker in found.values()), default=0.0)
            late = {w for w, worker in found.items() if last - worker["last_seen"] > self.answer_seconds / 2}
            self._seen[:] = [(time.monotonic(), late)]
        silent = self._seen[-1][1] & threads.keys()
        return {w: int(n) for w, n in threads.items() if w not in silent}, silent

    def processing(self) -> dict[str, str]:
        """Return the worker of each key that is assigned and not finished; raises as :meth:`heard` does."""
        found = {} if self.client is None else self._answer("processing")
        return {str(key): worker for worker, keys in found.items() for key in keys}

    def leave(self, future: Future[Any]) -> None:
        """Keep the future of a duplicate unit until it ends, so that the scheduler knows that its worker is busy."""
        self._left[str(future.key)] = future
        future.add_done_callback(lambda ended: self._left.pop(str(ended.key), None))

    def _answer(self, question: str) -> Any:
        assert self.client is not None
        try:
            return self.client.sync(self._asked, question, callback_timeout=self.patience)
        except TimeoutError as error:
            msg = (
                f"the scheduler did not answer within {self.patience:g} s (cluster.wait_seconds): see whether its "
                "machine is down or overloaded; the same command goes on from what is recorded."
            )
            raise ClusterError(msg) from error
        except (OSError, RuntimeError) as error:
            raise ClusterError(lost_scheduler(error)) from error

    def complete(self) -> None:
        """Begin to replace the lost workers of a cluster started for the run."""
        cluster = None if self.client is None else self.client.cluster
        if self.n_own and isinstance(cluster, Completing):
            cluster.complete(self.n_own)

    async def _asked(self, question: str) -> Any:
        client = self.client
        # a client without scheduler tries to reconnect, but its units are lost
        if client is None or client.scheduler is None or client.status != "running":
            msg = "no connection"
            raise OSError(msg)
        return await getattr(client.scheduler, question)()

    @property
    def n_threads(self) -> int:
        """Maximum number of concurrent units."""
        return self.threads if self.client is None else max(1, sum(self.workers().values()))


def lost_scheduler(error: BaseException) -> str:
    """Return the message for a lost scheduler."""
    return (
        f"the scheduler went away, or the connection to it was lost ({type(error).__name__}: {error}): start the "
        "cluster again; the same command goes on from what is recorded."
    )


def pool_of(settings: ClusterSettings, client: Client | None, **told: Any) -> Pool:
    """Return the pool of a job's settings; `told` are ``tell`` and ``note_slow`` of :class:`Pool`."""
    n_own = 0 if settings.is_joined else settings.n_workers
    return Pool(client, settings.threads, settings.wait_seconds, n_own, **told)
