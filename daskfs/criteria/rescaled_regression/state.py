"""State of a method of :mod:`daskfs.criteria.rescaled_regression.passes` after a round, written and read."""

from __future__ import annotations

from dataclasses import dataclass, field, fields

import numpy as np

from daskfs.criteria.registry import Method
from daskfs.criteria.rescaled_regression.criterion import RescaledParameters, SolvedBy, UncorrelatedParameters
from daskfs.kernels.regression.rescaled import NEWTON_ITERATIONS, SYSTEM_ITERATIONS, Iterate
from daskfs.stages.cost import Array, Cost, total
from daskfs.stages.parameters import StageParameters
from daskfs.store import layout
from daskfs.store.context import Context

FIRST = "first"
"""Name of the sums of round 0, which all methods share."""
PRODUCTS = 8
"""Products in a state under "cg", averaged over the rounds."""
OTHER_PRODUCTS = 15
"""Products of a step in addition to its iterations: proximal steps and line search; at most 14 were seen."""


def rescaled_parameters(method: Method) -> RescaledParameters:
    """Return the parameters of a method of the family."""
    assert isinstance(method.parameters, RescaledParameters)
    return method.parameters


def is_dragged(method: Method) -> bool:
    """Return whether a method drags the targets of labeled rows, and so needs all rows in every round."""
    return method.criterion.name == "DSSFS"


@dataclass
class State:
    """State of a method after a round; arrays are float64.

    Attributes
    ----------
    at, cross, target_mean, spread
        W with SW, P, the weighted mean of the targets, and ||HY||^2.
    labeled
        Share of labeled rows in P, and in its last row in the sums of the targets; (n_features + 1, n_columns).
    residual
        Sums of the centered columns, which rounding leaves, (n_features,).
    offset
        Prediction of the next pass for a row at the means of the features, (n_columns,).
    drift
        Change of the offset by the targets of the last pass.
    wanted
        Output of the next pass: "targets", or "product" of S and `asked`.
    products
        Products made since `at`.
    base
        RLSR's solution, from which SSUFS starts.
    best
        Weights and offset of the last round, from which `at` and `offset` may be extrapolated.
    carried
        Extrapolated weights, by `momentum`.
    goal
        Tolerance of this round's steps; 0 while its targets are new.
    """

    at: Iterate
    cross: np.ndarray
    target_mean: np.ndarray
    spread: float
    labeled: np.ndarray
    residual: np.ndarray
    total: float
    offset: np.ndarray
    drift: float = 0.0
    phase: str = "free"
    wanted: str = ""
    n_steps: int = 0
    n_outer: int = 0
    relative: float = 1.0
    history: list[float] = field(default_factory=list)
    free_history: list[float] = field(default_factory=list)
    eta: float = 0.0
    eta_asked: float = 0.0
    eta_reference: float = 0.0
    halvings: int = 0
    converged: bool = False
    asked: np.ndarray | None = None
    products: list[np.ndarray] = field(default_factory=list)
    base: tuple[Iterate, np.ndarray, np.ndarray, float] | None = None
    best: tuple[Iterate, np.ndarray] | None = None
    carried: np.ndarray | None = None
    momentum: float = 1.0
    goal: float = 0.0

    @property
    def finished(self) -> bool:
        """True if nothing is left to do."""
        return self.phase == "done"


ARRAYS = ("cross", "target_mean", "labeled", "residual", "offset")
"""Fields of a state that are stored as arrays under their names."""
STORED_APART = ("at", "asked", "products", "base", "best", "carried")
"""Fields that are stored in parts, or only where there are any; all others are scalars or lists of them."""
SCALARS = tuple(field.name for field in fields(State) if field.name not in (*ARRAYS, *STORED_APART))


def save_state(context: Context, key: str, number: int, label: str, state: State) -> None:
    """Write the state of a method after a round."""
    arrays = {name: getattr(state, name) for name in ARRAYS}
    arrays |= {"W": state.at.W, "SW": state.at.SW}
    if state.at.working is not None:
        arrays |= {"working": state.at.working}
    scalars = {name: getattr(state, name) for name in SCALARS} | {"curvature": state.at.curvature}
    if state.base is not None:
        at, cross, mean, spread = state.base
        arrays |= {"base_W": at.W, "base_SW": at.SW, "base_cross": cross, "base_target_mean": mean}
        scalars |= {"base_curvature": at.curvature, "base_spread": spread}
    if state.best is not None:
        at, offset = state.best
        arrays |= {"best_W": at.W, "best_SW": at.SW, "best_offset": offset}
        scalars |= {"best_curvature": at.curvature}
    if state.carried is not None:
        arrays |= {"carried": state.carried}
        scalars |= {"is_carried": True}
    if state.asked is not None:
        arrays |= {"asked": state.asked}
        scalars |= {"n_products": len(state.products)}
        arrays |= {f"product-{place}": product for place, product in enumerate(state.products)}
    context.store.write_arrays(layout.RESCALED_STATE.format(key, number, label), arrays, scalars)


def load_state(context: Context, key: str, number: int, label: str, *, with_products: bool = True) -> State:
    """Return the state of a method after a round; `products` are left empty for a pass, which needs none."""
    array, raw = context.store.read_arrays(layout.RESCALED_STATE.format(key, number, label))
    at = Iterate(array["W"], array["SW"], raw.pop("curvature"), array.get("working"))
    base = None
    if "base_spread" in raw:
        first = Iterate(array["base_W"], array["base_SW"], raw.pop("base_curvature"))
        base = first, array["base_cross"], array["base_target_mean"], raw.pop("base_spread")
    best = None
    if "best_curvature" in raw:
        last = Iterate(array["best_W"], array["best_SW"], raw.pop("best_curvature"))
        best = last, array["best_offset"]
    carried = array["carried"] if raw.pop("is_carried", False) else None
    n_products = raw.pop("n_products", 0)
    products = [array[f"product-{place}"] for place in range(n_products)] if with_products else []
    raw |= {name: array[name] for name in ARRAYS}
    return State(at=at, base=base, best=best, carried=carried, products=products, asked=array.get("asked"), **raw)


def state_cost(n_features: int, n_columns: int, n_methods: int = 1) -> Cost:
    """List the states of some methods, and the vectors derived from the weights of one."""
    size = (n_features, n_columns)
    return (
        Array("W, S W, P, and what labeled rows add to P", (n_methods, 4, *size)),
        Array("RLSR's W, S W and P, that SSUFS starts from", (n_methods, 3, *size)),
        Array("W and S W of the round before", (n_methods, 2, *size)),
        Array("W as carried on, and what a product is asked for", (n_methods, 2, *size)),
        Array("W scaled, a gradient, a step, its product and what it leads to", (n_methods, 5, *size)),
        Array("working set", (n_methods, n_features), "int64"),
    )


def products_cost(n_features: int, n_columns: int, n_products: int) -> Cost:
    """List the products of one state while they are read or written."""
    if not n_products:
        return ()
    return (Array("products of a state, and its file", (2, n_products, n_features, n_columns)),)


def stored_state_bytes(n_features: int, n_columns: int, solver: str) -> int:
    """Return the planned bytes of one state in the store."""
    products = Array("products", (PRODUCTS if solver == "cg" else 0, n_features, n_columns))
    return total(state_cost(n_features, n_columns)) + products.nbytes


def most_products(method: Method, solver: str) -> int:
    """Return the maximum number of products in a state of a method: those of one step."""
    if solver != "cg":
        return 0
    is_pulled = isinstance(method.parameters, UncorrelatedParameters)
    return NEWTON_ITERATIONS + (SYSTEM_ITERATIONS if is_pulled else 0) + OTHER_PRODUCTS


class GroupParameters(StageParameters):
    """Parameters of the stages of a group of methods that share passes."""

    key: str
    methods: tuple[Method, ...]
    solver: SolvedBy


def cheaper_solver(parameters: GroupParameters) -> str:
    """Return advice on a solver that takes less memory, as a sentence to add."""
    return "" if parameters.solver == "cg" else " Methods with solver 'cg' need less, and more passes over X."
