"""Documents agree with the code; ``python -m tests.test_docs`` writes the tables of ``docs/inside``."""

from __future__ import annotations

import ast
import doctest
import inspect
import re
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

from daskfs import make_job, make_study
from daskfs.criteria.registry import criteria
from daskfs.errors import JobError
from daskfs.stages.kind import all_kinds
from daskfs.store import layout
from tests.cases import parsed
from tests.test_architecture import LAYERS, PACKAGE

ROOT = PACKAGE.parent
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "workflows/README.md", *sorted(DOCS.rglob("*.md"))]
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


TABLES: dict[str, dict[str, tuple[tuple[str, ...], Callable[[], list[tuple[str, ...]]]]]] = {
    "architecture": {"layers": (("part", "content"), layers)},
    "stages": {
        "stages": (("stage", "module", "a unit's work"), stages),
        "arrays": (("array", "shape, dtype, content"), arrays),
    },
}
"""Generated tables, by the page of ``docs/inside`` that holds them and by name."""


def page_of(stem: str) -> Path:
    return DOCS / f"inside/{stem}.md"


def generated(stem: str) -> str:
    """Return a page with its tables as the code has them."""
    page = page_of(stem).read_text()
    for name, (header, rows) in TABLES[stem].items():
        lines = [header, ["---"] * len(header), *rows()]
        table = "\n".join(f"| {' | '.join(line)} |" for line in lines)
        begin, end = f"<!-- {name} -->", f"<!-- end of {name} -->"
        assert page.count(begin) == page.count(end) == 1
        page = f"{page.split(begin)[0]}{begin}\n{table}\n{end}{page.split(end)[1]}"
    return page


def test_tables_are_those_of_the_code() -> None:
    for stem in TABLES:
        assert page_of(stem).read_text() == generated(stem), "run python -m tests.test_docs"


def test_tables_are_whole() -> None:
    """Each kind of stage has a row, and each array whose shape ``layout.py`` states."""
    assert len(stages()) == len(list(all_kinds()))
    assert all(all(row) for tables in TABLES.values() for _, rows in tables.values() for row in rows())
    assert len(arrays()) == len(re.findall(r"^[A-Z_]+ = .*# \(|^    \".*# \(", inspect.getsource(layout), re.M))


def test_each_criterion_has_a_page() -> None:
    pages = {path.stem for path in (DOCS / "methods").glob("*.md")}
    assert pages == {*criteria(), "Consensus", "index"}


def test_files_that_documents_name_exist() -> None:
    for page in PAGES:
        for name in re.findall(r"`((?:daskfs|tests|docs|workflows)/[\w./-]+)`", page.read_text()):
            assert (ROOT / name).exists(), f"{page.name} names {name}"


def test_links_lead_to_files() -> None:
    """Sphinx checks those within docs, too; README and the folders are read on their own."""
    for page in PAGES:
        for target in re.findall(r"\]\(([^)\s#:]+)(?:#[^)]*)?\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_blocks_are_run_or_checked() -> None:
    """Code is in cells, which the build executes; test_commands tries what is in blocks of sh."""
    for page in PAGES:
        text = page.read_text()
        languages = {language for language in re.findall(r"^`{3,}([^`\n]+)$", text, re.M) if language[0] != "{"}
        assert languages <= {"yaml", "sh", "text", "pycon"}, page.name
        assert "skip-execution" not in text, page.name
        assert "pycon" not in languages or page.name == "README.md", page.name


def yaml_blocks() -> list[tuple[str, dict[str, Any]]]:
    return [
        (page.name, yaml.safe_load(block))
        for page in PAGES
        for block in re.findall(r"^```yaml\n(.*?)^```$", page.read_text(), re.M | re.S)
    ]


def test_blocks_of_yaml_are_jobs() -> None:
    whole = {"data": {"source": "sklearn:digits"}, "methods": ["FisherScore"], "output": {"path": "runs/digits"}}
    assert yaml_blocks()
    for page, block in yaml_blocks():
        try:
            if "datasets" in block:
                make_study({key: value for key, value in whole.items() if key != "data"} | block)
            else:
                make_job(whole | block | {"data": whole["data"] | block.get("data", {})})
        except JobError as error:
            error.add_note(page)
            raise


def test_extras_that_documents_name_exist() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    for page in PAGES:
        for named in re.findall(r"(?:daskfs|\.)\[([\w,-]+)\]", page.read_text()):
            assert set(named.split(",")) <= set(extras), page.name


def test_readme_fits_a_screen() -> None:
    lines = (ROOT / "README.md").read_text().splitlines()
    assert len(lines) <= 60
    assert max(map(len, lines)) <= 100
    assert sum(line.startswith("![") for line in lines) == 1


def test_example_of_readme() -> None:
    (example,) = re.findall(r"^```pycon\n(.*?)^```$", (ROOT / "README.md").read_text(), re.M | re.S)
    parsed_example = doctest.DocTestParser().get_doctest(example, {}, "README.md", None, None)
    doctest.DebugRunner().run(parsed_example)
    assert len(parsed_example.examples) > 5


if __name__ == "__main__":
    for stem in TABLES:
        page_of(stem).write_text(generated(stem))
