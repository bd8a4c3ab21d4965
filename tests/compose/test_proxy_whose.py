"""A proxy, several clients, one upstream that is played: whom it asks, whom it tells, and whom it does not."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import attrs
import pytest
import trio

from tests.http_peer import INITIALIZED, Asked, HttpPeer, event, peer
from tests.peer import LEGACY, MODERN, Peer, settle
from tests.server.input_harness import EVERYTHING
from trio_mcp import ProxyServer
from trio_mcp._nursery import background_nursery
from trio_mcp.jsonrpc.events import OutgoingRequest
from trio_mcp.jsonrpc.messages import Batch, ErrorData, Notification, Request, Response
from trio_mcp.low_level import Link, memory_link_pair
from trio_mcp.proxy.unanswered import UnansweredCalls
from trio_mcp.server.base_server import core_of
from trio_mcp.session.limits import HandlerOptions, SessionOptions
from trio_mcp.session.middleware import OutgoingCall

CAPABILITIES: dict[str, Any] = {"tools": {}, "logging": {}}
QUESTION = {"message": "for A: your password?", "requestedSchema": {"type": "object", "properties": {}}}
LOG = {"level": "error", "data": "A's secret"}
every_client = pytest.mark.parametrize("below", [LEGACY, MODERN])


@attrs.define(eq=False)
class Played:
    """A scripted upstream, with a new connection each time.

    Attributes:
        peer: The server of the last connection.
        calls: What has been called on it, by name.
    """

    nursery: trio.Nursery
    revision: str = LEGACY
    peer: Peer = attrs.field(init=False)

    @contextlib.asynccontextmanager
    async def connect(self) -> AsyncIterator[Link]:
        async with memory_link_pair() as (ours, theirs), background_nursery() as nursery:
            self.peer = Peer(theirs, self.revision, CAPABILITIES, lambda request: None if _kept(request) else {})

            async def play() -> None:
                await self.peer.greet()
                await self.peer.serve()

            nursery.start_soon(play)
            yield ours

    def request(self, name: str) -> Request:
        """Return the call of a tool as it came here."""
        (found,) = (each for each in self.peer.questions if _kept(each) and (each.params or {})["name"] == name)
        return found

    async def lose(self) -> None:
        """Leave."""
        await self.peer.close()
        await settle()


def _kept(request: Request) -> bool:
    return request.method == "tools/call"


@attrs.define(eq=False)
class Stage:
    """The upstream, the run of the proxy before it, and its clients."""

    upstream: Played
    run: Any
    nursery: trio.Nursery
    stack: contextlib.AsyncExitStack
    below: str
    scopes: dict[Peer, trio.CancelScope] = attrs.Factory(dict)

    async def client(self) -> Peer:
        """One more client, which declines what it is asked."""
        link, theirs = await self.stack.enter_async_context(memory_link_pair())
        peer = Peer(link, self.below, EVERYTHING, lambda question: {"action": "decline"})
        self.scopes[peer] = scope = trio.CancelScope()

        async def serve() -> None:
            with scope:
                await self.run.serve_link(theirs)

        self.nursery.start_soon(serve)
        await peer.initialize()
        self.nursery.start_soon(peer.serve)
        return peer

    async def lose(self, client: Peer) -> None:
        """Let the connection to a client be lost."""
        self.scopes[client].cancel()
        await settle()

    async def call(self, client: Peer, name: str) -> Any:
        """Call a tool, wait until the upstream has the call, and return its id."""
        called = await client.request(
            "tools/call",
            {"name": name},
            **({"io.modelcontextprotocol/logLevel": "debug"} if self.below == MODERN else {}),
        )
        await settle()
        assert self.upstream.request(name)
        return called

    async def ask(self) -> Any:
        """Let the upstream ask, and return the result it gets, or `ErrorData`; None if there is no response yet."""
        asked = await self.upstream.peer.request("elicitation/create", QUESTION)
        await settle()
        answer = self.upstream.peer.answers.pop(asked, None)
        return None if answer is None else getattr(answer, "result", None) or answer.error  # type: ignore[union-attr]

    async def speak(self) -> None:
        """Let the upstream say what it can say about a call."""
        await self.upstream.peer.notify("notifications/message", LOG)
        await self.upstream.peer.notify("notifications/acme/news", {"text": "A's secret"})
        await settle()


@contextlib.asynccontextmanager
async def staged(
    below: str, revision: str = LEGACY, target: Any = None, **settings: Any
) -> AsyncIterator[tuple[Stage, Peer, Peer]]:
    """Yield the stage and two clients."""
    with trio.fail_after(10):
        async with trio.open_nursery() as nursery, contextlib.AsyncExitStack() as stack:
            upstream = Played(nursery, revision)
            proxy = ProxyServer(target or upstream.connect, client={"mode": revision, **settings})
            run = await stack.enter_async_context(core_of(proxy).open_run())
            stage = Stage(upstream, run, nursery, stack, below)
            yield stage, await stage.client(), await stage.client()
            nursery.cancel_scope.cancel()


def asked(client: Peer) -> list[Any]:
    """Return what a client was asked, in either era."""
    found = [each.method for each in client.questions]
    for answer in client.answers.values():
        found += [each["method"] for each in getattr(answer, "result", {}).get("inputRequests", {}).values()]
    return found


def told(client: Peer) -> list[str]:
    return [each.method for each in client.heard]


@every_client
@pytest.mark.parametrize("how", ["open", "cancelled", "gone"])
async def test_a_call_stays_its_clients_also_when_it_was_given_up(below: str, how: str) -> None:
    """Rule: the upstream may still ask and send messages about it; no other client gets these."""
    async with staged(below) as (stage, one, two):
        called = await stage.call(one, "first")
        if how != "open":
            await (one.cancel(called) if how == "cancelled" else stage.lose(one))
        await stage.call(two, "second")
        refused = await stage.ask()
        await stage.speak()
        assert (asked(one), asked(two), told(two)) == ([], [], [])
        assert isinstance(refused, ErrorData)
        assert how == "open" or "given up" in refused.message

        # Once the upstream has answered, nothing of it is left.
        await stage.upstream.peer.respond(stage.upstream.request("first"), {"content": []})
        await stage.ask()
        assert asked(two) == ["elicitation/create"]


@every_client
async def test_what_was_given_up_ends_with_the_connection(below: str) -> None:
    async with staged(below) as (stage, one, two):
        await one.cancel(await stage.call(one, "first"))
        await stage.upstream.lose()
        await stage.call(two, "second")
        await stage.ask()
        assert asked(two) == ["elicitation/create"]


async def test_a_client_that_gave_up_a_call_is_asked_about_its_others() -> None:
    async with staged(LEGACY) as (stage, one, two):
        await one.cancel(await stage.call(one, "first"))
        await stage.call(one, "second")
        assert await stage.ask() == {"action": "decline"}
        await stage.speak()
        assert told(one) == ["notifications/message", "notifications/acme/news"]
        assert (asked(two), told(two)) == ([], [])


async def test_messages_about_a_cancelled_call_do_not_reach_an_idle_client() -> None:
    """Rule: a log message without a call goes to the only client, unless it may be about a call of another one."""
    async with staged(LEGACY) as (stage, one, two):
        await one.cancel(await stage.call(one, "first"))
        await stage.lose(one)
        await stage.speak()
        assert told(two) == []
        await stage.upstream.peer.respond(stage.upstream.request("first"), {"content": []})
        await stage.speak()
        assert told(two) == ["notifications/message"]


async def test_the_owner_of_a_question_is_decided_when_it_arrives() -> None:
    """Rule: what comes after it, and what it waits for, changes nothing; here it waits for a place to run."""
    options = SessionOptions(handlers=HandlerOptions(max_running_requests=1))
    async with staged(LEGACY, options=options) as (stage, one, two):
        one.replies = lambda question: None  # it takes its time
        await stage.call(one, "first")
        assert await stage.ask() is None
        assert await stage.ask() is None
        await stage.call(two, "second")
        await stage.upstream.peer.respond(stage.upstream.request("first"), {"content": []})
        await settle()
        assert asked(two) == []
        assert len(stage.upstream.peer.answers) == 2  # both are refused


@every_client
async def test_log_messages_of_a_modern_upstream_stay_its_clients_too(below: str) -> None:
    """Rule: on one link nothing says to which call a log message belongs, in either era."""
    async with staged(below, MODERN) as (stage, one, two):
        await one.cancel(await stage.call(one, "first"))
        await stage.call(two, "second")
        await stage.speak()
        assert told(two) == []
        await stage.upstream.peer.respond(stage.upstream.request("first"), {"resultType": "complete", "content": []})
        await stage.speak()
        assert told(two) == ["notifications/message", "notifications/acme/news"]


async def test_more_calls_given_up_than_are_looked_for_are_still_their_clients(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Rule: the record of them is bounded; of older ones it keeps whose they were, not which."""
    monkeypatch.setattr("trio_mcp.proxy.unanswered.MAX_GIVEN_UP", 2)
    async with staged(LEGACY) as (stage, one, two):
        for number in range(4):
            await one.cancel(await stage.call(one, f"{number}"))
        await stage.call(one, "last")
        assert await stage.ask() == {"action": "decline"}  # for they are all its own
        await stage.upstream.peer.respond(stage.upstream.request("last"), {"content": []})
        for number in range(4):
            await stage.upstream.peer.respond(stage.upstream.request(f"{number}"), {"content": []})
        await stage.call(two, "second")
        assert isinstance(await stage.ask(), ErrorData)
        assert asked(two) == []


async def test_a_question_about_forgotten_calls_of_several_clients_goes_to_none_of_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("trio_mcp.proxy.unanswered.MAX_GIVEN_UP", 1)
    async with staged(LEGACY) as (stage, one, two):
        for number, client in enumerate((one, two, two)):
            await client.cancel(await stage.call(client, f"{number}"))
        await stage.call(two, "last")
        assert isinstance(await stage.ask(), ErrorData)
        assert (asked(one), asked(two)) == ([], [])


@attrs.define(eq=False)
class PlayedOverHttp:
    """An upstream whose calls stay open, each on its own stream.

    Attributes:
        http: It.
        streams: By the tools that were called, and that of the GET as ``""``.
        answers: To its questions, by their ids.
    """

    http: HttpPeer
    streams: dict[str, Asked] = attrs.Factory(dict)
    answers: dict[Any, Any] = attrs.Factory(dict)
    news: trio.lowlevel.ParkingLot = attrs.Factory(trio.lowlevel.ParkingLot)

    def __attrs_post_init__(self) -> None:
        self.http.handlers |= {"initialize": self.greet, "tools/call": self.open, "GET": self.open, "answer": self.take}

    async def greet(self, request: Asked) -> None:
        await request.result({**INITIALIZED, "capabilities": CAPABILITIES}, Mcp_Session_Id="s1")

    async def open(self, request: Asked) -> None:
        await request.begin_events()
        self.streams["" if request.body is None else request.body["params"]["name"]] = request
        self.news.unpark_all()
        await request.gone()

    async def take(self, answer: Asked) -> None:
        await answer.status(202)
        self.answers[answer.id] = answer.body
        self.news.unpark_all()

    async def has(self, name: str) -> None:
        while name not in self.streams:
            await self.news.park()

    async def ask(self, name: str) -> Any:
        """Speak, ask on the stream of a call, and give the answer."""
        question = f"question-{len(self.answers)}"
        stream = self.streams[name]
        await stream.chunk(event({"jsonrpc": "2.0", "method": "notifications/message", "params": LOG}))
        asking = {"jsonrpc": "2.0", "id": question, "method": "elicitation/create", "params": QUESTION}
        await stream.chunk(event(asking))
        while question not in self.answers:
            await self.news.park()
        return self.answers[question].get("result", self.answers[question].get("error"))


async def test_over_http_a_question_is_about_the_call_on_whose_stream_it_comes() -> None:
    """Rule: there it can be told (2025-11-25 `basic/transports`, Sending Messages, 6), also beside calls given up."""
    async with peer() as http:
        upstream = PlayedOverHttp(http)
        async with staged(LEGACY, target=http.url) as (stage, one, two):
            three = await stage.client()
            calls = []
            for client, name in ((one, "first"), (two, "second"), (three, "third")):
                calls.append(await client.request("tools/call", {"name": name}))
                await upstream.has(name)
            await upstream.has("")
            assert await upstream.ask("second") == {"action": "decline"}
            assert (await upstream.ask(""))["code"] == -32600  # on this one it may be anybody's
            await settle()
            assert [(asked(each), told(each)) for each in (one, two, three)] == [
                ([], []),
                (["elicitation/create"], ["notifications/message"]),
                ([], []),
            ]
            await one.cancel(calls[0])
            await http.until("notifications/cancelled")
            assert await upstream.ask("third") == {"action": "decline"}
            assert (await upstream.ask(""))["code"] == -32600
            await settle()
            assert (asked(one), told(one)) == ([], [])
            assert (asked(three), told(three)) == (["elicitation/create"], ["notifications/message"])


@pytest.mark.parametrize(("status", "told_of"), [(429, True), (504, False)])
async def test_a_call_refused_with_an_http_status_is_settled(status: int, told_of: bool) -> None:
    """Rule: if a gateway in between failed (504), the call may have reached the upstream; on 429 it has not."""
    async with peer() as http:
        upstream = PlayedOverHttp(http)

        async def refuse(request: Asked) -> None:
            await request.status(status)

        async with staged(LEGACY, target=http.url) as (_, one, two):
            http.handlers["tools/call"] = refuse
            await one.ask("tools/call", {"name": "first"})
            http.handlers["tools/call"] = upstream.open
            await two.request("tools/call", {"name": "second"})
            await upstream.has("second")
            await upstream.has("")
            await upstream.ask("")
            await settle()
            assert asked(two) == (["elicitation/create"] if told_of else [])


async def test_a_log_level_that_one_client_gave_up_setting_is_set_for_the_next() -> None:
    """Rule: it counts as set once the upstream has said so."""
    async with staged(LEGACY) as (stage, one, two):
        upstream = stage.upstream.peer
        upstream.replies = lambda request: None  # it takes its time
        setting = await one.request("logging/setLevel", {"level": "info"})
        await settle()
        waiting = await two.request("logging/setLevel", {"level": "info"})
        await settle()
        assert len(upstream.questions) == 1
        upstream.replies = lambda request: {}
        await one.cancel(setting)
        assert (await two.answer(waiting)).id == waiting
        assert [each.params for each in upstream.questions] == [{"level": "info"}] * 2


async def test_what_comes_in_one_batch_with_the_answer_is_still_about_the_call() -> None:
    """Rule: what an upstream of 2025-03-26 puts together is looked at in its order."""
    async with staged(LEGACY, "2025-03-26") as (stage, one, two):
        await one.cancel(await stage.call(one, "first"))
        await stage.call(two, "second")
        answer = Response(stage.upstream.request("first").id, {"content": []})
        await stage.upstream.peer.send(Batch((Notification("notifications/message", LOG), answer)))
        await settle()
        assert told(two) == []
        await stage.upstream.peer.send(Batch((answer, Notification("notifications/message", LOG))))
        await settle()
        assert told(two) == ["notifications/message"]


def test_a_call_that_was_never_sent_does_not_count() -> None:
    """Rule: what has not been sent can't be asked about."""
    calls = UnansweredCalls(lambda *_: None)
    one, two = SimpleNamespace(connection=Played), SimpleNamespace(connection=Stage)
    for number, sent in enumerate((False, True)):
        call = OutgoingCall("tools/call", {}, "2025-11-25")
        with calls.entered(one, call) as opened:  # type: ignore[arg-type]
            opened(OutgoingRequest(Request(number, "tools/call", None), sent=sent))
        with calls.entered(two, call) as opened:  # type: ignore[arg-type]
            opened(OutgoingRequest(Request(10 + number, "tools/call", None)))
            assert (calls.meant(None) is two) is not sent
