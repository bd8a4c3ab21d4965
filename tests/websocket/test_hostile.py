"""Clients that break the protocol, or bend it: each costs only its own session, and is told why."""

from __future__ import annotations

import contextlib
import time
from typing import Any

import pytest
import trio
import trio.testing
from pydantic_core import to_json
from wsproto.frame_protocol import Opcode

from tests.waiting import eventually
from tests.websocket.test_sessions import client_of
from tests.websocket.ways import Raw, Tools, every_way, on_our_runners, serving
from trio_mcp.websocket.stream import WatchedStream

TEXT, BINARY, CONTINUATION, CLOSE, PING = (
    Opcode.TEXT,
    Opcode.BINARY,
    Opcode.CONTINUATION,
    Opcode.CLOSE,
    Opcode.PING,
)
LIMIT = 4 * 1024 * 1024
HELLO = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "raw", "version": "1"}}
PINGED = to_json({"jsonrpc": "2.0", "id": 7, "method": "ping"})


async def frames(raw: Raw, *given: Any) -> None:
    for opcode, payload, *fin in given:
        await raw.frame(opcode, payload, fin=not fin or fin[0])


async def fragments(raw: Raw) -> None:
    await raw.frame(TEXT, b'{"jsonrpc": "2.0"', fin=False)
    for _ in range(5000):
        await raw.frame(CONTINUATION, b"", fin=False)


async def cut_off(misbehave: Any, raw: Raw) -> None:
    with contextlib.suppress(trio.BrokenResourceError):
        await misbehave(raw)


@on_our_runners
@pytest.mark.parametrize(
    ("code", "said", "misbehave"),
    [
        (1002, "unmasked", lambda raw: raw.frame(TEXT, b"{}", masked=False)),
        (1002, "Invalid opcode", lambda raw: raw.frame(3, b"")),
        (1002, "Invalid opcode", lambda raw: raw.frame(11, b"")),
        (1002, "Reserved bit", lambda raw: raw.frame(TEXT | 0x40, b"{}")),
        (1002, "fragment control frame", lambda raw: raw.frame(PING, b"", fin=False)),
        (1002, "payload len > 125", lambda raw: raw.frame(PING, b"x" * 126)),
        (1002, "unexpected CONTINUATION", lambda raw: raw.frame(CONTINUATION, b"x")),
        (1002, "expected CONTINUATION", lambda raw: frames(raw, (TEXT, b"{", False), (TEXT, b"}"))),
        (1002, "CLOSE with 1 byte", lambda raw: raw.frame(CLOSE, b"x")),
        (1002, "invalid code", lambda raw: raw.frame(CLOSE, b"\0\1")),
        (1002, "local-only", lambda raw: raw.frame(CLOSE, b"\x03\xee")),
        (1002, "2 bytes when 1", lambda raw: raw.stream.send_all(b"\x81\xfe\0\x01" + bytes(5))),
        (1003, "binary", lambda raw: raw.frame(BINARY, PINGED)),
        (1003, "binary", lambda raw: frames(raw, (BINARY, b"x", False), (CONTINUATION, b"y"))),
        (1007, "decode", lambda raw: raw.frame(TEXT, b'"\xff"')),
        (1007, "decode", lambda raw: raw.frame(TEXT, b'"\xed\xa0\x80"')),
        (1007, "decode", lambda raw: frames(raw, (TEXT, b"\xc3", False), (CONTINUATION, b"("))),
        (1007, "decode", lambda raw: raw.frame(CLOSE, b"\x03\xe8\xff")),
        (1008, "small fragments", fragments),
        (1009, f"max_message_size={LIMIT}", lambda raw: raw.frame(TEXT, b" " * (LIMIT + 1))),
        (1009, f"max_message_size={LIMIT}", lambda raw: raw.stream.send_all(b"\x81\xff" + b"\x7f" * 8 + bytes(4))),
        (
            1009,
            f"max_message_size={LIMIT}",
            lambda raw: frames(raw, (TEXT, b" " * LIMIT, False), (PING, b"x"), (CONTINUATION, b" ")),
        ),
    ],
)
async def test_a_client_that_breaks_the_protocol_is_told_and_harms_no_other(
    way: str, code: int, said: str, misbehave: Any
) -> None:
    tools = Tools()
    async with serving(tools.server, way) as url, Raw.open(url) as other:
        assert await other.add(1) == 2
        async with Raw.open(url) as raw:
            assert await raw.add(1) == 2
            async with trio.open_nursery() as nursery:
                nursery.start_soon(cut_off, misbehave, raw)
                found, reason = await raw.closed()
                assert await raw.next() == (0, None)
            assert (found, said in reason) == (code, True), reason
        await eventually(lambda: tools.server.statistics().sessions == 1)
        assert await other.add(2) == 3


@on_our_runners
async def test_fragments_and_the_control_frames_between_them(way: str) -> None:
    half, rest = PINGED[:9], PINGED[9:]
    async with serving(Tools().server, way) as url, Raw.open(url) as raw:
        await raw.frame(TEXT, half, fin=False)
        await raw.frame(PING, b"now")
        await raw.frame(Opcode.PONG, b"never asked")
        for number in range(len(rest)):
            await raw.frame(CONTINUATION, rest[number : number + 1], fin=number == len(rest) - 1)
        assert await raw.next() == (Opcode.PONG, b"now")
        assert (await raw.message())["id"] == 7
        # And again as one byte after the other.
        for byte in b"\x81\x80" + bytes(4) + b"\x81" + bytes([0x80 | len(PINGED)]) + bytes(4) + PINGED:
            await raw.stream.send_all(bytes([byte]))
        assert (await raw.message())["error"]["code"] == -32700
        assert (await raw.message())["id"] == 7


@every_way
@pytest.mark.parametrize(("garbage", "code"), [(b"", -32700), (b"[", -32700), (b"[]", -32600), (b'{"id": 1}', -32600)])
async def test_garbage_in_a_message_costs_only_itself(way: str, garbage: bytes, code: int) -> None:
    async with serving(Tools().server, way) as url, Raw.open(url) as raw:
        await raw.frame(TEXT, garbage)
        assert (await raw.message())["error"]["code"] == code
        assert await raw.add(1) == 2


@every_way
async def test_the_longest_message_that_is_accepted(way: str) -> None:
    """The limit is one of bytes."""
    async with serving(Tools().server, way, max_message_size=1000) as url, Raw.open(url) as raw:
        await raw.frame(TEXT, PINGED.ljust(1000))
        assert (await raw.message())["id"] == 7
        await raw.frame(TEXT, b'"' + "é".encode() * 500 + b'"')
        code, reason = await raw.closed()
        assert (code, reason) == (1009, "a message that is longer than max_message_size=1000")


@on_our_runners
async def test_a_message_that_takes_too_long_ends_its_session_alone(way: str) -> None:
    async with serving(Tools().server, way, body_timeout=0.2) as url, Raw.open(url) as other:
        async with Raw.open(url) as raw, trio.open_nursery() as nursery:
            await raw.frame(TEXT, b"{", fin=False)

            async def trickle() -> None:
                while True:
                    await raw.frame(CONTINUATION, b" ", fin=False)
                    await trio.sleep(0.02)

            nursery.start_soon(trickle)
            assert (await raw.closed())[0] == 1008
            nursery.cancel_scope.cancel()
        assert await other.add(1) == 2


@on_our_runners
async def test_a_client_that_does_not_read_is_dropped(way: str) -> None:
    tools = Tools()
    async with serving(tools.server, way, write_timeout=0.2) as url, Raw.open(url) as raw:
        text = "x" * 1_000_000
        await raw.send({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": HELLO})
        assert (await raw.message())["id"] == 0
        with contextlib.suppress(trio.BrokenResourceError):
            for number in range(1, 20):
                params = {"name": "echo", "arguments": {"text": text}}
                await raw.send({"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": params})
        await eventually(lambda: not tools.server.statistics().sessions)


@on_our_runners
async def test_floods_hold_up_no_other_session(way: str) -> None:
    """Pings, pongs, and the smallest messages, as fast as they are taken."""
    flood = b"".join(bytes([opcode | 0x80, 0x80, 0, 0, 0, 0]) for opcode in (PING, Opcode.PONG, TEXT)) * 2000

    async def pour(raw: Raw) -> None:
        while True:
            await raw.stream.send_all(flood)

    async def drain(raw: Raw) -> None:
        while True:
            await raw.stream.receive_some()

    async with (
        serving(Tools().server, way) as url,
        client_of(url) as client,
        Raw.open(url) as raw,
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(pour, raw)
        nursery.start_soon(drain, raw)
        begun = time.monotonic()
        for number in range(10):
            assert not (await client.call_tool("add", {"a": number, "b": 1})).is_error
        nursery.cancel_scope.cancel()
    assert time.monotonic() - begun < 10


HEAD = (
    b"GET /mcp HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Protocol: mcp\r\n\r\n"
)


@on_our_runners
@pytest.mark.parametrize(
    ("data", "found"),
    [
        (b"\x81" + bytes([0x80 | len(PINGED)]) + bytes(4) + PINGED, (TEXT, b'{"jsonrpc":"2.0","id":7,"result":{}}')),
        (b"\x89\x81" + bytes(4) + b"x", (Opcode.PONG, b"x")),
        (b"\x83\x80" + bytes(4), (CLOSE, (1002, "Invalid opcode 0x3"))),
        (b"GET / HTTP/1.1\r\n\r\n", (CLOSE, (1002, "Invalid opcode 0x7"))),
    ],
    ids=["a message", "a ping", "a wrong frame", "no frame"],
)
async def test_what_comes_with_the_handshake_is_read_at_once(
    way: str, data: bytes, found: Any, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving(Tools().server, way) as url:
        stream, got = await Raw.connect(url, HEAD + data)
        async with stream:
            assert got.startswith(b"HTTP/1.1 101 ")
            raw = Raw(stream, got.partition(b"\r\n\r\n")[2])
            with trio.fail_after(5):
                opcode, payload = await raw.next()
    assert (opcode, payload.encode() if opcode == TEXT else payload) == found
    assert not [record for record in caplog.records if record.levelname == "ERROR"]


@on_our_runners
async def test_a_client_that_leaves_without_a_close_frame_is_told_nothing(way: str) -> None:
    """Above all not that the server is ending."""
    async with serving(Tools().server, way) as url, Raw.open(url) as raw:
        assert await raw.add(1) == 2
        await raw.stream.send_eof()
        assert await raw.next() == (0, None)


async def test_a_peer_is_not_silent_while_what_it_has_sent_is_worked_on(
    autojump_clock: trio.testing.MockClock,
) -> None:
    ends = trio.testing.memory_stream_pair()
    head = b"HTTP/1.1 101 Switching Protocols\r\n\r\n"
    stream = WatchedStream(ends[0], head + b"\x89\0" * 1000, max_message_size=1000, is_client=True)
    assert await stream.receive_some() == head
    for _ in range(5):
        await trio.sleep(100)
        assert await stream.receive_some()
        assert stream.heard == trio.current_time()
