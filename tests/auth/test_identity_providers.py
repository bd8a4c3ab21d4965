"""The recipes of docs/how-to/identity_providers.md, against servers that deviate as the providers do."""

from __future__ import annotations

import contextlib
import json
import runpy
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest

from tests.docs.pages import ROOT, blocks_of
from trio_mcp import AuthorizationError, Client
from trio_mcp.auth import OAuth, RegisteredClient
from trio_mcp.auth.rules.steps import Fetch
from trio_mcp.auth.testing import AuthorizationServer, faults, protected, providers

PAGE = ROOT / "docs" / "how-to" / "identity_providers.md"
URL = "https://files.example.com/mcp"


@pytest.fixture(scope="module")
def recipes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Return the modules of the page, by the provider's name."""
    folder = tmp_path_factory.mktemp("recipes")
    found = {}
    for block in blocks_of(PAGE):
        if block.file_name is not None:
            path: Path = folder / block.file_name
            path.write_text(block.text)
            name = path.stem.removeprefix("with_")
            found[name] = SimpleNamespace(**runpy.run_path(str(path)))
    assert found.keys() == {"entra", "google", "github", "keycloak"}
    return found


class Case:
    """A provider, the settings of the recipe's server, and its client."""

    def __init__(self, name: str, recipe: Any) -> None:
        self.name, self.recipe = name, recipe
        self.settings: dict[str, Any] = {}
        getattr(self, name)()

    def entra(self) -> None:
        self.authority = providers.entra(self.recipe.API)
        self.authority.add_client("desktop", redirects=["http://localhost/callback"])
        self.settings = {"scopes": [self.recipe.READ], **self.recipe.PROTECTION}
        self.client = "desktop"

    def google(self) -> None:
        self.authority = providers.google(self.recipe.CLIENT, "s3cret")
        info = lambda: f"{self.authority.issuer}/tokeninfo"  # noqa: E731 - known only when it runs
        self._asking(lambda: self.recipe.verifier(self.authority.issuer, info()), "openid")

    def github(self) -> None:
        self.authority = providers.github(self.recipe.CLIENT, "s3cret")
        api = lambda: self.authority.issuer.removesuffix("/login/oauth")  # noqa: E731
        self._asking(lambda: self.recipe.verifier("s3cret", self.authority.issuer, api()), "read:user")

    def keycloak(self) -> None:
        self.authority = providers.keycloak(URL)
        self.authority.add_client("desktop", redirects=["http://127.0.0.1/callback"])
        self.settings = {"scopes": ["mcp:tools"], "audiences": [URL]}
        self.client = "desktop"

    def _asking(self, verifier: Callable[[], Any], scope: str) -> None:
        async def verify(token: str) -> Any:
            return await verifier()(token)

        self.settings = {"scopes": [scope], "audiences": [self.recipe.CLIENT], "verifier": verify, "dpop": "off"}
        self.client = "s3cret"

    @contextlib.asynccontextmanager
    async def served(self) -> AsyncIterator[str]:
        async with protected(self.recipe.server, self.authority, **self.settings) as url:
            yield url

    def oauth(self) -> OAuth:
        made: OAuth = self.recipe.oauth(self.client, self.authority.issuer, show=self.authority.show)
        return made


@pytest.fixture(params=["entra", "google", "github", "keycloak"])
def case(request: pytest.FixtureRequest, recipes: dict[str, Any]) -> Case:
    return Case(request.param, recipes[request.param])


async def test_a_person_signs_in_and_stays_signed_in(case: Case) -> None:
    async with case.served() as url:
        oauth = case.oauth()
        for _ in range(2):
            async with Client(url, auth=oauth) as client:
                assert (await client.call_tool("read", {"path": "a.txt"})).text == "alice reads a.txt"
        assert case.authority.count("authorize") == 1
        assert case.authority.count("register") == 0


async def test_without_the_recipe_the_error_says_what_to_set(case: Case) -> None:
    async with case.served() as url:
        with pytest.raises(AuthorizationError) as caught:
            async with Client(url, auth=OAuth(show=case.authority.show)):
                pass
    if case.name == "entra":  # which comes first
        assert "PKCE" in caught.value.problem
    else:
        assert caught.value.step == "registration"
        assert "client=RegisteredClient(…)" in caught.value.advice
    assert case.authority.count("authorize") == 0


# For each provider, another audience: what a token has that someone else was given there.
ELSEWHERE: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
    "entra": lambda claims: {**claims, "aud": "22222222-2222-2222-2222-222222222222", "scp": "files.read"},
    "google": lambda claims: {**claims, "aud": "another.apps.googleusercontent.com", "azp": "another"},
    "github": lambda claims: {**claims, "client_id": "another app"},
    "keycloak": lambda claims: {**claims, "aud": "account"},
}


async def test_a_token_for_someone_else_opens_nothing(case: Case) -> None:
    own = case.authority.settings["claims"]
    case.authority.settings["claims"] = lambda claims: ELSEWHERE[case.name](claims if own is None else own(claims))
    async with case.served() as url:
        with pytest.raises(AuthorizationError):
            async with Client(url, auth=case.oauth()) as client:
                await client.call_tool("read", {"path": "a.txt"})


async def test_a_made_up_token_is_refused_and_an_outage_is_no_refusal(case: Case) -> None:
    async with case.served() as url, httpx.AsyncClient() as http:

        async def status(token: str) -> int:
            body = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
            return (await http.post(url, json=body, headers={"Authorization": f"Bearer {token}"})).status_code

        assert await status("made-up") == 401
        case.authority.faults[""] = faults.status(500)
        if case.name in ("google", "github"):
            assert await status("another") == 503


async def test_a_server_can_not_choose_the_scopes_of_a_token_that_names_no_server(recipes: dict[str, Any]) -> None:
    """Otherwise it could have itself a token for another API of the same issuer."""
    case = Case("entra", recipes["entra"])
    other = "api://33333333-3333-3333-3333-333333333333/mail.read"
    case.authority.settings["scopes"] = (*case.authority.settings["scopes"], other)
    case.settings["scopes"] = [case.recipe.READ, other]
    async with case.served() as url:
        with pytest.raises(AuthorizationError):
            async with Client(url, auth=case.oauth()) as client:
                await client.call_tool("read", {"path": "a.txt"})
    asked = {scope for seen in case.authority.seen for scope in seen.parameters.get("scope", "").split()}
    assert case.recipe.READ in asked
    assert other not in asked


async def test_resource_is_in_no_request_of_a_client_that_leaves_it_out(recipes: dict[str, Any]) -> None:
    case = Case("entra", recipes["entra"])
    case.authority.settings["lifetime"] = -100  # so each call refreshes
    async with case.served() as url:
        with contextlib.suppress(AuthorizationError):
            async with Client(url, auth=case.oauth()):
                pass
    assert case.authority.count("token") >= 1
    assert not [seen for seen in case.authority.seen if "resource" in seen.parameters]


@pytest.mark.parametrize(
    ("client", "scopes"),
    [
        (RegisteredClient("id", resource=False), {"read"}),
        (RegisteredClient("id", issuer="https://id.example.com", resource=False), None),
        (RegisteredClient("id", issuer="https://id.example.com", resource=False), set()),
    ],
)
def test_leaving_resource_out_needs_an_issuer_and_scopes(client: RegisteredClient, scopes: Any) -> None:
    with pytest.raises(ValueError, match="needs issuer=, and OAuth needs scopes="):
        OAuth(client=client, scopes=scopes)


def test_resource_is_true_or_false() -> None:
    with pytest.raises(TypeError, match="resource"):
        RegisteredClient("id", resource="no")  # type: ignore[arg-type]


# --- the deviations themselves ------------------------------------------------------------------------------------


def get(authority: AuthorizationServer, path: str, **fields: str) -> Any:
    return authority.handle(Fetch("test", "GET", path, fields))


def token_of(authority: AuthorizationServer, client: str, secret: str, scope: str, **more: str) -> Any:
    """Return the response to a token request, of a client that may have tokens of its own."""
    authority.add_client(client, secret, method="client_secret_post", grants=["client_credentials"])
    form = {"grant_type": "client_credentials", "client_id": client, "client_secret": secret, "scope": scope}
    fields = {"Content-Type": "application/x-www-form-urlencoded", **more}
    body = str(httpx.QueryParams(form)).encode()
    return authority.handle(Fetch("token", "POST", f"{authority.issuer}/token", fields, body))


@pytest.mark.parametrize(
    ("discovery", "oauth", "openid"),
    [("both", 200, 200), ("oauth", 200, 404), ("openid", 404, 200), ("none", 404, 404)],
)
def test_metadata_is_where_it_is_published(discovery: Any, oauth: int, openid: int) -> None:
    authority = AuthorizationServer("https://id.example.com/a", discovery=discovery)
    known = "https://id.example.com/.well-known"
    assert get(authority, f"{known}/oauth-authorization-server/a").status == oauth
    assert get(authority, f"{known}/openid-configuration/a").status == openid
    assert get(authority, "https://id.example.com/a/.well-known/openid-configuration").status == openid


@pytest.mark.parametrize(("resource", "audience"), [("honored", URL), ("ignored", "https://id.example.com")])
def test_resource_is_honored_or_ignored(resource: Any, audience: str) -> None:
    authority = AuthorizationServer(resource=resource, tokens="opaque")
    authority.add_client("c", "s", method="client_secret_post", grants=["client_credentials"])
    form = {"grant_type": "client_credentials", "client_id": "c", "client_secret": "s", "resource": URL}
    fields = {"Content-Type": "application/x-www-form-urlencoded"}
    request = Fetch("token", "POST", f"{authority.issuer}/token", fields, str(httpx.QueryParams(form)).encode())
    token = json.loads(authority.handle(request).body)["access_token"]
    assert (authority.claims_of(token) or {})["aud"] == audience
    authority.settings["resource"] = "refused"
    refused = authority.handle(request)
    assert (refused.status, json.loads(refused.body)["error"]) == (400, "invalid_request")


def test_entra_is_silent_about_pkce_and_has_the_short_scope_in_the_token() -> None:
    authority = providers.entra("the-api")
    metadata = json.loads(get(authority, f"{authority.issuer}/.well-known/openid-configuration").body)
    silent = {"code_challenge_methods_supported", "registration_endpoint", "introspection_endpoint"}
    assert not silent & metadata.keys()
    said = json.loads(token_of(authority, "c", "s", "api://the-api/files.read").body)
    claims = authority.claims_of(said["access_token"]) or {}
    assert (claims["aud"], claims["scp"], claims["azp"]) == ("the-api", "files.read", "c")
    assert not {"scope", "client_id"} & claims.keys()


def test_google_has_opaque_tokens_and_says_of_them_what_tokeninfo_does() -> None:
    authority = providers.google("c", "s")
    said = json.loads(token_of(authority, "c", "s", "openid email").body)
    assert set(said["scope"].split()) == {"openid", "https://www.googleapis.com/auth/userinfo.email"}
    assert "." not in said["access_token"]
    info = json.loads(get(authority, f"{authority.issuer}/tokeninfo?access_token={said['access_token']}").body)
    assert (info["aud"], info["sub"]) == ("c", "c")
    assert isinstance(info["exp"], str)
    assert get(authority, f"{authority.issuer}/tokeninfo?access_token=made-up").status == 400
    assert get(authority, f"{authority.issuer}/elsewhere").status == 404


def test_github_speaks_in_forms_and_refuses_with_200() -> None:
    authority = providers.github("c", "s")
    form = token_of(authority, "c", "s", "read:user repo")
    assert form.headers.get("Content-Type") == "application/x-www-form-urlencoded"
    assert b"scope=read%3Auser%2Crepo" in form.body
    said = json.loads(token_of(authority, "c", "s", "repo", Accept="application/json").body)
    assert not {"expires_in", "refresh_token"} & said.keys()
    refused = token_of(authority, "c", "s", "admin", Accept="application/json")
    assert (refused.status, json.loads(refused.body)["error"]) == (200, "invalid_scope")


@pytest.mark.parametrize(("path", "status"), [("applications/c/token", 404), ("applications/other/token", 404)])
def test_github_checks_tokens_for_their_app_only(path: str, status: int) -> None:
    authority = providers.github("c", "s")
    said = json.loads(token_of(authority, "d", "t", "repo", Accept="application/json").body)
    body = json.dumps({"access_token": said["access_token"]}).encode()
    fields = {"Authorization": "Basic Yzpz", "Content-Type": "application/json"}
    url = f"https://github.example.com/{path}"
    assert authority.handle(Fetch("check", "POST", url, fields, body)).status == status
