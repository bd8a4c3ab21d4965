"""What a request has made belongs to its principal: issuer, subject and client. To a stranger it is not there."""

from __future__ import annotations

from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio
import trio.testing
from pydantic import BaseModel
from pydantic_core import from_json
from trio.testing import MockClock

from tests.auth.server.guarded import Exchange, Legacy, Table, ask, modern, person, protected, under_way
from tests.http_peer import request
from trio_mcp import Context, MemoryEventStore, Principal, Server
from trio_mcp.middleware import Caching
from trio_mcp.stores import SqliteStores

ANN = person("ann", "read")
STRANGERS = {
    "another subject": attrs.evolve(ANN, subject="bob"),
    "another issuer": attrs.evolve(ANN, issuer="https://other.example.com"),
    "another client": attrs.evolve(ANN, client_id="d"),
    "no client": attrs.evolve(ANN, client_id=None),
}
RENEWED = attrs.evolve(ANN, scopes=frozenset({"write"}), expires_at=9e9)


class Name(BaseModel):
    name: str


def made(**arguments: Any) -> Server:
    server = Server("made", **arguments)

    @server.tool
    async def count(to: int, ctx: Context[Any]) -> int:
        for number in range(to):
            await ctx.report_progress(number + 1)
        return to

    @server.tool
    async def greet(ctx: Context[Any]) -> str:
        answer = await ctx.elicit("Who?", Name)
        return f"Hello, {answer.data and answer.data.name}"

    @server.tool(park_input=True)
    async def wait(ctx: Context[Any]) -> str:
        answer = await ctx.elicit("Who?", Name)
        return f"Hello, {answer.data and answer.data.name}"

    return server


def table(stranger: Principal) -> Table:
    return Table({"ann": ANN, "renewed": RENEWED, "stranger": stranger})


def head(r: Exchange) -> tuple[Any, ...]:
    return r.status, r.headers, r.body


ACCESSES: dict[str, tuple[str, Any, dict[str, str]]] = {
    "a request": ("POST", request("tools/list", {}, 5), {}),
    "a notification": ("POST", {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}}, {}),
    "an answer": ("POST", {"jsonrpc": "2.0", "id": 1, "result": {}}, {}),
    "a stream": ("GET", b"", {}),
    "a resumption": ("GET", b"", {"last_event_id": "1-1"}),
    "an end": ("DELETE", b"", {}),
}


@pytest.mark.legacy
@pytest.mark.parametrize("ended", [False, True])
@pytest.mark.parametrize("stranger", STRANGERS)
@pytest.mark.parametrize("access", ACCESSES)
async def test_a_session_of_somebody_else_is_like_none(
    access: str, stranger: str, ended: bool, autojump_clock: MockClock
) -> None:
    """Not one byte of the response tells a session apart from one that never was, nor does it take another time."""
    method, body, fields = ACCESSES[access]
    async with protected(made(), table(STRANGERS[stranger]), event_store=MemoryEventStore()) as app:
        session = Legacy(app, "ann")
        await session.initialize()
        await session.send(request("tools/call", {"name": "count", "arguments": {"to": 2}}, 5))
        if ended:
            assert (await ask(app, session.made("DELETE"))).status == 204
        answers = []
        for session_id in (session.fields["mcp_session_id"], "x" * 43):
            began = trio.current_time()
            given = {**session.fields, **fields, "mcp_session_id": session_id}
            answers.append(
                (*head(await ask(app, Exchange(method, "stranger", body, **given))), trio.current_time() - began)
            )
        assert answers[0] == answers[1]
        assert answers[0][0] == 404
        if not ended:
            session.token = "renewed"
            assert (await session.call("tools/list")).status == 200


@pytest.mark.legacy
@pytest.mark.parametrize("asked", ["the process that serves it", "another process"])
@pytest.mark.parametrize("stranger", STRANGERS)
@pytest.mark.parametrize("access", ACCESSES)
async def test_a_session_that_processes_share_is_its_owners_alone(
    access: str, stranger: str, asked: str, tmp_path: Path
) -> None:
    """To anyone else it is like none in each of them, and it goes on for its owner."""
    method, body, fields = ACCESSES[access]
    async with AsyncExitStack() as stack:
        one, two = [
            await stack.enter_async_context(
                protected(made(stores=SqliteStores(tmp_path / "desk.db")), table(STRANGERS[stranger]))
            )
            for _ in range(2)
        ]
        session = Legacy(one, "ann")
        await session.initialize()
        call = await session.send(request("tools/call", {"name": "count", "arguments": {"to": 2}}, 5))
        assert call.status == 200
        app = one if asked == "the process that serves it" else two
        answers = []
        for session_id in (session.fields["mcp_session_id"], "x" * 43):
            given = {**session.fields, **fields, "mcp_session_id": session_id}
            answers.append(head(await ask(app, Exchange(method, "stranger", body, **given))))
        assert answers[0] == answers[1]
        assert answers[0][0] == 404
        for session.app, session.token in ((two, "renewed"), (one, "ann")):
            assert (await session.call("tools/list")).status == 200


@pytest.mark.legacy
@pytest.mark.parametrize("stranger", STRANGERS)
async def test_events_of_a_session_that_has_ended_are_replayed_to_its_owner_alone(stranger: str) -> None:
    store = MemoryEventStore()
    params = {"name": "count", "arguments": {"to": 2}, "_meta": {"progressToken": 1}}
    async with protected(made(), table(STRANGERS[stranger]), event_store=store) as app:
        session = Legacy(app, "ann")
        await session.initialize()
        assert (await session.send(request("tools/call", params, 5))).status == 200
    fields = {**session.fields, "last_event_id": "1-0"}
    async with protected(made(), table(STRANGERS[stranger]), event_store=store) as app:  # another run
        mine = await ask(app, Exchange("GET", "renewed", **fields))
        assert (mine.status, len(mine.events())) == (200, 3)
        theirs = await ask(app, Exchange("GET", "stranger", **fields))
        unknown = await ask(app, Exchange("GET", "stranger", **{**fields, "mcp_session_id": "x" * 43}))
        assert head(theirs) == head(unknown)
        assert theirs.status == 404
    async with made().asgi_app(event_store=store) as app:  # nor where no token is judged
        assert (await ask(app, Exchange("GET", None, **fields))).status == 404


@pytest.mark.legacy
async def test_a_broken_answer_of_a_stranger_fails_no_question(autojump_clock: MockClock) -> None:
    async with protected(made(), table(STRANGERS["another subject"])) as app:
        session = Legacy(app, "ann")
        await session.initialize(elicitation={})
        call = session.made("POST", request("tools/call", {"name": "greet", "arguments": {}}, 5))
        async with under_way(app, call):
            (asked,) = call.events()
            question = from_json(asked.data)
            broken = {"jsonrpc": "2.0", "id": question["id"], "result": 5}
            session.token = "stranger"
            assert (await session.send(broken)).status == 400
            assert len(call.events()) == 1
            session.token = "renewed"
            answer = {"action": "accept", "content": {"name": "Ann"}}
            assert (await session.send({"jsonrpc": "2.0", "id": question["id"], "result": answer})).status == 202
            await call.over.wait()
        assert b"Hello, Ann" in call.events()[1].data


@pytest.mark.legacy
@pytest.mark.parametrize("stranger", STRANGERS)
async def test_the_messages_of_http_sse_come_from_the_owner_of_its_stream(
    stranger: str, autojump_clock: MockClock
) -> None:
    async with protected(made(), table(STRANGERS[stranger]), sse_path="/sse") as app:
        stream = Exchange("GET", "ann", b"", "/sse")
        async with under_way(app, stream):
            path = stream.events()[0].data.decode()
            ping = request("ping", None, 1)
            theirs = await ask(app, Exchange("POST", "stranger", ping, path))
            unknown = await ask(app, Exchange("POST", "stranger", ping, "/messages?session_id=x"))
            assert head(theirs) == head(unknown)
            assert theirs.status == 404
            assert (await ask(app, Exchange("POST", "renewed", ping, path))).status == 202
            await trio.testing.wait_all_tasks_blocked()
            assert len(stream.events()) == 2


@pytest.mark.parametrize("tool", ["greet", "wait"])
@pytest.mark.parametrize("stranger", STRANGERS)
async def test_a_question_is_answered_by_the_one_who_was_asked(
    stranger: str, tool: str, autojump_clock: MockClock
) -> None:
    capable = {"io.modelcontextprotocol/clientCapabilities": {"elicitation": {"form": {}}}}
    async with protected(made(), table(STRANGERS[stranger])) as app:
        asked = modern("ann", "tools/call", meta=capable, name=tool, arguments={})
        result = (await ask(app, asked)).json["result"]
        (key,) = result["inputRequests"]
        answer = {
            "name": tool,
            "arguments": {},
            "requestState": result["requestState"],
            "inputResponses": {key: {"action": "accept", "content": {"name": "Ann"}}},
        }
        refused = (await ask(app, modern("stranger", "tools/call", meta=capable, **answer))).json
        assert refused["error"]["code"] == -32602
        accepted = (await ask(app, modern("renewed", "tools/call", meta=capable, **answer))).json
        assert accepted["result"]["structuredContent"] == {"result": "Hello, Ann"}


async def test_a_cache_keeps_principals_apart() -> None:
    server, ran = Server("cached", middleware=[Caching({"who"})]), list[str]()

    @server.tool
    async def who(ctx: Context[Any]) -> str:
        assert ctx.principal is not None
        ran.append(ctx.principal.subject)
        return ctx.principal.subject

    async with protected(server, table(STRANGERS["another subject"])) as app:
        for token, expected in (("ann", "ann"), ("stranger", "bob"), ("ann", "ann")):
            r = await ask(app, modern(token, "tools/call", name="who", arguments={}))
            assert r.json["result"]["structuredContent"] == {"result": expected}
    assert ran == ["ann", "bob"]
