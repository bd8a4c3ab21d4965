"""Sends HTTP/1.1 requests, and keeps the connections for further requests."""

from __future__ import annotations

import base64
import contextlib
import functools
import os
import re
import select
from collections import deque
from collections.abc import Callable
from http.cookiejar import CookieJar
from typing import Any, Final
from urllib.parse import unquote, urlsplit

import trio

from trio_mcp._platform import SOCKETS_ARE_FILES
from trio_mcp._version import __version__
from trio_mcp.http.client.sending.http1_format import (
    Destination,
    FieldsByName,
    ResponseHead,
    ResponseHeads,
    ResponseReader,
    head_of,
    place_of,
)
from trio_mcp.http.client.sending.sender import (
    CONNECT_TIMEOUT,
    KEPT_ALIVE,
    HeaderFields,
    HttpResponse,
    Written,
    failure,
    text_of,
)
from trio_mcp.http.framing import FramingError
from trio_mcp.lines import CHUNK, read_socket
from trio_mcp.link import connect_problem
from trio_mcp.tls import tls_problem

__all__ = ["Http1Sender"]

MAX_KEPT_ALIVE: Final = 100
"""The maximum number of idle connections that are kept for further requests.

An arbitrary choice: as many as the requests that a link may have under way at once.
"""
EARLIER: Final = 1.5
"""The margin, in seconds, by which the client gives up an idle connection before the server closes it.

An arbitrary choice: a request must reach the server before the server closes the connection.
"""

# Of the methods that this client uses, these are idempotent (RFC 9110, section 9.2.2).
_IDEMPOTENT: Final = frozenset({"GET", "DELETE"})
# If the server has closed the connection, an exchange fails with one of these kinds of failure.
_CLOSED: Final = frozenset({"ReadError", "RemoteProtocolError"})
# The pattern finds the timeout in a field such as `Keep-Alive: timeout=5, max=100`.
_TIMEOUT: Final = re.compile(r"(?:^|,)\s*timeout\s*=\s*(\d{1,9})\s*(?:,|$)", re.IGNORECASE)


class _Failed(Exception):
    """An exchange that failed.

    Args:
        kind: The kind of failure, named after the corresponding exception in httpx.
        text: The reason.
    """

    def __init__(self, kind: str, text: str = "") -> None:
        super().__init__(text)
        self.kind = kind


def _kind_of(exc: _Failed | FramingError) -> str:
    return exc.kind if isinstance(exc, _Failed) else "RemoteProtocolError"


class Http1Sender:
    """A sender of HTTP requests that opens its connections itself, all to one origin.

    It keeps cookies, because a load balancer may use one to find the server that holds the session.

    Args:
        url: The URL of most requests. A name and a password in it are sent as Basic authentication (RFC 7617).
    """

    authorizes = False  # a field of the request replaces the one from the URL

    def __init__(self, url: str) -> None:
        self.fields: HeaderFields = [("User-Agent", f"trio-mcp/{__version__}")]
        parts = urlsplit(url)
        if parts.username is not None:
            credentials = f"{unquote(parts.username)}:{unquote(parts.password or '')}".encode()
            self.fields.append(("Authorization", f"Basic {base64.b64encode(credentials).decode()}"))
        self._heads = ResponseHeads()
        self._place_of = functools.lru_cache(8)(place_of)
        self._cookies: CookieJar | None = None  # None until a server sets a cookie
        self._answered = False
        # Each item is a connection and the time until which it may be used; the connection that has been idle longest
        # comes first. The last connection is used first: it is the least likely to have been closed by now, and the
        # others can expire.
        self._idle: deque[tuple[OutgoingConnection, float]] = deque()

    async def send(
        self,
        method: str,
        url: str,
        fields: FieldsByName,
        content: bytes,
        written: Written | None,
        target: str,
        *,
        keeps_cookies: bool = True,
    ) -> HttpResponse:
        # A call that has already been cancelled must send nothing. The cancellation is checked now, because the first
        # wait is usually the wait for the response.
        await trio.lowlevel.checkpoint_if_cancelled()
        try:
            place = self._place_of(url)
        except ValueError as exc:
            raise failure("InvalidURL", str(exc), target) from None
        if self._cookies is not None:
            fields = self._with_cookie(self._cookies, url, fields)
        try:
            request = head_of(method, place, fields, len(content)) + content
        except ValueError as exc:
            raise failure("LocalProtocolError", str(exc), target) from None
        connection = self._kept()
        try:
            if connection is not None:
                try:
                    head = await connection.exchange(request, target, written)
                except (_Failed, FramingError) as exc:
                    # The server may have closed a kept connection before it read the request, which is then sent again.
                    # Only if a part of the request could not be written is it certain that the server has not acted on
                    # it; but an idempotent request may be sent again in any case (RFC 9110, section 9.2.2).
                    unread = _kind_of(exc) in _CLOSED and not connection.incoming.begun
                    if not unread or (connection.written and method not in _IDEMPOTENT):
                        raise
                    connection = None
            if connection is None:
                connection = await self._connected(place)
                head = await connection.exchange(request, target, written)
        except (_Failed, FramingError) as exc:
            kind, text = _kind_of(exc), str(exc)
            # A request without TLS fails with a RemoteProtocolError if the server expects a TLS handshake.
            if not (self._answered or place.tls) and kind == "RemoteProtocolError":
                text = f"{text.rstrip('.')}; does its URL begin with https://?"
            raise failure(kind, text, target) from None
        self._answered = True
        if keeps_cookies and head.headers.get("set-cookie") is not None:
            try:
                self._keep_cookies(url, head.headers.all("set-cookie"))
            except BaseException:
                connection.close()
                raise
        return HttpResponse(head.status, head.headers, connection, target)

    async def _connected(self, place: Destination) -> OutgoingConnection:
        with trio.move_on_after(CONNECT_TIMEOUT):
            return await OutgoingConnection.to(place, self._heads, self._take_back)
        raise _Failed("ConnectTimeout")

    def _kept(self) -> OutgoingConnection | None:
        while self._idle:
            connection, end = self._idle.pop()
            # A connection that is passed over has expired, is being closed by the server, or has received unsolicited
            # bytes.
            if end > trio.current_time() and connection.is_quiet():
                return connection
            connection.close()
        return None

    def _take_back(self, connection: OutgoingConnection, said: str | None) -> None:
        """Keep a connection until shortly before the server closes it (``Keep-Alive``), or else for `KEPT_ALIVE`."""
        timeout = _TIMEOUT.search(said) if said else None
        seconds = KEPT_ALIVE if timeout is None else int(timeout[1]) - EARLIER
        now = trio.current_time()
        self._idle.append((connection, now + seconds))
        # One connection has been added, so closing one connection is enough to keep their number bounded, and no
        # exchange has to close many connections.
        oldest, end = self._idle[0]
        if len(self._idle) > MAX_KEPT_ALIVE or end <= now:
            self._idle.popleft()
            oldest.close()

    def _keep_cookies(self, url: str, values: list[str]) -> None:
        # The module for cookies is imported only now, because most servers set no cookies.
        from trio_mcp.http.client.sending.cookies import BoundedCookies, keep_cookies

        if self._cookies is None:
            self._cookies = BoundedCookies()
        keep_cookies(self._cookies, url, values)

    def _with_cookie(self, jar: CookieJar, url: str, fields: FieldsByName) -> FieldsByName:
        from trio_mcp.http.client.sending.cookies import cookie_for

        cookie = cookie_for(jar, url)
        if cookie is None:
            return fields
        if "cookie" in fields:  # join the caller's: there is only one Cookie field (RFC 6265, section 5.4)
            cookie = f"{fields['cookie'][1]}; {cookie}"
        return {**fields, "cookie": ("Cookie", cookie)}

    def close(self) -> None:
        """Close all idle connections; call this only when no request is under way."""
        while self._idle:
            self._idle.pop()[0].close()


class OutgoingConnection:
    """A connection to a server, for one exchange after another. An exchange that fails closes it.

    During an exchange, it also serves as the body of the response.

    Args:
        stream: The stream that carries the exchanges.
        plain: The same stream or, if that is a TLS stream, the underlying one.
        heads: The parser of response heads.
        keep: Keeps the connection after an exchange; called with the connection, and the value of ``Keep-Alive`` or
            None.

    Attributes:
        incoming: The bytes of the current response.
        written: Whether all of the current request has been handed to the system.
    """

    __slots__ = (
        "_descriptor",
        "_direct",
        "_head",
        "_heads",
        "_keep",
        "_plain",
        "_poll",
        "_stream",
        "_target",
        "incoming",
        "written",
    )
    incoming: ResponseReader
    _head: ResponseHead

    def __init__(
        self,
        stream: trio.abc.Stream,
        plain: trio.SocketStream,
        heads: ResponseHeads,
        keep: Callable[[OutgoingConnection, str | None], object],
    ) -> None:
        self._stream = stream
        self._plain = plain
        self._heads = heads
        self._keep = keep
        self._descriptor = plain.socket.fileno()
        self._poll: Any = None
        if SOCKETS_ARE_FILES:
            self._poll = select.poll()  # unlike `select`, `poll` works for descriptors of any number
            self._poll.register(self._descriptor, select.POLLIN)
        # Without TLS, system calls on the socket replace the stream's methods: they return at once, while the methods
        # may wait and let other tasks run.
        self._direct = SOCKETS_ARE_FILES and stream is plain
        self._target = ""
        self.written = False

    @classmethod
    async def to(
        cls, place: Destination, heads: ResponseHeads, keep: Callable[[OutgoingConnection, str | None], object]
    ) -> OutgoingConnection:
        """Connect to a destination, with TLS if its URL asks for it.

        Raises:
            _Failed: If the connection can't be made.
        """
        try:
            plain = await trio.open_tcp_stream(place.host, place.port)
        except (OSError, UnicodeError) as exc:  # UnicodeError: the name can't be encoded (IDNA)
            raise _Failed("ConnectError", connect_problem(exc)) from None
        if not place.tls:
            return cls(plain, plain, heads, keep)
        from trio_mcp.http.client.sending.on_httpx import trusting  # noqa: ASYNC127 - plain HTTP needs no httpx

        try:
            # https_compatible is needed because many servers close without a TLS close_notify; HTTP itself marks the
            # end of a body.
            stream = trio.SSLStream(plain, trusting(), server_hostname=place.host, https_compatible=True)
            await stream.do_handshake()
        except (OSError, ValueError, trio.BrokenResourceError) as exc:  # trusted certificates may be unreadable, too
            plain.socket.close()
            raise _Failed("ConnectError", tls_problem(text_of(exc), "http://")) from None
        except BaseException:
            plain.socket.close()
            raise
        return cls(stream, plain, heads, keep)

    def is_quiet(self) -> bool:
        """Return whether the server has neither closed the connection nor sent anything since the last response."""
        if self._poll is None:
            return not select.select([self._descriptor], [], [], 0)[0]
        return not self._poll.poll(0)

    def close(self) -> None:
        """Close the connection at once."""
        # RFC 9112, section 9.8, asks for a TLS close_notify, but none is sent, because that might mean waiting for the
        # server.
        self._plain.socket.close()

    async def exchange(self, request: bytes, target: str, written: Written | None) -> ResponseHead:
        """Send a request, and return the head of the response.

        Args:
            request: The bytes of the request.
            target: The method and the URL for messages.
            written: Called once all of the request has been handed to the system.

        Raises:
            _Failed: If the connection fails.
            FramingError: If the response is refused.
        """
        self._target, self.written, incoming = target, False, ResponseReader(self._heads)
        self.incoming = incoming
        try:
            await self._write(request)
            if self.written and written is not None:
                written()
            while (head := incoming.head(await self._read())) is None:
                pass
        except BaseException:
            self.close()
            raise
        self._head = head
        return head

    async def receive(self) -> bytes:
        """Return the next part of the body; return empty bytes at the end of the body.

        Raises:
            Disconnected: If the connection is lost before the body ends.
        """
        data, incoming = b"", self.incoming
        try:
            while not incoming.complete:
                if content := incoming.body(data):
                    return content
                if not incoming.complete:
                    data = await self._read()
        except (_Failed, FramingError) as exc:
            raise failure(_kind_of(exc), str(exc), self._target) from None
        return b""

    async def aclose(self) -> None:
        """End the exchange: keep the connection for the next one, or close it."""
        if self.written and self.incoming.reusable:
            self._keep(self, self._head.headers.get("keep-alive"))
        else:
            self.close()

    async def _write(self, data: bytes) -> None:
        sent = 0
        if self._direct:
            # The system nearly always takes all of the data at once, which needs no deadline and no iteration of the
            # event loop. If its buffer is full, or the connection is broken, the stream sends the remaining data, or
            # reports the failure.
            with contextlib.suppress(OSError):
                sent = os.write(self._descriptor, data)
        if sent < len(data):
            try:
                with trio.move_on_after(CONNECT_TIMEOUT) as scope:
                    await self._stream.send_all(memoryview(data)[sent:])
            except trio.BrokenResourceError:
                return  # the server may have refused the request before reading all of it: read the refusal
            if scope.cancelled_caught:
                raise _Failed("WriteTimeout")
        self.written = True

    async def _read(self) -> bytes:
        """Wait for bytes, and return them; return empty bytes if the server closed the connection where it may."""
        try:
            data = bytes(await (read_socket(self._plain.socket) if self._direct else self._stream.receive_some(CHUNK)))
        except (OSError, trio.BrokenResourceError) as exc:
            raise _Failed("ReadError", text_of(exc)) from None
        if not data:
            self.incoming.end()
        return data
