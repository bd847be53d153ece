"""A proxy before an object store, on the loopback: slow, unreliable, or closed to strangers, as real ones are.

It counts what it passes on: requests by their method, and bytes both ways.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import threading
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from urllib.parse import urlsplit

HEAD_BYTES = 2**16
FAULTS = ("refused", "cut request", "cut answer")
UNAVAILABLE = b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
FORBIDDEN = (
    b"HTTP/1.1 403 Forbidden\r\nContent-Type: application/xml\r\nContent-Length: 52\r\nConnection: close\r\n\r\n"
    b"<Error><Code>AccessDenied</Code><Message/></Error>\r\n"
)


@dataclass
class Proxy:
    """What a proxy does, and has seen.

    Attributes
    ----------
    fault_rate
        Share of requests that are answered 503, or cut off amid their own body or that of the answer.
    delay
        Seconds that every request waits before it is passed on.
    denied
        What a path begins with that nobody may touch.
    """

    target: str
    fault_rate: float = 0.0
    delay: float = 0.0
    denied: str | None = None
    seed: int = 0
    url: str = ""
    faults: Counter[str] = field(default_factory=Counter)
    requests: Counter[str] = field(default_factory=Counter)
    n_bytes: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)
        self._open: set[asyncio.StreamWriter] = set()

    def fault(self) -> str | None:
        """Draw what goes wrong with the next request."""
        return self._random.choice(FAULTS) if self._random.random() < self.fault_rate else None

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Pass on the requests of one connection."""
        host = urlsplit(self.target)
        self._open.add(writer)
        try:
            with contextlib.suppress(OSError, asyncio.IncompleteReadError):
                while head := await _head(reader):
                    await self._pass_on(head, reader, writer, str(host.hostname), int(host.port or 80))
        finally:
            self._open.discard(writer)
            writer.close()

    async def hang_up(self) -> None:
        """End all connections."""
        for writer in list(self._open):
            writer.close()
        while self._open:
            await asyncio.sleep(0)

    async def _pass_on(
        self, head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, host: str, port: int
    ) -> None:
        method, path = head.split(b" ", 2)[:2]
        body = await reader.readexactly(_length(head, 0) or 0)
        self.requests[method.decode()] += 1
        self.n_bytes["up"] += len(body)
        await asyncio.sleep(self.delay)
        fault = self.fault()
        if fault is not None:
            self.faults[fault] += 1
        if self.denied is not None and path.decode().startswith(self.denied):
            writer.write(FORBIDDEN)
            raise ConnectionAbortedError
        if fault == "refused":
            writer.write(UNAVAILABLE)
            raise ConnectionAbortedError
        upstream, onward = await asyncio.open_connection(host, port)
        try:
            onward.write(_closing(head) + (body[: len(body) // 2] if fault == "cut request" else body))
            await onward.drain()
            if fault == "cut request":
                raise ConnectionAbortedError
            answered = await _head(upstream)
            size = None if method == b"HEAD" else _length(answered, None)
            content = (
                b"" if method == b"HEAD" else await (upstream.read() if size is None else upstream.readexactly(size))
            )
        finally:
            onward.close()
        self.n_bytes["down"] += len(content)
        whole = _length(answered, None) is not None
        writer.write(_without_connection(answered) if whole else answered)
        if fault == "cut answer":
            content = content[: len(content) // 2]
        writer.write(content)
        await writer.drain()
        if fault == "cut answer" or not whole:  # without a length, an answer ends where its connection does
            raise ConnectionAbortedError


async def _head(reader: asyncio.StreamReader) -> bytes:
    try:
        return await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError:
        return b""


def _length(head: bytes, otherwise: int | None) -> int | None:
    for line in head.split(b"\r\n"):
        name, _, value = line.partition(b":")
        if name.lower() == b"content-length":
            return int(value)
    return otherwise


def _without_connection(head: bytes) -> bytes:
    lines = [line for line in head.rstrip(b"\r\n").split(b"\r\n") if not line.lower().startswith(b"connection:")]
    return b"\r\n".join([*lines, b"", b""])


def _closing(head: bytes) -> bytes:
    return _without_connection(head)[:-2] + b"Connection: close\r\n\r\n"


@contextlib.contextmanager
def proxy(proxy: Proxy) -> Iterator[Proxy]:
    """Run a proxy in a thread until the end of the block."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()

    async def start() -> asyncio.Server:
        return await asyncio.start_server(proxy.serve, "127.0.0.1", 0, limit=HEAD_BYTES)

    server = asyncio.run_coroutine_threadsafe(start(), loop).result(30)
    proxy.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield proxy
    finally:

        async def stop() -> None:
            server.close()
            await proxy.hang_up()

        asyncio.run_coroutine_threadsafe(stop(), loop).result(30)
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
