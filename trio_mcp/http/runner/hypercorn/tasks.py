"""Runs the application in tasks, for hypercorn."""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, Protocol

import trio
from hypercorn.config import Config
from hypercorn.typing import ASGIReceiveEvent, Scope

from trio_mcp._log import logger
from trio_mcp.http.server.asgi import EXTRAS, Extras

__all__ = ["ConnectionTasks"]


class _Connection(Protocol):
    """The part of a connection that a request uses beyond ASGI; see `Extras`."""

    async def take_over(self) -> tuple[trio.abc.Stream, bytes]: ...

    def send_nowait(self, piece: bytes) -> bool: ...


class Events(Extras):
    """The events of a request on their way from the connection to the application.

    A memory channel would also do, but making its two ends would cost more than passing the few events of a request.

    Args:
        most: How many events may wait. When that many wait, the connection stops reading, which slows the client down.
        connection: The connection of the request.

    Attributes:
        taken: Whether the application has taken the connection over.
    """

    def __init__(self, most: int, connection: _Connection) -> None:
        self._most = most
        self._connection = connection
        self.taken = False
        self._waiting: deque[MutableMapping[str, Any]] = deque()
        self._changed: trio.lowlevel.ParkingLot | None = None  # made when needed: usually no task waits
        self._ended = False  # whether no more events will come
        self._unwanted = False  # whether the application has ended

    def receive_nowait(self) -> MutableMapping[str, Any] | None:
        if self._waiting:
            self._wake()
            return self._waiting.popleft()
        return {"type": "http.disconnect"} if self._ended else None

    async def receive(self) -> MutableMapping[str, Any]:
        """Return the next event (`receive` of ASGI)."""
        while (event := self.receive_nowait()) is None:
            await self._change()
        return event

    async def take_over(self) -> tuple[trio.abc.Stream, bytes]:
        found = await self._connection.take_over()
        self.taken = True
        return found

    def send_nowait(self, piece: bytes) -> bool:
        return self._connection.send_nowait(piece)

    async def put(self, event: ASGIReceiveEvent) -> None:
        """Hand an event to the application; wait while too many events are waiting already."""
        # Events that are waiting stay, and are read before a disconnect.
        if event["type"] == "http.disconnect":
            # This must not wait: it may run in the application's own task, while the application sends the end of its
            # response with the request partly unread.
            self._ended = True
            self._wake()
            self.happened()
            return
        while len(self._waiting) >= self._most and not self._unwanted:
            await self._change()
        if not self._unwanted:
            self._waiting.append(event)  # type: ignore[arg-type]
            self._wake()

    def drop(self) -> None:
        """Drop what the application has left unread, now and later, so that the connection never waits for it."""
        self._unwanted = True
        self._waiting.clear()
        self._wake()

    async def _change(self) -> None:
        if self._changed is None:
            self._changed = trio.lowlevel.ParkingLot()
        await self._changed.park()

    def _wake(self) -> None:
        if self._changed is not None:
            self._changed.unpark_all()


class ConnectionTasks:
    """The task group in which hypercorn starts its tasks.

    Unlike hypercorn's own task group, this one lets no task wait for a body that the application leaves unread, and an
    exception ends only its exchange.

    Args:
        nursery: The nursery of the connection.
        connection: The connection.
    """

    def __init__(self, nursery: trio.Nursery, connection: _Connection) -> None:
        self.spawn = nursery.start_soon
        self._connection = connection

    async def spawn_app(
        self, app: Any, config: Config, scope: Scope, send: Callable[[Any], Awaitable[None]]
    ) -> Callable[[ASGIReceiveEvent], Awaitable[None]]:
        events = Events(config.max_app_queue_size, self._connection)
        if scope["type"] == "http":
            scope["extensions"][EXTRAS] = events  # type: ignore[assignment]
        # The application is not awaited here: hypercorn has yet to read the body, for which the application waits.
        self.spawn(_run, app, scope, events, send)
        return events.put


async def _run(app: Any, scope: Any, events: Events, send: Callable[[Any], Awaitable[None]]) -> None:
    try:
        await app(scope, events.receive, send)
    except Exception as exc:
        logger.exception("%s %s failed", scope.get("method"), scope.get("path"), exc_info=exc)
    finally:
        # The events are dropped before the end is sent: the reader may be waiting in `put` for room, and must continue.
        events.drop()
    # None tells hypercorn that the application has ended; it sends a 500 if there was no response.
    if not events.taken:
        await send(None)
