"""Version of the package, from its metadata."""

from importlib.metadata import version

__version__ = version("daskfs")


def installed_version() -> str:
    """Return the version in this process; the driver compares those of the workers with its own."""
    return __version__
