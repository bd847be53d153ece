"""Names of objects in an object store."""

from __future__ import annotations

import posixpath
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import PurePosixPath
from typing import Self

from daskfs.errors import InputError
from daskfs.redaction import CREDENTIALS_BELONG, has_credentials, redact_credentials
from daskfs.storage.local import LocalPath

SCHEMES = ("s3://", "gs://", "az://")
OBJECT_EXTRA = "object"


def is_url(name: object) -> bool:
    """Return whether a name is the URL of an object or a bucket."""
    return isinstance(name, str) and name.startswith(SCHEMES)


@dataclass(frozen=True, order=True, repr=False, slots=True)
class PureObjectPath:
    """Name of an object, or prefix of object names, without access to it.

    Parameters
    ----------
    root
        ``scheme://bucket``.
    key
        Name within the bucket, without a slash at either end; empty for the bucket.
    """

    root: str
    key: str = ""

    @classmethod
    def of(cls, url: str) -> Self:
        """Return the path of a URL; raise :class:`InputError` if it is invalid or obstore is not installed."""
        if has_credentials(url):
            msg = f"{redact_credentials(url)}: {CREDENTIALS_BELONG}."
            raise InputError(msg)
        if find_spec("obstore") is None:
            msg = f"{url} is read and written by the package obstore: pip install 'daskfs[{OBJECT_EXTRA}]'."
            raise InputError(msg)
        scheme, _, rest = url.partition("://")
        bucket, _, key = rest.partition("/")
        if not bucket:
            msg = f"{url} names no bucket: write {scheme}://BUCKET/NAME."
            raise InputError(msg)
        parts = [part for part in key.split("/") if part not in ("", ".")]
        if ".." in parts:
            msg = f"{url} holds '..', which means nothing in an object store."
            raise InputError(msg)
        return cls(f"{scheme}://{bucket}", "/".join(parts))

    # ------------------------------------------------------------------------------------------------------------ name
    def __str__(self) -> str:
        return f"{self.root}/{self.key}" if self.key else self.root

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self)!r})"

    def __truediv__(self, name: str | PurePosixPath) -> Self:
        added = [part for part in str(name).split("/") if part not in ("", ".")]
        if ".." in added:
            msg = f"{name} leads out of {self}."
            raise ValueError(msg)
        return type(self)(self.root, "/".join([*self._parts, *added]))

    def own(self, name: str) -> Self:
        """Return the path of a name in this directory of a run, in which there are no links."""
        return self / name

    own_folder = own

    @property
    def _parts(self) -> list[str]:
        return self.key.split("/") if self.key else []

    @property
    def parts(self) -> tuple[str, ...]:
        """The bucket, and the parts of the name."""
        return (self.root, *self._parts)

    @property
    def name(self) -> str:
        """The last part of the name."""
        return self._parts[-1] if self.key else ""

    @property
    def suffix(self) -> str:
        """The last part's extension, with its dot."""
        return PurePosixPath(self.name).suffix

    @property
    def stem(self) -> str:
        """The last part without its extension."""
        return PurePosixPath(self.name).stem

    @property
    def parent(self) -> Self:
        """The path without its last part; a bucket is its own parent."""
        return type(self)(self.root, "/".join(self._parts[:-1]))

    def with_name(self, name: str) -> Self:
        """Return the path with another last part."""
        return self.parent / name

    def lies_in(self, folder: LocalPath | PureObjectPath) -> bool:
        """Return whether this is below another path, or is that one."""
        return self.parts[: len(folder.parts)] == folder.parts

    def name_below(self, folder: LocalPath | PureObjectPath) -> str:
        """Return the name relative to a folder; raise ``ValueError`` if it is not below it."""
        if not self.lies_in(folder):
            msg = f"{self} does not lie in {folder}."
            raise ValueError(msg)
        return str(PurePosixPath(*self.parts[len(folder.parts) :]))

    def relative_name(self, folder: LocalPath | PureObjectPath) -> str:
        """Return the relative path from a folder of the same bucket, for a link in a page of the folder, else a URL."""
        is_near = self.root == folder.parts[0]
        return posixpath.relpath(f"/{self.key}", "/".join(["", *folder.parts[1:]])) if is_near else str(self)

    def regular(self) -> Self:
        """Return the path itself: every object can be read to its end."""
        return self

    def resolve(self) -> Self:
        """Return the path itself."""
        return self
