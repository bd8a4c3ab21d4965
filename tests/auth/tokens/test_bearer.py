"""`BearerToken`: which token goes where, and when the program is asked for another."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from functools import partial
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from tests.auth.engine.world import SERVER, World, together
from trio_mcp.auth import BearerToken, UrlPolicy
from trio_mcp.errors import AuthorizationError
from trio_mcp.http.client.auth import Signer
from trio_mcp.http.headers import Headers


@contextlib.asynccontextmanager
async def opened(token: Any, server: str = SERVER) -> AsyncIterator[Signer]:
    async with BearerToken(token).opened(server, contextlib.nullcontext) as signer:
        yield signer


async def test_no_token_is_sent_in_the_clear() -> None:
    """RFC 6750, section 5.3; the user may trust a host all the same."""
    server = "http://mcp.example.com/mcp"
    with pytest.raises(AuthorizationError, match=r"is not https; .*UrlPolicy\(hosts=\['mcp.example.com'\]\)"):
        async with opened("CANARY", server):
            pass
    urls = UrlPolicy(hosts=["mcp.example.com"])
    async with BearerToken("CANARY", urls=urls).opened(server, contextlib.nullcontext) as signer:
        assert await signer.attempt().fields("POST", server) == (("Authorization", "Bearer CANARY"),)


class Source:
    """A function of a program, which takes a second."""

    def __init__(self, *tokens: str) -> None:
        self.tokens = list(tokens)
        self.calls = 0

    async def __call__(self) -> str:
        self.calls += 1
        await trio.sleep(1)
        return self.tokens.pop(0) if len(self.tokens) > 1 else self.tokens[0]


@pytest.mark.parametrize(("url", "sent"), [
    ("https://mcp.example.com/mcp", True),
    ("https://MCP.example.com:443/other?a=b", True),
    ("http://mcp.example.com/mcp", False),
    ("https://mcp.example.com:8443/mcp", False),
    ("https://mcp.example.com.evil.example/mcp", False),
    ("https://mcp.example.com:99999/mcp", False),
    ("https:mcp", False),
])  # fmt: skip
async def test_a_token_goes_to_its_server_only(url: str, sent: bool) -> None:
    async with opened("CANARY") as signer:
        attempt = signer.attempt()
        fields = await attempt.fields("POST", url)
        assert list(fields) == ([("Authorization", "Bearer CANARY")] if sent else [])
        assert await attempt.again(200, Headers()) is False
        assert "CANARY" not in f"{BearerToken('CANARY')!r} {signer!r} {attempt!r}"


async def test_any_url_that_the_transport_takes_can_be_a_server() -> None:
    server = "https://m\u00fcnchen.example/mcp"
    async with opened("CANARY", server) as signer:
        assert await signer.attempt().fields("POST", server) == (("Authorization", "Bearer CANARY"),)


@pytest.mark.parametrize("token", ["", "two words", "a\nb", "tök", "a\x00"])
async def test_a_text_that_is_not_a_token(token: str, autojump_clock: MockClock) -> None:
    with pytest.raises(ValueError, match="a bearer token must be printable ASCII without spaces") as caught:
        BearerToken(token)
    assert not token or token not in str(caught.value)
    async with opened(Source(token)) as signer:
        with pytest.raises(AuthorizationError, match="the function passed to BearerToken failed") as refused:
            await signer.attempt().fields("POST", SERVER)
    assert "printable ASCII" in str(refused.value.__cause__)


async def test_a_function_is_asked_once_and_again_when_its_token_is_refused(autojump_clock: MockClock) -> None:
    world = World(lifetime=100)
    tokens = []
    for pause in (0, 60):
        await trio.sleep(pause)
        async with world.signed_in() as signer:
            assert await world.call(signer) == 200
        login = await world.login()
        assert login is not None
        tokens.append(login.access_token)
        await world.store.save(SERVER, None)
    source = Source(*tokens)
    async with opened(source) as signer:
        assert await together(*[partial(world.call, signer)] * 8) == [200] * 8
        assert source.calls == 1
        await trio.sleep(40)
        assert await together(*[partial(world.call, signer)] * 8) == [200] * 8
        assert source.calls == 2
        await trio.sleep(100)
        with pytest.raises(AuthorizationError, match="the server refused the token"):
            await world.call(signer)


@pytest.mark.parametrize(("status", "challenge", "problem"), [
    (401, "Bearer", "the server refused the token from BearerToken with status 401; pass a token"),
    (401, 'Bearer error="invalid_token"', r"with status 401 .invalid_token."),
    (401, "", "with status 401"),
    (401, 'Bearer error="CANARY-0123456789", scope="CANARY-0123456789"', "with status 401;"),
    (403, 'Bearer error="insufficient_scope", scope="write read"', "get a token with the scopes read write"),
    (403, 'Bearer error="insufficient_scope"', r"does not allow the request .insufficient_scope.$"),
])  # fmt: skip
async def test_a_refusal_says_what_to_do(status: int, challenge: str, problem: str) -> None:
    async with opened("CANARY-0123456789") as signer:
        attempt = signer.attempt()
        await attempt.fields("POST", SERVER)
        with pytest.raises(AuthorizationError, match=problem) as caught:
            await attempt.again(status, Headers([("WWW-Authenticate", challenge)]))
    assert "CANARY" not in f"{caught.value!r} {caught.value}"


async def test_other_refusals_are_no_business_of_a_token() -> None:
    async with opened("t") as signer:
        attempt = signer.attempt()
        assert not await attempt.again(401, Headers()), "nothing was signed"
        await attempt.fields("POST", SERVER)
        for status in (403, 404, 503):
            assert not await attempt.again(status, Headers())


async def test_a_function_that_fails_ends_the_call_and_is_asked_again() -> None:
    outcomes: list[Any] = [OSError("no network"), AuthorizationError("token", "not today"), "t"]

    async def source() -> str:
        outcome = outcomes.pop(0)
        if isinstance(outcome, str):
            return outcome
        raise outcome

    async with opened(source) as signer:
        with pytest.raises(AuthorizationError, match="failed with OSError; see the cause"):
            await signer.attempt().fields("POST", SERVER)
        with pytest.raises(AuthorizationError, match="not today"):
            await signer.attempt().fields("POST", SERVER)
        assert await signer.attempt().fields("POST", SERVER) == (("Authorization", "Bearer t"),)


async def test_who_gives_up_waiting_leaves_nothing_locked(autojump_clock: MockClock) -> None:
    source = Source("t")
    async with opened(source) as signer:
        with trio.move_on_after(0.5) as scope:
            await signer.attempt().fields("POST", SERVER)
        assert scope.cancelled_caught
        assert await signer.attempt().fields("POST", SERVER) == (("Authorization", "Bearer t"),)
    assert source.calls == 2
