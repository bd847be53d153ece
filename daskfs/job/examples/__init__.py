"""Example jobs on data that scikit-learn ships or daskfs generates, for ``daskfs init --example NAME``."""

from __future__ import annotations

from importlib.resources import files

from daskfs.errors import JobError, nearest


def example_names() -> list[str]:
    """Return the names of the example jobs."""
    folder = files("daskfs.job.examples")
    return sorted(entry.name.removesuffix(".yaml") for entry in folder.iterdir() if entry.name.endswith(".yaml"))


def example_job(name: str) -> str:
    """Return the text of an example job.

    Raises
    ------
    JobError
        If there is none of this name.
    """
    names = example_names()
    if name not in names:
        msg = f"no example job '{name}'.{nearest(name, names)} Examples: {', '.join(names)}."
        raise JobError(msg)
    return files("daskfs.job.examples").joinpath(f"{name}.yaml").read_text(encoding="utf-8")
