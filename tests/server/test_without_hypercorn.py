"""Our own HTTP/1.1 server where hypercorn can't be imported."""

from __future__ import annotations

import subprocess
import sys

import attrs
import pytest

from trio_mcp.http.runner.hypercorn.settings import QuietConfig, settings_from
from trio_mcp.http.runner.settings import ServerSettings, settings_at

PROGRAM = """
import sys
sys.modules["hypercorn"] = None  # importing it, or a part of it, raises ImportError
import trio
from functools import partial
from trio_mcp import Client, Server
from trio_mcp.http.client.parameters import HttpServerParameters
server = Server("test")
@server.tool
def add(a: int, b: int) -> int:
    '''Add.'''
    return a + b
async def main():
    async with trio.open_nursery() as nursery:
        url = await nursery.start(partial(server.serve_http, port=0, runner=sys.argv[1]))
        async with Client(HttpServerParameters(url)) as client:
            print((await client.call_tool("add", {"a": 1, "b": 2})).structured_content)
        nursery.cancel_scope.cancel()
trio.run(main)
"""


def served(runner: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", PROGRAM, runner]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.parametrize("runner", ["h11", "httptools"])
def test_our_own_server_needs_no_hypercorn(runner: str) -> None:
    done = served(runner)
    assert done.stdout == "{'result': 3}\n", done.stderr


def test_the_runner_on_hypercorn_needs_it() -> None:
    """So the program does block it."""
    assert "No module named 'hypercorn" in served("hypercorn").stderr


def test_the_settings_of_an_address_are_the_defaults_of_hypercorns_configuration() -> None:
    """So a user who moves from one to the other finds nothing changed."""

    def values(settings: ServerSettings) -> dict[str, object]:
        return {
            field.name: getattr(settings, field.name)
            for field in attrs.fields(ServerSettings)
            if field.name not in ("bind", "config", "response_fields")
        } | {"fields of a response": [name for name, _ in settings.response_fields()]}

    own, hypercorns = values(settings_at("127.0.0.1", 0)), values(settings_from(QuietConfig()))
    assert own.pop("server_names") == ()
    assert hypercorns.pop("server_names") == []
    assert own == hypercorns
