"""Data, graphs and job files that would run code, were they unpickled or built as YAML says: none of it runs."""

from __future__ import annotations

import ast
import json
import pickle  # noqa: TID251 - to write what must never be loaded
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
import zarr

from daskfs import LaplacianScore, knn_graph
from daskfs.errors import InputError
from tests.cases import parsed
from tests.cli.command import N_FEATURES, N_SAMPLES, basic_job, daskfs, labels, matrix, refused, write_job

PACKAGE = Path(__file__).parents[2] / "daskfs"
USAGE, INPUT = 2, 3
MARK = "code ran"


class Payload:
    """Leaves a file where it is unpickled."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / MARK

    def __reduce__(self) -> tuple[Any, ...]:
        return open, (str(self.path), "w")


def objects(folder: Path, *shape: int) -> np.ndarray:
    values = np.empty(shape, dtype=object)
    values.fill(Payload(folder))
    return values


def zarr_with(path: Path, shape: tuple[int, ...], folder: Path, **metadata: Any) -> None:
    """Write a Zarr array of version 2 in one chunk, whose bytes are a pickled payload."""
    path.mkdir(parents=True)
    document = {
        "zarr_format": 2,
        "shape": shape,
        "chunks": shape,
        "dtype": "|O",
        "filters": [{"id": "pickle", "protocol": 5}],
        "compressor": None,
        "fill_value": None,
        "order": "C",
        **metadata,
    }
    (path / ".zarray").write_text(json.dumps(document))
    (path / ".".join(["0"] * len(shape))).write_bytes(pickle.dumps(Payload(folder)))


def group(folder: Path, **arrays: np.ndarray) -> Path:
    root = zarr.open_group(folder / "X.zarr", mode="w", zarr_format=2)
    for name, values in arrays.items():
        root.create_array(name, data=values)
    return folder / "X.zarr"


# ------------------------------------------------------------------------------ sources
def npy(folder: Path) -> dict[str, str]:
    np.save(folder / "bad.npy", objects(folder, N_SAMPLES, N_FEATURES))
    return {"source": str(folder / "bad.npy")}


def separate_npy(key: str) -> Callable[[Path], dict[str, str]]:
    def write(folder: Path) -> dict[str, str]:
        np.save(folder / "bad.npy", objects(folder, N_SAMPLES))
        return {key: str(folder / "bad.npy")}

    return write


def npz(member: str, key: str, *shape: int) -> Callable[[Path], dict[str, str]]:
    def write(folder: Path) -> dict[str, str]:
        np.savez_compressed(folder / "bad.npz", **dict[str, Any]({"X": matrix(), member: objects(folder, *shape)}))
        return {"source": str(folder / "bad.npz"), key: member}

    return write


def zarr_member(key: str, *shape: int, **metadata: Any) -> Callable[[Path], dict[str, str]]:
    def write(folder: Path) -> dict[str, str]:
        zarr_with(group(folder, **({} if key == "array" else {"X": matrix()})) / "bad", shape, folder, **metadata)
        return {"source": str(folder / "X.zarr"), key: "bad"}

    return write


def hidden_name(folder: Path) -> dict[str, str]:
    found = zarr_member("labels", N_SAMPLES)(folder)
    file = folder / "X.zarr" / "bad" / ".zarray"
    file.write_text(file.read_text().replace("pickle", "\\u0070ickle"))
    return found


def inside_shards(folder: Path) -> dict[str, str]:
    path = folder / "X.zarr"
    zarr.create_array(path, data=matrix(), chunks=(10, 2), shards=(30, 4))
    document = json.loads((path / "zarr.json").read_text())
    (codec,) = document["codecs"]
    assert codec["name"] == "sharding_indexed"
    codec["configuration"]["codecs"] = [{"name": "numcodecs.pickle", "configuration": {"protocol": 5}}]
    (path / "zarr.json").write_text(json.dumps(document))
    return {"source": str(path)}


VALUES = {"dtype": "<f8", "fill_value": 0.0}
SOURCES: dict[str, tuple[Callable[[Path], dict[str, str]], str]] = {
    "npy": (npy, "never unpickled"),
    "labels in npy": (separate_npy("labels"), "never unpickled"),
    "weights in npy": (separate_npy("weights"), "never unpickled"),
    "groups in npy": (separate_npy("groups"), "never unpickled"),
    "times in npy": (separate_npy("times"), "never unpickled"),
    "names in npy": (separate_npy("feature_names"), "not a text file"),
    "npz": (npz("bad", "array", N_SAMPLES, N_FEATURES), "never unpickled"),
    "labels in npz": (npz("bad", "labels", N_SAMPLES), "never unpickled"),
    "groups in npz": (npz("bad", "groups", N_SAMPLES), "never unpickled"),
    "names in npz": (npz("bad", "feature_names", N_FEATURES), "never unpickled"),
    "Zarr": (zarr_member("array", N_SAMPLES, N_FEATURES), "encoded with pickle"),
    "Zarr of numbers": (zarr_member("array", N_SAMPLES, N_FEATURES, **VALUES), "encoded with pickle"),
    "Zarr, as compressor": (
        zarr_member("array", N_SAMPLES, N_FEATURES, **VALUES, filters=None, compressor={"id": "pickle"}),
        "encoded with pickle",
    ),
    "labels in Zarr": (zarr_member("labels", N_SAMPLES), "encoded with pickle"),
    "weights in Zarr": (zarr_member("weights", N_SAMPLES, **VALUES), "encoded with pickle"),
    "times in Zarr": (zarr_member("times", N_SAMPLES), "encoded with pickle"),
    "names in Zarr": (zarr_member("feature_names", N_FEATURES), "encoded with pickle"),
    # of these two, Zarr itself looks at the first alone; the second is loaded by a numcodecs that is old, or told to
    "after a codec for text": (
        zarr_member("labels", N_SAMPLES, filters=[{"id": "vlen-utf8"}, {"id": "pickle"}], fill_value=""),
        "encoded with pickle",
    ),
    "names, after a codec for text": (
        zarr_member("feature_names", N_FEATURES, filters=[{"id": "vlen-utf8"}, {"id": "pickle"}], fill_value=""),
        "encoded with pickle",
    ),
    "name of the codec in escapes": (hidden_name, "encoded with pickle"),
    "objects as JSON": (zarr_member("labels", N_SAMPLES, filters=[{"id": "json2"}]), "codec json2"),
    "objects as msgpack": (zarr_member("labels", N_SAMPLES, filters=[{"id": "msgpack2"}]), "codec msgpack2"),
    "objects as they are": (zarr_member("labels", N_SAMPLES, filters=None), "codec none"),
    "Zarr 3, in shards": (inside_shards, "encoded with pickle"),
}


def test_nothing_in_the_package_unpickles() -> None:
    loaders = {"pickle", "cPickle", "dill", "cloudpickle", "joblib", "shelve", "marshal"}
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(parsed(path)):
            if isinstance(node, ast.Import | ast.ImportFrom):
                names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else [node.module or ""]
                # these count cores, and load nothing
                if ast.unparse(node) in ("from joblib import effective_n_jobs", "from joblib import cpu_count"):
                    continue
                assert not {name.split(".")[0] for name in names} & loaders, path
            if isinstance(node, ast.Call):
                called = ast.unparse(node.func)
                assert called.rsplit(".", 1)[-1] not in ("read_pickle", "unsafe_load", "full_load", "eval", "exec"), (
                    path
                )
                if called in ("np.load", "numpy.load", "np.lib.format.read_array"):
                    assert "allow_pickle=False" in ast.unparse(node), path


def test_the_payload_works(tmp_path: Path) -> None:
    pickle.loads(pickle.dumps(Payload(tmp_path))).close()  # noqa: S301
    assert (tmp_path / MARK).exists()


@pytest.mark.cluster
@pytest.mark.parametrize("name", SOURCES)
def test_sources_are_not_unpickled(tmp_path: Path, name: str) -> None:
    write, reason = SOURCES[name]
    job = basic_job(tmp_path)
    job["data"] |= write(tmp_path)
    path = write_job(tmp_path, job)
    assert daskfs("plan", path).code in (0, INPUT)  # labels are read when the job runs
    refused(daskfs("run", path, "-q"), INPUT, reason)
    options = [f"--{key.replace('_', '-')}={value}" for key, value in job["data"].items() if key != "source"]
    refused(daskfs("inspect", job["data"]["source"], *options), INPUT, reason)
    assert not (tmp_path / MARK).exists()


@pytest.mark.cluster
@pytest.mark.filterwarnings("ignore:pickle-based deserialization:RuntimeWarning", "ignore:pyarrow.PyExt:FutureWarning")
@pytest.mark.parametrize("place", ["extension type", "pandas"])
def test_parquet_metadata_are_not_unpickled(tmp_path: Path, place: str) -> None:
    """Older pyarrow, which knows of types that are pickled, makes an unknown type of one, with warnings."""
    pickled = pickle.dumps(Payload(tmp_path))
    field_metadata = {b"ARROW:extension:name": b"arrow.py_extension_type", b"ARROW:extension:metadata": pickled}
    fields = [pa.field(f"x{i}", pa.float64(), metadata=field_metadata if i == 0 else None) for i in range(N_FEATURES)]
    schema = pa.schema(fields, metadata={b"pandas": pickled} if place == "pandas" else None)
    pq.write_table(pa.table(list(matrix().T), schema=schema), tmp_path / "X.parquet")
    job = basic_job(tmp_path, methods=["VarianceScore"])
    job["data"]["source"] = str(tmp_path / "X.parquet")
    outcome = daskfs("run", write_job(tmp_path, job), "-q")
    if hasattr(pa, "PyExtensionType"):
        refused(outcome, INPUT, "column 'x0' holds type extension")
    else:
        assert outcome.code == 0, outcome.err
    assert not (tmp_path / MARK).exists()


# ------------------------------------------------------------------------------ graphs, and stores of our own
def graph_npz(folder: Path) -> Path:
    parts = dict[str, Any](indices=np.arange(N_SAMPLES), indptr=np.arange(N_SAMPLES + 1), shape=[N_SAMPLES, N_SAMPLES])
    np.savez(folder / "S.npz", data=objects(folder, N_SAMPLES), **parts)
    return folder / "S.npz"


def format_npz(folder: Path) -> Path:
    np.savez(folder / "S.npz", format=objects(folder, 1))
    return folder / "S.npz"


def graph_zarr(folder: Path) -> Path:
    attributes = {"encoding-type": "csr_matrix", "encoding-version": "0.1.0", "shape": [N_SAMPLES, N_SAMPLES]}
    root = zarr.open_group(folder / "S.zarr", mode="w", zarr_format=2, attributes=attributes)  # type: ignore[arg-type]
    root.create_array("indices", data=np.arange(N_SAMPLES))
    root.create_array("indptr", data=np.arange(N_SAMPLES + 1))
    zarr_with(folder / "S.zarr" / "data", (N_SAMPLES,), folder, **VALUES)
    return folder / "S.zarr"


def lists(folder: Path) -> Path:
    knn_graph(matrix(), 5).save(folder / "lists")
    shutil.rmtree(folder / "lists" / "distances")
    zarr_with(folder / "lists" / "distances", (N_SAMPLES, 5), folder, **VALUES)
    file = folder / "lists" / "distances" / ".zarray"
    file.write_text(file.read_text().replace("pickle", "\\u0070ickle"))
    return folder / "lists"


GRAPHS = {
    "npz": (graph_npz, "dtype object"),
    "format of npz": (format_npz, "S.npz"),
    "Zarr": (graph_zarr, "encoded with pickle"),
    "lists": (lists, "encoded with pickle"),
}


@pytest.mark.parametrize("name", GRAPHS)
def test_graphs_are_not_unpickled(tmp_path: Path, name: str) -> None:
    write, reason = GRAPHS[name]
    path = write(tmp_path)
    job = basic_job(tmp_path, methods=["LaplacianScore"], graph={"precomputed": str(path)})
    refused(daskfs("run", write_job(tmp_path, job)), INPUT, str(path), reason)
    with pytest.raises(InputError, match=reason):
        LaplacianScore(graph=path).fit(matrix(), labels())
    assert not (tmp_path / MARK).exists()


@pytest.mark.cluster
def test_tiles_are_not_unpickled(tmp_path: Path) -> None:
    job = basic_job(tmp_path)
    tiles = tmp_path / "tiles"
    assert daskfs("convert", job["data"]["source"], tiles, f"--labels={job['data']['labels']}", "--workers=0").code == 0
    job["data"] = {"source": str(tiles)}
    metadata = tiles / "labels" / "zarr.json"
    document = json.loads(metadata.read_text())
    document["codecs"].append({"name": "numcodecs.pickle", "configuration": {}})
    metadata.write_text(json.dumps(document))
    refused(daskfs("run", write_job(tmp_path, job), "-q"), INPUT, "not what its unit wrote")
    (tiles / ".epoch").unlink()  # as of versions that kept no checksums of it
    refused(daskfs("run", write_job(tmp_path, job), "-q"), INPUT, "labels is encoded with pickle")
    shutil.rmtree(tiles / "labels")
    zarr_with(tiles / "labels", (N_SAMPLES,), tmp_path, dtype="<i4", fill_value=0)
    refused(daskfs("run", write_job(tmp_path, job), "-q"), INPUT, f"no readable Zarr array at {tiles / 'labels'}")
    assert not (tmp_path / MARK).exists()


# ------------------------------------------------------------------------------ YAML
def yaml_payloads(folder: Path) -> list[str]:
    path = folder / MARK
    return [
        f"!!python/object/apply:os.system ['touch \"{path}\"']",
        f"!!python/object/apply:builtins.open ['{path}', w]",
        f"!!python/object/new:builtins.open {{args: ['{path}', w]}}",
        f"!!python/object/apply:subprocess.check_output [[touch, '{path}']]",
        "!!python/name:os.system",
        "!!python/module:antigravity",
    ]


@pytest.mark.parametrize("number", range(6))
def test_yaml_builds_plain_values_only(tmp_path: Path, number: int) -> None:
    payload = yaml_payloads(tmp_path)[number]
    job = basic_job(tmp_path)
    good = write_job(tmp_path, job)
    refused(daskfs("plan", good, "--set", f"output.title={payload}"), USAGE, "not a YAML value", "python/")
    (tmp_path / "bad.yaml").write_text(f"{yaml.safe_dump(job)}\ntransform: {payload}\n")
    refused(daskfs("run", tmp_path / "bad.yaml"), USAGE, "bad.yaml is not YAML", "python/")
    (tmp_path / "study.yaml").write_text(f"datasets:\n  one: {payload}\n")
    refused(daskfs("compare", tmp_path / "study.yaml"), USAGE, "study.yaml is not YAML", "python/")
    assert not (tmp_path / MARK).exists()


def test_an_unsafe_loader_would_have_run_it(tmp_path: Path) -> None:
    yaml.unsafe_load(yaml_payloads(tmp_path)[1]).close()
    assert (tmp_path / MARK).exists()


@pytest.mark.parametrize("key", ["output.title", "data.exclude", "methods", "select.n_features", "graph.metric"])
def test_aliases_do_not_blow_up(tmp_path: Path, key: str) -> None:
    bomb = ["&a0 [x, x, x, x, x, x, x, x, x]", *(f"&a{i} [{', '.join([f'*a{i - 1}'] * 9)}]" for i in range(1, 30))]
    job = write_job(tmp_path, basic_job(tmp_path))
    refused(daskfs("plan", job, "--set", f"{key}=[{', '.join(bomb)}]"), USAGE, key)
