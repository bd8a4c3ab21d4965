"""A server on TCP is not called by what speaks another protocol, above all by a web page."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio

from tests.peer import call, ndjson
from tests.sockets.support import Lines, opening, read_to_the_end, served

CALLS = opening(call(1, "note", text="from a page"))

POST = (
    b"POST / HTTP/1.1\r\nHost: 127.0.0.1:8000\r\nContent-Type: text/plain;charset=UTF-8\r\n"
    b"Origin: https://evil.example\r\nContent-Length: %d\r\n\r\n"
) % len(CALLS)

STRANGERS = {
    "a POST of a web page": (POST + CALLS,),
    "its first line in two packets": (POST[:3], POST[3:] + CALLS),
    "byte by byte": (*(POST[i : i + 1] for i in range(30)), POST[30:] + CALLS),
    "its body after its head": (POST, CALLS),
    "after blank lines": (b"\r\n \n", POST + CALLS),
    "a handshake of TLS": (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",),
    "one byte": (b"G",),
    "an array": (b"[" + ndjson(call(1, "note", text="x")).strip() + b"]\n", CALLS),
    "a string": (b'"hello"\n' + CALLS,),
    "broken JSON": (b'{"jsonrpc": "2.0", "id": 1, \n' + CALLS,),
    "two texts on a line": (b"{} POST / HTTP/1.1\n" + CALLS,),
}


@pytest.mark.parametrize("packets", STRANGERS.values(), ids=STRANGERS)
@pytest.mark.parametrize("kind", ["tcp", "unix"])
async def test_a_first_line_that_is_no_object_ends_the_connection(
    kind: str, packets: tuple[bytes, ...], tmp_path: Path
) -> None:
    """Nothing after it is read, so a page can call no tool by a POST, whatever its body says; nor gets it an answer."""
    async with served(kind, tmp_path) as it:
        async with await it.connect() as stream:
            try:
                for packet in packets:
                    await stream.send_all(packet)
                    await trio.testing.wait_all_tasks_blocked(0.002)
            except trio.BrokenResourceError:
                pass  # it is closed already
            assert await read_to_the_end(stream) == b""
        async with it.client() as client:
            await client.call_tool("note", {"text": "from a client"})
        assert it.calls == ["from a client"]


@pytest.mark.parametrize("size", [1, 7, 10_000])
async def test_an_object_may_come_in_any_pieces(size: int, tmp_path: Path) -> None:
    data = b"\n " + CALLS
    async with served("tcp", tmp_path) as it, await it.connect() as stream:
        for start in range(0, len(data), size):
            await stream.send_all(data[start : start + size])
            await trio.lowlevel.checkpoint()
        lines = Lines(stream)
        assert [(await lines.take())["id"] for _ in range(2)] == [0, 1]


async def test_an_object_that_is_no_message_or_too_long_is_refused_as_usual(tmp_path: Path) -> None:
    """It can't be of another protocol, so the client is told what was wrong."""
    async with served("tcp", tmp_path, max_message_size=1000) as it, await it.connect() as stream:
        await stream.send_all(b'{"id": 7}\n' + CALLS)
        lines = Lines(stream)
        assert (await lines.take())["error"]["code"] == -32600
        assert [(await lines.take())["id"] for _ in range(2)] == [0, 1]
        async with await it.connect() as other:
            await other.send_all(b'{"id": 7, "method": "' + b"x" * 2000 + b'"}\n' + CALLS)
            lines = Lines(other)
            assert "max_message_size=1000" in (await lines.take())["error"]["message"]
            assert [(await lines.take())["id"] for _ in range(2)] == [0, 1]


@pytest.mark.parametrize("kind", ["tcp", "tls"])
@pytest.mark.parametrize("start", [b"", b"{", b" "], ids=["silence", "half a line", "blanks"])
async def test_a_client_that_does_not_begin_in_time_is_let_go(
    kind: str, start: bytes, tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    """Half-open connections and slow ones hold a place for a bounded time, TLS handshake included."""
    async with served(kind, tmp_path, head_timeout=3.0) as it, await it.connect() as stream:
        began = trio.current_time()
        await stream.send_all(start)
        await read_to_the_end(stream)
        assert trio.current_time() - began == pytest.approx(3.0, abs=0.1)


async def test_a_client_that_has_begun_may_be_silent_for_long(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    async with served("tcp", tmp_path) as it, it.client() as client:
        await trio.sleep(20)
        assert (await client.call_tool("note", {"text": "late"})).data == "late"
