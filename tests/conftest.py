"""What every test may use."""

from __future__ import annotations

import gc
import os
import pickle  # noqa: TID251 - of arguments, as keys
import re
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Generator, Iterator
from functools import wraps
from pathlib import Path
from typing import Any, TypeVar

import psutil
import pytest
from hypothesis import settings

from tests import optional

# a change is judged by the same examples every time; DASKFS_NEW_EXAMPLES=100 draws new ones, 100 times as many
EXAMPLES_FACTOR = int(os.environ.get("DASKFS_NEW_EXAMPLES", "0"))
_initialize_settings = settings.__init__


def _multiply_examples(self: settings, parent: settings | None = None, **options: Any) -> None:
    if "max_examples" in options:
        options["max_examples"] *= max(EXAMPLES_FACTOR, 1)
    _initialize_settings(self, parent, **options)


# Hypothesis has no option for it; here it holds for laws with settings of their own too, and once if they are inherited
settings.__init__ = _multiply_examples  # type: ignore[method-assign]
# machines are shared and noisy: no deadline
settings.register_profile("daskfs", max_examples=100, deadline=None, derandomize=EXAMPLES_FACTOR == 0)
settings.load_profile("daskfs")

# marks of tests that run only where -m names one of these
TIERS = ("long", "release", "platforms", "shared_data")
LAWS = "hypothesis"  # Hypothesis marks its tests: those of all tiers run where -m names it
MEMORY = "/dev/shm"
WRITTEN_BYTES = 2 << 30  # 1.5 GiB at most at a time by the default tier, less by the long one

Report = TypeVar("Report", pytest.TestReport, pytest.CollectReport)

# as many processes test as there are cores, and threads that wait for each other take as much again; NumPy reads it
# when it is first imported. Workers of daskfs have one thread as well.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

# of clusters that tests start themselves, as of those of daskfs: Python's stacks cannot be sampled safely
os.environ.setdefault("DASK_DISTRIBUTED__WORKER__PROFILE__ENABLED", "false")

# SciPy reads it when it is first imported; without it scikit-learn skips its array-API check of estimators
os.environ.setdefault("SCIPY_ARRAY_API", "1")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--shared-data", default=None, help="Folder with the real data sets (.npz) of tests marked shared_data."
    )


def pytest_xdist_auto_num_workers() -> int:
    """Return how many processes test: as many as there are cores, as each further one imports and compiles again."""
    return min(len(os.sched_getaffinity(0)), 8)


def pytest_configure(config: pytest.Config) -> None:
    """Put the filter DASKFS_WARNINGS before those of pyproject.toml, which are exceptions to it; and the files of
    tests into memory where there is room: runs write many small ones, and wait for each to be on the disk.
    """
    if action := os.environ.get("DASKFS_WARNINGS"):
        config.getini("filterwarnings").insert(0, action)
    if _has_room(MEMORY):
        tempfile.tempdir = os.environ["TMPDIR"] = MEMORY


def pytest_unconfigure() -> None:
    """Collect garbage once before the process ends; the interpreter would do so several times, for seconds."""
    gc.collect()
    gc.freeze()


def _is_default(config: pytest.Config) -> bool:
    return not any(mark in config.option.markexpr for mark in (*TIERS, LAWS))


def _has_room(folder: str) -> bool:
    if not os.access(folder, os.W_OK):
        return False
    return min(shutil.disk_usage(folder).free, psutil.virtual_memory().available) >= 2 * WRITTEN_BYTES


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the other tiers where ``-m`` names none of them, and put files with a test that may take longer than
    others first, then those that start processes, and of the rest those of many tests: what comes last is short, so
    that no process is left alone with a long file in the end.
    """
    if _is_default(config):
        others = {item for item in items if any(item.get_closest_marker(tier) for tier in TIERS)}
        config.hook.pytest_deselected(items=list(others))
        items[:] = [item for item in items if item not in others]
    sizes = Counter(item.path for item in items)
    usual = int(config.getini("timeout"))
    longest = {item.path for item in items if any(mark.args[0] > usual for mark in item.iter_markers("timeout"))}
    slow = {item.path for item in items if item.get_closest_marker("cluster") is not None}
    items.sort(key=lambda item: (item.path not in longest, item.path not in slow, -sizes[item.path], str(item.path)))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.failed and call.excinfo is not None and (package := optional.missing(call.excinfo.value)):
        report.outcome, report.longrepr = "skipped", (str(item.path), 0, optional.reason(package))
    return _not_skipped(report)


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    return _not_skipped((yield))


def _not_skipped(report: Report) -> Report:
    """Where DASKFS_SKIP_NOTHING is set, as in the CI script, what would be skipped for want of something fails."""
    if report.skipped and not hasattr(report, "wasxfail") and "DASKFS_SKIP_NOTHING" in os.environ:
        reason = report.longrepr[-1] if isinstance(report.longrepr, tuple) else report.longrepr
        report.outcome, report.longrepr = "failed", f"nothing may be skipped here: {reason}"
    return report


FIGURES: dict[bytes | str, str] = {}


@pytest.fixture(scope="module", autouse=True)
def figures_drawn_once(request: pytest.FixtureRequest) -> Iterator[None]:
    """Remember the figures of reports, as Matplotlib takes a third of a small run: by all that they show in tests that
    are marked figures, and elsewhere one of each kind and names, whatever its values and place.
    """
    from daskfs.report import comparison_view, evaluation_view, method_view, plots, view

    key = _shown if request.node.get_closest_marker("figures") else _kind
    with pytest.MonkeyPatch.context() as patched:
        for module in (comparison_view, evaluation_view, method_view, view):
            for name, function in vars(module).copy().items():
                if getattr(function, "__module__", None) != plots.__name__ or name == "svg_of":
                    continue
                if function.__annotations__.get("return") == "str | None":
                    patched.setattr(module, name, _remembered(function, key))
        patched.setattr(plots.Plot, "svg", _remembered(plots.Plot.svg, _shown_by if key is _shown else _kind_of))
        yield


def _shown_by(name: str, arguments: tuple[Any, ...], named: dict[str, Any]) -> bytes:
    plot, *prefix = arguments
    held = [cell.cell_contents for cell in plot.draw.__closure__]
    return _shown(name, plot.size, plot.x_name, plot.y_name, plot.description, held, prefix, named)


def _kind_of(name: str, arguments: tuple[Any, ...], named: dict[str, Any]) -> str:
    plot = arguments[0]
    return _kind(name, (plot.x_name, plot.y_name, re.split(r", from|: \d", plot.description)[0]), named)


def _shown(*drawn: Any) -> bytes:
    return pickle.dumps(drawn)


def _kind(name: str, arguments: tuple[Any, ...], named: dict[str, Any]) -> str:
    words = [*arguments, *(value for key, value in named.items() if key != "prefix")]
    return " ".join([name, *(word for word in words if isinstance(word, str))])


def _remembered(draw: Callable[..., str | None], key: Callable[..., bytes | str]) -> Callable[..., str | None]:
    @wraps(draw)
    def remembering(*arguments: Any, **named: Any) -> str | None:
        drawn = key(draw.__name__, arguments, named)
        if drawn not in FIGURES and (figure := draw(*arguments, **named)) is not None:
            FIGURES[drawn] = figure
        return FIGURES.get(drawn)

    return remembering


@pytest.fixture(scope="module")
def two_workers() -> Iterator[str]:
    """Address of a scheduler with two workers, for tests of which starting workers of their own is no part. They end
    with the file, as workers that wait take a tenth of a core.
    """
    from tests.execution.runs import local_cluster

    with local_cluster(2) as cluster:
        yield cluster.scheduler_address


@pytest.fixture
def shared_data(request: pytest.FixtureRequest) -> Path:
    """Folder with real data sets, given by ``--shared-data``."""
    folder = request.config.getoption("--shared-data")
    if folder is None:
        pytest.skip("no --shared-data FOLDER given")
    return Path(folder)
