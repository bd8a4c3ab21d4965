"""What is under way at an endpoint: how many requests, and how many bytes their clients make it hold."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from trio_mcp.http.rules.statuses import Refusal, refuse
from trio_mcp.jsonrpc.messages import (
    Batch,
    ErrorData,
    ErrorResponse,
    Incoming,
    Malformed,
    Notification,
    Request,
    Response,
)
from trio_mcp.types.error_codes import OVERLOADED

__all__ = ["Held", "Ledger", "NoRoom", "ending", "no_room"]


class NoRoom(Exception):
    """More is under way than the endpoint takes."""


def no_room(exc: NoRoom) -> Refusal:
    """Refuse what there is no room for."""
    return _later(f"too much at once: {exc}; try again later")


def ending() -> Refusal:
    """Refuse new work."""
    return _later("the server is ending")


def _later(text: str) -> Refusal:
    return refuse(503, ErrorData(OVERLOADED, text), headers=(("Retry-After", "1"),))


class Ledger:
    """Counts bodies while they are read, then messages until they are settled: each kind within both limits.

    Bodies are counted apart, as every one of them is over in time: one of them may bring the answer that all requests
    under way wait for.

    Args:
        max_requests: How many requests are under way, and how many bodies are read, at once.
        max_bytes: How many bytes these have, and those; one alone may have more.

    Attributes:
        requests: How many requests are under way.
        request_bytes: How many bytes these have, and notifications that wait to be handled.
        bodies: How many bodies are being read.
        body_bytes: How many bytes of them are there.
    """

    def __init__(self, max_requests: int, max_bytes: int) -> None:
        self._max_requests = max_requests
        self._max_bytes = max_bytes
        self.requests = self.request_bytes = 0
        self.bodies = self.body_bytes = 0

    @contextmanager
    def body(self) -> Iterator[BodyBytes]:
        """A block in which a body is read.

        Raises:
            NoRoom: Too many are.
        """
        if self.bodies >= self._max_requests:
            raise NoRoom(f"max_requests={self._max_requests} bodies are being read")
        self.bodies += 1
        counted = BodyBytes(self)
        try:
            yield counted
        finally:
            self.bodies -= 1
            self.body_bytes -= counted.size

    def check_body(self, size: int) -> None:
        """Look whether there is room for so much more of a body.

        Raises:
            NoRoom: There is not.
        """
        if self.bodies > 1 and self.body_bytes + size > self._max_bytes:
            raise NoRoom(f"the bodies that are being read have max_request_bytes={self._max_bytes} bytes")

    def take(self, message: Incoming, size: int) -> Held:
        """Enter a message, for the time until it is released.

        Args:
            message: What has come. What a handler under way may wait for is always taken, and is settled at once.
            size: Its bytes.

        Raises:
            NoRoom: There is no room for it.
        """
        if _is_awaited(message):
            return Held(self, 0, 0)
        requests = sum(type(item) is Request for item in message.items) if type(message) is Batch else 0
        requests += type(message) is Request
        if requests and self.requests + requests > self._max_requests:
            raise NoRoom(f"max_requests={self._max_requests} would be exceeded: {self.requests} are under way")
        if self.request_bytes and self.request_bytes + size > self._max_bytes:
            raise NoRoom(
                f"max_request_bytes={self._max_bytes} would be exceeded: {self.request_bytes} bytes are under way"
            )
        return Held(self, requests, size)


class BodyBytes:
    """How much of one body is there.

    Args:
        ledger: Where it counts.

    Attributes:
        size: So many bytes.
    """

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self.size = 0

    def grow(self, size: int) -> None:
        """So much more has come.

        Raises:
            NoRoom: There is no room for it.
        """
        self._ledger.check_body(size)
        self.size += size
        self._ledger.body_bytes += size


class Held:
    """A message that is under way: until everybody who keeps it has released it.

    Args:
        ledger: Where it counts.
        requests: As how many requests.
        size: As how many bytes.
    """

    def __init__(self, ledger: Ledger, requests: int, size: int) -> None:
        self._ledger, self._requests, self._size = ledger, requests, size
        self._keepers = 1
        ledger.requests += requests
        ledger.request_bytes += size

    def keep(self) -> None:
        """One more keeps it."""
        self._keepers += 1

    def release(self) -> None:
        """One of them is done with it."""
        self._keepers -= 1
        if not self._keepers:
            self._ledger.requests -= self._requests
            self._ledger.request_bytes -= self._size


def _is_awaited(message: Incoming) -> bool:
    if type(message) is Notification:
        return message.method in ("notifications/cancelled", "notifications/progress")
    return type(message) in (Response, ErrorResponse, Malformed)
