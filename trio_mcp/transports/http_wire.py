"""HTTP exchanges of a client on httpx, or on httpx2, its fork with the same face.

Nothing here knows MCP. What httpx raises becomes a `Disconnected`; a redirection within the origin is followed, any
other is an answer like any other; a body is read within a limit, and a connection whose answer was read to its end is
used again.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any, Final, Self
from urllib.parse import urljoin, urlsplit

import attrs
import trio

from trio_mcp.errors import TransportError
from trio_mcp.protocol.http_headers import Headers, shown
from trio_mcp.transports.http_parameters import HttpServerParameters

__all__ = ["Disconnected", "HttpResponse", "HttpWire", "TooLarge", "http_wire", "origin_of", "shown_url"]

logger = logging.getLogger("trio_mcp")

CONNECT_TIMEOUT: Final = 30.0
"""Seconds to connect, and for the server to take what is written; how long an answer may take, a session decides."""
MAX_KEPT_ALIVE: Final = 20
"""Connections that are kept for further requests."""
MAX_REDIRECTS: Final = 5

_FOLLOWED: Final[dict[str, frozenset[int]]] = {
    "GET": frozenset({301, 302, 303, 307, 308}),
    # Those that keep the method and the body (RFC 9110, section 15.4).
    "POST": frozenset({307, 308}),
}
# What they raise before anything has been sent, by name, as the two packages have classes of their own.
_UNSENT: Final = frozenset({"ConnectError", "ConnectTimeout", "PoolTimeout", "UnsupportedProtocol", "ProxyError"})


class Disconnected(TransportError):
    """There is no connection, or it broke before the end of the answer.

    Attributes:
        sent: The request may have reached the server.
    """

    sent: bool = True


class TooLarge(Exception):
    """A body is over the limit."""


def shown_url(url: str) -> str:
    """A URL for a message, without what may be secret: the query, a password."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


def origin_of(url: str) -> str:
    """The scheme, host and port of a URL."""
    parts = urlsplit(url)
    port = parts.port or {"http": 80, "https": 443}.get(parts.scheme)
    return f"{parts.scheme}://{parts.hostname}:{port}"


class HttpResponse:
    """The head of an answer, and its body while it comes.

    Attributes:
        status: The HTTP status.
        headers: Its fields.
        target: The HTTP method and URL, without secrets.
    """

    def __init__(self, response: Any, target: str, failure: _Failures) -> None:
        self.status: int = response.status_code
        self.headers = Headers(response.headers.raw)
        self.target = target
        self._chunks: AsyncIterator[bytes] = response.aiter_raw()
        self._failure = failure

    async def receive(self) -> bytes:
        """The next part of the body; empty at its end.

        Raises:
            Disconnected: It broke off.
        """
        try:
            while not (chunk := await anext(self._chunks)):
                pass
            return chunk
        except StopAsyncIteration:
            return b""
        except self._failure.kinds as exc:
            raise self._failure.of(self.target, exc) from None

    async def body(self, limit: int) -> bytes:
        """The whole body.

        Raises:
            TooLarge: It is longer than ``limit`` bytes.
            Disconnected: It broke off.
        """
        found = bytearray()
        while chunk := await self.receive():
            found += chunk
            if len(found) > limit:
                raise TooLarge
        return bytes(found)

    async def beginning(self, limit: int, seconds: float) -> bytes:
        """What there is of the body, up to ``limit`` bytes, after so many seconds at most."""
        found = bytearray()
        with trio.move_on_after(seconds), contextlib.suppress(Disconnected):
            while len(found) < limit and (chunk := await self.receive()):
                found += chunk
        return bytes(found[:limit])

    async def unwind(self) -> None:
        """See to it that a body that was not read to its end leaves no generator behind.

        httpx nests several. Closing the outer one would leave the others to the garbage collector, which can't await;
        a cancellation unwinds all of them.
        """
        with trio.CancelScope() as scope:
            scope.cancel("the answer is of no use any more")
            with contextlib.suppress(*self._failure.kinds):
                async for _ in self._chunks:
                    pass


@attrs.frozen
class _Failures:
    """What a package raises."""

    kinds: tuple[type[Exception], ...]

    def of(self, target: str, exc: Exception) -> Disconnected:
        kind = type(exc).__name__
        why: BaseException | None = exc
        while why is not None and not str(why):  # a fault of TLS is said further down alone
            why = why.__cause__ or why.__context__
        error = Disconnected(f"{target} failed: {kind if why is None else f'{kind}: {why}'}")
        error.sent = kind not in _UNSENT
        return error


class HttpWire:
    """Makes exchanges with one origin.

    Args:
        client: An ``AsyncClient`` of httpx or httpx2.
        url: Where to, unless an exchange says otherwise.
        headers: Sent with each request.
    """

    def __init__(self, client: Any, url: str, headers: Mapping[str, str]) -> None:
        self._client = client
        self._headers = dict(headers)
        self.url = url
        self.shown = shown_url(url)
        package = sys.modules[_package(client)]
        self._failures = _Failures((package.HTTPError, package.StreamError, package.InvalidURL))
        self._content = _content_of(package)
        given = client.timeout
        # How long an answer may take is the business of the session, and for how many there is room that of the link.
        self._timeout = type(given)(connect=given.connect, write=given.write, read=None, pool=None)

    @contextlib.asynccontextmanager
    async def exchange(
        self, method: str, headers: Mapping[str, str], content: bytes | None = None, *, url: str | None = None
    ) -> AsyncIterator[HttpResponse]:
        """Send a request and give the head of the answer.

        When cancelled, or when the block is left before the body has ended, the connection is closed.

        Raises:
            Disconnected: There is no connection, or it broke, also in the block.
            TransportError: A hook of the caller's client failed; or the answer can't be read.
        """
        url = self.url if url is None else url
        for _ in range(MAX_REDIRECTS):
            async with self._one(method, url, headers, content) as response:
                target = _redirection(method, url, response)
                if target is None:
                    yield response
                    return
            url = target
        async with self._one(method, url, headers, content) as response:
            yield response

    @contextlib.asynccontextmanager
    async def _one(
        self, method: str, url: str, headers: Mapping[str, str], content: bytes | None
    ) -> AsyncIterator[HttpResponse]:
        target = f"{method} {shown_url(url)}"
        # An answer that unpacks to a thousand times its size would be no use of a limit, so nothing is to be packed.
        fields = {**self._headers, **headers, "Accept-Encoding": "identity"}
        try:
            request = self._client.build_request(method, url, headers=fields, content=content, timeout=self._timeout)
            request.stream = self._content(content or b"")
            response = await self._client.send(request, stream=True, follow_redirects=False)
        except self._failures.kinds as exc:
            raise self._failures.of(target, exc) from None
        except Exception as exc:  # of a hook of the caller's client, such as authentication
            logger.error("%s failed", target, exc_info=exc)
            raise TransportError(f"{target} failed: {type(exc).__name__}: {exc}") from exc
        answer = HttpResponse(response, target, self._failures)
        try:
            packed = answer.headers.get("Content-Encoding") or "identity"
            if packed.lower() != "identity":
                raise TransportError(f"{target} was answered with a body packed as {shown(packed)}, unasked")
            yield answer
        finally:
            await answer.unwind()
            with contextlib.suppress(*self._failures.kinds):
                await response.aclose()


@functools.cache
def _content_of(package: Any) -> Callable[[bytes], Any]:
    """Makes bodies that are no async generators, unlike the package's own: those outlive a cancellation."""

    class Content(package.AsyncByteStream):  # type: ignore[misc]
        def __init__(self, content: bytes) -> None:
            self._content = content

        def __aiter__(self) -> AsyncIterator[bytes]:
            return _Once(self._content)

    return Content


class _Once:
    def __init__(self, content: bytes) -> None:
        self._left = [content]

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> bytes:
        if not self._left:
            raise StopAsyncIteration
        return self._left.pop()


def _package(client: object) -> str:
    """Whose client it is: ``httpx`` or ``httpx2``.

    Raises:
        TypeError: It is neither's.
    """
    for kind in type(client).__mro__:
        package = kind.__module__.partition(".")[0]
        if kind.__name__ == "AsyncClient" and package in ("httpx", "httpx2"):
            return package
    raise TypeError(f"http_client must be an AsyncClient of httpx or httpx2, got {type(client).__name__}")


def _redirection(method: str, url: str, response: HttpResponse) -> str | None:
    """Where to go on; None where the answer is no redirection, or one that would take credentials elsewhere."""
    if response.status not in _FOLLOWED.get(method, ()):
        return None
    try:
        target = urljoin(url, response.headers.get("Location") or "")
        return target if origin_of(target) == origin_of(url) and target != url else None
    except ValueError:
        return None


@contextlib.asynccontextmanager
async def http_wire(url: str, headers: Mapping[str, str] | None, http_client: Any) -> AsyncIterator[HttpWire]:
    """A wire on the client given, which stays open, or on one of its own.

    Raises:
        TypeError, ValueError: An argument is not what it should be.
    """
    parameters = HttpServerParameters(url, headers=headers or {})
    if http_client is not None:
        yield HttpWire(http_client, parameters.url, parameters.headers)
        return
    # Its import takes a moment, and not every client needs it. A program may have either package; this one comes along.
    import httpx  # noqa: ASYNC127

    async with httpx.AsyncClient(
        timeout=CONNECT_TIMEOUT, limits=httpx.Limits(max_connections=None, max_keepalive_connections=MAX_KEPT_ALIVE)
    ) as client:
        yield HttpWire(client, parameters.url, parameters.headers)
