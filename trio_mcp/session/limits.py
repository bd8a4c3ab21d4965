"""What can be set on a session: limits, timeouts, and the hook that watches its requests."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import attrs

from trio_mcp._checks import check_count, check_seconds, validator
from trio_mcp._log import logger
from trio_mcp.jsonrpc.peer import DEFAULT_MAX_INCOMING_BYTES
from trio_mcp.types.methods import facts_of

__all__ = ["CallOptions", "HandlerOptions", "RequestRecord", "SessionOptions"]

_SECONDS = validator(check_seconds, optional=True)
_GRACE = validator(check_seconds, zero=True)
_COUNT = validator(check_count)


@attrs.frozen(kw_only=True)
class CallOptions:
    """What we ask: how long a call waits for its answer (`basic/patterns/cancellation`, section CallOptions).

    Attributes:
        timeout: Seconds without an answer; with ``reset_on_progress`` each progress notification starts them anew.
            None waits forever.
        total_timeout: Seconds from the start, whatever happens; progress never resets them. None sets no such limit.
        reset_on_progress: Whether progress resets ``timeout``.
    """

    timeout: float | None = attrs.field(default=300.0, validator=_SECONDS)
    total_timeout: float | None = attrs.field(default=None, validator=_SECONDS)
    reset_on_progress: bool = False


@attrs.frozen
class RequestRecord:
    """One request that is over, as the ``on_request`` hook sees it.

    Attributes:
        method: Its method.
        direction: ``"out"`` for a request of ours, ``"in"`` for one of the peer's.
        duration: Seconds from its start to its outcome.
        outcome: ``"ok"``, ``"error"`` (an error answer), ``"cancelled"``, ``"timeout"`` or ``"lost"`` (the link
            failed, or the answer was no answer).
    """

    method: str
    direction: Literal["in", "out"]
    duration: float
    outcome: Literal["ok", "error", "cancelled", "timeout", "lost"]


def log_slow_request(record: RequestRecord) -> None:
    """The default ``on_alert``: a warning in the log."""
    logger.warning(
        "slow request: %s (%s) took %.3f s, outcome %s",
        record.method,
        record.direction,
        record.duration,
        record.outcome,
    )


@attrs.frozen(kw_only=True)
class HandlerOptions:
    """What we answer: how much of the peer's is under way at once.

    Attributes:
        max_running_requests: How many of the peer's requests run at once.
        max_queued_requests: How many more wait; beyond that a request is refused with an error at once.
        max_pending_notifications: How many of the peer's notifications wait for their handlers; beyond that they are
            dropped, and the log says so.
        max_incoming_bytes: How many bytes the peer's requests have that run or wait, as they arrived, and likewise its
            notifications that wait; beyond that the same. One alone may have more.
        drain_grace: Seconds that handlers are given to finish after the peer has closed its sending side.
    """

    max_running_requests: int = attrs.field(default=128, validator=_COUNT)
    max_queued_requests: int = attrs.field(default=1024, validator=_COUNT)
    max_pending_notifications: int = attrs.field(default=1024, validator=_COUNT)
    max_incoming_bytes: int = attrs.field(default=DEFAULT_MAX_INCOMING_BYTES, validator=_COUNT)
    drain_grace: float = attrs.field(default=0.5, validator=_GRACE)


@attrs.frozen(kw_only=True)
class SessionOptions:
    """The options of both directions, and what they share.

    Attributes:
        calls: Those of what we ask.
        handlers: Those of what we answer.
        max_outgoing_messages: How many messages wait for the link before those who send wait, too.
        close_grace: Seconds that a close waits for messages handed over before it.
        on_request: Called, synchronously, with the record of each request that is over. It must not block.
        alert_threshold: Requests of at least this many seconds also go to ``on_alert``, but for
            ``subscriptions/listen``, which is meant to last; None watches for none.
        on_alert: Called like ``on_request``; logs a warning by default.
    """

    calls: CallOptions = attrs.field(factory=CallOptions, validator=attrs.validators.instance_of(CallOptions))
    handlers: HandlerOptions = attrs.field(
        factory=HandlerOptions, validator=attrs.validators.instance_of(HandlerOptions)
    )
    max_outgoing_messages: int = attrs.field(default=128, validator=_COUNT)
    close_grace: float = attrs.field(default=1.0, validator=_GRACE)
    on_request: Callable[[RequestRecord], object] | None = None
    alert_threshold: float | None = attrs.field(default=None, validator=_SECONDS)
    on_alert: Callable[[RequestRecord], object] = log_slow_request

    watched: bool = attrs.field(init=False, repr=False, eq=False)
    """Whether anybody wants records."""

    @watched.default
    def _watched(self) -> bool:
        return self.on_request is not None or self.alert_threshold is not None

    def record(self, record: RequestRecord) -> None:
        """Give a record to the hooks; an exception of theirs is logged and goes no further."""
        try:
            if self.on_request is not None:
                self.on_request(record)
            slow = self.alert_threshold is not None and record.duration >= self.alert_threshold
            if slow and not facts_of(record.method).lasting:
                self.on_alert(record)
        except Exception:
            logger.exception("a hook for finished requests failed")
