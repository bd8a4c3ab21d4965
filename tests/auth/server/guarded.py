"""A protection that is a table of tokens, and HTTP exchanges in memory with what it protects."""

from __future__ import annotations

import contextlib
import time
from collections.abc import AsyncIterator, Callable, Collection, Mapping
from functools import partial
from typing import Any

import trio
import trio.testing
from pydantic_core import from_json, to_json

from tests.http_peer import LATEST, request
from tests.peer import ME
from tests.server.http.asgi_client import Connection
from trio_mcp import Principal, Server
from trio_mcp.http.rules.statuses import Refusal, refuse
from trio_mcp.http.server.asgi import EXTRAS, Extras, HttpRequest
from trio_mcp.http.server.protection import Identified

MODERN = "2026-07-28"
META = {"io.modelcontextprotocol/protocolVersion": MODERN, "io.modelcontextprotocol/clientCapabilities": {}}
DOCUMENT = "/.well-known/oauth-protected-resource/mcp"
NAMED = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}


class Table:
    """Knows tokens by heart.

    Attributes:
        tokens: Whose token it is.
        judged: How many tokens were judged.
        open: How many blocks are open.
        clock: By which clock the principals expire.
    """

    resource = "https://mcp.example.com/mcp"

    def __init__(
        self, tokens: Mapping[str, Principal], base: Collection[str] = (), clock: Callable[[], float] = time.time
    ) -> None:
        self.tokens = dict(tokens)
        self.judged = self.open = 0
        self._base = frozenset(base)
        self.clock = clock

    @contextlib.asynccontextmanager
    async def opened(self, stores: Any = None, secret: bytes | None = None) -> AsyncIterator[Table]:
        self.open += 1
        try:
            yield self
        finally:
            self.open -= 1

    def document(self, path: str) -> bytes | None:
        return to_json({"resource": self.resource}) if path == DOCUMENT else None

    async def identify(self, request: HttpRequest) -> Identified | Refusal:
        await trio.lowlevel.checkpoint()
        self.judged += 1
        scheme, _, token = (request.headers.get("Authorization") or "").partition(" ")
        principal = self.tokens.get(token) if scheme == "Bearer" else None
        if principal is None:
            return refuse(401, "no token", headers=(("WWW-Authenticate", "Bearer"),))
        return Identified(principal, (("DPoP-Nonce", "n1"),))

    def permit(self, principal: Principal, needed: Collection[str]) -> Refusal | None:
        missing = (self._base | set(needed)) - principal.scopes
        if not missing:
            return None
        scope = " ".join(sorted(self._base | set(needed)))
        challenge = f'Bearer error="insufficient_scope", scope="{scope}"'
        return refuse(403, "insufficient_scope", headers=(("WWW-Authenticate", challenge),))


def person(subject: str, *scopes: str, expires_at: float | None = None, client: str = "c") -> Principal:
    return Principal(subject, "https://id.example.com", client, scopes, expires_at=expires_at)  # type: ignore[arg-type]


class Runner(Extras):
    """A runner that reads what is left of a body by itself, so that a test sees whether the application has read it."""

    lingers = True

    def receive_nowait(self) -> None:
        return None


class Exchange(Connection):
    """One exchange with a protected application."""

    def __init__(self, method: str, token: str | None, body: Any = b"", path: str = "/mcp", **fields: str) -> None:
        given = {name.replace("_", "-"): value for name, value in fields.items()}
        if token is not None:
            given["authorization"] = f"Bearer {token}"
        super().__init__(method, given, body if isinstance(body, bytes) else to_json(body), path)
        self.runner = Runner()
        self.scope["extensions"] = {EXTRAS: self.runner}
        self.scope["server"] = ("127.0.0.1", 80)

    @property
    def unread(self) -> bool:
        """Whether the application has not asked for the body."""
        return bool(self._request)

    @property
    def json(self) -> Any:
        return from_json(self.body)

    def leave(self) -> None:
        self.left.set()
        self.runner.happened()


def modern(token: str | None, method: str, meta: Mapping[str, Any] | None = None, **params: Any) -> Exchange:
    """Return a request of the modern era, with the headers that repeat its body."""
    fields = {"mcp_protocol_version": MODERN, "mcp_method": method}
    if method in NAMED:
        fields["mcp_name"] = params[NAMED[method]]
    return Exchange("POST", token, request(method, {**params, "_meta": {**META, **(meta or {})}}, 1), **fields)


class Legacy:
    """A session of the legacy era with a protected application."""

    def __init__(self, app: Any, token: str | None, revision: str = LATEST) -> None:
        self.app = app
        self.token = token
        self.revision = revision
        self.fields: dict[str, str] = {}

    def made(self, method: str, body: Any = b"", **fields: str) -> Exchange:
        return Exchange(method, self.token, body, **{**self.fields, **fields})

    async def send(self, body: Any, **fields: str) -> Exchange:
        exchange = self.made("POST", body, **fields)
        await exchange.run(self.app)
        return exchange

    async def call(self, method: str, **params: Any) -> Exchange:
        return await self.send(request(method, params, 5))

    async def initialize(self, **capabilities: Any) -> Exchange:
        params = {"protocolVersion": self.revision, "capabilities": capabilities, "clientInfo": ME}
        answer = await self.send(request("initialize", params, 0))
        if "mcp-session-id" in answer.headers:
            self.fields = {"mcp_session_id": answer.headers["mcp-session-id"], "mcp_protocol_version": self.revision}
            assert (await self.send({"jsonrpc": "2.0", "method": "notifications/initialized"})).status == 202
        return answer


async def ask(app: Any, exchange: Exchange) -> Exchange:
    """Make an exchange, and return it when it is over."""
    await exchange.run(app)
    return exchange


@contextlib.asynccontextmanager
async def protected(server: Server, auth: Any, **settings: Any) -> AsyncIterator[Any]:
    """Serve in memory: ``settings`` are those of the endpoint."""
    with trio.fail_after(3600):
        async with server.asgi_app(auth=auth, **settings) as app:
            yield app


@contextlib.asynccontextmanager
async def under_way(app: Any, exchange: Exchange) -> AsyncIterator[Exchange]:
    """Run an exchange within the block, which begins when its response does."""
    async with trio.open_nursery() as nursery:
        nursery.start_soon(partial(exchange.run, app))
        await trio.testing.wait_all_tasks_blocked()
        assert exchange.status is not None
        yield exchange
        exchange.leave()
