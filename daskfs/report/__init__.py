"""The HTML report of a run, with plots; workers do not use this package."""
