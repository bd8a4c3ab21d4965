"""The contract between a session and a transport, and the way in which a transport's messages reach the session."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import trio

from trio_mcp._log import logger
from trio_mcp.errors import TransportError
from trio_mcp.jsonrpc.messages import Failure, Incoming, Request, SessionMessage

__all__ = ["BUFFER", "Link", "hand_on", "report_unsent"]

BUFFER = 64
"""Messages between a transport and the session, each way. More would only delay control messages behind bulk."""


class Link(NamedTuple):
    """What a transport yields: a pair of channels of `SessionMessage`, which unpacks into ``(read, write)``.

    A transport is an async context manager that yields one. It promises:

    * garbage from the peer arrives as a message with a `Malformed` value, the loss of the link as one with a
      `Failure`, and after that, or after a clean end, ``read`` ends;
    * closing ``write`` ends the sending side once everything before it has been written;
    * leaving the context manager stops everything that the transport runs.
    """

    read: trio.abc.ReceiveChannel[SessionMessage]
    write: trio.abc.SendChannel[SessionMessage]


async def hand_on(
    inbound: trio.MemorySendChannel[SessionMessage], message: Incoming, metadata: Mapping[str, Any] | None = None
) -> bool:
    """Deliver to the session, with what the transport knows of it, and say whether it still listens."""
    item = SessionMessage(message, metadata=metadata)
    try:
        try:
            inbound.send_nowait(item)
        except trio.WouldBlock:
            await inbound.send(item)
    except (trio.BrokenResourceError, trio.ClosedResourceError):
        return False
    return True


async def report_unsent(item: SessionMessage, problem: str, inbound: trio.MemorySendChannel[SessionMessage]) -> None:
    """What can't be encoded costs one exchange: a request fails its own call, an answer was replaced by an error."""
    if isinstance(item.message, Request):
        error = TransportError(f"{item.message.method!r} was not sent: {problem}")
        await hand_on(inbound, Failure(error, item.message.id))
    else:
        logger.error("%s was not sent: %s", type(item.message).__name__, problem)
