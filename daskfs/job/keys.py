"""Reading of a YAML file of keys, with overrides."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from daskfs.errors import InputError, JobError
from daskfs.redaction import redact_credentials
from daskfs.sources import is_data
from daskfs.storage import LocalPath, as_path, is_url

MAX_FILE_BYTES = 16 << 20
MAX_DEPTH = 50
MAX_VALUES = 1_000_000
TOO_DEEP = f"lists and keys lie within each other more than {MAX_DEPTH} deep"


def read_keys(path: str | Path, overrides: Sequence[str] = ()) -> dict[str, Any]:
    """Read a YAML file of keys, apply overrides in the form of :func:`load_job`, and return the keys.

    :class:`JobError` for a file that cannot be read or holds no keys. A file at a URL is reached by the settings of the
    environment, as its own `storage` block is not known before.
    """
    if is_data(str(path)):
        msg = f"{path} is data, and no job file: 'daskfs rank {path}' ranks its features."
        raise JobError(msg)
    try:
        file = as_path(path) if is_url(path) else LocalPath(path)
        if file.regular().stat().st_size > MAX_FILE_BYTES:
            msg = f"it has more than {MAX_FILE_BYTES >> 20} MiB"
            raise ValueError(msg)
        raw = _parse_yaml(file.read_text(encoding="utf-8-sig"))
    except InputError as error:
        raise JobError(str(error)) from error
    except OSError as error:
        msg = f"cannot read the job file {file}: {error.strerror}."
        raise JobError(msg) from error
    except ValueError as error:
        msg = f"{file} is not YAML that daskfs takes: {error}."
        raise JobError(msg) from error
    if not isinstance(raw, dict):
        holds = (
            "is empty"
            if raw is None
            else f"holds {'a list' if isinstance(raw, list) else redact_credentials(repr(raw))[:40]}"
        )
        msg = f"{file} must hold keys such as data, methods and output; it {holds}."
        raise JobError(msg)
    return override_keys(raw, overrides)


def override_keys(raw: dict[str, Any], overrides: Sequence[str]) -> dict[str, Any]:
    """Apply overrides in the form of :func:`load_job` to `raw`, in place, and return it."""
    for override in overrides:
        key, separator, text = override.partition("=")
        where = f"--set {redact_credentials(override)}"
        if not separator or not key:
            msg = f"{where}: write key=value, for example --set graph.n_neighbors=10."
            raise JobError(msg)
        try:
            value = _parse_yaml(text)
        except ValueError as error:
            msg = f"{where}: {redact_credentials(text)!r} is not a YAML value: {error}."
            raise JobError(msg) from error
        set_key(raw, key, value, where)
    return raw


class _Loader(yaml.SafeLoader):
    """YAML loader of plain values that refuses repeated keys, of which PyYAML silently keeps the last."""

    n_merged = 0

    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:
        """Read a mapping; raise ``ComposerError`` for a repeated key."""
        node = super().compose_mapping_node(anchor)
        keys: set[str] = set()
        for key, _ in node.value:
            if str(key.value) in keys:
                raise yaml.composer.ComposerError(None, None, f"key '{key.value}' is there twice", key.start_mark)
            keys.add(str(key.value))
        return node

    def flatten_mapping(self, node: yaml.MappingNode) -> None:
        """Expand merge keys; raise ``ConstructorError`` for more than :data:`MAX_VALUES` keys in the whole file."""
        super().flatten_mapping(node)
        self.n_merged += len(node.value)
        if self.n_merged > MAX_VALUES:
            raise yaml.constructor.ConstructorError(None, None, "its merge keys repeat too much", node.start_mark)


def _parse_yaml(text: str) -> Any:
    """Parse YAML; ``ValueError`` with a one-line message for invalid text.

    PyYAML also raises the errors of the constructors of dates and numbers.
    """
    try:
        document = yaml.load(text, Loader=_Loader)  # noqa: S506, a SafeLoader
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        where = f" in line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        msg = f"{error.problem or error.context}{where}"
        raise ValueError(msg) from error
    except RecursionError as error:
        raise ValueError(TOO_DEEP) from error
    except (yaml.YAMLError, ValueError, AttributeError, LookupError, ArithmeticError) as error:
        raise ValueError(" ".join(str(error).split())) from error
    _count_values(document, {}, ())
    return document


def _count_values(value: Any, counted: dict[int, int], within: tuple[int, ...]) -> int:
    """Return the number of values within a value, with the repeats of aliases.

    ``ValueError`` for more than :data:`MAX_VALUES`, deeper nesting than :data:`MAX_DEPTH`, a value within itself, an
    integer of 64 bits or more, or a NUL character.
    """
    if isinstance(value, int) and abs(value) >= 2**63:
        msg = f"a whole number of {value.bit_length()} bits is too large"
        raise ValueError(msg)
    if isinstance(value, str) and "\0" in value:
        msg = f"there is a NUL character in {value[:40]!r}"
        raise ValueError(msg)
    if not isinstance(value, dict | list | tuple | set):
        return 1
    if id(value) in within:
        msg = "an alias stands for something that it is a part of"
        raise ValueError(msg)
    if len(within) >= MAX_DEPTH:
        raise ValueError(TOO_DEEP)
    if id(value) not in counted:
        entries = [*value, *value.values()] if isinstance(value, dict) else [*value]
        counted[id(value)] = 1 + sum(_count_values(entry, counted, (*within, id(value))) for entry in entries)
    if counted[id(value)] > MAX_VALUES:
        msg = f"its aliases repeat what they stand for more than {MAX_VALUES:,} times"
        raise ValueError(msg)
    return counted[id(value)]


def set_key(raw: dict[str, Any], key: str, value: Any, where: str) -> None:
    """Set a dotted key of a job in place; :class:`JobError`, which begins with `where`, if it leads nowhere."""
    parts = key.split(".")
    target: Any = raw
    place: Any
    for position, part in enumerate(parts):
        last = position == len(parts) - 1
        if isinstance(target, list):
            if not (part.isascii() and part.isdigit()) or int(part) >= len(target):
                msg = (
                    f"{where}: '{'.'.join(parts[:position])}' is a list of {len(target)}; '{part}' is "
                    "not one of its numbers."
                )
                raise JobError(msg)
            place = int(part)
            below = {"name": target[place]} if isinstance(target[place], str) else target[place]
        elif isinstance(target, dict):
            place, below = part, {} if target.get(part) is None else target[part]
        else:
            msg = f"{where}: '{'.'.join(parts[:position])}' holds a value, not keys."
            raise JobError(msg)
        target[place] = value if last else below
        target = target[place]
