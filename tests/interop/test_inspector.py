"""The MCP Inspector, as its command line, against a server with one of everything."""

from __future__ import annotations

import json
import re
import signal
import socket
import subprocess
import sys
import urllib.request
from typing import TYPE_CHECKING, Any

import attrs
import pytest

from tests import forks
from tests.conformance.everything_server import SCHEMA_2020_12, server
from tests.conformance.suite import CHECKOUT, everything_url
from trio_mcp import Client

from .support import DEADLINE

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from .node_peers import NodePeers

pytestmark = pytest.mark.interop


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with everything_url() as url:
        yield url


@attrs.frozen
class Inspector:
    """The inspector, a server, and an era."""

    command: list[str]
    environment: dict[str, str]

    def run(self, method: str, *arguments: str) -> dict[str, Any]:
        """Call a method. The inspector must find nothing to complain of."""
        done = subprocess.run(
            [*self.command, "--method", method, *arguments],
            cwd=CHECKOUT,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=DEADLINE,
        )
        assert (done.returncode, done.stderr) == (0, ""), done.stdout
        result: dict[str, Any] = json.loads(done.stdout)["result"]
        return result


def _script(npm: NodePeers) -> Path:
    return npm.modules / "node_modules" / "@modelcontextprotocol" / "inspector" / "clients/launcher/build/index.js"


@pytest.fixture(params=[("stdio", "legacy"), ("stdio", "modern"), ("http", "legacy"), ("http", "modern")], ids="-".join)
def inspector(
    npm: NodePeers, url: str, environment: dict[str, str], tmp_path: Path, request: pytest.FixtureRequest
) -> Inspector:
    transport, era = request.param
    return inspector_of(npm, environment, tmp_path, era, None if transport == "stdio" else url)


def inspector_of(
    npm: NodePeers, environment: dict[str, str], folder: Path, era: str, url: str | None = None
) -> Inspector:
    """Return the inspector of the server at a URL, or of one that it starts itself."""
    imported = ("tests.conformance.everything_questions", *forks.LOADED)
    process = forks.command("tests.conformance.everything_server", *imported, options=("-W", "error"))
    target = [*process, "stdio"] if url is None else [url]
    command = [str(npm.node), str(_script(npm)), "--cli", "--format", "json", "--protocol-era", era, *target]
    return Inspector(command, environment | {"HOME": str(folder)})  # it leaves its catalog there


async def test_everything_is_listed_and_the_tools_have_portable_schemas(inspector: Inspector) -> None:
    """``--strict`` complains of a schema that some client could not use."""
    tools = {tool["name"]: tool for tool in inspector.run("tools/list", "--strict")["tools"]}
    assert tools["json_schema_2020_12_tool"]["inputSchema"] == SCHEMA_2020_12
    resources = inspector.run("resources/list")["resources"]
    prompts = inspector.run("prompts/list")["prompts"]
    async with Client(server) as client:
        assert set(tools) == {tool.name async for tool in client.iter_tools()}
        assert [each["uri"] for each in resources] == [each.uri async for each in client.iter_resources()]
        assert [each["name"] for each in prompts] == [each.name async for each in client.iter_prompts()]


def test_tools_resources_and_prompts_give_what_they_hold(inspector: Inspector) -> None:
    result = inspector.run("tools/call", "--tool-name", "test_multiple_content_types")
    assert [block["type"] for block in result["content"]] == ["text", "image", "resource"]
    result = inspector.run("tools/call", "--tool-name", "test_x_mcp_header", "--tool-arg", "region=Zürich")
    assert result["structuredContent"] == {"result": "Zürich"}
    (content,) = inspector.run("resources/read", "--uri", "test://template/7/data")["contents"]
    assert json.loads(content["text"])["id"] == "7"
    filled = ("--prompt-name", "test_prompt_with_arguments", "--prompt-args", "arg1=a", "arg2=b")
    (message,) = inspector.run("prompts/get", *filled)["messages"]
    assert message["content"]["text"] == "Prompt with arguments: arg1='a', arg2='b'"


def test_dev_opens_its_page_with_the_server_and_ends_with_it(
    npm: NodePeers, environment: dict[str, str], tmp_path: Path
) -> None:
    """`trio-mcp dev`, with a script in place of npx, which would fetch the Inspector."""
    (tmp_path / "bin").mkdir()
    npx = tmp_path / "bin" / "npx"
    npx.write_text(f'#!/bin/sh\nshift\nexec "{npm.node}" "{_script(npm)}" "$@"\n')
    npx.chmod(0o755)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with subprocess.Popen(
        [sys.executable, "-m", "trio_mcp", "dev", "--port", str(port), "--", "node", "server.js"],
        cwd=CHECKOUT,
        env=environment
        | {"HOME": str(tmp_path), "PATH": f"{npx.parent}:{environment['PATH']}", "MCP_AUTO_OPEN_ENABLED": "false"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as process:
        assert process.stdout is not None
        said = ""
        while (found := re.search(r"(http://\S+)\?MCP_INSPECTOR_API_TOKEN=(\w+)", said)) is None:
            line = process.stdout.readline()
            assert line, said
            said += line
        url, token = found.groups()
        request = urllib.request.Request(f"{url}/api/servers", headers={"x-mcp-remote-auth": f"Bearer {token}"})
        with urllib.request.urlopen(request, timeout=DEADLINE) as response:
            servers = json.load(response)["mcpServers"]
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=DEADLINE)
    assert url == f"http://127.0.0.1:{port}"
    assert servers["node"] == {
        "type": "stdio",
        "command": "node",
        "args": ["server.js"],
        "env": {},
        "protocolEra": "auto",
    }
    assert process.returncode == 130
