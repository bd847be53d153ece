"""An object store for tests: moto's S3 server, in a process of its own, which ends with the block, or with us."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Iterator
from urllib.request import Request, urlopen

import pytest

from daskfs.storage import clients

KEY, SECRET = "AKIATESTKEYFORDASKFS", "secret-that-nobody-may-see"
BUCKETS = ("runs", "data")
SERVE = """
import sys
from moto.server import ThreadedMotoServer
server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
server.start()
print(server.get_host_and_port()[1], flush=True)
sys.stdin.read()
server.stop()
"""


@contextlib.contextmanager
def object_server(buckets: tuple[str, ...] = BUCKETS) -> Iterator[str]:
    """Yield the URL of a server on the loopback that has some empty buckets."""
    process = subprocess.Popen(
        [sys.executable, "-c", SERVE],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        url = f"http://127.0.0.1:{int(process.stdout.readline())}"
        for bucket in buckets:
            urlopen(Request(f"{url}/{bucket}", method="PUT"), timeout=30).close()
        yield url
    finally:
        process.stdin.close()
        try:
            process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.stdout.close()


def environment(url: str) -> dict[str, str]:
    """Return what a process's environment says to reach the server; nothing else says its credentials."""
    return {
        "AWS_ACCESS_KEY_ID": KEY,
        "AWS_SECRET_ACCESS_KEY": SECRET,
        "AWS_REGION": "us-east-1",
        "AWS_ENDPOINT_URL": url,
    }


def reach(monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    """Let this process, and those that it starts, reach the server as :func:`environment` says."""
    for name, value in environment(url).items():
        monkeypatch.setenv(name, value)
    clients._client.cache_clear()  # clients remember the environment that they were made in
