"""Our client against a stdio server on the official Python SDK, which serves both eras."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import psutil
import pytest
import trio

from trio_mcp import (
    Answers,
    CapabilityError,
    Client,
    McpError,
    RequestTimeout,
    ResourceUpdated,
    ToolsListChanged,
    TransportError,
    types,
)

from .support import DEADLINE, LOG_OPT_IN, MODES, NEGOTIATED, TOOLS, Launch

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.interop


@pytest.fixture(params=MODES)
def mode(request: pytest.FixtureRequest) -> str:
    value: str = request.param
    return value


@pytest.fixture
def connect(official_server: Launch, mode: str) -> Callable[..., Client]:
    """Make a client; entering it starts the server."""

    def make(**options: Any) -> Client:
        return Client(official_server.for_us(), mode=mode, **options)

    return make


def text(result: types.CallToolResult) -> str:
    """Return the text of a result that has one text block and nothing else."""
    (block,) = result.content
    assert isinstance(block, types.TextContent)
    return block.text


async def test_negotiates_the_newest_revision_of_the_era(connect: Callable[..., Client], mode: str) -> None:
    """Each mode settles on the newest revision of its era, and the server says who it is."""
    with trio.fail_after(DEADLINE):
        async with connect() as client:
            assert client.protocol_version == NEGOTIATED[mode]
            assert client.server_info is not None
            assert (client.server_info.name, client.server_info.version) == ("official-peer", "2.3-peer")
            assert client.instructions == "Call any tool."
            assert client.capabilities.tools is not None
            listed = await client.list_tools()
    tools = {tool.name: tool for tool in listed.tools}
    assert set(tools) == TOOLS["control"]
    assert listed.next_cursor is None
    assert tools["add"].description == "Add two integers."
    assert tools["add"].input_schema["required"] == ["a", "b"]
    assert tools["add"].annotations is not None
    assert tools["add"].annotations.read_only_hint is True
    assert tools["picture"].output_schema is None


async def test_an_extension_and_its_method(connect: Callable[..., Client]) -> None:
    """Each side sees what the other declares, and in both eras the method is there for who declares its extension."""
    with trio.fail_after(DEADLINE):
        async with connect(capabilities={"extensions": {"com.example/doubling": {}}}) as client:
            # That server declares its extensions in the modern era only, but takes a client's in both.
            modern = client.protocol_version == NEGOTIATED["auto"]
            assert client.extensions == ({"com.example/doubling": {"limit": 100}} if modern else {})
            assert (await client.request("com.example/double", {"number": 21}))["doubled"] == 42
        async with connect() as client:
            with pytest.raises(McpError):
                await client.request("com.example/double", {"number": 21})


async def test_every_page_of_a_list(paging_server: Launch, mode: str) -> None:
    """`list_tools` gives one page and its cursor; `iter_tools` walks them all, in order."""
    with trio.fail_after(DEADLINE):
        async with Client(paging_server.for_us(), mode=mode) as client:
            first = await client.list_tools()
            everything = [tool.name async for tool in client.iter_tools()]
    assert [tool.name for tool in first.tools] == ["tool-0", "tool-1", "tool-2"]
    assert first.next_cursor == "3"
    assert everything == [f"tool-{number}" for number in range(8)]


async def test_results_arrive_whole(connect: Callable[..., Client]) -> None:
    """Wrapped scalars are unwrapped in `data`, objects stay, images are base64, and any text survives the framing."""
    tricky = 'línea\u2028quote " backslash \\ newline \n tab \t \U0001f600 ' + "x" * 100_000
    with trio.fail_after(DEADLINE):
        async with connect() as client:
            added = await client.call_tool("add", {"a": 2**40, "b": -1})
            echoed = await client.call_tool("echo", {"text": tricky})
            weather = await client.call_tool("weather", {"city": "Tromsø"})
            picture = await client.call_tool("picture", {})
    assert added.structured_content == {"result": 2**40 - 1}
    assert added.data == 2**40 - 1
    assert text(added) == str(2**40 - 1)
    assert not added.is_error
    assert text(echoed) == tricky
    assert weather.structured_content == {"city": "Tromsø", "celsius": 21.5}
    assert weather.data == {"city": "Tromsø", "celsius": 21.5}
    (image,) = picture.content
    assert isinstance(image, types.ImageContent)
    assert image.mime_type == "image/png"
    assert image.data.startswith("iVBORw0KGgo")
    assert picture.structured_content is None


async def test_a_failing_tool_is_a_result(connect: Callable[..., Client]) -> None:
    """A tool's failure, an unknown tool and invalid arguments all are results of this server: nothing is raised."""
    with trio.fail_after(DEADLINE):
        async with connect() as client:
            failed = await client.call_tool("fail", {})
            crashed = await client.call_tool("crash", {})
            unknown = await client.call_tool("no-such-tool", {})
            invalid = await client.call_tool("add", {"a": "not a number"})
            after = await client.call_tool("add", {"a": 1, "b": 1})
    for result in (failed, crashed, unknown, invalid):
        assert result.is_error is True
    assert "this tool always fails" in text(failed)
    assert "no-such-tool" in text(unknown)
    assert "valid integer" in text(invalid)
    assert after.data == 2


async def test_progress_arrives_in_order_before_the_result(connect: Callable[..., Client]) -> None:
    """Each report reaches the callback, in order, and none of them after the call has returned."""
    seen: list[tuple[float, float | None, str | None]] = []
    with trio.fail_after(DEADLINE):
        async with connect() as client:
            result = await client.call_tool(
                "progress",
                {"n": 5},
                on_progress=lambda update: seen.append((update.progress, update.total, update.message)),
            )
            assert seen == [(step, 5, f"step {step}") for step in range(1, 6)]
    assert text(result) == "5 steps"


async def test_cancelling_a_call_cancels_the_handler_only(connect: Callable[..., Client]) -> None:
    """Cancelling a call cancels the tool on the server, and the session goes on."""
    started = trio.Event()
    with trio.fail_after(DEADLINE):
        async with connect() as client:
            async with trio.open_nursery() as nursery:

                async def call() -> None:
                    await client.call_tool("slow", {"seconds": 3600}, on_progress=lambda _: started.set())

                nursery.start_soon(call)
                await started.wait()
                nursery.cancel_scope.cancel()
            events = await client.call_tool("events", {"until": "slow cancelled"})
    assert events.data == ["slow cancelled"]


async def test_leaving_the_block_ends_a_server_that_is_busy(connect: Callable[..., Client]) -> None:
    """The block can be left while a call is in flight; the environment fixture then finds no process alive."""
    started = trio.Event()
    with trio.fail_after(DEADLINE):
        async with connect() as client, trio.open_nursery() as nursery:

            async def call() -> None:
                await client.call_tool("slow", {"seconds": 3600}, on_progress=lambda _: started.set())

            nursery.start_soon(call)
            await started.wait()
            nursery.cancel_scope.cancel()


async def test_a_timeout_costs_only_its_call(connect: Callable[..., Client]) -> None:
    """A call that gets no answer in time raises `RequestTimeout`, and the session goes on."""
    with trio.fail_after(DEADLINE):
        async with connect() as client:
            with pytest.raises(RequestTimeout):
                await client.call_tool("slow", {"seconds": 3600}, timeout=0.1)
            after = await client.call_tool("add", {"a": 1, "b": 1})
    assert after.data == 2


async def test_the_death_of_the_server_ends_the_call_not_the_block(connect: Callable[..., Client]) -> None:
    """A server that is killed settles the call in flight with a `TransportError`; the block goes on to its end."""
    before = set(psutil.Process().children())
    reached_the_end = False
    with trio.fail_after(DEADLINE):
        async with connect() as client:
            (process,) = set(psutil.Process().children()) - before
            with pytest.raises(TransportError):
                await client.call_tool("slow", {"seconds": 3600}, on_progress=lambda _: process.kill())
            reached_the_end = True
    assert reached_the_end


async def test_log_messages_reach_the_client(connect: Callable[..., Client]) -> None:
    """What the tool logs reaches `on_log`; the stateless era needs the request to ask for it."""
    logs: list[tuple[str, str | None, object]] = []
    both = trio.Event()

    def log(params: types.LoggingMessageNotificationParams) -> None:
        logs.append((params.level, params.logger, params.data))
        if len(logs) == 2:
            both.set()

    with trio.fail_after(DEADLINE):
        async with connect(on_log=log) as client:
            await client.call_tool("chatty", {"words": ["one", "two"]}, meta=LOG_OPT_IN)
            await both.wait()
    assert logs == [("info", "chatty", "one"), ("info", "chatty", "two")]


async def test_the_level_of_the_client_decides_what_it_gets(connect: Callable[..., Client], mode: str) -> None:
    """`log_level` and `set_log_level` go with each request of the stateless era; this server declares no logging."""
    logs: list[object] = []
    with trio.fail_after(DEADLINE):
        async with connect(on_log=lambda params: logs.append(params.data), log_level="info") as client:
            assert client.capabilities.logging is None
            if NEGOTIATED[mode] == "2025-11-25":
                with pytest.raises(CapabilityError):
                    await client.set_log_level("error")
                return
            await client.call_tool("chatty", {"words": ["wanted"]})
            await client.set_log_level("error")
            await client.call_tool("chatty", {"words": ["too mild"]})
            await client.set_log_level("debug")
            await client.call_tool("chatty", {"words": ["wanted again"]})
            await client.set_log_level(None)
            await client.call_tool("chatty", {"words": ["unwanted"]})
            await client.call_tool("echo", {"text": ""})
            await trio.testing.wait_all_tasks_blocked()
    assert logs == ["wanted", "wanted again"]


async def test_many_calls_at_once_each_get_their_own_answer(connect: Callable[..., Client]) -> None:
    """Calls in flight together are told apart by their ids."""
    sums: dict[int, object] = {}
    with trio.fail_after(DEADLINE):
        async with connect() as client, trio.open_nursery() as nursery:

            async def call(number: int) -> None:
                sums[number] = (await client.call_tool("add", {"a": number, "b": number})).data

            for number in range(30):
                nursery.start_soon(call, number)
    assert sums == {number: 2 * number for number in range(30)}


async def test_changes_reach_those_who_listen_for_them(official_server: Launch) -> None:
    """Of two subscriptions on one link each gets what it asked for, the same event once, and nothing after its end."""
    uri = "test://watched"
    with trio.fail_after(DEADLINE):
        async with Client(official_server.for_us()) as client, client.listen(resources=[uri]) as one:
            async with client.listen(tools_list_changed=True, resources=["test://other"]) as other:
                assert one.honored.to_wire() == {"resourceSubscriptions": [uri]}
                assert other.honored.to_wire() == {"toolsListChanged": True, "resourceSubscriptions": ["test://other"]}
                await client.call_tool("announce", {"uri": uri})
                assert await anext(one) == ResourceUpdated(uri)
                assert await anext(other) == ToolsListChanged()
            await client.call_tool("announce", {"uri": uri})
            assert await anext(one) == ResourceUpdated(uri)


async def test_a_handshake_with_a_server_that_tells_of_no_changes(official_server: Launch) -> None:
    """This server declares no notices in the legacy era, so there is nothing to listen for."""
    with trio.fail_after(DEADLINE):
        async with Client(official_server.for_us(), mode="legacy") as client:
            with pytest.raises(CapabilityError):
                client.listen(tools_list_changed=True, prompts_list_changed=True, resources=["test://watched"])


async def test_its_questions_reach_the_callbacks(connect: Callable[..., Client]) -> None:
    """Forms, the model and the roots: requests in the legacy era, rounds of input in the stateless one."""
    asked: list[str] = []

    async def elicit(params: types.ElicitRequestFormParams) -> dict[str, str]:
        asked.append(params.message)
        return {"colour": "red"}

    async def sample(params: types.CreateMessageRequestParams) -> str:
        asked.append("sampling")
        return "hello"

    with trio.fail_after(DEADLINE):
        async with connect(answers=Answers(elicitation=elicit, sampling=sample, roots=["file:///srv"])) as client:
            result = await client.call_tool("ask_everything")
    assert text(result) == "red, hello, file:///srv"
    assert sorted(asked) == ["Which colour?", "sampling"]


async def test_a_declined_question_is_the_tool_s_to_deal_with(connect: Callable[..., Client]) -> None:
    with trio.fail_after(DEADLINE):
        async with connect(answers=Answers(elicitation=lambda params: None)) as client:
            result = await client.call_tool("ask")
    assert result.is_error
