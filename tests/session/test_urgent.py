"""Urgent messages overtake others that wait, within rules: docs/explanation/sessions.md."""

from __future__ import annotations

import types
from collections.abc import Awaitable, Callable, Coroutine, Generator
from functools import partial
from typing import Any

import attrs
import pytest
import trio
import trio.testing
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule, run_state_machine_as_test

import tests.peer
from tests.effort import examples
from tests.session.harness import client_on_wire, server_on_wire
from trio_mcp import Client, Context, Server, SessionOptions
from trio_mcp.errors import RemoteProtocolError
from trio_mcp.jsonrpc.events import IncomingRequest, OutgoingRequest, RequestStarted
from trio_mcp.jsonrpc.messages import Message, Notification, Request, Response, SessionMessage
from trio_mcp.jsonrpc.order import MOST_IN_A_ROW, MessageQueue
from trio_mcp.jsonrpc.peer import Peer
from trio_mcp.link import BUFFER
from trio_mcp.low_level import ClientSession, HandlerOptions, RequestContext
from trio_mcp.session.notices import Notices
from trio_mcp.session.outbox import Outbox

# --- the rules, in every order that Hypothesis can think of ---------------------------------------------------------


@attrs.define
class Waiting:
    """A message in a queue, and what the rules need to know of it."""

    message: Message
    urgent: bool
    wanted: bool = True

    @property
    def fixed(self) -> bool:
        """Whether nothing may overtake it."""
        return getattr(self.message, "method", "") in ("", "server/discover", "notifications/initialized")

    def refers_to(self, other: Waiting) -> bool:
        ours, theirs = self.message, other.message
        if not isinstance(ours, Notification) or ours.params is None:
            return False
        if isinstance(theirs, Request):
            return ours.params.get("requestId") == theirs.id
        token = ours.params.get("progressToken")
        return (
            isinstance(theirs, Notification)
            and token is not None
            and token == (theirs.params or {}).get("progressToken")
        )


class Judge:
    """Checks the order in which messages leave a queue against the order in which they were put there."""

    def __init__(self) -> None:
        self.waiting: list[Waiting] = []
        self.in_a_row = 0

    def put(self, message: Message, urgent: bool) -> None:
        self.waiting.append(Waiting(message, urgent))

    def leaves(self, message: Message) -> None:
        place = next(place for place, each in enumerate(self.waiting) if each.message is message)
        gone, passed = self.waiting.pop(place), self.waiting[:place]
        before = [each for each in passed if each.wanted]
        if not gone.urgent:
            assert not before, "only urgent messages overtake"
            self.waiting = self.waiting[place:]
            assert self.in_a_row == MOST_IN_A_ROW or not self.could_overtake(gone), "the first urgent one goes first"
        for each in before:
            assert not each.urgent, "urgent messages keep their order"
            assert not each.fixed, "answers and the handshake are not overtaken"
            assert not gone.refers_to(each), "nothing overtakes what it refers to"
        self.in_a_row = self.in_a_row + 1 if before else 0
        assert self.in_a_row <= MOST_IN_A_ROW, "each has its turn"

    def could_overtake(self, left: Waiting) -> bool:
        """Return whether an urgent message could have gone instead of this one."""
        before = [left]
        for each in self.waiting:
            if each.urgent and each.wanted:
                return not any(other.fixed or each.refers_to(other) for other in before)
            before.append(each)
        return False

    @property
    def left(self) -> list[Message]:
        """What is still to leave."""
        return [each.message for each in self.waiting if each.wanted]

    def drop(self, message: Message) -> None:
        # It stays until its turn comes: what refers to it keeps its place.
        for each in self.waiting:
            each.wanted = each.wanted and each.message is not message


@types.coroutine
def pause() -> Generator[None, None, None]:
    """Wait until `Tasks.go_on`."""
    yield


class Tasks:
    """Runs tasks without an event loop, one at a time."""

    def __init__(self) -> None:
        self.task: Coroutine[Any, Any, None] | None = None

    def spawn(self, function: Callable[[], Awaitable[None]]) -> None:
        assert self.task is None, "there is one task at a time"
        self.task = function()  # type: ignore[assignment]

    def go_on(self) -> None:
        if self.task is not None:
            try:
                self.task.send(None)
            except StopIteration:
                self.task = None


class Wire(trio.abc.SendChannel[SessionMessage]):
    """Takes as many messages as it has places; a message leaves the queue when it is offered."""

    def __init__(self, judge: Judge) -> None:
        self.judge = judge
        self.places = 0

    def send_nowait(self, value: SessionMessage) -> None:
        if not self.places:
            raise trio.WouldBlock
        self.places -= 1
        self.judge.leaves(value.message)  # type: ignore[arg-type]

    async def send(self, value: SessionMessage) -> None:
        self.judge.leaves(value.message)  # type: ignore[arg-type]
        while not self.places:
            await pause()
        self.places -= 1

    async def aclose(self) -> None:
        raise AssertionError


COUNTS = st.integers(1, 12)


class Overtaking(RuleBasedStateMachine):
    """What the machines for the three queues have in common."""

    @initialize()
    def setup(self) -> None:
        self.judge = Judge()
        self.tasks = Tasks()
        self.number = 0
        self.requests: list[Any] = []
        self.make()

    def make(self) -> None:
        raise NotImplementedError

    def put(self, message: Message, urgent: bool) -> None:
        raise NotImplementedError

    def take(self) -> None:
        raise NotImplementedError

    def next_number(self) -> int:
        self.number += 1
        return self.number

    @rule(count=COUNTS)
    def take_some(self, count: int) -> None:
        for _ in range(count):
            self.take()

    def teardown(self) -> None:
        if hasattr(self, "judge"):
            for _ in range(2 * len(self.judge.waiting) + 2):
                self.take()
            assert not self.judge.left, "everything leaves in the end"


class OutboxMachine(Overtaking):
    def make(self) -> None:
        self.wire = Wire(self.judge)
        self.outbox = Outbox(self.wire, self.tasks.spawn)

    def put(self, message: Message, urgent: bool, owner: Any = None) -> None:
        self.judge.put(message, urgent)
        self.outbox.put(SessionMessage(message, urgent=urgent), owner)

    def take(self) -> None:
        self.wire.places += 1
        self.tasks.go_on()

    @rule(urgent=st.booleans(), count=COUNTS)
    def request(self, urgent: bool, count: int) -> None:
        for _ in range(count):
            outgoing = OutgoingRequest(Request(self.next_number(), "work"))
            self.requests.append(outgoing)
            self.put(outgoing.request, urgent, outgoing)

    @rule(urgent=st.booleans(), count=COUNTS)
    def notify(self, urgent: bool, count: int) -> None:
        for _ in range(count):
            self.put(Notification("note"), urgent)

    @rule(urgent=st.booleans(), token=st.integers(1, 3))
    def progress(self, urgent: bool, token: int) -> None:
        self.put(Notification("notifications/progress", {"progressToken": token}), urgent)

    @rule(method=st.sampled_from(["notifications/initialized", None]))
    def fixed(self, method: str | None) -> None:
        self.put(Response(self.next_number(), {}) if method is None else Notification(method), False)

    @precondition(lambda self: self.requests)
    @rule(urgent=st.booleans(), pick=st.integers(0))
    def refer(self, urgent: bool, pick: int) -> None:
        outgoing = self.requests[pick % len(self.requests)]
        self.put(Notification("notifications/cancelled", {"requestId": outgoing.request.id}), urgent)

    @precondition(lambda self: self.requests)
    @rule(pick=st.integers(0))
    def give_up(self, pick: int) -> None:
        outgoing = self.requests.pop(pick % len(self.requests))
        outgoing.settled = True
        self.judge.drop(outgoing.request)


class PeerMachine(Overtaking):
    def make(self) -> None:
        self.peer = Peer(max_running=1, is_urgent=lambda request: request.method == "now")
        self.running: list[IncomingRequest] = []
        self.send("work")

    def send(self, method: str) -> None:
        request = Request(self.next_number(), method)
        self.judge.put(request, method == "now")
        for event in self.peer.receive(request):
            assert isinstance(event, RequestStarted)
            self.judge.drop(request)
            # Only those that don't have a lane of their own hand their places on.
            if event.incoming.lane is None:
                self.running.append(event.incoming)

    def take(self) -> None:
        if self.running and (successor := self.peer.finished(self.running.pop())) is not None:
            self.judge.leaves(successor.request)
            self.running.append(successor)

    @rule(method=st.sampled_from(["work", "now", "ping", "server/discover"]), count=COUNTS)
    def arrive(self, method: str, count: int) -> None:
        for _ in range(count):
            self.send(method)

    @precondition(lambda self: self.judge.left)
    @rule(pick=st.integers(0))
    def cancel(self, pick: int) -> None:
        message = self.judge.left[pick % len(self.judge.left)]
        assert isinstance(message, Request)
        assert not self.peer.receive(Notification("notifications/cancelled", {"requestId": message.id}))
        self.judge.drop(message)
        assert self.peer.queued_count == len(self.judge.left)


class NoticesMachine(Overtaking):
    def make(self) -> None:
        self.notices = Notices(self, HandlerOptions(urgent={"now"}), self.tasks.spawn)

    async def received_notification(self, notification: Notification) -> None:
        self.judge.leaves(notification)
        await pause()

    async def received_error(self, error: RemoteProtocolError) -> None:
        await pause()

    def take(self) -> None:
        self.tasks.go_on()

    @rule(method=st.sampled_from(["note", "now", "notifications/initialized"]), count=COUNTS)
    def arrive(self, method: str, count: int) -> None:
        # One task handles at most 63 without a checkpoint, for which there would have to be an event loop.
        for _ in range(count if self.number < 40 else 0):
            notification = Notification(method, {"number": self.next_number()})
            self.judge.put(notification, method == "now")
            self.notices.put(notification)


def test_an_urgent_message_that_goes_before_a_worthless_one_overtakes_nothing() -> None:
    """So as many go before the next plain one as ever."""
    worthless = {0}
    queue = MessageQueue[int](lambda item: item not in worthless)
    queue.put(0, Request(1, "tools/list"))
    queue.put(1, Notification("note"), urgent=True)
    queue.put(2, Notification("note"))
    urgent = range(3, 4 + MOST_IN_A_ROW)
    for item in urgent:
        queue.put(item, Notification("note"), urgent=True)
    taken = [queue.take() for _ in range(3 + MOST_IN_A_ROW)]
    assert taken == [1, *urgent[:MOST_IN_A_ROW], 2, urgent[-1]]
    assert queue.take() is None


@pytest.mark.parametrize("machine", [OutboxMachine, PeerMachine, NoticesMachine])
def test_urgent_messages_overtake_what_they_may_and_starve_no_other(machine: type[Overtaking]) -> None:
    run_state_machine_as_test(machine, settings=settings(max_examples=examples(200), stateful_step_count=30))


# --- through sessions, clients and servers ---------------------------------------------------------------------------


async def drained(wire: tests.peer.Peer) -> list[str]:
    """Take everything that is sent or waits to be; return the methods."""
    methods: list[str] = []
    await trio.testing.wait_all_tasks_blocked()
    while arrived := wire.arrived():
        methods += [getattr(message, "method", "an answer") for message in arrived]
        await trio.testing.wait_all_tasks_blocked()
    return methods


# What is in the link, and being written, can't be overtaken.
GONE = BUFFER + 1

SENT: dict[str, Callable[[Client, ClientSession], Awaitable[object]]] = {
    "Client.request": lambda client, session: client.request("acme/now", urgent=True),
    "Client.notify": lambda client, session: client.notify("acme/now", urgent=True),
    "send_request": lambda client, session: session.send_request("acme/now", urgent=True),
    "send_request with progress": lambda client, session: session.send_request(
        "acme/now", urgent=True, on_progress=print
    ),
    "send_notification": lambda client, session: session.send_notification("acme/now", urgent=True),
}


@pytest.mark.parametrize("way", SENT)
@pytest.mark.parametrize("waiting", [3, 40])
async def test_what_a_client_sends_as_urgent_goes_first_also_if_others_wait_for_room(way: str, waiting: int) -> None:
    wires: list[tests.peer.Peer] = []
    options = SessionOptions(max_outgoing_messages=10, close_grace=0)

    async def greet(peer: tests.peer.Peer) -> None:
        wires.append(peer)
        await peer.greet()
        await peer.expect(Notification)

    async with (
        Client(tests.peer.played(greet), mode="legacy", options=options) as client,
        trio.open_nursery() as nursery,
    ):
        for _ in range(GONE + waiting):
            nursery.start_soon(client.notify, "acme/plain")
        await trio.testing.wait_all_tasks_blocked()
        nursery.start_soon(SENT[way], client, client.session)
        methods = await drained(wires[0])
        assert methods.index("acme/now") == GONE
        assert methods.count("acme/plain") == GONE + waiting
        nursery.cancel_scope.cancel()


async def test_urgent_messages_wait_for_room_of_their_own() -> None:
    async with (
        client_on_wire(options=SessionOptions(max_outgoing_messages=2)) as (client, wire),
        trio.open_nursery() as nursery,
    ):
        for _ in range(GONE):
            nursery.start_soon(client.send_notification, "acme/plain")
        await trio.testing.wait_all_tasks_blocked()
        for _ in range(10):
            nursery.start_soon(partial(client.send_notification, "acme/now", urgent=True))
        await trio.testing.wait_all_tasks_blocked()
        assert client.statistics().bulk_waiting == 2
        assert await drained(wire) == ["acme/plain"] * GONE + ["acme/now"] * 10


async def test_what_a_handler_sends_as_urgent_goes_first_but_not_before_an_answer() -> None:
    """An answer is not overtaken: what is sent after it may refer to it."""
    server = Server("busy")

    @server.tool
    async def work(ctx: Context, before: int, after: int) -> None:
        for _ in range(before):
            await ctx.notify("acme/plain")
        if after:
            await ctx.notify("acme/now", urgent=True)

    async with tests.peer.client_peer(server) as wire:
        for before, after in ((GONE + 3, 0), (2, 1), (0, 1)):
            await wire.request("tools/call", {"name": "work", "arguments": {"before": before, "after": after}})
            await trio.testing.wait_all_tasks_blocked()
        assert (await drained(wire))[GONE:] == [
            *["acme/plain"] * 3,
            "an answer",
            "acme/now",
            *["acme/plain"] * 2,
            "an answer",
            "acme/now",
            "an answer",
        ]


def by_params(message: Request | Notification) -> bool:
    return (message.params or {}).get("urgent") is True


def faulty(message: Request | Notification) -> bool:
    raise ZeroDivisionError


@pytest.mark.parametrize("urgent", [{"acme/now"}, ["acme/now"], by_params])
async def test_what_arrives_and_is_urgent_here_is_handled_first(urgent: Any) -> None:
    handled: list[str] = []
    go_on = trio.Semaphore(0)

    async def answer(context: RequestContext) -> dict[str, Any]:
        handled.append(context.method)
        await go_on.acquire()
        return {}

    async def received_notification(notification: Notification) -> None:
        handled.append(notification.method)
        await go_on.acquire()

    options = SessionOptions(handlers=HandlerOptions(max_running_requests=1, urgent=urgent))
    for kind in (Request, Notification):
        handled.clear()
        async with server_on_wire(answer, options=options) as (server, wire):
            server.received_notification = received_notification  # type: ignore[method-assign]
            for number, method in enumerate(["acme/1", "acme/2", "acme/3", "acme/now"]):
                given = method, {"urgent": method == "acme/now"}
                await wire.send(Request(number, *given) if kind is Request else Notification(*given))
            for _ in range(4):
                await trio.testing.wait_all_tasks_blocked()
                go_on.release()
        assert handled == ["acme/1", "acme/now", "acme/2", "acme/3"]


async def test_a_function_that_fails_makes_nothing_urgent(caplog: pytest.LogCaptureFixture) -> None:
    options = SessionOptions(handlers=HandlerOptions(max_running_requests=1, urgent=faulty))
    async with server_on_wire(options=options) as (_, wire):
        for number in range(3):
            await wire.send(Request(number, "acme/work"))
        assert [(await wire.expect(Response)).id for _ in range(3)] == [0, 1, 2]
    assert "ZeroDivisionError" in caplog.text


async def anyone(message: Any) -> bool:
    return True


@pytest.mark.parametrize("urgent", ["acme/now", 7, [7], anyone, None])
def test_what_can_not_say_what_is_urgent_is_refused(urgent: Any) -> None:
    with pytest.raises(TypeError, match="urgent must be"):
        HandlerOptions(urgent=urgent)
