"""The job file: what a user writes, checked key by key."""

from __future__ import annotations

import csv
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import NoneType
from typing import Any, Literal, cast, get_args

import yaml
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)
from pydantic_core import ErrorDetails

from daskfs.errors import JobError, nearest
from daskfs.graph.spec import Engine, GraphSpec
from daskfs.kernels.labels import Task
from daskfs.kernels.scaling import Scaling
from daskfs.methods.laplacian import GraphChoice, NeighborParameters
from daskfs.methods.registry import FILLED_IN, Method, criterion_named, make_method

_BYTES = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*((?:[kmgt]i?)?)b?\s*", re.IGNORECASE)
_UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12, "ki": 2**10, "mi": 2**20, "gi": 2**30, "ti": 2**40}
LABEL_BYTES = 200


def parse_bytes(text: str | int) -> int:
    """Return a number of bytes from ``"2GiB"``, ``"500 MB"`` or an integer."""
    match = _BYTES.fullmatch(str(text))
    size = int(float(match[1]) * _UNITS[match[2].lower()]) if match else 0
    if size <= 0:
        msg = f"'{text}' is not a size: write for example 2GiB, 500MB or a number of bytes"
        raise ValueError(msg)
    return size


class Block(BaseModel):
    """Base of all blocks: unknown keys are refused, and so is what pydantic would bend into a number."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    @field_validator("*", mode="before")
    @classmethod
    def _switch_is_no_number(cls, value: Any, info: ValidationInfo) -> Any:
        field = cls.model_fields[str(info.field_name)]
        if isinstance(value, bool) and field.annotation is not bool:
            hint = "; null stands for none" if NoneType in get_args(field.annotation) else ""
            msg = f"true and false mean nothing here{hint}"
            raise ValueError(msg)
        return value


class DataBlock(Block):
    """Where the data are."""

    source: str = Field(
        description="A path (.npy, .npz, .csv, .tsv, .parquet, Zarr, tiles), sklearn:NAME or synthetic:..."
    )
    array: str | None = Field(None, description="Member of an .npz or path in a Zarr group that holds X.")
    labels: str | None = Field(
        None, description="A column, a member, or a path; sklearn: and synthetic: bring their own."
    )
    weights: str | None = Field(
        None,
        description=(
            "How many rows each row counts for: a column, a member, or a path; 0 leaves a row out of the scores. "
            "Neighbors are found, values scaled and selections evaluated without weights."
        ),
    )
    feature_names: str | None = Field(None, description="A member, or a path to a text file with one name a line.")
    exclude: tuple[str, ...] = Field((), description="Table columns that are neither feature nor label nor weight.")
    task: Literal["auto", "classification", "regression"] = "auto"


class TransformBlock(Block):
    """Scaling on the fly, separately for the graph and for the scores."""

    graph: Scaling | None = None
    score: Scaling | None = None


class GraphBlock(GraphChoice, Block):
    """Defaults of every method that uses the neighbor graph."""

    engine: Engine = "auto"
    recall: float = Field(
        0.98, gt=0.5, lt=1, description="Share of the true neighbors that an approximate search aims at."
    )
    projection: PositiveInt | Literal["auto"] | None = Field(
        "auto", description="Columns that an approximate search compares rows in; null for all; auto for wide data."
    )
    random_state: NonNegativeInt = 0
    precomputed: str | None = Field(
        None,
        description=(
            "A graph that is not to be found: the run that found one (or RUN/knn/NAME), or a sparse matrix of weights, "
            "in an .npz file or a Zarr group in AnnData's layout."
        ),
    )


class RedundancyBlock(Block):
    """What a method may select: a walk down its ranking past features that are redundant with better ones, unwanted, or
    too many of one group.
    """

    measure: Literal["correlation", "distance_correlation"] | None = Field(
        "correlation",
        description=(
            "Over all rows, of the values as transform.score makes them: absolute Pearson correlation, or the distance "
            "correlation in [0, 1], over at most 100,000 rows. null compares nothing."
        ),
    )
    threshold: float = Field(0.9, gt=0, lt=1, description="A feature above it with a kept one is passed over.")
    n_candidates: PositiveInt = Field(500, description="How far down each ranking is looked at, with a measure.")
    keep: tuple[str, ...] = Field((), description="Names that are selected first, in the order of their ranks.")
    drop: tuple[str, ...] = Field((), description="Names that are never selected.")
    groups: str | dict[str, str] | None = Field(
        None,
        description=(
            "Group of each feature: by its name, or by a regular expression that matches the whole of it; or a CSV "
            "file with columns feature and group."
        ),
    )
    max_per_group: PositiveInt | None = Field(None, description="At most so many features of one group are selected.")

    @field_validator("keep", "drop", mode="before")
    @classmethod
    def _one_is_a_list(cls, value: Any) -> Any:
        return (value,) if isinstance(value, str) else value

    @field_validator("max_per_group")
    @classmethod
    def _groups_and_their_size(cls, value: int | None, info: ValidationInfo) -> int | None:
        if value is not None and info.data.get("groups") is None:
            msg = "needs groups: a CSV file, or names with the group of each"
            raise ValueError(msg)
        return value

    @model_validator(mode="after")
    def _groups_need_a_size(self) -> RedundancyBlock:
        if self.groups is not None and self.max_per_group is None:
            msg = "groups need max_per_group, how many features of one are selected"
            raise ValueError(msg)
        return self

    def group_of(self) -> dict[str, str]:
        """Return the groups by name or expression; :class:`JobError` for a file that cannot be read."""
        return read_groups(self.groups) if isinstance(self.groups, str) else dict(self.groups or {})


def read_groups(path: str) -> dict[str, str]:
    """Return the groups of features that a CSV file with columns ``feature`` and ``group`` lists.

    Raises
    ------
    JobError
        Naming the file and the line.
    """
    key = f"select.redundancy.groups {path}"
    try:
        with Path(path).expanduser().open(encoding="utf-8-sig", newline="") as file:
            lines = list(csv.reader(file))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        msg = f"cannot read {key}: {getattr(error, 'strerror', None) or error}."
        raise JobError(msg) from error
    if not lines or [cell.strip() for cell in lines[0]] != ["feature", "group"]:
        msg = f"{key} must begin with a line 'feature,group'."
        raise JobError(msg)
    found: dict[str, str] = {}
    for number, cells in enumerate(lines[1:], start=2):
        if not cells:
            continue
        if len(cells) != 2:
            msg = f"{key}, line {number}: {len(cells)} cells; it should hold a feature and its group."
            raise JobError(msg)
        if found.setdefault(cells[0], cells[1]) != cells[1]:
            msg = f"{key}, line {number}: '{cells[0]}' is in group '{found[cells[0]]}' already."
            raise JobError(msg)
    return found


class SelectBlock(Block):
    """Which features count as selected."""

    n_features: PositiveInt | None = Field(None, description="How many. None: half of them.")
    redundancy: RedundancyBlock | None = None


class EvaluateBlock(Block):
    """Cross-validated nearest-neighbor prediction on the first features of each ranking."""

    n_selected: tuple[PositiveInt, ...] = Field((5, 10, 20, 50, 100), min_length=1)
    n_neighbors: PositiveInt = 5
    n_splits: int = Field(5, ge=2)
    n_repeats: PositiveInt = 1
    scaling: Literal["zscore"] | None = "zscore"
    max_samples: PositiveInt = Field(10_000, description="At most so many labelled rows, thinned within classes.")
    random_state: NonNegativeInt = 0

    @field_validator("n_selected", mode="before")
    @classmethod
    def _one_is_a_list(cls, value: Any) -> Any:
        return (value,) if isinstance(value, int) and not isinstance(value, bool) else value

    @field_validator("n_selected")
    @classmethod
    def _sorted(cls, value: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(sorted(set(value)))


class ClusterBlock(Block):
    """A local cluster by default; an address or a scheduler file joins one that runs. workers: 0 runs in this
    process.
    """

    workers: NonNegativeInt = 2
    threads: PositiveInt = 1
    memory_limit: str | int | None = Field(
        None, description="Of one worker, for example 2GiB. None shares the machine's."
    )
    address: str | None = None
    scheduler_file: str | None = None
    wait_seconds: PositiveFloat = 120.0
    dashboard: bool = False
    local_directory: str | None = None

    @field_validator("memory_limit")
    @classmethod
    def _in_bytes(cls, value: str | int | None) -> int | None:
        return None if value is None else parse_bytes(value)


class OutputBlock(Block):
    """Where the run lies."""

    path: str
    title: str | None = None


class MethodBlock(Block):
    """One method: its name in the registry, an optional label, and its parameters."""

    name: str
    label: str | None = None
    parameters: dict[str, Any] = Field(default_factory=dict)


class Job(Block):
    """A whole job."""

    data: DataBlock
    transform: TransformBlock = TransformBlock()
    graph: GraphBlock = GraphBlock()
    methods: tuple[MethodBlock, ...] = Field(min_length=1)
    select: SelectBlock = SelectBlock()
    evaluate: EvaluateBlock | None = EvaluateBlock()
    cluster: ClusterBlock = ClusterBlock()
    output: OutputBlock

    @field_validator("methods", mode="before")
    @classmethod
    def _short_forms(cls, value: Any) -> Any:
        if not isinstance(value, list | tuple):
            msg = "methods is a list, for example [VarianceScore, {name: LaplacianScore, n_neighbors: 10}]"
            raise ValueError(msg)
        return [_method_block(entry) for entry in value]

    def completed(self, spec: GraphSpec) -> GraphSpec:
        """Return the spec of neighbor lists with what the job says of the search."""
        g = self.graph
        return GraphSpec(spec.metric, spec.scaling, g.engine, g.recall, g.projection, g.random_state)

    def make_methods(self, task: Task | None, *, on_matrix: bool = False) -> list[Method]:
        """Return the methods with the job's defaults filled in.

        Parameters
        ----------
        task
            Of the labels; None where it is not known.
        on_matrix
            Whether ``graph.precomputed`` is a matrix, of which the methods take the weights as they are.

        Raises
        ------
        JobError
            For an unknown name or parameter.
        """
        methods = []
        for entry in self.methods:
            kind = criterion_named(entry.name).parameters
            fields = kind.model_fields
            for key in FILLED_IN.keys() & entry.parameters.keys() & fields.keys():
                msg = f"method {entry.name} has no parameter '{key}': {FILLED_IN[key]}."
                raise JobError(msg)
            # what the job leaves open is left to the method, whose papers differ; neighbors by target are none over X
            graph = self.graph.model_dump(exclude_unset=True) if issubclass(kind, NeighborParameters) else {}
            scalings = {f"{key}_scaling": value for key, value in self.transform.model_dump(exclude_unset=True).items()}
            defaults: dict[str, Any] = {
                **graph,
                **scalings,
                "task": task or "regression",
                "graph": "given" if on_matrix else "neighbors",
            }
            given = {key: value for key, value in defaults.items() if key in fields}
            methods.append(make_method(entry.name, {**given, **entry.parameters}, entry.label))
        labels = [method.label for method in methods]
        for label in labels:
            if labels.count(label) > 1:
                msg = f"two methods are called '{label}': give one of them a label."
                raise JobError(msg)
            if not re.fullmatch(r"[\w.+=() -]+", label) or label.startswith(".") or label != label.strip():
                msg = f"method label '{label}': use letters, digits, spaces and . + = ( ) - _ only, no dot first."
                raise JobError(msg)
            if len(label.encode()) > LABEL_BYTES:
                msg = f"method label '{label[:40]}...' is too long: it names directories, {LABEL_BYTES} bytes at most."
                raise JobError(msg)
        return methods

    def identity(self) -> dict[str, Any]:
        """Return what decides the results: everything but where and on what the job runs."""
        found = self.model_dump(mode="json", exclude={"cluster": True, "output": True})
        if self.select.redundancy is not None:  # what a file says counts, not where it lies
            found["select"]["redundancy"]["groups"] = self.select.redundancy.group_of()
        return found


def _method_block(entry: Any) -> Any:
    if isinstance(entry, str):
        return {"name": entry}
    if isinstance(entry, Mapping) and "name" in entry and "parameters" not in entry:
        known = {key: entry[key] for key in ("name", "label") if key in entry}
        return {**known, "parameters": {key: value for key, value in entry.items() if key not in ("name", "label")}}
    return entry


def load_job(path: str | Path, overrides: Sequence[str] = ()) -> Job:
    """Read a job file.

    Parameters
    ----------
    path
        YAML file.
    overrides
        ``"graph.n_neighbors=10"``: dotted key and a YAML value; list items by number (``methods.0.n_neighbors=7``).

    Raises
    ------
    JobError
        Naming the file and the key.
    """
    file = Path(path)
    try:
        raw = _parse_yaml(file.read_text(encoding="utf-8-sig"))
    except OSError as error:
        msg = f"cannot read the job file {file}: {error.strerror}."
        raise JobError(msg) from error
    except ValueError as error:
        msg = f"{file} is not YAML: {error}."
        raise JobError(msg) from error
    if not isinstance(raw, dict):
        holds = "is empty" if raw is None else f"holds {'a list' if isinstance(raw, list) else repr(raw)[:40]}"
        msg = f"{file} must hold keys such as data, methods and output; it {holds}."
        raise JobError(msg)
    for override in overrides:
        _apply(raw, override)
    return make_job(raw, str(file))


class _Loader(yaml.SafeLoader):
    """Plain values only, and no key twice: PyYAML would keep the last one and say nothing."""

    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:
        """Read a mapping, refusing a key that was there."""
        node = super().compose_mapping_node(anchor)
        seen: set[str] = set()
        for key, _ in node.value:
            if str(key.value) in seen:
                raise yaml.composer.ComposerError(None, None, f"key '{key.value}' is there twice", key.start_mark)
            seen.add(str(key.value))
        return node


def _parse_yaml(text: str) -> Any:
    """Return what YAML holds; ``ValueError`` in one line for anything that is none.

    Besides its own errors, PyYAML lets through what the constructors of dates and numbers raise.
    """
    try:
        return yaml.load(text, Loader=_Loader)  # noqa: S506, a SafeLoader
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        where = f" in line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        raise ValueError(f"{error.problem or error.context}{where}") from error
    except (yaml.YAMLError, ValueError, AttributeError, LookupError, RecursionError) as error:
        raise ValueError(" ".join(str(error).split())) from error


def make_job(raw: Mapping[str, Any], where: str = "job") -> Job:
    """Check a job given as nested dictionaries; :class:`JobError` names the key and, for an unknown one, the nearest
    valid one.
    """
    try:
        job = Job.model_validate(raw)
    except ValidationError as error:
        raise JobError(f"{where}: {_explain(error, Job)}") from None
    try:
        job.make_methods(None)
    except JobError as error:
        raise JobError(f"{where}: {error}") from None
    return job


def make_data(raw: Mapping[str, Any]) -> DataBlock:
    """Check a data block given by command-line options."""
    return cast("DataBlock", _checked(DataBlock, raw))


def make_cluster(raw: Mapping[str, Any]) -> ClusterBlock:
    """Check a cluster block given by command-line options."""
    return cast("ClusterBlock", _checked(ClusterBlock, raw))


def _checked(block: type[Block], raw: Mapping[str, Any]) -> Block:
    try:
        return block.model_validate(raw)
    except ValidationError as error:
        raise JobError(_explain(error, block)) from None


def _apply(raw: dict[str, Any], override: str) -> None:
    key, separator, text = override.partition("=")
    if not separator or not key:
        msg = f"--set {override}: write key=value, for example --set graph.n_neighbors=10."
        raise JobError(msg)
    try:
        value = _parse_yaml(text)
    except ValueError as error:
        msg = f"--set {override}: {text!r} is not a YAML value: {error}."
        raise JobError(msg) from error
    parts = key.split(".")
    target: Any = raw
    for position, part in enumerate(parts):
        last = position == len(parts) - 1
        if isinstance(target, list):
            if not (part.isascii() and part.isdigit()) or int(part) >= len(target):
                msg = (
                    f"--set {override}: '{'.'.join(parts[:position])}' is a list of {len(target)}; '{part}' is "
                    "not one of its numbers."
                )
                raise JobError(msg)
            if isinstance(target[int(part)], str) and not last:
                target[int(part)] = {"name": target[int(part)]}
            if last:
                target[int(part)] = value
            target = target[int(part)]
        elif isinstance(target, dict):
            if last:
                target[part] = value
            elif target.get(part) is None:
                target[part] = {}
            target = target[part]
        else:
            msg = f"--set {override}: '{'.'.join(parts[:position])}' holds a value, not keys."
            raise JobError(msg)


def _explain(error: ValidationError, block: type[BaseModel]) -> str:
    problems = error.errors()
    problem = next((p for p in problems if p["type"] == "extra_forbidden"), problems[0])
    if problem["type"] == "extra_forbidden":
        *parents, name = problem["loc"]
        valid = _valid_keys(parents, block)
        return (
            f"unknown key '{_key((*parents, name))}'.{nearest(str(name), valid)} Valid keys here: {', '.join(valid)}."
        )
    key = _key(_field_of(problem["loc"], block))
    if problem["type"] == "missing":
        return f"key '{key}' is missing."
    # a field of several types has one problem for each of them
    same = [p for p in problems if _key(_field_of(p["loc"], block)) == key]
    messages = dict.fromkeys(_message(p, block) for p in same)
    shown = repr(problem["input"])
    return f"key '{key}': {'; or: '.join(messages)} (got {shown if len(shown) < 80 else shown[:77] + '...'})."


def _message(problem: ErrorDetails, block: type[BaseModel]) -> str:
    if problem["type"] in ("model_type", "model_attributes_type"):
        return f"Keys should stand here, such as {', '.join(_valid_keys(problem['loc'], block)[:3])}"
    return problem["msg"].removeprefix("Value error, ")


def _key(location: Sequence[Any]) -> str:
    return ".".join(str(part) for part in location)


def _field_of(location: Sequence[Any], block: type[BaseModel]) -> list[Any]:
    """Return the location without what pydantic adds to name one type of several."""
    return [
        part
        for position, part in enumerate(location)
        if isinstance(part, int) or part in _valid_keys(location[:position], block)
    ]


def _valid_keys(location: Sequence[Any], model: type[BaseModel]) -> tuple[str, ...]:
    for part in location:
        if isinstance(part, int):
            continue
        annotation = model.model_fields[part].annotation if part in model.model_fields else None
        candidates = [annotation, *getattr(annotation, "__args__", ())]
        blocks = [c for c in candidates if isinstance(c, type) and issubclass(c, BaseModel)]
        if blocks:
            model = blocks[0]
    return tuple(model.model_fields)


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema of job files, with the method names and their parameters."""
    from daskfs.methods.registry import criteria

    schema = Job.model_json_schema()
    entries: list[dict[str, Any]] = [{"enum": list(criteria())}]
    for name, criterion in criteria().items():
        parameters = criterion.parameters.model_json_schema()
        own = {key: parameters["properties"][key] for key in criterion.parameters.public_fields()}
        nested = {"type": "object", "properties": own, "additionalProperties": False}
        for keys in (own, {"parameters": nested}):
            properties = {"name": {"const": name}, "label": {"type": ["string", "null"]}, **keys}
            entries.append(
                {"type": "object", "properties": properties, "required": ["name"], "additionalProperties": False}
            )
    schema["properties"]["methods"] = {"type": "array", "minItems": 1, "items": {"anyOf": entries}}
    sizes = schema["$defs"]["EvaluateBlock"]["properties"]["n_selected"]
    schema["$defs"]["EvaluateBlock"]["properties"]["n_selected"] = {
        "anyOf": [sizes, sizes["items"]],
        "default": sizes["default"],
    }
    schema["$defs"].pop("MethodBlock", None)
    return schema
