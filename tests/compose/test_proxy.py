"""A proxy: what its upstream offers reaches its clients, whatever era either speaks."""

from __future__ import annotations

import contextlib
import itertools
import logging
from functools import partial
from typing import Any

import attrs
import httpx
import pytest
import trio
import trio.testing
from pydantic import BaseModel

from tests.extensions.task_server import completed, created
from tests.http_peer import Raw
from tests.peer import Peer, played
from tests.server.input_harness import hand_client
from trio_mcp import (
    Answers,
    Client,
    Context,
    ListOptions,
    McpError,
    ProxyServer,
    ResourceUpdated,
    Server,
    ToolsListChanged,
)
from trio_mcp.extensions import Tasks
from trio_mcp.jsonrpc.messages import ErrorData, Request
from trio_mcp.low_level import memory_link_pair
from trio_mcp.server.base_server import core_of
from trio_mcp.types import CreateMessageRequestParams, ProgressNotificationParams
from trio_mcp.types.versions import LATEST_LEGACY, LATEST_MODERN, LEGACY_REVISIONS

ERAS = list(itertools.product((LATEST_LEGACY, LATEST_MODERN), (LATEST_LEGACY, LATEST_MODERN)))
every_era = pytest.mark.parametrize(("above", "below"), ERAS)


async def test_a_call_that_becomes_a_task_upstream_is_finished_by_the_proxy(autojump_clock: Any) -> None:
    """Its client has not declared the extension, so it must not get a task."""
    replies = {"tools/call": created(), "tasks/get": completed()}

    async def play(peer: Peer) -> None:
        peer.revision, peer.capabilities = LATEST_MODERN, {"tools": {}}
        peer.replies = lambda request: replies.get(request.method, ErrorData(-32601, "unknown method"))
        await peer.greet()
        await peer.serve()

    async with Client(ProxyServer(played(play), client={"extensions": [Tasks()]})) as client:
        assert (await client.call_tool("x")).text == "done"


class Person(BaseModel):
    name: str


def upstream(revision: str) -> Server:
    """Return a server with one of everything."""
    server = Server("up", version="2.0", instructions="be kind", revisions=[revision], lists=ListOptions(page_size=3))

    @server.tool
    async def add(a: int, b: int) -> int:
        return a + b

    @server.tool
    async def busy(ctx: Context) -> str:
        for step in range(3):
            await ctx.report_progress(step, 3, f"step {step}")
            await ctx.log("info", f"log {step}")
            await ctx.log("debug", "too much")
        return "done"

    @server.tool
    async def fail() -> None:
        raise McpError(-31999, "no luck", {"why": "rain"})

    @server.tool
    async def who(ctx: Context) -> str:
        answer = await ctx.elicit("Who are you?", Person)
        return f"{answer.action}: {answer.data.name if answer.data else None}"

    @server.tool
    async def page(ctx: Context) -> str:
        return (await ctx.elicit_url("Go there", "https://example.com/page")).action

    @server.tool
    async def think(ctx: Context) -> str:
        reply = await ctx.sample("Two and two?", max_tokens=5)
        roots = await ctx.list_roots()
        return f"{reply.content_as_list[0].text} in {[root.uri for root in roots]}"  # type: ignore[union-attr]

    @server.resource("data://one", mime_type="text/plain")
    async def one() -> str:
        return "one"

    @server.resource("data://by/{name}")
    async def by_name(name: str, ctx: Context) -> str:
        return f"{name} of {(await ctx.elicit('Whose?', Person)).data}"

    @server.prompt
    async def greet(name: str) -> str:
        return f"Greet {name}."

    @server.completion(prompt="greet", argument="name")
    async def names(value: str) -> list[str]:
        return [value + "n", value + "na"]

    return server


def client_of(proxy: Server, revision: str, **settings: Any) -> Client:
    return Client(proxy, mode=revision, **settings)


@every_era
async def test_it_describes_itself_as_the_upstream_does(above: str, below: str) -> None:
    async with client_of(ProxyServer(upstream(above)), below) as client:
        assert client.server_info is not None
        assert (client.server_info.name, client.server_info.version) == ("up", "2.0")
        assert client.instructions == "be kind"
        capabilities = client.capabilities
        assert capabilities.tools
        assert capabilities.resources
        assert capabilities.prompts
        assert capabilities.completions is not None
        assert capabilities.logging is not None


def only_with_tools() -> Server:
    server = Server("bare")
    core_of(server).identity = attrs.evolve(core_of(server).identity, capabilities=lambda revision: {"tools": {}})
    return server


async def test_a_proxy_of_a_server_that_only_has_tools_declares_nothing_else() -> None:
    async with Client(ProxyServer(only_with_tools(), name="front")) as client:
        assert client.capabilities.to_wire() == {"tools": {}}
        assert client.server_info is not None
        assert client.server_info.name == "front"


async def test_what_the_upstream_does_not_offer_is_an_unknown_method() -> None:
    async with hand_client(ProxyServer(only_with_tools())) as client:  # which does not look first
        refused = await client.ask("prompts/list", {})
    assert refused.code == -32601
    assert "does not offer it" in refused.message


@every_era
async def test_lists_pass_page_by_page(above: str, below: str) -> None:
    async with client_of(ProxyServer(upstream(above)), below) as client:
        first = await client.list_tools()
        assert [tool.name for tool in first.tools] == ["add", "busy", "fail"]
        assert first.next_cursor is not None
        assert [tool.name async for tool in client.iter_tools()] == ["add", "busy", "fail", "who", "page", "think"]
        assert [each.uri for each in (await client.list_resources()).resources] == ["data://one"]
        templates = (await client.list_resource_templates()).resource_templates
        assert [each.uri_template for each in templates] == ["data://by/{name}"]
        assert [each.name for each in (await client.list_prompts()).prompts] == ["greet"]


@every_era
async def test_calls_reads_prompts_and_completions_pass(above: str, below: str) -> None:
    async with client_of(ProxyServer(upstream(above)), below) as client:
        assert (await client.call_tool("add", {"a": 1, "b": 2})).data == 3
        read = await client.read_resource("data://one")
        assert [(each.uri, each.text) for each in read.contents] == [("data://one", "one")]  # type: ignore[union-attr]
        prompt = await client.get_prompt("greet", {"name": "Ann"})
        assert prompt.messages[0].content.text == "Greet Ann."  # type: ignore[union-attr]
        answer = await client.request(
            "completion/complete",
            {"ref": {"type": "ref/prompt", "name": "greet"}, "argument": {"name": "name", "value": "An"}},
        )
        assert answer["completion"]["values"] == ["Ann", "Anna"]


@every_era
async def test_arguments_are_judged_by_the_upstream_and_errors_pass_whole(above: str, below: str) -> None:
    async with client_of(ProxyServer(upstream(above)), below) as client:
        assert (await client.call_tool("add", {"a": "x"})).is_error
        with pytest.raises(McpError) as caught:
            await client.call_tool("fail")
        assert (caught.value.code, caught.value.message, caught.value.data) == (-31999, "no luck", {"why": "rain"})


@every_era
async def test_progress_and_logs_pass_before_the_result(above: str, below: str) -> None:
    steps: list[tuple[float, str | None]] = []
    logs: list[Any] = []
    heard = trio.Event()

    def on_progress(progress: ProgressNotificationParams) -> None:
        steps.append((progress.progress, progress.message))

    def on_log(message: Any) -> None:
        logs.append(message.data)
        if len(logs) == 3:
            heard.set()

    async with client_of(ProxyServer(upstream(above)), below, on_log=on_log, log_level="info") as client:
        assert (await client.call_tool("busy", on_progress=on_progress)).data == "done"
        with trio.fail_after(5):
            await heard.wait()
    assert steps == [(0, "step 0"), (1, "step 1"), (2, "step 2")]
    assert logs == ["log 0", "log 1", "log 2"]


@every_era
async def test_questions_reach_the_client_of_the_call_and_answers_come_back(above: str, below: str) -> None:
    def answer(params: Any) -> Any:
        return "accept" if params.mode == "url" else {"name": "Bo"}

    def think(params: CreateMessageRequestParams) -> str:
        return "four"

    answers = Answers(elicitation=answer, sampling=think, roots=["file:///srv"])
    async with client_of(ProxyServer(upstream(above)), below, answers=answers) as client:
        with trio.fail_after(5):
            assert (await client.call_tool("who")).data == "accept: Bo"
            assert (await client.call_tool("page")).data == "accept"
            assert (await client.call_tool("think")).data == "four in ['file:///srv']"
            read = await client.read_resource("data://by/ann")
            assert read.contents[0].text == "ann of name='Bo'"  # type: ignore[union-attr]


@every_era
async def test_what_the_client_has_not_declared_is_not_asked(above: str, below: str) -> None:
    async with client_of(ProxyServer(upstream(above)), below) as client:
        with trio.fail_after(5):
            with pytest.raises(McpError, match="elicitation") as caught:
                await client.call_tool("who")
    assert caught.value.code == (-32601 if above == LATEST_LEGACY else -32021)


@every_era
async def test_changes_pass(above: str, below: str) -> None:
    server = upstream(above)
    listened = [f"data://by/{number}" for number in range(3)]
    async with client_of(ProxyServer(server), below) as client:
        with trio.fail_after(5):
            async with client.listen(tools_list_changed=True, resources=listened) as events:
                await trio.testing.wait_all_tasks_blocked(0.01)
                assert server.statistics().watched_resources == len(listened)
                server.notify_resource_updated("data://elsewhere")
                server.notify_resource_updated("data://by/1")
                assert await anext(events) == ResourceUpdated("data://by/1")
                server.add_tool(lambda: 0, name="new")
                assert await anext(events) == ToolsListChanged()
            await trio.testing.wait_all_tasks_blocked(0.01)
            assert server.statistics().watched_resources == 0  # the last listener has closed


@every_era
async def test_a_cancelled_call_is_cancelled_upstream(above: str, below: str) -> None:
    server = upstream(above)
    started, cancelled = trio.Event(), trio.Event()

    @server.tool
    async def forever() -> None:
        started.set()
        try:
            await trio.sleep_forever()
        finally:
            cancelled.set()

    async with client_of(ProxyServer(server), below) as client, trio.open_nursery() as nursery:
        nursery.start_soon(client.call_tool, "forever")
        with trio.fail_after(5):
            await started.wait()
            nursery.cancel_scope.cancel()
            with trio.CancelScope(shield=True):
                await cancelled.wait()


async def test_the_oldest_client_gets_only_what_its_revision_knows() -> None:
    server = upstream(LATEST_MODERN)

    @server.tool
    async def numbers() -> list[int]:
        return [1, 2]

    async with client_of(ProxyServer(server), LEGACY_REVISIONS[0]) as client:
        page = await client.request("tools/list")
        assert "ttlMs" not in page
        assert "resultType" not in page
        assert all("outputSchema" not in tool for tool in page["tools"])
        result = await client.request("tools/call", {"name": "numbers"})
        assert set(result) <= {"content", "_meta", "isError"}


class Losable:
    """Links to a server that can be cut; each is another run of the server."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.runs = 0
        self.scope = trio.CancelScope()

    def __call__(self) -> Any:
        @contextlib.asynccontextmanager
        async def connect() -> Any:
            self.runs += 1
            async with memory_link_pair() as (ours, theirs), trio.open_nursery() as nursery:
                self.scope = trio.CancelScope()

                async def serve() -> None:
                    with self.scope:
                        await self.server.serve(theirs)
                    for channel in theirs:
                        await channel.aclose()

                nursery.start_soon(serve)
                yield ours
                nursery.cancel_scope.cancel()

        return connect()


@every_era
async def test_the_loss_of_the_upstream_fails_one_call_and_the_next_connects_anew(above: str, below: str) -> None:
    server = upstream(above)
    started = trio.Event()

    @server.tool
    async def stuck() -> None:
        started.set()
        await trio.sleep_forever()

    upstream_link = Losable(server)
    async with client_of(ProxyServer(upstream_link), below) as client, trio.open_nursery() as nursery:

        async def lost() -> None:
            with pytest.raises(McpError, match="the upstream server 'up' is unavailable") as caught:
                await client.call_tool("stuck")
            assert caught.value.code == -32603

        nursery.start_soon(lost)
        with trio.fail_after(5):
            await started.wait()
            upstream_link.scope.cancel()
            await trio.testing.wait_all_tasks_blocked(0.01)
            assert (await client.call_tool("add", {"a": 1, "b": 1})).data == 2
    assert upstream_link.runs == 2


async def test_a_client_that_is_connected_already_can_be_the_upstream() -> None:
    async with Client(upstream(LATEST_MODERN)) as above:
        async with Client(ProxyServer(above)) as client:
            assert (await client.call_tool("add", {"a": 2, "b": 2})).data == 4
        assert (await above.call_tool("add", {"a": 2, "b": 3})).data == 5  # it stays connected


def test_arguments_that_a_proxy_can_not_have_are_refused() -> None:
    with pytest.raises(TypeError, match=r"^ProxyServer\(\) got .* 'lifespan': a run of the proxy is one connection"):
        ProxyServer(Server("up"), lifespan=lambda server: None)
    with pytest.raises(TypeError, match="must not set 'answers'"):
        ProxyServer(Server("up"), client={"answers": Answers(elicitation=print)})
    with pytest.raises(TypeError, match="a target must be"):
        ProxyServer(3)  # type: ignore[arg-type]


def test_a_proxy_has_nothing_of_its_own_and_is_not_mounted() -> None:
    """Rule: what would never be served can't be added."""
    proxy = ProxyServer(Server("up"))
    assert not hasattr(proxy, "add_tool")
    assert not hasattr(proxy, "mount")
    with pytest.raises(TypeError, match="because it is a proxy: serve the proxy by itself"):
        Server("main").mount(proxy)  # type: ignore[arg-type]


async def test_changes_are_listened_for_again_when_a_modern_upstream_ends_that(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """Rule: that ends with a process behind the URL, not with the connection; what was missed is told as a change."""
    asked: list[Request] = []

    async def play(server: Peer) -> None:
        server.revision = LATEST_MODERN
        server.capabilities = {"tools": {"listChanged": True}, "resources": {"subscribe": True}}
        await server.greet()
        async for message in server:
            if isinstance(message, Request) and message.method == "subscriptions/listen":
                asked.append(message)
                named = {"_meta": {"io.modelcontextprotocol/subscriptionId": message.id}}
                wanted = (message.params or {})["notifications"]
                await server.notify("notifications/subscriptions/acknowledged", {**named, "notifications": wanted})
                if len(asked) <= 2:
                    await server.respond(message, {"resultType": "complete", **named})

    proxy = ProxyServer(played(play), client={"mode": LATEST_MODERN})
    async with Client(proxy, mode=LATEST_MODERN) as client:
        async with client.listen(tools_list_changed=True, resources=["data://one"]) as events:
            with trio.fail_after(600):
                heard = {type(await anext(events)), type(await anext(events))}
        assert heard == {ToolsListChanged, ResourceUpdated}
    assert len(asked) == 4


@pytest.mark.legacy
@pytest.mark.parametrize("mode", ["legacy", "auto"])
async def test_a_question_after_the_client_left_is_refused_without_a_traceback(
    mode: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The client is gone, and the proxy is not to blame: the upstream gets an error, and the log no traceback."""
    upstream, started, go, refused = Server("upstream"), trio.Event(), trio.Event(), trio.Event()

    @upstream.tool
    async def ask(ctx: Context) -> str:
        await ctx.report_progress(1)
        started.set()
        await go.wait()
        try:
            await ctx.elicit("Who?", Person)
        except McpError:
            refused.set()
            raise
        return "answered"

    proxy = ProxyServer(upstream, client={"mode": mode})
    with trio.fail_after(30):
        async with trio.open_nursery() as nursery:
            url = await nursery.start(partial(proxy.serve_http, port=0))
            async with httpx.AsyncClient(base_url=url.removesuffix("/mcp"), timeout=30) as http:
                raw = Raw(http)
                await raw.initialize(elicitation={})
                async with raw.call("ask"):
                    await started.wait()
                with caplog.at_level(logging.ERROR, "trio_mcp"):
                    while proxy.statistics().http[0].exchanges:
                        await trio.lowlevel.checkpoint()
                    go.set()
                    if mode == "legacy":
                        await refused.wait()
                    while proxy.statistics().http[0].requests:
                        await trio.lowlevel.checkpoint()
            nursery.cancel_scope.cancel()
    assert not caplog.records
