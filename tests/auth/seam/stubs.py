"""An ``auth=`` of a few lines, and HTTP servers in memory, for the virtual clock."""

from __future__ import annotations

import contextlib
import json
import math
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import attrs
import httpx
import trio

from tests.http_peer import DISCOVERED, INITIALIZED, result
from trio_mcp import Client
from trio_mcp.errors import AuthorizationError
from trio_mcp.http.headers import Headers
from trio_mcp.link import Link
from trio_mcp.low_level import streamable_http_client

SECRET = "canary-1f2e3d"
URL = "https://mcp.example.com/mcp"


@attrs.define(eq=False)
class Person:
    """Signs in when the server refuses, and is asked by one operation at a time.

    Attributes:
        takes: How many seconds that takes.
        token: The token, once there is one.
        denies: Whether the person refuses.
        tries: How often an operation asks.
        ready_in: How many seconds the fields of a request take.
        asked: How often the person was asked.
        signed: What was authorized: methods and URLs.
        servers: What was opened.
        gave: Set once there is a token from the person.
    """

    takes: float = 0.0
    token: str | None = None
    denies: bool = False
    tries: int = 1
    ready_in: float = 0.0
    extensions: dict[str, dict[str, Any]] = attrs.field(factory=dict)
    asked: int = 0
    nonce: str | None = None
    signed: list[tuple[str, str]] = attrs.field(factory=list)
    servers: list[str] = attrs.field(factory=list)
    open: int = 0
    gave: trio.Event = attrs.field(factory=trio.Event)
    turn: trio.Lock = attrs.field(factory=trio.Lock)

    @contextlib.asynccontextmanager
    async def opened(self, server: str, pause: Any) -> AsyncIterator[Signing]:
        self.servers.append(server)
        self.open += 1
        try:
            yield Signing(self, pause)
        finally:
            self.open -= 1


@attrs.define(eq=False)
class Signing:
    person: Person
    pause: Any

    def attempt(self) -> Try:
        return Try(self.person, self.pause, self.person.tries)


@attrs.define(eq=False)
class Try:
    person: Person
    pause: Any
    left: int
    sent: str | None = None

    async def fields(self, method: str, url: str) -> list[tuple[str, str]]:
        await trio.sleep(self.person.ready_in)
        self.sent = self.person.token
        self.person.signed.append((method, url))
        proof = [] if self.person.nonce is None else [("DPoP", f"{SECRET}-proof-{self.person.nonce}")]
        return proof if self.sent is None else [("authorization", f"Bearer {self.sent}"), *proof]

    async def again(self, status: int, headers: Headers) -> bool:
        nonce = headers.get("DPoP-Nonce")
        if nonce is not None and nonce != self.person.nonce:
            self.person.nonce = nonce
            return status == 401
        if status not in (401, 403) or not self.left:
            return False
        self.left -= 1
        with self.pause():
            async with self.person.turn:
                if self.person.token == self.sent:
                    self.person.asked += 1
                    await trio.sleep(self.person.takes)
                    if self.person.denies:
                        raise AuthorizationError("authorization", "the person said no", error="access_denied")
                    self.person.token = f"{SECRET}-{self.person.asked}"
                    self.person.gave.set()
        return True


Answer = Callable[[httpx.Request], Awaitable[httpx.Response]]


def refusal(status: int = 401, **headers: str) -> httpx.Response:
    challenge = {"WWW-Authenticate": "Bearer", **{name.replace("_", "-"): value for name, value in headers.items()}}
    return httpx.Response(status, headers=challenge, json={"error": "refused here"})


def rpc(request: httpx.Request) -> dict[str, Any]:
    """Return the message in a request; a GET or DELETE has none."""
    return json.loads(request.content) if request.content else {"method": request.method}


async def answered(request: httpx.Request) -> httpx.Response:
    """Answer as a modern server, or a legacy one if it is asked for the handshake."""
    message = rpc(request)
    match message["method"]:
        case "server/discover":
            content: dict[str, Any] = DISCOVERED
        case "initialize":
            content = INITIALIZED
        case "GET":
            return httpx.Response(405)
        case method if "id" not in message:
            return httpx.Response(202)
        case "tools/call" if message["params"]["name"] == "hang":
            await trio.sleep_forever()
        case method:
            content = {"resultType": "complete", "content": [{"type": "text", "text": method}]}
    return httpx.Response(200, json=result(message["id"], content))


async def only_legacy(request: httpx.Request) -> httpx.Response:
    """Answer as a server of the legacy era."""
    return httpx.Response(400) if rpc(request)["method"] == "server/discover" else await answered(request)


class Streaming(httpx.AsyncByteStream):
    """The body of a response that takes its time.

    Attributes:
        last: What comes at its end.
        closed: Whether it was closed.
    """

    def __init__(self, *parts: bytes, lasts: float = math.inf, cut: bool = False) -> None:
        self.parts, self.lasts, self.cut = parts, lasts, cut
        self.last: list[bytes] = []
        self.closed = False

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for part in self.parts:
            yield part
        await trio.sleep(self.lasts)
        if self.cut:
            raise httpx.ReadError("cut")
        for part in self.last:
            yield part

    async def aclose(self) -> None:
        self.closed = True

    def response(self, status: int = 200, kind: str = "text/event-stream", **headers: str) -> httpx.Response:
        return httpx.Response(status, headers={"Content-Type": kind, **headers}, stream=self)


def is_good(token: str) -> bool:
    return token.startswith(SECRET)


def protected(behind: Answer = answered, *, status: int = 401, good: Callable[[str], bool] = is_good) -> Answer:
    """Return a server that wants a token."""

    async def answer(request: httpx.Request) -> httpx.Response:
        token = request.headers.get("authorization", "").removeprefix("Bearer ")
        return await behind(request) if good(token) else refusal(status)

    return answer


class Memory(httpx.AsyncBaseTransport):
    """A network of one server.

    Attributes:
        requests: All that was sent.
    """

    def __init__(self, answer: Answer) -> None:
        self.requests: list[httpx.Request] = []
        self._answer = answer

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        await request.aread()
        self.requests.append(request)
        await trio.lowlevel.checkpoint()
        return await self._answer(request)

    @property
    def sent(self) -> list[str]:
        return [rpc(request)["method"] for request in self.requests]


def link(memory: Memory, auth: Any, url: str = URL) -> Callable[[], contextlib.AbstractAsyncContextManager[Link]]:
    """Return a target that is reached through a network in memory."""

    @contextlib.asynccontextmanager
    async def connect() -> AsyncIterator[Link]:
        async with (
            httpx.AsyncClient(transport=memory) as http_client,
            streamable_http_client(url, auth=auth, http_client=http_client) as opened,
        ):
            yield opened

    return connect


@contextlib.asynccontextmanager
async def client_of(answer: Answer, auth: Any, url: str = URL, **options: Any) -> AsyncIterator[tuple[Memory, Client]]:
    """Connect a client to a server in memory."""
    memory = Memory(answer)
    async with Client(link(memory, auth, url), **options) as client:
        yield memory, client
