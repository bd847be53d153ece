"""One interface to local paths and to objects, ``s3://bucket/key``, ``gs://bucket/key`` and ``az://container/key``.

Both have the same methods, those of :class:`pathlib.Path` among them. An :class:`ObjectPath` differs: a folder exists
only while it has objects, writes are atomic, and nothing can be appended to, renamed or locked.
"""
# Objects are accessed with obstore (extra ``object``): in our test twice as fast as s3fs, and it retries by itself.
# An interrupted multipart upload leaves invisible parts that the provider stores: a rule of the bucket clears them (on
# S3, AbortIncompleteMultipartUpload).

from __future__ import annotations

import stat
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from daskfs.errors import InputError, JobError
from daskfs.storage.clients import Access, AccessRows, access_rows, apply_access, configured, first_line, reached_by
from daskfs.storage.local import LocalPath
from daskfs.storage.object_names import SCHEMES, is_url
from daskfs.storage.objects import AHEAD_BYTES, MAX_REQUESTS, Fill, ObjectPath, map_ordered

# names of the other files that are imported from here
__all__ = [
    "SCHEMES",
    "Access",
    "AccessRows",
    "Fill",
    "LocalPath",
    "ObjectPath",
    "access_rows",
    "apply_access",
    "configured",
    "first_line",
    "is_url",
    "reached_by",
]

REQUESTED_SINGLY = 4
"""Maximum number of objects of one folder that are requested one by one; more are listed."""
T = TypeVar("T")
R = TypeVar("R")

StoragePath = LocalPath | ObjectPath
PathName = str | Path | ObjectPath
"""Name of a file, a folder or an object: its path or URL."""


def as_path(name: PathName) -> StoragePath:
    """Return the path of a name: an :class:`ObjectPath` for a URL, else an absolute :class:`LocalPath`."""
    if not isinstance(name, str | Path) or isinstance(name, LocalPath):
        return name
    return ObjectPath.of(str(name)) if is_url(name) else LocalPath(name).expanduser().absolute()


def as_output_path(name: str | Path) -> StoragePath:
    """Return the path of an output; raise :class:`JobError` for a URL that cannot be written to."""
    try:
        path = as_path(name)
    except InputError as error:
        raise JobError(str(error)) from None
    if "://" in str(name) and isinstance(path, LocalPath):
        msg = f"{name} cannot be written to: URLs begin with {', '.join(SCHEMES)}."
        raise JobError(msg)
    return path


def used_bytes(where: StoragePath) -> int:
    """Return the bytes of all files below a folder; those that another process deletes meanwhile do not count."""
    used = 0
    for path in where.files_below():
        with suppress(FileNotFoundError):
            used += path.stat().st_size
    return used


def at_once(root: StoragePath | None) -> int:
    """Return the number of concurrent reads below a root.

    One on disk, several in an object store, where latency dominates.
    """
    return MAX_REQUESTS if root is not None and root.is_remote else 1


def map_concurrent(
    root: StoragePath | None, function: Callable[[T], R], items: Iterable[T], item_bytes: int = 1
) -> Iterator[R]:
    """Map a function over items, in order.

    In an object store calls for the next items run ahead, as many as :data:`AHEAD_BYTES` hold if each takes
    `item_bytes`.
    """
    if at_once(root) == 1:
        return map(function, items)
    return map_ordered(function, items, min(MAX_REQUESTS, 1 + AHEAD_BYTES // max(item_bytes, 1)))


def sizes(root: StoragePath, names: Iterable[str], *, whole: bool = False) -> dict[str, int]:
    """Return the sizes of existing files or objects below a root, by name.

    Many files of a folder take one scan of it. If `names` are all or most of those in their folders (`whole`), folders
    of an object store are listed, too: one request for a thousand objects.
    """
    folders: dict[str, list[str]] = {}
    for name in names:
        # chunks of one array are in nested folders: "X/c/3/1"
        is_chunk = root.is_remote and "/c/" in name
        folders.setdefault(name.partition("/c/")[0] if is_chunk else name.rpartition("/")[0], []).append(name)
    is_listed = {
        folder: len(children) > REQUESTED_SINGLY and (not root.is_remote or (whole and folder != ""))
        for folder, children in folders.items()
    }
    single = [name for folder, children in folders.items() if not is_listed[folder] for name in children]
    names_to_list = {name for folder, children in folders.items() if is_listed[folder] for name in children}
    size_by_name: dict[str, int] = {}

    def sizes_in(folder: str) -> list[tuple[str, int]]:
        return (root / folder).sizes_in(f"{folder}/" if folder else "")

    for listing in map_concurrent(root, sizes_in, filter(is_listed.get, folders)):
        size_by_name.update({name: size for name, size in listing if name in names_to_list})
    of_single = zip(single, map_concurrent(root, lambda name: _size(root, name), single), strict=True)
    size_by_name.update({name: size for name, size in of_single if size is not None})
    return size_by_name


def _size(root: StoragePath, name: str) -> int | None:
    try:
        status = (root / name).stat()
    except ValueError:  # an invalid name
        return None
    except OSError as error:
        if root.is_remote and not isinstance(error, FileNotFoundError):  # the store may not have responded
            raise
        return None
    return status.st_size if stat.S_ISREG(status.st_mode) else None
