"""A client, a protected server and an authorization server, over sockets on loopback."""

from __future__ import annotations

from functools import partial
from typing import Any, Literal

import pytest

from tests.listening import on_held_port
from trio_mcp import Client, Context, Server
from trio_mcp._nursery import background_nursery
from trio_mcp.auth import ClientCredentials, IntrospectionVerifier, JwtVerifier, ResourceServer
from trio_mcp.auth.testing import AuthorizationServer

KINDS: dict[str, dict[str, Any]] = {
    "JWT": {"tokens": "jwt"},
    "opaque": {"tokens": "opaque"},
    "JWT with DPoP and nonces": {"tokens": "jwt", "dpop": "require", "dpop_nonces": True},
}


@pytest.mark.parametrize("kind", KINDS)
async def test_call(kind: str) -> None:
    issuer = AuthorizationServer(scopes=("read", "write"), **KINDS[kind])
    issuer.add_client("robot", "s3cret", grants=["client_credentials"])
    issuer.add_client("files", "s3cret")
    server = Server("files")

    @server.tool(scopes=["write"])
    async def write(ctx: Context[Any]) -> str:
        assert ctx.principal is not None
        return f"{ctx.principal.subject} of {ctx.principal.issuer}"

    with on_held_port() as (port, config):
        async with issuer.served() as url, background_nursery() as nursery:
            bound: Literal["require", "accept"] = "require" if "DPoP" in kind else "accept"
            auth = ResourceServer(
                f"http://127.0.0.1:{port}/mcp",
                issuers=[url],
                scopes=["read"],
                verifier=IntrospectionVerifier("files", "s3cret") if kind == "opaque" else JwtVerifier(),
                dpop=bound,
                nonces=bound == "require",
            )
            where = await nursery.start(partial(server.serve_http, config=config, auth=auth))
            credentials = ClientCredentials("robot", secret="s3cret", scopes=["read", "write"])
            async with Client(where, auth=credentials) as client:
                for _ in range(3):
                    result = await client.call_tool("write", {})
                    assert result.structured_content == {"result": f"robot of {url}"}
    # One key set or one question, however many requests.
    assert issuer.count("jwks") + issuer.count("introspect") == 1
    assert issuer.count("token", grant_type="client_credentials") <= 2
