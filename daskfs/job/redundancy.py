"""Job-file block of the filter for redundant or unwanted features, and for too many features of one group."""

from __future__ import annotations

import csv

from pydantic import Field, PositiveInt, ValidationInfo, field_validator, model_validator

from daskfs.block import Block
from daskfs.errors import InputError, JobError
from daskfs.job.methods import Words
from daskfs.ranking.redundancy import Measure
from daskfs.storage import as_path


class RedundancyBlock(Block):
    """Filter of a ranking: drops features that are redundant with better ones, unwanted, or too many of one group."""

    measure: Measure | None = Field(
        "correlation",
        description=(
            "Over all rows, of the values as transform.score makes them: absolute Pearson correlation, or the distance "
            "correlation in [0, 1], over at most 100,000 rows. null compares nothing."
        ),
    )
    threshold: float = Field(0.9, gt=0, lt=1, description="A feature above it with a kept one is passed over.")
    demote: bool = Field(
        default=False,
        description="Whether redundant features may be selected after all that were kept, if these are too few.",
    )
    n_candidates: PositiveInt = Field(500, description="How far down each ranking is looked at, with a measure.")
    keep: Words = Field((), description="Names that are selected first, in the order of their ranks.")
    drop: Words = Field((), description="Names that are never selected.")
    groups: str | dict[str, str] | None = Field(
        None,
        description=(
            "Group of each feature: by its name, or by a regular expression that matches the whole of it; or a CSV "
            "file, or the URL of one, with columns feature and group."
        ),
    )
    max_per_group: PositiveInt | None = Field(None, description="At most so many features of one group are selected.")

    @field_validator("max_per_group")
    @classmethod
    def _groups_and_their_size(cls, value: int | None, info: ValidationInfo) -> int | None:
        if value is not None and info.data.get("groups") is None:
            msg = "needs groups: a CSV file, or names with the group of each"
            raise ValueError(msg)
        return value

    @model_validator(mode="after")
    def _groups_need_a_size(self) -> RedundancyBlock:
        if self.groups is not None and self.max_per_group is None:
            msg = "groups need max_per_group, how many features of one are selected"
            raise ValueError(msg)
        return self

    def group_of(self) -> dict[str, str]:
        """Return the groups by name or expression; :class:`JobError` for a file that cannot be read."""
        return read_groups(self.groups, "select.redundancy.groups")


def read_groups(groups: str | dict[str, str] | None, key: str) -> dict[str, str]:
    """Return groups of features as they are, or as a CSV file with columns ``feature`` and ``group`` lists them.

    Raises
    ------
    JobError
        Naming the key, the file and the line.
    """
    if not isinstance(groups, str):
        return dict(groups or {})
    key = f"{key} {groups}"
    try:
        with as_path(groups).regular().open(encoding="utf-8-sig", newline="") as file:
            lines = list(csv.reader(file))
    except (OSError, InputError, UnicodeDecodeError, csv.Error) as error:
        msg = f"cannot read {key}: {getattr(error, 'strerror', None) or error}."
        raise JobError(msg) from error
    if not lines or [cell.strip() for cell in lines[0]] != ["feature", "group"]:
        msg = f"{key} must begin with a line 'feature,group'."
        raise JobError(msg)
    group_by_feature: dict[str, str] = {}
    for number, cells in enumerate(lines[1:], start=2):
        if not cells:
            continue
        if len(cells) != 2:
            msg = f"{key}, line {number}: {len(cells)} cells; it should hold a feature and its group."
            raise JobError(msg)
        if group_by_feature.setdefault(cells[0], cells[1]) != cells[1]:
            msg = f"{key}, line {number}: '{cells[0]}' is in group '{group_by_feature[cells[0]]}' already."
            raise JobError(msg)
    return group_by_feature
