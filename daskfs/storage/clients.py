"""obstore clients of buckets, one each per process, with their retries and errors.

Clients are cached, as pickled ones would share no connection (obstore#536).
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

PATIENCE = timedelta(minutes=3)
"""How long a request is repeated."""
RETRIES = {
    "max_retries": 10,
    "retry_timeout": PATIENCE,
    "backoff": {"init_backoff": timedelta(milliseconds=100), "max_backoff": timedelta(seconds=10), "base": 2},
}
ASKED = 6
"""Maximum number of attempts of a request whose response was truncated."""
RETRY_PAUSE_SECONDS = 0.02
GAVE_UP_SECONDS = 3.0
"""Seconds after which an error is one that the client has retried itself."""
CREDENTIAL_HOSTS = ("169.254.169.254", "169.254.170.2", "metadata.google.internal")
"""Hosts that clients ask for credentials if the environment has none."""
ENDPOINTS = ("AWS_ENDPOINT", "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AZURE_STORAGE_ENDPOINT")
"""Variables of the environment that name an endpoint."""
NO_CREDENTIALS = (
    "the environment holds no credentials for it; of a public bucket say so by storage: {BUCKET: {anonymous: true}}"
)
R = TypeVar("R")


@dataclass(frozen=True)
class Access:
    """Access settings of a bucket. Credentials come from the environment, or from the provider's chain.

    The endpoint is the URL of the service, if not the provider's own, the region that of the bucket, if not in the
    environment. Anonymous requests carry no credentials.
    """

    endpoint: str | None = None
    region: str | None = None
    anonymous: bool = False


_access: dict[str, Access] = {}


def configured() -> dict[str, Access]:
    """Return the access of buckets that :func:`reached_by` or :func:`apply_access` has set."""
    return dict(_access)


AccessRows = tuple[tuple[str, str | None, str | None, bool], ...]
"""Access of buckets, as sent with a unit: URL, endpoint, region, anonymous."""


def access_rows() -> AccessRows:
    """Return the access of buckets for another process, without credentials."""
    return tuple((root, one.endpoint, one.region, one.anonymous) for root, one in sorted(_access.items()))


def apply_access(rows: AccessRows) -> None:
    """Apply the access of buckets of another process; other buckets keep theirs."""
    _access.update({root: Access(endpoint, region, anonymous) for root, endpoint, region, anonymous in rows})


@contextmanager
def reached_by(access: Mapping[str, Access]) -> Iterator[None]:
    """Set the access of buckets by URL (``s3://bucket``), for this process within a block."""
    before = configured()
    _access.clear()
    _access.update(access)
    try:
        yield
    finally:
        _access.clear()
        _access.update(before)


def client_of(root: str) -> Any:
    """Return the obstore client of a bucket; raise :class:`InputError` if its access settings are invalid."""
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
    named = access.endpoint or next((value for key, value in os.environ.items() if key in ENDPOINTS), "")
    try:
        connect: Any = from_url  # its types reject a mapping of options
        return connect(
            root, client_options={"allow_http": named.startswith("http://")}, retry_config=RETRIES, **options
        )
    except (BaseError, ValueError, TypeError) as error:
        hint = ": set AZURE_STORAGE_ACCOUNT_NAME" if "Account must be specified" in str(error) else ""
        msg = f"{root} cannot be reached: {first_line(error)}{hint}"
        raise InputError(msg) from error


def first_line(error: BaseException) -> str:
    """Return the first line of an error; clients append the request over many lines."""
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__


@contextmanager
def as_os_errors(name: object, conflict: int = errno.EEXIST) -> Iterator[None]:
    """Translate errors of obstore into the :class:`OSError` that a file would raise.

    `conflict` is the number of the error for an answer that another request is writing the object, or has written it.
    """
    from obstore import exceptions

    try:
        yield
    except (exceptions.NotFoundError, FileNotFoundError) as error:
        what = "bucket" if _lacks_bucket(error) else "object"
        raise FileNotFoundError(errno.ENOENT, f"there is no such {what}", str(name)) from error
    except (exceptions.AlreadyExistsError, exceptions.PreconditionError) as error:
        raise OSError(conflict, "another request has written it, or is writing it", str(name)) from error
    except (exceptions.PermissionDeniedError, exceptions.UnauthenticatedError) as error:
        raise PermissionError(errno.EACCES, f"access is denied ({first_line(error)})", str(name)) from error
    except exceptions.NotSupportedError as error:
        raise OSError(errno.EOPNOTSUPP, first_line(error), str(name)) from error
    except exceptions.BaseError as error:
        if any(host in str(error) for host in CREDENTIAL_HOSTS):
            raise PermissionError(errno.EACCES, NO_CREDENTIALS, str(name)) from error
        if _lacks_bucket(error):
            raise FileNotFoundError(errno.ENOENT, "there is no such bucket", str(name)) from error
        if "416 Range Not Satisfiable" in str(error):
            msg = f"{name} ended while it was being read"
            raise EOFError(msg) from error
        hint = "; no server answers: is its endpoint the right one?" if "error sending request" in str(error) else ""
        number = errno.EOPNOTSUPP if "<Code>NotImplemented</Code>" in str(error) else errno.EIO
        raise OSError(number, first_line(error) + hint, str(name)) from error


def _lacks_bucket(error: BaseException) -> bool:
    return any(said in str(error) for said in ("NoSuchBucket", "ContainerNotFound", "bucket does not exist"))


def with_retries(where: object, request: Callable[[], R]) -> R:
    """Run an idempotent and unconditional request, retrying transient failures.

    The client itself retries if a store is busy or a connection breaks. It does not retry a truncated response about a
    missing object, deletions, nor a write that meets another one: these are retried here.
    """
    begun = time.monotonic()
    for attempt in itertools.count(1):
        try:
            with as_os_errors(where, conflict=errno.EIO):
                return request()
        except OSError as error:
            pause(error, attempt, begun)
    raise AssertionError


def pause(error: OSError, attempt: int, begun: float) -> None:
    """Wait before the next attempt of a request, or raise its error if a retry is pointless."""
    if error.errno != errno.EIO or attempt == ASKED or time.monotonic() - begun > GAVE_UP_SECONDS:
        raise error
    time.sleep(RETRY_PAUSE_SECONDS * 2**attempt)
