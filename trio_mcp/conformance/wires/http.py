"""Wires that speak HTTP by hand: the conformance kit chooses every byte it sends, and sees every byte it receives."""

from __future__ import annotations

import contextlib
import math
import re
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final, Literal
from urllib.parse import urlsplit

import attrs
import h11
import trio

from trio_mcp._nursery import background_nursery, closing
from trio_mcp.conformance.credentials import NOWHERE, UNAUTHORIZED, WELL_KNOWN, Credentials, wanted_by
from trio_mcp.conformance.members import items_of, member_of, object_of, parsed
from trio_mcp.conformance.rules.history import is_request
from trio_mcp.conformance.steps import Headers, Http
from trio_mcp.conformance.transcript.events import Event
from trio_mcp.conformance.transcript.tape import Tape
from trio_mcp.conformance.wires.events import EventSplitter
from trio_mcp.conformance.wires.h11_stream import GONE, H11Stream, response_reader
from trio_mcp.conformance.wires.lines import half_close, reset
from trio_mcp.conformance.wires.notes import WRITE_TIMEOUT, Notes, TooMuch, to_text
from trio_mcp.conformance.wires.wire import OpenWire
from trio_mcp.errors import TransportError
from trio_mcp.http.client.parameters import HttpServerParameters
from trio_mcp.http.headers import (
    EVENTS,
    JSON,
    LAST_EVENT_ID,
    METHOD,
    NAME,
    NAMED_BY,
    PROTOCOL_VERSION,
    SESSION_ID,
    encode_value,
)
from trio_mcp.http.param_headers import ParameterHeader, parameter_headers, parameter_values
from trio_mcp.sockets.addresses import web_address
from trio_mcp.sockets.client import open_socket
from trio_mcp.types import meta
from trio_mcp.types.versions import MODERN_REVISIONS

__all__ = ["Connect", "http_wire"]

Connect = Callable[[], Awaitable[trio.abc.Stream]]
"""A function that opens a connection to the server."""

REUSED_WITHIN: Final = 1.0
"""Seconds for which an idle connection may be reused. An arbitrary choice, shorter than servers usually keep idle
connections open."""

HEAD_TIMEOUT: Final = 2.0
"""Seconds to wait for the response to a GET to begin, or for a session to end (arbitrary)."""

RETRY: Final = 1.0
"""Seconds to wait before resuming a stream that the server has closed (arbitrary). A server may ask for a longer
wait; the conformance kit waits at most five times this long."""

MOMENT: Final = 0.05
"""Seconds to wait for the first event id of a stream before the stream is broken off (arbitrary)."""

LINGERING: Final = 0.5
"""Seconds that the server has to end a stream after the response on it (arbitrary); then the conformance kit ends the
stream."""

RESUMED: Final = 200
"""The maximum number of times that one wire resumes streams that the server has closed (arbitrary)."""

ENDPOINT_TIMEOUT: Final = 10.0
"""Seconds to wait for the ``endpoint`` event of HTTP+SSE (arbitrary)."""

EMPTY: Final = 3
"""The number of consecutive responses without an event after which a stream is not resumed again (arbitrary)."""

# The first revision with the `MCP-Protocol-Version` header (2025-06-18, changelog).
_VERSION_HEADER_SINCE: Final = "2025-06-18"


# The requests of the tasks extension are routed by their task (`io.modelcontextprotocol/tasks`, Routing Headers).
_NAMED_BY: Final = NAMED_BY | {"tasks/get": "taskId", "tasks/update": "taskId", "tasks/cancel": "taskId"}


@attrs.frozen
class _Server:
    """A server, and how to reach it.

    Attributes:
        name: The server's name, as messages show it.
        path: The path and the query of its endpoint.
        authority: The host and the port, for the ``Host`` header.
        headers: The headers to send with each request.
        connect: Opens a connection.
        url: The URL of its endpoint, without what is secret in it.
        credentials: The tokens to send; None if there are none.
    """

    name: str
    path: str
    authority: str
    headers: Mapping[str, str]
    connect: Connect
    url: str
    credentials: Credentials | None = None

    def filled(self, text: str) -> str:
        """Return a text with tokens in place of their names."""
        return text if self.credentials is None else self.credentials.filled(text)

    def hidden(self, text: str) -> str:
        """Return a text with names in place of tokens."""
        if self.credentials is None:
            return text
        return self.credentials.hidden(text.encode("latin-1", "replace")).decode("latin-1")


@attrs.define(eq=False)
class _Shared:
    """Facts about one server that all wires to it share.

    Attributes:
        tools: The arguments that each tool requires as headers, by the tool's name.
        sessions: The id of each session, by the number of its wire.
        events: The last event id that each wire received on any stream, by the wire's number.
        metadata: The path of the resource metadata that the last challenge has named, if it is on the same server.
    """

    tools: dict[str, tuple[ParameterHeader, ...]] = attrs.Factory(dict)
    sessions: dict[int, str] = attrs.Factory(dict)
    events: dict[int, str] = attrs.Factory(dict)
    metadata: str | None = None

    def fill_in(self, value: str, number: int) -> str:
        """Fill in the placeholders in a header's value: see `trio_mcp.conformance.steps.Headers`."""
        for name, known in (("session", self.sessions), ("event", self.events)):
            if "{" in value:
                others = [known[other] for other in sorted(known) if other != number]
                value = value.replace(f"{{{name}}}", known.get(number, "none"))
                value = value.replace(f"{{other {name}}}", others[-1] if others else "none")
        return value


@attrs.define(eq=False)
class _Exchange:
    """An HTTP request in progress, and its response.

    Attributes:
        number: The exchange's number on the wire.
        method: The HTTP method.
        message: The JSON value in its body, if any; for a resumed stream, the value in the request that began the
            stream.
        resumes: Whether it continues the stream of an earlier exchange.
        scope: The cancel scope whose cancellation gives up the exchange.
        written: Set when the request has been written, or never will be.
        begun: Set when the head of the response has arrived, or never will.
        done: Set when the exchange has ended.
        stream: The connection.
        how: How this side has ended the exchange; None if this side has not ended it, or only because the server left
            the stream open.
        status: The status of the response; 0 until it arrives.
        session: The session id in the response.
        last_id: The last event id of the response.
        retry: Seconds to wait before the stream is resumed.
        empty: How many responses in a row, including this one, have had no event.
        answered: Whether the response to the JSON-RPC request has arrived.
        aside: Whether it goes to another path than that of the endpoint.
        whose: The name of the token, if there are some.
    """

    number: int
    method: str
    message: Any = None
    resumes: bool = False
    scope: trio.CancelScope = attrs.Factory(trio.CancelScope)
    written: trio.Event = attrs.Factory(trio.Event)
    begun: trio.Event = attrs.Factory(trio.Event)
    done: trio.Event = attrs.Factory(trio.Event)
    stream: trio.abc.Stream | None = None
    how: str | None = None
    status: int = 0
    session: str | None = None
    last_id: str | None = None
    retry: float = RETRY
    # The response of this exchange counts as empty until its first event arrives.
    empty: int = 1
    answered: bool = False
    aside: bool = False
    whose: str | None = "a"

    @property
    def waits(self) -> bool:
        """Whether the exchange carries a JSON-RPC request whose response is still to come."""
        return not self.answered and is_request(self.message)


class StreamableHttpWire:
    """A wire to a server over Streamable HTTP: one client, whose exchanges may use several connections.

    Attributes:
        transport: ``http``, or ``sse`` for the transport of 2024-11-05.
        number: The number of the wire.
        nursery: Runs the exchanges; it is open for the whole life of the wire.
    """

    transport = "http"

    nursery: trio.Nursery

    def __init__(self, tape: Tape, number: int, revision: str, server: _Server, shared: _Shared) -> None:
        self.number = number
        credentials = server.credentials
        # The endpoint's URL is a fact for the rules of authorization, which compare it with what the metadata says.
        about: dict[str, Any] = {} if credentials is None else {"hide": credentials.hidden, "url": server.url}
        self.notes = Notes(tape, number, self.transport, **about)
        self._tape = tape
        self._server = server
        self._user = "a"
        self._shared = shared
        self._revision = revision
        self._modern = revision in MODERN_REVISIONS
        self._session: str | None = None
        self._listens = False
        self._listening = 0
        self._count = 0
        self._resumed = 0
        self._path = server.path
        self._open: dict[int, _Exchange] = {}
        self._resumable: list[_Exchange] = []
        self._idle: list[tuple[trio.abc.Stream, float]] = []

    @property
    def is_open(self) -> bool:
        """Whether the server could be reached when it was last tried."""
        return self.notes.is_open

    # --- what the caller does -----------------------------------------------------------------------------------------

    @property
    def tokens(self) -> frozenset[str]:
        """The names of the tokens that can be sent."""
        return frozenset() if self._server.credentials is None else self._server.credentials.names

    def act_as(self, user: str) -> None:
        """Send the token with this name from now on."""
        self._user = user

    async def learn(self) -> None:
        """Read in the server's metadata what tokens have to be for, so that an authority can make them."""
        credentials = self._server.credentials
        if credentials is None or credentials.is_ready:
            return
        # A request without a token is refused with a challenge, which says where the metadata is, and names scopes.
        challenged = await self._told("POST", [b"{}"], {"Authorization": None})
        scopes = {scope for event in challenged if event.kind == "response" for scope in wanted_by(event).scopes or ()}
        resource = self._server.url
        for path in ("{metadata}", f"{WELL_KNOWN}{{endpoint}}", WELL_KNOWN):
            told = await self._told("GET", [], UNAUTHORIZED, path=path)
            document = next((object_of(event.facts["document"]) for event in told if "document" in event.facts), {})
            if isinstance(document.get("resource"), str):
                resource = document["resource"]
                scopes |= set(filter(_is_scope, items_of(document, "scopes_supported")))
                break
        credentials.learn(resource, scopes)

    async def _told(self, *request: Any, **more: Any) -> list[Event]:
        """Make a request, and return the events up to the end of its response."""
        place = len(self._tape.events)
        with trio.move_on_after(HEAD_TIMEOUT):
            await self._start(*request, **more).done.wait()
        return self._tape.events[place:]

    async def send(self, message: Any, *, headers: Headers | None = None) -> None:
        """POST a JSON value."""
        await self._post([to_text(message)], headers or {})

    async def write(self, texts: Sequence[bytes], *, framed: bool = True, headers: Headers | None = None) -> None:
        """POST each text by itself, or all of them as one body, written piece by piece."""
        for pieces in [[text] for text in texts] if framed else [list(texts)]:
            await self._post(pieces, headers or {})

    async def http(self, step: Http) -> None:
        """Make a request, and wait up to `Http.hold` seconds for the end of its response."""
        exchange = self._start(step.method, [step.body] if step.body else [], step.headers, path=step.path)
        with trio.move_on_after(step.hold):
            await exchange.done.wait()
        # The stream of a GET does not end by itself, and would occupy one of the server's connections permanently.
        await self._give_up(exchange, "close")

    async def cancel(self, request_id: Any, reason: str | None) -> None:
        """Cancel a request: in the modern era by closing its response, otherwise with a notification."""
        if not self._modern:
            for exchange in self._open.values():
                # After the cancellation, the request's stream may end without a response. Counting the request as
                # answered keeps that stream from being resumed.
                exchange.answered = exchange.answered or _asks(exchange.message, request_id)
            # Closing the stream is not enough: in the legacy era a lost connection cancels nothing (2025-11-25, Sending
            # Messages to the Server).
            params = {"requestId": request_id} | ({} if reason is None else {"reason": reason})
            await self.send({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params})
            return
        # The loop needs a copy: an exchange is removed from the table when it ends, and `_give_up` waits for it to end.
        for exchange in list(self._open.values()):
            if _asks(exchange.message, request_id):
                await self._give_up(exchange, "close")
        await trio.lowlevel.checkpoint()

    async def stop(self, how: Literal["close", "reset", "half"], which: int = 0) -> None:
        """End one of the open responses, chosen by ``which`` modulo their number; responses to requests come first.

        If ``which`` is negative, first wait a moment for the response to contain an event id, from which it can be
        resumed.
        """
        await trio.lowlevel.checkpoint()
        asked = [each for each in self._open.values() if each.waits]
        # Responses to requests take precedence, because ending one of them loses data, while the stream of a session is
        # simply opened again.
        exchanges = asked or list(self._open.values())
        if not exchanges:
            self.notes.mark("unsent", reason="there is no open response to break off")
            return
        exchange = exchanges[which % len(exchanges)]
        # If every stream were broken off immediately, hardly any would have received an event id by then, and the
        # resuming of streams would remain untested.
        if which < 0:
            await self._tape.until(lambda: exchange.last_id is not None or exchange.done.is_set(), MOMENT)
        if how != "half":
            await self._give_up(exchange, how)
        elif exchange.stream is not None:
            await half_close(exchange.stream, self.notes, exchange=exchange.number)

    async def resume(self, which: int) -> None:
        """Resume one of the broken streams, chosen by ``which`` modulo their number; wait for the response to begin."""
        await trio.lowlevel.checkpoint()
        if not self._resumable:
            self.notes.mark("unsent", reason="there is no broken stream with an event id to resume")
            return
        resumed = self._resume(self._resumable.pop(which % len(self._resumable)))
        # Only the head of the response is awaited: the stream itself stays open for as long as its request takes.
        with trio.move_on_after(HEAD_TIMEOUT):
            await resumed.begun.wait()

    async def leave(self) -> None:
        """End the session when the wire's block ends."""
        # A client should end its session (2025-11-25, Session Management). That matters to the kit, because a check
        # opens hundreds of sessions, and a server may keep each of them until it is deleted.
        if self._session is not None and self.is_open:
            with trio.move_on_after(HEAD_TIMEOUT):
                await self._start("DELETE", [], {}).done.wait()
        self.notes.close("client", "done")
        # A step that sends another client's session id must get the id of a live session: with the id of an ended
        # session, the step would test something else.
        self._shared.sessions.pop(self.number, None)
        self._shared.events.pop(self.number, None)

    async def close(self) -> None:
        """Close all idle connections; no task may still be using them."""
        # The scope is shielded, because a cancelled close would leave the remaining connections open. The shield delays
        # nothing: closing by force does not wait.
        with trio.CancelScope(shield=True):
            for stream, _ in self._idle:
                await trio.aclose_forcefully(stream)

    # --- requests -----------------------------------------------------------------------------------------------------

    async def _post(self, pieces: list[bytes], headers: Headers) -> None:
        exchange = self._start("POST", pieces, headers)
        # The response is not awaited, because a plan has many requests open at once. But the request must be written
        # before the next message is sent; another task writes it.
        await exchange.written.wait()
        message = exchange.message
        if member_of(message, "method") == "notifications/initialized" and not self._listens:
            # The session's stream is opened before anything else is sent: the server needs it to send requests and
            # notifications of its own.
            self._listens = not self._modern
            with trio.move_on_after(HEAD_TIMEOUT):
                await exchange.done.wait()
                if self._listens:
                    await self._listen().begun.wait()

    def _start(
        self,
        method: str,
        pieces: Sequence[bytes],
        headers: Headers,
        *,
        path: str | None = None,
        resumes: _Exchange | None = None,
    ) -> _Exchange:
        body = b"".join(pieces)
        message = parsed(body)
        fields = self._fields(method, message, body)
        path = self._filled_path(headers.get(":path") or path or self._path)
        for name, value in headers.items():
            if name == ":path":
                continue
            # Header names are case-insensitive (RFC 9110, section 5.1), so a valid header is replaced even if its name
            # is spelled differently: the server must not see both.
            fields = [(old, kept) for old, kept in fields if old.lower() != name.lower()]
            if value is not None:
                fields.append((name, self._shared.fill_in(value, self.number)))
        self._count += 1
        exchange = _Exchange(self._count, method, message)
        facts: dict[str, Any] = {"method": method, "path": path, "headers": fields}
        if self._server.credentials is not None:
            facts |= self._whose(fields, path)
            exchange.aside, exchange.whose = "aside" in facts, facts["whose"]
        # A request may be refused because of its altered headers, so the rules must know which were altered.
        # `Last-Event-ID` is part of every resumption, so it does not count as an alteration.
        if headers and resumes is None:
            facts["altered"] = sorted(headers)
        if resumes is not None:
            # A GET carries no message: the messages in its response belong to the request whose stream it resumes.
            exchange.message, exchange.resumes = resumes.message, True
            exchange.last_id, exchange.retry = resumes.last_id, resumes.retry
            exchange.empty = resumes.empty + 1
            facts["resumes"] = resumes.number
        # The request is noted before it is sent, so that it precedes the server's reaction on the tape.
        self.notes.asked()
        self.notes.event("request", "client", exchange.number, **facts)
        if body:
            self.notes.text("client", body, exchange.number)
        # Only here do tokens take the place of their names: whatever is recorded has the names.
        filled = self._server.filled
        head = f"{method} {filled(path)} HTTP/1.1\r\n".encode()
        head += b"".join(_clean(name) + b": " + _clean(filled(value)) + b"\r\n" for name, value in fields)
        # A single piece is written together with the head, as clients do; several pieces are written separately.
        first = [head + b"\r\n" + pieces[0]] if len(pieces) == 1 else [head + b"\r\n", *pieces]
        # The exchange is added to the table before its task runs, because a `cancel` or `stop` that comes first has to
        # find it.
        self._open[exchange.number] = exchange
        self.nursery.start_soon(self._run, exchange, first)
        return exchange

    def _fields(self, method: str, message: Any, body: bytes) -> list[tuple[str, str]]:
        fields = [("Host", self._server.authority), *self._server.headers.items()]
        if self._server.credentials is not None:
            fields.append(("Authorization", f"Bearer {{token {self._user}}}"))
        if method == "POST":
            # The server chooses between JSON and a stream, and may refuse a client that does not accept both
            # (2025-11-25, Sending Messages to the Server).
            fields += [("Content-Type", JSON), ("Accept", f"{JSON}, {EVENTS}")]
        elif method == "GET":
            fields.append(("Accept", EVENTS))
        # A POST without a body needs a Content-Length, too (RFC 9110, section 8.6): without this header, a server could
        # refuse the POST with 411.
        if body or method == "POST":
            fields.append(("Content-Length", str(len(body))))
        # The handshake gets neither a session id nor a version header: it belongs to no session yet, and only its
        # result settles the revision.
        if member_of(message, "method") != "initialize":
            if self._session is not None:
                fields.append((SESSION_ID, self._session))
            if self._revision >= _VERSION_HEADER_SINCE:
                fields.append((PROTOCOL_VERSION, self._version(message)))
        if self._modern and isinstance(message, dict) and isinstance(message.get("method"), str):
            fields += self._mirrored(message)
        return fields

    def _version(self, message: Any) -> str:
        """Return the revision for the version header: the message's own if a header can carry it, else the wire's."""
        named = member_of(message, "params", "_meta", meta.PROTOCOL_VERSION) if self._modern else None
        return named if isinstance(named, str) and named.isascii() and named.isprintable() else self._revision

    def _mirrored(self, message: dict[str, Any]) -> list[tuple[str, str]]:
        """Return the headers that repeat parts of a request (2026-07-28, Request Metadata)."""
        fields, method = [(METHOD, message["method"])], message["method"]
        params = object_of(message.get("params"))
        name = params.get(_NAMED_BY.get(method, ""))
        # A value that can't be sent in a header, for example a lone surrogate, is left out, although the server may
        # then refuse the request.
        with contextlib.suppress(ValueError):
            if isinstance(name, str):
                fields.append((NAME, encode_value(name)))
            if method == "tools/call" and isinstance(name, str) and name in self._shared.tools:
                fields += parameter_values(params.get("arguments"), self._shared.tools[name]).items()
        return fields

    def _filled_path(self, path: str) -> str:
        if "{" in path:
            sign = "&" if "?" in self._path else "?"
            endpoint = self._path.partition("?")[0].rstrip("/")
            path = path.replace("{endpoint?}", f"{self._path}{sign}").replace("{endpoint}", endpoint)
            path = path.replace("{metadata}", self._shared.metadata or NOWHERE)
        return path

    def _whose(self, fields: Sequence[tuple[str, str]], path: str) -> dict[str, Any]:
        """Return the facts about a request's token: its name, and whether the request goes beside the endpoint."""
        sent = next((value for name, value in fields if name.lower() == "authorization"), "")
        found = re.fullmatch(r"Bearer \{token ([a-z]+)\}", sent)
        # None is for a field that is malformed.
        facts: dict[str, Any] = {"whose": found[1] if found else None if sent else ""}
        if path.partition("?")[0] != self._path.partition("?")[0]:
            facts["aside"] = True
        return facts

    async def _give_up(self, exchange: _Exchange, how: str) -> None:
        if not exchange.done.is_set():
            exchange.how = how
            exchange.scope.cancel("the kit has broken off this exchange")
        # The end of the exchange must be on the tape before the next message, or rules would see the stream as still
        # open.
        await exchange.done.wait()

    def _resume(self, exchange: _Exchange) -> _Exchange:
        if exchange.last_id is None:
            # Only a session's stream is resumed without an event id, which means that the stream is simply opened
            # again.
            return self._listen()
        resumed = self._start("GET", [], {LAST_EVENT_ID: exchange.last_id}, resumes=exchange)
        # If the session's own stream is resumed, the stream that the GET opens is the session's stream from now on.
        if exchange.number == self._listening:
            self._listening = resumed.number
        return resumed

    def _listen(self) -> _Exchange:
        """Open the stream of the session."""
        opened = self._start("GET", [], {})
        self._listening = opened.number
        return opened

    # --- one exchange, which is a task --------------------------------------------------------------------------------

    async def _run(self, exchange: _Exchange, pieces: Sequence[bytes]) -> None:
        # These are the facts about an exchange that an exception ends.
        facts: dict[str, Any] = {"cut": True, "by": "server"}
        try:
            with exchange.scope:
                reason = await self._talk(exchange, pieces)
                facts |= {"cut": True, "reason": reason} if reason else {"cut": False}
            if exchange.scope.cancelled_caught:
                facts |= {"by": "client", "how": exchange.how or "lingering"}
        except TransportError as exc:
            self.notes.mark("unsent", reason=str(exc), exchange=exchange.number)
            self.notes.close("server", str(exc))
        except TooMuch as exc:
            self.notes.mark("flood", reason=str(exc))
            facts["by"] = "kit"
        finally:
            if exchange.stream is not None:
                if exchange.how == "reset":
                    reset(exchange.stream)
                # Without a shield, a cancelled nursery would make this close raise `Cancelled`, and callers outside the
                # nursery would wait forever for the exchange's events, which are set after the close.
                with trio.CancelScope(shield=True):
                    await trio.aclose_forcefully(exchange.stream)
            del self._open[exchange.number]
            exchange.written.set()
            exchange.begun.set()
        goes_on = self._goes_on(exchange, facts["by"])
        # The runner stops waiting for a response when its exchange ends, unless `goes_on` says that the response may
        # still come on another exchange.
        if goes_on is not None:
            facts["goes_on"] = True
        self.notes.event("end", facts["by"], exchange.number, **facts)
        exchange.done.set()
        if goes_on is not None and goes_on < math.inf:
            await trio.sleep(goes_on)
            if self.is_open:
                self._resume(exchange)

    def _goes_on(self, exchange: _Exchange, by: str) -> float | None:
        """Return the seconds after which to resume a stream; None if it is not resumed, or only by a step of the plan.

        A server may close a stream before the response has come. A session's own stream is opened again even without an
        event id.
        """
        own = exchange.number == self._listening
        # A server that offers no stream for its session responds to the GET with 405, and one whose session has ended
        # responds with 404: neither gets another GET. In the modern era, streams are not resumed at all.
        if self._modern or exchange.status != 200 or not (own or exchange.waits):
            return None
        # A server may end every stream as soon as it is opened. Without this limit, the client would resume it forever,
        # and the request would never be given up.
        if exchange.empty >= EMPTY:
            return None
        if by == "server" and (own or exchange.last_id is not None) and self._resumed < RESUMED:
            self._resumed += 1
            return min(exchange.retry, 5 * RETRY)
        # A step of the plan has ended the session's stream, not the server, so `retry` does not apply. The stream is
        # opened again at once, because the server's own messages come on it.
        if by == "client" and own:
            return 0
        if by == "client" and exchange.last_id is not None:
            self._resumable.append(exchange)
        return None

    async def _talk(self, exchange: _Exchange, pieces: Sequence[bytes]) -> str:
        """Send a request and read its response; return what cut the exchange off, or an empty string.

        Raises:
            TransportError: If the server can't be reached.
            TooMuch: If the server sends too much.
        """
        while True:  # noqa: ASYNC913 - each pass reads a response
            reused = self._take_idle()
            exchange.stream = stream = await self._server.connect() if reused is None else reused
            try:
                with trio.fail_after(WRITE_TIMEOUT):
                    for piece in pieces:
                        await stream.send_all(piece)
            except trio.TooSlowError:
                self.notes.mark("unsent", reason=f"the target has not read anything for {WRITE_TIMEOUT:g} seconds")
                return "the request was not read"
            except (trio.BrokenResourceError, trio.ClosedResourceError):
                pass  # the server may have responded before it read everything, so the response is read in any case
            exchange.written.set()
            reader = response_reader(stream, exchange.method, count=self.notes.count)
            try:
                reason = await self._read(exchange, reader)
            except GONE as exc:
                reason = f"the connection broke: {exc.__cause__ or exc}"
            except h11.RemoteProtocolError as exc:
                # If the connection ends before the response, h11's message does not quote the bytes that came. Those
                # bytes are added to the reason, because they may show what protocol the target speaks instead.
                if not reader.has_ended or exchange.status:
                    reason = self._not_http(exchange, str(exc))
                elif seen := reader.unread:
                    reason = self._not_http(exchange, f"it sent {seen[:40]!r}")
                else:
                    reason = "the target closed the connection"
            # A server may close an idle connection at any time. If a reused connection turns out to be closed, that is
            # not a reaction to this request, so the request is sent on another connection.
            if reason and reused is not None and not exchange.status:
                await trio.aclose_forcefully(stream)
                continue
            # A connection with bytes after the response is not reused: they would look like the beginning of the next
            # response.
            if not reason and reader.is_done and not reader.unread:
                exchange.stream = None
                self._idle.append((stream, trio.current_time()))
            return reason

    def _take_idle(self) -> trio.abc.Stream | None:
        while self._idle:
            # The connection that was used last is taken first: the longer a connection has been idle, the likelier it
            # is that the server has closed it.
            stream, since = self._idle.pop()
            if trio.current_time() - since < REUSED_WITHIN:
                return stream
            self.nursery.start_soon(trio.aclose_forcefully, stream)
        return None

    def _not_http(self, exchange: _Exchange, problem: str) -> str:
        # A target whose very first response is not HTTP gets no further requests. If a later response is not HTTP, only
        # that response is at fault.
        if exchange.number == 1 and not exchange.status:
            self.notes.close("server", f"{self._server.name} does not speak HTTP: {problem}")
        return f"the response is not HTTP: {problem}"

    async def _read(self, exchange: _Exchange, reader: H11Stream) -> str:
        body = bytearray()
        events: EventSplitter | None = None
        while True:
            event = await reader.next_event()
            if isinstance(event, h11.Response):
                events = EventSplitter() if self._begin(exchange, event) else None
            elif isinstance(event, h11.Data) and events is not None:
                for data, facts in events.feed(event.data):
                    self._take_event(exchange, data, facts)
            elif isinstance(event, h11.Data):
                body += event.data
            elif isinstance(event, h11.EndOfMessage):
                if body:
                    self._take(exchange, bytes(body))
                return ""
            # Any number of informational responses may precede the final one (RFC 9110, section 15.2).
            elif not isinstance(event, h11.InformationalResponse):
                return "the connection was closed"

    def _begin(self, exchange: _Exchange, response: h11.Response) -> bool:
        """Note the head of a response; return whether an event stream follows."""
        # Latin-1 has a character for each byte, so decoding a header can't fail. The spelling of the names is kept,
        # because the transcript shows it.
        raw = response.headers.raw_items()
        fields = [(name.decode("latin-1"), self._server.hidden(value.decode("latin-1"))) for name, value in raw]
        exchange.status = response.status_code
        noted = self.notes.event("response", "server", exchange.number, status=exchange.status, headers=fields)
        if exchange.status in (401, 403) and self._server.credentials is not None:
            self._take_challenge(noted, self._server.credentials)
        headers = {name.lower(): value for name, value in fields}
        exchange.session = headers.get(SESSION_ID.lower())
        exchange.begun.set()
        return headers.get("content-type", "").partition(";")[0].strip().lower() == EVENTS

    def _take_challenge(self, response: Event, credentials: Credentials) -> None:
        wanted = wanted_by(response)
        if response.facts["status"] == 403:
            credentials.challenge(wanted.scopes or ())
        try:
            parts, own = urlsplit(wanted.metadata or ""), urlsplit(self._server.url)
        except ValueError:  # such as a bracket that is not closed
            parts, own = urlsplit(""), urlsplit(self._server.url)
        # The kit's requests go to the server under test only, whatever a challenge names.
        is_here = (parts.scheme, parts.netloc.lower()) == (own.scheme, own.netloc.lower())
        path = parts._replace(scheme="", netloc="", fragment="").geturl()
        self._shared.metadata = path if is_here and re.fullmatch(r"/[!-~]*", path) else None

    def _take_event(self, exchange: _Exchange, data: bytes, facts: dict[str, Any]) -> None:
        if facts.get("event_id"):
            exchange.last_id = self._shared.events[self.number] = facts["event_id"]
        if "retry" in facts:
            exchange.retry = facts["retry"]
        exchange.empty = 0
        self._take(exchange, data, **facts)

    def _take(self, exchange: _Exchange, data: bytes, **facts: Any) -> None:
        # A layer that refuses tokens need not know MCP, and may respond with an error of OAuth.
        refuses = exchange.status in (401, 403) or (exchange.status == 400 and exchange.whose != "a")
        is_foreign = refuses and self._server.credentials is not None and "jsonrpc" not in object_of(parsed(data))
        if exchange.aside or is_foreign:
            self.notes.document(data, exchange.number)
            return
        message = self.notes.text("server", data, exchange.number, **facts).message
        if not isinstance(message, dict):
            return
        asked = exchange.message if is_request(exchange.message) else {}
        result = message.get("result")
        # A message with a `method` is not the response, even if the id is the same: it is a request from the server,
        # which chooses its ids independently.
        if "method" not in message and asked and message.get("id") == asked.get("id"):
            exchange.answered = True
            # In both eras the stream should end after the response. A stream that stays open is ended by the kit,
            # because such streams would use up the server's connections.
            exchange.scope.deadline = trio.current_time() + LINGERING
        if isinstance(result, dict):
            self._learn(exchange, asked.get("method"), result)

    def _learn(self, exchange: _Exchange, method: Any, result: dict[str, Any]) -> None:
        version, tools = result.get("protocolVersion"), result.get("tools")
        # Only the first handshake determines the session and the revision: a later handshake is a step of a plan, which
        # tests the server.
        if method == "initialize" and not self._listens and self._session is None:
            self._session = exchange.session
            if exchange.session is not None:
                self._shared.sessions[self.number] = exchange.session
            if isinstance(version, str):
                self._revision = version
        for tool in tools if isinstance(tools, list) else ():
            if isinstance(tool, dict) and isinstance(tool.get("name"), str):
                # A client does not call a tool whose header annotations are invalid, so the tool is ignored here.
                with contextlib.suppress(ValueError):
                    self._shared.tools[tool["name"]] = parameter_headers(tool.get("inputSchema"))


class SseWire(StreamableHttpWire):
    """A wire over HTTP+SSE, the transport of 2024-11-05: one stream for all responses, and a POST for each message."""

    transport = "sse"

    async def open(self) -> None:
        """Open the stream, and wait for the server to name the path for POSTs.

        Raises:
            TransportError: If the server names no path in time.
        """
        # The flag keeps `notifications/initialized` from opening another stream: the transport has only one.
        self._listens = True
        self._endpoint = False
        exchange = self._start("GET", [], {})
        await self._tape.until(lambda: self._endpoint or exchange.done.is_set(), ENDPOINT_TIMEOUT)
        if not self._endpoint:
            raise TransportError(f"{self._server.name} did not name the path for POSTs: does it speak HTTP+SSE?")

    def _goes_on(self, exchange: _Exchange, by: str) -> float | None:
        # All responses come on the stream that the GET opened, so the connection ends with that stream.
        if exchange.method == "GET":
            self.notes.close("client" if by == "client" else "server", "the stream ended")
            return None
        # The JSON-RPC response to a POST comes on the GET's stream, so it is still awaited; but the POST has no stream
        # that could be resumed.
        return math.inf if 200 <= exchange.status < 300 else None

    def _take_event(self, exchange: _Exchange, data: bytes, facts: dict[str, Any]) -> None:
        # The data of an `endpoint` event is a path, or a URL on the same server.
        if facts.get("event") == "endpoint" and not self._endpoint:
            parts = urlsplit(data.decode(errors="replace"))
            # The host is dropped, because a server under test must not be able to direct the kit's requests to another
            # server.
            self._path = parts._replace(scheme="", netloc="", fragment="").geturl()
            self._endpoint = True
        super()._take_event(exchange, data, facts)


def http_wire(
    parameters: HttpServerParameters,
    *,
    connect: Connect | None = None,
    ssl_context: ssl.SSLContext | None = None,
    credentials: Credentials | None = None,
) -> OpenWire:
    """Return a function that opens wires to a server over Streamable HTTP or HTTP+SSE.

    Args:
        parameters: Where the server is, and the headers to send with each request.
        connect: Opens each connection, instead of the network, for servers in memory.
        ssl_context: How to check the server's certificate.
        credentials: The tokens to send; None for no token but one in the headers.
    """
    server = _server(parameters, connect, ssl_context, credentials)
    # All wires to this server share one `_Shared`, because a step may use the session of another connection, and call
    # tools that another connection has listed.
    shared = _Shared()

    @contextlib.asynccontextmanager
    async def opened(tape: Tape, number: int, revision: str) -> AsyncIterator[StreamableHttpWire]:
        # A first connection is made at once: if the server can't be reached, opening the wire must fail, rather than
        # its first request.
        await trio.aclose_forcefully(await server.connect())
        wire = (SseWire if parameters.kind == "sse" else StreamableHttpWire)(tape, number, revision, server, shared)
        # The wire closes its connections only after its tasks have ended: until then, each exchange may leave an idle
        # connection.
        async with closing(wire.close), background_nursery(wire.leave) as wire.nursery:
            await wire.learn()
            if isinstance(wire, SseWire):
                await wire.open()
            yield wire

    return opened


def _server(
    parameters: HttpServerParameters,
    connect: Connect | None,
    ssl_context: ssl.SSLContext | None,
    credentials: Credentials | None,
) -> _Server:
    address, path = web_address(parameters.url)
    scheme = parameters.url.partition(":")[0].lower()
    return _Server(
        name=address.url,
        path=path,
        authority=address.place,
        headers=parameters.headers,
        connect=connect or partial(open_socket, address, ssl_context, https_compatible=True),
        url=f"{scheme}://{address.place}{path.partition('?')[0]}",
        credentials=credentials,
    )


def _asks(message: Any, request_id: Any) -> bool:
    """Return whether a message is the request with this id; 1, "1" and true are different ids."""
    return is_request(message) and message["id"] == request_id and type(message["id"]) is type(request_id)


def _is_scope(value: Any) -> bool:
    return isinstance(value, str) and re.fullmatch(r"[!#-\[\]-~]+", value) is not None


def _clean(text: str) -> bytes:
    """Encode a header's name or value; line breaks, which would begin another header, become spaces."""
    return text.replace("\r", " ").replace("\n", " ").encode("utf-8", "replace")
