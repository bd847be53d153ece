"""Representation of the rows that a job's graph is made of."""

from __future__ import annotations

from daskfs.errors import InputError
from daskfs.graph.representation import Representation, open_representation
from daskfs.job.job import Job
from daskfs.runs.tiles import is_tile_store, source_spec
from daskfs.sources import SourceSpec
from daskfs.sources.checks import split_reference
from daskfs.storage import as_path, is_url


def representation(job: Job) -> Representation | None:
    """Describe the job's representation of the rows; return None if it has none.

    It is a file, a member of a file (``FILE:MEMBER``), a URL, or a member of the job's source. Raise
    :class:`InputError` if there is no such file or member, or its rows are sparse.
    """
    use_rep = job.graph.use_rep
    if use_rep is None:
        return None
    where = f"graph.use_rep {use_rep}"
    if (reference := split_reference(use_rep)) is not None:
        return open_representation(SourceSpec(source=str(reference[0]), array=reference[1]), where)
    if is_url(use_rep) or as_path(use_rep).exists():
        return open_representation(SourceSpec(source=str(as_path(use_rep))), where)
    spec = source_spec(job.data)
    if is_tile_store(spec):
        msg = (
            f"{where}: there is no such file, and tiles, as {spec.source}, keep no other members of their source: give "
            "the path of a file, or FILE:MEMBER."
        )
        raise InputError(msg)
    try:
        return open_representation(SourceSpec(source=spec.source, array=use_rep), where)
    except InputError as error:
        msg = f"{where}: there is no such file, and no such member of data.source: {error}"
        raise InputError(msg) from error
