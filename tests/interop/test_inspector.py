"""The MCP Inspector, as its command line, against a server with one of everything."""

from __future__ import annotations

import json
import subprocess
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


@pytest.fixture(params=[("stdio", "legacy"), ("stdio", "modern"), ("http", "legacy"), ("http", "modern")], ids="-".join)
def inspector(
    npm: NodePeers, url: str, environment: dict[str, str], tmp_path: Path, request: pytest.FixtureRequest
) -> Inspector:
    transport, era = request.param
    script = npm.modules / "node_modules" / "@modelcontextprotocol" / "inspector" / "clients/launcher/build/index.js"
    imported = ("tests.conformance.everything_questions", *forks.LOADED)
    process = forks.command("tests.conformance.everything_server", *imported, options=("-W", "error"))
    target = [*process, "stdio"] if transport == "stdio" else [url]
    command = [str(npm.node), str(script), "--cli", "--format", "json", "--protocol-era", era, *target]
    return Inspector(command, environment | {"HOME": str(tmp_path)})  # it leaves its catalog there


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
