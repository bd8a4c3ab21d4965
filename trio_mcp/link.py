"""Defines the contract between a session and a transport, and hands the messages of a transport to the session."""

from __future__ import annotations

import errno
import os
from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol

import trio

from trio_mcp._log import logger
from trio_mcp.errors import TransportError
from trio_mcp.jsonrpc.messages import Incoming, Request, SessionMessage, TransportFailure

__all__ = [
    "BUFFER",
    "HeaderLink",
    "Inbound",
    "Link",
    "connect_problem",
    "hand_on",
    "not_sent",
    "report_unsent",
    "unsent",
]

BUFFER = 64
"""How many messages are buffered between a transport and the session, in each direction.

An arbitrary choice: more would only delay control messages behind others.
"""


class Link(NamedTuple):
    """A pair of channels of `SessionMessage`, which unpacks into ``(read, write)``.

    A transport is an async context manager that yields a link. It promises:

    * malformed input from the peer arrives as a message that holds a `Malformed`, the loss of the link as one that
      holds a `TransportFailure`; after that, or after a clean end, ``read`` ends;
    * closing ``write`` ends the sending side once everything sent before has been written;
    * leaving the context manager stops everything that the transport runs.
    """

    read: trio.abc.ReceiveChannel[SessionMessage]
    write: trio.abc.SendChannel[SessionMessage]


class HeaderLink(Link):
    """A link over HTTP, whose requests may have header fields of their own."""

    __slots__ = ()


class Inbound(Protocol):
    """The transport's sending half of the channel to the session, either a direct channel or a memory channel."""

    def send_nowait(self, value: SessionMessage, /) -> None:
        """Deliver a message; raise `trio.WouldBlock` if there is no room."""

    async def send(self, value: SessionMessage, /) -> None:
        """Wait for room, and deliver a message."""


async def hand_on(inbound: Inbound, message: Incoming, metadata: Mapping[str, Any] | None = None) -> bool:
    """Deliver a message to the session, with the transport's metadata, and return whether the session still reads."""
    item = SessionMessage(message, metadata=metadata)
    try:
        # If the channel has room, as it usually does, there is no checkpoint: an `await` for each message would cost
        # more than handing it over. Other tasks run while the transport waits for input.
        try:
            inbound.send_nowait(item)
        except trio.WouldBlock:
            await inbound.send(item)
    except (trio.BrokenResourceError, trio.ClosedResourceError):  # the session or the transport has closed the channel
        return False
    return True


async def report_unsent(item: SessionMessage, problem: str, inbound: Inbound) -> None:
    """Report a message that could not be encoded; if it is a request, only its own call fails."""
    if (failure := unsent(item, problem)) is not None:
        await hand_on(inbound, failure)


def unsent(item: SessionMessage, problem: str) -> TransportFailure | None:
    """Return the failure of a request that could not be encoded; log what happened to any other message."""
    # A request that was not sent gets no response, so its call must be failed, or it would wait until its timeout.
    if isinstance(item.message, Request):
        return TransportFailure(not_sent(item.message.method, problem), item.message.id)
    # A response that can't be encoded has already been replaced by an error response (see `encode_or_replace`), so the
    # problem is only logged.
    logger.error("%s was not sent: %s", type(item.message).__name__, problem)
    return None


def not_sent(method: str, problem: str) -> TransportError:
    """Return the error for a request that was not sent."""
    error = TransportError(f"{method!r} was not sent: {problem}")
    error.sent = False
    return error


def connect_problem(exc: BaseException) -> str:
    """Return why connecting failed, from the causes of Trio's exception, whose own text gives no reason."""
    while exc.__cause__ is not None:
        exc = exc.__cause__
    while isinstance(exc, BaseExceptionGroup):
        exc = exc.exceptions[0]
    # A failure to resolve a name has an error number of its own, which is negative and unknown to `os.strerror`.
    number = exc.errno if isinstance(exc, OSError) else None
    text = os.strerror(number) if number and number > 0 else getattr(exc, "strerror", None) or str(exc)
    return f"{text}; is the server running?" if number in (errno.ECONNREFUSED, errno.ENOENT) else text
