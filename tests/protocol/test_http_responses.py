"""What an HTTP client reads in the bytes of a server: h11 on the whole connection says what is right."""

from __future__ import annotations

from typing import Any

import h11
import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.effort import examples
from tests.protocol.http_bytes import split
from tests.tables import by_outcome, each_of, listed
from trio_mcp.http.client.sending.incoming import (
    MAX_FIELDS,
    MAX_HEAD,
    MAX_INTERIM,
    MAX_SEEN,
    ResponseHeads,
    ResponseReader,
)
from trio_mcp.http.client.sending.outgoing import Destination, head_of, place_of
from trio_mcp.http.framing import MAX_FRAMING, FramingError
from trio_mcp.http.headers import Headers

Verdict = tuple[int, dict[str, str], bytes, str] | str
"""Status, fields, body, and whether the connection is ``kept`` or ``closed``; or ``refused``."""


def verdict(pieces: list[bytes], heads: ResponseHeads | None = None, ended: bool = True) -> Verdict:
    """Return what our reader makes of what arrives, and then of the end of the connection."""
    incoming, head, body = ResponseReader(ResponseHeads() if heads is None else heads), None, b""
    incoming.begin()
    try:
        for piece in pieces:
            if head is None:
                head, piece = incoming.head(piece), b""
                if head is None:
                    continue
            while content := incoming.body(piece):
                body, piece = body + content, b""
        if ended and not incoming.complete:
            incoming.end()
    except FramingError:
        return "refused"
    if head is None or not incoming.complete:
        return "waits"
    return head.status, head.headers.as_dict(), body, "kept" if incoming.reusable else "closed"


def verdict_of_h11(data: bytes) -> Verdict:
    connection = h11.Connection(h11.CLIENT, max_incomplete_event_size=MAX_HEAD)
    connection.send(h11.Request(method="GET", target="/", headers=[("Host", "x")]))
    connection.send(h11.EndOfMessage())
    head, body = None, b""
    try:
        connection.receive_data(data)
        ended = False
        while True:
            event = connection.next_event()
            if type(event) is h11.Response:
                head = event
            elif type(event) is h11.Data:
                body += bytes(event.data)
            elif type(event) is h11.EndOfMessage:
                break
            elif event is h11.NEED_DATA:
                if ended:
                    return "refused"
                connection.receive_data(b"")
                ended = True
            elif event is h11.PAUSED or type(event) is h11.ConnectionClosed:
                return "refused"
    except h11.RemoteProtocolError:
        return "refused"
    assert head is not None
    kept = connection.our_state is connection.their_state is h11.DONE and not connection.trailing_data[0] and not ended
    return head.status_code, Headers(head.headers).as_dict(), body, "kept" if kept else "closed"


OK = b"HTTP/1.1 200 OK\r\n"
DATE = b"Date: Sun, 06 Nov 1994 08:49:37 GMT\r\n"
HI = b"Content-Length: 2\r\n\r\nhi"
CHUNKED = b"Transfer-Encoding: chunked\r\n\r\n"

RESPONSES: dict[str, list[bytes]] = {
    "kept": [
        OK + HI,
        OK + DATE + b"content-type: application/json\r\nX-Request-Id: 1\r\n" + HI,
        OK + b"Content-Length: 0\r\n\r\n",
        OK + b"Content-Length: 2\r\ncontent-length: 2\r\n\r\nhi",
        OK + b"Content-Length: 2, 2\r\n\r\nhi",
        OK + b"Content-Length:\t002 \r\n\r\nhi",
        OK + b"X-A: 1\r\nDate: a\r\nX-A: 2\r\ndate: b\r\nX-A: \xff\r\n" + HI,
        OK + b"X-A: a\r\n folded\r\nDate: b\r\n\tand more\r\n" + HI,
        OK + b"Connection: keep-alive\r\nKeep-Alive: timeout=5\r\n" + HI,
        OK + CHUNKED + b"2\r\nhi\r\n0\r\n\r\n",
        OK + CHUNKED + b"1;a=b\r\nh\r\n1  \r\ni\r\n0\r\nX: y\r\nZ:\r\n\r\n",
        OK + CHUNKED + b"0\r\n\r\n",
        b"HTTP/1.1 204 No Content\r\n\r\n",
        b"HTTP/1.1 204 No Content\r\nContent-Length: 5\r\n\r\n",
        b"HTTP/1.1 304 Not Modified\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"HTTP/1.1 202 \r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 202\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nContent-Length: 7\r\n\r\n" + OK + HI,
        b"HTTP/1.1 200 OK\nContent-Length: 2\n\nhi",
    ],
    "closed": [
        OK + b"Content-Length: 2\r\nConnection: close\r\n\r\nhi",
        OK + b"Connection: x\r\nConnection: y, Close\r\n" + HI,
        OK + b"\r\nuntil the end",
        OK + b"Content-Type: a/b\r\n\r\n",
        b"HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 2\r\n\r\nhi",
        b"HTTP/1.0 200 OK\r\n\r\nhi",
        OK + HI + b"!",
        OK + HI + OK + HI,
        OK + CHUNKED + b"0\r\n\r\n\r\n",
        b"HTTP/1.1 204 No Content\r\n\r\nhi",
    ],
    "refused": [
        b"",
        b"HTTP/1.1 200 OK\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nhi",
        b"HTTP/1.1 100 Continue\r\n\r\n",
        OK + CHUNKED + b"2\r\nhi\r\n",
        OK + CHUNKED + b"2\r\nhi!\r\n0\r\n\r\n",
        OK + CHUNKED + b"x\r\nhi\r\n0\r\n\r\n",
        OK + CHUNKED + b"-2\r\nhi\r\n0\r\n\r\n",
        OK + CHUNKED + b"0\r\nX y\r\n\r\n",
        OK + b"Content-Length: 2\r\nContent-Length: 3\r\n\r\nhi!",
        OK + b"Content-Length: 2, 3\r\n\r\nhi!",
        OK + b"Content-Length: +2\r\n\r\nhi",
        OK + b"Content-Length: 0x2\r\n\r\nhi",
        OK + b"Content-Length:\r\n\r\nhi",
        OK + b"Content-Length : 2\r\n\r\nhi",
        OK + b"Content-Length: 2\r\n 2\r\n\r\nhi",
        OK + b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
        OK + b"Transfer-Encoding: identity\r\n\r\nhi",
        OK + b"Date: a\x00\r\n" + HI,
        OK + b" folded: at the beginning\r\n" + HI,
        OK + b"no colon\r\n" + HI,
        OK + b": no name\r\n" + HI,
        b"\x16\x03\x01\x00\x00\n\n",
        b"SSH-2.0-x\r\n\r\n",
        b"HTTP/1.1 20 OK\r\n\r\n",
        b"HTTP/1.1 2000 OK\r\n\r\n",
        b"\r\n" + OK + HI,
    ],
}


@by_outcome("data", "outcome", RESPONSES)
def test_a_response_is_read_as_h11_reads_it_wherever_it_is_cut(data: bytes, outcome: str) -> None:
    """RFC 9112, sections 2.2, 5, 6.3, 7.1 and 9.6. Nor does it matter what is remembered of earlier heads."""
    whole = verdict([data])
    assert whole == verdict_of_h11(data)
    assert (whole if isinstance(whole, str) else whole[3]) == outcome
    heads = ResponseHeads()
    for place in range(len(data) + 1):
        assert verdict([data[:place], data[place:]], heads) == whole, place
    assert verdict([data[place : place + 1] for place in range(len(data))]) == whole


STATUSES = listed(b"HTTP/1.1 200 OK | HTTP/1.0 200 OK | HTTP/1.1 204 X | HTTP/1.1 100 X")
NAMES = listed(b"Content-Length | Transfer-Encoding | Connection | X-A | x-a | Date | Y | Y ")
VALUES = [*listed(b"2 | chunked | 3 | 2, 2 | close | a | b\xe9 |  a | a\r\n b | \x7f"), b""]
BODIES = [b"", b"hi", b"2\r\nhi\r\n0\r\n\r\n", b"hi" + OK + HI]
FIELDS = st.tuples(*map(st.sampled_from, (NAMES, [b":", b": "], VALUES, [b"\r\n"] * 5 + [b"\n"]))).map(b"".join)
ANY = st.builds(
    lambda status, fields, body: status + b"\r\n" + b"".join(fields) + b"\r\n" + body,
    *(st.sampled_from(STATUSES), st.lists(FIELDS), st.sampled_from(BODIES)),
)


@settings(max_examples=examples(20_000, daily=150))
@given(before=st.lists(ANY, max_size=3), data=ANY, places=st.lists(st.integers(0, 200), max_size=3))
def test_the_verdict_depends_on_neither_the_cuts_nor_the_heads_before(
    before: list[bytes], data: bytes, places: list[int]
) -> None:
    heads = ResponseHeads()
    for each in before:
        verdict([each], heads)
    assert verdict(split(data, places), heads) == verdict_of_h11(data)


# --- bounds --------------------------------------------------------------------------------------------------------


def refused(data: bytes) -> bool:
    """Return whether data is refused while the connection is still open."""
    return verdict([data], ended=False) == "refused"


def test_the_head_is_bounded() -> None:
    long = OK + b"X: " + b"x" * MAX_HEAD
    assert refused(long)
    assert refused(long + b"\r\n\r\n")
    assert refused(OK + b"X: y\r\n" * MAX_FIELDS + b"\r\n")
    assert verdict([OK + b"X: y\r\n" * (MAX_FIELDS - 3) + HI]) != "refused"
    assert refused(b"HTTP/1.1 100 X\r\n\r\n" * (MAX_INTERIM + 1))
    assert verdict([b"HTTP/1.1 100 X\r\n\r\n" * MAX_INTERIM + OK + HI]) == verdict([OK + HI])
    assert refused(b"\x16\x03\x01")  # a TLS record: its sender waits for a response


@each_of("start", "X: \0 | HTTP/1.1 \1")
def test_the_reason_why_a_head_is_refused_is_bounded(start: str) -> None:
    """It gets into messages and logs."""
    line = start.encode() + b"\xff" * (MAX_HEAD // 2)
    with pytest.raises(FramingError) as caught:
        ResponseHeads().parse((line if start.startswith("HTTP") else OK + line) + b"\r\n\r\n")
    assert 10 < len(str(caught.value)) <= 200


def test_what_frames_a_chunk_is_bounded_and_a_stream_may_last() -> None:
    """RFC 9112, section 7.1.1."""
    assert refused(OK + CHUNKED + b"1;" + b"x" * 5000)
    assert refused(OK + CHUNKED + b"0\r\n" + b"x: y\r\n" * (MAX_FRAMING // 5))
    body = b"1\r\n\n\r\n" * (MAX_FRAMING // 4)
    assert verdict([OK + CHUNKED + body + b"0\r\n\r\n"])[2] == b"\n" * (MAX_FRAMING // 4)


def test_the_heads_that_are_remembered_are_bounded() -> None:
    heads = ResponseHeads()
    for number in range(3 * MAX_SEEN):
        heads.parse(b"HTTP/1.1 200 OK\r\nServer: %d\r\nX-Request-Id: %d\r\n\r\n" % (number, number))
    heads.parse(OK + b"Server: " + b"x" * 5000 + b"\r\n\r\n")
    assert len(heads._seen) == MAX_SEEN  # noqa: SLF001


# --- what is sent --------------------------------------------------------------------------------------------------


@by_outcome(
    "url",
    "target, netloc, host, port",
    {
        ("/", "a", "a", 80): "http://a | http://a/ | http://a:80 | HTTP://A/#fragment | http://me:secret@a/",
        ("/?", "a", "a", 80): "http://a?",
        ("/mcp?b=c/d", "a.b:8", "a.b", 8): "http://a.b:8/mcp?b=c/d | http://a.b:8/x/../mcp?b=c/d#e",
        ("/%C3%A9", "a", "a", 80): "http://a/é | http://a/%C3%A9",
        ("/a%20b", "a", "a", 80): "http://a/a b",
        ("/", "[::1]:8", "::1", 8): "http://[::1]:8",
        ("/", "a:0", "a", 0): "http://a:0",  # to which no connection can be made
        ("/", "xn--bcher-kva.example", "xn--bcher-kva.example", 443): "https://bücher.example",
    },
)
def test_where_a_request_goes(url: str, target: str, netloc: str, host: str, port: int) -> None:
    """RFC 3986, sections 3 and 6.2; RFC 9110, section 7.2; RFC 9112, section 3.2.1."""
    assert place_of(url) == Destination(url.startswith("https"), host, port, netloc, target)


AUTHORITIES = st.sampled_from(
    listed("a | a.b | A | a:80 | a:443 | a:8080 | a:08 | a: | u@a | u:p@a | [::1] | [::1]:8 | 1.2.3.4 | xn--a | -a")
)
PARTS = st.lists(st.sampled_from([*"aB0-.~_!$&'()*+,;=:@/?#%{|é", "..", "%41", "%zz", "/./", "/../"]))


@settings(max_examples=examples(20_000, daily=100))
@given(scheme=st.sampled_from(["http", "https", "HTTP"]), authority=AUTHORITIES, parts=PARTS)
def test_a_url_is_taken_apart_as_httpx_does(scheme: str, authority: str, parts: list[str]) -> None:
    url = f"{scheme}://{authority}/{''.join(parts)}"
    parsed = httpx.URL(url)
    ports = {"http": 80, "https": 443}
    assert place_of(url) == Destination(
        parsed.scheme == "https",
        parsed.raw_host.decode(),
        parsed.port or ports[parsed.scheme],
        parsed.netloc.decode(),
        parsed.raw_path.decode(),
    )


@each_of("url", "ftp://a/ | http://a:b/ | unix:/a")
def test_what_is_not_a_url_of_http_goes_nowhere(url: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - the texts are httpx's
        place_of(url)


PLACE = place_of("http://a/mcp")


@pytest.mark.parametrize(
    ("method", "size", "given", "fields"),
    [
        ("POST", 2, [("X", "y")], "Host: a|X: y|Content-Length: 2"),
        ("POST", 0, [], "Host: a|Content-Length: 0"),
        ("GET", 0, [("hOST", "b")], "hOST: b"),
        ("DELETE", 0, [("Content-Length", "7"), ("transfer-encoding", "chunked")], "Host: a"),
    ],
)
def test_the_head_of_a_request(method: str, size: int, given: Any, fields: str) -> None:
    """RFC 9110, sections 7.2 and 8.6: the sender alone says where the body ends."""
    lines = "".join(f"{line}\r\n" for line in fields.split("|"))
    assert head_of(method, PLACE, given, size) == f"{method} /mcp HTTP/1.1\r\n{lines}\r\n".encode()


@pytest.mark.parametrize(
    "field", [("X", "a\r\nY: b"), ("X", "a\n"), ("X\r\nY", "b"), ("X ", "b"), ("X", "\0"), ("X", "€")]
)
def test_no_field_can_smuggle_in_another(field: tuple[str, str]) -> None:
    """RFC 9110, section 5.5."""
    with pytest.raises(ValueError, match=r"can't (be sent|encode)"):
        head_of("GET", PLACE, [field], 0)
