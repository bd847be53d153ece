"""A proxy before an object store, on the loopback: slow, unreliable, or closed to strangers, as real ones are.

It counts what it passes on: requests by their method, and bytes both ways.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import re
import threading
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from urllib.parse import urlsplit

HEAD_BYTES = 2**16
FAULTS = ("refused", "cut request", "cut answer")
"""Faults of all requests: answered 503, or cut off amid their own body or that of the answer."""
FAULTS_OF = {
    "lost": b"PUT",
    "conflict": b"PUT",
    "repeated": b"PUT",
    "flipped": b"GET",
    "truncated": b"GET",
    "missing": b"GET",
    "behind": b"GET",
}
"""Faults of a method: a write without an answer, one that meets another (409), one that is written again later; an
answer with a wrong bit, or too short; an object that is there and is not found; a listing without the newest names.
None of them meets the same request twice in succession.
"""
REPEATED_SECONDS = 2.0
BEHIND_SECONDS = 4.0


def _answer(status: str, code: str = "") -> bytes:
    body = f"<Error><Code>{code}</Code><Message/></Error>" if code else ""
    head = f"HTTP/1.1 {status}\r\nContent-Type: application/xml\r\nContent-Length: {len(body)}\r\nConnection: close"
    return f"{head}\r\n\r\n{body}".encode()


ANSWERS = {
    "refused": _answer("503 Service Unavailable"),
    "conflict": _answer("409 Conflict", "ConditionalRequestConflict"),
    "missing": _answer("404 Not Found", "NoSuchKey"),
}
"""Answers to requests that are not passed on."""
FORBIDDEN = _answer("403 Forbidden", "AccessDenied")


@dataclass
class Proxy:
    """What a proxy does, and has seen.

    Attributes
    ----------
    fault_rate
        Share of requests that meet one of `kinds` of faults.
    kinds
        Faults, of :data:`FAULTS` and :data:`FAULTS_OF`.
    next_faults
        Faults of the next requests that they fit, in order.
    delay
        Seconds that every request waits before it is passed on.
    denied
        What a path begins with that nobody may touch.
    """

    target: str
    fault_rate: float = 0.0
    kinds: tuple[str, ...] = FAULTS
    next_faults: list[str] = field(default_factory=list)
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
        self._hit: set[tuple[bytes, bytes]] = set()
        self._repeats: set[asyncio.Task[None]] = set()

    def fault(self, method: bytes, path: bytes) -> str | None:
        """Draw what goes wrong with the next request."""
        if self.next_faults and _fits(self.next_faults[0], method, path):
            return self.next_faults.pop(0)
        kinds = [kind for kind in self.kinds if _fits(kind, method, path)]
        is_hit = bool(kinds) and (method, path) not in self._hit and self._random.random() < self.fault_rate
        self._hit.discard((method, path))
        if not is_hit:
            return None
        fault = self._random.choice(kinds)
        if fault in FAULTS_OF:
            self._hit.add((method, path))
        return fault

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
        for repeat in self._repeats:
            repeat.cancel()
        await asyncio.gather(*self._repeats, return_exceptions=True)
        while self._open:
            await asyncio.sleep(0)

    async def _repeat(self, request: bytes, host: str, port: int) -> None:
        await asyncio.sleep(REPEATED_SECONDS * self._random.random())
        upstream, onward = await asyncio.open_connection(host, port)
        onward.write(request)
        await _head(upstream)
        onward.close()

    async def _pass_on(
        self, head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, host: str, port: int
    ) -> None:
        method, path = head.split(b" ", 2)[:2]
        body = await reader.readexactly(_length(head, 0) or 0)
        self.requests[method.decode()] += 1
        self.n_bytes["up"] += len(body)
        await asyncio.sleep(self.delay)
        fault = self.fault(method, path)
        if fault is not None:
            self.faults[fault] += 1
        if self.denied is not None and path.decode().startswith(self.denied):
            writer.write(FORBIDDEN)
            raise ConnectionAbortedError
        if fault in ANSWERS:
            writer.write(ANSWERS[fault])
            raise ConnectionAbortedError
        if fault == "repeated":
            self._repeats.add(asyncio.create_task(self._repeat(_closing(head) + body, host, port)))
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
        if fault == "lost":
            raise ConnectionAbortedError
        if fault == "flipped" and content:
            content = _flipped(content, self._random)
        if fault in ("truncated", "behind"):
            content = content[: len(content) // 2] if fault == "truncated" else _without_newest(content)
            answered = _with_length(answered, len(content))
        whole = _length(answered, None) is not None
        writer.write(_without_connection(answered) if whole else answered)
        if fault == "cut answer":
            content = content[: len(content) // 2]
        writer.write(content)
        await writer.drain()
        if fault == "cut answer" or not whole:  # without a length, an answer ends where its connection does
            raise ConnectionAbortedError


def _fits(kind: str, method: bytes, path: bytes) -> bool:
    is_listing = b"list-type" in path
    return FAULTS_OF.get(kind, method) == method and (kind == "behind") == is_listing if kind in FAULTS_OF else True


def _flipped(content: bytes, draw: random.Random) -> bytes:
    changed = bytearray(content)
    changed[draw.randrange(len(changed))] ^= 1 << draw.randrange(8)
    return bytes(changed)


def _without_newest(listing: bytes) -> bytes:
    oldest = datetime.now(UTC) - timedelta(seconds=BEHIND_SECONDS)

    def kept(found: re.Match[bytes]) -> bytes:
        return found[0] if datetime.fromisoformat(found[1].decode()) < oldest else b""

    return re.sub(rb"<Contents>.*?<LastModified>(.*?)</LastModified>.*?</Contents>", kept, listing, flags=re.DOTALL)


def _with_length(head: bytes, size: int) -> bytes:
    return re.sub(rb"(?i)(content-length: )\d+", rb"\g<1>%d" % size, head)


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
