"""Defines the options of a session: limits, timeouts, and the hooks that watch its requests."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection
from typing import TYPE_CHECKING, Any, Literal

from trio_mcp import _attrs as attrs
from trio_mcp._checks import check_count, check_hook, check_seconds, validator
from trio_mcp._log import logger
from trio_mcp.errors import RemoteProtocolError
from trio_mcp.jsonrpc.messages import Notification, Request
from trio_mcp.jsonrpc.peer import DEFAULT_MAX_INCOMING_BYTES
from trio_mcp.types.methods import facts_of

if TYPE_CHECKING:  # few programs watch requests, so the module is loaded late
    from trio_mcp.session.statistics import RequestRecord

__all__ = ["CallOptions", "HandlerOptions", "SessionOptions"]

# A timeout must be positive. A grace period may be 0, for no time at all.
_SECONDS = validator(check_seconds, optional=True)
_WAIT = validator(check_seconds)
_GRACE = validator(check_seconds, zero=True)
_COUNT = validator(check_count)
_SYNC_HOOK = validator(check_hook, sync=True)


def _result_types(given: Collection[str]) -> frozenset[str]:
    # A string is a collection of strings, too, but a caller who passes one has made a mistake.
    if isinstance(given, str) or not all(isinstance(each, str) for each in given):
        raise TypeError(f"result_types must be a list of strings, got {given!r}")
    return frozenset(given)


def _urgent(given: Any) -> Any:
    if callable(given):
        check_hook("urgent", given, sync=True)
        return given
    if isinstance(given, str) or not isinstance(given, Collection) or not all(isinstance(each, str) for each in given):
        raise TypeError(f"urgent must be a set of method names, or a function, got {given!r}")
    return frozenset(given)


@attrs.frozen(kw_only=True)
class CallOptions:
    """Options for outgoing requests: how long a call waits (`basic/patterns/cancellation`, section Timeouts).

    The last three attributes matter only to a client.

    Attributes:
        timeout: How many seconds to wait for the response; with ``reset_on_progress`` each progress notification
            restarts the count. None waits forever.
        total_timeout: How many seconds a call may take in all; progress never extends them. None sets no such limit.
        reset_on_progress: Whether progress restarts ``timeout``.
        connect_timeout: How many seconds a `Client` may take to start its server, connect and negotiate, all together.
            With None, the default, the limit is 30 seconds, or ``timeout`` if that is less and there is only one way to
            reach the server.
        probe_timeout: How many seconds to wait for the response that shows the server's era; a server that stays silent
            counts as a legacy one. A `Client` waits for at most half of the time that it has to connect.
        result_types: The values of ``resultType`` that the client's extensions add; a result of an unknown type is an
            error.
    """

    # An arbitrary choice: long enough for most tools, but short enough for a call to a server that hangs to end.
    timeout: float | None = attrs.field(default=300.0, validator=_SECONDS)
    total_timeout: float | None = attrs.field(default=None, validator=_SECONDS)
    reset_on_progress: bool = False
    connect_timeout: float | None = attrs.field(default=None, validator=_SECONDS)
    # An arbitrary choice: a server that responds to the probe at all takes far less time.
    probe_timeout: float = attrs.field(default=5.0, validator=_WAIT)
    result_types: frozenset[str] = attrs.field(default=(), converter=_result_types)


def log_slow_request(record: RequestRecord) -> None:
    """Log a warning about a slow request; the default of ``on_alert``."""
    logger.warning(
        "slow request: %s (%s) took %.3f s, outcome %s",
        record.method,
        record.direction,
        record.duration,
        record.outcome,
    )


@attrs.frozen(kw_only=True)
class HandlerOptions:
    """Options for incoming requests and notifications: how many of them may be running or waiting at once.

    Attributes:
        max_running_requests: How many of the peer's requests run at once.
        max_queued_requests: How many more of these requests may wait; any further ones are refused with an error.
        max_pending_notifications: How many of the peer's notifications may wait for their handler; any further ones are
            dropped, with a warning in the log.
        max_incoming_bytes: How many bytes, as they arrived, the peer's running and waiting requests may have together;
            its waiting notifications may have as many again. Any further messages are refused or dropped in the same
            way. A single message may be larger.
        drain_grace: How many seconds handlers may take to finish after the peer has closed its sending side.
        urgent: Which of the peer's requests and notifications overtake others that wait: the names of methods, or a
            sync function that takes the `Request` or `Notification` and returns whether it is urgent. An exception that
            it raises is logged, and the message is not urgent.
    """

    # All of these limits are arbitrary choices: a well-behaved peer has fewer requests and notifications in flight, and
    # a hostile peer can't exhaust the memory within the limits.
    max_running_requests: int = attrs.field(default=128, validator=_COUNT)
    max_queued_requests: int = attrs.field(default=1024, validator=_COUNT)
    max_pending_notifications: int = attrs.field(default=1024, validator=_COUNT)
    max_incoming_bytes: int = attrs.field(default=DEFAULT_MAX_INCOMING_BYTES, validator=_COUNT)
    drain_grace: float = attrs.field(default=0.5, validator=_GRACE)
    urgent: Collection[str] | Callable[[Request | Notification], object] = attrs.field(default=(), converter=_urgent)

    def is_urgent(self, message: Request | Notification) -> bool:
        """Return whether a message from the peer is urgent."""
        if not callable(self.urgent):
            return message.method in self.urgent
        # The session's reader calls the function, so an exception in it must not end the session.
        try:
            return bool(self.urgent(message))
        except Exception:
            logger.exception("the urgent function failed")
            return False


@attrs.frozen(kw_only=True)
class SessionOptions:
    """The options of a session: those of each direction, and those that both share.

    Attributes:
        calls: Options for outgoing requests.
        handlers: Options for incoming requests.
        max_outgoing_messages: How many messages wait for the link before their senders have to wait.
        close_grace: How many seconds closing waits for earlier messages to be sent.
        on_request: Called with the record of each completed request. The hook must be a sync function, and must not
            block.
        alert_threshold: Requests that took at least this many seconds also go to ``on_alert``, except
            ``subscriptions/listen``, which is meant to last. None disables alerts.
        on_alert: Called like ``on_request``; by default logs a warning.
        on_error: Called, sync or async, with each fault in incoming messages that does not belong to a request (a
            `RemoteProtocolError`). Without it, faults are logged as warnings.
    """

    calls: CallOptions = attrs.field(factory=CallOptions, validator=attrs.validators.instance_of(CallOptions))
    handlers: HandlerOptions = attrs.field(
        factory=HandlerOptions, validator=attrs.validators.instance_of(HandlerOptions)
    )
    # An arbitrary choice: enough for a burst, but a sender that is faster than its link soon has to wait.
    max_outgoing_messages: int = attrs.field(default=128, validator=_COUNT)
    # An arbitrary choice: enough to send messages that were handed over just before the close. A peer that does not
    # read delays the close by this time.
    close_grace: float = attrs.field(default=1.0, validator=_GRACE)
    on_request: Callable[[RequestRecord], object] | None = attrs.field(default=None, validator=_SYNC_HOOK)
    alert_threshold: float | None = attrs.field(default=None, validator=_SECONDS)
    on_alert: Callable[[RequestRecord], object] = attrs.field(default=log_slow_request, validator=_SYNC_HOOK)
    on_error: Callable[[RemoteProtocolError], Awaitable[object] | object] | None = attrs.field(
        default=None, validator=validator(check_hook)
    )

    watched: bool = attrs.field(init=False, repr=False, eq=False)
    """Whether there is a hook that gets the records of requests."""

    @watched.default
    def _watched(self) -> bool:
        return self.on_request is not None or self.alert_threshold is not None

    def record(
        self,
        method: str,
        direction: Literal["in", "out"],
        duration: float,
        outcome: Literal["ok", "error", "cancelled", "timeout", "lost"],
    ) -> None:
        """Pass a `RequestRecord` to the hooks; an exception that they raise is logged."""
        from trio_mcp.session.statistics import RequestRecord

        record = RequestRecord(method, direction, duration, outcome)
        # The hooks run in the task of the request's caller or handler just before the request ends, so an exception in
        # them must not change the outcome.
        try:
            if self.on_request is not None:
                self.on_request(record)
            slow = self.alert_threshold is not None and record.duration >= self.alert_threshold
            if slow and not facts_of(record.method).lasting:
                self.on_alert(record)
        except Exception:
            logger.exception("the on_request or on_alert hook failed")
