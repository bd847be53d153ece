"""The precomputed graph of a job."""

from __future__ import annotations

from daskfs.criteria.registry import Method
from daskfs.graph.precomputed import Graph
from daskfs.graph.precomputed_files import open_graph
from daskfs.job.job import Job
from daskfs.storage import StoragePath, as_path


def precomputed_path(job: Job) -> StoragePath | None:
    """Return the absolute path of the job's precomputed graph, for the workers; None without one."""
    path = job.graph.precomputed
    return None if path is None else as_path(path)


def precomputed_graph(job: Job, methods: list[Method]) -> Graph | None:
    """Open the job's precomputed graph; return None if it has none or no method uses a graph."""
    path = precomputed_path(job)
    if path is None or not any(method.criterion.uses_graph for method in methods):
        return None
    return open_graph(path)
