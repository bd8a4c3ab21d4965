"""WebSockets at an HTTP endpoint: from the handshake, or ASGI's ``websocket`` scope, to the session."""

from __future__ import annotations

import base64
import contextlib
import math
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final

import attrs
import trio
from trio_websocket import WebSocketConnection, wrap_server_stream
from wsproto.frame_protocol import CloseReason

from trio_mcp._nursery import background_nursery
from trio_mcp.errors import TransportError
from trio_mcp.http.headers import Headers
from trio_mcp.http.rules.statuses import Refusal, refuse
from trio_mcp.http.server.access import note_status
from trio_mcp.http.server.asgi import HttpRequest, ReceiveCallable, SendCallable
from trio_mcp.http.server.door import ending
from trio_mcp.http.server.gate import end_of
from trio_mcp.http.server.host import HostedClient, HostedRun
from trio_mcp.http.server.options import HttpOptions
from trio_mcp.lines import CHUNK
from trio_mcp.link import Link
from trio_mcp.websocket.frames import CloseCause, too_big
from trio_mcp.websocket.link import WebSocketLink
from trio_mcp.websocket.sockets import NOT_TEXT, SUBPROTOCOL, Ended, Socket, TrioSocket, farewell
from trio_mcp.websocket.stream import Accept, WatchedStream

__all__ = ["WebSockets", "wants_websocket"]

# 1012, 1013 and 3000 (unauthorized) are not in RFC 6455, but in IANA's registry of close codes. The first two ask the
# client to come back.
ENDING: Final = CloseCause(CloseReason.SERVICE_RESTART, "the server is ending")
FULL: Final = CloseCause(CloseReason.TRY_AGAIN_LATER, "too many WebSockets; try again later")
EXPIRED: Final = CloseCause(3000, "the token has expired; reconnect with a new one")
FAILED: Final = CloseCause(CloseReason.INTERNAL_ERROR, "the session failed")

# trio-websocket reads this head in place of the client's, because some heads that HTTP allows would make it fail. Only
# the key matters: the client's head has been checked already.
HEAD: Final = (
    b"GET / HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
    b"Sec-WebSocket-Protocol: mcp\r\nSec-WebSocket-Key: %s\r\n\r\n"
)


def wants_websocket(headers: Headers) -> bool:
    """Return whether a GET asks for a WebSocket, even if a proxy has dropped some of its fields."""
    return _is_handshake(headers) or headers.get("Sec-WebSocket-Key") is not None


def _is_handshake(headers: Headers) -> bool:
    """Return whether a GET is the handshake of a WebSocket (RFC 6455, section 4.2.1)."""
    # Connection is a list: Firefox, for example, sends `keep-alive, Upgrade`.
    asked = {option.strip() for option in (headers.get("Connection") or "").lower().split(",")}
    return "upgrade" in asked and (headers.get("Upgrade") or "").lower() == "websocket"


@attrs.define(eq=False)
class WebSockets:
    """The WebSockets of an endpoint.

    Args:
        run: The run of the server.
        options: The settings of the endpoint.
    """

    _run: HostedRun
    _options: HttpOptions
    _sessions: set[HostedClient] = attrs.Factory(set)
    _count: int = 0
    _ending: bool = False

    def __len__(self) -> int:
        return self._count

    # --- by the handshake -----------------------------------------------------------------------------------------

    async def upgrade(self, request: HttpRequest) -> Refusal | None:
        """Serve a WebSocket on a request's connection until the WebSocket closes.

        Returns:
            The refusal of the request, or None if a WebSocket was served.
        """
        refusal = self._judge(request) or (ending() if self._ending else None)
        if refusal is not None:
            return refusal
        if request.extras is None:
            return refuse(501, "this server can't serve a WebSocket on this kind of connection")
        # After this no HTTP response can be sent, so every refusal has to come before.
        raw, read = await request.extras.take_over()
        note_status(request.scope, 101)
        options = self._options
        key = (request.headers.get("Sec-WebSocket-Key") or "").encode("latin-1")
        stream = WatchedStream(
            raw,
            # Frames may have arrived together with the head, and have been read along with it.
            HEAD % key + read.partition(b"\r\n\r\n")[2],
            max_message_size=options.settings["max_message_size"],
            write_timeout=options.settings["write_timeout"],
            is_client=False,
        )
        socket = TrioSocket(
            stream,
            "client",
            options.settings["keep_alive"],
            options.settings["ping_timeout"],
            options.settings["body_timeout"],
        )
        async with background_nursery() as nursery:
            # The handshake can fail only because the client has left, so no response is needed then.
            if await socket.open(partial(_accept, stream), nursery) is None:
                await self._serve(socket, request)
        return None

    def _judge(self, request: HttpRequest) -> Refusal | None:
        headers = request.headers
        # HTTP/1.0 has no Upgrade, and over HTTP/2 a WebSocket begins with a CONNECT (RFC 8441).
        if request.method != "GET" or not _is_handshake(headers) or request.scope.get("http_version") != "1.1":
            text = "only WebSockets are served at this path: use a URL that begins with ws:// or wss://"
            if headers.get("Sec-WebSocket-Key") is not None:
                text = "a WebSocket needs HTTP/1.1 and the fields Upgrade and Connection, which any proxy must pass on"
            return refuse(426, text, headers=(("Upgrade", "websocket"), ("Connection", "Upgrade")))
        # The refusal has to name the supported version (RFC 6455, section 4.4).
        if headers.get("Sec-WebSocket-Version") != "13":
            wanted = (("Sec-WebSocket-Version", "13"),)
            return refuse(426, "this server supports only version 13 of the WebSocket protocol", headers=wanted)
        try:
            # Decoding is strict, because the key is put into `HEAD`: by default the decoder ignores line breaks, for
            # example.
            complete = len(base64.b64decode(headers.get("Sec-WebSocket-Key") or "", validate=True)) == 16
        except ValueError:
            complete = False
        if not complete:
            return refuse(400, "the Sec-WebSocket-Key must be 16 bytes in Base64")
        # The stream is taken over directly after the head, so a body would be read as frames.
        if headers.get("Content-Length") not in (None, "0") or headers.get("Transfer-Encoding") is not None:
            return refuse(400, "the handshake of a WebSocket must not have a body")
        offered = [name.strip() for name in (headers.get("Sec-WebSocket-Protocol") or "").split(",")]
        return _without_subprotocol(offered)

    # --- by the websocket scope -----------------------------------------------------------------------------------

    async def serve_scope(
        self, request: HttpRequest, receive: ReceiveCallable, send: SendCallable, refusal: Refusal | None
    ) -> None:
        """Serve a WebSocket that an ASGI server has opened, or refuse it."""
        scope = request.scope
        event: Mapping[str, Any] = {}
        with trio.move_on_after(self._options.settings["head_timeout"]):
            event = await receive()
        # Nothing may be sent before the event websocket.connect. It is missing if the time is up or the client has
        # left.
        if event.get("type") != "websocket.connect":
            return
        refusal = refusal or _without_subprotocol(scope.get("subprotocols", ())) or (ending() if self._ending else None)
        if refusal is not None:
            await _refuse(refusal, "websocket.http.response" in scope.get("extensions", {}), send)
            return
        await send({"type": "websocket.accept", "subprotocol": SUBPROTOCOL})
        await self._serve(AsgiSocket(receive, send, self._options.settings["max_message_size"]), request)

    # --- the session ----------------------------------------------------------------------------------------------

    async def _serve(self, socket: Socket, request: HttpRequest) -> None:
        # `_ending` is checked again, because the server may have begun to end during the handshake.
        if self._ending or self._count >= self._options.settings["max_sessions"]:
            await socket.close(*(ENDING if self._ending else FULL))
            await socket.hang_up()
            return
        scope = request.scope
        metadata = {
            "headers": request.headers,
            "query": scope.get("query_string", b"").decode("latin-1"),
            "client": scope.get("client"),
        }
        # The gate has set these for an accepted token.
        metadata |= {key: request.metadata[key] for key in ("principal", "caller") if key in request.metadata}
        link = WebSocketLink(socket, metadata=metadata, farewell=ENDING)
        sessions: list[HostedClient] = []

        def opened(session: HostedClient) -> None:
            sessions.append(session)
            self._sessions.add(session)

        # The size of `_sessions` would not do, because a WebSocket counts even before its session is open.
        self._count += 1
        try:
            async with background_nursery() as nursery:
                if (deadline := end_of(request)) < math.inf:
                    nursery.start_soon(_expire, deadline, link, sessions)
                await self._run.serve_opening(_opening(link), opened)
        finally:
            self._count -= 1
            self._sessions.difference_update(sessions)

    # --- the end --------------------------------------------------------------------------------------------------

    def end(self) -> None:
        """Refuse new work, and end each session as soon as none of its requests is under way."""
        self._ending = True
        for session in self._sessions:
            session.ending = True
            # Each session gets a task: a client that is slow to read its last messages must not hold up the others.
            self._run.nursery.start_soon(_end, session)

    def cut(self) -> None:
        """End every session."""
        for session in self._sessions:
            self._run.nursery.start_soon(session.aclose)


@contextlib.asynccontextmanager
async def _opening(link: WebSocketLink) -> AsyncIterator[Link]:
    # Unless it fails, a session ends because the client leaves, or because the server ends or the token expires, for
    # which the link's farewell has been set.
    async with link.running() as channels:
        try:
            yield channels
        # A cancellation is not caught: it means that the server is ending, as the default farewell says.
        except Exception:
            link.farewell = FAILED
            raise


async def _expire(deadline: float, link: WebSocketLink, sessions: Sequence[HostedClient]) -> None:
    await trio.sleep_until(deadline)
    link.farewell = EXPIRED
    for session in sessions:  # there is one session, or none yet
        session.ending = True
        await _end(session)


async def _end(session: HostedClient) -> None:
    # Listening is ended first: a `subscriptions/listen` does not end by itself, and `wait_settled` waits for it, too.
    await session.end_listening()
    await session.wait_settled()
    await session.aclose()


@attrs.define(eq=False)
class AsgiSocket:
    """A WebSocket whose protocol, pings included, an ASGI server implements.

    Args:
        receive: ASGI's receive callable.
        send: ASGI's send callable.
        limit: How many bytes a message may have.
    """

    _receive: ReceiveCallable
    _send: SendCallable
    _limit: int
    waiting: bool = False
    _closed: bool = False

    async def receive_all(self, accept: Accept) -> None:
        while True:
            await accept(await self._message())

    async def _message(self) -> bytes:
        event = await self._receive()
        if event["type"] != "websocket.receive":
            # After our own close, the disconnect event only confirms it, so its code was not chosen by the client.
            self._closed, said = True, self._closed
            code = event.get("code", CloseReason.NO_STATUS_RCVD)
            if said:
                raise Ended
            if code == CloseReason.ABNORMAL_CLOSURE:
                raise Ended(TransportError("the connection to the client was lost"))
            raise Ended(farewell("client", code, event.get("reason")))
        text: str | None = event.get("text")
        if text is None:
            await self._give_up(CloseCause(CloseReason.UNSUPPORTED_DATA, NOT_TEXT))
        data = (text or "").encode()
        # The size is checked only now, because the ASGI server already has the whole message in memory: only that
        # server's own limit can prevent this.
        if len(data) > self._limit:
            await self._give_up(too_big(self._limit))
        return data

    async def _give_up(self, fault: CloseCause) -> None:
        await self.close(*fault)
        raise Ended(TransportError(f"the client sent {fault.reason}"))

    async def send(self, messages: Sequence[bytes]) -> None:
        for message in messages:
            if self._closed:
                raise Ended
            await self._try({"type": "websocket.send", "text": message.decode()})

    async def close(self, code: int, reason: str) -> None:
        if not self._closed:
            # The flag is set before the send, because ASGI does not allow the application to close again while the send
            # waits.
            self._closed = True
            with contextlib.suppress(Ended):
                await self._try({"type": "websocket.close", "code": int(code), "reason": reason})

    async def _try(self, event: dict[str, Any]) -> None:
        try:
            await self._send(event)
        except OSError:  # in ASGI, this means that the client has left
            self._closed = True
            raise Ended from None

    async def hang_up(self) -> None:
        """Do nothing: the connection belongs to the ASGI server."""


async def _accept(stream: WatchedStream, nursery: trio.Nursery) -> WebSocketConnection:
    given: Any = stream
    request = await wrap_server_stream(nursery, given, max_message_size=2**63, receive_buffer_size=CHUNK)
    return await request.accept(subprotocol=SUBPROTOCOL)


def _without_subprotocol(offered: Any) -> Refusal | None:
    if SUBPROTOCOL in offered:
        return None
    return refuse(400, f"MCP over a WebSocket needs the subprotocol {SUBPROTOCOL!r}, which the client did not offer")


async def _refuse(refusal: Refusal, may_respond: bool, send: Callable[[dict[str, Any]], Awaitable[None]]) -> None:
    # Closing a WebSocket before it is accepted makes the ASGI server respond with 403.
    if not may_respond:
        await send({"type": "websocket.close"})
        return
    fields = [(name.lower().encode("ascii"), value.encode("latin-1")) for name, value in refusal.headers]
    await send({"type": "websocket.http.response.start", "status": refusal.status, "headers": fields})
    await send({"type": "websocket.http.response.body", "body": refusal.body})
