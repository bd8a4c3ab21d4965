"""Runs a generated server over a stream of bytes in which each message is a line."""

from __future__ import annotations

import json
from typing import Any, Final

import trio

from trio_mcp.conformance.serving.server import ScriptedServer
from trio_mcp.conformance.transcript.tape import Tape

__all__ = ["serve_lines"]

MAX_LINE: Final = 16 * 1024 * 1024
"""The maximum length of a line, in bytes (an arbitrary choice): a client that writes more without a newline is cut
off."""


async def serve_lines(
    server: ScriptedServer, stream: trio.abc.Stream, tape: Tape, *, number: int, transport: str
) -> None:
    """Serve a client until it closes the stream, and record all messages on the tape."""
    tape.note("open", "client", connection=number, transport=transport)
    turn = trio.Lock()

    async def send(message: Any) -> None:
        # The lock keeps messages whole, and sends them in the order in which they are recorded.
        async with turn:
            tape.note("message", "server", connection=number, message=message)
            await stream.send_all(json.dumps(message).encode() + b"\n")

    async with trio.open_nursery() as nursery:

        async def take(message: Any) -> None:
            # The client may leave at any time.
            try:
                await server.take(message, send, server.next_turn(message))
            except (trio.BrokenResourceError, trio.ClosedResourceError):
                return

        waiting = b""
        reason = "closed by the client"
        while True:
            try:
                data = await stream.receive_some()
            except (trio.BrokenResourceError, trio.ClosedResourceError):
                reason = "broken by the client"
                break
            *lines, waiting = (waiting + data).split(b"\n")
            for line in lines:
                try:
                    message = json.loads(line)
                except ValueError:
                    tape.note("text", "client", connection=number, text=line)
                    continue
                tape.note("message", "client", connection=number, message=message)
                for part in message if isinstance(message, list) else [message]:
                    nursery.start_soon(take, part)
            if not data or len(waiting) > MAX_LINE:
                break
        if waiting:
            tape.note("text", "client", connection=number, text=waiting[:1000])
        tape.note("close", "client", connection=number, reason=reason)
        nursery.cancel_scope.cancel("the client has left")
