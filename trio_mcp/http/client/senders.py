"""Who sends the requests of a client over HTTP: an ``AsyncClient`` of the caller's, or transports of httpx.

What goes through an ``AsyncClient`` of httpx 0.28 costs half as much again as what goes to a transport, and a transport
looks at every one of its connections for every request. So a link of our own has one transport for each exchange at a
time, each with its one connection.
"""

from __future__ import annotations

import base64
import functools
import os
import ssl
import sys
from collections import deque
from collections.abc import Awaitable, Callable
from http.cookiejar import Cookie, CookieJar
from typing import TYPE_CHECKING, Any, Final, Protocol, Self, TypeAlias
from urllib.parse import unquote, urlsplit

import trio

from trio_mcp._version import __version__

if TYPE_CHECKING:
    import httpx  # noqa: ASYNC127 - the one that this package depends on

__all__ = ["CONNECT_TIMEOUT", "BoundedCookies", "ClientSender", "Fields", "Sender", "Sent", "TransportSender"]

Fields: TypeAlias = list[tuple[str, str]]
"""The names and values of header fields."""
Sent: TypeAlias = tuple[Any, Callable[[], Awaitable[None]]]
"""A response whose body has not been read, and what takes back what it came on, once it is closed."""

CONNECT_TIMEOUT: Final = 30.0
"""Seconds to connect, and for the server to take what is written; how long an answer may take, a session decides."""
MAX_KEPT_ALIVE: Final = 100
"""Connections that are kept for further requests."""
KEPT_ALIVE: Final = 5.0
"""Seconds for which they are kept; servers are often no more patient."""


MAX_COOKIES: Final = 50
MAX_COOKIE: Final = 4096
"""Characters of a name and its value. Both limits are those of RFC 6265, section 6.1."""


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
        self._idle: deque[tuple[httpx.AsyncHTTPTransport, float]] = deque()  # the longest first

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
        request.stream = self._content(content)
        if self._cookies:
            self._cookies.set_cookie_header(request)
        transport = self._idle.pop()[0] if self._idle else self._httpx.AsyncHTTPTransport(verify=self._tls)
        try:
            response = await transport.handle_async_request(request)
        except BaseException:
            self._idle.append((transport, trio.current_time()))  # without its connection, if that is what failed
            raise
        if "set-cookie" in response.headers:
            response.request = request
            self._cookies.extract_cookies(response)
        return response, functools.partial(self._take_back, transport)

    async def _take_back(self, transport: httpx.AsyncHTTPTransport) -> None:
        self._idle.append((transport, trio.current_time()))
        oldest, since = self._idle[0]
        if len(self._idle) > MAX_KEPT_ALIVE or since + KEPT_ALIVE < trio.current_time():
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

    class Content(package.AsyncByteStream):  # type: ignore[misc]
        def __init__(self, content: bytes) -> None:
            self._content = content
            self._left: list[bytes] = []

        def __aiter__(self) -> Self:  # more than once where authentication sends a request again
            self._left = [self._content]
            return self

        async def __anext__(self) -> bytes:
            if not self._left:
                raise StopAsyncIteration
            return self._left.pop()

    # A `UnicodeError` is for a host that can be none.
    return (package.HTTPError, package.StreamError, package.InvalidURL, UnicodeError), Content


def _package(client: object) -> str:
    """Whose client it is: ``httpx`` or ``httpx2``."""
    for kind in type(client).__mro__:
        package = kind.__module__.partition(".")[0]
        if kind.__name__ == "AsyncClient" and package in ("httpx", "httpx2"):
            return package
    raise TypeError(f"http_client must be an AsyncClient of httpx or httpx2, got {type(client).__name__}")
