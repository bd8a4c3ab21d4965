"""The messages of a client, as a server sees them: the server is a script."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import pytest
import trio
import trio.lowlevel

from tests.peer import Peer
from tests.requirements.case import Case, Script
from tests.requirements.model import LEGACY, MODERN, Topic, since
from trio_mcp import Answers, McpError, NegotiationError, RemoteProtocolError, RequestTimeout, SessionOptions, types
from trio_mcp.jsonrpc.messages import ErrorData, ErrorResponse, Notification, Request, Response
from trio_mcp.types import error_codes, meta

topic = Topic("Messages, client")

Answer = Mapping[str, Any] | Callable[[Request], list[Any]] | Callable[[Request, Peer], Awaitable[None]]
"""A result, what makes the messages to send, or what sends them itself."""

MESSAGES, PATTERNS = "basic#messages", "basic/patterns"
CALL = "tools/call"
TEXT: dict[str, Any] = {"content": [{"type": "text", "text": "done"}]}


class Seen(list[Any]):
    """The messages that a script has received, and a way to wait for them."""

    def __init__(self) -> None:
        super().__init__()
        self._news = trio.lowlevel.ParkingLot()

    def note(self, message: Any) -> None:
        self.append(message)
        self._news.unpark_all()

    async def until(self, wanted: Callable[[Any], bool]) -> Any:
        """The first message that is the one that is meant."""
        while not any(map(wanted, self)):
            await self._news.park()
        return next(filter(wanted, self))

    async def until_method(self, method: str) -> Any:
        return await self.until(lambda message: getattr(message, "method", "") == method)

    async def until_answer(self) -> Any:
        return await self.until(lambda message: isinstance(message, (Response, ErrorResponse)))


def playing(case: Case, answers: Mapping[str, Answer], seen: Seen | None = None, **capabilities: Any) -> Script:
    """A server that answers each method as it is told, each request in a task of its own, and notes all that comes."""
    messages = Seen() if seen is None else seen

    async def script(wire: Peer) -> None:
        messages.note(await case.opening(wire, tools={}, **capabilities))
        async with trio.open_nursery() as nursery:
            async for message in wire:
                messages.note(message)
                if isinstance(message, Request):
                    answer = answers[message.method]
                    if inspect.iscoroutinefunction(answer):
                        nursery.start_soon(answer, message, wire)
                    elif callable(answer):
                        for each in answer(message):
                            await wire.send(each)
                    else:
                        await wire.send(Response(message.id, finished(case, answer)))

    return script


def finished(case: Case, result: Mapping[str, Any]) -> dict[str, Any]:
    """A result as the revision wants it."""
    return {"resultType": "complete", **result} if case.modern else dict(result)


# --- requests ------------------------------------------------------------------------------------------------------


@topic.row(f"{PATTERNS}#request-and-response", "A client gives each answer to the request with its id, in any order.")
async def any_order(case: Case) -> None:
    waiting: list[Request] = []

    def answer(call: Request) -> list[Any]:
        waiting.append(call)
        if len(waiting) < 3:
            return []
        texts = {each.id: [{"type": "text", "text": (each.params or {})["name"]}] for each in reversed(waiting)}
        return [Response(id, finished(case, {"content": content})) for id, content in texts.items()]

    found: dict[str, str] = {}
    async with case.scripted(playing(case, {CALL: answer})) as client, trio.open_nursery() as nursery:

        async def call(name: str) -> None:
            found[name] = (await client.call_tool(name)).content[0].text

        for name in ("a", "b", "c"):
            nursery.start_soon(call, name)
    assert found == {"a": "a", "b": "b", "c": "c"}


@topic.row("basic#requests", "A client never uses an id for two of its requests.")
async def own_ids(case: Case) -> None:
    seen = Seen()
    async with case.scripted(playing(case, {CALL: TEXT}, seen)) as client:
        for _ in range(3):
            await client.call_tool("t")
    ids = [message.id for message in seen if isinstance(message, Request)]
    assert len(ids) == 4
    assert len(set(ids)) == 4
    assert None not in ids


@topic.row("basic#_meta", "A client states its revision, name and capabilities in each request.", MODERN)
async def says_who_it_is(case: Case) -> None:
    seen = Seen()
    me, answers = types.Implementation(name="me", version="2"), Answers(elicitation=lambda form: "decline")
    async with case.scripted(playing(case, {CALL: TEXT}, seen), client_info=me, answers=answers) as client:
        await client.call_tool("t")
    for message in seen:
        said = message.params["_meta"]
        assert said[meta.PROTOCOL_VERSION] == case.revision
        assert said[meta.CLIENT_INFO] == {"name": "me", "version": "2"}
        assert "elicitation" in said[meta.CLIENT_CAPABILITIES]
    assert [message.method for message in seen] == ["server/discover", CALL]


@topic.row("basic/lifecycle#initialization", "A client confirms the handshake before its first request.", LEGACY)
async def confirms(case: Case) -> None:
    seen = Seen()
    async with case.scripted(playing(case, {CALL: TEXT}, seen)) as client:
        await client.call_tool("t")
    assert [message.method for message in seen[:3]] == ["initialize", "notifications/initialized", CALL]
    assert seen[0].params["protocolVersion"] == case.revision
    assert meta.PROTOCOL_VERSION not in (seen[2].params.get("_meta") or {})


@topic.row(
    "basic/lifecycle#version-negotiation",
    "A client disconnects from a server that chose a revision it does not know.",
    LEGACY,
)
async def unknown_revision(case: Case) -> None:
    async def script(wire: Peer) -> None:
        request = await wire.expect(Request)
        info = {"name": "script", "version": "1"}
        await wire.send(Response(request.id, {"protocolVersion": "1999-01-01", "capabilities": {}, "serverInfo": info}))

    with pytest.raises(NegotiationError, match="1999-01-01"):
        async with case.scripted(script):
            pytest.fail("it was taken for a session")


# --- answers -------------------------------------------------------------------------------------------------------


@topic.row("basic#error-responses", "A client raises an error with the code, message and data that the server gave.")
async def errors(case: Case) -> None:
    error = ErrorData(-31000, "out of paper", {"tray": 2})
    async with case.scripted(playing(case, {CALL: lambda call: [ErrorResponse(call.id, error)]})) as client:
        with pytest.raises(McpError, match="out of paper") as raised:
            await client.call_tool("t")
        assert (raised.value.code, raised.value.data) == (-31000, {"tray": 2})


@topic.row("basic#responses", "A client reports a response to a request it never sent, and goes on.")
async def strange_answer(case: Case) -> None:
    def answer(call: Request) -> list[Any]:
        return [Response("unasked", finished(case, {})), Response(call.id, finished(case, TEXT))]

    reported: list[Any] = []
    async with case.scripted(playing(case, {CALL: answer}), options=SessionOptions(on_error=reported.append)) as client:
        assert (await client.call_tool("t")).content[0].text == "done"
        assert (await client.call_tool("t")).content[0].text == "done"
    assert len(reported) == 2


@topic.row("basic#resulttype", "A result of a type that the client does not know is invalid.", MODERN)
async def unknown_type(case: Case) -> None:
    async with case.scripted(playing(case, {CALL: {**TEXT, "resultType": "com.example/later"}})) as client:
        with pytest.raises(RemoteProtocolError, match="resultType"):
            await client.call_tool("t")


@topic.row("basic#resulttype", "A result without a type is a complete one.", MODERN)
async def no_type(case: Case) -> None:
    async with case.scripted(playing(case, {CALL: lambda call: [Response(call.id, TEXT)]})) as client:
        assert (await client.call_tool("t")).content[0].text == "done"


# --- while a request is in flight ----------------------------------------------------------------------------------


@topic.row("basic#notifications", "A client ignores unknown notifications and never answers one.")
async def unknown_notification(case: Case) -> None:
    def answer(call: Request) -> list[Any]:
        return [Notification("com.example/nothing", {"a": 1}), Response(call.id, finished(case, TEXT))]

    seen = Seen()
    async with case.scripted(playing(case, {CALL: answer}, seen)) as client:
        for _ in range(2):
            assert (await client.call_tool("t")).content[0].text == "done"
    assert not [message for message in seen if isinstance(message, (Response, ErrorResponse))]


@topic.row(f"{PATTERNS}/progress#progress-flow", "Progress goes to the call with its token, and to no other.")
async def progress_of_two(case: Case) -> None:
    waiting: list[Request] = []

    async def answer(request: Request, wire: Peer) -> None:
        waiting.append(request)
        if len(waiting) == 2:
            for step in (1, 2):
                for each in waiting:
                    params = each.params or {}
                    told = {
                        "progressToken": params["_meta"]["progressToken"],
                        "progress": step,
                        "message": params["name"],
                    }
                    await wire.send(Notification("notifications/progress", told))
            for each in waiting:
                await wire.send(Response(each.id, finished(case, TEXT)))

    found: dict[str, list[Any]] = {"a": [], "b": []}
    async with case.scripted(playing(case, {CALL: answer})) as client, trio.open_nursery() as nursery:

        async def call(name: str) -> None:
            await client.call_tool(name, on_progress=lambda event: found[name].append((event.message, event.progress)))

        for name in found:
            nursery.start_soon(call, name)
    named = {
        name: [(name if case.revision != "2024-11-05" else got, step) for got, step in each]
        for name, each in found.items()
    }
    assert named == {"a": [("a", 1), ("a", 2)], "b": [("b", 1), ("b", 2)]}


@topic.row(f"{PATTERNS}/cancellation#cancellation-flow", "Cancelling a call cancels its own request and no other.")
async def leaves(case: Case) -> None:
    seen = Seen()
    go = trio.Event()

    async def answer(request: Request, wire: Peer) -> None:
        if (request.params or {})["name"] == "slow":
            await trio.sleep_forever()
        await go.wait()
        await wire.send(Response(request.id, finished(case, TEXT)))

    async with case.scripted(playing(case, {CALL: answer}, seen)) as client, trio.open_nursery() as nursery:
        scope = trio.CancelScope()

        async def slow() -> None:
            with scope:
                await client.call_tool("slow")

        async def other() -> None:
            assert (await client.call_tool("other")).content[0].text == "done"

        nursery.start_soon(slow)
        left = await seen.until_method(CALL)
        nursery.start_soon(other)
        await seen.until(lambda message: message.method == CALL and message is not left)
        scope.cancel()
        notice = await seen.until_method("notifications/cancelled")
        assert notice.params["requestId"] == left.id
        go.set()
    assert len([message for message in seen if message.method == "notifications/cancelled"]) == 1


@topic.row(
    f"{PATTERNS}/cancellation#timeouts", "A client cancels a request that times out, and no response comes after that."
)
async def times_out(case: Case) -> None:
    seen = Seen()

    async def never(request: Request, wire: Peer) -> None:
        await seen.until_method("notifications/cancelled")
        await wire.send(Response(request.id, finished(case, {"content": [], "isError": True})))

    reported: list[Any] = []
    answers: dict[str, Answer] = {CALL: never, "prompts/list": {"prompts": [], "ttlMs": 0, "cacheScope": "private"}}
    async with case.scripted(
        playing(case, answers, seen, prompts={}), options=SessionOptions(on_error=reported.append)
    ) as client:
        with pytest.raises(RequestTimeout):
            await client.call_tool("t", timeout=0.05)
        await seen.until_method("notifications/cancelled")
        assert (await client.list_prompts()).prompts == []
    assert reported == []


@topic.row(
    "server/tools#list-changed-notification", "A client receives notifications that belong to no request.", LEGACY
)
async def told(case: Case) -> None:
    heard, changed = trio.Event(), "notifications/tools/list_changed"

    async def script(wire: Peer) -> None:
        await case.opening(wire, tools={"listChanged": True})
        assert (await wire.receive()) == Notification("notifications/initialized")
        await wire.send(Notification(changed))

    def hear(message: Notification) -> None:
        assert message.method == changed
        heard.set()

    async with case.scripted(script, on_message=hear):
        await heard.wait()


# --- a server that asks --------------------------------------------------------------------------------------------


@topic.row(
    "basic/utilities/ping#behavior-requirements", "A client answers a ping, even while it waits for a response.", LEGACY
)
async def pinged(case: Case) -> None:
    seen = Seen()

    async def answer(request: Request, wire: Peer) -> None:
        await wire.send(Request("ping-1", "ping"))
        pong = await seen.until_answer()
        assert pong == Response("ping-1", {})
        await wire.send(Response(request.id, TEXT))

    async with case.scripted(playing(case, {CALL: answer}, seen)) as client:
        assert (await client.call_tool("t")).content[0].text == "done"


@topic.row("basic#requests", "A client answers an unknown request with -32601.", LEGACY)
async def unknown_request(case: Case) -> None:
    seen = Seen()

    async def answer(request: Request, wire: Peer) -> None:
        await wire.send(Request(77, "com.example/what"))
        refused = await seen.until_answer()
        assert (refused.id, refused.error.code) == (77, error_codes.METHOD_NOT_FOUND)
        await wire.send(Response(request.id, TEXT))

    async with case.scripted(playing(case, {CALL: answer}, seen)) as client:
        assert (await client.call_tool("t")).content[0].text == "done"


@topic.row(
    "client/elicitation#creating-elicitation-requests",
    "A server's request during a call is answered while the call goes on.",
    [revision for revision in since("2025-06-18") if revision in LEGACY],
)
async def asked(case: Case) -> None:
    seen = Seen()
    form = {"message": "Who?", "requestedSchema": {"type": "object", "properties": {"name": {"type": "string"}}}}

    async def answer(request: Request, wire: Peer) -> None:
        await wire.send(Request("q", "elicitation/create", form))
        answered = await seen.until_answer()
        assert (answered.id, answered.result) == ("q", {"action": "accept", "content": {"name": "Ada"}})
        await wire.send(Response(request.id, TEXT))

    script = playing(case, {CALL: answer}, seen)
    async with case.scripted(script, answers=Answers(elicitation=lambda question: {"name": "Ada"})) as client:
        assert (await client.call_tool("t")).content[0].text == "done"


@topic.row(
    "basic/patterns/mrtr#client-requirements-basic-workflow",
    "A result that asks for input is answered by a retry with the responses, the state and a new id.",
    MODERN,
)
async def asked_in_rounds(case: Case) -> None:
    form = {"message": "Who?", "requestedSchema": {"type": "object", "properties": {"name": {"type": "string"}}}}
    question = {
        "resultType": "input_required",
        "inputRequests": {"who": {"method": "elicitation/create", "params": {"mode": "form", **form}}},
        "requestState": "opaque",
    }
    calls: list[Request] = []

    async def answer(request: Request, wire: Peer) -> None:
        calls.append(request)
        await wire.send(Response(request.id, question if len(calls) == 1 else finished(case, TEXT)))

    async with case.scripted(
        playing(case, {CALL: answer}), answers=Answers(elicitation=lambda question: {"name": "Ada"})
    ) as client:
        assert (await client.call_tool("t", {"a": 1})).content[0].text == "done"
    first, second = calls
    assert first.id != second.id
    assert second.params is not None
    assert second.params["arguments"] == {"a": 1}
    assert second.params["requestState"] == "opaque"
    assert second.params["inputResponses"] == {"who": {"action": "accept", "content": {"name": "Ada"}}}
