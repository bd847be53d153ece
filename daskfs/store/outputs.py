"""Outputs that a unit writes in a store, with the sizes and checksums that its record states."""

from __future__ import annotations

import threading
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from daskfs.store.records import Record

Written = tuple[int, int]
"""Size of an output as stored, and its checksum."""


@dataclass
class Outputs:
    """Size and checksum of the outputs of a unit, by name.

    The checksum is for chunks the CRC-32C at their end, for objects the CRC-32. Both are noted at the write, as a late
    writer may replace an output.
    """

    chunks: dict[str, Written] = field(default_factory=dict)
    objects: dict[str, Written] = field(default_factory=dict)

    def to_json(self) -> dict[str, dict[str, list[int]]]:
        """Return the outputs as a record holds them."""
        return {kind: {name: [*written] for name, written in outputs.items()} for kind, outputs in vars(self).items()}


class OutputLog(threading.local):
    """Outputs that each thread writes while it collects them."""

    _outputs: Outputs | None = None

    @contextmanager
    def collect(self) -> Iterator[Outputs]:
        """Collect the outputs that this thread writes."""
        self._outputs = Outputs()
        try:
            yield self._outputs
        finally:
            self._outputs = None

    def add_object(self, name: str, data: bytes | memoryview) -> None:
        """Add an object that was written."""
        if self._outputs is not None:
            self._outputs.objects[name] = (len(data), zlib.crc32(data))

    def checksum(self, name: str) -> int | None:
        """Return the CRC-32 of an object that this thread has written since it collects, None if it has not."""
        if self._outputs is None or name not in self._outputs.objects:
            return None
        return self._outputs.objects[name][1]

    def add_chunks(self, chunks: Mapping[str, Written]) -> None:
        """Add chunks that were written."""
        if self._outputs is not None:
            self._outputs.chunks.update(chunks)

    def add_earlier(self, record: Record, but: str) -> None:
        """Add the outputs in an earlier record, except the ones below the name `but`."""
        for kind, outputs in vars(self._outputs).items():
            outputs.update({name: (*said,) for name, said in record[kind].items() if not name.startswith(f"{but}/")})
