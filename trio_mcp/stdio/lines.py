"""NDJSON over byte streams: what stdio, TCP and Unix sockets have in common (`basic/transports/stdio`)."""

from __future__ import annotations

import logging

import trio

from trio_mcp.errors import TransportError
from trio_mcp.jsonrpc.codec import LineDecoder, encode_or_replace
from trio_mcp.jsonrpc.messages import Failure, Incoming, Request, SessionMessage

__all__ = ["BUFFER", "hand_on", "read_lines", "report_unsent", "write_lines"]

logger = logging.getLogger("trio_mcp")

BUFFER = 64
"""Messages between the stream and the session, each way. More would only delay control messages behind bulk."""

CHUNK = 64 * 1024
# Small messages that wait together are written together; a large one needs no company.
WRITE_BURST = 64 * 1024


async def read_lines(
    stream: trio.abc.ReceiveStream, decoder: LineDecoder, inbound: trio.MemorySendChannel[SessionMessage]
) -> None:
    """Read a stream to its end, handing every message on, as long as the session listens.

    Raises:
        trio.BrokenResourceError: The stream broke.
    """
    while chunk := await stream.receive_some(CHUNK):
        for message in decoder.feed(chunk):
            if not await hand_on(inbound, message):
                return
    if (last := decoder.finish()) is not None:
        await hand_on(inbound, last)


async def hand_on(inbound: trio.MemorySendChannel[SessionMessage], message: Incoming) -> bool:
    """Deliver to the session, and say whether it still listens."""
    item = SessionMessage(message)
    try:
        try:
            inbound.send_nowait(item)
        except trio.WouldBlock:
            await inbound.send(item)
    except (trio.BrokenResourceError, trio.ClosedResourceError):
        return False
    return True


async def write_lines(
    outbound: trio.MemoryReceiveChannel[SessionMessage],
    stream: trio.abc.SendStream,
    inbound: trio.MemorySendChannel[SessionMessage],
) -> None:
    """Write every message to a stream until the session closes its side. The only task that writes to it.

    Raises:
        trio.BrokenResourceError: The stream broke.
    """
    async for item in outbound:
        lines = bytearray()
        waiting: SessionMessage | None = item
        while waiting is not None:
            data, problem = encode_or_replace(waiting.message)  # type: ignore[arg-type]
            if data is not None:
                lines += data
                lines += b"\n"
            if problem is not None:
                await report_unsent(waiting, problem, inbound)
            waiting = None
            if len(lines) < WRITE_BURST:
                try:
                    waiting = outbound.receive_nowait()
                except (trio.WouldBlock, trio.EndOfChannel):
                    pass
        if lines:
            await stream.send_all(lines)


async def report_unsent(item: SessionMessage, problem: str, inbound: trio.MemorySendChannel[SessionMessage]) -> None:
    """What can't be encoded costs one exchange: a request fails its own call, an answer was replaced by an error."""
    if isinstance(item.message, Request):
        error = TransportError(f"{item.message.method!r} was not sent: {problem}")
        await hand_on(inbound, Failure(error, item.message.id))
    else:
        logger.error("%s was not sent: %s", type(item.message).__name__, problem)
