"""The version of the package, as its metadata say."""

from importlib.metadata import version

__version__ = version("daskfs")

CHANGED_SINCE = {
    "0.1.0": (
        "evaluates inductively by default, beside baselines and by balanced accuracy, searches graphs approximately "
        "from smaller sizes on, and weights rows in z-scores"
    )
}
"""What makes results differ from those of an earlier version, whose runs are read but not continued."""


def installed_version() -> str:
    """Return the version in this process; workers are asked for theirs."""
    return __version__
