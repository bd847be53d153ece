"""Directive ``{criterion} NAME``, from the registry: facts of a criterion, or with ``:parameters:`` its parameters."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, ClassVar

from docutils import nodes
from docutils.parsers.rst import directives
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from daskfs.criteria.criterion import Criterion
from daskfs.criteria.laplacian import GraphChoice, MetricFields, NeighborParameters
from daskfs.criteria.registry import criterion_named

GOOD = {"ascending": "small", "descending": "large"}
SCALINGS = {"graph_scaling": "transform.graph", "score_scaling": "transform.score"}
"""Parameters that a key of a job sets for all methods."""
KINDS = {"metric": "a [metric](../guide/metrics.md)", "metric_kwds": "a mapping: arguments of the metric, `null`"}
"""Values of parameters that their schema does not tell in a few words."""
N_CHOICES = 12
"""Maximum number of values to list; scalings have more."""


class CriterionFacts(SphinxDirective):
    """Table of the facts of one criterion, or of the parameters that a job may set."""

    required_arguments = 1
    option_spec: ClassVar = {"parameters": directives.flag}

    def run(self) -> list[nodes.Node]:
        """Return the table."""
        lines = _parameters if "parameters" in self.options else _facts
        return self.parse_text_to_nodes("\n".join(lines(self.arguments[0])))


def _facts(name: str) -> list[str]:
    criterion = criterion_named(name)
    fields = ", ".join(f"`{field}`" for field in criterion.fields)
    rows = {
        "good is": _good(criterion),
        "labels": _labels(criterion),
        "neighbors": _neighbors(criterion),
        "missing values": _missing(criterion),
        "p-values": f"no: {criterion.untested}" if criterion.significance is None else "yes",
        "fields": fields + (", and `edge_1`, `edge_2`, ..." if name == "InformationGainScore" else ""),
        "citation": criterion.citation,
    }
    return ["| | |", "| --- | --- |", *(f"| **{key}** | {value} |" for key, value in rows.items())]


def _good(criterion: Criterion) -> str:
    later = {"step": "an early pick", "position": "a late elimination" if criterion.name == "SVMRFE" else ""}
    return later.get(criterion.ranked_by, "") or f"{GOOD[criterion.direction]}"


def _labels(criterion: Criterion) -> str:
    if criterion.combines:
        return "those of the combined methods"
    words = {"classification": "classes", "regression": "a target"}
    return " or ".join(words[task] for task in criterion.tasks) if criterion.needs_labels else "not used"


def _neighbors(criterion: Criterion) -> str:
    if criterion.combines:
        return "those of the combined methods"
    searched = bool(criterion.parameters().lists(100))
    if criterion.uses_graph:
        return "of all rows, in X" if searched else "none; with `laplacian: true` of all rows, in X"
    return "of the labeled rows, by target; none for classes" if searched else "none"


def _missing(criterion: Criterion) -> str:
    if criterion.combines:
        return "as the combined methods"
    return "`data.missing: mean`" if criterion.is_joint else "`data.missing: mean` or `pairwise`"


def _parameters(name: str) -> list[str]:
    kind = criterion_named(name).parameters
    names = kind.public_fields()
    properties = kind.model_json_schema()["properties"]
    rows = (f"| `{key}` | `{_shown(kind, key)}` | {KINDS.get(key) or _values(properties[key])} |" for key in names)
    table = ["| parameter | default | values |", "| --- | --- | --- |", *rows]
    shared = GraphChoice.model_fields if issubclass(kind, NeighborParameters) else MetricFields.model_fields
    keys = [f"`graph.{key}`" for key in shared if key in names]
    keys += [f"`{key}`" for parameter, key in SCALINGS.items() if parameter in names]
    keys += ["`significance`"] if "significance" in names else []
    note = f"In a job, {_listed(keys)} {'set' if len(keys) > 1 else 'sets'} the default for all methods."
    return [*table, "", note, ""]


def _listed(words: list[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"


def _shown(kind: Any, key: str) -> str:
    return json.dumps(kind.model_fields[key].default).strip('"')


def _values(schema: Mapping[str, Any]) -> str:
    """Return the values that a parameter takes, from its JSON Schema."""
    kinds = schema.get("anyOf", [schema])
    found = []
    for one in kinds:
        if one.get("type") == "null":
            found.append("`null`")
        elif "enum" in one and len(one["enum"]) <= N_CHOICES:
            found += [f"`{json.dumps(value)}`".replace('"', "") for value in one["enum"]]
        elif "const" in one:
            found.append(f"`{one['const']}`")
        elif one.get("type") == "boolean":
            found += ["`false`", "`true`"]
        elif one.get("type") in ("integer", "number"):
            found.append(_number(one))
        else:
            found.append("a [scaling](../reference/job.md)")
    return ", ".join(dict.fromkeys(found))


def _number(schema: Mapping[str, Any]) -> str:
    noun = "an integer" if schema["type"] == "integer" else "a number"
    low = [f"above {schema['exclusiveMinimum']:g}"] if "exclusiveMinimum" in schema else []
    low += [f"from {schema['minimum']:g}"] if "minimum" in schema else []
    high = [f"below {schema['exclusiveMaximum']:g}"] if "exclusiveMaximum" in schema else []
    high += [f"to {schema['maximum']:g}"] if "maximum" in schema else []
    return " ".join([noun, *low, *high])


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the directive."""
    app.add_directive("criterion", CriterionFacts)
    return {"parallel_read_safe": True}
