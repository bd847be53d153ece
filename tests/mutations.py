"""Mutations: does a test fail when a place in the program is wrong?

    python -m tests.mutations [--places 40] [--seed 0] [--first 0] [--all] [--list] [--reached FILE]

Draws places by a seed, and changes one at a time in a copy of the project: a comparison is inverted, a whole number is
one more, a statement is dropped. Before, the default tests run once on an unchanged copy and must pass; coverage notes
which test reaches which line. FILE keeps these notes for later runs. For each place, the tests that reach it run until
one fails; where they cannot tell, all default tests, and with --all those of every tier. Prints each place with the
test that found it, and the share that was found.
"""

from __future__ import annotations

import argparse
import ast
import difflib
import os
import random
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from coverage import CoverageData

ROOT = Path(__file__).parents[1]
FOLDERS = ("kernels", "graph", "store", "tiles", "stages", "plan", "evaluation", "criteria")
INVERTED = {
    ast.Lt: ">=",
    ast.LtE: ">",
    ast.Gt: "<=",
    ast.GtE: "<",
    ast.Eq: "!=",
    ast.NotEq: "==",
    ast.Is: "is not",
    ast.IsNot: "is",
    ast.In: "not in",
    ast.NotIn: "in",
}
EVERY_TIER = "not shared_data"
MOST_TESTS = 200
"""Of more tests that reach a line, those of the fewest branches run before all do."""


@dataclass(frozen=True)
class Mutation:
    """Text that takes the place of another one, at byte offsets of a file."""

    file: str
    line: int
    kind: str
    start: int
    end: int
    text: str

    def apply(self, root: Path) -> str:
        """Change the file below a folder, and return the change as a diff."""
        path = root / self.file
        before = path.read_bytes()
        after = before[: self.start] + self.text.encode() + before[self.end :]
        path.write_bytes(after)
        old, new = (part.decode().splitlines() for part in (before, after))
        changed = difflib.unified_diff(old, new, lineterm="", n=0)
        return "\n".join(line for line in changed if line[:2] not in ("--", "++"))


def mutations_of(file: str) -> Iterator[Mutation]:
    """Yield the mutations of a file in the order of their places."""
    source = (ROOT / file).read_bytes()
    starts = [0]
    for line in source.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))

    def replaced(kind: str, first: ast.AST, last: ast.AST, text: str, *, between: bool = False) -> Mutation:
        begin = (first.end_lineno, first.end_col_offset) if between else (first.lineno, first.col_offset)  # type: ignore[attr-defined]
        end = (last.lineno, last.col_offset) if between else (last.end_lineno, last.end_col_offset)  # type: ignore[attr-defined]
        start, stop = (starts[line - 1] + column for line, column in (begin, end))
        return Mutation(file, begin[0], kind, start, stop, text)

    for node in _computing(ast.parse(source)):
        if isinstance(node, ast.Compare) and len(node.ops) == 1:
            operator = f" {INVERTED[type(node.ops[0])]} "
            yield replaced("inverted comparison", node.left, node.comparators[0], operator, between=True)
        elif isinstance(node, ast.Constant) and type(node.value) is int:
            yield replaced("off by one", node, node, str(node.value + 1))
        elif isinstance(node, ast.AugAssign) or (isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)):
            yield replaced("dropped statement", node, node, "pass")


def _computing(tree: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes inside functions, but those of annotations, defaults and what errors say."""
    for function in ast.walk(tree):
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            for statement in function.body:
                yield from _below(statement)


def _below(node: ast.AST) -> Iterator[ast.AST]:
    if isinstance(node, ast.Raise | ast.FunctionDef | ast.AsyncFunctionDef | ast.JoinedStr | ast.Assert):
        return  # functions inside functions are walked on their own
    yield node
    for name, value in ast.iter_fields(node):
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST) and name != "annotation":
                yield from _below(child)


def drawn(n_places: int, seed: int) -> list[Mutation]:
    """Return places of the program, as many of each kind as of the others."""
    files = sorted(str(path.relative_to(ROOT)) for name in FOLDERS for path in (ROOT / "daskfs" / name).rglob("*.py"))
    kinds: dict[str, list[Mutation]] = {}
    for mutation in (mutation for file in files for mutation in mutations_of(file)):
        kinds.setdefault(mutation.kind, []).append(mutation)
    generator = random.Random(seed)
    shuffled = [generator.sample(found, len(found)) for _, found in sorted(kinds.items())]
    return [mutation for together in zip(*shuffled, strict=False) for mutation in together][:n_places]


@contextmanager
def project() -> Iterator[Path]:
    """Yield a copy of the files that are under version control."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    with TemporaryDirectory() as folder:
        copy = Path(folder) / "project"
        for name in filter(None, listed.split("\0")):
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, copy / name)
        yield copy


def tested(root: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """Run tests in a copy of the project."""
    command = [sys.executable, "-m", "pytest", "-q", "--no-header", "-p", "no:cacheprovider", *options]
    return subprocess.run(
        command, cwd=root, env={**os.environ, "PYTHONPATH": str(root)}, capture_output=True, text=True
    )


def note_reached(file: Path) -> None:
    """Write which test of the default tier reaches which line of the unchanged project.

    Raises
    ------
    SystemExit
        Where a test fails although nothing is changed.
    """
    with project() as root:
        ended = tested(root, "--cov", "--cov-context=test", "--cov-report=")
        if ended.returncode:
            sys.exit(f"tests fail where nothing is changed:\n{ended.stdout[-4000:]}")
        shutil.copy(root / ".coverage", file)


def tests_of(reached: CoverageData, lengths: dict[str, int], mutation: Mutation) -> tuple[list[str], bool]:
    """Return default tests that reach the line of a mutation, those of few lines first, and whether no other default
    test can find it.
    """
    lines = [reached.contexts_by_lineno(file) for file in reached.measured_files() if file.endswith(mutation.file)]
    contexts = {context for found in lines for context in found.get(mutation.line, [])}
    tests = sorted((context for context in contexts if "|" in context), key=lambda context: lengths[context])
    named = list(dict.fromkeys(context.rpartition("|")[0] for context in tests))
    return named[:MOST_TESTS], 0 < len(named) <= MOST_TESTS and "" not in contexts


def lengths_of_tests(file: Path) -> dict[str, int]:
    """Return how many branches each test takes."""
    counted = "select context, count(*) from arc join context on context.id = context_id group by context_id"
    with closing(sqlite3.connect(file)) as notes:
        return dict(notes.execute(counted).fetchall())


def found_by(mutation: Mutation, reached: CoverageData, lengths: dict[str, int], *, is_all: bool) -> tuple[str, str]:
    """Return the change, and the first test that fails with it, an empty name where none does."""
    tests, are_enough = tests_of(reached, lengths, mutation)
    runs = [["-n", "0", *tests]] if tests else []  # further processes take longer to start than these tests to run
    if is_all:
        runs.append(["-m", EVERY_TIER])
    elif not are_enough:
        runs.append([])
    with project() as root:
        changed = mutation.apply(root)
        for options in runs:
            ended = tested(root, "-x", *options)
            if ended.returncode:
                named = [line for line in ended.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))]
                return changed, named[0] if named else f"pytest ended with {ended.returncode}"
    return changed, ""


def main(arguments: Sequence[str] | None = None) -> None:
    """Draw and try from the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--places", type=int, default=40)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--first", type=int, default=0, help="go on from this place")
    parser.add_argument("--all", action="store_true", help="tests of every tier")
    parser.add_argument("--list", action="store_true", help="only print the places")
    parser.add_argument("--reached", type=Path, help="where it is kept which test reaches which line")
    given = parser.parse_args(arguments)
    places = dict(enumerate(drawn(given.places, given.seed)[given.first :], given.first))
    if given.list:
        print(*(f"{number}: {place.file}:{place.line} {place.kind}" for number, place in places.items()), sep="\n")
        return
    n_found = 0
    with TemporaryDirectory() as folder:
        file = given.reached or Path(folder) / "reached"
        if not file.exists():
            note_reached(file)
        reached = CoverageData(str(file))
        reached.read()
        lengths = lengths_of_tests(file)
        for number, place in places.items():
            print(f"{number}: {place.file}:{place.line} {place.kind}", flush=True)
            changed, test = found_by(place, reached, lengths, is_all=given.all)
            n_found += bool(test)
            print(f"{changed}\n   {test or 'NOT FOUND'}", flush=True)
    print(f"{n_found} of {len(places)} found: {100 * n_found / len(places):.0f} %")


if __name__ == "__main__":
    main()
