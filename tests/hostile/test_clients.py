"""Servers that lie, break off, or talk nonsense to our clients: each ends as an error that says so, in bounded time."""

from __future__ import annotations

import logging
import random
import re
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
import trio
from wsproto.utilities import generate_accept_token

from tests.hostile.case import chosen, cut, token
from tests.hostile.families.websocket import (
    BAD_UTF8,
    BINARY,
    CLOSE,
    CONTINUATION,
    PING,
    PONG,
    TEXT,
    frame,
)
from trio_mcp import Client, TrioMcpError
from trio_mcp._nursery import background_nursery

CASES = 60
SECONDS = 5.0
"""That a client may take until it has given up, on a busy machine."""

RESULT = b'{"jsonrpc":"2.0","id":%d,"result":%s}'
KEY = re.compile(rb"(?i)sec-websocket-key: *([^\r]+)")


def answers(rng: random.Random) -> Iterator[bytes]:
    """Yield answers of a server that fit nothing, or hardly."""
    for _ in range(rng.randint(1, 5)):
        yield chosen(
            rng,
            b"",
            b"{}",
            b"[]",
            b"null",
            b"x" * rng.randint(1, 200_000),
            b"[" * rng.randint(1, 50_000),
            b"\0" * 100,
            RESULT % (rng.randint(0, 5), chosen(rng, b"{}", b"null", b"[]", b'{"protocolVersion":1}')),
            RESULT % (1, b'{"protocolVersion":"2025-11-25","capabilities":{},"serverInfo":{}}'),
            b'{"jsonrpc":"2.0","id":1,"error":{"code":-1,"message":"no\\u001b[31m"}}',
            b'{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"what?"}}',
            b'{"jsonrpc":"2.0","id":1,"method":"sampling/createMessage"}',
            b'{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":1}}',
            b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}',
        )


def lines(rng: random.Random) -> bytes:
    data = b"".join(answer + b"\n" for answer in answers(rng))
    return chosen(rng, data, data[:-1], b"HTTP/1.1 400 Bad Request\r\n\r\n", rng.randbytes(rng.randint(0, 500)), data)


def frames(rng: random.Random) -> bytes:
    served = partial(frame, rng, masked=0)
    data = b"".join(served(TEXT, answer) for answer in answers(rng))
    data += chosen(
        rng,
        b"",
        frame(rng, TEXT, b"{}"),
        served(BINARY, b"{}"),
        served(TEXT, chosen(rng, *BAD_UTF8)),
        served(CONTINUATION, b"x"),
        served(PING, b"x" * 126),
        served(PING, b"x") * 1000,
        served(PONG) * 1000,
        served(TEXT, b"x", fin=False) + served(TEXT, b"y"),
        served(TEXT, b"", length=2**64 - 1, form=127),
        served(TEXT, b"", length=2**62, form=127),
        served(TEXT, b"x", form=127),
        served(TEXT, b"", fin=False) + served(CONTINUATION, b"", fin=False) * 5000,
        served(chosen(rng, 3, 7, 11, 15)),
        served(TEXT, b"{}", reserved=0x40),
        served(CLOSE, b"x"),
        served(CLOSE, b"\x03\xee"),
        served(CLOSE, b"\x03\xe8\xff"),
        served(CLOSE, b"\x03\xf3" + b"\x1b[2J\nbye"),
        served(CLOSE) + served(TEXT, b"{}"),
        rng.randbytes(rng.randint(1, 500)),
    )
    return data


def response(rng: random.Random, accept: str) -> bytes:
    """Return the head of a response to the handshake, which is often good."""
    good = {
        "Upgrade": "websocket",
        "Connection": "Upgrade",
        "Sec-WebSocket-Accept": accept,
        "Sec-WebSocket-Protocol": "mcp",
    }
    changed = chosen(
        rng,
        *[{}] * 12,
        {"Upgrade": "h2c"},
        {"Connection": "close"},
        {"Sec-WebSocket-Accept": token(rng)},
        {"Sec-WebSocket-Accept": ""},
        {"Sec-WebSocket-Protocol": "other"},
        {"Sec-WebSocket-Protocol": "mcp, mcp"},
        {"Sec-WebSocket-Extensions": "permessage-deflate"},
        {"X": "y" * 100_000},
        {"X": "é\x01"},
    )
    status = chosen(rng, *["101 x"] * 12, "200 OK", "404", "101", "999 x", "100 Continue", "301 x", "1010 x", "-1", "")
    head = f"HTTP/1.1 {status}\r\n" + "".join(f"{name}: {value}\r\n" for name, value in {**good, **changed}.items())
    return (head + "\r\n").encode("latin-1")


@pytest.mark.parametrize("kind", ["tcp", "unix", "ws"])
async def test_a_hostile_server_costs_its_client_an_error(
    kind: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    numbers = iter(range(CASES))
    path = str(tmp_path / "socket")

    async def serve(stream: trio.SocketStream) -> None:
        rng = random.Random(f"{kind}/{next(numbers)}")
        try:
            async with stream:
                head = bytes(await stream.receive_some())
                if kind == "ws":
                    while b"\r\n\r\n" not in head:
                        head += await stream.receive_some()
                    (key,) = KEY.findall(head)
                    data = response(rng, generate_accept_token(key).decode()) + frames(rng)
                else:
                    data = lines(rng)
                for piece in cut(rng, data):
                    await stream.send_all(piece)
                    await trio.lowlevel.checkpoint()
                if rng.random() < 0.5:
                    await stream.send_eof()
                    with trio.move_on_after(0.2):
                        async for _ in stream:
                            pass
        except trio.BrokenResourceError:
            pass

    async with background_nursery() as nursery:
        if kind == "unix":
            listening = trio.socket.socket(trio.socket.AF_UNIX)
            await listening.bind(path)
            listening.listen(5)
            nursery.start_soon(trio.serve_listeners, serve, [trio.SocketListener(listening)])
            url = f"unix:{path}"
        else:
            listeners = await nursery.start(partial(trio.serve_tcp, host="127.0.0.1"), serve, 0)
            url = f"{kind}://127.0.0.1:{listeners[0].socket.getsockname()[1]}"
        for number in range(CASES):
            with trio.fail_after(SECONDS):
                try:
                    async with Client(url, timeout=1, mode=chosen(random.Random(number), "auto", "legacy")) as client:
                        await client.list_tools()
                except* TrioMcpError:
                    pass
                else:
                    pytest.fail(f"case {number} was taken for a server")
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR and record.exc_info]
