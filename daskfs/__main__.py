"""``python -m daskfs``."""

from daskfs.cli import main

main()
