"""One interface to local paths and to objects, ``s3://bucket/key``, ``gs://bucket/key`` and ``az://container/key``.

An :class:`ObjectPath` has the methods of :class:`pathlib.Path` that the code uses. It differs: a folder exists only
while it has objects, writes are atomic, and nothing can be appended to, renamed or locked. Functions that differ by
the kind of path are here.
"""
# Objects are accessed with obstore (extra ``object``): in our test twice as fast as s3fs, and it retries by itself.
# An interrupted multipart upload leaves invisible parts that the provider stores: a rule of the bucket clears them (on
# S3, AbortIncompleteMultipartUpload).

from __future__ import annotations

import errno
import io
import os
import posixpath
import shutil
import stat
import sys
import threading
import uuid
import zipfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from functools import partial
from pathlib import Path
from typing import IO, Any, TypeVar

from daskfs.errors import InputError, JobError
from daskfs.storage.clients import (
    Access,
    AccessRows,
    access_rows,
    apply_access,
    as_os_errors,
    client_of,
    configure,
    configured,
    first_line,
    reached_by,
)
from daskfs.storage.objects import (
    AHEAD_BYTES,
    AT_ONCE,
    BUFFER_BYTES,
    PIECES_AT_ONCE,
    SCHEMES,
    Fill,
    ObjectPath,
    Tag,
    delete_objects,
    is_url,
    map_ordered,
)

# names of the other files that are imported from here
__all__ = [
    "SCHEMES",
    "Access",
    "AccessRows",
    "Fill",
    "ObjectPath",
    "Tag",
    "access_rows",
    "apply_access",
    "configure",
    "configured",
    "first_line",
    "is_url",
    "reached_by",
]

ASIDE = ".aside-"
"""Separates the name of a folder that was moved aside from a unique suffix."""
IN_USE = (errno.ENOTEMPTY, errno.EBUSY)
"""Errors of deleting a folder of NFS in which a process has a file open: it stays as .nfsXXXX."""
CANNOT = (errno.EOPNOTSUPP, errno.EPERM, errno.ENOSYS, errno.EMLINK)
"""Errors of file systems without hard links, and of stores without conditional writes."""
FEW = 4
"""Maximum number of objects of one folder that are requested one by one; more are listed."""
T = TypeVar("T")
R = TypeVar("R")
P = TypeVar("P", bound="Path | ObjectPath")

StoragePath = Path | ObjectPath


def as_path(name: str | Path | ObjectPath) -> StoragePath:
    """Return the path of a name: an :class:`ObjectPath` for a URL, else an absolute local path."""
    if isinstance(name, ObjectPath):
        return name
    return ObjectPath.of(str(name)) if is_url(name) else Path(name).expanduser().absolute()


def as_output_path(name: str | Path) -> StoragePath:
    """Return the path of an output; raise :class:`JobError` for a URL that cannot be written to."""
    try:
        found = as_path(name)
    except InputError as error:
        raise JobError(str(error)) from None
    if "://" in str(name) and isinstance(found, Path):
        msg = f"{name} cannot be written to: URLs begin with {', '.join(SCHEMES)}."
        raise JobError(msg)
    return found


# ------------------------------------------------------------------------- functions that differ by the kind of path
def free_bytes(where: StoragePath) -> int | None:
    """Return the free bytes of the disk that holds a folder, None for an object store."""
    return None if isinstance(where, ObjectPath) else shutil.disk_usage(where).free


def used_bytes(where: StoragePath) -> int:
    """Return the bytes of all files below a folder; those that another process deletes meanwhile do not count."""
    used = 0
    for path in files_below(where):
        with suppress(FileNotFoundError):
            used += path.stat().st_size
    return used


def errors_of(where: StoragePath) -> Any:
    """Return a context that turns errors of a path into :class:`OSError`."""
    return as_os_errors(where) if isinstance(where, ObjectPath) else nullcontext()


def put(where: StoragePath, data: bytes | memoryview, *, synced: bool = True) -> None:
    """Write a file or an object atomically; a folder of that name is deleted.

    Readers see the old one or the new one, if `synced` even after a loss of power.
    """
    if isinstance(where, ObjectPath):
        where.write_bytes(data)
    else:
        put_blocks(where, (data,), synced=synced)


def put_blocks(where: StoragePath, blocks: Iterable[bytes | memoryview], *, synced: bool = True) -> None:
    """Write a file or an object as :func:`put` does, from blocks that need not fit memory together."""
    if isinstance(where, ObjectPath):
        where.write_blocks(blocks)
        return
    with _temporary_file(where, blocks, synced=synced) as temporary:
        if where.is_dir():
            remove(where)
        temporary.replace(where)


def put_first(where: StoragePath, data: bytes) -> bool:
    """Write a file or an object unless it exists; return whether it was written.

    If a file system has no hard links, or a store no conditional writes, the last one stays.
    """
    try:
        if isinstance(where, ObjectPath):
            where.put_if(data, (None, None))
            return True
        with _temporary_file(where, (data,), synced=True) as temporary:
            where.hardlink_to(temporary)
    except FileExistsError:
        return False
    except OSError as error:
        if error.errno not in CANNOT:
            raise
        put(where, data)
    return True


def _temporary_name(where: Path) -> Path:
    return where.with_name(f".{where.name}.{os.getpid()}.{threading.get_ident()}.tmp")


@contextmanager
def _temporary_file(where: Path, blocks: Iterable[bytes | memoryview], *, synced: bool) -> Iterator[Path]:
    """Yield a temporary file with the data in the same folder."""
    # obstore's LocalStore renames without fsync, which it has no option for: after a loss of power files may be empty.
    # It is no faster: a put of 4 KiB takes 0.17 ms, this without fsync 0.20 ms, and a read 0.08 ms instead of 0.04 ms.
    where.parent.mkdir(parents=True, exist_ok=True)
    temporary = _temporary_name(where)
    try:
        with temporary.open("wb") as file:
            for block in blocks:
                file.write(block)
            if synced:
                file.flush()
                os.fsync(file.fileno())
        yield temporary
    finally:  # a partial file would take space on a full disk
        temporary.unlink(missing_ok=True)


def regular(where: P) -> P:
    """Return a path; :class:`InputError` for a pipe, device or socket, whose reads could wait for ever or never end."""
    if isinstance(where, Path) and not where.is_file() and not where.is_dir() and where.exists():
        msg = f"{where} is a pipe, a device or a socket: write what it holds to a file, and name that."
        raise InputError(msg)
    return where


@contextmanager
def open_ranges(where: StoragePath) -> Iterator[Fill]:
    """Open a file or an object, and yield a function that reads parts of it."""
    if isinstance(where, ObjectPath):
        yield where.fill
        return
    descriptor = os.open(regular(where), os.O_RDONLY)
    try:
        yield partial(fill_from, descriptor)
    finally:
        os.close(descriptor)


def fill_from(descriptor: int, parts: Iterable[tuple[int, memoryview]]) -> None:
    """Fill buffers from an open file, see :data:`Fill`. The file offset is unchanged, so this is thread-safe."""
    for start, whole in parts:
        offset, view = start, whole
        while len(view):
            count = os.preadv(descriptor, [view], offset)
            if count == 0:
                msg = "the file ended while it was being read"
                raise EOFError(msg)
            view, offset = view[count:], offset + count


def blocks_ahead(where: StoragePath, size: int, block_bytes: int) -> Iterator[bytes | memoryview]:
    """Yield the first `size` bytes of a file or an object, block by block.

    Blocks of an object are prefetched, and retried one by one if a connection breaks.
    """
    if isinstance(where, ObjectPath):
        ranges = [(start, min(start + block_bytes, size)) for start in range(0, size, block_bytes)]
        yield from map_ordered(lambda part: where.read_range(*part), ranges, PIECES_AT_ONCE)
        return
    with regular(where).open("rb", buffering=0) as file:
        yield from iter(lambda: file.read(block_bytes), b"")


@contextmanager
def zip_archive(where: StoragePath, at_once: int = BUFFER_BYTES) -> Iterator[zipfile.ZipFile]:
    """Open a zip file; an object is read with requests of `at_once` bytes."""
    with (
        regular(where).open("rb", at_once if isinstance(where, ObjectPath) else -1) as file,
        zipfile.ZipFile(file) as archive,
    ):
        yield archive


def is_there(where: StoragePath) -> bool:
    """Return whether a path exists: a file, a link (even a dangling one), an object or a folder."""
    return where.exists() if isinstance(where, ObjectPath) else os.path.lexists(where)


def remove(where: StoragePath) -> None:
    """Delete a file, an object or a folder with its contents, if present.

    A folder is renamed first, so that processes that still write to it cannot fill it while it is deleted. What NFS
    keeps for a process that has a file open stays in it, and is deleted like any unfinished write, when a run starts.
    """
    if isinstance(where, ObjectPath):
        where.unlink()
        delete_objects(path for path, _ in where.objects())
    elif where.is_dir() and not where.is_symlink():
        renamed = _temporary_name(where)
        where.rename(renamed)
        _remove_tree(renamed)
    else:
        where.unlink(missing_ok=True)


def _remove_tree(folder: Path) -> None:
    first: list[str] = []  # Python 3.13 calls again with the folder of the path whose error was raised

    def refuse(_: object, path: str, error: BaseException) -> None:
        if isinstance(error, OSError) and error.errno not in IN_USE:
            first.append(path)
            raise OSError(error.errno, error.strerror, first[0]) from error  # else it is a name without its folder

    if sys.version_info >= (3, 12):
        shutil.rmtree(folder, onexc=refuse)
    else:
        shutil.rmtree(folder, onerror=lambda function, path, found: refuse(function, path, found[1]))


def remove_file(where: StoragePath, root: StoragePath) -> None:
    """Delete a file or an object below a root, if present.

    A folder of that name is moved aside, as its contents are unknown.

    Raises
    ------
    OSError
        If a link leads out of the root.
    """
    if isinstance(where, ObjectPath):
        where.unlink(missing_ok=True)
        return
    if not where.parent.resolve().is_relative_to(Path(str(root)).resolve()):
        raise OSError(errno.EXDEV, f"a link leads out of {root}", str(where))
    if where.is_dir() and not where.is_symlink():
        where.rename(where.with_name(f"{where.name}{ASIDE}{uuid.uuid4().hex[:8]}"))
    else:
        where.unlink(missing_ok=True)


def refresh(folder: StoragePath) -> None:
    """List a folder: a network file system may cache until then that a file is missing. Objects need no refresh."""
    if isinstance(folder, Path):
        with suppress(OSError):
            next(folder.iterdir(), None)


def files_below(where: StoragePath) -> Iterator[StoragePath]:
    """Yield a file or an object, or every one below a folder, in order; nothing if neither exists."""
    if isinstance(where, ObjectPath):
        if where.key and where.is_file():
            yield where
        yield from (path for path, _ in where.objects())
    elif not where.is_dir():
        if os.path.lexists(where):
            yield where
    else:
        for folder, folders, names in os.walk(where):
            folders.sort()
            for name in sorted(names):
                yield Path(folder, name)


def lies_in(where: StoragePath, folder: StoragePath) -> bool:
    """Return whether a path is below another one, or is that one."""
    return type(where) is type(folder) and where.is_relative_to(folder)  # type: ignore[arg-type]


def name_below(where: StoragePath, folder: StoragePath) -> str:
    """Return the name of a path relative to a folder that contains it."""
    return str(where.relative_to(folder))  # type: ignore[arg-type]


def relative_name(where: StoragePath, folder: StoragePath) -> str:
    """Return the relative path from a folder to a path, for a link in a page of the folder.

    If there is none, return the URL or the absolute path.
    """
    if isinstance(where, ObjectPath) and isinstance(folder, ObjectPath) and where.root == folder.root:
        return posixpath.relpath(f"/{where.key}", f"/{folder.key}")
    if isinstance(where, ObjectPath) or isinstance(folder, ObjectPath):
        return str(where)
    return Path(os.path.relpath(where, folder)).as_posix()


def read_buffer(where: StoragePath) -> memoryview:
    """Return all bytes of a file or an object without a copy; an object takes one request."""
    if isinstance(where, ObjectPath):
        return where.read_buffer()
    import numpy as np  # bytearray() would write zeros first

    if not where.is_file():  # opening a pipe would block
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(where))
    with where.open("rb", buffering=0) as file:
        held = np.empty(os.fstat(file.fileno()).st_size, np.uint8)
        size = 0
        while count := file.readinto(held.data[size:]):  # Linux reads at most 2 GiB at once
            size += count
    return held.data[:size]


def open_whole(where: StoragePath) -> IO[bytes]:
    """Open a file or an object that fits memory; an object is fetched by one request."""
    return io.BytesIO(where.read_bytes()) if isinstance(where, ObjectPath) else where.open("rb")


@contextmanager
def blocks_of(where: StoragePath, block_bytes: int) -> Iterator[tuple[int, Iterator[bytes | memoryview]]]:
    """Open a file or an object for one sequential read: yield its size and an iterator over its blocks.

    Errors of reads are :class:`OSError` within the block.
    """
    if isinstance(where, ObjectPath):
        with as_os_errors(where):
            found = client_of(where.root).get(where.key)
            yield int(found.meta["size"]), (memoryview(block) for block in found.stream(min_chunk_size=block_bytes))
        return
    with where.open("rb", buffering=0) as file:
        yield os.fstat(file.fileno()).st_size, iter(lambda: file.read(block_bytes), b"")


def at_once(root: StoragePath | None) -> int:
    """Return the number of concurrent reads below a root.

    One on disk, several in an object store, where latency dominates.
    """
    return AT_ONCE if isinstance(root, ObjectPath) else 1


def map_concurrent(
    root: StoragePath | None, function: Callable[[T], R], items: Iterable[T], item_bytes: int = 1
) -> Iterator[R]:
    """Map a function over items, in order.

    In an object store calls for the next items run ahead, as many as :data:`AHEAD_BYTES` hold if each takes
    `item_bytes`.
    """
    if not isinstance(root, ObjectPath):
        return map(function, items)
    return map_ordered(function, items, min(AT_ONCE, 1 + AHEAD_BYTES // max(item_bytes, 1)))


def is_inconclusive(where: StoragePath | None, error: OSError) -> bool:
    """Return whether a read error leaves open what exists: an object store may not have responded."""
    return isinstance(where, ObjectPath) and not isinstance(error, FileNotFoundError)


def sizes(root: StoragePath, names: Iterable[str], *, whole: bool = False) -> dict[str, int]:
    """Return the sizes of existing files or objects below a root, by name.

    Many files of a folder take one scan of it. If `names` are all or most of those in their folders (`whole`), folders
    of an object store are listed, too: one request for a thousand objects.
    """
    folders: dict[str, list[str]] = {}
    for name in names:
        # chunks of one array are in nested folders: "X/c/3/1"
        is_chunk = isinstance(root, ObjectPath) and "/c/" in name
        folders.setdefault(name.partition("/c/")[0] if is_chunk else name.rpartition("/")[0], []).append(name)
    is_listed = {
        folder: len(some) > FEW and (isinstance(root, Path) or (whole and folder != ""))
        for folder, some in folders.items()
    }
    single = [name for folder, some in folders.items() if not is_listed[folder] for name in some]
    asked = {name for folder, some in folders.items() if is_listed[folder] for name in some}
    found: dict[str, int] = {}
    for known in map_concurrent(root, partial(_sizes_in, root), filter(is_listed.get, folders)):
        found.update({name: size for name, size in known if name in asked})
    with_retries = zip(single, map_concurrent(root, partial(_size, root), single), strict=True)
    found.update({name: size for name, size in with_retries if size is not None})
    return found


def _sizes_in(root: StoragePath, folder: str) -> list[tuple[str, int]]:
    """List the names and sizes of the files in a folder, or of all objects below it."""
    if isinstance(root, ObjectPath):
        return [(str(path.relative_to(root)), status.st_size) for path, status in (root / folder).objects()]
    with suppress(FileNotFoundError, NotADirectoryError, ValueError), os.scandir(root / folder) as entries:
        prefix = f"{folder}/" if folder else ""
        return [(prefix + entry.name, entry.stat().st_size) for entry in entries if entry.is_file()]
    return []


def _size(root: StoragePath, name: str) -> int | None:
    try:
        status = (root / name).stat()
    except ValueError:  # an invalid name
        return None
    except OSError as error:
        if is_inconclusive(root, error):
            raise
        return None
    return status.st_size if stat.S_ISREG(status.st_mode) else None


def zarr_store(where: StoragePath) -> Any:
    """Return the Zarr store of the array or group at a path."""
    return where.zarr_store() if isinstance(where, ObjectPath) else str(where)
