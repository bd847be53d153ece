"""Cells of shell commands are shown as in a terminal, ``$ command``, not in the notation of notebooks, ``!command``."""

from __future__ import annotations

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.transforms import SphinxTransform


class ShellCells(SphinxTransform):
    """Rewrite the input of cells in which every line is a shell command or its continuation."""

    default_priority = 400

    def apply(self) -> None:
        """Rewrite the inputs of one page."""
        for block in self.document.findall(nodes.literal_block):
            lines = block.astext().splitlines()
            if not lines or not lines[0].startswith("!"):
                continue
            text = "\n".join(f"$ {line[1:]}" if line.startswith("!") else line for line in lines)
            shown = nodes.literal_block(text, text, language="console")
            block.replace_self(shown)


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the transform."""
    app.add_transform(ShellCells)
    return {"parallel_read_safe": True}
