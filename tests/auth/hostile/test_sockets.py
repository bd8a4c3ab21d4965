"""What memory can't show: bytes that are read from a socket, the pages of the listener, and the logs of libraries."""

from __future__ import annotations

import logging
import traceback
from functools import partial
from urllib.parse import urlencode, urlsplit

import httpx
import pytest
import trio

from trio_mcp import Client, HttpError, Server
from trio_mcp._nursery import background_nursery
from trio_mcp.auth import MemoryTokens, OAuth
from trio_mcp.auth.rules.login import Login
from trio_mcp.auth.testing import AuthorizationServer, protected
from trio_mcp.errors import AuthorizationError
from trio_mcp.low_level import websocket_client

HEAD = b"HTTP/1.1 %b\r\nContent-Type: application/json\r\n%b\r\n"
GIB = 2**30
TOKEN = "canary-token"


async def asked(url: str) -> None:
    raise AssertionError("a person was asked")


@pytest.mark.parametrize(
    "head",
    [HEAD % (b"200 OK", b"Content-Length: %d\r\n" % GIB), HEAD % (b"200 OK", b"Connection: close\r\n")],
    ids=["with its length", "until it closes"],
)
async def test_little_of_a_gibibyte_is_read(head: bytes) -> None:
    given = 0

    async def serve(stream: trio.SocketStream) -> None:
        nonlocal given
        async with stream:
            request = b""
            while b"\r\n\r\n" not in request:
                request += bytes(await stream.receive_some())
            if request.startswith(b"POST"):
                await stream.send_all(
                    b"HTTP/1.1 401 Unauthorized\r\nWWW-Authenticate: Bearer\r\nContent-Length: 0\r\n\r\n"
                )
                return
            with pytest.raises(trio.BrokenResourceError):
                await stream.send_all(head)
                while given < GIB:
                    await stream.send_all(bytes(65536))
                    given += 65536

    async with background_nursery() as nursery:
        (listener,) = await nursery.start(partial(trio.serve_tcp, serve, 0, host="127.0.0.1"))
        url = f"http://127.0.0.1:{listener.socket.getsockname()[1]}/mcp"
        with pytest.raises(AuthorizationError, match="more than 65536 bytes") as caught:
            async with Client(url, auth=OAuth(show=asked)):
                pass
    assert caught.value.step == "resource metadata"
    assert given < 16 * 2**20  # what the buffers of the system take


async def test_a_refused_handshake_shows_no_token_that_the_server_repeats() -> None:
    async def serve(stream: trio.SocketStream) -> None:
        async with stream:
            request = b""
            while b"\r\n\r\n" not in request:
                request += bytes(await stream.receive_some())
            assert TOKEN.encode() in request
            said = f"no: Bearer {TOKEN}".encode()
            await stream.send_all(
                HEAD % (b"403 Forbidden", b"X-No: %b\r\nContent-Length: %d\r\n" % (said, len(said))) + said
            )

    async with background_nursery() as nursery:
        (listener,) = await nursery.start(partial(trio.serve_tcp, serve, 0, host="127.0.0.1"))
        url = f"ws://127.0.0.1:{listener.socket.getsockname()[1]}/mcp"
        with pytest.raises(HttpError, match=r"no: Bearer \*\*\*") as caught:
            async with websocket_client(url, headers={"Authorization": f"Bearer {TOKEN}"}):
                pass
    assert TOKEN not in repr(caught.value) + "".join(traceback.format_exception(caught.value))


async def test_neither_pages_nor_logs_show_a_secret(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    store, said, seen = MemoryTokens(), dict[str, str](), list[str]()
    authority = AuthorizationServer(dpop="accept")

    async def show(url: str) -> None:
        """Be a browser in which an attacker's page guesses first, and replays afterwards."""
        back = await authority.show(url)
        said.update(authority.seen[-1].parameters)
        bare, _, query = back.partition("?")
        async with httpx.AsyncClient() as browser:
            forged = urlencode({"code": "forged", "state": "guessed", "iss": authority.issuer})
            for target, code in ((f"{bare}?{forged}", 400), (f"{bare}?{query}&state=x", 400), (back, 200)):
                page = await browser.get(target)
                assert page.status_code == code
                seen.append(page.text + str(page.headers))
            said.update(httpx.QueryParams(query))
        with pytest.raises(httpx.TransportError):  # the port is closed, or its next user answers
            async with httpx.AsyncClient() as browser:
                assert (await browser.get(back)).status_code == 400
                raise httpx.ConnectError("refused")

    server = Server("files")
    server.tool(name="fine", scopes=["read"])(lambda: "fine")
    server.tool(name="more", scopes=["write"])(lambda: "more")
    async with protected(server, authority, scopes=["read"]) as url:
        async with Client(url, auth=OAuth(show=show, store=store)) as client:
            await client.call_tool("fine")
            authority.denies = True
            with pytest.raises(AuthorizationError, match="declined") as caught:
                await client.call_tool("more")
        login = Login.from_json(await store.load(url) or "")
        seen += traceback.format_exception(caught.value)
    secrets = [login.access_token, login.refresh_token or "", said["code"], said["state"]]
    secrets += [
        request.parameters["code_verifier"] for request in authority.seen if "code_verifier" in request.parameters
    ]
    # The browser here is httpx too, which logs what it opens.
    seen += [record.getMessage() for record in caplog.records if urlsplit(url).netloc in record.getMessage()]
    seen += [record.getMessage() for record in caplog.records if record.name.startswith("trio_mcp")]
    assert all(map(bool, secrets))
    assert [secret for secret in secrets if secret in "\n".join(seen)] == []
