"""``docs/architecture.md``: its tables are generated from the code; ``python -m tests.test_docs`` writes them again."""

from __future__ import annotations

import ast
import inspect
import re
from pathlib import Path

from daskfs.criteria.registry import criteria
from daskfs.stages.kind import all_kinds
from daskfs.store import layout
from tests.cases import parsed
from tests.test_architecture import LAYERS, PACKAGE

PAGE = PACKAGE.parent / "docs" / "architecture.md"
ROW = re.compile(r'^([A-Z_]+) = \(?\s*"([^"]+)"\s*#\s*(\([^\n]*)', re.M)
"""An array of ``store/layout.py``: its constant, its name in the store, and a comment that begins with its shape."""


def summary(text: str | None) -> str:
    """Return the first paragraph of a docstring on one line, without roles of Sphinx."""
    line = " ".join((text or "").split("\n\n")[0].split())
    return re.sub(r":\w+:`~?(?:[\w.]*\.)?(\w+)`", r"`\1`", line).replace("``", "`").replace("|", "\\|")


def layers() -> list[tuple[str, ...]]:
    """Return the parts of the package from the top down, and what each is."""
    found = list[tuple[str, ...]]()
    for name in LAYERS:
        path = PACKAGE / name / "__init__.py"
        is_folder = path.exists()
        doc = ast.get_docstring(parsed(path if is_folder else PACKAGE / f"{name}.py"))
        found.append((f"`{name}/`" if is_folder else f"`{name}.py`", summary(doc)))
    return found


def stages() -> list[tuple[str, ...]]:
    """Return the kinds of stages by module, and what a unit of each does."""
    kinds = sorted(all_kinds(), key=lambda kind: (kind.module, kind.name))
    return [
        (f"`{kind.name}`", f"`{kind.module.removeprefix('daskfs.')}`", summary(inspect.getdoc(kind.run)))
        for kind in kinds
    ]


def arrays() -> list[tuple[str, ...]]:
    """Return the arrays of stores: their names, and their shape, dtype and content."""
    text = re.sub(r"\n# (?![A-Z])", " ", inspect.getsource(layout))  # comments that run over two lines
    return [(f"`{name}`", summary(comment)) for _, name, comment in ROW.findall(text)]


TABLES = {
    "layers": (("part", "content"), layers),
    "stages": (("stage", "module", "a unit's work"), stages),
    "arrays": (("array", "shape, dtype, content"), arrays),
}


def generated(page: str) -> str:
    """Return the page with its tables as the code has them."""
    for name, (header, rows) in TABLES.items():
        lines = [header, ["---"] * len(header), *rows()]
        table = "\n".join(f"| {' | '.join(line)} |" for line in lines)
        begin, end = f"<!-- {name} -->", f"<!-- end of {name} -->"
        assert page.count(begin) == page.count(end) == 1
        page = f"{page.split(begin)[0]}{begin}\n{table}\n{end}{page.split(end)[1]}"
    return page


def test_tables_are_those_of_the_code() -> None:
    page = PAGE.read_text()
    assert page == generated(page), "run python -m tests.test_docs"


def test_tables_are_whole() -> None:
    """Each kind of stage has a row, and each array whose shape ``layout.py`` states."""
    assert len(stages()) == len(list(all_kinds()))
    assert all(all(row) for _, rows in TABLES.values() for row in rows())
    assert len(arrays()) == len(re.findall(r"^[A-Z_]+ = .*# \(|^    \".*# \(", inspect.getsource(layout), re.M))


def test_readme_has_a_row_for_each_criterion() -> None:
    rows = re.findall(r"^\| `(\w+)` \| ", (PACKAGE.parent / "README.md").read_text(), re.M)
    assert set(criteria()) <= set(rows)


def test_files_that_documents_name_exist() -> None:
    root = PACKAGE.parent
    for page in (root / "README.md", root / "CONTRIBUTING.md", *(root / "docs").glob("*.md")):
        for name in re.findall(r"`((?:daskfs|tests|docs|workflows)/[\w./-]+)`", page.read_text()):
            assert Path(root, name).exists(), f"{page.name} names {name}"


if __name__ == "__main__":
    PAGE.write_text(generated(PAGE.read_text()))
