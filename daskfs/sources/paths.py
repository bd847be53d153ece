"""References to files and to their members."""

from __future__ import annotations

from daskfs.storage import ObjectPath, StoragePath, as_path


def split_reference(reference: str) -> tuple[StoragePath, str | None] | None:
    """Split ``"file.npz:member"`` into path and member; return ``None`` if the file does not exist."""
    path = as_path(reference)
    if is_file(path):
        return path, None
    head, colon, member = reference.rpartition(":")
    if colon and head and not member.startswith("//") and is_file(as_path(head)):
        return as_path(head), member
    return None


def is_file(path: StoragePath) -> bool:
    """Return whether `path` is a file; False for a local path that is too long."""
    try:
        return path.is_file()
    except OSError:
        if isinstance(path, ObjectPath):
            raise
        return False
