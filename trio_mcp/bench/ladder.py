"""Measures servers: makes calls in a closed loop, with more calls in flight in each step.

In a closed loop each worker makes its next call when its last one has ended, so as many calls as there are workers are
in flight all the time.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from typing import Any, Final, Literal, TypeAlias, TypeVar

import attrs
import trio

from trio_mcp.bench.figures import MOST_KINDS, Sample
from trio_mcp.bench.plan import PAIRS, WARM_UP, BenchTerms, Plan, ToolCall
from trio_mcp.bench.processes import cpu_seconds
from trio_mcp.client.client import Client
from trio_mcp.client.tool_results import ToolResult
from trio_mcp.conformance.report.view import shorten
from trio_mcp.errors import (
    HttpError,
    McpError,
    ProcessExited,
    RemoteProtocolError,
    RequestTimeout,
    TransportError,
    TrioMcpError,
)
from trio_mcp.session.handlers import RequestContext
from trio_mcp.types.error_codes import METHOD_NOT_FOUND, MISSING_REQUIRED_CLIENT_CAPABILITY

__all__ = ["Bench", "BenchProgress", "Ended", "Side"]

ErrorT = TypeVar("ErrorT", bound=TrioMcpError)

Ended: TypeAlias = Literal["complete", "calls", "time", "interrupted", "lost", "stuck", "failing", "no tools"]

MOST_LOST: Final = 10
"""The number of consecutive calls, beyond those in flight, that may fail in the transport before the server counts as
lost (arbitrary)."""

MOST_SILENT: Final = 3
"""The number of consecutive calls without a response in time, for each call in flight, after which the server counts as
stuck (arbitrary)."""

LONGEST_TEXT: Final = 200
"""The maximum length of the text of an error, in characters (arbitrary); longer texts are shortened."""

QUESTIONS: Final = ("elicitation/create", "sampling/createMessage")
"""The requests by which a server of the legacy era asks a person or a model for input."""

ASKS: Final = "asks for input"
"""The kind of failure for calls during which the server asks for input that a program can't give."""

BETWEEN: Final = 0.1
"""The minimum time between two progress reports, in seconds (arbitrary)."""


@attrs.frozen
class BenchProgress:
    """The progress of a benchmark.

    Attributes:
        done: How many samples are done.
        of: How many samples there are in all.
        doing: What the benchmark is doing now.
    """

    done: float
    of: int
    doing: str


@attrs.define(eq=False)
class Side:
    """A server that is measured.

    Attributes:
        client: The connected client.
        processes: The leaders of the process groups that run the server; empty if it is not a child of this process.
        steps: For each step that was begun, its samples so far.
        made: How many calls were made.
        lost: How many calls in a row have failed because of the transport.
        error: The last failure of the transport.
        silent: How many calls in a row have got no response in time.
        asked: Whether the server has asked for input since this attribute was last set to false.
    """

    client: Client
    processes: Collection[int] = ()
    steps: list[list[Sample]] = attrs.Factory(list)
    made: int = 0
    lost: int = 0
    error: TransportError | None = None
    silent: int = 0
    asked: bool = False

    def refuse_questions(self) -> None:
        """Refuse every request for input from a server of the legacy era, and record it: there is no person to ask."""

        async def refuse(_: dict[str, Any], context: RequestContext) -> dict[str, Any]:
            self.asked = True
            raise McpError(METHOD_NOT_FOUND, f"a benchmark does not respond to {context.method}")

        for method in QUESTIONS:
            self.client.session.add_request_handler(method, refuse)


@attrs.frozen
class _Failure:
    """Why a call failed: the kind of the failure, which many calls share, and the text of this failure."""

    kind: str
    text: str


class Bench:
    """A benchmark of one server, or of two in turn, within given bounds.

    Args:
        sides: The servers, one or two.
        plan: The calls to make.
        terms: The bounds.
        on_progress: Called with the progress from time to time; it must not block.

    Attributes:
        sides: The servers.
        plan: The calls to make; tools that can't be measured are dropped from it.
        terms: The bounds.
        ended: How the benchmark ended; ``"interrupted"`` until then, and still if the run is cancelled.
        error: The last error of the transport, if the server was lost.
        texts: The text of the first failure of each kind.
    """

    def __init__(
        self,
        sides: Sequence[Side],
        plan: Plan,
        terms: BenchTerms,
        on_progress: Callable[[BenchProgress], object] = lambda progress: None,
    ) -> None:
        self.sides = tuple(sides)
        self.plan = plan
        self.terms = terms
        self.ended: Ended = "interrupted"
        self.error: TransportError | None = None
        self.texts: dict[str, str] = {}
        self._on_progress = on_progress
        self._reported = -BETWEEN
        self._done = 0
        self._turn = 0
        self._stopped: Ended | None = None

    async def run(self) -> None:
        """Run the benchmark; failures of calls are counted, or end it, but are not raised.

        When cancelled, the benchmark ends at once, and what was measured until then is kept.
        """
        with trio.move_on_after(self.terms.max_time) as scope:
            for side in self.sides:
                side.refuse_questions()
            self.ended = await self._try() or await self._climb() or "complete"
        if scope.cancelled_caught:
            self.ended = "time"

    # --- the trial ---------------------------------------------------------------------------------------------------

    async def _try(self) -> Ended | None:
        """Make each call once, one by one, and drop those that fail; return how the benchmark ended, or None."""
        good: list[ToolCall] = []
        failures: dict[str, str] = {}
        for call in [*self.plan.calls]:
            # The call may have been dropped in the meantime.
            if call not in self.plan.calls:
                continue
            if max(side.made for side in self.sides) >= self.terms.max_calls:
                return "calls"
            self._report(trio.current_time(), 0.0, f"trying {call.tool}")
            found = [failure for side in self.sides if (failure := await self._tried(side, call)) is not None]
            if not found:
                good.append(call)
            elif any(failure.kind == ASKS for failure in found):
                self._drop_asking(call.tool)
            else:
                failures.setdefault(call.tool, found[0].text or found[0].kind)
        for tool in self.plan.tools:
            if not any(call.tool == tool for call in good):
                self.plan.drop(tool, f"each of its calls failed, the first with: {failures[tool]}")
        # `good` may still contain calls of a tool that was found to ask for input only later.
        self.plan.calls = [call for call in good if call in self.plan.calls]
        if self.plan.calls:
            return None
        self.error = next((side.error for side in self.sides if side.lost), None)
        return "no tools" if self.error is None else "lost"

    async def _tried(self, side: Side, call: ToolCall) -> _Failure | None:
        side.asked = False
        failure = await self._call(side, call)
        # Calls are made one at a time, so if the server has asked for input, it did so for this call. Even a tool that
        # succeeds without the input is not measured, because it would do less than it does for other clients.
        return _Failure(ASKS, "") if side.asked else failure

    def _drop_asking(self, tool: str) -> None:
        self.plan.drop(tool, "it asks for input, which a benchmark can't give")

    # --- the ladder --------------------------------------------------------------------------------------------------

    async def _climb(self) -> Ended | None:
        """Take one step after another, each with more calls in flight; return why the steps ended early, or None."""
        for number, in_flight in enumerate(self.terms.ladder):
            # A fast server must not use up all remaining calls in one step, so they are divided among this step and
            # those that follow.
            left = self.terms.max_calls - max(side.made for side in self.sides)
            most = left // (len(self.terms.ladder) - number) // self.rounds
            if most < in_flight:
                return "calls"
            for side in self.sides:
                side.steps.append([])
            for turn in range(self.rounds):
                # The order is A B, B A, and so on, so that neither server always runs right after the other one.
                for side in self.sides[:: -1 if turn % 2 else 1]:
                    await self._sample(side, in_flight, most)
                    if self._stopped is not None:
                        return self._stopped
            if not all(any(sample.calls for sample in side.steps[-1]) for side in self.sides):
                return "failing"
        return None

    @property
    def rounds(self) -> int:
        """The number of samples for each server in a step: one for a single server; several, in pairs, for two."""
        return 1 if len(self.sides) == 1 else PAIRS

    async def _sample(self, side: Side, in_flight: int, most: int) -> None:
        """Take one sample: keep calls in flight for some time, and then wait for those that have begun."""
        # The sample is added to the list before it is taken, so that its calls count even if it is interrupted.
        sample = Sample(in_flight)
        side.steps[-1].append(sample)
        # Every sample begins with the same call, so that both servers get the same calls.
        self._turn = 0
        limit = side.made + most
        server, ours, clock = cpu_seconds(side.processes), time.process_time(), time.perf_counter()
        try:
            async with trio.open_nursery() as nursery:
                for _ in range(in_flight):
                    nursery.start_soon(self._work, side, sample, most, limit, nursery.cancel_scope)
            sample.complete = self._stopped is None
            sample.cut = side.made >= limit
            self._done += 1
        finally:
            # The figures are recorded even if the sample is cancelled, because a cancelled sample is reported, too.
            sample.seconds = time.perf_counter() - clock
            sample.client_cpu = time.process_time() - ours
            after = cpu_seconds(side.processes)
            sample.server_cpu = None if server is None or after is None else after - server

    async def _work(self, side: Side, sample: Sample, most: int, limit: int, scope: trio.CancelScope) -> None:
        """Make one call after another: some to warm up, then those that count."""
        began = last = trio.current_time()
        # There is no pause between the warm-up and the calls that count: after a pause, the first calls would find the
        # server without a queue. Each of these two parts ends when its time is over, or earlier if its share of the
        # calls is used up.
        warm = began + WARM_UP * self.terms.seconds / self.rounds
        cold = int(most * WARM_UP / (1 + WARM_UP))
        end = warm + self.terms.seconds / self.rounds
        counted = False
        # Time alone does not end the loop before at least one call has counted, however long that takes.
        while (last < end or not counted) and side.made < limit and self._stopped is None:
            call = self.plan.calls[self._turn % len(self.plan.calls)]
            self._turn += 1
            is_warm = last >= warm or sample.made >= cold
            sample.made += 1
            failure = await self._call(side, call)
            now = trio.current_time()
            if is_warm:
                sample.call_seconds += now - last
            # A failure always counts, even during the warm-up.
            if failure is not None:
                self._failed(side, sample, call, failure, scope)
            elif is_warm:
                sample.succeeded(call.tool, now - last)
            counted = counted or is_warm or failure is not None
            last = now
            if now - self._reported >= BETWEEN:
                self._report(now, (now - began) / (end - began), f"{sample.in_flight} in flight, {side.made} calls")

    def _failed(self, side: Side, sample: Sample, call: ToolCall, failure: _Failure, scope: trio.CancelScope) -> None:
        if side.asked:
            # In the legacy era a server asks for input with a separate request, which names no call. Most likely the
            # request belonged to the call that fails next, which is the current call.
            side.asked, failure = False, _Failure(ASKS, failure.text)
        sample.failed(failure.kind)
        if len(self.texts) < MOST_KINDS:
            self.texts.setdefault(failure.kind, failure.text)
        if failure.kind == ASKS:
            self._drop_asking(call.tool)
        if side.lost > MOST_LOST + sample.in_flight:
            self.error, self._stopped = side.error, "lost"
        elif side.silent >= MOST_SILENT * sample.in_flight:
            self._stopped = "stuck"
        elif not self.plan.calls:
            self._stopped = "no tools"
        if self._stopped is not None:
            scope.cancel(self._stopped)

    # --- a call ------------------------------------------------------------------------------------------------------

    async def _call(self, side: Side, call: ToolCall) -> _Failure | None:
        """Make a call; return why it failed, or None if it succeeded."""
        side.made += 1
        try:
            result = await side.client.call_tool_once(
                call.tool, call.arguments, timeout=self.terms.timeout, reset_on_progress=False
            )
        except TrioMcpError as exc:
            # A failed call may not have passed a checkpoint, so each failure is followed by one: otherwise, the workers
            # would let no other task run once the session is lost.
            await trio.lowlevel.checkpoint()
            side.silent = side.silent + 1 if isinstance(exc, RequestTimeout) else 0
            side.lost = side.lost + 1 if isinstance(exc, TransportError) else 0
            if isinstance(exc, TransportError):
                side.error = _in_short(exc)
            return _Failure(_kind_of(exc), _text(str(_in_short(exc))))
        side.lost = side.silent = 0
        if not isinstance(result, ToolResult):
            return _Failure(ASKS, "")
        return _Failure("tool error", _text(result.text)) if result.is_error else None

    def _report(self, now: float, part: float, doing: str) -> None:
        self._reported = now
        of = len(self.terms.ladder) * len(self.sides) * self.rounds
        self._on_progress(BenchProgress(self._done + min(part, 1.0), of, doing))


def _kind_of(error: TrioMcpError) -> str:
    """Return the kind of a failure, with the error code or HTTP status if there is one."""
    match error:
        case McpError(code=code):
            return ASKS if code == MISSING_REQUIRED_CLIENT_CAPABILITY else f"error {code}"
        case HttpError(status=status):
            return f"HTTP status {status}"
        case RequestTimeout():
            return "timeout"
        case TransportError():
            return "lost connection"
        case RemoteProtocolError():
            return "invalid result"
    return type(error).__name__


def _in_short(error: ErrorT) -> ErrorT | ProcessExited:
    # The new exception does not quote the standard error, which the user has already seen or stored elsewhere.
    return ProcessExited(error.command, error.returncode) if isinstance(error, ProcessExited) else error


def _text(text: str) -> str:
    # The text is cut before it is split into words, because it may be as long as a whole message.
    return shorten(" ".join(text[: 4 * LONGEST_TEXT].split()), LONGEST_TEXT)
