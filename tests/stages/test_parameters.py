"""Parameters of stages, for every kind: read as they were written, and refused by key if a plan holds others."""

from __future__ import annotations

import dataclasses
import json
import types
import typing
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

import pytest
from pydantic import BaseModel, JsonValue

from daskfs.criteria.registry import Method, make_method
from daskfs.errors import StoreError
from daskfs.stages.kind import StageKind, all_kinds
from daskfs.stages.stage import Plan, Stage, with_fingerprints
from tests.cli.command import basic_job, daskfs, refused, write_job
from tests.execution.runs import write_document

KINDS = {kind.reference: kind for kind in all_kinds()}
NO_SUCH_VALUE = [[{"no": "such value"}]]
"""Not the JSON of a field of any kind."""


def is_keys(hint: Any) -> bool:
    """Return whether a type has keys of a job, which parameters hold as the job has them."""
    return isinstance(hint, type) and get_origin(hint) is None and issubclass(hint, BaseModel)


def example_of(hint: Any) -> Any:
    """Return a value of an annotated type."""
    if hint is Method:
        return make_method("LaplacianScore", {"n_neighbors": 3, "t": "median"}, "label")
    if hint is JsonValue:
        return {"a": [1, "b", None, 0.5]}
    if is_keys(hint):
        return hint(
            **{name: example_of(key.annotation) for name, key in hint.model_fields.items() if key.is_required()}
        )
    if dataclasses.is_dataclass(hint):
        return example_of_fields(typing.cast("type[Any]", hint))
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Literal:
        return arguments[-1]
    if origin in (typing.Union, types.UnionType):
        return example_of(arguments[0])
    if origin is tuple:
        return tuple(example_of(one) for one in arguments if one is not Ellipsis)
    if origin is Mapping:
        return {"key": example_of(arguments[1])}
    if hasattr(hint, "_fields"):
        return hint(*(example_of(one) for one in get_type_hints(hint).values()))
    plain: dict[type, Any] = {str: "text", int: 3, float: 0.25, bool: True}
    return plain[hint]


def example_of_fields(kind: type[Any]) -> Any:
    hints = get_type_hints(kind)
    return kind(**{field.name: example_of(hints[field.name]) for field in dataclasses.fields(kind)})


def plan_of(kind: StageKind[Any]) -> Plan:
    stage = Stage.of(kind, "of-a-kind", 1, example_of_fields(kind.parameters), ())
    return Plan("/tiles", with_fingerprints([stage], ""))


def read(raw: Mapping[str, Any]) -> Plan:
    return Plan.from_json(json.loads(json.dumps(raw)), "here")


@pytest.mark.parametrize("reference", KINDS)
def test_a_plan_has_the_parameters_of_a_kind_and_no_others(reference: str) -> None:
    plan = plan_of(KINDS[reference])
    raw = plan.to_json("here")
    assert read(raw) == plan
    (stage,) = raw["stages"]
    fields = {field.name: field for field in dataclasses.fields(KINDS[reference].parameters)}
    assert fields.keys() == stage["parameters"].keys()
    for key, field in fields.items():
        changes = [{**stage["parameters"], key: NO_SUCH_VALUE}, {**stage["parameters"], f"{key}_": 1}]
        if field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING:
            changes.append({name: value for name, value in stage["parameters"].items() if name != key})
        for changed in changes:
            with pytest.raises(StoreError, match=rf"^here/plan.json is damaged: stage of-a-kind, parameter '{key}"):
                read({**raw, "stages": [{**stage, "parameters": changed}]})


def fields_within(hint: Any) -> Iterator[Any]:
    """Yield an annotated type and those within it, but for those of a method, which its criterion checks."""
    yield hint
    inner: Any = get_args(hint)
    if is_keys(hint):
        inner = [key.annotation for key in hint.model_fields.values()]
    elif dataclasses.is_dataclass(hint) and hint is not Method:
        inner = get_type_hints(hint).values()
    for one in () if hint is JsonValue or get_origin(hint) is Literal else inner:
        yield from fields_within(one)


@pytest.mark.parametrize("reference", KINDS)
def test_every_field_has_a_type(reference: str) -> None:
    assert not {Any, object} & {one for one in fields_within(KINDS[reference].parameters) if one.__hash__ is not None}


def test_a_run_with_other_parameters_is_refused(tmp_path: Path) -> None:
    job = write_job(tmp_path, basic_job(tmp_path))
    assert daskfs("run", job, "-q").code == 0
    path = tmp_path / "run" / "plan.json"
    raw = json.loads(path.read_text())
    next(stage for stage in raw["stages"] if stage["name"] == "score")["parameters"]["slab_columns"] = "7"
    write_document(path, raw)
    for verb in (("status", tmp_path / "run"), ("report", tmp_path / "run")):
        refused(daskfs(*verb), 3, "plan.json is damaged", "stage score, parameter 'slab_columns'", "valid integer")
    assert daskfs("run", job, "-q").code == 0
    assert daskfs("report", tmp_path / "run").code == 0
