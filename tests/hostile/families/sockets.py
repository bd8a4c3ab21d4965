"""Lines over TCP, TLS and Unix sockets: first lines of other protocols, and all that is said of lines over stdio."""

from __future__ import annotations

import random
from collections.abc import Sequence

from tests.hostile.case import ALIVE, CLOSED, Answer, Draft, Outcome, Wire, chosen, cut, dumped, head, kinds_of, token
from tests.hostile.families import stdio
from tests.hostile.families.bodies import INVALID_PARAMS, INVALID_REQUEST, PARSE
from tests.hostile.families.websocket import LIMIT, MARK, bytewise, call

GUARD = "a first line that is not a JSON object closes the connection before anything after it is read"


def wire(rng: random.Random) -> Wire:
    return chosen(rng, "lines", "lines", "unix", "lines-tls")


def line(content: bytes) -> bytes:
    return content.replace(b"\n", b"") + b"\n"


def drafted(
    rng: random.Random,
    pieces: bytes | Sequence[bytes | float],
    allowed: set[Outcome],
    rule: str,
    *,
    codes: set[int] | None = None,
    echo: str | None = None,
    **changed: object,
) -> Draft:
    given = cut(rng, pieces) if isinstance(pieces, bytes) else pieces
    answer = Answer(frozenset(allowed), None if codes is None else frozenset(codes), echo=echo)
    draft = Draft(rule, (), given, answers=[answer], wire=wire(rng))
    for name, value in changed.items():
        setattr(draft, name, value)
    return draft


def stranger(rng: random.Random, first: bytes) -> Draft:
    """Draft a first line that closes the connection; the call behind it must not be made."""
    mark = line(dumped(rng, MARK)) * rng.randint(1, 3)
    pieces = chosen(rng, cut(rng, first + mark), [first, mark], [first[:1], first[1:] + mark])
    return drafted(rng, pieces, {CLOSED}, GUARD, codes=set(), probe=False)


# --- the first line ---------------------------------------------------------------------------------------------


def http(rng: random.Random) -> Draft:
    method = chosen(rng, "POST", "GET", "post", "Get", "PUT", "OPTIONS", "CONNECT", "PRI", token(rng), "!#$", "~{")
    target = chosen(rng, "/", "*", "http://localhost/", "{}", '{"jsonrpc":"2.0"}')
    first = f"{method} {target} HTTP/{chosen(rng, '1.1', '1.0', '2.0')}"
    space = chosen(rng, b"", b"", b"\r\n", b" ", b"\n\n")
    fields = [("Host", "localhost"), ("Content-Type", "text/plain"), ("Content-Length", "5000")]
    return stranger(rng, space + head(rng, first, fields))


def other_protocol(rng: random.Random) -> Draft:
    first = chosen(
        rng,
        b"EHLO x\r\n",
        b"SSH-2.0-x\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\n",
        b"PROXY TCP4 1.1.1.1 2.2.2.2 1 2\r\n",
        b"\r\n\r\n\0\r\nQUIT\n",
        b"*1\r\n$4\r\nPING\r\n",
        b"Content-Length: 100\r\n\r\n",
        b"<policy-file-request/>\0\n",
        b"data: {}\n\n",
        b"\x1e{}\n",
    )
    return stranger(rng, first)


def not_an_object(rng: random.Random) -> Draft:
    mark = dumped(rng, MARK).replace(b"\n", b"")
    first = chosen(
        rng,
        b"[" + mark + b"]",
        b'"' + b"x" * rng.randint(0, 1000) + b'"',
        b"1",
        b"null",
        b"true",
        b"[]",
        b"[" * rng.randint(1, 50_000),
        b"(" + mark,
        b"//" + mark,
        b"'" + mark,
    )
    return stranger(rng, first + b"\n")


def strange_start(rng: random.Random) -> Draft:
    """Send what might pass as nothing before a brace."""
    mark = dumped(rng, MARK).replace(b"\n", b"")
    before = chosen(
        rng,
        b"\xef\xbb\xbf",
        b"\xff\xfe",
        b"\0",
        b"\xc2\xa0",
        b"\xe2\x80\xa8",
        b"\xe3\x80\x80",
        b"\x1f",
        b"\x7f",
        b"\xc2\x85",
        b"\x08",
    )
    space = chosen(rng, b"", b"\n", b" ", b"\r\n\t")
    return stranger(rng, space + before + mark + b"\n")


def broken_object(rng: random.Random) -> Draft:
    """Send a first line that begins like an object."""
    mark = dumped(rng, MARK).replace(b"\n", b"")
    first = chosen(
        rng,
        b"{",
        b"{ HTTP/1.1",
        b"{} {}",
        mark + mark,
        mark[: rng.randint(1, len(mark) - 1)],
        mark.replace(b'"mark"', b'"\xff"'),
        mark.replace(b'"mark"', b'"\0"'),
        mark.decode().encode("utf-16-le"),
        b'{"a":' * rng.randint(300, 40_000),
        b"{" * rng.randint(2, 5000),
        b"{\xef\xbb\xbf}",
        mark.replace(b'"2.0"', b"2.0x"),
        b"{'a': 1}",
        b'{"a":NaN}',
    )
    return stranger(rng, first + b"\n")


def first_line_ends(rng: random.Random) -> Draft:
    """End the sending in the first line."""
    text = token(rng)
    whole = line(call(rng, text))
    first = chosen(rng, b"", b"\n", b" ", b"{", b"GET / HTTP/1.1", whole[: rng.randrange(len(whole) - 2)])
    rule = "docs/how-to/transports.md: what is cut off counts for nothing"
    return drafted(rng, first, {CLOSED}, rule, codes={PARSE, INVALID_REQUEST}, shut=True, probe=False)


def first_line_good(rng: random.Random) -> Draft:
    text = token(rng)
    before = chosen(rng, b"", b"\n", b" ", b"\r\n\r\n", b"\t", chosen(rng, b"\n", b" ") * rng.randint(1, 70_000))
    end = chosen(rng, b"\n", b"\r\n", b" \n", b"\n\n")
    data = before + call(rng, text).replace(b"\n", b"") + end
    return drafted(rng, data, {ALIVE}, "RFC 8259, 2: white space around a text", codes=set(), echo=text)


def first_line_slow(rng: random.Random) -> Draft:
    text = token(rng)
    data = line(call(rng, text))
    pieces = chosen(rng, bytewise(data), [data[:1], 0.3, data[1:9], 0.3, data[9:]])
    return drafted(rng, pieces, {ALIVE}, "any pieces are the same line", echo=text)


def first_line_never_ends(rng: random.Random) -> Draft:
    """Send nothing, or drops that never make a line: the time limit does not start anew."""
    drop = chosen(rng, b" ", b"\n", b"\r\n")
    pieces = chosen(rng, [], [b"{"], [drop, 0.3] * 30, [b"{", *[b" ", 0.3] * 30], [b'{"a":"', *[b"x", 0.3] * 30])
    return drafted(rng, pieces, {CLOSED}, "docs/reference/limits.md: head_timeout", codes=set(), probe=False)


def first_line_too_long(rng: random.Random) -> Draft:
    """Send an object over the limit: it is refused like any other line."""
    text = line(call(rng, "y" * rng.randint(LIMIT + 1, LIMIT * 3)))
    rule = "docs/reference/limits.md: a line that is too long is skipped, and a request answered with an error"
    return drafted(rng, text, {ALIVE}, rule, codes={PARSE, INVALID_REQUEST})


def first_line_not_a_message(rng: random.Random) -> Draft:
    first = chosen(rng, b"{}", b'{"jsonrpc":"1.0"}', b'{"id":1}', b'{"jsonrpc":"2.0","result":{},"id":1}', b'{"a":[]}')
    return drafted(rng, first + b"\n", {ALIVE}, "JSON-RPC 2.0, 5.1: it is an object", codes={INVALID_REQUEST})


# --- later lines ------------------------------------------------------------------------------------------------


def later_lines(rng: random.Random) -> Draft:
    """Send what is wrong as a line over stdio, after a good line: it costs nothing but itself."""
    given = chosen(rng, *stdio.KINDS.values())(rng)
    data = b"".join(piece for piece in given.pieces if isinstance(piece, bytes))
    first = line(call(rng))
    # Over stdio a session was begun before, with `initialize`.
    codes = {code for code in given.allowed if isinstance(code, int)} | {INVALID_PARAMS}
    pieces = chosen(rng, [first, *given.pieces], cut(rng, first + data), [first + data])
    return drafted(rng, pieces, {ALIVE}, given.rule, codes=codes)


def one_byte_at_a_time(rng: random.Random) -> Draft:
    text = token(rng) + "é💥\u2028"
    data = line(call(rng)) + b"\xff\n" + line(call(rng, text))
    return drafted(rng, bytewise(data), {ALIVE}, stdio.RULE, codes={PARSE}, echo=text)


def same_id(rng: random.Random) -> Draft:
    """Make calls with the id of one that is under way."""
    params = {"name": "slow", "arguments": {"seconds": 0.2}}
    one = dumped(rng, {"jsonrpc": "2.0", "id": 5, "method": "tools/call", "params": {**MARK["params"], **params}})  # type: ignore[dict-item]
    return drafted(rng, line(one) * rng.randint(2, 20), {ALIVE}, "JSON-RPC 2.0, 4: ids", codes={INVALID_REQUEST})


def cancellations(rng: random.Random) -> Draft:
    one = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": rng.randint(0, 9)}}
    data = line(call(rng)) + line(dumped(rng, one)) * rng.randint(1, 3000)
    return drafted(rng, data, {ALIVE}, "basic/utilities/cancellation: of what is unknown is ignored")


def answers_unread(rng: random.Random) -> Draft:
    one = line(call(rng, "x" * 60_000))
    return drafted(rng, [one] * 120, set(), "docs/reference/limits.md: write_timeout", deaf=4.0)


def half_closed(rng: random.Random) -> Draft:
    """End the sending after a call: its answer still comes."""
    text = token(rng)
    data = line(call(rng, text))
    data = chosen(rng, data, data[:-1])
    rule = "docs/how-to/transports.md: a last line without its newline counts too"
    draft = drafted(rng, data, {CLOSED}, rule, echo=text, shut=True, probe=False, codes=set())
    draft.wire = chosen(rng, "lines", "unix")  # TLS can't end one direction alone
    return draft


def cut_off(rng: random.Random) -> Draft:
    data = line(call(rng))
    later = line(dumped(rng, MARK))
    rule = "a line that breaks off is not a message"
    codes = {PARSE, INVALID_REQUEST}
    data += later[: rng.randrange(len(later) - 2)]
    return drafted(rng, data, {CLOSED}, rule, shut=True, probe=False, codes=codes)


def reset(rng: random.Random) -> Draft:
    data = line(call(rng)) * rng.randint(1, 20)
    data = chosen(rng, data, data[: rng.randrange(len(data))], b"")
    return drafted(rng, data, set(), "RFC 9293, 3.10.7: a reset", reset=True, probe=False)


def garbage(rng: random.Random) -> Draft:
    data = b"".join(b"\xff" + rng.randbytes(rng.randint(1, 300)) for _ in range(rng.randint(1, 30)))
    return drafted(rng, line(call(rng)) + data + b"\n", {ALIVE}, stdio.RULE, codes={PARSE, INVALID_REQUEST})


KINDS = kinds_of(__name__)
