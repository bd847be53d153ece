"""Imports go one way, and the package is light to import."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from daskfs.errors import StoreError
from daskfs.stages.kind import all_kinds, kind_of
from daskfs.store import layout
from tests.cases import each, parsed

PACKAGE = Path(__file__).parents[1] / "daskfs"
LAYERS = (
    "__main__",
    "__init__",
    "cli",
    "api",
    "score_functions",
    "estimators",
    "export",
    "runs",
    "report",
    "job",
    "evaluation",
    "plan",
    "execution",
    "ranking",
    "criteria",
    "graph",
    "tiles",
    "stages",
    "store",
    "sources",
    "storage",
    "kernels",
    "data_block",
    "block",
    "run_warning",
    "errors",
    "logs",
    "redaction",
    "version",
)
"""From the top floor down: a part of the package imports only from parts below it, also inside functions."""


def part_of(module: str) -> str:
    """Return the part of the package that a module belongs to: its folder, or its own name."""
    return module.split(".")[0]


@cache
def tree_of(path: Path) -> ast.Module:
    return parsed(path)


def module_of(path: Path) -> str:
    """Return the name of a module below the package."""
    return ".".join(path.relative_to(PACKAGE).with_suffix("").parts).removesuffix(".__init__")


@cache
def imports_of(path: Path) -> frozenset[str]:
    """Return the modules of the package that a file imports, wherever it does."""
    found = set()
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module)
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith("import_module"):
            found |= {one.value for one in node.args if isinstance(one, ast.Constant) and isinstance(one.value, str)}
    return frozenset(name.removeprefix("daskfs.") for name in found if name.startswith("daskfs.") and _is_module(name))


def _is_module(name: str) -> bool:
    path = PACKAGE.parent.joinpath(*name.split("."))
    return path.with_suffix(".py").is_file() or path.is_dir()


def test_every_part_is_a_layer() -> None:
    assert {part_of(module_of(path)) for path in PACKAGE.rglob("*.py")} == set(LAYERS)


@each("path", sorted(PACKAGE.rglob("*.py")))
def test_imports_go_down(path: Path) -> None:
    own = part_of(module_of(path))
    below = LAYERS[LAYERS.index(own) + 1 :]
    upward = {name for name in imports_of(path) if (part := part_of(name)) != own and part not in below}
    assert not upward, f"{own} lies below what it imports: {sorted(upward)}"


def test_no_files_import_each_other() -> None:
    graph = {module_of(path): imports_of(path) - {module_of(path)} for path in PACKAGE.rglob("*.py")}
    modules = {name: {other for other in others if graph.get(other)} for name, others in graph.items()}
    while modules:
        ends = {name for name, others in modules.items() if not others}
        assert ends, f"files in a circle: {sorted(modules)[:10]}"
        modules = {name: others - ends for name, others in modules.items() if name not in ends}


def test_every_kind_of_stage_is_found_by_its_reference() -> None:
    kinds = list(all_kinds())
    assert len({kind.name for kind in kinds}) == len(kinds)
    for kind in kinds:
        assert kind_of(kind.reference) is kind
        assert kind.run.__module__ == kind.module, f"{kind.name} does not stand beside its unit function"


@each(
    "reference",
    [
        "os:system",
        "daskfs.graph.edges:mark_edges",
        "daskfs.graph.edges:MISSING_STAGE",
        "daskfs.graph.missing:EDGES_STAGE",
        "daskfs.runs.pipeline:EDGES_STAGE",
        "daskfs.graph...os:EDGES_STAGE",
        "tests.execution.staged:EDGES_STAGE",
        "",
    ],
)
def test_a_plan_refers_to_nothing_else(reference: str) -> None:
    """A plan lies in a directory that others may write to."""
    with pytest.raises(StoreError, match="which this daskfs does not have"):
        kind_of(reference)


def test_what_a_plan_refers_to_is_not_imported_first() -> None:
    code = (
        "import sys\nfrom daskfs.errors import StoreError\nfrom daskfs.stages.kind import kind_of\n"
        "try:\n    kind_of('daskfs.runs.pipeline:RUN_STAGE')\nexcept StoreError:\n    pass\n"
        "sys.exit('daskfs.runs.pipeline' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_only_the_layout_spells_names_in_a_store() -> None:
    names = ("ranking.csv", "run.json", "report.html", "plan.json", "tiles.json")
    folders = tuple(f"{name}/" for name in layout.FOLDERS)
    for path in PACKAGE.rglob("*.py"):
        if path.name == "layout.py":
            continue
        strings = {n.value for n in ast.walk(tree_of(path)) if isinstance(n, ast.Constant) and isinstance(n.value, str)}
        assert not strings & set(names), path
        assert not [string for string in strings if string.startswith(folders)], path


PRONOUNS = {"found", "own", "known", "wanted", "kept", "held", "given", "asked", "seen", "some", "told"}
PARTICIPLE = re.compile(r"_[a-z]+(ed|en|wn|lt|ld|nt|de|id|ft|ad)")
NOUNS = {"_client"}


def test_values_are_named_for_what_they_hold() -> None:
    """A participle says what happened to a value, and not what it is; a function is a verb and its object."""
    values, functions = [], []
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(tree_of(path)):
            value = node.arg if isinstance(node, ast.arg) else ""
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                value = node.id
            if value in PRONOUNS:
                values.append(f"{path.name}: {value}")
            elif isinstance(node, ast.FunctionDef) and PARTICIPLE.fullmatch(node.name) and node.name not in NOUNS:
                functions.append(f"{path.name}:{node.name}")
    assert len(values) <= 20, values
    assert len(functions) <= 6, functions


def test_a_constant_has_one_value() -> None:
    """So that a search for its name finds one; every family of criteria lists its own."""
    values: dict[str, set[str]] = {}
    for path in PACKAGE.rglob("*.py"):
        for node in tree_of(path).body:
            if (
                isinstance(node, ast.Assign)
                and isinstance(name := node.targets[0], ast.Name)
                and re.fullmatch("[A-Z_]{2,}", name.id)
            ):
                values.setdefault(name.id, set()).add(ast.unparse(node.value))
    assert {name for name, several in values.items() if len(several) > 1} == {"CRITERIA"}


def test_tests_lie_on_the_path_of_their_module() -> None:
    """A test file named as one module of its folder, or of a folder below, lies beside it: the path of one is that of
    the other. Tests of whole jobs, in ``cli`` and ``api`` say, have names of their own.
    """
    tests = Path(__file__).parent
    for path in tests.rglob("test_*.py"):
        part = path.relative_to(tests).parts[0]
        modules = [*(PACKAGE / part).rglob(f"{path.stem.removeprefix('test_')}.py")]
        if len(modules) == 1:
            assert path.parent.relative_to(tests) == modules[0].parent.relative_to(PACKAGE), path


def test_kernels_know_nothing_of_dask_or_zarr() -> None:
    for path in (PACKAGE / "kernels").rglob("*.py"):
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
        # pydantic alone is there: options follow from the fields of a block
        "heavy = {'numpy', 'scipy', 'sklearn', 'dask', 'distributed', 'zarr'} & set(sys.modules)\n"
        "sys.exit(f'imported {heavy}' if heavy else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
