"""Template variables of single methods: trade-off, solution of a regression, elimination rounds."""

from __future__ import annotations

from itertools import zip_longest
from typing import Any

from daskfs.report.model import Correlation, EliminationReport, Round, SolutionReport, TradeOff
from daskfs.report.plots import objective_curve, svg_of
from daskfs.report.table_cells import Cell, Fact, number_cell
from daskfs.report.values import DASH, format_count, format_number, format_percent, full_number, plottable, positive

FIELD_MEANINGS = {
    "mean": "mean over the rows",
    "minimum": "smallest value",
    "maximum": "largest value",
    "between": "how much values differ between classes",
    "within": "how much values differ within classes, and between neighbors where there is a graph",
    "correlation": "correlation with the target, or with a class",
    "class_code": "number of that class",
    "threshold": "value at which two classes' distributions differ most",
    "bins_in_use": "intervals of values that hold rows",
    "numerator": "how much values differ along edges of the graph",
    "denominator": "how much values differ over all rows, by their degrees",
    "mixed": "factor by the graph of all rows",
    "supervised": "factor by the graph of the labeled rows",
    "graph_term": "how much values differ along edges of the graph",
    "label_term": "1 minus the normalized mutual information with the labels",
    "relevance": "correlation with the labels",
    "redundancy": "mean correlation with the features picked before",
    "step": "number of the pick",
    "bound": "of a score of 0: share of what a weight other than 0 takes",
    "position": "rank",
    "round": "round of the elimination that dropped the feature",
    "mean_rank": "mean of the ranks",
    "n_rankings": "rankings that have the feature",
    "place": "rank",
    "pvalue": "probability of a score at least as good by chance",
    "qvalue": "false discovery rate of a selection that ends with the feature",
}
"""What the columns beside the score say, by the name of a criterion's field."""

# ---------------------------------------------------------------------------------------------------------- trade-off
_TRADE_OFF_COLUMNS = ("trade_off", "cut_value", "kernel_cut_value", "n_components", "largest_component", "n_distinct")


def trade_off_view(curve: TradeOff) -> dict[str, Any] | None:
    """Return the table of trade-offs, the chosen one marked."""
    rows = []
    for place, *numbers, components, largest, distinct in zip_longest(
        *(getattr(curve, key) for key in _TRADE_OFF_COLUMNS)
    ):
        best = curve.chosen is not None and plottable(place) == curve.chosen
        cells = [number_cell(value, best=best) for value in numbers]
        rows.append((Cell(_weight(place), full_number(place), best=best), cells, components, largest, distinct))
    return {"rows": rows, "chosen": _weight(curve.chosen), "curve": curve} if rows else None


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


def solution_view(solution: SolutionReport, index: int, label: str) -> dict[str, Any]:
    """Return facts and figure on the solution of a regression."""
    before = solution.free_objective
    settled = "settled" if solution.converged else "stopped before they settled"
    iterations = f"{format_count(solution.n_iter)}, {settled}"
    if before:
        iterations += f"; {format_count(len(before))} of RLSR before"
    facts = [
        ("Updates of targets", iterations),
        ("Rounds of the loop", format_count(solution.n_rounds)),
        ("Systems solved by", _SOLVERS.get(solution.solver, DASH)),
        ("Features of a score above 0", format_count(solution.n_active)),
        ("KKT residual of these", format_number(solution.kkt_active)),
        ("KKT value of others (1 at most)", format_number(solution.kkt_inactive)),
    ]
    if before:
        facts += [("eta, of the paper", format_number(solution.eta)), ("eta used", format_number(solution.eta_used))]
    if solution.correlation is not None:
        facts += _correlation_facts(solution.correlation)
    figure = svg_of(objective_curve(before, solution.objective, label=label), f"objective{index}")
    return {"facts": facts, "figure": figure, "is_two_fold": bool(before), "guard": _guard(solution)}


def _guard(solution: SolutionReport) -> str:
    """Describe the halvings of eta that kept SSUFS's objective bounded; empty without halvings."""
    if not solution.halvings:
        return ""
    times = "once" if solution.halvings == 1 else f"{format_count(solution.halvings)} times"
    return (
        f"eta was halved {times}, from {format_number(solution.eta)} to {format_number(solution.eta_used)}: with more, "
        "the weights left the basin of RLSR's solution, beyond which the objective has no lower bound."
    )


def _correlation_facts(correlation: Correlation) -> list[Fact]:
    """Return method, rows and error bounds of the distance correlations."""
    how = _CORRELATIONS.get(correlation.correlation, DASH)
    if correlation.n_components is not None:
        how += f", {format_count(correlation.n_components)} components at most"
    facts = [
        ("Distance correlations", how),
        ("Rows for these", format_count(correlation.n_rows)),
        ("Error of an entry, at most", format_number(correlation.error_bound)),
    ]
    if positive(correlation.sampling_error):
        facts.append(("Sampling error, about", format_number(correlation.sampling_error)))
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


def elimination_view(elimination: EliminationReport) -> dict[str, Any]:
    """Return facts and rounds of an elimination: at most 40 evenly spaced rounds, with the first and last."""
    rounds = elimination.rounds
    facts = [("Route", _ROUTES.get(elimination.route, DASH))]
    if elimination.n_landmarks is not None:
        facts.append(("Landmarks", format_count(elimination.n_landmarks)))
    if elimination.n_rows is not None:
        facts.append(("Rows of the kernel", format_count(elimination.n_rows)))
    facts.append(("Rounds", format_count(len(rounds))))
    radius = next((one.radius for one in rounds if one.radius is not None), None)
    if radius is not None:
        facts.append(("R\N{SUPERSCRIPT TWO}", _RADIUS.get(radius, DASH)))
    last = len(rounds) - 1
    places = sorted({i * last // (_ROUNDS_SHOWN - 1) for i in range(_ROUNDS_SHOWN)}) if rounds else []
    return {
        "facts": facts,
        "rows": [(place + 1, rounds[place], _machines(rounds[place])) for place in places],
        "has_machines": any(one.n_support is not None for one in rounds),
        "are_all": len(places) == len(rounds),
    }


def _machines(one: Round) -> list[Cell]:
    share = Cell(format_percent(one.bound_share), full_number(one.bound_share), best=one.bound_share == 1.0)
    return [Cell(format_count(one.n_support)), share, number_cell(one.gap)]
