"""Parameters of stages: a frozen dataclass for each kind, and its JSON in plans."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Self, dataclass_transform

from pydantic import ConfigDict, TypeAdapter, ValidationError

from daskfs.errors import StoreError


@dataclass_transform(frozen_default=True)
@dataclass(frozen=True)
class StageParameters:
    """Base of the parameters of stages, which makes each subclass a frozen dataclass.

    Fields are of types that pydantic writes as JSON, such as dataclasses.
    """

    def __init_subclass__(cls, *, kw_only: bool = False) -> None:
        super().__init_subclass__()
        dataclass(frozen=True, kw_only=kw_only)(cls)

    def to_json(self) -> dict[str, Any]:
        """Return the fields as JSON-able values; :meth:`from_json` is the inverse."""
        return self._codec().dump_python((self,), mode="json")[0]

    @classmethod
    def from_json(cls, raw: Mapping[str, Any]) -> Self:
        """Rebuild the parameters; :class:`StoreError` names the first unknown, missing or ill-typed key."""
        try:
            return cls._codec().validate_json(json.dumps([raw]))[0]
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            msg = f"parameter '{'.'.join(map(str, first['loc'][1:]))}': {first['msg']}"
            raise StoreError(msg) from error

    @classmethod
    @cache
    def _codec(cls) -> TypeAdapter[tuple[Any]]:
        # a dataclass takes its configuration, and passes it on to those that it holds, from a type that holds it
        strict = ConfigDict(extra="forbid", strict=True)
        return TypeAdapter(tuple[cls], config=strict)  # type: ignore[arg-type, valid-type]
