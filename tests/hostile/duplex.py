"""What comes back over a WebSocket, or in lines over TCP, TLS and Unix sockets, read strictly."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import AsyncIterator
from typing import Any

import trio
from wsproto.utilities import generate_accept_token

from tests.hostile.case import ALIVE, BASE_META, CLOSED, RESULT, Answer, Case, Outcome

PROBE = json.dumps(
    {
        "jsonrpc": "2.0",
        "id": "probe",
        "method": "tools/call",
        "params": {"_meta": BASE_META, "name": "echo", "arguments": {"text": "alive"}},
    }
).encode()

LINE = PROBE + b"\n"
FRAME = b"\x81\xfe" + len(PROBE).to_bytes(2, "big") + bytes(4) + PROBE
PROBES = {"lines": LINE, "lines-tls": LINE, "unix": LINE, "ws": FRAME, "wss": FRAME}
"""What asks whether a session goes on, by wire."""

KEY = re.compile(rb"sec-websocket-key:[ \t]*([^\s]+)", re.IGNORECASE)


class Fault(Exception):
    """The server broke a rule."""


class Bytes:
    """What a stream gives, in any sizes."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self._data = bytearray()

    async def _more(self) -> bool:
        try:
            data = bytes(await self._stream.receive_some(65536))
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            data = b""
        self._data += data
        return bool(data)

    async def exactly(self, count: int) -> bytes | None:
        """Return so many bytes; None if they don't all come."""
        while len(self._data) < count:
            if not await self._more():
                return None
        found = bytes(self._data[:count])
        del self._data[:count]
        return found

    async def until(self, end: bytes) -> bytes | None:
        at = 0
        while (found := self._data.find(end, at)) < 0:
            at = max(0, len(self._data) - len(end))
            if not await self._more():
                if self._data:
                    raise Fault(f"what breaks off: {bytes(self._data[:300])!r}")
                return None
        return await self.exactly(found + len(end))


class Replies:
    """The messages that come back, and what they must be."""

    def __init__(self, answer: Answer) -> None:
        self._answer = answer
        self._missing = {"probe"} if answer.echo is None else {"probe", "echo"}
        self.outcomes: list[Outcome] = []

    def take(self, data: bytes) -> bool:
        """Check a message; True once the probe and what must come back are answered: calls run beside each other."""
        try:
            message = json.loads(data.decode())
        except ValueError:
            raise Fault(f"not JSON: {data[:300]!r}") from None
        if message.get("jsonrpc") != "2.0":
            raise Fault(f"not JSON-RPC: {message}")
        if "method" in message:
            return False
        error, result = message.get("error"), message.get("result")
        if (error is None) == (result is None):
            raise Fault(f"neither an error nor a result: {message}")
        if message.get("id") == "mark" and result is not None:
            raise Fault("a call was made that should not be")
        if message.get("id") == "probe":
            if error is not None or result["structuredContent"] != {"result": "alive"}:
                raise Fault(f"the probe got {message}")
            self._missing.discard("probe")
            return not self._missing
        if error is not None and self._answer.codes is not None and error["code"] not in self._answer.codes:
            raise Fault(f"the error {error}, and not one of {sorted(self._answer.codes)}")
        if result is not None and result.get("structuredContent") == {"result": self._answer.echo}:
            self._missing.discard("echo")
        self.outcomes.append(RESULT if error is None else error["code"])
        return not self._missing

    def end(self, outcome: Outcome, reason: bytes = b"") -> list[Outcome]:
        if outcome not in self._answer.allowed:
            wanted = sorted(map(str, self._answer.allowed))
            raise Fault(f"{outcome} {reason!r} after {self.outcomes[:5]}, and not one of {wanted}")
        if "echo" in self._missing:
            raise Fault(f"{self._answer.echo!r} did not come back: {self.outcomes[:5]}")
        return [*dict.fromkeys(self.outcomes), outcome]


async def judge_lines(case: Case, stream: Any) -> list[Outcome]:
    """Read lines until the answer to the probe, or the end."""
    replies, data = Replies(case.answers[0]), Bytes(stream)
    while (line := await data.until(b"\n")) is not None:
        if replies.take(line):
            return replies.end(ALIVE)
    return replies.end(CLOSED)


async def judge_websocket(case: Case, fields: dict[str, str], stream: Any) -> list[Outcome]:
    """Check the handshake, and read frames until the answer to the probe, or the end.

    Args:
        case: The case.
        fields: Those of the response to the handshake.
        stream: What follows it.
    """
    sent = KEY.search(b"".join(piece for piece in case.pieces if isinstance(piece, bytes)))
    assert sent is not None
    wanted = {
        "sec-websocket-accept": generate_accept_token(sent[1]).decode() if sent[1].isascii() else "",
        "sec-websocket-protocol": "mcp",
        "upgrade": "websocket",
        "connection": "upgrade",
        "sec-websocket-extensions": "",
    }
    got = {name: fields.get(name, "") for name in wanted}
    if {name: value.lower() for name, value in got.items()} != {name: value.lower() for name, value in wanted.items()}:
        raise Fault(f"{fields}, and not {wanted}")
    replies = Replies(case.answers[1])
    async with contextlib.aclosing(frames(Bytes(stream))) as found:
        async for opcode, payload in found:
            if opcode == 1 and replies.take(payload):
                return [101, *replies.end(ALIVE)]
            if opcode == 8:
                code = int.from_bytes(payload[:2], "big") if payload else 1005
                return [101, *replies.end(code, payload[2:])]
    return [101, *replies.end(CLOSED)]


async def frames(data: Bytes) -> AsyncIterator[tuple[int, bytes]]:
    """Yield the frames of the server: none may follow that of a close."""
    closed = False
    while (header := await data.exactly(2)) is not None:
        if closed:
            raise Fault("a frame after the close frame")
        opcode, length = header[0] & 0x7F, header[1]
        if header[0] < 0x80 or opcode not in (1, 8, 9, 10) or (opcode > 7 and length > 125):
            raise Fault(f"not a frame of a server: {header!r}")
        if length >= 126:
            size = await data.exactly(2 if length == 126 else 8)
            length = int.from_bytes(size or b"", "big")
            if length < 126:
                raise Fault(f"a length that is not minimal: {length}")
        payload = await data.exactly(length)
        if payload is None:
            return  # cut off, as the connection was
        if closed := opcode == 8:
            check_close(payload)
        yield opcode, payload


def check_close(payload: bytes) -> None:
    code = int.from_bytes(payload[:2], "big")
    if payload and code not in {1000, 1001, 1002, 1003, *range(1007, 1014), *range(3000, 5000)}:
        raise Fault(f"a close frame with the code {code}")
    try:
        payload[2:].decode()
    except UnicodeDecodeError:
        raise Fault(f"a close frame whose reason is not text: {payload!r}") from None
