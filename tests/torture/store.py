"""Object stores that answer badly: one driver, or two at once, behind a faulty proxy."""

from __future__ import annotations

import os
import random
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import dask
import yaml

from daskfs.storage import ObjectPath, clients
from daskfs.store import second_look
from daskfs.store.lease import LEASE_KEY
from tests.cli.command import daskfs
from tests.cli.test_moved_runs import KINDS, TABLES
from tests.storage.proxy import FAULTS as ANY_METHOD
from tests.storage.proxy import FAULTS_OF, Proxy, proxy
from tests.storage.server import environment, object_server
from tests.torture.tracing import daskfs_command
from tests.torture.trials import FAULTS, Run, StuckError, Trial, limited

RATES = (0.02, 0.1, 0.3)
LEASE_SECONDS = 3
LEASE = {"DASK_DASKFS__LEASE_SECONDS": str(LEASE_SECONDS)}
COMMANDS = 3
"""Commands that may be needed until the run is finished."""
OTHERS = re.compile(r"taken over|another daskfs process|deleted or moved|do the workers share it|damaged or missing")
"""Words of messages that blame somebody else, of whom there is none, or files, which are whole."""


def trials(folder: Path, number: int, seed: int) -> Iterator[Trial]:
    """Yield as many trials of runs in an object store, drawn by a seed."""
    draw = random.Random(seed)
    kinds = [kind for kind in KINDS if kind != "tiles elsewhere"]
    faults = draw.sample([*ANY_METHOD, *FAULTS_OF], len(ANY_METHOD) + len(FAULTS_OF))
    runs = [Run(folder / str(place), kind) for place, kind in enumerate(kinds)]
    quick = mock.patch.dict(second_look.LOOK_PAUSE_SECONDS, {True: 0.05})
    with object_server() as server, quick, dask.config.set({LEASE_KEY: LEASE_SECONDS}):
        for place in range(number):
            run, fault = runs[place % len(runs)], faults[place % len(faults)]
            url, n_drivers = f"s3://runs/{seed}-{place}", 2 if place % 3 == 2 else 1
            rate = draw.choice(RATES) if n_drivers == 1 else min(RATES)  # the other one pauses as long as it does
            with proxy(Proxy(server, fault_rate=rate, kinds=(fault,), seed=place)) as between:
                try:
                    with limited():
                        outcome, detail = _outcome(run, url, between.url, server, n_drivers)
                except StuckError:
                    outcome, detail = "stuck", ""
            drivers = "one driver" if n_drivers == 1 else "two drivers"
            told = f"{rate} of requests {fault}, {drivers}: {detail}" if outcome in FAULTS else ""
            yield Trial(run.kind, drivers, fault, outcome, told)


def _outcome(run: Run, url: str, faulty: str, server: str, n_drivers: int) -> tuple[str, str]:
    job = yaml.safe_load(run.job.read_text()) | {"output": {"path": url}}
    path = run.work / "remote.yaml"
    path.write_text(yaml.safe_dump(job))
    with mock.patch.dict(os.environ, environment(faulty) | LEASE):
        clients._client.cache_clear()
        for n_commands in range(1, COMMANDS + 1):  # noqa: B007 - used after the loop
            others = [
                subprocess.Popen(
                    daskfs_command("run", path, "-q"), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
                )
                for _ in range(n_drivers - 1)
            ]
            found = daskfs("run", path, "-q")
            codes = {found.code, *(other.wait() for other in others)}
            if n_drivers == 1 and OTHERS.search(found.err):
                return "wrong", f"misleading: {found.err}"
            if 0 in codes:
                break
    with mock.patch.dict(os.environ, environment(server) | LEASE):
        clients._client.cache_clear()
        last = daskfs("run", path, "-q")
        root = ObjectPath.of(url)
        tables = {name: (root / name).read_bytes() for name in TABLES if (root / name).is_file()}
        verified = daskfs("verify", url, "-q")
        clients._client.cache_clear()
    if last.code != 0 or tables != run.expected or verified.code != 0:
        return "wrong", f"exit code {last.code}: {last.err}{verified.out}"
    return ("same" if n_commands == 1 else "told"), ""
