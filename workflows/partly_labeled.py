"""Hides labels: copies an .npz data set and keeps the label of a share of its rows only.

    python workflows/partly_labeled.py SOURCE.npz TARGET.npz [--share 0.1] [--seed 0]

SOURCE holds ``X`` (or the parts of a CSR matrix: ``data``, ``indices``, ``indptr``, ``shape``), ``y``, and maybe
``X_unlabeled``, rows without a label, which are added at the end. In TARGET, ``y`` is -1 (classes) or NaN (a float
target) where the label is hidden. Every class keeps a label. Two classes -1 and 1 become 0 and 1, as -1 hides a label.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np


def numbered(y: np.ndarray) -> np.ndarray:
    """Return labels of which -1 is none of two classes."""
    values = np.unique(y)
    return np.searchsorted(values, y) if y.dtype.kind != "f" and values.size == 2 and -1 in values else y


def kept_rows(y: np.ndarray, share: float, seed: int) -> np.ndarray:
    """Return the sorted rows that keep their label: a share of each class, one row at least; of a target, of all."""
    generator = np.random.default_rng(seed)
    groups = [np.arange(y.size)] if y.dtype.kind == "f" else [np.flatnonzero(y == value) for value in np.unique(y)]
    kept = [generator.permutation(rows)[: max(1, round(share * rows.size))] for rows in groups]
    return np.sort(np.concatenate(kept))


def hide_labels(source: Path, target: Path, share: float, seed: int) -> tuple[int, int]:
    """Write the copy; return how many rows it has, and how many of them have a label."""
    with np.load(source) as file:
        members = {name: file[name] for name in file.files}
    y, extra = numbered(members["y"]), members.pop("X_unlabeled", None)
    kept = kept_rows(y, share, seed)
    hidden = np.full(y.shape, np.nan if y.dtype.kind == "f" else -1, dtype=y.dtype)
    hidden[kept] = y[kept]
    if extra is not None:
        members["X"] = np.concatenate([members["X"], extra])
        hidden = np.concatenate([hidden, np.full(len(extra), hidden.dtype.type(np.nan if y.dtype.kind == "f" else -1))])
    parts = ("X", "data", "indices", "indptr", "shape")
    with target.open("xb") as file:
        np.savez_compressed(file, y=hidden, **{name: members[name] for name in parts if name in members})
    return hidden.size, kept.size


def main(arguments: list[str] | None = None) -> None:
    """Parse the command line and write the copy."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("source", type=Path)
    parser.add_argument("target", type=Path)
    parser.add_argument("--share", type=float, default=0.1, help="Share of the labels to keep, in (0, 1]")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    if not 0 < options.share <= 1:
        parser.error(f"--share is {options.share}: a number above 0, 1 at most.")
    if options.target.exists():
        parser.error(f"{options.target} exists already: choose another name.")
    try:
        n_samples, n_labeled = hide_labels(options.source, options.target, options.share, options.seed)
    except (OSError, KeyError) as error:
        parser.error(f"{options.source} cannot serve: {error}.")
    print(f"{options.target}: {n_samples} rows, {n_labeled} with a label")


if __name__ == "__main__":
    main()
