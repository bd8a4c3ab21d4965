"""Sessions of the legacy era over HTTP, as any HTTP client sees them (2025-11-25 `basic/transports`)."""

from __future__ import annotations

from functools import partial
from typing import Any

import httpx
import pytest
import trio

from tests.http_peer import LATEST, Events, Raw, request
from tests.server.http.harness import Made, served, session
from tests.server.http.runners import chosen
from tests.waiting import eventually
from trio_mcp import types
from trio_mcp.http.runner import serving
from trio_mcp.http.serve import listening, serve_http
from trio_mcp.http.server.options import HttpOptions
from trio_mcp.middleware import Middleware

pytestmark = pytest.mark.legacy

SESSION_REVISIONS = ["2025-03-26", "2025-06-18", "2025-11-25"]


@pytest.mark.parametrize("revision", SESSION_REVISIONS)
async def test_a_session_is_opened_used_and_ended(revision: str) -> None:
    """Session Management: an id of visible ASCII; 202 for notifications; after DELETE 404."""
    async with session(revision=revision) as (_, raw):
        assert raw.session is not None
        assert all(0x21 <= ord(c) <= 0x7E for c in raw.session)
        assert len(raw.session) >= 43  # 32 random bytes
        r = await raw.post("tools/call", {"name": "add", "arguments": {"a": 1, "b": 2}})
        assert (r.status_code, r.headers["content-type"]) == (200, "application/json")
        assert r.json()["result"]["content"][0]["text"] == "3"
        r = await raw.http.delete("/mcp", headers=raw.headers())
        assert (r.status_code, r.headers.get("content-length")) == (204, None)  # RFC 9110, 8.6
        assert (await raw.post("tools/list")).status_code == 404
        assert (await raw.http.delete("/mcp", headers=raw.headers())).status_code == 404
        async with raw.listen() as r:
            assert r.status_code == 404


async def test_without_a_session_id_400_and_with_an_unknown_one_404() -> None:
    """Session Management, 2 and 3."""
    async with served() as (_, http, _):
        raw = Raw(http)
        assert (await raw.post("tools/list")).status_code == 400
        raw.session = "x" * 43
        unknown = await raw.post("tools/list")
        assert unknown.status_code == 404
        assert "send initialize" in unknown.json()["error"]["message"]
        assert (await raw.notify("notifications/initialized")).status_code == 404


async def test_initialize_that_is_refused_opens_no_session() -> None:
    async with served() as (_, http, _):
        r = await Raw(http).post("initialize", {"protocolVersion": LATEST})
        assert r.json()["error"]["code"] == types.INVALID_PARAMS
        assert "mcp-session-id" not in r.headers


async def test_json_only_answers_with_one_json_text() -> None:
    async with session(HttpOptions(json_only=True)) as (_, raw), raw.call("count", {"to": 5}) as r:
        await r.aread()
        assert r.json()["result"]["structuredContent"] == {"result": 5}


async def test_a_question_comes_on_the_stream_of_its_request() -> None:
    """Sending Messages, 6: requests on the stream SHOULD relate to the request; the answer is a POST of its own."""
    async with session(elicitation={}) as (_, raw), raw.listen() as _, raw.call("greet") as r:
        events = Events(r)
        asked = await events.message()
        assert asked["method"] == "elicitation/create"
        answer = {"action": "accept", "content": {"name": "Ann"}}
        assert (await raw.send({"jsonrpc": "2.0", "id": asked["id"], "result": answer})).status_code == 202
        assert (await events.message())["result"]["structuredContent"] == {"result": "Hello, Ann"}


async def test_with_json_only_a_question_comes_on_the_stream_of_the_session() -> None:
    async with (
        session(HttpOptions(json_only=True), elicitation={}) as (_, raw),
        raw.listen() as listening,
        trio.open_nursery() as nursery,
    ):

        async def answer() -> None:
            asked = await Events(listening).message()
            content = {"action": "accept", "content": {"name": "Ann"}}
            await raw.send({"jsonrpc": "2.0", "id": asked["id"], "result": content})

        nursery.start_soon(answer)
        async with raw.call("greet") as r:
            await r.aread()
            assert r.json()["result"]["structuredContent"] == {"result": "Hello, Ann"}


async def test_messages_that_belong_to_no_request_come_only_on_the_stream_of_the_session() -> None:
    """Multiple Connections, 2: each message on one stream only."""
    async with session() as (made, raw), raw.listen() as listening, raw.call("wait", {"progress": 1}) as r:
        running, rest = Events(r), Events(listening)
        assert (await running.message())["method"] == "notifications/progress"
        made.server.remove_tool("add")
        assert (await rest.message())["method"] == "notifications/tools/list_changed"
        made.go.set()
        (answer,) = await running.messages()
        assert answer["result"]["structuredContent"] == {"result": "done"}


async def test_notifications_wait_until_the_stream_of_the_session_is_opened() -> None:
    async with session() as (made, raw):
        made.server.remove_tool("add")
        await trio.testing.wait_all_tasks_blocked()
        async with raw.listen() as r:
            assert (await Events(r).message())["method"] == "notifications/tools/list_changed"


async def test_the_stream_of_the_session_is_the_newest_one_opened() -> None:
    """Listening, 4: the server MAY close the stream; so a client whose connection is dead need not wait for that."""
    async with session() as (made, raw), raw.listen() as first, raw.listen() as second:
        assert await Events(first).messages() == []
        made.server.remove_tool("add")
        assert (await Events(second).message())["method"] == "notifications/tools/list_changed"


async def test_a_disconnect_does_not_cancel() -> None:
    """Sending Messages, 6: disconnection SHOULD NOT be interpreted as the client cancelling its request."""
    async with session() as (made, raw):
        async with raw.call("wait", {"progress": 1}) as r:
            await Events(r).message()
        made.go.set()
        await made.finished.wait()


async def test_a_cancelled_request_ends_its_stream_without_an_answer() -> None:
    async with session() as (made, raw):
        async with raw.call("wait", {"progress": 1}, id=7) as r:
            events = Events(r)
            await events.message()
            await raw.notify("notifications/cancelled", {"requestId": 7, "reason": "enough"})
            assert await events.messages() == []
        await made.cancelled.wait()
        assert "enough" in str(made.reason)


async def test_a_request_whose_handler_cancels_itself_ends_its_stream_and_its_session_goes_on() -> None:
    class Cancels(Middleware):
        async def handle_request(self, context: Any, call_next: Any) -> dict[str, Any]:
            if context.method == "tools/call":
                await context.report_progress(1)
                context.cancel_scope.cancel()
            result: dict[str, Any] = await call_next()
            return result

    async with served(made=Made(middleware=[Cancels()])) as (_, http, _):
        raw = Raw(http)
        await raw.initialize()
        async with raw.call("wait") as r:
            assert [each["method"] for each in await Events(r).messages()] == ["notifications/progress"]
        assert (await raw.post("ping", id=9)).json()["result"] == {}


async def test_a_cancellation_that_overtakes_its_request_cancels_it() -> None:
    """Each is a POST of its own, and the server may read that of the cancellation first."""
    async with session() as (made, raw):
        await raw.notify("notifications/cancelled", {"requestId": 7, "reason": "enough"})
        async with raw.call("wait", id=7) as r:
            assert (r.status_code, await r.aread()) == (202, b"")
        assert not made.started.is_set()
        async with raw.call("wait", {"progress": 1}, id=8) as r:
            await Events(r).message()
            made.go.set()
            await made.finished.wait()


async def test_a_request_that_is_answered_at_once_ends_its_stream_though_a_cancellation_overtook_it() -> None:
    """A ping has no handler that could end, and no response once it is cancelled: else its POST would wait forever."""
    async with session() as (made, raw):
        await raw.notify("notifications/cancelled", {"requestId": 7})
        with trio.fail_after(5):
            assert (await raw.post("ping", id=7)).status_code == 202
        assert made.server.statistics().http[0].unanswered == 0


async def test_a_tool_whose_cancellation_overtook_the_call_does_not_begin() -> None:
    """Not even one that does its work without ever waiting."""
    ran: list[int] = []
    async with session() as (made, raw):

        @made.server.tool
        async def act(number: int) -> None:
            ran.append(number)

        await raw.notify("notifications/cancelled", {"requestId": 7})
        async with raw.call("act", {"number": 7}, id=7) as r:
            assert (r.status_code, await r.aread()) == (202, b"")
        assert (await raw.post("tools/call", {"name": "act", "arguments": {"number": 8}}, id=8)).status_code == 200
        assert made.server.statistics().http[0].unanswered == 0
    assert ran == [8]


async def test_a_request_that_is_cancelled_before_its_stream_began_gets_202() -> None:
    async with session() as (made, raw), trio.open_nursery() as nursery:

        async def cancel() -> None:
            await made.started.wait()
            await raw.notify("notifications/cancelled", {"requestId": 1})

        nursery.start_soon(cancel)
        async with raw.call("wait") as r:
            assert (r.status_code, await r.aread()) == (202, b"")


async def test_an_id_in_use_is_refused_and_the_request_that_has_it_is_answered() -> None:
    async with session() as (made, raw), raw.call("wait", {"progress": 1}, id=3) as r:
        events = Events(r)
        await events.message()
        refused = await raw.post("ping", id=3)
        assert refused.status_code == 400
        assert refused.json()["error"]["code"] == types.INVALID_REQUEST
        made.go.set()
        assert (await events.message())["id"] == 3


async def test_a_batch_is_answered_as_one_in_2025_03_26() -> None:
    """2025-03-26 `basic/transports`: a batch of requests is answered with a batch, or on one stream."""
    async with session(revision="2025-03-26") as (_, raw):
        call = {"name": "add", "arguments": {"a": 1, "b": 2}}
        body = [
            request("ping", None, 1),
            request("tools/call", call, 2),
            {"jsonrpc": "2.0", "method": "notifications/x"},
        ]
        r = await raw.send(body)
        assert {each["id"] for each in r.json()} == {1, 2}
        assert (await raw.send([{"jsonrpc": "2.0", "method": "notifications/x"}])).status_code == 202
        twice = [request("ping", None, 1), request("ping", None, 1)]
        assert (await raw.send(twice)).status_code == 400


@pytest.mark.parametrize("rest", [[], [{"jsonrpc": "2.0", "method": "notifications/x"}]])
async def test_a_batch_of_nothing_but_faults_is_answered(rest: list[Any]) -> None:
    """JSON-RPC 2.0, 6: each with an error response. The batch has no request to tie the response to."""
    async with session(revision="2025-03-26") as (_, raw):
        r = await raw.send([1, {"jsonrpc": "2.0", "id": 7, "method": 7}, *rest])
        assert r.status_code == 400
        assert [(each.get("id"), each["error"]["code"]) for each in r.json()] == [(None, -32600), (7, -32600)]


async def test_sessions_are_bounded() -> None:
    async with served(HttpOptions(max_sessions=2)) as (_, http, _):
        raw = [Raw(http) for _ in range(3)]
        await raw[0].initialize()
        await raw[1].initialize()
        r = await raw[2].post("initialize", {})
        assert (r.status_code, r.json()["error"]["code"]) == (503, types.OVERLOADED)
        assert "retry-after" in r.headers
        await http.delete("/mcp", headers=raw[0].headers())
        await raw[2].initialize()


async def test_an_unread_stream_holds_up_no_other() -> None:
    """The router never waits for a stream: only the handler whose stream is full waits."""
    async with session() as (_, raw), raw.call("count", {"to": 1_000_000}) as stalled:
        assert stalled.status_code == 200
        for number in range(20):
            call = {"name": "add", "arguments": {"a": number, "b": 1}}
            assert (await raw.post("tools/call", call, id=100 + number)).json()["result"]["structuredContent"]


async def test_a_malformed_response_fails_its_call() -> None:
    """A malformed result settles nothing, so the call would otherwise wait forever."""
    async with session(elicitation={}) as (_, raw), raw.call("greet") as r:
        events = Events(r)
        asked = await events.message()
        assert (await raw.send({"jsonrpc": "2.0", "id": asked["id"], "result": 5})).status_code == 400
        answer: Any = await events.message()
        assert "error" in answer or answer["result"]["isError"]


async def test_faults_in_a_row_end_a_session(monkeypatch: pytest.MonkeyPatch) -> None:
    """What belongs to no session, such as a POST that is not JSON, is refused without being counted."""
    monkeypatch.setattr("trio_mcp.session.session.BaseSession.max_faults", 5)
    stray = {"jsonrpc": "2.0", "id": "x", "result": {}}
    async with session() as (_, raw):
        for _ in range(10):
            assert (await raw.http.post("/mcp", content=b"{", headers=raw.headers())).status_code >= 400
        for _ in range(4):
            assert (await raw.send(stray)).status_code == 202
        assert (await raw.post("ping")).status_code == 200
        for _ in range(5):
            assert (await raw.send(stray)).status_code == 202
        assert (await raw.post("ping")).status_code == 404


async def test_a_stream_for_other_messages_is_the_last_response_of_its_connection() -> None:
    """It ends with the server: a client that used the connection again just then would lose a request."""
    async with session() as (_, raw), raw.listen() as r:
        assert r.headers["connection"] == "close"


async def test_a_call_on_the_connection_of_a_response_that_outlasts_the_farewell_is_served(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its process is one of several, and the response has promised another request before the end began."""
    monkeypatch.setattr(serving, "FAREWELL", 0.1)
    monkeypatch.setattr(serving, "PROMISED", 60.0)
    made, stop, options = Made(), trio.Event(), {"options": HttpOptions(runner=chosen.runner(), grace=60)}
    add = {"name": "add", "arguments": {"a": 1, "b": 2}}
    with trio.fail_after(120), listening("127.0.0.1", 0, options) as (sockets, url, _):
        async with trio.open_nursery() as nursery:
            core = made.server._core  # noqa: SLF001
            await nursery.start(partial(serve_http, core, "127.0.0.1", 0, stop, settings=options, sockets=sockets))
            limits = httpx.Limits(max_connections=1)
            async with httpx.AsyncClient(base_url=url.removesuffix("/mcp"), limits=limits, timeout=30) as http:
                raw = Raw(http)
                await raw.initialize()
                async with raw.call("wait", {"progress": 1}) as r:
                    assert "connection" not in r.headers
                    events = Events(r)
                    await events.message()
                    stop.set()
                    (run,) = core.settings.runs
                    await eventually(lambda: run.endpoints[0]().ending)
                    made.go.set()
                    await events.messages()
                answered = await raw.post("tools/call", add, id=2)
                assert (answered.status_code, answered.headers["connection"]) == (200, "close")
                assert answered.json()["result"]["structuredContent"] == {"result": 3}
