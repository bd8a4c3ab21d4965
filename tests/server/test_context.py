"""What a handler knows of its request, client and caller, and what it can tell the client while it runs."""

from __future__ import annotations

import contextlib
import json
import math
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Annotated, Any, Optional, Union

import attrs
import httpx
import pytest
import trio
from typing_extensions import TypeAliasType

from tests.peer import client_peer
from tests.server.harness import LEGACY, MODERN, both_eras, call, client_of, every_revision, server_with, tool_of
from tests.server.input_harness import hand_client, text_of
from trio_mcp import Client, Context, McpError, Principal, Server, TraceContext, types
from trio_mcp.low_level import streamable_http_client
from trio_mcp.types.error_codes import MISSING_REQUIRED_CLIENT_CAPABILITY

if TYPE_CHECKING:
    from trio_mcp import Context as TypeCheckersContext


@pytest.mark.parametrize("default", [(), (None,)], ids=["required", "optional"])
@pytest.mark.parametrize(
    "annotation",
    [
        Context,
        Optional[Context],  # noqa: UP045
        Union[None, Context],  # noqa: UP007
        Context | None,
        Context[int],
        Context[int] | None,
        Annotated[Context, "a note"],
        "Context",
        TypeAliasType("Alias", Context[int] | None),
    ],
    ids=str,
)
async def test_a_parameter_annotated_as_context_is_filled_and_hidden(annotation: Any, default: Any) -> None:
    def function(ctx: Any) -> str:
        return str(ctx.method)

    function.__annotations__["ctx"] = annotation
    function.__defaults__ = default
    assert tool_of(function).input_schema["properties"] == {}
    assert (await call(function, {})).data == "tools/call"
    assert (await call(function, {"ctx": 1})).is_error


class Own(Context[int]):
    pass


def test_a_subclass_of_context_is_refused() -> None:
    """The server would fill in a plain Context, and the first use of what the subclass adds would fail."""

    def function(ctx: Own) -> None: ...

    with pytest.raises(TypeError, match="the parameter 'ctx' can't be described"):
        server_with(function)


async def test_context_may_be_imported_for_type_checkers_only() -> None:
    """Linters ask for that; the name is enough."""

    namespace: dict[str, Any] = {}
    exec("def function(ctx: 'Context', x: int = 1) -> str:\n    return ctx.method\n", namespace)
    assert list(tool_of(namespace["function"]).input_schema["properties"]) == ["x"]
    assert (await call(namespace["function"], {})).data == "tools/call"


def test_any_other_name_imported_for_type_checkers_only_is_refused() -> None:
    def function(ctx: TypeCheckersContext) -> None: ...

    with pytest.raises(TypeError, match="can't be resolved"):
        server_with(function)


@every_revision
async def test_what_a_handler_knows_of_the_request(revision: str) -> None:
    def tool(ctx: Context) -> dict[str, Any]:
        assert ctx.client_info is not None
        return {
            "id": ctx.request_id,
            "meta": {key: value for key, value in ctx.meta.items() if key.startswith("example.com/")},
            "version": ctx.protocol_version,
            "client": ctx.client_info.name,
            "capabilities": ctx.client_capabilities,
            "params": ctx.params["arguments"],
            "transport": dict(ctx.transport_metadata),
            "state": ctx.state,
        }

    info = types.Implementation(name="tester", version="1")
    async with client_of(server_with(tool), revision, client_info=info) as client:
        result = await client.call_tool("tool", {}, meta={"example.com/trace": "x"})
    (block,) = result.content
    known = json.loads(block.text)
    assert isinstance(known.pop("id"), int | str)
    assert known == {
        "meta": {"example.com/trace": "x"},
        "version": revision,
        "client": "tester",
        "capabilities": {},
        "params": {},
        "transport": {},
        "state": None,
    }


def who(ctx: Context) -> str:
    return repr(ctx.client_info and ctx.client_info.name)


@both_eras
@pytest.mark.parametrize("info", [None, {}, {"name": 3, "version": "1"}, {"version": "1"}])
async def test_a_missing_or_malformed_client_info_reads_as_none(
    info: dict[str, Any] | None, revision: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is display data, which must not fail a call."""
    monkeypatch.setattr("tests.peer.ME", info if revision == MODERN else info or {})
    async with client_peer(server_with(who), revision) as peer:
        assert (await peer.call("who"))["content"] == [{"type": "text", "text": "None"}]


@both_eras
@pytest.mark.parametrize(
    ("declared", "asked", "missing"),
    [
        ({}, "sampling", {"sampling": {}}),
        ({"sampling": {}}, "sampling.tools", {"sampling": {"tools": {}}}),
        ({"elicitation": {}}, "sampling.tools", {"sampling": {"tools": {}}}),
        ({"roots": {"listChanged": False}}, "roots.listChanged", {"roots": {"listChanged": {}}}),
        ({"sampling": {}}, "sampling", None),
        ({"sampling": {"tools": {}}}, "sampling.tools", None),
        ({"roots": {"listChanged": True}}, "roots.listChanged", None),
    ],
)
async def test_a_missing_client_capability_refuses_the_request(
    revision: str, declared: Any, asked: str, missing: Any
) -> None:
    """2026-07-28 `basic/index`: -32021 and, in the data, what is missing in the form in which it is declared."""

    def tool(ctx: Context) -> str:
        ctx.require_client_capability(asked)
        return "fine"

    async with client_peer(server_with(tool), revision, declared) as peer:
        if missing is None:
            assert (await peer.call("tool"))["content"] == [{"type": "text", "text": "fine"}]
        else:
            error = await peer.error("tools/call", {"name": "tool"})
            assert error.code == MISSING_REQUIRED_CLIENT_CAPABILITY
            assert error.data == {"requiredCapabilities": missing}


async def progress_of(tool: Any, revision: str) -> list[types.ProgressNotificationParams]:
    seen: list[types.ProgressNotificationParams] = []
    async with client_of(server_with(tool), revision) as client:
        assert not (await client.call_tool(tool.__name__, on_progress=seen.append)).is_error
        return list(seen)  # no more may come


@pytest.mark.parametrize(("revision", "word"), [("2024-11-05", None), ("2025-03-26", "a word"), (MODERN, "a word")])
async def test_progress_that_does_not_grow_is_not_sent(revision: str, word: str | None) -> None:
    """`basic/patterns/progress`: it MUST increase with each notification. It has a message since 2025-03-26."""

    async def tool(ctx: Context) -> None:
        for done in (1, 1.0, 0, 2.5, 2, 3):
            await ctx.report_progress(done, message="a word")

    seen = await progress_of(tool, revision)
    assert [(each.progress, each.message) for each in seen] == [(done, word) for done in (1, 2.5, 3)]


@pytest.mark.parametrize(("progress", "total"), [("1", None), (True, None), (math.nan, None), (1, math.inf), (1, "2")])
async def test_progress_that_is_not_a_number_is_refused(progress: Any, total: Any) -> None:
    async def tool(ctx: Context) -> str:
        with pytest.raises((TypeError, ValueError), match="must be"):
            await ctx.report_progress(progress, total)
        return "refused"

    async with client_of(server_with(tool), "2026-07-28") as client:
        assert (await client.call_tool("tool")).data == "refused"


# --- on whose behalf a request is made -------------------------------------------------------------------------------


ANN = Principal("ann", "https://id.example.com", "app", {"read"})


def server_of(principal: Any, **options: Any) -> Server:
    inner, server = Server("inner"), Server("test", principal=principal, **options)

    async def who(ctx: Context) -> str:
        return repr(ctx.principal)

    server.add_tool(who)
    inner.add_tool(who)
    server.mount(inner, prefix="inner")
    return server


@both_eras
@pytest.mark.parametrize(("said", "seen"), [("ann", Principal("ann")), (ANN, ANN), (None, None)])
async def test_every_handler_sees_it_and_it_is_asked_for_once(revision: str, said: Any, seen: Any) -> None:
    asked: list[str] = []
    before: list[Any] = []

    async def middleware(context: Context, call_next: Any) -> Any:
        before.append(context.principal)
        return await call_next()

    server = server_of(lambda ctx: asked.append(ctx.method) or said, middleware=[middleware])
    async with client_of(server, revision) as client:
        for tool in ("who", "inner__who"):
            assert (await client.call_tool(tool)).structured_content == {"result": repr(seen)}
    assert asked.count("tools/call") == 2
    assert set(before) == {seen}


def refuse(ctx: Context) -> str:
    raise McpError(-31401, "who are you?")


@pytest.mark.parametrize(
    ("principal", "code", "logged"),
    [
        (refuse, -31401, None),
        (lambda ctx: 1 / 0, -32603, "division by zero"),
        (lambda ctx: 5, -32603, r"what Server(principal=…) returns must be a string, a Principal or None, got int"),
        (lambda ctx: "", -32603, "the subject of a Principal must be a non-empty string, got ''"),
    ],
)
async def test_without_an_answer_no_handler_runs(
    principal: Any, code: int, logged: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    """A request whose caller could not be found out is not one of an unknown caller."""
    async with client_of(server_of(principal)) as client:
        with pytest.raises(McpError) as caught:
            await client.call_tool("who")
    assert caught.value.code == code
    assert (logged or "") in caplog.text
    assert logged is None or logged not in str(caught.value)


@pytest.mark.parametrize("park", [True, False])
@pytest.mark.parametrize(
    ("back", "resumed"),
    [
        (attrs.evolve(ANN, scopes={"read", "write"}), True),
        (Principal("ann"), False),
        (attrs.evolve(ANN, client_id="other"), False),
        (None, False),
    ],
)
async def test_only_the_same_identity_resumes_a_request(park: bool, back: Any, resumed: bool) -> None:
    who: list[Any] = [ANN]

    async def roots(ctx: Context) -> str:
        await ctx.list_roots()
        return repr(ctx.principal)

    params = {"name": "roots", "arguments": {}}
    async with hand_client(server_with(roots, park_input=park, principal=lambda ctx: who[-1])) as client:
        asked = await client.ask("tools/call", params)
        who.append(back)
        answers = {"inputResponses": {"input-1": {"roots": []}}, "requestState": asked["requestState"]}
        result = await client.ask("tools/call", params | answers)
    if resumed:
        assert text_of(result) == repr(back)
    else:
        assert "not valid for this request" in result.message


def test_a_principal_checks_its_parts() -> None:
    assert Principal("ann", scopes=["b", "a"]) == Principal("ann", scopes={"a", "b"})
    for wrong in ({"subject": 5}, {"subject": "a", "issuer": ""}, {"subject": "a", "scopes": "read"}):
        with pytest.raises((TypeError, ValueError), match="of a Principal must be"):
            Principal(**wrong)  # type: ignore[arg-type]


# --- the trace of a request goes on with the requests that its handler makes (SEP-414) -------------------------------


TRACE = TraceContext("00-0af7651916cd43dd8448eb211c80319c-00f067aa0ba902b7-01", "a=1", "user=alice")
STARTED = TraceContext("00-33333333333333333333333333333333-4444444444444444-01")
OTHER = TraceContext("00-11111111111111111111111111111111-2222222222222222-00")


def inner_server(seen: list[TraceContext | None]) -> Server:
    server = Server("inner")

    @server.tool
    async def look(ctx: Context) -> None:
        assert TraceContext.current() == ctx.trace_context
        seen.append(ctx.trace_context)

    return server


def outer_server(inner: Server, revision: str) -> Server:
    """Return a server whose tools call another server, in every way a handler may."""

    @contextlib.asynccontextmanager
    async def lifespan(server: Server) -> AsyncIterator[Client]:
        async with Client(inner, mode=revision) as client:
            yield client

    server = Server("outer", lifespan=lifespan)

    @server.tool
    async def own_task(ctx: Context[Client]) -> None:
        await ctx.state.call_tool("look")

    @server.tool
    async def child_tasks(ctx: Context[Client]) -> None:
        async with trio.open_nursery() as nursery:
            for _ in range(2):
                nursery.start_soon(ctx.state.call_tool, "look")

    @server.tool
    def sync_thread(ctx: Context[Client]) -> None:
        trio.from_thread.run(ctx.state.call_tool, "look")

    @server.tool
    async def client_of_its_own() -> None:
        async with Client(inner, mode=revision) as client:
            await client.call_tool("look")

    return server


@both_eras
@pytest.mark.parametrize("way", ["own_task", "child_tasks", "sync_thread", "client_of_its_own"])
async def test_a_server_that_calls_another_passes_the_trace_of_the_request_on(revision: str, way: str) -> None:
    """It never passes on the one in which it was started itself."""
    seen: list[TraceContext | None] = []
    with STARTED.use():
        async with client_of(outer_server(inner_server(seen), revision), revision) as client:
            with TRACE.use():
                await client.call_tool(way)
            await client.call_tool(way, meta=OTHER.to_meta())
            await client.request("tools/call", {"name": way, "_meta": {"traceparent": "broken"}})
    count = 2 if way == "child_tasks" else 1
    assert seen == [TRACE] * count + [OTHER] * count + [None] * count


async def test_headers_are_those_of_http_with_names_in_lower_case() -> None:
    seen: list[Any] = []

    async def tool(ctx: Context) -> None:
        seen.append(ctx.headers)

    server = server_with(tool)
    async with client_of(server) as client:
        await client.call_tool("tool")
    async with server.asgi_app(allowed_hosts=["test"]) as app:
        headers = [("X-User", "ann"), ("x-many", "1"), ("X-Many", "2"), ("Cookie", "a=1"), ("cookie", "b=2")]
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app=app), headers=headers) as http:
            for revision in (LEGACY, MODERN):
                async with Client(
                    lambda: streamable_http_client("http://test/mcp", http_client=http), mode=revision
                ) as client:
                    await client.call_tool("tool")
    assert seen[0] == {}
    for each in seen[1:]:
        assert (each["x-user"], each["x-many"], each["cookie"]) == ("ann", "1, 2", "a=1; b=2")
        assert all(name == name.lower() for name in each)
        with pytest.raises(TypeError):
            each["x-user"] = "bob"
    assert len(seen) == 3


@both_eras
async def test_shortcuts_of_log(revision: str) -> None:
    told: list[Any] = []

    async def tool(ctx: Context) -> None:
        await ctx.debug({"n": 1})
        await ctx.info("two", "own")
        await ctx.warning("three", logger="own")
        await ctx.error("four")

    def note(message: Any) -> None:
        told.append((message.level, message.data, message.logger))

    async with client_of(server_with(tool), revision, log_level="debug", on_log=note) as client:
        await client.call_tool("tool")
    assert told == [
        ("debug", {"n": 1}, None),
        ("info", "two", "own"),
        ("warning", "three", "own"),
        ("error", "four", None),
    ]


async def counted(ctx: Context) -> int:
    ctx.session_state["calls"] = ctx.session_state.get("calls", 0) + 1
    calls: int = ctx.session_state["calls"]
    return calls


async def test_session_state_lasts_as_long_as_a_legacy_session() -> None:
    server, inner = server_with(counted), server_with(counted)
    server.mount(inner, prefix="inner")
    async with (
        server.asgi_app(allowed_hosts=["test"]) as app,
        httpx.AsyncClient(transport=httpx.ASGITransport(app=app)) as http,
    ):
        targets = [server, server, lambda: streamable_http_client("http://test/mcp", http_client=http)]
        for target in targets:
            async with Client(target, mode=LEGACY) as client:
                assert [(await client.call_tool("counted")).data for _ in range(3)] == [1, 2, 3]
                assert (await client.call_tool("inner__counted")).data == 4


@pytest.mark.parametrize("how", ["modern", "modern over HTTP", "stateless"])
async def test_without_a_session_its_state_is_refused_with_advice(how: str, caplog: pytest.LogCaptureFixture) -> None:
    server = server_with(counted)
    async with contextlib.AsyncExitStack() as stack:
        target: Any = server
        if how != "modern":
            app = await stack.enter_async_context(server.asgi_app(allowed_hosts=["test"], stateless=how == "stateless"))
            http = await stack.enter_async_context(httpx.AsyncClient(transport=httpx.ASGITransport(app=app)))
            target = lambda: streamable_http_client("http://test/mcp", http_client=http)  # noqa: E731
        revision = LEGACY if how == "stateless" else MODERN
        client = await stack.enter_async_context(Client(target, mode=revision))
        assert (await client.call_tool("counted")).is_error
    (record,) = (each for each in caplog.records if each.name == "trio_mcp")
    assert record.exc_info is not None
    assert f"this request (protocol {revision}) belongs to no session, so it has no session state" in str(
        record.exc_info[1]
    )
