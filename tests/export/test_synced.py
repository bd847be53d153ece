"""What an export leaves survives a loss of power: contents are synced, and then the folders of their names."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.export.runs import Ranked
from tests.export.test_into import FILES, written
from tests.torture.power import IS_NAME, Disk
from tests.torture.tracing import daskfs_command, traced

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.long,
    pytest.mark.filterwarnings("ignore:Writing zarr v2 data"),
    pytest.mark.filterwarnings("ignore:Consolidated metadata is currently not part"),
]
EXPORTS = {
    "npz": ["out.npz"],
    "parquet": ["out.parquet"],
    "zarr": ["out.zarr", "--to", "zarr"],
    "anndata": ["out.h5ad"],
    "anndata in Zarr": ["out.zarr"],
    "data": ["out.zarr", "--to", "zarr", "--data", "FisherScore"],
}


def check_synced(command: list[str], folder: Path) -> None:
    """Run a command, and check its writes below a folder."""
    if shutil.which("strace") is None:
        pytest.skip("strace is not installed")
    steps, disk = traced(command, folder), Disk()
    there = {str(path) for path in folder.rglob("*")}
    for step in steps:
        disk.apply(step)
    left = {name: disk.files[number] for name, number in disk.names.items() if name in there}
    assert left
    assert [name for name in left if disk.synced.get(disk.names[name]) != bytes(left[name])] == []
    last = {step.path: place for place, step in enumerate(steps) if step.kind == "sync"}
    named = {
        step.to if step.kind in ("rename", "link") else step.path: place
        for place, step in enumerate(steps)
        if step.kind in IS_NAME and step.kind not in ("unlink", "rmdir")
    }
    assert [
        name for name, place in named.items() if name in there and last.get(str(Path(name).parent), -1) < place
    ] == []


@pytest.mark.parametrize("kind", EXPORTS)
def test_an_export_is_synced(dense: Ranked, tmp_path: Path, kind: str) -> None:
    name, *options = EXPORTS[kind]
    check_synced(daskfs_command("export", dense.run, tmp_path / name, *options, "-q"), tmp_path)


@pytest.mark.parametrize("name", FILES)
def test_an_addition_to_anndata_is_synced(dense: Ranked, tmp_path: Path, name: str) -> None:
    path = written(tmp_path, name, dense)
    check_synced(daskfs_command("export", dense.run, "--into", path, "-q"), tmp_path)
