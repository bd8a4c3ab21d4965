"""A generated server over Streamable HTTP, in both eras, written with h11 so that the kit controls each byte."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

import attrs
import h11
import trio

from trio_mcp.conformance.rules.history import is_request
from trio_mcp.conformance.serving.script import Script
from trio_mcp.conformance.serving.server import ICON, MOVED, ScriptedServer, Send, elsewhere
from trio_mcp.conformance.transcript.events import Kind, Sender
from trio_mcp.conformance.transcript.tape import Tape
from trio_mcp.conformance.wires.h11_stream import GONE, H11Stream
from trio_mcp.conformance.wires.notes import TooMuch
from trio_mcp.http.headers import Headers
from trio_mcp.http.rules.guard import HostGuard
from trio_mcp.http.sse import encode_event, encode_priming_event

if TYPE_CHECKING:
    # Few checks protect their servers, and the authorization server takes a moment to import.
    from trio_mcp.conformance.serving.gate import ScriptedGate

__all__ = ["PATH", "HttpServing"]

PATH: Final = "/mcp"
RETRY: Final = 0.01
"""Seconds after which a client is asked to resume a stream that was cut (an arbitrary choice, so short that no
example waits long)."""
QUIET_TURNS: Final = ("plain", "error", "extra", "gone")
"""The ways of responding (``Script.turns``) that send a single message, which a response in JSON can carry."""


@attrs.define(eq=False)
class _Session:
    """A session; in the modern era, or if the server assigns no session ids, the client as a whole.

    Attributes:
        number: The number of the connection, in the events.
        id: The session's id; empty if it has none.
        server: The server that handles the session's messages.
        owed: The messages that are still due on streams that were cut, by the id of each stream's last event.
    """

    number: int
    id: str
    server: ScriptedServer
    owed: dict[str, list[Any]] = attrs.Factory(dict)


class HttpServing:
    """Serves one client, however many connections and sessions it opens.

    Args:
        script: The script of the server.
        tape: Records all the traffic.
        deadline: Seconds that the client has to respond to a request from the server.
        guard: Refuses requests from web pages; None if only the client can connect.
        gate: Makes the client sign in, and responds to what it sends for that; None to let everyone in.
    """

    def __init__(
        self,
        script: Script,
        tape: Tape,
        deadline: float,
        guard: HostGuard | None = None,
        gate: ScriptedGate | None = None,
    ) -> None:
        self._script = script
        self._tape = tape
        self._deadline = deadline
        self._guard = guard
        self._gate = gate
        self._sessions: dict[str, _Session] = {}
        self._count = 0
        self._exchanges = 0
        self._events = 0

    async def serve(self, stream: trio.abc.Stream) -> None:
        """Serve a TCP connection until it ends."""
        async with stream:
            try:
                await H11Stream(stream).serve(self._respond)
            # The client has left, or has sent more than the kit reads.
            except (*GONE, TooMuch):
                return
            except h11.RemoteProtocolError as exc:
                self._tape.note("text", "client", text=str(exc).encode(), what="not HTTP")

    # --- one exchange -------------------------------------------------------------------------------------------------

    async def _respond(self, wire: H11Stream, request: h11.Request, body: bytes) -> None:
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in request.headers}
        method, path = request.method.decode("ascii"), request.target.decode("latin-1")
        if self._guard is not None and self._guard.check(Headers(request.headers)) is not None:
            # The request is not recorded: it comes from a web page, and rules would judge it as the client's.
            await wire.send(h11.Response(status_code=403, headers=[("content-length", "0")]), h11.EndOfMessage())
            return
        if self._gate is not None:
            # Messages that the gate refuses are not recorded: the client sends them again, with the same ids.
            url = f"http://{headers.get('host')}{path}"
            refusal = self._gate.handle(method, url, headers, body, self._newest)
            if refusal is not None:
                fields = [*refusal.headers.as_dict().items(), ("content-length", str(len(refusal.body)))]
                await wire.send(h11.Response(status_code=refusal.status, headers=fields))
                await wire.send(h11.Data(data=refusal.body), h11.EndOfMessage())
                return
        # A query is ignored: it does not make the path a different endpoint.
        if path.partition("?")[0] != PATH:
            # Requests for other paths, for example for an icon, are not part of MCP.
            secret = sorted({"authorization", "cookie", "mcp-session-id"} & set(headers))
            self._tape.note("mark", "kit", connection=self._newest, what="fetched", path=path, secret=secret)
            # A client that follows this redirect goes to another origin, which it must not do for an icon
            # (basic#icons).
            moved = [("location", elsewhere(f"http://{headers.get('host')}") + MOVED)] if path == ICON else []
            response = h11.Response(status_code=302 if moved else 404, headers=[("content-length", "0"), *moved])
            await wire.send(response, h11.EndOfMessage())
            return
        self._exchanges += 1
        exchange = self._exchanges
        message, is_json = _parsed(body)
        # The session is looked up before the request is recorded: if the request opens the session, the opening must
        # come first on the tape.
        session = self._session_of(headers, message)
        number = session.number if session is not None else self._newest
        self._tape.note(
            "request",
            "client",
            connection=number,
            exchange=exchange,
            method=method,
            path=path,
            headers=[*headers.items()],
        )
        if is_json:
            self._tape.note("message", "client", connection=number, exchange=exchange, message=message)
        elif body:
            self._tape.note("text", "client", connection=number, exchange=exchange, text=body)
        place = _Place(self._tape, wire, number, exchange)
        if session is None:
            # A request without a session id belongs to no session; a request with an unknown id belongs to a session
            # that has ended.
            await place.plain(404 if "mcp-session-id" in headers else 400)
        elif method == "POST":
            await self._post(place, session, message, is_json)
        elif method == "GET" and not self._script.modern:
            await self._get(place, session, headers)
        # A session without an id can't be ended, so the response to DELETE is 405, which a client must accept
        # (2025-11-25, Session Management).
        elif method == "DELETE" and session.id:
            del self._sessions[session.id]
            await place.plain(200)
        else:
            await place.plain(405)

    def _session_of(self, headers: Mapping[str, str], message: Any) -> _Session | None:
        """Return the session of a request; create it if the request opens one."""
        opens = is_request(message) and message["method"] == "initialize"
        if self._script.modern or not self._script.has_session:
            # There is one client, and so one session without an id; `initialize` replaces it.
            if "" not in self._sessions or (opens and not self._script.modern):
                self._sessions[""] = self._new("", headers)
            return self._sessions[""]
        if opens and "mcp-session-id" not in headers:
            # The id has characters from both ends of the allowed range, 0x21 to 0x7E (2025-11-25, Session Management):
            # a client has to send them back unchanged.
            session = self._new(f"session-{self._count}~!", headers)
            self._sessions[session.id] = session
            return session
        # An unknown id gets a 404, after which a client must open a new session. The turn `gone` tests that.
        return self._sessions.get(headers.get("mcp-session-id", ""))

    def _new(self, session_id: str, headers: Mapping[str, str]) -> _Session:
        number = self._count
        self._count += 1
        self._tape.note("open", "client", connection=number, transport="http")
        server = ScriptedServer(self._script, self._tape, number, self._deadline, f"http://{headers.get('host')}")
        return _Session(number, session_id, server)

    @property
    def _newest(self) -> int:
        return max(0, self._count - 1)

    async def _post(self, place: _Place, session: _Session, message: Any, is_json: bool) -> None:
        if not is_json:
            await place.plain(400)
        elif not is_request(message):
            # The message is handled before the response is sent, so that its effect, especially a cancellation, has
            # occurred when the client reads the 202.
            await session.server.take(message, place.refuse)
            await place.plain(202)
        # If the server assigns no session id, no session can be lost, so the turn `gone` is then like `plain`.
        elif (turn := session.server.next_turn(message)) == "gone" and session.id:
            del self._sessions[session.id]
            await place.plain(404)
        elif turn == "cut" and not self._script.modern:
            await self._cut(place, session, message)
        elif message["method"] == "subscriptions/listen" or self._script.streams or turn not in QUIET_TURNS:
            # Only the response to `initialize` assigns an id (2025-11-25, Session Management).
            given = session.id if message["method"] == "initialize" else ""
            await place.streamed(lambda send: session.server.take(message, send, turn), given)
        else:
            # The messages are collected first, because a response in JSON declares its length, and consists of a single
            # message.
            answers = await _answers(session, message, turn)
            await place.json(answers, session.id if message["method"] == "initialize" else "")

    async def _cut(self, place: _Place, session: _Session, message: Any) -> None:
        self._events += 1
        event_id = f"event-{self._events}"
        # The result is ready before the stream ends, so that even a client that resumes the stream at once gets the
        # result.
        session.owed[event_id] = await _answers(session, message)
        await place.stream_head()
        place.note("text", text=b"", event_id=event_id, retry=RETRY)
        # The event has an id and no data: after such an event, a server may end a stream that the client then resumes
        # (2025-11-25, Sending Messages to the Server).
        await place.wire.send(h11.Data(data=encode_priming_event(event_id, RETRY)))
        # The stream ends in an orderly way, because the server chose to end it, and a client must not treat its request
        # as lost.
        await place.end()

    async def _get(self, place: _Place, session: _Session, headers: Mapping[str, str]) -> None:
        # The messages are removed, because each must come on one stream only; a second GET with the same id must find
        # no messages.
        owed = session.owed.pop(headers.get("last-event-id", ""), None)
        # Only a GET for the session's own stream may be refused; a stream that was cut can always be resumed by a GET.
        if owed is None and not self._script.listens:
            await place.plain(405)
            return

        async def deliver(send: Send) -> None:
            for message in owed or ():
                await send(message)
            # The stream of the session has no natural end: it lasts until the client leaves.
            if owed is None:
                await trio.sleep_forever()

        await place.streamed(deliver)


@attrs.define(eq=False)
class _Place:
    """Writes the response to an HTTP request, and records it on the tape."""

    tape: Tape
    wire: H11Stream
    number: int
    exchange: int

    def note(self, kind: Kind, sender: Sender = "server", **more: Any) -> None:
        """Record an event of this exchange on the tape."""
        self.tape.note(kind, sender, connection=self.number, exchange=self.exchange, **more)

    async def _head(self, status: int, headers: list[tuple[str, str]], session_id: str = "") -> None:
        headers = [*headers, *([("mcp-session-id", session_id)] if session_id else [])]
        self.note("response", status=status, headers=headers)
        await self.wire.send(h11.Response(status_code=status, headers=headers))

    async def end(self) -> None:
        self.note("end", cut=False, by="server")
        await self.wire.send(h11.EndOfMessage())

    async def refuse(self, message: Any) -> None:
        """Send nothing, because what the client sent was not a request."""
        await trio.lowlevel.checkpoint()

    async def plain(self, status: int) -> None:
        """Respond with a status and an empty body."""
        await self._head(status, [("content-length", "0")])
        await self.end()

    async def json(self, answers: list[Any], session_id: str) -> None:
        """Respond with the first of the messages, in JSON, or with an empty body if there are no messages."""
        body = json.dumps(answers[0]).encode() if answers else b""
        headers = [("content-type", "application/json"), ("content-length", str(len(body)))]
        await self._head(200, headers, session_id)
        if answers:
            self.note("message", message=answers[0])
            await self.wire.send(h11.Data(data=body))
        await self.end()

    async def stream_head(self, session_id: str = "") -> None:
        """Begin a response that is a stream of events."""
        await self._head(200, [("content-type", "text/event-stream"), ("cache-control", "no-store")], session_id)

    async def streamed(self, produce: Callable[[Send], Awaitable[None]], session_id: str = "") -> None:
        """Respond with a stream of the messages that a function sends; cancel the function if the client leaves."""
        await self.stream_head(session_id)

        async def send(message: Any) -> None:
            self.note("message", message=message)
            await self.wire.send(h11.Data(data=encode_event(json.dumps(message).encode())))

        left = False
        # Two tasks are needed: in the modern era a client cancels by closing the stream, which must be noticed while
        # the function is still running.
        async with trio.open_nursery() as nursery:

            async def watch() -> None:
                nonlocal left
                await self.wire.until_left()
                left = True
                nursery.cancel_scope.cancel("the client has left")

            nursery.start_soon(watch)
            try:
                await produce(send)
            except GONE:
                left = True
            # The task that watches the client is still reading, and would wait for a client that has no reason to send
            # anything or to leave.
            nursery.cancel_scope.cancel()
        if left:
            self.note("end", "client", cut=True, by="client")
            # The exception tells `serve` not to wait for another request on a connection that is closed.
            raise trio.BrokenResourceError("the client has left")
        await self.end()


async def _answers(session: _Session, message: Any, turn: str = "plain") -> list[Any]:
    """Return all the messages that a session's server sends in response to a message."""
    answers: list[Any] = []

    async def keep(answer: Any) -> None:
        answers.append(answer)

    await session.server.take(message, keep, turn)
    return answers


def _parsed(body: bytes) -> tuple[Any, bool]:
    try:
        return json.loads(body), True
    # A body that is not UTF-8 raises a ValueError, too. The server just responds with 400; the rules find the client's
    # mistakes.
    except ValueError:
        return None, False
