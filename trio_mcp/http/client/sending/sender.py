"""Defines what all senders of HTTP requests have in common: their interface, the response, and the errors."""

from __future__ import annotations

import abc
import contextlib
import io
from collections.abc import Callable
from typing import Any, Final, Protocol, TypeAlias

import trio

from trio_mcp._secrets import without_credentials
from trio_mcp.errors import Disconnected, MessageTooLarge
from trio_mcp.http.client.sending.http1_format import FieldsByName
from trio_mcp.http.headers import Headers

__all__ = [
    "CONNECT_TIMEOUT",
    "KEPT_ALIVE",
    "AsyncHttpClient",
    "HeaderFields",
    "HttpResponse",
    "ResponseBody",
    "Sender",
    "Written",
    "failure",
    "text_of",
]

CONNECT_TIMEOUT: Final = 30.0
"""The time limit, in seconds, for connecting, and for each write until the server has accepted the data.

An arbitrary choice. The session limits the time for a response.
"""
KEPT_ALIVE: Final = 3.0
"""How many seconds an idle connection is kept if the server states no time; many servers keep one for five seconds."""

HeaderFields: TypeAlias = list[tuple[str, str]]
"""The names and values of header fields."""
Written: TypeAlias = Callable[[], object]
"""A function that is called when all of a request has been handed to the connection."""

# These failures happen before anything has been sent. They are named after httpx's exceptions, which are recognized by
# their names, too.
_UNSENT: Final = frozenset({"ConnectError", "ConnectTimeout", "PoolTimeout", "UnsupportedProtocol", "ProxyError"})


def text_of(exc: BaseException) -> str:
    """Return the text of an exception, or of the nearest cause that has a text.

    The exception for an untrusted certificate, for example, has no text of its own.
    """
    behind: BaseException | None = exc
    while behind is not None and not str(behind):
        behind = behind.__cause__ or behind.__context__
    return str(behind or "")


def failure(kind: str, text: str, target: str) -> Disconnected:
    """Return the error for a failure; ``kind`` is the name of the corresponding exception in httpx."""
    error = Disconnected(f"{target} failed: {f'{kind}: {text}' if text else kind}")
    error.sent = kind not in _UNSENT
    return error


class AsyncHttpClient(Protocol):
    """An ``AsyncClient`` of httpx, or of its successor httpx2: the type of ``http_client=``.

    Type checkers accept both, whichever is installed. When a link opens, another object raises `TypeError`.
    """

    @property
    @abc.abstractmethod
    def timeout(self) -> Any:
        """Seconds to connect, and for each write: ``connect`` and ``write`` of it."""

    @property
    @abc.abstractmethod
    def auth(self) -> Any:
        """The authentication of each request, or None."""

    @property
    @abc.abstractmethod
    def cookies(self) -> Any:
        """The cookies that it keeps: ``jar`` of it."""

    @abc.abstractmethod
    def build_request(
        self, method: str, url: str, *, content: Any = ..., headers: Any = ..., timeout: Any = ...
    ) -> Any:
        """Return a request with the client's own header fields and cookies."""

    @abc.abstractmethod
    async def send(self, request: Any, *, stream: bool = ..., follow_redirects: Any = ...) -> Any:
        """Send a request, and return the response."""


class ResponseBody(Protocol):
    """The body of a response while it arrives."""

    async def receive(self) -> bytes:
        """Return the next part of the body; an empty part means that the body has ended.

        Raises:
            Disconnected: If the connection is lost before the body ends.
        """

    async def aclose(self) -> None:
        """Release the connection, and close it unless the body has been read to its end."""


class HttpResponse:
    """The head of an HTTP response, and its body as it arrives.

    Args:
        status: The HTTP status.
        headers: The header fields.
        body: The body.
        target: The HTTP method and URL of the request, without secrets.

    Attributes:
        asked: The header fields of the request.
        has_two_ends: Whether two fields say where the body ends (RFC 9112, section 6.3).
    """

    def __init__(self, status: int, headers: Headers, body: ResponseBody, target: str) -> None:
        self.status = status
        self.headers = headers
        self.target = target
        self.asked: FieldsByName = {}
        self.has_two_ends = headers.get("transfer-encoding") is not None and headers.get("content-length") is not None
        self._body = body
        self._rest: bytes | None = None  # after `keep`: the part of the body that `receive` has not returned yet

    async def receive(self) -> bytes:
        """Return the next part of the body; an empty part means that the body has ended.

        Raises:
            Disconnected: If the connection is lost before the body ends.
        """
        if self._rest is not None:
            content, self._rest = self._rest, b""
            return content
        return await self._body.receive()

    async def body(self, limit: int) -> bytes:
        """Return the whole body.

        Raises:
            MessageTooLarge: If the body is longer than ``limit`` bytes.
            Disconnected: If the connection is lost before the body ends.
        """
        found = io.BytesIO()  # a list would keep an object for each of the few bytes that a peer may send at a time
        receive = self._body.receive if self._rest is None else self.receive
        while chunk := await receive():
            found.write(chunk)
            if found.tell() > limit:
                raise MessageTooLarge(limit)
        return found.getvalue()

    async def keep(self, limit: int, seconds: float) -> None:
        """Read the `beginning` of the body and release the connection; later reads return that beginning."""
        content = await self.beginning(limit, seconds)
        await self.aclose()
        self._rest = content

    async def beginning(self, limit: int, seconds: float) -> bytes:
        """Return the beginning of the body: up to ``limit`` bytes of what arrives within ``seconds``."""
        found = bytearray()
        with trio.move_on_after(seconds), contextlib.suppress(Disconnected):
            while len(found) < limit and (chunk := await self.receive()):
                found += chunk
        return bytes(found[:limit])

    def masked(self, text: bytes) -> bytes:
        """Return a text from the server with the request's credentials masked: some servers repeat them in refusals."""
        return without_credentials(text, self.asked.values())

    async def aclose(self) -> None:
        """Release the connection, and close it unless the body has been read to its end."""
        if self._rest is None:
            self._rest = b""
            await self._body.aclose()


class Sender(Protocol):
    """A sender of HTTP requests.

    Attributes:
        fields: Default header fields for each request.
        authorizes: Whether the sender sets the ``Authorization`` of each request itself.
    """

    fields: HeaderFields
    authorizes: bool

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
        """Send a request and wait for the head of the response; redirections are not followed.

        Args:
            method: The HTTP method: GET, POST or DELETE.
            url: The URL.
            fields: All header fields except those that follow from the other arguments.
            content: The body.
            written: Called once all of the request has been handed to the connection.
            target: The method and the URL for messages, without secrets.
            keeps_cookies: Whether later requests may have the cookies that the response sets.

        Raises:
            Disconnected: If the connection could not be made, or broke.
        """
