"""A protected server whose function calls a service on behalf of its callers, and their authorization server."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import AsyncIterator, Callable, Collection
from typing import Any

import trio

from tests.auth.server.guarded import Exchange, modern, protected
from trio_mcp import Context, Server
from trio_mcp.auth import RegisteredClient, ResourceServer, TokenExchange
from trio_mcp.auth.rules.steps import Fetch, Fetched
from trio_mcp.auth.testing import AuthorizationServer
from trio_mcp.auth.testing.records import Family
from trio_mcp.errors import AuthorizationError

RESOURCE = "https://files.example.com/mcp"
API = "https://api.example.com"
OTHER = "https://mail.example.com"
SECRET = "s3cret-of-the-server"
SCOPES = {API: ("items:read", "items:write"), OTHER: ("mail:send",)}
CLIENT = RegisteredClient("files", secret=SECRET)


class World:
    """The authorization server, the network to it, and the server.

    Attributes:
        authority: The authorization server.
        latency: Seconds that each exchange with it takes.
        most: How many requests to the token endpoint were under way at once.
        handler: What the tool ``call`` does with its context.
        granted: The tokens that were granted for services.
    """

    def __init__(self, *, latency: float = 1.0, tokens: Any = "jwt", **options: Any) -> None:
        began = int(time.time()) - trio.current_time()
        self.clock: Callable[[], float] = lambda: began + trio.current_time()
        self.authority = AuthorizationServer(clock=self.clock, tokens=tokens, exchanges=SCOPES)
        self.authority.add_client("files", SECRET)
        self.latency = latency
        self.most = self._under_way = 0
        self.exchange = TokenExchange(SCOPES, **{"client": CLIENT, **options})
        self.granted: list[str] = []
        self.handler: Callable[[Context[Any]], Any] = self.get
        self.server = Server("files")
        self.server.tool(self.tool, name="call")

    async def tool(self, ctx: Context[Any]) -> str:
        """Be the tool ``call``."""
        return str(await self.handler(ctx))

    async def get(self, ctx: Context[Any]) -> str:
        """Do as most tools do."""
        return await ctx.token_for(API, scopes=["items:read"])

    async def fetch(self, asked: Fetch) -> Fetched:
        """Be the network, within the limits of the real one."""
        asking = asked.url.endswith("/token")
        self._under_way += asking
        self.most = max(self.most, self._under_way)
        try:
            with trio.move_on_after(10):
                await trio.sleep(self.latency)
                answer = self.authority.handle(asked)
                if asking and answer.status == 200 and answer.ending == "whole":
                    self.granted.append(str(json.loads(answer.body).get("access_token")))
                if answer.ending == "silent":
                    await trio.sleep_forever()
                if answer.ending == "cut":
                    raise AuthorizationError(asked.step, f"{asked.url}: the connection broke")
                if answer.ending == "endless" or len(answer.body) > asked.limit:
                    raise AuthorizationError(asked.step, f"{asked.url}: more than {asked.limit} bytes")
                return answer
            raise AuthorizationError(asked.step, f"{asked.url}: no complete response arrived within 10 seconds")
        finally:
            self._under_way -= asking

    def resource(self, **settings: Any) -> ResourceServer:
        given = {"issuers": [self.authority.issuer], "dpop": "off", "exchange": self.exchange, "fetch": self.fetch}
        return ResourceServer(RESOURCE, **{**given, "clock": self.clock, **settings})

    @contextlib.asynccontextmanager
    async def serving(self, **settings: Any) -> AsyncIterator[Any]:
        async with protected(self.server, self.resource(**settings)) as app:
            yield app

    def token(self, user: str = "alice", scopes: Collection[str] = ("read",), jkt: str | None = None) -> str:
        """Return a token with which a user calls the server."""
        family = Family(user, "app", frozenset(scopes), (RESOURCE,))
        issued = self.authority.issued.issue(family, family.scopes, (RESOURCE,), jkt, refresh=False)
        return str(issued["access_token"])

    @property
    def exchanges(self) -> int:
        return self.authority.count("token")

    def claims(self, token: str) -> dict[str, Any]:
        """Return what a token says; it must hold."""
        claims = self.authority.claims_of(token)
        assert claims is not None
        return claims

    async def call(self, app: Any, token: str | None) -> str:
        """Call the tool, and return its result, or the text of the error."""
        exchange: Exchange = modern(token, "tools/call", name="call", arguments={})
        await exchange.run(app)
        result = exchange.json["result"]
        return str(result["content"][0]["text"])
