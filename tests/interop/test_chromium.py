"""Pages in headless Chromium: what a page may do over WebSocket, and that no page gets through to a TCP port."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from functools import partial

import pytest
import trio

from tests.waiting import eventually
from tests.ways import MOUNTED, WAYS
from trio_mcp import Client, Context, Server, types
from trio_mcp.low_level import stream_link

from .pages import FOREIGN, Pages
from .support import DEADLINE

pytestmark = pytest.mark.chromium

WEBSOCKETS = ["WebSocket", *MOUNTED]

PAGE = r"""
<script type="module">
const task = %s;
const found = { heard: [] };
const report = () => fetch("/found", { method: "POST", body: JSON.stringify(found) });

// Posts each body as text/plain, which needs no leave of the other origin.
async function post() {
  found.posted = [];
  for (const body of task.bodies) {
    try {
      await fetch(task.url, { method: "POST", mode: "no-cors", headers: { "Content-Type": "text/plain" }, body });
      found.posted.push("answered");
    } catch (error) {
      found.posted.push(`${error}`);
    }
  }
  report();
}

// Initialises, calls a tool with progress and one with a text that takes many frames, and leaves.
function talk() {
  const text = "é\u2028\u{1f600}x".repeat(task.times);
  const socket = new WebSocket(task.url, "mcp");
  const send = (message) => socket.send(JSON.stringify({ jsonrpc: "2.0", ...message }));
  socket.onopen = () => {
    found.protocol = socket.protocol;
    const params = { protocolVersion: "2025-11-25", capabilities: {}, clientInfo: { name: "page", version: "1" } };
    send({ id: 0, method: "initialize", params });
  };
  socket.onmessage = ({ data }) => {
    const message = JSON.parse(data);
    if (message.id === 2) {
      found.echoed = message.result.content[0].text === text;
      socket.close(1000);
      return;
    }
    found.heard.push(message);
    if (message.id === 0) {
      send({ method: "notifications/initialized" });
      const call = { name: "steps", arguments: { n: 3 }, _meta: { progressToken: "t" } };
      send({ id: 1, method: "tools/call", params: call });
    }
    if (message.id === 1) send({ id: 2, method: "tools/call", params: { name: "echo", arguments: { text } } });
  };
  socket.onclose = ({ code, reason, wasClean }) => {
    Object.assign(found, { code, reason, wasClean });
    report();
  };
}

task.bodies ? post() : talk();
</script>
"""


@pytest.fixture
async def pages() -> AsyncIterator[Pages]:
    with trio.fail_after(DEADLINE):
        async with trio.open_nursery() as nursery:
            pages = Pages(PAGE)
            await nursery.start(pages.serve)
            yield pages
            nursery.cancel_scope.cancel()


@pytest.fixture
def called() -> list[int]:
    """What the tool of `server` has been called with."""
    return []


@pytest.fixture
def server(called: list[int]) -> Server:
    server = Server("for pages")

    @server.tool
    async def steps(n: int, ctx: Context) -> str:
        called.append(n)
        for step in range(1, n + 1):
            await ctx.report_progress(step, n)
        return f"{n} steps"

    @server.tool
    async def echo(text: str) -> types.TextContent:
        return types.TextContent(text=text)

    return server


@pytest.mark.parametrize("way", WEBSOCKETS)
async def test_a_page_initialises_and_calls_a_tool_with_progress(pages: Pages, server: Server, way: str) -> None:
    async with WAYS[way](server) as url:
        found = await pages.visit(url=url, times=100_000)
    hello, *progress, result = found["heard"]
    assert found["protocol"] == "mcp"
    assert hello["result"]["serverInfo"]["name"] == "for pages"
    assert [note["params"] for note in progress] == [
        {"progressToken": "t", "progress": step, "total": 3} for step in (1, 2, 3)
    ]
    assert result["result"]["content"][0]["text"] == "3 steps"
    assert found["echoed"]
    assert (found["code"], found["wasClean"]) == (1000, True)


@pytest.mark.parametrize("way", WEBSOCKETS)
async def test_a_page_that_says_too_much_learns_why_it_is_cut_off(pages: Pages, server: Server, way: str) -> None:
    """It sends on when the server has given up, whose reset would destroy the close frame."""
    async with WAYS[way](server) as url:
        found = await pages.visit(url=url, times=520_000)
    assert found["code"] == 1009, found["reason"]


@pytest.mark.parametrize("way", WEBSOCKETS)
@pytest.mark.parametrize("rebinding", [False, True])
async def test_a_page_of_a_foreign_origin_is_refused(
    pages: Pages, server: Server, called: list[int], way: str, rebinding: bool
) -> None:
    """Whether it names the server by its address, or by a name of its own that leads there."""
    async with WAYS[way](server) as url:
        if rebinding:
            url = url.replace("127.0.0.1", "evil.example")
        found = await pages.visit(FOREIGN, url=url)
    assert found == {"heard": [], "code": 1006, "reason": "", "wasClean": False}
    assert called == []


async def test_a_page_of_an_allowed_origin_is_served(pages: Pages, server: Server, called: list[int]) -> None:
    """Or the test above would prove nothing."""
    origins = [f"{FOREIGN}:{pages.port}"]
    async with trio.open_nursery() as nursery:
        url = await nursery.start(partial(server.serve_websocket, port=0, allowed_origins=origins))
        found = await pages.visit(FOREIGN, url=url, times=1)
        nursery.cancel_scope.cancel()
    assert found["code"] == 1000
    assert called == [3]


HELLO = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "page", "version": "1"}}
LINES = "".join(
    json.dumps({"jsonrpc": "2.0", **message}) + "\n"
    for message in (
        {"id": 0, "method": "initialize", "params": HELLO},
        {"method": "notifications/initialized"},
        {"id": 1, "method": "tools/call", "params": {"name": "steps", "arguments": {"n": 3}}},
    )
)


@pytest.mark.parametrize("guarded", [True, False])
async def test_a_page_that_posts_lines_to_a_tcp_port_calls_nothing(
    pages: Pages, server: Server, called: list[int], guarded: bool
) -> None:
    """A server without the guard would take the lines that follow the head of the request."""

    async def unguarded(stream: trio.SocketStream) -> None:
        async with stream_link(stream) as link:
            await server.serve(link)

    async with trio.open_nursery() as nursery:
        if guarded:
            address = await nursery.start(partial(server.serve_tcp, port=0))
            port = address.rpartition(":")[2]
        else:
            (listener,) = await nursery.start(partial(trio.serve_tcp, unguarded, 0, host="127.0.0.1"))
            port = listener.socket.getsockname()[1]
        found = await pages.visit(url=f"http://127.0.0.1:{port}/", bodies=[LINES, "\n" + LINES])
        assert len(found["posted"]) == 2
        if guarded:
            async with Client(f"tcp://127.0.0.1:{port}") as client:
                await client.call_tool("steps", {"n": 1})
            assert called == [1]
        else:
            await eventually(lambda: called == [3, 3])
        nursery.cancel_scope.cancel()
