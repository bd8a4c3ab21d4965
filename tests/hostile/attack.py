"""One case against the server: send its bytes, read what comes back, and judge."""

from __future__ import annotations

import contextlib
import json
import socket
import ssl
import struct
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any

import attrs
import hpack
import trio

from tests.hostile.case import CLOSED, GOAWAY, NOTHING, RESET, RESULT, SESSION, Answer, Case, Outcome
from tests.hostile.duplex import PROBES, Fault, judge_lines, judge_websocket
from tests.hostile.families import http2

PATIENCE = 20.0
"""Seconds for one case: the server is busy."""

PROBE = b"GET /health HTTP/1.1\r\nHost: localhost\r\nX-Probe: y\r\n\r\n"
PROBE_STREAM = 2**31 - 1


PORTS = {"tcp": "tcp", "ws": "tcp", "lines": "lines", "lines-tls": "lines_tls"}
"""The port of a wire, but for that of TLS."""


@attrs.frozen
class Target:
    """The addresses of the server.

    Attributes:
        tcp: The port without TLS.
        tls: The port with TLS.
        lines: The port for lines.
        lines_tls: The port for lines in TLS.
        unix: The path of the Unix socket for lines.
        certificate: The file to trust.
        runner: What speaks HTTP there.
    """

    tcp: int
    tls: int
    lines: int
    lines_tls: int
    unix: str
    certificate: str
    runner: str = "hypercorn"

    def context(self, *protocols: str) -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=self.certificate)
        if protocols:
            context.set_alpn_protocols(protocols)
        return context


@attrs.frozen
class Response:
    status: int
    fields: dict[str, str]
    body: bytes

    @property
    def closes(self) -> bool:
        return "close" in self.fields.get("connection", "").lower()


class Reader:
    """The responses over HTTP/1.1, read strictly."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self._data = b""

    async def more(self) -> bool:
        """Read on; False at the end."""
        try:
            data = bytes(await self._stream.receive_some(65536))
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            data = b""
        self._data += data
        return bool(data)

    async def receive_some(self, max_bytes: int) -> bytes:
        """Return what comes after the responses."""
        if not self._data:
            await self.more()
        data, self._data = self._data, b""
        return data

    async def until(self, end: bytes) -> bytes | None:
        while end not in self._data:
            if not await self.more():
                if self._data:
                    raise Fault(f"an answer that breaks off: {self._data[:300]!r}")
                return None
        found, _, self._data = self._data.partition(end)
        return found

    async def exactly(self, count: int) -> bytes:
        while len(self._data) < count:
            if not await self.more():
                raise Fault("an answer that breaks off in its body")
        found, self._data = self._data[:count], self._data[count:]
        return found

    async def response(self, *, bodiless: bool = False, head_only: bool = False) -> Response | None:
        """Return the next response; None at the end."""
        head = await self.until(b"\r\n\r\n")
        if head is None:
            return None
        first, *lines = head.split(b"\r\n")
        version, _, rest = first.partition(b" ")
        status = rest[:3]
        if version != b"HTTP/1.1" or not status.isdigit():
            raise Fault(f"no answer of HTTP: {head[:300]!r}")
        fields = {}
        for line in lines:
            name, colon, value = line.partition(b":")
            if not colon or name != name.strip() or not name:
                raise Fault(f"no header line: {line!r}")
            fields[name.decode("ascii").lower()] = value.strip().decode("latin-1")
        if status == b"101":
            return Response(101, fields, b"")
        if status[:1] == b"1":
            return await self.response(bodiless=bodiless, head_only=head_only)
        body = b""
        if head_only or bodiless or status == b"204":
            pass
        elif fields.get("transfer-encoding") == "chunked":
            while size := int(await self.until(b"\r\n") or b"0", 16):
                body += await self.exactly(size)
                await self.exactly(2)
            await self.exactly(2)
        elif "content-length" in fields:
            body = await self.exactly(int(fields["content-length"]))
        else:
            raise Fault(f"an answer without a length: {head!r}")
        return Response(int(status), fields, body)


class Sessions:
    """The sessions of the legacy era that the cases name."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self.known: dict[str, str] = {}

    async def open(self, revision: str = "2025-11-25") -> str:
        """Open a session, and say that the client is ready."""
        params = {"protocolVersion": revision, "capabilities": {}, "clientInfo": {"name": "attack", "version": "1"}}
        response = await self.post({"jsonrpc": "2.0", "id": "open", "method": "initialize", "params": params})
        session = response.fields["mcp-session-id"]
        await self.post({"jsonrpc": "2.0", "method": "notifications/initialized"}, session)
        return session

    async def post(self, content: Any, session: str | None = None, method: str = "POST") -> Response:
        body = json.dumps(content).encode()
        fields = f"Mcp-Session-Id: {session}\r\n" if session else ""
        head = (
            f"{method} /mcp HTTP/1.1\r\nHost: localhost\r\nAccept: application/json, text/event-stream\r\n{fields}"
            f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        with trio.fail_after(PATIENCE):
            async with await trio.open_tcp_stream("127.0.0.1", self._target.tcp) as stream:
                await stream.send_all(head.encode() + body)
                response = await Reader(stream).response()
        assert response is not None
        return response

    async def keep(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Open the sessions that the cases need, each with its stream open so that it does not expire."""
        for name in ("live", "other", "ended", "batch"):
            self.known[name] = await self.open("2025-03-26" if name == "batch" else "2025-11-25")
        await self.post(None, self.known["ended"], "DELETE")
        async with contextlib.AsyncExitStack() as streams:
            for name in ("live", "other", "batch"):
                stream = await streams.enter_async_context(await trio.open_tcp_stream("127.0.0.1", self._target.tcp))
                head = "GET /mcp HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\nMcp-Session-Id: "
                await stream.send_all(f"{head}{self.known[name]}\r\n\r\n".encode())
            task_status.started()
            await trio.sleep_forever()

    async def filled(self, pieces: Iterable[bytes | float]) -> list[bytes | float]:
        """Return the pieces of a case with real ids."""
        known = dict(self.known)
        if any(b"@own" in piece for piece in pieces if isinstance(piece, bytes)):
            known["own"] = await self.open()

        def fill(piece: bytes | float) -> bytes | float:
            if isinstance(piece, float):
                return piece
            return SESSION.sub(lambda match: known[match[1].decode()].encode(), piece)

        return list(map(fill, pieces))


class Lines:
    """A server over stdio. Its cases run one after the other: between them it answers a ping.

    Attributes:
        errors: What it wrote to its standard error, once it has ended.
    """

    def __init__(self) -> None:
        self.errors = ""
        self._turn = trio.Lock()
        self._lines: trio.MemoryReceiveChannel[bytes] | None = None
        self._pings = 0

    async def start(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Run the server until cancelled."""
        command = [sys.executable, "-m", "tests.hostile.victim"]
        send, self._lines = trio.open_memory_channel[bytes](10_000)
        with tempfile.TemporaryFile() as errors:
            async with trio.open_nursery() as nursery:
                run = partial(trio.run_process, command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors)
                process = await nursery.start(run)
                self._input = process.stdin
                nursery.start_soon(self._read, process.stdout, send)
                params = {
                    "protocolVersion": "2025-11-25",
                    "capabilities": {},
                    "clientInfo": {"name": "x", "version": "1"},
                }
                hello = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params}
                await self.said(json.dumps(hello).encode() + b"\n")
                task_status.started()
                try:
                    await trio.sleep_forever()
                finally:
                    nursery.cancel_scope.cancel()
                    errors.seek(0)
                    self.errors = errors.read().decode()

    async def _read(self, stream: Any, send: trio.MemorySendChannel[bytes]) -> None:
        rest = b""
        async for data in stream:
            *lines, rest = (rest + data).split(b"\n")
            for line in lines:
                await send.send(line)

    async def said(self, data: bytes, *, patient: bool = True) -> list[dict[str, Any]]:
        """Return what comes back for some lines."""
        assert self._lines is not None
        async with self._turn:
            self._pings += 1
            ping = f"ping {self._pings}"
            await self._input.send_all(data + b'{"jsonrpc":"2.0","id":"%s","method":"ping"}\n' % ping.encode())
            answers: list[dict[str, Any]] = []
            pinged = False
            while not pinged or (patient and not answers):
                answer = json.loads(await self._lines.receive())
                if answer.get("id") == ping:
                    pinged = True
                else:
                    answers.append(answer)
            return answers


class Attack:
    """Runs cases.

    Args:
        target: Where.
        sessions: The sessions that the cases name.
        lines: The server over stdio.
    """

    def __init__(self, target: Target, sessions: Sessions, lines: Lines) -> None:
        self._lines = lines
        self._target = target
        self._sessions = sessions
        over_http1 = target.context("http/1.1")
        plain = target.context()
        self._contexts = {
            "tls": over_http1,
            "wss": over_http1,
            "h2": target.context("h2"),
            "broken-tls": plain,
            "lines-tls": plain,
        }

    async def run(self, case: Case) -> list[Outcome]:
        """Run one case; return what came back.

        Raises:
            Fault: If the case does not allow it.
        """
        try:
            with trio.fail_after(PATIENCE):
                return await (self._judge_lines(case) if case.wire == "stdio" else self._run(case))
        except trio.TooSlowError:
            raise Fault(f"nothing within {PATIENCE:g} seconds") from None

    async def _run(self, case: Case) -> list[Outcome]:
        pieces = await self._sessions.filled(case.pieces)
        async with await self._connect(case.wire) as tcp:
            stream: Any = tcp
            if case.wire in self._contexts:
                stream = trio.SSLStream(
                    tcp, self._contexts[case.wire], server_hostname="127.0.0.1", https_compatible=True
                )
                await stream.do_handshake()
            if case.wire == "broken-tls":
                stream = tcp
            if case.wire == "h2" and case.probe:
                pieces.append(http2.opened(http2.get(), PROBE_STREAM))
            if case.wire in PROBES and case.probe:
                pieces.append(PROBES[case.wire])
            sent = trio.Event()
            if case.reset or case.deaf:
                with trio.move_on_after(case.deaf or PATIENCE):
                    await self._send(stream, tcp, pieces, case.shut, sent)
                    await trio.sleep(case.deaf)
                linger = struct.pack("ii", 1, 0)
                tcp.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
                tcp.socket.close()
                return [RESET]
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._send, stream, tcp, pieces, case.shut, sent)
                try:
                    if case.wire == "h2":
                        outcomes = await self._judge_frames(case, stream)
                    elif case.wire in ("lines", "lines-tls", "unix"):
                        outcomes = await judge_lines(case, stream)
                    elif case.wire in ("hello", "broken-tls"):
                        outcomes = await self._judge_end(case, stream)
                    else:
                        outcomes = await self._judge_answers(case, stream, sent)
                finally:
                    nursery.cancel_scope.cancel()
            await trio.aclose_forcefully(stream)
            return outcomes

    async def _connect(self, wire: str) -> trio.SocketStream:
        if wire == "unix":
            return await trio.open_unix_socket(self._target.unix)
        port: int = getattr(self._target, PORTS.get(wire, "tls"))
        return await trio.open_tcp_stream("127.0.0.1", port)

    async def _send(
        self, stream: Any, tcp: trio.SocketStream, pieces: list[bytes | float], shut: bool, sent: trio.Event
    ) -> None:
        try:
            for piece in pieces:
                if isinstance(piece, float):
                    await trio.sleep(piece)
                else:
                    await stream.send_all(piece)
                    await trio.lowlevel.checkpoint()
            if shut:
                await tcp.send_eof()
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            pass
        finally:
            sent.set()

    # --- HTTP/1.1 ------------------------------------------------------------------------------------------------

    async def _judge_answers(self, case: Case, stream: Any, sent: trio.Event) -> list[Outcome]:
        outcomes: list[Outcome] = []
        reader, ended = Reader(stream), False
        if case.wire in ("ws", "wss"):
            got = await reader.response(bodiless=case.answers[0].bodiless)
            check(case.answers[0], got)
            if got is not None and got.status == 101:
                return await judge_websocket(case, got.fields, reader)
            return [CLOSED if got is None else got.status]
        for answer in case.answers:
            got = await reader.response(bodiless=answer.bodiless, head_only=not case.probe and case.closes is None)
            outcomes.append(CLOSED if got is None else got.status)
            check(answer, got)
            if got is None or got.closes:
                ended = True
                break
        if not case.probe and case.closes is None:
            return outcomes
        if ended or case.closes:
            if (more := await reader.response()) is not None:
                raise Fault(f"more answers than requests: {more}")
        elif case.probe:
            await sent.wait()
            await self._probe(case, reader, stream)
        # RFC 9112, 9.6: a server may close the connection with any response. Without hypercorn it does so if it refuses
        # a request whose body is still on its way, rather than read on.
        refused = self._target.runner != "hypercorn" and isinstance(outcomes[-1], int) and outcomes[-1] >= 400
        if case.closes is False and ended and not refused:
            raise Fault(f"the connection was closed after {outcomes}")
        return outcomes

    async def _probe(self, case: Case, reader: Reader, stream: Any) -> None:
        with contextlib.suppress(trio.BrokenResourceError, trio.ClosedResourceError):
            await stream.send_all(PROBE)
        got = await reader.response()
        if got is None and case.closes is False:
            raise Fault("the connection was closed")
        if got is not None and (got.status != 200 or got.body != b'{"status": "ok"}'):
            raise Fault(f"another answer than that to the probe: {got}")

    # --- TLS -----------------------------------------------------------------------------------------------------

    async def _judge_end(self, case: Case, stream: trio.SocketStream) -> list[Outcome]:
        """No HTTP, and the end."""
        got = b""
        with contextlib.suppress(trio.BrokenResourceError):
            async for data in stream:
                got += data
        if b"HTTP/1." in got:
            raise Fault(f"an answer in clear text: {got[:300]!r}")
        return [next(iter(case.answers[0].allowed))]

    # --- stdio ---------------------------------------------------------------------------------------------------

    async def _judge_lines(self, case: Case) -> list[Outcome]:
        allowed = case.answers[0].allowed
        data = b"".join(piece for piece in case.pieces if isinstance(piece, bytes))
        answers = await self._lines.said(data, patient=NOTHING not in allowed)
        outcomes: list[Outcome] = [answer["error"]["code"] if "error" in answer else RESULT for answer in answers]
        if not set(outcomes or [NOTHING]) <= allowed:
            raise Fault(f"{answers[:5]}, and not only of {shown(case.answers[0])}")
        return outcomes or [NOTHING]

    # --- HTTP/2 --------------------------------------------------------------------------------------------------

    async def _judge_frames(self, case: Case, stream: Any) -> list[Outcome]:
        peer = Frames(stream)
        answer = case.answers[0]
        while not peer.ended:
            if (
                case.probe
                and PROBE_STREAM in peer.complete
                and (case.stream in peer.complete or NOTHING in answer.allowed)
            ):
                break
            with trio.move_on_after(5) as silence:
                await peer.read()
            if silence.cancelled_caught:
                break
        outcome = peer.outcome(case.stream)
        if outcome is None:
            outcome = GOAWAY if peer.ended else NOTHING
        got = peer.responses.get(case.stream)
        if isinstance(outcome, int) and got is not None:
            check(answer, Response(outcome, peer.fields.get(case.stream, {}), bytes(got)))
        elif outcome not in answer.allowed and not (peer.ended and GOAWAY in answer.allowed):
            raise Fault(f"{outcome}, and not one of {shown(answer)}")
        if case.probe and not peer.ended and peer.outcome(PROBE_STREAM) != 200:
            raise Fault(f"the probe got {peer.outcome(PROBE_STREAM)}")
        return [outcome]


class Frames:
    """The responses over HTTP/2."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self._data = b""
        self._unpack = hpack.Decoder(max_header_list_size=2**20)
        self._unpack.max_allowed_table_size = 2**32
        self.statuses: dict[int, int] = {}
        self.fields: dict[int, dict[str, str]] = {}
        self.responses: dict[int, bytearray] = {}
        self.reset: set[int] = set()
        self.complete: set[int] = set()
        self.ended = False

    def outcome(self, stream: int) -> Outcome | None:
        if stream in self.statuses:
            return self.statuses[stream]
        return RESET if stream in self.reset else None

    async def read(self) -> None:
        try:
            data = bytes(await self._stream.receive_some(65536))
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            data = b""
        if not data:
            self.ended = True
        self._data += data
        while len(self._data) >= 9:
            length = int.from_bytes(self._data[:3])
            if len(self._data) < 9 + length:
                return
            kind, flags, stream = self._data[3], self._data[4], int.from_bytes(self._data[5:9])
            payload, self._data = self._data[9 : 9 + length], self._data[9 + length :]
            self._take(kind, flags, stream, payload)

    def _take(self, kind: int, flags: int, stream: int, payload: bytes) -> None:
        if kind == http2.HEADERS:
            fields = dict(self._unpack.decode(payload, raw=False))
            self.statuses[stream] = int(fields.pop(":status"))
            self.fields[stream] = fields
            self.responses[stream] = bytearray()
        elif kind == http2.DATA:
            self.responses[stream] += payload
        elif kind == http2.RST:
            self.reset.add(stream)
            self.complete.add(stream)
        elif kind == http2.AWAY:
            self.ended = True
        if kind in (http2.HEADERS, http2.DATA) and flags & http2.END_STREAM:
            self.complete.add(stream)


# --- judging ----------------------------------------------------------------------------------------------------


def shown(answer: Answer) -> str:
    return ", ".join(sorted(map(str, answer.allowed)))


def check(answer: Answer, got: Response | None) -> None:
    """Check a response against the allowed ones.

    Raises:
        Fault: If none of them matches.
    """
    outcome: Outcome = CLOSED if got is None else got.status
    if outcome not in answer.allowed:
        raise Fault(
            f"{outcome}, and not one of {shown(answer)}" + (f": {got.fields} {got.body[:500]!r}" if got else "")
        )
    if got is None or "application/json" not in got.fields.get("content-type", "") or not got.body:
        return
    try:
        content = json.loads(got.body)
    except ValueError:
        raise Fault(f"the body of the response is not JSON: {got.body[:500]!r}") from None
    if not isinstance(content, Mapping) or "status" in content:
        return
    if content.get("jsonrpc") != "2.0" or ("error" in content) == ("result" in content):
        raise Fault(f"the body of the response is not JSON-RPC: {got.body[:500]!r}")
    error = content.get("error")
    if got.status >= 400 and error is None:
        raise Fault(f"a result with the status {got.status}")
    if error is not None and answer.codes is not None and error["code"] not in answer.codes:
        raise Fault(f"the error {error}, and not one of {sorted(answer.codes)}")
    if answer.echo is not None and content["result"]["structuredContent"] != {"result": answer.echo}:
        raise Fault(f"not the text that was sent: {got.body[:500]!r}")
