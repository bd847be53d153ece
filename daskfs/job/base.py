"""Base class of the blocks of a job file."""

from __future__ import annotations

from typing import Any, TypeVar

from pydantic import (
    BaseModel,
    ConfigDict,
    ValidationInfo,
    field_validator,
)

from daskfs.criteria.registry import refuse_switch
from daskfs.redaction import CREDENTIALS_BELONG, has_credentials


class Block(BaseModel):
    """Base of all blocks: refuses unknown keys, credentials, and booleans for keys that are not boolean."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    @field_validator("*", mode="before")
    @classmethod
    def _switch_is_no_number(cls, value: Any, info: ValidationInfo) -> Any:
        refuse_switch(value, cls.model_fields[str(info.field_name)].annotation)
        return value

    @field_validator("*", mode="before")
    @classmethod
    def _no_credentials(cls, value: Any) -> Any:
        texts = value if isinstance(value, list | tuple) else (value,)
        if any(isinstance(text, str) and has_credentials(text) for text in texts):
            raise ValueError(CREDENTIALS_BELONG)
        return value


BlockType = TypeVar("BlockType", bound=Block)
