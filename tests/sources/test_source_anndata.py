"""AnnData's layout, as the package anndata writes it: matrices, labels, names, and what is damaged."""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import zarr

from daskfs.errors import InputError
from daskfs.sources import Source, SourceSpec, open_source
from daskfs.sources.labels import encode_labels
from daskfs.sources.state import changed_file, source_state
from tests.optional import anndata, h5py
from tests.optional import pandas as pd

N_CELLS, N_GENES = 12, 5
COUNTS = np.random.default_rng(0).poisson(1.0, size=(N_CELLS, N_GENES)).astype(np.float32)
TYPES = ["T", None, "B", "T", "", "B", None, "T", "B", "B", "T", "T"]


def annotated() -> Any:
    obs = pd.DataFrame(
        {
            "type": pd.Categorical(TYPES),
            "day": pd.Categorical([1, 2, None] * 4),
            "dose": pd.Categorical([0.5, 1.5, None] * 4),
            "plate": pd.array([3, None, 4] * 4, dtype="Int64"),
            "treated": pd.array([True, None, False] * 4, dtype="boolean"),
            "is_doublet": [True, False] * 6,
            "depth": np.where(np.arange(N_CELLS) == 3, np.nan, np.arange(N_CELLS) / 2),
            "cluster": np.arange(N_CELLS) % 3 - 1,
            "name": [f"n{row}" for row in range(N_CELLS)],
        },
        index=[f"cell{row}" for row in range(N_CELLS)],
    )
    symbols = pd.Categorical(["A", "B", "B", "C", "D"])
    var = pd.DataFrame({"symbol": symbols, "number": range(N_GENES)}, index=[f"ENS{i}" for i in range(N_GENES)])
    data = anndata.AnnData(sp.csr_matrix(np.log1p(COUNTS)), obs, var)
    data.layers["counts"] = sp.csc_matrix(COUNTS)
    data.layers["dense"] = COUNTS
    data.raw = anndata.AnnData(
        sp.csr_matrix(np.hstack([COUNTS, COUNTS])), obs, pd.DataFrame(index=[f"raw{i}" for i in range(2 * N_GENES)])
    )
    data.obsm["pca"] = COUNTS[:, :2].astype(np.float64)
    data.obsp["connectivities"] = sp.eye(N_CELLS, format="csr")
    return data


@cache
def h5ad_bytes() -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        annotated().write_h5ad(Path(folder) / "X.h5ad")
        return (Path(folder) / "X.h5ad").read_bytes()


def write_h5ad(folder: Path) -> Path:
    (folder / "X.h5ad").write_bytes(h5ad_bytes())
    return folder / "X.h5ad"


def write_h5(folder: Path) -> Path:
    return write_h5ad(folder).rename(folder / "X.h5")


def write_zarr(version: int) -> Callable[[Path], Path]:
    def write(folder: Path) -> Path:
        group = zarr.open_group(folder / "X.zarr", mode="w", zarr_format=version)  # type: ignore[arg-type]
        with anndata.settings.override(auto_shard_zarr_v3=False):
            anndata.io.write_elem(group, "/", annotated())
        return folder / "X.zarr"

    return write


WRITERS = {"h5ad": write_h5ad, "h5": write_h5, "zarr 2": write_zarr(2), "zarr 3": write_zarr(3)}


@pytest.fixture(scope="module", params=WRITERS)
def path(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return WRITERS[request.param](tmp_path_factory.mktemp("anndata"))


def opened(path: Path, **fields: Any) -> Source:
    return open_source(SourceSpec(source=str(path), **fields))


def whole(source: Source) -> Any:
    block = source.read_rows(0, source.info.n_samples)
    return block.toarray() if sp.issparse(block) else block


def test_matrices(path: Path) -> None:
    genes = tuple(f"ENS{i}" for i in range(N_GENES))
    expected: dict[str | None, tuple[np.ndarray, tuple[str, ...] | None]] = {
        None: (np.log1p(COUNTS), genes),
        "X": (np.log1p(COUNTS), genes),
        "layers/counts": (COUNTS, genes),
        "layers/dense": (COUNTS, genes),
        "raw/X": (np.hstack([COUNTS, COUNTS]), tuple(f"raw{i}" for i in range(2 * N_GENES))),
        "obsm/pca": (COUNTS[:, :2].astype(np.float64), None),
    }
    for array, (values, names) in expected.items():
        source = opened(path, array=array)
        assert (source.info.dtype, source.info.feature_names) == (values.dtype, names), array
        np.testing.assert_array_equal(whole(source), values, str(array))


def test_classes(path: Path) -> None:
    expected: dict[str, tuple[tuple[str, ...], list[int]]] = {
        "type": (("B", "T"), [4, 5]),  # an empty text is missing as well
        "day": (("1", "2"), [4, 4]),
        "dose": (("0.5", "1.5"), [4, 4]),
        "plate": (("3", "4"), [4, 4]),
        "treated": (("False", "True"), [4, 4]),
        "is_doublet": (("False", "True"), [6, 6]),
        "cluster": (("0", "1"), [4, 4]),  # -1 is unlabeled
        "name": (tuple(sorted(f"n{row}" for row in range(N_CELLS))), [1] * N_CELLS),
    }
    for column, (classes, counts) in expected.items():
        raw = opened(path, labels=column).read_labels()
        assert raw is not None
        labels = encode_labels(raw, N_CELLS, "auto")
        found = labels.task, labels.classes, np.bincount(labels.values[labels.is_labeled]).tolist()
        assert found == ("classification", classes, counts), column


def test_targets_times_and_weights(path: Path) -> None:
    source = opened(path, labels="depth", groups="_index")
    raw = source.read_labels()
    assert raw is not None
    np.testing.assert_array_equal(encode_labels(raw, N_CELLS, "auto").values, annotated().obs["depth"])
    np.testing.assert_array_equal(source.read_sample_column("groups"), np.argsort(np.argsort(annotated().obs_names)))
    with pytest.raises(InputError, match=r"depth has no time in row 3"):
        opened(path, times="depth").read_sample_column("times")


def test_names_of_a_column(path: Path) -> None:
    assert opened(path, feature_names="symbol").info.feature_names == ("A", "B", "B", "C", "D")


def test_refused(path: Path) -> None:
    cases: list[tuple[dict[str, Any], tuple[str, ...]]] = [
        ({"labels": "Type"}, ("column of obs 'Type'", "'type', 'day'", "Did you mean 'type'?")),
        ({"feature_names": "symbols"}, ("column of var 'symbols'", "Did you mean 'symbol'?")),
        ({"feature_names": "number"}, ("number", "int64", "list of text")),
        ({"array": "counts"}, ("no matrix 'counts'", "'X', 'layers/counts', 'layers/dense', 'raw/X', 'obsm/pca'")),
        ({"dims": ("obs", "var")}, ("data.dims", "leave it out")),
        ({"exclude": ("A",)}, ("data.exclude",)),
    ]
    for fields, parts in cases:
        with pytest.raises(InputError) as caught:
            opened(path, **fields)
        assert [part for part in parts if part not in str(caught.value)] == [], str(caught.value)


def test_anndata_without_x(tmp_path: Path) -> None:
    data = annotated()
    del data.X
    data.write_h5ad(tmp_path / "X.h5ad")
    with pytest.raises(InputError, match="no matrix 'X'; it has 'layers/counts'"):
        opened(tmp_path / "X.h5ad")


def changed(path: Path, change: Callable[[Any], object]) -> Path:
    with h5py.File(path, "r+") as file:
        change(file)
    return path


def replaced(name: str, values: Any) -> Callable[[Any], None]:
    def change(file: Any) -> None:
        attributes = dict(file[name].attrs)
        del file[name]
        file[name] = values
        if isinstance(file.get(name, getlink=True), h5py.HardLink):
            file[name].attrs.update(attributes)

    return change


BROKEN: dict[str, tuple[Callable[[Any], object], dict[str, Any], tuple[str, ...]]] = {
    "no obs": (lambda file: file.pop("obs"), {}, ("X.h5ad:obs", "not a table")),
    "obs of old": (replaced("obs", np.zeros(3, "i4,f4")), {}, ("X.h5ad:obs", "before 0.7", "write it again")),
    "obs too short": (replaced("obs/_index", ["a"]), {}, ("obs has 1 rows", "X has 12")),
    "var too short": (replaced("var/_index", ["a"]), {}, ("var has 1 rows", "X has 5 columns")),
    "no index": (lambda file: file["var"].pop("_index"), {}, ("X.h5ad:var", "no index '_index'")),
    "codes out of range": (
        replaced("obs/type/codes", np.full(12, 7, np.int8)),
        {"labels": "type"},
        ("X.h5ad:obs/type", "row 0 has category 7 of 3"),
    ),
    "codes that are no numbers": (
        replaced("obs/type/codes", np.ones(12)),
        {"labels": "type"},
        ("X.h5ad:obs/type", "float64"),
    ),
    "no categories": (
        lambda file: file["obs/type"].pop("categories"),
        {"labels": "type"},
        ("X.h5ad:obs/type", "'categories'"),
    ),
    "a mask of another length": (
        replaced("obs/plate/mask", np.zeros(3, bool)),
        {"labels": "plate"},
        ("X.h5ad:obs/plate", "(12,)", "(3,)"),
    ),
    "an unknown encoding": (
        lambda file: file["obs/type"].attrs.update({"encoding-type": "awkward-array"}),
        {"labels": "type"},
        ("X.h5ad:obs/type", "'awkward-array'", "'categorical'"),
    ),
    "categories in another file": (
        replaced("obs/type/categories", h5py.ExternalLink("other.h5", "/x")),
        {"labels": "type"},
        ("categories", "other.h5", "not followed"),
    ),
    "a name that is missing": (
        replaced("var/symbol/codes", np.array([0, -1, 1, 2, -1], np.int8)),
        {"feature_names": "symbol"},
        ("X.h5ad:var/symbol", "no name in row 1 and 1 more rows"),
    ),
}


@pytest.mark.parametrize("case", BROKEN)
def test_broken(case: str, tmp_path: Path) -> None:
    change, fields, parts = BROKEN[case]
    path = changed(write_h5ad(tmp_path), change)
    with pytest.raises(InputError) as caught:
        opened(path, **fields).read_labels()
    assert [part for part in parts if part not in str(caught.value)] == [], str(caught.value)


def test_text_that_may_be_missing(tmp_path: Path) -> None:
    """As nullable strings, a column of their own or the names of categories."""
    data = annotated()
    data.strings_to_categoricals()
    with anndata.settings.override(allow_write_nullable_strings=True):
        data.obs["text"] = pd.array(["a", None, "b"] * 4, dtype="string")
        data.obs["class"] = pd.Categorical(pd.array(["a", None, "b"] * 4, dtype="string"))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            anndata.io.write_h5ad(tmp_path / "X.h5ad", data, convert_strings_to_categoricals=False)
    for column in ("text", "class"):
        raw = opened(tmp_path / "X.h5ad", labels=column).read_labels()
        assert raw is not None
        assert encode_labels(raw, N_CELLS, "auto").classes == ("a", "b")


def test_categories_as_versions_before_0_8_keep_them(tmp_path: Path) -> None:
    def old(file: Any) -> None:
        codes, categories = file["obs/type/codes"][:], file["obs/type/categories"][:]
        del file["obs/type"]
        file["obs/__categories/type"] = categories
        file["obs/type"] = codes
        file["obs/type"].attrs["categories"] = file["obs/__categories/type"].ref
        del file.attrs["encoding-type"]

    raw = opened(changed(write_h5ad(tmp_path), old), labels="type").read_labels()
    assert raw is not None
    assert encode_labels(raw, N_CELLS, "auto").classes == ("B", "T")


@pytest.mark.parametrize("version", [2, 3])
def test_a_change_of_what_is_read_is_seen(version: int, tmp_path: Path) -> None:
    path = write_zarr(version)(tmp_path)
    spec = SourceSpec(source=str(path), labels="type")
    values = path / "var/_index/values"  # in a group of its own from pandas 3 on
    names = "var/_index/values" if values.exists() else "var/_index"
    for member in ("X/indices", "obs/type/codes", names):
        source = open_source(spec)
        planned = source_state(spec, source)
        assert changed_file(spec, planned) is None
        chunk = path / member / ("0" if version == 2 else "c/0")
        chunk.write_bytes(chunk.read_bytes())
        assert changed_file(spec, planned) == str(path), member
        assert changed_file(spec, planned, source) == str(path), member


def test_a_dense_matrix_in_zarr_serves_in_place(tmp_path: Path) -> None:
    source = opened(write_zarr(3)(tmp_path), array="layers/dense")
    assert source.in_place.path == tmp_path / "X.zarr" / "layers" / "dense"  # type: ignore[attr-defined]
