"""The version of the package, as its metadata say."""

from importlib.metadata import version

__version__ = version("daskfs")
