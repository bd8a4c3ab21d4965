"""Wires over lines: what they send and note, whatever the target does."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import pytest
import trio
import trio.testing

from trio_mcp import Server, StdioServerParameters, TransportError
from trio_mcp.conformance.transcript.events import Event
from trio_mcp.conformance.transcript.tape import Tape
from trio_mcp.conformance.wires.lines import memory_wire, process_wire, socket_wire, stream_wire
from trio_mcp.conformance.wires.wire import OpenWire, Wire

PING = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
PONG = {"jsonrpc": "2.0", "id": 1, "result": {}}
ECHO = "import sys\nfor line in sys.stdin: print(line, end='', flush=True)"


def told(tape: Tape) -> list[Any]:
    """Return what a tape holds, in short."""
    return [brief(event) for event in tape.events if event.kind != "open"]


def brief(event: Event) -> Any:
    if event.kind in ("message", "text"):
        return event.sender, event.message if event.kind == "message" else event.text
    return event.sender, event.facts.get("what", event.kind)


def python(code: str, **settings: Any) -> OpenWire:
    return process_wire(StdioServerParameters(sys.executable, ["-c", code], **settings))


async def saw(tape: Tape, *what: Any) -> None:
    """Wait until the tape holds all of these."""
    assert await tape.until(lambda: all(item in told(tape) for item in what), 10), told(tape)


async def play(target: Callable[[Any], Awaitable[None]], script: Any) -> list[Any]:
    """Run a target and a script over one stream in memory, and return what was noted."""
    tape = Tape()
    ours, theirs = trio.testing.memory_stream_pair()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(target, theirs)
        async with stream_wire(tape, 0, "memory", ours) as wire:
            await script(wire, tape)
        nursery.cancel_scope.cancel()
    return told(tape)


async def sink(stream: trio.abc.Stream) -> None:
    async for _ in stream:
        pass


async def ended(wire: Wire, tape: Tape) -> None:
    assert await tape.until(lambda: not wire.is_open, 60)


async def says(data: bytes, stream: trio.abc.Stream) -> None:
    await stream.send_all(data)
    await stream.aclose()


@pytest.mark.parametrize(
    ("data", "noted"),
    [
        (b'{"a":1}\n\n[]\n', [{"a": 1}, b"", []]),
        (b'{"a":1,"a":2}\r\n', [{"a": 2}]),
        (b"NaN\n-Infinity\n", [b"NaN", b"-Infinity"]),
        (b'\xff\xfe"\n', [b'\xff\xfe"']),
        (b"[" * 100_000 + b"\n", [b"[" * 100_000]),
        ('"ü"\n'.encode(), ["ü"]),
        (b'{"cut"', [b'{"cut"']),
    ],
)
async def test_each_line_is_noted(data: bytes, noted: list[Any]) -> None:
    seen = await play(partial(says, data), ended)
    assert seen == [*(("server", value) for value in noted), ("server", "close")]


async def test_lines_are_noted_as_the_peer_sees_them() -> None:
    async def script(wire: Wire, tape: Tape) -> None:
        await wire.write([b'{"a":', b'1}\n"b"', b"\nc"], framed=False)
        await wire.write([b"d", b"1\n2"])
        await wire.send({"e": "\ud800"})

    assert [value for _, value in await play(sink, script)] == [{"a": 1}, "b", b"cd", 1, 2, {"e": "\ud800"}, "close"]


async def flood(newlines: bool, stream: trio.abc.Stream) -> None:
    piece = (b"1" * 65535 + b"\n") if newlines else b"1" * 65536
    try:
        while True:
            await stream.send_all(piece)
    except trio.BrokenResourceError:
        pass


@pytest.mark.parametrize("newlines", [True, False])
async def test_a_flood_ends_the_connection(newlines: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trio_mcp.conformance.wires.notes.LONGEST", 1_000_000)
    monkeypatch.setattr("trio_mcp.conformance.wires.notes.MOST", 2_000_000)
    seen = await play(partial(flood, newlines), ended)
    assert seen[-2:] == [("kit", "flood"), ("kit", "close")]
    assert len(seen) < 40


async def test_a_target_that_does_not_read_blocks_nothing(autojump_clock: trio.testing.MockClock) -> None:
    tape = Tape()
    ours, theirs = trio.testing.lockstep_stream_pair()
    async with stream_wire(tape, 0, "memory", ours) as wire:
        await wire.send(PING)
        await wire.send(PING)
        assert not wire.is_open
    assert told(tape) == [("client", PING), ("kit", "unsent"), ("client", "close"), ("kit", "unsent")]
    await theirs.aclose()


async def test_a_server_in_memory(autojump_clock: trio.testing.MockClock) -> None:
    tape = Tape()
    async with memory_wire(Server("s"))(tape, 0, "2025-11-25") as wire:
        await wire.send(PING)
        await saw(tape, ("server", PONG))
        await wire.stop("half", 0)
        await ended(wire, tape)
    assert told(tape) == [("client", PING), ("server", PONG), ("kit", "half closed"), ("server", "close")]


@pytest.mark.parametrize("how", ["close", "reset", "half"])
async def test_a_process(how: Any) -> None:
    tape = Tape()
    async with python("import sys\nprint('hello', file=sys.stderr)\n" + ECHO)(tape, 0, "") as wire:
        await wire.send(PING)
        await saw(tape, ("server", PING), ("kit", "stderr"))
        await wire.stop(how, 0)
        await ended(wire, tape)
        await wire.send(PING)
    assert told(tape)[-1] == ("kit", "unsent")
    (close,) = (event for event in tape.events if event.kind == "close")
    assert (close.sender, close.facts.get("status")) == {
        "close": ("client", 0),
        "reset": ("client", None),
        "half": ("server", 0),
    }[how]


async def test_the_exit_of_a_process_is_noted_after_what_it_wrote() -> None:
    tape = Tape()
    async with python("import sys\nprint('1'); print('no', file=sys.stderr); sys.exit(3)")(tape, 0, "") as wire:
        await ended(wire, tape)
    assert told(tape)[-1] == ("server", "close")
    assert tape.events[-1].facts["status"] == 3


async def test_a_process_that_ignores_its_end_is_killed() -> None:
    tape = Tape()
    code = "import signal, time\nsignal.signal(15, signal.SIG_IGN)\nprint(1, flush=True)\ntime.sleep(60)"
    async with python(code, shutdown_grace=0.05)(tape, 0, ""):
        await saw(tape, ("server", 1))
    assert tape.events[-1].facts["status"] == -9


async def test_a_server_on_tcp() -> None:
    tape = Tape()
    async with trio.open_nursery() as nursery:
        url = await nursery.start(Server("s").serve_tcp, "127.0.0.1", 0)
        async with socket_wire(url)(tape, 0, "2025-11-25") as wire:
            await wire.send(PING)
            await saw(tape, ("server", PONG))
            await wire.stop("reset", 0)
        nursery.cancel_scope.cancel()
    assert told(tape) == [("client", PING), ("server", PONG), ("client", "close")]


@pytest.mark.parametrize(
    ("wire", "problem"),
    [
        (socket_wire("tcp://127.0.0.1:1"), "can't connect to tcp://127.0.0.1:1: Connection refused"),
        (socket_wire("unix:/nowhere"), "can't connect to /nowhere: No such file"),
        (process_wire(StdioServerParameters("no-such-command")), "can't start 'no-such-command': no such command"),
    ],
)
async def test_what_can_not_be_reached_is_said(wire: OpenWire, problem: str) -> None:
    with pytest.raises(TransportError, match=problem):
        async with wire(Tape(), 0, ""):
            pass
