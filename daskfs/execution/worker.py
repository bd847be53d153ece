"""Worker preload: graceful shutdown.

Workers of a cluster that daskfs joins are started with it::

    dask worker --scheduler-file scheduler.json --no-nanny --preload daskfs.execution.worker

Local workers have it too, but ignore signals: the driver, which a batch system or a terminal signals too, ends them.
"""
# On SIGTERM a worker takes no more units, gives back waiting ones, finishes running ones, and leaves: no unit runs
# twice. It has ``daskfs.grace-seconds`` of Dask's configuration (``DASK_DASKFS__GRACE_SECONDS``) for that, 25 unless
# set: SLURM (``KillWait``) and Kubernetes (``terminationGracePeriodSeconds``) kill after 30. Units that still run then
# are rerun elsewhere. A second SIGTERM ends the process at once.
#
# A worker also leaves ``daskfs.lifetime-seconds`` after its start, if set (minus a random part, so that workers do not
# leave together), within LAST_SECONDS: jobs that the driver submits so end before their wall time.
#
# With a nanny, a SIGTERM to the worker's process does the same. A SIGTERM to the nanny would make it end its worker
# within seconds, and batch systems signal both: pass ``--preload-nanny daskfs.execution.worker`` as well, or start
# preemptible workers without a nanny.

from __future__ import annotations

import asyncio
import logging
import os
import random
import signal
import threading
import time
from collections.abc import Coroutine
from contextlib import suppress
from types import FrameType
from typing import Any

import dask
import psutil
from distributed import Nanny, Status

LOCAL_KEY = "daskfs.local-workers"
"""Key of Dask's configuration: whether the driver ends the workers."""
GRACE_KEY = "daskfs.grace-seconds"
GRACE_SECONDS = 25.0
LIFETIME_KEY = "daskfs.lifetime-seconds"
EARLIER = 0.1
"""Maximum random share of its lifetime by which a worker leaves early."""
LAST_SECONDS = 240.0
"""Seconds that a worker at the end of its lifetime has to leave."""
LEAVING_LOOK_SECONDS = 0.05
"""Seconds between checks of a leaving worker for the end of its units."""
NANNY_SECONDS = 2.0
"""Timeout in seconds to tell a nanny not to restart its worker."""
FORWARDED = signal.SIGUSR2
"""Signal with which a nanny makes its worker leave; a SIGTERM to the worker as well does not count as the second."""
NOT_STARTED = ("ready", "constrained", "waiting")
"""States of a worker's tasks that other workers can take over."""


def dask_setup(server: Any) -> None:
    """Install graceful shutdown in a worker, and forwarding of SIGTERM in a nanny."""
    if threading.current_thread() is not threading.main_thread():  # the process is more than a worker
        return
    if isinstance(server, Nanny):
        _forward_sigterm(server)
    elif dask.config.get(LOCAL_KEY, False):
        _stay(server)
    else:
        _Leaving(server).listen()


def _stay(worker: Any) -> None:
    """Leave the end of a local worker and its messages to the driver: ignore signals other than its nanny's."""

    def terminated(number: int, frame: FrameType | None) -> None:
        del frame
        if _has_outgrown(worker):
            _end(number)

    signal.signal(signal.SIGTERM, terminated)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})  # a fork server blocks it
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # tornado would print a traceback for a heartbeat that is due while the worker closes
    logging.getLogger("tornado.application").setLevel(logging.CRITICAL)


def _has_outgrown(worker: Any) -> bool:
    """Return whether the process exceeds the memory at which its nanny sends the signal."""
    limit, share = worker.memory_manager.memory_limit, dask.config.get("distributed.worker.memory.terminate")
    return bool(worker.nanny and limit and share and psutil.Process().memory_info().rss > share * limit)


class _Leaving:
    """Graceful shutdown of one worker."""

    def __init__(self, worker: Any) -> None:
        self.worker, self.loop = worker, asyncio.get_running_loop()
        self.is_asked = self.is_told = False
        self.tasks: set[asyncio.Task[None]] = set()

    def listen(self) -> None:
        signal.signal(signal.SIGTERM, self._on_sigterm)
        signal.signal(FORWARDED, self._on_stop_request)
        # a terminal sends Ctrl-C to the whole process group, and a nanny then ends its worker itself
        signal.signal(signal.SIGINT, signal.SIG_IGN if self.worker.nanny else self._on_sigterm)
        if (lifetime := float(dask.config.get(LIFETIME_KEY, 0.0))) > 0:
            delay = lifetime * (1 - EARLIER * random.random())
            self.loop.call_later(delay, self._ask, "its lifetime has passed", LAST_SECONDS)

    def _on_sigterm(self, number: int, frame: FrameType | None) -> None:
        if _has_outgrown(self.worker):
            _end(number)
        elif self.is_told:
            signal.signal(number, signal.SIG_DFL)  # a third one ends the process
            self._begin(self._end_now(number))
        else:
            self.is_told = True
            self._on_stop_request(number, frame)

    def _on_stop_request(self, number: int, frame: FrameType | None) -> None:
        del frame
        self._ask(signal.Signals(number).name, float(dask.config.get(GRACE_KEY, GRACE_SECONDS)))

    def _ask(self, reason: str, grace: float) -> None:
        if not self.is_asked:
            self.is_asked = True
            self._begin(self._leave(reason, grace))

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        def start() -> None:
            task = self.loop.create_task(work)
            self.tasks.add(task)  # the loop keeps only weak references

        self.loop.call_soon_threadsafe(start)

    async def _leave(self, reason: str, grace: float) -> None:
        worker = self.worker
        await worker.start()  # if it is starting, wait until it has
        if worker.status not in (Status.running, Status.paused):
            return
        worker.status = Status.closing_gracefully  # not "paused", which ends when memory is free
        with suppress(OSError, RuntimeError, TimeoutError, KeyError):  # the scheduler is gone, or no longer knows it
            async with asyncio.timeout(grace):
                await self._hand_over()
                await self._retire()
        await worker.close(executor_wait=False, reason=f"{reason}: its units have ended")

    async def _hand_over(self) -> None:
        """Give back units that have not begun, and wait until the scheduler knows that the others have ended."""
        worker = self.worker
        while keys := (await worker.scheduler.processing(workers=[worker.address]))[worker.address]:
            for key in keys:
                task = worker.state.tasks.get(key)
                if task is not None and task.state in NOT_STARTED:
                    stimulus = f"daskfs-leaving-{time.time()}"
                    request = {"op": "reschedule", "key": key, "worker": worker.address, "stimulus_id": stimulus}
                    worker.batched_send(request)
            await asyncio.sleep(LEAVING_LOOK_SECONDS)

    async def _retire(self) -> None:
        """Let other workers take over the results; if there are none, wait until the results are released."""
        worker = self.worker
        stimulus = f"daskfs-leaving-{time.time()}"
        while not await worker.scheduler.retire_workers(
            workers=[worker.address], close_workers=False, remove=True, stimulus_id=stimulus
        ):
            if not worker.data:
                return
            await asyncio.sleep(LEAVING_LOOK_SECONDS)

    async def _end_now(self, number: int) -> None:
        worker = self.worker
        with suppress(OSError, TimeoutError):
            if worker.nanny:
                async with asyncio.timeout(NANNY_SECONDS), worker.rpc(worker.nanny) as nanny:
                    await nanny.close_gracefully(reason="told twice to end")
        _end(number)


def _end(number: int) -> None:
    """End this process as an unhandled signal does."""
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)


_nannies: list[Nanny] = []
"""Nannies of this process."""


def _forward_sigterm(nanny: Nanny) -> None:
    """Let a SIGTERM to this process make the workers of its nannies leave; nannies end after them."""
    _nannies.append(nanny)
    if len(_nannies) > 1:
        return

    def on_sigterm(number: int, frame: FrameType | None) -> None:
        del frame
        running = [one for one in _nannies if one.status == Status.running and one.pid]
        signal.signal(number, before)
        if not running:
            os.kill(os.getpid(), number)
        for one in running:
            os.kill(one.pid, FORWARDED)

    before: Any = signal.signal(signal.SIGTERM, on_sigterm)
