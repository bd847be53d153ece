"""Credentials in a job, in a study or on the command line are refused, and no message repeats them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daskfs import FisherScore, LaplacianScore, VarianceScore, knn_graph, load_job, make_study
from daskfs.errors import DaskfsError, InputError, JobError
from daskfs.redaction import has_credentials, redact_credentials, strip_control_characters
from daskfs.sources import SourceSpec, open_source
from tests.cli.command import basic_job, daskfs, matrix, refused, write_job

USAGE, INPUT = 2, 3
SECRET = "s3cr3t/Ab+9@x"
URLS = {
    "password": f"https://user:{SECRET}@host/X.npy",
    "password alone": f"s3://:{SECRET}@bucket/X.zarr",
    "token as user": "https://s3cr3t@host/X.npy",
    "signature": "https://host/X.npy?X-Amz-Signature=s3cr3t&X-Amz-Expires=3",
    "session": "https://host/X.npy?a=1&X-Amz-Security-Token=s3cr3t",
    "credential": "https://host/X.npy?X-Amz-Credential=s3cr3t",
    "sas": "https://host/X.npy?sv=2024&sig=s3cr3t",
    "token": "https://host/X.npy?token=s3cr3t",
    "access token": "https://host/X.npy?ACCESS_TOKEN=s3cr3t",
    "parameter": "https://host/X.npy#password=s3cr3t",
    "key": "https://host/X.npy?api-key=s3cr3t",
    "connection string": "host;AccountName=me;AccountKey=s3cr3t==",
}
HARMLESS = (
    "/data/token=5/signature.npy",
    "runs/me@host/X.npz:member",
    "synthetic:mixture?n_samples=5&n_features=3&seed=2",
    "sklearn:iris",
    "tls://10.0.0.1:8786",
    "tcp://[::1]:8786",
    "https://host:443/a/b?version=2#part",
    "https://example.org/@user/data",
    "a title: see https://example.org, or write to me@example.org",
    "x?design=3&author=me&keyboard=1",
)
KEYS = (
    "data.source",
    "data.labels",
    "data.weights",
    "data.feature_names",
    "data.array",
    "graph.precomputed",
    "cluster.address",
    "cluster.scheduler_file",
    "cluster.local_directory",
    "output.title",
    "output.path",
    "select.redundancy.groups",
    "storage.s3://bucket.endpoint",
    "storage.s3://bucket.region",
)


def test_they_are_told_and_masked() -> None:
    for url in URLS.values():
        assert has_credentials(url)
        assert "s3cr3t" not in redact_credentials(url)
        assert "s3cr3t" not in redact_credentials(f"--set data.source='{url}' is not there")
        assert redact_credentials(redact_credentials(url)) == redact_credentials(url)


def test_the_rest_stays() -> None:
    for text in HARMLESS:
        assert not has_credentials(text)
        assert redact_credentials(text) == text


@given(
    st.text(st.characters(exclude_categories=["Z", "C"]), min_size=1),
    st.text(st.characters(exclude_categories=["Z", "C"], exclude_characters="/?#@:"), max_size=8),
)
def test_no_password_stays(password: str, user: str) -> None:
    assert redact_credentials(f"see https://{user}:{password}@host/X.npy") == "see https://***@host/X.npy"


@pytest.mark.parametrize("key", KEYS)
def test_keys_of_a_job(tmp_path: Path, key: str) -> None:
    place = KEYS.index(key)
    for name in URLS if place == 0 else list(URLS)[place % 4 :: 4]:  # every way comes to several keys
        url, job = URLS[name], basic_job(tmp_path)
        outcome = daskfs("run", write_job(tmp_path, job), "--set", f"{key}={json.dumps(url)}")
        refused(outcome, USAGE, f"key '{key}'", "credentials belong in the environment")
        assert "s3cr3t" not in outcome.err, name
        block, _, rest = key.partition(".")
        inner, _, leaf = rest.rpartition(".")
        value: Any = {inner: {leaf: url}} if inner else {leaf: url}
        job[block] = {**job.get(block, {}), **value}
        with pytest.raises(JobError, match="credentials") as problem:
            load_job(write_job(tmp_path, job))
        assert "s3cr3t" not in str(problem.value)
        assert problem.value.__cause__ is None
    assert not (tmp_path / "run").exists()


EVERYWHERE = ("password", "token as user", "sas", "connection string")


@pytest.mark.parametrize("name", [pytest.param(n, marks=[pytest.mark.long] * (n not in EVERYWHERE)) for n in URLS])
def test_everywhere_else(tmp_path: Path, name: str) -> None:
    url = URLS[name]
    path = write_job(tmp_path, basic_job(tmp_path))
    outcomes = [
        daskfs("inspect", url),
        daskfs("convert", url, tmp_path / "tiles"),
        daskfs("inspect", tmp_path / "X.npy", "--labels", url),
        daskfs("run", path, "--set", url),
        daskfs("run", path, "--set", f"data.source='{url}"),
        daskfs("run", path, "--set", f"data={url}"),
        daskfs("run", path, "--set", f"methods.0.{url}={url}"),
        daskfs("run", path, "--set", f"cluster.workers={json.dumps(url)}"),
        daskfs("run", url),
        daskfs("status", url),
        daskfs("report", url),
        daskfs("compare", url),
        daskfs("compare", url, tmp_path, "--output", tmp_path / "out"),
    ]
    (tmp_path / "list.yaml").write_text(json.dumps(url))
    outcomes.append(daskfs("run", tmp_path / "list.yaml"))
    study = {"datasets": {"one": url, "two": {"source": "sklearn:iris"}}, "output": {"path": str(tmp_path / "study")}}
    (tmp_path / "study.yaml").write_text(json.dumps(study))
    outcomes.append(daskfs("compare", tmp_path / "study.yaml"))
    for number, outcome in enumerate(outcomes):
        assert outcome.code in (USAGE, INPUT), number
        assert outcome.err.startswith("daskfs: "), number
        assert "s3cr3t" not in outcome.err + outcome.out, number
    with pytest.raises(JobError, match=r"data set one.*credentials"):
        make_study(study)


@pytest.mark.parametrize("name", ["password", "sas"])
def test_from_python(name: str) -> None:
    for call in (
        lambda: VarianceScore().fit(URLS[name]),
        lambda: FisherScore().fit(matrix(), URLS[name]),
        lambda: knn_graph(URLS[name], 3),
        lambda: LaplacianScore(graph=URLS[name]).fit(matrix()),
    ):
        with pytest.raises((DaskfsError, ValueError)) as problem:
            call()
        assert "s3cr3t" not in str(problem.value)
    with pytest.raises(InputError, match=r"data\.source: .* credentials belong in the environment"):
        open_source(SourceSpec(source=URLS[name]))


def test_what_steers_a_terminal_is_left_out() -> None:
    assert strip_control_characters("plain ünïcode 名前 🧬") == "plain ünïcode 名前 🧬"
    assert strip_control_characters("a\x1b[31mb\x07\r\n\u202ec\x9bd\ud800") == "a [31mb    c d "
