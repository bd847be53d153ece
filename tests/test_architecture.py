"""Imports go one way, and the package is light to import."""

from __future__ import annotations

import ast
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from tests.cases import each

PACKAGE = Path(__file__).parents[1] / "daskfs"
ALLOWED = {
    "errors": set(),
    "version": set(),
    "shown": set(),
    "places": {"errors", "shown"},
    "hdf5": {"errors", "places"},
    "kernels": {"errors"},
    "sources": {"errors", "hdf5", "kernels", "places", "shown"},
    "graph.spec": {"kernels"},
    "methods": {"errors", "kernels", "graph.spec"},
    "store": {"errors", "kernels", "places", "sources"},
    "graph": {"errors", "hdf5", "kernels", "places", "store", "graph.spec", "shown"},
    "scores": {"errors", "kernels", "methods", "store", "graph", "graph.spec"},
    "ranking": {"errors", "kernels", "methods", "store", "scores"},
    "evaluation": {"errors", "kernels", "sources", "store", "scores", "ranking"},
    "plan": {"errors", "kernels", "methods", "store", "graph", "graph.spec", "scores", "evaluation"},
    "execution": {"errors", "places", "plan", "store", "version", "shown"},
}
EDGE = {
    "comparison",
    "study",
    "report",
    "job",
    "planning",
    "mending",
    "pipeline",
    "rundir",
    "verification",
    "status",
    "inspection",
    "scoring",
    "estimators",
    "export",
    "cli",
    "__init__",
    "__main__",
}
API = {
    "graph.api": {"graph", "scoring", "planning"},
    "scores.api": {"scores", "scoring", "sources"},
    "evaluation.selection": {"evaluation", "scoring", "planning", "methods", "graph", "graph.spec"},
    "evaluation.api": {"evaluation", "estimators", "job", "methods", "plan", "planning", "scoring", "sources"},
}
"""The front doors of a layer call the edge, as the estimators do; so does an evaluation, which ranks as these do."""


def part_of(module: str) -> str:
    """Return the layer of a module inside the package: its folder, or its own name."""
    pieces = module.split(".")
    name = ".".join(pieces[:2])
    return name if name in {"graph.spec", *API} else pieces[0]


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def imports_of(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("daskfs."):
            found.add(part_of(node.module.removeprefix("daskfs.")))
    return found


@each("path", sorted(PACKAGE.rglob("*.py")))
def test_imports_go_one_way(path: Path) -> None:
    module = ".".join(path.relative_to(PACKAGE).with_suffix("").parts).removesuffix(".__init__")
    part = part_of(module)
    if part in EDGE:
        return
    allowed = ALLOWED[part.partition(".")[0]] | API[part] if part in API else ALLOWED[part]
    assert imports_of(path) - {part} <= allowed


def test_only_the_layout_spells_names_in_a_store() -> None:
    names = ("ranking.csv", "run.json", "report.html", "plan.json", "tiles.json")
    folders = (
        "bands/",
        "knn/",
        "edges/",
        "weights/",
        "given/",
        "unfinished/",
        "scores/",
        "distances/",
        "evaluation/",
        "records/",
    )
    for path in PACKAGE.rglob("*.py"):
        if path.name == "layout.py":
            continue
        strings = {n.value for n in ast.walk(tree_of(path)) if isinstance(n, ast.Constant) and isinstance(n.value, str)}
        assert not strings & set(names), path
        assert not [string for string in strings if string.startswith(folders)], path


def test_kernels_know_nothing_of_dask_or_zarr() -> None:
    for path in (PACKAGE / "kernels").glob("*.py"):
        for node in ast.walk(tree_of(path)):
            modules = (
                [a.name for a in node.names] if isinstance(node, ast.Import) else [getattr(node, "module", None) or ""]
            )
            if isinstance(node, ast.Import | ast.ImportFrom):
                assert not {m.split(".")[0] for m in modules} & {
                    "dask",
                    "distributed",
                    "zarr",
                    "logging",
                    "pydantic",
                }, path


@pytest.mark.cluster
def test_help_needs_no_heavy_import() -> None:
    code = (
        "import sys; sys.argv = ['daskfs', '--help']\n"
        "from daskfs.cli import main\n"
        "try:\n    main()\nexcept SystemExit:\n    pass\n"
        "heavy = {'numpy', 'scipy', 'sklearn', 'dask', 'distributed', 'zarr', 'pydantic'} & set(sys.modules)\n"
        "sys.exit(f'imported {heavy}' if heavy else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
