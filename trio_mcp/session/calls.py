"""Makes calls, the outgoing half of a session: sends requests, and returns outcomes, with time limits and progress."""

from __future__ import annotations

import enum
import heapq
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from math import inf
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, TypedDict

import trio
from pydantic import ValidationError

from trio_mcp import _attrs as attrs
from trio_mcp._checks import check_flag, check_hook, check_request_headers, check_seconds
from trio_mcp.convert import another, brief, call_back
from trio_mcp.errors import McpError, RemoteProtocolError, RequestTimeout
from trio_mcp.jsonrpc.events import OutgoingRequest
from trio_mcp.jsonrpc.messages import ErrorData, RequestId, SessionMessage
from trio_mcp.jsonrpc.peer import Peer
from trio_mcp.session.limits import CallOptions, SessionOptions
from trio_mcp.session.notices import DELIVERY_TIME, Delivery
from trio_mcp.session.sink import Sink
from trio_mcp.stopwatch import Stopwatch, TimeLimit, current_stopwatch

if TYPE_CHECKING:
    from trio_mcp.types.notices import ProgressNotificationParams

__all__ = ["UNLIMITED", "USE_SESSION", "CallLimits", "Calls", "Limit", "Limits", "ProgressCallback", "lowered"]

Spawn: TypeAlias = Callable[[Callable[[], Awaitable[None]]], None]
"""Starts a task that runs an async function."""

ProgressCallback = Callable[["ProgressNotificationParams"], Awaitable[object] | object]


# The default is the member of an enum, because type checkers narrow `is` comparisons with such a member. None can't be
# the default, because it means "no limit".
class _Default(enum.Enum):
    USE_SESSION = "the session's"


USE_SESSION: Final = _Default.USE_SESSION
"""The default of a limit for one call: the limit of the session applies."""

Limit: TypeAlias = float | None | Literal[_Default.USE_SESSION]
"""A time limit in seconds; None for no limit, `USE_SESSION` for that of the session."""


class CallLimits(TypedDict, total=False):
    """The limits, the progress callback, the urgency and the headers of one call, as keyword arguments.

    Attributes:
        timeout: How many seconds to wait for the response; None waits forever. By default, as set for the session.
        total_timeout: How many seconds the call may take in all, progress or not; None sets no such limit. By default,
            as set for the session.
        reset_on_progress: Whether progress restarts ``timeout``. By default, as set for the session.
        on_progress: Called, sync or async, in the caller's task, with a `ProgressNotificationParams` for each progress
            notification, in order; all these calls are done before the call returns. An exception that it raises is
            raised by the call, and the request is cancelled.
        retry: Whether the request may be sent again if its connection fails before the response has arrived, and it is
            not known whether the server has acted on it. Used only with several connections to one server
            (`FailoverParameters`).
        urgent: Whether the request overtakes other requests and notifications that wait to be sent.
        headers: HTTP header fields for this call, in addition to those of the connection. Only for a client that
            reaches its server over HTTP; see ``docs/how-to/http_client.md``.
    """

    timeout: Limit
    total_timeout: Limit
    reset_on_progress: bool | None
    on_progress: ProgressCallback | None
    retry: bool
    urgent: bool
    headers: Mapping[str, str] | None


@attrs.frozen
class Limits:
    """The time limits of one call, in seconds, its progress callback, and how it may be sent."""

    timeout: float | None
    total_timeout: float | None
    reset_on_progress: bool
    on_progress: ProgressCallback | None
    retry: bool = False
    urgent: bool = False
    headers: Mapping[str, str] | None = attrs.field(default=None, repr=False)

    @classmethod
    def of(cls, defaults: CallOptions, given: CallLimits) -> Limits:
        """Return the limits of a call, with those of its session where the call sets none.

        Raises:
            TypeError: If a limit is not a number, or the headers don't map strings to strings.
            ValueError: If a limit is not positive, or a header can't be set.
        """
        on_progress = given.get("on_progress")
        check_hook("on_progress", on_progress)
        timeout, total_timeout = given.get("timeout", USE_SESSION), given.get("total_timeout", USE_SESSION)
        reset = given.get("reset_on_progress")
        timeout = defaults.timeout if timeout is USE_SESSION else timeout
        total_timeout = defaults.total_timeout if total_timeout is USE_SESSION else total_timeout
        check_seconds("timeout", timeout, optional=True)
        check_seconds("total_timeout", total_timeout, optional=True)
        reset = defaults.reset_on_progress if reset is None else reset
        retry, urgent = given.get("retry", False), given.get("urgent", False)
        check_flag("retry", retry)
        check_flag("urgent", urgent)
        headers = lowered(given.get("headers"))
        return cls(timeout, total_timeout, reset, on_progress, retry, urgent, headers)

    patience: float = attrs.field(init=False, repr=False, eq=False)
    """Seconds until the call times out if no message arrives for it."""

    @patience.default
    def _patience(self) -> float:
        return min(inf if limit is None else limit for limit in (self.timeout, self.total_timeout))

    wants_progress: bool = attrs.field(init=False, repr=False, eq=False)
    """Whether the request asks the peer for progress."""

    @wants_progress.default
    def _wants_progress(self) -> bool:
        return self.on_progress is not None or self.reset_on_progress

    wants_scope: bool = attrs.field(init=False, repr=False, eq=False)
    """Whether the call needs a cancel scope: it asks for progress, or may have to wait for room as an urgent call."""

    @wants_scope.default
    def _wants_scope(self) -> bool:
        return self.wants_progress or self.urgent

    def deadline(self, started: float, now: float) -> float:
        """Return the time at which a call times out, on the clock of a `Stopwatch`.

        Args:
            started: When the call started, on the same clock.
            now: When the call last heard from the peer.
        """
        deadline = inf if self.timeout is None else now + self.timeout
        return deadline if self.total_timeout is None else min(deadline, started + self.total_timeout)


def lowered(headers: Mapping[str, str] | None) -> Mapping[str, str] | None:
    """Check the header fields of a call; return them with names in lower case, or None if there are none.

    Raises:
        TypeError, ValueError: As `check_request_headers` raises them.
    """
    if headers is None:
        return None
    check_request_headers(headers)
    return {name.lower(): value for name, value in headers.items()} or None


UNLIMITED = Limits(None, None, False, None)
"""The limits of a call that waits forever."""


# Bounds for the progress of one call that a slow callback has not taken yet. Without them, a peer could fill the
# memory. The bounds are arbitrary choices: no callback needs to see more. The oldest progress is dropped first, since
# each later report supersedes it.
MAX_PENDING_PROGRESS = 256
MAX_PENDING_PROGRESS_BYTES = 1024 * 1024

TIMED_OUT = TimeoutError()
"""The outcome of a call that timed out. The request itself is still open then, so that the peer will be told."""


class Call:
    """A mailbox for one request: the session's reader puts the progress and the outcome into it, for the caller.

    Attributes:
        outcome: The result, the peer's error, or the exception to raise; None until the outcome is known.
        behind: The place of the outcome in the queue of notices (notifications and faults), all of which are handled
            before the call returns; None if no notice was waiting when the outcome arrived.
    """

    __slots__ = ("_bytes", "_progress", "_task", "behind", "outcome")

    def __init__(self) -> None:
        self.outcome: dict[str, Any] | ErrorData | Exception | None = None
        self.behind: Delivery | None = None
        # The queue is created when the first progress arrives, because most calls get none.
        self._progress: deque[tuple[dict[str, Any], int]] | None = None
        self._bytes = 0
        self._task: trio.lowlevel.Task | None = None

    def settle(self, outcome: dict[str, Any] | ErrorData | Exception) -> None:
        """Store the outcome, and wake the caller."""
        self.outcome = outcome
        # A task may be rescheduled only once before it waits again, so whatever wakes the task clears `_task`.
        task, self._task = self._task, None
        if task is not None:
            trio.lowlevel.reschedule(task)

    def add_progress(self, params: dict[str, Any], size: int) -> None:
        """Store the parameters of one progress notification of ``size`` bytes, and wake the caller."""
        if self._progress is None:
            self._progress = deque()
        waiting = self._progress
        waiting.append((params, size))
        self._bytes += size
        # The newest report is always kept, whatever its size.
        while len(waiting) > 1 and (len(waiting) > MAX_PENDING_PROGRESS or self._bytes > MAX_PENDING_PROGRESS_BYTES):
            self.take_progress()
        task, self._task = self._task, None
        if task is not None:
            trio.lowlevel.reschedule(task)

    def take_progress(self) -> dict[str, Any] | None:
        """Remove and return the oldest progress; return None if all has been taken."""
        if not self._progress:
            return None
        params, size = self._progress.popleft()
        self._bytes -= size
        return params

    async def wait(self) -> None:
        """Sleep until there is an outcome or progress to take. Cancellation leaves everything as it was.

        Even if there is an outcome already, this is a checkpoint.
        """
        # A peer in this process may respond before the call begins to wait. The call must still be a checkpoint, but a
        # cancellation can no longer undo it (rule 11 of docs/design.md).
        if self.outcome is not None:
            await trio.lowlevel.cancel_shielded_checkpoint()
        # The call uses Trio's scheduler directly: a trio.Event for each request would cost more, and can be set only
        # once.
        elif not self._progress:
            self._task = trio.lowlevel.current_task()
            await trio.lowlevel.wait_task_rescheduled(self._abort)

    def _abort(self, _: object) -> trio.lowlevel.Abort:
        # If `_task` were kept, the reader would later wake the task, which may then be waiting for something else.
        self._task = None
        return trio.lowlevel.Abort.SUCCEEDED


# An arbitrary choice: sweeping a heap of deadlines with fewer entries than this is not worth it.
MIN_CAPACITY = 64


class Deadlines:
    """The deadlines of pending calls, watched by a single task.

    Args:
        peer: The requests in flight.
        spawn: Starts the task that watches the deadlines; the task runs only while there are deadlines.
        stopwatch: The clock that the deadlines refer to.
    """

    # One task watches all deadlines, because a cancel scope for each call would cost as much as the rest of the call.

    def __init__(self, peer: Peer, spawn: Spawn, stopwatch: Stopwatch) -> None:
        self._peer = peer
        self._spawn = spawn
        self._stopwatch = stopwatch
        self._watched = False
        # The heap contains ids, because requests would keep the arguments and results of calls that returned long ago.
        self._heap: list[tuple[float, RequestId]] = []
        self._capacity = MIN_CAPACITY
        self._alarm: TimeLimit | None = None
        self._alarm_at = inf

    def add(self, deadline: float, request_id: RequestId) -> None:
        """Watch a request. There is no need to remove it: a settled request is skipped when its deadline comes."""
        heapq.heappush(self._heap, (deadline, request_id))
        if len(self._heap) > self._capacity:
            # Entries of settled requests are dropped: without that, a session with many short calls and a long timeout
            # would keep them all. As the capacity doubles, the sweeps cost a constant amount for each call on average.
            self._heap = [entry for entry in self._heap if self._peer.pending(entry[1]) is not None]
            heapq.heapify(self._heap)
            self._capacity = max(MIN_CAPACITY, 2 * len(self._heap))
        if not self._watched:
            self._watched = True
            self._spawn(self._watch)
        # Without an alarm, the watching task has not looked at the heap yet, and will find this deadline in it.
        elif self._alarm is not None and deadline < self._alarm_at:
            self._alarm.deadline = self._alarm_at = deadline

    async def _watch(self) -> None:
        # The alarm is a sleep inside a time limit, so that `add` can bring it forward by changing the deadline.
        while True:
            while self._heap and self._peer.pending(self._heap[0][1]) is None:
                heapq.heappop(self._heap)
            if not self._heap:
                break
            self._alarm_at = self._heap[0][0]
            with TimeLimit(self._stopwatch, self._alarm_at) as self._alarm:
                await trio.sleep_forever()
            self._alarm = None
            now = self._stopwatch.time()
            while self._heap and self._heap[0][0] <= now:
                request = self._peer.pending(heapq.heappop(self._heap)[1])
                if request is not None:
                    request.waiter.settle(TIMED_OUT)
        self._watched = False


class Calls:
    """The requests that this side sends on one link.

    Args:
        peer: The requests in flight.
        sink: Where requests go.
        options: Limits and hooks.
        spawn: Starts a task in the session's nursery.
        on_fault: Called with faults in incoming messages that don't fail a call.

    Attributes:
        lost: The reason why calls can't be made any more; None while they can.
        usual: The limits of calls that set none themselves.
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
        self._stopwatch = current_stopwatch()
        self._deadlines = Deadlines(peer, spawn, self._stopwatch)
        self._spawn = spawn
        # The requests of calls that wait for room, in order. One task sends them all: a call that itself waited for
        # room would need a cancel scope for its timeout, and two more steps of the event loop.
        self._unsent: dict[RequestId, tuple[SessionMessage, OutgoingRequest]] = {}
        self._sending = False
        self.lost: Exception | None = None
        self._ended: trio.Event | None = None  # made when a task first waits for it, as happens in few sessions
        self.usual = Limits.of(options.calls, {})  # made once, because most calls use these limits

    def check_open(self) -> None:
        """Raise the reason why calls can't be made any more, if there is one."""
        # Each caller gets a copy of the exception: the same object, raised in several tasks, would collect all their
        # tracebacks.
        if self.lost is not None:
            raise another(self.lost)

    def lose(self, error: Exception) -> None:
        """Fail every call, pending and future, with this error, or with that of an earlier `lose`."""
        if self.lost is None:
            self.lost = error
        for request in self._peer.end_of_input():
            request.waiter.settle(another(self.lost))
        if self._ended is not None:
            self._ended.set()

    async def wait_lost(self) -> None:
        """Wait until calls can't be made any more."""
        if self._ended is None:
            self._ended = trio.Event()
            if self.lost is not None:
                self._ended.set()
        await self._ended.wait()

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
            params: The parameters as they are sent.
            limits: The limits and the progress callback.
            opened: Called with the request once its id is known, before it is sent.
            related: The id of the peer's request during which this one is sent.
        """
        # A call that is cancelled from the start must not send anything (rule 11 of docs/design.md).
        await trio.lowlevel.checkpoint_if_cancelled()
        if self.lost is not None:
            raise another(self.lost)
        started, stopwatch = trio.current_time(), self._stopwatch
        counted = started - stopwatch.lost
        # Nothing may be awaited between opening the request and the `try`: a cancellation in between would leave the
        # request open forever.
        outgoing = self._peer.open_request(method, params, wants_progress=limits.wants_progress)
        waiting = outgoing.waiter = Call()
        if opened is not None:
            opened(outgoing)
        reason: str | None = None
        try:
            if not limits.wants_scope and not stopwatch.stopped:
                # Most calls take this branch. Such a call spends time only in `wait`, so `Deadlines` can end it by
                # storing an outcome.
                if limits.patience != inf:
                    self._deadlines.add(counted + limits.patience, outgoing.request.id)
                message = SessionMessage(outgoing.request, related, retry=limits.retry, headers=limits.headers)
                if self._sink.has_room and not self._unsent:
                    self._sink.put(message, outgoing)
                else:
                    self._put_later(message, outgoing)
                await waiting.wait()
            else:
                counted = stopwatch.time()
                await self._call_in_scope(outgoing, waiting, counted, limits, related)
            if waiting.outcome is TIMED_OUT:
                reason = "the request timed out"
                raise _timeout(method, limits, stopwatch.time() >= counted + (limits.total_timeout or inf))
            if waiting.behind is not None:
                heard = stopwatch.time() if limits.reset_on_progress else counted
                deadline = stopwatch.real(limits.deadline(counted, heard))
                await waiting.behind.wait(min(trio.current_time() + DELIVERY_TIME, deadline))
        except trio.Cancelled as exc:
            reason = exc.reason or ("the caller's deadline expired" if exc.source == "deadline" else None)
            raise
        finally:
            # If the request is still open, the call was cancelled, timed out, or failed in a progress callback, and the
            # peer need not continue.
            if not outgoing.settled:
                self._abandon(outgoing, reason, related)
            if self._options.watched:
                self._options.record(method, "out", trio.current_time() - started, _outcome(waiting))
        outcome = waiting.outcome
        # `type() is` suffices, because the parser makes plain dicts. It is quicker than isinstance, and every call
        # comes through here.
        if type(outcome) is dict:
            return outcome
        raise await _failure(outcome)

    def _put_later(self, message: SessionMessage, outgoing: OutgoingRequest) -> None:
        """Send a request as soon as there is room, unless its call has ended by then."""
        self._unsent[outgoing.request.id] = message, outgoing
        if not self._sending:
            self._sending = True
            self._spawn(self._send_unsent)

    async def _send_unsent(self) -> None:
        while self._unsent:
            await self._sink.room()
            # There is now room for at least one message. But calls may have ended, or the session may have been closed,
            # during the wait.
            more = True
            while self._unsent and more:
                message, outgoing = self._unsent.pop(next(iter(self._unsent)))
                if not outgoing.settled:
                    self._sink.put(message, outgoing)
                more = self._sink.has_room
        self._sending = False

    async def _call_in_scope(
        self, outgoing: OutgoingRequest, waiting: Call, started: float, limits: Limits, related: RequestId | None
    ) -> None:
        """Send a request and wait for the outcome; the time limit includes progress callbacks and the wait for room."""
        # While a progress callback runs or the call waits for room, storing an outcome does not wake the caller, so
        # only a cancel scope can end the call.
        with TimeLimit(self._stopwatch, limits.deadline(started, started)) as scope:
            await self._sink.room(urgent=limits.urgent)
            # During the wait, the session may have been closed, or the link lost.
            if not outgoing.settled:
                message = SessionMessage(
                    outgoing.request, related, retry=limits.retry, urgent=limits.urgent, headers=limits.headers
                )
                self._sink.put(message, outgoing)
            await self._wait(waiting, scope, started, limits)
        if waiting.outcome is None:
            waiting.outcome = TIMED_OUT

    async def _wait(self, waiting: Call, scope: TimeLimit, started: float, limits: Limits) -> None:
        while True:
            await waiting.wait()
            while (params := waiting.take_progress()) is not None:
                # The time limit restarts when the caller takes the progress, not when the progress arrives.
                if limits.reset_on_progress:
                    scope.deadline = limits.deadline(started, self._stopwatch.time())
                if limits.on_progress is None:
                    continue
                from trio_mcp.types.notices import ProgressNotificationParams  # late: few servers need this

                try:
                    progress = ProgressNotificationParams.from_wire(params)
                except ValidationError as exc:
                    self._on_fault(RemoteProtocolError(f"malformed progress notification: {brief(exc)}"))
                    continue
                await call_back(limits.on_progress, progress)
            if waiting.outcome is not None:
                return

    def _abandon(self, outgoing: OutgoingRequest, reason: str | None, related: RequestId | None) -> None:
        """Tell the peer that a request is cancelled, without waiting."""
        # A call that is ending must not depend on a peer that may not be reading (rule 2 of docs/design.md). Nothing is
        # sent for a request that has not been sent yet, or that must not be cancelled, such as initialize.
        self._unsent.pop(outgoing.request.id, None)
        notice = self._peer.cancel(outgoing, reason)
        if notice is not None:
            self._sink.put_control(SessionMessage(notice, outgoing.request.id if related is None else related))


def _timeout(method: str, limits: Limits, in_all: bool) -> RequestTimeout:
    # If both limits have been reached, the error names the total one, because increasing the other would not help.
    if limits.timeout is None or in_all:
        assert limits.total_timeout is not None
        return RequestTimeout(method, limits.total_timeout, "total_timeout")
    return RequestTimeout(method, limits.timeout)


async def _failure(outcome: object) -> Exception:
    if isinstance(outcome, ErrorData):
        return McpError(outcome.code, outcome.message, outcome.data)
    assert isinstance(outcome, Exception)
    # If the scope that closed the session has also cancelled this task, the cancellation takes precedence.
    await trio.lowlevel.checkpoint_if_cancelled()
    return outcome


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
