"""The rows of the table once more, at a real endpoint: whether the body is read, and whether a handler runs."""

from __future__ import annotations

import json
from typing import Any

import attrs
import pytest
import trio

from tests.auth.resource.scene import ISSUER, RESOURCE, Clock, Issuer, token
from tests.auth.resource.test_table import ROWS, Row, Shape, with_proof
from tests.auth.server.guarded import META, Runner
from tests.http_peer import ACCEPT
from trio_mcp import Context, Server
from trio_mcp.auth import ResourceServer
from trio_mcp.auth.rules.challenges import parse_challenges
from trio_mcp.http.server.asgi import EXTRAS, HttpRequest

# HTTP+SSE has no call that stands alone; tests/auth/server has its handshake.
REVISIONS = ("2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28")


@attrs.define
class Outcome:
    """What came back, and what the server did for it."""

    status: int = 0
    challenges: str | None = None
    fields: dict[str, str] = attrs.field(factory=dict)
    body: bytes = b""
    read: bool = False


async def ask(app: Any, asked: HttpRequest, message: Any) -> Outcome:
    """Make an exchange."""
    outcome = Outcome()
    found: list[str] = []

    async def receive() -> dict[str, Any]:
        if outcome.read:
            await trio.sleep_forever()
        outcome.read = True
        return {"type": "http.request", "body": json.dumps(message).encode(), "more_body": False}

    async def send(event: dict[str, Any]) -> None:
        await trio.lowlevel.checkpoint()
        if event["type"] == "http.response.start":
            outcome.status = event["status"]
            for name, value in event["headers"]:
                if name.lower() == b"www-authenticate":
                    parsed = parse_challenges(value.decode())
                    found.extend(f"{each.scheme} {each.parameters.get('error', '')}".strip() for each in parsed)
                outcome.fields[name.decode().lower()] = value.decode()
        else:
            outcome.body += event["body"]

    scope = {**asked.scope, "extensions": {EXTRAS: Runner()}, "server": ("192.0.2.1", 443), "http_version": "1.1"}
    await app(scope, receive, send)
    outcome.challenges = ", ".join(found) or None
    return outcome


def call(revision: str, name: str) -> tuple[Shape, dict[str, Any]]:
    """Return the head and the body of a call of a tool."""
    params: dict[str, Any] = {"name": name, "arguments": {}}
    fields = {"Accept": ACCEPT, "Content-Type": "application/json"}
    if revision == "2026-07-28":
        params["_meta"] = META
        fields |= {"Mcp-Method": "tools/call", "Mcp-Name": name}
    return Shape(revision, fields=fields), {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}


@pytest.mark.parametrize("row", ROWS.values(), ids=ROWS)
async def test_row(row: Row) -> None:
    ran: list[str | None] = []
    server = Server("files")

    @server.tool
    async def read(ctx: Context[Any]) -> str:
        ran.append(ctx.principal and ctx.principal.subject)
        return "done"

    @server.tool(scopes=["files:write"])
    async def write(ctx: Context[Any]) -> str:
        ran.append(ctx.principal and ctx.principal.subject)
        return "done"

    settings: dict[str, Any] = {"issuer": Issuer(), "scopes": ["files:read"], **row.options}
    issuer = settings.pop("issuer")
    auth = ResourceServer(RESOURCE, issuers=[ISSUER], fetch=issuer.fetch, clock=Clock(), **settings)
    async with server.asgi_app(auth=auth, stateless=True, allowed_hosts=["evil.example"]) as app:
        for revision in REVISIONS:
            ran.clear()
            shape, message = call(revision, "write" if row.needed else "read")
            outcome = await ask(app, row.brings(shape), message)
            assert (revision, outcome.status, outcome.challenges) == (revision, row.status, row.challenges)
            assert ran == (["alice"] if row.status == 200 else [])
            # What a token allows is judged by the head where it names the operation, else by the body; all else by the
            # head alone.
            needs_body = row.status == 200 or (row.status == 403 and revision != "2026-07-28")
            assert outcome.read == needs_body


async def test_nonce_comes_with_the_response() -> None:
    server, clock = Server("files"), Clock()
    auth = ResourceServer(RESOURCE, issuers=[ISSUER], fetch=Issuer().fetch, clock=clock, nonces=True)
    async with server.asgi_app(auth=auth, stateless=True, allowed_hosts=["evil.example"]) as app:
        shape, message = call("2026-07-28", "read")
        refused = await ask(app, with_proof()(shape), message)
        clock.now += 200
        renewed = await ask(app, with_proof(nonce=refused.fields["dpop-nonce"], iat=int(clock.now))(shape), message)
        assert renewed.fields["dpop-nonce"] != refused.fields["dpop-nonce"]


async def test_batch_with_one_missing_scope_is_refused_whole() -> None:
    ran: list[str] = []
    server = Server("files")

    @server.tool
    async def read() -> str:
        ran.append("read")
        return ""

    @server.tool(scopes=["files:write"])
    async def write() -> str:
        ran.append("write")
        return ""

    auth = ResourceServer(RESOURCE, issuers=[ISSUER], scopes=["files:read"], fetch=Issuer().fetch, clock=Clock())
    async with server.asgi_app(auth=auth, stateless=True, allowed_hosts=["evil.example"]) as app:
        shape, first = call("2025-03-26", "read")
        _, second = call("2025-03-26", "write")
        outcome = await ask(app, shape.request(authorization=f"Bearer {token()}"), [first, {**second, "id": 2}])
        assert (outcome.status, ran) == (403, [])
        assert 'scope="files:read files:write"' in outcome.fields["www-authenticate"]
