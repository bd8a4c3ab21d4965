"""DPoP at a resource server: the list of RFC 9449, section 4.3, nonces, and proofs that come a second time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.auth.resource.scene import (
    CLIENT,
    ED,
    KEY,
    NOW,
    OTHER,
    RESOURCE,
    RSA,
    Clock,
    bound,
    encoded,
    part,
    proof,
    protected,
    request,
    shown,
    token,
)
from trio_mcp.auth.server import proofs
from trio_mcp.http.rules.statuses import Refusal
from trio_mcp.http.server.protection import Guard, Identified

BOUND = bound()
PUBLIC = CLIENT.as_dict(private=False)
ENDLESS = {"kty": "RSA", "n": "_" * 6000, "e": "_" * 500}
WEAK = {"kty": "RSA", "n": encoded((1 << 1023 | 1).to_bytes(128)), "e": "AQAB"}


def changed(index: int, to: str) -> str:
    """Return a proof with one of its parts replaced."""
    parts = proof(BOUND).split(".")
    parts[index] = to
    return ".".join(parts)


GOOD: dict[str, Callable[[], str]] = {
    "plain": lambda: proof(BOUND),
    "host in capitals": lambda: proof(BOUND, htu="HTTPS://FILES.example.com/mcp"),
    "the scheme's own port": lambda: proof(BOUND, htu="https://files.example.com:443/mcp"),
    "a slash at the end": lambda: proof(BOUND, htu=f"{RESOURCE}/"),
    "a letter written otherwise": lambda: proof(BOUND, htu="https://files.example.com/%6dcp"),
    "a query": lambda: proof(BOUND, htu=f"{RESOURCE}?a=1#b"),
    "a handshake's scheme": lambda: proof(BOUND, htu="wss://files.example.com/mcp"),
    "as old as it may be": lambda: proof(BOUND, iat=int(NOW) - 300),
    "as early as it may be": lambda: proof(BOUND, iat=int(NOW) + 300),
    "a nonce that no one asked for": lambda: proof(BOUND, nonce="x"),
    "more claims": lambda: proof(BOUND, more=1),
}

# One for each way to fail a point of the list; its number comes first.
BAD: dict[str, Callable[[], str]] = {
    "2 no JWT": lambda: "x",
    "2 empty": lambda: "",
    "2 two of them in one field": lambda: f"{proof(BOUND)}, {proof(BOUND)}",
    "2 longer than anyone needs": lambda: proof(BOUND, pad="x" * 10_000),
    "2 a body that is a list": lambda: changed(1, part([])),
    "3 no jti": lambda: proof(BOUND, jti=...),
    "3 an empty jti": lambda: proof(BOUND, jti=""),
    "3 a jti that is a number": lambda: proof(BOUND, jti=1),
    "3 no htm": lambda: proof(BOUND, htm=...),
    "3 no htu": lambda: proof(BOUND, htu=...),
    "3 no iat": lambda: proof(BOUND, iat=...),
    "3 no ath": lambda: proof(BOUND, ath=...),
    "3 no jwk": lambda: proof(BOUND, {"jwk": ...}),
    "4 no typ": lambda: proof(BOUND, {"typ": ...}),
    "4 typ JWT": lambda: proof(BOUND, {"typ": "JWT"}),
    "4 typ of a token": lambda: proof(BOUND, {"typ": "at+jwt"}),
    "5 alg none": lambda: proof(BOUND, {"alg": "none"}),
    "5 alg HS256": lambda: changed(0, part({"alg": "HS256", "typ": "dpop+jwt", "jwk": PUBLIC})),
    "5 alg unknown": lambda: proof(BOUND, {"alg": "XX256"}),
    "5 no alg": lambda: changed(0, part({"typ": "dpop+jwt", "jwk": PUBLIC})),
    "5 alg of another key": lambda: changed(0, part({"alg": "RS256", "typ": "dpop+jwt", "jwk": PUBLIC})),
    "6 signed by another key": lambda: changed(2, proof(BOUND, key=OTHER).rpartition(".")[2]),
    "6 a body of another proof": lambda: changed(1, proof(BOUND, htm="POST").split(".")[1]),
    "6 no signature": lambda: changed(2, ""),
    "7 a private key": lambda: proof(BOUND, {"jwk": CLIENT.as_dict(private=True)}),
    "7 a symmetric key": lambda: proof(BOUND, {"jwk": {"kty": "oct", "k": "AAAA"}}),
    "7 a weak key": lambda: proof(BOUND, {"alg": "ES256", "jwk": WEAK}),
    "7 an endless key": lambda: proof(BOUND, {"alg": "RS256", "jwk": ENDLESS}, key=RSA),
    "7 a point off the curve": lambda: proof(BOUND, {"jwk": {"kty": "EC", "crv": "P-256", "x": "AAAA", "y": "AAAA"}}),
    "7 a key that is a text": lambda: proof(BOUND, {"jwk": "x"}),
    "7 a key for nothing": lambda: proof(BOUND, {"jwk": {**PUBLIC, "key_ops": 5}}),
    "7 crit": lambda: proof(BOUND, {"crit": ["exp"], "exp": 1}),
    "8 another method": lambda: proof(BOUND, htm="GET"),
    "8 a method in small letters": lambda: proof(BOUND, htm="post"),
    "9 another host": lambda: proof(BOUND, htu="https://evil.example/mcp"),
    "9 another path": lambda: proof(BOUND, htu="https://files.example.com/other"),
    "9 another scheme": lambda: proof(BOUND, htu="http://files.example.com/mcp"),
    "9 another port": lambda: proof(BOUND, htu="https://files.example.com:8443/mcp"),
    "9 a user in the URL": lambda: proof(BOUND, htu="https://u@files.example.com/mcp"),
    "9 a malformed URL": lambda: proof(BOUND, htu="https://[::1/mcp"),
    "9 a path with an escaped slash": lambda: proof(BOUND, htu="https://files.example.com/%2Fmcp"),
    "9 the host of the request": lambda: proof(BOUND, htu="https://internal:8000/mcp"),
    "11 too old": lambda: proof(BOUND, iat=int(NOW) - 301),
    "11 too early": lambda: proof(BOUND, iat=int(NOW) + 301),
    "11 a time that is a text": lambda: proof(BOUND, iat=str(int(NOW))),
    "11 a time that is true": lambda: proof(BOUND, iat=True),
    "11 an endless time": lambda: changed(1, part(b'{"htm":"POST","iat":1e400}')),
    "11 a time beyond all numbers": lambda: proof(BOUND, iat=10**400),
    "12 the hash of another token": lambda: proof("x"),
    "12 another key": lambda: proof(BOUND, key=OTHER),
    "12 another kind of key": lambda: proof(BOUND, {"alg": "Ed25519"}, key=ED),
}


async def judged(guard: Guard, of: str, given: str, method: str = "POST") -> tuple[int, str | None]:
    return shown(await guard.identify(request(method=method, authorization=f"DPoP {of}", dpop=given)))


@pytest.mark.parametrize("make", GOOD.values(), ids=GOOD)
async def test_good_proof(make: Callable[[], str]) -> None:
    async with protected() as (_, guard):
        assert await judged(guard, BOUND, make()) == (200, None)


@pytest.mark.parametrize("make", BAD.values(), ids=BAD)
async def test_bad_proof(make: Callable[[], str]) -> None:
    async with protected() as (_, guard):
        assert await judged(guard, BOUND, make()) == (401, "dpop invalid_dpop_proof")
        # Nor does it help to have shown a good one before, whose key is known now.
        assert await judged(guard, BOUND, proof(BOUND)) == (200, None)
        assert await judged(guard, BOUND, make()) == (401, "dpop invalid_dpop_proof")


async def test_each_algorithm_and_a_path_of_its_own() -> None:
    async with protected() as (_, guard):
        for key, algorithm in ((RSA, "RS256"), (RSA, "PS256"), (ED, "EdDSA"), (ED, "Ed25519"), (KEY, "ES256")):
            of = token(cnf={"jkt": key.thumbprint()})
            given = proof(of, {"alg": algorithm}, key=key, htu="https://files.example.com/messages", htm="GET")
            asked = request(method="GET", path="/messages", authorization=f"DPoP {of}", dpop=given)
            assert isinstance(await guard.identify(asked), Identified)


async def test_proof_works_once_as_long_as_it_could() -> None:
    clock = Clock()
    async with protected(clock=clock, remember=10_000) as (_, guard):
        of = bound(exp=int(NOW) + 10_000)
        # The last one is used late in the life of one half of the memory, and again in that of the next.
        for start, ahead in ((0, 0), (1000, 300), (1500, 300)):
            clock.now = NOW + start
            given = proof(of, iat=int(clock.now) + ahead)
            assert await judged(guard, of, given) == (200, None)
            for _ in range(6):
                assert await judged(guard, of, given) == (401, "dpop invalid_dpop_proof")
                clock.now += 100
        # The same name is another proof, if it is of another key.
        other = token(cnf={"jkt": OTHER.thumbprint()}, exp=int(NOW) + 10_000)
        assert await judged(guard, of, proof(of, jti="same", iat=int(clock.now))) == (200, None)
        assert await judged(guard, other, proof(other, key=OTHER, jti="same", iat=int(clock.now))) == (200, None)


def nonce_of(outcome: Any) -> str:
    assert isinstance(outcome, (Refusal, Identified))
    fields = outcome.headers if isinstance(outcome, Refusal) else outcome.fields
    return dict(fields)["DPoP-Nonce"]


async def test_nonces() -> None:
    clock = Clock()
    async with protected(clock=clock, nonces=True) as (_, guard):

        async def ask(nonce: Any = ...) -> Any:
            given = proof(BOUND, nonce=nonce, iat=int(clock.now))
            return await guard.identify(request(authorization=f"DPoP {BOUND}", dpop=given))

        refused = await ask()
        assert shown(refused) == (401, "dpop use_dpop_nonce")
        nonce = nonce_of(refused)
        fresh = await ask(nonce)
        assert (shown(fresh), fresh.fields) == ((200, None), ())
        for wrong in ("x", "", 1, None, nonce[:-1], nonce[:-1] + ("A" if nonce[-1] != "A" else "B"), "é", "A" * 32):
            assert shown(await ask(wrong)) == (401, "dpop use_dpop_nonce")
        # Halfway a new one comes with the response, and both work.
        clock.now += 151
        renewed = await ask(nonce)
        assert shown(renewed) == (200, None)
        assert shown(await ask(nonce_of(renewed))) == (200, None)
        # Later the old one does not.
        clock.now += 150
        assert shown(await ask(nonce)) == (401, "dpop use_dpop_nonce")


async def test_nonces_of_several_processes() -> None:
    secret = bytes(range(32))
    async with protected(nonces=secret) as (_, first), protected(nonces=secret) as (_, second):
        refused = await first.identify(request(authorization=f"DPoP {BOUND}", dpop=proof(BOUND)))
        given = proof(BOUND, nonce=nonce_of(refused))
        assert await judged(second, BOUND, given) == (200, None)


async def test_memory_of_proofs_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    # When there is no more room, all is forgotten, and what was forgotten is still refused, as it has no new nonce.
    monkeypatch.setattr(proofs, "MAX_PROOFS", 3)
    clock = Clock()
    async with protected(clock=clock) as (_, guard):
        used = [proof(BOUND) for _ in range(3)]
        for each in used:
            assert await judged(guard, BOUND, each) == (200, None)
        for each in used:
            assert await judged(guard, BOUND, each) == (401, "dpop use_dpop_nonce")
        refused = await guard.identify(request(authorization=f"DPoP {BOUND}", dpop=proof(BOUND)))
        given = proof(BOUND, nonce=nonce_of(refused))
        assert await judged(guard, BOUND, given) == (200, None)
        assert await judged(guard, BOUND, given) == (401, "dpop invalid_dpop_proof")
        # A nonce that was used before the next time that all is forgotten does not work after it.
        for _ in range(2):
            assert await judged(guard, BOUND, proof(BOUND, nonce=nonce_of(refused))) == (200, None)
        assert await judged(guard, BOUND, given) == (401, "dpop use_dpop_nonce")
        # In the end no nonce is needed any more.
        clock.now += 2 * proofs.PROOF_WINDOW + 1
        assert await judged(guard, BOUND, proof(BOUND, iat=int(clock.now))) == (200, None)


async def test_keys_of_clients_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proofs, "MAX_PROVERS", 1)
    async with protected() as (_, guard):
        for key in (CLIENT, OTHER, CLIENT):
            of = token(cnf={"jkt": key.thumbprint()})
            assert await judged(guard, of, proof(of, key=key)) == (200, None)
