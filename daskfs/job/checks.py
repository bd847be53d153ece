"""Validation of keys against a block, with errors in terms of the job file."""

from __future__ import annotations

import reprlib
from collections.abc import Mapping, Sequence
from typing import Any, get_origin

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from daskfs.block import BlockType
from daskfs.errors import JobError, nearest
from daskfs.redaction import redact_credentials


class _Shown(reprlib.Repr):
    """Repr of values for messages: without credentials, and truncated before YAML aliases are expanded."""

    def repr_str(self, x: str, level: int) -> str:
        return super().repr_str(redact_credentials(x), level)


_SHOWN = _Shown()
_SHOWN.maxstring = _SHOWN.maxother = 200


def check_block(block: type[BlockType], raw: Mapping[str, Any], where: str = "") -> BlockType:
    """Validate the keys of a block; :class:`JobError` begins with `where` and names the key."""
    try:
        return block.model_validate(raw)
    except ValidationError as error:
        raise JobError(f"{where}: {_explain(error, block)}" if where else _explain(error, block)) from None


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
    # a field of a union type has one problem per type
    same = [p for p in problems if _key(_field_of(p["loc"], block)) == key]
    messages = dict.fromkeys(_message(p, block) for p in same)
    shown = _SHOWN.repr(problem["input"])
    return f"key '{key}': {'; or: '.join(messages)} (got {shown if len(shown) < 80 else shown[:77] + '...'})."


def _message(problem: ErrorDetails, block: type[BaseModel]) -> str:
    if problem["type"] in ("model_type", "model_attributes_type"):
        return f"Keys should stand here, such as {', '.join(_valid_keys(problem['loc'], block)[:3])}"
    return problem["msg"].removeprefix("Value error, ")


def _key(location: Sequence[Any]) -> str:
    return ".".join(str(part) for part in location)


def _field_of(location: Sequence[Any], block: type[BaseModel]) -> list[Any]:
    """Return the location without the parts that pydantic adds to name a member of a union."""
    return [
        part
        for position, part in enumerate(location)
        if isinstance(part, int)
        or part in _valid_keys(location[:position], block)
        or (_is_mapping(location[:position], block) and part != "[key]")
    ]


def _is_mapping(location: Sequence[Any], block: type[BaseModel]) -> bool:
    """Return whether a location is a field whose keys the user chooses."""
    if not location:
        return False
    *parents, name = location
    field = _model_at(parents, block).model_fields.get(name)
    return field is not None and get_origin(field.annotation) is dict


def _valid_keys(location: Sequence[Any], model: type[BaseModel]) -> tuple[str, ...]:
    return tuple(_model_at(location, model).model_fields)


def _model_at(location: Sequence[Any], model: type[BaseModel]) -> type[BaseModel]:
    for part in location:
        if isinstance(part, int):
            continue
        annotation = model.model_fields[part].annotation if part in model.model_fields else None
        candidates = [annotation, *getattr(annotation, "__args__", ())]
        blocks = [c for c in candidates if isinstance(c, type) and issubclass(c, BaseModel)]
        if blocks:
            model = blocks[0]
    return model
