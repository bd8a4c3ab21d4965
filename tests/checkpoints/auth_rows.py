"""Rows of how a person signs in, and of where logins are kept."""

from __future__ import annotations

import contextlib
import os
import webbrowser
from collections.abc import Awaitable, Callable, Iterator
from tempfile import TemporaryDirectory
from typing import Any
from unittest import mock
from urllib.parse import urlencode

import httpx
import trio

from tests.auth.engine.world import SERVER, World
from tests.auth.exchange.world import API, World as Exchanging
from tests.auth.io.keychain import keychain
from tests.checkpoints.table import Check, all_or_nothing, call, cancelled_before, effect
from tests.injection import cancel_everywhere
from trio_mcp import Context, Server
from trio_mcp.auth import CallerAuth, FileTokens, KeyringTokens, MemoryTokens, OAuth, open_browser, paste_redirect
from trio_mcp.auth.client import terminal
from trio_mcp.auth.rules.login import Login
from trio_mcp.auth.testing import AuthorizationServer, protected
from trio_mcp.conformance import check_issuers

URL = "https://id.example.com/authorize?state=x"


@contextlib.contextmanager
def made(kind: Any) -> Iterator[Any]:
    with TemporaryDirectory() as folder, mock.patch.dict(os.environ, {"XDG_DATA_HOME": folder}), keychain():
        yield kind()


def of_a_store(kind: Any) -> None:
    @call(kind.load, "a text, and none")
    async def load(check: Check) -> None:
        with made(kind) as store:
            assert await check(store.load("a")) is None
            await store.save("a", "text")
            assert await check(store.load("a")) == "text"

    @call(kind.save, "new, replaced, removed, gone")
    async def save(check: Check) -> None:
        with made(kind) as store:
            for text in ("one", "two", None, None):
                await check(store.save("a", text))

    @call(kind.lock, "free, and waited for")
    async def lock(check: Check) -> None:
        with made(kind) as store:
            async with check.block(store.lock("a")), trio.open_nursery() as nursery:
                nursery.start_soon(waits, check, store)
                await trio.sleep(0.01)
                nursery.cancel_scope.cancel()
            await waits(check, store)

    async def waits(check: Check, store: Any) -> None:
        async with check.block(store.lock("a")):
            pass

    @effect(kind.save, "kept or cancelled")
    async def kept() -> None:
        with made(kind) as store:

            async def state() -> int:
                return int(await store.load("a") or 0)

            await all_or_nothing(lambda number: store.save("a", str(number)), state)

    @effect(kind.lock, "free again, wherever it was cancelled")
    async def free() -> None:
        with made(kind) as store:

            async def hold() -> None:
                async with store.lock("a"):
                    await trio.lowlevel.checkpoint()

            await cancelled_before(hold())
            await cancel_everywhere(hold, hold)

    if kind is not KeyringTokens:

        @call(kind.keys, "none, and some")
        async def keys(check: Check) -> None:
            with made(kind) as store:
                assert await check(store.keys()) == []
                await store.save("a", "text")
                assert await check(store.keys()) == ["a"]


for each in (FileTokens, KeyringTokens, MemoryTokens):
    of_a_store(each)


@call(OAuth.sign_in, "without a login, and with one")
async def signs_in(check: Check) -> None:
    world = World(latency=0, person=0)
    for _ in range(2):
        await check(world.oauth().sign_in(SERVER))


@call(OAuth.sign_out, "with a login, and without one")
async def signs_out(check: Check) -> None:
    world = World(latency=0, person=0)
    await world.oauth().sign_in(SERVER)
    assert await check(world.oauth().sign_out(SERVER))
    assert not await check(world.oauth().sign_out(SERVER))


@effect(OAuth.sign_in, "a whole login or none, and the next one works")
async def signed_in() -> None:
    # A login that has arrived is kept, although the task that wanted it was cancelled.
    world = World(latency=0, person=0)

    async def sign_in() -> None:
        await world.oauth().sign_in(SERVER)

    async def whole() -> None:
        login = await world.login()
        assert login is None or world.id.claims_of(login.access_token)
        await world.oauth().sign_out(SERVER)

    await cancelled_before(sign_in())
    assert await world.login() is None
    await cancel_everywhere(sign_in, whole)


@effect(OAuth.sign_out, "a whole login or none, and the next one works")
async def signed_out() -> None:
    world = World(latency=0, person=0)

    async def sign_out() -> None:
        await world.oauth().sign_out(SERVER)

    async def whole() -> None:
        login = await world.login()
        assert login is None or world.id.claims_of(login.access_token)
        await world.oauth().sign_in(SERVER)

    await whole()
    await cancelled_before(sign_out())
    assert await world.login() is not None
    await cancel_everywhere(sign_out, whole)


def provider() -> World:
    """Return a world whose authorization server is an identity provider, too."""
    return World(latency=0, person=0, scopes=("openid", "offline_access"))


@call(OAuth.identity, "without a login, and with one")
async def identified(check: Check) -> None:
    world = provider()
    for _ in range(2):
        assert (await check(world.oauth().identity(world.id.issuer)))[1]


@effect(OAuth.identity, "a whole login or none, and the next one works")
async def kept_at_the_provider() -> None:
    world = provider()

    async def identity() -> None:
        await world.oauth().identity(world.id.issuer)

    async def whole() -> None:
        text = await world.store.load(world.id.issuer)
        assert text is None or Login.from_json(text).id_token
        await world.oauth().sign_out(world.id.issuer)

    await cancelled_before(identity())
    assert await world.store.load(world.id.issuer) is None
    await cancel_everywhere(identity, whole)


@call(open_browser, "with a browser, and without one")
async def browser(check: Check) -> None:
    for found in (mock.Mock(), webbrowser.Error()):
        with mock.patch.object(webbrowser, "get", side_effect=[found]):
            await check(open_browser(URL))


@call(paste_redirect, "a URL that is there already")
async def pasted(check: Check) -> None:
    ours, theirs = os.openpty()
    try:
        os.write(ours, b"http://127.0.0.1/?state=x\n")
        with mock.patch.object(terminal, "TERMINAL", os.ttyname(theirs)):
            assert await check(paste_redirect(URL)) == "http://127.0.0.1/?state=x"
    finally:
        os.close(ours)
        os.close(theirs)


@call(AuthorizationServer.show, "a page that redirects")
async def shown(check: Check) -> None:
    authority = AuthorizationServer()
    authority.add_client("app", redirects=["http://127.0.0.1/"])
    query = {"client_id": "app", "redirect_uri": "http://127.0.0.1/", "response_type": "none"}
    assert "error=" in await check(authority.show(f"{authority.issuer}/authorize?{urlencode(query)}"))


@call(AuthorizationServer.__call__, "a request")
async def requested(check: Check) -> None:
    sent = []

    async def receive() -> dict[str, Any]:
        await trio.lowlevel.checkpoint()
        return {"type": "http.request"}

    async def send(event: dict[str, Any]) -> None:
        await trio.lowlevel.checkpoint()
        sent.append(event["type"])

    scope = {"type": "http", "method": "GET", "path": "/jwks", "headers": []}
    await check(AuthorizationServer()(scope, receive, send))
    assert sent == ["http.response.start", "http.response.body"]


@call(AuthorizationServer.served, "a block")
async def served(check: Check) -> None:
    async with check.block(AuthorizationServer().served()):
        pass


@effect(AuthorizationServer.served, "nothing is left open")
async def served_again() -> None:
    async def serve() -> None:
        async with AuthorizationServer().served():
            pass

    await cancel_everywhere(serve, serve)


@call(protected, "a block")
async def a_protected_server(check: Check) -> None:
    async with check.block(protected(Server("s"), AuthorizationServer())):
        pass


@call(check_issuers, "metadata, and a sign-in")
async def check_of_issuers(check: Check) -> None:
    async with protected(Server("files"), AuthorizationServer()) as url:
        for sign_in in (False, True):
            await check(check_issuers(url, sign_in=sign_in))


@effect(protected, "nothing is left open")
async def a_protected_server_again() -> None:
    async def protect() -> None:
        async with protected(Server("s"), AuthorizationServer()):
            pass

    await cancel_everywhere(protect, protect)


async def while_served(body: Callable[[Context[Any]], Awaitable[object]]) -> Exchanging:
    """Run a function as a tool of a server that exchanges tokens, and raise what it raises."""
    world, failures = Exchanging(latency=0), list[Exception]()

    async def handler(ctx: Context[Any]) -> str:
        try:
            await body(ctx)
        except Exception as error:  # the client learns nothing of it
            failures.append(error)
        return "done"

    world.handler = handler
    async with world.serving() as app:
        await world.call(app, world.token())
    if failures:
        raise failures[0]
    return world


@call(Context.token_for, "exchanged, and remembered")
async def for_a_service(check: Check) -> None:
    async def body(ctx: Context[Any]) -> None:
        first = await check(ctx.token_for(API))
        assert await check(ctx.token_for(API)) == first

    await while_served(body)


@effect(Context.token_for, "nothing is exchanged, or the next one works")
async def for_a_service_again() -> None:
    async def body(ctx: Context[Any]) -> None:
        async def ask() -> None:
            await ctx.token_for(API)

        await cancelled_before(ask())
        await cancel_everywhere(ask, ask)

    await while_served(body)


@call(CallerAuth.async_auth_flow, "to the service, and elsewhere")
async def authorized(check: Check) -> None:
    async def body(ctx: Context[Any]) -> None:
        for url, signed in ((API, True), ("https://other.example.com", False)):
            flow = CallerAuth(API).async_auth_flow(httpx.Request("GET", url))
            request = await check(anext(flow))
            assert ("Authorization" in request.headers) is signed
            await flow.aclose()

    await while_served(body)
