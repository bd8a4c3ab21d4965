"""The bytes of a connection on our own runners: what is ambiguous is refused, however it was split, by either parser.

RFC 9112, sections 2.2, 3, 5, 6 and 7.1.
"""

from __future__ import annotations

import time
import tracemalloc
from typing import Any

import h11
import pytest
from hypothesis import given, settings, strategies as st

from tests.effort import examples
from tests.protocol.http_bytes import (
    CHUNKED_BODIES,
    LIMIT,
    PARSERS,
    PLACES,
    REQUESTS,
    dripped,
    in_chunks,
    split,
    verdict,
)
from tests.tables import by_outcome
from trio_mcp.http.framing import MAX_FRAMING, MAX_LINE, Chunks, FramingError
from trio_mcp.http.runner.h1 import incoming
from trio_mcp.http.runner.h1.connection import head_of
from trio_mcp.http.runner.h1.incoming import RequestHeads, RequestReader

by_each_parser = pytest.mark.parametrize("parse", PARSERS.values(), ids=PARSERS)

GET = b"GET / HTTP/1.1\r\nHost: a\r\n"
POST = b"POST / HTTP/1.1\r\nHost: a\r\n"
LENGTH = POST + b"Content-Length: 5\r\n"
CHUNKED = POST + b"Transfer-Encoding: chunked\r\n"
CHUNKS = b"\r\n5\r\nhello\r\n0\r\n\r\n"
AFTER = b"GET /after HTTP/1.1\r\nHost: a\r\n\r\n"


@by_each_parser
@by_outcome(
    "data",
    "status",
    {
        400: [
            # Both a length and a coding, two lengths, or none that is a number.
            LENGTH + b"Transfer-Encoding: chunked\r\n" + CHUNKS,
            CHUNKED + b"Content-Length: 5\r\n" + CHUNKS,
            CHUNKED + b"Content-Length: x\r\n" + CHUNKS,
            LENGTH + b"Content-Length: 5\r\n\r\nhello",
            LENGTH + b"content-length: 6\r\n\r\nhello",
            LENGTH + b"Content-Length: x\r\n\r\nhello",
            POST + b"Content-Length: 5, 5\r\n\r\nhello",
            POST + b"Content-Length: +5\r\n\r\nhello",
            POST + b"Content-Length: 0x5\r\n\r\nhello",
            POST + b"Content-Length: 5 5\r\n\r\nhello",
            POST + b"Content-Length:\r\n\r\nhello",
            POST + b"Content-Length: 00000000000000000005\r\n\r\nhello",
            POST + b"Content-Length: \xb2\r\n\r\nhello",
            # Codings.
            POST + b"Transfer-Encoding: gzip, chunked\r\n" + CHUNKS,
            POST + b"Transfer-Encoding: chunked;a\r\n" + CHUNKS,
            POST + b"Transfer-Encoding: identity\r\n" + CHUNKS,
            POST + b"Transfer-Encoding:\r\n" + CHUNKS,
            POST + b"Transfer-Encoding: \x0bchunked\r\n" + CHUNKS,
            CHUNKED + b"Transfer-Encoding: chunked\r\n" + CHUNKS,
            CHUNKED + b"Mcp-Session-Id: a\r\nContent-Length: 5\r\n" + CHUNKS,
            CHUNKED.replace(b"1.1", b"1.0") + CHUNKS,
            # Lines.
            LENGTH + b" folded\r\n\r\nhello",
            POST + b"X: y\r\n\tfolded\r\n\r\n",
            POST + b" X: y\r\n\r\n",
            POST.replace(b"\r", b"") + b"Content-Length: 5\n\nhello",
            POST + b"X: y\nContent-Length: 5\r\n\r\nhello",
            POST + b"X: y\rContent-Length: 5\r\n\r\nhello",
            POST + b"X: y\r\r\nContent-Length: 5\r\n\r\nhello",
            POST + b"Content-Length: 5\r\r\n\r\nhello",
            POST + b"Content-Length : 5\r\n\r\nhello",
            POST + b"Transfer-Encoding\t: chunked\r\n" + CHUNKS,
            POST + b"X: \0\r\n\r\n",
            POST + b"X\0: y\r\n\r\n",
            POST + b"X: \x01\r\n\r\n",
            POST + b"X: \x7f\r\n\r\n",
            POST + b"\xe9: x\r\n\r\n",
            POST + b": x\r\n\r\n",
            POST + b"no colon\r\n\r\n",
            # Hosts.
            b"GET / HTTP/1.1\r\n\r\n",
            b"GET / HTTP/1.2\r\nX: y\r\n\r\n",
            GET + b"Host: a\r\n\r\n",
            GET.replace(b"1.1", b"1.0") + b"host: b\r\n\r\n",
            b"GET http://a/ HTTP/1.1\r\n\r\n",
            b"GET http://a/ HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
            b"GET http:///b HTTP/1.1\r\nHost: a\r\n\r\n",
            b"GET http://b@a/ HTTP/1.1\r\nHost: a\r\n\r\n",
            # The request line.
            b"GET /\r\nHost: a\r\n\r\n",
            b"GET  / HTTP/1.1\r\nHost: a\r\n\r\n",
            b"GET / HTTP/1.1 \r\nHost: a\r\n\r\n",
            b"GET /\r HTTP/1.1\r\nHost: a\r\n\r\n",
            b"GET /\xe9 HTTP/1.1\r\nHost: a\r\n\r\n",
            b"G(T / HTTP/1.1\r\nHost: a\r\n\r\n",
            b"GET / http/1.1\r\nHost: a\r\n\r\n",
            b"GET / HTTP/1.11\r\nHost: a\r\n\r\n",
            b"\nGET / HTTP/1.1\r\nHost: a\r\n\r\n",
            b" GET / HTTP/1.1\r\nHost: a\r\n\r\n",
            b"\rGET / HTTP/1.1\r\nHost: a\r\n\r\n",
            # Refused before it is whole.
            b"\x16\x03\x01",
            b"GET / HTTP/1.1\r\nHost: a\n",
            b"GET / HTTP/1.1\n" + b"x" * 2 * LIMIT,
        ],
        414: [b"GET /" + b"x" * LIMIT, b"GET /" + b"x" * LIMIT + b" HTTP/1.1\r\nHost: a\r\n\r\n"],
        431: [GET + b"X: " + b"y" * LIMIT, GET + b"X: y\r\n" * LIMIT, GET + b"X: " + b"y" * LIMIT + b"\r\n\r\n"],
        505: [b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", GET.replace(b"1.1", b"0.9") + b"\r\n"],
    },
)
def test_an_ambiguous_head_is_refused(parse: Any, data: bytes, status: int) -> None:
    for pieces in ([data + AFTER], dripped(data)):
        assert verdict(parse, pieces) == ([], status)
    # Nor does it become a valid one because a valid one is remembered.
    heads = RequestHeads(parse, LIMIT)
    for valid in (GET + b"\r\n", POST + b"\r\n", LENGTH + b"\r\nhello", CHUNKED + CHUNKS, POST + b"X: y\r\n\r\n"):
        assert verdict(heads, [valid])[1] == "more"
        assert verdict(heads, [data]) == ([], status)


@pytest.mark.parametrize(
    "body",
    [
        b"5\nhello\r\n0\r\n\r\n",
        b"5\rhello\r\n0\r\n\r\n",
        b"5\r\r\nhello\r\n0\r\n\r\n",
        b"5\rh",
        b"5 \r\nhello\r\n0\r\n\r\n",
        b"5 ;a\r\nhello\r\n0\r\n\r\n",
        b" 5\r\nhello\r\n0\r\n\r\n",
        b"+5\r\nhello\r\n0\r\n\r\n",
        b"0x5\r\nhello\r\n0\r\n\r\n",
        b"0_5\r\nhello\r\n0\r\n\r\n",
        b"\r\nhello\r\n0\r\n\r\n",
        b";a\r\nhello\r\n0\r\n\r\n",
        b"5,a\r\nhello\r\n0\r\n\r\n",
        b"5;a\nhello\r\n0\r\n\r\n",
        b'5;a="\n"\r\nhello\r\n0\r\n\r\n',
        b"5;a\0\r\nhello\r\n0\r\n\r\n",
        b"00000000000000005\r\nhello\r\n0\r\n\r\n",
        b"5\r\nhello0\r\n\r\n",
        b"5\r\nhello!\r\n0\r\n\r\n",
        b"5\r\nhello\n0\r\n\r\n",
        b"5\r\nhello\r0\r\n\r\n",
        b"5\r\nhello\r\r\n0\r\n\r\n",
        b"5\r\nhello\r\n-0\r\n\r\n",
        b"0\r\nx : y\r\n\r\n",
        b"0\r\nx\r\n\r\n",
        b"0\r\n x: y\r\n\r\n",
        b"0\r\nx: y\r\n folded\r\n\r\n",
        b"0\r\nx: y\n\r\n",
        b"0\r\nx: \0\r\n\r\n",
        b"0\r\n\n",
        b"0\n\r\n",
        b"5;" + b"a" * MAX_LINE + b"\r\nhello\r\n0\r\n\r\n",
        b"0\r\nx: " + b"a" * MAX_LINE + b"\r\n\r\n",
        # More framing than content.
        b"1\r\na\r\n" * (MAX_FRAMING // 4) + b"0\r\n\r\n",
        (b"64;%b\r\n%b\r\n" % (b"a" * 1000, b"b" * 100)) * 300 + b"0\r\n\r\n",
        b"0\r\n" + b"x: y\r\n" * (MAX_FRAMING // 5) + b"\r\n",
    ],
)
def test_an_ambiguous_chunk_is_refused(body: bytes) -> None:
    for pieces in ([CHUNKED + b"\r\n" + body + AFTER], dripped(CHUNKED + b"\r\n" + body)):
        assert verdict(PARSERS["h11"], pieces) == ([], 400)


@by_each_parser
@pytest.mark.parametrize(
    ("data", "body"),
    [
        (LENGTH + b"\r\nhello", b"hello"),
        (POST + b"CONTENT-LENGTH:005 \t\r\n\r\nhello", b"hello"),
        (POST + b"Content-Length: 0\r\n\r\n", b""),
        (GET + b"\r\n", b""),
        (GET.replace(b"/ ", b"* ") + b"X:\r\nY: \t\xff \t\r\n\r\n", b""),
        (CHUNKED + CHUNKS, b"hello"),
        (
            CHUNKED + b"\r\n0A;a=b\r\nhellohello\r\n2;\r\n!!\r\n000\r\nx: y\r\nContent-Length: 9\r\n\r\n",
            b"hellohello!!",
        ),
        (LENGTH + b"Mcp-Session-Id: a\r\nMcp-Session-Id: b\r\n\r\nhello", b"hello"),  # the application's business
        (b"\r\n\r\n" + LENGTH + b"\r\nhello", b"hello"),
        (POST + b"Transfer-Encoding:  Chunked\t\r\n" + CHUNKS, b"hello"),
    ],
)
def test_a_clear_request_is_read_and_so_is_the_next(parse: Any, data: bytes, body: bytes) -> None:
    for pieces in ([data + AFTER], dripped(data + AFTER)):
        (first, second), end = verdict(parse, pieces)
        assert (first[-1], second[1], end) == (body, b"/after", "more")


@by_each_parser
@by_outcome(
    "target",
    "target_then, host",
    {
        (b"/b?c", b"b"): [b"http://b/b?c", b"HTTPS://b/b?c"],
        (b"/", b"b:80"): [b"http://b:80", b"http://b:80/"],
        (b"/?c", b"b"): [b"http://b?c"],
        (b"/b://c", b"a"): [b"/b://c"],
    },
)
def test_the_host_of_a_whole_url_counts(parse: Any, target: bytes, target_then: bytes, host: bytes) -> None:
    (request,), _ = verdict(parse, [b"GET %b HTTP/1.1\r\nHost: a\r\n\r\n" % target])
    assert (request[1], request[3]) == (target_then, [(b"host", host)])


@pytest.mark.parametrize("size", [b"100000005", b"FFFFFFFFFFFFFFFF", b"100000000"])
def test_the_size_of_a_chunk_is_not_cut_off(size: bytes) -> None:
    assert verdict(PARSERS["h11"], [CHUNKED + b"\r\n" + size + b"\r\nhello\r\n0\r\n\r\n" + AFTER]) == ([], "more")


@by_each_parser
def test_names_and_values_of_fields_are_those_sent(parse: Any) -> None:
    sent = b"x-A:\tb \t\r\nUPGRADE: c\r\nConnection: upgrade\r\nd:\r\nmcp-session-id: \te\t\r\nA: \xff, f\r\na: g\r\n"
    (request,), _ = verdict(parse, [GET + sent + b"\r\n"])
    fields = {
        b"host": b"a",
        b"x-a": b"b",
        b"upgrade": b"c",
        b"connection": b"upgrade",
        b"d": b"",
        b"mcp-session-id": b"e",
    }
    assert request[3] == sorted([*fields.items(), (b"a", b"\xff, f"), (b"a", b"g")])


@pytest.mark.parametrize("size", [3, 1_000_000])
def test_short_chunks_are_taken_if_they_are_not_too_short(size: int) -> None:
    """Nor does it count in how many pieces they come."""
    data = in_chunks([b"x" * 20] * (MAX_FRAMING // 5))
    chunks, buffer, content = Chunks(), bytearray(), 0
    for start in range(0, len(data), size):
        buffer += data[start : start + size]
        content += len(chunks.take(buffer))
    assert chunks.complete
    assert content == 20 * (MAX_FRAMING // 5)


@by_each_parser
@by_outcome(
    "fields",
    "expects, lasting",
    {
        (False, True): b"X: y | Connection: keep-alive | Connection: closed | Expect: x",
        (False, False): b"Connection: close | Connection: x, Close | Connection: x\r\nConnection: close",
        (True, True): b"Expect: 100-Continue",
    },
)
def test_what_a_client_asks_of_the_connection(parse: Any, fields: bytes, expects: bool, lasting: bool) -> None:
    (request,), _ = verdict(parse, [GET + fields + b"\r\n\r\n"])
    assert request[4:6] == (expects, lasting)
    # A client of HTTP/1.0 knows neither (RFC 9112, section 9.3; RFC 9110, section 10.1.1).
    (request,), _ = verdict(parse, [GET.replace(b"1.1", b"1.0") + fields + b"\r\n\r\n"])
    assert request[4:6] == (False, False)


@pytest.mark.parametrize(
    "fields",
    [
        [(b"a", b"b\r\nc: d")],
        [(b"a: b\r\nc", b"d")],
        [(b"a", b"b"), (b"c", b"d\n")],
        [(b"a", b"b\r")],
        [(b"a", b"\0")],
        [(b"a ", b"b")],
        [(b"", b"b")],
    ],
)
def test_a_field_of_a_response_is_one_field(fields: Any) -> None:
    with pytest.raises(ValueError, match="the head of the response is invalid"):
        head_of(200, fields)


# --- generated ---------------------------------------------------------------------------------------------------


@settings(max_examples=examples(1000))
@given(data=REQUESTS, places=PLACES, parse=st.sampled_from(list(PARSERS.values())))
def test_the_verdict_does_not_depend_on_how_the_bytes_are_split(data: bytes, places: list[int], parse: Any) -> None:
    whole = verdict(parse, [data], 100)
    assert verdict(parse, split(data, places), 100) == verdict(parse, dripped(data), 100) == whole


@settings(max_examples=examples(1000))
@given(before=st.lists(REQUESTS, min_size=1, max_size=5), data=REQUESTS, parse=st.sampled_from(list(PARSERS.values())))
def test_the_verdict_does_not_depend_on_what_is_remembered(before: list[bytes], data: bytes, parse: Any) -> None:
    heads = RequestHeads(parse, LIMIT)
    for each in before:
        verdict(heads, [each])
    assert verdict(heads, [data]) == verdict(parse, [data])


@settings(max_examples=examples(20_000, daily=300))
@given(data=REQUESTS)
def test_both_parsers_give_the_same_verdict(data: bytes) -> None:
    assert verdict(PARSERS["h11"], [data]) == verdict(PARSERS["httptools"], [data])


@settings(max_examples=examples(500))
@given(
    pieces=st.lists(st.binary(min_size=1, max_size=40)),
    extension=st.sampled_from([b"", b";a=b", b'; a ="b;c"', b";"]),
    trailers=st.sampled_from([b"", b"a: b\r\n", b"a:\r\nb: c\r\n"]),
    rest=st.binary(max_size=10),
    places=PLACES,
)
def test_what_was_sent_in_chunks_is_read(
    pieces: list[bytes], extension: bytes, trailers: bytes, rest: bytes, places: list[int]
) -> None:
    chunks, buffer, content = Chunks(), bytearray(), b""
    for data in split(in_chunks(pieces, extension, trailers) + rest, places):
        buffer += data
        content += chunks.take(buffer)
    assert chunks.complete
    assert (content, buffer) == (b"".join(pieces), rest)


@settings(max_examples=examples(2000))
@given(data=CHUNKED_BODIES)
def test_a_chunked_body_that_is_taken_is_what_h11_reads(data: bytes) -> None:
    """h11 takes white space at the end of a size, too, and control characters in extensions and trailers."""
    chunks, buffer = Chunks(), bytearray(data)
    try:
        content: bytes | None = chunks.take(buffer)
    except FramingError:
        content = None
    connection = h11.Connection(h11.SERVER)
    connection.receive_data(CHUNKED + b"\r\n" + data)
    events: list[Any] = []
    try:
        while not events or events[-1] not in (h11.NEED_DATA, h11.PAUSED):
            events.append(connection.next_event())
            if type(events[-1]) is h11.EndOfMessage:
                break
    except h11.RemoteProtocolError:
        assert content is None
        return
    if content is None:
        return
    assert content == b"".join(event.data for event in events if type(event) is h11.Data)
    assert chunks.complete is (type(events[-1]) is h11.EndOfMessage)
    if chunks.complete:
        assert buffer == connection.trailing_data[0]


# --- what it costs -----------------------------------------------------------------------------------------------


@by_each_parser
def test_what_is_remembered_of_heads_is_bounded(parse: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(incoming, "MAX_SEEN", 16)
    heads = RequestHeads(parse, 16_384)
    for number in range(5):
        verdict(heads, [GET + b"X: %d\r\n\r\n" % number])
    tracemalloc.start()
    held = []
    try:
        for number in range(incoming.MAX_SEEN * 8):
            for fields in (b"Y: " + b"z" * 1000 + b"\r\n", b"Y: " + b"z" * 15_000 + b"\r\n", b"y:\r\n" * 400):
                assert verdict(heads, [GET + b"X: %d\r\n" % number + fields + b"\r\n"])[1] == "more"
            held.append(tracemalloc.get_traced_memory()[0])
        # Python 3.13 takes a little more for each than 3.11; what counts is that more heads take no more.
        assert held[-1] < incoming.MAX_SEEN * 5000
        assert held[-1] < held[incoming.MAX_SEEN * 2] * 1.2
    finally:
        tracemalloc.stop()


@by_each_parser
def test_what_is_remembered_is_out_of_an_applications_reach(parse: Any) -> None:
    heads = RequestHeads(parse, LIMIT)
    for _ in range(2):
        connection = RequestReader(heads)
        connection.feed(GET + b"\r\n")
        found = connection.head()
        assert found is not None
        assert found[1] == [(b"host", b"a")]
        found[1].append((b"x-user", b"root"))


@pytest.mark.parametrize(
    "start", [GET + b"X: ", GET, CHUNKED + b"\r\nfffff\r\n", LENGTH.replace(b"5", b"999999") + b"\r\n"]
)
def test_a_byte_at_a_time_costs_a_step_for_each(start: bytes) -> None:
    """Searching what was searched before would take sixteen times as long for four times the bytes."""

    def seconds(count: int) -> float:
        connection = RequestReader(RequestHeads(PARSERS["h11"], 1_000_000))
        data = start + b"x: y\r\n" * (count // 6)
        began, found = time.process_time(), None
        for place in range(len(data)):
            connection.feed(data[place : place + 1])
            if found is None:
                found = connection.head()
            else:
                connection.body()
        return time.process_time() - began

    assert min(seconds(160_000) for _ in range(2)) < 9 * min(seconds(40_000) for _ in range(2))
