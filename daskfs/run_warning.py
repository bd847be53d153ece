"""Warnings of a run as values: of what kind, how much they change, what they are about, and what to do."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from daskfs.errors import first_few

VOIDS, CHANGES, LIMITS, HINT = LEVELS = ("voids", "changes", "limits", "hint")
"""Levels, those that matter most first: a warning voids the result, changes it, limits it, or says how to better it."""
SUBJECTS_NAMED = 3
"""Subjects that the sentence of a warning names; the others are counted."""
_PLURALS = {"batch": "batches"}


@dataclass(frozen=True, repr=False)
class RunWarning:
    """A warning, whose text has no final full stop.

    Parameters
    ----------
    kind
        Short name of what is wrong, by which equal warnings are found.
    level
        One of :data:`LEVELS`.
    text
        What is wrong and what to do: option or key to type. It follows the subjects if `noun` is given.
    subject
        Names of the methods, features or graphs that it is about.
    noun
        What these are, such as "method"; empty if the text names them.
    """

    kind: str
    level: str
    text: str
    subject: tuple[str, ...] = ()
    noun: str = ""

    def __str__(self) -> str:
        """Return the sentence, without a final full stop."""
        if not self.noun:
            return self.text
        if len(self.subject) == 1:
            return f"{self.noun} {self.subject[0]}: {self.text}"
        nouns = _PLURALS.get(self.noun, f"{self.noun}s")
        return f"{len(self.subject)} {nouns} ({first_few(self.subject, SUBJECTS_NAMED)}): {self.text}"

    def __repr__(self) -> str:
        """Return level and sentence."""
        return f"<{self.level}: {self}>"

    def to_json(self) -> dict[str, Any]:
        """Return kind, level, subject and the sentence as text."""
        return {"kind": self.kind, "level": self.level, "subject": list(self.subject), "text": str(self)}

    @classmethod
    def from_json(cls, raw: Mapping[str, Any]) -> RunWarning:
        """Read a warning as :meth:`to_json` returns it."""
        return cls(raw["kind"], raw["level"], raw["text"], tuple(raw["subject"]))


def merge_warnings(warnings: Iterable[RunWarning]) -> list[RunWarning]:
    """Merge warnings that say the same of several subjects, and sort them by level, else in their order."""
    subjects: dict[tuple[str, str, str, str], dict[str, None]] = {}
    for one in warnings:
        subjects.setdefault((one.kind, one.level, one.text, one.noun), {}).update(dict.fromkeys(one.subject))
    merged = [RunWarning(*key[:3], tuple(names), key[3]) for key, names in subjects.items()]
    return sorted(merged, key=lambda one: LEVELS.index(one.level))
