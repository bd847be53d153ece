"""What a process keeps between rounds: within its limit, of one owner, whatever threads do."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from daskfs.store.process_cache import Holdings

joined: Callable[[Iterable[bytes]], bytes] = b"".join


class Maker:
    """Counts how often it is asked."""

    def __init__(self) -> None:
        self.n_calls = 0

    def one(self) -> bytes:
        self.n_calls += 1
        return b"12345678"

    def some(self) -> Iterator[bytes]:
        self.n_calls += 1
        yield from (b"1234", b"56", b"78")


def test_values_are_held_up_to_the_limit() -> None:
    holdings, makers = Holdings(), [Maker(), Maker(), Maker()]
    for _ in range(3):
        for key, maker in enumerate(makers):
            assert holdings.get(key, 16, len, maker.one) == b"12345678"
    assert [maker.n_calls for maker in makers] == [1, 1, 3], "what is held never gives way"


def test_nothing_fits_a_limit_of_zero_but_what_takes_nothing() -> None:
    holdings, large, free = Holdings(), Maker(), Maker()
    for _ in range(2):
        holdings.get("large", 0, len, large.one)
        holdings.get("free", 0, lambda _: 0, free.one)
    assert (large.n_calls, free.n_calls) == (2, 1)


def test_another_owner_begins_anew() -> None:
    holdings, maker = Holdings(), Maker()
    for owner, n_calls in (("a", 1), ("a", 1), ("b", 2), ("a", 3)):
        holdings.keep_only(owner)
        holdings.get("x", 8, len, maker.one)
        assert maker.n_calls == n_calls


def test_series_are_held_whole_or_not_at_all() -> None:
    holdings, first, second = Holdings(), Maker(), Maker()
    for _ in range(3):
        assert joined(holdings.series("first", 12, len, first.some)) == b"12345678"
        assert joined(holdings.series("second", 12, len, second.some)) == b"12345678"
    assert (first.n_calls, second.n_calls) == (1, 3)
    holdings.get("rest", 12, len, lambda: b"1234")
    assert holdings.get("rest", 12, len, bytes) == b"1234", "a series that did not fit takes no room"


def test_series_that_is_broken_off_takes_no_room() -> None:
    holdings, maker = Holdings(), Maker()
    begun = holdings.series("x", 8, len, maker.some)
    assert next(begun) == b"1234"
    begun.close()  # type: ignore[attr-defined]
    assert joined(holdings.series("x", 8, len, maker.some)) == b"12345678"
    assert joined(holdings.series("x", 8, len, maker.some)) == b"12345678"
    assert maker.n_calls == 2

    def broken() -> Iterator[bytes]:
        yield b"1"
        msg = "gone"
        raise OSError(msg)

    holdings.keep_only("another")
    with pytest.raises(OSError, match="gone"):
        list(holdings.series("y", 8, len, broken))
    assert holdings.get("z", 8, len, maker.one) is holdings.get("z", 8, len, maker.one)


def test_series_of_an_owner_that_is_gone_takes_no_room() -> None:
    holdings, maker = Holdings(), Maker()
    holdings.keep_only("a")
    begun = holdings.series("x", 8, len, maker.some)
    next(begun)
    holdings.keep_only("b")
    assert joined(begun) == b"5678"
    assert holdings.get("z", 8, len, maker.one) is holdings.get("z", 8, len, maker.one)
    assert maker.n_calls == 2


def test_threads_share_one_value_and_one_limit() -> None:
    holdings, barrier = Holdings(), threading.Barrier(8)

    def ask(number: int) -> tuple[int, ...]:
        barrier.wait()
        return tuple(len(holdings.get(key, 40, len, lambda: bytes(8))) for key in range(number % 4, 16))

    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(ask, range(8)))
    assert {size for sizes in found for size in sizes} == {8}
    held = [key for key in range(16) if len(holdings.get(key, 0, len, lambda: b"new")) == 8]
    assert len(held) == 5


def test_what_a_round_has_not_used_gives_way() -> None:
    """Parts that move here are held as soon as those that moved away are gone; each round asks twice."""
    holdings, makers = Holdings(), [Maker() for _ in range(4)]
    for number, keys in enumerate([(0, 1), (0, 1), (1, 2), (1, 2), (1, 2), (2, 3), (2, 3), (2, 3)]):
        for key in keys:
            holdings.keep_only("a", number)
            holdings.get(key, 16, len, makers[key].one)
        for key in keys:
            holdings.keep_only("a", number)
            assert joined(holdings.series((key, "series"), 16, len, lambda: iter([b""]))) == b""
    assert [maker.n_calls for maker in makers] == [1, 1, 2, 2]


def test_a_unit_of_an_earlier_round_lets_go_of_nothing() -> None:
    holdings, maker = Holdings(), Maker()
    for number in (1, 0, 1, 0, 2):
        holdings.keep_only("a", number)
        holdings.get("x", 8, len, maker.one)
    assert maker.n_calls == 1
