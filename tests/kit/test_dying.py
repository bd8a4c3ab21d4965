"""Checks of targets that die are never green, end in time, leave nothing behind; `.ci/long dying` is the long run."""

from __future__ import annotations

import math
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
import trio
import trio.testing

from tests.kit import dying
from tests.kit.dying import Case
from tests.kit.dying_server import FAULTS, TRANSPORTS
from tests.kit.targets import Connection, over_lines, plain
from trio_mcp import TransportError
from trio_mcp.conformance import engine, run
from trio_mcp.conformance.clients import OVERTIME, StreamClient, check_client
from trio_mcp.conformance.engine import Check, check_server
from trio_mcp.conformance.outcomes import CheckReport
from trio_mcp.conformance.wires.targets import WireTarget

LEGACY = "2025-11-25"
FEW = [
    Case("stdio", "silent", 6, 1.0, 1),
    Case("stdio", "stubborn", 6, 30.0, 1, term=2.0),
    Case("http", "hangs", 0, 1.0, 1),
]
ALL = [Case(transport, fault, 9, 2.0, 1) for transport in TRANSPORTS for fault in FAULTS]


@pytest.mark.parametrize(
    "case",
    [*FEW, *(pytest.param(case, marks=pytest.mark.again) for case in ALL)],
    ids=lambda case: f"{case.fault} over {case.transport}{'' if case.term is None else ', SIGTERM'}",
)
async def test_a_check_of_a_server_that_dies_is_not_green_and_leaves_nothing_behind(case: Case) -> None:
    ended = await dying.check(case)
    assert dying.problem_of(case, ended, overtime=math.inf) == "", ended.said


# --- the engine -------------------------------------------------------------------------------------------------------


def silent_after(count: int) -> WireTarget:
    """Return a server that falls silent for good, on each connection, after a number of messages."""
    heard = 0

    async def silent(connection: Connection, message: dict[str, Any]) -> None:
        nonlocal heard
        heard += 1
        if heard <= count:
            await plain(connection, message)

    return over_lines(silent)


async def checked(target: WireTarget, *rules: str, **options: Any) -> CheckReport:
    settings: dict[str, Any] = {"revisions": (LEGACY,), "rules": rules}
    check = Check(target.open_wire, target.name, settings | options)  # type: ignore[arg-type]
    await check.run()
    return check.report()


@pytest.mark.parametrize("count", range(7, 24, 4))
async def test_a_request_that_is_never_answered_breaks_the_rule_that_requests_are(
    count: int, autojump_clock: trio.testing.MockClock
) -> None:
    report = await checked(silent_after(count), "request-answered")
    assert [outcome.rule.id for outcome in report.broken] == ["request-answered"]
    assert report.status == 1


@pytest.fixture
def virtual_time_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """A check counts virtual time as if it were real: so the machine may be as busy as it likes."""
    monkeypatch.setattr(engine, "clock", SimpleNamespace(perf_counter=trio.current_time))
    monkeypatch.setattr(engine, "is_virtual", lambda: False)
    monkeypatch.setattr(run, "is_virtual", lambda: False)


@pytest.mark.parametrize("count", [7, 12])
async def test_what_is_open_when_the_time_is_up_is_undecided_and_not_green(
    count: int, virtual_time_counts: None, autojump_clock: trio.testing.MockClock
) -> None:
    """It has not waited for its ten seconds, so no rule is broken; but whether it would be answered is not known."""
    report = await checked(silent_after(count), "request-answered", time=4.0)
    assert (report.status, report.ended, report.broken) == (2, "time", ())
    assert any("when the time of the check was up" in each for each in report.undecided), report.undecided


async def test_a_healthy_server_is_decided_when_the_time_is_up() -> None:
    report = await checked(over_lines(plain), "request-answered", time=1.0, examples=10**6)
    assert (report.status, report.ended, report.undecided) == (0, "time", ())


async def test_a_check_without_the_time_for_an_example_is_undecided(autojump_clock: trio.testing.MockClock) -> None:
    report = await checked(over_lines(plain), "request-answered", time=0.0)
    assert (report.status, report.examples) == (2, 0)


async def test_a_handshake_that_hangs_has_the_time_of_the_check(
    virtual_time_counts: None, autojump_clock: trio.testing.MockClock
) -> None:
    with pytest.raises(TransportError, match="within 20 seconds"):
        await check_server(silent_after(0), time=20.0)
    assert trio.current_time() == 20


async def test_a_server_that_ends_by_itself_is_undecided(autojump_clock: trio.testing.MockClock) -> None:
    """No rule forbids it to end between two requests, but it is not well."""

    async def ends(connection: Connection, message: dict[str, Any]) -> None:
        await plain(connection, message)
        if message["method"] == "ping":
            await connection.stream.aclose()

    report = await checked(over_lines(ends), "json-rpc-envelope", examples=30)
    assert (report.status, report.broken) == (2, ())
    (why,) = report.undecided
    assert "without an apparent reason" in why


async def test_a_server_that_floods_is_undecided(
    autojump_clock: trio.testing.MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "MOST_EVENTS", 500)

    async def floods(connection: Connection, message: dict[str, Any]) -> None:
        await plain(connection, message)
        while message["method"] == "ping":
            await connection.say({"method": "notifications/message", "params": {"level": "info", "data": "more"}})

    report = await checked(over_lines(floods), "answered-once", examples=30)
    assert (report.status, report.ended) == (2, "target floods")


async def test_shrinking_ends_with_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run of a server that has fallen silent would last as long as all its waits."""
    monkeypatch.setattr(run, "LAST_WAIT", 0.2)
    monkeypatch.setattr(run, "LAST_PROBE", 0.2)
    heard = 0

    async def twice_and_silent(connection: Connection, message: dict[str, Any]) -> None:
        nonlocal heard
        heard += message["method"] == "ping"
        if heard < 2:
            await plain(connection, message)
        if heard == 1 and message["method"] == "ping":
            await plain(connection, message)

    report = await checked(over_lines(twice_and_silent), "answered-once", time=2.0)
    (outcome,) = report.broken
    assert outcome.failure is not None
    assert (outcome.failure.seen, report.status) == (0, 1)


# --- clients ----------------------------------------------------------------------------------------------------------


def client(seconds: float) -> StreamClient:
    async def meet(connect: Any) -> None:
        async with await connect():
            await trio.sleep(seconds)

    return StreamClient(meet)


async def test_a_client_that_is_not_over_when_the_time_is_up_is_undecided(
    autojump_clock: trio.testing.MockClock,
) -> None:
    report = await check_client(client(math.inf), time=10)
    assert trio.current_time() == 10 + OVERTIME
    assert (report.status, report.ended) == (2, "time")


async def test_a_client_that_always_takes_long_is_not_undecided(autojump_clock: trio.testing.MockClock) -> None:
    report = await check_client(client(12.0), time=14)
    assert trio.current_time() == 14 + OVERTIME
    assert (report.status, report.examples) == (0, 1)


async def test_a_stop_ends_a_client_in_the_middle(autojump_clock: trio.testing.MockClock) -> None:
    stop = trio.Event()
    async with trio.open_nursery() as nursery:

        @partial(nursery.start_soon)
        async def later() -> None:
            await trio.sleep(3)
            stop.set()

        report = await check_client(client(math.inf), stop=stop)
    assert (trio.current_time(), report.ended, report.undecided) == (3, "interrupted", ())
