"""WebSockets: handshakes that lie, frames that break the protocol or bend it, closes, floods, silence, resets."""

from __future__ import annotations

import base64
import random
from collections.abc import Iterable, Sequence

from tests.hostile.case import (
    ALIVE,
    BASE_META,
    CLOSED,
    Answer,
    Draft,
    Outcome,
    Wire,
    chosen,
    cut,
    dumped,
    head,
    kinds_of,
    token,
)
from tests.hostile.families import stdio
from tests.hostile.families.bodies import INVALID_PARAMS, PARSE
from tests.tables import listed
from trio_mcp.session.session import MAX_FAULTS

LIMIT = 262_144  # `max_message_size` of the victim
TEXT, BINARY, CONTINUATION, CLOSE, PING, PONG = 1, 2, 0, 8, 9, 10
MARK = {
    "jsonrpc": "2.0",
    "id": "mark",
    "method": "tools/call",
    "params": {"_meta": BASE_META, "name": "mark", "arguments": {}},
}
"""A call that must never be made."""

RULE = "RFC 6455, 5"
ERRORS = set(range(400, 432))

Pieces = Sequence[bytes | float]


def frame(rng: random.Random, opcode: int, payload: bytes = b"", *, fin: bool = True, **changed: int) -> bytes:
    """Return a frame of a client; ``changed`` may set bits that are reserved, the mask bit, and the length's form."""
    bits = 0x80 * fin | changed.get("reserved", 0) | opcode
    length = changed.get("length", len(payload))
    form = changed.get("form", 125 if length < 126 else 126 if length < 0x10000 else 127)
    mask = 0x80 if changed.get("masked", 1) else 0
    header = bytes([bits, mask | (length if form == 125 else form)])
    header += b"" if form == 125 else length.to_bytes(2 if form == 126 else 8, "big")
    if not mask:
        return header + payload
    key = chosen(rng, b"\0\0\0\0", rng.randbytes(4), b"\xff\xff\xff\xff")
    spread = (key * (len(payload) // 4 + 1))[: len(payload)]
    hidden = int.from_bytes(payload, "big") ^ int.from_bytes(spread, "big")
    return header + key + hidden.to_bytes(len(payload), "big")


def call(rng: random.Random, text: str | None = None, **members: object) -> bytes:
    """Return a modern call of a tool."""
    params = {"_meta": BASE_META, "name": "add", "arguments": {"a": rng.randint(0, 99), "b": 1}}
    if text is not None:
        params |= {"name": "echo", "arguments": {"text": text}}
    content = {"jsonrpc": "2.0", "id": rng.randint(1, 2**50), "method": "tools/call", "params": params}
    return dumped(rng, content | members)


def fields(rng: random.Random, **changed: str | None) -> list[tuple[str, str]]:
    """Return the fields of a handshake, with others in place of some (``_`` for ``-``)."""
    given: dict[str, str | None] = {
        "Host": "localhost",
        "Upgrade": chosen(rng, "websocket", "WebSocket", "WEBSOCKET"),
        "Connection": chosen(rng, "Upgrade", "keep-alive, Upgrade", "upgrade", "Upgrade,,"),
        "Sec-WebSocket-Version": "13",
        "Sec-WebSocket-Key": base64.b64encode(rng.randbytes(16)).decode(),
        "Sec-WebSocket-Protocol": chosen(rng, "mcp", "mcp", "x, mcp", "mcp,chat"),
    } | {name.replace("_", "-"): value for name, value in changed.items()}
    return [(name, value) for name, value in given.items() if value is not None]


def hello(rng: random.Random, more: Sequence[tuple[str, str]] = (), first: str = "", **changed: str | None) -> bytes:
    return head(rng, first or "GET /ws HTTP/1.1", [*fields(rng, **changed), *more])


def refused(
    rng: random.Random,
    data: bytes,
    allowed: Iterable[Outcome],
    rule: str = "RFC 6455, 4.2.2",
    *,
    bodiless: bool = False,
) -> Draft:
    """Draft a handshake that must be refused; what is in a frame behind it must not be done."""
    behind = frame(rng, TEXT, dumped(rng, MARK))
    more = chosen(rng, b"", behind)
    pieces = cut(rng, data + more)
    # What is sent behind it may reset the connection before the answer is read.
    allowed = {*allowed, CLOSED} if more else allowed
    return Draft(rule, allowed, pieces, wire=wire(rng), bodiless=bodiless, probe=False)


def wire(rng: random.Random) -> Wire:
    return "wss" if rng.random() < 0.1 else "ws"


def opened(
    rng: random.Random,
    data: bytes | Pieces,
    ends: Iterable[Outcome],
    rule: str = RULE,
    *,
    codes: Iterable[int] | None = (),
    echo: str | None = None,
    **changed: object,
) -> Draft:
    """Draft what comes after a good handshake, and maybe in one piece with its head; ``ends`` is how it may end."""
    after: list[bytes | float] = list(data) if not isinstance(data, bytes) else [*cut(rng, data)]
    begin = hello(rng)
    pieces: list[bytes | float] = [begin, *after]
    if after and isinstance(after[0], bytes) and rng.random() < 0.3:
        pieces[:2] = [begin + after[0]]
    end = Answer(frozenset(ends), None if codes is None else frozenset(codes), echo=echo)
    draft = Draft(rule, (), pieces, answers=[Answer(frozenset({101})), end], wire=wire(rng))
    for name, value in changed.items():
        setattr(draft, name, value)
    return draft


def ended(rng: random.Random, data: bytes, code: int, rule: str = RULE) -> Draft:
    """Draft what ends the WebSocket with a code: nothing behind it is read."""
    before = chosen(rng, b"", b"", frame(rng, PING, b"x"), frame(rng, TEXT, call(rng)))
    behind, worse = chosen(
        rng,
        (b"", ()),
        (frame(rng, TEXT, dumped(rng, MARK)), ()),
        (rng.randbytes(rng.randint(1, 500)), (1008, 1009)),  # bounds are checked ahead of the parser
    )
    return opened(rng, before + data + behind, {code, *worse}, rule)


def bytewise(data: bytes) -> list[bytes]:
    """Cut data into bytes, but for what comes after the first hundred."""
    return [*(data[place : place + 1] for place in range(min(100, len(data)))), data[100:]]


# --- the handshake ----------------------------------------------------------------------------------------------


def handshake_good(rng: random.Random) -> Draft:
    text = token(rng)
    draft = opened(rng, frame(rng, TEXT, call(rng, text)), {ALIVE}, echo=text)
    target = chosen(rng, "/ws", "/ws/", "/ws?a=%00%ff", "/ws?" + "a=b&" * 500, "http://localhost/ws", "/ws?é", "/%77s")
    more = [("Sec-WebSocket-Extensions", chosen(rng, "permessage-deflate", "x; y=1, permessage-deflate", ";;;", ""))]
    draft.pieces = [hello(rng, more, f"GET {target} HTTP/1.1"), frame(rng, TEXT, call(rng, text))]
    draft.answers = [Answer(frozenset({101, 400, 404})), Answer(frozenset({ALIVE}))]
    return draft


def handshake_key(rng: random.Random) -> Draft:
    good = base64.b64encode(rng.randbytes(16)).decode()
    key = chosen(rng, None, "", "A", good[:-1], good + good, good[:-3], "é" * 24, "=" * 24, "x" * 9000)
    return refused(rng, hello(rng, Sec_WebSocket_Key=key), {400, 431}, "RFC 6455, 4.2.1, 5: 16 bytes in Base64")


def handshake_version(rng: random.Random) -> Draft:
    version = chosen(rng, None, "", "8", "0", "14", "013", "13.0", "13, 8", "1" * 500, "-13", "+13")
    rule = "RFC 6455, 4.2.2, 4: 426 with the version"
    return refused(rng, hello(rng, Sec_WebSocket_Version=version), {400, 426}, rule)


def handshake_subprotocol(rng: random.Random) -> Draft:
    offered = chosen(rng, None, "", "MCP", "mcp2", "m cp", ",", "mcp;q=1", '"mcp"', "x" * 5000)
    return refused(rng, hello(rng, Sec_WebSocket_Protocol=offered), {400}, "the subprotocol mcp must be offered")


def handshake_twice(rng: random.Random) -> Draft:
    name, value = chosen(
        rng,
        ("Sec-WebSocket-Key", base64.b64encode(rng.randbytes(16)).decode()),
        ("Sec-WebSocket-Version", "13"),
        ("Sec-WebSocket-Version", "8"),
        ("Host", "localhost"),
        ("Host", "evil.example"),
        ("Upgrade", "websocket"),
        ("Content-Length", "0"),
        ("Origin", "http://evil.example"),
    )
    more = [(name, value)] if name != "Origin" else [(name, "http://localhost"), (name, value)]
    rule = "RFC 6455, 11.3.1 and 11.3.5; RFC 9112, 3.2: these come once"
    if name == "Content-Length":
        return opened(rng, b"", {ALIVE}, "RFC 9110, 8.6: no body")
    return refused(rng, hello(rng, more), {400, 403, 421, 426}, rule)


def handshake_no_upgrade(rng: random.Random) -> Draft:
    changed = chosen(
        rng,
        {"Upgrade": None},
        {"Upgrade": "h2c"},
        {"Upgrade": "web socket"},
        {"Connection": None},
        {"Connection": "close"},
        {"Connection": "upgraded"},
    )
    return refused(rng, hello(rng, **changed), ERRORS, "RFC 6455, 4.2.1, 3 and 4")


def handshake_method(rng: random.Random) -> Draft:
    method = chosen(rng, "POST", "PUT", "HEAD", "OPTIONS", "DELETE", "get", "TRACE", "X")
    data = hello(rng, first=f"{method} /ws HTTP/1.1")
    return refused(rng, data, ERRORS | {501, 204}, "RFC 6455, 4.2.1, 1: a GET", bodiless=method == "HEAD")


def handshake_old_http(rng: random.Random) -> Draft:
    first = chosen(rng, "GET /ws HTTP/1.0", "GET /ws HTTP/0.9", "GET /ws", "GET /ws HTTP/2.0", "GET /ws HTTP/1.11")
    return refused(rng, hello(rng, first=first), ERRORS | {CLOSED, 505}, "RFC 6455, 4.2.1, 1: of HTTP/1.1")


def handshake_body(rng: random.Random) -> Draft:
    mark = frame(rng, TEXT, dumped(rng, MARK))
    name, value, body = chosen(
        rng,
        ("Content-Length", str(len(mark)), mark),
        ("Content-Length", "5", b"hello"),
        ("Content-Length", "9" * 30, b""),
        ("Content-Length", "-1", b""),
        ("Transfer-Encoding", "chunked", b"%x\r\n%s\r\n0\r\n\r\n" % (len(mark), mark)),
        ("Transfer-Encoding", "identity", mark),
    )
    data = hello(rng, [(name, value)]) + body
    rule = "RFC 6455, 4.2.1: a handshake has no body, and a body is never taken for frames"
    return Draft(rule, {400, 413, 501}, cut(rng, data), wire=wire(rng), probe=False)


def handshake_foreign(rng: random.Random) -> Draft:
    changed = chosen(
        rng,
        {"Host": "evil.example"},
        {"Host": "localhost.evil.example"},
        {"Host": "localhost@evil.example"},
        {"Host": ""},
        {"Host": None},
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://localhost.evil.example"},
        {"Origin": "http://localhost@evil.example"},
        {"Origin": "file://"},
        {"Origin": ""},
        {"Origin": "http://localhost http://evil.example"},
    )
    return refused(rng, hello(rng, **changed), {400, 403, 421}, "RFC 6455, 10.2; DNS rebinding")


def handshake_elsewhere(rng: random.Random) -> Draft:
    target = chosen(rng, "/", "/WS", "/health", "/wsx", "/ws/x", "//ws", "*", "/sse2", "/ws;x", "/../ws")
    return refused(rng, hello(rng, first=f"GET {target} HTTP/1.1"), {*ERRORS, 200}, "no WebSocket is served there")


def handshake_huge(rng: random.Random) -> Draft:
    more = chosen(
        rng,
        [(f"x-{number}", "y" * 100) for number in range(2000)],
        [("x", "y" * rng.randint(100_000, 300_000))],
        [("Sec-WebSocket-Protocol", "x," * 60_000)],
    )
    return refused(rng, hello(rng, more), {400, 431, CLOSED}, "docs/reference/limits.md: the size of a head")


def handshake_broken(rng: random.Random) -> Draft:
    data = bytearray(hello(rng))
    for _ in range(rng.randint(1, 8)):
        data[rng.randrange(len(data))] = rng.randrange(256)
    pieces = cut(rng, bytes(data) + frame(rng, PING))
    ends = Answer(frozenset({CLOSED, 1002}))  # after what makes it another handshake that is good
    answers = [Answer(frozenset({101, *ERRORS, 501, 505, 200, CLOSED})), ends]
    return Draft("RFC 9112, 2.2", (), pieces, answers=answers, wire=wire(rng), probe=False, shut=True)


def handshake_cut_off(rng: random.Random) -> Draft:
    data = hello(rng)
    pieces = cut(rng, data[: rng.randrange(len(data))])
    way = chosen(rng, {"shut": True}, {"reset": True}, {})  # without either the time limit of a head ends it
    return Draft("RFC 9112, 8", {CLOSED, 400, 408}, pieces, wire=wire(rng), probe=False, **way)


def handshake_slow(rng: random.Random) -> Draft:
    text = token(rng)
    data = hello(rng) + frame(rng, TEXT, call(rng, text))
    draft = opened(rng, b"", {ALIVE}, echo=text)
    draft.pieces = chosen(rng, bytewise(data), [data[:30], 0.3, data[30:90], 0.3, data[90:]])
    return draft


def handshake_then_http(rng: random.Random) -> Draft:
    get = b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"
    data = chosen(rng, get, hello(rng), b"\r\n\r\n", b"POST /mcp HTTP/1.1\r\n\r\n")
    return opened(rng, data * rng.randint(1, 5), {1002}, "RFC 6455, 4.1: after the handshake there are frames")


# --- frames -----------------------------------------------------------------------------------------------------


def opcode_reserved(rng: random.Random) -> Draft:
    opcode = chosen(rng, 3, 4, 5, 6, 7, 11, 12, 13, 14, 15)
    return ended(rng, frame(rng, opcode, rng.randbytes(rng.randint(0, 100))), 1002, "RFC 6455, 5.2")


def bits_reserved(rng: random.Random) -> Draft:
    opcode = chosen(rng, TEXT, BINARY, CLOSE, PING, PONG)
    data = frame(rng, opcode, b"x" * rng.randint(0, 50), reserved=chosen(rng, 0x40, 0x20, 0x10, 0x70))
    return ended(rng, data, 1002, "RFC 6455, 5.2: RSV1 to RSV3")


def unmasked(rng: random.Random) -> Draft:
    opcode = chosen(rng, TEXT, BINARY, PING, PONG, CLOSE)
    payload = chosen(rng, dumped(rng, MARK) if opcode in (TEXT, BINARY) else b"x", b"")
    return ended(rng, frame(rng, opcode, payload, masked=0), 1002, "RFC 6455, 5.1")


def length_not_minimal(rng: random.Random) -> Draft:
    size, form = chosen(rng, (0, 126), (125, 126), (5, 127), (126, 127), (0xFFFF, 127))
    data = frame(rng, chosen(rng, TEXT, BINARY), b"x" * size, form=form)
    return ended(rng, data, 1002, "RFC 6455, 5.2: the minimal number of bytes")


def length_beyond(rng: random.Random) -> Draft:
    length = chosen(rng, 2**63, 2**64 - 1, 2**63 + rng.randint(0, 2**60))
    draft = ended(rng, frame(rng, TEXT, b"", length=length, form=127), 1002, "RFC 6455, 5.2: the top bit is 0")
    assert draft.answers is not None
    draft.answers = [draft.answers[0], Answer(draft.answers[1].allowed | {1009}, draft.answers[1].codes)]
    return draft


def length_over_limit(rng: random.Random) -> Draft:
    length = chosen(rng, 2**63 - 1, 2**31, 2**32 + 5, LIMIT + 1, rng.randint(LIMIT + 1, 2**40))
    rule = "docs/reference/limits.md: max_message_size, 1009 before the message has arrived"
    return ended(rng, frame(rng, TEXT, rng.randbytes(rng.randint(0, 2000)), length=length, form=127), 1009, rule)


def fragments_over_limit(rng: random.Random) -> Draft:
    size = rng.randint(5000, LIMIT)
    count = LIMIT // size + 1
    parts = [frame(rng, CONTINUATION if number else TEXT, b" " * size, fin=False) for number in range(count)]
    rule = "docs/reference/limits.md: max_message_size is for all fragments together"
    return ended(rng, frame(rng, PING).join(parts), 1009, rule)


def fragments_tiny(rng: random.Random) -> Draft:
    part = frame(rng, CONTINUATION, b" " * rng.randint(0, 2), fin=False)
    data = frame(rng, TEXT, b"", fin=False) + part * rng.randint(3000, 20_000)
    return opened(rng, data, {1008}, "docs/reference/limits.md: fragments of one message")


def message_at_limit(rng: random.Random) -> Draft:
    data = call(rng).ljust(LIMIT)
    return opened(rng, frame(rng, TEXT, data), {ALIVE}, "docs/reference/limits.md: max_message_size")


def control_too_long(rng: random.Random) -> Draft:
    data = frame(rng, chosen(rng, PING, PONG, CLOSE), b"\x03\xe8" + b"x" * rng.randint(124, 70_000))
    return ended(rng, data, 1002, "RFC 6455, 5.5: 125 bytes at most")


def control_fragmented(rng: random.Random) -> Draft:
    data = frame(rng, chosen(rng, PING, PONG, CLOSE), b"", fin=False)
    return ended(rng, data, 1002, "RFC 6455, 5.5: never fragmented")


def continuation_of_nothing(rng: random.Random) -> Draft:
    data = frame(rng, CONTINUATION, dumped(rng, MARK), fin=chosen(rng, True, False))
    whole = frame(rng, TEXT, call(rng)[:5], fin=False) + frame(rng, CONTINUATION, b"")
    if rng.random() < 0.5:
        return _after(rng, data)
    return ended(rng, chosen(rng, data, whole + data), 1002, "RFC 6455, 5.4")


def _after(rng: random.Random, data: bytes) -> Draft:
    """Send it after a message in fragments, which is answered."""
    text = token(rng)
    content = call(rng, text)
    before = frame(rng, TEXT, content[:9], fin=False) + frame(rng, CONTINUATION, content[9:])
    return opened(rng, before + data, {1002}, "RFC 6455, 5.4", codes=None)


def text_in_text(rng: random.Random) -> Draft:
    data = frame(rng, TEXT, b"{", fin=False) + frame(rng, chosen(rng, TEXT, BINARY), b"}", fin=chosen(rng, True, False))
    return ended(rng, data, 1002, "RFC 6455, 5.4: messages are not interleaved")


def binary(rng: random.Random) -> Draft:
    content = dumped(rng, MARK)
    data = chosen(
        rng,
        frame(rng, BINARY, content),
        frame(rng, BINARY, b""),
        frame(rng, BINARY, content[:5], fin=False) + frame(rng, CONTINUATION, content[5:]),
    )
    return ended(rng, data, 1003, "RFC 6455, 7.4.1; messages are text")


BAD_UTF8 = listed(b"\xff | \xc0\xaf | \xed\xa0\x80 | \xf5\x80\x80\x80 | \x80 | \xe2\x82 | \xf4\x90\x80\x80 | \xc3")


def not_utf8(rng: random.Random) -> Draft:
    content = dumped(rng, MARK).replace(b'"mark"', b'"' + chosen(rng, *BAD_UTF8) + b'"')
    content = chosen(rng, content, chosen(rng, *BAD_UTF8))
    parts = cut(rng, content, 8)
    frames = [
        frame(rng, CONTINUATION if number else TEXT, part, fin=number == len(parts) - 1)
        for number, part in enumerate(parts)
    ]
    return ended(rng, frame(rng, PING).join(frames), 1007, "RFC 6455, 8.1")


def fragments(rng: random.Random) -> Draft:
    """A good message in fragments, of which some are empty or split a character, with control frames in between."""
    text = token(rng) + "é💥\u2028" + token(rng)
    content = call(rng, text)
    parts = chosen(rng, [bytes([byte]) for byte in content], cut(rng, content, 20), [b"", content, b"", b""])
    data = b""
    for number, part in enumerate(parts):
        data += frame(rng, CONTINUATION if number else TEXT, part, fin=number == len(parts) - 1)
        if rng.random() < 0.3:
            data += frame(rng, chosen(rng, PING, PONG), rng.randbytes(rng.randint(0, 125)))
    pieces = chosen(rng, bytewise(data), [data], cut(rng, data, 20))
    return opened(rng, pieces, {ALIVE}, "RFC 6455, 5.4", echo=text)


def close(rng: random.Random) -> Draft:
    code = chosen(rng, 1000, 1001, 1003, 1007, 1008, 1009, 1010, 1011, 3000, 3999, 4000, 4999)
    reason = chosen(rng, b"", b"bye", b"x" * 123, "💥".encode() * 30, b"\x1b[31m\n\nERROR boo")
    behind = chosen(rng, b"", frame(rng, TEXT, dumped(rng, MARK)), rng.randbytes(50), frame(rng, CLOSE))
    payload = code.to_bytes(2, "big") + reason
    if rng.random() < 0.2:
        payload, code = b"", 1005
    return opened(rng, frame(rng, CLOSE, payload) + behind, {code}, "RFC 6455, 5.5.1: the code is sent back")


def close_wrong(rng: random.Random) -> Draft:
    code = chosen(rng, 0, 1, 999, 1004, 1005, 1006, 1015, 2000, 2999, 5000, 65535)
    bad = chosen(rng, *BAD_UTF8)
    payload, answer = chosen(
        rng, (code.to_bytes(2, "big"), 1002), (b"\x03", 1002), (b"x", 1002), (b"\x03\xe8" + bad, 1007)
    )
    return ended(rng, frame(rng, CLOSE, payload), answer, "RFC 6455, 7.4 and 8.1")


def close_between_fragments(rng: random.Random) -> Draft:
    mark = dumped(rng, MARK)
    data = frame(rng, TEXT, mark[:20], fin=False) + frame(rng, CLOSE, b"\x03\xe8") + frame(rng, CONTINUATION, mark[20:])
    return opened(rng, data, {1000}, "RFC 6455, 5.4 and 5.5.1: nothing is read behind a close frame")


def control_flood(rng: random.Random) -> Draft:
    one = frame(rng, chosen(rng, PING, PONG), b"x" * chosen(rng, 0, 1, 125))
    return opened(rng, one * rng.randint(10, 1000), {ALIVE}, "RFC 6455, 5.5.2 and 5.5.3")


def control_flood_unread(rng: random.Random) -> Draft:
    one = frame(rng, PING, b"x" * 125)
    return opened(rng, [one * 500] * 100, (), "docs/reference/limits.md: pongs don't queue", deaf=4.0)


def answers_unread(rng: random.Random) -> Draft:
    one = frame(rng, TEXT, call(rng, "x" * 60_000))
    return opened(rng, [one] * 120, (), "docs/reference/limits.md: write_timeout", deaf=4.0)


def empty_flood(rng: random.Random) -> Draft:
    one = frame(rng, TEXT, b"")
    return opened(rng, one * rng.randint(10, MAX_FAULTS - 1), {ALIVE}, "JSON-RPC 2.0, 5.1", codes={-32700})


def messages(rng: random.Random) -> Draft:
    """Send as a message what is garbage as a line: it costs nothing but itself."""
    while True:
        draft = chosen(rng, *(each for name, each in stdio.KINDS.items() if name not in ("flood", "too_long")))(rng)
        data = b"".join(piece for piece in draft.pieces if isinstance(piece, bytes)).removesuffix(b"\n")
        try:
            data.decode()
        except UnicodeDecodeError:
            continue
        # Over stdio a session was begun before, with `initialize`.
        codes = {code for code in draft.allowed if isinstance(code, int)} | {PARSE, INVALID_PARAMS}
        return opened(rng, frame(rng, TEXT, data), {ALIVE}, draft.rule, codes=codes)


def one_byte_at_a_time(rng: random.Random) -> Draft:
    text = token(rng)
    data = frame(rng, PING, b"now") + frame(rng, TEXT, call(rng, text)) + frame(rng, PONG)
    return opened(rng, bytewise(data), {ALIVE}, echo=text)


def half_closed(rng: random.Random) -> Draft:
    """End the sending with no close frame, between frames or within one."""
    data = frame(rng, TEXT, call(rng)) + frame(rng, PING, b"x")
    data = chosen(rng, data, data[: rng.randrange(len(data))])
    rule = "RFC 6455, 7.1.1: the end of TCP ends the WebSocket"
    return opened(rng, data, {CLOSED, 1006, 1002}, rule, shut=True, probe=False, codes=None)


def reset(rng: random.Random) -> Draft:
    data = frame(rng, TEXT, call(rng)) + frame(rng, PING, b"x") * rng.randint(0, 50)
    data = chosen(rng, data, data[: rng.randrange(len(data))])
    return opened(rng, data, (), "RFC 9293, 3.10.7: a reset", reset=True, probe=False)


def message_too_slow(rng: random.Random) -> Draft:
    begun = chosen(
        rng,
        [frame(rng, TEXT, b"{", fin=False)],
        [frame(rng, TEXT, b"{}", length=1000, form=126)],
        [frame(rng, TEXT, b"{", fin=False), *[0.3, frame(rng, CONTINUATION, b" ", fin=False)] * 20],
        [frame(rng, TEXT, b"{", fin=False), *[0.3, frame(rng, PING)] * 20],
    )
    return opened(rng, begun, {1008}, "docs/reference/limits.md: body_timeout", probe=False)


def garbage(rng: random.Random) -> Draft:
    data = rng.randbytes(rng.randint(1, 5000))
    ends = {1000, 1002, 1003, 1005, 1007, 1008, 1009, CLOSED}
    return opened(rng, data, ends, RULE, probe=False, shut=True, codes=None)


def mutated(rng: random.Random) -> Draft:
    """Frames that are good but for some bytes."""
    parts = [frame(rng, chosen(rng, PING, PONG), rng.randbytes(5)), frame(rng, TEXT, call(rng))]
    data = bytearray(b"".join(rng.choices(parts, k=rng.randint(1, 6))))
    for _ in range(rng.randint(1, 5)):
        data[rng.randrange(len(data))] = rng.randrange(256)
    ends = {1000, 1001, 1002, 1003, 1005, 1007, 1008, 1009, 1010, 1011, CLOSED, *range(3000, 5000)}
    return opened(rng, bytes(data), ends, RULE, probe=False, shut=True, codes=None)


KINDS = kinds_of(__name__)
