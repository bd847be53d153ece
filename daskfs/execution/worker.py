"""What worker processes set up: how they leave when they are told to end, and the warm-up of pynndescent.

This module is the preload of local workers, which leave it to the driver to end them: a batch system or a terminal
signals it as well. Workers of a cluster that daskfs joins, which a batch system or a spot market may take away, are
started with it too::

    dask worker --scheduler-file scheduler.json --no-nanny --preload daskfs.execution.worker

On SIGTERM such a worker takes no units any more, gives back those that wait, ends those that run, and leaves: no unit
runs twice. It does so within ``daskfs.grace-seconds`` of Dask's configuration (``DASK_DASKFS__GRACE_SECONDS`` in the
environment), 25 seconds unless set: SLURM (``KillWait``) and Kubernetes (``terminationGracePeriodSeconds``) kill after
30. What still runs then runs again elsewhere. A second SIGTERM ends the process at once.

The same happens ``daskfs.lifetime-seconds`` after it began, where that is set (some before, so that not all leave at
once), and then it has :data:`LAST_SECONDS`: jobs that the driver submits end so before their wall time.

With a nanny, a SIGTERM to the worker's process does the same. One to the nanny's process would make the nanny end its
worker within seconds, and batch systems signal both; so name the module to it too, with ``--preload
daskfs.execution.worker --preload-nanny daskfs.execution.worker``, or start preemptible workers without one.
"""

from __future__ import annotations

import asyncio
import logging
import os
import random
import signal
import threading
import time
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from types import FrameType
from typing import Any

import dask
import psutil
from distributed import Client, Nanny, Status, WorkerPlugin

LOCAL_KEY = "daskfs.local-workers"
"""Of Dask's configuration: whether the driver ends the workers."""
GRACE_KEY = "daskfs.grace-seconds"
GRACE_SECONDS = 25.0
LIFETIME_KEY = "daskfs.lifetime-seconds"
EARLIER = 0.1
"""Share of its lifetime that a worker may leave before the end of it, by chance."""
LAST_SECONDS = 240.0
"""How long a worker at the end of its lifetime may take to leave."""
LOOK_SECONDS = 0.05
"""How often a worker that leaves looks whether its units have ended."""
ANSWER_SECONDS = 10.0
"""How long a scheduler may take to forget what workers were to set up."""
IMPORT_SECONDS = 60.0
"""How long workers may take to import what they are to set up."""
NANNY_SECONDS = 2.0
"""How long a nanny may take to hear that its worker is not to be started again."""
FORWARDED = signal.SIGUSR2
"""What a nanny tells its worker with to leave; a SIGTERM that the worker gets as well is not a second one."""
NOT_STARTED = ("ready", "constrained", "waiting")
"""States of a worker's tasks that others can take over."""


def dask_setup(server: Any) -> None:
    """Make a worker leave in order when it is told to end, and a nanny leave that to its worker."""
    if threading.current_thread() is not threading.main_thread():  # of a process that is more than a worker
        return
    if isinstance(server, Nanny):
        _Forwarding.of(server)
    elif dask.config.get(LOCAL_KEY, False):
        _stay(server)
    else:
        _Leaving(server).listen()


def _stay(worker: Any) -> None:
    """Leave the end of a local worker, and what is told of it, to the driver."""

    def terminated(number: int, frame: FrameType | None) -> None:
        del frame
        if _has_outgrown(worker):
            _end(number)

    signal.signal(signal.SIGTERM, terminated)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})  # a fork server blocks it
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # it would print a traceback for a heartbeat that is due while the worker closes
    logging.getLogger("tornado.application").setLevel(logging.CRITICAL)


def _has_outgrown(worker: Any) -> bool:
    """Return whether the nanny sends the signal, as it does to a process that takes too much memory."""
    limit, share = worker.memory_manager.memory_limit, dask.config.get("distributed.worker.memory.terminate")
    return bool(worker.nanny and limit and share and psutil.Process().memory_info().rss > share * limit)


class _Leaving:
    """How one worker leaves."""

    def __init__(self, worker: Any) -> None:
        self.worker, self.loop = worker, asyncio.get_running_loop()
        self.is_asked = self.is_told = False
        self.tasks: set[asyncio.Task[None]] = set()

    def listen(self) -> None:
        signal.signal(signal.SIGTERM, self._terminated)
        signal.signal(FORWARDED, self._asked)
        # a terminal sends Ctrl-C to the whole process group, and who has started a worker with a nanny ends it himself
        signal.signal(signal.SIGINT, signal.SIG_IGN if self.worker.nanny else self._terminated)
        if (lifetime := float(dask.config.get(LIFETIME_KEY, 0.0))) > 0:
            self.loop.call_later(lifetime * (1 - EARLIER * random.random()), self._expired)

    def _expired(self) -> None:
        if not self.is_asked:
            self.is_asked = True
            self._begin(self._leave("its lifetime has passed", LAST_SECONDS))

    def _terminated(self, number: int, frame: FrameType | None) -> None:
        if _has_outgrown(self.worker):
            _end(number)
        elif self.is_told:
            signal.signal(number, signal.SIG_DFL)  # a third one waits for nothing
            self._begin(self._end_now(number))
        else:
            self.is_told = True
            self._asked(number, frame)

    def _asked(self, number: int, frame: FrameType | None) -> None:
        del frame
        if not self.is_asked:
            self.is_asked = True
            grace = float(dask.config.get(GRACE_KEY, GRACE_SECONDS))
            self._begin(self._leave(signal.Signals(number).name, grace))

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        def start() -> None:
            task = self.loop.create_task(work)
            self.tasks.add(task)  # the loop itself keeps none

        self.loop.call_soon_threadsafe(start)

    async def _leave(self, reason: str, grace: float) -> None:
        worker = self.worker
        if worker.status not in (Status.running, Status.paused):
            return
        worker.status = Status.closing_gracefully  # not "paused", which ends when there is room in memory
        try:
            async with asyncio.timeout(grace):
                await self._hand_over()
                await self._retire()
        except (OSError, RuntimeError, TimeoutError, KeyError):  # the scheduler is gone, or knows this worker no more
            pass
        await worker.close(executor_wait=False, reason=f"{reason}: its units have ended")

    async def _hand_over(self) -> None:
        """Give back what has not begun, and wait until the scheduler has heard of the end of what has."""
        worker = self.worker
        while keys := (await worker.scheduler.processing(workers=[worker.address]))[worker.address]:
            for key in keys:
                task = worker.state.tasks.get(key)
                if task is not None and task.state in NOT_STARTED:
                    stimulus = f"daskfs-leaving-{time.time()}"
                    worker.batched_send(
                        {"op": "reschedule", "key": key, "worker": worker.address, "stimulus_id": stimulus}
                    )
            await asyncio.sleep(LOOK_SECONDS)

    async def _retire(self) -> None:
        """Let others take over the results; without others, wait until nobody wants them."""
        worker = self.worker
        stimulus = f"daskfs-leaving-{time.time()}"
        while not await worker.scheduler.retire_workers(
            workers=[worker.address], close_workers=False, remove=True, stimulus_id=stimulus
        ):
            if not worker.data:
                return
            await asyncio.sleep(LOOK_SECONDS)

    async def _end_now(self, number: int) -> None:
        worker = self.worker
        try:
            if worker.nanny:
                async with asyncio.timeout(NANNY_SECONDS), worker.rpc(worker.nanny) as nanny:
                    await nanny.close_gracefully(reason="told twice to end")
        except (OSError, TimeoutError):
            pass
        _end(number)


def _end(number: int) -> None:
    """End this process as a signal does that nobody handles."""
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)


class _Forwarding:
    """What the nannies of one process do with a SIGTERM: they tell their workers, and end when these have."""

    _installed: _Forwarding | None = None

    def __init__(self) -> None:
        self.nannies: list[Nanny] = []
        self.before: Any = signal.signal(signal.SIGTERM, self._terminated)

    @classmethod
    def of(cls, nanny: Nanny) -> None:
        if cls._installed is None:
            cls._installed = cls()
        cls._installed.nannies.append(nanny)

    def _terminated(self, number: int, frame: FrameType | None) -> None:
        del frame
        running = [nanny for nanny in self.nannies if nanny.status == Status.running and nanny.pid]
        signal.signal(number, self.before)
        if not running:
            os.kill(os.getpid(), number)
        for nanny in running:
            os.kill(nanny.pid, FORWARDED)


class WarmUp(WorkerPlugin):
    """Calls a function in a thread of its own when a worker starts."""

    name = "daskfs-warm-up"

    def __init__(self, function: str, argument: object, package: str) -> None:
        self.function, self.argument, self.package = function, argument, package

    async def setup(self, worker: Any) -> None:
        """Import the package, and start the call.

        No unit runs before that. One that imported scikit-learn while another thread does, as part of pynndescent, can
        find it half made.
        """
        del worker
        await asyncio.to_thread(import_module, self.package)
        threading.Thread(target=self._run, name=self.name, daemon=True).start()

    def _run(self) -> None:
        module, _, function = self.function.partition(":")
        getattr(import_module(module), function)(self.argument)


@contextmanager
def warm_workers(client: Client, function: str, argument: object, package: str) -> Iterator[None]:
    """Call a function, ``module:name``, in every worker and in those that come later, beside their work; the package
    that it needs is imported before they have any.

    A scheduler that others share is left as it was.
    """
    plugin = WarmUp(function, argument, package)
    with suppress(TimeoutError):  # as client.register_plugin does, which would wait for a worker that is frozen
        client.sync(
            client._register_worker_plugin,
            plugin=plugin,
            name=plugin.name,
            idempotent=False,
            callback_timeout=IMPORT_SECONDS,
        )

    async def take_back() -> None:
        if client.scheduler is not None:
            await client.scheduler.unregister_worker_plugin(name=WarmUp.name)

    try:
        yield
    finally:
        # as client.unregister_worker_plugin does, which would wait for a scheduler that does not answer
        with suppress(OSError, RuntimeError):
            client.sync(take_back, callback_timeout=ANSWER_SECONDS)
