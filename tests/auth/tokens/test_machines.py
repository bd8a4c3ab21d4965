"""Programs that sign in without a person: what they send, how often, and to whom they send nothing."""

from __future__ import annotations

import base64
import contextlib
import json
from collections.abc import AsyncIterator, Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import trio
from joserfc import jwk
from trio.testing import MockClock

from tests.auth.engine.world import METADATA, SERVER, World, now, together
from trio_mcp.auth import (
    ClientCredentials,
    IdentityAssertion,
    OAuth,
    PrivateKeyJwt,
    RegisteredClient,
    WorkloadIdentity,
)
from trio_mcp.auth.rules.steps import Fetch, Fetched
from trio_mcp.auth.rules.token_answers import id_token_holds
from trio_mcp.auth.testing import AuthorizationServer
from trio_mcp.auth.testing.faults import raw, status
from trio_mcp.auth.testing.keys import Keys
from trio_mcp.errors import AuthorizationError
from trio_mcp.http.client.auth import Auth, Signer

KEY = jwk.ECKey.generate_key("P-256")
SECRET = {"secret": "CANARY-secret"}
JWT_BEARER = "urn:ietf:params:oauth:grant-type:jwt-bearer"
EXCHANGE = "urn:ietf:params:oauth:grant-type:token-exchange"
PLATFORM = "https://platform.example.com"
IDP = "https://idp.example.com"


def world(**settings: Any) -> World:
    made = World(**settings)
    made.id.add_client("robot", "CANARY-secret")
    made.id.add_client("signer", jwks={"keys": [KEY.as_dict(private=False)]})
    return made


def credentials(at: World, id: str = "robot", **options: Any) -> ClientCredentials:
    return ClientCredentials(id, **{**(SECRET if id == "robot" else {}), **options}, fetch=at.fetch, clock=now)


@contextlib.asynccontextmanager
async def opened(auth: Auth, server: str = SERVER) -> AsyncIterator[Signer]:
    async with auth.opened(server, contextlib.nullcontext) as signer:
        yield signer


def grants(at: AuthorizationServer) -> list[str]:
    return [seen.parameters["grant_type"] for seen in at.seen if seen.endpoint == "token"]


# --- client credentials ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [
    {"id": "robot"},
    {"id": "robot", "dpop": "require"},
    {"id": "robot", "issuer": "https://id.example.com/"},
    {"id": "signer", "key": PrivateKeyJwt(KEY.as_pem(private=True))},
], ids=["secret", "dpop", "issuer", "key"])  # fmt: skip
async def test_a_program_signs_in_by_itself(options: dict[str, Any], autojump_clock: MockClock) -> None:
    at = world(dpop="accept")
    async with opened(credentials(at, **options)) as signer:
        assert [await at.call(signer) for _ in range(3)] == [200] * 3
    assert grants(at.id) == ["client_credentials"]
    assert at.id.count("register") == 0
    [asked] = [seen.parameters for seen in at.id.seen if seen.endpoint == "token"]
    assert asked["resource"] == SERVER


async def test_64_calls_at_expiry_ask_once(autojump_clock: MockClock) -> None:
    at = world()
    async with opened(credentials(at)) as signer:
        assert await at.call(signer) == 200
        await trio.sleep(3601)
        assert await together(*[partial(at.call, signer)] * 64) == [200] * 64
    assert grants(at.id) == ["client_credentials"] * 2


async def test_an_expired_token_needs_no_metadata_and_a_lost_one_is_replaced(autojump_clock: MockClock) -> None:
    at = world()
    async with opened(credentials(at)) as signer:
        assert await at.call(signer) == 200
        looked_up = at.id.count("metadata")
        await trio.sleep(3601)
        assert await at.call(signer) == 200
        at.id.issued.revoke_all()
        assert await at.call(signer) == 200
    assert at.id.count("metadata") == looked_up
    assert grants(at.id) == ["client_credentials"] * 3


async def test_a_program_has_no_use_for_refresh_tokens(autojump_clock: MockClock) -> None:
    at = world(scopes=("read", "write", "offline_access"))
    async with opened(credentials(at, scopes=["read"])) as signer:
        assert await at.call(signer) == 200
    assert [seen.parameters["scope"] for seen in at.id.seen if seen.endpoint == "token"] == ["read"]


async def test_more_scopes_are_asked_for_when_the_server_wants_them(autojump_clock: MockClock) -> None:
    at = world()
    at.needs = {"read"}
    async with opened(credentials(at)) as signer:
        assert await at.call(signer, {"read"}) == 200
        assert await at.call(signer, {"write"}) == 200
    assert [seen.parameters.get("scope") for seen in at.id.seen if seen.endpoint == "token"] == ["read", "read write"]


@pytest.mark.parametrize(("refusal", "error", "text"), [
    (raw(b'{"error": "invalid_client"}', code=401), "invalid_client", "check the client's id and its secret or key"),
    (raw(b'{"error": "unauthorized_client"}', code=400), "unauthorized_client", "allow this client the grant"),
    (status(503), None, "responded with status 503"),
])  # fmt: skip
async def test_what_the_authorization_server_refuses(
    refusal: Any, error: str | None, text: str, autojump_clock: MockClock
) -> None:
    at = world(faults={"token": refusal})
    async with opened(credentials(at)) as signer:
        with pytest.raises(AuthorizationError, match=text) as caught:
            await at.call(signer)
    assert (caught.value.step, caught.value.error) == ("token", error)
    assert "CANARY" not in f"{caught.value!r} {caught.value}"


async def test_credentials_go_to_one_authorization_server_only(autojump_clock: MockClock) -> None:
    at = world()
    auth = credentials(at)
    other = AuthorizationServer("https://evil.example.com", clock=now)
    at.all[other.issuer] = other
    async with opened(auth) as signer:
        assert await at.call(signer) == 200
        at.id = other
        with pytest.raises(AuthorizationError, match=r"for https://id.example.com"):
            await at.call(signer)
    async with opened(credentials(at, issuer="https://id.example.com")) as signer:
        with pytest.raises(AuthorizationError):
            await at.call(signer)
    assert other.count("token") == 0
    assert not any(b"CANARY" in seen.request.body or "Authorization" in seen.request.fields for seen in other.seen)


@pytest.mark.parametrize(("make", "problem"), [
    (lambda: ClientCredentials("a"), "either a secret or a key"),
    (lambda: ClientCredentials("a", secret="s", key=PrivateKeyJwt(KEY.as_pem(private=True))), "and not both"),
    (lambda: ClientCredentials("a", secret=""), "the secret of RegisteredClient must not be empty"),
    (lambda: ClientCredentials("a", secret="s", dpop="yes"), "dpop must be one of auto, require, off"),  # type: ignore[arg-type]
])  # fmt: skip
def test_credentials_that_make_no_sense(make: Callable[[], object], problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        make()


def test_scopes_are_not_a_text() -> None:
    with pytest.raises(TypeError, match="write"):
        ClientCredentials("a", secret="s", scopes="read write")


# --- workload identity -----------------------------------------------------------------------------------------------


def platform(at: World) -> tuple[Keys, list[tuple[object, ...]], Callable[..., Any]]:
    keys, calls = Keys(), list[tuple[object, ...]]()
    at.id.settings["trusted"][PLATFORM] = keys

    async def assertion(issuer: str, endpoint: str, resource: str | None) -> str:
        await trio.sleep(1)
        calls.append((issuer, endpoint, resource))
        claims = {"iss": PLATFORM, "sub": "job", "aud": issuer, "iat": int(now()), "exp": int(now()) + 60}
        return keys.sign("JWT", claims | {"jti": str(len(calls))})

    return keys, calls, assertion


async def test_clients_that_come_later_share_the_token(autojump_clock: MockClock) -> None:
    at = world()
    _, _, assertion = platform(at)
    for auth in (credentials(at), WorkloadIdentity(assertion, fetch=at.fetch, clock=now)):
        for _ in range(2):
            async with opened(auth) as signer:
                assert await at.call(signer) == 200
    assert grants(at.id) == ["client_credentials", JWT_BEARER]


async def test_a_workload_shows_its_assertion(autojump_clock: MockClock) -> None:
    at = World()
    _, calls, assertion = platform(at)
    async with opened(WorkloadIdentity(assertion, fetch=at.fetch, clock=now)) as signer:
        assert [await at.call(signer) for _ in range(2)] == [200, 200]
        await trio.sleep(3601)
        assert await at.call(signer) == 200
    assert grants(at.id) == [JWT_BEARER] * 2
    assert calls == [("https://id.example.com", "https://id.example.com/token", SERVER)] * 2
    [first, _] = [seen.parameters for seen in at.id.seen if seen.endpoint == "token"]
    assert "client_id" not in first
    assert at.id.count("register") == 0


@pytest.mark.parametrize("error", ["invalid_grant", "invalid_client", "unauthorized_client", "invalid_scope"])
async def test_a_refused_assertion_is_not_sent_again(error: str, autojump_clock: MockClock) -> None:
    at = World(faults={"token": raw(f'{{"error": "{error}"}}'.encode(), code=400)})
    _, _, assertion = platform(at)
    async with opened(WorkloadIdentity(assertion, fetch=at.fetch, clock=now)) as signer:
        with pytest.raises(AuthorizationError) as caught:
            await at.call(signer)
    assert caught.value.error == error
    assert grants(at.id) == [JWT_BEARER]


@pytest.mark.parametrize(("content", "problem"), [
    (None, "can't be read from .*: No such file"),
    (b"", "the assertion must be a non-empty string"),
    (b"\xff", "can't be read from .*: the file is not ASCII text"),
    (b"a" * 70_000, "too long for an assertion"),
])  # fmt: skip
async def test_a_file_without_an_assertion(content: bytes | None, problem: str, tmp_path: Path) -> None:
    at = World(latency=0)
    file = tmp_path / "token"
    if content is not None:
        file.write_bytes(content)
    async with opened(WorkloadIdentity(file, fetch=at.fetch, clock=now)) as signer:
        with pytest.raises(AuthorizationError, match=problem):
            await at.call(signer)
    assert grants(at.id) == []


async def test_a_file_is_read_each_time(tmp_path: Path) -> None:
    at = World(latency=0)
    keys = platform(at)[0]
    (tmp_path / "token").write_text("stale\n")
    async with opened(WorkloadIdentity(str(tmp_path / "token"), fetch=at.fetch, clock=now)) as signer:
        with pytest.raises(AuthorizationError):
            await at.call(signer)
        claims = {"iss": PLATFORM, "sub": "job", "aud": at.id.issuer, "iat": int(now()), "exp": int(now()) + 60}
        (tmp_path / "token").write_text(keys.sign("JWT", claims | {"jti": "1"}) + "\n")
        assert await at.call(signer) == 200


async def test_a_function_that_fails_is_the_cause_of_the_error(autojump_clock: MockClock) -> None:
    at = World()

    async def assertion(issuer: str, endpoint: str, resource: str | None) -> str:
        raise LookupError("CANARY")

    async with opened(WorkloadIdentity(assertion, fetch=at.fetch, clock=now)) as signer:
        with pytest.raises(AuthorizationError, match="the assertion could not be obtained: LookupError") as caught:
            await at.call(signer)
    assert isinstance(caught.value.__cause__, LookupError)
    assert "CANARY" not in str(caught.value)


# --- enterprise-managed authorization --------------------------------------------------------------------------------


def enterprise(at: World, seconds: float = 0, **options: Any) -> tuple[AuthorizationServer, IdentityAssertion]:
    """A provider, and an ``auth=`` whose person takes so long to sign in there."""
    idp = AuthorizationServer(IDP, scopes=("openid",), clock=now)
    idp.add_client("robot")
    at.all[IDP] = idp
    at.id.settings["trusted"][IDP] = idp.keys
    at.id.add_client("robot", "CANARY-secret")

    async def id_token() -> str:
        await trio.sleep(seconds)
        claims = {"iss": IDP, "sub": "alice", "aud": "robot", "iat": int(now()), "exp": int(now()) + 60}
        return idp.keys.sign("JWT", claims)

    given = {"client": RegisteredClient("robot", **SECRET), "idp_client": RegisteredClient("robot")}
    return idp, IdentityAssertion(IDP, id_token, **{**given, **options}, fetch=at.fetch, clock=now)


async def test_the_identity_provider_vouches_for_a_person(autojump_clock: MockClock) -> None:
    at = World()
    idp, auth = enterprise(at)
    async with opened(auth) as signer:
        assert [await at.call(signer) for _ in range(2)] == [200, 200]
        await trio.sleep(3601)
        assert await at.call(signer) == 200
    assert grants(idp) == [EXCHANGE] * 2
    assert grants(at.id) == [JWT_BEARER] * 2
    [asked, _] = [seen.parameters for seen in idp.seen if seen.endpoint == "token"]
    assert (asked["audience"], asked["resource"]) == (at.id.issuer, SERVER)
    assert not any(b"CANARY" in seen.request.body for seen in idp.seen)


async def test_a_person_has_time_for_a_renewal_too(autojump_clock: MockClock) -> None:
    """When the token has expired, the ID token may have, too; nothing else times out while the person signs in."""
    at = World()
    stopped: list[float] = []

    @contextlib.contextmanager
    def pause() -> Iterator[None]:
        began = trio.current_time()
        yield
        stopped.append(trio.current_time() - began)

    idp, auth = enterprise(at, 30)
    async with auth.opened(SERVER, pause) as signer:
        assert await at.call(signer) == 200
        await trio.sleep(3601)
        assert await at.call(signer) == 200
    assert len(stopped) == 2
    assert min(stopped) >= 30
    assert grants(idp) == [EXCHANGE] * 2


async def test_an_identity_provider_that_refuses_is_named(autojump_clock: MockClock) -> None:
    at = World()
    idp, auth = enterprise(at)
    idp.faults["token"] = raw(b'{"error": "access_denied", "error_description": "Not for you"}', code=400)
    async with opened(auth) as signer:
        with pytest.raises(
            AuthorizationError, match=r"token exchange at https://idp.example.com failed: .* Not for you"
        ):
            await at.call(signer)
    assert grants(at.id) == []


async def test_a_person_signs_in_at_the_provider_once_for_all_servers(autojump_clock: MockClock) -> None:
    at = World()
    idp, _ = enterprise(at)
    idp.settings["scopes"] = ("openid", "offline_access")
    idp.clients.forget("robot")
    idp.add_client("robot", redirects=["http://127.0.0.1:0/callback"])
    person = at.oauth(client=RegisteredClient("robot"))
    options = {"client": RegisteredClient("robot", **SECRET), "fetch": at.fetch, "clock": now}
    for times in (1, 2):
        async with opened(IdentityAssertion(IDP, person, **options)) as signer:
            assert await at.call(signer) == 200
        assert (len(at.asked), grants(idp).count("authorization_code"), grants(idp).count(EXCHANGE)) == (1, 1, times)
    await trio.sleep(4000)
    async with opened(IdentityAssertion(IDP, person, **options)) as signer:
        assert await at.call(signer) == 200
    assert grants(idp)[-2:] == ["refresh_token", EXCHANGE]
    assert len(at.asked) == 1
    assert at.id.count("authorize") == 0
    assert await person.sign_out(IDP)


async def test_a_server_and_a_provider_of_one_url_have_a_login_each(autojump_clock: MockClock) -> None:
    at = World()
    idp = AuthorizationServer(SERVER, scopes=("openid",), clock=now)
    idp.add_client("robot", redirects=["http://127.0.0.1:0/callback"])
    origin = "{0.scheme}://{0.netloc}".format(urlsplit(SERVER))
    at.all[origin] = idp

    async def fetch(step: Fetch) -> Fetched:
        return idp.handle(step) if step.url.startswith(origin) and step.url != METADATA else await at.fetch(step)

    at.id.add_client("robot", redirects=["http://127.0.0.1:0/callback"])
    # Another `OAuth` each time, as in other processes.
    given = {"client": RegisteredClient("robot"), "store": at.store, "show": at.show, "fetch": fetch, "clock": now}
    for _ in range(2):
        async with OAuth(**given, dpop="off").opened(SERVER, contextlib.nullcontext) as signer:
            assert await at.call(signer) == 200
        there, id_token = await OAuth(**given).identity(SERVER)
        assert there.issuer == SERVER
        assert id_token
    assert len(at.asked) == 2
    assert await at.store.keys() == [SERVER, f"{SERVER} (identity provider)"]
    # Which of the two is meant can't be known, and a person who signs out wants neither: not even if one can't be
    # revoked.
    at.id.faults["revoke"] = status(500)
    with pytest.raises(AuthorizationError, match="the server responded with status 500"):
        await OAuth(**given).sign_out(SERVER)
    assert await at.store.keys() == []
    assert (at.id.count("revoke"), idp.count("revoke")) == (1, 1)


@pytest.mark.parametrize("options", [
    {"person": World().oauth(), "idp_client": RegisteredClient("a")},
    {"person": "token", "idp_client": RegisteredClient("a")}, {"person": trio.sleep_forever},
])  # fmt: skip
def test_there_is_one_client_at_the_identity_provider(options: dict[str, Any]) -> None:
    with pytest.raises(TypeError, match=r"idp_client|an OAuth or"):
        IdentityAssertion(IDP, client=RegisteredClient("b"), **options)


NOW = 1_800_000_000


@pytest.mark.parametrize(("claims", "holds"), [
    ({}, True),
    ({"aud": ["a", "me"]}, True),
    ({"aud": "menu"}, False), ({"aud": ["a"]}, False), ({"aud": 7}, False), ({"aud": None}, False),
    ({"iss": "https://idp.example.com/"}, False), ({"iss": ["https://idp.example.com"]}, False),
    ({"exp": NOW + 20}, False), ({"exp": "later"}, False), ({"exp": None}, False),
])  # fmt: skip
def test_which_id_tokens_are_shown(claims: dict[str, Any], holds: bool) -> None:
    payload = json.dumps({"iss": IDP, "aud": "me", "exp": NOW + 60} | claims).encode()
    token = f"e30.{base64.urlsafe_b64encode(payload).rstrip(b'=').decode()}.c2ln"
    assert id_token_holds(token, IDP, "me", NOW) is holds


@pytest.mark.parametrize("token", [None, "", "a", "a.b", "..", "e30.e30.", "a.W10.", "a." + "W1tb" * 20_000, "é.é.é"])
def test_what_is_not_an_id_token_is_not_shown(token: str | None) -> None:
    assert not id_token_holds(token, IDP, "me", NOW)


def test_what_clients_declare() -> None:
    _, auth = enterprise(World())
    assert list(auth.extensions) == ["io.modelcontextprotocol/enterprise-managed-authorization"]
    assert list(ClientCredentials.extensions) == ["io.modelcontextprotocol/oauth-client-credentials"]
    assert WorkloadIdentity.extensions == {}
