"""Rendering of reports as single HTML files, without scripts or network resources."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from daskfs.report.comparison_view import comparison_page
from daskfs.report.plots import THEME
from daskfs.report.values import as_mapping, plain
from daskfs.report.view import page

if TYPE_CHECKING:
    from jinja2 import Environment

_TEMPLATE = "template.html.j2"
_COMPARISON = "comparison.html.j2"


def render_report(summary: Mapping[str, Any]) -> str:
    """Render the summary of a run as a self-contained HTML page.

    Parameters
    ----------
    summary
        JSON-able description of the run. Every part may be missing or ``None``; the page then says so or
        leaves the section out. Numbers may be NaN or infinite. All text is escaped.

    Returns
    -------
    str
        The page. The same summary gives the same text.
    """
    view = page(as_mapping(plain(summary)))
    return _environment().get_template(_TEMPLATE).render(**view, theme=THEME)


def render_comparison(summary: Mapping[str, Any]) -> str:
    """Render a comparison of several runs as a self-contained HTML page; all text is escaped.

    Parameters
    ----------
    summary
        Result of :func:`daskfs.runs.comparison.compare`.
    """
    view = comparison_page(as_mapping(plain(summary)))
    return _environment().get_template(_COMPARISON).render(**view, theme=THEME)


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
    # Only for figures of daskfs.report.plots, whose text is already escaped.
    environment.filters["figure"] = Markup
    return environment
