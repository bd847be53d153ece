"""A run that this process executes: its store, lock, journal and manifest."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from daskfs.errors import DaskfsError, RunStoppedError, first_few
from daskfs.execution.signals import stop_message
from daskfs.redaction import redact_credentials
from daskfs.runs.journal import Journal
from daskfs.runs.manifest import Lock
from daskfs.stages.failures import described, name_failure
from daskfs.stages.stage import Stage
from daskfs.store import layout
from daskfs.store.log import Log
from daskfs.store.second_look import take_passed
from daskfs.store.store import Store

MAX_DAMAGES = 50
"""Maximum number of damage warnings in the manifest of a run."""
READ_AGAIN = "{}: read wrong once, and right the second time; look at the disk, the network or the store"


class ActiveRun:
    """A run in progress: its store, the lock on it, and the journal, which receives what happens.

    `manifest` is the content of ``run.json``, written by :meth:`save`; `damages` are warnings about damage that this
    call found; `recomputed` is the number of units that it ran, by stage; and `started` is when it began, in seconds
    of :func:`time.monotonic`.
    """

    def __init__(self, store: Store, lock: Lock, journal: Journal, manifest: dict[str, Any]) -> None:
        self.store, self.lock, self.journal, self.manifest = store, lock, journal, manifest
        self.damages: list[str] = []
        self.recomputed: dict[str, int] = {}
        self._read_again: list[str] = []
        self.started = time.monotonic()
        self._log = Log(store.path(layout.EVENTS))
        if lock.warning:
            self.warn(lock.warning)

    def save(self) -> None:
        """Write the manifest, after the events of the run so far."""
        self._warn_of_reads(take_passed())
        self._log.flush()
        self.store.write_json(layout.RUN_JSON, self.manifest)

    def open_log(self) -> None:
        """Keep events in the run from now on."""
        self.journal.open(self._log, self.lock.check)

    def tell(self, message: str, damage: str) -> None:
        """Show a message about damage, and keep the warning `damage` for the manifest."""
        self.journal.message(message, "damage")
        self.damages.append(damage)
        self._keep(damage)

    def warn(self, warning: str) -> None:
        """Show a warning, without its final full stop, and keep it for the manifest."""
        self.journal.message(f"{warning}.", "warning")
        self._keep(warning)

    def unit_done(self, stage: Stage, unit: int, facts: dict[str, Any]) -> None:
        """Count a finished unit; warn from the second kind of processor on."""
        self._warn_of_reads(facts.get("read_again", ()))
        kind, processors = str(facts.get("computed_by", "")), self.manifest.setdefault("computed_by", [])
        if kind not in processors:
            processors.append(kind)
            if len(processors) > 1:
                self._keep(
                    f"units of this run were computed by different processors ({'; '.join(processors)}): results may "
                    "differ in their last bits, and neighbors and ranks with them, from those of one kind "
                    "(cluster.cpu_target)"
                )
            self.store.write_json(layout.RUN_JSON, self.manifest)
        self.store.epoch.check()
        self.journal.unit_done(stage, unit, facts)

    @contextmanager
    def recording_failure(self) -> Iterator[None]:
        """Record in the manifest the status and error of a run that did not finish."""
        try:
            yield
        except Exception as error:
            status = "stopped" if stop_message() or isinstance(error, RunStoppedError) else "failed"
            if status == "failed" and self.lock.is_there:
                name_failure(self.store, error)
            text = redact_credentials(stop_message() or described(error))
            self.manifest.update(status=status, error=text)
            self.journal.message("", status, error=text, file=getattr(error, "failure", ""))
            if self.lock.is_there:
                with suppress(OSError, DaskfsError):  # what ended the run may prevent this, too
                    self.save()
            raise
        finally:
            self._log.close()

    def _warn_of_reads(self, paths: Iterable[str]) -> None:
        """Warn of files that read wrong once: show the first, keep how many there are."""
        for path in dict.fromkeys(path for path in paths if path not in self._read_again):
            earlier = READ_AGAIN.format(first_few(self._read_again, 1))
            self._read_again.append(path)
            warning = READ_AGAIN.format(first_few(self._read_again, 1))
            if len(self._read_again) == 1:
                self.journal.message(f"{warning}.", "warning")
            self._keep(warning, earlier)

    def _keep(self, warning: str, earlier: str = "") -> None:
        damages = dict.fromkeys([*self.manifest.get("damages", ()), warning])
        damages.pop(earlier, None)
        self.manifest["damages"] = list(damages)[-MAX_DAMAGES:]
