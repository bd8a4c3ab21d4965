"""Records the traffic over WebSockets, with a local server that connects to the recorded server for each client.

The local server forwards whole messages and closes, not single frames.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import AsyncIterator

import trio
from trio_websocket import (
    CloseReason,
    ConnectionClosed,
    HandshakeError,
    WebSocketConnection,
    WebSocketRequest,
    WebSocketServer,
    open_websocket_url,
)

from trio_mcp.conformance.recording.guard import RecorderGuard
from trio_mcp.conformance.transcript.events import Sender
from trio_mcp.conformance.transcript.tape import Tape
from trio_mcp.conformance.wires.notes import LONGEST, Notes
from trio_mcp.http.client.parameters import HttpServerParameters

__all__ = ["record_websocket"]

# These codes must not be sent in a close frame: they are only used to report that there was no code, or no frame (RFC
# 6455, section 7.4.1).
_NEVER_SENT = frozenset({1005, 1006, 1015})


async def record_websocket(target: HttpServerParameters, listeners: list[trio.SocketListener], tape: Tape) -> None:
    """Forward WebSocket connections on a local port to a server, and record their messages, until cancelled."""
    numbers = itertools.count()
    guard = RecorderGuard(target.url)

    async def serve(request: WebSocketRequest) -> None:
        # trio-websocket does not expose the Host header, so the guard is given a Host that it accepts. A web page whose
        # domain was made to resolve to this machine is still recognized by its Origin, which browsers send with each
        # handshake (RFC 6455, section 10.2).
        if fault := guard.check("GET", request.path, [*request.headers, (b"host", b"localhost")]):
            status, text = fault
            await request.reject(status, body=text.encode())
            return
        number = next(numbers)
        try:
            # The connection to the server is opened before the client's connection is accepted, because only the server
            # knows whether it accepts the subprotocols that are offered.
            async with _behind(target, request) as server:
                client = await request.accept(subprotocol=server.subprotocol)
                await _pass_on(client, server, Notes(tape, number, "websocket", subprotocol=server.subprotocol))
        except (HandshakeError, OSError) as exc:
            tape.note("mark", "kit", connection=number, what="unsent", reason=f"can't connect to {target.url}: {exc!r}")
            with contextlib.suppress(ConnectionClosed, RuntimeError):  # raised if the handshake was already accepted
                await request.reject(502)

    await WebSocketServer(serve, listeners, max_message_size=LONGEST).run()


@contextlib.asynccontextmanager
async def _behind(target: HttpServerParameters, request: WebSocketRequest) -> AsyncIterator[WebSocketConnection]:
    own = {name.lower().encode(): value.encode() for name, value in target.headers.items()}
    passed = [
        (name, value)
        for name, value in request.headers
        # The headers of the client's handshake itself are left out: for its own handshake with the server,
        # trio-websocket makes the key and the extensions (RFC 6455, section 4.1).
        if name.lower() not in own.keys() | {b"host", b"connection", b"upgrade"}
        and not name.lower().startswith(b"sec-websocket-")
    ]
    offered = request.proposed_subprotocols
    async with open_websocket_url(
        target.url, subprotocols=offered, extra_headers=[*own.items(), *passed], max_message_size=LONGEST
    ) as server:
        yield server


async def _pass_on(client: WebSocketConnection, server: WebSocketConnection, notes: Notes) -> None:
    """Forward messages in both directions until one side closes, and then close the other in the same way."""
    async with trio.open_nursery() as nursery:

        async def pump(sender: Sender, source: WebSocketConnection, sink: WebSocketConnection) -> None:
            with contextlib.suppress(ConnectionClosed):
                while True:
                    message = await source.get_message()
                    # The message is recorded before it is passed on, so that its response comes later on the tape.
                    notes.text(sender, message.encode() if isinstance(message, str) else message)
                    await sink.send_message(message)
            # Whichever side has closed, both pumps end, because neither can pass anything on any more.
            closed: CloseReason | None = source.closed or sink.closed
            code = 1006 if closed is None else closed.code
            reason = "" if closed is None or closed.reason is None else closed.reason
            notes.close(sender, reason or "closed", code=code)
            with contextlib.suppress(ConnectionClosed):
                # The code is passed on, since it may explain the cause. A code that no frame may carry means that the
                # connection was lost, or that the frame had no code; then 1011 is sent instead, which says that
                # something went wrong in the server.
                await sink.aclose(1011 if code in _NEVER_SENT else code, reason)
            nursery.cancel_scope.cancel("one side has closed")

        nursery.start_soon(pump, "client", client, server)
        nursery.start_soon(pump, "server", server, client)
