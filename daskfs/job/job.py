"""The whole job file, checked key by key."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import Field, field_validator

from daskfs.block import Block
from daskfs.criteria.consensus import with_consensus
from daskfs.criteria.criterion import FILLED_IN
from daskfs.criteria.laplacian import NeighborParameters
from daskfs.criteria.registry import Method, criterion_named, make_method, of_representation
from daskfs.data_block import DataBlock
from daskfs.errors import JobError
from daskfs.execution.cluster import ClusterSettings
from daskfs.execution.clusters.blocks import ClusterBlock
from daskfs.graph.spec import GraphSpec
from daskfs.job.blocks import (
    GraphBlock,
    OutputBlock,
    SelectBlock,
    SignificanceBlock,
    TransformBlock,
)
from daskfs.job.checks import check_block
from daskfs.job.dask import DaskKeys
from daskfs.job.evaluation import EvaluateBlock
from daskfs.job.keys import read_keys
from daskfs.job.methods import EVERY, MethodBlock, check_names, with_every, with_parameters
from daskfs.job.storage import DESCRIPTION, StorageKeys
from daskfs.kernels.labels import Task
from daskfs.store.addresses import address_of

METHOD_LABEL_BYTES = 200


class _Data(Block):
    data: DataBlock


class Job(_Data):
    """A whole job."""

    transform: TransformBlock = TransformBlock()
    graph: GraphBlock = GraphBlock()
    methods: tuple[MethodBlock, ...] = Field(min_length=1)
    consensus: bool = Field(
        default=False,
        description=(
            "Whether to rank by the median of the ranks of all methods, too, under the name Consensus. Methods of one "
            "ranking count once, and a random order does not."
        ),
    )
    significance: bool | SignificanceBlock = Field(
        default=False,
        description=(
            "Whether to test every feature, and how: p-values and q-values in the rankings of the methods that have "
            "them. With a graph of X, each half of the features is tested on a graph of the other one."
        ),
    )
    select: SelectBlock = SelectBlock()
    evaluate: EvaluateBlock | None = EvaluateBlock()
    cluster: ClusterBlock = ClusterBlock()
    dask: DaskKeys = Field(
        {},
        description=(
            "Keys of Dask's configuration, such as distributed.worker.memory.target: false, for the driver and the "
            "workers that it starts; workers that are there already have their own."
        ),
    )
    storage: StorageKeys = Field({}, description=DESCRIPTION)
    output: OutputBlock

    @field_validator("methods", mode="before")
    @classmethod
    def _short_forms(cls, value: Any) -> Any:
        value = [value] if value in EVERY else value
        if not isinstance(value, list | tuple):
            msg = "methods is a list, for example [VarianceScore, {name: LaplacianScore, n_neighbors: 10}], or all"
            raise ValueError(msg)
        return [with_parameters(entry, tuple(MethodBlock.model_fields)) for entry in value]

    @property
    def tests(self) -> SignificanceBlock | None:
        """The block of the tests of features, with defaults where the job only asks for them; None without tests."""
        if isinstance(self.significance, SignificanceBlock):
            return self.significance
        return SignificanceBlock() if self.significance or self.select.fdr is not None else None

    @property
    def settings(self) -> ClusterSettings:
        """Settings of the cluster, with Dask's keys."""
        return ClusterSettings(**dict(self.cluster), dask=self.dask)

    def completed(self, spec: GraphSpec) -> GraphSpec:
        """Return the spec of neighbor lists with the search options of the job."""
        return self.graph.search.for_lists(spec)

    def members(self, task: Task | None) -> list[MethodBlock]:
        """Return an entry for each method: grids made out, and for "all" every criterion that serves labels of a task.

        `task` is that of the labels; None without any, or if it is not known.
        """

        def serves(block: MethodBlock) -> bool:
            criterion = criterion_named(block.name)
            return not criterion.needs_labels if task is None else task in criterion.tasks

        entries = [block for block, is_for_all in with_every(self.methods) if not is_for_all or serves(block)]
        return [member for block in entries for member, _ in block.members()]

    def make_methods(self, task: Task | None, *, on_matrix: bool = False) -> list[Method]:
        """Return the methods with the job's defaults filled in.

        Parameters
        ----------
        task
            Task of the labels; None if not known.
        on_matrix
            Whether ``graph.precomputed`` is a matrix, whose weights the methods use unchanged.

        Raises
        ------
        JobError
            For an unknown name or parameter, or an invalid label.
        """
        methods = []
        for entry in self.members(task):
            kind = criterion_named(entry.name).parameters
            fields = kind.model_fields
            for key in FILLED_IN.keys() & entry.parameters.keys() & fields.keys():
                msg = f"method {entry.name} has no parameter '{key}': {FILLED_IN[key]}."
                raise JobError(msg)
            # keys that are not set keep each method's own default, as the papers differ; neighbors by target are not
            # neighbors over X, so the graph block does not apply to them, but for the metric where they have one
            keys = None if issubclass(kind, NeighborParameters) else {"metric"}
            graph = self.graph.model_dump(exclude_unset=True, include=keys)
            scalings = {f"{key}_scaling": value for key, value in self.transform.model_dump(exclude_unset=True).items()}
            defaults: dict[str, Any] = {
                **graph,
                **scalings,
                "task": task or "regression",
                "graph": "given" if on_matrix else "neighbors",
                "foreign_graph": self.graph.precomputed is not None,
                "significance": self.tests is not None,
                "fdr_method": "bh" if self.tests is None else self.tests.fdr_method,
            }
            if self.graph.precomputed is not None:  # a precomputed graph is used, not rebuilt
                defaults["rebuild_graph"] = False
            job_defaults = {key: value for key, value in defaults.items() if key in fields}
            method = make_method(entry.name, {**job_defaults, **entry.parameters}, entry.label)
            if self.graph.use_rep is not None:
                self._check_unscaled(entry)
                method = of_representation(method)
            methods.append(method)
        if self.consensus:
            methods = with_consensus(methods)
        check_names([method.label for method in methods], "method", METHOD_LABEL_BYTES, "it names directories")
        return methods

    def _check_unscaled(self, entry: MethodBlock) -> None:
        key = f"method {entry.name} has graph_scaling"
        scalings = {key: entry.parameters.get("graph_scaling"), "transform.graph is": self.transform.graph}
        for text, scaling in scalings.items():
            if scaling is not None:
                msg = f"{text} {scaling}, and graph.use_rep is compared as it is given: leave one of them out."
                raise JobError(msg)

    def grids(self) -> dict[str, tuple[str, dict[str, Any]]]:
        """Return, by label of each method that a grid made, the label of its entry and its combination of values."""
        members = ((block, *member) for block in self.methods if block.grid for member in block.members())
        return {str(member.label): (block.base_label, values) for block, member, values in members}

    def identity(self) -> dict[str, Any]:
        """Return the keys that decide the results: no cluster, dask, storage and output, and nothing of the report."""
        shown = {"data": {"feature_axis", "append"}}
        identity = self.model_dump(
            mode="json", exclude={"cluster": True, "dask": True, "output": True, "storage": True, **shown}
        )
        if self.data.only_batch is not None:  # the run of a batch can be moved, with the one that it belongs to
            identity["data"]["source"] = address_of(self.data.source, self.output.path)
        if self.select.redundancy is not None:  # the content of a groups file counts, not its path
            identity["select"]["redundancy"]["groups"] = self.select.redundancy.group_of()
        if isinstance(self.significance, SignificanceBlock):
            identity["significance"]["blocks"] = self.significance.block_of()
        return identity


def load_job(path: str | Path, overrides: Sequence[str] = ()) -> Job:
    """Read a job file.

    Parameters
    ----------
    path
        YAML file.
    overrides
        ``"graph.n_neighbors=10"``: dotted key and a YAML value; list items by number (``methods.0.n_neighbors=7``).

    Returns
    -------
    Job
        Job for :func:`daskfs.run_job`.

    Raises
    ------
    JobError
        Naming the file and the key.

    Examples
    --------
    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> from daskfs import load_job
    >>> with TemporaryDirectory() as folder:
    ...     file = Path(folder, "job.yaml")
    ...     _ = file.write_text("{data: {source: sklearn:iris}, methods: [VarianceScore], output: {path: runs/iris}}")
    ...     job = load_job(file, ["output.path=runs/other"])
    >>> job.output.path
    'runs/other'
    """
    return make_job(read_keys(path, overrides), str(path))


def make_job(raw: Mapping[str, Any], where: str = "job") -> Job:
    """Check a job given as nested dictionaries.

    Parameters
    ----------
    raw
        Content of a job file.
    where
        Name of the job in messages.

    Returns
    -------
    Job
        Job for :func:`daskfs.run_job`.

    Raises
    ------
    JobError
        Naming the key and, for an unknown one, the nearest valid one.

    Examples
    --------
    >>> from daskfs import make_job
    >>> raw = {"data": {"source": "sklearn:iris"}, "methods": ["VarianceScore"], "output": {"path": "runs/iris"}}
    >>> make_job(raw).select.n_features is None
    True
    >>> make_job({**raw, "select": {"n_feature": 2}})  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ...
    daskfs.errors.JobError: job: unknown key 'select.n_feature'. Did you mean 'n_features'? ...
    """
    job = check_block(Job, raw, where)
    try:
        job.make_methods(None)
        if job.evaluate is not None:
            job.evaluate.model_specs(None)
    except JobError as error:
        msg = f"{where}: {error}"
        raise JobError(msg) from None
    return job


def make_data(raw: Mapping[str, Any]) -> DataBlock:
    """Check a data block given by options."""
    return check_block(_Data, {"data": raw}).data


def make_cluster(raw: Mapping[str, Any]) -> ClusterSettings:
    """Check a cluster block given by command-line options."""
    return ClusterSettings(**dict(check_block(ClusterBlock, raw)))
