"""The protocol of docs/protocol.md as a model: two drivers, two workers and one unit, in every order of their steps.

Steps are what a process does at once: one read or one write of one file. Between any two of them a process may stop
for as long as it likes, or for good, so that frozen workers, drivers that lost their lock and copies of a unit are
all orders of steps.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import pytest

Value = tuple[str, str]
"""What a unit writes: of which job, on which processor. Another processor rounds otherwise."""
MAX_ROUNDS, MAX_ASKED = 2, 2
"""How often a driver begins, as it does again over damage, and how often it asks for the unit in all."""


class Protocol(NamedTuple):
    """Which of its parts a protocol has."""

    has_epochs: bool = True  # a record lies under the epoch of the driver that asked for it, and counts in that
    states_what_it_wrote: bool = True  # a record has the checksum of what the unit wrote, not of what lies there
    compares: bool = True  # who reads an output compares it with the record


class Record(NamedTuple):
    epoch: str
    job: str
    stated: Value | None


class Head(NamedTuple):
    epoch: str = ""
    inherited: frozenset[Record] = frozenset()


class Driver(NamedTuple):
    job: str
    starts_over: bool
    at: str = "list"
    rounds: int = 0
    asked: int = 0
    epoch: str = ""
    inherited: frozenset[Record] = frozenset()
    stated: Value | None = None
    result: Value | None = None


class Worker(NamedTuple):
    processor: str
    at: str = "idle"
    epoch: str = ""
    job: str = ""
    wrote: Value | None = None


class State(NamedTuple):
    drivers: tuple[Driver, ...]
    workers: tuple[Worker, ...]
    head: Head = Head()  # what .epoch says
    output: Value | None = None
    records: frozenset[Record] = frozenset()

    def with_driver(self, number: int, driver: Driver) -> State:
        return self._replace(drivers=(*self.drivers[:number], driver, *self.drivers[number + 1 :]))

    def with_worker(self, number: int, worker: Worker) -> State:
        return self._replace(workers=(*self.workers[:number], worker, *self.workers[number + 1 :]))


def counted(state: State, driver: Driver, protocol: Protocol) -> list[Record]:
    """Return the records of its job that a driver takes for valid; the epoch's own before those taken over."""
    mine = [record for record in state.records if record.job == driver.job]
    if not protocol.has_epochs:
        return mine
    own = [record for record in mine if record.epoch == driver.epoch]
    return own or [record for record in mine if record in driver.inherited]


def driver_steps(state: State, number: int, protocol: Protocol) -> Iterator[State]:
    driver = state.drivers[number]
    is_new = driver.starts_over and not driver.rounds

    def then(at: str, **changed: object) -> State:
        return state.with_driver(number, driver._replace(at=at, **changed))  # type: ignore[arg-type]

    if driver.at == "list":
        still = (r for r in state.records if r.epoch == state.head.epoch or r in state.head.inherited)
        yield then("begin", inherited=frozenset() if is_new else frozenset(still))
    elif driver.at == "begin":
        epoch = f"{number}.{driver.rounds}"
        yield then("clear" if is_new else "look", epoch=epoch)._replace(head=Head(epoch, driver.inherited))
    elif driver.at == "clear":
        yield then("look")._replace(output=None, records=frozenset())
    elif driver.at == "look":
        yield then("seal" if counted(state, driver, protocol) and state.output else "ask")
    elif driver.at in ("ask", "wait"):
        yield from waiting_steps(state, number, protocol)
    elif driver.at == "seal":
        yield from (then("read", stated=record.stated) for record in counted(state, driver, protocol))
    elif driver.at == "read" and state.output and (state.output == driver.stated or not protocol.compares):
        yield then("done", result=state.output)
    elif driver.at == "read" and driver.rounds + 1 < MAX_ROUNDS:
        is_mine = state.head.epoch == driver.epoch
        again = then("list", rounds=driver.rounds + 1, stated=None)
        yield again._replace(output=None if is_mine else state.output)


def waiting_steps(state: State, number: int, protocol: Protocol) -> Iterator[State]:
    """Steps of a driver that asks for its unit, for a copy of it, or sees its record."""
    driver = state.drivers[number]
    own = [r for r in counted(state, driver, protocol) if r.epoch == driver.epoch or not protocol.has_epochs]
    if own and driver.asked:
        yield state.with_driver(number, driver._replace(at="seal"))
    for i, worker in enumerate(state.workers):
        if worker.at == "idle" and driver.asked < MAX_ASKED:
            asked = state.with_worker(i, Worker(worker.processor, "write", driver.epoch, driver.job))
            yield asked.with_driver(number, driver._replace(at="wait", asked=driver.asked + 1))


def worker_steps(state: State, number: int, protocol: Protocol) -> Iterator[State]:
    worker = state.workers[number]
    if worker.at == "write":
        wrote = (worker.job, worker.processor)
        yield state.with_worker(number, worker._replace(at="record", wrote=wrote))._replace(output=wrote)
    elif worker.at == "record":
        stated = worker.wrote if protocol.states_what_it_wrote else state.output
        record = Record(worker.epoch if protocol.has_epochs else "", worker.job, stated)
        there = {r for r in state.records if r.epoch == record.epoch}
        records = state.records if there and protocol.has_epochs else (state.records - there) | {record}
        yield state.with_worker(number, Worker(worker.processor))._replace(records=records)


def reached(start: State, protocol: Protocol) -> Iterator[State]:
    """Yield every state that some order of steps leads to."""
    seen, front = {start}, [start]
    while front:
        state = front.pop()
        yield state
        following = [s for i in range(len(state.drivers)) for s in driver_steps(state, i, protocol)]
        following += [s for i in range(len(state.workers)) for s in worker_steps(state, i, protocol)]
        for one in following:
            if one not in seen:
                seen.add(one)
                front.append(one)


def is_wrong(state: State) -> bool:
    """Return whether a driver took something for its result that its record does not state, or of another job."""
    ended = [driver for driver in state.drivers if driver.at == "done"]
    return any((driver.result or ("", ""))[0] != driver.job or driver.result != driver.stated for driver in ended)


WORKERS = (Worker("haswell"), Worker("zen"))
STARTS = {
    "another job that starts over": State((Driver("A", False), Driver("B", True)), WORKERS),
    "the same job again": State((Driver("A", False), Driver("A", False)), WORKERS),
    "the same job that starts over": State((Driver("A", False), Driver("A", True)), WORKERS),
}
OLD = Protocol(has_epochs=False, states_what_it_wrote=False, compares=False)


@pytest.mark.long  # the model takes seconds, and no change to the program can break it
@pytest.mark.parametrize("start", STARTS)
def test_no_order_of_steps_makes_a_wrong_result_valid(start: str) -> None:
    n_states, ended = 0, set()
    for state in reached(STARTS[start], Protocol()):
        n_states += 1
        assert not is_wrong(state), state
        ended.add(tuple(driver.at == "done" for driver in state.drivers))
    assert n_states > 1000
    assert ended == {(False, False), (True, False), (False, True), (True, True)}


@pytest.mark.parametrize("start", STARTS)
def test_the_fault_of_outputs_under_final_names_is_found(start: str) -> None:
    """As daskfs 0.2 wrote and read them."""
    assert any(is_wrong(state) for state in reached(STARTS[start], OLD))


@pytest.mark.parametrize("without", ["states_what_it_wrote", "compares"])
def test_no_part_can_be_left_out(without: str) -> None:
    protocol = Protocol()._replace(**{without: False})
    assert any(is_wrong(state) for start in STARTS.values() for state in reached(start, protocol))
