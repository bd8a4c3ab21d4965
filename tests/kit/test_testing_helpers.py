"""What `trio_mcp.testing` has for tests of a server: a client as a fixture, and a recorder of calls."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
import trio
from pydantic import BaseModel

from tests.server.harness import both_eras, client_of, give_up
from trio_mcp import Accepted, Answers, Client, Context, McpError, Server, ToolError
from trio_mcp.server.base_server import core_of
from trio_mcp.testing import CallRecorder, client_fixture, record_calls
from trio_mcp.types.versions import MODERN_REVISIONS

server = Server("shop")


@server.tool
def price(item: str, pieces: int = 1) -> int:
    if item == "plum":
        raise ToolError("no plums")
    return {"apple": 30, "pear": 45}[item] * pieces


@server.tool
async def wait(ctx: Context) -> None:
    await ctx.report_progress(1)
    await trio.sleep_forever()


@server.resource("shop://stock")
def stock() -> str:
    return "pears"


client = client_fixture(server)
older = client_fixture(server, mode="2025-06-18")
indirect = client_fixture(fixture="made")


@pytest.fixture
async def made() -> Server:
    await trio.lowlevel.checkpoint()  # an async fixture, as one that starts something would be
    return Server("made for this test")


async def test_a_client_is_connected_during_the_test(client: Client, older: Client, indirect: Client) -> None:
    assert (await client.call_tool("price", {"item": "pear"})).data == 45
    assert older.protocol_version == "2025-06-18"
    assert indirect.server_info is not None
    assert indirect.server_info.name == "made for this test"


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (({}, {}), "takes exactly one of target and fixture"),
        (({"target": server, "fixture": "made"}, {}), "takes exactly one of target and fixture"),
        (({"target": server}, {"time_out": 1}), "timeout"),
    ],
)
def test_a_fixture_is_refused_where_it_is_made(arguments: tuple[dict[str, Any], dict[str, Any]], text: str) -> None:
    with pytest.raises(TypeError, match=text):
        client_fixture(**arguments[0], **arguments[1])


@both_eras
async def test_a_recorder_has_each_request_and_what_became_of_it(revision: str) -> None:
    async with client_of(server, revision) as client:
        with record_calls(server) as recorder:
            await client.call_tool("price", {"item": "pear", "pieces": 2})
            await client.call_tool("price", {"item": "plum"})
            await client.read_resource("shop://stock")
            with pytest.raises(McpError):
                await client.call_tool("prise")
            told = trio.Event()
            await give_up(told.wait, lambda: client.call_tool("wait", on_progress=lambda _: told.set()))
            await trio.testing.wait_all_tasks_blocked()
        await client.call_tool("price", {"item": "apple"})
    assert recorder.tools == [
        ("price", {"item": "pear", "pieces": 2}),
        ("price", {"item": "plum"}),
        ("prise", {}),
        ("wait", {}),
    ]
    pear, plum = recorder.of("price")
    assert (pear.text, plum.text) == ("90", "no plums")
    assert pear.result is not None
    assert pear.result["structuredContent"] == {"result": 90}
    (read,) = recorder.of("shop://stock")
    assert (read.method, read.arguments) == ("resources/read", {})
    (prise,), (wait,) = recorder.of("prise"), recorder.of("wait")
    assert isinstance(prise.error, McpError)
    assert isinstance(wait.error, trio.Cancelled)
    assert prise.result is wait.result is None
    assert core_of(server).settings.middleware == ()


class Reason(BaseModel):
    text: str


@server.tool
async def order(item: str, ctx: Context) -> str:
    """Order something, if the user says how often and why."""
    found = []
    for question in ("how many?", "why?"):
        answer = await ctx.elicit(question, Reason)
        found.append(answer.data.text if isinstance(answer, Accepted) else "")
    if "no" in found:
        raise McpError(-32000, "refused")
    return f"{item}: {', '.join(found)}"


@both_eras
@pytest.mark.parametrize("said", ["yes", "no"])
async def test_a_request_that_asks_is_one_call_in_each_era(revision: str, said: str) -> None:
    """In the modern era it is sent once more for each round of input, which is the client's affair."""
    with record_calls(server) as recorder:
        async with client_of(server, revision, answers=Answers(elicitation=lambda _: {"text": said})) as client:
            with contextlib.suppress(McpError):
                await client.call_tool("order", {"item": "pear"})
            # The same once more is another call, though everything in it is the same.
            with contextlib.suppress(McpError):
                await client.call_tool("order", {"item": "pear"})
    assert recorder.tools == [("order", {"item": "pear"})] * 2
    for call in recorder.of("order"):
        assert call.params == {"name": "order", "arguments": {"item": "pear"}}
        assert call.rounds == (3 if revision in MODERN_REVISIONS else 1)
        if said == "yes":
            assert (call.text, call.error) == ("pear: yes, yes", None)
        else:
            assert (call.result, str(call.error)) == (None, "refused (error -32000)")


async def test_a_recorder_is_also_a_middleware_of_its_own() -> None:
    recorder = CallRecorder()
    other = Server("other", middleware=[recorder])
    other.mount(server)
    async with client_of(other) as client:
        await client.call_tool("price", {"item": "pear"})
    assert recorder.tools == [("price", {"item": "pear"})]


async def test_a_block_may_end_while_a_request_is_under_way() -> None:
    """Then the other middleware still runs once for it."""
    entered, go_on, order = trio.Event(), trio.Event(), []

    async def outer(context: Context, call_next: Any) -> Any:
        order.append(f"outer {context.method}")
        if context.method == "tools/call":
            entered.set()
            await go_on.wait()
        return await call_next()

    async def inner(context: Context, call_next: Any) -> Any:
        order.append(f"inner {context.method}")
        return await call_next()

    other = Server("other", middleware=[outer, inner])
    other.add_tool(price)
    async with client_of(other) as client, trio.open_nursery() as nursery:
        with record_calls(other):
            nursery.start_soon(client.call_tool, "price", {"item": "pear"})
            await entered.wait()
        go_on.set()
    assert order[-4:] == ["outer tools/call", "inner tools/call", "outer tools/list", "inner tools/list"]


def test_what_is_no_server_in_this_process_is_refused() -> None:
    with pytest.raises(TypeError, match="only a Server in this process can be recorded, got str"):
        record_calls("http://127.0.0.1:1/mcp")  # type: ignore[arg-type]
