"""What we ask: our requests, from the call to its outcome, under their time limits, with their progress."""

from __future__ import annotations

import enum
import heapq
from collections import deque
from collections.abc import Awaitable, Callable
from functools import lru_cache
from math import inf
from typing import Any, Final, Literal, TypeAlias, TypedDict

import attrs
import trio
from pydantic import ValidationError

from trio_mcp.convert import another, brief, call_back
from trio_mcp.errors import McpError, RemoteProtocolError, RequestTimeout
from trio_mcp.jsonrpc.events import OutgoingRequest
from trio_mcp.jsonrpc.messages import ErrorData, RequestId, SessionMessage
from trio_mcp.jsonrpc.peer import Peer
from trio_mcp.session.limits import CallOptions, RequestRecord, SessionOptions
from trio_mcp.session.sink import Sink
from trio_mcp.types.notices import ProgressNotificationParams

__all__ = ["UNLIMITED", "USE_SESSION", "CallLimits", "Calls", "Limit", "Limits", "ProgressCallback"]

Spawn: TypeAlias = Callable[[Callable[[], Awaitable[None]]], None]
"""Run an async function in a task."""

ProgressCallback = Callable[[ProgressNotificationParams], Awaitable[object] | object]


class _Default(enum.Enum):
    USE_SESSION = "the session's"


USE_SESSION: Final = _Default.USE_SESSION
"""The default of a per-call limit: what the session says."""

Limit: TypeAlias = float | None | Literal[_Default.USE_SESSION]
"""Seconds; None for no limit."""


class CallLimits(TypedDict, total=False):
    """What one call may say of itself, as keyword arguments.

    Attributes:
        timeout: Seconds without an answer; None waits forever; by default the session's.
        total_timeout: Seconds whatever happens; None sets no such limit; by default the session's.
        reset_on_progress: Whether progress restarts ``timeout``; by default the session's.
        on_progress: Called, sync or async, in the caller's task, with a `ProgressNotificationParams` for each progress
            notification in order; all are done before the call returns. What it raises is raised by the call, and the
            request is cancelled.
    """

    timeout: Limit
    total_timeout: Limit
    reset_on_progress: bool | None
    on_progress: ProgressCallback | None


@attrs.frozen
class Limits:
    """The time limits of one call, in seconds, and its progress callback."""

    timeout: float | None
    total_timeout: float | None
    reset_on_progress: bool
    on_progress: ProgressCallback | None

    @classmethod
    def of(cls, defaults: CallOptions, given: CallLimits) -> Limits:
        """Merge what a call says with what its session says.

        Raises:
            TypeError: A limit is not a number, or there is no such limit.
            ValueError: A limit is not positive.
        """
        if not given:
            return _default_limits(defaults)
        unknown = given.keys() - CallLimits.__annotations__.keys()
        if unknown:
            names = ", ".join(CallLimits.__annotations__)
            raise TypeError(f"a call takes no keyword argument {min(unknown)!r}; what limits it is {names}")
        on_progress = given.get("on_progress")
        if on_progress is not None and not callable(on_progress):
            raise TypeError(f"on_progress must be callable, got {type(on_progress).__name__}")
        timeout, total_timeout = given.get("timeout", USE_SESSION), given.get("total_timeout", USE_SESSION)
        reset = given.get("reset_on_progress")
        limits = CallOptions(
            timeout=defaults.timeout if timeout is USE_SESSION else timeout,
            total_timeout=defaults.total_timeout if total_timeout is USE_SESSION else total_timeout,
            reset_on_progress=defaults.reset_on_progress if reset is None else reset,
        )
        return cls(limits.timeout, limits.total_timeout, limits.reset_on_progress, on_progress)

    patience: float = attrs.field(init=False, repr=False, eq=False)
    """Seconds until the call is over, if nothing is heard."""

    @patience.default
    def _patience(self) -> float:
        return min(inf if limit is None else limit for limit in (self.timeout, self.total_timeout))

    wants_progress: bool = attrs.field(init=False, repr=False, eq=False)
    """Whether the peer is asked for progress."""

    @wants_progress.default
    def _wants_progress(self) -> bool:
        return self.on_progress is not None or self.reset_on_progress

    def deadline(self, started: float, now: float) -> float:
        """The clock time at which a call that started then, and last heard now, is over."""
        deadline = inf if self.timeout is None else now + self.timeout
        return deadline if self.total_timeout is None else min(deadline, started + self.total_timeout)


UNLIMITED = Limits(None, None, False, None)
"""Of a call that waits forever."""


@lru_cache(maxsize=16)
def _default_limits(defaults: CallOptions) -> Limits:
    """What most calls use, made once for each setting of a session."""
    return Limits(defaults.timeout, defaults.total_timeout, defaults.reset_on_progress, None)


# Progress that a slow callback has not yet taken. The oldest goes first: each later one supersedes it.
MAX_PENDING_PROGRESS = 256
MAX_PENDING_PROGRESS_BYTES = 1024 * 1024

TIMED_OUT = TimeoutError()
"""The outcome of a call whose time is up. The request itself is not settled by it, so that the peer is told."""


class Call:
    """Where the reader leaves what arrives for one request, and the caller picks it up.

    Attributes:
        outcome: The result, the peer's error, or the exception to raise; None while there is none.
    """

    __slots__ = ("_bytes", "_progress", "_task", "outcome")

    def __init__(self) -> None:
        self.outcome: dict[str, Any] | ErrorData | Exception | None = None
        self._progress: deque[tuple[dict[str, Any], int]] = deque()
        self._bytes = 0
        self._task: trio.lowlevel.Task | None = None

    def settle(self, outcome: dict[str, Any] | ErrorData | Exception) -> None:
        """Leave the outcome."""
        self.outcome = outcome
        task, self._task = self._task, None
        if task is not None:
            trio.lowlevel.reschedule(task)

    def add_progress(self, params: dict[str, Any], size: int) -> None:
        """Leave the parameters of one progress notification, which had so many bytes."""
        self._progress.append((params, size))
        self._bytes += size
        while len(self._progress) > 1 and (
            len(self._progress) > MAX_PENDING_PROGRESS or self._bytes > MAX_PENDING_PROGRESS_BYTES
        ):
            self.take_progress()
        task, self._task = self._task, None
        if task is not None:
            trio.lowlevel.reschedule(task)

    def take_progress(self) -> dict[str, Any] | None:
        """The oldest progress not yet taken, or None."""
        if not self._progress:
            return None
        params, size = self._progress.popleft()
        self._bytes -= size
        return params

    async def wait(self) -> None:
        """Sleep until there is an outcome or progress to take. Cancellation leaves everything as it was."""
        if self.outcome is None and not self._progress:
            self._task = trio.lowlevel.current_task()

            def abort(_: object) -> trio.lowlevel.Abort:
                self._task = None
                return trio.lowlevel.Abort.SUCCEEDED

            await trio.lowlevel.wait_task_rescheduled(abort)


MIN_CAPACITY = 64


class Deadlines:
    """Pending calls by the time at which they are given up. One task watches them all: a cancel scope for each would
    cost as much as the rest.

    Args:
        spawn: Start a task: the one that watches, while there is something to watch.
    """

    def __init__(self, spawn: Spawn) -> None:
        self._spawn = spawn
        self._watched = False
        self._heap: list[tuple[float, int, OutgoingRequest]] = []
        self._serial = 0
        self._capacity = MIN_CAPACITY
        self._alarm: trio.CancelScope | None = None

    def add(self, deadline: float, request: OutgoingRequest) -> None:
        """Watch a request. There is no removing: one that is settled is passed over when its time comes."""
        self._serial += 1
        heapq.heappush(self._heap, (deadline, self._serial, request))
        if len(self._heap) > self._capacity:
            self._heap = [entry for entry in self._heap if not entry[2].settled]
            heapq.heapify(self._heap)
            self._capacity = max(MIN_CAPACITY, 2 * len(self._heap))
        if not self._watched:
            self._watched = True
            self._spawn(self._watch)
        elif self._alarm is not None and deadline < self._alarm.deadline:
            self._alarm.deadline = deadline

    async def _watch(self) -> None:
        while True:
            while self._heap and self._heap[0][2].settled:
                heapq.heappop(self._heap)
            if not self._heap:
                break
            with trio.CancelScope(deadline=self._heap[0][0]) as self._alarm:
                await trio.sleep_forever()
            self._alarm = None
            now = trio.current_time()
            while self._heap and self._heap[0][0] <= now:
                request = heapq.heappop(self._heap)[2]
                if not request.settled:
                    request.waiter.settle(TIMED_OUT)
        self._watched = False


class Calls:
    """Our requests on one link.

    Args:
        peer: What is in flight.
        sink: Where requests go.
        options: Limits and hooks.
        spawn: Start a task of the session's own.
        on_fault: Called with what is wrong with something that arrived and fails no call.

    Attributes:
        lost: Why no call can be made any more; None as long as there is no reason.
    """

    def __init__(
        self,
        peer: Peer,
        sink: Sink,
        options: SessionOptions,
        spawn: Spawn,
        on_fault: Callable[[RemoteProtocolError], None],
    ) -> None:
        self._peer = peer
        self._sink = sink
        self._options = options
        self._on_fault = on_fault
        self._deadlines = Deadlines(spawn)
        self.lost: Exception | None = None

    def check_open(self) -> None:
        """Raise why no call can be made any more, if so: a copy of the caller's own."""
        if self.lost is not None:
            raise another(self.lost)

    def lose(self, error: Exception) -> None:
        """Fail every call, with this error unless there is an earlier one."""
        if self.lost is None:
            self.lost = error
        for request in self._peer.end_of_input():
            request.waiter.settle(another(self.lost))

    async def call(
        self,
        method: str,
        params: dict[str, Any] | None,
        limits: Limits,
        opened: Callable[[OutgoingRequest], None] | None = None,
        related: RequestId | None = None,
    ) -> dict[str, Any]:
        """Send one request and wait for its result. See `BaseSession.send_request`.

        Args:
            method: The method's name.
            params: Its parameters, as they go out.
            limits: Its limits and callback.
            opened: Called with the request when it has its id and before it is sent.
            related: The peer's request that this one is part of serving.
        """
        await trio.lowlevel.checkpoint_if_cancelled()
        if self.lost is not None:
            raise another(self.lost)
        started = trio.current_time()
        outgoing = self._peer.open_request(method, params, wants_progress=limits.wants_progress)
        waiting = outgoing.waiter = Call()
        if opened is not None:
            opened(outgoing)
        reason: str | None = None
        try:
            if self._sink.has_room and not limits.wants_progress:
                if limits.patience != inf:
                    self._deadlines.add(started + limits.patience, outgoing)
                self._sink.put(SessionMessage(outgoing.request, related), outgoing)
                await waiting.wait()
            else:
                await self._call_in_scope(outgoing, waiting, started, limits, related)
            if waiting.outcome is TIMED_OUT:
                reason = "the request timed out"
                raise _timeout(method, limits, started)
        except trio.Cancelled as exc:
            reason = exc.reason or ("a deadline of the caller's ran out" if exc.source == "deadline" else None)
            raise
        finally:
            if not outgoing.settled:
                self._abandon(outgoing, reason, related)
            if self._options.watched:
                record = RequestRecord(method, "out", trio.current_time() - started, _outcome(waiting))
                self._options.record(record)
        outcome = waiting.outcome
        if type(outcome) is dict:
            return outcome
        if isinstance(outcome, ErrorData):
            raise McpError(outcome.code, outcome.message, outcome.data)
        assert isinstance(outcome, Exception)
        # What cancelled this task may have closed the session just before: then it is the cancellation that counts.
        await trio.lowlevel.checkpoint_if_cancelled()
        raise outcome

    async def _call_in_scope(
        self, outgoing: OutgoingRequest, waiting: Call, started: float, limits: Limits, related: RequestId | None
    ) -> None:
        """Wait where the time limit can strike elsewhere than at the answer: for room, or in a progress callback."""
        with trio.CancelScope(deadline=limits.deadline(started, started)) as scope:
            await self._sink.room()
            if not outgoing.settled:
                self._sink.put(SessionMessage(outgoing.request, related), outgoing)
            await self._wait(waiting, scope, started, limits)
        if waiting.outcome is None:
            waiting.outcome = TIMED_OUT

    async def _wait(self, waiting: Call, scope: trio.CancelScope, started: float, limits: Limits) -> None:
        while True:
            await waiting.wait()
            while (params := waiting.take_progress()) is not None:
                if limits.reset_on_progress:
                    scope.deadline = limits.deadline(started, trio.current_time())
                if limits.on_progress is None:
                    continue
                try:
                    progress = ProgressNotificationParams.from_wire(params)
                except ValidationError as exc:
                    self._on_fault(RemoteProtocolError(f"a malformed progress notification: {brief(exc)}"))
                    continue
                await call_back(limits.on_progress, progress)
            if waiting.outcome is not None:
                return

    def _abandon(self, outgoing: OutgoingRequest, reason: str | None, related: RequestId | None) -> None:
        """Hand the notice over without waiting: a caller on its way out is never held up (rule 2 of docs/design)."""
        notice = self._peer.cancel(outgoing, reason)
        if notice is not None:
            self._sink.put_control(SessionMessage(notice, outgoing.request.id if related is None else related))


def _timeout(method: str, limits: Limits, started: float) -> RequestTimeout:
    total = limits.total_timeout
    if total is not None and trio.current_time() >= started + total:
        return RequestTimeout(method, total, "total_timeout")
    assert limits.timeout is not None
    return RequestTimeout(method, limits.timeout)


def _outcome(waiting: Call) -> Any:
    match waiting.outcome:
        case dict():
            return "ok"
        case ErrorData():
            return "error"
        case None:
            return "cancelled"
        case outcome:
            return "timeout" if outcome is TIMED_OUT else "lost"
