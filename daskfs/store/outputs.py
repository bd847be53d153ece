"""Outputs that a unit writes in a store, with the sizes and checksums that its record states."""

from __future__ import annotations

import threading
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from daskfs.store.arrays import Written
from daskfs.store.records import Record


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
        return {
            kind: {name: [*written] for name, written in outputs.items()}
            for kind, outputs in (("chunks", self.chunks), ("objects", self.objects))
        }


class OutputLog:
    """Outputs that each thread writes while it collects them."""

    def __init__(self) -> None:
        self._threads = threading.local()

    @contextmanager
    def collect(self) -> Iterator[Outputs]:
        """Collect the outputs that this thread writes."""
        self._threads.outputs = Outputs()
        try:
            yield self._threads.outputs
        finally:
            self._threads.outputs = None

    def add_object(self, name: str, data: bytes | memoryview) -> None:
        """Add an object that was written."""
        if (outputs := self._outputs_of_unit()) is not None:
            outputs.objects[name] = (len(data), zlib.crc32(data))

    def checksum(self, name: str) -> int | None:
        """Return the CRC-32 of an object that this thread has written since it collects, None if it has not."""
        outputs = self._outputs_of_unit()
        return None if outputs is None or name not in outputs.objects else outputs.objects[name][1]

    def add_chunks(self, chunks: Mapping[str, Written]) -> None:
        """Add chunks that were written."""
        if (outputs := self._outputs_of_unit()) is not None:
            outputs.chunks.update(chunks)

    def add_earlier(self, record: Record, but: str) -> None:
        """Add the outputs in an earlier record, except the ones below the name `but`."""
        outputs = self._outputs_of_unit()
        assert outputs is not None
        for kind, by_name in (("chunks", outputs.chunks), ("objects", outputs.objects)):
            by_name.update({name: (*said,) for name, said in record[kind].items() if not name.startswith(f"{but}/")})

    def _outputs_of_unit(self) -> Outputs | None:
        outputs: Outputs | None = getattr(self._threads, "outputs", None)
        return outputs
