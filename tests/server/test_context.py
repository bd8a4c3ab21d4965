"""What a handler knows of its request and client, and what it can tell the client while it runs."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Annotated, Any, Optional, Union

import pytest
import trio
import trio.testing
from typing_extensions import TypeAliasType

from tests.peer import client_peer
from tests.server.harness import MODERN, both_eras, call, client_of, every_revision, server_with, tool_of
from trio_mcp import Context, types
from trio_mcp.types.error_codes import MISSING_REQUIRED_CLIENT_CAPABILITY

if TYPE_CHECKING:
    from trio_mcp import Context as TypeCheckersContext


class State:
    pass


@pytest.mark.parametrize("default", [(), (None,)], ids=["required", "optional"])
@pytest.mark.parametrize(
    "annotation",
    [
        Context,
        Optional[Context],  # noqa: UP045
        Union[None, Context],  # noqa: UP007
        Context | None,
        Context[State],
        Context[State] | None,
        Annotated[Context, "a note"],
        "Context",
        TypeAliasType("Alias", Context[State] | None),
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


class Own(Context[State]):
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


@both_eras
async def test_progress_of_a_thread_reaches_the_caller_in_order_before_the_result(revision: str) -> None:
    def report(ctx: Context) -> None:
        for step in (1, 2, 3):
            trio.from_thread.run(ctx.report_progress, step, 3, f"step {step}")

    seen = await progress_of(report, revision)
    assert [(each.progress, each.total) for each in seen] == [(1, 3), (2, 3), (3, 3)]


@both_eras
async def test_progress_that_does_not_grow_is_not_sent(revision: str) -> None:
    """`basic/patterns/progress`: it MUST increase with each notification."""

    async def tool(ctx: Context) -> None:
        for done in (1, 1.0, 0, 2.5, 2, 3):
            await ctx.report_progress(done)

    assert [each.progress for each in await progress_of(tool, revision)] == [1, 2.5, 3]


@pytest.mark.parametrize(("revision", "word"), [("2024-11-05", None), ("2025-03-26", "a word")])
async def test_progress_has_a_message_since_2025_03_26(revision: str, word: str | None) -> None:
    async def tool(ctx: Context) -> None:
        await ctx.report_progress(1, message="a word")

    assert [each.message for each in await progress_of(tool, revision)] == [word]


@pytest.mark.parametrize(("progress", "total"), [("1", None), (True, None), (math.nan, None), (1, math.inf), (1, "2")])
async def test_progress_that_is_not_a_number_is_refused(progress: Any, total: Any) -> None:
    async def tool(ctx: Context) -> str:
        with pytest.raises((TypeError, ValueError), match="must be"):
            await ctx.report_progress(progress, total)
        return "refused"

    async with client_of(server_with(tool), "2026-07-28") as client:
        assert (await client.call_tool("tool")).data == "refused"
