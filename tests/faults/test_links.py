"""`FaultLinks`: what a script makes of the messages of a link, on Trio's clock."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
import trio
from hypothesis import given, settings
from trio.testing import MockClock

from tests.effort import examples
from tests.tables import by_outcome
from trio_mcp import Client, Server, TransportError
from trio_mcp.jsonrpc.messages import Notification, TransportFailure
from trio_mcp.low_level import Link, SessionMessage, memory_link_pair
from trio_mcp.testing import (
    ON_LINKS,
    Await,
    Delay,
    Drop,
    Duplicate,
    FaultLinks,
    Faults,
    Pass,
    Reset,
    Split,
    Stall,
    Tear,
    check_transport,
    fault_scripts,
)

Both = tuple[Link, Link, FaultLinks]


@contextlib.asynccontextmanager
async def opened(*faults: Faults) -> AsyncIterator[Both]:
    """Yield both ends of a link with faults, and what does it."""
    async with memory_link_pair() as (ours, theirs):

        @contextlib.asynccontextmanager
        async def connect() -> AsyncIterator[Link]:
            yield ours

        links = FaultLinks(connect, faults)
        async with links() as link:
            yield link, theirs, links


async def send(channel: trio.abc.SendChannel[SessionMessage], number: int) -> None:
    await channel.send(SessionMessage(Notification("n", {"n": number})))


async def send_four(channel: trio.abc.SendChannel[SessionMessage]) -> None:
    """Send four messages, one a second, and the end."""
    with contextlib.suppress(trio.BrokenResourceError):
        for number in range(1, 5):
            await send(channel, number)
            await trio.sleep(1)
        await channel.aclose()


async def heard(channel: trio.abc.ReceiveChannel[SessionMessage]) -> str:
    """Return what arrives, and when, up to the end."""
    came = []
    began = trio.current_time()
    async for item in channel:
        what = "lost" if isinstance(item.message, TransportFailure) else item.message.params["n"]  # type: ignore[union-attr,index]
        came.append(f"{what}@{trio.current_time() - began:g}")
    return " ".join([*came, f"end@{trio.current_time() - began:g}"])


SCRIPTS = {
    "1@0 2@1 3@2 4@3 end@4": [[], [Pass()], [Pass(2), Pass(seconds=1)]],
    "1@0.5 2@1.5 3@2.5 4@3.5 end@4": [[Delay(0.5)], [Pass(seconds=0), Delay(0.5)]],
    "1@5 2@5 3@5 4@5 end@5": [[Delay(5, 1)], [Stall(5)]],
    "1@0 2@1 3@2 4@3 end@10": [[Pass(4), Stall(7)]],
    "1@0 2@1 3@12 4@12 end@12": [[Pass(2), Await(), Stall(10)]],
    "1@0 2@1 3@11 4@11 end@11": [[Pass(2), Stall(10)]],
    "2@1 3@2 4@3 end@4": [[Drop()], [Await(), Drop(1)]],
    "1@0 2@1 2@1 3@2 3@2 4@3 end@4": [[Pass(1), Duplicate(2)]],
    "1@0 2@1 end@1": [[Pass(2), Tear()]],
    "1@0 2@1 end@2": [[Pass(2), Await(), Tear()], [Pass(2), Drop(1), Tear()]],
    "1@0 2@1 end@1.5": [[Pass(seconds=1.5), Tear()]],
    "end@0": [[Tear()], [Await(), Tear()]],
}


@by_outcome("script", "outcome", SCRIPTS)
@pytest.mark.parametrize("direction", ["sent", "received"])
async def test_a_script_decides_what_arrives_and_when(
    direction: str, script: list[Pass], outcome: str, autojump_clock: MockClock
) -> None:
    async with opened(Faults(**{direction: script})) as (near, far, _), trio.open_nursery() as nursery:
        source, sink = (near, far) if direction == "sent" else (far, near)
        nursery.start_soon(send_four, source.write)
        assert await heard(sink.read) == outcome


@by_outcome("script", "outcome", {"1@0 2@1 lost@1 end@1": [[Pass(2), Reset()]], "lost@0 end@0": [[Await(), Reset()]]})
async def test_a_reset_is_a_loss_with_a_cause_for_one_side_and_an_end_for_the_other(
    script: list[Pass], outcome: str, autojump_clock: MockClock
) -> None:
    async with opened(Faults(received=script)) as (near, far, links), trio.open_nursery() as nursery:
        nursery.start_soon(send_four, far.write)
        assert await heard(near.read) == outcome
        assert await heard(far.read) == "end@0"
        with pytest.raises(trio.BrokenResourceError):
            await send(near.write, 1)
        assert links.statistics().live == 0


async def test_the_cause_of_a_reset_can_be_chosen() -> None:
    cause = ValueError("mine")
    async with opened(Faults(sent=[Reset(cause)])) as (near, _, _):
        assert (await near.read.receive()).message == TransportFailure(cause)


async def stalled(links: FaultLinks) -> None:
    links.stall(sent=False)
    await trio.sleep(1.5)
    links.resume()


async def stalled_for_good(links: FaultLinks) -> None:
    links.stall()
    await trio.sleep(20)
    links.tear()


async def torn(links: FaultLinks) -> None:
    await trio.sleep(1.5)
    links.tear()


async def reset(links: FaultLinks) -> None:
    await trio.sleep(1.5)
    links.reset()


@pytest.mark.parametrize(
    ("control", "outcome"),
    [
        (stalled, "1@1.5 2@1.5 3@2 4@3 end@4"),
        (stalled_for_good, "end@20"),
        (torn, "1@0 2@1 end@1.5"),
        (reset, "1@0 2@1 lost@1.5 end@1.5"),
    ],
)
async def test_links_can_be_controlled_while_they_are_used(
    control: Callable[[FaultLinks], Awaitable[None]], outcome: str, autojump_clock: MockClock
) -> None:
    async with opened() as (near, far, links), trio.open_nursery() as nursery:
        nursery.start_soon(control, links)
        nursery.start_soon(send_four, far.write)
        assert await heard(near.read) == outcome


@pytest.mark.again
async def test_a_link_without_faults_keeps_the_contract_and_a_reset_is_a_loss() -> None:
    @contextlib.asynccontextmanager
    async def pair() -> AsyncIterator[tuple[Link, Link]]:
        async with opened() as (near, far, _):
            yield near, far

    @contextlib.asynccontextmanager
    async def cut() -> AsyncIterator[tuple[Link, Callable[[], None]]]:
        async with opened() as (near, _, links):
            yield near, links.reset

    assert (await check_transport(pair, cut=cut)).kept


# --- with a client ---------------------------------------------------------------------------------------------------

server = Server("s", version="1")


@server.tool
async def double(number: int) -> int:
    return 2 * number


@pytest.mark.parametrize("mode", ["legacy", "2026-07-28"])
async def test_a_client_calls_through_links_and_loses_them(mode: str, autojump_clock: MockClock) -> None:
    links = FaultLinks(server, [Faults(sent=[Delay(1)], received=[Delay(2)])])
    for _ in range(2):  # the second link has no faults
        async with Client(links, mode=mode) as client:
            assert (await client.call_tool("double", {"number": 2})).data == 4
            links.reset()
            with pytest.raises(TransportError, match="reset by a fault that the test asked for"):
                await client.call_tool("double", {"number": 2})
    links.refuse()
    with pytest.raises(TransportError, match="refused by a fault"):
        async with Client(links):
            pass
    links.accept()
    links.calm = True
    async with Client(links) as client:
        assert (await client.call_tool("double", {"number": 2})).data == 4
        links.tear()
        with pytest.raises(TransportError, match="closed"):
            await client.call_tool("double", {"number": 2})
    counted = links.statistics()
    assert (counted.connections, counted.live, counted.steps) == (3, 0, {"Delay": 2, "Reset": 2, "Tear": 1})
    assert counted.sent
    assert counted.received


async def test_what_a_session_writes_last_arrives_unless_nothing_passes(autojump_clock: MockClock) -> None:
    for faults, arrives in ((Faults(), True), (Faults(sent=[Delay(0.5)]), True), (Faults(sent=[Stall()]), False)):
        async with memory_link_pair() as (ours, theirs):
            async with FaultLinks(lambda: contextlib.nullcontext(ours), [faults])() as link:
                await send(link.write, 1)
            assert (theirs.read.statistics().current_buffer_used == 1) == arrives  # type: ignore[attr-defined]


@pytest.mark.parametrize("fault", [Split(), "Stall"])
async def test_a_script_that_can_not_be_played_is_refused(fault: Split) -> None:
    with pytest.raises((TypeError, ValueError), match=r"can't be applied to a link|a script consists of steps"):
        async with opened(Faults(sent=[fault])):
            pass


# --- by Hypothesis ---------------------------------------------------------------------------------------------------

FAITHFUL = [kind for kind in ON_LINKS if kind not in (Drop, Duplicate)]


@settings(max_examples=examples(300))
@given(faults=fault_scripts(FAITHFUL, most=5, longest=100.0))
def test_whatever_the_script_what_arrives_was_sent_and_in_order(faults: list[Faults]) -> None:
    async def main() -> None:
        async with opened(*faults) as (near, far, links), trio.open_nursery() as nursery:
            nursery.start_soon(send_four, far.write)
            nursery.start_soon(send_four, near.write)
            for came in (await heard(near.read), await heard(far.read)):
                numbers = [each[0] for each in came.split() if each[0].isdigit()]
                assert "1234".startswith("".join(numbers))
                assert len(numbers) == 4 or {"Tear", "Reset"} & links.statistics().steps.keys()

    trio.run(main, clock=MockClock(autojump_threshold=0))
