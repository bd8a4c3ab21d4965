"""The modern era over HTTP is whole without what serves the handshake era: its folder can be deleted."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import pytest
import trio
from pydantic import Field

import trio_mcp
from trio_mcp import Context, Server, ToolsListChanged
from trio_mcp.types.versions import LEGACY_REVISIONS, MODERN_REVISIONS, REVISIONS

REGION = Field(json_schema_extra={"x-mcp-header": "Region"})
SCRIPT = """
import json, sys
sys.path.insert(0, sys.argv[1])
import trio
import trio_mcp
from trio_mcp import Client, HttpServerParameters, ToolsListChanged, TrioMcpError

assert trio_mcp.__file__.startswith(sys.argv[1]), trio_mcp.__file__
url, mode, kind = sys.argv[2:]
said = {"progress": []}

async def main():
    with trio.fail_after(60):
        async with Client(HttpServerParameters(url, kind=kind), mode=mode) as client:
            said["revision"] = client.protocol_version
            said["tools"] = [tool.name for tool in (await client.list_tools()).tools]
            note = lambda progress: said["progress"].append(progress.progress)
            called = await client.call_tool("count", {"to": 3, "region": "eu"}, on_progress=note)
            said["result"] = called.content[0].text
            async with client.listen(tools_list_changed=True) as events:
                await client.call_tool("change")
                async for event in events:
                    said["event"] = type(event).__name__
                    break
            with trio.move_on_after(0.2):
                await client.call_tool("wait")

try:
    trio.run(main)
except TrioMcpError as exc:
    said["error"] = f"{type(exc).__name__}: {exc}"
said["loaded"] = [name for name in sys.modules if name.startswith("trio_mcp.http.client.legacy")]
print(json.dumps(said))
"""


@pytest.fixture(scope="module")
def without(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the package without the folder."""
    root = tmp_path_factory.mktemp("copy")
    package = Path(trio_mcp.__file__).parent
    shutil.copytree(package, root / "trio_mcp", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.rmtree(root / "trio_mcp" / "http" / "client" / "legacy")
    return root


def made(revisions: Sequence[str], ended: trio.Event) -> Server[Any]:
    server = Server("whole", revisions=revisions)

    @server.tool(input_schema=None)
    async def count(to: int, region: Annotated[str, REGION], ctx: Context) -> int:
        for number in range(to):
            await ctx.report_progress(number + 1, to)
        return to

    @server.tool
    async def change(ctx: Context) -> None:
        server.add_tool(count, name="another")

    @server.tool
    async def wait() -> None:
        try:
            await trio.sleep_forever()
        finally:
            ended.set()

    return server


async def told(root: Path, revisions: Sequence[str], mode: str, kind: str = "http") -> tuple[dict[str, Any], bool]:
    """What a client that runs in a process of its own says, and whether its cancellation has come through."""
    ended = trio.Event()
    async with trio.open_nursery() as nursery:
        url: str = await nursery.start(partial(made(revisions, ended).serve_http, port=0))
        command = [sys.executable, "-c", SCRIPT, str(root), url, mode, kind]
        done = await trio.run_process(command, capture_stdout=True, stdin=subprocess.DEVNULL)
        nursery.cancel_scope.cancel("the client is done")
    said: dict[str, Any] = json.loads(done.stdout)
    assert said.pop("loaded") == []
    return said, ended.is_set()


@pytest.mark.parametrize("mode", ["auto", *MODERN_REVISIONS])
async def test_the_modern_era_is_whole(without: Path, mode: str) -> None:
    """JSON and events, headers of tools, a subscription, a cancellation."""
    with trio.fail_after(90):
        said, cancelled = await told(without, REVISIONS, mode)
    assert said == {
        "revision": MODERN_REVISIONS[-1],
        "tools": ["count", "change", "wait"],
        "progress": [1, 2, 3],
        "result": "3",
        "event": ToolsListChanged.__name__,
    }
    assert cancelled


@pytest.mark.parametrize(("mode", "kind"), [("auto", "http"), ("legacy", "http"), ("auto", "sse")])
async def test_a_legacy_server_gives_a_clear_error(without: Path, mode: str, kind: str) -> None:
    with trio.fail_after(90):
        said, _ = await told(without, LEGACY_REVISIONS, mode, kind)
    assert "this installation does not speak the handshake era over HTTP" in said["error"]
    assert said["error"].startswith("TransportError: ")
