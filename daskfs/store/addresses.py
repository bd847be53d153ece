"""Addresses of tile stores in the files of a run: relative where they lie in it, so that it can be moved and copied."""

from __future__ import annotations

from daskfs.errors import StoreError
from daskfs.storage import as_path, is_url
from daskfs.store import layout
from daskfs.store.records import is_inside

HERE, UP = ".", ".."


def address_of(url: str, where: str) -> str:
    """Return the address of a tile store in a file of the folder `where`.

    It is relative to that folder if the store lies in it, or holds the tiles of the run of whose batch the folder is a
    part; else it is the URL.
    """
    path, folder = as_path(url), as_path(where)
    if path.lies_in(folder):
        return path.name_below(folder)
    if folder.lies_in(path.parent / layout.BATCHES_DIR):
        n_up = len(folder.parts) - len(path.parent.parts)
        return "/".join([*[UP] * n_up, path.name])
    return url


def url_of(address: str, where: str) -> str:
    """Return the URL of a tile store by its address in a file of the folder `where`.

    Raises
    ------
    StoreError
        If a relative address leads out of the run: others may be able to write to the file.
    """
    if address.startswith("/") or is_url(address):
        return address
    folder, names = as_path(where), address.split("/")
    n_up = names.count(UP)
    name = "/".join(names[n_up:])
    is_below = name == HERE or is_inside(name)
    if not is_below or (n_up and folder.parts[-n_up:][:1] != (layout.BATCHES_DIR,)):
        msg = f"{where} names {address!r}, which is no tile store of its run"
        raise StoreError(msg)
    for _ in range(n_up):
        folder = folder.parent
    return str(folder / name)
