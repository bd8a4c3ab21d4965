"""Whatever a request says, it is judged: nothing in its head raises, and nothing that was not signed gets in."""

from __future__ import annotations

from typing import Any

import trio
from hypothesis import given, settings, strategies as st

from tests.auth.resource.scene import (
    CLIENT,
    KEY,
    OTHER,
    bearer,
    bound,
    claims,
    encoded,
    part,
    proof,
    protected,
    public,
    request,
    token,
)
from trio_mcp.auth import JwtVerifier
from trio_mcp.http.rules.statuses import Refusal

BOUND = bound()
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.just(10**400),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
HEADER = ["alg", "typ", "kid", "jwk", "crit", "b64"]
TIMES = ["exp", "nbf", "iat"]
WHO = ["iss", "sub", "aud", "scope", "scp", "cnf", "client_id", "azp", "nonce", "events"]
PROOF = ["jti", "htm", "htu", "ath"]
PUBLIC = ["kty", "crv", "x", "y", "n", "e", "d", "k", "use", "key_ops", "alg", "kid", "x5c"]
NAMES = st.sampled_from([*HEADER, *TIMES, *WHO, *PROOF])
CHANGES = st.dictionaries(NAMES, VALUES, max_size=4)
JWK = st.dictionaries(st.sampled_from(PUBLIC), VALUES, max_size=4)


def judged(*requests: Any) -> None:
    async def main() -> None:
        async with protected(verifier=JwtVerifier(keys=public(KEY))) as (_, guard):
            for each in requests:
                assert isinstance(await guard.identify(each), Refusal)

    trio.run(main)


def unsigned(header: dict[str, Any], body: dict[str, Any], signature: bytes) -> str:
    return f"{part(header)}.{part(body)}.{encoded(signature)}"


@settings(max_examples=60, deadline=None)
@given(header=CHANGES, changes=CHANGES, jwk=JWK, signature=st.binary(min_size=1, max_size=80))
def test_tokens_and_proofs(header: Any, changes: Any, jwk: Any, signature: bytes) -> None:
    head = {"alg": "ES256", "kid": "k1", "typ": "at+jwt", **header}
    proving = {"alg": "ES256", "typ": "dpop+jwt", "jwk": {**CLIENT.as_dict(private=False), **jwk}, **header}
    proofs = (unsigned(proving, changes, signature), proof(BOUND, key=OTHER, **changes))
    judged(
        bearer(unsigned(head, {**claims(), **changes}, signature)),
        *(request(authorization=f"DPoP {BOUND}", dpop=each) for each in proofs),
    )


# A field is bytes, so no half of a character gets in.
CHARACTERS = st.characters(codec="utf-8")


@settings(max_examples=60, deadline=None)
@given(field=st.text(st.characters(max_codepoint=255)), query=st.binary(), at=st.integers(0), to=CHARACTERS)
def test_fields(field: str, query: bytes, at: int, to: str) -> None:
    good = token()
    at %= len(good) - 1  # of the last letter, only two bits count
    bent = good[:at] + to + good[at + 1 :]
    requests = [
        request(authorization=field),
        request(authorization=f"Bearer {field}"),
        request(authorization=f"DPoP {BOUND}", dpop=field),
        request(query=query),
    ]
    judged(*requests, *([bearer(bent)] if bent != good else []))
