"""Job-file block of the access to buckets; credentials come from the environment."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import wraps
from typing import Annotated, Any, Concatenate, ParamSpec, Protocol, TypeVar

from pydantic import BeforeValidator, Field, ValidationInfo, field_validator

from daskfs.block import Block
from daskfs.errors import InputError
from daskfs.redaction import CREDENTIALS_BELONG, has_credentials
from daskfs.storage import SCHEMES, Access, ObjectPath, is_url, reached_by

P = ParamSpec("P")
R = TypeVar("R")


class BucketBlock(Block):
    """Access to the objects of one bucket."""

    endpoint: str | None = Field(
        None, description="URL of the service, where it is not the provider's own: http://minio:9000."
    )
    region: str | None = Field(
        None, min_length=1, description="Of a bucket of S3, where AWS_REGION is not set or is another."
    )
    anonymous: bool = Field(default=False, description="Ask without credentials, as for public data.")

    @field_validator("endpoint")
    @classmethod
    def _is_address(cls, value: str | None) -> str | None:
        if value is None:
            return None
        scheme, _, host = value.partition("://")
        if scheme not in ("http", "https") or not host.strip("/") or value != "".join(value.split()):
            msg = "an endpoint is the URL of a service, such as http://minio:9000"
            raise ValueError(msg)
        return value.rstrip("/")


def _of_buckets(value: Any, info: ValidationInfo) -> Any:
    """Check the names of buckets before their settings: messages about settings repeat the names."""
    del info
    if not isinstance(value, Mapping):
        msg = "storage names buckets, for example {s3://public-data: {anonymous: true}}"
        raise ValueError(msg)
    settings_by_bucket: dict[str, Any] = {}
    for name, said in value.items():
        if has_credentials(str(name)):
            raise ValueError(CREDENTIALS_BELONG)
        if not is_url(name):
            msg = f"{str(name)[:80]!r} names no bucket: names begin with {', '.join(SCHEMES)}"
            raise ValueError(msg)
        try:
            bucket = ObjectPath.of(name)
        except InputError as error:
            raise ValueError(str(error).removesuffix(".")) from None
        if bucket.key:
            msg = f"{name} names what lies in a bucket: write {bucket.root}, of which all is reached in one way"
            raise ValueError(msg)
        if bucket.root in settings_by_bucket:
            msg = f"{bucket.root} is there twice"
            raise ValueError(msg)
        settings_by_bucket[bucket.root] = {} if said is None else said
    return settings_by_bucket


StorageKeys = Annotated[dict[str, BucketBlock], BeforeValidator(_of_buckets)]
DESCRIPTION = (
    "How buckets (s3://NAME, gs://NAME, az://CONTAINER) are reached, where the environment does not say it. "
    "Credentials come from the environment, or from the provider's chain."
)


class _Reaching(Protocol):
    @property
    def storage(self) -> dict[str, BucketBlock]: ...


J = TypeVar("J", bound=_Reaching)


def with_storage_access(function: Callable[Concatenate[J, P], R]) -> Callable[Concatenate[J, P], R]:
    """Decorate a function of a job or a study to reach buckets by its storage settings."""

    @wraps(function)
    def wrapped(job: J, /, *args: P.args, **kwargs: P.kwargs) -> R:
        access = {
            name: Access(bucket.endpoint, bucket.region, bucket.anonymous) for name, bucket in job.storage.items()
        }
        with reached_by(access):
            return function(job, *args, **kwargs)

    return wrapped
