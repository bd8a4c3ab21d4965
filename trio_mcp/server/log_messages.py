"""Sends log messages to the client that made a request (`server/utilities/logging`), also from Python's `logging`."""

from __future__ import annotations

import bisect
import logging
import threading
from contextvars import ContextVar
from typing import Any

import trio
from pydantic_core import PydanticSerializationError, from_json, to_json

from trio_mcp._checks import check_choice
from trio_mcp.eras.server_negotiation import LOG_LEVELS, ClientDeclaration
from trio_mcp.session.handlers import RequestContext, incoming_of

__all__ = ["CURRENT", "SEVERITY", "McpLogHandler", "send_log", "severity_of", "wants_log"]

# The limit is large enough for a burst of records, but keeps threads that log faster than the event loop runs from
# filling the memory.
MAX_PENDING_RECORDS = 1000
"""How many records from other threads one handler keeps until the event loop takes them."""

SEVERITY = {level: number for number, level in enumerate(LOG_LEVELS)}

# The protocol's levels with which records of `logging` are sent, and the lowest level number for each but the first.
# Other libraries define a level NOTICE between INFO and WARNING, hence INFO + 1.
_LEVELS = ("debug", "info", "notice", "warning", "error", "critical")
_LEAST = (logging.INFO, logging.INFO + 1, logging.WARNING, logging.ERROR, logging.CRITICAL)

CURRENT: ContextVar[tuple[RequestContext, trio.lowlevel.TrioToken] | None] = ContextVar(
    "the request that is served here"
)
"""The context of the current request, and the Trio run that serves it; None in a task that a request has started, but
that outlives it. Set in the request's task, and so inherited by its child tasks and threads. A handler that waits for
input between two requests keeps its context, but the request in the context changes."""


def severity_of(level: Any) -> int:
    """Return the rank of a level, 0 for the least severe.

    Raises:
        TypeError: If the level is not a string.
        ValueError: If the level is unknown.
    """
    check_choice("a log level", level, SEVERITY)
    return SEVERITY[level]


async def send_log(context: RequestContext, level: str, data: Any, logger: str | None) -> None:
    """Send a log message as part of a request; see `Context.log`."""
    severity = severity_of(level)
    if logger is not None and not isinstance(logger, str):
        raise TypeError(f"logger must be a string, got {logger!r}")
    if not wants_log(context.client, severity):
        await trio.lowlevel.checkpoint()
        return
    try:
        # JSON has neither infinity nor NaN. As strings, these values can at least be read.
        plain = from_json(to_json(data, by_alias=True, inf_nan_mode="strings"))
    except PydanticSerializationError as exc:
        raise TypeError(f"the data of a log message can't be turned into JSON: {exc}") from None
    await context.send_notification("notifications/message", _params(level, plain, logger))


def wants_log(client: ClientDeclaration | None, severity: int) -> bool:
    """Return whether a client wants log messages of this severity."""
    assert client is not None
    # In the legacy era, the level is the one that logging/setLevel has set for the session. In the modern era, it is in
    # the request's _meta, and the rules have no default: a request that asks for no log messages gets none.
    level = client.log_level or client.rules.default_log_level
    return level is not None and severity >= SEVERITY[level]


def _params(level: str, data: Any, logger: str | None) -> dict[str, Any]:
    params = {"level": level, "data": data}
    return params if logger is None else {**params, "logger": logger}


class McpLogHandler(logging.Handler):
    """A handler for Python's `logging` that sends records to the client whose request is being served.

    ``logging.getLogger("myapp").addHandler(McpLogHandler())``

    It sends records logged while a handler of a `Server` runs: in its task, in child tasks, and in the thread of a sync
    tool. Records from elsewhere, after the response, below the level that the client wants, or from this library itself
    are not sent. Only the message of a record is sent; set a formatter to send more, such as tracebacks, if clients may
    see them.

    The handler never waits and never raises: if a client does not read and there is no room left, the record is
    dropped.

    Args:
        level: The least severe level to send, as for any handler.

    Attributes:
        dropped: The number of records dropped for lack of room.
    """

    def __init__(self, level: int | str = logging.NOTSET) -> None:
        super().__init__(level)
        self.dropped = 0
        self._room = threading.BoundedSemaphore(MAX_PENDING_RECORDS)
        self._counting = threading.Lock()
        self._emitting = False

    def emit(self, record: logging.LogRecord) -> None:
        """Send a record, if the client wants it. `logging` calls this with the handler's lock held."""
        current = CURRENT.get(None)
        # _emitting breaks the recursion if sending a record logs another one. A plain attribute is enough, because the
        # handler's lock keeps other threads out, and within one thread nothing is awaited before the attribute is
        # reset.
        if current is None or self._emitting or record.name.partition(".")[0] == "trio_mcp":
            return
        context, token = current
        self._emitting = True
        try:
            # Formatting is the expensive part, so only records that the client wants are formatted.
            level = _level_of(record.levelno)
            if wants_log(context.client, SEVERITY[level]):
                text = self.format(record) if self.formatter is not None else record.getMessage()
                # A lone surrogate can't be encoded as UTF-8, and would make sending the whole message fail.
                text = text.encode("utf-8", "backslashreplace").decode("utf-8")
                self._send(context, token, _params(level, text, record.name))
        except Exception:  # a log call must not fail, so errors are reported as by other handlers
            self.handleError(record)
        finally:
            self._emitting = False

    def _send(self, context: RequestContext, token: trio.lowlevel.TrioToken, params: dict[str, Any]) -> None:
        try:
            here = trio.lowlevel.current_trio_token() is token
        except RuntimeError:  # this thread has no event loop
            here = False
        # In the event loop the record is sent at once, so that log messages and other notifications keep their order.
        if here:
            self._hand_over(context, params)
        elif self._room.acquire(blocking=False):
            # The queue of run_sync_soon is unbounded, so the semaphore limits the number of records in this queue.
            try:
                token.run_sync_soon(self._hand_over_soon, context, params)
            except trio.RunFinishedError:  # a thread that was abandoned may outlive the Trio run
                self._room.release()
        else:
            self._drop()

    def _hand_over_soon(self, context: RequestContext, params: dict[str, Any]) -> None:
        # The record has left Trio's queue, so another record may take its place.
        self._room.release()
        self._hand_over(context, params)

    def _hand_over(self, context: RequestContext, params: dict[str, Any]) -> None:
        taken = context.send_notification_nowait("notifications/message", params)
        # A record that is refused because the request has its response or is cancelled does not count as dropped. A
        # record for which there was no room does.
        if not taken and incoming_of(context).open:
            self._drop()

    def _drop(self) -> None:
        with self._counting:  # the event loop calls this without the handler's lock, threads with that lock
            self.dropped += 1


def _level_of(number: int) -> str:
    """Return the protocol's level for one of the level numbers of `logging`; never alert or emergency."""
    return _LEVELS[bisect.bisect_right(_LEAST, number)]
