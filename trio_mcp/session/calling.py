"""Making a call: send the request, wait under its time limits, run its progress callbacks, tell of an early end."""

from __future__ import annotations

import enum
from collections.abc import Awaitable, Callable
from functools import lru_cache
from math import inf
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

import attrs
import trio
from pydantic import ValidationError

from trio_mcp.convert import another, brief
from trio_mcp.errors import McpError, RemoteProtocolError, RequestTimeout
from trio_mcp.jsonrpc.messages import ErrorData, RequestId, SessionMessage
from trio_mcp.session.call import TIMED_OUT, Call
from trio_mcp.session.options import RequestRecord, Timeouts
from trio_mcp.types.progress import ProgressNotificationParams

if TYPE_CHECKING:
    from trio_mcp.jsonrpc.events import OutgoingRequest
    from trio_mcp.session.core import SessionCore

__all__ = ["UNLIMITED", "CallOptions", "ProgressCallback", "call"]

ProgressCallback = Callable[[ProgressNotificationParams], Awaitable[object] | object]


class _Default(enum.Enum):
    USE_SESSION = "the session's"


USE_SESSION: Final = _Default.USE_SESSION
"""The default of a per-call limit: what the session says."""

Limit: TypeAlias = float | None | Literal[_Default.USE_SESSION]
"""Seconds; None for no limit."""


@attrs.frozen
class CallOptions:
    """The time limits of one call, in seconds, and its progress callback."""

    timeout: float | None
    total_timeout: float | None
    reset_on_progress: bool
    on_progress: ProgressCallback | None

    @classmethod
    def of(
        cls,
        defaults: Timeouts,
        timeout: Limit,
        total_timeout: Limit,
        reset_on_progress: bool | None,
        on_progress: ProgressCallback | None,
    ) -> CallOptions:
        """Merge what a call says with what its session says.

        Raises:
            TypeError: A limit is not a number.
            ValueError: A limit is not positive.
        """
        if (
            on_progress is None
            and timeout is USE_SESSION
            and total_timeout is USE_SESSION
            and reset_on_progress is None
        ):
            return _default_options(defaults)
        if on_progress is not None and not callable(on_progress):
            raise TypeError(f"on_progress must be callable, got {type(on_progress).__name__}")
        if timeout is USE_SESSION and total_timeout is USE_SESSION:
            limits = defaults
        else:
            limits = Timeouts(
                timeout=defaults.timeout if timeout is USE_SESSION else timeout,
                total_timeout=defaults.total_timeout if total_timeout is USE_SESSION else total_timeout,
            )
        reset = defaults.reset_on_progress if reset_on_progress is None else reset_on_progress
        return cls(limits.timeout, limits.total_timeout, reset, on_progress)

    @property
    def wants_progress(self) -> bool:
        """Whether the peer is asked for progress."""
        return self.on_progress is not None or self.reset_on_progress

    def deadline(self, started: float, now: float) -> float:
        """The clock time at which a call that started then, and last heard now, is over."""
        deadline = inf if self.timeout is None else now + self.timeout
        return deadline if self.total_timeout is None else min(deadline, started + self.total_timeout)


UNLIMITED = CallOptions(None, None, False, None)
"""Of a call that waits for ever."""


@lru_cache(maxsize=16)
def _default_options(defaults: Timeouts) -> CallOptions:
    """What most calls use, made once for each setting of a session."""
    return CallOptions(defaults.timeout, defaults.total_timeout, defaults.reset_on_progress, None)


async def call(
    session: SessionCore,
    method: str,
    params: dict[str, Any] | None,
    options: CallOptions,
    opened: Callable[[OutgoingRequest], None] | None = None,
    related: RequestId | None = None,
) -> dict[str, Any]:
    """Send one request and wait for its result. See `BaseSession.send_request`.

    Args:
        session: The session.
        method: The method's name.
        params: Its parameters, as they go out.
        options: Its limits and callback.
        opened: Called with the request when it has its id and before it is sent.
        related: The peer's request that this one is part of serving.
    """
    await trio.lowlevel.checkpoint_if_cancelled()
    if session._lost is not None:
        raise another(session._lost)
    peer, outbox = session._peer, session._outbox
    started = trio.current_time()
    outgoing = peer.open_request(method, params, wants_progress=options.wants_progress)
    waiting = outgoing.waiter = Call()
    if opened is not None:
        opened(outgoing)
    reason: str | None = None
    try:
        if outbox.has_room and not options.wants_progress:
            deadline = options.deadline(started, started)
            if deadline != inf:
                session._deadlines.add(deadline, outgoing, session._spawn)
            outbox.put(SessionMessage(outgoing.request, related), outgoing)
            await waiting.wait()
        else:
            await _call_in_scope(session, outgoing, waiting, started, options, related)
        if waiting.outcome is TIMED_OUT:
            reason = "the request timed out"
            raise _timeout(method, options, started)
    except trio.Cancelled as exc:
        reason = exc.reason or ("a deadline of the caller's ran out" if exc.source == "deadline" else None)
        raise
    finally:
        if not outgoing.settled:
            _abandon(session, outgoing, reason, related)
        if session.options.watched:
            record = RequestRecord(method, "out", trio.current_time() - started, _outcome(waiting))
            session.options.record(record)
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
    session: SessionCore,
    outgoing: OutgoingRequest,
    waiting: Call,
    started: float,
    options: CallOptions,
    related: RequestId | None,
) -> None:
    """Wait where the time limit can strike elsewhere than at the answer: for room, or in a progress callback."""
    with trio.CancelScope(deadline=options.deadline(started, started)) as scope:
        await session._outbox.room()
        if not outgoing.settled:
            session._outbox.put(SessionMessage(outgoing.request, related), outgoing)
        await _wait(session, waiting, scope, started, options)
    if waiting.outcome is None:
        waiting.outcome = TIMED_OUT


async def _wait(
    session: SessionCore, waiting: Call, scope: trio.CancelScope, started: float, options: CallOptions
) -> None:
    while True:
        await waiting.wait()
        while (params := waiting.take_progress()) is not None:
            if options.reset_on_progress:
                scope.deadline = options.deadline(started, trio.current_time())
            if options.on_progress is None:
                continue
            try:
                progress = ProgressNotificationParams.from_wire(params)
            except ValidationError as exc:
                session._queue_notice(RemoteProtocolError(f"a malformed progress notification: {brief(exc)}"))
                continue
            outcome = options.on_progress(progress)
            if isinstance(outcome, Awaitable):
                await outcome
        if waiting.outcome is not None:
            return


def _abandon(session: SessionCore, outgoing: OutgoingRequest, reason: str | None, related: RequestId | None) -> None:
    """Hand the notice over without waiting: a caller on its way out is never held up (rule 2 of docs/design)."""
    notice = session._peer.cancel(outgoing, reason)
    if notice is not None:
        session._outbox.put_control(SessionMessage(notice, outgoing.request.id if related is None else related))


def _timeout(method: str, options: CallOptions, started: float) -> RequestTimeout:
    total = options.total_timeout
    if total is not None and trio.current_time() >= started + total:
        return RequestTimeout(method, total, "total_timeout")
    assert options.timeout is not None
    return RequestTimeout(method, options.timeout)


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
