"""Job files at random: a ranking, or one line that says what is wrong; never anything else, and never for long."""

from __future__ import annotations

import math
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
import yaml
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from daskfs.criteria.registry import criteria
from daskfs.errors import JobError
from daskfs.job.job import Job, make_job
from tests.cli.command import Outcome, daskfs

USAGE, INPUT = 2, 3
N_SAMPLES, N_FEATURES = 12, 3
PARAMETERS = {name: row.parameters.public_fields() for name, row in criteria().items()}
JUNK: list[Any] = [
    None,
    True,
    -1,
    0,
    1,
    2,
    0.5,
    -0.5,
    1e300,
    -1e300,
    1e-300,
    10**12,
    2**62,
    2**64,
    float("inf"),
    float("nan"),
    "",
    "x",
    " ",
    "1e999",
    "10",
    "../x",
    "/dev/null",
    "sklearn:",
    "synthetic:mixture",
    "\0",
    "a\nb",
    "\x1b[2J",
    "x" * 300,
    [],
    {},
    [[]],
    [None],
    [1, "x"],
    {"name": "x"},
    {"": ""},
]
"""What stands where something else should."""
WORDS = [
    "data",
    "source",
    "labels",
    "methods",
    "name",
    "label",
    "parameters",
    "grid",
    "select",
    "n_features",
    "graph",
    "n_neighbors",
    "evaluate",
    "cluster",
    "output",
    "path",
    "keep",
    "x0",
    "",
    "\x1b",
]
"""Keys, some of which mean nothing where they land."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Return a folder with X.npy and y.npy, which also is where relative paths lead."""
    path = tmp_path_factory.mktemp("jobs")
    rng = np.random.default_rng(0)
    y = np.arange(N_SAMPLES) % 2
    np.save(path / "X.npy", rng.normal(size=(N_SAMPLES, N_FEATURES)) + y[:, None])
    np.save(path / "y.npy", y)
    with pytest.MonkeyPatch.context() as patch, mock.patch("daskfs.report.render.render_report", return_value=""):
        patch.chdir(path)
        yield path


# ---------------------------------------------------------------------------------------------------------------- jobs
@st.composite
def methods(draw: st.DrawFn) -> Any:
    """Draw a method: its name, or keys, with parameters that exist and values that may not serve."""
    name = draw(st.sampled_from(list(PARAMETERS)))
    chosen = draw(st.lists(st.sampled_from(PARAMETERS[name]), max_size=2, unique=True))
    if not chosen:
        return name
    values = st.one_of(st.integers(0, 4), st.sampled_from([0.1, 0.9, 2.5, "auto", None, False]), st.sampled_from(JUNK))
    entry = {"name": name, **{key: draw(values) for key in chosen}}
    if draw(st.booleans()):
        entry["label"] = draw(st.sampled_from(["mine", name, "a b", *WORDS]))
    return entry


@st.composite
def jobs(draw: st.DrawFn) -> dict[str, Any]:
    """Draw a job whose keys all exist."""
    job: dict[str, Any] = {
        "data": {"source": "X.npy", "labels": draw(st.sampled_from(["y.npy", "y.npy", "y.npy", None]))},
        "methods": draw(st.lists(methods(), min_size=1, max_size=3)),
        "evaluate": draw(
            st.one_of(
                st.none(),
                st.fixed_dictionaries(
                    {"n_selected": st.lists(st.integers(1, 3), min_size=1, max_size=2), "n_splits": st.integers(2, 3)},
                    optional={
                        "models": st.sampled_from(["knn", ["1nn-loo"], [{"name": "knn", "n_neighbors": 2}], ["ridge"]]),
                        "n_neighbors": st.integers(1, 9),
                        "setting": st.sampled_from(["transductive", "inductive", "both"]),
                        "labels": st.sampled_from([None, 2, 0.5, [1, 3]]),
                        "n_draws": st.just(1),
                        "scaling": st.sampled_from([None, "zscore"]),
                        "train_on": st.sampled_from(["all", "labeled"]),
                    },
                ),
            )
        ),
        "select": draw(st.sampled_from([{}, {"n_features": 1}, {"n_features": 4}, {"redundancy": {"threshold": 0.5}}])),
        "transform": draw(st.sampled_from([{}, {"score": "zscore"}, {"graph": "unit"}, {"score": "log1p"}])),
        "graph": draw(st.sampled_from([{}, {"n_neighbors": 3}, {"metric": "cosine"}, {"n_neighbors": 3, "t": 0.5}])),
        "cluster": {"workers": 0},
        "output": {"path": "run"},
    }
    return job


def places(value: Any, way: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Return the way to everything that lies in a value."""
    entries = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [place for key, entry in entries for place in ((*way, key), *places(entry, (*way, key)))]


def spoil(draw: st.DrawFn, job: dict[str, Any]) -> None:
    """Change one thing, wherever it is."""
    known = places(job)
    way = draw(st.sampled_from(known))
    holder: Any = job
    for key in way[:-1]:
        holder = holder[key]
    key = way[-1]
    match draw(st.sampled_from(["junk", "junk", "delete", "rename", "nest", "list", "repeat", "word", "swap"])):
        case "delete":
            del holder[key]
        case "rename" if isinstance(holder, dict):
            holder[draw(st.sampled_from([f"{key}s", str(key)[1:], str(key).upper(), *WORDS]))] = holder.pop(key)
        case "nest":
            holder[key] = {draw(st.sampled_from(WORDS)): holder[key]}
        case "list":
            holder[key] = [holder[key]]
        case "repeat" if isinstance(holder, list):
            holder.append(holder[key])
        case "word" if isinstance(holder, dict):
            holder[draw(st.sampled_from(WORDS))] = deepcopy(draw(st.sampled_from(JUNK)))
        case "swap":
            other = draw(st.sampled_from([place for place in known if place[: len(way)] != way] or [way]))
            source: Any = job
            for part in other:
                source = source[part]
            holder[key] = deepcopy(source)
        case _:
            holder[key] = deepcopy(draw(st.sampled_from(JUNK)))


@st.composite
def spoilt_jobs(draw: st.DrawFn) -> dict[str, Any]:
    """Draw a job in which up to three things are wrong."""
    job = deepcopy(draw(jobs()))  # what is drawn is drawn again
    for _ in range(draw(st.integers(1, 3))):
        spoil(draw, job)
        if not places(job):
            break
    return job


# --------------------------------------------------------------------------------------------------------------- calls
def called(folder: Path, job: dict[str, Any]) -> Outcome:
    """Run a job; plan one that would start a cluster or leave the folder."""
    (folder / "job.yaml").write_text(yaml.safe_dump(job, allow_unicode=True), encoding="utf-8")
    verb = ["run", "job.yaml", "-q", "--overwrite"]
    try:
        loaded: Job | None = make_job(yaml.safe_load((folder / "job.yaml").read_text(encoding="utf-8")))
    except (JobError, ValueError):
        loaded = None
    if loaded is not None:
        joins = loaded.cluster.workers or loaded.cluster.address or loaded.cluster.scheduler_file
        if joins or loaded.output.path != "run":
            verb = ["plan", "job.yaml"]
    return daskfs(*verb)


def answered(folder: Path, job: dict[str, Any]) -> None:
    outcome = called(folder, job)
    lines = outcome.err.splitlines()
    if outcome.code == 0:
        assert outcome.out
        assert all(line.startswith("daskfs: warning: ") for line in lines), outcome.err
        return
    assert (outcome.code in (USAGE, INPUT), outcome.out, len(lines)) == (True, "", 1), (outcome, job)
    assert outcome.err.startswith("daskfs: ")
    assert outcome.err.isprintable() or outcome.err.removesuffix("\n").isprintable()
    assert len(outcome.err) > len("daskfs: ") + 15, outcome.err
    assert "Traceback" not in outcome.err


QUICK = settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow])
LONG = settings(max_examples=300, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])


INFINITE = {
    "data": {"source": "X.npy", "labels": "y.npy"},
    "methods": ["VarianceScore"],
    "evaluate": {"labels": [math.inf, 3]},
    "output": {"path": "run"},
}


@QUICK
@example(job=INFINITE)
@given(job=spoilt_jobs())
def test_jobs_with_mistakes(folder: Path, job: dict[str, Any]) -> None:
    answered(folder, job)


@settings(parent=QUICK, max_examples=15)
@given(job=jobs())
def test_jobs_of_keys_that_exist(folder: Path, job: dict[str, Any]) -> None:
    answered(folder, job)


@pytest.mark.long
@LONG
@given(job=spoilt_jobs())
def test_many_jobs_with_mistakes(folder: Path, job: dict[str, Any]) -> None:
    answered(folder, job)


@pytest.mark.long
@settings(parent=LONG, max_examples=60)
@given(job=jobs())
def test_many_jobs_of_keys_that_exist(folder: Path, job: dict[str, Any]) -> None:
    answered(folder, job)


@settings(max_examples=40)
@given(text=st.text(max_size=80))
def test_any_text_as_a_job_file(folder: Path, text: str) -> None:
    (folder / "text.yaml").write_text(text, encoding="utf-8", errors="surrogatepass")
    outcome = daskfs("plan", "text.yaml")
    assert (outcome.code, outcome.out, outcome.err.count("\n")) == (USAGE, "", 1)


@settings(max_examples=40)
@given(data=st.binary(max_size=80))
def test_any_bytes_as_a_job_file(folder: Path, data: bytes) -> None:
    (folder / "bytes.yaml").write_bytes(data)
    outcome = daskfs("plan", "bytes.yaml")
    assert (outcome.code, outcome.out, outcome.err.count("\n")) == (USAGE, "", 1)


@settings(max_examples=40)
@given(key=st.text(max_size=12), value=st.text(max_size=12))
def test_any_override(folder: Path, key: str, value: str) -> None:
    job = {"data": {"source": "gone.npy"}, "methods": ["VarianceScore"], "output": {"path": "run"}}
    (folder / "gone.yaml").write_text(yaml.safe_dump(job), encoding="utf-8")
    outcome = daskfs("plan", "gone.yaml", "--set", f"{key}={value}")
    assert (outcome.code in (USAGE, INPUT), outcome.out, outcome.err.count("\n")) == (True, "", 1)
