"""Rendering of reports as single HTML files, without scripts or network resources."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from daskfs.report import values
from daskfs.report.comparison_view import comparison_page, format_p
from daskfs.report.evaluation_view import amount_in_words
from daskfs.report.model import Report
from daskfs.report.plots import THEME
from daskfs.report.table_cells import heat_cell, number_cell
from daskfs.report.view import page

if TYPE_CHECKING:
    from jinja2 import Environment


def render_report(summary: Mapping[str, Any]) -> str:
    """Render the summary of a run as a self-contained HTML page; the same summary gives the same text.

    Every part of a :class:`Report` may be missing or ``None``; the page then says so or leaves the section out. Numbers
    may be NaN or infinite. All text is escaped.

    Raises
    ------
    StoreError
        If a part is of another type.
    """
    view = page(Report.read(values.plain(summary), "the summary"))
    return _environment().get_template("template.html.j2").render(**view, theme=THEME)


def render_comparison(summary: Mapping[str, Any]) -> str:
    """Render the result of :func:`daskfs.runs.comparison.compare` as a self-contained HTML page, all text escaped."""
    view = comparison_page(values.plain(summary))
    return _environment().get_template("comparison.html.j2").render(**view, theme=THEME)


def _breakable(name: str) -> Any:
    """Return a name as HTML in which lines may break between its words only."""
    from markupsafe import Markup, escape

    words = re.split(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[ _.=-])", name)
    return Markup("<wbr>").join(map(escape, words))


@lru_cache(maxsize=1)
def _environment() -> Environment:
    from jinja2 import Environment, PackageLoader, StrictUndefined
    from markupsafe import Markup

    environment = Environment(
        loader=PackageLoader("daskfs.report", ""),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    formats = ("number", "count", "percent", "bytes", "seconds", "text")
    environment.filters |= {name: getattr(values, f"format_{name}") for name in formats}
    environment.filters |= {"cell": number_cell, "heat": heat_cell, "p": format_p, "amount": amount_in_words}
    environment.filters["breakable"] = _breakable
    # Only for figures of daskfs.report.plots, whose text is already escaped.
    environment.filters["figure"] = Markup
    return environment
