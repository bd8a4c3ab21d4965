"""HTTP exchanges of a client with one server, on httpx or on httpx2, its fork with the same interface.

Nothing here knows MCP. Exceptions of httpx become a `Disconnected`; redirections within the origin are followed, others
are returned like any response; a body is read up to a limit; and a connection whose response was read to its end is
used again, unless the server may be about to close it.
"""

from __future__ import annotations

import base64
import contextlib
import functools
import os
import re
import ssl
import sys
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from http.cookiejar import Cookie, CookieJar
from typing import TYPE_CHECKING, Any, Final, Protocol, Self, TypeAlias
from urllib.parse import unquote, urljoin, urlsplit

import attrs
import trio

from trio_mcp._checks import as_written, without_credentials
from trio_mcp._log import logger
from trio_mcp._nursery import closing
from trio_mcp._version import __version__
from trio_mcp.errors import MessageTooLarge, TransportError
from trio_mcp.http.client.auth import Attempt, Auth, Signer, opened
from trio_mcp.http.client.origins import origin_of
from trio_mcp.http.client.parameters import HttpServerParameters
from trio_mcp.http.headers import MAX_URL, Headers, shown

if TYPE_CHECKING:
    import httpx  # noqa: ASYNC127 - the one that this package depends on

__all__ = ["Disconnected", "HttpResponse", "HttpWire", "http_wire", "parts_of", "trusting"]

MAX_REDIRECTS: Final = 5  # chosen: the limit that RFC 2068, section 10.3, once recommended
CONNECT_TIMEOUT: Final = 30.0
"""Seconds to connect, and for the server to accept what is written. Chosen; the time for a response is up to the
session."""
MAX_KEPT_ALIVE: Final = 100
"""Connections kept for further requests. Chosen: as many as a link has requests under way at once."""
KEPT_ALIVE: Final = 3.0
"""Seconds for which a connection is used again if the server does not say for how long; many keep it for five."""
EARLIER: Final = 1.5
"""Seconds before the server closes a connection at which it is no longer used. Chosen: the time for a request to get
there."""
READ_BURST: Final = 64
"""Parts of a body read before other tasks run. Chosen, as in the session's reader."""
MAX_COOKIES: Final = 50
MAX_COOKIE: Final = 4096
"""Characters of a name and its value. Both limits are those of RFC 6265, section 6.1."""

MAX_REFUSAL: Final = 64 * 1024
"""Bytes kept of the body of a refusal while another authorization is looked for."""
REFUSAL_TIMEOUT: Final = 5.0
"""Seconds that the body of such a refusal may take. Both are chosen; the body is for an error message alone."""

_FOLLOWED: Final[dict[str, frozenset[int]]] = {
    "GET": frozenset({301, 302, 303, 307, 308}),
    # Only the statuses that keep the method and the body (RFC 9110, section 15.4).
    "POST": frozenset({307, 308}),
}
# The statuses that ask for (another) authorization; RFC 9110, section 15.5.
_REFUSED: Final = frozenset({401, 403})
# The exceptions raised before anything has been sent, and those raised if the connection is closed under a request. By
# name, because the two packages have classes of their own.
_UNSENT: Final = frozenset({"ConnectError", "ConnectTimeout", "PoolTimeout", "UnsupportedProtocol", "ProxyError"})
_CLOSED: Final = frozenset({"ReadError", "RemoteProtocolError", "WriteError"})
# Of the methods used here (RFC 9110, section 9.2.2).
_IDEMPOTENT: Final = frozenset({"GET", "DELETE"})
# As in `Keep-Alive: timeout=5, max=100`.
_TIMEOUT: Final = re.compile(r"(?:^|,)\s*timeout\s*=\s*(\d{1,9})\s*(?:,|$)", re.IGNORECASE)

Fields: TypeAlias = list[tuple[str, str]]
"""The names and values of header fields."""
Held: TypeAlias = Callable[[bool], object]
"""See `HttpWire.exchange`."""
Sent: TypeAlias = tuple[Any, Callable[[], Awaitable[None]]]
"""A response whose body has not been read, and a function that takes its connection back when it has been closed."""


class Disconnected(TransportError):
    """The connection could not be made, or broke before the end of the response."""

    @classmethod
    def by(cls, exc: Exception, target: str) -> Disconnected:
        """Translate an exception of httpx."""
        kind, text = type(exc).__name__, _text_of(exc)
        error = cls(f"{target} failed: {f'{kind}: {text}' if text else kind}")
        error.sent = kind not in _UNSENT
        return error


def _text_of(exc: BaseException) -> str:
    """Return the text of an exception, or of its cause: httpx's own is empty if, say, a certificate is invalid."""
    behind: BaseException | None = exc
    while behind is not None and not str(behind):
        behind = behind.__cause__ or behind.__context__
    return str(behind or "")


def _shown(url: str) -> str:
    """Return a URL for a message, without the parts that may be secret: the query and a password."""
    parts = urlsplit(as_written(url))
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}".removeprefix("://")


class HttpResponse:
    """The head of an HTTP response, and its body as it arrives.

    Attributes:
        status: The HTTP status.
        headers: The header fields.
        target: The HTTP method and URL of the request, without secrets.
        asked: The header fields of the request, by name in lower case.
        has_two_ends: Whether two fields say where the body ends (RFC 9112, section 6.3).
    """

    def __init__(self, sent: Sent, target: str, failures: tuple[type[Exception], ...]) -> None:
        response, take_back = sent
        self.status: int = response.status_code
        self.headers = Headers(response.headers.raw)
        self.has_two_ends = "transfer-encoding" in response.headers and "content-length" in response.headers
        self.target = target
        self.asked: Mapping[str, tuple[str, str]] = {}
        self._response = response
        self._take_back = take_back
        self._chunks: AsyncIterator[bytes] | None = None  # until the first part is read
        self._failures = failures
        self._parts = 0
        self._ended = False
        self._closed = False
        self._kept: bytes | None = None  # the body, if the connection has been released

    async def receive(self) -> bytes:
        """Return the next part of the body; empty at its end.

        Raises:
            Disconnected: If it broke off.
        """
        if self._kept is not None:
            content, self._kept = self._kept, b""
            return content
        if self._chunks is None:
            self._chunks = aiter(self._response.stream)
        try:
            while True:
                self._parts += 1
                # Parts that have arrived already come without a checkpoint, so a fast server could starve other tasks.
                if self._parts % READ_BURST == 0:
                    await trio.lowlevel.checkpoint()
                if chunk := await anext(self._chunks):
                    return chunk
        except StopAsyncIteration:
            self._ended = True
            return b""
        except self._failures as exc:
            raise Disconnected.by(exc, self.target) from None

    async def body(self, limit: int) -> bytes:
        """Return the whole body.

        Raises:
            MessageTooLarge: If it is longer than ``limit`` bytes.
            Disconnected: If it broke off.
        """
        found = bytearray()
        while chunk := await self.receive():
            found += chunk
            if len(found) > limit:
                raise MessageTooLarge(limit)
        return bytes(found)

    async def keep(self, limit: int, seconds: float) -> None:
        """Read the `beginning` of the body and release the connection; then the rest is read from there."""
        content = await self.beginning(limit, seconds)
        await self.aclose()
        self._kept = content  # last: what failed has no rest

    async def beginning(self, limit: int, seconds: float) -> bytes:
        """Return the beginning of the body: up to ``limit`` bytes, and what has come after this many seconds."""
        found = bytearray()
        with trio.move_on_after(seconds), contextlib.suppress(Disconnected):
            while len(found) < limit and (chunk := await self.receive()):
                found += chunk
        return bytes(found[:limit])

    def masked(self, text: bytes) -> bytes:
        """Return a text of the server without the credentials of the request: some servers repeat what they refuse."""
        return without_credentials(text, self.asked.values())

    async def aclose(self) -> None:
        """Release the connection, and close it unless the body has been read to its end."""
        if self._closed:
            return
        self._closed = True
        # The transport is taken back in any case; otherwise a cancelled exchange would leave its connection open.
        try:
            if self._chunks is not None and not self._ended:
                await self._unwind(self._chunks)
            with contextlib.suppress(*self._failures):
                await self._response.aclose()
        except BaseException:
            async with closing(self._take_back):
                raise
        await self._take_back()

    async def _unwind(self, chunks: AsyncIterator[bytes]) -> None:
        """Finish the generators of a body that was not read to its end.

        httpx nests several of them. Closing the outer one would leave the others to the garbage collector, which can't
        await; a cancellation unwinds all of them.
        """
        with trio.CancelScope() as scope:
            scope.cancel("the rest of the response is not needed")
            with contextlib.suppress(*self._failures):
                async for _ in chunks:
                    self._parts += 1
                    if self._parts % READ_BURST == 0:
                        # Shielded: the cancellation has to be raised inside the generators, not here.
                        await trio.lowlevel.cancel_shielded_checkpoint()


class HttpWire:
    """Makes HTTP exchanges with one origin.

    Args:
        sender: Sends the requests.
        parameters: The default URL, and the headers of each request.
        signer: Authorizes the requests.

    Attributes:
        url: The default URL.
        shown: The same for messages, without the parts that may be secret.
    """

    def __init__(self, sender: Sender, parameters: HttpServerParameters, signer: Signer | None = None) -> None:
        self._sender = sender
        self._signer = signer
        # No compression: a body may unpack to a thousand times its size, before any limit on its length applies.
        own = [*sender.fields, *parameters.headers.items(), ("Accept-Encoding", "identity")]
        # By lower case: names of fields are case-insensitive (RFC 9110, section 5.1), and later ones replace earlier.
        self._own = {name.lower(): (name, value) for name, value in own}
        self.url = parameters.url
        self.shown = _shown(self.url)

    @contextlib.asynccontextmanager
    async def exchange(
        self,
        method: str,
        headers: Mapping[str, str],
        content: bytes = b"",
        *,
        url: str | None = None,
        written: Callable[[], object] | None = None,
        held: Held | None = None,
    ) -> AsyncIterator[HttpResponse]:
        """Send a request and yield the head of the response.

        When cancelled, or if the block is left before the body has ended, the connection is closed. `written` is called
        once all of the request has been handed to the connection. `held` is called with True before the request waits
        for its authorization, so that the server has nothing of it to carry out, and with False before it is sent.

        Raises:
            AuthorizationError: If the server asks for an authorization that could not be obtained.
            Disconnected: If the connection could not be made, or broke, also within the block.
            TransportError: If a hook of the caller's client failed, or the response can't be read.
        """
        url = self.url if url is None else url
        fields = dict(self._own)
        for name, value in headers.items():
            fields[name.lower()] = name, value
        attempt = None if self._signer is None else self._signer.attempt()
        redirections = 0
        # The credentials of the caller go along, so only redirections within the origin are followed (`_redirection`).
        while True:
            signed = fields if attempt is None else await _signed(fields, attempt, method, url, held)
            response = await self._send(method, url, list(signed.values()), content, written)
            response.asked = signed
            try:
                packed = response.headers.get("Content-Encoding") or "identity"
                if packed.lower() != "identity":
                    raise TransportError(
                        f"{response.target} was answered with a body encoded as {shown(packed)}, although only"
                        " identity was accepted"
                    )
                # The sign of an attempt at response splitting or smuggling (RFC 9112, section 6.3).
                if response.has_two_ends:
                    raise TransportError(
                        f"{response.target} was answered with both Content-Length and Transfer-Encoding, which leaves"
                        " it unclear where the response ends"
                    )
                # Beyond the limit, a redirection is a response like any other, which the caller reports.
                elsewhere = None
                if redirections < MAX_REDIRECTS and response.status in _FOLLOWED.get(method, ()):
                    elsewhere = _redirection(url, response)
                    redirections += 1
                elif attempt is not None and await _again(response, attempt, held):
                    elsewhere = url
                if elsewhere is None:
                    yield response
            except BaseException:
                async with closing(response.aclose):
                    raise
            # Without an exception the close may raise its own. The response of a redirection is closed here, too.
            await response.aclose()
            if elsewhere is None:
                return
            url = elsewhere

    async def _send(
        self, method: str, url: str, fields: Fields, content: bytes, written: Callable[[], object] | None
    ) -> HttpResponse:
        target = f"{method} {self.shown if url == self.url else _shown(url)}"
        failures = self._sender.failures
        try:
            sent = await self._sender.send(method, url, fields, content, written)
        except failures as exc:
            raise Disconnected.by(exc, target) from None
        except Exception as exc:  # from a hook of the caller's client, such as authentication
            logger.error("%s failed", target, exc_info=exc)
            raise TransportError(f"{target} failed: {type(exc).__name__}: {exc}") from exc
        return HttpResponse(sent, target, failures)


async def _signed(
    fields: dict[str, tuple[str, str]], attempt: Attempt, method: str, url: str, held: Held | None
) -> dict[str, tuple[str, str]]:
    """Return the fields of a request, and those that authorize it."""
    if held is not None:
        held(True)
    given = await attempt.fields(method, url)
    if held is not None:
        held(False)
    return fields | {name.lower(): (name, value) for name, value in given}


async def _again(response: HttpResponse, attempt: Attempt, held: Held | None) -> bool:
    """Return whether to send a request once more, with another authorization."""
    if response.status in _REFUSED:
        # A person may take minutes, and the body may be needed after that.
        await response.keep(MAX_REFUSAL, REFUSAL_TIMEOUT)
        if held is not None:
            held(True)
    return await attempt.again(response.status, response.headers)


def _redirection(url: str, response: HttpResponse) -> str | None:
    """Return the URL that a redirection leads to; None if it is another origin, which must not get our credentials."""
    location = response.headers.get("Location") or ""
    if len(location) > MAX_URL:
        return None
    try:
        target = urljoin(url, location)
        return target if origin_of(target) == origin_of(url) and target != url else None
    except ValueError:
        return None


# --- senders --------------------------------------------------------------------------------------------------------
# Sending through an ``AsyncClient`` of httpx 0.28 costs half as much again as sending through a transport, as measured,
# and a transport looks at every one of its connections for every request. So unless the caller supplies a client, there
# is one transport for each exchange under way, each with one connection.


class BoundedCookies(CookieJar):
    """A bounded cookie jar: oversized cookies are ignored, and one more than `MAX_COOKIES` clears the jar."""

    def set_cookie(self, cookie: Cookie) -> None:
        """Keep a cookie, within the limits."""
        # The server sets them, so without limits it could make every request ever larger.
        if len(cookie.name) + len(cookie.value or "") > MAX_COOKIE:
            return
        if len(self) >= MAX_COOKIES:
            self.clear()
        super().set_cookie(cookie)


class Sender(Protocol):
    """A sender of HTTP requests.

    Attributes:
        fields: Default header fields for each request.
        failures: The exceptions that `send` and the body of its response raise.
    """

    fields: Fields
    failures: tuple[type[Exception], ...]

    async def send(
        self, method: str, url: str, fields: Fields, content: bytes, written: Callable[[], object] | None
    ) -> Sent:
        """Send a request and wait for the head of the response; redirections are not followed."""


class ClientSender:
    """A sender on the caller's ``AsyncClient``, with its proxies, authentication and so on.

    Raises:
        TypeError: If it is not a client of httpx or httpx2.
    """

    def __init__(self, client: Any) -> None:
        package = sys.modules[_package(client)]
        self.fields: Fields = []
        self.failures, self._content = parts_of(package)
        self._client = client
        given = client.timeout
        # The time for a response is up to the session (`read`), and the number of exchanges up to the link (`pool`).
        # Of the same class as the client's own, which differs between the two packages.
        self._timeout = type(given)(connect=given.connect, write=given.write, read=None, pool=None)

    async def send(
        self, method: str, url: str, fields: Fields, content: bytes, written: Callable[[], object] | None
    ) -> Sent:
        request = self._client.build_request(method, url, headers=fields, content=content, timeout=self._timeout)
        # See `parts_of`: httpx's own body would be an async generator.
        request.stream = self._content(content, written)
        response = await self._client.send(request, stream=True, follow_redirects=False)
        return response, _nothing_to_take_back


class TransportSender:
    """A sender on transports of its own.

    It keeps cookies, because a load balancer may use one to find the server that holds the session.

    Args:
        url: The URL of most requests. A name and a password in it are sent as Basic authentication (RFC 7617).
    """

    def __init__(self, url: str) -> None:
        import httpx  # noqa: ASYNC127 - importing takes a moment, and not every client needs it; it is always installed

        self.fields = [("User-Agent", f"trio-mcp/{__version__}")]
        self.failures, self._content = parts_of(httpx)
        self._httpx = httpx
        self._url = url
        # As httpx does; a transport alone would drop them.
        parts = urlsplit(url)
        if parts.username is not None:
            credentials = f"{unquote(parts.username)}:{unquote(parts.password or '')}".encode()
            self.fields.append(("Authorization", f"Basic {base64.b64encode(credentials).decode()}"))
        self._cookies = httpx.Cookies(BoundedCookies())
        timeouts = {"connect": CONNECT_TIMEOUT, "write": CONNECT_TIMEOUT, "read": None, "pool": None}
        self._extensions = {"timeout": timeouts}
        # Each with the time until which it may be used, the one idle for longest first. The newest is used first: it is
        # the least likely to be closed by now, and the others can expire.
        self._idle: deque[tuple[httpx.AsyncHTTPTransport, float]] = deque()
        self._limits = httpx.Limits(keepalive_expiry=None)

    @functools.cached_property
    def _parsed(self) -> httpx.URL:
        return self._httpx.URL(self._url)

    @functools.cached_property
    def _tls(self) -> ssl.SSLContext:
        if self._parsed.scheme != "https":  # never used, but a transport without one would load certificates
            return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        return trusting(self._httpx, *map(os.environ.get, ("SSL_CERT_FILE", "SSL_CERT_DIR")))

    async def send(
        self, method: str, url: str, fields: Fields, content: bytes, written: Callable[[], object] | None
    ) -> Sent:
        where = self._parsed if url == self._url else url
        request = self._httpx.Request(method, where, headers=fields, content=content, extensions=self._extensions)
        request.stream = body = self._content(content, written)
        if self._cookies:
            self._cookies.set_cookie_header(request)
        kept: httpx.AsyncHTTPTransport | None = None
        while kept is None and self._idle:
            kept, end = self._idle.pop()
            if end <= trio.current_time():  # the server may be closing the connection by now
                await kept.aclose()
                kept = None
        # Each transport has one connection at most, so closing it closes the connection.
        transport = kept or self._httpx.AsyncHTTPTransport(verify=self._tls, limits=self._limits)
        try:
            try:
                response = await transport.handle_async_request(request)
            except self.failures as exc:
                # The server may have closed a kept connection before it read the request. That is certain only if not
                # all of the request could be written; an idempotent one may be sent again in any case (RFC 9110,
                # section 9.2.2).
                known = not body.ended or method in _IDEMPOTENT
                if kept is None or type(exc).__name__ not in _CLOSED or not known:
                    raise
                response = await transport.handle_async_request(request)  # on a new connection
        except BaseException:
            # The transport can be used again: it has dropped its connection, if that is what failed.
            self._idle.append((transport, trio.current_time() + KEPT_ALIVE))
            raise
        # A transport keeps no cookies, so this does the part of the client.
        if "set-cookie" in response.headers:
            response.request = request
            self._cookies.extract_cookies(response)
        return response, functools.partial(self._take_back, transport, response.headers.get("keep-alive"))

    async def _take_back(self, transport: httpx.AsyncHTTPTransport, said: str | None) -> None:
        """Keep a connection for as long as the server said it will (``Keep-Alive``), or else for `KEPT_ALIVE`."""
        timeout = _TIMEOUT.search(said or "")
        seconds = KEPT_ALIVE if timeout is None else int(timeout[1]) - EARLIER
        self._idle.append((transport, trio.current_time() + seconds))
        # At most one, as one has been added: the number stays bounded, and no exchange has to close many.
        oldest, end = self._idle[0]
        if len(self._idle) > MAX_KEPT_ALIVE or end <= trio.current_time():
            self._idle.popleft()
            await oldest.aclose()

    async def aclose(self) -> None:
        """Close every connection, once no request is under way."""
        while self._idle:
            await self._idle.pop()[0].aclose()


@functools.cache
def trusting(package: Any, *sources: str | None) -> ssl.SSLContext:
    """Return a TLS context with the trusted certificates, read once for each value of the variables in `sources`."""
    # Reading the certificates takes some 20 ms, as measured. httpx reads the variables itself: they are only the key.
    context: ssl.SSLContext = package.create_ssl_context()
    return context


async def _nothing_to_take_back() -> None:
    pass


@functools.cache
def parts_of(package: Any) -> tuple[tuple[type[Exception], ...], Callable[..., Any]]:
    """Return the exceptions that a package raises, and a class for request bodies.

    The package's own bodies are async generators, which outlive a cancellation; this class is not one.
    """

    @attrs.define(eq=False)
    class Content(package.AsyncByteStream):  # type: ignore[misc]
        content: bytes
        written: Callable[[], object] | None
        given: bool = False
        ended: bool = False  # whether all of it has been written

        def __aiter__(self) -> Self:  # called again if a request is sent again
            self.given = self.ended = False
            return self

        async def __anext__(self) -> bytes:
            if self.given:
                self.ended = True
                if self.written is not None:
                    self.written()
                raise StopAsyncIteration
            self.given = True
            return self.content

    # A `UnicodeError` is raised for a host name that can't be encoded (IDNA).
    return (package.HTTPError, package.StreamError, package.InvalidURL, UnicodeError), Content


def _package(client: object) -> str:
    """Return the package that a client belongs to: ``httpx`` or ``httpx2``."""
    # By name, without importing either: one of them may not be installed. Subclasses count.
    for kind in type(client).__mro__:
        package = kind.__module__.partition(".")[0]
        if kind.__name__ == "AsyncClient" and package in ("httpx", "httpx2"):
            return package
    raise TypeError(f"http_client must be an AsyncClient of httpx or httpx2, got {type(client).__name__}")


# --- a wire ---------------------------------------------------------------------------------------------------------


@contextlib.asynccontextmanager
async def http_wire(
    url: str, headers: Mapping[str, str] | None, http_client: Any, auth: Auth | None = None
) -> AsyncIterator[HttpWire]:
    """Open a wire on the given client, which is not closed, or on a sender of its own.

    Raises:
        TypeError: If an argument is of the wrong type.
        ValueError: If an argument is invalid.
    """
    parameters = HttpServerParameters(url, headers=headers or {}, auth=auth)
    # Around all the rest: the end of a session is a request, too.
    async with opened(auth, parameters.url) as signer, _sending(parameters.url, http_client) as sender:
        yield HttpWire(sender, parameters, signer)


@contextlib.asynccontextmanager
async def _sending(url: str, http_client: Any) -> AsyncIterator[Sender]:
    if http_client is not None:
        yield ClientSender(http_client)
    elif _has_proxy(url):
        import httpx  # noqa: ASYNC127 - importing takes a moment, and not every client needs it; it is always installed

        # No limits here, as the link has its own.
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=None, keepalive_expiry=KEPT_ALIVE)
        async with httpx.AsyncClient(timeout=CONNECT_TIMEOUT, limits=limits, cookies=BoundedCookies()) as client:
            yield ClientSender(client)
    else:
        sender = TransportSender(url)
        async with closing(sender.aclose):
            yield sender


def _has_proxy(url: str) -> bool:
    """Return whether the environment or the system configures a proxy that may apply to a URL; httpx then decides."""
    from urllib.request import getproxies

    return not getproxies().keys().isdisjoint({urlsplit(url).scheme, "all"})
