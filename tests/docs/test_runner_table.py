"""The page about runners: what it says of lenient and strict parsers is so."""

from __future__ import annotations

from functools import partial

import pytest
import trio
from pydantic_core import to_json

from tests.docs.test_tables import rows_below
from tests.http_peer import LATEST, request
from tests.peer import ME
from trio_mcp import Server

GET = b"GET /health HTTP/1.1\r\nHost: localhost\r\n"
POST = (
    b"POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    b"Accept: application/json, text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
)
HELLO = to_json(request("initialize", {"protocolVersion": LATEST, "capabilities": {}, "clientInfo": ME}, 1))

REQUESTS = {
    "lines that end with LF alone": GET.replace(b"\r\n", b"\n") + b"\n",
    "a field continued on the next line": GET + b"X-A: b\r\n c\r\n\r\n",
    "the same `Content-Length` twice": GET + b"Content-Length: 1\r\nContent-Length: 1\r\n\r\nx",
    "a control character in a field": GET + b"X-A: \x01\r\n\r\n",
    "a chunk with an extension of 5000 bytes": POST + b"%x;%b\r\n%b\r\n0\r\n\r\n" % (len(HELLO), b"a" * 5000, HELLO),
    "white space after the size of a chunk": POST + b"%x \r\n%b\r\n0\r\n\r\n" % (len(HELLO), HELLO),
    "a `Content-Length` of 20 digits": POST.replace(b"Transfer-Encoding: chunked", b"Content-Length: " + b"9" * 20),
    "an empty line before it": b"\r\n" + GET + b"\r\n",
}
"""The first cell of each row, and such a request."""

HEADER = '| a request with | `"hypercorn"` | `"h11"`, `"httptools"` | RFC 9112 says |'


@pytest.mark.parametrize("runner", ["hypercorn", "h11", "httptools"])
async def test_what_a_runner_refuses_is_as_the_table_says(runner: str) -> None:
    stated = {row[0]: row[1 if runner == "hypercorn" else 2] for row in rows_below("runners.md", HEADER)}
    found = {}
    async with trio.open_nursery() as nursery:
        url = await nursery.start(partial(Server("x").serve_http, port=0, runner=runner))
        port = int(url.split(":")[2].partition("/")[0])
        for what, request in REQUESTS.items():
            async with await trio.open_tcp_stream("127.0.0.1", port) as stream:
                await stream.send_all(request)
                found[what] = (await stream.receive_some()).split()[1].decode()
        nursery.cancel_scope.cancel()
    assert found == stated
