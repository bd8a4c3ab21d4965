"""Log messages to the client of a request (`server/utilities/logging`), and a standard handler that sends them."""

from __future__ import annotations

import logging
import threading
from contextvars import ContextVar
from typing import Any

import trio
from pydantic_core import PydanticSerializationError, from_json, to_json

from trio_mcp.eras.server_negotiation import LOG_LEVELS, ClientDeclaration
from trio_mcp.session.handlers import RequestContext

__all__ = ["CURRENT", "SEVERITY", "McpLogHandler", "send_log", "severity_of", "wants_log"]

MAX_PENDING_RECORDS = 1000
"""Records of one handler that other threads have emitted and the event loop has not taken yet."""

SEVERITY = {level: number for number, level in enumerate(LOG_LEVELS)}

CURRENT: ContextVar[tuple[RequestContext, trio.lowlevel.TrioToken]] = ContextVar("the request that is served here")
"""The context of the request, whose request may change (`parking`), and the run of Trio that serves
it: in the task of the request, so in its child tasks and threads."""


def severity_of(level: object) -> int:
    """The place of a level among the levels, 0 for the least severe.

    Raises:
        ValueError: There is no such level.
    """
    severity = SEVERITY.get(level) if isinstance(level, str) else None
    if severity is None:
        raise ValueError(f"a log level must be one of {', '.join(LOG_LEVELS)}; got {level!r}")
    return severity


async def send_log(context: RequestContext, level: str, data: Any, logger: str | None) -> None:
    """Send a log message that belongs to a request. See `Context.log`."""
    severity = severity_of(level)
    if logger is not None and not isinstance(logger, str):
        raise TypeError(f"logger must be a string, got {logger!r}")
    if not wants_log(context.client, severity):
        await trio.lowlevel.checkpoint()
        return
    try:
        # JSON has no infinity and no NaN: as text they can at least be read.
        plain = from_json(to_json(data, by_alias=True, inf_nan_mode="strings"))
    except PydanticSerializationError as exc:
        raise TypeError(f"the data of a log message can't be turned into JSON: {exc}") from None
    await context.send_notification("notifications/message", _params(level, plain, logger))


def wants_log(client: ClientDeclaration | None, severity: int) -> bool:
    """Whether a client wants log messages of a severity."""
    assert client is not None
    level = client.log_level or client.rules.default_log_level
    return level is not None and severity >= SEVERITY[level]


def _params(level: str, data: Any, logger: str | None) -> dict[str, Any]:
    params = {"level": level, "data": data}
    return params if logger is None else {**params, "logger": logger}


class McpLogHandler(logging.Handler):
    """A handler for Python's `logging` that sends records to the client of the request that is being served.

    ``logging.getLogger("myapp").addHandler(McpLogHandler())``

    It takes what is logged while a handler of a `Server` runs: in its task, in child tasks, and in the thread of a sync
    tool. What is logged elsewhere, after the answer, below the level that the client wants, or by this library itself,
    is not sent. A record becomes its message alone; set a formatter to send more, such as tracebacks, which clients
    may not be meant to see.

    Logging never waits and never fails because of it: what a client that does not read leaves no room for is dropped.

    Args:
        level: The least severe record to send, as for any handler.

    Attributes:
        dropped: How many records were dropped because there was no room.
    """

    def __init__(self, level: int | str = logging.NOTSET) -> None:
        super().__init__(level)
        self.dropped = 0
        self._room = threading.BoundedSemaphore(MAX_PENDING_RECORDS)
        self._counting = threading.Lock()
        self._emitting = False

    def emit(self, record: logging.LogRecord) -> None:
        """Send a record, if somebody wants it. `logging` calls this with the handler's lock held."""
        current = CURRENT.get(None)
        # A link that logs as it sends would come back here forever.
        if current is None or self._emitting or record.name.partition(".")[0] == "trio_mcp":
            return
        context, token = current
        self._emitting = True
        try:
            level = _level_of(record.levelno)
            if wants_log(context.client, SEVERITY[level]):
                text = self.format(record) if self.formatter is not None else record.getMessage()
                # What has no UTF-8 form would fail the message.
                text = text.encode("utf-8", "backslashreplace").decode("utf-8")
                self._send(context, token, _params(level, text, record.name))
        except Exception:
            self.handleError(record)
        finally:
            self._emitting = False

    def _send(self, context: RequestContext, token: trio.lowlevel.TrioToken, params: dict[str, Any]) -> None:
        try:
            here = trio.lowlevel.current_trio_token() is token
        except RuntimeError:
            here = False
        if here:
            self._hand_over(context, params)
        elif self._room.acquire(blocking=False):
            try:
                token.run_sync_soon(self._hand_over_soon, context, params)
            except trio.RunFinishedError:
                self._room.release()
        else:
            self._drop()

    def _hand_over_soon(self, context: RequestContext, params: dict[str, Any]) -> None:
        self._room.release()
        self._hand_over(context, params)

    def _hand_over(self, context: RequestContext, params: dict[str, Any]) -> None:
        taken = context.send_notification_nowait("notifications/message", params)
        if not taken and not context.incoming.answered and not context.cancel_scope.cancel_called:
            self._drop()

    def _drop(self) -> None:
        with self._counting:
            self.dropped += 1


def _level_of(number: int) -> str:
    """The level of the protocol for one of `logging`, which has no notice, alert and emergency."""
    if number >= logging.CRITICAL:
        return "critical"
    if number >= logging.ERROR:
        return "error"
    if number >= logging.WARNING:
        return "warning"
    if number > logging.INFO:
        return "notice"
    return "info" if number == logging.INFO else "debug"
