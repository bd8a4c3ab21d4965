"""What a client can ask a server for: what each call sends, gives and refuses (`server/*`; `basic`, section _meta)."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import date
from typing import Any

import attrs
import pytest
import trio
import trio.testing
from pydantic import BaseModel

from tests.client.scripted import scripted, sent
from tests.client.servers import make_server
from tests.waiting import eventually
from trio_mcp import (
    CapabilityError,
    Client,
    Context,
    LocalProtocolError,
    McpError,
    RemoteProtocolError,
    RequestTimeout,
    Server,
    ToolResult,
)
from trio_mcp.client.tool_results import OutputSchemas
from trio_mcp.errors import TransportError
from trio_mcp.jsonrpc.messages import ErrorData, Notification
from trio_mcp.types import ListToolsResult, PromptReference, ResourceTemplateReference, Tool, meta
from trio_mcp.types.versions import REVISIONS

EVERYTHING: dict[str, Any] = {"tools": {}, "prompts": {}, "resources": {"subscribe": True}, "completions": {}}
OLDEST, LEGACY, MODERN = "2024-11-05", "2025-11-25", "2026-07-28"
eras = pytest.mark.parametrize("revision", [OLDEST, LEGACY, MODERN])
PROMPT, TEMPLATE = PromptReference(name="review"), ResourceTemplateReference(uri="file:///{path}")


@attrs.frozen
class Call:
    """A call of a client's, the parameters that it sends, and the smallest answer to it."""

    method: str
    make: Callable[..., Awaitable[Any]]
    params: dict[str, Any]
    answer: dict[str, Any]
    capability: str


def _call(method: str, name: str, given: Any, params: dict[str, Any], answer: dict[str, Any], capability: str) -> Call:
    def make(client: Client, **more: Any) -> Any:
        return getattr(client, name)(*given, **more)

    return Call(method, make, params, {"ttlMs": 0, "cacheScope": "private", **answer}, capability)


COMPLETED: dict[str, Any] = {"completion": {"values": ["python", "pytorch"], "total": 10, "hasMore": True}}
URI = {"uri": "file:///a"}
LANGUAGE = {"ref": {"type": "ref/prompt", "name": "review"}, "argument": {"name": "language", "value": "py"}}
PATH = {"ref": {"type": "ref/resource", "uri": "file:///{path}"}, "argument": {"name": "path", "value": ""}}
NAME, GIVEN = {"name": "x"}, {"name": "x", "arguments": {"a": "1"}}
COMPLETE = ("completion/complete", "complete")
CALLS: dict[str, Call] = {
    "a tool": _call("tools/call", "call_tool", ("x", {"a": "1"}), GIVEN, {"content": []}, "tools"),
    "a prompt": _call("prompts/get", "get_prompt", ("x", {"a": "1"}), GIVEN, {"messages": []}, "prompts"),
    "a prompt alone": _call("prompts/get", "get_prompt", ("x",), NAME, {"messages": []}, "prompts"),
    "a resource": _call("resources/read", "read_resource", ("file:///a",), URI, {"contents": []}, "resources"),
    "of a prompt": _call(*COMPLETE, (PROMPT, "language", "py"), LANGUAGE, COMPLETED, "completions"),
    "of a template": _call(*COMPLETE, (TEMPLATE, "path"), PATH, COMPLETED, "completions"),
}
WATCHES: dict[str, Call] = {
    each: _call(f"resources/{each}", f"{each}_resource", ("file:///a",), URI, {}, "resources.subscribe")
    for each in ("subscribe", "unsubscribe")
}
LISTS: dict[str, Call] = {
    name: _call(f"{path}/list", f"list_{name}", (), {}, {key: []}, path.partition("/")[0])
    for name, path, key in (
        ("prompts", "prompts", "prompts"),
        ("resources", "resources", "resources"),
        ("resource_templates", "resources/templates", "resourceTemplates"),
    )
}
ITEMS: dict[str, tuple[str, str, Callable[[str], dict[str, Any]]]] = {
    "tools": ("tools/list", "tools", lambda name: {"name": name, "inputSchema": {"type": "object"}}),
    "prompts": ("prompts/list", "prompts", lambda name: {"name": name}),
    "resources": ("resources/list", "resources", lambda name: {"name": name, "uri": f"file:///{name}"}),
    "resource_templates": (
        "resources/templates/list",
        "resourceTemplates",
        lambda name: {"name": name, "uriTemplate": f"file:///{name}/{{id}}"},
    ),
}


def each(calls: dict[str, Call]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("call", calls.values(), ids=calls)


def answering(*calls: Call, revision: str = LEGACY, **more: Any) -> Any:
    """Return a client whose server gives these calls their answers."""
    arguments = {"capabilities": EVERYTHING, **more}
    return scripted({call.method: call.answer for call in calls}, revision=revision, **arguments)


@eras
@each({**CALLS, **LISTS})
async def test_it_is_sent_with_its_parameters(call: Call, revision: str) -> None:
    async with answering(call, revision=revision) as (client, asked, _):
        await call.make(client)
    assert [(request.method, sent(request)) for request in asked] == [(call.method, call.params)]


@each({**CALLS, **LISTS, **WATCHES})
@pytest.mark.parametrize("revision", [LEGACY, MODERN])
async def test_without_the_capability_nothing_is_sent(call: Call, revision: str) -> None:
    declared: dict[str, Any] = {
        "logging": {},
        **({"resources": {}} if call.capability == "resources.subscribe" else {}),
    }
    async with answering(call, revision=revision, capabilities=declared) as (client, asked, _):
        if revision == MODERN and call in WATCHES.values():
            with pytest.raises(LocalProtocolError, match=f"'{call.method}' is not a method of revision 2026-07-28"):
                await call.make(client)
        elif call.capability != "tools":  # a tool may be there all the same
            with pytest.raises(CapabilityError, match=f"server capability '{call.capability}'"):
                await call.make(client)
    assert asked == []


@pytest.mark.parametrize("kind", ITEMS)
@pytest.mark.parametrize("revision", [LEGACY, MODERN])
async def test_walking_what_a_server_does_not_offer_is_empty(kind: str, revision: str) -> None:
    """A host asks each server for everything; `list_…` raises, as its caller asks for one thing."""
    async with scripted({}, revision=revision, capabilities={"logging": {}}) as (client, asked, _):
        with trio.testing.assert_checkpoints():
            assert [item async for item in getattr(client, f"iter_{kind}")()] == []
        with pytest.raises(CapabilityError):
            await getattr(client, f"list_{kind}")()
    assert asked == []


@pytest.mark.parametrize("kind", ITEMS)
async def test_iterating_over_a_page_yields_its_items(kind: str) -> None:
    method, key, item = ITEMS[kind]
    answer = {key: [item("a"), item("b")], "nextCursor": "2"}
    async with scripted({method: answer}, revision=LEGACY, capabilities=EVERYTHING) as (client, _, _wire):
        page = await getattr(client, f"list_{kind}")()
        assert [each.name for each in page] == ["a", "b"]
        assert list(page) == getattr(page, kind)
    # The methods of pydantic do not rest on the iteration.
    assert page == type(page).from_wire(answer)
    assert page == page.model_copy()
    assert page.model_copy(deep=True).to_wire() == answer
    assert "next_cursor='2'" in repr(page)
    assert page.model_dump()["nextCursor"] == "2"


@each({**CALLS, **LISTS, **WATCHES})
async def test_it_can_be_limited_in_time(call: Call, autojump_clock: Any) -> None:
    long = call.method in ("tools/call", "prompts/get", "resources/read")
    async with scripted({}, capabilities=EVERYTHING) as (client, _, _wire):
        for limit in ("timeout", "total_timeout") if long else ("timeout",):
            with pytest.raises(RequestTimeout) as caught:
                await call.make(client, **{limit: 3})
            assert (caught.value.method, caught.value.seconds) == (call.method, 3)


@each({**CALLS, **LISTS})
async def test_a_refusal_and_a_malformed_answer_cost_one_call(call: Call) -> None:
    answers = iter([ErrorData(-32002, "not found", {"a": 1}), {**dict.fromkeys(call.answer, 5)}, call.answer])
    async with scripted({call.method: lambda _: next(answers)}, capabilities=EVERYTHING) as (client, _, _wire):
        with pytest.raises(McpError) as refused:
            await call.make(client)
        assert (refused.value.code, refused.value.message, refused.value.data) == (-32002, "not found", {"a": 1})
        with pytest.raises(RemoteProtocolError, match=r"is not a valid \w+Result: "):
            await call.make(client)
        await call.make(client)


WRONG: dict[str, tuple[Any, str]] = {
    "a list for a prompt": (lambda c: c.get_prompt("x", ["n"]), "arguments must be a mapping of strings, got list"),
    "a number for a prompt": (lambda c: c.get_prompt("x", {"n": 7}), "arguments must be a mapping of strings, got 'n'"),
    "a prompt's name": (lambda c: c.get_prompt(7), "a prompt's name must be a string"),
    "a tool's name": (lambda c: c.call_tool(7), "a tool's name must be a string"),
    "a list for a tool": (lambda c: c.call_tool("x", [1]), "arguments must be a mapping"),
    "no JSON for a tool": (lambda c: c.call_tool("x", {"a": object()}), "arguments of 'x' can't be turned into JSON"),
    "read": (lambda c: c.read_resource(7), "a URI must be a string, got 7"),
    "a reference": (
        lambda c: c.complete("x", "n"),
        "ref must be a PromptReference or a ResourceTemplateReference, got",
    ),
    "what is completed": (lambda c: c.complete(PROMPT, "n", 7), "must be strings, got 'n', 7"),
    "a context": (lambda c: c.complete(PROMPT, "n", context={"a": 1}), "context must be a mapping of strings"),
}


@pytest.mark.parametrize(("make", "match"), WRONG.values(), ids=WRONG)
async def test_a_wrong_argument_is_refused_and_nothing_is_sent(make: Any, match: str) -> None:
    async with answering() as (client, asked, _):
        with pytest.raises(TypeError, match=match):
            await make(client)
    assert asked == []


# --- what comes back -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("revision", REVISIONS)
async def test_a_completion_has_its_values_and_its_context_goes_to_those_who_know_it(revision: str) -> None:
    """`context` came with 2025-06-18; before, the request is made without it. 2024-11-05 has no capability for it."""
    declared = {} if revision == OLDEST else EVERYTHING
    call = CALLS["of a prompt"]
    async with answering(call, revision=revision, capabilities=declared) as (client, asked, _):
        found = (await call.make(client, context={"language": "python"})).completion
    assert (found.values, found.total, found.has_more) == (["python", "pytorch"], 10, True)
    expected = {"arguments": {"language": "python"}} if revision >= "2025-06-18" else None
    assert sent(asked[0]).get("context") == expected


@eras
@pytest.mark.parametrize("kind", ITEMS)
async def test_lists_come_page_by_page_and_all_at_once(kind: str, revision: str) -> None:
    method, key, make = ITEMS[kind]
    found = [["a", "b"], [], ["c"]]

    def answer(params: dict[str, Any]) -> dict[str, Any]:
        number = int(params.get("cursor", 0))
        more = {"nextCursor": str(number + 1)} if number < 2 else {}
        return {key: [make(name) for name in found[number]], **more}

    async with scripted({method: answer}, revision=revision, capabilities=EVERYTHING) as (client, asked, _):
        pages = [await getattr(client, f"list_{kind}")(*cursor) for cursor in ([], ["1"], ["2"])]
        assert [[each.name for each in getattr(page, kind)] for page in pages] == found
        assert [page.next_cursor for page in pages] == ["1", "2", None]
        assert [each.name async for each in getattr(client, f"iter_{kind}")()] == ["a", "b", "c"]
    assert [sent(request) for request in asked] == [{}, {"cursor": "1"}, {"cursor": "2"}] * 2


@pytest.mark.parametrize("kind", ITEMS)
async def test_a_list_without_end_is_given_up(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trio_mcp.client.listing.MAX_PAGES", 4)
    method, key, _ = ITEMS[kind]
    answers = {method: {key: [], "nextCursor": "again"}}
    async with scripted(answers, capabilities=EVERYTHING) as (client, asked, _):
        with pytest.raises(RemoteProtocolError, match=f"list of {kind.replace('_', ' ')} has more than 4 pages"):
            async for _item in getattr(client, f"iter_{kind}")():
                pass
    assert len(asked) == 4


@pytest.mark.parametrize("kind", ITEMS)
async def test_each_page_of_a_list_is_limited_in_time(kind: str, autojump_clock: Any) -> None:
    async with scripted({}, capabilities=EVERYTHING) as (client, _, _wire):
        with pytest.raises(RequestTimeout):
            await anext(aiter(getattr(client, f"iter_{kind}")(timeout=3)))


async def test_updates_of_a_watched_resource_reach_on_message() -> None:
    updates: list[Any] = []
    update = Notification("notifications/resources/updated", {"uri": "file:///a"})
    async with answering(*WATCHES.values(), on_message=updates.append) as (client, asked, wire):
        await client.subscribe_resource("file:///a")
        await wire.send(update)
        await trio.testing.wait_all_tasks_blocked()
        await client.unsubscribe_resource("file:///a")
    assert updates == [update]
    assert [(request.method, request.params) for request in asked] == [
        ("resources/subscribe", URI),
        ("resources/unsubscribe", URI),
    ]


@pytest.mark.parametrize("mode", ["legacy", "auto"])
async def test_reading_a_resource_tells_of_its_progress(mode: str) -> None:
    progress: list[float] = []

    @(server := Server("library")).resource("lib://slow")
    async def slow(ctx: Context) -> str:
        await ctx.report_progress(1, 2)
        return "x"

    async with Client(server, mode=mode) as client:
        await client.read_resource("lib://slow", on_progress=lambda told: progress.append(told.progress))
    assert progress == [1]


# --- `meta=`: what a caller adds to the `_meta` of a request -------------------------------------------------------


@each(CALLS)
@pytest.mark.parametrize("revision", [LEGACY, MODERN])
async def test_meta_travels_beside_what_the_era_adds(call: Call, revision: str) -> None:
    given = {"com.example/x": [1], meta.LOG_LEVEL: "debug", "io.modelcontextprotocol/ui": 2}
    async with answering(call, revision=revision) as (client, asked, _):
        await call.make(client, meta=given)
    found = (asked[0].params or {})["_meta"]
    assert given.items() <= found.items()
    assert (meta.PROTOCOL_VERSION in found) is (revision == MODERN)


@each(CALLS)
async def test_a_bad_key_of_meta_is_refused_and_nothing_is_sent(call: Call) -> None:
    async with answering(call, revision=MODERN) as (client, asked, _):
        rules = {"_x": "is malformed", "com.mcp/x": "is reserved", "progressToken": "pass on_progress"}
        for key, rule in rules.items():
            with pytest.raises(ValueError, match=f"the _meta key {key!r}.*{rule}"):
                await call.make(client, meta={key: 1})
        with pytest.raises(TypeError, match="meta must be a mapping"):
            await call.make(client, meta=5)
    assert asked == []


@pytest.mark.parametrize(
    ("revision", "reserved", "other"), [("2025-06-18", "mcp.dev/x", "dev.mcp/x"), (LEGACY, "dev.mcp/x", "mcp.dev/x")]
)
async def test_a_key_of_meta_is_reserved_by_the_revision_that_is_spoken(
    revision: str, reserved: str, other: str
) -> None:
    async with answering(CALLS["a tool"], revision=revision) as (client, asked, _):
        with pytest.raises(ValueError, match=f"is reserved: {revision} reserves"):
            await client.call_tool("x", meta={reserved: 1})
        await client.call_tool("x", meta={other: 1})
    assert len(asked) == 1


async def test_results_with_odd_keys_of_meta_are_taken() -> None:
    """A peer's message is never refused because of a key."""
    odd = {"-x": 1, "com.mcp/x": 2}
    async with scripted({"tools/call": {"content": [], "_meta": odd}}, capabilities=EVERYTHING) as (client, _, _wire):
        assert (await client.call_tool("x")).meta == odd


# --- tools -----------------------------------------------------------------------------------------------------------


async def test_arguments_are_anything_that_has_a_json_form() -> None:
    server = Server("x")

    class Point(BaseModel):
        x: int

    @server.tool
    async def show(point: dict[str, Any], day: str, numbers: list[int]) -> list[Any]:
        return [point, day, numbers]

    async with Client(server) as client:
        arguments = {"point": Point(x=1), "day": date(2026, 7, 28), "numbers": (1, 2)}
        assert (await client.call_tool("show", arguments)).data == [{"x": 1}, "2026-07-28", [1, 2]]


def offering(*tools: dict[str, Any], **results: Any) -> contextlib.AbstractAsyncContextManager[Any]:
    """Return a client whose server is a script: these tools, and for each name these results of calls."""
    answers = {"tools/list": {"tools": list(tools)}, "tools/call": lambda params: results[params["name"]]}
    return scripted(answers, capabilities={"tools": {}})


NUMBER = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}


def tool(name: str, output: Any = None) -> dict[str, Any]:
    return {"name": name, "inputSchema": {"type": "object"}, **({"outputSchema": output} if output else {})}


def structured(value: Any) -> dict[str, Any]:
    return {"content": [], "structuredContent": value}


async def test_structured_content_is_checked_by_the_output_schema_that_is_known_until_it_changes() -> None:
    """What breaks it is the server's fault; error results are not checked."""
    bad = structured({"n": "one"})
    names = ("good", "bad", "error")
    results = {"good": structured({"n": 1}), "bad": bad, "error": {**bad, "isError": True}}
    async with offering(*(tool(name, NUMBER) for name in names), **results) as (client, asked, wire):
        for _ in range(2):
            assert (await client.call_tool("good")).data == {"n": 1}
            with pytest.raises(RemoteProtocolError, match=r"'bad' breaks its own output schema: \['n'\].*integer"):
                await client.call_tool("bad")
            assert (await client.call_tool("error")).is_error
        assert [each.method for each in asked].count("tools/list") == 1
        await wire.send(Notification("notifications/tools/list_changed"))
        await trio.testing.wait_all_tasks_blocked()
        await client.call_tool("good")
        assert [each.method for each in asked].count("tools/list") == 2


@pytest.mark.parametrize("how", ["the link is lost", "no answer comes"])
async def test_the_result_of_a_tool_is_not_lost_if_its_schema_cannot_be_read(
    how: str, autojump_clock: trio.testing.MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    """The tool has run, and the caller could not know of it."""
    replies = {"tools/call": structured({"n": 1})}
    async with (
        scripted(replies, capabilities={"tools": {}}, timeout=5) as (client, asked, wire),
        trio.open_nursery() as nursery,
    ):

        async def lose() -> None:
            await eventually(lambda: any(each.method == "tools/list" for each in asked))
            await wire.link.write.aclose()

        if how == "the link is lost":
            nursery.start_soon(lose)
        assert (await client.call_tool("x")).data == {"n": 1}
    assert "the result of the tool 'x' was not checked" in caplog.text


async def test_a_result_is_checked_if_the_page_with_its_tool_came_before_the_link_was_lost(
    caplog: pytest.LogCaptureFixture,
) -> None:
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}}
    page = ListToolsResult(tools=[Tool(name="x", input_schema={}, output_schema=schema)], next_cursor="2")

    async def list_tools() -> AsyncIterator[Tool]:
        schemas.learn(page, None)
        yield page.tools[0]
        raise TransportError("the link is lost")

    schemas = OutputSchemas(list_tools)
    with pytest.raises(RemoteProtocolError, match="breaks its own output schema"):
        await schemas.check("x", {"n": "one"})
    assert "was not checked" not in caplog.text


@pytest.mark.parametrize(
    ("schema", "match"),
    [
        ({"$ref": "https://example.com/schema.json"}, "outside itself"),
        ({"$ref": "file:///etc/passwd"}, "outside itself"),
        ({"type": 7}, "invalid"),
        ({"$schema": "https://example.com/my-dialect"}, "dialect"),
    ],
)
async def test_a_schema_that_cant_be_used_fails_the_call_not_the_client(schema: dict[str, Any], match: str) -> None:
    async with offering(tool("odd", schema), tool("good"), odd=structured({"n": 1}), good=structured({})) as (c, _, _a):
        with pytest.raises(RemoteProtocolError, match=match):
            await c.call_tool("odd")
        assert (await c.call_tool("good")).data == {}


def test_data_unwraps_only_the_wrapper() -> None:
    def result(value: Any) -> Any:
        return ToolResult(content=[], structured_content=value).data

    assert result({"result": 3}) == 3
    assert result({"result": 3, "more": 4}) == {"result": 3, "more": 4}
    assert result({"other": 3}) == {"other": 3}
    assert result([1]) == [1]
    assert result(None) is None


async def test_middleware_surrounds_every_request_of_the_client_and_may_answer_by_itself() -> None:
    trail: list[str] = []

    def layer(name: str) -> Any:
        async def middleware(call: Any, call_next: Any) -> Any:
            trail.append(f"{name} {call.method}")
            if call.method == "tools/call":
                if call.params["name"] == name:
                    return {"content": [{"type": "text", "text": f"by {name}"}]}
                call.params["arguments"]["a"] += 10
            result = await call_next()
            trail.append(f"{name} done")
            return result

        return middleware

    async with Client(make_server(), middleware=[layer("outer"), layer("inner")]) as client:
        assert [tool async for tool in client.iter_tools()]  # so that calls need not ask for them
        trail.clear()
        assert (await client.call_tool("greet", {"name": "x", "a": 1})).is_error  # greet takes no sum, which is added
        assert trail == ["outer tools/call", "inner tools/call", "inner done", "outer done"]
        assert (await client.call_tool("add", {"a": 1, "b": 1})).data == 22
        assert (await client.call_tool("inner", {"a": 1})).text == "by inner"
        trail.clear()
        with pytest.raises(McpError, match="unknown tool"):  # an error passes through
            await client.call_tool("unknown", {"a": 1})
        assert trail == ["outer tools/call", "inner tools/call"]
