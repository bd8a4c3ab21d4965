"""Bytes that a client of HTTP/1.1 may send, valid or nearly, and what the runners without hypercorn read in them."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from typing import Any

from hypothesis import strategies as st

from tests.tables import listed
from trio_mcp.http.framing import FramingError
from trio_mcp.http.runner.h1.incoming import RequestHeads, RequestReader
from trio_mcp.http.runner.h1.parsers import ParseFields, httptools_parser, parse_with_h11

LIMIT = 1000
PARSERS: dict[str, ParseFields] = {"h11": parse_with_h11, "httptools": httptools_parser()}

Verdict = tuple[list[Any], int | str]
"""The requests, and how it ends: the status of a refusal, ``more`` is waited for, or the last request closes."""


def verdict(parse: ParseFields | RequestHeads, pieces: Iterable[bytes], limit: int = LIMIT) -> Verdict:
    """Return what a connection reads."""
    incoming = RequestReader(parse if isinstance(parse, RequestHeads) else RequestHeads(parse, limit))
    requests: list[Any] = []
    found: Any = None
    body = b""
    for piece in pieces:
        incoming.feed(piece)
        try:
            while True:
                if found is None:
                    found = incoming.head()
                    if found is None:
                        break
                if not incoming.complete:
                    body += incoming.body()
                if not incoming.complete:
                    break
                head, fields = found
                whole = (head.method, head.target, head.version, sorted(fields), head.expects, head.lasting, body)
                requests.append(whole)
                found, body = None, b""
                if not head.lasting:
                    return requests, "closes"
        except FramingError as exc:
            return requests, exc.status
    return requests, "more"


def split(data: bytes, places: Iterable[int]) -> list[bytes]:
    """Cut data at some places."""
    cuts = [0, *sorted({place % (len(data) + 1) for place in places}), len(data)]
    return [data[start:end] for start, end in pairwise(cuts)]


def dripped(data: bytes) -> list[bytes]:
    """Cut data into bytes, or into a few bytes each if it is long."""
    size = 1 if len(data) < 10_000 else 7
    return [data[start : start + size] for start in range(0, len(data), size)]


def in_chunks(pieces: Iterable[bytes], extension: bytes = b"", trailers: bytes = b"") -> bytes:
    """Return a body in chunks."""
    return b"".join(b"%x%b\r\n%b\r\n" % (len(each), extension, each) for each in pieces) + b"0\r\n" + trailers + b"\r\n"


# --- strategies -------------------------------------------------------------------------------------------------

_GOOD_LINES = listed(
    b"POST /mcp HTTP/1.1 | POST /mcp?a=b HTTP/1.1 | GET / HTTP/1.1 | get / HTTP/1.1 | M-SEARCH * HTTP/1.1 | "
    b"GET http://b/c HTTP/1.1 | GET HTTPS://b?c HTTP/1.1 | GET / HTTP/1.0 | POST / HTTP/1.2 | CONNECT a:1 HTTP/1.1"
)
_BAD_LINES = listed(
    b"PRI * HTTP/2.0 | GET http:///c HTTP/1.1 | GET http://u@b/ HTTP/1.1 | GET / HTTP/0.9 | GET / ICE/1.0 | GET / | "
    b"GET /\xe9 HTTP/1.1 | GET /a b HTTP/1.1 | GET  / HTTP/1.1 | GET / HTTP/1.1  | / HTTP/1.1 | GET / http/1.1 | "
    b"GET / HTTP/1.11 | G(T / HTTP/1.1 | GET\t/ HTTP/1.1"
)
_GOOD_FIELDS = listed(
    b"Mcp-Session-Id: abc | mcp-session-id:abc\t | Connection: close | Connection: keep-alive, Close | "
    b"Connection: x, y | Connection: upgrade | Upgrade: websocket | Upgrade: h2c | Connection: | "
    b"Expect: 100-continue | Expect: x | Proxy-Connection: close | Trailer: x | TE: trailers | x:y | "
    b"x: \xff | x: | x:\t y | x: y \t | Transfer_Encoding: chunked | "
    b'x: "a, b" | Mcp-Session-Id: a b | Mcp-Session-Id: | !: ! | Content-Lengths: 7'
)
_BAD_FIELDS = listed(
    b"Host: b:80 | Content-Length: 0 | Content-Length: 5 | content-length:5\t | Content-Length: 6 | "
    b"Content-Length: 05 | Content-Length: 5, 5 | "
    b"Content-Length: +5 | Content-Length: 0x5 | Content-Length: 5 5 | Content-Length: | "
    b"Content-Length: 18446744073709551621 | Transfer-Encoding: chunked | transfer-encoding:\tChunked | "
    b"Transfer-Encoding: chunked, chunked | Transfer-Encoding: gzip, chunked | Transfer-Encoding: identity | "
    b"Transfer-Encoding: chunked;a=b | Transfer-Encoding: | Transfer-Encoding: xchunked | "
    b"Transfer-Encoding : chunked | Content-Length : 5 | x: \x01 | x: \x7f | x: a\x00b | x: a\rb | x: a\nb |  folded | "
    b"\tfolded | no colon | : no name | x y: z | \xe9: x | x\t: y | x\0: y"
)
_SMUGGLED = b"GET /smuggled HTTP/1.1\r\nHost: localhost\r\n\r\n"
_BODIES = {
    b"Content-Length: 5": [b"hello", b"hell", b"0\r\n\r\n" + _SMUGGLED],
    b"Transfer-Encoding: chunked": listed(
        b"5\r\nhello\r\n0\r\n\r\n | 0\r\n\r\n | 2\r\nhe\r\n3;a=b\r\nllo\r\n0\r\nx: y\r\n\r\n | "
        b'00005\r\nhello\r\n000\r\n\r\n | A;\ta="b"\r\nhellohello\r\n0\r\n\r\n'
    ),
    b"": listed(
        b" | 5\nhello\n0\n\n | 5 \r\nhello\r\n0\r\n\r\n | 0x5\r\nhello\r\n0\r\n\r\n | 5\r\nhello0\r\n\r\n | "
        b"+5\r\nhello\r\n0\r\n\r\n | 5;\r\nhello\r\n0\r\n\r\n | -1\r\n\r\n | 5;a=\nhello\r\n0\r\n\r\n | "
        b'5;a="\r\n"\r\nhello\r\n0\r\n\r\n | 5\r\nhello\r\n0\r\nx : y\r\n\r\n | 10000000000000005\r\nhello\r\n'
    ),
}
_SPOILERS = st.sampled_from(
    listed(
        b"\r | \n | \r\n | \r\n\r\n | \0 |   | \t | : | , | ; | 0 | 5 | \x0b | \x0c | \x1f | \x7f | \x80 | x | \r\n "
    )
)


def _mostly(good: list[bytes], bad: list[bytes]) -> st.SearchStrategy[bytes]:
    """Return a strategy that seldom chooses what is bad, as one bad line hides what comes after it."""
    return st.sampled_from(good * (8 * len(bad) // len(good)) + bad)


@st.composite
def _request(draw: st.DrawFn) -> bytes:
    """Return a request of lines that are mostly valid."""
    lines = [draw(_mostly(_GOOD_LINES, _BAD_LINES)), b"Host: localhost"]
    lines += draw(st.lists(_mostly(_GOOD_FIELDS, _BAD_FIELDS), max_size=5))
    if framing := draw(st.sampled_from([b"", b"Transfer-Encoding: chunked", b"Content-Length: 5"])):
        lines.insert(draw(st.integers(1, len(lines))), framing)
    body = draw(st.sampled_from(_BODIES[framing])) if draw(st.integers(0, 3)) else draw(st.sampled_from(_BODIES[b""]))
    return b"\r\n".join([*lines, b"", b""]) + body


@st.composite
def _spoilt(draw: st.DrawFn) -> bytes:
    """Return valid requests with a few bytes put in, taken out or replaced."""
    data = bytearray()
    for _ in range(draw(st.integers(1, 3))):
        body = draw(st.binary(max_size=12))
        data += draw(st.sampled_from(_GOOD_LINES)) + b"\r\nHost: localhost\r\nX-A: b\r\n"
        if draw(st.booleans()):
            data += b"Mcp-Session-Id: abc\r\n"
        if draw(st.booleans()):
            data += b"Transfer-Encoding: chunked\r\n\r\n" + in_chunks(split(body, [3])[: 1 + bool(body)])
        else:
            data += b"Content-Length: %d\r\n\r\n" % len(body) + body
    for _ in range(draw(st.integers(0, 3))):
        place, length = draw(st.integers(0, len(data))), draw(st.integers(0, 2))
        data[place : place + length] = draw(_SPOILERS)
    return bytes(data)


REQUESTS = st.lists(_request(), min_size=1, max_size=2).map(b"".join) | _spoilt()
"""One request or a few, most of them with something wrong."""

PLACES = st.lists(st.integers(0, 2000), max_size=8)
"""Where to cut; see `split`."""


@st.composite
def _chunked_body(draw: st.DrawFn) -> bytes:
    extension, trailers = draw(st.sampled_from([b"", b"", b";a=b"])), draw(st.sampled_from([b"", b"", b"a: b\r\n"]))
    data = bytearray(in_chunks(draw(st.lists(st.binary(min_size=1, max_size=20), max_size=4)), extension, trailers))
    for _ in range(draw(st.integers(0, 2))):
        place, length = draw(st.integers(0, len(data))), draw(st.integers(0, 2))
        data[place : place + length] = draw(_SPOILERS)
    return bytes(data)


CHUNKED_BODIES = _chunked_body() | st.sampled_from(_BODIES[b""])
"""Bodies in chunks, half of them with something wrong."""
