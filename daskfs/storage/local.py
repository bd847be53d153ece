"""Local paths, with the methods of :class:`daskfs.storage.objects.ObjectPath`."""

from __future__ import annotations

import errno
import os
import shutil
import stat
import sys
import threading
import uuid
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from functools import partial
from pathlib import Path, PosixPath
from typing import IO, Any

from daskfs.errors import InputError, StoreError

MOVED_ASIDE = ".aside-"
"""Separates the name of a folder that was moved aside from a unique suffix."""
IN_USE = (errno.ENOTEMPTY, errno.EBUSY)
"""Errors of deleting a folder of NFS in which a process has a file open: it stays as .nfsXXXX."""
NO_LINKS = (errno.EOPNOTSUPP, errno.EPERM, errno.ENOSYS, errno.EMLINK)
"""Errors of file systems without hard links."""
NO_SYNC = (errno.EINVAL, errno.EROFS)
"""Errors of syncing a folder on file systems that have no way to."""
LINK = (errno.ELOOP, errno.EMLINK)
"""Errors of opening a symbolic link that is not to be followed."""


class LocalPath(PosixPath):
    """Absolute path of a file or a folder."""

    __slots__ = ()

    is_remote = False
    """Whether each access is a request to a service."""

    def errors(self) -> Any:
        """Return a context that turns errors of this path into :class:`OSError`."""
        return nullcontext()

    # ----------------------------------------------------------------------------------------------------------- names
    def is_there(self) -> bool:
        """Return whether this exists: a file, a folder, or a link, even a dangling one."""
        return os.path.lexists(self)

    def lies_in(self, folder: object) -> bool:
        """Return whether this is below another path, or is that one."""
        return self.is_relative_to(str(folder))

    def name_below(self, folder: object) -> str:
        """Return the name relative to a folder that contains this."""
        return str(self.relative_to(str(folder)))

    def relative_name(self, folder: object) -> str:
        """Return the relative path from a folder, for a link in a page of the folder; an absolute one from a URL."""
        return os.path.relpath(self, folder) if isinstance(folder, Path) else str(self)

    def regular(self) -> LocalPath:
        """Return this; :class:`InputError` for a pipe, device or socket, whose reads could wait, or go on, for ever."""
        if not self.is_file() and not self.is_dir() and self.exists():
            msg = f"{self} is a pipe, a device or a socket: write what it holds to a file, and name that."
            raise InputError(msg)
        return self

    def files_matching(self, pattern: Sequence[str]) -> Iterator[tuple[LocalPath, os.stat_result]]:
        """Yield the files below this folder that match the parts of a pattern, and their status."""
        for path in self.glob("/".join(pattern)):
            with suppress(FileNotFoundError):
                if path.is_file():
                    yield path, path.stat()

    def files_below(self) -> Iterator[LocalPath]:
        """Yield this file, or every one below this folder, in order; nothing if neither exists."""
        if not self.is_dir():
            if self.is_there():
                yield self
            return
        for folder, folders, names in os.walk(self):
            folders.sort()
            for name in sorted(names):
                yield LocalPath(folder, name)

    def sizes_in(self, prefix: str) -> list[tuple[str, int]]:
        """Return names and sizes of the files in this folder, after a prefix."""
        with suppress(FileNotFoundError, NotADirectoryError, ValueError), os.scandir(self) as entries:
            return [(prefix + entry.name, entry.stat().st_size) for entry in entries if entry.is_file()]
        return []

    def refresh(self) -> None:
        """List this folder: a network file system may cache until then that a file is missing."""
        with suppress(OSError):
            next(self.iterdir(), None)

    def drop_cached(self) -> None:
        """Drop what the system has cached of this file, so that the next read is one of the disk or the server."""
        self.parent.refresh()
        with suppress(OSError, StoreError, AttributeError), os.fdopen(self.open_own(), "rb") as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)  # not on macOS

    def own(self, name: str) -> LocalPath:
        """Return the path of a name in this directory of a run; :class:`StoreError` if a link leads to its folder."""
        path = self / name
        for folder in path.parents[: max(0, len(path.parts) - len(self.parts) - 1)]:
            if folder.is_symlink():
                raise _link_error(folder, "is a symbolic link")
        return path

    def own_folder(self, name: str) -> LocalPath:
        """Return the path of a folder in this directory of a run, as :meth:`own` does that of a file."""
        return self.own(f"{name}/file").parent

    def open_own(self, flags: int = os.O_RDONLY) -> int:
        """Open this file of a run, whose directory others may be able to write to; return the descriptor.

        Raises
        ------
        StoreError
            For a symbolic link, a pipe, a device or a socket.
        """
        try:  # opening a pipe would block
            descriptor = os.open(self, flags | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK, 0o666)
        except OSError as error:
            if error.errno in LINK and self.is_symlink():
                raise _link_error(self, "is a symbolic link") from error
            raise
        mode = os.fstat(descriptor).st_mode
        if stat.S_ISREG(mode):
            return descriptor
        os.close(descriptor)
        if stat.S_ISDIR(mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(self))
        raise _link_error(self, "is a pipe, a device or a socket")

    # --------------------------------------------------------------------------------------------------------- reading
    def read_own(self) -> bytes:
        """Return the bytes of this file of a run, as :meth:`open_own` opens it."""
        with os.fdopen(self.open_own(), "rb") as file:
            return file.read()

    def read_buffer(self) -> memoryview:
        """Return all bytes of this file of a run without a copy, as :meth:`open_own` opens it."""
        import numpy as np  # bytearray() would write zeros first

        with os.fdopen(self.open_own(), "rb", buffering=0) as file:
            values = np.empty(os.fstat(file.fileno()).st_size, np.uint8)
            size = 0
            while count := file.readinto(values.data[size:]):  # Linux reads at most 2 GiB at once
                size += count
        return values.data[:size]

    def open_whole(self) -> IO[bytes]:
        """Open this file of a run, which fits memory, as :meth:`open_own` does."""
        return os.fdopen(self.open_own(), "rb")

    @contextmanager
    def open_ranges(self, *, is_source: bool = True) -> Iterator[Any]:
        """Open this file, of a source or of a run, and yield a function that reads parts of it.

        It is a :data:`daskfs.storage.objects.Fill`.
        """
        descriptor = os.open(self.regular(), os.O_RDONLY) if is_source else self.open_own()
        try:
            yield partial(fill_from, descriptor)
        finally:
            os.close(descriptor)

    def blocks_ahead(self, size: int, block_bytes: int) -> Iterator[bytes | memoryview]:
        """Yield the first `size` bytes of this file, block by block."""
        del size
        with self.regular().open("rb", buffering=0) as file:
            yield from iter(lambda: file.read(block_bytes), b"")

    @contextmanager
    def stream(self, block_bytes: int) -> Iterator[tuple[int, Iterator[bytes | memoryview]]]:
        """Open this file for one sequential read: yield its size and an iterator over its blocks."""
        with self.open("rb", buffering=0) as file:
            yield os.fstat(file.fileno()).st_size, iter(lambda: file.read(block_bytes), b"")

    def zarr_store(self) -> Any:
        """Return the Zarr store of the array or group at this path."""
        return str(self)

    # --------------------------------------------------------------------------------------------------------- writing
    def put(self, data: bytes | memoryview, *, synced: bool = True) -> None:
        """Write this file atomically; a folder of its name is deleted.

        Readers see the old one or the new one, if `synced` even after a loss of power.
        """
        self.put_blocks((data,), synced=synced)

    def put_blocks(self, blocks: Iterable[bytes | memoryview], *, synced: bool = True) -> None:
        """Write this file as :meth:`put` does, from blocks that need not fit memory together."""
        with self._temporary_file(blocks, synced=synced) as temporary:
            if self.is_dir():
                self.remove()
            temporary.replace(self)

    def put_first(self, data: bytes) -> bool:
        """Write this file unless it exists; return whether it was written.

        If a file system has no hard links, the last one stays.
        """
        try:
            with self._temporary_file((data,), synced=True) as temporary:
                self.hardlink_to(temporary)
        except FileExistsError:
            return False
        except OSError as error:
            if error.errno not in NO_LINKS:
                raise
            self.put(data)
        return True

    def put_tree(self, tree: LocalPath) -> None:
        """Move a file or a folder here, synced to disk, in place of what is here.

        While a folder is replaced, it is briefly missing, never partial.
        """
        for path in tree.files_below():
            path.sync()
        is_folder = self.is_dir() or tree.is_dir()
        aside = self.with_name(f".{self.name}.{os.getpid()}.old")
        if is_folder:
            for folder, _, _ in os.walk(tree):
                LocalPath(folder).sync()
            aside.remove()
            if self.is_there():
                self.replace(aside)
        tree.replace(self)
        self.parent.sync()
        if is_folder:
            aside.remove()

    def sync(self) -> None:
        """Wait until the contents of this file, or the names in this folder, are on the disk."""
        descriptor = os.open(self, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        except OSError as error:
            if error.errno not in NO_SYNC:
                raise
        finally:
            os.close(descriptor)

    @contextmanager
    def replacement(self) -> Iterator[LocalPath]:
        """Yield a temporary path for a file or a folder, which is put here when the block ends without an error."""
        self.parent.mkdir(parents=True, exist_ok=True)
        temporary = self.with_name(f".{self.name}.{os.getpid()}.tmp")
        temporary.remove()
        try:
            yield temporary
            self.put_tree(temporary)
        finally:
            temporary.remove()

    def remove(self) -> None:
        """Delete this file, or this folder with its contents, if present.

        A folder is renamed first, so that processes that still write to it cannot fill it while it is deleted. What NFS
        keeps for a process that has a file open stays in it, and is deleted like any unfinished write, when a run
        starts.
        """
        if self.is_dir() and not self.is_symlink():
            renamed = self._temporary_name(".old")
            self.rename(renamed)
            _remove_tree(renamed)
        else:
            self.unlink(missing_ok=True)

    def remove_below(self, root: object) -> None:
        """Delete this file below a root, if present; move a folder of its name aside, as its contents are unknown.

        Raises
        ------
        OSError
            If a link leads out of the root.
        """
        if not self.parent.resolve().is_relative_to(Path(str(root)).resolve()):
            raise OSError(errno.EXDEV, f"a link leads out of {root}", str(self))
        if self.is_dir() and not self.is_symlink():
            self.rename(self.with_name(f"{self.name}{MOVED_ASIDE}{uuid.uuid4().hex[:8]}"))
        else:
            self.unlink(missing_ok=True)

    def _temporary_name(self, kind: str = "") -> LocalPath:
        return self.with_name(f".{self.name}{kind}.{os.getpid()}.{threading.get_ident()}.tmp")

    @contextmanager
    def _temporary_file(self, blocks: Iterable[bytes | memoryview], *, synced: bool) -> Iterator[LocalPath]:
        """Yield a temporary file with the data in the same folder."""
        # obstore's LocalStore renames without fsync, which it has no option for: after a loss of power files may be
        # empty. It is no faster: a put of 4 KiB takes 0.17 ms, this without fsync 0.20 ms, and a read 0.08 ms instead
        # of 0.04 ms.
        self.parent.mkdir(parents=True, exist_ok=True)
        temporary = self._temporary_name()
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


def _link_error(path: Path, what: str) -> StoreError:
    return StoreError(f"{path} {what}: files of a run are opened only where they lie; put the file itself there.")


def fill_from(descriptor: int, parts: Iterable[tuple[int, memoryview]]) -> None:
    """Fill buffers from an open file. The file offset is unchanged, so this is thread-safe."""
    for start, whole in parts:
        offset, view = start, whole
        while len(view):
            count = os.preadv(descriptor, [view], offset)
            if count == 0:
                msg = "the file ended while it was being read"
                raise EOFError(msg)
            view, offset = view[count:], offset + count


def _remove_tree(folder: Path) -> None:
    first: list[str] = []  # Python 3.13 calls again with the folder of the path whose error was raised

    def refuse(_: object, path: str, error: BaseException) -> None:
        if isinstance(error, OSError) and error.errno not in IN_USE:
            first.append(path)
            raise OSError(error.errno, error.strerror, first[0]) from error  # else it is a name without its folder

    if sys.version_info >= (3, 12):
        shutil.rmtree(folder, onexc=refuse)
    else:
        shutil.rmtree(folder, onerror=lambda function, path, error: refuse(function, path, error[1]))
