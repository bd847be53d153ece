"""Names in a job and in a store lead nowhere but into it."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

import numpy as np
import pytest
import zarr

from daskfs import VarianceScore
from daskfs.errors import InputError
from daskfs.sources import SourceSpec, open_source
from tests.cli.command import basic_job, daskfs, matrix, refused, write_job

USAGE, INPUT = 2, 3
OUTWARD = ("..", "../secret", "inside/../../secret", "../group/../secret", "@/secret", "/")


@pytest.fixture
def group(tmp_path: Path) -> Path:
    """Return a Zarr group beside an array that is none of its members."""
    zarr.create_array(tmp_path / "secret", data=matrix())
    root = zarr.open_group(tmp_path / "group", mode="w")
    root.create_array("inside/X", data=matrix())
    return tmp_path / "group"


@pytest.mark.parametrize("name", OUTWARD)
def test_arrays_lie_in_their_group(group: Path, tmp_path: Path, name: str) -> None:
    name = name.replace("@", str(tmp_path))
    job = basic_job(tmp_path)
    job["data"] |= {"source": str(group), "array": name}
    for verb in ("plan", "run"):
        refused(daskfs(verb, write_job(tmp_path, job)), INPUT, f"data.array is {name!r}", "without ..")
    refused(daskfs("inspect", group, "--array", name), INPUT, "data.array")
    with pytest.raises(InputError, match=r"data\.array"):
        open_source(SourceSpec(source=str(group), array=name))
    for key in ("labels", "weights", "groups", "times", "feature_names"):
        job["data"] = {"source": str(group), "array": "inside/X", key: name}
        refused(daskfs("run", write_job(tmp_path, job), "-q"), INPUT, f"data.{key}", "no such file")


@pytest.mark.cluster
def test_arrays_inside_are_found(group: Path, tmp_path: Path) -> None:
    job = basic_job(tmp_path)
    job["data"] |= {"source": str(group), "array": "inside/X"}
    assert daskfs("run", write_job(tmp_path, job), "-q").code == 0


@pytest.mark.cluster
def test_members_of_an_archive_are_read_in_it(tmp_path: Path) -> None:
    np.save(tmp_path / "secret.npy", matrix())
    (tmp_path / "below").mkdir()
    archive = tmp_path / "below" / "X.npz"
    with zipfile.ZipFile(archive, "w") as file:
        file.write(tmp_path / "secret.npy", "X.npy")
        file.write(tmp_path / "secret.npy", "../other.npy")
    for name in ("..", "../other", "../secret", str(tmp_path / "secret")):
        refused(daskfs("inspect", archive, "--array", name), INPUT, f"data.array is {name!r}")
    assert daskfs("inspect", archive).code == 0
    assert sorted(path.name for path in tmp_path.rglob("*.npy")) == ["secret.npy"]
    VarianceScore().fit(str(archive))
    assert not list(tmp_path.rglob("other*"))


@pytest.mark.parametrize("name", ["../out", "a/b", "/out", "..", ".hidden", "a\nb", "a\\b", "~"])
def test_names_that_become_directories(tmp_path: Path, name: str) -> None:
    job = basic_job(tmp_path, methods=[{"name": "VarianceScore", "label": name}])
    refused(daskfs("run", write_job(tmp_path, job)), USAGE, "label")
    study = {
        "datasets": {name: {"source": "sklearn:iris"}},
        "methods": ["VarianceScore"],
        "output": {"path": str(tmp_path / "study")},
    }
    (tmp_path / "study.yaml").write_text(json.dumps(study))
    refused(daskfs("compare", tmp_path / "study.yaml"), USAGE, "data set label")
    assert not (tmp_path / "run").exists()
    assert not (tmp_path / "study").exists()


@pytest.mark.parametrize("version", [2, 3])
def test_chunks_lie_in_their_array(tmp_path: Path, version: int) -> None:
    for part in ("secret", "X"):
        values = matrix() if part == "secret" else 0 * matrix()
        zarr.create_array(tmp_path / part, data=values, zarr_format=version, compressors=None)  # type: ignore[arg-type]
    file = tmp_path / "X" / ("zarr.json" if version == 3 else ".zarray")
    document = json.loads(file.read_text())
    outward = "/../../secret/"
    if version == 3:
        document["chunk_key_encoding"]["configuration"]["separator"] = outward
    else:
        document["dimension_separator"] = outward
    file.write_text(json.dumps(document))
    refused(daskfs("inspect", tmp_path / "X"), INPUT, str(tmp_path / "X"))


@pytest.mark.cluster
def test_a_graph_lies_in_its_group(tmp_path: Path) -> None:
    job = basic_job(tmp_path, methods=["LaplacianScore"])
    assert daskfs("run", write_job(tmp_path, job), "-q").code == 0
    job |= {"output": {"path": str(tmp_path / "again")}}
    for name in ("run/knn/../../run", "run/knn/euclidean/../euclidean"):
        # a path of the user's own may go where it likes
        job["graph"] = {"precomputed": str(tmp_path / name)}
        assert daskfs("plan", write_job(tmp_path, job)).code == 0
