"""Framings of HTTP/1.1: lengths, chunks, pipelines, drips, ``Expect``."""

from __future__ import annotations

import random

from tests.hostile.case import (
    CLOSED,
    Answer,
    Draft,
    Message,
    chosen,
    cut,
    head,
    kinds_of,
    legacy,
    modern,
    picked,
    rendered,
    token,
)
from tests.tables import listed

SMUGGLED = b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"
OK = Answer(frozenset({200}))


def framed(rng: random.Random, message: Message, *framing: tuple[str, str], body: bytes | None = None) -> bytes:
    """Return a request with the framing fields that are given, and no others."""
    fields = [*message.fields, *framing]
    return head(rng, f"{message.method} {message.target} HTTP/1.1", fields) + (message.body if body is None else body)


def chunks(rng: random.Random, body: bytes, *, most: int = 6) -> list[bytes]:
    """Return a body in chunks, without the last one."""
    return [b"%x\r\n%s\r\n" % (len(piece), piece) for piece in cut(rng, body, most)]


CHUNKED = ("Transfer-Encoding", "chunked")


def either(rng: random.Random) -> Message:
    return modern(rng) if rng.random() < 0.7 else legacy(rng)


# --- Content-Length ---------------------------------------------------------------------------------------------


def length_invalid(rng: random.Random) -> Draft:
    length = picked(rng, "-1 | +5 | 0x10 | 5 5 | 1e3 | 5.0 |  | five | \xb2 | 5; | 5,6 | --5 | 5\x0b | NaN | 5_0 | '5'")
    message = either(rng) if rng.random() < 0.7 else Message("GET", "/health", [("Host", "localhost")])
    data = framed(rng, message, ("Content-Length", length)) + SMUGGLED
    rule = "RFC 9112, 6.3, 5: an invalid length is 400, and the end of the connection"
    return Draft(rule, {400}, cut(rng, data), closes=True)


def length_conflicts(rng: random.Random) -> Draft:
    message = either(rng)
    size = len(message.body)
    other = chosen(rng, 0, 1, size - 1, size + 1, size + len(SMUGGLED))
    order = chosen(rng, (size, other), (other, size))
    if rng.random() < 0.5:
        data = framed(rng, message, *(("Content-Length", str(length)) for length in order))
    else:
        data = framed(rng, message, ("Content-Length", ", ".join(map(str, order))))
    rule = "RFC 9112, 6.3, 5: lengths that differ are 400, and the end of the connection"
    return Draft(rule, {400}, cut(rng, data + SMUGGLED), closes=True)


def length_repeated(rng: random.Random) -> Draft:
    message = either(rng)
    size = str(len(message.body))
    fields = chosen(rng, [("Content-Length", size)] * 2, [("Content-Length", f"{size}, {size}")])
    rule = "RFC 9112, 6.3, 5: a length that is repeated is refused, or taken as one"
    return Draft(rule, {200, 400}, cut(rng, framed(rng, message, *fields)))


def length_zeros(rng: random.Random) -> Draft:
    message = either(rng)
    data = framed(rng, message, ("Content-Length", f"{'0' * rng.randint(1, 10)}{len(message.body)}"))
    return Draft("RFC 9110, 8.6: a length is digits", {200}, cut(rng, data), closes=False)


def length_huge(rng: random.Random) -> Draft:
    length = chosen(rng, str(rng.randint(10**6, 10**12)), str(2**63), str(2**64 + 5), "9" * rng.randint(20, 3000))
    data = framed(rng, either(rng), ("Content-Length", length))
    return Draft("RFC 9110, 15.5.14: too large is 413", {400, 413}, cut(rng, data), closes=True)


def length_short(rng: random.Random) -> Draft:
    """Draft a length that is too short: the rest of the body is a second, malformed request."""
    message = either(rng)
    size = rng.randint(1, len(message.body) - 1)
    data = framed(rng, message, ("Content-Length", str(size)), body=message.body[:size] + b"\x00{}\r\n\r\n")
    answers = [Answer(frozenset({400}), frozenset({-32700})), Answer(frozenset({400}))]
    rule = "RFC 9112, 6.3: the length decides; half a JSON text is not a message, and the rest is not a request"
    return Draft(rule, (), cut(rng, data), answers=answers, closes=True)


def length_long(rng: random.Random) -> Draft:
    """Draft a length that is too long: the rest of the body never comes."""
    message = either(rng)
    data = framed(rng, message, ("Content-Length", str(len(message.body) + rng.randint(1, 1000))))
    shut = rng.random() < 0.8
    rule = "RFC 9112, 8: an incomplete request is not served; RFC 9110, 15.5.9: 408 after a time"
    allowed = {400, CLOSED} if shut else {408}
    return Draft(rule, allowed, cut(rng, data), closes=True, probe=False, shut=shut)


def body_of_get(rng: random.Random) -> Draft:
    message = Message("GET", "/health", [("Host", "localhost")], SMUGGLED * rng.randint(1, 3))
    return Draft("RFC 9112, 6.3: the body of a GET is a body, and no request", {200, 400}, rendered(rng, message))


def body_of_refused(rng: random.Random) -> Draft:
    """Draft a request hidden in the body of a refused one."""
    message = modern(rng)
    what = chosen(rng, "path", "host", "type", "accept", "method", "session")
    status = {"path": 404, "host": 403, "type": 415, "accept": 406, "method": 405, "session": 404}[what]
    if what == "path":
        message.target = "/" + token(rng, 9)
    elif what == "host":
        message.set("Host", "evil.example")
    elif what == "type":
        message.set("Content-Type", "text/plain")
    elif what == "accept":
        message.set("Accept", "text/html")
    elif what == "method":
        message.method = "PUT"
    else:
        message = legacy(rng, session=token(rng, 20, 40))
        message.method = "DELETE"
        message.set("MCP-Protocol-Version")
    message.body = SMUGGLED * rng.randint(1, 3)
    rule = f"RFC 9112, 9.3: an unwanted body is read or the connection is closed; {what} is {status}"
    return Draft(rule, {status}, rendered(rng, message))


# --- chunks -----------------------------------------------------------------------------------------------------


def chunked(rng: random.Random) -> Draft:
    message = either(rng)
    pieces = []
    for piece in cut(rng, message.body, 40):
        size = chosen(rng, f"{len(piece):x}", f"{len(piece):X}", f"000{len(piece):x}").encode()
        extension = chosen(rng, b"", b"", b";a", b";a=b", b';a="b"', b";" + token(rng).encode() + b"=" + b"x" * 100)
        pieces.append(size + extension + b"\r\n" + piece + b"\r\n")
    trailer = chosen(rng, b"", b"", b"X-A: b\r\n", b"X-A: b\r\nX-C: d\r\n")
    coding = (chosen(rng, "Transfer-Encoding", "TRANSFER-ENCODING"), chosen(rng, "chunked", "Chunked", "CHUNKED"))
    data = framed(rng, message, coding, body=b"".join(pieces) + b"0\r\n" + trailer + b"\r\n")
    rule = "RFC 9112, 7.1: sizes are hexadecimal, extensions are ignored, trailers may follow"
    return Draft(rule, {200}, cut(rng, data), closes=False)


def trailers_that_lie(rng: random.Random) -> Draft:
    trailer = picked(
        rng,
        b"Content-Length: 5 | Transfer-Encoding: chunked | Host: evil.example | "
        b"Content-Type: text/plain | Mcp-Method: ping | Mcp-Session-Id: @ended@ | "
        b"MCP-Protocol-Version: 1900-01-01 | Origin: http://evil.example",
    )
    message = either(rng)
    data = framed(rng, message, CHUNKED, body=b"".join(chunks(rng, message.body)) + b"0\r\n" + trailer + b"\r\n\r\n")
    return Draft("RFC 9110, 6.5.1: trailers are not merged into the head", {200, 400}, cut(rng, data))


def trailers_broken(rng: random.Random) -> Draft:
    trailer = chosen(rng, b"no colon", b"X A: b", b"X\x00: y", b"X : y", b"X: \x00", b"X: " + b"y" * 100_000)
    message = either(rng)
    data = framed(rng, message, CHUNKED, body=b"".join(chunks(rng, message.body)) + b"0\r\n" + trailer + b"\r\n\r\n")
    # The body was complete, so its answer may be on its way when the trailer comes.
    rule = "RFC 9112, 7.1.2: trailers have the grammar of fields; else 400"
    return Draft(rule, {400, 431, CLOSED}, cut(rng, data), closes=True)


def chunk_size_invalid(rng: random.Random) -> Draft:
    size = picked(rng, b"zz | -1 | +5 | 0x5 |  |   | 5 5 | \x00 | g | 5\x0b | 5, | \xb2 | ffffffffffffffffffffff")
    message = either(rng)
    before = chunks(rng, message.body)[: rng.randint(0, 2)]
    data = framed(rng, message, CHUNKED, body=b"".join(before) + size + b"\r\nhello\r\n0\r\n\r\n" + SMUGGLED)
    rule = "RFC 9112, 7.1, 2.2: a chunk without a size is malformed: 400, and the end of the connection"
    return Draft(rule, {400, 413}, cut(rng, data), closes=True)


def chunk_ends_wrongly(rng: random.Random) -> Draft:
    end = chosen(rng, b"", b"xx", b"\n\r", b"\r\r", b"x\r\n", b"\x00\x00")
    message = either(rng)
    data = framed(rng, message, CHUNKED, body=b"%x\r\n%s%s" % (len(message.body), message.body, end) + b"0\r\n\r\n")
    rule = "RFC 9112, 7.1: a chunk ends with CRLF; else 400, and the end of the connection"
    return Draft(rule, {400}, cut(rng, data + SMUGGLED), closes=True)


def chunk_bare_line_feed(rng: random.Random) -> Draft:
    message = either(rng)
    size, body = b"%x" % len(message.body), message.body
    text = chosen(
        rng,
        size + b"\n" + body + b"\r\n0\r\n\r\n",
        size + b"\r\n" + body + b"\r\n0\n\n",
        size + b";a\n" + body + b"\r\n0\r\n\r\n",
    )
    data = framed(rng, message, CHUNKED, body=text)
    rule = "RFC 9112, 2.2: a single LF may end a line; else it is 400, or the line goes on"
    return Draft(rule, {200, 400, 408}, cut(rng, data))


def chunks_without_end(rng: random.Random) -> Draft:
    message = either(rng)
    end = chosen(rng, b"", b"0", b"0\r\n", b"5\r\nhel", b"5")
    data = framed(rng, message, CHUNKED, body=b"".join(chunks(rng, message.body)) + end)
    shut = rng.random() < 0.8
    rule = "RFC 9112, 8: an incomplete request is not served; RFC 9110, 15.5.9: 408 after a time"
    return Draft(rule, {400, CLOSED} if shut else {408}, cut(rng, data), closes=True, probe=False, shut=shut)


def chunk_extension_long(rng: random.Random) -> Draft:
    message = either(rng)
    extension = b";" + b"a" * rng.randint(70_000, 200_000)
    body = b"%x%s\r\n%s\r\n0\r\n\r\n" % (len(message.body), extension, message.body)
    rule = "RFC 9112, 7.1.1: the length of extensions is to be limited, with a 4xx"
    data = framed(rng, message, CHUNKED, body=body)
    return Draft(rule, {400, 413, 431}, cut(rng, data), closes=True)


def chunks_too_many(rng: random.Random) -> Draft:
    piece = b"%x\r\n%s\r\n" % (1000, b" " * 1000)
    data = framed(rng, either(rng), CHUNKED, body=piece * rng.randint(400, 600))
    return Draft("RFC 9110, 15.5.14: too large is 413", {413}, cut(rng, data), closes=True)


def coding_unknown(rng: random.Random) -> Draft:
    coding = chosen(
        rng,
        *listed(
            "gzip | gzip, chunked | chunked, gzip | chunked, chunked | identity | xchunked | chunk | "
            '"chunked" | chunked;a=b | chunked x | \x0bchunked | deflate | chunked, identity'
        ),
        token(rng),
    )
    message = either(rng)
    data = framed(rng, message, ("Transfer-Encoding", coding), body=b"".join(chunks(rng, message.body)) + b"0\r\n\r\n")
    rule = "RFC 9112, 6.1, 6.3, 4: a coding that is not known SHOULD be 501; where chunked is not the last, 400"
    return Draft(rule, {400, 501}, cut(rng, data + SMUGGLED), closes=True)


def coding_twice(rng: random.Random) -> Draft:
    message = either(rng)
    codings = chosen(rng, ("chunked", "chunked"), ("gzip", "chunked"), ("chunked", "identity"), ("identity", "chunked"))
    data = framed(
        rng,
        message,
        *(("Transfer-Encoding", coding) for coding in codings),
        body=b"".join(chunks(rng, message.body)) + b"0\r\n\r\n",
    )
    rule = "RFC 9112, 6.1: chunked is not applied twice; other codings are not known"
    return Draft(rule, {400, 501}, cut(rng, data + SMUGGLED), closes=True)


def coding_and_length(rng: random.Random) -> Draft:
    message = either(rng)
    body = b"".join(chunks(rng, message.body)) + b"0\r\n\r\n"
    length = chosen(rng, len(message.body), len(body), 0, 5, len(body) + len(SMUGGLED), "x")
    fields = [CHUNKED, ("Content-Length", str(length))]
    data = framed(rng, message, *fields, body=body) + SMUGGLED
    rule = "RFC 9112, 6.1, 6.3, 3: both are a smuggling attempt; 400, and the end of the connection"
    return Draft(rule, {400}, cut(rng, data), closes=True)


def coding_in_1_0(rng: random.Random) -> Draft:
    message = either(rng)
    data = framed(rng, message, CHUNKED, body=b"".join(chunks(rng, message.body)) + b"0\r\n\r\n")
    data = data.replace(b" HTTP/1.1\r\n", b" HTTP/1.0\r\n", 1)
    rule = "RFC 9112, 6.1: a coding in HTTP/1.0 is faulty; the connection is closed after it"
    return Draft(rule, {200, 400, 501}, cut(rng, data + SMUGGLED), closes=True)


# --- several requests -------------------------------------------------------------------------------------------


def pipeline(rng: random.Random) -> Draft:
    data, answers = b"", []
    for number in range(rng.randint(2, 20)):
        kind = chosen(rng, "health", "modern", "legacy", "nowhere", "garbage", "notification")
        if kind == "health":
            data += head(rng, "GET /health HTTP/1.1", [("Host", "localhost")])
            answers.append(OK)
        elif kind == "nowhere":
            data += head(rng, f"GET /{token(rng, 8)} HTTP/1.1", [("Host", "localhost")])
            answers.append(Answer(frozenset({404})))
        elif kind == "garbage":
            data += b"".join(rendered(rng, modern(rng, content=b"{")))
            answers.append(Answer(frozenset({400}), frozenset({-32700})))
        elif kind == "notification":
            note = legacy(rng, content={"jsonrpc": "2.0", "method": "notifications/roots/list_changed"})
            data += b"".join(rendered(rng, note))
            answers.append(Answer(frozenset({202})))
        else:
            data += b"".join(rendered(rng, modern(rng, id=number) if kind == "modern" else legacy(rng)))
            answers.append(OK)
    rule = "RFC 9112, 9.3.2: requests in a pipeline are answered in their order"
    return Draft(rule, (), cut(rng, data), answers=answers, closes=False)


def pipeline_with_an_end(rng: random.Random) -> Draft:
    before = rng.randint(0, 5)
    plain = head(rng, "GET /health HTTP/1.1", [("Host", "localhost")])
    last = head(
        rng, "GET /health HTTP/1.1", [("Host", "localhost"), ("Connection", chosen(rng, "close", "keep-alive, Close"))]
    )
    data = plain * before + last + plain * rng.randint(1, 5)
    rule = "RFC 9112, 9.6: after a request with close nothing is answered"
    return Draft(rule, (), cut(rng, data), answers=[OK] * (before + 1), closes=True)


def pipeline_with_garbage(rng: random.Random) -> Draft:
    before = rng.randint(1, 5)
    plain = head(rng, "GET /health HTTP/1.1", [("Host", "localhost")])
    data = plain * before + chosen(rng, b"\x00\r\n\r\n", b"GET\r\n\r\n", b"x: y\r\n\r\n") + plain
    rule = "RFC 9112, 2.2: what is not a request is 400, and the end of the connection"
    return Draft(rule, (), cut(rng, data), answers=[OK] * before + [Answer(frozenset({400}))], closes=True)


# --- time -------------------------------------------------------------------------------------------------------


def drip(rng: random.Random) -> Draft:
    pieces: list[bytes | float] = []
    data = b"".join(rendered(rng, modern(rng)))
    step = rng.randint(20, 60)
    for start in range(0, len(data), step):
        pieces += [data[start : start + step], 0.002]
    return Draft("RFC 9112, 2: pieces mean nothing", {200}, pieces, wire="tcp", closes=False)


def head_without_end(rng: random.Random) -> Draft:
    data = head(rng, "POST /mcp HTTP/1.1", modern(rng).fields)[: -rng.randint(2, 60)]
    rule = "RFC 9110, 15.5.9: a head that does not come is 408, or the end of the connection"
    return Draft(rule, {408, CLOSED}, cut(rng, data), closes=True, probe=False)


def body_drips(rng: random.Random) -> Draft:
    message = modern(rng)
    data = framed(rng, message, ("Content-Length", str(len(message.body) + 10)))
    pieces: list[bytes | float] = [data, *([0.3, b" "] * 9)]
    return Draft("RFC 9110, 15.5.9: 408 for a body that takes too long", {408}, pieces, closes=True, probe=False)


# --- Expect, Upgrade, Connection --------------------------------------------------------------------------------


def expect_continue(rng: random.Random) -> Draft:
    message = either(rng)
    data = framed(
        rng,
        message,
        ("Expect", chosen(rng, "100-continue", "100-Continue")),
        ("Content-Length", str(len(message.body))),
    )
    place = data.index(b"\r\n\r\n") + 4
    return Draft("RFC 9110, 10.1.1: 100, then the answer", {200}, [data[:place], 0.01, data[place:]], closes=False)


def expect_refused(rng: random.Random) -> Draft:
    message = modern(rng).set("Content-Type", "text/plain")
    data = framed(rng, message, ("Expect", "100-continue"), ("Content-Length", "100000"), body=b"")
    rule = "RFC 9110, 10.1.1: a final status at once is allowed; RFC 9110, 15.5.16: 415"
    return Draft(rule, {415}, cut(rng, data), probe=False)


def expect_unknown(rng: random.Random) -> Draft:
    message = either(rng).set("Expect", chosen(rng, "200-ok", token(rng), "100-continue, x", "", "100-continue;a=b"))
    return Draft("RFC 9110, 10.1.1: an unknown expectation may be 417, or nothing", {200, 417}, rendered(rng, message))


def upgrade(rng: random.Random) -> Draft:
    what = chosen(rng, "h2c", "websocket", "HTTP/2.0", "TLS/1.0", token(rng), "h2c, websocket")
    message = either(rng)
    message.set("Upgrade", what).set(
        "Connection", chosen(rng, "upgrade", "Upgrade, HTTP2-Settings", "keep-alive, Upgrade")
    )
    message.set("HTTP2-Settings", chosen(rng, "AAMAAABkAAQAAP__", "", "!!", "A" * 500))
    return Draft("RFC 9110, 7.8: an upgrade may be ignored", {200}, rendered(rng, message), closes=False)


def connection_options(rng: random.Random) -> Draft:
    names = chosen(
        rng, "Host", "Content-Length", "Mcp-Method", "Content-Type", "Transfer-Encoding", "x" * 500, ", , ,", "\xe9"
    )
    message = either(rng).set("Connection", names)
    return Draft("RFC 9110, 7.6.1: an origin server keeps no field from itself", {200, 400}, rendered(rng, message))


KINDS = kinds_of(__name__)
