"""The authorization request in a browser: PKCE (RFC 7636), the URL, and the redirection that comes back (RFC 9207)."""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
from collections.abc import Collection, Mapping
from typing import Final
from urllib.parse import parse_qsl, quote, urlencode

import attrs

from trio_mcp.auth.rules.login import ClientRecord
from trio_mcp.auth.rules.metadata import AuthorizationServerMetadata, Discovered
from trio_mcp.auth.rules.scopes import OFFLINE, join_scopes
from trio_mcp.auth.rules.steps import Flow, SignIn
from trio_mcp.auth.rules.texts import cleaned
from trio_mcp.errors import AuthorizationError

__all__ = [
    "AuthorizationCode",
    "authorize",
    "challenge_of",
    "check_redirection",
    "prompt_of",
    "require_pkce",
    "with_query",
]

STEP: Final = "authorization"
REDIRECTION: Final = "redirection"


@attrs.frozen
class AuthorizationCode:
    """An authorization code, with all that the token request must repeat.

    Attributes:
        code: The code.
        verifier: The PKCE code verifier.
        redirect: The redirect URI, as it was sent.
    """

    code: str = attrs.field(repr=False)
    verifier: str = attrs.field(repr=False)
    redirect: str


def authorize(
    found: Discovered,
    client: ClientRecord,
    *,
    redirect: str,
    scopes: Collection[str],
    assume_pkce: Collection[str] = (),
    thumbprint: str | None = None,
    prompt: str | None = None,
) -> Flow[AuthorizationCode]:
    """Let a person authorize the client, and return the code.

    From before the browser opens until the redirection arrives, the flow keeps the verifier, and the issuer and state
    that the redirection is checked against. Each flow is used once.

    Args:
        found: The MCP server and its authorization server, as discovered.
        client: The client.
        redirect: The redirect URI.
        scopes: The scopes to ask for.
        assume_pkce: Issuers that support PKCE although their metadata does not say so.
        thumbprint: The thumbprint of the DPoP key that the code is bound to (``dpop_jkt``), or None.
        prompt: The value of ``prompt`` to send; None leaves prompts to the authorization server, except for the consent
            that a refresh token may need.

    Raises:
        AuthorizationError: If PKCE is not supported, the person declined, or the redirection fails its checks.
    """
    at = found.server
    require_pkce(at, assume_pkce)
    # The verifier and the state are made from 32 random bytes each, as RFC 7636, section 7.1, recommends for the
    # verifier.
    verifier, state = secrets.token_urlsafe(32), secrets.token_urlsafe(32)
    parameters = {
        "response_type": "code",
        "client_id": client.id,
        "redirect_uri": redirect,
        "state": state,
        "code_challenge": challenge_of(verifier),
        "code_challenge_method": "S256",
        # Since revision 2025-06-18, `resource` is sent whether or not the authorization server supports it. Revision
        # 2025-03-26 does not have this parameter.
        "resource": found.audience,
        "scope": join_scopes(scopes) or None,
        # With `dpop_jkt`, a stolen code can't be redeemed with another key (RFC 9449, section 10).
        "dpop_jkt": thumbprint,
        "prompt": prompt or prompt_of(client, scopes),
    }
    url = with_query(at, {name: value for name, value in parameters.items() if value is not None})
    answer: Mapping[str, str] = yield SignIn(url, state, redirect, at.issuer)
    return AuthorizationCode(check_redirection(answer, at, state), verifier, redirect)


def prompt_of(client: ClientRecord, scopes: Collection[str]) -> str | None:
    """Return the ``prompt`` of an authorization request; None to send none."""
    # Without the prompt for consent there is no refresh token, unless consent was given in another way (OpenID Connect
    # Core, section 11). For a client that was registered by hand, an administrator has often consented on behalf of all
    # people. With the prompt, those who may not consent themselves could not sign in.
    return "consent" if OFFLINE in scopes and client.origin != "given" else None


def with_query(at: AuthorizationServerMetadata, parameters: Mapping[str, str]) -> str:
    """Return the URL of an authorization request.

    Raises:
        AuthorizationError: If the metadata names no endpoint, or one that sets a parameter itself.
    """
    # The endpoint's own query is kept (RFC 6749, section 3.1).
    endpoint, _, query = at.need("authorization", STEP).partition("?")
    # No parameter may be repeated (RFC 6749, section 3.1), because the server could use either value. Names are
    # compared in their decoded form, since `%73tate` is `state`. The endpoint's own query must not contain `scope` or
    # `resource` either: whether to send them is up to the client.
    taken = {name for name, _ in parse_qsl(query, keep_blank_values=True)} & {*parameters, "scope", "resource"}
    if taken:
        problem = f"its authorization_endpoint already sets {', '.join(sorted(taken))}"
        raise AuthorizationError(STEP, problem, issuer=at.issuer)
    return endpoint + "?" + (query + "&" if query else "") + urlencode(parameters, quote_via=quote)


def require_pkce(at: AuthorizationServerMetadata, assume_pkce: Collection[str]) -> None:
    """Check that an authorization server supports PKCE with S256. Call this before a client is registered there.

    Without metadata there is nothing to check: PKCE is used anyway, as 2025-03-26 requires.

    Raises:
        AuthorizationError: If its metadata lists PKCE methods without S256, or has no such list and the issuer is not
            in ``assume_pkce``.
    """
    if not at.published or "S256" in (at.pkce or ()):
        return
    # The metadata takes precedence over `assume_pkce`, which is only for metadata without this field. Entra and
    # Cognito, for example, publish such metadata.
    if at.pkce is not None:
        raise AuthorizationError(STEP, "the authorization server does not support PKCE with S256", issuer=at.issuer)
    if at.issuer not in assume_pkce:
        raise AuthorizationError(
            STEP,
            "its metadata doesn't say that it supports PKCE (code_challenge_methods_supported)",
            issuer=at.issuer,
            advice=f"if you know that the server supports PKCE, pass assume_pkce=[{at.issuer!r}]",
        )


def challenge_of(verifier: str) -> str:
    """Return the S256 code challenge for a code verifier (RFC 7636, section 4.2)."""
    return base64.urlsafe_b64encode(hashlib.sha256(verifier.encode()).digest()).rstrip(b"=").decode()


def check_redirection(parameters: Mapping[str, str], at: AuthorizationServerMetadata, state: str) -> str:
    """Check a redirection, and return its authorization code.

    First, ``state`` is checked; then ``iss``, by the rules of RFC 9207, section 2.4; and only then the other
    parameters. A redirection that fails one of the first two checks is neither shown nor acted upon.

    Raises:
        AuthorizationError: If the redirection reports an error, has no code, or does not belong to this request.
    """
    problem = None
    # Bytes are compared, as `compare_digest` raises for text beyond ASCII; `replace` is needed for lone surrogates,
    # which can't be encoded.
    if not hmac.compare_digest(parameters.get("state", "").encode(errors="replace"), state.encode()):
        problem = "its state is not the one that was sent"
    # An `iss` is compared character by character, whether or not the server has announced that it sends one: even a
    # slash at the end makes it another issuer.
    elif "iss" in parameters and parameters["iss"] != at.issuer:
        problem = "it comes from a different authorization server than the one that was asked"
    elif "iss" not in parameters and at.sends_iss:
        problem = "it doesn't say which authorization server sent it (iss), although the server promises that"
    if problem is not None:
        raise AuthorizationError(REDIRECTION, problem, issuer=at.issuer, advice="sign in again")
    # An error is looked for first: it counts even if a code is sent with it.
    if "error" in parameters:
        error = cleaned(parameters["error"])
        description = cleaned(parameters.get("error_description"))
        said = "the authorization was declined" if error == "access_denied" else "the server refused the request"
        said += f": {description}" if description else ""
        raise AuthorizationError(STEP, said, issuer=at.issuer, error=error)
    if not parameters.get("code"):
        raise AuthorizationError(REDIRECTION, "it has neither a code nor an error", issuer=at.issuer)
    return parameters["code"]
