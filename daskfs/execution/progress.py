"""Progress of a run: a live display on a terminal or in a notebook, one plain line every 30 seconds in a batch log."""

from __future__ import annotations

import html
import sys
import threading
import time
from typing import Any, Protocol

from daskfs.redaction import strip_control_characters
from daskfs.stages.cost import MiB
from daskfs.stages.stage import Stage

LINE_SECONDS = 30.0
CALL_SECONDS = 1.0
"""Time after which a call such as `fit` shows a bar in a notebook."""
SHOW_SECONDS = 0.2
"""Minimum time between two changes of a bar in a notebook."""


class Progress(Protocol):
    """Receiver of the progress of a run."""

    def start_stage(self, stage: Stage, n_pending: int) -> None:
        """Begin a stage with `n_pending` units left, or a loop with its first stage."""
        ...

    def unit_done(self, stage: Stage, unit: int, facts: dict[str, Any]) -> None:
        """Count a finished unit."""
        ...

    def message(self, text: str) -> None:
        """Print one line."""
        ...

    def close(self) -> None:
        """End the display."""
        ...


class Silent:
    """Progress without output."""

    def start_stage(self, stage: Stage, n_pending: int) -> None:
        """Ignore."""

    def unit_done(self, stage: Stage, unit: int, facts: dict[str, Any]) -> None:
        """Ignore."""

    def message(self, text: str) -> None:
        """Ignore."""

    def close(self) -> None:
        """Ignore."""


class StageClock:
    """Counts the units and bytes of the stage that runs, or the rounds and bytes of the loop."""

    def __init__(self) -> None:
        self.restart("", 0)

    def restart(self, name: str, n_units: int) -> None:
        """Reset the counts for another stage."""
        self.name, self.n_units, self.done, self.bytes = name, n_units, 0, 0
        self.loop, self.round = "", 0
        self.started = time.monotonic()

    def begin(self, stage: Stage, n_pending: int) -> None:
        """Reset the counts for a stage, or for the loop that begins with it."""
        self.restart(stage.loop or stage.name, n_pending)
        self.loop = stage.loop

    def count(self, stage: Stage, unit: int, facts: dict[str, Any]) -> None:
        """Count one unit."""
        self.done += 1
        self.round = unit // stage.n_units + 1
        self.bytes += int(facts.get("bytes_read", 0)) + int(facts.get("bytes_written", 0))

    def describe(self) -> str:
        """Return a line with units done, throughput and time left."""
        seconds = max(time.monotonic() - self.started, 1e-9)
        if self.loop:
            return f"loop {self.name}: round {self.round}, {self.bytes / seconds / MiB:.0f} MiB/s"
        text = f"stage {self.name}: {self.done}/{self.n_units} units, {self.bytes / seconds / MiB:.0f} MiB/s"
        if 0 < self.done < self.n_units:
            text += f", about {seconds / self.done * (self.n_units - self.done):.0f} s left in this stage"
        return text


class OfSeveral:
    """Progress shared by several runs, which stays open at the end of each."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress

    def start_stage(self, stage: Stage, n_pending: int) -> None:
        """Forward to the shared progress."""
        self._progress.start_stage(stage, n_pending)

    def unit_done(self, stage: Stage, unit: int, facts: dict[str, Any]) -> None:
        """Forward to the shared progress."""
        self._progress.unit_done(stage, unit, facts)

    def message(self, text: str) -> None:
        """Forward to the shared progress."""
        self._progress.message(text)

    def close(self) -> None:
        """Leave it open for the next run."""


class PlainProgress:
    """One line when a stage begins, and one every 30 seconds, even while a long unit runs.

    Parameters
    ----------
    verbose
        Whether to print one line for every unit as well.
    seconds
        Time between lines.
    """

    def __init__(self, *, verbose: bool = False, seconds: float = LINE_SECONDS) -> None:
        self._verbose = verbose
        self._clock = StageClock()
        self._closed = threading.Event()
        self._seconds = seconds
        self._thread = threading.Thread(target=self._repeat, name="daskfs-progress", daemon=True)
        self._thread.start()

    def _repeat(self) -> None:
        while not self._closed.wait(self._seconds):
            if self._clock.name:
                self.message(self._clock.describe())

    def start_stage(self, stage: Stage, n_pending: int) -> None:
        """Print that a stage begins."""
        self._clock.begin(stage, n_pending)
        what = (
            f"loop {stage.loop} begins"
            if stage.loop
            else f"stage {stage.name}: {n_pending} of {stage.n_units} units to run"
        )
        self.message(what)

    def unit_done(self, stage: Stage, unit: int, facts: dict[str, Any]) -> None:
        """Count a unit."""
        self._clock.count(stage, unit, facts)
        if self._verbose:
            seconds, peak = facts.get("seconds", 0.0), int(facts.get("peak_bytes", 0)) / MiB
            place = f", round {self._clock.round}" if stage.loop else ""
            self.message(f"unit {unit} of stage {stage.name} done in {seconds:.2f} s, peak {peak:.0f} MiB{place}")

    def message(self, text: str) -> None:
        """Write one line to stderr."""
        sys.stderr.write(f"{time.strftime('%H:%M:%S')} {strip_control_characters(text)}\n")
        sys.stderr.flush()

    def close(self) -> None:
        """Stop the lines."""
        self._closed.set()
        self._thread.join()


class LiveProgress:
    """A bar for each stage, on a terminal."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
        from rich.progress import Progress as Bars

        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[rate]}"),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
        )
        self._bars = Bars(*columns, console=Console(stderr=True))
        self._clock = StageClock()
        self._task: Any = None
        self._bars.start()

    def start_stage(self, stage: Stage, n_pending: int) -> None:
        """Add a bar."""
        self._end_loop()
        self._clock.begin(stage, n_pending)
        done = stage.n_units - n_pending
        total = None if stage.loop else stage.n_units  # the number of rounds is unknown
        self._task = self._bars.add_task(stage.loop or stage.name, total=total, completed=done, rate="")

    def unit_done(self, stage: Stage, unit: int, facts: dict[str, Any]) -> None:
        """Advance the bar."""
        self._clock.count(stage, unit, facts)
        seconds = max(time.monotonic() - self._clock.started, 1e-9)
        reached = f"round {self._clock.round}, " if stage.loop else ""
        self._bars.update(self._task, advance=1, rate=f"{reached}{self._clock.bytes / seconds / MiB:.0f} MiB/s")

    def _end_loop(self) -> None:
        """Fill the bar of a loop: its number of units is known only at its end."""
        if self._clock.loop:
            self._bars.update(self._task, total=self._clock.done)

    def message(self, text: str) -> None:
        """Write one line above the bars."""
        self._bars.console.print(strip_control_characters(text), markup=False, highlight=False)

    def close(self) -> None:
        """Leave the bars as they are."""
        self._end_loop()
        self._bars.stop()


class NotebookProgress:
    """A bar for the stage that runs, in the output of a cell; a line on the whole run at its end.

    Parameters
    ----------
    after
        Seconds before anything is shown; work that ends before shows nothing.
    """

    def __init__(self, after: float = 0.0) -> None:
        from IPython.display import HTML, display

        self._html, self._display, self._after = HTML, display, after
        self._handle: Any = None
        self._clock, self._started, self._shown = StageClock(), time.monotonic(), 0.0
        self._n_stages, self._lines = 0, list[str]()

    def start_stage(self, stage: Stage, n_pending: int) -> None:
        """Show the bar of another stage."""
        self._n_stages += 1
        self._clock.begin(stage, n_pending)
        self._show()

    def unit_done(self, stage: Stage, unit: int, facts: dict[str, Any]) -> None:
        """Advance the bar."""
        self._clock.count(stage, unit, facts)
        if time.monotonic() - self._shown > SHOW_SECONDS:
            self._show()

    def message(self, text: str) -> None:
        """Keep one line below the bar."""
        self._lines.append(text)
        self._show()

    def _show(self) -> None:
        clock, self._shown = self._clock, time.monotonic()
        total = "" if clock.loop else f" value='{clock.done}' max='{clock.n_units}'"
        self._update(f"<progress{total}></progress> {html.escape(clock.describe())}" if clock.name else "")

    def _update(self, line: str) -> None:
        if self._handle is None:
            if time.monotonic() - self._started < self._after:
                return
            self._handle = self._display(self._html(""), display_id=True)
        lines = [line, *(html.escape(strip_control_characters(text)) for text in self._lines)]
        self._handle.update(self._html("<br>".join(text for text in lines if text)))

    def close(self) -> None:
        """Replace the bar by the number of stages and the time."""
        self._update(f"{self._n_stages} stages in {time.monotonic() - self._started:.1f} s")


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
    return LiveProgress() if sys.stderr.isatty() and not verbose else PlainProgress(verbose=verbose)
