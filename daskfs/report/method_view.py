"""Template variables of single methods: trade-off, solution of a regression, elimination rounds."""

from __future__ import annotations

from itertools import zip_longest
from typing import Any

from daskfs.report.plots import objective_curve
from daskfs.report.table_cells import Cell, Fact
from daskfs.report.values import (
    MISSING,
    as_float,
    as_mapping,
    format_count,
    format_number,
    format_percent,
    full_number,
    mappings,
    plottable,
    positive,
    sequence,
)

# ---------------------------------------------------------------------------------------------------------- trade-off
_TRADE_OFF_COLUMNS = ("trade_off", "cut_value", "kernel_cut_value", "n_components", "largest_component", "n_distinct")


def trade_off_view(curve: dict[str, Any]) -> dict[str, Any] | None:
    """Return the table of trade-offs, the chosen one marked."""
    chosen = as_float(curve.get("chosen"))
    rows = []
    for place, *numbers, components, largest, distinct in zip_longest(
        *(sequence(curve.get(key)) for key in _TRADE_OFF_COLUMNS)
    ):
        best = chosen is not None and plottable(place) == chosen
        rows.append(
            {
                "trade_off": Cell(_weight(place), full_number(place), best=best),
                "values": [Cell(format_number(value), full_number(value), best=best) for value in numbers],
                "components": format_count(components),
                "largest": format_percent(largest),
                "distinct": format_count(distinct),
            }
        )
    if not rows:
        return None
    return {
        "rows": rows,
        "chosen": _weight(chosen),
        "n_features": format_count(curve.get("n_features")),
        "n_rows": format_count(curve.get("n_rows")),
    }


def _weight(value: object) -> str:
    """Format a number of few digits without padding zeros."""
    number = plottable(value)
    return f"{number:g}" if number == number else format_number(value)


# ----------------------------------------------------------------------------------------------------------- solution
_SOLVERS = {
    "cholesky": "X'X as a matrix (Cholesky)",
    "woodbury": "rows of X (Woodbury)",
    "cg": "products over all rows (conjugate gradients)",
}
_CORRELATIONS = {
    "exact": "exact",
    "feature_map": "feature map",
    "matrix_free": "products with a matrix that is not formed",
}


def solution_view(found: dict[str, Any], index: int, label: str) -> dict[str, Any] | None:
    """Return facts and figure on the solution of a regression."""
    if not found:
        return None
    before = sequence(found.get("free_objective"))
    settled = "settled" if found.get("converged") else "stopped before they settled"
    iterations = f"{format_count(found.get('n_iter'))}, {settled}"
    if before:
        iterations += f"; {format_count(len(before))} of RLSR before"
    facts = [
        ("Updates of targets", iterations),
        ("Rounds of the loop", format_count(found.get("n_rounds"))),
        ("Systems solved by", _SOLVERS.get(str(found.get("solver")), MISSING)),
        ("Features of a score above 0", format_count(found.get("n_active"))),
        ("KKT residual of these", format_number(found.get("kkt_active"))),
        ("KKT value of others (1 at most)", format_number(found.get("kkt_inactive"))),
    ]
    if before:
        facts += [
            ("eta, of the paper", format_number(found.get("eta"))),
            ("eta used", format_number(found.get("eta_used"))),
        ]
    facts += _correlation_facts(as_mapping(found.get("correlation")))
    figure = objective_curve(before, found.get("objective"), prefix=f"objective{index}", label=label)
    return {"facts": facts, "figure": figure, "is_two_fold": bool(before), "guard": _guard(found)}


def _guard(found: dict[str, Any]) -> str:
    """Describe the halvings of eta that kept SSUFS's objective bounded; empty without halvings."""
    halvings = as_float(found.get("halvings"))
    if not halvings:
        return ""
    times = "once" if halvings == 1 else f"{format_count(halvings)} times"
    asked, used = format_number(found.get("eta")), format_number(found.get("eta_used"))
    return (
        f"eta was halved {times}, from {asked} to {used}: with more, the weights left the basin of RLSR's solution, "
        "beyond which the objective has no lower bound."
    )


def _correlation_facts(found: dict[str, Any]) -> list[Fact]:
    """Return method, rows and error bounds of the distance correlations."""
    if not found:
        return []
    how = _CORRELATIONS.get(str(found.get("correlation")), MISSING)
    if found.get("n_components") is not None:
        how += f", {format_count(found['n_components'])} components at most"
    facts = [
        ("Distance correlations", how),
        ("Rows for these", format_count(found.get("n_rows"))),
        ("Error of an entry, at most", format_number(found.get("error_bound"))),
    ]
    if positive(found.get("sampling_error")):
        facts.append(("Sampling error, about", format_number(found.get("sampling_error"))))
    return facts


# ------------------------------------------------------------------------------------------------------- elimination
_ROUTES = {
    "exact": "exact: machines trained with all labeled rows",
    "landmarks": "landmarks: sums over all rows in every round",
}
_RADIUS = {
    "exact": "smallest sphere round the rows",
    "variance": "bounded from below by the variance",
}
_ROUNDS_SHOWN = 40


def elimination_view(found: dict[str, Any]) -> dict[str, Any] | None:
    """Return facts and rounds of an elimination: at most 40 evenly spaced rounds, with the first and last."""
    if not found:
        return None
    rounds = mappings(found.get("rounds"))
    facts = [("Route", _ROUTES.get(str(found.get("route")), MISSING))]
    if found.get("n_landmarks") is not None:
        facts.append(("Landmarks", format_count(found.get("n_landmarks"))))
    if found.get("n_rows") is not None:
        facts.append(("Rows of the kernel", format_count(found.get("n_rows"))))
    facts.append(("Rounds", format_count(len(rounds))))
    radius = next((seen["radius"] for seen in rounds if seen.get("radius") is not None), None)
    if radius is not None:
        facts.append(("R\N{SUPERSCRIPT TWO}", _RADIUS.get(str(radius), MISSING)))
    last = len(rounds) - 1
    places = sorted({i * last // (_ROUNDS_SHOWN - 1) for i in range(_ROUNDS_SHOWN)}) if rounds else []
    return {
        "facts": facts,
        "rows": [_round(place + 1, rounds[place]) for place in places],
        "has_machines": any(seen.get("n_support") is not None for seen in rounds),
        "are_all": len(places) == len(rounds),
    }


def _round(number: int, seen: dict[str, Any]) -> dict[str, Any]:
    share, gap = seen.get("bound_share"), seen.get("gap")
    return {
        "number": format_count(number),
        "n_left": format_count(seen.get("n_left")),
        "machines": [
            Cell(format_count(seen.get("n_support"))),
            Cell(format_percent(share), full_number(share), best=as_float(share) == 1.0),
            Cell(format_number(gap), full_number(gap)),
        ],
    }
