"""Directive ``{generated} NAME``: reference text made from the package, so that it cannot differ from it.

Names: ``job-keys`` (from the JSON Schema of job files), ``command-line`` (from the ``daskfs`` command), ``exit-codes``.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from daskfs.cli import EPILOG
from daskfs.errors import ExitCode
from daskfs.job.schema import json_schema

LINKED = {"methods": "[methods](../methods/index.md)", "metric": "a [metric](../guide/metrics.md)"}
CODES = {
    ExitCode.DONE: "Done, or nothing was left to do.",
    ExitCode.FAILED: "Failed for another reason, such as a full disk or an error in a unit.",
    ExitCode.USAGE: "The command line or the job file is wrong, or a stage cannot fit in a worker's memory.",
    ExitCode.INPUT: "The data are refused, or a run or tile store is damaged, of another version or of another job.",
    ExitCode.CLUSTER: "No worker arrived, all left, the scheduler was lost, or a worker has other versions; or another "
    "daskfs process uses the output.",
    ExitCode.INTERRUPTED: "Stopped by a signal. The same command resumes.",
}


def _table(header: tuple[str, ...], rows: list[tuple[str, ...]]) -> Iterator[str]:
    for cells in (header, ("---",) * len(header), *rows):
        yield f"| {' | '.join(cell.replace('|', '&#124;').replace(chr(10), ' ') for cell in cells)} |"
    yield ""


def _kind(entry: Mapping[str, Any]) -> str:
    """Return the values that a key takes, in words."""
    for combined in ("anyOf", "oneOf"):
        if combined in entry:
            return " or ".join(dict.fromkeys(_kind(one) for one in entry[combined]))
    if "$ref" in entry:
        return "mapping"
    if "enum" in entry or "const" in entry:
        return ", ".join(f"`{value}`" for value in entry.get("enum", [entry.get("const")]))
    kind = {"string": "text", "array": "list", "object": "mapping", "boolean": "true or false"}.get(
        entry.get("type", "any"), entry.get("type", "any")
    )
    return f"list of {_kind(entry['items'])}" if kind == "list" and entry.get("items") else kind


def _rows(keys: Mapping[str, Any], required: list[str]) -> list[tuple[str, ...]]:
    return [
        (
            f"`{key}`",
            LINKED.get(key, _kind(entry)),
            "required" if key in required else f"`{json.dumps(entry.get('default'))}`",
            entry.get("description", ""),
        )
        for key, entry in keys.items()
    ]


def _block_of(entry: Mapping[str, Any]) -> str | None:
    """Return the name of the block that a key holds, or None."""
    options = [entry, *entry.get("anyOf", ()), entry.get("additionalProperties")]
    references = [option["$ref"] for option in options if isinstance(option, Mapping) and "$ref" in option]
    return references[0].rpartition("/")[2] if references else None


def job_keys() -> Iterator[str]:
    """Yield the keys of a job, block by block."""
    schema = json_schema()
    header = ("key", "value", "default", "meaning")
    yield from ("## Top level", "")
    rows = []
    for name, _, default, meaning in _rows(schema["properties"], schema["required"]):
        key = name.strip("`")
        block = _block_of(schema["properties"][key])
        kind = f"[mapping](#{key})" if block else LINKED.get(key, _kind(schema["properties"][key]))
        text = meaning or schema["$defs"][block]["description"].split("\n\n")[0] if block else meaning
        rows.append((name, kind, "" if block and default != "required" else default, text))
    yield from _table(header, rows)
    todo = [(key, entry) for key, entry in schema["properties"].items() if _block_of(entry)]
    while todo:
        path, entry = todo.pop(0)
        block = schema["$defs"][_block_of(entry)]
        yield from (f"## `{path}`", "", block["description"], "")
        yield from _table(header, _rows(block["properties"], block.get("required", [])))
        todo = [(f"{path}.{key}", one) for key, one in block["properties"].items() if _block_of(one)] + todo


def command_line() -> Iterator[str]:
    """Yield the verbs with their arguments and options, as typer describes them."""
    words = [sys.executable, "-m", "typer", "daskfs.cli", "utils", "docs", "--name", "daskfs"]
    text = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    described = (
        text.partition("## `daskfs ")[2].replace(EPILOG, "").replace("* `--help`: Show this message and exit.\n", "")
    )
    yield from f"## `daskfs {described}".splitlines()


def exit_codes() -> Iterator[str]:
    """Yield the exit codes."""
    yield from _table(("code", "meaning"), [(str(int(code)), CODES[code]) for code in ExitCode])


GENERATED = {"job-keys": job_keys, "command-line": command_line, "exit-codes": exit_codes}


class Generated(SphinxDirective):
    """Insert generated Markdown."""

    required_arguments = 1
    option_spec: ClassVar[dict[str, Any]] = {}

    def run(self) -> list[nodes.Node]:
        """Return the parsed text."""
        return self.parse_text_to_nodes("\n".join(GENERATED[self.arguments[0]]()), allow_section_headings=True)


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the directive."""
    app.add_directive("generated", Generated)
    return {"parallel_read_safe": True}
