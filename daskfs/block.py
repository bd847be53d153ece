"""Base classes of everything that a job file sets: blocks, and parameters of methods."""

from __future__ import annotations

import os
import re
from types import NoneType
from typing import Any, ClassVar, TypeVar, get_args

from pydantic import BaseModel, ConfigDict, ValidationInfo, field_validator

from daskfs.redaction import CREDENTIALS_BELONG, has_credentials

_VARIABLE = re.compile(r"\$(?:([A-Za-z_]\w*)|\{([A-Za-z_]\w*)\})")
_GRANTS_ACCESS = re.compile("secret|token|passw|credential|(?:^|_|api|access)key(?:_|$)", re.IGNORECASE)
"""Parts of names of variables whose values belong in no job."""


def expand_variables(text: str) -> str:
    """Return a path with the values of variables such as ``$SCRATCH`` or ``${USER}``.

    :class:`ValueError` for one that is not set, or whose name says that it holds a credential.
    """
    for name in {match[1] or match[2] for match in _VARIABLE.finditer(text)}:
        if _GRANTS_ACCESS.search(name):
            msg = f"the variable {name} holds a credential by its name; {CREDENTIALS_BELONG}"
            raise ValueError(msg)
        if name not in os.environ:
            msg = f"the variable {name} is not set here, where the driver runs"
            raise ValueError(msg)
    return os.path.expandvars(text)


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
    """Base of all blocks: refuses credentials, and expands variables in `path_keys`.

    In `path_or_name_keys` it does so where a text has a slash, as columns may have any name.
    """

    path_keys: ClassVar[tuple[str, ...]] = ()
    path_or_name_keys: ClassVar[tuple[str, ...]] = ()

    @field_validator("*", mode="before")
    @classmethod
    def _no_credentials(cls, value: Any) -> Any:
        texts = value if isinstance(value, list | tuple) else (value,)
        if any(isinstance(text, str) and has_credentials(text) for text in texts):
            raise ValueError(CREDENTIALS_BELONG)
        return value

    @field_validator("*", mode="before")  # of two, pydantic calls the last one first
    @classmethod
    def _variables_expanded(cls, value: Any, info: ValidationInfo) -> Any:
        key, text = info.field_name, value if isinstance(value, str) else ""
        is_path = key in cls.path_keys or (key in cls.path_or_name_keys and "/" in text)
        return expand_variables(text) if is_path and text else value


BlockType = TypeVar("BlockType", bound=Block)
