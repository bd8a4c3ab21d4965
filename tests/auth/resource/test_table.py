"""What a request gets at a protected server: by what it brings, and in each revision."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import attrs
import pytest

from tests.auth.resource.scene import (
    METADATA,
    NOW,
    Issuer,
    bound,
    challenges,
    proof,
    protected,
    request,
    shown,
    token,
)
from trio_mcp.http.rules.statuses import Refusal
from trio_mcp.http.server.asgi import HttpRequest
from trio_mcp.http.server.protection import Identified
from trio_mcp.types.versions import REVISIONS


@attrs.frozen
class Shape:
    """A kind of request: all that matters of it to a protected server is its head."""

    revision: str
    method: str = "POST"
    path: str = "/mcp"
    fields: Mapping[str, str] = attrs.field(factory=dict)

    def request(self, *more: tuple[str, str], **given: Any) -> HttpRequest:
        version = {} if self.revision < "2025-06-18" else {"MCP-Protocol-Version": self.revision}
        fields = {"Host": "evil.example", "Forwarded": "host=evil.example", **version, **self.fields}
        return request(*fields.items(), *more, method=self.method, path=self.path, **given)


SESSION = {"Mcp-Session-Id": "s"}
SHAPES = {
    "2024-11-05 stream": Shape("2024-11-05", "GET", "/sse"),
    "2024-11-05 message": Shape("2024-11-05", "POST", "/messages"),
    "2025-03-26 batch": Shape("2025-03-26"),
    "2025-06-18 initialize": Shape("2025-06-18"),
    "2025-06-18 stream": Shape("2025-06-18", "GET", fields=SESSION),
    "2025-11-25 resumption": Shape("2025-11-25", "GET", fields={**SESSION, "Last-Event-ID": "e"}),
    "2025-11-25 end": Shape("2025-11-25", "DELETE", fields=SESSION),
    "2026-07-28 call": Shape("2026-07-28", fields={"Mcp-Method": "tools/call", "Mcp-Name": "write"}),
    "2026-07-28 handshake": Shape("2026-07-28", "GET", fields={"Upgrade": "websocket"}),
}


@attrs.frozen
class Row:
    """What a request brings, and what it gets.

    Attributes:
        brings: Its credentials, for a shape.
        status: The HTTP status.
        challenges: The schemes and the error codes.
        options: Settings of the server.
        needed: The scopes that the operation needs, besides files:read.
    """

    brings: Callable[[Shape], HttpRequest]
    status: int
    challenges: str | None
    options: Mapping[str, Any] = attrs.field(factory=dict)
    needed: frozenset[str] = frozenset()


def with_token(make: Callable[[], str], scheme: str = "Bearer", **given: Any) -> Callable[[Shape], HttpRequest]:
    return lambda shape: shape.request(authorization=f"{scheme} {make()}", **given)


def with_proof(times: int = 1, make: Callable[[], str] = bound, **changes: Any) -> Callable[[Shape], HttpRequest]:
    def brings(shape: Shape) -> HttpRequest:
        of = make()
        url = f"https://files.example.com{shape.path}"
        made = [proof(of, **{"htm": shape.method, "htu": url, **changes}) for _ in range(times)]
        return shape.request(*(("DPoP", each) for each in made), authorization=f"DPoP {of}")

    return brings


OFF, REQUIRED = {"dpop": "off"}, {"dpop": "require"}
ASKED = "bearer, dpop"
MALFORMED = "bearer invalid_request, dpop invalid_request"
REFUSED = "bearer invalid_token, dpop invalid_token"
SCOPE = "bearer insufficient_scope, dpop insufficient_scope"
FREE, BOUND = token(), bound()
WRITE = frozenset({"files:write"})
AWAY = {"issuer": Issuer(away=503)}


INCLUDES = {"includes": lambda granted, needed: granted == "files:*" and needed.startswith("files:")}


ROWS = {
    "nothing": Row(Shape.request, 401, ASKED),
    "nothing, without DPoP": Row(Shape.request, 401, "bearer", OFF),
    "nothing, with DPoP only": Row(Shape.request, 401, "dpop", REQUIRED),
    "a password": Row(lambda shape: shape.request(authorization="Basic YTpi"), 401, ASKED),
    "a proof alone": Row(lambda shape: shape.request(dpop=proof("x")), 401, ASKED),
    "a token alone": Row(lambda shape: shape.request(authorization=token()), 401, ASKED),
    "a scheme alone": Row(lambda shape: shape.request(authorization="Bearer"), 400, MALFORMED),
    "two tokens in a field": Row(with_token(lambda: f"{token()} {token()}"), 400, MALFORMED),
    "a list of tokens": Row(with_token(lambda: f"{token()}, Bearer {token()}"), 400, MALFORMED),
    "two fields": Row(lambda shape: shape.request(*[("Authorization", f"Bearer {token()}")] * 2), 400, MALFORMED),
    "two fields, one with a password": Row(
        lambda shape: shape.request(("Authorization", "Basic YTpi"), authorization=f"Bearer {token()}"), 400, MALFORMED
    ),
    "a malformed token": Row(with_token(lambda: '"<x>"'), 400, MALFORMED),
    "a token of 20 KiB": Row(with_token(lambda: token(pad="x" * 20_000)), 400, MALFORMED),
    "a token in the URL": Row(lambda shape: shape.request(query=b"access_token=" + token().encode()), 400, MALFORMED),
    "a token in the URL, too": Row(with_token(token, query=b"a=1&Access_Token=x"), 400, MALFORMED),
    "a token in the URL, written otherwise": Row(with_token(token, query=b"%61ccess_token=x"), 400, MALFORMED),
    "another parameter": Row(with_token(token, query=b"q=access_token"), 200, None),
    "a good token": Row(with_token(token), 200, None),
    "a good token, small scheme": Row(with_token(token, "bearer"), 200, None),
    "an expired token": Row(with_token(lambda: token(exp=int(NOW) - 60)), 401, REFUSED),
    "a token of another server": Row(with_token(lambda: token(aud="https://evil.example")), 401, REFUSED),
    "a token without the scope": Row(with_token(lambda: token(scope="other")), 403, SCOPE),
    "a token without scopes": Row(with_token(lambda: token(scope=...)), 403, SCOPE),
    "a tool that needs more": Row(with_token(token), 403, SCOPE, {}, WRITE),
    "a tool that needs what is there": Row(
        with_token(lambda: token(scope="files:write files:read")), 200, None, {}, WRITE
    ),
    "a scope that includes it": Row(with_token(lambda: token(scope="files:*")), 200, None, INCLUDES, WRITE),
    "a scope that does not": Row(with_token(lambda: token(scope="file:*")), 403, SCOPE, INCLUDES, WRITE),
    "an issuer that is away": Row(with_token(token), 503, None, AWAY),
    "a bound token with its proof": Row(with_proof(), 200, None),
    "a bound token with its proof, where it must be": Row(with_proof(), 200, None, REQUIRED),
    "a bound token without a proof": Row(with_token(bound, "DPoP"), 401, "dpop invalid_dpop_proof"),
    "a bound token as a bearer": Row(with_token(bound), 401, "dpop invalid_token"),
    "a bound token as a bearer, without DPoP": Row(with_token(bound), 401, "bearer invalid_token", OFF),
    "a bound token, without DPoP": Row(with_proof(), 401, "bearer invalid_token", OFF),
    "a free token with DPoP": Row(with_proof(make=token), 401, "bearer invalid_token"),
    "a free token as a bearer, with DPoP only": Row(with_token(token), 401, "dpop invalid_token", REQUIRED),
    "two proofs": Row(with_proof(2), 401, "dpop invalid_dpop_proof"),
    "a proof of another method": Row(with_proof(htm="PUT"), 401, "dpop invalid_dpop_proof"),
    "a proof without a nonce": Row(with_proof(), 401, "dpop use_dpop_nonce", {"nonces": True}),
}


@pytest.mark.parametrize("row", ROWS.values(), ids=ROWS)
async def test_row(row: Row) -> None:
    async with protected(**row.options) as (server, guard):
        for name, shape in SHAPES.items():
            outcome: Any = await guard.identify(row.brings(shape))
            if isinstance(outcome, Identified):
                outcome = server.permit(outcome.principal, row.needed) or outcome
            assert (name, *shown(outcome)) == (name, row.status, row.challenges)
            if isinstance(outcome, Refusal):
                check_refusal(outcome, row)


def check_refusal(outcome: Refusal, row: Row) -> None:
    """Check what each refusal says, whatever it is for."""
    for challenge in challenges(outcome):
        given = challenge.parameters
        assert given["resource_metadata"] == METADATA  # whatever Host and Forwarded say
        needed = {"files:read", *(row.needed if row.status == 403 else ())}
        assert set(given["scope"].split()) == needed
        assert ("error" in given) == ("error_description" in given)
        assert ("algs" in given) == (challenge.scheme == "dpop")
    names = [name for name, _ in outcome.headers]
    assert ("WWW-Authenticate" in names) == (row.status != 503)
    assert ("DPoP-Nonce" in names) == (row.challenges == "dpop use_dpop_nonce")
    assert "evil.example" not in str(outcome.headers)


@pytest.mark.parametrize(
    ("options", "first", "then", "expected"),
    [
        ({}, f"Bearer {FREE}", f"Basic {FREE}", (401, "bearer invalid_token")),
        ({}, f"Bearer {FREE}", f"DPoP {FREE}", (401, "bearer invalid_token")),
        ({}, f"Bearer {FREE}", f"Bearer {FREE}, Bearer {FREE}", (400, MALFORMED)),
        (REQUIRED, f"DPoP {FREE}", f"Bearer {FREE}", (401, "dpop invalid_token")),
        ({}, f"Bearer {BOUND}", f"Basic {BOUND}", (401, "dpop invalid_token")),
        ({}, f"Bearer {BOUND}", f"Bearer {BOUND}", (401, "dpop invalid_token")),
    ],
)
async def test_a_token_that_is_known(options: Any, first: str, then: str, expected: tuple[int, str]) -> None:
    async with protected(**options) as (_, guard):
        await guard.identify(request(authorization=first))
        good = proof(then.rpartition(" ")[2])
        assert shown(await guard.identify(request(authorization=then, dpop=good))) == expected
        in_the_url = request(authorization=first, query=b"access_token=x")
        assert shown(await guard.identify(in_the_url))[0] == 400


def test_every_revision_has_a_shape() -> None:
    assert {shape.revision for shape in SHAPES.values()} == set(REVISIONS)
