"""TLS: bytes that are not a handshake, hellos that lie, records that break, plain HTTP on the port of TLS."""

from __future__ import annotations

import random
import struct

from tests.hostile.case import ABORTED, CLOSED, Draft, chosen, cut, head, kinds_of, modern, rendered, token

RULE = "RFC 8446, 6.2: what is not a handshake ends the connection, with an alert or without"


def record(kind: int, payload: bytes, version: int = 0x0301, length: int | None = None) -> bytes:
    return struct.pack(">BHH", kind, version, len(payload) if length is None else length) + payload


def block(data: bytes, size: int = 2) -> bytes:
    """Return data prefixed with its length."""
    return len(data).to_bytes(size, "big") + data


def extension(kind: int, data: bytes) -> bytes:
    return struct.pack(">H", kind) + block(data)


def hello(rng: random.Random, **changed: bytes) -> bytes:
    """Return a ClientHello of TLS 1.2 and 1.3, as a message."""
    names = changed.get("sni", block(b"\0" + block(b"localhost")))
    protocols = changed.get("alpn", block(block(b"h2", 1) + block(b"http/1.1", 1)))
    parts = {
        0: names,
        10: block(struct.pack(">HH", 29, 23)),
        11: b"\x01\0",
        13: block(struct.pack(">HHHH", 0x0403, 0x0804, 0x0401, 0x0503)),
        16: protocols,
        43: block(struct.pack(">HH", 0x0304, 0x0303), 1),
        51: block(struct.pack(">H", 29) + block(rng.randbytes(32))),
    }
    if "extensions" in changed:
        extensions = changed["extensions"]
    else:
        extensions = b"".join(extension(kind, data) for kind, data in parts.items() if data is not None)
    ciphers = changed.get("ciphers", struct.pack(">HHHH", 0x1301, 0x1303, 0xC02B, 0xC02C))
    body = changed.get("version", b"\x03\x03") + rng.randbytes(32) + block(changed.get("session", rng.randbytes(32)), 1)
    body += block(ciphers) + changed.get("compression", b"\x01\0") + block(extensions)
    return b"\x01" + block(body, 3)


def refused(rng: random.Random, data: bytes, rule: str = RULE, *, shut: bool = True) -> Draft:
    return Draft(rule, {ABORTED}, cut(rng, data), wire="hello", closes=True, probe=False, shut=shut)


def garbage(rng: random.Random) -> Draft:
    data = chosen(
        rng,
        rng.randbytes(rng.randint(1, 3000)),
        b"\x00" * rng.randint(1, 3000),
        b"\xff" * rng.randint(1, 3000),
        b"SSH-2.0-x\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"\x80\x2e\x01\x00\x02" + rng.randbytes(41),
        b"",
        b"\x16",
        b"\x16\x03\x01",
    )
    return refused(rng, data)


def plain_http(rng: random.Random) -> Draft:
    data = chosen(rng, head(rng, "GET /health HTTP/1.1", [("Host", "localhost")]), b"".join(rendered(rng, modern(rng))))
    return refused(rng, data, "RFC 8446, 6.2: HTTP without TLS on this port is not a handshake", shut=False)


def records_wrong(rng: random.Random) -> Draft:
    good = hello(rng)
    data = chosen(
        rng,
        record(22, good, length=len(good) + rng.randint(1, 10_000)),
        record(22, good, length=0xFFFF),
        record(22, b"") * rng.randint(1, 100),
        record(23, rng.randbytes(100)),
        record(24, b"\x01\x40\x00" + rng.randbytes(20)),
        record(20, b"\x01") * rng.randint(1, 50),
        record(rng.randint(25, 255), rng.randbytes(50)),
        record(22, good, version=rng.choice([0x0000, 0x0200, 0x0400, 0xFFFF])) + rng.randbytes(10),
        b"".join(record(22, good[place : place + 1]) for place in range(rng.randint(1, 60))),
        record(22, good[:-1]),
        record(22, b"\x01\xff\xff\xff" + rng.randbytes(200)),
        record(22, b"\x00\x00\x00\x00"),
        record(22, bytes([rng.randint(2, 255)]) + block(rng.randbytes(50), 3)),
    )
    return refused(rng, data)


def alerts(rng: random.Random) -> Draft:
    one = record(21, bytes([chosen(rng, 1, 2, 255), rng.randrange(256)]))
    before = chosen(rng, b"", record(22, hello(rng)))
    return refused(rng, before + one * rng.randint(1, 50), "RFC 8446, 6: alerts end the connection, or mean nothing")


def hello_mutated(rng: random.Random) -> Draft:
    data = bytearray(record(22, hello(rng)))
    for _ in range(rng.randint(1, 20)):
        data[rng.randrange(len(data))] = rng.randrange(256)
    return refused(rng, bytes(data))


def hello_hostile(rng: random.Random) -> Draft:
    changed = chosen(
        rng,
        {"sni": block(b"\0" + block(b"x" * rng.randint(256, 5000)))},
        {"sni": block(b"\0" + block(b"evil\x00.example"))},
        {"sni": block(b"\0" + block(b"\xff\xfe"))},
        {"sni": block(b"\x07" + block(b"x"))},
        {"sni": b"\xff\xff"},
        {"sni": b""},
        {"sni": block((b"\0" + block(b"a.example")) * 50)},
        {"alpn": block(block(b"h3", 1) + block(b"x" * 255, 1))},
        {"alpn": block(block(b"", 1))},
        {"alpn": b"\xff\xff"},
        {"alpn": b""},
        {"ciphers": b""},
        {"ciphers": b"\x00\x05" * rng.randint(1, 10_000)},
        {"ciphers": struct.pack(">HH", 0x5600, 0x00FF)},
        {"version": b"\x02\x00"},
        {"version": b"\x03\x00"},
        {"version": b"\xff\xff"},
        {"compression": b"\x00"},
        {"compression": b"\x02\x01\x01"},
        {"session": rng.randbytes(255)},
        {"extensions": b""},
        {"extensions": b"\xff" * 7},
        {"extensions": extension(0, b"") * 100},
        {"extensions": extension(0xFF01, b"\x05hello")},
    )
    return refused(rng, record(22, hello(rng, **changed)), "RFC 8446, 4.1.2, 6.2; RFC 6066, 3; RFC 7301, 3.2")


def hello_then_garbage(rng: random.Random) -> Draft:
    after = chosen(
        rng,
        rng.randbytes(rng.randint(1, 500)),
        record(23, rng.randbytes(100), 0x0303),
        record(20, b"\x01", 0x0303) + record(23, rng.randbytes(60), 0x0303),
        record(22, hello(rng)),
        record(22, b"\x14" + block(rng.randbytes(32), 3), 0x0303),
        head(rng, "GET /health HTTP/1.1", [("Host", "localhost")]),
    )
    return refused(rng, record(22, hello(rng)) + after)


def hello_and_silence(rng: random.Random) -> Draft:
    rule = "RFC 8446, 6.1: the client closes its half in the middle of the handshake"
    return refused(rng, record(22, hello(rng, sni=block(b"\0" + block(token(rng).encode())))), rule)


def after_handshake(rng: random.Random) -> Draft:
    """Bytes that no TLS has made, on a connection that has it."""
    bad = chosen(
        rng,
        rng.randbytes(rng.randint(5, 500)),
        record(23, rng.randbytes(rng.randint(17, 300)), 0x0303),
        record(22, hello(rng), 0x0303),
        record(21, b"\x02\x28", 0x0303),
        record(21, b"\x01\x00", 0x0303),
        record(20, b"\x01", 0x0303),
        record(24, b"\x01\x40\x00", 0x0303),
        record(23, b"", 0x0303) * 100,
        head(rng, "GET /health HTTP/1.1", [("Host", "localhost")]),
    )
    rule = "RFC 8446, 5.2, 6.2: a record that can't be deprotected ends the connection"
    return Draft(rule, {CLOSED}, cut(rng, bad), wire="broken-tls", closes=True, probe=False, shut=True)


def served(rng: random.Random) -> Draft:
    return Draft("RFC 9112: the same over TLS", {200}, rendered(rng, modern(rng)), wire="tls", closes=False)


KINDS = kinds_of(__name__)
