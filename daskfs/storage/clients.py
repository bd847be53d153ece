"""How the buckets of object stores are reached: one obstore client for each in a process, what is asked again, and what
its errors mean.

Clients are kept, as those that a task brought along would share no connection (obstore#536).
"""

from __future__ import annotations

import errno
import itertools
import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from functools import lru_cache
from typing import Any, TypeVar

from daskfs.errors import InputError

RETRIES = {
    "max_retries": 10,
    "retry_timeout": timedelta(minutes=3),
    "backoff": {"init_backoff": timedelta(milliseconds=100), "max_backoff": timedelta(seconds=10), "base": 2},
}
ASKED = 6
"""Times that a request is made whose answer was cut off, at most."""
PAUSE_SECONDS = 0.02
GAVE_UP_SECONDS = 3.0
"""An error after that is one that the client has asked again for."""
CREDENTIAL_HOSTS = ("169.254.169.254", "169.254.170.2", "metadata.google.internal")
"""What clients ask for credentials when the environment holds none."""
NO_CREDENTIALS = (
    "the environment holds no credentials for it; of a public bucket say so by storage: {BUCKET: {anonymous: true}}"
)
R = TypeVar("R")


@dataclass(frozen=True)
class Access:
    """How the objects below a URL are reached. Credentials come from the environment, or from the provider's chain.

    Parameters
    ----------
    endpoint
        URL of the service, where it is not the provider's own.
    region
        Of a bucket, where the environment does not say it.
    anonymous
        Ask without credentials.
    """

    endpoint: str | None = None
    region: str | None = None
    anonymous: bool = False


_access: dict[str, Access] = {}


def configure(access: Mapping[str, Access]) -> None:
    """Say how buckets are reached, by their URLs (``s3://bucket``); for this process, until it is said again."""
    _access.clear()
    _access.update(access)


def configured() -> dict[str, Access]:
    """Return what :func:`configure` was told last."""
    return dict(_access)


AccessRows = tuple[tuple[str, str | None, str | None, bool], ...]
"""How buckets are reached, as it goes along with a unit: URL, endpoint, region, anonymous."""


def access_rows() -> AccessRows:
    """Return what :func:`configured` does, for another process; credentials are no part of it."""
    return tuple((root, one.endpoint, one.region, one.anonymous) for root, one in sorted(_access.items()))


def apply_access(rows: AccessRows) -> None:
    """Reach buckets as another process does; those that it does not name are reached as before."""
    _access.update({root: Access(endpoint, region, anonymous) for root, endpoint, region, anonymous in rows})


@contextmanager
def reached_by(access: Mapping[str, Access]) -> Iterator[None]:
    """Reach buckets in these ways, and then again as before."""
    before = configured()
    configure(access)
    try:
        yield
    finally:
        configure(before)


def client_of(root: str) -> Any:
    """Return the obstore client of a bucket; :class:`InputError` where it cannot do with how that is to be reached."""
    return _client(root, _access.get(root, Access()))


@lru_cache(maxsize=4096)
def _client(root: str, access: Access) -> Any:
    from obstore.exceptions import BaseError
    from obstore.store import from_url

    endpoint = "base_url" if root.startswith("gs:") else "endpoint"
    options: dict[str, Any] = {endpoint: access.endpoint, "region": access.region if root.startswith("s3:") else None}
    options = {key: value for key, value in options.items() if value is not None}
    if access.anonymous:
        options["skip_signature"] = True
    named = access.endpoint or next((value for key, value in os.environ.items() if _names_endpoint(key)), "")
    try:
        connect: Any = from_url  # its types know no mapping of options
        return connect(
            root,
            client_options={"allow_http": named.startswith("http://")},
            retry_config=RETRIES,
            **options,
        )
    except (BaseError, ValueError, TypeError) as error:
        hint = ": set AZURE_STORAGE_ACCOUNT_NAME" if "Account must be specified" in str(error) else ""
        msg = f"{root} cannot be reached: {first_line(error)}{hint}"
        raise InputError(msg) from error


def _names_endpoint(key: str) -> bool:
    return key in ("AWS_ENDPOINT", "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AZURE_STORAGE_ENDPOINT")


def first_line(error: BaseException) -> str:
    """Return the first line of what an error says; clients add what they were asked, over many lines."""
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__


@contextmanager
def as_os_errors(name: object) -> Iterator[None]:
    """Turn what obstore raises about an object into the :class:`OSError` that a file would raise."""
    from obstore import exceptions

    try:
        yield
    except (exceptions.NotFoundError, FileNotFoundError) as error:
        what = "bucket" if _lacks_bucket(error) else "object"
        raise FileNotFoundError(errno.ENOENT, f"there is no such {what}", str(name)) from error
    except (exceptions.AlreadyExistsError, exceptions.PreconditionError) as error:
        raise FileExistsError(errno.EEXIST, "another process has written it", str(name)) from error
    except (exceptions.PermissionDeniedError, exceptions.UnauthenticatedError) as error:
        raise PermissionError(errno.EACCES, f"access is denied ({first_line(error)})", str(name)) from error
    except exceptions.NotSupportedError as error:
        raise OSError(errno.EOPNOTSUPP, first_line(error), str(name)) from error
    except exceptions.BaseError as error:
        if any(host in str(error) for host in CREDENTIAL_HOSTS):
            raise PermissionError(errno.EACCES, NO_CREDENTIALS, str(name)) from error
        if _lacks_bucket(error):
            raise FileNotFoundError(errno.ENOENT, "there is no such bucket", str(name)) from error
        hint = "; nobody answers: is its endpoint the right one?" if "error sending request" in str(error) else ""
        number = errno.EOPNOTSUPP if "<Code>NotImplemented</Code>" in str(error) else errno.EIO
        raise OSError(number, first_line(error) + hint, str(name)) from error


def _lacks_bucket(error: BaseException) -> bool:
    return any(said in str(error) for said in ("NoSuchBucket", "ContainerNotFound", "bucket does not exist"))


def with_retries(where: object, request: Callable[[], R]) -> R:
    """Return what a request comes to that changes nothing when it is made twice.

    The client asks again itself where a store is busy or a connection breaks. It gives up at once where the answer is
    cut off that there is no such object, and where something is to be deleted: then it is asked again here.
    """
    begun = time.monotonic()
    for attempt in itertools.count(1):
        try:
            with as_os_errors(where):
                return request()
        except OSError as error:
            pause(error, attempt, begun)
    raise AssertionError


def pause(error: OSError, attempt: int, begun: float) -> None:
    """Wait before a request is made again; raise its error where that makes no sense."""
    if error.errno != errno.EIO or attempt == ASKED or time.monotonic() - begun > GAVE_UP_SECONDS:
        raise error
    time.sleep(PAUSE_SECONDS * 2**attempt)
