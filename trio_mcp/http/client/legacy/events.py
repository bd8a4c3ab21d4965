"""Event streams of the handshake era: read on after a break, where it broke off, for as long as there is hope.

2025-11-25 `basic/transports`, sections Sending Messages, 6, and Resumability and Redelivery.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from typing import Final

import attrs
import trio

from trio_mcp.errors import HttpError, TransportError
from trio_mcp.http.client.wire import Disconnected, HttpResponse, HttpWire
from trio_mcp.http.headers import EVENTS
from trio_mcp.http.sse import EventDecoder, ServerSentEvent
from trio_mcp.jsonrpc.messages import Malformed
from trio_mcp.retrying import Backoff

__all__ = ["EventStream", "is_event_stream"]

MIN_WAIT: Final = 0.1
"""Seconds between two attempts, whatever the server says."""

_HOPEFUL: Final = frozenset({"busy", "gateway"})


def is_event_stream(response: HttpResponse) -> bool:
    """Whether the answer to a GET is a stream of events."""
    kind = (response.headers.get("Content-Type") or "").partition(";")[0].strip().lower()
    return response.status == 200 and kind == EVENTS


@attrs.define(eq=False)
class EventStream:
    """One stream of events, over as many connections as it takes.

    Attributes:
        wire: Where the connections are made.
        decoder: Of the connection that is, or was, read.
        take: Takes each event.
        headers: The headers of a GET that goes on after an event with this id.
        failure: Reads an answer that is no stream.
        backoff: How long to wait between connections, and how often.
        opened: It has been open at least once.
        finished: Nothing more is wanted of it.
        answered: Set when `follow` has had a first answer, of whatever kind.
    """

    wire: HttpWire
    decoder: EventDecoder
    take: Callable[[ServerSentEvent | Malformed], Awaitable[None]]
    headers: Callable[[str], dict[str, str]]
    failure: Callable[[HttpResponse], Awaitable[HttpError]]
    backoff: Backoff
    opened: bool = False
    finished: bool = False
    answered: trio.Event = attrs.field(factory=trio.Event)
    _lively: bool = False

    async def read(self, response: HttpResponse) -> None:
        """Read one connection to its end.

        Raises:
            Disconnected: It broke.
        """
        self.opened = True
        while chunk := await response.receive():
            for event in self.decoder.feed(chunk):
                self._lively = True
                await self.take(event)

    async def follow(self, *, at_once: bool) -> None:
        """Connect, read, and connect again until nothing more is wanted.

        Args:
            at_once: The first connection is made without waiting.

        Raises:
            HttpError: The server refuses to go on.
            TransportError: It was tried as often as is worth it.
        """
        attempt, asked = 0, self.decoder.retry
        last: Exception | None = None
        while not self.finished:
            if not at_once:
                wait = self.backoff.wait(attempt, random.random, asked)
                if wait is None:
                    why = f"; last: {last}" if last is not None else ""
                    text = f"the event stream of {self.wire.shown} was given up after {attempt} further attempts{why}"
                    raise TransportError(text)
                await trio.sleep(max(wait, MIN_WAIT))
                attempt += 1
            at_once, self._lively = False, False
            try:
                async with self.wire.exchange("GET", self.headers(self.decoder.last_event_id)) as response:
                    self.answered.set()
                    if not is_event_stream(response):
                        raise await self.failure(response)
                    self.decoder = self.decoder.resumed()
                    await self.read(response)
                    last = None
            except Disconnected as exc:
                last = exc
            except HttpError as exc:
                if exc.trouble not in _HOPEFUL and exc.status < 500:
                    raise
                last, asked = exc, exc.retry_after
                continue
            if self._lively:
                attempt = 0
            asked = self.decoder.retry
