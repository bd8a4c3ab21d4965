"""`open_direct_channel`: a memory channel, until the receiver names a function that gets each message at once."""

from __future__ import annotations

import contextlib
import contextvars
import itertools
import random
from collections.abc import AsyncIterator

import pytest
import trio
import trio.testing

from trio_mcp._nursery import background_nursery
from trio_mcp.direct_channel import BURST, DirectReceiveChannel, DirectSendChannel, Take, open_direct_channel
from trio_mcp.jsonrpc.messages import Notification
from trio_mcp.low_level import SessionMessage

LIMIT = 4

# Trio runs the tasks that are ready in any order: between two turns of a task, sender and receiver may have two each.
MOST = 2 * (BURST + LIMIT)


def note(n: int) -> SessionMessage:
    return SessionMessage(Notification("m", {"n": n}))


class Ends:
    """A channel, and a task that delivers what arrives."""

    sender: DirectSendChannel
    receiver: DirectReceiveChannel

    def __init__(self) -> None:
        self.sender, self.receiver = open_direct_channel(LIMIT)
        self.taken: list[int] = []
        self.scope = trio.CancelScope()
        self.raised: BaseException | None = None

    def take(self, item: SessionMessage) -> None:
        self.taken.append(item.message.params["n"])  # type: ignore[union-attr,index]

    async def deliver(self, take: Take | None = None) -> None:
        try:
            with self.scope:
                await self.receiver.deliver_to(take or self.take)
        except (Exception, KeyboardInterrupt) as exc:
            self.raised = exc

    def full(self) -> bool:
        """Send until there is no room, and return whether it took as many messages as the channel holds."""
        try:
            for n in range(LIMIT + 1):
                self.sender.send_nowait(note(n))
        except trio.WouldBlock:
            return n == LIMIT
        return False


@pytest.fixture
async def ends() -> AsyncIterator[Ends]:
    ends = Ends()
    with ends.sender, ends.receiver:
        yield ends


async def test_it_is_a_bounded_channel_until_a_function_is_named(ends: Ends) -> None:
    """A transport must not read more than a session has room for."""
    assert ends.full()
    assert [(await ends.receiver.receive()).message.params["n"] for _ in range(LIMIT)] == [0, 1, 2, 3]  # type: ignore[union-attr,index]
    ends.sender.close()
    with pytest.raises(trio.EndOfChannel):
        await ends.receiver.receive()


async def test_what_waits_comes_first_and_later_messages_come_at_once(ends: Ends) -> None:
    """The order is that of sending: what waits in the channel, then a sender who waits for room, then direct ones."""
    for n in range(LIMIT):
        ends.sender.send_nowait(note(n))
    async with background_nursery() as nursery:
        nursery.start_soon(ends.sender.send, note(4))
        await trio.testing.wait_all_tasks_blocked()
        nursery.start_soon(ends.deliver)
        await trio.testing.wait_all_tasks_blocked()
        assert ends.taken == [0, 1, 2, 3, 4]
        ends.sender.send_nowait(note(5))
        assert ends.taken[-1] == 5  # without a turn of the loop
        await ends.sender.send(note(6))
        assert ends.taken[-1] == 6
        with pytest.raises(trio.BusyResourceError):
            await ends.receiver.deliver_to(ends.take)


async def test_a_flood_lets_other_tasks_run(ends: Ends) -> None:
    """A sender without a checkpoint of its own hands over one burst, and then waits for room."""
    turns: list[int] = []

    async def other() -> None:
        while True:
            turns.append(len(ends.taken))
            await trio.lowlevel.checkpoint()

    async with background_nursery() as nursery:
        nursery.start_soon(ends.deliver)
        await trio.testing.wait_all_tasks_blocked()
        nursery.start_soon(other)
        for n in range(5 * BURST):
            try:
                ends.sender.send_nowait(note(n))
            except trio.WouldBlock:
                await ends.sender.send(note(n))
    assert ends.taken == list(range(5 * BURST))
    assert max(later - earlier for earlier, later in itertools.pairwise(turns)) <= MOST


async def test_what_waits_in_a_large_channel_is_taken_in_bursts() -> None:
    """The first messages of a flood don't starve other tasks either."""
    sender, receiver = open_direct_channel(5 * BURST)
    for n in range(5 * BURST):
        sender.send_nowait(note(n))
    counts: list[int] = []
    taken: list[SessionMessage] = []

    async def other() -> None:
        while True:
            counts.append(len(taken))
            await trio.lowlevel.checkpoint()

    with sender, receiver:
        async with background_nursery() as nursery:
            nursery.start_soon(receiver.deliver_to, taken.append)
            nursery.start_soon(other)
            while len(taken) < 5 * BURST:
                await trio.lowlevel.checkpoint()
    assert max(later - earlier for earlier, later in itertools.pairwise(counts)) <= MOST


@pytest.mark.parametrize("seed", range(4))
async def test_it_tells_beforehand_whether_it_is_full(ends: Ends, seed: int) -> None:
    """`full` is what `send_nowait` then does, whatever was sent, received, delivered or cancelled before."""
    choose = random.Random(seed)
    seen: set[tuple[str, bool]] = set()
    senders: list[trio.CancelScope] = []

    async def send() -> None:
        with trio.CancelScope() as scope:
            senders.append(scope)
            await ends.sender.send(note(0))

    async with background_nursery() as nursery:
        for _ in range(400):
            match what := choose.choice(["nothing", "send", "give up", "receive", "deliver", "stop"]):
                case "send":
                    nursery.start_soon(send)
                case "give up" if senders:
                    senders.pop().cancel()
                case "receive":
                    with contextlib.suppress(trio.WouldBlock):
                        ends.receiver.receive_nowait()
                case "deliver" if ends.scope.cancel_called or not ends.taken:
                    ends.scope = trio.CancelScope()
                    nursery.start_soon(ends.deliver)
                case "stop":
                    ends.scope.cancel()
            await trio.testing.wait_all_tasks_blocked()
            full = ends.sender.full
            try:
                ends.sender.send_nowait(note(0))
            except trio.WouldBlock:
                assert full
            else:
                assert not full
            seen.add((what, full))
    assert seen >= {(what, full) for what in ("nothing", "send", "give up", "stop") for full in (False, True)}
    ends.receiver.close()
    assert not ends.sender.full  # it is broken then, and does not wait for room


@pytest.mark.parametrize("how", ["cancelled", "receiver", "sender"])
async def test_nothing_is_handed_over_after_the_end(ends: Ends, how: str) -> None:
    """After a cancellation or a close, the function is not called again, even before its task has run."""
    async with background_nursery() as nursery:
        nursery.start_soon(ends.deliver)
        await trio.testing.wait_all_tasks_blocked()
        ends.sender.send_nowait(note(0))
        if how == "cancelled":
            ends.scope.cancel()
            assert ends.full()
            await trio.testing.wait_all_tasks_blocked()
            assert (await ends.receiver.receive()).message == note(0).message
        elif how == "receiver":
            ends.receiver.close()
            with pytest.raises(trio.BrokenResourceError):
                ends.sender.send_nowait(note(1))
            with pytest.raises(trio.BrokenResourceError):
                await ends.sender.send(note(1))
        else:
            ends.sender.close()
            with pytest.raises(trio.ClosedResourceError):
                ends.sender.send_nowait(note(1))
        await trio.testing.wait_all_tasks_blocked()
    expected = {"cancelled": type(None), "receiver": trio.ClosedResourceError, "sender": trio.EndOfChannel}[how]
    assert ends.taken == [0]
    assert type(ends.raised) is expected


@pytest.mark.parametrize("error", [ZeroDivisionError, KeyboardInterrupt])
@pytest.mark.parametrize("cancelled", [False, True])
async def test_what_the_function_raises_is_raised_to_the_receiver(
    ends: Ends, error: type[BaseException], cancelled: bool
) -> None:
    """The sender can't be blamed: it goes on, and what it sends then waits in the channel."""

    def take(item: SessionMessage) -> None:
        if cancelled:
            ends.scope.cancel()  # an exception weighs more than a cancellation
        raise error

    async with background_nursery() as nursery:
        nursery.start_soon(ends.deliver, take)
        await trio.testing.wait_all_tasks_blocked()
        ends.sender.send_nowait(note(0))
        assert ends.full()
        await trio.testing.wait_all_tasks_blocked()
    assert type(ends.raised) is error


async def test_a_send_that_is_cancelled_has_sent_nothing(ends: Ends) -> None:
    """Neither directly, nor into the channel."""
    async with background_nursery() as nursery:
        nursery.start_soon(ends.deliver)
        await trio.testing.wait_all_tasks_blocked()
        with trio.CancelScope() as scope:
            scope.cancel()
            await ends.sender.send(note(0))
        assert scope.cancelled_caught
        await trio.testing.wait_all_tasks_blocked()
    assert ends.taken == []


@pytest.mark.parametrize("steps", range(4))
async def test_a_receiver_that_leaves_during_a_send_loses_nothing(ends: Ends, steps: int) -> None:
    """A message that is on its way when the receiver is cancelled is taken before, or waits in the channel."""
    async with background_nursery() as nursery:
        nursery.start_soon(ends.deliver)
        await trio.testing.wait_all_tasks_blocked()
        nursery.start_soon(ends.sender.send, note(0))
        for _ in range(steps):
            await trio.lowlevel.checkpoint()
        ends.scope.cancel()
        await trio.testing.wait_all_tasks_blocked()
        if not ends.taken:
            ends.take(ends.receiver.receive_nowait())
        with pytest.raises(trio.WouldBlock):
            ends.receiver.receive_nowait()
    assert ends.taken == [0]


async def test_the_function_is_never_called_inside_itself(ends: Ends) -> None:
    """One message takes its whole effect before the next one is looked at; the order stays that of sending."""
    inside = 0

    def take(item: SessionMessage) -> None:
        nonlocal inside
        assert not inside
        inside += 1
        ends.take(item)
        if ends.taken == [0]:
            ends.sender.send_nowait(note(1))
            ends.sender.send_nowait(note(2))
        inside -= 1

    async with background_nursery() as nursery:
        nursery.start_soon(ends.deliver, take)
        await trio.testing.wait_all_tasks_blocked()
        ends.sender.send_nowait(note(0))
        ends.sender.send_nowait(note(3))
        await trio.testing.wait_all_tasks_blocked()
    assert ends.taken == [0, 1, 2, 3]


async def test_the_function_sees_the_receivers_context_variables(ends: Ends) -> None:
    """Handlers inherit the context of the session, not that of the transport."""
    who: contextvars.ContextVar[str] = contextvars.ContextVar("who", default="unset")
    seen: list[str] = []

    async def deliver() -> None:
        who.set("receiver")
        await ends.deliver(lambda item: seen.append(who.get()))

    async with background_nursery() as nursery:
        nursery.start_soon(deliver)
        await trio.testing.wait_all_tasks_blocked()
        who.set("sender")
        ends.sender.send_nowait(note(0))
    assert seen == ["receiver"]
