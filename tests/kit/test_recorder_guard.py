"""A recorder adds the credentials of the command line, so no web page may reach the server that it stands before."""

from __future__ import annotations

import os
import stat
import tempfile
from functools import partial
from pathlib import Path

import httpx
import pytest
import trio
from trio.testing import MockClock

from tests.http_peer import http_request, peer, streaming
from tests.kit.golden import recorded
from tests.kit.recorders import recording
from trio_mcp import Client, Server
from trio_mcp._nursery import background_nursery
from trio_mcp.conformance.transcript.tape import Tape

TOKEN = {"Authorization": "Bearer of-the-command-line"}
CALL = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "act", "arguments": {}}}

# Each row: who asks, what is asked for, the headers that tell it, and the status.
ASKED: dict[str, tuple[str, str, dict[str, str], int]] = {
    "a program": ("POST", "/mcp", {}, 200),
    "a program, with a query": ("POST", "/mcp?a=b", {}, 200),
    "a page of this machine": ("POST", "/mcp", {"origin": "http://localhost:3000"}, 200),
    "a page whose name was made to lead here": ("POST", "/mcp", {"host": "evil.example"}, 403),
    "the same, which says so": ("POST", "/mcp", {"host": "evil.example", "origin": "http://evil.example"}, 403),
    "a foreign page": ("POST", "/mcp", {"origin": "http://evil.example", "content-type": "text/plain"}, 403),
    "a page in a sandbox": ("POST", "/mcp", {"origin": "null"}, 403),
    "an image on a foreign page": ("GET", "/mcp", {"sec-fetch-site": "cross-site"}, 403),
    "a program, another path": ("POST", "/admin", {}, 404),
    "a program, whether there is another path": ("HEAD", "/admin", {}, 404),
    "a program, a path above": ("POST", "/", {}, 404),
    "a program, a path below": ("POST", "/mcp/x", {}, 404),
    "a program, another path in other words": ("POST", "/mcp/../admin", {}, 404),
    "a program, the metadata": ("GET", "/.well-known/oauth-protected-resource/mcp", {}, 404),
    "a program, by a whole URL": ("POST", "http://evil.example/mcp", {}, 404),
}


@pytest.mark.parametrize(("method", "target", "fields", "status"), ASKED.values(), ids=ASKED)
async def test_a_recorder_passes_on_what_this_machine_asks_of_the_target_s_path(
    method: str, target: str, fields: dict[str, str], status: int
) -> None:
    tape = Tape()
    async with peer() as behind, recorded(behind.url, tape, **TOKEN) as url:
        answer = await _said(url, asking(method, CALL if method == "POST" else b"", target, **fields))
        assert answer.startswith(b"HTTP/1.1 %d" % status), answer
        passed = [asked.headers["authorization"] for asked in behind.asked]
    assert passed == ([TOKEN["Authorization"]] if status == 200 else [])
    assert any(event.kind == "request" for event in tape.events) == bool(passed)


async def _said(url: str, request: bytes, until: bytes = b"never") -> bytes:
    """Return what is answered to these bytes, to its end or up to a text in it."""
    answer = b""
    with trio.fail_after(30):
        async with await trio.open_tcp_stream("127.0.0.1", httpx.URL(url).port or 0) as stream:
            await stream.send_all(request)
            while until not in answer and (part := await stream.receive_some()):
                answer += part
    return answer


asking = partial(http_request, connection="close")


async def test_what_the_target_s_url_asks_for_is_asked_for_through_a_recorder() -> None:
    """It may be a key, which the URL of the recorder does not show."""
    async with peer() as behind, recorded(f"{behind.url}?key=k", Tape()) as url:
        assert "?" not in url
        for target in ("/mcp", "/mcp?a=b"):
            await _said(url, asking("POST", CALL, target))
        assert [asked.path for asked in behind.asked] == ["/mcp?key=k", "/mcp?key=k&a=b"]


ENDPOINTS: dict[str, bool] = {
    "/messages?id=1": True,
    "/mcp/messages": True,
    "{origin}/messages": True,
    "http://evil.example/messages": False,
    "https://127.0.0.1/messages": False,
    "http://[messages": False,
}


@pytest.mark.parametrize("named", ENDPOINTS)
async def test_messages_are_posted_where_the_target_says(named: str) -> None:
    """2024-11-05 `basic/transports`, HTTP with SSE: the ``endpoint`` event. Nothing else is served there."""
    status = b"200" if ENDPOINTS[named] else b"404"
    async with peer() as behind, recorded(behind.url, Tape(), **TOKEN) as url:
        endpoint = named.format(origin=behind.url.removesuffix("/mcp"))
        path = httpx.URL(behind.url).join(endpoint).raw_path.decode() if ENDPOINTS[named] else "/messages"
        behind.handlers["GET"] = streaming(b"event: endpoint\ndata: %b\n\n" % endpoint.encode())
        assert (await _said(url, asking("POST", CALL, path))).split()[1] == b"404"
        await _said(url, asking("GET", path="/mcp"))
        assert (await _said(url, asking("POST", CALL, path))).split()[1] == status
        assert (await _said(url, asking("GET", path=path))).split()[1] == b"404"
        foreign = await _said(url, asking("POST", CALL, path, origin="http://evil.example"))
        assert foreign.split()[1] == b"403"
        assert len(behind.asked) == 1 + ENDPOINTS[named]


@pytest.mark.legacy
async def test_a_server_over_http_sse_is_recorded() -> None:
    server = Server("behind")
    server.tool(_three)
    tape = Tape()
    async with background_nursery() as nursery:
        behind = await nursery.start(partial(server.serve_sse, port=0))
        async with recorded(behind, tape) as url, Client(url, mode="2024-11-05") as client:
            assert (await client.call_tool("_three")).text == "3"
    assert "tools/call" in [event.message.get("method") for event in tape.events if event.kind == "message"]


def _three() -> int:
    return 3


HANDSHAKE = {
    "connection": "Upgrade",
    "upgrade": "websocket",
    "sec-websocket-key": "dGhlIHNhbXBsZSBub25jZQ==",
    "sec-websocket-version": "13",
    "sec-websocket-protocol": "mcp",
}
HANDSHAKES: dict[str, tuple[str, dict[str, str], int]] = {
    "a program": ("/mcp", {}, 101),
    "a page of this machine": ("/mcp", {"origin": "http://localhost:3000"}, 101),
    "a foreign page": ("/mcp", {"origin": "http://evil.example"}, 403),
    "a page whose name was made to lead here": ("/mcp", {"host": "evil.example", "origin": "http://evil.example"}, 403),
    "another path": ("/", {}, 404),
}


@pytest.mark.parametrize(("path", "fields", "status"), HANDSHAKES.values(), ids=HANDSHAKES)
async def test_a_recorder_opens_websockets_for_this_machine_to_the_target_s_path(
    path: str, fields: dict[str, str], status: int
) -> None:
    tape = Tape()
    async with background_nursery() as nursery:
        behind = await nursery.start(partial(Server("behind").serve_websocket, port=0, allowed_origins=["*"]))
        async with recorded(behind, tape, **TOKEN) as url:
            answer = await _said(url, http_request("GET", path=path, **HANDSHAKE, **fields), b"\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 %d" % status), answer
    assert bool(tape.events) == (status == 101)


POST = b"POST / HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: text/plain\r\n\r\n"
LINE = b'{"jsonrpc": "2.0", "id": 1, "method": "ping"}\n'


@pytest.mark.parametrize("kind", ["tcp", "unix"])
async def test_a_recorder_of_lines_passes_nothing_on_that_begins_like_http(kind: str, tmp_path: Path) -> None:
    """As a server on TCP does: what follows the head of a page's POST may be lines of MCP."""
    tape = Tape()
    server = Server("behind")
    serve = partial(server.serve_tcp, port=0) if kind == "tcp" else partial(server.serve_unix, tmp_path / "socket")
    async with background_nursery() as nursery, recorded(await nursery.start(serve), tape) as url:
        port = httpx.URL(url).port or 0
        for first in (POST, b"\n" + POST, POST[:3]):
            async with await trio.open_tcp_stream("127.0.0.1", port) as stream:
                await stream.send_all(first)
                with trio.fail_after(30):
                    assert await _rest(stream) == b""
        assert [event.kind for event in tape.events] == ["mark"] * 3
        assert all("does not speak MCP" in event.facts["reason"] for event in tape.events)
        async with await trio.open_tcp_stream("127.0.0.1", port) as stream:
            # In two packets: what came with the first line is passed on.
            await stream.send_all(LINE[:20])
            await stream.send_all(LINE[20:] + LINE)
            await stream.send_eof()
            assert (await _rest(stream)).count(b"\n") == 2


async def test_a_recorder_of_lines_gives_up_a_client_that_says_nothing(autojump_clock: MockClock) -> None:
    """Its server, which would do so, is only connected to after the first line."""
    tape = Tape()
    async with (
        recorded("tcp://127.0.0.1:9", tape) as url,
        await trio.open_tcp_stream("127.0.0.1", httpx.URL(url).port or 0) as stream,
    ):
        assert await stream.receive_some() == b""
    (event,) = tape.events
    assert "did not send its first message in time" in event.facts["reason"]


async def _rest(stream: trio.SocketStream) -> bytes:
    found = b""
    try:
        async for part in stream:
            found += part
    except trio.BrokenResourceError:  # closed with something unread
        pass
    return found


@pytest.mark.parametrize("path", [None, "mine"])
async def test_a_unix_socket_is_recorded_on_a_unix_socket_of_the_user_alone(
    monkeypatch: pytest.MonkeyPatch, path: str | None
) -> None:
    """A port would let every user of the machine do what the socket's file allows one. At the end nothing is left."""
    server = Server("behind")
    server.tool(_three)
    # Not `tmp_path`, which may be too long for a socket.
    with tempfile.TemporaryDirectory() as folder:
        monkeypatch.setenv("TMPDIR", folder)
        given = [] if path is None else ["--path", f"{folder}/{path}"]
        async with background_nursery() as nursery:
            behind = await nursery.start(partial(server.serve_unix, f"{folder}/behind"))
            async with recording(Path(folder), behind, *given) as url:
                near = url.removeprefix("unix:")
                assert stat.S_IMODE(os.stat(near).st_mode) == 0o600
                assert path is not None or stat.S_IMODE(os.stat(os.path.dirname(near)).st_mode) == 0o700
                async with Client(url) as client:
                    assert (await client.call_tool("_three")).data == 3
        assert os.listdir(folder) == ["said.jsonl"]
        assert '"tools/call"' in await trio.Path(folder, "said.jsonl").read_text()
