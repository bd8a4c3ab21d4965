"""Records the traffic over HTTP, with a server on a local port that forwards each request to the recorded server.

Each connection to the recorded server carries one exchange. The body of a request is read whole before it is forwarded;
a response is passed on piece by piece, as it arrives.
"""

from __future__ import annotations

import contextlib
import itertools
from typing import Any, Final
from urllib.parse import urlsplit

import attrs
import h11
import trio

from trio_mcp.conformance.members import member_of, parsed
from trio_mcp.conformance.recording.guard import RecorderGuard
from trio_mcp.conformance.transcript.tape import Tape
from trio_mcp.conformance.wires.events import EventSplitter
from trio_mcp.conformance.wires.h11_stream import GONE, H11Stream, response_reader
from trio_mcp.conformance.wires.notes import LONGEST, Notes, TooMuch
from trio_mcp.errors import TransportError
from trio_mcp.http.client.parameters import HttpServerParameters
from trio_mcp.http.headers import EVENTS, SESSION_ID
from trio_mcp.sockets.addresses import web_address
from trio_mcp.sockets.client import open_socket

__all__ = ["HttpRecorder"]

# These headers describe one connection, or the framing of one body, so they are not passed on (RFC 9110, section
# 7.6.1): h11 frames the body again.
_HOP: Final = frozenset(
    {"connection", "keep-alive", "proxy-connection", "te", "trailer", "transfer-encoding", "upgrade", "content-length"}
)
Fields = list[tuple[str, str]]


class HttpRecorder:
    """Stands in for a server over HTTP: forwards each request to it, and records the exchange.

    Args:
        target: The server to record, and the headers to send with each request.
        tape: The tape to record on.

    Attributes:
        guard: Checks each request before it is forwarded.
    """

    def __init__(self, target: HttpServerParameters, tape: Tape) -> None:
        self._address, _ = web_address(target.url)
        self._headers = dict(target.headers)
        self._tape = tape
        self._exchanges = itertools.count(1)
        self._numbers = itertools.count()
        self._sessions: dict[str, Notes] = {}
        self._plain: Notes | None = None  # the notes for the client that has no session yet
        # Whether a request without a session id was accepted. Only then does a second handshake count as that of a
        # second client.
        self._plain_served = False
        self._query = urlsplit(target.url).query
        self.guard = RecorderGuard(target.url)

    async def serve(self, client: trio.SocketStream) -> None:
        """Serve one client connection until it ends."""
        http = H11Stream(client)
        with contextlib.suppress(*GONE):
            while (request := await self._next_request(http)) is not None:
                head, _ = request
                # A request is refused only after its body has been read: closing the connection with unread bytes would
                # reset it, and the response would be lost.
                if fault := self.guard.check(head.method.decode(), head.target.decode("latin-1"), head.headers):
                    await http.refuse(*fault)
                    return
                await _Exchange(self, http, next(self._exchanges)).run(*request)
                if not http.next_cycle():
                    return

    async def _next_request(self, http: H11Stream) -> tuple[h11.Request, bytes] | None:
        try:
            return await http.next_request()
        except h11.RemoteProtocolError as exc:
            # The recorder responds in the server's place: h11 can't parse the request, so there is nothing to pass on.
            await http.refuse(exc.error_status_hint, str(exc))
        except TooMuch:
            await http.refuse(413, "the request is too large to be recorded")
        return None

    # --- what an exchange needs ---------------------------------------------------------------------------------------

    def notes_for(self, fields: Fields, body: bytes) -> Notes:
        """Return the ``Notes`` that record the client of this request; clients are distinguished by their sessions."""
        session = _value(fields, SESSION_ID)
        if session in self._sessions:
            return self._sessions[session]
        # A handshake means that another client has connected, unless every earlier request without a session id was
        # refused. A malformed handshake is passed on, but is not taken for a new client.
        if self._plain is None or (
            self._plain_served and b'"initialize"' in body and member_of(parsed(body), "method") == "initialize"
        ):
            self._plain, self._plain_served = Notes(self._tape, next(self._numbers), "http"), False
        return self._plain

    def responded(self, notes: Notes, status: int, fields: Fields) -> None:
        """Remember the session that a response opens, if any."""
        if session := _value(fields, SESSION_ID):
            # Servers repeat the id in later responses; the first one shows to which client the session belongs.
            self._sessions.setdefault(session, notes)
        # A client that has a session names it in its requests, so the next request without one is from another client.
        if notes is self._plain:
            self._plain = None if session else notes
            self._plain_served = self._plain_served or status < 300

    def behind(self, path: str) -> str:
        """Return the path and query to request from the recorded server for the path that a client requested."""
        own, _, query = path.partition("?")
        # The query in the target's URL may contain an API key, so it is not part of the recorder's URL. It is added
        # only when a request is forwarded.
        query = "&".join(filter(None, (self._query if own == self.guard.path else "", query)))
        return f"{own}?{query}" if query else own

    def passed(self, fields: Fields) -> Fields:
        """Return the headers of a request as they are passed on to the server."""
        # The recorder asks for an uncompressed response, because it could pass on a compressed one but not record it.
        own = {"host": self._address.place, "accept-encoding": "identity", "connection": "close"}
        own |= {name.lower(): value for name, value in self._headers.items()}
        return [*own.items(), *((name, value) for name, value in fields if name.lower() not in _HOP | own.keys())]

    async def connect(self) -> trio.abc.Stream:
        """Connect to the recorded server.

        Raises:
            TransportError: If the server can't be reached.
        """
        return await open_socket(self._address, https_compatible=True)


@attrs.define(eq=False)
class _Exchange:
    """Forwards a request to the server, and passes the response back to the client."""

    recorder: HttpRecorder
    client: H11Stream
    number: int
    ended: dict[str, Any] = attrs.Factory(lambda: {"cut": True, "by": "server"})

    async def run(self, request: h11.Request, body: bytes) -> None:
        """Forward the request to the server, and pass the response back to the client."""
        fields = _fields(request)
        method, path = request.method.decode(), request.target.decode("latin-1")
        notes = self.recorder.notes_for(fields, body)
        notes.event("request", "client", self.number, method=method, path=path, headers=fields)
        if body:
            notes.text("client", body, self.number)
        try:
            server = await self.recorder.connect()
        except TransportError as exc:
            notes.mark("unsent", reason=str(exc), exchange=self.number)
            # The client must not wait in vain: this response tells it that the server can't be reached (RFC 9110,
            # section 15.6.3).
            await self.client.send(h11.Response(status_code=502, headers=[("Content-Length", "0")]), h11.EndOfMessage())
            return
        async with server, trio.open_nursery() as nursery:
            # While a response is passed on, nothing else reads from the client, so without this task a disconnect would
            # show only at the next write.
            nursery.start_soon(self._watch, nursery.cancel_scope)
            # Either side may leave, or break HTTP, in the middle of the exchange. In that case `ended` says only that
            # the response was cut off; nothing more is known.
            with contextlib.suppress(*GONE, h11.ProtocolError):
                await self._forward(server, method, path, fields, body, notes)
            nursery.cancel_scope.cancel("the exchange has ended")
        notes.event("end", self.ended["by"], self.number, **self.ended)

    async def _watch(self, scope: trio.CancelScope) -> None:
        """Give up the exchange when the client disconnects, which in the modern era cancels its request."""
        await self.client.until_left()
        self.ended["by"] = "client"
        scope.cancel("the client has left")

    async def _forward(
        self, server: trio.abc.Stream, method: str, path: str, fields: Fields, body: bytes, notes: Notes
    ) -> None:
        # The head is written as bytes: it must reach the server with all the client's mistakes, and h11 would refuse to
        # send some of them.
        passed = self.recorder.passed(fields)
        if body or method == "POST":
            passed.append(("content-length", str(len(body))))
        lines = [
            f"{method} {self.recorder.behind(path)} HTTP/1.1",
            *(f"{name}: {value}" for name, value in passed),
            "",
            "",
        ]
        await server.send_all("\r\n".join(lines).encode("latin-1") + body)
        responses = response_reader(server, method)
        reader = _Reader(notes, self.number, self.recorder.guard)
        while True:
            event = await responses.next_event()
            if isinstance(event, h11.Response):
                response = _fields(event)
                notes.event("response", "server", self.number, status=event.status_code, headers=response)
                # The session is recorded before the client gets the head: its next request, with the new session, may
                # come at once on another connection.
                self.recorder.responded(notes, event.status_code, response)
                reader.begin(response)
                # A Content-Length is kept, because without it h11 would send chunks, or close the connection after a
                # response to an HTTP/1.0 client.
                kept = [(name, value) for name, value in response if name.lower() not in _HOP - {"content-length"}]
                await self.client.send(h11.Response(status_code=event.status_code, headers=kept, reason=event.reason))
            elif isinstance(event, h11.Data):
                # The data is recorded before it is passed on: the client's reaction must come later on the tape.
                reader.feed(bytes(event.data))
                await self.client.send(h11.Data(data=event.data))
            elif isinstance(event, h11.EndOfMessage):
                self.ended["cut"] = False
                reader.end()
                await self.client.send(h11.EndOfMessage())
                return
            # Informational responses (status 100) are meant for the recorder, so they are not passed on; h11 itself
            # sends one to a client that waits for it. Any other event means that the response has broken off.
            elif not isinstance(event, h11.InformationalResponse):
                return


class _Reader:
    """Records the body of a response: as one text, or each event of an event stream."""

    def __init__(self, notes: Notes, number: int, guard: RecorderGuard) -> None:
        self._notes = notes
        self._number = number
        self._guard = guard
        self._events: EventSplitter | None = None
        self._body = bytearray()
        self._reading = True

    def begin(self, fields: Fields) -> None:
        """Take the headers of the response, which say whether its body is an event stream."""
        if _value(fields, "content-type").partition(";")[0].strip().lower() == EVENTS:
            self._events = EventSplitter()

    def feed(self, data: bytes) -> None:
        """Take the next piece of the body."""
        if not self._reading:
            return
        try:
            if self._events is None:
                self._body += data
                if len(self._body) > LONGEST:
                    raise TooMuch(f"a body has more than {LONGEST} bytes")
                return
            for text, facts in self._events.feed(data):
                if facts.get("event") == "endpoint":
                    self._guard.name_endpoint(text)
                self._notes.text("server", text, self._number, **facts)
        except TooMuch as exc:
            # Only the recording of this body is given up. The exchange goes on, because the recorder must not disturb
            # the client or the server.
            self._reading = False
            self._body.clear()
            self._notes.mark("unrecorded", by="server", reason=str(exc))

    def end(self) -> None:
        """Record the collected body, now that it is complete."""
        if self._body:
            self._notes.text("server", bytes(self._body), self._number)


def _fields(head: h11.Request | h11.Response) -> Fields:
    return [(name.decode("latin-1"), value.decode("latin-1")) for name, value in head.headers.raw_items()]


def _value(fields: Fields, name: str) -> str:
    return next((value for key, value in fields if key.lower() == name.lower()), "")
