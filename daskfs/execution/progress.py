"""Progress of a run: a live display on a terminal or in a notebook, one plain line every 30 seconds in a batch log."""

from __future__ import annotations

import html
import sys
import threading
import time
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import Any

from daskfs.execution.streams import Messages
from daskfs.redaction import strip_control_characters
from daskfs.stages.cost import MiB
from daskfs.stages.stage import Stage

LINE_SECONDS = 30.0
CALL_SECONDS = 1.0
"""Time after which a call such as `fit` shows a bar in a notebook."""
SHOW_SECONDS = 0.2
"""Minimum time between two changes of a bar in a notebook."""


class Progress:
    """Receiver of the progress of a run, of which this base class shows nothing."""

    def start_stage(self, stage: Stage, n_pending: int) -> None:
        """Begin a stage with `n_pending` units left, or a loop with its first stage."""

    def unit_done(self, stage: Stage, unit: int, facts: dict[str, Any]) -> None:
        """Count a finished unit."""

    def message(self, text: str) -> None:
        """Print one line."""

    def close(self) -> None:
        """End the display."""


class Silent(Progress):
    """Progress without output."""


class StageClock:
    """Numbers of units and bytes of a stage, or of rounds and bytes of the loop that begins with it."""

    def __init__(self, stage: Stage, n_pending: int) -> None:
        self.name, self.loop = stage.loop or stage.name, stage.loop
        self.n_units, self.done, self.bytes, self.round = n_pending, 0, 0, 0
        self.started = time.monotonic()

    @property
    def rate(self) -> float:
        """Bytes read and written per second."""
        return self.bytes / max(time.monotonic() - self.started, 1e-9)

    def describe(self) -> str:
        """Return a line with units done, throughput and time left."""
        if self.loop:
            return f"loop {self.name}: round {self.round}, {self.rate / MiB:.0f} MiB/s"
        text = f"stage {self.name}: {self.done}/{self.n_units} units, {self.rate / MiB:.0f} MiB/s"
        if 0 < self.done < self.n_units:
            seconds = (time.monotonic() - self.started) / self.done * (self.n_units - self.done)
            text += f", about {seconds:.0f} s left in this stage"
        return text


class Clocks:
    """Clocks of the stages that run: the last one that began, and unfinished ones that run beside it."""

    def __init__(self) -> None:
        self._clocks: dict[str, StageClock] = {}

    def begin(self, stage: Stage, n_pending: int) -> None:
        """Begin a stage, or the loop that begins with it."""
        clock = StageClock(stage, n_pending)
        unfinished = {name: one for name, one in self._clocks.items() if not one.loop and one.done < one.n_units}
        self._clocks = {**unfinished, clock.name: clock}

    def count(self, stage: Stage, unit: int, facts: dict[str, Any]) -> StageClock:
        """Count one unit of a stage that has begun, and return its clock."""
        clock = self._clocks[stage.loop or stage.name]
        clock.done += 1
        clock.round = unit // stage.n_units + 1
        clock.bytes += int(facts.get("bytes_read", 0)) + int(facts.get("bytes_written", 0))
        return clock

    @property
    def shown(self) -> StageClock | None:
        """Clock of the last stage that began, or of one beside it that is still unfinished; None before the first."""
        clocks = list(reversed(self._clocks.values()))
        return next((one for one in clocks if one.loop or one.done < one.n_units), next(iter(clocks), None))


class OfSeveral(Progress):
    """Progress of one of several runs that share a display, which stays open at its end.

    The name of the run is such as "batch a"; the lock is that of the display if runs share it from several threads.
    """

    def __init__(self, progress: Progress, name: str, lock: AbstractContextManager[Any] | None = None) -> None:
        self._progress, self._name, self._lock = progress, name, lock or nullcontext()

    def start_stage(self, stage: Stage, n_pending: int) -> None:
        """Show that a stage of the run begins."""
        with self._lock:
            self._progress.start_stage(self._with_run_name(stage), n_pending)

    def unit_done(self, stage: Stage, unit: int, facts: dict[str, Any]) -> None:
        """Count a unit of the run."""
        with self._lock:
            self._progress.unit_done(self._with_run_name(stage), unit, facts)

    def message(self, text: str) -> None:
        """Show a line about the run."""
        with self._lock:
            self._progress.message(f"{self._name}: {text}")

    def _with_run_name(self, stage: Stage) -> Stage:
        of_run = f" of {self._name}"
        return replace(stage, name=stage.name + of_run, loop=stage.loop and stage.loop + of_run)


class PlainProgress(Progress):
    """One line when a stage begins, and one every `seconds`, even while a long unit runs; if `verbose`, one a unit."""

    def __init__(self, *, verbose: bool = False, seconds: float = LINE_SECONDS) -> None:
        self._verbose = verbose
        self._clocks = Clocks()
        self._closed = threading.Event()
        self._seconds = seconds
        self._thread = threading.Thread(target=self._repeat, name="daskfs-progress", daemon=True)
        self._thread.start()

    def _repeat(self) -> None:
        while not self._closed.wait(self._seconds):
            if (clock := self._clocks.shown) is not None:
                self.message(clock.describe())

    def start_stage(self, stage: Stage, n_pending: int) -> None:
        """Print that a stage begins."""
        self._clocks.begin(stage, n_pending)
        units = f"stage {stage.name}: {n_pending} of {stage.n_units} units to run"
        self.message(f"loop {stage.loop} begins" if stage.loop else units)

    def unit_done(self, stage: Stage, unit: int, facts: dict[str, Any]) -> None:
        """Count a unit."""
        clock = self._clocks.count(stage, unit, facts)
        if self._verbose:
            seconds, peak = facts.get("seconds", 0.0), int(facts.get("peak_bytes", 0)) / MiB
            place = f", round {clock.round}" if stage.loop else ""
            self.message(f"unit {unit} of stage {stage.name} done in {seconds:.2f} s, peak {peak:.0f} MiB{place}")

    def message(self, text: str) -> None:
        """Write one line to stderr."""
        Messages(sys.stderr).write(f"{time.strftime('%H:%M:%S')} {strip_control_characters(text)}\n")

    def close(self) -> None:
        """Stop the lines."""
        self._closed.set()
        self._thread.join()


class LiveProgress(Progress):
    """A bar for each stage, on a terminal."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
        from rich.progress import Progress as Bars

        self._bars = Bars(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[rate]}"),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            console=Console(stderr=True),
        )
        self._clocks = Clocks()
        self._tasks: dict[str, Any] = {}
        self._loop: StageClock | None = None
        self._bars.start()

    def start_stage(self, stage: Stage, n_pending: int) -> None:
        """Add a bar."""
        self._end_loop()
        self._clocks.begin(stage, n_pending)
        done = stage.n_units - n_pending
        total = None if stage.loop else stage.n_units  # the number of rounds is unknown
        name = stage.loop or stage.name
        self._tasks[name] = self._bars.add_task(name, total=total, completed=done, rate="")

    def unit_done(self, stage: Stage, unit: int, facts: dict[str, Any]) -> None:
        """Advance the bar of the stage."""
        clock = self._clocks.count(stage, unit, facts)
        self._loop = clock if clock.loop else self._loop
        reached = f"round {clock.round}, " if clock.loop else ""
        self._bars.update(self._tasks[clock.name], advance=1, rate=f"{reached}{clock.rate / MiB:.0f} MiB/s")

    def _end_loop(self) -> None:
        """Fill the bar of a loop: its number of units is known only at its end."""
        if self._loop is not None:
            self._bars.update(self._tasks[self._loop.name], total=self._loop.done)
            self._loop = None

    def message(self, text: str) -> None:
        """Write one line above the bars."""
        self._bars.console.print(strip_control_characters(text), markup=False, highlight=False)

    def close(self) -> None:
        """Leave the bars as they are."""
        self._end_loop()
        self._bars.stop()


class NotebookProgress(Progress):
    """A bar for the stage that runs, in the output of a cell; a line on the whole run at its end.

    Work that ends within the seconds `after` shows nothing.
    """

    def __init__(self, after: float = 0.0) -> None:
        from IPython.display import HTML, display

        self._html, self._display, self._after = HTML, display, after
        self._handle: Any = None
        self._clocks, self._started, self._shown = Clocks(), time.monotonic(), 0.0
        self._n_stages, self._lines = 0, list[str]()

    def start_stage(self, stage: Stage, n_pending: int) -> None:
        """Show the bar of another stage."""
        self._n_stages += 1
        self._clocks.begin(stage, n_pending)
        self._show()

    def unit_done(self, stage: Stage, unit: int, facts: dict[str, Any]) -> None:
        """Advance the bar."""
        self._clocks.count(stage, unit, facts)
        if time.monotonic() - self._shown > SHOW_SECONDS:
            self._show()

    def message(self, text: str) -> None:
        """Keep one line below the bar."""
        self._lines.append(text)
        self._show()

    def _show(self) -> None:
        clock, self._shown = self._clocks.shown, time.monotonic()
        if clock is None:
            self._update("")
            return
        total = "" if clock.loop else f" value='{clock.done}' max='{clock.n_units}'"
        self._update(f"<progress{total}></progress> {html.escape(clock.describe())}")

    def _update(self, line: str) -> None:
        if self._handle is None:
            if time.monotonic() - self._started < self._after:
                return
            self._handle = self._display(self._html(""), display_id=True)
        lines = [line, *(html.escape(strip_control_characters(text)) for text in self._lines)]
        self._handle.update(self._html("<br>".join(text for text in lines if text)))

    def close(self) -> None:
        """Replace the bar by the number of stages and the time."""
        stages = "stage" if self._n_stages == 1 else "stages"
        self._update(f"{self._n_stages} {stages} in {time.monotonic() - self._started:.1f} s")


def in_notebook() -> bool:
    """Return whether a Jupyter kernel runs this process."""
    ipython = sys.modules.get("IPython")
    return ipython is not None and hasattr(ipython.get_ipython(), "kernel")


def progress_of_call() -> Progress:
    """Return the display of a call such as `fit`: a bar in a notebook if it takes long, else none."""
    return NotebookProgress(after=CALL_SECONDS) if in_notebook() else Silent()


def default_progress(*, verbose: bool = False) -> Progress:
    """Return the display of a notebook or a terminal, else plain lines; `verbose` gives plain lines for each unit."""
    if in_notebook():
        return NotebookProgress()
    return LiveProgress() if Messages(sys.stderr).isatty() and not verbose else PlainProgress(verbose=verbose)
