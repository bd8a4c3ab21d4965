"""Our client and our server with a certified authorization server: npm's `oidc-provider`."""

from __future__ import annotations

import base64
import html
import json
import re
import subprocess
from collections.abc import Iterator
from typing import Any
from urllib.parse import urljoin

import attrs
import httpx
import pytest

from trio_mcp import Client
from trio_mcp.auth import (
    IntrospectionVerifier,
    JwtVerifier,
    MemoryTokens,
    OAuth,
    RegisteredClient,
    TokenExchange,
)
from trio_mcp.auth.rules.login import Login
from trio_mcp.auth.rules.steps import ShowCode
from trio_mcp.conformance import check_issuers

from .node_peers import NodePeers
from .signing_in import protected
from .support import PEERS, marked_environment

pytestmark = [pytest.mark.interop, pytest.mark.again]

REDIRECT = "http://127.0.0.1/callback"
DOCUMENT = "https://app.example.com/client.json"
SECRET = "a secret of at least 32 characters"
API = "https://api.example.com"
NATIVE = {
    "redirect_uris": [REDIRECT],
    "application_type": "native",
    "grant_types": ["authorization_code", "refresh_token", "urn:ietf:params:oauth:grant-type:device_code"],
    "response_types": ["code"],
    "token_endpoint_auth_method": "none",
}
SETTINGS = {
    "clients": [
        {**NATIVE, "client_id": "public"},
        {**NATIVE, "client_id": "basic", "client_secret": SECRET, "token_endpoint_auth_method": "client_secret_basic"},
        {**NATIVE, "client_id": "post", "client_secret": SECRET, "token_endpoint_auth_method": "client_secret_post"},
        {
            "client_id": "files",
            "client_secret": SECRET,
            "grant_types": ["urn:ietf:params:oauth:grant-type:token-exchange"],
            "redirect_uris": [],
            "response_types": [],
        },
    ],
    "services": [API],
    "documents": {DOCUMENT: {**NATIVE, "client_id": DOCUMENT, "client_name": "App"}},
}


@pytest.fixture(scope="module")
def issuer(npm: NodePeers) -> Iterator[str]:
    command = [str(npm.node), str(PEERS / "oidc_provider.mjs"), str(npm.modules), json.dumps(SETTINGS)]
    with (
        marked_environment() as environment,
        subprocess.Popen(
            command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        ) as process,
    ):
        assert process.stdout is not None
        try:
            yield next(line.strip() for line in process.stdout if line.startswith("http://"))
        finally:
            process.kill()


def tags(name: str, page: str) -> list[dict[str, str]]:
    """Return the attributes of each tag of a kind."""
    found = [dict(re.findall(r'(\w+)="([^"]*)"', each)) for each in re.findall(rf"<{name}\s([^>]*)>", page)]
    return [{key: html.unescape(value) for key, value in each.items()} for each in found]


class Person:
    """A browser with cookies, which sends each form as it is, and types what a field needs.

    Attributes:
        asked: How often the person was asked.
    """

    def __init__(self) -> None:
        self.asked = 0

    async def show(self, url: str) -> str:
        """Sign in, and return where that led to."""
        self.asked += 1
        async with httpx.AsyncClient() as browser:
            response = await browser.get(url)
            while True:
                if response.is_redirect:
                    where = urljoin(str(response.url), response.headers["Location"])
                    if "/callback?" in where:
                        return where
                    response = await browser.get(where)
                elif forms := tags("form", response.text):
                    fields = {each["name"]: each.get("value", "alice") for each in tags("input", response.text)}
                    where = urljoin(str(response.url), forms[0]["action"])
                    response = await browser.post(where, data=fields)
                else:
                    return response.text

    async def show_code(self, shown: ShowCode) -> None:
        """Enter the code of a device."""
        assert "Sign-in Success" in await self.show(shown.complete_url or shown.url)


def given(name: str, **settings: Any) -> dict[str, Any]:
    return {"client": RegisteredClient(name, prompt="consent", **settings)}


@attrs.frozen
class Case:
    """One way to sign in.

    Attributes:
        oauth: The arguments of `OAuth`.
        server: Those of `ResourceServer`.
        opaque: Whether tokens are opaque.
        rotates: Whether the provider gives a new refresh token each time: to public clients without a key.
    """

    oauth: dict[str, Any]
    server: dict[str, Any] = attrs.field(factory=lambda: {"dpop": "off"})
    opaque: bool = False
    rotates: bool = True


CASES = {
    "registered": Case({}),
    "registered, opaque": Case({}, opaque=True),
    "document": Case({"metadata_url": DOCUMENT}),
    "public": Case(given("public")),
    "basic": Case(given("basic", secret=SECRET), opaque=True, rotates=False),
    "post": Case(given("post", secret=SECRET, method="client_secret_post"), rotates=False),
    "DPoP": Case({}, {"dpop": "require"}, rotates=False),
    "DPoP, opaque": Case({}, {"dpop": "accept"}, opaque=True, rotates=False),
    "DPoP, nonces": Case({"dpop": "require"}, {"dpop": "require", "nonces": True}, rotates=False),
    "device": Case({"redirect": None}, {"dpop": "require"}, rotates=False),  # it polls every 5 seconds
}


async def stored(store: MemoryTokens, url: str) -> Login:
    return Login.from_json(await store.load(url) or "")


async def expire(store: MemoryTokens, url: str) -> None:
    await store.save(url, attrs.evolve(await stored(store, url), expires_at=1).to_json())


@pytest.mark.parametrize("name", CASES)
async def test_a_person_signs_in_and_stays_signed_in(issuer: str, name: str) -> None:
    case, person, store = CASES[name], Person(), MemoryTokens()
    settings: dict[str, Any] = {"show": person.show, "show_code": person.show_code, "store": store, **case.oauth}
    verifier = IntrospectionVerifier("basic", SECRET) if case.opaque else JwtVerifier()
    path = "/opaque" if case.opaque else "/mcp"
    async with protected(issuer, path, verifier=verifier, **case.server) as url:
        async with Client(url, auth=OAuth(**settings)) as client:
            assert (await client.call_tool("whoami")).text == f"alice at {issuer}"
            first = await stored(store, url)
            assert first.token_type == ("DPoP" if case.server["dpop"] != "off" else "Bearer")
            assert first.resource == url
            assert (first.access_token.count(".") == 2) is not case.opaque
        await expire(store, url)
        oauth = OAuth(**settings)  # another program
        async with Client(url, auth=oauth) as client:
            assert (await client.call_tool("whoami")).text == f"alice at {issuer}"
            second = await stored(store, url)
            assert first.access_token != second.access_token
            assert (first.refresh_token != second.refresh_token) is case.rotates
            assert person.asked == 1
            if name != "device":
                assert (await client.call_tool("write")).text == "written"  # by a step-up
                assert person.asked == 2
        assert await oauth.sign_out(url)
        assert not await oauth.sign_out(url)


async def test_a_refresh_token_that_was_stolen_and_used_ends_the_login(issuer: str) -> None:
    person, store = Person(), MemoryTokens()
    settings: dict[str, Any] = {"show": person.show, "store": store, **given("public")}
    resource = protected(issuer, "/mcp", verifier=JwtVerifier(), dpop="off")
    async with resource as url, httpx.AsyncClient() as thief:
        async with Client(url, auth=OAuth(**settings)) as client:
            await client.call_tool("whoami")
        login = await stored(store, url)
        form = {"grant_type": "refresh_token", "client_id": "public", "refresh_token": login.refresh_token}
        assert (await thief.post(login.token_endpoint, data=form)).status_code == 200
        await expire(store, url)
        async with Client(url, auth=OAuth(**settings)) as client:
            await client.call_tool("whoami")
        assert person.asked == 2


@pytest.mark.parametrize("target", ["audience", "resource"])
async def test_a_server_exchanges_the_token_of_its_caller(issuer: str, target: Any) -> None:
    person, client = Person(), RegisteredClient("files", secret=SECRET)
    exchange = TokenExchange({API: ["read"], "https://other.example.com": ["read"]}, client=client, target=target)
    verifier = IntrospectionVerifier("basic", SECRET)
    async with (
        protected(issuer, "/opaque", verifier=verifier, dpop="off", exchange=exchange) as url,
        Client(url, auth=OAuth(show=person.show, store=MemoryTokens(), **given("public"))) as alice,
    ):
        token = (await alice.call_tool("token", {"service": API})).text
        claims = json.loads(base64.urlsafe_b64decode(token.split(".")[1] + "=="))
        assert (claims["sub"], claims["aud"], claims["client_id"]) == ("alice", API, "files")
        assert (claims["iss"], claims["scope"]) == (issuer, "read")
        assert (await alice.call_tool("token", {"service": API})).text == token
        for refused in ("https://other.example.com", "https://evil.example.com"):
            assert (await alice.call_tool("token", {"service": refused})).is_error


@pytest.mark.parametrize("client", [None, "public"])
async def test_the_kit_judges_it(issuer: str, client: str | None) -> None:
    """It is certified: what the kit finds is what it leaves to its operator."""
    person = Person()
    async with protected(issuer) as url:
        report = await check_issuers(url, sign_in=True, client_id=client, show=person.show)
    assert report.undecided == ()
    assert [(outcome.rule.id, outcome.failure) for outcome in report.broken] == []
    unheld = {outcome.rule.id for outcome in report.outcomes if outcome.status != "held"}
    # A client that is known beforehand has to get the consent for refresh tokens in another way.
    assert unheld == ({"refresh-tokens-replaced"} if client else set())
