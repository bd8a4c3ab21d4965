"""`trio-mcp run` over HTTP: each option reaches the endpoint."""

from __future__ import annotations

import contextlib
import signal
import socket
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest
import trio

from tests.cli.running import command, environment, run
from trio_mcp import Client

HELLO = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}},
}
ACCEPT = {"Accept": "application/json, text/event-stream"}


@contextlib.asynccontextmanager
async def serving(folder: Path, *words: str) -> AsyncIterator[str]:
    """Yield the URL of the shop, served by a process that ends without a fault."""
    process = await trio.lowlevel.open_process(
        command("run", "shop.py", "--port", "0", *words), cwd=folder, env=environment(), stderr=subprocess.PIPE
    )
    assert process.stderr is not None
    try:
        with trio.fail_after(60):
            said = b""
            while b"serves http" not in said or not said.endswith(b"\n"):
                said += await process.stderr.receive_some()
            yield said.split()[-1].decode()
            process.send_signal(signal.SIGTERM)
            rest = b"".join([chunk async for chunk in process.stderr])
            assert (await process.wait(), rest) == (0, b"")
    finally:
        process.kill()
        with trio.CancelScope(shield=True):
            await process.wait()
            await process.stderr.aclose()


async def test_the_guard_and_cors_are_as_asked(shop: Path) -> None:
    page = {"Origin": "https://app.example", **ACCEPT}
    words = [
        "--allowed-host",
        "shop.example",
        "--allowed-host",
        "127.0.0.1",
        "--allowed-origin",
        page["Origin"],
        "--cors",
    ]
    async with serving(shop, "--transport", "http", *words) as url, httpx.AsyncClient() as client:
        answer = await client.post(url, json=HELLO, headers=page)
        assert answer.headers["Access-Control-Allow-Origin"] == page["Origin"]
        assert (await client.post(url, json=HELLO, headers=ACCEPT | {"Host": "shop.example"})).status_code == 200
        assert (await client.post(url, json=HELLO, headers=ACCEPT | {"Host": "localhost"})).status_code == 403
        assert (await client.post(url, json=HELLO, headers=ACCEPT | {"Origin": "https://b.example"})).status_code == 403


async def test_sessions_and_streams_can_be_left_out(shop: Path) -> None:
    async with (
        serving(shop, "--transport", "http", "--stateless", "--json-only") as url,
        httpx.AsyncClient() as client,
    ):
        answer = await client.post(url, json=HELLO, headers=ACCEPT)
        assert answer.headers["Content-Type"] == "application/json"
        assert "Mcp-Session-Id" not in answer.headers


async def test_events_are_kept_in_a_file(shop: Path) -> None:
    async with (
        serving(shop, "--transport", "http", "--event-store", "events.db") as url,
        Client(url, mode="legacy") as client,
    ):
        assert (await client.call_tool("price", {"item": "pear"})).data == 45
    content = (shop / "events.db").read_bytes()
    assert content.startswith(b"SQLite format 3")


async def test_http_and_sse_stand_side_by_side(shop: Path) -> None:
    async with serving(shop, "--transport", "http", "--path", "/a", "--sse-path", "/b") as url:
        assert url.endswith("/a")
        async with Client(url.removesuffix("a") + "b", mode="2024-11-05") as client:
            assert client.protocol_version == "2024-11-05"
        async with Client(url, mode="legacy") as client:
            assert client.protocol_version == "2025-11-25"


async def test_the_path_of_sse_is_that_of_its_stream(shop: Path) -> None:
    async with serving(shop, "--transport", "sse", "--path", "/events") as url:
        assert url.endswith("/events")
        async with Client(url, mode="2024-11-05") as client:
            assert client.protocol_version == "2024-11-05"


@pytest.mark.parametrize("transport", ["http", "sse"])
def test_an_address_in_use_is_reported_in_one_line(shop: Path, transport: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        done = run(shop, "run", "shop.py", "--transport", transport, "--port", port)
    assert done.returncode == 1
    said = f"trio-mcp run: can't serve: can't listen on 127.0.0.1:{port}: Address already in use"
    assert said in done.stderr.splitlines()
    assert "ExceptionGroup" not in done.stderr


@pytest.mark.parametrize(
    ("word", "fault"), [("--port=99999", "port must be from 0 to 65535"), ("--host=", "host must be")]
)
def test_an_invalid_address_is_a_usage_error(shop: Path, word: str, fault: str) -> None:
    done = run(shop, "run", "shop.py", "--transport", "http", word)
    assert done.returncode == 2
    assert f"trio-mcp run: {fault}" in done.stderr
