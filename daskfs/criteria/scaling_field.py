"""Field types of a scaling: a string, or a list of its steps."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BeforeValidator, WithJsonSchema

from daskfs.kernels.scaling import CHAIN, GRAPH_CHAIN, scaling_text

_STEP = r"(total(=[0-9.eE+-]+)?|log1p|unit|zscore)"
_COMPONENTS = r"pca=[0-9]+"


def _validator(*, of_graph: bool) -> BeforeValidator:
    def as_text(value: Any) -> Any:
        if isinstance(value, str) or (isinstance(value, list | tuple) and value):
            return scaling_text(value, of_graph=of_graph)
        if value is None:
            return None
        msg = f"a scaling is a text, or a list, of steps: {GRAPH_CHAIN if of_graph else CHAIN}; null means none"
        raise ValueError(msg)

    return BeforeValidator(as_text)


def _schema(steps: str, step: str) -> WithJsonSchema:
    return WithJsonSchema(
        {
            "description": f"Steps in this order: {steps}.",
            "anyOf": [
                {"type": "string", "pattern": rf"^{step}(\+{step})*$"},
                {"type": "array", "items": {"type": "string", "pattern": f"^{step}$"}, "minItems": 1},
                {"type": "null"},
            ],
        }
    )


ScalingChoice = Annotated[str | None, _validator(of_graph=False), _schema(CHAIN, _STEP)]
"""Type of a field that holds a :data:`daskfs.kernels.scaling.Scaling`."""
GraphScalingChoice = Annotated[str | None, _validator(of_graph=True), _schema(GRAPH_CHAIN, f"({_STEP}|{_COMPONENTS})")]
"""The same for rows of a graph, which may end with "pca=N"."""
