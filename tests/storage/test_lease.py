"""A lock in an object store: who has it, who waits for it, and who comes by it."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable

import dask
import pytest

from daskfs.errors import InUseError, StoreError
from daskfs.storage import ObjectPath
from daskfs.store.lease import LEASE_KEY, Lease, LockState, Owner, hold_lease, lease_state
from tests.storage.proxy import Proxy, proxy
from tests.storage.server import reach

pytestmark = pytest.mark.platforms


@pytest.fixture
def path(bucket: str) -> ObjectPath:
    return ObjectPath.of(f"{bucket}/run/.lock")


def take(path: ObjectPath, seconds: float, told: list[str] | None = None, wait_seconds: float = 0) -> Lease:
    """Take a lock that holds so long."""
    with dask.config.set({LEASE_KEY: seconds}):
        lease = Lease(path, "output.path")
    lease.take((told if told is not None else []).append, wait_seconds)
    return lease


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        threading.Event().wait(0.01)


def abandoned(path: ObjectPath, seconds: float = 0.5) -> None:
    """Leave a lock as a process does that is killed."""
    held = {"owner": "process 1 on elsewhere", "token": "t", "seconds": seconds, "written": 1}
    path.put_if(json.dumps(held).encode(), (None, None))


def test_a_lock_is_given_back(path: ObjectPath) -> None:
    with hold_lease(path, "output.path", print) as lease:
        assert (lease.is_there, lease.warning) == (True, "")
        assert lease_state(path) == LockState(is_held=True, owner=Owner())
    assert not path.is_file()
    assert lease_state(path).is_held is None


@pytest.mark.parametrize("seconds", [300.0, -300.0])
def test_a_clock_that_is_wrong_does_not_hide_who_holds_a_lock(
    path: ObjectPath, monkeypatch: pytest.MonkeyPatch, seconds: float
) -> None:
    lease, now = take(path, 0.6), time.time
    monkeypatch.setattr(time, "time", lambda: now() + seconds)
    assert lease_state(path) == LockState(is_held=True, owner=Owner())
    monkeypatch.undo()
    lease.give_back()
    abandoned(path)
    monkeypatch.setattr(time, "time", lambda: now() + seconds)
    assert lease_state(path).is_held is False


def test_a_lock_is_renewed_for_as_long_as_it_is_held(path: ObjectPath) -> None:
    lease = take(path, 0.3)
    wait_for(lambda: json.loads(path.read_bytes())["written"] > 4)
    lease.check()
    lease.give_back()


def test_a_lock_whose_owner_lives_is_refused(path: ObjectPath) -> None:
    lease, told = take(path, 3.0), list[str]()
    begun = time.monotonic()
    with pytest.raises(
        InUseError, match=r"another daskfs process is running in s3://.*/run \(process \d+ on .*\): wait"
    ):
        take(path, 60, told)
    assert time.monotonic() - begun < 30
    assert len(told) == 1
    assert "waiting up to 4 s for its end" in told[0]
    lease.check()
    lease.give_back()


def test_a_lock_is_waited_for(path: ObjectPath) -> None:
    """Longer than it takes to see that its owner lives."""
    lease, taken = take(path, 0.3), list[Lease]()
    waiting = threading.Thread(target=lambda: taken.append(take(path, 0.3, wait_seconds=60)))
    waiting.start()
    wait_for(lambda: json.loads(path.read_bytes())["written"] > 8)
    assert waiting.is_alive()
    lease.give_back()
    waiting.join(60)
    assert taken[0].is_there
    taken[0].give_back()


def test_a_lock_whose_owner_was_killed_is_taken_over(path: ObjectPath) -> None:
    abandoned(path)
    told: list[str] = []
    lease = take(path, 60, told)
    assert "process 1 on elsewhere" in told[0]
    lease.check()
    lease.give_back()


def test_a_lock_that_is_given_back_is_not_waited_for(path: ObjectPath) -> None:
    abandoned(path, 600)
    taken: list[Lease] = []
    told: list[str] = []
    waiting = threading.Thread(target=lambda: taken.append(take(path, 60, told)))
    waiting.start()
    wait_for(lambda: bool(told))
    path.unlink()
    waiting.join(60)
    assert taken[0].is_there
    taken[0].give_back()


def test_one_of_those_who_wait_takes_a_lock_over(path: ObjectPath) -> None:
    abandoned(path, 1.0)
    taken: list[Lease] = []
    refused: list[str] = []

    def wait() -> None:
        try:
            taken.append(take(path, 9.0))
        except StoreError as error:
            refused.append(str(error))

    threads = [threading.Thread(target=wait) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert (len(taken), len(refused)) == (1, 3)
    taken[0].give_back()


def test_who_slept_finds_that_others_have_the_lock(path: ObjectPath) -> None:
    asleep = take(path, 600)  # it will not be renewed before the test ends
    path.unlink()
    awake = take(path, 600)
    asleep._renewed -= 1000  # as after a sleep
    with pytest.raises(StoreError, match=r"has taken over s3://.*/run, whose lock this process had not renewed"):
        asleep.check()
    assert not asleep.is_there
    asleep.give_back()
    awake.check()  # its lock is not given back by the other one
    awake.give_back()


def test_a_lock_that_was_deleted(path: ObjectPath) -> None:
    lease = take(path, 600)
    path.unlink()
    lease._renewed -= 1000
    with pytest.raises(StoreError, match="was deleted or moved away while this process ran in it"):
        lease.check()
    lease.give_back()


def test_a_lock_in_an_unreliable_store(server: str, path: ObjectPath, monkeypatch: pytest.MonkeyPatch) -> None:
    with proxy(Proxy(server, fault_rate=0.3, seed=5)) as unreliable:
        reach(monkeypatch, unreliable.url)
        lease = take(path, 600)
        for _ in range(20):
            lease._renew()
            lease.check()
        lease.give_back()
        assert not path.is_file()
    assert unreliable.faults.total() > 5
