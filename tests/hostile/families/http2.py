"""Frames of HTTP/2, written by hand: prefaces, settings, streams out of order, fields that must not be, floods."""

from __future__ import annotations

import random
import struct
from collections.abc import Iterable, Sequence

from tests.hostile.case import (
    GOAWAY,
    NOTHING,
    RESET,
    Draft,
    Message,
    Outcome,
    chosen,
    cut,
    kinds_of,
    modern,
    padded,
    picked,
    token,
)
from tests.tables import listed

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, PRIORITY, RST, SETTINGS, PUSH, PING, AWAY, WINDOW, CONTINUATION = range(10)
END_STREAM, END_HEADERS, PADDED, PRIORITIZED, ACK = 0x1, 0x4, 0x8, 0x20, 0x1

BROKEN: frozenset[Outcome] = frozenset({GOAWAY})
MALFORMED: frozenset[Outcome] = frozenset({RESET, GOAWAY, 400})
"""RFC 9113, 8.1.1: a stream error; an answer before it is allowed, and 5.4.1 allows to end the connection."""


def frame(kind: int, flags: int = 0, stream: int = 0, payload: bytes = b"", *, length: int | None = None) -> bytes:
    """Return a frame; its length is the payload's unless another is given."""
    size = len(payload) if length is None else length
    return struct.pack(">I", size)[1:] + struct.pack(">BBI", kind, flags, stream) + payload


SETTING = struct.Struct(">HI")
START = (
    PREFACE
    + frame(SETTINGS, payload=SETTING.pack(4, 2**31 - 1))
    + frame(WINDOW, 0, 0, struct.pack(">I", 2**31 - 65536))
)
"""What a client begins with; all windows are open."""


def integer(value: int, prefix: int, first: int) -> bytes:
    """RFC 7541, 5.1."""
    most = (1 << prefix) - 1
    if value < most:
        return bytes([first | value])
    out, value = [first | most], value - most
    while value >= 128:
        out.append(value % 128 + 128)
        value //= 128
    return bytes([*out, value])


def packed(fields: Iterable[tuple[bytes, bytes]]) -> bytes:
    """Fields as literals without an index, whatever they hold (RFC 7541, 6.2.2)."""
    parts = []
    for name, value in fields:
        parts += [b"\0", integer(len(name), 7, 0), name, integer(len(value), 7, 0), value]
    return b"".join(parts)


def get(path: bytes = b"/health", *more: tuple[bytes, bytes], method: bytes = b"GET") -> list[tuple[bytes, bytes]]:
    return [(b":method", method), (b":scheme", b"https"), (b":authority", b"localhost"), (b":path", path), *more]


def opened(fields: Iterable[tuple[bytes, bytes]], stream: int = 1, flags: int = END_STREAM) -> bytes:
    """Return a request in one frame."""
    return frame(HEADERS, flags | END_HEADERS, stream, packed(fields))


def sent(
    rng: random.Random,
    rule: str,
    allowed: Iterable[Outcome],
    data: bytes | Sequence[bytes],
    *,
    start: bytes = START,
    probe: bool = True,
    stream: int = 1,
    codes: Iterable[int] | None = None,
) -> Draft:
    """Frames after the preface. Without a probe the client ends there."""
    data = data if isinstance(data, bytes) else b"".join(data)
    pieces = cut(rng, start + data)
    return Draft(rule, allowed, pieces, wire="h2", probe=probe, shut=not probe, stream=stream, codes=codes)


def posted(
    rng: random.Random, message: Message, rule: str, allowed: Iterable[Outcome], codes: Iterable[int] | None = None
) -> Draft:
    """Draft a request of another family, over HTTP/2."""
    fields = [(b":method", message.method.encode()), (b":scheme", b"https"), (b":path", message.target.encode())]
    fields += [(b":authority", value.encode("latin-1")) for name, value in message.fields if name.lower() == "host"]
    values = [(name.lower(), padded(value.strip(" \t"))) for name, value in message.fields]
    fields += [(name.encode(), value.encode("latin-1")) for name, value in values if name != "host"]
    data = opened(fields, flags=0 if message.body else END_STREAM)
    pieces = [message.body[start : start + 16384] for start in range(0, len(message.body), 16384)]
    for number, piece in enumerate(pieces, 1):
        data += frame(DATA, END_STREAM * (number == len(pieces)), 1, piece)
    return sent(rng, rule, allowed, data, codes=codes)


# --- the connection ---------------------------------------------------------------------------------------------


def preface_wrong(rng: random.Random) -> Draft:
    start = chosen(
        rng,
        PREFACE.replace(b"PRI", b"GET"),
        PREFACE[:-2] + b"xx",
        b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n",
        rng.randbytes(24),
        b"\x00" * 24,
        PREFACE.lower(),
    )
    rule = "RFC 9113, 3.4: an invalid preface is a connection error"
    return sent(rng, rule, BROKEN, opened(get()), start=start, probe=False)


def preface_without_settings(rng: random.Random) -> Draft:
    data = chosen(rng, opened(get()), frame(PING, 0, 0, b"x" * 8), frame(SETTINGS, ACK))
    rule = "RFC 9113, 3.4: the first frame MUST be SETTINGS; some servers don't mind"
    return sent(rng, rule, {GOAWAY, NOTHING, 200}, data, start=PREFACE)


def settings_wrong(rng: random.Random) -> Draft:
    stream, flags, payload = chosen(
        rng,
        (1, 0, b""),
        (3, 0, SETTING.pack(4, 100)),
        (0, 0, b"x" * rng.randint(1, 5)),
        (0, 0, SETTING.pack(4, 100) + b"x"),
        (0, ACK, SETTING.pack(4, 100)),
        (0, 0, SETTING.pack(2, rng.randint(2, 2**32 - 1))),
        (0, 0, SETTING.pack(4, rng.randint(2**31, 2**32 - 1))),
        (0, 0, SETTING.pack(5, rng.randint(0, 16383))),
        (0, 0, SETTING.pack(5, rng.randint(2**24, 2**32 - 1))),
    )
    return sent(rng, "RFC 9113, 6.5, 6.5.2: a connection error", BROKEN, frame(SETTINGS, flags, stream, payload))


def settings_strange(rng: random.Random) -> Draft:
    payload = b"".join(SETTING.pack(rng.randint(10, 65535), rng.randrange(2**32)) for _ in range(rng.randint(0, 200)))
    more = chosen(rng, b"", SETTING.pack(1, 0), SETTING.pack(3, 0), SETTING.pack(6, 0), SETTING.pack(1, 2**32 - 1))
    data = [frame(SETTINGS, 0, 0, payload + more), opened(get())]
    return sent(rng, "RFC 9113, 6.5.2: settings that are not known are ignored", {200}, data)


def settings_flood(rng: random.Random) -> Draft:
    one = chosen(
        rng,
        frame(SETTINGS),
        frame(SETTINGS, 0, 0, SETTING.pack(4, 2**31 - 1)),
        frame(SETTINGS, 0, 0, SETTING.pack(1, 0)),
    )
    return sent(rng, "RFC 9113, 10.5: a flood may end the connection", {GOAWAY, NOTHING}, one * rng.randint(100, 1000))


def settings_acks(rng: random.Random) -> Draft:
    rule = "RFC 9113, 6.5.3; 10.5: an acknowledgement of nothing"
    return sent(rng, rule, {GOAWAY, NOTHING}, frame(SETTINGS, ACK) * rng.randint(1, 300))


def ping_wrong(rng: random.Random) -> Draft:
    bad = chosen(rng, frame(PING, 0, 1, b"x" * 8), frame(PING, 0, 0, b"x" * chosen(rng, 0, 7, 9, 100)))
    return sent(rng, "RFC 9113, 6.7: a connection error", BROKEN, bad)


def ping_flood(rng: random.Random) -> Draft:
    flags = chosen(rng, 0, 0, ACK)
    data = b"".join(frame(PING, flags, 0, rng.randbytes(8)) for _ in range(rng.randint(1, 1000)))
    return sent(rng, "RFC 9113, 6.7; 10.5: answered, or the end", {GOAWAY, NOTHING}, data)


def goaway(rng: random.Random) -> Draft:
    payload = struct.pack(">II", rng.randrange(2**31), rng.randrange(2**32)) + rng.randbytes(rng.randint(0, 100))
    return sent(rng, "RFC 9113, 6.8: the client is about to close", {GOAWAY, NOTHING}, frame(AWAY, 0, 0, payload))


def goaway_wrong(rng: random.Random) -> Draft:
    bad = chosen(rng, frame(AWAY, 0, 1, b"\0" * 8), frame(AWAY, 0, 0, b"\0" * rng.randint(0, 7)))
    return sent(rng, "RFC 9113, 6.8, 4.2: a connection error", BROKEN, bad)


def frames_unknown(rng: random.Random) -> Draft:
    data = b"".join(
        frame(
            rng.randint(11, 255),
            rng.randrange(256),
            chosen(rng, 0, 0, 5, 2**31 - 1),
            rng.randbytes(rng.randint(0, 300)),
        )
        for _ in range(rng.randint(1, 30))
    )
    return sent(rng, "RFC 9113, 4.1: frames of unknown types are ignored", {200}, data + opened(get()))


def frame_too_long(rng: random.Random) -> Draft:
    size = rng.randint(16_385, 60_000)
    bad = frame(chosen(rng, DATA, HEADERS, SETTINGS, PING, CONTINUATION), 0, chosen(rng, 0, 1), b"\0" * size)
    return sent(rng, "RFC 9113, 4.2: FRAME_SIZE_ERROR", BROKEN, bad)


def frame_cut_short(rng: random.Random) -> Draft:
    whole = chosen(rng, opened(get()), frame(PING, 0, 0, b"x" * 8), frame(SETTINGS, 0, 0, SETTING.pack(4, 100)))
    rule = "RFC 9113, 4.1: half a frame is not a frame; the client has disconnected"
    return sent(rng, rule, BROKEN, whole[: rng.randint(1, len(whole) - 1)], probe=False)


def frames_of_garbage(rng: random.Random) -> Draft:
    data = rng.randbytes(rng.randint(9, 3000))
    rule = "RFC 9113, 5.4.1: whatever it is, it ends the connection or means nothing"
    return sent(rng, rule, {GOAWAY}, data, probe=False)


def window_wrong(rng: random.Random) -> Draft:
    bad = chosen(
        rng,
        frame(WINDOW, 0, 0, struct.pack(">I", 0)),
        frame(WINDOW, 0, 0, struct.pack(">I", 2**31 - 1)) * 2,
        frame(WINDOW, 0, 0, b"\0" * chosen(rng, 0, 3, 5)),
        frame(WINDOW, 0, rng.randrange(1, 999, 2), struct.pack(">I", 100)),
    )
    rule = "RFC 9113, 6.9, 6.9.1, 5.1: no increment, an overflow, a wrong length, an idle stream"
    return sent(rng, rule, BROKEN, bad)


def window_of_stream_wrong(rng: random.Random) -> Draft:
    increment = chosen(rng, struct.pack(">I", 0), struct.pack(">I", 2**31 - 1) * 1)
    data = opened(get(b"/mcp", method=b"POST"), flags=0) + frame(WINDOW, 0, 1, increment) * 2
    rule = "RFC 9113, 6.9, 6.9.1: a stream error; the head alone may have been refused already"
    return sent(rng, rule, {RESET, GOAWAY, 415, 406}, data)


# --- streams ----------------------------------------------------------------------------------------------------


def stream_number_wrong(rng: random.Random) -> Draft:
    data = chosen(
        rng,
        opened(get(), stream=0),
        opened(get(), stream=2 * rng.randint(1, 1000)),
        opened(get(), stream=9) + opened(get(), stream=chosen(rng, 1, 3, 5, 7)),
        frame(DATA, 0, 0, b"x"),
        frame(DATA, 0, rng.randrange(1, 999, 2), b"x"),
        frame(DATA, 0, 2, b"x"),
        frame(RST, 0, 0, b"\0" * 4),
        frame(RST, 0, rng.randrange(1, 999, 2), b"\0" * 4),
        frame(PRIORITY, 0, 0, b"\0" * 5),
        frame(CONTINUATION, END_HEADERS, 0, b""),
    )
    return sent(rng, "RFC 9113, 5.1, 5.1.1, 6: a connection error", BROKEN, data, stream=1001)


def push_promise(rng: random.Random) -> Draft:
    data = opened(get(b"/mcp", method=b"POST"), flags=0) + frame(
        PUSH, END_HEADERS, 1, struct.pack(">I", 2) + packed(get())
    )
    return sent(rng, "RFC 9113, 8.4: a client can't push", BROKEN, data, stream=1001)


def reset_wrong(rng: random.Random) -> Draft:
    data = opened(get(b"/mcp", method=b"POST"), flags=0) + frame(RST, 0, 1, b"\0" * chosen(rng, 0, 3, 5, 100))
    return sent(rng, "RFC 9113, 6.4: FRAME_SIZE_ERROR", BROKEN, data, stream=1001)


def rapid_reset(rng: random.Random) -> Draft:
    parts = []
    body = modern(rng)
    for stream in range(1, 2 * rng.randint(50, 400), 2):
        parts.append(
            opened(
                get(chosen(rng, b"/health", b"/mcp"), method=chosen(rng, b"GET", b"POST")), stream, chosen(rng, 0, 1)
            )
        )
        if rng.random() < 0.2:
            parts.append(frame(DATA, 0, stream, body.body) if parts[-1][4] & 1 == 0 else b"")
        parts.append(frame(RST, 0, stream, struct.pack(">I", chosen(rng, 0, 8, 5, 2**32 - 1))))
    rule = "RFC 9113, 10.5; CVE-2023-44487: it may end the connection"
    return sent(rng, rule, {GOAWAY, NOTHING}, parts, stream=1_000_001)


def streams_too_many(rng: random.Random) -> Draft:
    data = b"".join(
        opened(get(b"/mcp", method=b"POST"), stream, 0) for stream in range(1, 2 * rng.randint(101, 300), 2)
    )
    rule = "RFC 9113, 5.1.2: a stream beyond the limit is refused"
    # Whatever has no media type is answered at once, so the limit need not be reached.
    return sent(rng, rule, {GOAWAY, NOTHING, RESET}, data, stream=1_000_001)


def priority_wrong(rng: random.Random) -> Draft:
    stream = rng.randrange(1, 999, 2)
    bad = chosen(
        rng,
        frame(PRIORITY, 0, stream, b"\0" * chosen(rng, 0, 4, 6)),
        frame(PRIORITY, 0, stream, struct.pack(">IB", stream, 5)),
        frame(HEADERS, END_STREAM | END_HEADERS | PRIORITIZED, stream, struct.pack(">IB", stream, 5) + packed(get())),
    )
    rule = "RFC 9113, 6.3, 5.3.1: of a wrong length a stream error; priorities are deprecated"
    return sent(rng, rule, {RESET, GOAWAY, NOTHING, 200, 400}, bad, stream=stream)


def priority_flood(rng: random.Random) -> Draft:
    data = b"".join(
        frame(
            PRIORITY,
            0,
            rng.randrange(1, 2**31, 2),
            struct.pack(">IB", rng.randrange(2**32) | 1 << 31, rng.randrange(256)),
        )
        for _ in range(rng.randint(10, 500))
    )
    return sent(rng, "RFC 9113, 5.3.2: priorities may be ignored", {GOAWAY, NOTHING}, data, stream=1_000_001)


def data_padding(rng: random.Random) -> Draft:
    data = opened(get(b"/mcp", method=b"POST"), flags=0) + frame(
        DATA, PADDED, 1, bytes([rng.randint(5, 255)]) + b"abcd"
    )
    return sent(rng, "RFC 9113, 6.1: as much padding as payload is a connection error", BROKEN, data, stream=1001)


def data_beyond_window(rng: random.Random) -> Draft:
    fields = get(b"/mcp", (b"content-type", b"application/json"), method=b"POST")
    data = opened(fields, flags=0) + frame(DATA, 0, 1, b" " * 16_384) * rng.randint(17, 60)
    rule = "RFC 9113, 6.9.1: FLOW_CONTROL_ERROR, unless the window was opened meanwhile; then it is too large: 413"
    return sent(rng, rule, {RESET, GOAWAY, 413}, data)


def data_after_end(rng: random.Random) -> Draft:
    end = chosen(rng, frame(DATA, END_STREAM, 1, b"x"), opened([(b"x-a", b"b")], 1))
    data = opened(get()) + end * rng.randint(1, 3)
    return sent(rng, "RFC 9113, 5.1: STREAM_CLOSED, unless the answer was complete", {RESET, GOAWAY, 200}, data)


def data_of_wrong_length(rng: random.Random) -> Draft:
    message = modern(rng)
    length = chosen(rng, 0, 1, len(message.body) - 1, len(message.body) + 1, 10**6)
    return posted(rng, message.set("content-length", str(length)), "RFC 9113, 8.1.1: malformed", MALFORMED | {413})


# --- fields -----------------------------------------------------------------------------------------------------


def pseudo_wrong(rng: random.Random) -> Draft:
    missing = chosen(rng, b":method", b":scheme", b":path")
    fields = chosen(
        rng,
        [pair for pair in get() if pair[0] != missing],
        [
            *get(),
            chosen(
                rng, (b":method", b"GET"), (b":path", b"/mcp"), (b":scheme", b"http"), (b":authority", b"evil.example")
            ),
        ],
        [*get(), (chosen(rng, b":status", b":foo", b":", b":protocol", b":Path"), b"200")],
        [(b"x-a", b"b"), *get()],
        get(b""),
        [*get()[:2], (b"x-a", b"b"), *get()[2:]],
        get(method=b""),
    )
    return sent(rng, "RFC 9113, 8.3, 8.3.1: malformed", MALFORMED, opened(fields))


def path_wrong(rng: random.Random) -> Draft:
    path = picked(
        rng, b"health | * | http://localhost/health | /\xc3\xa9 | /hea lth | /health\x7f | \x01 | ?a | //evil"
    )
    rule = "RFC 9113, 8.3.1: a path begins with a slash; otherwise malformed, or nothing is there"
    return sent(rng, rule, MALFORMED | {404}, opened(get(path)))


def name_wrong(rng: random.Random) -> Draft:
    name = chosen(
        rng, b"X-A", b"x a", b"x\x00", b"x\r\ny", b"", b"x:y", b"\xe9", b"x\x7f", b"Content-Type", b"x\t", b" x"
    )
    return sent(rng, "RFC 9113, 8.2.1: malformed", MALFORMED, opened(get(b"/health", (name, b"b"))))


def value_wrong(rng: random.Random) -> Draft:
    value = chosen(rng, b"a\x00b", b"a\rb", b"a\nb", b"a\r\nx-evil: b", b"\x00")
    return sent(rng, "RFC 9113, 8.2.1: malformed", MALFORMED, opened(get(b"/health", (b"x-a", value))))


def value_with_space(rng: random.Random) -> Draft:
    value = chosen(rng, b" a", b"a ", b"\ta", b"a\t", b" ")
    return sent(rng, "RFC 9113, 8.2.1: malformed", MALFORMED, opened(get(b"/health", (b"x-a", value))))


def connection_fields(rng: random.Random) -> Draft:
    field = chosen(
        rng,
        (b"connection", b"close"),
        (b"transfer-encoding", b"chunked"),
        (b"keep-alive", b"timeout=5"),
        (b"upgrade", b"h2c"),
        (b"proxy-connection", b"keep-alive"),
        (b"te", b"gzip"),
    )
    return sent(rng, "RFC 9113, 8.2.2: malformed", MALFORMED, opened(get(b"/health", field)))


def hosts(rng: random.Random) -> Draft:
    message = modern(rng)
    fields = [(name.lower().encode(), value.encode()) for name, value in message.fields if name != "Host"]
    authority, host = chosen(
        rng,
        (b"evil.example", b"localhost"),
        (b"localhost", b"evil.example"),
        (None, b"evil.example"),
        (None, None),
        (b"", b"localhost"),
    )
    pseudo = [pair for pair in get(b"/mcp", method=b"POST") if pair[0] != b":authority"]
    pseudo += [] if authority is None else [(b":authority", authority)]
    fields += [] if host is None else [(b"host", host)]
    data = opened([*pseudo, *fields], flags=0) + frame(DATA, END_STREAM, 1, message.body)
    rule = "RFC 9113, 8.3.1: authority and Host that differ are malformed; S, Security Warning: foreign is 403"
    return sent(rng, rule, MALFORMED | {403}, data)


def method_strange(rng: random.Random) -> Draft:
    method = chosen(rng, b"PUT", b"BREW", b"get", b"OPTIONS", b"TRACE", token(rng).upper().encode(), b"G" * 2000)
    rule = "RFC 9110, 9.1, 15.5.6: 405 or 501; 404 from a server that does not say"
    return sent(rng, rule, MALFORMED | {404, 405, 501}, opened(get(method=method)))


def connect(rng: random.Random) -> Draft:
    fields = chosen(
        rng,
        [(b":method", b"CONNECT"), (b":authority", b"localhost:80")],
        [*get(b"/mcp", method=b"CONNECT"), (b":protocol", b"websocket")],
        get(b"/mcp", method=b"CONNECT"),
        [(b":method", b"CONNECT")],
    )
    return sent(
        rng, "RFC 9113, 8.5; RFC 8441: no tunnel is opened", MALFORMED | {403, 404, 405, 501}, opened(fields, flags=0)
    )


def trailers_wrong(rng: random.Random) -> Draft:
    trailers = chosen(
        rng,
        opened([(b":path", b"/x")], 1),
        opened([(b"x-a", b"b")], 1, 0),
        opened([(b"X-A", b"b")], 1),
        opened([(b"connection", b"close")], 1),
    )
    message = modern(rng)
    fields = [(name.lower().encode(), value.encode()) for name, value in message.fields if name != "Host"]
    data = opened([*get(b"/mcp", method=b"POST"), *fields], flags=0) + frame(DATA, 0, 1, message.body) + trailers
    return sent(rng, "RFC 9113, 8.1, 8.3: malformed", MALFORMED, data)


def fields_too_large(rng: random.Random) -> Draft:
    value = b"y" * rng.randint(70_000, 150_000)
    block = packed(get(b"/health", (b"x-a", value)))
    pieces = [block[start : start + 16_384] for start in range(0, len(block), 16_384)]
    data = frame(HEADERS, END_STREAM, 1, pieces[0])
    for number, piece in enumerate(pieces[1:], 2):
        data += frame(CONTINUATION, END_HEADERS * (number == len(pieces)), 1, piece)
    return sent(rng, "RFC 9113, 10.5.1: 431, or a stream error, or the end", MALFORMED | {431}, data)


def fields_bomb(rng: random.Random) -> Draft:
    """RFC 7541, 7.3: an entry of the table, referred to again and again."""
    first = b"\x40" + integer(1, 7, 0) + b"x" + integer(3800, 7, 0) + b"y" * 3800
    block = packed(get()) + first + b"\xbe" * rng.randint(1000, 12_000)
    rule = "RFC 9113, 10.5.1: fields that are too large when unpacked: 431, or a stream error, or the end"
    return sent(rng, rule, MALFORMED | {431}, frame(HEADERS, END_STREAM | END_HEADERS, 1, block))


def packing_wrong(rng: random.Random) -> Draft:
    bad = chosen(
        rng,
        b"\x80",
        b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x7f",
        integer(rng.randint(100, 10**6), 7, 0x80),
        integer(rng.randint(5000, 10**6), 5, 0x20),
        *listed(b"\x00\x7f\xff | \x00\x81\xff\x01a | \x00\x01 | @ | \x00\x84\xff\xff\xff\xff\x01a"),
    )
    data = frame(HEADERS, END_STREAM | END_HEADERS, 1, chosen(rng, packed(get()), b"") + bad)
    return sent(rng, "RFC 7541, 2.3.3, 4.2, 5; RFC 9113, 4.3: COMPRESSION_ERROR", BROKEN, data, stream=1001)


def headers_padding(rng: random.Random) -> Draft:
    block = packed(get())
    bad = chosen(
        rng,
        frame(HEADERS, END_STREAM | END_HEADERS | PADDED, 1, bytes([255]) + block[:50]),
        frame(HEADERS, END_STREAM | END_HEADERS | PADDED, 1, b""),
        frame(HEADERS, END_STREAM | END_HEADERS | PRIORITIZED, 1, b"\0\0"),
    )
    return sent(rng, "RFC 9113, 6.2, 4.2: padding or fields that are not there", BROKEN, bad, stream=1001)


def continuation_wrong(rng: random.Random) -> Draft:
    block = packed(get())
    begun = frame(HEADERS, END_STREAM, 1, block[:10])
    data = chosen(
        rng,
        frame(CONTINUATION, END_HEADERS, 1, block),
        begun + frame(CONTINUATION, END_HEADERS, 3, block[10:]),
        begun + frame(PING, 0, 0, b"x" * 8),
        begun + frame(SETTINGS),
        begun + frame(DATA, 0, 1, b"x"),
        begun + opened(get(), 3),
        begun + frame(rng.randint(11, 255), 0, 0, b"x"),
        opened(get()) + frame(CONTINUATION, END_HEADERS, 1, block),
    )
    return sent(rng, "RFC 9113, 6.10, 4.3: a connection error", BROKEN, data, stream=1001)


def continuation_flood(rng: random.Random) -> Draft:
    piece = chosen(rng, b"", packed([(b"x-a", b"b")]), packed([(b"x-a", b"b" * 1000)]))
    data = frame(HEADERS, END_STREAM, 1, packed(get())) + frame(CONTINUATION, 0, 1, piece) * rng.randint(200, 2000)
    return sent(rng, "RFC 9113, 10.5, 10.5.1: fields without an end", BROKEN, data, stream=1001)


def tiny_data_flood(rng: random.Random) -> Draft:
    fields = get(b"/mcp", (b"content-type", b"application/json"), method=b"POST")
    data = opened(fields, flags=0) + frame(DATA, chosen(rng, 0, PADDED), 1, b"\0") * rng.randint(100, 2000)
    data += frame(DATA, END_STREAM, 1, b"")
    rule = "RFC 9113, 10.5; RFC 9110, 15.5.9: frames of a byte, which are no JSON, or take too long"
    return sent(rng, rule, {400, 408, 413, RESET, GOAWAY}, data)


def several_streams(rng: random.Random) -> Draft:
    parts = []
    for stream in range(1, 2 * rng.randint(2, 60), 2):
        message = modern(rng, id=stream)
        fields = [(name.lower().encode(), value.encode()) for name, value in message.fields if name != "Host"]
        parts.append(opened([*get(b"/mcp", method=b"POST"), *fields], stream, 0))
        parts.append(frame(DATA, END_STREAM, stream, message.body))
    return sent(rng, "RFC 9113, 5: streams are served concurrently", {200}, parts, stream=stream)


KINDS = kinds_of(__name__)
