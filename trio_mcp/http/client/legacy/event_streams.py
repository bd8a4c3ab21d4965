"""Event streams of the handshake era: one that is read on where it broke off, and the one of HTTP+SSE.

2025-11-25 `basic/transports`, sections Sending Messages, 6, and Resumability and Redelivery; 2024-11-05
`basic/transports`, HTTP with SSE.
"""

from __future__ import annotations

import random
import re
from typing import Final
from urllib.parse import urljoin

import attrs
import trio

from trio_mcp.errors import HttpError, RemoteProtocolError, TransportError
from trio_mcp.http.client.origins import origin_of
from trio_mcp.http.client.posting import Remote, Session, TakeEvent, message_of, refusal_of
from trio_mcp.http.client.wire import Disconnected, HttpResponse
from trio_mcp.http.headers import EVENTS, LAST_EVENT_ID, MAX_URL, shown
from trio_mcp.http.sse import EventDecoder, ServerSentEvent
from trio_mcp.jsonrpc.messages import Failure, Malformed

__all__ = ["EventStream", "endpoint_url", "open_old_stream", "stream_headers"]

MIN_WAIT: Final = 0.1
"""Seconds between two attempts, whatever the server says."""
ENDPOINT_TIMEOUT: Final = 10.0
"""Seconds for a server of HTTP+SSE to say where messages are to be posted."""

_HOPEFUL: Final = frozenset({"busy", "gateway"})
_EVENT_ID = re.compile(r"(?=.{1,4096}\Z)[\x21-\x7e]+(?: +[\x21-\x7e]+)*")


def stream_headers(session: Session | None = None, last_event_id: str = "") -> dict[str, str]:
    """The headers of a GET, or, but for ``Accept``, of a DELETE.

    Raises:
        ValueError: The event id, after which a stream is to go on, can't be sent in a header.
    """
    headers = {"Accept": EVENTS, **(session.headers if session is not None else {})}
    if not last_event_id:
        return headers
    if not _EVENT_ID.fullmatch(last_event_id):
        raise ValueError(f"the event id {shown(last_event_id)} can't be sent back: it is too long or not plain ASCII")
    return {**headers, LAST_EVENT_ID: last_event_id}


@attrs.define(eq=False)
class EventStream:
    """One stream of events, over as many connections as it takes.

    Attributes:
        remote: Where it comes from.
        session: What it belongs to.
        decoder: Of the connection that is, or was, read.
        take: Takes each event.
        opened: It has been open at least once.
        answered: Set when `follow` has had a first answer, of whatever kind.
    """

    remote: Remote
    session: Session
    decoder: EventDecoder
    take: TakeEvent
    opened: bool = False
    answered: trio.Event = attrs.field(factory=trio.Event)
    _finished: bool = False
    _lively: bool = False

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
        while not self._finished:
            if not at_once:
                wait = self.remote.backoff.wait(attempt, random.random, asked)
                if wait is None:
                    why = f"; last: {last}" if last is not None else ""
                    raise TransportError(f"{self._what} was given up after {attempt} further attempts{why}")
                await trio.sleep(max(wait, MIN_WAIT))
                attempt += 1
            at_once, self._lively = False, False
            try:
                await self._connect()
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

    async def _connect(self) -> None:
        """Read one connection to its end."""
        try:
            headers = stream_headers(self.session, self.decoder.last_event_id)
        except ValueError as exc:
            raise TransportError(f"{self._what} can't be gone on with: {exc}") from None
        async with self.remote.wire.exchange("GET", headers) as response:
            self.answered.set()
            if not _is_event_stream(response):
                raise (await refusal_of(response, session=self.session)).error
            self.decoder = self.decoder.resumed()
            self.opened = True
            while chunk := await response.receive():
                for event in self.decoder.feed(chunk):
                    self._lively = True
                    self._finished = await self.take(event)

    @property
    def _what(self) -> str:
        return f"the event stream of {self.remote.wire.shown}"


def _is_event_stream(response: HttpResponse) -> bool:
    """Whether the answer to a GET is a stream of events."""
    return response.status == 200 and response.headers.media_type == EVENTS


# --- HTTP+SSE, 2024-11-05 ---------------------------------------------------------------------------------------------
# One stream for all that comes, POSTs for what goes. This can go when nobody speaks that, together with `sse_client`.


async def open_old_stream(remote: Remote) -> None:
    """Go over to HTTP+SSE.

    Raises:
        TransportError: There is no such stream.
        RemoteProtocolError: What the server sent as its endpoint is none.
    """
    remote.endpoint = await remote.nursery.start(_follow_old_stream, remote)
    remote.answers_here = False


async def _follow_old_stream(remote: Remote, task_status: trio.TaskStatus[str]) -> None:
    """Open the stream, wait for the endpoint, then read; the end of the stream is the end of the link."""
    shown_url, decoder, endpoint = remote.wire.shown, EventDecoder(remote.max_message_size), ""
    lost = TransportError(f"the server ended the event stream of {shown_url}")
    try:
        with trio.CancelScope(deadline=trio.current_time() + ENDPOINT_TIMEOUT) as opening:
            async with remote.wire.exchange("GET", stream_headers()) as response:
                if not _is_event_stream(response):
                    raise (await refusal_of(response)).error
                while chunk := await response.receive():
                    for event in decoder.feed(chunk):
                        if not endpoint:
                            endpoint = _endpoint(remote, event)
                            opening.deadline = float("inf")
                            task_status.started(endpoint)
                        elif (message := message_of(event)) is not None:
                            await remote.deliver(message)
        if opening.cancelled_caught:
            raise TransportError(f"{shown_url} sent no endpoint event within {ENDPOINT_TIMEOUT:g} seconds")
    except TransportError as exc:
        lost = exc
    if not endpoint:
        raise lost
    await remote.deliver(Failure(lost))


def _endpoint(remote: Remote, event: ServerSentEvent | Malformed) -> str:
    if isinstance(event, Malformed) or event.event != "endpoint":
        what = f"the event stream of {remote.wire.shown}"
        raise RemoteProtocolError(f"{what} does not begin with an endpoint event")
    return endpoint_url(remote.wire.url, event.data)


def endpoint_url(stream_url: str, data: bytes) -> str:
    """Read the ``endpoint`` event: where to post messages (2024-11-05 `basic/transports`, HTTP with SSE).

    Raises:
        RemoteProtocolError: It is no URL, or leads to another origin, which would get the credentials of this one.
    """
    try:
        if not 0 < len(data) <= MAX_URL:
            raise ValueError
        url = urljoin(stream_url, data.decode())
        same = origin_of(url) == origin_of(stream_url)
    except ValueError:
        raise RemoteProtocolError("the server's endpoint event holds no URL, or one that is too long") from None
    if not same or any(character <= " " or character == "\x7f" for character in url):
        raise RemoteProtocolError(f"the server's endpoint event leads elsewhere, to {shown(url)}; it is not followed")
    return url
