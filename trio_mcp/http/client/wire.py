"""HTTP exchanges of a client with one server, on httpx, or on httpx2, its fork with the same face.

Nothing here knows MCP. What httpx raises becomes a `Disconnected`; a redirection within the origin is followed, any
other is an answer like any other; a body is read within a limit, and a connection whose answer was read to its end is
used again, unless the server may be about to close it.
"""

from __future__ import annotations

import base64
import contextlib
import functools
import itertools
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

from trio_mcp._log import logger
from trio_mcp._nursery import closing
from trio_mcp._version import __version__
from trio_mcp.errors import MessageTooLarge, TransportError
from trio_mcp.http.client.origins import origin_of
from trio_mcp.http.client.parameters import HttpServerParameters
from trio_mcp.http.headers import MAX_URL, Headers, shown

if TYPE_CHECKING:
    import httpx  # noqa: ASYNC127 - the one that this package depends on

__all__ = ["Disconnected", "HttpResponse", "HttpWire", "http_wire"]

MAX_REDIRECTS: Final = 5
CONNECT_TIMEOUT: Final = 30.0
"""Seconds to connect, and for the server to take what is written; how long an answer may take, a session decides."""
MAX_KEPT_ALIVE: Final = 100
"""Connections that are kept for further requests."""
KEPT_ALIVE: Final = 3.0
"""Seconds for which they are used if the server does not say for how long it keeps them; many do for five."""
EARLIER: Final = 1.5
"""Seconds before the server closes a connection from which on it is not used: a request might be on its way by then."""
READ_BURST: Final = 64
"""Parts of a body that are taken before other tasks run."""
MAX_COOKIES: Final = 50
MAX_COOKIE: Final = 4096
"""Characters of a name and its value. Both limits are those of RFC 6265, section 6.1."""

_FOLLOWED: Final[dict[str, frozenset[int]]] = {
    "GET": frozenset({301, 302, 303, 307, 308}),
    # Those that keep the method and the body (RFC 9110, section 15.4).
    "POST": frozenset({307, 308}),
}
# What they raise before anything has been sent, and when the connection is closed under a request; by name, as the two
# packages have classes of their own.
_UNSENT: Final = frozenset({"ConnectError", "ConnectTimeout", "PoolTimeout", "UnsupportedProtocol", "ProxyError"})
_CLOSED: Final = frozenset({"ReadError", "RemoteProtocolError", "WriteError"})
_IDEMPOTENT: Final = frozenset({"GET", "DELETE"})
_TIMEOUT: Final = re.compile(r"(?:^|,)\s*timeout\s*=\s*(\d{1,9})\s*(?:,|$)", re.IGNORECASE)

Fields: TypeAlias = list[tuple[str, str]]
"""The names and values of header fields."""
Sent: TypeAlias = tuple[Any, Callable[[], Awaitable[None]]]
"""A response whose body has not been read, and what takes back what it came on, once it is closed."""


class Disconnected(TransportError):
    """There is no connection, or it broke before the end of the answer.

    Attributes:
        sent: The request may have reached the server.
    """

    sent: bool = True

    @classmethod
    def by(cls, exc: Exception, target: str) -> Disconnected:
        """What an exception of httpx means to an exchange."""
        kind, text = type(exc).__name__, _text_of(exc)
        error = cls(f"{target} failed: {f'{kind}: {text}' if text else kind}")
        error.sent = kind not in _UNSENT
        return error


def _text_of(exc: BaseException) -> str:
    """What an exception says, or what was behind it: httpx says nothing of a certificate itself."""
    behind: BaseException | None = exc
    while behind is not None and not str(behind):
        behind = behind.__cause__ or behind.__context__
    return str(behind or "")


def _shown(url: str) -> str:
    """A URL for a message, without what may be secret: the query, a password."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


class HttpResponse:
    """The head of an answer, and its body while it comes.

    Attributes:
        status: The HTTP status.
        headers: Its fields.
        target: The HTTP method and URL, without secrets.
        has_two_ends: There are two fields that say where its body ends (RFC 9112, 6.3).
    """

    def __init__(self, sent: Sent, target: str, failures: tuple[type[Exception], ...]) -> None:
        response, take_back = sent
        self.status: int = response.status_code
        self.headers = Headers(response.headers.raw)
        self.has_two_ends = "transfer-encoding" in response.headers and "content-length" in response.headers
        self.target = target
        self._response = response
        self._take_back = take_back
        self._chunks: AsyncIterator[bytes] | None = None  # before the first is asked for
        self._failures = failures
        self._parts = 0
        self._ended = False

    async def receive(self) -> bytes:
        """The next part of the body; empty at its end.

        Raises:
            Disconnected: It broke off.
        """
        if self._chunks is None:
            self._chunks = aiter(self._response.stream)
        try:
            while True:
                self._parts += 1
                if self._parts % READ_BURST == 0:  # what has arrived comes without waiting
                    await trio.lowlevel.checkpoint()
                if chunk := await anext(self._chunks):
                    return chunk
        except StopAsyncIteration:
            self._ended = True
            return b""
        except self._failures as exc:
            raise Disconnected.by(exc, self.target) from None

    async def body(self, limit: int) -> bytes:
        """The whole body.

        Raises:
            MessageTooLarge: It is longer than ``limit`` bytes.
            Disconnected: It broke off.
        """
        found = bytearray()
        while chunk := await self.receive():
            found += chunk
            if len(found) > limit:
                raise MessageTooLarge(limit)
        return bytes(found)

    async def beginning(self, limit: int, seconds: float) -> bytes:
        """What there is of the body, up to ``limit`` bytes, after so many seconds at most."""
        found = bytearray()
        with trio.move_on_after(seconds), contextlib.suppress(Disconnected):
            while len(found) < limit and (chunk := await self.receive()):
                found += chunk
        return bytes(found[:limit])

    async def aclose(self) -> None:
        """Close the connection, unless the body has been read to its end."""
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
        """See to it that a body that was not read to its end leaves no generator behind.

        httpx nests several. Closing the outer one would leave the others to the garbage collector, which can't await;
        a cancellation unwinds all of them.
        """
        with trio.CancelScope() as scope:
            scope.cancel("the answer is of no use any more")
            with contextlib.suppress(*self._failures):
                async for _ in chunks:
                    self._parts += 1
                    if self._parts % READ_BURST == 0:
                        await trio.lowlevel.cancel_shielded_checkpoint()  # the cancellation is for the generators


class HttpWire:
    """Makes exchanges with one origin.

    Args:
        sender: Sends the requests.
        parameters: Where to, unless an exchange says otherwise, and what is sent with each request.

    Attributes:
        url: Where to.
        shown: The same for a message, without what may be secret.
    """

    def __init__(self, sender: Sender, parameters: HttpServerParameters) -> None:
        self._sender = sender
        # An answer that unpacks to a thousand times its size would be no use of a limit, so nothing is to be packed.
        own = [*sender.fields, *parameters.headers.items(), ("Accept-Encoding", "identity")]
        self._own = {name.lower(): (name, value) for name, value in own}
        self.url = parameters.url
        self.shown = _shown(self.url)

    @contextlib.asynccontextmanager
    async def exchange(
        self, method: str, headers: Mapping[str, str], content: bytes = b"", *, url: str | None = None
    ) -> AsyncIterator[HttpResponse]:
        """Send a request and give the head of the answer.

        When cancelled, or when the block is left before the body has ended, the connection is closed.

        Raises:
            Disconnected: There is no connection, or it broke, also in the block.
            TransportError: A hook of the caller's client failed; or the answer can't be read.
        """
        url = self.url if url is None else url
        fields = dict(self._own)
        for name, value in headers.items():
            fields[name.lower()] = name, value
        for redirections in itertools.count():
            response = await self._send(method, url, list(fields.values()), content)
            try:
                packed = response.headers.get("Content-Encoding") or "identity"
                if packed.lower() != "identity":
                    raise TransportError(
                        f"{response.target} was answered with a body packed as {shown(packed)}, unasked"
                    )
                if response.has_two_ends:
                    raise TransportError(
                        f"{response.target} was answered with both Content-Length and Transfer-Encoding: where the"
                        " answer ends is in doubt"
                    )
                elsewhere = None
                if redirections < MAX_REDIRECTS and response.status in _FOLLOWED.get(method, ()):
                    elsewhere = _redirection(url, response)
                if elsewhere is None:
                    yield response
            except BaseException:
                async with closing(response.aclose):
                    raise
            await response.aclose()
            if elsewhere is None:
                return
            url = elsewhere

    async def _send(self, method: str, url: str, fields: Fields, content: bytes) -> HttpResponse:
        target = f"{method} {self.shown if url == self.url else _shown(url)}"
        failures = self._sender.failures
        try:
            sent = await self._sender.send(method, url, fields, content)
        except failures as exc:
            raise Disconnected.by(exc, target) from None
        except Exception as exc:  # of a hook of the caller's client, such as authentication
            logger.error("%s failed", target, exc_info=exc)
            raise TransportError(f"{target} failed: {type(exc).__name__}: {exc}") from exc
        return HttpResponse(sent, target, failures)


def _redirection(url: str, response: HttpResponse) -> str | None:
    """Where a redirection leads; None for one that would take credentials elsewhere."""
    location = response.headers.get("Location") or ""
    if len(location) > MAX_URL:
        return None
    try:
        target = urljoin(url, location)
        return target if origin_of(target) == origin_of(url) and target != url else None
    except ValueError:
        return None


# --- who sends ------------------------------------------------------------------------------------------------------
# What goes through an ``AsyncClient`` of httpx 0.28 costs half as much again as what goes to a transport, and a
# transport looks at every one of its connections for every request. So without a client of the caller's there is one
# transport for each exchange at a time, each with its one connection.


class BoundedCookies(CookieJar):
    """Cookies that can't become more and more. One that is too long is not kept; those over the limit end them all."""

    def set_cookie(self, cookie: Cookie) -> None:
        """Keep a cookie."""
        if len(cookie.name) + len(cookie.value or "") > MAX_COOKIE:
            return
        if len(self) >= MAX_COOKIES:
            self.clear()
        super().set_cookie(cookie)


class Sender(Protocol):
    """Sends requests.

    Attributes:
        fields: What it wants sent with each request that says nothing else.
        failures: What `send` and the body of its response raise.
    """

    fields: Fields
    failures: tuple[type[Exception], ...]

    async def send(self, method: str, url: str, fields: Fields, content: bytes) -> Sent:
        """Send a request and wait for the head of the answer; a redirection is not followed."""


class ClientSender:
    """Sends on an ``AsyncClient``, with whatever that has been set up to do.

    Raises:
        TypeError: It is none of httpx or httpx2.
    """

    def __init__(self, client: Any) -> None:
        package = sys.modules[_package(client)]
        self.fields: Fields = []
        self.failures, self._content = _parts_of(package)
        self._client = client
        given = client.timeout
        # How long an answer may take is the business of the session, and for how many there is room that of the link.
        self._timeout = type(given)(connect=given.connect, write=given.write, read=None, pool=None)

    async def send(self, method: str, url: str, fields: Fields, content: bytes) -> Sent:
        request = self._client.build_request(method, url, headers=fields, content=content, timeout=self._timeout)
        request.stream = self._content(content)
        response = await self._client.send(request, stream=True, follow_redirects=False)
        return response, _nothing_to_take_back


class TransportSender:
    """Sends on transports of its own. It keeps cookies: a balancer may know by one which server holds the session.

    Args:
        url: The URL that most requests go to. A name and a password in it are sent as Basic authentication.
    """

    def __init__(self, url: str) -> None:
        import httpx  # noqa: ASYNC127 - its import takes a moment, and not every client needs it; httpx comes along

        self.fields = [("User-Agent", f"trio-mcp/{__version__}")]
        self.failures, self._content = _parts_of(httpx)
        self._httpx = httpx
        self._url = url
        parts = urlsplit(url)
        if parts.username is not None:
            credentials = f"{unquote(parts.username)}:{unquote(parts.password or '')}".encode()
            self.fields.append(("Authorization", f"Basic {base64.b64encode(credentials).decode()}"))
        self._cookies = httpx.Cookies(BoundedCookies())
        timeouts = {"connect": CONNECT_TIMEOUT, "write": CONNECT_TIMEOUT, "read": None, "pool": None}
        self._extensions = {"timeout": timeouts}
        self._idle: deque[tuple[httpx.AsyncHTTPTransport, float]] = deque()  # the longest first; each with its end
        self._limits = httpx.Limits(keepalive_expiry=None)

    @functools.cached_property
    def _parsed(self) -> httpx.URL:
        return self._httpx.URL(self._url)

    @functools.cached_property
    def _tls(self) -> ssl.SSLContext:
        if self._parsed.scheme != "https":
            return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        return _trusting(self._httpx, *map(os.environ.get, ("SSL_CERT_FILE", "SSL_CERT_DIR")))

    async def send(self, method: str, url: str, fields: Fields, content: bytes) -> Sent:
        where = self._parsed if url == self._url else url
        request = self._httpx.Request(method, where, headers=fields, content=content, extensions=self._extensions)
        request.stream = body = self._content(content)
        if self._cookies:
            self._cookies.set_cookie_header(request)
        kept: httpx.AsyncHTTPTransport | None = None
        while kept is None and self._idle:
            kept, end = self._idle.pop()
            if end <= trio.current_time():  # its server may be closing the connection by now
                await kept.aclose()
                kept = None
        transport = kept or self._httpx.AsyncHTTPTransport(verify=self._tls, limits=self._limits)
        try:
            try:
                response = await transport.handle_async_request(request)
            except self.failures as exc:
                # The server may have closed a connection that was kept before it read the request. That is sure only if
                # not all of it could be written; an idempotent one may be sent again anyway (RFC 9110, section 9.2.2).
                known = not body.ended or method in _IDEMPOTENT
                if kept is None or type(exc).__name__ not in _CLOSED or not known:
                    raise
                response = await transport.handle_async_request(request)  # on a new connection
        except BaseException:
            # Without its connection, if that is what failed.
            self._idle.append((transport, trio.current_time() + KEPT_ALIVE))
            raise
        if "set-cookie" in response.headers:
            response.request = request
            self._cookies.extract_cookies(response)
        return response, functools.partial(self._take_back, transport, response.headers.get("keep-alive"))

    async def _take_back(self, transport: httpx.AsyncHTTPTransport, said: str | None) -> None:
        """Keep a connection for as long as its server has said that it does, or for a while."""
        timeout = _TIMEOUT.search(said or "")
        seconds = KEPT_ALIVE if timeout is None else int(timeout[1]) - EARLIER
        self._idle.append((transport, trio.current_time() + seconds))
        oldest, end = self._idle[0]
        if len(self._idle) > MAX_KEPT_ALIVE or end <= trio.current_time():
            self._idle.popleft()
            await oldest.aclose()

    async def aclose(self) -> None:
        """Close every connection; no request is under way any more."""
        while self._idle:
            await self._idle.pop()[0].aclose()


@functools.cache
def _trusting(package: Any, *sources: str | None) -> ssl.SSLContext:
    """To read the certificates takes some 20 ms, so it is done once; ``sources`` are the variables that name others."""
    context: ssl.SSLContext = package.create_ssl_context()
    return context


async def _nothing_to_take_back() -> None:
    pass


@functools.cache
def _parts_of(package: Any) -> tuple[tuple[type[Exception], ...], Callable[[bytes], Any]]:
    """What it raises, and what makes bodies that are no async generators: its own ones outlive a cancellation."""

    @attrs.define(eq=False)
    class Content(package.AsyncByteStream):  # type: ignore[misc]
        content: bytes
        given: bool = False
        ended: bool = False  # all of it has been written

        def __aiter__(self) -> Self:  # more than once where a request is sent again
            self.given = self.ended = False
            return self

        async def __anext__(self) -> bytes:
            if self.given:
                self.ended = True
                raise StopAsyncIteration
            self.given = True
            return self.content

    # A `UnicodeError` is for a host that can be none.
    return (package.HTTPError, package.StreamError, package.InvalidURL, UnicodeError), Content


def _package(client: object) -> str:
    """Whose client it is: ``httpx`` or ``httpx2``."""
    for kind in type(client).__mro__:
        package = kind.__module__.partition(".")[0]
        if kind.__name__ == "AsyncClient" and package in ("httpx", "httpx2"):
            return package
    raise TypeError(f"http_client must be an AsyncClient of httpx or httpx2, got {type(client).__name__}")


# --- a wire ---------------------------------------------------------------------------------------------------------


@contextlib.asynccontextmanager
async def http_wire(url: str, headers: Mapping[str, str] | None, http_client: Any) -> AsyncIterator[HttpWire]:
    """A wire on the client given, which stays open, or on one of its own.

    Raises:
        TypeError, ValueError: An argument is not what it should be.
    """
    parameters = HttpServerParameters(url, headers=headers or {})
    if http_client is not None:
        yield HttpWire(ClientSender(http_client), parameters)
    elif _has_proxy(parameters.url):
        import httpx  # noqa: ASYNC127 - its import takes a moment, and not every client needs it; httpx comes along

        limits = httpx.Limits(max_connections=None, max_keepalive_connections=None, keepalive_expiry=KEPT_ALIVE)
        async with httpx.AsyncClient(timeout=CONNECT_TIMEOUT, limits=limits, cookies=BoundedCookies()) as client:
            yield HttpWire(ClientSender(client), parameters)
    else:
        sender = TransportSender(parameters.url)
        async with closing(sender.aclose):
            yield HttpWire(sender, parameters)


def _has_proxy(url: str) -> bool:
    """Whether the environment, or the system, may want a proxy between here and a URL: then httpx sees to that."""
    from urllib.request import getproxies

    return not getproxies().keys().isdisjoint({urlsplit(url).scheme, "all"})
