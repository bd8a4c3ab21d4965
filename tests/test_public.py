"""The public face: names, lazy imports, what importing costs."""

from __future__ import annotations

import subprocess
import sys

import pytest

import trio_mcp

HTTP = ("hypercorn", "httpx", "trio_websocket")


def modules_after(code: str) -> set[str]:
    program = f"{code}\nimport sys\nprint('\\n'.join(sys.modules))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return set(done.stdout.splitlines())


def test_every_public_name_is_there() -> None:
    for name in trio_mcp.__all__:
        assert getattr(trio_mcp, name) is not None
    assert set(trio_mcp.__all__) <= set(dir(trio_mcp))
    with pytest.raises(AttributeError, match="no attribute 'Klient'"):
        _ = trio_mcp.Klient


@pytest.mark.parametrize(
    "code", ["import trio_mcp", "from trio_mcp import Client", "from trio_mcp import stdio_client"]
)
def test_a_client_loads_no_server_no_http_server_and_no_command_line(code: str) -> None:
    loaded = modules_after(code)
    for unwanted in (*HTTP, "trio_mcp.server", "trio_mcp.cli", "jsonschema_rs", "asyncio", "anyio"):
        assert unwanted not in loaded, unwanted


@pytest.mark.parametrize("code", ["from trio_mcp import Server", "from trio_mcp import stdio_server"])
def test_a_server_loads_no_client_and_no_http(code: str) -> None:
    loaded = modules_after(code)
    for unwanted in (*HTTP, "trio_mcp.client", "trio_mcp.cli", "asyncio", "anyio"):
        assert unwanted not in loaded, unwanted
