"""Field type of a scaling: a string, or a list of its steps."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BeforeValidator, WithJsonSchema

from daskfs.kernels.scaling import CHAIN, scaling_text

_STEP = r"(total(=[0-9.eE+-]+)?|log1p|unit|zscore)"
_SCHEMA = {
    "description": f"Steps in this order: {CHAIN}.",
    "anyOf": [
        {"type": "string", "pattern": rf"^{_STEP}(\+{_STEP})*$"},
        {"type": "array", "items": {"type": "string", "pattern": f"^{_STEP}$"}, "minItems": 1},
        {"type": "null"},
    ],
}


def _as_text(value: Any) -> Any:
    if isinstance(value, str) or (isinstance(value, list | tuple) and value):
        return scaling_text(value)
    if value is None:
        return None
    msg = f"a scaling is a text, or a list, of steps: {CHAIN}; null means none"
    raise ValueError(msg)


ScalingChoice = Annotated[str | None, BeforeValidator(_as_text), WithJsonSchema(_SCHEMA)]
"""Type of a field that holds a :data:`daskfs.kernels.scaling.Scaling`."""
