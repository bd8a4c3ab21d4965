"""`Middleware` sees each message once, on both sides and in both directions, and may replace, drop or refuse it."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import Any

import attrs
import pytest
import trio
from pydantic import BaseModel

from tests.peer import settle
from tests.waiting import eventually
from trio_mcp import (
    Answers,
    Client,
    ClientGroup,
    Context,
    HttpServerParameters,
    InputError,
    McpError,
    NegotiationError,
    ProxyServer,
    RemoteProtocolError,
    Server,
    SessionOptions,
)
from trio_mcp._nursery import background_nursery
from trio_mcp.jsonrpc.messages import Batch, Notification, Request, Response, SessionMessage
from trio_mcp.low_level import memory_link_pair
from trio_mcp.middleware import Middleware
from trio_mcp.server.base_server import core_of

LEGACY, MODERN = "2025-11-25", "2026-07-28"
WAYS = {
    "memory, modern": (MODERN, False),
    "memory, legacy": (LEGACY, False),
    "HTTP, modern": (MODERN, True),
    "HTTP, legacy": (LEGACY, True),
}
each_way = pytest.mark.parametrize("way", WAYS)
PROGRESS, LOG, OWN = "notifications/progress", "notifications/message", "example.com/own"
HELLO, UPDATED = "example.com/hello", "notifications/resources/updated"
ACKNOWLEDGED = "notifications/subscriptions/acknowledged"
CANCELLED, INITIALIZED = "notifications/cancelled", "notifications/initialized"
URI = "example://a"


class Name(BaseModel):
    name: str


class Recorder(Middleware):
    """Notes what passes: ``>`` and ``<`` around the peer's requests, ``sends`` for ours, ``in`` and ``out``."""

    def __init__(self, events: list[str], name: str = "") -> None:
        self._note: Callable[[str], None] = lambda text: events.append(f"{name} {text}".strip())

    async def handle_request(self, context: Any, call_next: Any) -> dict[str, Any]:
        self._note(f"> {context.method}")
        try:
            result: dict[str, Any] = await call_next()
        except McpError as exc:
            self._note(f"! {exc.code}")
            raise
        self._note(f"< {context.method}")
        return result

    def handle_notification(self, notification: Notification) -> Notification | None:
        self._note(f"in {notification.method}")
        return notification

    async def send_request(self, call: Any, call_next: Any) -> dict[str, Any]:
        self._note(f"sends {call.method}")
        result: dict[str, Any] = await call_next()
        return result

    def send_notification(self, notification: Notification) -> Notification | None:
        self._note(f"out {notification.method}")
        return notification


@attrs.define
class Seen:
    """What reaches handlers and callbacks."""

    progress: list[Any] = attrs.Factory(list)
    logs: list[Any] = attrs.Factory(list)
    own: list[Any] = attrs.Factory(list)
    hello: list[Any] = attrs.Factory(list)
    asked: list[Any] = attrs.Factory(list)
    updates: list[Any] = attrs.Factory(list)


class Pair:
    """A server and a client, each with its own middleware."""

    def __init__(self, server: list[Any], client: list[Any], **options: Any) -> None:
        self.seen = seen = Seen()
        self.client_middleware = client
        self.options = options
        self.server = Server("pair", instructions="original", middleware=server)

        @self.server.tool
        async def work(ctx: Context) -> str:
            await ctx.report_progress(1, message="original")
            await ctx.info("original")
            await ctx.notify(OWN, {"text": "original"})
            return "done"

        @self.server.tool
        async def ask(ctx: Context) -> str:
            answer = await ctx.elicit("original", Name)
            return answer.data.name  # type: ignore[union-attr]

        @self.server.resource(URI)
        async def read() -> str:
            return ""

        async def hello(params: Any, context: Any) -> None:
            seen.hello.append(params)

        self.server.add_notification(HELLO, hello)

    @contextlib.asynccontextmanager
    async def connected(self, way: str) -> AsyncIterator[Client]:
        revision, over_http = WAYS[way]
        with trio.fail_after(30):  # against a hang only
            async with contextlib.AsyncExitStack() as stack:
                target: Any = self.server
                if over_http:
                    nursery = await stack.enter_async_context(background_nursery())

                    target = await nursery.start(self.server.serve_http, "127.0.0.1", 0)

                def answer(params: Any) -> dict[str, Any]:
                    self.seen.asked.append(params.message)
                    return {"name": "original"}

                def heard(notification: Notification) -> None:
                    if notification.method == OWN:
                        self.seen.own.append(notification.params)

                client = Client(
                    target,
                    mode=revision,
                    middleware=self.client_middleware,
                    log_level="info",
                    answers=Answers(elicitation=answer),
                    on_log=lambda message: self.seen.logs.append(message.data),
                    on_message=heard,
                    **self.options,
                )
                yield await stack.enter_async_context(client)

    async def work(self, client: Client) -> None:
        """Make the server send one of each kind of notification that belongs to a call."""
        await client.call_tool("work", on_progress=lambda given: self.seen.progress.append(given.message))


def expected_of(way: str) -> tuple[list[str], list[str]]:
    """Return what passes on the server and on the client in `test_each_message_is_seen_exactly_once_in_order`."""
    revision, over_http = WAYS[way]
    work_out = [f"out {each}" for each in (PROGRESS, LOG, OWN)]
    work_in = [f"in {each}" for each in (PROGRESS, LOG, OWN)]

    def around(*methods: str) -> list[str]:
        return [f"{sign} {method}" for method in methods for sign in "><"]

    def sends(*methods: str) -> list[str]:
        return [f"sends {method}" for method in methods]

    unknown = ["> example.com/none", "! -32601"]
    question = around("elicitation/create")
    if revision == MODERN:
        hello_in, hello_out = ([], []) if over_http else ([f"in {HELLO}"], [f"out {HELLO}"])
        end = [] if over_http else [f"in {CANCELLED}"]  # over HTTP, the client closes the stream instead
        return (
            [
                *(*around("server/discover"), *hello_in, *around("server/discover", "tools/list")),
                *("> tools/call", *work_out, "< tools/call", *around("tools/call", "tools/call"), *unknown),
                *("> subscriptions/listen", f"out {ACKNOWLEDGED}", f"out {UPDATED}", *end),
            ],
            [
                *(*sends("server/discover"), *hello_out, *sends("server/discover", "tools/list", "tools/call")),
                *(*work_in, *sends("tools/call"), *question, *sends("tools/call", "example.com/none")),
                *(*sends("subscriptions/listen"), f"in {ACKNOWLEDGED}", f"in {UPDATED}", f"out {CANCELLED}"),
            ],
        )
    return (
        [
            *(*around("initialize"), f"in {INITIALIZED}", *around("logging/setLevel"), f"in {HELLO}"),
            *(*around("ping", "tools/list"), "> tools/call", *work_out, "< tools/call"),
            *("> tools/call", "sends elicitation/create", "< tools/call", *unknown),
            *(*around("resources/subscribe"), f"out {UPDATED}", *around("resources/unsubscribe")),
        ],
        [
            *(*sends("initialize"), f"out {INITIALIZED}", *sends("logging/setLevel"), f"out {HELLO}"),
            *(*sends("ping", "tools/list", "tools/call"), *work_in, *sends("tools/call"), *question),
            *(*sends("example.com/none", "resources/subscribe"), f"in {UPDATED}", *sends("resources/unsubscribe")),
        ],
    )


@each_way
async def test_each_message_is_seen_exactly_once_in_order(way: str) -> None:
    on_server: list[str] = []
    on_client: list[str] = []
    pair = Pair([Recorder(on_server)], [Recorder(on_client)])
    async with pair.connected(way) as client:
        if way != "HTTP, modern":  # there, a client can't send notifications
            await client.notify(HELLO)
            await eventually(lambda: pair.seen.hello)
        await client.ping()
        await client.list_tools()
        await pair.work(client)
        assert (await client.call_tool("ask")).data == "original"
        with pytest.raises(McpError):
            await client.request("example.com/none")
        async with client.listen(resources=[URI]) as changes:
            pair.server.notify_resource_updated(URI)
            await anext(changes)
        await settle()
    server, sent = expected_of(way)
    assert on_server == server
    assert on_client == sent


async def test_the_first_middleware_is_outermost_in_both_directions() -> None:
    """What arrives passes the first one first; what is sent passes it last."""
    events: list[str] = []
    layers: list[Any] = [Recorder(events, "outer"), Recorder(events, "inner")]
    pair = Pair(layers, [])
    async with pair.connected("memory, legacy") as client:
        events.clear()
        await client.notify(HELLO)
        await pair.work(client)
    assert events[:4] == [f"outer in {HELLO}", f"inner in {HELLO}", "outer > tools/call", "inner > tools/call"]
    assert events[4:6] == [f"inner out {PROGRESS}", f"outer out {PROGRESS}"]


async def test_functions_and_instances_mix_in_one_list() -> None:
    """A function sees the requests that it always has; each instance keeps its place beside it."""
    events: list[str] = []

    def function(name: str) -> Any:
        async def note(subject: Any, call_next: Any) -> Any:
            events.append(f"{name} {subject.method}")
            return await call_next()

        return note

    pair = Pair([function("first"), Recorder(events, "second"), function("third")], [function("sent")])
    async with pair.connected("memory, modern") as client:
        assert events == ["second > server/discover", "second < server/discover"]
        events.clear()
        await client.list_tools()
    assert events[:4] == ["sent tools/list", "first tools/list", "second > tools/list", "third tools/list"]


# --- changes ------------------------------------------------------------------------------------------------------


def changed(value: Any) -> Any:
    """Return a copy of plain data in which each text "original" is "changed"."""
    match value:
        case dict():
            return {key: changed(each) for key, each in value.items()}
        case list():
            return [changed(each) for each in value]
    return "changed" if value == "original" else value


@attrs.define(eq=False)
class Edit(Middleware):
    """Changes or drops the messages of one method, in one direction, or raises an exception instead."""

    hook: str
    method: str
    action: str

    def _edited(self, hook: str, notification: Notification) -> Any:
        if (hook, notification.method) != (self.hook, self.method):
            return notification
        match self.action:
            case "drop":
                return None
            case "fail":
                raise ZeroDivisionError("a bug in a middleware")
            case "blame":
                raise RemoteProtocolError("the peer is at fault")
            case "nonsense":
                return {"method": "x"}
        return Notification(notification.method, changed(notification.params))

    def handle_notification(self, notification: Notification) -> Notification | None:
        return self._edited("handle_notification", notification)  # type: ignore[no-any-return]

    def send_notification(self, notification: Notification) -> Notification | None:
        return self._edited("send_notification", notification)  # type: ignore[no-any-return]

    async def handle_request(self, context: Any, call_next: Any) -> dict[str, Any]:
        return await self._around("handle_request", context, call_next)

    async def send_request(self, call: Any, call_next: Any) -> dict[str, Any]:
        return await self._around("send_request", call, call_next)

    async def _around(self, hook: str, subject: Any, call_next: Any) -> dict[str, Any]:
        if (hook, subject.method) == (self.hook, self.method):
            match self.action:
                case "change":
                    return changed(await call_next())  # type: ignore[no-any-return]
                case "change params":
                    subject.params = changed(subject.params)
                case "refuse":
                    raise McpError(-32001, "refused")
        result: dict[str, Any] = await call_next()
        return result


ORIGINALS = {"progress": ["original"], "logs": ["original"], "own": [{"text": "original"}]}
KINDS = {"progress": PROGRESS, "logs": LOG, "own": OWN}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("side", ["server", "client"])
@pytest.mark.parametrize("action", ["change", "drop"])
@each_way
async def test_messages_of_a_call_can_be_changed_and_dropped_on_either_side(
    way: str, action: str, side: str, kind: str
) -> None:
    edit = Edit("send_notification" if side == "server" else "handle_notification", KINDS[kind], action)
    pair = Pair([edit] if side == "server" else [], [edit] if side == "client" else [])
    async with pair.connected(way) as client:
        await pair.work(client)
    seen = {name: getattr(pair.seen, name) for name in KINDS}
    assert seen == ORIGINALS | {kind: [] if action == "drop" else changed(ORIGINALS[kind])}


@pytest.mark.parametrize("side", ["server", "client"])
@pytest.mark.parametrize("action", ["change", "drop"])
@pytest.mark.parametrize("way", [way for way in WAYS if way != "HTTP, modern"])
async def test_a_notification_of_the_client_can_be_changed_and_dropped_on_either_side(
    way: str, action: str, side: str
) -> None:
    edit = Edit("handle_notification" if side == "server" else "send_notification", HELLO, action)
    pair = Pair([edit] if side == "server" else [], [edit] if side == "client" else [])
    async with pair.connected(way) as client:
        await client.notify(HELLO, {"text": "original"})
        await client.notify(HELLO, {"text": "last"}) if action == "change" else await client.ping()
        expected = [] if action == "drop" else [{"text": "changed"}, {"text": "last"}]
        await eventually(lambda: len(pair.seen.hello) == len(expected))
        await settle()
    assert pair.seen.hello == expected


@pytest.mark.parametrize("side", ["server", "client"])
@each_way
async def test_a_change_of_a_resource_can_be_dropped_on_either_side(way: str, side: str) -> None:
    """The first notification is dropped, the second comes through."""

    class DropFirst(Middleware):
        count = 0

        def _look(self, notification: Notification) -> Notification | None:
            if notification.method == UPDATED:
                self.count += 1
                return None if self.count == 1 else notification
            return notification

    class Incoming(DropFirst):
        def handle_notification(self, notification: Notification) -> Notification | None:
            return self._look(notification)

    class Outgoing(DropFirst):
        def send_notification(self, notification: Notification) -> Notification | None:
            return self._look(notification)

    drop = Outgoing() if side == "server" else Incoming()
    pair = Pair([drop] if side == "server" else [], [drop] if side == "client" else [])
    async with pair.connected(way) as client, client.listen(resources=[URI]) as changes:
        pair.server.notify_resource_updated(URI)
        await eventually(lambda: drop.count == 1)
        pair.server.notify_resource_updated(URI)
        await anext(changes)
    assert drop.count == 2


@pytest.mark.parametrize("side", ["server", "client"])
@each_way
async def test_the_result_of_the_handshake_can_be_changed(way: str, side: str) -> None:
    method = "initialize" if WAYS[way][0] == LEGACY else "server/discover"
    edit = Edit("handle_request" if side == "server" else "send_request", method, "change")
    pair = Pair([edit] if side == "server" else [], [edit] if side == "client" else [])
    async with pair.connected(way) as client:
        assert client.instructions == "changed"
        await pair.work(client)


@pytest.mark.parametrize("way", [way for way in WAYS if WAYS[way][0] == LEGACY])
async def test_the_handshake_can_be_refused(way: str) -> None:
    pair = Pair([Edit("handle_request", "initialize", "refuse")], [])
    with pytest.raises(McpError, match="refused"):
        async with pair.connected(way):
            raise AssertionError("the client must not connect")


QUESTIONS = [
    *((way, "client", "handle_request", way) for way in WAYS),
    *((way, "server", "send_request", way) for way in WAYS if WAYS[way][0] == LEGACY),
]


@pytest.mark.parametrize(("way", "side", "hook"), [each[:3] for each in QUESTIONS])
async def test_a_question_of_the_server_can_be_changed_answered_and_refused(way: str, side: str, hook: str) -> None:
    """In the modern era, the client finds questions in a result; its middleware sees them like requests."""

    def pair_with(action: str) -> Pair:
        edit = Edit(hook, "elicitation/create", action)
        return Pair([edit] if side == "server" else [], [edit] if side == "client" else [])

    pair = pair_with("change params")
    async with pair.connected(way) as client:
        assert (await client.call_tool("ask")).data == "original"
        assert pair.seen.asked == ["changed"]
    pair = pair_with("change")
    async with pair.connected(way) as client:
        assert (await client.call_tool("ask")).data == "changed"
        assert pair.seen.asked == ["original"]
    pair = pair_with("refuse")
    async with pair.connected(way) as client:
        with pytest.raises(Exception, match="refused"):
            await client.call_tool("ask")
        assert pair.seen.asked == []


@pytest.mark.parametrize("way", [way for way in WAYS if WAYS[way][0] == LEGACY])
async def test_a_client_sees_the_pings_of_its_server(way: str) -> None:
    events: list[str] = []
    pair = Pair([], [Recorder(events)])
    async with pair.connected(way):
        (run,) = core_of(pair.server).settings.runs
        (connection,) = run.connections
        await eventually(lambda: connection.initialized)
        events.clear()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(connection.send_request, "ping")
    assert events == ["> ping", "< ping"]


@pytest.mark.parametrize("action", ["drop", "change", "nonsense", "fail"])
@pytest.mark.parametrize("side", ["server", "client"])
@pytest.mark.parametrize("method", [CANCELLED, INITIALIZED])
async def test_what_requests_and_the_handshake_depend_on_always_passes(side: str, method: str, action: str) -> None:
    if (side, method, action) == ("client", INITIALIZED, "fail"):
        return  # the exception fails the handshake, as that of any other notification fails its sender
    edit = Edit("handle_notification" if side == "server" else "send_notification", method, action)
    pair = Pair([edit] if side == "server" else [], [edit] if side == "client" else [])
    started, cancelled = trio.Event(), trio.Event()

    @pair.server.tool
    async def hang() -> None:
        started.set()
        try:
            await trio.sleep_forever()
        finally:
            cancelled.set()

    async with pair.connected("memory, legacy") as client:
        (run,) = core_of(pair.server).settings.runs
        (connection,) = run.connections
        assert connection.initialized
        async with trio.open_nursery() as nursery:
            nursery.start_soon(client.call_tool, "hang")
            await started.wait()
            nursery.cancel_scope.cancel()
        await cancelled.wait()
        await pair.work(client)


# --- errors -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
@each_way
async def test_a_failure_for_an_outgoing_notification_fails_its_sender(
    way: str, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    pair = Pair([Edit("send_notification", KINDS[kind], "fail")], [])
    async with pair.connected(way) as client:
        assert (await client.call_tool("work", on_progress=lambda given: None)).is_error
        assert (await client.call_tool("ask")).data == "original"
    assert "a bug in a middleware" in caplog.text


@pytest.mark.parametrize("action", ["fail", "nonsense"])
@each_way
async def test_a_failure_for_a_change_is_logged_and_harms_nothing(
    way: str, action: str, caplog: pytest.LogCaptureFixture
) -> None:
    """No function waits for such a notification, and the task that sends it serves all clients."""
    pair = Pair([Edit("send_notification", UPDATED, action)], [])
    async with pair.connected(way) as client:
        async with client.listen(resources=[URI]):
            pair.server.notify_resource_updated(URI)
            await eventually(lambda: f"a middleware failed for '{UPDATED}'" in caplog.text)
        await pair.work(client)
    assert pair.seen.own
    assert ("must return a Notification, or None to drop it; got dict" in caplog.text) is (action == "nonsense")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("action", ["fail", "nonsense"])
@each_way
async def test_a_failure_for_an_incoming_notification_is_logged_and_drops_it(
    way: str, action: str, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    pair = Pair([], [Edit("handle_notification", KINDS[kind], action)])
    async with pair.connected(way) as client:
        await pair.work(client)
    assert {name: getattr(pair.seen, name) for name in KINDS} == ORIGINALS | {kind: []}
    assert "a middleware failed for a notification" in caplog.text


async def test_a_middleware_may_report_a_fault_of_the_peer() -> None:
    faults: list[RemoteProtocolError] = []
    pair = Pair([], [Edit("handle_notification", OWN, "blame")], options=SessionOptions(on_error=faults.append))
    async with pair.connected("memory, modern") as client:
        await pair.work(client)
    assert [str(fault) for fault in faults] == ["the peer is at fault"]
    assert pair.seen.own == []


@pytest.mark.parametrize("side", ["server", "client"])
async def test_a_middleware_that_forgets_to_return_the_result_fails_the_request(side: str) -> None:
    class Forgets(Middleware):
        async def handle_request(self, context: Any, call_next: Any) -> dict[str, Any]:
            await call_next()
            return None  # type: ignore[return-value]

        send_request = handle_request  # type: ignore[assignment]

    pair = Pair([Forgets()], []) if side == "server" else Pair([], [Forgets()])
    with pytest.raises(McpError if side == "server" else TypeError) as caught:
        async with pair.connected("memory, modern"):
            pass
    assert side == "server" or "a middleware must return the result, a dict; got NoneType" in str(caught.value)


class WrongCount(Middleware):
    async def handle_request(self, context: Any) -> dict[str, Any]:  # type: ignore[override]
        return {}


class WrongAsync(Middleware):
    async def handle_notification(self, notification: Notification) -> Any:  # type: ignore[override]
        return notification


class WrongSync(Middleware):
    def send_request(self, call: Any, call_next: Any) -> Any:
        return call_next()


@pytest.mark.parametrize("make", [Server, Client])
@pytest.mark.parametrize(
    ("middleware", "text"),
    [
        (Recorder, "write Recorder(), not Recorder"),
        (None, "got None"),
        (lambda context: None, "a middleware must be an async function of (c"),
        (WrongCount(), "WrongCount.handle_request must take (context or call, call_next)"),
        (WrongAsync(), "WrongAsync.handle_notification must not be async"),
        (WrongSync(), "WrongSync.send_request must be async"),
    ],
)
def test_a_wrong_middleware_is_refused_at_once(make: Any, middleware: Any, text: str) -> None:
    with pytest.raises(TypeError) as caught:
        make("x", middleware=[middleware])
    assert text in str(caught.value)


@pytest.mark.parametrize("make", [Server, Client])
def test_a_middleware_that_is_not_in_a_list_is_refused(make: Any) -> None:
    with pytest.raises(TypeError, match="middleware must be a list"):
        make("x", middleware=Recorder([]))


# --- mounts, stateless HTTP, the end of a server ----------------------------------------------------------------------


@each_way
async def test_a_mounted_servers_middleware_sees_its_own_requests_only(way: str) -> None:
    """Notifications, and requests without a handler, belong to the server that runs."""
    inner_events: list[str] = []
    pair = Pair([], [])
    inner = Server("inner", middleware=[Recorder(inner_events)])

    @inner.tool
    async def tell(ctx: Context) -> str:
        await ctx.info("told")
        return "told"

    pair.server.mount(inner, prefix="in")
    async with pair.connected(way) as client:
        await client.ping()
        await client.call_tool("in__tell")
        with contextlib.suppress(McpError):
            await client.request("example.com/none")
    assert inner_events == ["> tools/call", "< tools/call"]
    assert pair.seen.logs == ["told"]


async def test_a_ping_before_the_handshake_is_not_seen() -> None:
    """Nothing is known of the client then, so there is no context for a middleware to look at."""
    events: list[str] = []
    server = Server("x", middleware=[Recorder(events)])
    async with memory_link_pair() as (ours, theirs), background_nursery() as nursery:
        nursery.start_soon(server.serve, theirs)
        await ours.write.send(SessionMessage(Request(1, "ping")))
        assert (await ours.read.receive()).message == Response(1, {})
    assert events == []


async def test_the_notifications_of_a_batch_pass_one_by_one() -> None:
    """Only 2025-03-26 has batches; a batch of which nothing is left has no effect."""
    pair = Pair([Edit("handle_notification", HELLO, "drop")], [])
    other = Notification("example.com/other")
    heard: list[Any] = []

    async def hear(params: Any, context: Any) -> None:
        heard.append(context.method)

    pair.server.add_notification(other.method, hear)
    params = {"protocolVersion": "2025-03-26", "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}}
    with trio.fail_after(30):
        async with memory_link_pair() as (ours, theirs), background_nursery() as nursery:
            nursery.start_soon(pair.server.serve, theirs)
            await ours.write.send(SessionMessage(Request(1, "initialize", params)))
            await ours.read.receive()
            await ours.write.send(SessionMessage(Notification(INITIALIZED)))
            await ours.write.send(SessionMessage(Batch((Notification(HELLO),))))
            await ours.write.send(SessionMessage(Batch((Notification(HELLO), other, Request(2, "ping")))))
            assert (await ours.read.receive()).message == Batch((Response(2, {}),))
            await eventually(lambda: heard)
    assert heard == [other.method]
    assert pair.seen.hello == []


@pytest.mark.parametrize("side", ["server", "client"])
async def test_incoming_notifications_pass_in_a_task_of_the_side_that_receives_them(side: str) -> None:
    """In memory, a sender may act for the receiver; but it must not run what a program has set on the other side."""
    tasks: set[str] = set()

    class Where(Middleware):
        def handle_notification(self, notification: Notification) -> Notification | None:
            tasks.add(trio.lowlevel.current_task().name)
            return notification

    pair = Pair([Where()], []) if side == "server" else Pair([], [Where()])
    async with pair.connected("memory, legacy") as client:
        await client.notify(HELLO)
        await pair.work(client)
        await settle()
    assert {name.rpartition(".")[2] for name in tasks} == {"_read_all"}


async def test_a_middleware_that_cancels_the_scope_of_a_question_fails_the_call() -> None:
    class Cancels(Middleware):
        async def handle_request(self, context: Any, call_next: Any) -> dict[str, Any]:
            context.cancel_scope.cancel()
            await trio.lowlevel.checkpoint()
            raise AssertionError("a checkpoint in a cancelled scope")

    pair = Pair([], [Cancels()])
    async with pair.connected("memory, modern") as client:
        with pytest.raises(InputError, match="a middleware cancelled the server's 'elicitation/create'"):
            await client.call_tool("ask")


@each_way
async def test_a_middleware_may_modify_the_result_of_the_handshake_in_place(way: str) -> None:
    """What it modifies is a copy: the server's own declaration stays as it is."""

    class Modifies(Middleware):
        async def handle_request(self, context: Any, call_next: Any) -> dict[str, Any]:
            result: dict[str, Any] = await call_next()
            if context.method in ("initialize", "server/discover"):
                result["capabilities"].clear()
                result.get("serverInfo", {}).clear()
            return result

    pair = Pair([Modifies()], [])
    with contextlib.suppress(NegotiationError):
        async with pair.connected(way) as client:
            assert client.capabilities.tools is None
    identity = core_of(pair.server).identity
    assert identity.info["name"] == "pair"
    assert "tools" in identity.capabilities(MODERN)


async def test_a_handshake_over_http_that_a_middleware_holds_up_ends_with_the_server() -> None:
    class Hangs(Middleware):
        started = trio.Event()

        async def handle_request(self, context: Any, call_next: Any) -> dict[str, Any]:
            self.started.set()
            await trio.sleep_forever()
            raise AssertionError

    server, shutdown = Server("x", middleware=[Hangs()]), trio.Event()
    with trio.fail_after(30):
        async with trio.open_nursery() as nursery:
            url = await nursery.start(partial(server.serve_http, port=0, shutdown=shutdown, grace=0.05))

            async def connect() -> None:
                with pytest.raises(McpError, match="the session was closed"):
                    async with Client(url, mode=LEGACY):
                        raise AssertionError("the client must not connect")

            nursery.start_soon(connect)
            await Hangs.started.wait()
            shutdown.set()


async def test_a_ping_is_answered_through_middleware_while_the_server_ends() -> None:
    events: list[str] = []
    pair = Pair([Recorder(events)], [])
    async with pair.connected("memory, legacy") as client:
        (run,) = core_of(pair.server).settings.runs
        (connection,) = run.connections
        connection.ending = True
        await client.ping()
        with pytest.raises(McpError, match="ending"):
            await client.list_tools()
    assert events[-2:] == ["> ping", "< ping"]


@pytest.mark.parametrize("serve", ["serve_http", "serve_sse", "serve_websocket", "serve_tcp"])
async def test_other_ways_to_serve_take_the_same_path(serve: str) -> None:
    """Over HTTP, without sessions: each legacy-era POST is served alone."""
    events: list[str] = []
    pair = Pair([Recorder(events)], [])
    options = {"stateless": True} if serve == "serve_http" else {}
    with trio.fail_after(30):
        async with background_nursery() as nursery:
            url = await nursery.start(partial(getattr(pair.server, serve), port=0, **options))
            target = HttpServerParameters(url, kind="sse") if serve == "serve_sse" else url
            async with Client(target, mode=LEGACY) as client:
                await client.ping()
                await client.call_tool("work")
    assert [each for each in events if each[0] in "><"][:4] == ["> initialize", "< initialize", "> ping", "< ping"]
    assert f"out {OWN}" in events


async def test_a_proxy_has_the_middleware_of_a_server() -> None:
    events: list[str] = []
    pair = Pair([], [])
    proxy = ProxyServer(pair.server, name="proxy", middleware=[Recorder(events)])
    async with Client(proxy, mode=MODERN) as client:
        await pair.work(client)
    assert events[:3] == ["> server/discover", "< server/discover", "> tools/call"]
    assert {f"out {PROGRESS}", f"out {OWN}"} <= {*events}  # the proxy does not promise their order
    assert pair.seen.progress == ["original"]


async def test_each_client_of_a_group_has_its_middleware() -> None:
    events: list[str] = []
    async with ClientGroup({"a": Server("a"), "b": Server("b")}, middleware=[Recorder(events)]):
        pass
    assert events == ["sends server/discover"] * 2


# --- the cost -------------------------------------------------------------------------------------------------------

SEAMS = ("session/middleware.py", "client/layered_session.py")
THROUGH = {"_feed_through", "_intercept_through", "_held_back", "_send_through", "_ready"}


class OnlyRequests(Middleware):
    async def handle_request(self, context: Any, call_next: Any) -> dict[str, Any]:
        result: dict[str, Any] = await call_next()
        return result


@each_way
@pytest.mark.parametrize("with_one", [False, True], ids=["none", "one that overrides only handle_request"])
async def test_a_message_takes_no_step_for_middleware_that_does_not_override_its_method(
    way: str, with_one: bool
) -> None:
    """Without middleware, none of its functions runs; with one for requests, none runs for a notification."""
    functions: list[str] = []

    def profile(frame: Any, event: str, argument: object) -> None:
        code = frame.f_code
        if event == "call" and (code.co_filename.endswith(SEAMS) or code.co_name in THROUGH):
            functions.append(code.co_name)

    pair = Pair([OnlyRequests()] if with_one else [], [])
    async with pair.connected(way) as client:
        await client.list_tools()
        before = sys.getprofile()
        sys.setprofile(profile)
        try:
            await pair.work(client)
            if way != "HTTP, modern":
                await client.notify(HELLO)
                await eventually(lambda: pair.seen.hello)
        finally:
            sys.setprofile(before)
    # These belong to the request itself; the others would belong to its notifications.
    own = {"surround", "_through", "<lambda>", "_intercept_through", "_held_back", "intercept", "make_context"}
    assert set(functions) - (own if with_one else set()) == set()
    assert bool(functions) is with_one
