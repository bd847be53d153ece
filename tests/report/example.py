"""Summaries to render: one with everything in it, as a run of moderate size would give it."""

from __future__ import annotations

from typing import Any

import numpy as np

HOSTILE_NAMES = (
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "' onmouseover='alert(1)",
    "</style></title></svg><iframe>",
    r"$\frac{1}{2$",
    "{{ 7 * 7 }}{% raw %}",
    "&lt;already&amp;escaped&gt;",
    "名前 ünïcode 🧬 \u202eright to left",
    "control \x00\x08\x1b characters \ud800",
    "a very long name " * 40,
    "",
)

METHODS: tuple[tuple[str, str, str, str], ...] = (
    ("laplacian", "laplacian_score", "ascending", "He, Cai and Niyogi (2005)"),
    ("trace ratio", "trace_ratio", "descending", "Nie et al. (2008)"),
    ("fisher", "fisher_score", "descending", "Duda, Hart and Stork (2001)"),
    ("relief-f, 10 neighbors", "relieff", "descending", "Kononenko (1994)"),
)


def full_summary(n_methods: int = 4, n_top: int = 50, n_features: int = 4096) -> dict[str, Any]:
    """A summary with every part filled in."""
    rng = np.random.default_rng(7)
    labels = [METHODS[i][0] if i < 4 else f"{METHODS[i % 4][0]} ({i})" for i in range(n_methods)]
    return {
        "title": "Digits of handwritten forms",
        "version": "0.1.0",
        "created": "2026-02-03T14:05:09.123456+00:00",
        "command": "daskfs run job.yaml --set graph.n_neighbors=10",
        "seconds": 181.4,
        "data": _data(n_features),
        "methods": [_method(i, label, rng, n_top, n_features) for i, label in enumerate(labels)],
        "agreement": _agreement(labels, rng),
        "redundancy": _redundancy(labels),
        "evaluation": _evaluation(labels, rng),
        "graphs": [_graph(labels, rng)],
        "excluded": {
            "total": 37,
            "rows": [
                {"feature": 64 * i, "name": f"pixel_{i:02d}_00", "note": "constant", "methods": labels[:2]}
                for i in range(12)
            ],
        },
        "stages": _stages(),
        "job": {
            "data": {"source": "digits.zarr", "labels": "target", "exclude": []},
            "graph": {"n_neighbors": 10, "metric": "euclidean", "engine": "auto"},
            "methods": [{"method": METHODS[i % 4][1], "parameters": {"t": None}} for i in range(n_methods)],
        },
        "versions": {
            "daskfs": "0.1.0",
            "python": "3.12.4",
            "numpy": "2.1.3",
            "dask": "2026.3.0",
            "zarr": "3.1.0",
        },
        "warnings": [
            {
                "kind": "rows left out",
                "level": "changes",
                "subject": [],
                "text": "2 of 70,000 rows have no label, and supervised methods leave them out",
            }
        ],
    }


def _data(n_features: int) -> dict[str, Any]:
    return {
        "source": "digits.zarr",
        "n_samples": 70_000,
        "n_features": n_features,
        "task": "classification",
        "n_labeled": 69_998,
        "weights": {"n_counted": 69_500, "total": 81_250.5, "minimum": 0.0, "maximum": 2.5},
        "classes": {str(i): 6313 + 137 * ((i * 7) % 10) for i in range(10)},
        "target": None,
        "sparse": True,
        "density": 0.19123,
        "dtype": "float32",
        "tile_shape": [8192, 1024],
        "bytes": 1_146_880_000,
        "n_constant": 25,
    }


def _method(i: int, label: str, rng: np.random.Generator, n_top: int, n_features: int) -> dict[str, Any]:
    _, method, direction, citation = METHODS[i % 4]
    rank = np.unique(np.geomspace(1, n_features, 300).astype(int))
    share = np.log(rank) / np.log(n_features)
    score = 0.62 + 0.37 * share**1.7 if direction == "ascending" else (3 + i) * (1 - share) ** 1.5 - 0.01 * i
    top = [
        {
            "rank": int(position),
            "feature": int(feature),
            "name": f"pixel_{feature // 64:02d}_{feature % 64:02d}",
            "values": [float(np.interp(position, rank, score)), *map(float, rng.gamma(2, 3e4, 2))],
        }
        for position, feature in enumerate(rng.permutation(n_features)[:n_top], 1)
    ]
    return {
        "label": label,
        "method": method,
        "parameters": {"graph": "knn", "weights": "heat", "t": 12.25, "self_loops": False},
        "direction": direction,
        "citation": f"{citation}. A criterion for the selection of features. Proceedings, 1 to 8.",
        "n_ranked": n_features - 37,
        "n_excluded": 37,
        "curve": {"rank": rank.tolist(), "score": score.tolist()},
        "columns": ["score", "numerator", "denominator"],
        "top": top,
        "trade_off": _trade_off(rng) if i == 1 else None,
        "solution": _solution() if i == 2 else None,
        "elimination": _elimination() if i == 3 else None,
        "image": _image() if i == 2 else None,
    }


def _image() -> dict[str, Any]:
    scores = [[-1, *range(0, 248, 8)], [255] * 32]
    return {"shape": [2, 32], "sizes": [5, 10], "by_rank": False, "scores": scores, "selected": [[255, -2, 48]] * 2}


def _solution() -> dict[str, Any]:
    return {
        "solver": "cholesky",
        "n_iter": 40,
        "n_rounds": 103,
        "converged": True,
        "n_active": 317,
        "kkt_active": 3.1e-7,
        "kkt_inactive": 0.912,
        "free_objective": [900.0 + 4000.0 / (1 + i) for i in range(60)],
        "objective": [880.0 + 80.0 / (1 + i) for i in range(41)],
        "eta": 2e6,
        "eta_used": 125_000.0,
        "eta_reference": 1.1e6,
        "halvings": 4,
        "correlation": {
            "correlation": "feature_map",
            "n_rows": 100_000,
            "n_components": 8,
            "bias_corrected": False,
            "error_bound": 0.0123,
            "sampling_error": 0.00506,
        },
    }


def _elimination() -> dict[str, Any]:
    rounds = [
        {"n_left": 4096 - 50 * i, "n_support": 1200 + i, "bound_share": i / 79, "gap": 3.2e-10, "radius": "variance"}
        for i in range(80)
    ]
    return {"route": "exact", "n_rows": 12_345, "rounds": rounds}


def _trade_off(rng: np.random.Generator) -> dict[str, Any]:
    return {
        "chosen": 0.3,
        "n_rows": 1000,
        "n_features": 50,
        "n_neighbors": 10,
        "trade_off": [i / 10 for i in range(11)],
        "cut_value": [None, *rng.gamma(2, 0.01, 10).tolist()],
        "kernel_cut_value": rng.uniform(size=11).tolist(),
        "kernel_width": rng.gamma(3, 1.5, 11).tolist(),
        "n_components": rng.integers(1, 9, 11).tolist(),
        "largest_component": rng.uniform(0.8, 1, 11).tolist(),
        "n_distinct": rng.integers(400, 1000, 11).tolist(),
    }


def _agreement(labels: list[str], rng: np.random.Generator) -> dict[str, Any]:
    n = len(labels)
    matrix = np.eye(n)
    upper = np.triu_indices(n, 1)
    matrix[upper] = rng.beta(2, 3, len(upper[0]))
    return {"labels": labels, "top_k": 50, "jaccard": np.maximum(matrix, matrix.T).tolist()}


def _redundancy(labels: list[str]) -> dict[str, Any]:
    return {
        "measure": "distance_correlation",
        "threshold": 0.85,
        "n_candidates": 500,
        "max_per_group": 3,
        "n_keep": 2,
        "methods": [{"label": label, "n_kept": 412, "n_selected": 50, "n_dropped": 90} for label in labels],
        "rows": [
            {"label": labels[0], "rank": 7, "name": "pixel_31_00", "reason": "redundant with pixel_30_00 (0.97)"},
            {"label": labels[-1], "rank": 12, "name": HOSTILE_NAMES[0], "reason": f"group {HOSTILE_NAMES[1]} is full"},
        ],
    }


def _evaluation(labels: list[str], rng: np.random.Generator) -> dict[str, Any]:
    selected = [5, 10, 20, 50, 100, 200, 500]
    curves = []
    for i, label in enumerate(labels):
        mean = 0.95 - (0.62 - 0.03 * i) * np.exp(-np.array(selected) / (18 + 9 * i))
        values = mean[:, None] + rng.normal(0, 0.012, (len(selected), 15))
        curves.append(
            {
                "label": label,
                "n_selected": selected,
                "mean": values.mean(axis=1).tolist(),
                "std": values.std(axis=1).tolist(),
                "low": values.min(axis=1).tolist(),
                "high": values.max(axis=1).tolist(),
            }
        )
    panel = {"model": "knn", "metric": "accuracy", "higher_is_better": True, "n_classes": None, "labels": None}
    return {
        "is_simple": True,
        "facts": {
            "models": ["1-nearest-neighbor classifier"],
            "metrics": {"accuracy": True},
            "n_splits": 5,
            "n_repeats": 3,
            "folds": "stratified",
            "n_rows": 10_000,
            "n_rows_total": 70_000,
            "n_unlabeled": None,
            "task": "classification",
            "labels": None,
            "n_draws": None,
            "train_on": "all",
            "n_classes": None,
            "n_subsets": None,
            "n_informative": 0,
            "seed": 0,
        },
        "settings": [{"setting": "transductive", "panels": [{**panel, "curves": curves}]}],
        "gap": [],
        "cost": {
            "n_selections": 4,
            "n_tests": 28,
            "stages": [{"name": "evaluate", "units": 28, "seconds": 66.03}],
            "wall_seconds": 40.25,
            "busy_seconds": 66.03,
            "threads": 2,
            "overhead": 0.1798,
        },
        "warnings": [],
    }


def evaluation_of_draws(summary: dict[str, Any]) -> dict[str, Any]:
    """Return the summary with an evaluation in both settings, of two models, with draws of labels and classes."""
    simple = summary["evaluation"]
    (panel,) = simple["settings"][0]["panels"]
    curves = panel["curves"]
    labels = [curve["label"] for curve in curves]
    places = [
        {"model": m, "metric": "accuracy", "n_classes": 3, "labels": n} for m in ("knn", "svm") for n in (1, 5, 0.4, 50)
    ]
    paired = {"low": -0.03, "high": 0.005, "p_value": 0.02, "n_pairs": 15}
    setting = {
        "panels": [{**panel, **place} for place in places],
        "sensitivity": [
            _sensitivity("labels", "", ["1", "5", "50"], [1, 5, 50], labels),
            _sensitivity("trade_off", "SSelect", ["0", "auto"], [0, None], labels[:1]),
        ],
        "stability": [
            {
                "n_classes": 3,
                "labels": n,
                "curves": [{**curve, "jaccard": curve["mean"], "rankings": [15] * 7} for curve in curves],
            }
            for n in (1, 0.4)
        ],
        "frequent": [
            {
                "n_classes": 3,
                "labels": 1,
                "method": labels[0],
                "n_selected": 10,
                "rows": [
                    {"feature": 7, "name": name, "frequency": 0.8, "mean_rank": 2.5, "rank_low": 1.0, "rank_high": 4.25}
                    for name in ("pixel_00_07", HOSTILE_NAMES[0])
                ],
            }
        ],
        "comparisons": [
            {
                **place,
                "higher_is_better": True,
                "best": labels[0],
                "rows": [
                    {"label": label, "mean": 0.9, "difference": None if i == 0 else -0.0125, **paired}
                    for i, label in enumerate(labels)
                ],
            }
            for place in places
        ],
    }
    gap = {
        "higher_is_better": True,
        "rows": [
            {"label": label, "transductive": 0.91, "inductive": 0.89, "difference": -0.02, **paired} for label in labels
        ],
        "curves": [
            {**curve, "mean": [mean - 0.9 for mean in curve["mean"]], "low": [-0.2] * 7, "high": [None] * 7}
            for curve in curves
        ],
    }
    facts = {
        "models": ["5-nearest-neighbor classifier", "svm: linear-svm classifier (C=2)"],
        "folds": "grouped",
        "n_unlabeled": 500,
        "labels": [0.4, 1, 5, 50],
        "n_draws": 5,
        "train_on": "labeled",
        "n_classes": [3],
        "n_subsets": 20,
        "n_informative": 4,
    }
    evaluation = {
        **simple,
        "is_simple": False,
        "facts": {**simple["facts"], **facts},
        "settings": [{**setting, "setting": name} for name in ("transductive", "inductive")],
        "gap": [{**gap, **place} for place in places],
    }
    return {**summary, "evaluation": evaluation}


def _sensitivity(name: str, base: str, ticks: list[str], places: list[Any], labels: list[str]) -> dict[str, Any]:
    curves = [
        {"label": label, "mean": [0.5 + 0.1 * i for i in range(len(ticks))], "low": [0.4] * len(ticks), "high": [0.95]}
        for label in labels
    ]
    about = {"model": "knn", "metric": "accuracy", "n_classes": 3, "higher_is_better": True}
    return {"name": name, "base": base, "ticks": ticks, "places": places, **about, "curves": curves}


def _graph(labels: list[str], rng: np.random.Generator) -> dict[str, Any]:
    lengths, length_edges = np.histogram(rng.gamma(9, 0.8, 20_000), bins=50)
    degrees, degree_edges = np.histogram(10 + rng.gamma(1.2, 8, 20_000), bins=np.arange(10, 90, 2))
    return {
        "name": "knn",
        "metric": "euclidean",
        "scaling": "standard",
        "n_neighbors": 10,
        "engine": "descent",
        "recall": {"value": 0.9871, "n_rows": 1000, "k": 10},
        "length_histogram": {"edges": length_edges.tolist(), "counts": lengths.tolist()},
        "degree_histogram": {"edges": degree_edges.tolist(), "counts": degrees.tolist()},
        "n_edges": 481_223,
        "n_components": 3,
        "largest_component": 69_981,
        "n_isolated": 0,
        "max_degree": 163,
        "mean_degree": 13.749,
        "weightings": [
            {
                "kind": "heat",
                "t": 12.2534871,
                "t_rule": "mean",
                "self_loops": False,
                "n_underflow": 0,
                "n_isolated": 0,
                "used_by": labels[:2],
            },
            {
                "kind": "binary",
                "t": None,
                "t_rule": None,
                "self_loops": True,
                "n_underflow": 0,
                "n_isolated": 0,
                "used_by": labels[2:4],
            },
        ],
    }


def _stages() -> list[dict[str, Any]]:
    rows = [
        ("ingest", 36, 0, 21.42, 1_146_880_000, 203_423_744, 412_000_000, 500_000_000),
        ("moments", 36, 0, 3.118, 203_423_744, 131_072, 210_000_000, 260_000_000),
        ("neighbors", 9, 2, 184.9, 1_830_813_696, 11_200_000, 900_000_000, 850_000_000),
        ("weights", 9, 0, 0.412, 11_200_000, 22_400_000, None, 64_000_000),
        ("scores", 36, 0, 12.8, 225_823_744, 524_288, 300_000_000, 310_000_000),
        ("rescaled-rows", 3708, 0, 99.1, 225_823_744, 524_288, 300_000_000, 310_000_000),
        ("evaluate", 420, 0, 66.03, 81_920_000, 65_536, 180_000_000, 200_000_000),
    ]
    keys = (
        "name",
        "units",
        "recomputed",
        "seconds",
        "bytes_read",
        "bytes_written",
        "peak_bytes",
        "planned_peak_bytes",
    )
    stages: list[dict[str, Any]] = [dict(zip(keys, row, strict=True)) for row in rows]
    return [{**stage, "rounds": 103 if stage["name"] == "rescaled-rows" else None} for stage in stages]
