"""The JSON Schema of job files."""

from __future__ import annotations

from typing import Any

from daskfs.job.job import Job


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema of job files, with the method names and their parameters."""
    from daskfs.criteria.registry import installed_criteria

    schema = Job.model_json_schema()
    entries: list[dict[str, Any]] = [{"enum": [*installed_criteria(), "all"]}]
    for name, criterion in installed_criteria().items():
        parameters = criterion.parameters.model_json_schema()
        schema_by_key = {key: parameters["properties"][key] for key in criterion.parameters.public_fields()}
        nested = {"type": "object", "properties": schema_by_key, "additionalProperties": False}
        lists = {key: {"type": "array", "minItems": 1, "items": value} for key, value in schema_by_key.items()}
        grid = {"type": "object", "properties": lists, "additionalProperties": False}
        for keys in (schema_by_key, {"parameters": nested}):
            properties = {"name": {"const": name}, "label": {"type": ["string", "null"]}, "grid": grid, **keys}
            entries.append(
                {"type": "object", "properties": properties, "required": ["name"], "additionalProperties": False}
            )
    listed = {"type": "array", "minItems": 1, "items": {"anyOf": entries}}
    schema["properties"]["methods"] = {
        "anyOf": [listed, {"const": "all"}],
        "description": "Criteria to rank by; all stands for every one that serves the labels and is not named besides.",
    }
    properties = schema["$defs"]["EvaluateBlock"]["properties"]
    sizes = properties["n_selected"]
    properties["n_selected"] = {
        "anyOf": [sizes, sizes["items"]],
        "default": sizes.pop("default"),
        "description": sizes.pop("description"),
    }
    # one model or a list of models, each a name or a mapping of a name and parameters
    metrics = {"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]}
    schema_by_key = {"name": {"type": "string"}, "label": {"type": ["string", "null"]}, "metrics": metrics}
    entry = {"anyOf": [{"type": "string"}, {"type": "object", "properties": schema_by_key, "required": ["name"]}]}
    properties["models"] = {
        "anyOf": [{"type": "array", "minItems": 1, "items": entry}, *entry["anyOf"]],
        "default": ["knn"],
        "description": properties["models"]["description"],
    }
    for block in ("MethodBlock", "ModelBlock"):
        schema["$defs"].pop(block, None)
    return schema
