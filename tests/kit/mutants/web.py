"""HTTP for the server written by hand: POST in both eras; sessions, GET, DELETE and resumption in one."""

from __future__ import annotations

import base64
import contextlib
import json
import secrets
from collections.abc import AsyncIterator, Iterator, Mapping
from typing import Any, ClassVar
from urllib.parse import urlsplit

import attrs
import h11
import trio

from tests.kit.mutants.server import (
    LEGACY,
    MODERN,
    PREFIX,
    TOOLS,
    Refused,
    Request,
    Session,
    Twin,
    error_response,
    expects_response,
    is_id,
    parse,
)

JSON = {"Content-Type": "application/json"}
ASKING = ("tools/call", "tasks/result")
"""The methods of requests on whose streams questions may come first."""
EVENTS = {"Content-Type": "text/event-stream", "Cache-Control": "no-cache", "X-Accel-Buffering": "no"}
STATUSES: dict[bool, dict[Any, int]] = {
    False: {-32700: 400, -32600: 400},
    True: {-32700: 400, -32600: 400, -32601: 404, -32020: 400, -32021: 400, -32022: 400},
}
EMPTY: Mapping[str, str] = {}
GONE = (trio.BrokenResourceError, trio.ClosedResourceError, h11.RemoteProtocolError, h11.LocalProtocolError)


@attrs.frozen
class Head:
    """The head of a request, with header names in lower case."""

    method: str
    path: str
    headers: dict[str, str]

    @property
    def session(self) -> str | None:
        return self.headers.get("mcp-session-id")

    @property
    def version(self) -> str | None:
        return self.headers.get("mcp-protocol-version")


@attrs.define(eq=False)
class Stream:
    """What is sent in one response, which can outlive its connection."""

    number: int
    # None is an event that only primes the client to resume.
    messages: list[Any] = attrs.Factory(list)
    ended: bool = False
    sent: int = 0
    news: trio.Event = attrs.Factory(trio.Event)
    # The connection that sends it now: there is one at most.
    reader: object = None

    def put(self, message: Any) -> None:
        self.messages.append(message)
        self.wake()

    def end(self) -> None:
        self.ended = True
        self.wake()

    def wake(self) -> None:
        self.news.set()
        self.news = trio.Event()


@attrs.frozen
class Answer:
    """A response: a body, or a stream from an event on."""

    status: int
    headers: dict[str, str] = attrs.Factory(dict)
    body: bytes = b""
    stream: Stream | None = None
    start: int = 0


@attrs.define(eq=False)
class Life:
    """A session of the legacy era, and its streams."""

    id: str
    session: Session = attrs.field(init=False)
    streams: dict[int, Stream] = attrs.Factory(dict)
    numbered: int = 0
    # The stream for what belongs to no request.
    alone: Stream = attrs.field(init=False)

    @alone.default
    def _alone(self) -> Stream:
        return self.stream()

    def stream(self) -> Stream:
        self.numbered += 1
        stream = self.streams[self.numbered] = Stream(self.numbered)
        for old in [*self.streams.values()][:-100]:
            if old.ended:
                del self.streams[old.number]
        return stream


class Web:
    """The HTTP endpoint of a healthy server.

    Args:
        twin: The server.
        nursery: Runs the requests of the legacy era, which outlive their connections.
    """

    session: ClassVar[type[Session] | None] = None
    """The class of its sessions; None for the healthy one."""

    def __init__(self, twin: Twin, nursery: trio.Nursery) -> None:
        self.twin = twin
        self.nursery = nursery
        self.lives: dict[str, Life] = {}

    # --- connections --------------------------------------------------------------------------------------------------

    async def serve(self, stream: trio.abc.Stream) -> None:
        """Serve a connection, until it ends."""
        connection = h11.Connection(h11.SERVER)
        async with stream:
            try:
                while await self.serve_request(connection, stream):
                    connection.start_next_cycle()
            except* GONE:
                pass

    async def serve_request(self, connection: h11.Connection, stream: trio.abc.Stream) -> bool:
        """Serve a request; return whether there can be another."""
        try:
            if (got := await self.read_request(connection, stream)) is None:
                return False
        except h11.RemoteProtocolError as exc:
            await self.write(connection, stream, Answer(exc.error_status_hint))
            return False

        async def watch() -> None:
            try:
                while data := await stream.receive_some(65536):
                    connection.receive_data(data)
            except GONE:
                pass
            nursery.cancel_scope.cancel()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(watch)
            answer = await self.handle(*got, nursery)
            await self.write(connection, stream, answer)
            nursery.cancel_scope.cancel()
        return connection.our_state is h11.DONE and connection.their_state is h11.DONE

    async def read_request(self, connection: h11.Connection, stream: trio.abc.Stream) -> tuple[Head, bytes] | None:
        head, body = None, b""
        while True:
            event = connection.next_event()
            if event is h11.NEED_DATA:
                if connection.they_are_waiting_for_100_continue:
                    await stream.send_all(connection.send(h11.InformationalResponse(status_code=100, headers=[])))
                connection.receive_data(await stream.receive_some(65536))
            elif isinstance(event, h11.Request):
                raw = event.headers.raw_items()
                headers = {self.named(name.decode()): value.decode("latin-1") for name, value in raw}
                head = Head(event.method.decode(), event.target.decode(), headers)
            elif isinstance(event, h11.Data):
                body += event.data
            elif isinstance(event, h11.EndOfMessage):
                assert head is not None
                return head, body
            else:
                return None

    def named(self, name: str) -> str:
        """Return the name under which a header is looked for."""
        return name.lower()

    async def write(self, connection: h11.Connection, stream: trio.abc.Stream, answer: Answer) -> None:
        async def send(event: Any) -> None:
            if data := connection.send(event):
                await stream.send_all(data)

        headers = [*answer.headers.items()]
        if answer.stream is None and answer.status != 204:
            headers.append(("Content-Length", str(len(answer.body))))
        await send(h11.Response(status_code=answer.status, headers=headers))
        if answer.stream is not None:
            async with contextlib.aclosing(self.events(answer.stream, answer.start)) as events:
                async for data in events:
                    await send(h11.Data(data))
        elif answer.body:
            await send(h11.Data(answer.body))
        await send(h11.EndOfMessage())

    async def events(self, stream: Stream, start: int) -> AsyncIterator[bytes]:
        """Yield the bytes of a stream, until it ends or another connection resumes it."""
        reader = stream.reader = object()
        stream.wake()
        index = start
        while True:
            while index < len(stream.messages) and stream.reader is reader:
                index += 1
                stream.sent = max(stream.sent, index)
                yield self.event(stream, index - 1)
            if stream.ended or stream.reader is not reader:
                return
            await stream.news.wait()

    def event(self, stream: Stream, index: int) -> bytes:
        """Return a message as a server-sent event."""
        message = stream.messages[index]
        name = self.event_id(stream, index)
        head = b"" if name is None else f"id: {name}\n".encode()
        return head + b"data: " + (b"" if message is None else json.dumps(message).encode()) + b"\n\n"

    def event_id(self, stream: Stream, index: int) -> str | None:
        return f"{stream.number}-{index}" if stream.number else None

    # --- requests -----------------------------------------------------------------------------------------------------

    async def handle(self, head: Head, body: bytes, nursery: trio.Nursery) -> Answer:
        if head.path.partition("?")[0] != "/mcp":
            return Answer(404)
        if not self.is_allowed(head.headers.get("origin")):
            return self.refuse(403, -32600, "Foreign origin")
        if head.method == "POST":
            return await self.post(head, body, nursery)
        if head.method not in ("GET", "DELETE") or head.version == MODERN:
            return Answer(405, {"Allow": "GET, POST, DELETE"})
        return self.get(head) if head.method == "GET" else self.delete(head)

    def is_allowed(self, origin: str | None) -> bool:
        try:
            return origin is None or urlsplit(origin).hostname in ("localhost", "127.0.0.1", "::1")
        except ValueError:
            return False

    def refuse(self, status: int, code: int, message: str, request_id: Any = None, data: Any = None) -> Answer:
        return Answer(status, JSON, json.dumps(error_response(request_id, Refused(code, message, data))).encode())

    async def post(self, head: Head, body: bytes, nursery: trio.Nursery) -> Answer:
        try:
            message = parse(body)
        except Refused:
            return self.refuse(400, -32700, "Parse error")
        params = message.get("params") if isinstance(message, dict) else None
        meta = params.get("_meta") if isinstance(params, dict) else None
        claims = isinstance(meta, dict) and f"{PREFIX}protocolVersion" in meta
        if claims or self.is_modern(head.version):
            return await self.post_modern(head, body, message, meta if isinstance(meta, dict) else {}, nursery)
        return await self.post_legacy(head, body, message)

    def is_modern(self, version: str | None) -> bool:
        return version is not None and version not in LEGACY

    async def answer_to(
        self, stream: Stream, *, modern: bool = False, streams: bool = False, headers: Mapping[str, str] = EMPTY
    ) -> Answer:
        """Return the response to a request: JSON if it needs no stream, else a stream."""
        while not streams and not stream.messages and not stream.ended:
            await stream.news.wait()
        first = stream.messages[0] if stream.messages else None
        if not streams and first is not None and (isinstance(first, list) or "method" not in first):
            return Answer(
                self.status_of(first, modern=modern), {**self.json_headers(), **headers}, json.dumps(first).encode()
            )
        return Answer(200, {**EVENTS, **headers}, stream=stream)

    def json_headers(self) -> dict[str, str]:
        return JSON

    def status_of(self, response: Any, *, modern: bool) -> int:
        """Return the status for a response that is sent as JSON."""
        code = response.get("error", {}).get("code") if isinstance(response, dict) else None
        return STATUSES[modern].get(code, 200)

    # The modern era

    async def post_modern(self, head: Head, body: bytes, message: Any, meta: Any, nursery: trio.Nursery) -> Answer:
        if not isinstance(message, dict) or "method" not in message or not isinstance(message["method"], str):
            return self.refuse(400, -32600, "One request or notification")
        request_id = message.get("id")
        try:
            if "id" in message:
                self.check_request(head, message, meta)
            else:
                self.check_notification(head, message)
        except Refused as refused:
            error = refused.error
            return self.refuse(
                self.refusal_status(error["code"]), error["code"], error["message"], request_id, error.get("data")
            )
        if "id" not in message:
            return self.accepted()
        stream = Stream(0)

        def finish(request: Request) -> None:
            stream.end()
            session.close()

        session = self.twin.session(self.twin, nursery, lambda each, about: stream.put(each), finish)
        session.receive(body, stream)
        return await self.answer_to(stream, modern=True)

    def refusal_status(self, code: int) -> int:
        return 400

    def accepted(self) -> Answer:
        return Answer(202)

    def check_notification(self, head: Head, message: Any) -> None:
        if head.version is not None and head.version != MODERN:
            raise Refused(-32022, "Unsupported protocol version", {"supported": [*LEGACY, MODERN]})
        if head.headers.get("mcp-method", message["method"]) != message["method"]:
            raise Refused(-32020, "Mcp-Method differs from the body")

    def check_request(self, head: Head, message: Any, meta: Any) -> None:
        """Raise `Refused` unless the headers of a request agree with its body."""
        if not is_id(message["id"]) or message.get("jsonrpc") != "2.0":
            raise Refused(-32600, "Invalid request")
        if not isinstance(message.get("params", {}), dict) or not isinstance(meta.get(f"{PREFIX}protocolVersion"), str):
            raise Refused(-32602, "Without a protocol version in _meta")
        self.check_version(head, meta)
        if not isinstance(meta.get(f"{PREFIX}clientCapabilities"), dict):
            raise Refused(-32602, "Without the client's capabilities")
        self.check_method(head, message)
        self.check_name(head, message)
        self.check_parameters(head, message)

    def check_version(self, head: Head, meta: Any) -> None:
        version = meta[f"{PREFIX}protocolVersion"]
        if head.version != version:
            raise Refused(-32020, "MCP-Protocol-Version differs from the body")
        if version != MODERN:
            data = {"supported": [*LEGACY, MODERN], "requested": version}
            raise Refused(-32022, "Unsupported protocol version", data)

    def check_method(self, head: Head, message: Any) -> None:
        if head.headers.get("mcp-method") != message["method"]:
            raise Refused(-32020, "Mcp-Method differs from the body")

    def check_name(self, head: Head, message: Any) -> None:
        field = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}.get(message["method"])
        name = message["params"].get(field) if field is not None else None
        if isinstance(name, str) and self.decoded(head.headers.get("mcp-name")) != name:
            raise Refused(-32020, "Mcp-Name differs from the body")

    def check_parameters(self, head: Head, message: Any) -> None:
        params = message["params"]
        if message["method"] != "tools/call" or params.get("name") not in TOOLS:
            return
        arguments = params.get("arguments")
        for name, schema in TOOLS[params["name"]]["inputSchema"]["properties"].items():
            if "x-mcp-header" in schema and isinstance(arguments, dict):
                value, header = arguments.get(name), head.headers.get(f"mcp-param-{schema['x-mcp-header']}".lower())
                if (value is None) != (header is None) or (value is not None and not self.agrees(header, value)):
                    raise Refused(-32020, f"The header of {name} differs from the body")

    def agrees(self, header: str | None, value: Any) -> bool:
        """Return whether a header says the same as an argument."""
        text = self.decoded(header)
        if isinstance(value, bool):
            return text == ("true" if value else "false")
        if not isinstance(value, int) or text is None:
            return text == value
        try:
            return float(text) == value
        except ValueError:
            return False

    def decoded(self, value: str | None) -> str | None:
        """Return the value of a header, which may be in Base64; None if it is malformed."""
        if value is None or not (value.startswith("=?base64?") and value.endswith("?=")):
            return value if value is None or (value.isascii() and value.isprintable()) else None
        try:
            return base64.b64decode(value[9:-2], validate=True).decode()
        except ValueError:
            return None

    # The legacy era

    async def post_legacy(self, head: Head, body: bytes, message: Any) -> Answer:
        opens = isinstance(message, dict) and message.get("method") == "initialize" and "id" in message
        if isinstance(refusal := self.check_legacy(head, opens=opens), Answer):
            return refusal
        life = self.open() if opens else refusal
        if not isinstance(message, list) and not expects_response(message):
            life.session.receive(body)
            return self.accepted()
        if isinstance(message, list) and message and not any(map(expects_response, message)):
            life.session.receive(body)
            return self.accepted()
        stream = life.stream()
        streams = isinstance(message, dict) and message.get("method") in ASKING and is_id(message.get("id"))
        if streams:
            for _ in self.prime(life):
                stream.put(None)
        life.session.receive(body, stream)
        headers = {}
        if opens:
            while not stream.ended:
                await stream.news.wait()
            if life.session.revision is not None:
                self.lives[life.id] = life
                headers = {"Mcp-Session-Id": life.id}
        return await self.answer_to(stream, streams=streams, headers=headers)

    def prime(self, life: Life) -> Iterator[None]:
        """Yield for each event without content with which a stream begins."""
        if life.session.revision == LEGACY[-1]:
            yield

    def open(self) -> Life:
        """Open a session."""
        life = Life(self.new_id())

        def deliver(message: Any, about: Request | None) -> None:
            self.choose(life, message, about).put(message)
            if about is not None and about.method == "":
                about.origin.end()

        def finish(request: Request) -> None:
            if request.batch is None or len(request.batch.responses) >= request.batch.size:
                request.origin.end()

        life.session = self.twin.session(self.twin, self.nursery, deliver, finish)
        return life

    def choose(self, life: Life, message: Any, about: Request | None) -> Stream:
        """Return the stream on which a message is sent."""
        stream = life.alone if about is None else about.origin
        assert isinstance(stream, Stream)
        return stream

    def new_id(self) -> str:
        return secrets.token_hex(16)

    def check_legacy(self, head: Head, *, opens: bool = False) -> Life | Answer:
        """Return the session of a request, or its refusal."""
        if not self.knows(head.version):
            return self.refuse(400, -32600, "Unknown protocol version")
        if opens:
            return Answer(400) if head.session is not None else Life("")
        return self.find(head)

    def knows(self, version: str | None) -> bool:
        return version is None or version in LEGACY

    def find(self, head: Head) -> Life | Answer:
        if head.session is None:
            return self.refuse(400, -32600, "Without a session")
        found = self.lives.get(head.session)
        return found if found is not None else self.refuse(404, -32600, "Unknown session")

    def get(self, head: Head) -> Answer:
        if isinstance(life := self.check_legacy(head), Answer):
            return life
        last = head.headers.get("last-event-id")
        if last is None:
            old = life.alone
            life.alone = life.stream()
            for _ in self.prime(life):
                life.alone.put(None)
            for message in old.messages[old.sent :]:
                if message is not None:
                    life.alone.put(message)
            return Answer(200, EVENTS, stream=life.alone)
        number, _, index = last.partition("-")
        if not number.isdecimal() or not index.isdecimal() or (stream := life.streams.get(int(number))) is None:
            return self.refuse(400, -32600, "Unknown event")
        return self.replay(life, stream, int(index) + 1)

    def replay(self, life: Life, stream: Stream, start: int) -> Answer:
        return Answer(200, EVENTS, stream=stream, start=start)

    def delete(self, head: Head) -> Answer:
        if isinstance(life := self.check_legacy(head), Answer):
            return life
        self.end(life)
        return Answer(204)

    def end(self, life: Life) -> None:
        del self.lives[life.id]
        life.session.close()
        for request in [*life.session.open.values()]:
            request.scope.cancel()
        for stream in life.streams.values():
            stream.end()
