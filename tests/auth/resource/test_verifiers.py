"""Where a verifier's knowledge comes from: keys that change, issuers that are away, introspection, a function."""

from __future__ import annotations

import base64
import gc
import json
import tracemalloc
from functools import partial
from typing import Any
from urllib.parse import urlencode

import pytest
import trio
import trio.testing

from tests.auth.resource.scene import (
    ED,
    ISSUER,
    KEY,
    NOW,
    OTHER,
    RESOURCE,
    RSA,
    Clock,
    Issuer,
    bearer,
    bound,
    encoded,
    proof,
    protected,
    public,
    request,
    shown,
    token,
)
from trio_mcp.auth import Claims, IntrospectionVerifier, InvalidToken, JwtVerifier
from trio_mcp.auth.rules.steps import Fetch, Fetched
from trio_mcp.auth.server import introspection, resource
from trio_mcp.auth.server.jws import import_key
from trio_mcp.auth.server.keys import BEHIND, FRESH, MAX_KEYS, RETRY, STALE
from trio_mcp.auth.testing import AuthorizationServer
from trio_mcp.auth.testing.faults import edited, raw, status
from trio_mcp.http.server.protection import Guard, Identified

METADATA = f"{ISSUER}/.well-known/oauth-authorization-server"
JWKS = f"{ISSUER}/jwks"
BOUND = bound()
REFUSED = (401, "bearer invalid_token, dpop invalid_token")
GOOD = (200, None)
AWAY = (503, None)


async def outcome(guard: Guard, given: str) -> tuple[int, str | None]:
    return shown(await guard.identify(bearer(given)))


# --- keys -------------------------------------------------------------------------------------------------------------


async def test_keys_are_fetched_once() -> None:
    issuer = Issuer()
    async with protected(issuer) as (_, guard), trio.open_nursery() as nursery:
        for number in range(20):
            nursery.start_soon(outcome, guard, token(jti=str(number)))
    assert issuer.fetched == [METADATA, JWKS]


async def test_rotation() -> None:
    issuer, clock = Issuer(), Clock()
    new = partial(token, {"kid": "k2"}, key=OTHER, exp=int(NOW) + 100_000)
    async with protected(issuer, clock) as (_, guard):
        assert await outcome(guard, token()) == GOOD
        # The issuer is not asked more than once in ten seconds; until then, the key may be a new one.
        for _ in range(10):
            assert await outcome(guard, new()) == AWAY
        clock.now += RETRY
        assert await outcome(guard, new()) == AWAY
        assert issuer.fetched == [METADATA, JWKS]
        clock.now += 1
        assert await outcome(guard, new()) == REFUSED
        assert issuer.fetched == [METADATA, JWKS, JWKS]
        issuer.documents[JWKS] = public(_named(OTHER, "k2"))
        clock.now += RETRY + 1
        # All that come with the new key while it is fetched, not only the first.
        found: list[object] = []

        async def bring(number: int) -> None:
            found.append(await outcome(guard, new(jti=str(number))))

        async with trio.open_nursery() as nursery:
            for number in range(3):
                nursery.start_soon(bring, number)
        assert found == [GOOD] * 3
        assert len(issuer.fetched) == 4
        # What the old key has signed is worth nothing from then on, once it has been checked again.
        assert await outcome(guard, token(jti="another")) == AWAY
        assert await outcome(guard, token(jti="another", iat=int(NOW - BEHIND))) == REFUSED
        assert len(issuer.fetched) == 4


async def test_rotation_of_a_key_without_a_name() -> None:
    """As with a name: the token of a new key is not invalid, and that of the former key is in the end."""
    issuer, clock = Issuer(), Clock()
    former = partial(token, {"kid": ...}, exp=int(NOW) + 100_000)
    new = partial(former, key=OTHER)
    issuer.documents[JWKS] = public(KEY)
    async with protected(issuer, clock) as (_, guard):
        assert await outcome(guard, former()) == GOOD
        issuer.documents[JWKS] = public(OTHER)
        assert await outcome(guard, new()) == AWAY
        clock.now += RETRY + 1
        assert await outcome(guard, new()) == GOOD
        assert issuer.fetched == [METADATA, JWKS, JWKS]
        assert await outcome(guard, former(jti="another")) == AWAY
        clock.now += RETRY + 1
        assert await outcome(guard, former(jti="another")) == REFUSED


async def test_a_key_that_is_published_while_the_keys_are_fetched_may_be_a_new_one() -> None:
    issuer, clock = Issuer(), Clock()
    reached, go = trio.Event(), trio.Event()

    async def slow(asked: Fetch) -> Fetched:
        answer = await issuer.fetch(asked)
        if len(issuer.fetched) == 3:
            reached.set()
            await go.wait()
        return answer

    found: dict[str, object] = {}

    async def bring(name: str) -> None:
        found[name] = await outcome(guard, token({"kid": name}, key=OTHER))

    async with protected(issuer, clock, fetch=slow) as (_, guard), trio.open_nursery() as nursery:
        assert await outcome(guard, token()) == GOOD
        clock.now += RETRY + 1
        nursery.start_soon(bring, "garbage")
        await reached.wait()
        issuer.documents[JWKS] = public(_named(OTHER, "new"))
        nursery.start_soon(bring, "new")
        await trio.testing.wait_all_tasks_blocked()
        go.set()
        await trio.testing.wait_all_tasks_blocked()
        assert found == {"garbage": REFUSED, "new": AWAY}
        clock.now += RETRY + 1
        await bring("new")
        assert found["new"] == GOOD


async def test_garbage_without_end_makes_no_good_token_invalid(caplog: pytest.LogCaptureFixture) -> None:
    """Nor keeps it out for long, nor hides that another one is no longer valid; and the issuer has its peace."""
    issuer, clock = Issuer(), Clock()
    last = int(NOW) + 100_000
    new: list[tuple[int, str | None]] = []
    former: list[tuple[int, str | None]] = []
    async with protected(issuer, clock, remember=0) as (_, guard):
        assert await outcome(guard, token(exp=last)) == GOOD
        for second in range(0, 600, 2):
            clock.now = NOW + second
            # One has no time, one a good one, and one a time that is long past.
            for iat in (..., int(clock.now), int(NOW) - 100_000):
                assert await outcome(guard, token({"kid": f"x{second}"}, key=OTHER, iat=iat, exp=last)) != GOOD
            if second == 100:
                issuer.documents[JWKS] = public(_named(OTHER, "k2"))
            if second >= 100:
                new.append(await outcome(guard, token({"kid": "k2"}, key=OTHER, iat=int(NOW) + 100, exp=last)))
                former.append(await outcome(guard, token(iat=int(NOW) + 99, exp=last)))
    found = new.index(GOOD)
    assert (new[:found], new[found:]) == ([AWAY] * found, [GOOD] * (len(new) - found))
    assert 2 * found <= RETRY + 2
    assert REFUSED in former[: int(BEHIND + 2 * RETRY) // 2]
    assert set(former[-20:]) == {REFUSED}
    assert len(issuer.fetched) <= 2 + 600 / RETRY
    assert not caplog.text  # anyone can send garbage, so nothing warns of it


def _named(key: Any, kid: str) -> Any:
    return type(key).import_key({**key.as_dict(private=True), "kid": kid})


async def test_withdrawn_key_is_noticed_in_time() -> None:
    issuer, clock = Issuer(), Clock()
    long = token(exp=int(NOW) + 100_000)
    async with protected(issuer, clock) as (_, guard):
        assert await outcome(guard, long) == GOOD
        issuer.documents[JWKS] = public(RSA)
        clock.now += FRESH + 1
        # No request waits for this fetch.
        assert await outcome(guard, long) == GOOD
        await trio.testing.wait_all_tasks_blocked()
        assert await outcome(guard, token(exp=int(NOW) + 99_999)) == REFUSED


async def test_issuer_is_away() -> None:
    issuer, clock = Issuer(away=503), Clock()
    last = int(NOW) + 100_000
    async with protected(issuer, clock, remember=0) as (_, guard):
        # Before there are keys: one attempt in ten seconds, and no token is said to be invalid.
        for _ in range(5):
            assert await outcome(guard, token()) == AWAY
        attempts = len(issuer.fetched)
        clock.now += RETRY + 1
        assert await outcome(guard, token()) == AWAY
        assert len(issuer.fetched) == 2 * attempts
        # Once there are, they are used for an hour.
        issuer.away = 0
        clock.now += RETRY + 1
        assert await outcome(guard, token(exp=last)) == GOOD
        issuer.away = 500
        clock.now += STALE - 1
        assert await outcome(guard, token(exp=last)) == GOOD
        await trio.testing.wait_all_tasks_blocked()
        # Whether a key is new or made up can't be told now.
        assert await outcome(guard, token({"kid": "k2"}, key=OTHER, exp=last)) == AWAY
        clock.now += RETRY + 1
        assert await outcome(guard, token(exp=last)) == AWAY
        issuer.away = 0
        clock.now += RETRY + 1
        assert await outcome(guard, token(exp=last)) == GOOD


@pytest.mark.parametrize("verifier", [None, IntrospectionVerifier("a", "b")], ids=["keys", "introspection"])
async def test_fetch_of_the_users_own_may_fail_in_any_way(verifier: Any, caplog: pytest.LogCaptureFixture) -> None:
    async def fetch(asked: Fetch) -> Fetched:
        raise OSError("no route")

    async with protected(fetch=fetch, verifier=verifier) as (_, guard):
        for _ in range(2):
            assert await outcome(guard, token()) == AWAY
    assert "an access token can't be checked: " in caplog.text
    assert "no route" in caplog.text


async def test_who_waits_may_leave() -> None:
    reached, go = trio.Event(), trio.Event()
    issuer = Issuer()

    async def slow(asked: Fetch) -> Fetched:
        reached.set()
        await go.wait()
        return await issuer.fetch(asked)

    async with protected(fetch=slow) as (_, guard), trio.open_nursery() as nursery:
        results: list[Any] = []
        scope = trio.CancelScope()

        async def first() -> None:
            with scope:
                results.append(await outcome(guard, token()))

        async def other() -> None:
            results.append(await outcome(guard, token(jti="2")))

        nursery.start_soon(first)
        await reached.wait()
        nursery.start_soon(other)
        await trio.testing.wait_all_tasks_blocked()
        scope.cancel()
        await trio.testing.wait_all_tasks_blocked()
        go.set()
    assert results == [GOOD]
    assert issuer.fetched == [METADATA, JWKS]


JWKS_BAD: dict[str, Any] = {
    "not JSON": b"<html>",
    "a list": [],
    "no list of keys": {"keys": {}},
    "no keys": {"keys": []},
    "only keys that are no use": {"keys": [{"kty": "oct", "k": "AAAA", "kid": "k1"}, {"kty": "AKP"}, 1, None]},
    "only private keys": {"keys": [KEY.as_dict(private=True)]},
    "only keys for encryption": {"keys": [{**KEY.as_dict(private=False), "use": "enc"}]},
    "too many keys": {"keys": [KEY.as_dict(private=False)] * (MAX_KEYS + 1)},
}


@pytest.mark.parametrize("document", JWKS_BAD.values(), ids=JWKS_BAD)
async def test_bad_jwks(document: Any, caplog: pytest.LogCaptureFixture) -> None:
    issuer = Issuer()
    issuer.documents[JWKS] = document
    async with protected(issuer) as (_, guard):
        assert await outcome(guard, token()) == AWAY
    assert "the keys of https://id.example.com can't be fetched" in caplog.text


METADATA_BAD: dict[str, Any] = {
    "of another issuer": {"issuer": "https://evil.example", "jwks_uri": JWKS},
    "without keys": {"issuer": ISSUER, "jwks_uri": None},
    "keys over plain http": {"issuer": ISSUER, "jwks_uri": "http://id.example.com/jwks"},
    "keys in a file": {"issuer": ISSUER, "jwks_uri": "file:///etc/jwks"},
}


@pytest.mark.parametrize("changes", METADATA_BAD.values(), ids=METADATA_BAD)
async def test_bad_metadata(changes: Any) -> None:
    issuer = Issuer()
    issuer.documents[METADATA] |= changes
    async with protected(issuer) as (_, guard):
        assert await outcome(guard, token()) == AWAY
    assert JWKS not in issuer.fetched
    assert not any(not url.startswith(ISSUER) for url in issuer.fetched)


async def test_one_strange_key_does_not_spoil_the_others() -> None:
    issuer = Issuer()
    issuer.documents[JWKS]["keys"] += [
        {"kty": "AKP", "alg": "ML-DSA-44", "pub": "AAAA"},
        "x",
        KEY.as_dict(private=True),
    ]
    async with protected(issuer) as (_, guard):
        assert await outcome(guard, token()) == GOOD


async def test_no_kid_and_several_keys_of_a_kind() -> None:
    issuer = Issuer()
    issuer.documents[JWKS] = public(KEY, OTHER)
    async with protected(issuer) as (_, guard):
        assert await outcome(guard, token({"kid": ...})) == REFUSED
        # Two keys may have one name, though (RFC 7517, section 4.5).
        assert await outcome(guard, token()) == await outcome(guard, token(key=OTHER)) == GOOD


async def test_key_of_another_curve() -> None:
    issuer = Issuer()
    issuer.documents[JWKS] = public(OTHER)  # which does not say what it is for
    async with protected(issuer) as (_, guard):
        assert await outcome(guard, token(key=OTHER)) == GOOD
        assert await outcome(guard, token({"alg": "ES384"}, key=OTHER)) == REFUSED


@pytest.mark.filterwarnings("ignore::joserfc.errors.SecurityWarning")
@pytest.mark.parametrize(("bits", "exponent"), [(1024, 65537), (2047, 65537), (8193, 65537), (2048, 1 << 32)])
def test_rsa_keys_out_of_bounds(bits: int, exponent: int) -> None:
    numbers = {"n": (1 << bits - 1) | 1, "e": exponent}
    jwk = {name: encoded(value.to_bytes((value.bit_length() + 7) // 8)) for name, value in numbers.items()}
    with pytest.raises(ValueError, match="it is an RSA key with fewer"):
        import_key({"kty": "RSA", **jwk})


async def test_keys_that_are_given() -> None:
    issuer = Issuer()
    for verifier in (JwtVerifier(keys=public(KEY)), JwtVerifier(keys=JWKS)):
        async with protected(issuer, verifier=verifier) as (_, guard):
            assert await outcome(guard, token()) == GOOD
            other = await outcome(guard, token({"alg": "EdDSA", "kid": "e1"}, key=ED))
            assert other == (GOOD if issuer.fetched else REFUSED)
    assert issuer.fetched == [JWKS]


async def test_algorithms_that_are_given() -> None:
    async with protected(verifier=JwtVerifier(algorithms=["EdDSA"])) as (_, guard):
        assert await outcome(guard, token({"alg": "EdDSA", "kid": "e1"}, key=ED)) == GOOD
        assert await outcome(guard, token()) == REFUSED


@pytest.mark.parametrize("slash", ["configured", "published"])
async def test_issuers_that_differ_by_a_slash(slash: str) -> None:
    # The metadata's own string is what tokens must have.
    issuer = Issuer()
    published = ISSUER + "/" * (slash == "published")
    issuer.documents[METADATA]["issuer"] = published
    configured = ISSUER + "/" * (slash == "configured")
    async with protected(issuer, issuers=[configured]) as (_, guard):
        assert await outcome(guard, token(iss=published)) == GOOD
        assert await outcome(guard, token(iss=configured)) == REFUSED


async def test_an_issuer_speaks_for_itself() -> None:
    second = "https://second.example"
    issuer = Issuer()
    issuer.documents |= {
        f"{second}/.well-known/oauth-authorization-server": {
            **issuer.documents[METADATA],
            "issuer": second,
            "jwks_uri": f"{second}/jwks",
            "authorization_endpoint": f"{second}/a",
            "token_endpoint": f"{second}/t",
        },
        f"{second}/jwks": public(OTHER),
    }
    async with protected(issuer, issuers=[ISSUER, second]) as (_, guard):
        assert await outcome(guard, token()) == await outcome(guard, token(iss=second, key=OTHER)) == GOOD
        assert await outcome(guard, token(key=OTHER)) == await outcome(guard, token(iss=second)) == REFUSED


async def test_clock_an_hour_off(caplog: pytest.LogCaptureFixture) -> None:
    issuer, clock = Issuer(), Clock(NOW - 3600)
    issuer.fields["Date"] = "Fri, 15 Jan 2027 08:00:00 GMT"  # NOW
    async with protected(issuer, clock) as (_, guard):
        assert await outcome(guard, token(iat=int(NOW))) == REFUSED
        assert await outcome(guard, token(iat=...)) == GOOD
        assert await outcome(guard, token(nbf=int(NOW))) == REFUSED
    assert caplog.text.count("it becomes valid only in 3600 s: is the clock of this machine right?") == 1
    assert "the clock of this machine is 3600 s behind that of https://id.example.com" in caplog.text
    caplog.clear()
    async with protected(issuer, Clock(NOW + 29)) as (_, guard):
        assert await outcome(guard, token()) == GOOD
    assert not caplog.text


# --- what is remembered -----------------------------------------------------------------------------------------------


async def test_token_is_remembered_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, asked = Clock(), []
    monkeypatch.setattr(resource, "MAX_TOKENS", 2)

    async def verify(given: str) -> Claims:
        asked.append(given)
        return Claims(ISSUER, given, RESOURCE, NOW + 80)

    async with protected(None, clock, verifier=verify, scopes=[]) as (_, guard):
        for seconds, calls in ((0, 1), (59, 1), (1, 2), (49, 2), (0.5, 2), (0.5, 3)):
            clock.now += seconds
            assert (await outcome(guard, "a"), len(asked)) == (GOOD if clock.now < NOW + 110 else REFUSED, calls)
        clock.now = NOW
        asked.clear()
        for each in "bcdb":
            await outcome(guard, each)
        assert asked == ["b", "c", "d", "b"]


async def test_garbage_leaves_nothing_behind() -> None:
    issuer = Issuer()
    async with protected(issuer) as (_, guard):

        async def send(number: int) -> None:
            given = (f"x{number}", token()[:-9] + f"{number:09}", token(iss=f"https://{number}.example"))
            for each in (*given, token({"kid": f"k{number}x"}, key=OTHER, iat=int(NOW - BEHIND) - 1)):
                assert await outcome(guard, each) == REFUSED
            assert await outcome(guard, token({"kid": f"k{number}y"}, key=OTHER)) == AWAY
            asked = request(authorization=f"DPoP {BOUND}", dpop=proof(BOUND, key=OTHER, pad=f"{number}" * 1000))
            assert shown(await guard.identify(asked)) == (401, "dpop invalid_dpop_proof")

        # What is made on first use.
        for number in range(20):
            await send(number)
        tracemalloc.start()
        try:
            for number in range(20, 120):
                await send(number)
            gc.collect()
            left, _peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    # All in the same second, by its clock.
    assert issuer.fetched == [METADATA, JWKS]
    # 600 pieces of garbage leave less than a hash of each in a dict, with Python's free lists.
    assert left < 50_000


# --- introspection, and functions -------------------------------------------------------------------------------------


class Opaque:
    """An authorization server in memory whose tokens say nothing, and what it was asked."""

    def __init__(self, clock: Clock) -> None:
        self.server = AuthorizationServer(ISSUER, tokens="opaque", clock=clock)
        self.server.add_client("files", "s3:cret/", grants=["client_credentials"])

    async def fetch(self, asked: Fetch) -> Fetched:
        await trio.lowlevel.checkpoint()
        return self.server.handle(asked)

    @property
    def asked(self) -> int:
        return self.server.count("introspect")

    def token(self, resource: str = RESOURCE) -> str:
        body = urlencode({"grant_type": "client_credentials", "scope": "read", "resource": resource}).encode()
        basic = base64.b64encode(b"files:s3%3Acret%2F").decode()
        fields = {"Content-Type": "application/x-www-form-urlencoded", "Authorization": f"Basic {basic}"}
        answer = self.server.handle(Fetch("token", "POST", f"{ISSUER}/token", fields, body))
        found: str = json.loads(answer.body)["access_token"]
        return found


async def test_introspection() -> None:
    clock = Clock()
    issuer = Opaque(clock)
    verifier = IntrospectionVerifier("files", "s3:cret/")
    async with protected(None, clock, fetch=issuer.fetch, verifier=verifier, scopes=["read"]) as (_, guard):
        first = issuer.token()
        async with trio.open_nursery() as nursery:
            for _ in range(64):
                nursery.start_soon(outcome, guard, first)
        found = await guard.identify(bearer(first))
        assert isinstance(found, Identified)
        assert found.principal.identity == (ISSUER, "files", "files")
        assert issuer.asked == 1
        # A token of another server is one, too, for the issuer.
        assert await outcome(guard, issuer.token("https://other.example/mcp")) == REFUSED
        # What was revoked works for a minute at most.
        issuer.server.issued.revoke(first)
        clock.now += 60
        assert await outcome(guard, first) == REFUSED
        # An unknown token is asked about once in ten seconds.
        asked = issuer.asked
        for _ in range(5):
            assert await outcome(guard, "unknown") == REFUSED
        assert issuer.asked == asked + 1
        clock.now += 10
        assert await outcome(guard, "unknown") == REFUSED
        assert issuer.asked == asked + 2


async def test_an_endpoint_of_introspection_that_moves_is_found_again() -> None:
    clock = Clock()
    issuer = Opaque(clock)
    verifier = IntrospectionVerifier("files", "s3:cret/")
    async with protected(None, clock, fetch=issuer.fetch, verifier=verifier) as (_, guard):
        async with trio.open_nursery() as nursery:
            for _ in range(10):
                nursery.start_soon(outcome, guard, issuer.token())
        assert issuer.server.count("metadata") == 1
        clock.now += RETRY + 1
        issuer.server.faults["introspect"] = [status(404)]
        assert [await outcome(guard, issuer.token()) for _ in range(2)] == [AWAY, GOOD]
        assert issuer.server.count("metadata") == 2


async def test_garbage_that_introspection_chokes_on_does_not_look_for_its_endpoint_again() -> None:
    clock = Clock()
    issuer = Opaque(clock)
    verifier = IntrospectionVerifier("files", "s3:cret/")
    async with protected(None, clock, fetch=issuer.fetch, verifier=verifier) as (_, guard):
        assert await outcome(guard, issuer.token()) == GOOD
        for second in range(100):
            clock.now = NOW + second
            issuer.server.faults["introspect"] = [status(400)]
            assert await outcome(guard, f"x{second}") == AWAY
            assert await outcome(guard, issuer.token()) == GOOD
        assert issuer.server.count("metadata") <= 1 + 100 / RETRY


async def test_an_issuer_that_is_away_is_not_looked_for_with_each_token() -> None:
    issuer, clock = Issuer(away=503), Clock()
    async with protected(issuer, clock, verifier=IntrospectionVerifier("a", "b")) as (_, guard):
        assert await outcome(guard, "x") == AWAY
        attempts = len(issuer.fetched)
        for number in range(5):
            assert await outcome(guard, f"x{number}") == AWAY
        assert len(issuer.fetched) == attempts
        clock.now += RETRY + 1
        assert await outcome(guard, "x") == AWAY
        assert len(issuer.fetched) == 2 * attempts


async def test_introspection_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(introspection, "MAX_REFUSED", 3)
    monkeypatch.setattr(introspection, "MAX_INTROSPECTIONS", 1)
    clock, go, under_way = Clock(), trio.Event(), 0
    issuer = Opaque(clock)

    async def slow(asked: Fetch) -> Fetched:
        nonlocal under_way
        under_way += 1
        assert under_way == 1
        await go.wait()
        under_way -= 1
        return issuer.server.handle(asked)

    results: dict[str, tuple[int, str | None]] = {}
    verifier = IntrospectionVerifier("files", "s3:cret/", endpoint=f"{ISSUER}/introspect")
    async with protected(None, clock, fetch=slow, verifier=verifier) as (_, guard), trio.open_nursery() as nursery:

        async def ask(given: str) -> None:
            results[given] = await outcome(guard, given)

        for given in "abcd":
            nursery.start_soon(ask, given)
            await trio.testing.wait_all_tasks_blocked()
        assert results == {"d": AWAY}
        go.set()
        await trio.testing.wait_all_tasks_blocked()
        assert results == {"d": AWAY, **dict.fromkeys("abc", REFUSED)}
        await ask("d")
        assert results["d"] == REFUSED


async def test_one_slow_answer_of_introspection_holds_up_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(introspection, "MAX_REFUSED", 3)
    clock, go = Clock(), trio.Event()
    issuer = Opaque(clock)

    async def first_is_slow(asked: Fetch) -> Fetched:
        if b"token=a&" in (asked.body or b""):
            await go.wait()
        return issuer.server.handle(asked)

    verifier = IntrospectionVerifier("files", "s3:cret/", endpoint=f"{ISSUER}/introspect")
    whole = protected(None, clock, fetch=first_is_slow, verifier=verifier)
    async with whole as (_, guard), trio.open_nursery() as nursery:
        nursery.start_soon(outcome, guard, "a")
        await trio.testing.wait_all_tasks_blocked()
        assert [await outcome(guard, given) for given in "bcde"] == [REFUSED] * 4
        go.set()


ANSWERS_BAD: dict[str, tuple[Any, tuple[int, str | None]]] = {
    "an error": (status(500), AWAY),
    "not JSON": (raw(b"<html>"), AWAY),
    "a list": (raw(b"[]"), AWAY),
    "without an answer": (raw(b"{}"), AWAY),
    "a text for an answer": (raw(b'{"active": "true"}'), AWAY),
    "a refusal of our own secret": (status(401), AWAY),
    "no audience": (edited(aud=None), REFUSED),
    "no end": (edited(exp=None), REFUSED),
    "another issuer": (edited(iss="https://evil.example"), REFUSED),
    "bound to a key without a name": (edited(token_type="DPoP"), REFUSED),
    "not active, and still described": (edited(active=False), REFUSED),
    "its issuer with a slash": (edited(iss=f"{ISSUER}/"), REFUSED),
    "expired": (edited(exp=int(NOW) - 60), REFUSED),
    "bound otherwise": (edited(cnf={"x5t#S256": "x"}), REFUSED),
    "no subject, but a client": (edited(sub=None, iss=None), GOOD),
    "neither of them": (edited(sub=None, client_id=None), REFUSED),
}


@pytest.mark.parametrize(("fault", "expected"), ANSWERS_BAD.values(), ids=ANSWERS_BAD)
async def test_answers_of_introspection(fault: Any, expected: tuple[int, str | None]) -> None:
    clock = Clock()
    issuer = Opaque(clock)
    verifier = IntrospectionVerifier("files", "s3:cret/")
    async with protected(None, clock, fetch=issuer.fetch, verifier=verifier) as (_, guard):
        issuer.server.faults["introspect"] = fault
        assert await outcome(guard, issuer.token()) == expected


async def test_issuer_without_introspection(caplog: pytest.LogCaptureFixture) -> None:
    issuer = Issuer()
    async with protected(issuer, verifier=IntrospectionVerifier("a", "b")) as (_, guard):
        assert await outcome(guard, "x") == AWAY
    assert "has no introspection_endpoint; pass endpoint=" in caplog.text


async def test_function_as_a_verifier(caplog: pytest.LogCaptureFixture) -> None:
    async def verify(given: str) -> Any:
        if given == "broken":
            raise KeyError("s3cret")
        if given == "nothing":
            return None
        if given == "unknown":
            raise InvalidToken("no such row")
        audience = "https://other.example" if given == "foreign" else [RESOURCE]
        return Claims(ISSUER, "alice", audience, NOW + 60, scopes="files:read x", values={"plan": "free"})

    async with protected(verifier=verify, dpop="off") as (_, guard):
        found = await guard.identify(bearer("good"))
        assert isinstance(found, Identified)
        assert found.principal.scopes == {"files:read", "x"}
        assert found.principal.claims == {"plan": "free"}
        refused = (401, "bearer invalid_token")
        assert await outcome(guard, "unknown") == await outcome(guard, "foreign") == refused
        assert await outcome(guard, "broken") == await outcome(guard, "nothing") == (500, None)
    assert "checking an access token failed" in caplog.text
