"""Base classes of everything that a job file sets: blocks, and parameters of methods."""

from __future__ import annotations

from types import NoneType
from typing import Any, TypeVar, get_args

from pydantic import BaseModel, ConfigDict, ValidationInfo, field_validator

from daskfs.redaction import CREDENTIALS_BELONG, has_credentials


class Keys(BaseModel):
    """Base of parameters and blocks: refuses unknown keys, and booleans for keys that are not boolean."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    @field_validator("*", mode="before")
    @classmethod
    def _switch_is_no_number(cls, value: Any, info: ValidationInfo) -> Any:
        annotation = cls.model_fields[str(info.field_name)].annotation
        # pydantic would take a bool as a number
        if isinstance(value, bool) and bool not in (annotation, *get_args(annotation)):
            hint = "; null means none" if NoneType in get_args(annotation) else ""
            msg = f"true and false mean nothing here{hint}"
            raise ValueError(msg)
        return value


class Block(Keys):
    """Base of all blocks: refuses credentials as well."""

    @field_validator("*", mode="before")
    @classmethod
    def _no_credentials(cls, value: Any) -> Any:
        texts = value if isinstance(value, list | tuple) else (value,)
        if any(isinstance(text, str) and has_credentials(text) for text in texts):
            raise ValueError(CREDENTIALS_BELONG)
        return value


BlockType = TypeVar("BlockType", bound=Block)
