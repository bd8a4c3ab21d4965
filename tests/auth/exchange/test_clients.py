"""Clients and proxies that act for the caller of a request: a token reaches only the requests of its own caller."""

from __future__ import annotations

import base64
import contextlib
import json
import socket
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
import trio
from trio.testing import MockClock

from tests.auth.exchange.world import API, World
from trio_mcp import Client, Context, McpError, ProxyServer, Server
from trio_mcp._nursery import background_nursery, start
from trio_mcp.auth import (
    BearerToken,
    CallerAuth,
    ClientCredentials,
    NoCallerToken,
    RegisteredClient,
    ResourceServer,
    TokenExchange,
)
from trio_mcp.auth.testing import AuthorizationServer
from trio_mcp.auth.testing.records import Family
from trio_mcp.extensions import Tasks
from trio_mcp.http.runner.hypercorn.settings import QuietConfig
from trio_mcp.middleware import Middleware

SECRET = "s3cret-of-the-front"
FRONT = RegisteredClient("front", secret=SECRET)


@contextlib.contextmanager
def bound() -> Any:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        yield sock, f"http://127.0.0.1:{sock.getsockname()[1]}/mcp"


@contextlib.asynccontextmanager
async def serving(server: Any, place: tuple[socket.socket, str], issuer: str, **settings: Any) -> AsyncIterator[str]:
    """Serve at a place, which clients know before."""
    sock, url = place
    auth = ResourceServer(url, issuers=[issuer], dpop="off", **settings)
    config = QuietConfig()
    config.bind = [f"fd://{sock.dup().detach()}"]

    async def serve(task_status: Any) -> None:  # noqa: ASYNC128 - task_status is passed on
        await server.serve_http(config=config, auth=auth, websocket_path="/ws", task_status=task_status)

    async with background_nursery() as nursery:
        await start(nursery, serve)
        yield url


class Seeing(Middleware):
    """Notes each request, and who has made it."""

    def __init__(self, seen: list[tuple[str, str]]) -> None:
        self._seen = seen

    async def handle_request(self, context: Any, call_next: Any) -> Any:
        self._seen.append((context.method, context.principal.subject))
        return await call_next()


class Chain:
    """Two servers, one behind the other, and an authorization server for both.

    Attributes:
        inner: The server behind: its tool ``who`` says who calls.
        seen: Each request to it: its method, and who has made it.
        inner_url: Its URL.
        url: The URL of the server before it.
    """

    def __init__(self) -> None:
        self.authority = AuthorizationServer()
        self.authority.add_client("front", SECRET)
        self.seen: list[tuple[str, str]] = []
        self.inner = Server("inner", middleware=[Seeing(self.seen)])
        self.inner.tool(self._who, name="who")
        self.inner_url = self.url = ""

    async def _who(self, ctx: Context[Any], wait: float = 0) -> str:
        await trio.sleep(wait)
        return f"{ctx.principal.subject} through {ctx.principal.client_id}"

    @contextlib.asynccontextmanager
    async def running(self, front: Any) -> AsyncIterator[Chain]:
        """Serve both; ``front`` makes the server before the other one."""
        with trio.fail_after(60), bound() as behind, bound() as before:
            self.inner_url, self.url = behind[1], before[1]
            self.authority.settings["exchanges"] = {self.inner_url: ["read"]}
            exchange = TokenExchange({self.inner_url: ["read"]}, client=FRONT)
            async with (
                self.authority.served() as issuer,
                serving(self.inner, behind, issuer, scopes=["read"]),
                serving(front(self), before, issuer, exchange=exchange),
            ):
                yield self

    def as_user(self, user: str, **options: Any) -> Client:
        family = Family(user, "app", frozenset({"read"}), (self.url,))
        token = self.authority.issued.issue(family, family.scopes, (self.url,), None, refresh=False)["access_token"]
        url = options.pop("url", self.url)
        return Client(url, auth=BearerToken(token), **options)

    def own(self) -> CallerAuth:
        return CallerAuth(self.inner_url, otherwise=ClientCredentials("front", secret=SECRET))


async def users_at_once(chain: Chain, users: int = 3, calls: int = 5, **options: Any) -> list[tuple[str, str]]:
    """Let several users call ``who`` at once; return each user with what a call has said."""
    found: list[tuple[str, str]] = []

    async def use(user: str) -> None:
        async with chain.as_user(user, **options) as client, trio.open_nursery() as calling:

            async def call() -> None:
                found.append((user, (await client.call_tool("who", {"wait": 0.01})).text))

            for _ in range(calls):
                calling.start_soon(call)

    async with trio.open_nursery() as nursery:
        for number in range(users):
            nursery.start_soon(use, f"user-{number}")
    assert len(found) == users * calls
    return found


# --- settings -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "text", "arguments", "options"),
    [
        (ValueError, "pass url=", ("api://orders",), {}),
        (ValueError, "is not https", ("http://api.example.com",), {}),
        (ValueError, "is not https", ("api://orders",), {"url": "http://api.example.com"}),
        (TypeError, "must be a list of strings", (API,), {"scopes": "a b"}),
        (TypeError, "auth must be", (API,), {"otherwise": ClientCredentials}),
        (TypeError, "audience", (1,), {}),
    ],
)
def test_settings_are_checked(kind: type[Exception], text: str, arguments: Any, options: Any) -> None:
    with pytest.raises(kind, match=text):
        CallerAuth(*arguments, **options)


# --- httpx ------------------------------------------------------------------------------------------------------------


def api(world: World, seen: list[tuple[str, str]]) -> Any:
    """Return an API that notes whose token comes to which host."""

    def handle(request: httpx.Request) -> httpx.Response:
        token = request.headers.get("Authorization", "").removeprefix("Bearer ")
        assert not token or token in world.granted
        # The thread of a sync function has no clock with which the token could be checked.
        subject = json.loads(base64.urlsafe_b64decode(token.split(".")[1] + "=="))["sub"] if token else ""
        seen.append((request.url.host, subject))
        if request.url.path == "/moved":
            return httpx.Response(307, headers={"Location": "https://evil.example.com/"})
        return httpx.Response(200, text=subject)

    return httpx.MockTransport(handle)


async def test_a_client_of_httpx_that_all_requests_share_has_the_token_of_each(autojump_clock: MockClock) -> None:
    world, seen = World(), list[tuple[str, str]]()
    http = httpx.AsyncClient(auth=CallerAuth(API), transport=api(world, seen), follow_redirects=True)

    async def handler(ctx: Context) -> str:
        await http.get("https://elsewhere.example.com/")
        await http.get(f"{API}/moved")
        return (await http.get(f"{API}/items")).text

    world.handler = handler
    async with http, world.serving() as app, trio.open_nursery() as nursery:

        async def use(user: str) -> None:
            assert await world.call(app, world.token(user)) == user

        for user in ("alice", "bob") * 5:
            nursery.start_soon(use, user)
    assert {host for host, subject in seen if subject} == {"api.example.com"}
    assert sum(host == "evil.example.com" for host, _ in seen) == 10


async def test_a_sync_function_uses_it_too() -> None:
    world, seen = World(latency=0), list[tuple[str, str]]()

    def sync(ctx: Context) -> str:
        with httpx.Client(auth=CallerAuth(API), transport=api(world, seen)) as http:
            return http.get(f"{API}/items").text + http.get("https://elsewhere.example.com/").text

    world.server = Server("files")
    world.server.tool(sync, name="call")
    async with world.serving() as app:
        assert await world.call(app, world.token("bob")) == "bob"


async def test_outside_of_a_request_there_is_no_token() -> None:
    async with httpx.AsyncClient(auth=CallerAuth(API), transport=api(World(), [])) as http:
        with pytest.raises(NoCallerToken, match="no request is being served here"):
            await http.get(API)


# --- a client of another server --------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["modern", "legacy"])
async def test_a_function_calls_another_server_for_its_caller(mode: str) -> None:
    def front(chain: Chain) -> Server:
        server = Server("front")

        @server.tool
        async def who(wait: float = 0) -> str:
            options: Any = {"mode": "2026-07-28" if mode == "modern" else "legacy"}
            async with Client(chain.inner_url, auth=CallerAuth(chain.inner_url), **options) as client:
                return (await client.call_tool("who", {"wait": wait})).text

        return server

    chain = Chain()
    async with chain.running(front):
        for user, said in await users_at_once(chain):
            assert said == f"{user} through front"
        for user, said in await users_at_once(
            chain, 2, 2, url=chain.url.replace("http:", "ws:").replace("/mcp", "/ws")
        ):
            assert said == f"{user} through front"
    assert {who for _, who in chain.seen} == {"user-0", "user-1", "user-2"}


@pytest.mark.parametrize("made_by", ["a request", "the server"])
async def test_the_client_of_one_request_refuses_the_calls_of_another(made_by: str) -> None:
    """Its connection would send them with the token of its owner, or of the server itself."""
    shared: list[Client] = []
    opened, done, refusals = trio.Event(), trio.Event(), list[str]()

    def front(chain: Chain) -> Server:
        @contextlib.asynccontextmanager
        async def lifespan(server: Any) -> AsyncIterator[None]:
            if made_by == "the server":
                async with Client(chain.inner_url, auth=chain.own()) as client:
                    shared.append(client)
                    opened.set()
                    yield
            else:
                yield

        server = Server("front", lifespan=lifespan)

        @server.tool
        async def own() -> str:
            async with Client(chain.inner_url, auth=chain.own()) as client:
                shared.append(client)
                opened.set()
                await done.wait()
                return (await client.call_tool("who")).text

        @server.tool
        async def use() -> str:
            with pytest.raises(NoCallerToken) as caught:
                await shared[0].call_tool("who")
            refusals.append(str(caught.value))
            return "refused"

        return server

    chain = Chain()
    async with (
        chain.running(front),
        chain.as_user("alice") as alice,
        chain.as_user("bob") as bob,
        trio.open_nursery() as nursery,
    ):
        if made_by == "a request":
            nursery.start_soon(alice.call_tool, "own")
        await opened.wait()
        assert (await bob.call_tool("use")).text == "refused"
        done.set()
    assert "'tools/call' is for another request" in refusals[0]
    assert ("tools/call", "front") not in chain.seen
    assert chain.seen.count(("tools/call", "alice")) == (made_by == "a request")


async def test_a_client_that_is_opened_for_no_request_is_refused() -> None:
    with pytest.raises(NoCallerToken, match="the client was not opened for a request"):
        async with Client(f"{API}/mcp", auth=CallerAuth(API)):
            pass


async def test_the_tokens_go_to_no_other_server() -> None:
    texts = []

    def front(chain: Chain) -> Server:
        server = Server("front")

        @server.tool
        async def who() -> str:
            try:
                async with Client(chain.url, auth=CallerAuth(chain.inner_url)):
                    return "opened"
            except Exception as error:
                texts.append(str(error))
                raise

        return server

    chain = Chain()
    async with chain.running(front), chain.as_user("alice") as alice:
        assert (await alice.call_tool("who")).is_error
    assert "but the server is" in texts[0]


# --- proxies ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("theirs", ["2026-07-28", "legacy"])
@pytest.mark.parametrize("ours", ["2026-07-28", "legacy"])
async def test_a_proxy_calls_as_the_caller_of_each_call(theirs: Any, ours: Any) -> None:
    """The shared connection only learns what there is: each call has one of its own."""

    def front(chain: Chain) -> ProxyServer:
        return ProxyServer(chain.inner_url, client={"auth": chain.own(), "mode": theirs})

    chain = Chain()
    async with chain.running(front):
        for user, said in await users_at_once(chain, mode=ours):
            assert said == f"{user} through front"
        async with chain.as_user("alice", mode=ours) as client:
            assert [tool.name for tool in await client.list_tools()] == ["who"]
    assert {method for method, who in chain.seen if who == "front"} <= {
        "server/discover",
        "initialize",
        "subscriptions/listen",
    }
    assert ("tools/list", "alice") in chain.seen


async def test_a_connection_that_a_call_renews_belongs_to_no_caller() -> None:
    """Otherwise it would have the token of the caller who found it lost, for everyone who calls later."""
    upstreams: list[Any] = []

    async def note(context: Context[Any], call_next: Any) -> Any:
        upstreams.append(context.state)
        return await call_next()

    def front(chain: Chain) -> ProxyServer:
        return ProxyServer(chain.inner_url, client={"auth": chain.own(), "mode": "legacy"}, middleware=[note])

    chain = Chain()
    async with chain.running(front), chain.as_user("alice") as alice, chain.as_user("bob") as bob:
        assert (await alice.call_tool("who")).text == "alice through front"
        before = chain.seen.count(("initialize", "front"))
        await upstreams[0].client.aclose()
        while True:  # calls fail until the proxy has noticed
            with contextlib.suppress(McpError):
                assert (await alice.call_tool("who")).text == "alice through front"
                break
        assert chain.seen.count(("initialize", "front")) == before + 1
        assert (await bob.call_tool("who")).text == "bob through front"


async def test_a_proxy_says_that_the_exchange_failed_and_nothing_more(caplog: pytest.LogCaptureFixture) -> None:
    def front(chain: Chain) -> ProxyServer:
        return ProxyServer(chain.inner_url, client={"auth": chain.own()})

    chain = Chain()
    async with chain.running(front), chain.as_user("alice") as alice:
        chain.authority.settings["exchanges"] = {"https://other.example.com": ["read"]}
        with pytest.raises(Exception, match="TokenExchangeError") as caught:
            await alice.call_tool("who")
    assert "invalid_target" not in str(caught.value)
    assert "invalid_target" in caplog.text
    assert "eyJ" not in caplog.text


def test_a_proxy_that_can_not_keep_callers_apart_is_refused() -> None:
    auth = CallerAuth("https://inner.example.com/mcp")
    with pytest.raises(TypeError, match="hands on no extensions"):
        ProxyServer("https://inner.example.com/mcp", client={"auth": auth}, extensions=[Tasks()])
    with pytest.raises(TypeError, match="a proxy has several"):
        ProxyServer(Client("https://inner.example.com/mcp", auth=auth))
