"""What all senders of HTTP requests have in common: their interface, the response, and how they fail."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from typing import Final, Protocol, TypeAlias

import trio

from trio_mcp._secrets import without_credentials
from trio_mcp.errors import Disconnected, MessageTooLarge
from trio_mcp.http.headers import Headers
from trio_mcp.jsonrpc.codec import Pieces

__all__ = [
    "CONNECT_TIMEOUT",
    "KEPT_ALIVE",
    "HeaderFields",
    "HttpResponse",
    "ResponseBody",
    "Sender",
    "Written",
    "failure",
    "text_of",
]

CONNECT_TIMEOUT: Final = 30.0
"""Seconds to connect, and for the server to accept what is written. Chosen; the time for a response is up to the
session."""
KEPT_ALIVE: Final = 3.0
"""Seconds for which a connection is used again if the server does not say for how long; many keep it for five."""

HeaderFields: TypeAlias = list[tuple[str, str]]
"""The names and values of header fields."""
Written: TypeAlias = Callable[[], object]
"""Called when all of a request has been handed to the connection."""

# Failures before anything has been sent. The names are those of httpx, whose exceptions are told by theirs, too.
_UNSENT: Final = frozenset({"ConnectError", "ConnectTimeout", "PoolTimeout", "UnsupportedProtocol", "ProxyError"})


def text_of(exc: BaseException) -> str:
    """Return the text of an exception, or of its cause: some have none, such as that of a certificate not trusted."""
    behind: BaseException | None = exc
    while behind is not None and not str(behind):
        behind = behind.__cause__ or behind.__context__
    return str(behind or "")


def failure(kind: str, text: str, target: str) -> Disconnected:
    """Return the error for a kind of failure, which has one of httpx's names."""
    error = Disconnected(f"{target} failed: {f'{kind}: {text}' if text else kind}")
    error.sent = kind not in _UNSENT
    return error


class ResponseBody(Protocol):
    """The body of a response while it arrives."""

    async def receive(self) -> bytes:
        """Return the next part; empty at the end.

        Raises:
            Disconnected: If it broke off.
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
        asked: The header fields of the request, by name in lower case.
    """

    def __init__(self, status: int, headers: Headers, body: ResponseBody, target: str) -> None:
        self.status = status
        self.headers = headers
        self.target = target
        self.asked: Mapping[str, tuple[str, str]] = {}
        self._body = body
        self._closed = False
        self._kept: bytes | None = None  # the body, if the connection has been released

    @property
    def has_two_ends(self) -> bool:
        """Whether two fields say where the body ends (RFC 9112, section 6.3)."""
        return bool(self.headers.count("transfer-encoding") and self.headers.count("content-length"))

    async def receive(self) -> bytes:
        """Return the next part of the body; empty at its end.

        Raises:
            Disconnected: If it broke off.
        """
        if self._kept is not None:
            content, self._kept = self._kept, b""
            return content
        return await self._body.receive()

    async def body(self, limit: int) -> bytes:
        """Return the whole body.

        Raises:
            MessageTooLarge: If it is longer than ``limit`` bytes.
            Disconnected: If it broke off.
        """
        found, size = Pieces(), 0
        while chunk := await self.receive():
            found.add(chunk)
            size += len(chunk)
            if size > limit:
                raise MessageTooLarge(limit)
        return found.joined()

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
        if not self._closed:
            self._closed = True
            await self._body.aclose()


class Sender(Protocol):
    """A sender of HTTP requests.

    Attributes:
        fields: Default header fields for each request.
    """

    fields: HeaderFields

    async def send(
        self, method: str, url: str, fields: HeaderFields, content: bytes, written: Written | None, target: str
    ) -> HttpResponse:
        """Send a request and wait for the head of the response; redirections are not followed.

        Args:
            method: The HTTP method: GET, POST or DELETE.
            url: The URL.
            fields: All header fields but those that follow from the other arguments.
            content: The body.
            written: Called once all of the request has been handed to the connection.
            target: The method and the URL for messages, without secrets.

        Raises:
            Disconnected: If the connection could not be made, or broke.
        """
