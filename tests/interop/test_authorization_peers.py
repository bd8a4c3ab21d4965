"""Signing in with the official SDKs: their clients at our servers, and our client at theirs."""

from __future__ import annotations

import contextlib
import json
import secrets
import time
from collections.abc import AsyncIterator
from functools import partial
from typing import Any

import httpx
import httpx2
import mcp
import pytest
import trio
from mcp.client.auth import OAuthClientProvider
from mcp.client.streamable_http import streamable_http_client
from mcp.server.auth.middleware.auth_context import get_access_token
from mcp.server.auth.provider import (
    AccessToken,
    AuthorizationCode,
    AuthorizationParams,
    RefreshToken,
    construct_redirect_uri,
)
from mcp.server.auth.settings import AuthSettings, ClientRegistrationOptions, RevocationOptions
from mcp.server.mcpserver import MCPServer
from mcp.shared.auth import (
    AuthorizationCodeResult,
    OAuthClientInformationFull,
    OAuthClientMetadata,
    OAuthToken,
)

from tests.listening import on_held_port
from trio_mcp import Client
from trio_mcp.auth import OAuth
from trio_mcp.auth.testing import AuthorizationServer
from trio_mcp.http.runner.hypercorn.settings import settings_from
from trio_mcp.http.runner.serving import serve_asgi

from .node_peers import NodePeers
from .signing_in import protected
from .support import DEADLINE, PEERS
from .test_client_servers import listening

pytestmark = [
    pytest.mark.interop,
    pytest.mark.again,
    pytest.mark.filterwarnings("ignore::mcp.MCPDeprecationWarning"),
    # It leaves the streams that it has not read to the end to the garbage collector.
    pytest.mark.filterwarnings(r"ignore:Async generator '(httpx2|httpcore2|mcp)\.:ResourceWarning"),
]

REDIRECT = "http://127.0.0.1:8765/callback"


# --- mcp's client ------------------------------------------------------------------------------------------------


class Kept:
    """What mcp's client remembers, and the person who signs in."""

    def __init__(self, authority: AuthorizationServer) -> None:
        self.authority = authority
        self.tokens: OAuthToken | None = None
        self.client: OAuthClientInformationFull | None = None
        self.came: dict[str, str] = {}

    async def get_tokens(self) -> OAuthToken | None:
        return self.tokens

    async def set_tokens(self, tokens: OAuthToken) -> None:
        self.tokens = tokens

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        return self.client

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        self.client = client_info

    async def redirected(self, url: str) -> None:
        self.came = self.authority.sign_in(url)

    async def came_back(self) -> AuthorizationCodeResult:
        return AuthorizationCodeResult(**self.came)


@pytest.mark.parametrize("mode", ["legacy", "auto"])
async def test_the_official_python_client_signs_in_to_ours(mode: str) -> None:
    """By registration; it steps up, and refreshes a token that the server refuses."""
    authority = AuthorizationServer()
    kept = Kept(authority)
    async with authority.served() as issuer, protected(issuer) as url:
        provider = OAuthClientProvider(
            url,
            OAuthClientMetadata(redirect_uris=[REDIRECT], client_name="official"),
            kept,
            kept.redirected,
            kept.came_back,
        )
        async with (
            httpx2.AsyncClient(auth=provider) as http,
            mcp.Client(streamable_http_client(url, http_client=http), mode=mode) as client,
        ):
            assert (await client.call_tool("whoami")).content[0].text == f"alice at {issuer}"
            assert (await client.call_tool("write")).content[0].text == "written"
            assert authority.count("register") == 1
            provider.context.token_expiry_time = 1
            await client.call_tool("whoami")
            assert authority.count("token", grant_type="refresh_token") == 1
            assert authority.count("authorize") == 2


# --- the TypeScript clients --------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", ["v1", "v2"])
async def test_a_typescript_client_signs_in_to_ours(npm: NodePeers, environment: dict[str, str], version: str) -> None:
    """By registration; it refreshes a token that the server refuses. Version 1 refreshes to step up, too: in vain."""
    authority = AuthorizationServer()
    async with authority.served() as issuer, protected(issuer) as url:
        script = str(PEERS / "ts_auth_client.mjs")
        command = [str(npm.node), script, str(npm.modules), version, url]
        done = await trio.run_process(command, env=environment, capture_stdout=True)
    who = f"alice at {issuer}"
    stepped_up, asked = ("written", 2) if version == "v2" else (403, 1)
    assert json.loads(done.stdout) == {"said": [who, stepped_up, who], "asked": asked}
    assert authority.count("register") == 1
    assert authority.count("token", grant_type="refresh_token") >= 1


# --- mcp's server ------------------------------------------------------------------------------------------------


class Provider:
    """The least that mcp's authorization server stands on. It does not rotate refresh tokens by itself, so we do."""

    def __init__(self) -> None:
        self.clients: dict[str, OAuthClientInformationFull] = {}
        self.codes: dict[str, AuthorizationCode] = {}
        self.access: dict[str, AccessToken] = {}
        self.refresh: dict[str, RefreshToken] = {}

    async def get_client(self, client_id: str) -> OAuthClientInformationFull | None:
        return self.clients.get(client_id)

    async def register_client(self, client_info: OAuthClientInformationFull) -> None:
        self.clients[client_info.client_id] = client_info

    async def authorize(self, client: OAuthClientInformationFull, params: AuthorizationParams) -> str:
        code = secrets.token_urlsafe(32)
        self.codes[code] = AuthorizationCode(
            code=code,
            client_id=client.client_id,
            expires_at=time.time() + 60,
            subject="alice",
            **params.model_dump(exclude={"state", "scopes"}),
            scopes=params.scopes or [],
        )
        return construct_redirect_uri(str(params.redirect_uri), code=code, state=params.state)

    async def load_authorization_code(
        self, client: OAuthClientInformationFull, authorization_code: str
    ) -> AuthorizationCode | None:
        return self.codes.get(authorization_code)

    async def exchange_authorization_code(
        self, client: OAuthClientInformationFull, authorization_code: AuthorizationCode
    ) -> OAuthToken:
        del self.codes[authorization_code.code]
        return self._issued(authorization_code, authorization_code.scopes)

    async def load_refresh_token(self, client: OAuthClientInformationFull, refresh_token: str) -> RefreshToken | None:
        return self.refresh.get(refresh_token)

    async def exchange_refresh_token(
        self, client: OAuthClientInformationFull, refresh_token: RefreshToken, scopes: list[str]
    ) -> OAuthToken:
        del self.refresh[refresh_token.token]
        return self._issued(refresh_token, scopes)

    def _issued(self, granted: AuthorizationCode | RefreshToken, scopes: list[str]) -> OAuthToken:
        common = {"client_id": granted.client_id, "scopes": scopes, "resource": granted.resource, "subject": "alice"}
        access, refresh = secrets.token_urlsafe(32), secrets.token_urlsafe(32)
        self.access[access] = AccessToken(token=access, expires_at=int(time.time()) + 3600, **common)
        self.refresh[refresh] = RefreshToken(token=refresh, **common)
        return OAuthToken(access_token=access, refresh_token=refresh, expires_in=3600, scope=" ".join(scopes))

    async def load_access_token(self, token: str) -> AccessToken | None:
        return self.access.get(token)

    async def revoke_token(self, token: AccessToken | RefreshToken) -> None:
        self.access.clear()
        self.refresh.clear()


class Verifier:
    """Asks our authorization server about tokens."""

    def __init__(self, authority: AuthorizationServer) -> None:
        self.authority = authority

    async def verify_token(self, token: str) -> AccessToken | None:
        claims = self.authority.claims_of(token)
        return claims and AccessToken(
            token=token,
            client_id=claims["client_id"],
            scopes=claims["scope"].split(),
            expires_at=claims["exp"],
            resource=claims["aud"],
            subject=claims["sub"],
        )


@contextlib.asynccontextmanager
async def official(issuer: str | None, **settings: Any) -> AsyncIterator[str]:
    """Serve mcp's server, which is its own authorization server unless there is an issuer; yield its URL."""
    with on_held_port() as (port, config):
        origin = f"http://127.0.0.1:{port}"
        server = MCPServer(
            "official",
            auth=AuthSettings(
                issuer_url=issuer or origin,
                resource_server_url=f"{origin}/mcp",
                required_scopes=["read"],
                client_registration_options=ClientRegistrationOptions(enabled=True, valid_scopes=["read", "write"]),
                revocation_options=RevocationOptions(enabled=True),
                validate_token_resource=True,
            ),
            **settings,
        )

        @server.tool()
        def whoami() -> str:
            token = get_access_token()
            assert token is not None
            return str(token.subject)

        app = server.streamable_http_app()
        with trio.fail_after(DEADLINE):
            async with server.session_manager.run(), trio.open_nursery() as nursery:
                await nursery.start(partial(serve_asgi, app, settings_from(config)))
                yield f"{origin}/mcp"
                nursery.cancel_scope.cancel()


class Person:
    """A browser, at authorization servers that redirect at once.

    Attributes:
        asked: How often the person was asked.
    """

    def __init__(self) -> None:
        self.asked = 0

    async def show(self, url: str) -> str:
        self.asked += 1
        async with httpx.AsyncClient() as browser:
            return str((await browser.get(url)).headers["Location"])


@pytest.mark.parametrize("mode", ["legacy", "auto"])
@pytest.mark.parametrize("separate", [False, True], ids=["its own tokens", "our tokens"])
async def test_our_client_signs_in_to_the_official_python_server(separate: bool, mode: str) -> None:
    authority, provider = AuthorizationServer(tokens="opaque"), Provider()
    async with contextlib.AsyncExitStack() as stack:
        if separate:
            issuer = await stack.enter_async_context(authority.served())
            url = await stack.enter_async_context(official(issuer, token_verifier=Verifier(authority)))
        else:
            url = await stack.enter_async_context(official(None, auth_server_provider=provider))
        person = Person()
        oauth = OAuth(show=person.show)
        async with Client(url, mode=mode, auth=oauth) as client:
            assert (await client.call_tool("whoami")).text == "alice"
            # The server has forgotten the token, but not the login.
            if separate:
                authority.issued.expire()
            else:
                provider.access.clear()
            assert (await client.call_tool("whoami")).text == "alice"
        assert person.asked == 1
        assert await oauth.sign_out(url)
        assert not provider.refresh


# --- the TypeScript servers --------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", ["v1", "v2"])
async def test_our_client_signs_in_to_a_typescript_server(
    npm: NodePeers, environment: dict[str, str], version: str
) -> None:
    """Version 1 is its own authorization server; version 2 takes our tokens."""
    authority = AuthorizationServer(tokens="opaque")
    authority.add_client("resource", "secret", method="client_secret_post")
    script = str(PEERS / "ts_auth_server.mjs")
    async with authority.served() as issuer:
        command = [str(npm.node), script, str(npm.modules), version, issuer]
        async with listening(command, environment) as (url, _), httpx.AsyncClient() as browser:
            person = Person()
            oauth = OAuth(show=person.show)
            async with Client(url, auth=oauth) as client:
                assert (await client.call_tool("whoami")).text == "alice"
                # The server has forgotten the token, but not the login.
                await browser.get(url.replace("/mcp", "/forget"))
                authority.issued.expire()
                assert (await client.call_tool("whoami")).text == "alice"
            assert person.asked == 1
            assert await oauth.sign_out(url)
    assert authority.count("token", grant_type="refresh_token") == (version == "v2")
