"""Configuration of the documentation: ``sphinx-build -W docs build/docs`` builds it, without a network."""

import os
import shutil
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from daskfs import __version__

sys.path.insert(0, str(Path(__file__).parent / "_ext"))
os.environ["PATH"] = os.pathsep.join(
    [str(Path(sys.executable).parent), os.environ["PATH"]]
)  # the daskfs command in notebooks
_profiles = TemporaryDirectory()
_startup = Path(_profiles.name, "profile_default/startup")
_startup.mkdir(parents=True)
shutil.copy(Path(__file__).parent / "_ext/notebook_startup.py", _startup)
os.environ["IPYTHONDIR"] = _profiles.name
os.environ["COLUMNS"] = "96"
# of clusters that pages start themselves, as in tests: some versions of Python stop for good while stacks are sampled
os.environ["DASK_DISTRIBUTED__WORKER__PROFILE__ENABLED"] = "false"

project = "daskfs"
author = "the daskfs developers"
copyright = "2026, the daskfs developers"  # noqa: A001 - Sphinx's name
version = release = __version__

extensions = [
    "myst_nb",
    "numpydoc",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx_copybutton",
    "mathml",
    "shell_cells",
    "criterion",
    "reference_pages",
]
exclude_patterns = ["_ext", "compared/*", "papers/*"]  # the last two are included in pages
templates_path = ["_templates"]
html_static_path = ["_static"]
html_css_files = ["daskfs.css"]
html_theme = "pydata_sphinx_theme"
html_title = f"daskfs {release}"
html_show_sourcelink = False
html_sidebars = {page: [] for page in ("index", "how_do_i", "papers", "compared")}
html_theme_options = {
    "navbar_align": "left",
    "navbar_end": ["theme-switcher"],
    "navigation_depth": 2,
    "show_toc_level": 2,
    "secondary_sidebar_items": ["page-toc"],
    "header_links_before_dropdown": 8,
    "show_prev_next": False,
    "footer_start": ["copyright"],
    "footer_end": [],
    "pygments_light_style": "tango",
}

myst_enable_extensions = ["colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 4
suppress_warnings = ["misc.highlighting_failure", "mystnb.mime_priority"]  # the first: cells of %%writefile
nb_execution_mode = "cache"
nb_execution_in_temp = True  # files that a page writes do not lie among its sources
nb_execution_raise_on_error = True
nb_execution_show_tb = True
nb_execution_timeout = 300
nb_merge_streams = True
copybutton_exclude = ".linenos, .gp, .go"  # prompts and output

autodoc_typehints = "none"
autodoc_member_order = "bysource"
numpydoc_show_class_members = False
numpydoc_xref_param_type = False
maximum_signature_line_length = 88
