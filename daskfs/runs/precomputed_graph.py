"""A graph from outside: the job's, opened."""

from __future__ import annotations

from daskfs.criteria.registry import Method
from daskfs.graph.precomputed import Graph
from daskfs.graph.precomputed_files import open_graph
from daskfs.job.job import Job
from daskfs.storage import StoragePath, as_path


def precomputed_path(job: Job) -> StoragePath | None:
    """Return the absolute path of the job's graph, as workers need it; None for a graph that is to be found."""
    path = job.graph.precomputed
    return None if path is None else as_path(path)


def precomputed_graph(job: Job, methods: list[Method]) -> Graph | None:
    """Open the job's graph; None when it names none, or no method uses one."""
    path = precomputed_path(job)
    if path is None or not any(method.criterion.uses_graph for method in methods):
        return None
    return open_graph(path)
