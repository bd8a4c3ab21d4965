"""The neutral load generator: raw pipes and ready-made lines, so the figures include no SDK's client."""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING

from benchmarks.load import wire
from benchmarks.measure.processes import DEADLINE, ROOT, Process
from benchmarks.measure.samples import Times

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from benchmarks.load.wire import Era

_B = 7


def closed_loop(
    process: Process, template: bytes, first_id: int, in_flight: int, seconds: float, calls: float = math.inf
) -> tuple[int, float, bytes]:
    """Keep `in_flight` calls outstanding for `seconds`, or until `calls` have been made.

    While the clock runs, answers are only counted (one newline each) and replaced by new requests. They are checked
    afterwards, so that checking costs the measured server nothing, even if both share a core.

    Returns:
        How many calls were answered, in how many seconds, and all bytes of the answers.
    """
    chunks: list[bytes] = []
    read, write = process.read, process.write
    next_id = first_id + in_flight
    end_id = first_id + calls
    opening = b"".join(template % (i, i, _B) for i in range(first_id, next_id))
    outstanding = in_flight
    with process.deadline(seconds + DEADLINE):
        started = time.perf_counter()
        stop = started + seconds
        write(opening)
        while outstanding:
            chunk = read()
            chunks.append(chunk)
            answered = chunk.count(b"\n")
            outstanding -= answered
            if answered and next_id < end_id and time.perf_counter() < stop:
                until = int(min(next_id + answered, end_id))
                write(b"".join([template % (i, i, _B) for i in range(next_id, until)]))
                outstanding += until - next_id
                next_id = until
        elapsed = time.perf_counter() - started
    return next_id - first_id, elapsed, b"".join(chunks)


class Load:
    """A server process that answers ``add`` calls in one era, after `greet`.

    Attributes:
        measured: What was measured beside each `throughput`.
    """

    def __init__(self, command: Sequence[str], era: Era, root: Path = ROOT) -> None:
        self.process = Process(command, root)
        self.measured = Times()
        self.era = era
        self._template = wire.add_template(era)
        self._next_id = 1

    def greet(self) -> None:
        """Open the session and make one call, since the imports and caches of the first call count as start-up.

        This is separate from starting the process, so that several processes can start at the same time.
        """
        with self.process.deadline():
            if self.era == "legacy":
                self.process.write(wire.initialize(0))
                wire.result_of(self.process.read_line(), 0)
                self.process.write(wire.initialized())
            self.call("add", {"a": 1, "b": 2}, 3)

    def take_id(self) -> int:
        """Return an id that no request has used."""
        request_id = self._next_id
        self._next_id += 1
        return request_id

    def send_call(self, tool: str, arguments: dict[str, object]) -> int:
        """Send one ``tools/call`` and return its id."""
        request_id = self.take_id()
        self.process.write(wire.call(request_id, tool, arguments, self.era))
        return request_id

    def call(self, tool: str, arguments: dict[str, object], expected: object) -> None:
        """Send one ``tools/call`` and check its answer."""
        request_id = self.send_call(tool, arguments)
        wire.check_tool_result(wire.result_of(self.process.read_line(), request_id), expected)

    def throughput(self, in_flight: int, seconds: float) -> float:
        """Return the calls answered per second of wall clock, with `in_flight` outstanding; every answer is checked."""
        before = self.process.used()
        count, elapsed = self._keep_busy(in_flight, seconds)
        self.measured.add_cost(count, self.process.used() - before)
        return count / elapsed

    def answer(self, in_flight: int, calls: int) -> None:
        """Have the server answer this many calls, with `in_flight` outstanding; every answer is checked."""
        if self._keep_busy(in_flight, DEADLINE, calls)[0] != calls:
            raise self.process.failure(f"did not answer {calls} calls in {DEADLINE:.0f} seconds")

    def _keep_busy(self, in_flight: int, seconds: float, calls: float = math.inf) -> tuple[int, float]:
        first_id = self._next_id
        count, elapsed, answers = closed_loop(self.process, self._template, first_id, in_flight, seconds, calls)
        self._next_id += count
        wire.check_add_answers(answers, first_id, count, _B)
        return count, elapsed

    def close(self) -> None:
        self.process.close()


class Ceiling:
    """The load generator against ``cat``: its own limit, when the other side does nothing."""

    def __init__(self) -> None:
        self.process = Process(["cat"])
        self.measured = Times()  # nothing: what cat costs means nothing
        self._template = wire.add_template("modern")

    def throughput(self, in_flight: int, seconds: float) -> float:
        """Measure as `Load.throughput` does, with echoes for answers."""
        count, elapsed, echoed = closed_loop(self.process, self._template, 0, in_flight, seconds)
        if echoed != b"".join(self._template % (i, i, _B) for i in range(count)):
            raise wire.WrongAnswer("cat did not echo what it was sent")
        return count / elapsed

    def close(self) -> None:
        self.process.close()
