"""Who ends a connection: clients of others that leave our server, or are left by it, with a call in flight."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import trio

from tests.ways import MOUNTED, WAYS
from trio_mcp import Context, Server

from .support import DEADLINE, PEERS

if TYPE_CHECKING:
    from .node_peers import NodePeers

pytestmark = pytest.mark.interop


class Peer:
    """The script of a client."""

    def __init__(self, *command: str, environment: dict[str, str], **given: Any) -> None:
        self.command, self.environment, self.given = command, environment, given

    async def run(self, url: str, *steps: dict[str, Any]) -> list[Any]:
        """Return the outcomes of some steps."""
        kind = {"ws": "websocket"}.get(scheme := url.partition(":")[0], scheme)
        given = json.dumps({"url": url, "kind": kind, "steps": steps, **self.given})
        done = await trio.run_process([*self.command, given], env=self.environment, capture_stdout=True)
        assert done.stdout is not None
        steps_of: list[Any] = json.loads(done.stdout)["steps"]
        return steps_of


@pytest.fixture
def peer(request: pytest.FixtureRequest, npm: NodePeers, python_v1: Path, environment: dict[str, str]) -> Peer:
    if request.param == "Python v1":
        return Peer(str(python_v1), str(PEERS / "python_v1_client.py"), environment=environment)
    script = {"TypeScript v1": "ts_client.mjs", "TypeScript v2": "ts_client_modern.mjs"}[request.param]
    return Peer(
        str(npm.node), str(PEERS / script), environment=environment, modules=str(npm.modules), mode="2026-07-28"
    )


@pytest.mark.parametrize(
    ("peer", "way"),
    [
        ("TypeScript v2", "TCP"),
        *(
            pytest.param(peer, way, marks=[] if (peer, way) == ("Python v1", "WebSocket") else [pytest.mark.again])
            for peer, ways in (
                ("Python v1", ["WebSocket", *MOUNTED]),
                ("TypeScript v1", ["WebSocket", "TCP", "Unix"]),
                ("TypeScript v2", ["WebSocket", "Unix"]),
            )
            for way in ways
        ),
    ],
    indirect=["peer"],
)
async def test_calls_end_with_the_connection_whoever_leaves(peer: Peer, way: str) -> None:
    """The first client leaves in the middle of a call, the server in the middle of the second one's."""
    server = Server("ending")
    begun, ended = trio.Event(), trio.Event()
    outcomes: list[Any] = []

    @server.tool
    async def slow(seconds: float, ctx: Context) -> None:
        await ctx.report_progress(1)
        begun.set()
        try:
            await trio.sleep(seconds)
        finally:
            ended.set()

    with trio.fail_after(DEADLINE):
        async with trio.open_nursery() as nursery, WAYS[way](server) as url:
            await peer.run(url, {"op": "leave"})
            await ended.wait()
            begun = trio.Event()
            call = {"op": "call", "name": "slow", "arguments": {"seconds": 3600}, "progress": True}

            async def left() -> None:
                outcomes.extend(await peer.run(url, call, {"op": "closed"}))

            nursery.start_soon(left)
            await begun.wait()
    in_flight, after = outcomes
    assert in_flight["progress"][0]["progress"] == 1
    assert "error" in in_flight
    assert "error" in after
