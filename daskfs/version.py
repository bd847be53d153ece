"""The version of the package, as its metadata say."""

from importlib.metadata import version

__version__ = version("daskfs")


def installed_version() -> str:
    """Return the version in this process; workers are asked for theirs."""
    return __version__
