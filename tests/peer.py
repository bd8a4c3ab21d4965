"""A peer driven by hand: it can send what no library would, and sees everything it receives.

`Peer` speaks messages over any link; `ProcessPeer` speaks bytes to a process; `tests.http_peer` is HTTP's counterpart.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import subprocess
import sys
import textwrap
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any, TypeVar

import attrs
import trio
import trio.testing

from tests.transports.support import DEADLINE, PACKAGE_ROOT
from trio_mcp import Server
from trio_mcp._nursery import background_nursery
from trio_mcp.direct_channel import DirectReceiveChannel
from trio_mcp.jsonrpc.messages import (
    ErrorData,
    ErrorResponse,
    Incoming,
    Notification,
    Request,
    RequestId,
    Response,
)
from trio_mcp.low_level import Link, SessionMessage, memory_link_pair
from trio_mcp.types import meta
from trio_mcp.types.versions import LEGACY_REVISIONS

__all__ = [
    "ENVIRONMENT",
    "HANDSHAKE",
    "ME",
    "Peer",
    "ProcessPeer",
    "Replies",
    "call",
    "client_peer",
    "ndjson",
    "played",
    "process_peer",
    "script",
    "settle",
]

LEGACY, MODERN = "2025-11-25", "2026-07-28"
ME = {"name": "peer", "version": "1"}

Kind = TypeVar("Kind", bound=Incoming)

Replies = Callable[[Request], Any]
"""From a request to its answer: a result, an `ErrorData`, or None for none at all."""


def _unexpected(request: Request) -> None:
    raise AssertionError(f"unexpected request: {request!r}")


async def settle() -> None:
    """Wait until nothing more can happen without a new message."""
    for _ in range(5):
        await trio.testing.wait_all_tasks_blocked()


@attrs.define(eq=False)
class Peer:
    """One end of a link, a client's or a server's.

    Either what comes is taken message by message (`receive`, `expect`, `arrived`), or it is sorted into the attributes
    here while the peer waits for something (`answer`, `hear` and what uses them) or serves (`serve`).

    Attributes:
        link: Its end of the link.
        revision: The revision it speaks.
        capabilities: Its own.
        replies: Answers the questions of the other end.
        opening: The request that opened the connection, if this is the server.
        questions: The other end's questions, in order.
        heard: The notifications not yet waited for, in order.
        asked: The ids of its own requests.
        answered: The ids of the answers that have come, those that could not be read among them as None.
        answers: The answers not yet waited for.
        rounds: The results of the modern era that asked for input.
    """

    link: Link
    revision: str = LEGACY
    capabilities: dict[str, Any] = attrs.Factory(dict)
    replies: Replies = _unexpected
    opening: Request | None = None
    questions: list[Request] = attrs.Factory(list)
    heard: list[Notification] = attrs.Factory(list)
    asked: set[RequestId] = attrs.Factory(set)
    answered: set[RequestId | None] = attrs.Factory(set)
    answers: dict[RequestId | None, Response | ErrorResponse] = attrs.Factory(dict)
    rounds: list[dict[str, Any]] = attrs.Factory(list)
    _last: int = 0
    _serving: bool = False
    _news: trio.lowlevel.ParkingLot = attrs.Factory(trio.lowlevel.ParkingLot)

    # --- messages as they are ---

    async def send(self, message: Any) -> None:
        """Send a message unchanged."""
        await self.link.write.send(SessionMessage(message))

    async def receive(self) -> Incoming:
        """Take the next message."""
        return (await self.link.read.receive()).message

    async def expect(self, kind: type[Kind]) -> Kind:
        """Take the next message, which must be of a kind."""
        message = await self.receive()
        assert isinstance(message, kind), message
        return message

    def arrived(self) -> list[Any]:
        """Take everything that has arrived."""
        assert isinstance(self.link.read, DirectReceiveChannel)
        messages: list[Any] = []
        with contextlib.suppress(trio.WouldBlock, trio.EndOfChannel):
            while True:
                messages.append(self.link.read.receive_nowait().message)
        return messages

    def __aiter__(self) -> AsyncIterator[Incoming]:
        return self

    async def __anext__(self) -> Incoming:
        try:
            return await self.receive()
        except trio.EndOfChannel:
            raise StopAsyncIteration from None

    async def close(self) -> None:
        """Close the sending side."""
        await self.link.write.aclose()

    # --- asking ---

    @property
    def fields(self) -> dict[str, Any]:
        """The ``_meta`` of each request."""
        if self.revision in LEGACY_REVISIONS:
            return {}
        return {
            meta.PROTOCOL_VERSION: self.revision,
            meta.CLIENT_INFO: ME,
            meta.CLIENT_CAPABILITIES: self.capabilities,
        }

    def hello(self) -> dict[str, Any]:
        """Return the parameters of initialize."""
        return {"protocolVersion": self.revision, "capabilities": self.capabilities, "clientInfo": ME}

    async def initialize(self) -> None:
        """Do the handshake, if the revision has one."""
        if self.revision in LEGACY_REVISIONS:
            await self.result("initialize", self.hello())
            await self.notify("notifications/initialized")

    async def request(
        self, method: str, params: dict[str, Any] | None = None, request_id: RequestId | None = None, **more: Any
    ) -> RequestId:
        """Send a request; ``more`` goes into its ``_meta``, beside the era's fields. Return its id."""
        if request_id is None:
            self._last += 1
            request_id = f"peer-{self._last}"
        given = dict(params or {})
        fields = {**self.fields, **more, **given.pop("_meta", {})}
        self.asked.add(request_id)
        await self.send(Request(request_id, method, {**given, "_meta": fields} if fields else params))
        return request_id

    async def notify(self, method: str, params: dict[str, Any] | None = None) -> None:
        """Send a notification."""
        await self.send(Notification(method, params))

    async def cancel(self, request_id: RequestId, **more: Any) -> None:
        """Cancel a request."""
        await self.notify("notifications/cancelled", {"requestId": request_id, **more})

    async def answer(self, request_id: RequestId | None) -> Response | ErrorResponse:
        """Wait for the answer to a request; what else comes before it is kept, and questions are answered."""
        while request_id not in self.answers:
            await self._more()
        return self.answers.pop(request_id)

    async def hear(self, method: str) -> dict[str, Any]:
        """Wait for a notification of a kind; remove it from `heard`, and return its parameters."""
        while True:
            for index, found in enumerate(self.heard):
                if found.method == method:
                    return self.heard.pop(index).params or {}
            await self._more()

    def heard_of(self, method: str) -> list[dict[str, Any]]:
        """Return the parameters of the notifications of a kind that were received."""
        return [found.params or {} for found in self.heard if found.method == method]

    async def ask(self, method: str, params: dict[str, Any] | None = None, **more: Any) -> Any:
        """Send a request, and return the result or the `ErrorData`."""
        answer = await self.answer(await self.request(method, params, **more))
        return answer.result if isinstance(answer, Response) else answer.error

    async def result(self, method: str, params: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
        """Send a request, and return its result."""
        result: dict[str, Any] | ErrorData = await self.ask(method, params, **more)
        assert not isinstance(result, ErrorData), result
        return result

    async def error(self, method: str, params: dict[str, Any] | None = None, **more: Any) -> ErrorData:
        """Send a request, and return its error."""
        error = await self.ask(method, params, **more)
        assert isinstance(error, ErrorData), error
        return error

    async def call(self, name: str, arguments: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
        """Call a tool, and get a result."""
        return await self.result("tools/call", {"name": name, "arguments": arguments or {}}, **more)

    async def drive(self, method: str, params: dict[str, Any]) -> Any:
        """Send a request, go through all rounds of input, and return the result or the `ErrorData`."""
        retry = params
        while True:
            result = await self.ask(method, retry)
            if isinstance(result, ErrorData) or result.get("resultType") != "input_required":
                return result
            self.rounds.append(result)
            found = [
                Request(key, each["method"], each.get("params"))
                for key, each in result.get("inputRequests", {}).items()
            ]
            self.questions += found
            replies = {each.id: self.replies(each) for each in found}
            responses = {key: reply for key, reply in replies.items() if reply is not None}
            retry = {**params, "inputResponses": responses, "requestState": result["requestState"]}

    async def tool(self, name: str, **arguments: Any) -> Any:
        """Call a tool through all rounds of input; return the result or the `ErrorData`."""
        return await self.drive("tools/call", {"name": name, "arguments": arguments})

    async def listen(self, request_id: RequestId, **wanted: Any) -> Incoming:
        """Open a subscription of the modern era; return the message that comes next."""
        await self.request("subscriptions/listen", {"notifications": wanted}, request_id)
        return await self.receive()

    # --- answering ---

    async def respond(self, request: Request, reply: Any) -> None:
        """Answer a request with a result, an `ErrorData`, or with None: not at all."""
        if isinstance(reply, ErrorData):
            await self.send(ErrorResponse(request.id, reply))
        elif reply is not None:
            await self.send(Response(request.id, reply))

    async def greet(self) -> Request:
        """Act as a server, and answer the request that opens the connection; return that request."""
        self.opening = await self.expect(Request)
        if self.revision in LEGACY_REVISIONS:
            result: dict[str, Any] = {"protocolVersion": self.revision, "serverInfo": ME}
        else:
            result = {
                "resultType": "complete",
                "supportedVersions": [self.revision],
                "ttlMs": 0,
                "cacheScope": "private",
            }
        await self.respond(self.opening, {**result, "capabilities": self.capabilities})
        return self.opening

    async def serve(self) -> None:
        """Receive messages until the other end closes; meanwhile other tasks may wait for them."""
        self._serving = True
        with contextlib.suppress(trio.EndOfChannel, trio.BrokenResourceError):
            while True:
                await self._take()
                self._news.unpark_all()

    async def _more(self) -> None:
        await (self._news.park() if self._serving else self._take())

    async def _take(self) -> None:
        message = await self.receive()
        if isinstance(message, Notification):
            self.heard.append(message)
        elif isinstance(message, Request):
            self.questions.append(message)
            await self.respond(message, self.replies(message))
        else:
            assert isinstance(message, (Response, ErrorResponse)), message
            assert message.id not in self.answers, f"a second answer to {message.id!r}"
            self.answers[message.id] = message
            self.answered.add(message.id)


@contextlib.asynccontextmanager
async def client_peer(
    server: Server,
    revision: str = MODERN,
    capabilities: dict[str, Any] | None = None,
    replies: Replies = _unexpected,
    *,
    deadline: float = DEADLINE,
) -> AsyncIterator[Peer]:
    """Yield a client of a server, in memory; the deadline only guards against a hang."""
    with trio.fail_after(deadline):
        async with memory_link_pair() as (ours, theirs), trio.open_nursery() as nursery:
            await nursery.start(lambda task_status: server.serve(theirs, task_status=task_status))
            peer = Peer(ours, revision, capabilities or {}, replies)
            await peer.initialize()
            yield peer
            nursery.cancel_scope.cancel()


def played(
    play: Callable[[Peer], Awaitable[object]], *, encode: bool = False
) -> Callable[[], contextlib.AbstractAsyncContextManager[Link]]:
    """Return a target for a client: in memory, with a server driven by hand."""

    @contextlib.asynccontextmanager
    async def connect() -> AsyncIterator[Link]:
        async with memory_link_pair(encode=encode) as (ours, theirs), background_nursery() as nursery:
            nursery.start_soon(play, Peer(theirs))
            yield ours

    return connect


# --- a process ---------------------------------------------------------------------------------------------------

ENVIRONMENT = {**os.environ, "PYTHONPATH": PACKAGE_ROOT}

HANDSHAKE: list[dict[str, Any]] = [
    {
        "jsonrpc": "2.0",
        "id": 0,
        "method": "initialize",
        "params": {"protocolVersion": LEGACY, "capabilities": {}, "clientInfo": ME},
    },
    {"jsonrpc": "2.0", "method": "notifications/initialized"},
]


def call(request_id: int | str, tool: str, **arguments: Any) -> dict[str, Any]:
    params = {"name": tool, "arguments": arguments}
    return {"jsonrpc": "2.0", "id": request_id, "method": "tools/call", "params": params}


def ndjson(*messages: Any) -> bytes:
    """Return messages as lines; bytes are left as they are."""
    return b"".join(item if isinstance(item, bytes) else json.dumps(item).encode() + b"\n" for item in messages)


def script(code: str) -> list[str]:
    """Return the command that runs a program."""
    return [sys.executable, "-c", textwrap.dedent(code)]


class ProcessPeer:
    """The client's ends of a server's standard streams, as descriptors; -1 for a missing one."""

    def __init__(self, process: subprocess.Popen[bytes], send_fd: int, receive_fd: int, error_fd: int) -> None:
        self.process = process
        self.send_fd, self._receive_fd, self._error_fd = send_fd, receive_fd, error_fd
        self.received = b""
        self.errors = b""

    def send(self, *messages: Any) -> None:
        data = ndjson(*messages)
        while data:
            data = data[os.write(self.send_fd, data) :]

    def receive(self) -> Any:
        """Return the next line."""
        seen = 0
        while self.received.find(b"\n", seen) < 0:
            seen = len(self.received)
            if not self._pump():
                raise EOFError(f"the wire ended; so far {self.received!r}, errors {self.errors!r}")
        line, self.received = self.received.split(b"\n", 1)
        return json.loads(line)

    def call(self, tool: str, **arguments: Any) -> Any:
        """Call a tool and return its value."""
        self.send(call("call", tool, **arguments))
        answer = self.receive()
        assert answer["id"] == "call", answer
        return answer["result"]["structuredContent"]["result"]

    def wait_for_error_text(self, text: str) -> None:
        while text.encode() not in self.errors:
            if not self._pump():
                raise EOFError(f"standard error ended without {text!r}: {self.errors!r}")

    def wait_for_output(self, *parts: bytes) -> None:
        """Wait until all of these have come on the wire, whether in a line or not."""
        while not all(part in self.received for part in parts):
            if not self._pump():
                raise EOFError(f"the wire ended without {parts!r}: {self.received!r}")

    def drain(self) -> bytes:
        """Read both streams to their ends; return the rest of the output."""
        while self._pump():
            pass
        return self.received

    def _pump(self) -> bool:
        """Read what is available on either stream; return False when both have ended."""
        waiting = [fd for fd in (self._receive_fd, self._error_fd) if fd >= 0]
        if not waiting:
            return False
        ready, _, _ = select.select(waiting, [], [], DEADLINE)
        assert ready, f"nothing came; so far {self.received!r}, errors {self.errors!r}"
        for fd in ready:
            try:
                data = os.read(fd, 65536)
            except OSError:  # a terminal whose other side is gone, a socket that was reset
                data = b""
            if fd == self._receive_fd:
                self.received += data
                self._receive_fd = fd if data else -1
            else:
                self.errors += data
                self._error_fd = fd if data else -1
        return True

    def close_input(self) -> None:
        if self.send_fd >= 0:
            os.close(self.send_fd)
            self.send_fd = -1

    def close_output(self) -> None:
        assert self.process.stdout is not None
        self.process.stdout.close()
        self._receive_fd = -1

    def exit(self) -> int:
        """Wait for the exit; both streams are read meanwhile."""
        end = time.monotonic() + DEADLINE
        self.drain()
        return self.process.wait(max(0.1, end - time.monotonic()))


@contextlib.contextmanager
def process_peer(command: list[str], handshake: bool = True) -> Iterator[ProcessPeer]:
    """Yield a server process with a pipe for each standard stream; killed at the end if it is still running."""
    with subprocess.Popen(command, stdin=-1, stdout=-1, stderr=-1, env=ENVIRONMENT, bufsize=0) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        peer = ProcessPeer(process, os.dup(process.stdin.fileno()), process.stdout.fileno(), process.stderr.fileno())
        process.stdin.close()
        try:
            if handshake:
                peer.send(*HANDSHAKE)
                assert peer.receive()["id"] == 0
            yield peer
        finally:
            process.kill()
            peer.close_input()
