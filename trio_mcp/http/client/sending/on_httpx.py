"""A sender built on httpx, or its successor httpx2, which has its interface: for proxies, and for clients of callers.

Both packages nest async generators. A generator that is abandoned before its end is left to the garbage collector,
which can't await, so this module abandons none.
"""

from __future__ import annotations

import contextlib
import functools
import os
import ssl
import sys
from collections.abc import AsyncIterator, Callable
from http.cookiejar import Cookie, CookieJar
from typing import Any, Final, Self

import attrs
import trio

from trio_mcp._log import logger
from trio_mcp._nursery import closing
from trio_mcp.errors import Disconnected, TransportError
from trio_mcp.http.client.sending.http1_format import FieldsByName
from trio_mcp.http.client.sending.sender import (
    CONNECT_TIMEOUT,
    KEPT_ALIVE,
    AsyncHttpClient,
    HeaderFields,
    HttpResponse,
    Written,
    failure,
    text_of,
)
from trio_mcp.http.headers import Headers

__all__ = ["HttpxSender", "disconnected", "parts_of", "proxied_sender", "response_of", "trusting"]

READ_BURST: Final = 64
"""How many parts of a body are read before other tasks run. An arbitrary choice, as in the session's reader."""


def disconnected(exc: BaseException, target: str) -> Disconnected:
    """Return the error for an exception that httpx has raised."""
    return failure(type(exc).__name__, text_of(exc), target)


class HttpxSender:
    """A sender that uses an ``AsyncClient``, with its proxies, authentication and so on.

    Args:
        client: The client, which is not closed.

    Raises:
        TypeError: If ``client`` is not a client of httpx or httpx2.
    """

    def __init__(self, client: AsyncHttpClient) -> None:
        package = sys.modules[_package(client)]
        self.fields: HeaderFields = []
        self._failures, self._content = parts_of(package)
        self._client = client
        self.authorizes = client.auth is not None
        given = client.timeout
        # The session limits the time for a response (`read`), and the link limits the number of exchanges (`pool`). The
        # timeout is an object of the same class as the client's own, because each of the two packages has its own
        # class.
        self._timeout = type(given)(connect=given.connect, write=given.write, read=None, pool=None)

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
        try:
            request = self._client.build_request(
                method, url, headers=list(fields.values()), content=content, timeout=self._timeout
            )
            # The body of the request is replaced, because httpx would make it an async generator; see `parts_of`.
            request.stream = self._content(content, written)
            kept = None if keeps_cookies else list(self._client.cookies.jar)
            response = await self._client.send(request, stream=True, follow_redirects=False)
            if kept is not None:
                self._forget_cookies(response, kept)
        except self._failures as exc:
            raise disconnected(exc, target) from None
        except Exception as exc:  # raised by a hook of the caller's client, such as authentication
            logger.error("%s failed", target, exc_info=exc)
            raise TransportError(f"{target} failed: {type(exc).__name__}: {exc}") from exc
        return response_of(response, target, self._failures)

    def _forget_cookies(self, response: Any, kept: list[Cookie]) -> None:
        """Undo what the cookies of a response have changed; httpx has kept them already."""
        jar: CookieJar = self._client.cookies.jar
        before = {(each.domain, each.path, each.name): each for each in kept}
        for cookie in list(response.cookies.jar):
            place = cookie.domain, cookie.path, cookie.name
            if place in before:
                jar.set_cookie(before[place])
            else:
                with contextlib.suppress(KeyError):  # the response may have deleted the cookie
                    jar.clear(*place)


@contextlib.asynccontextmanager
async def proxied_sender(proxy: str | None) -> AsyncIterator[HttpxSender]:
    """Open a sender that goes through a proxy.

    Raises:
        TransportError: If httpx can't use this proxy.
    """
    import httpx  # noqa: ASYNC127 - importing takes a moment, and not every client needs it; it is always installed

    from trio_mcp.http.client.sending.cookies import BoundedCookies

    # The number of connections is not limited, because the link limits it. httpx must not read the environment, which
    # `proxy_of` has already read: httpx would send even requests for this machine to a proxy.
    try:
        client = httpx.AsyncClient(
            timeout=CONNECT_TIMEOUT,
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=None, keepalive_expiry=KEPT_ALIVE),
            cookies=BoundedCookies(),
            verify=trusting(),
            proxy=proxy,
            trust_env=False,
        )
    except (ValueError, ImportError, httpx.InvalidURL) as exc:  # the scheme is unknown, or SOCKS lacks its package
        raise TransportError(f"the proxy that the environment or the system names can't be used: {exc}") from None
    async with client:
        yield HttpxSender(client)


def response_of(response: Any, target: str, failures: tuple[type[Exception], ...]) -> HttpResponse:
    """Return a response from httpx, with a body that has not been read yet, as an `HttpResponse`."""
    return HttpResponse(
        response.status_code, Headers(response.headers.raw), _HttpxBody(response, target, failures), target
    )


@attrs.define(eq=False)
class _HttpxBody:
    """The body of a response from httpx."""

    _response: Any
    _target: str
    _failures: tuple[type[Exception], ...]
    _chunks: AsyncIterator[bytes] | None = None  # None until the first part is read
    _parts: int = 0
    _ended: bool = False

    async def receive(self) -> bytes:
        if self._chunks is None:
            self._chunks = aiter(self._response.stream)
        try:
            while True:
                self._parts += 1
                # Parts that have arrived are returned without a checkpoint, so a fast server could starve other tasks.
                if self._parts % READ_BURST == 0:
                    await trio.lowlevel.checkpoint()
                if chunk := await anext(self._chunks):
                    return chunk
        except StopAsyncIteration:
            self._ended = True
            return b""
        except self._failures as exc:
            raise disconnected(exc, self._target) from None

    async def aclose(self) -> None:
        async with closing(self._close_response):
            if self._chunks is not None and not self._ended:
                await self._unwind(self._chunks)

    async def _close_response(self) -> None:
        with contextlib.suppress(*self._failures):
            await self._response.aclose()

    async def _unwind(self, chunks: AsyncIterator[bytes]) -> None:
        """Finish the generators of a body that was not read to its end.

        Closing the outer generator would leave the inner ones to the garbage collector; a cancellation unwinds them
        all.
        """
        with trio.CancelScope() as scope:
            scope.cancel("the rest of the response is not needed")
            with contextlib.suppress(*self._failures):
                async for _ in chunks:
                    self._parts += 1
                    if self._parts % READ_BURST == 0:
                        # The checkpoint is shielded, because the cancellation has to be raised inside the generators,
                        # not in this loop.
                        await trio.lowlevel.cancel_shielded_checkpoint()


def trusting() -> ssl.SSLContext:
    """Return a TLS context that trusts the certificates of SSL_CERT_FILE or SSL_CERT_DIR, or else those of httpx."""
    return _context(os.environ.get("SSL_CERT_FILE"), os.environ.get("SSL_CERT_DIR"))


@functools.cache
def _context(*_sources: str | None) -> ssl.SSLContext:
    import httpx  # noqa: ASYNC127 - as in `proxied_sender`

    # The context is cached, because reading the certificates takes about 20 ms (measured). httpx reads the variables
    # itself; the arguments are only the key of the cache.
    context = httpx.create_ssl_context()
    context.set_alpn_protocols(["http/1.1"])
    return context


@functools.cache
def parts_of(package: Any) -> tuple[tuple[type[Exception], ...], Callable[..., Any]]:
    """Return the exceptions that httpx or httpx2 raises, and a class for request bodies.

    The package's own request bodies are async generators, which outlive a cancellation; the returned class has none.
    """

    @attrs.define(eq=False)
    class Content(package.AsyncByteStream):  # type: ignore[misc]
        content: bytes
        written: Callable[[], object] | None
        given: bool = False

        def __aiter__(self) -> Self:  # httpx calls this again if it sends a request again
            self.given = False
            return self

        async def __anext__(self) -> bytes:
            if self.given:
                if self.written is not None:
                    self.written()
                raise StopAsyncIteration
            self.given = True
            return self.content

    # A `UnicodeError` is raised for a host name that can't be encoded (IDNA).
    return (package.HTTPError, package.StreamError, package.InvalidURL, UnicodeError), Content


def _package(client: object) -> str:
    """Return the package that a client belongs to: ``httpx`` or ``httpx2``."""
    # The name of the module decides, because one of the packages may not be installed. Subclasses are accepted.
    for kind in type(client).__mro__:
        package = kind.__module__.partition(".")[0]
        if kind.__name__ == "AsyncClient" and package in ("httpx", "httpx2"):
            return package
    raise TypeError(f"http_client must be an AsyncClient of httpx or httpx2, got {type(client).__name__}")
