"""What a call that sends thousands of messages costs the other calls of its session, and how fast they come."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
import time
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from benchmarks.load import wire
from benchmarks.load.http import HttpLoad, post
from benchmarks.measure.processes import DEADLINE, LINUX, Process
from benchmarks.measure.samples import Comparison, Group, Target, interleave
from benchmarks.servers.commands import server_command

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmarks.load.wire import Era
    from benchmarks.options import Options

COUNT = 10_000
"""Messages that one call sends."""
ALONE, DOUBLE = "without a stream", Target("<=", 2)
# The tools that stream, and what their messages have that answers have not.
STREAMS = {
    "beside progress": ("progress", b'"notifications/progress"'),
    "beside a log": ("log", b'"notifications/message"'),
}
IN_FLIGHT = (1, 64)
ERAS: tuple[Era, ...] = ("modern", "legacy")
_FIRST_STREAM = 1 << 40  # ids of streams are above those of other calls
_B = 7


class Session(Protocol):
    """A session with a server that has the tools of servers/more_tools.py."""

    def greet(self) -> None: ...

    def calls(self, in_flight: int, seconds: float, stream: str | None) -> tuple[list[float], float]:
        """Keep calls in flight, beside one that streams; return how long each took, and the messages a second."""

    def close(self) -> None: ...


def _stream_call(number: int, tool: str, era: Era) -> bytes:
    meta: dict[str, Any] = {"progressToken": number}
    if era == "modern":
        meta |= {**wire.MODERN_META, "io.modelcontextprotocol/logLevel": "debug"}
    params = {"name": tool, "arguments": {"count": COUNT}, "_meta": meta}
    return wire.line({"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": params})


class StdioSession:
    """A session over stdio, on which everything shares one pipe."""

    def __init__(self, era: Era) -> None:
        self._era = era
        self._process = Process(server_command("more_tools", "stdio"))
        self._template = wire.add_template(era)
        self._next_id = 1
        self._next_stream = _FIRST_STREAM

    def greet(self) -> None:
        with self._process.deadline():
            if self._era == "legacy":
                self._process.write(wire.initialize(0))
                wire.result_of(self._process.read_line(), 0)
                self._process.write(wire.initialized())
        self.calls(1, 0.2, None)

    def calls(self, in_flight: int, seconds: float, stream: str | None) -> tuple[list[float], float]:
        process, rest = self._process, b""
        tool, mark = STREAMS[stream] if stream is not None else ("", b"")
        begun: dict[int, float] = {}
        took: list[float] = []
        messages, streaming = 0, False

        def add() -> None:
            number, self._next_id = self._next_id, self._next_id + 1
            begun[number] = time.perf_counter()
            process.write(self._template % (number, number, _B))

        with process.deadline(seconds + DEADLINE):
            started = time.perf_counter()
            stop = started + seconds
            for _ in range(in_flight):
                add()
            while begun or streaming:
                if tool and not streaming and time.perf_counter() < stop:
                    process.write(_stream_call(self._next_stream, tool, self._era))
                    self._next_stream, streaming = self._next_stream + 1, True
                *lines, rest = (rest + process.read()).split(b"\n")
                now = time.perf_counter()
                for line in lines:
                    if mark and mark in line:
                        messages += 1
                    elif (number := json.loads(line)["id"]) >= _FIRST_STREAM:
                        wire.check_tool_result(wire.result_of(line, number), "done")
                        streaming = False
                    else:
                        wire.check_tool_result(wire.result_of(line, number), number + _B)
                        took.append(now - begun.pop(number))
                        if now < stop:
                            add()
        if messages % COUNT:
            raise wire.WrongAnswer(f"{messages} messages came, which are no whole streams of {COUNT}")
        return took, messages / (now - started)

    def close(self) -> None:
        self._process.close()


class HttpSession(HttpLoad):
    """A session over HTTP, on which each call in flight has a connection, and so has the stream."""

    def __init__(self, era: Era) -> None:
        super().__init__(server_command("more_tools", "http"), era)

    def calls(self, in_flight: int, seconds: float, stream: str | None) -> tuple[list[float], float]:
        self.open(in_flight)
        if stream is None:
            return self._keep_busy(seconds)[0], 0.0
        with contextlib.closing(self.connect().socket) as connection:
            streaming = threading.Thread(target=self._stream, args=(connection, *STREAMS[stream]))
            self._messages, self._stopped = 0, False
            started = time.perf_counter()
            streaming.start()
            took = self._keep_busy(seconds)[0]
            self._stopped = True
            streaming.join(DEADLINE)
            return took, self._messages / (time.perf_counter() - started)

    def _stream(self, connection: socket.socket, tool: str, mark: bytes) -> None:
        number = _FIRST_STREAM
        while not self._stopped:
            call = _stream_call(number, tool, self._era)
            connection.sendall(post(self.head_of_calls.replace(b"Mcp-Name: add", b"Mcp-Name: " + tool.encode()), call))
            answer = b""
            while not answer.endswith(b"\r\n0\r\n\r\n"):
                answer += (data := connection.recv(1 << 18))
                if not data:
                    return
            self._messages += answer.count(mark)
            number += 1


def run(options: Options) -> Iterator[Group]:
    """Yield two groups for each transport and era: how long other calls take, and how fast the messages come."""
    transports: dict[str, type[StdioSession | HttpSession]] = {"stdio": StdioSession}
    if LINUX:
        transports["HTTP"] = HttpSession
    for transport, kind in transports.items():
        for era in ERAS[:1] if options.quick else ERAS:
            yield from _beside(f"{transport}, {era}", kind(era), options)


def _beside(case: str, session: Session, options: Options) -> Iterator[Group]:
    options.progress(f"streams, {case}")
    tails: dict[str, list[float]] = {}
    rates: dict[str, list[float]] = {}
    comparisons = []
    with ExitStack() as stack:
        stack.callback(session.close)
        session.greet()
        for in_flight in IN_FLIGHT:

            def sample(stream: str | None, label: str, in_flight: int = in_flight) -> float:
                took, rate = session.calls(in_flight, options.seconds, stream)
                if stream is not None:
                    rates.setdefault(label, []).append(rate)
                return sorted(took)[len(took) * 99 // 100] * 1e6

            labels = {f"{stream or ALONE}, {in_flight} in flight": stream for stream in (None, *STREAMS)}
            alone, *beside = labels
            contenders = {label: partial(sample, stream, label) for label, stream in labels.items()}
            tails |= interleave(contenders, options.rounds, options.progress)
            comparisons += [Comparison(label, alone, DOUBLE) for label in beside]
    yield Group("streams", f"{case}: 99 of 100 other calls take at most", "µs", tails, comparisons)
    yield Group("streams", f"{case}: messages of the stream", "messages/s", rates)
