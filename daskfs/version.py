"""Version of the package, from its metadata."""

from importlib.metadata import version

__version__ = version("daskfs")

CHANGED_SINCE = {
    "0.1.0": (
        "evaluates inductively by default, beside baselines and by balanced accuracy, searches graphs approximately "
        "from smaller sizes on, and weights rows in z-scores"
    ),
    "0.2.0": "draws other orders for RandomOrder, writes 'labeled' for 'labelled', and centers columns more exactly",
}
"""By earlier version, how its results differ from today's; its runs are read but not resumed."""


def installed_version() -> str:
    """Return the version in this process; the driver compares those of the workers with its own."""
    return __version__
