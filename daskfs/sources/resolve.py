"""Resolution of the user's names for labels, per-sample columns, feature names and excluded columns."""

from __future__ import annotations

import fnmatch
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from daskfs.errors import InputError, nearest
from daskfs.sources.base import SAMPLE_COLUMNS, SourceSpec
from daskfs.sources.checks import shorten_names, split_reference, unknown_name
from daskfs.sources.label_files import TextLines, parts_of_file
from daskfs.sources.stored_column import StoredColumn
from daskfs.storage import SCHEMES, StoragePath, is_url

NON_NUMERIC = "non-numeric"
"""Entry of data.exclude that stands for all columns of a table that hold no numbers."""
TENX_NAMES = ("features.tsv", "genes.tsv")


@dataclass(frozen=True)
class LabelRef:
    """A reference to labels or a per-sample column: a column or member of the source itself, or a separate file.

    `origin` is its name in messages.
    """

    name: str
    inside: bool
    origin: str
    what: str

    def column(self, n_samples: int, read_member: Callable[[str], Iterator[np.ndarray]]) -> StoredColumn:
        """Return the column as stored; `read_member` yields a column or member of the source in parts."""
        read = partial(read_member, self.name) if self.inside else parts_of_file(self.name, n_samples, self.what)
        return StoredColumn(n_samples, self.origin, self.what, read)


def resolve_column(
    spec: SourceSpec, what: str, names: Sequence[str], kind: str, default: str | None = None
) -> LabelRef | None:
    """Find the column that field `what` of `spec` names, else `default`, among the source's `names`, then among files.

    `kind` is a noun for one of `names` in messages: "column" or "member". :class:`InputError` if there is none.
    """
    name = default if (named := getattr(spec, what)) is None else named
    if name is None:
        return None
    if name in names:
        if list(names).count(name) > 1:
            msg = f"{spec.source} has more than one {kind} {name!r}; {what} need a name of their own."
            raise InputError(msg)
        return LabelRef(name, inside=True, origin=f"{spec.source}:{name}", what=what)
    if split_reference(name) is not None:
        return LabelRef(name, inside=False, origin=name, what=what)
    if names:
        msg = f"data.{what}: {no_file(name)}, and {unknown_name(name, kind, names, spec.source)}"
        raise InputError(msg)
    msg = f"data.{what} is {name!r}: there is {no_file(name)}, and {spec.source} has no {kind}s."
    raise InputError(msg)


def resolve_sample_columns(spec: SourceSpec, names: Sequence[str], kind: str) -> dict[str, LabelRef]:
    """Find per-sample columns of `spec` by key, like :func:`resolve_column`; only groups and batch may share one."""
    keys: dict[str, str] = {}
    for key in ("labels", *SAMPLE_COLUMNS):
        name = getattr(spec, key)
        if name is not None and keys.setdefault(name, key) != key and {keys[name], key} != {"groups", "batch"}:
            msg = f"data.{keys[name]} and data.{key} both name {name!r}."
            raise InputError(msg)
    refs = {key: resolve_column(spec, key, names, kind) for key in SAMPLE_COLUMNS}
    return {key: ref for key, ref in refs.items() if ref is not None}


def no_file(name: str) -> str:
    """Return the phrase for messages that file `name` does not exist."""
    hint = f" (URLs begin with {', '.join(SCHEMES)})" if "://" in name and not is_url(name) else ""
    return f"no such file{hint}"


def resolve_columns(spec: SourceSpec, columns: Sequence[str], refs: Sequence[LabelRef]) -> list[int]:
    """Return the indices of the feature columns: all but the excluded ones and those that `refs` name."""
    taken = {ref.name: ref.what for ref in refs if ref.inside}
    for name in taken:
        if name in spec.exclude:
            msg = f"{spec.source}: column {name!r} is both data.{taken[name]} and in data.exclude."
            raise InputError(msg)
    excluded = {entry: _matching_columns(entry, columns) for entry in spec.exclude}
    unknown = [entry for entry, names in excluded.items() if not names and entry != NON_NUMERIC]
    if unknown:
        msg = (
            f"data.exclude names {shorten_names(unknown)}, which {spec.source} does not have; "
            f"its columns are {shorten_names(columns)}.{nearest(unknown[0], tuple(columns))}"
        )
        raise InputError(msg)
    left_out = {*taken, *(name for names in excluded.values() for name in names)}
    features = [index for index, name in enumerate(columns) if name not in left_out]
    if not features:
        msg = f"{spec.source} has no feature column left besides the excluded ones and those that data names."
        raise InputError(msg)
    return features


def _matching_columns(entry: str, columns: Sequence[str]) -> list[str]:
    """Return the columns that an entry of data.exclude names: itself, or those that fit it as a pattern."""
    if entry in columns:
        return [entry]
    return fnmatch.filter(columns, entry) if any(sign in entry for sign in "*?") else []


def resolve_feature_names(
    spec: SourceSpec,
    n_features: int,
    own_names: Sequence[str] | None = None,
    members: Sequence[str] = (),
    read_member: Callable[[str], np.ndarray] | None = None,
    kind: str = "member",
) -> tuple[str, ...] | None:
    """Return one name for each column of X, or None if there are no names.

    They are the source's `own_names` unless the user named others: a file, or one of the `members`, each a `kind` in
    messages that `read_member` reads. :class:`InputError` if that does not exist, or does not hold `n_features` names.
    """
    if (reference := spec.feature_names) is None:
        return tuple(own_names) if own_names is not None else None
    if read_member is not None and reference in members:
        names = _names_of_member(read_member(reference), f"{spec.source}:{reference}")
    elif (file_and_member := split_reference(reference)) is not None:
        names = _names_of_file(*file_and_member)
    elif members:
        msg = f"data.feature_names: {no_file(reference)}, and {unknown_name(reference, kind, members, spec.source)}"
        raise InputError(msg)
    else:
        msg = f"data.feature_names is {reference!r}: there is {no_file(reference)}."
        raise InputError(msg)
    if len(names) != n_features:
        msg = f"{reference} has {len(names)} names, X has {n_features} columns."
        raise InputError(msg)
    return names


def _names_of_member(values: np.ndarray, where: str) -> tuple[str, ...]:
    if values.ndim != 1 or values.dtype.kind not in "USTO":
        msg = f"{where} has shape {values.shape} and dtype {values.dtype}; feature names are a list of text."
        raise InputError(msg)
    if values.dtype.kind == "S":
        try:
            values = np.char.decode(values, "utf-8")
        except UnicodeDecodeError as error:
            msg = f"{where} holds bytes that are not text in UTF-8: save the names as text."
            raise InputError(msg) from error
    return tuple(str(value) for value in values)


def _names_of_file(path: StoragePath, column: str | None) -> tuple[str, ...]:
    """Return the lines of a text file, or one of its tab-separated columns.

    That is `column`, counted from 1, else the first one, or in ``features.tsv`` and ``genes.tsv`` of 10x the second
    one, after the identifiers.
    """
    content = "a text file in UTF-8 with one feature name a line"
    lines = TextLines(path, lambda line: line.rstrip("\n") if line.strip() else "", content)
    rows = [(line or "").split("\t") for part in lines.parts() for line in part]
    n_columns = min((len(row) for row in rows), default=1)
    number = min(2, n_columns) if path.name in TENX_NAMES else 1
    if column is not None:
        number = int(column) if column.isdigit() else 0
    if not 1 <= number <= n_columns:
        msg = f"data.feature_names: {path} has {n_columns} columns between tabs, and none of the number {column!r}."
        raise InputError(msg)
    if n_columns == 1:
        return tuple("\t".join(row).strip() for row in rows)
    return tuple(row[number - 1].strip() for row in rows)
