"""An app of FastMCP's in our host, and our pages as the inspector's command line shows them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import trio

from tests.conformance.suite import CHECKOUT
from tests.extensions.apps.views import shown
from trio_mcp import Client
from trio_mcp.conformance.engine import check_server
from trio_mcp.extensions import AppHost, Apps

from . import python_peers
from .conftest import installed_peers
from .node_peers import NodePeers
from .support import DEADLINE, PEERS, Launch

pytestmark = pytest.mark.interop


@pytest.fixture(scope="session")
def fastmcp(request: pytest.FixtureRequest) -> Path:
    """Return the interpreter that has FastMCP."""
    return installed_peers(request, lambda say: python_peers.install(say, "fastmcp"))


@pytest.mark.parametrize("mode", ["2025-11-25", "2026-07-28"])
async def test_an_app_of_fastmcp_runs_in_our_host(fastmcp: Path, environment: dict[str, str], mode: str) -> None:
    launch = Launch(str(fastmcp), [str(PEERS / "fastmcp_apps_server.py")], environment)
    with trio.fail_after(DEADLINE):
        async with Client(launch.for_us(), mode=mode, extensions=[Apps()]) as client:
            assert [tool.name for tool in await client.list_tools(audience="model")] == ["roll", "cheat"]
            async with shown(AppHost(client, "roll", {"sides": 6})) as scene:
                assert "<p>dice</p>" in scene.host.html
                assert scene.host.csp_domains == {"connectDomains": ["https://dice.example"]}
                await scene.view.greet()
                assert (await scene.view.hear("tool-result"))["structuredContent"] == {"rolled": 6}
                again = await scene.view.send_request("tools/call", {"name": "again"})
                assert again["content"][0]["text"] == "6"
                assert await scene.view.ask("tools/call", name="cheat") == -32602
        report = await check_server(launch.for_us(), rules=["ext-app-*"], revisions=[mode], examples=40, tools=["roll"])
    assert {outcome.rule.id for outcome in report.outcomes if outcome.status != "held"} == set()


@pytest.mark.parametrize("era", ["legacy", "modern"])
def test_the_inspector_shows_our_pages(npm: NodePeers, environment: dict[str, str], tmp_path: Path, era: str) -> None:
    script = npm.modules / "node_modules" / "@modelcontextprotocol" / "inspector" / "clients/launcher/build/index.js"
    program = "import sys; sys.path.insert(0, '.'); from examples.clock import server; server.run('stdio')"
    options = ["--cli", "--format", "json", "--protocol-era", era]
    command = [str(npm.node), str(script), *options, sys.executable, "-c", program]

    def inspect(method: str, *arguments: str) -> Any:
        done = subprocess.run(
            [*command, "--method", method, *arguments],
            cwd=CHECKOUT,
            env=environment | {"HOME": str(tmp_path)},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=DEADLINE,
        )
        assert (done.returncode, done.stderr) == (0, ""), done.stdout
        return json.loads(done.stdout)["result"]

    tools = {tool["name"]: tool.get("_meta") for tool in inspect("tools/list", "--strict")["tools"]}
    assert tools["show"] == {"ui": {"resourceUri": "ui://clock/face"}}
    assert tools["tick"] == {"ui": {"visibility": ["app"]}}
    (page,) = inspect("resources/read", "--uri", "ui://clock/face")["contents"]
    assert page["mimeType"] == "text/html;profile=mcp-app"
    assert page["_meta"]["ui"]["csp"] == {"connectDomains": ["https://time.example"]}
