"""Authorization servers for tests that differ from the standards as well-known identity providers do.

Each is an `AuthorizationServer` with settings and faults, made from what was documented of the provider by 2026-11-29;
none was compared with the provider itself. The page "Identity providers without registration" in the docs lists the
differences and the documents.
"""

from __future__ import annotations

import base64
import json
from collections.abc import MutableSequence
from typing import Any, Unpack
from urllib.parse import parse_qs, urlencode, urlsplit

import attrs

from trio_mcp.auth.rules.steps import Fetch
from trio_mcp.auth.testing.answers import ServerResponse, answer, in_json
from trio_mcp.auth.testing.faults import Fault, Handle, edited, redirected, status
from trio_mcp.auth.testing.records import AuthoritySettings
from trio_mcp.auth.testing.server import AuthorizationServer
from trio_mcp.http.headers import Headers

__all__ = ["entra", "github", "google", "keycloak"]

UNSAID: dict[str, None] = {
    "revocation_endpoint": None,
    "introspection_endpoint": None,
    "device_authorization_endpoint": None,
    "authorization_response_iss_parameter_supported": None,
}
"""The members of our metadata that some providers don't have."""


def entra(
    api: str = "11111111-1111-1111-1111-111111111111",
    *,
    tenant: str = "contoso",
    **settings: Unpack[AuthoritySettings],
) -> AuthorizationServer:
    """Return one like Microsoft Entra ID, for one tenant and the API of one application.

    Args:
        api: The application (client) id of the API, which is in ``aud``. Scopes begin with ``api://`` and this id.
        tenant: The tenant.
        settings: Further settings.
    """
    scopes = tuple(settings.pop("scopes", ("files.read", "files.write")))
    prefix = f"api://{api}"

    def claims(given: dict[str, Any]) -> dict[str, Any]:
        # In the token, a scope has its last part as its name.
        granted = [each.removeprefix(f"{prefix}/") for each in given.pop("scope").split() if "/" in each]
        client = given.pop("client_id")
        return {**given, "aud": api, "azp": client, "scp": " ".join(granted), "ver": "2.0"}

    whole: AuthoritySettings = {
        "scopes": (*(f"{prefix}/{each}" for each in scopes), "openid", "profile", "email", "offline_access"),
        "tokens": "plain-jwt",
        "claims": claims,
        "resource": "refused",
        "discovery": "openid",
        "registration": False,
        **settings,
    }
    listed = ["openid", "profile", "email", "offline_access"]
    faults: dict[str, Fault | MutableSequence[Fault]] = {
        "metadata": edited(**UNSAID, code_challenge_methods_supported=None, scopes_supported=listed),
        "authorize": redirected(iss=None),
        "introspect": status(404),
        "revoke": status(404),
    }
    return AuthorizationServer(f"https://login.example.com/{tenant}/v2.0", faults=faults, **whole)


def google(client: str, secret: str, **settings: Unpack[AuthoritySettings]) -> AuthorizationServer:
    """Return one like Google for one desktop app, with the endpoint ``tokeninfo``.

    Args:
        client: The client id of the app.
        secret: Its secret.
        settings: Further settings.
    """
    long_names = {each: f"https://www.googleapis.com/auth/userinfo.{each}" for each in ("email", "profile")}

    def claims(given: dict[str, Any]) -> dict[str, Any]:
        scopes = [long_names.get(each, each) for each in given["scope"].split()]
        # The audience is the client, and not an API.
        client = given.pop("client_id")
        return {**given, "aud": client, "azp": client, "scope": " ".join(scopes)}

    def renamed(request: Fetch, handle: Handle) -> ServerResponse:
        given = handle(request)
        body = json.loads(given.body)
        if "scope" in body:
            body["scope"] = " ".join(long_names.get(each, each) for each in body["scope"].split())
        return attrs.evolve(given, body=json.dumps(body).encode())

    def token_info(request: Fetch, handle: Handle) -> ServerResponse:
        parts = urlsplit(request.url)
        if not parts.path.endswith("/tokeninfo"):
            return handle(request)
        known = authority.claims_of(parse_qs(parts.query).get("access_token", [""])[0])
        if known is None:
            return in_json({"error": "invalid_token", "error_description": "Invalid Value"}, 400)
        # All values are strings, numbers too.
        return in_json({name: str(known[name]) for name in ("aud", "azp", "sub", "scope", "exp")})

    whole: AuthoritySettings = {
        "scopes": ("openid", "email", "profile"),
        "tokens": "opaque",
        "claims": claims,
        "resource": "ignored",
        "discovery": "openid",
        "registration": False,
        **settings,
    }
    faults: dict[str, Fault | MutableSequence[Fault]] = {
        "metadata": edited(introspection_endpoint=None),
        "token": renamed,
        "introspect": status(404),
        "": token_info,
    }
    authority = AuthorizationServer("https://accounts.example.com", faults=faults, **whole)
    authority.add_client(client, secret, redirects=["http://127.0.0.1/callback"])
    return authority


def github(client: str, secret: str, **settings: Unpack[AuthoritySettings]) -> AuthorizationServer:
    """Return one like GitHub for one OAuth app, with the endpoint that checks a token of it.

    Args:
        client: The client id of the app.
        secret: Its secret.
        settings: Further settings.
    """

    def in_its_words(request: Fetch, handle: Handle) -> ServerResponse:
        given = handle(request)
        body = json.loads(given.body)
        body.pop("expires_in", None)
        if "scope" in body:
            body["scope"] = ",".join(body["scope"].split())
        # Errors have the status 200, too. Without this Accept, all of it is a form.
        if "json" in (Headers(request.fields.items()).get("Accept") or ""):
            return in_json(body)
        return answer(200, urlencode(body).encode(), {"Content-Type": "application/x-www-form-urlencoded"})

    def more(request: Fetch, handle: Handle) -> ServerResponse:
        path = urlsplit(request.url).path
        if path.endswith("/login/oauth/access_token"):  # its name for the token endpoint
            return authority.handle(attrs.evolve(request, url=f"{authority.issuer}/token"))
        if not path.endswith(f"/applications/{client}/token"):
            return handle(request)
        pair = base64.b64encode(f"{client}:{secret}".encode()).decode()
        known = authority.claims_of(str(json.loads(request.body).get("access_token")))
        # The token of another app is unknown here, as is one that has been revoked.
        if (
            Headers(request.fields.items()).get("Authorization") != f"Basic {pair}"
            or known is None
            or known["client_id"] != client
        ):
            return in_json({"message": "Not Found"}, 404)
        user = {"login": known["sub"], "id": 1}
        scopes = known["scope"].split()
        return in_json({"app": {"client_id": client}, "scopes": scopes, "user": user, "expires_at": None})

    whole: AuthoritySettings = {
        "scopes": ("read:user", "repo"),
        "tokens": "opaque",
        "lifetime": 365 * 24 * 3600,
        "resource": "ignored",
        "discovery": "oauth",
        "registration": False,
        **settings,
    }
    faults: dict[str, Fault | MutableSequence[Fault]] = {
        "metadata": edited(**UNSAID, token_endpoint_auth_methods_supported=None),
        "authorize": redirected(iss=None),
        "token": in_its_words,
        "introspect": status(404),
        "revoke": status(404),
        "": more,
    }
    authority = AuthorizationServer("https://github.example.com/login/oauth", faults=faults, **whole)
    authority.add_client(
        client,
        secret,
        redirects=["http://127.0.0.1/callback"],
        method="client_secret_post",
        grants=["authorization_code"],
    )
    return authority


def keycloak(
    audience: str | None, *, realm: str = "demo", **settings: Unpack[AuthoritySettings]
) -> AuthorizationServer:
    """Return one like a realm of Keycloak without the feature ``resource-indicators``.

    Args:
        audience: What the audience mapper of a client scope puts into ``aud``; None without such a mapper.
        realm: The realm.
        settings: Further settings.
    """

    def claims(given: dict[str, Any]) -> dict[str, Any]:
        client = given.pop("client_id")
        return {**given, "aud": audience or "account", "azp": client, "typ": "Bearer"}

    whole: AuthoritySettings = {
        "scopes": ("mcp:tools", "openid", "offline_access"),
        "tokens": "plain-jwt",
        "claims": claims,
        "resource": "ignored",
        **settings,
    }
    # The policies of anonymous registration refuse hosts that are not trusted.
    body = json.dumps({"error": "insufficient_scope", "error_description": "Policy 'Trusted Hosts' rejected request"})
    faults: dict[str, Fault | MutableSequence[Fault]] = {
        "register": status(403, body.encode(), Content_Type="application/json")
    }
    return AuthorizationServer(f"https://sso.example.com/realms/{realm}", faults=faults, **whole)
