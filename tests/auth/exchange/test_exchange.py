"""A function gets tokens for the services that the operator lists, on behalf of the caller of its very request."""

from __future__ import annotations

import contextlib
import copy
import gc
import logging
import pickle
import traceback
from collections.abc import Callable
from typing import Any

import pytest
import trio
import trio.testing
from trio.testing import MockClock

from tests.auth.exchange.world import API, CLIENT, OTHER, RESOURCE, SECRET, World
from tests.auth.resource.scene import CLIENT as KEY, bearer, proof
from tests.auth.server.guarded import Legacy, ask, modern
from tests.injection import cancel_everywhere
from trio_mcp import Client, Context, Principal, Server
from trio_mcp.auth import Claims, NoCallerToken, RegisteredClient, ResourceServer, TokenExchange, TokenExchangeError
from trio_mcp.auth.server import exchange as module
from trio_mcp.auth.testing import faults


def test_the_settings_are_checked() -> None:
    """What the operator gets wrong is said when the object is made, in one sentence."""
    good: dict[str, Any] = {"audiences": {API: ["read"]}, "client": CLIENT}
    wrong: list[tuple[type[Exception], str, dict[str, Any]]] = [
        (TypeError, "audiences must be a dict", {"audiences": [API]}),
        (ValueError, "must not be empty", {"audiences": {}}),
        (TypeError, "must be a list of strings", {"audiences": {API: "read"}}),
        (ValueError, "not a valid scope", {"audiences": {API: ["a b"]}}),
        (ValueError, "they name the service", {"audiences": {API: []}, "style": "on_behalf_of"}),
        (TypeError, "client must be a RegisteredClient", {"client": "files"}),
        (ValueError, "needs a secret or a key", {"client": RegisteredClient("files")}),
        (ValueError, "style must be", {"style": "rfc"}),
        (ValueError, "target must be", {"target": "scope"}),
        (ValueError, "issuer must begin with https://", {"issuer": "http://id.example.com"}),
        (ValueError, "token_endpoint", {"token_endpoint": "ftp://id.example.com"}),
        (ValueError, "remember", {"remember": -1}),
        (
            ValueError,
            "is registered with",
            {
                "client": RegisteredClient("files", secret="x", issuer="https://a.example.com"),
                "issuer": "https://b.example.com",
            },
        ),
    ]
    for kind, text, changes in wrong:
        with pytest.raises(kind, match=text):
            TokenExchange(**{**good, **changes})
    assert SECRET not in repr(TokenExchange(**good))


def test_of_several_issuers_one_is_named() -> None:
    issuers = ["https://a.example.com", "https://b.example.com"]
    exchange = TokenExchange({API: []}, client=CLIENT)
    with pytest.raises(ValueError, match="several issuers"):
        ResourceServer(RESOURCE, issuers=issuers, dpop="off", exchange=exchange)
    wrong: Any = "exchange"
    with pytest.raises(TypeError, match="exchange must be a TokenExchange"):
        ResourceServer(RESOURCE, issuers=issuers, dpop="off", exchange=wrong)
    ResourceServer(
        RESOURCE, issuers=issuers, dpop="off", exchange=TokenExchange({API: []}, client=CLIENT, issuer=issuers[1])
    )


@pytest.mark.parametrize(
    ("options", "sent"),
    [
        (
            {},
            {
                "grant_type": "urn:ietf:params:oauth:grant-type:token-exchange",
                "requested_token_type": "urn:ietf:params:oauth:token-type:access_token",
                "subject_token_type": "urn:ietf:params:oauth:token-type:access_token",
                "audience": API,
                "scope": "items:read",
            },
        ),
        ({"target": "resource"}, {"resource": API}),
        ({"target": "both"}, {"resource": API, "audience": API}),
        (
            {"style": "on_behalf_of"},
            {
                "grant_type": "urn:ietf:params:oauth:grant-type:jwt-bearer",
                "requested_token_use": "on_behalf_of",
                "scope": "items:read",
            },
        ),
        ({"token_endpoint": "https://id.example.com/token"}, {"audience": API}),
    ],
)
@pytest.mark.parametrize("tokens", ["jwt", "opaque"])
async def test_the_token_is_for_the_service_and_of_the_caller(
    options: dict[str, Any], sent: dict[str, str], tokens: str, autojump_clock: MockClock
) -> None:
    world = World(tokens=tokens, **options)

    async def verify(token: str) -> Claims:
        said = world.claims(token)
        return Claims(said["iss"], said["sub"], said["aud"], said["exp"], said["client_id"])

    async with world.serving(verifier=verify) as app:
        mine = world.token()
        claims = world.claims(await world.call(app, mine))
    assert (claims["sub"], claims["aud"], claims["client_id"]) == ("alice", API, "files")
    assert claims["scope"] == "items:read"
    (seen,) = (each.parameters for each in world.authority.seen if each.endpoint == "token")
    assert sent.items() <= seen.items()
    assert mine == (seen["assertion"] if options.get("style") else seen["subject_token"])
    assert not {"audience", "resource"} & (seen.keys() - sent.keys())
    assert "client_secret" not in seen
    assert world.authority.count("metadata") == (0 if "token_endpoint" in options else 1)


async def test_by_default_all_listed_scopes_are_asked_for(autojump_clock: MockClock) -> None:
    world = World()
    world.handler = lambda ctx: ctx.token_for(API)
    async with world.serving() as app:
        claims = world.claims(await world.call(app, world.token()))
    assert claims["scope"] == "items:read items:write"


@pytest.mark.parametrize(
    ("audience", "scopes", "text"),
    [
        ("https://evil.example.com", None, "this server may not call that service"),
        (API + "/", None, "this server may not call that service"),
        ("x" * 10_000, None, "…"),
        (API, ["items:read", "admin"], "this server may not ask for the scope 'admin'"),
        (API, ["items:read items:write"], "this server may not ask for the scope"),
        (OTHER, ["items:read"], "this server may not ask for the scope 'items:read'"),
        (API, ["a\x1b[2J"], r"'a\x1b[2J'"),
    ],
)
async def test_nothing_else_than_what_is_listed_can_be_asked_for(
    audience: str, scopes: list[str] | None, text: str, autojump_clock: MockClock
) -> None:
    world, errors = World(), list[TokenExchangeError]()

    async def handler(ctx: Context) -> str:
        with pytest.raises(TokenExchangeError) as caught:
            await ctx.token_for(audience, scopes=scopes)
        errors.append(caught.value)
        return "refused"

    world.handler = handler
    async with world.serving() as app:
        assert await world.call(app, world.token()) == "refused"
    assert text in str(errors[0])
    assert len(str(errors[0])) < 500
    assert errors[0].audience == audience
    assert world.exchanges == 0


async def test_wrong_types_are_errors_of_the_program(autojump_clock: MockClock) -> None:
    world = World()

    async def handler(ctx: Context) -> str:
        wrong: list[tuple[Any, Any]] = [(1, None), (API, "items:read"), (API, [1])]
        for audience, scopes in wrong:
            with pytest.raises(TypeError):
                await ctx.token_for(audience, scopes=scopes)
        return "refused"

    world.handler = handler
    async with world.serving() as app:
        assert await world.call(app, world.token()) == "refused"


# --- without a caller's token ---------------------------------------------------------------------------------------


def reasons_of(world: World) -> list[str]:
    """Let the tool note why it gets no token."""
    reasons: list[str] = []

    async def handler(ctx: Context) -> str:
        with pytest.raises(NoCallerToken) as caught:
            await ctx.token_for(API)
        assert caught.value.audience == API
        reasons.append(caught.value.problem)
        return "none"

    world.handler = handler
    return reasons


async def test_in_memory_there_is_no_caller() -> None:
    world = World()
    reasons = reasons_of(world)
    async with Client(world.server) as client:
        assert (await client.call_tool("call")).text == "none"
    assert reasons == ["the request did not come over HTTP, where callers have tokens"]


async def test_a_server_that_asks_for_no_tokens_has_none() -> None:
    world = World()
    reasons = reasons_of(world)
    async with world.server.asgi_app() as app:
        assert await world.call(app, world.token()) == "none"
    assert reasons == ["the server asks for no tokens: serve it with auth=ResourceServer(…)"]


@pytest.mark.parametrize(
    ("settings", "options", "jkt", "text"),
    [
        ({"exchange": None}, {}, None, "pass exchange=TokenExchange(…)"),
        ({"issuers": ["https://id.example.com", "https://b.example.com"]}, {"issuer": "https://b.example.com"}, None,
         "the caller's token is from https://id.example.com, but tokens are exchanged at https://b.example.com"),
    ],
)  # fmt: skip
async def test_why_there_is_no_token(
    settings: dict[str, Any], options: dict[str, Any], jkt: str | None, text: str, autojump_clock: MockClock
) -> None:
    world = World(**options)
    reasons = reasons_of(world)
    async with world.serving(**settings) as app:
        assert await world.call(app, world.token()) == "none"
    assert text in reasons[0]
    assert world.exchanges == 0


async def test_a_server_that_only_exchanges_gets_the_tokens_of_all_issuers(autojump_clock: MockClock) -> None:
    world = World(issuer="https://sts.example.com", token_endpoint="https://id.example.com/token")
    async with world.serving() as app:
        assert world.claims(await world.call(app, world.token()))["sub"] == "alice"


@pytest.mark.parametrize("bound", [{"jkt": "x"}, {"x5t#S256": "x"}])
async def test_a_token_that_is_bound_to_a_key_is_not_exchanged(
    bound: dict[str, str], autojump_clock: MockClock
) -> None:
    """This server has no proof of the key: neither one of DPoP nor a certificate."""
    world = World()
    reasons = reasons_of(world)

    async def verify(token: str) -> Claims:
        said = world.claims(token)
        return Claims(said["iss"], said["sub"], said["aud"], said["exp"], values={"cnf": bound})

    async with world.serving(verifier=verify) as app:
        assert await world.call(app, world.token()) == "none"
    assert "bound to a key" in reasons[0]
    assert world.exchanges == 0


async def test_a_token_with_a_proof_is_not_exchanged(autojump_clock: MockClock) -> None:
    world = World()
    reasons = reasons_of(world)
    token = world.token(jkt=KEY.thumbprint())
    async with world.serving(dpop="accept") as app:
        exchange = modern(token, "tools/call", name="call", arguments={})
        exchange.scope["headers"] = [
            (name, b"DPoP " + token.encode() if name == b"authorization" else value)
            for name, value in exchange.scope["headers"]
        ]
        proved = proof(token, htu=RESOURCE, iat=int(world.clock()))
        exchange.scope["headers"].append((b"dpop", proved.encode()))
        assert (await ask(app, exchange)).json["result"]["content"][0]["text"] == "none"
    assert "bound to a key" in reasons[0]
    assert world.exchanges == 0


async def test_after_the_request_there_is_no_token(autojump_clock: MockClock) -> None:
    """Work that goes on would act for someone who has left, and may have signed out."""
    world, errors, over = World(), list[Exception](), trio.Event()

    async def later(ctx: Context[Any]) -> None:
        await over.wait()
        try:
            await ctx.token_for(API)
        except NoCallerToken as error:
            errors.append(error)

    async with trio.open_nursery() as nursery:

        async def handler(ctx: Context[Any]) -> str:
            nursery.start_soon(later, ctx)
            return "started"

        world.handler = handler
        async with world.serving() as app:
            assert await world.call(app, world.token()) == "started"
            over.set()
            await trio.testing.wait_all_tasks_blocked()
    assert "the request 'tools/call' is over" in str(errors[0])
    assert world.exchanges == 0


async def test_a_token_that_has_expired_is_not_exchanged(autojump_clock: MockClock) -> None:
    """The gate tolerates clocks that differ by seconds; an authorization server does not."""
    world = World()
    reasons = reasons_of(world)
    world.authority.settings["lifetime"] = 10
    token = world.token()
    await trio.sleep(20)
    async with world.serving() as app:
        assert await world.call(app, token) == "none"
    assert reasons == ["the caller's token has expired"]
    assert world.exchanges == 0


# --- whose token it is ------------------------------------------------------------------------------------------------


async def test_a_principal_of_the_program_changes_nothing(autojump_clock: MockClock) -> None:
    world = World()
    world.server = Server("files", principal=lambda ctx: Principal("mallory"))
    world.server.tool(world.tool, name="call")
    async with world.serving() as app:
        assert world.claims(await world.call(app, world.token("alice")))["sub"] == "alice"


async def test_a_mounted_server_has_the_caller_of_the_request(autojump_clock: MockClock) -> None:
    world, outer = World(), Server("outer")
    outer.mount(world.server)
    world.server = outer
    async with world.serving() as app:
        assert world.claims(await world.call(app, world.token()))["sub"] == "alice"


async def test_each_request_of_a_session_has_its_own_token(autojump_clock: MockClock) -> None:
    """A session may outlive a token: what counts is the token of the message, not that of the handshake."""
    world = World()
    async with world.serving() as app:
        session = Legacy(app, world.token())
        await session.initialize()
        seen = []
        for _ in range(2):
            session.token = world.token()
            answer = await session.call("tools/call", name="call", arguments={})
            assert world.claims(answer.json["result"]["content"][0]["text"])["sub"] == "alice"
            seen.append(world.authority.seen[-1].parameters["subject_token"] == session.token)
    assert seen == [True, True]


async def test_two_users_at_once_never_get_each_others_tokens(autojump_clock: MockClock) -> None:
    """One may write, the other only read; their calls come in any order, with tokens that come and go."""
    world, wrong, calls = World(), list[Any](), 0
    rights = {"alice": ["items:read", "items:write"], "bob": ["items:read"]}

    async def handler(ctx: Context) -> str:
        return await ctx.token_for(API, scopes=rights[ctx.principal.subject])

    world.handler = handler

    async def use(app: Any, user: str) -> None:
        nonlocal calls
        for _ in range(20):
            token = world.token(user)
            for _ in range(3):
                claims = world.claims(await world.call(app, token))
                calls += 1
                if claims["sub"] != user or claims["scope"] != " ".join(rights[user]):
                    wrong.append(claims)
                await trio.sleep(7)

    async with world.serving() as app, trio.open_nursery() as nursery:
        for user in rights:
            for _ in range(5):
                nursery.start_soon(use, app, user)
    assert (wrong, calls) == ([], 600)
    assert world.exchanges == 200


# --- how long ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("answer", "subject", "options", "until"),
    [
        ({"expires_in": 200}, 3600, {}, 170),  # a margin before its expiry
        ({"expires_in": 200}, 100, {}, 100),  # not longer than the caller's token
        ({"expires_in": 3600}, 3600, {}, 300),  # not longer than `remember`
        ({"expires_in": 3600}, 3600, {"remember": 40}, 40),
        ({"expires_in": 3600}, 3600, {"remember": 0}, 0),
        ({"expires_in": None}, 3600, {}, 60),  # it does not say
        ({"expires_in": 31}, 3600, {}, 1),
        ({"expires_in": 20}, 3600, {}, 0),
        ({"expires_in": 0}, 3600, {}, 0),  # these say nothing that can be read
        ({"expires_in": -5}, 3600, {}, 0),
        ({"expires_in": "soon"}, 3600, {}, 0),
        ({"expires_in": True}, 3600, {}, 0),
        ({"expires_in": 10**400}, 3600, {}, 0),
        ({"expires_in": [200]}, 3600, {}, 0),
        ({"expires_in": "200"}, 3600, {}, 170),  # some servers send a string
    ],
)
async def test_a_token_is_remembered_for_no_longer_than_it_and_the_callers_live(
    answer: dict[str, Any], subject: int, options: dict[str, Any], until: int, autojump_clock: MockClock
) -> None:
    world = World(latency=0, **options)
    world.authority.settings["lifetime"] = subject
    token = world.token()
    world.authority.faults["token"] = faults.edited(**answer)
    async with world.serving() as app:
        began = trio.current_time()
        first = await world.call(app, token)
        assert world.exchanges == 1
        if until:
            await trio.sleep(began + until - 0.5 - trio.current_time())
            assert await world.call(app, token) == first
            assert world.exchanges == 1
        await trio.sleep(began + until + 0.5 - trio.current_time())
        await world.call(app, token)
    assert world.exchanges == (2 if until < subject else 1)


async def test_of_too_many_tokens_the_one_that_was_used_longest_ago_goes(
    monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock
) -> None:
    monkeypatch.setattr(module, "MAX_EXCHANGED_TOKENS", 2)
    world = World()
    a, b, c = (world.token(user) for user in "abc")
    async with world.serving() as app:
        for token, exchanges in ((a, 1), (b, 2), (a, 2), (c, 3), (a, 3), (b, 4), (c, 5)):
            await world.call(app, token)
            assert world.exchanges == exchanges


# --- one at a time --------------------------------------------------------------------------------------------------


async def test_concurrent_calls_share_an_exchange(autojump_clock: MockClock) -> None:
    world, results = World(), set[str]()
    token = world.token()

    async def call(app: Any) -> None:
        results.add(await world.call(app, token))

    async with world.serving() as app:
        async with trio.open_nursery() as nursery:
            for _ in range(50):
                nursery.start_soon(call, app)
        assert (len(results), world.exchanges) == (1, 1)
        other = world.token()  # another token of the same user
        assert await world.call(app, other) not in results
    assert world.exchanges == 2


async def test_a_first_caller_that_is_cancelled_leaves_the_exchange_to_the_others(autojump_clock: MockClock) -> None:
    world, results = World(latency=5), list[str]()
    token = world.token()

    async def call(app: Any) -> None:
        results.append(await world.call(app, token))

    async with world.serving() as app, trio.open_nursery() as nursery:
        first = modern(token, "tools/call", name="call", arguments={})
        nursery.start_soon(first.run, app)
        await trio.sleep(6)  # its exchange has begun
        nursery.start_soon(call, app)
        await trio.sleep(1)
        first.leave()
        await trio.sleep(1)
        assert not results
    assert world.claims(results[0])["sub"] == "alice"
    assert world.exchanges == 1


async def test_an_exchange_that_nobody_waits_for_is_given_up(autojump_clock: MockClock) -> None:
    world = World(latency=5)
    token = world.token()
    async with world.serving() as app:
        async with trio.open_nursery() as nursery:
            only = modern(token, "tools/call", name="call", arguments={})
            nursery.start_soon(only.run, app)
            await trio.sleep(6)
            only.leave()
        await trio.testing.wait_all_tasks_blocked()
        assert world.exchanges == 0  # the request was cancelled on its way
        assert world.claims(await world.call(app, token))["sub"] == "alice"


async def test_a_failure_is_not_remembered_and_each_waiter_gets_a_copy(autojump_clock: MockClock) -> None:
    world, errors = World(), list[TokenExchangeError]()

    async def handler(ctx: Context) -> str:
        try:
            return await ctx.token_for(API)
        except TokenExchangeError as error:
            errors.append(error)
            return "refused"

    world.handler = handler
    token = world.token()
    world.authority.faults["token"] = [faults.status(503)]
    async with world.serving() as app:
        async with trio.open_nursery() as nursery:
            for _ in range(3):
                nursery.start_soon(world.call, app, token)
        assert len({id(error) for error in errors}) == 3
        assert {str(error) for error in errors} == {str(errors[0])}
        assert {error.audience for error in errors} == {API}
        assert world.claims(await world.call(app, token))["sub"] == "alice"
    assert world.exchanges == 2


async def test_a_crowd_does_not_flood_the_authorization_server(
    monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock
) -> None:
    monkeypatch.setattr(module, "MAX_TOKEN_EXCHANGES", 3)
    monkeypatch.setattr(module, "MAX_WAITING_EXCHANGES", 10)
    world, results = World(), list[str]()

    async def handler(ctx: Context) -> str:
        try:
            return await ctx.token_for(API)
        except TokenExchangeError as error:
            return error.problem

    world.handler = handler

    async def call(app: Any, user: str) -> None:
        results.append(await world.call(app, world.token(user)))

    async with world.serving() as app, trio.open_nursery() as nursery:
        for number in range(15):
            nursery.start_soon(call, app, f"user-{number}")
    assert results.count("10 exchanges are under way") == 5
    assert (world.exchanges, world.most) == (10, 3)


async def test_the_endpoint_is_looked_up_once_and_again_after_ten_minutes(autojump_clock: MockClock) -> None:
    world = World()
    async with world.serving() as app:
        for seconds, lookups in ((0, 1), (1, 1), (601, 2)):
            await trio.sleep(seconds)
            before = len(world.authority.seen)
            await world.call(app, world.token())
            urls = [each.endpoint for each in world.authority.seen[before:]]
            assert urls.count("token") == 1
            # The keys of the gate are looked up, too, by their own search.
            assert sum(each.endpoint == "metadata" for each in world.authority.seen) == lookups + 1


async def test_a_server_that_is_away_is_not_asked_by_each_call(autojump_clock: MockClock) -> None:
    world = World()

    async def handler(ctx: Context) -> str:
        with contextlib.suppress(TokenExchangeError):
            return await ctx.token_for(API)
        return "refused"

    world.handler = handler
    async with world.serving() as app:
        token = world.token()
        # The gate needs the keys first.
        assert await world.call(app, token) != "refused"
        await trio.sleep(601)
        token = world.token()
        world.authority.faults["metadata"] = faults.status(503)
        before = world.authority.count("metadata")
        async with trio.open_nursery() as nursery:
            for _ in range(20):
                nursery.start_soon(world.call, app, token)
        asked = world.authority.count("metadata") - before
        for _ in range(5):
            assert await world.call(app, token) == "refused"
        assert world.authority.count("metadata") - before == asked
        del world.authority.faults["metadata"]
        await trio.sleep(11)
        assert await world.call(app, token) != "refused"


async def test_a_cancellation_at_every_step_leaves_exchanges_that_go_on(
    monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock
) -> None:
    # One place for an exchange, and for two that are under way: whatever is not given back is missed at once.
    monkeypatch.setattr(module, "MAX_TOKEN_EXCHANGES", 1)
    monkeypatch.setattr(module, "MAX_WAITING_EXCHANGES", 2)
    world = World(latency=0.1)
    async with world.resource().opened() as guard:

        async def caller() -> Any:
            found: Any = await guard.identify(bearer(world.token()))
            return found.caller

        async def scenario() -> None:
            who = await caller()
            async with trio.open_nursery() as nursery:
                for scopes in (["items:read"], ["items:read"], ["items:write"]):
                    nursery.start_soon(who.token_for, API, scopes)

        async def check() -> None:
            await trio.sleep(700)  # the endpoint is looked up again, too
            with trio.fail_after(100):
                who = await caller()
                async with trio.open_nursery() as nursery:
                    for scopes in (["items:read"], ["items:read"], ["items:write"]):
                        nursery.start_soon(right, who, scopes)
            await trio.sleep(700)

        async def right(who: Any, scopes: list[str]) -> None:
            claims = world.claims(await who.token_for(API, scopes))
            assert (claims["sub"], claims["scope"]) == ("alice", scopes[0])

        assert await cancel_everywhere(scenario, check) > 10
    assert world.most == 1


# --- nothing shows a token ------------------------------------------------------------------------------------------


async def test_a_function_finds_no_token_of_its_caller(autojump_clock: MockClock) -> None:
    world, shown = World(), list[str]()
    token = world.token()

    async def handler(ctx: Context) -> str:
        caller = ctx.transport_metadata["caller"]
        for store in (pickle.dumps, copy.deepcopy):
            with pytest.raises(TypeError):
                store(caller)
        everything = (ctx, ctx.principal, dict(ctx.headers), dict(ctx.transport_metadata), gc.get_referents(caller))
        shown.append(repr(everything) + str(caller))
        return await ctx.token_for(API)

    world.handler = handler
    async with world.serving() as app:
        exchanged = await world.call(app, token)
    assert token not in shown[0]
    assert exchanged not in shown[0]


def failed(request: Any, handle: Any) -> Any:
    """Refuse, and repeat all that was sent."""
    body = request.body.decode()
    return faults.raw(b'{"error": "invalid_grant", "error_description": "%s"}' % body.encode(), code=400)(
        request, handle
    )


BROKEN: dict[str, Callable[[World], None]] = {
    "refused": lambda world: world.authority.faults.update(token=failed),
    "no answer": lambda world: world.authority.faults.update(token=faults.silent),
    "an answer that can't be used": lambda world: world.authority.faults.update(token=faults.edited(token_type="mac")),
    "the caller's own token": lambda world: world.authority.faults.update(
        token=lambda request, handle: faults.edited(access_token=world.authority.seen[-1].parameters["subject_token"])(
            request, handle
        )
    ),
    "a program's own error": lambda world: setattr(world, "fetch", broken_fetch(world)),
}


def broken_fetch(world: World) -> Any:
    fetch = world.fetch

    async def broken(asked: Any) -> Any:
        if asked.url.endswith("/token"):
            raise RuntimeError(asked.body.decode())
        return await fetch(asked)

    return broken


@pytest.mark.parametrize("tokens", ["jwt", "opaque"])
@pytest.mark.parametrize("name", BROKEN)
async def test_no_error_log_or_traceback_shows_a_token(
    name: str, tokens: str, caplog: pytest.LogCaptureFixture, autojump_clock: MockClock
) -> None:
    """Not even a traceback with the variables of its frames, as some tools send it elsewhere."""
    caplog.set_level(logging.DEBUG)
    world, told = World(tokens=tokens), list[str]()

    async def handler(ctx: Context) -> str:
        try:
            return await ctx.token_for(API)
        except TokenExchangeError as error:
            told.append(str(error) + repr(error) + str(vars(error)))
            told.extend(traceback.TracebackException.from_exception(error, capture_locals=True).format())
            raise

    world.handler = handler
    BROKEN[name](world)

    async def verify(token: str) -> Claims:
        said = world.claims(token)
        return Claims(said["iss"], said["sub"], said["aud"], said["exp"], said["client_id"])

    async with world.serving(verifier=verify) as app:
        token = world.token()
        answer = await world.call(app, token)
    assert "failed" in answer
    assert world.authority.issuer not in answer  # what the authority said is for the log
    assert "invalid_grant" not in answer
    secrets = [token, SECRET, *world.granted]
    seen = caplog.text + "".join(told) + answer
    assert [secret for secret in secrets if secret in seen] == []
    assert "no token for 'https://api.example.com'" in caplog.text


async def test_errors_survive_being_copied() -> None:
    errors = [
        NoCallerToken(API, "no one is there"),
        TokenExchangeError(API, "no", issuer="https://id.example.com", error="invalid_grant", advice="do"),
    ]
    for error in errors:
        twin = copy.copy(error)
        assert (type(twin), str(twin), vars(twin)) == (type(error), str(error), vars(error))
    assert str(errors[1]).startswith("no token for 'https://api.example.com': token exchange at https://id.example.com")
    assert str(errors[1]).endswith("failed: no (invalid_grant); do")
