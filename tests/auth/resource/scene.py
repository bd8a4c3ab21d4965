"""A protected server, an issuer whose tokens can be wrong in any way, and requests: nothing of it needs a network."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import itertools
import json
from collections.abc import AsyncIterator, Mapping
from typing import Any

import attrs
from joserfc import jwk
from joserfc.jws import JWSRegistry

from trio_mcp.auth import ResourceServer
from trio_mcp.auth.rules.challenges import Challenge, parse_challenges
from trio_mcp.auth.rules.steps import Fetch, Fetched
from trio_mcp.http.headers import Headers
from trio_mcp.http.rules.statuses import Refusal
from trio_mcp.http.server.asgi import HttpRequest
from trio_mcp.http.server.protection import Guard, Identified

RESOURCE = "https://files.example.com/mcp"
ISSUER = "https://id.example.com"
METADATA = "https://files.example.com/.well-known/oauth-protected-resource/mcp"
NOW = 1_800_000_000.0

KEY = jwk.ECKey.generate_key("P-256", {"kid": "k1", "use": "sig", "alg": "ES256"})
RSA = jwk.RSAKey.generate_key(2048, {"kid": "r1", "use": "sig"})
ED = jwk.OKPKey.generate_key("Ed25519", {"kid": "e1", "use": "sig"})
OTHER = jwk.ECKey.generate_key("P-256", {"kid": "k1"})
CLIENT = jwk.ECKey.generate_key("P-256")

_ids = itertools.count()


@attrs.define
class Clock:
    """A clock that a test sets."""

    now: float = NOW

    def __call__(self) -> float:
        return self.now


def public(*keys: Any) -> dict[str, Any]:
    """Return the JWKS of some keys."""
    return {"keys": [key.as_dict(private=False) for key in keys]}


@attrs.define
class Issuer:
    """An issuer: its documents by URL, what was fetched of it, and whether it responds."""

    documents: dict[str, Any] = attrs.field(factory=dict)
    fetched: list[str] = attrs.field(factory=list)
    away: int = 0
    fields: dict[str, str] = attrs.field(factory=dict)

    def __attrs_post_init__(self) -> None:
        self.documents.setdefault(
            f"{ISSUER}/.well-known/oauth-authorization-server",
            {
                "issuer": ISSUER,
                "jwks_uri": f"{ISSUER}/jwks",
                "authorization_endpoint": f"{ISSUER}/authorize",
                "token_endpoint": f"{ISSUER}/token",
                "response_types_supported": ["code"],
            },
        )
        self.documents.setdefault(f"{ISSUER}/jwks", public(KEY, RSA, ED))

    async def fetch(self, asked: Fetch) -> Fetched:
        self.fetched.append(asked.url)
        if self.away:
            return Fetched(self.away, Headers(), b"")
        found = self.documents.get(asked.url)
        if found is None:
            return Fetched(404, Headers(), b"")
        body = found if isinstance(found, bytes) else json.dumps(found).encode()
        return Fetched(200, Headers([("Content-Type", "application/json"), *self.fields.items()]), body)


def claims(**changes: Any) -> dict[str, Any]:
    """Return the claims of a good token, with some changed; `...` leaves one out."""
    found = {
        "iss": ISSUER,
        "sub": "alice",
        "aud": RESOURCE,
        "client_id": "app",
        "scope": "files:read",
        "iat": int(NOW) - 10,
        "exp": int(NOW) + 3600,
        "jti": "t1",
        **changes,
    }
    return {name: value for name, value in found.items() if value is not ...}


def token(header: Mapping[str, Any] | None = None, /, *, key: Any = KEY, **changes: Any) -> str:
    """Return a token that is good but for the changes of its header and its claims."""
    head = {"alg": "ES256", "kid": "k1", "typ": "at+jwt", **(header or {})}
    head = {name: value for name, value in head.items() if value is not ...}
    # The signature is of what is written here, whatever joserfc thinks of it.
    signed = f"{part(head)}.{part(claims(**changes))}"
    algorithm = JWSRegistry.algorithms[{"EdDSA": "Ed25519"}.get(head.get("alg", ""), head.get("alg", "ES256"))]
    return f"{signed}.{encoded(algorithm.sign(signed.encode(), key))}"


def encoded(data: bytes) -> str:
    """Return Base64url without padding."""
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def part(value: Any) -> str:
    """Return one part of a token."""
    return encoded(value if isinstance(value, bytes) else json.dumps(value).encode())


def bound(**changes: Any) -> str:
    """Return a token that is bound to the key of the client."""
    return token(cnf={"jkt": CLIENT.thumbprint()}, **changes)


def proof(of: str, header: Mapping[str, Any] | None = None, /, *, key: Any = CLIENT, **changes: Any) -> str:
    """Return a proof for a token that is good but for the changes."""
    head = {"alg": "ES256", "typ": "dpop+jwt", "jwk": key.as_dict(private=False), **(header or {})}
    body = {
        "jti": f"p{next(_ids)}",
        "htm": "POST",
        "htu": RESOURCE,
        "iat": int(NOW),
        "ath": encoded(hashlib.sha256(of.encode()).digest()),
        **changes,
    }
    parts = [{name: value for name, value in each.items() if value is not ...} for each in (head, body)]
    signed = f"{part(parts[0])}.{part(parts[1])}"
    algorithm = JWSRegistry.algorithms[head["alg"] if head["alg"] in JWSRegistry.algorithms else "ES256"]
    return f"{signed}.{encoded(algorithm.sign(signed.encode(), key))}"


def request(
    *fields: tuple[str, str],
    method: str = "POST",
    path: str = "/mcp",
    query: bytes = b"",
    authorization: str | None = None,
    dpop: str | None = None,
) -> HttpRequest:
    """Return the head of a request; its body must not be read."""

    async def receive() -> dict[str, Any]:
        raise AssertionError("the body was read")

    given = [("Authorization", authorization), ("DPoP", dpop)]
    pairs = [*fields, *((name, value) for name, value in given if value is not None)]
    encoded = [(name.lower().encode(), value.encode()) for name, value in pairs]
    scope = {"type": "http", "method": method, "path": path, "query_string": query, "headers": encoded}
    return HttpRequest(scope, receive, Headers(pairs))


def bearer(of: str) -> HttpRequest:
    """Return a request with a token."""
    return request(authorization=f"Bearer {of}")


@contextlib.asynccontextmanager
async def protected(
    issuer: Issuer | None = None, clock: Clock | None = None, **options: Any
) -> AsyncIterator[tuple[ResourceServer, Guard]]:
    """Open a protected server in its simplest form, with other options, or with what processes share."""
    shared = {name: options.pop(name, None) for name in ("stores", "secret")}
    settings: dict[str, Any] = {
        "issuers": [ISSUER],
        "scopes": ["files:read"],
        "fetch": (issuer or Issuer()).fetch,
        "clock": clock or Clock(),
        **options,
    }
    server = ResourceServer(settings.pop("resource", RESOURCE), **settings)
    async with server.opened(**shared) as guard:
        yield server, guard


def challenges(refusal: Refusal) -> list[Challenge]:
    """Return the challenges of a refusal."""
    return [
        challenge
        for name, value in refusal.headers
        if name == "WWW-Authenticate"
        for challenge in parse_challenges(value)
    ]


def shown(outcome: Identified | Refusal) -> tuple[int, str | None]:
    """Return the status of an outcome, and the schemes and error codes of its challenges, as one text."""
    if isinstance(outcome, Identified):
        return 200, None
    found = [f"{each.scheme} {each.parameters.get('error', '')}".strip() for each in challenges(outcome)]
    return outcome.status, ", ".join(found) or None
