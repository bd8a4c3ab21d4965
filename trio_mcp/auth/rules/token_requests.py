"""Requests to a token endpoint, and how the client proves who it is."""

from __future__ import annotations

import base64
import time
from collections.abc import Callable, Collection, Mapping
from typing import Any, Final
from urllib.parse import quote_plus, urlencode

import attrs

from trio_mcp.auth.rules.dpop import Prover
from trio_mcp.auth.rules.jose import PrivateKeyJwt
from trio_mcp.auth.rules.login import ClientRecord, Login
from trio_mcp.auth.rules.scopes import join_scopes
from trio_mcp.auth.rules.steps import Fetch, Fetched, Flow
from trio_mcp.auth.rules.texts import cleaned, json_object
from trio_mcp.auth.rules.token_answers import Tokens, error_code, read_tokens, refusal
from trio_mcp.errors import AuthorizationError

__all__ = [
    "TokenEndpoint",
    "basic_pair",
    "client_credentials",
    "exchange_code",
    "granted",
    "jwt_bearer",
    "on_behalf_of",
    "post",
    "refresh",
    "renewed",
    "revoke",
    "subject_exchange",
    "to_login",
    "token_exchange",
    "with_target",
]

JWT_BEARER: Final = "urn:ietf:params:oauth:grant-type:jwt-bearer"
TOKEN_EXCHANGE: Final = "urn:ietf:params:oauth:grant-type:token-exchange"
ID_TOKEN: Final = "urn:ietf:params:oauth:token-type:id_token"
ID_JAG: Final = "urn:ietf:params:oauth:token-type:id-jag"
ACCESS_TOKEN: Final = "urn:ietf:params:oauth:token-type:access_token"
_ASSERTION: Final = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"

EXCHANGED: Final = "token exchange"
"""The step of an exchange, as `AuthorizationError.step` names it."""

_ADVICE_ON_SCOPES: Final = "ask for fewer scopes, or grant them to the caller in the authorization server's settings"

# A server may echo the values of these parameters in its error description, but the values must not get into an
# exception.
_SECRET: Final = frozenset({
    "assertion", "code", "code_verifier", "device_code", "refresh_token", "subject_token", "token",
})  # fmt: skip
# These members of a response must not get there either.
_GRANTED: Final = ("access_token", "refresh_token", "id_token")


@attrs.frozen
class TokenEndpoint:
    """A token endpoint, and the client that sends requests to it.

    Attributes:
        issuer: The authorization server's issuer, as its own metadata has it.
        url: The URL of the endpoint.
        client: The client, with the one method by which it proves who it is; None if requests name no client.
        key: The client's key, for ``private_key_jwt``.
        prover: Makes the DPoP proofs; None without DPoP.
        require_dpop: Whether a token that is not bound to the prover's key is refused.
        clock: Returns the time, in seconds since the epoch.
    """

    issuer: str
    url: str
    client: ClientRecord | None
    key: PrivateKeyJwt | None = None
    prover: Prover | None = None
    require_dpop: bool = False
    clock: Callable[[], float] = time.time


def exchange_code(
    at: TokenEndpoint, *, code: str, verifier: str, redirect: str, resource: str | None = None
) -> Flow[Tokens]:
    """Exchange an authorization code for tokens.

    Args:
        at: The token endpoint, and the client that sends the request.
        code: The code that came with the redirection.
        verifier: The PKCE code verifier.
        redirect: The redirect URI of the authorization request.
        resource: The resource that the tokens are for, byte for byte.

    Raises:
        AuthorizationError: If the server grants nothing.
    """
    # RFC 6749, section 4.1.3: the redirect URI must be the same as in the authorization request.
    form = {"code": code, "code_verifier": verifier, "redirect_uri": redirect}
    return _ask(at, "token", "authorization_code", form, resource=resource)


def refresh(at: TokenEndpoint, *, refresh_token: str, resource: str | None = None) -> Flow[Tokens]:
    """Exchange a refresh token for new tokens.

    Of the error codes, only ``invalid_grant`` and ``invalid_client`` mean that the login has ended.

    Raises:
        AuthorizationError: If the server grants nothing; the error's step is ``"refresh"``.
    """
    # The request names no scopes, which means the granted ones: some servers refuse a list that differs from these by a
    # single letter.
    return _ask(at, "refresh", "refresh_token", {"refresh_token": refresh_token}, resource=resource)


def client_credentials(at: TokenEndpoint, scopes: Collection[str] = (), resource: str | None = None) -> Flow[Tokens]:
    """Ask for a token for the client itself.

    Raises:
        AuthorizationError: If the server grants nothing.
    """
    return _ask(at, "token", "client_credentials", {}, scopes=scopes, resource=resource)


def jwt_bearer(
    at: TokenEndpoint, *, assertion: str, scopes: Collection[str] = (), resource: str | None = None
) -> Flow[Tokens]:
    """Exchange an assertion, signed by an issuer that the server trusts, for a token (RFC 7523).

    Raises:
        AuthorizationError: If the server grants nothing.
    """
    return _ask(at, "token", JWT_BEARER, {"assertion": assertion}, scopes=scopes, resource=resource)


def token_exchange(
    at: TokenEndpoint, *, id_token: str, audience: str, scopes: Collection[str] = (), resource: str | None = None
) -> Flow[str]:
    """Exchange an ID token at the identity provider for an ID-JAG: an assertion for another authorization server.

    Args:
        at: The identity provider's token endpoint, and the client that sends the request.
        id_token: The ID token that the provider gave the client.
        audience: The issuer of the authorization server that the assertion is for.
        scopes: The scopes to ask for.
        resource: The resource that the token will be for.

    Raises:
        AuthorizationError: If the provider refuses, or returns something else; the error's step is
            ``"token exchange"``.
    """
    step = EXCHANGED
    form = with_target({
        "grant_type": TOKEN_EXCHANGE,
        "requested_token_type": ID_JAG,
        "subject_token": id_token,
        "subject_token_type": ID_TOKEN,
        "audience": audience,
    }, scopes, resource)  # fmt: skip
    answer = yield from granted(at, step, at.url, form)
    grant, kind = answer.get("access_token"), answer.get("issued_token_type")
    # The response may contain one of the provider's own access tokens instead, which must not be sent to another
    # server.
    if kind != ID_JAG or not isinstance(grant, str) or not grant:
        problem = f"the identity provider returned no ID-JAG, but a token of the type {cleaned(kind)}"
        advice = (
            "in the identity provider's settings, allow this client to exchange tokens for the MCP server's "
            "authorization server"
        )
        raise AuthorizationError(step, problem, issuer=at.issuer, advice=advice)
    return grant


def subject_exchange(
    at: TokenEndpoint,
    *,
    subject_token: str,
    audience: str | None,
    resource: str | None,
    scopes: Collection[str] = (),
) -> Flow[Tokens]:
    """Exchange an access token for one with which another service can be called on behalf of the same subject.

    Args:
        at: The token endpoint, and the client that sends the request.
        subject_token: The access token to exchange.
        audience: The name of the service, as the server knows it; None if ``resource`` names it.
        resource: The URL of the service; None if ``audience`` names it.
        scopes: The scopes to ask for.

    Raises:
        AuthorizationError: If the server grants anything else (RFC 8693, section 2.2); the error's step is
            ``"token exchange"``.
    """
    form = {
        "grant_type": TOKEN_EXCHANGE,
        "requested_token_type": ACCESS_TOKEN,
        "subject_token": subject_token,
        "subject_token_type": ACCESS_TOKEN,
        **({} if audience is None else {"audience": audience}),
    }
    asked_at = at.clock()
    answer = yield from granted(at, EXCHANGED, at.url, with_target(form, scopes, resource))
    # The server may return another of its tokens, such as a refresh token, which no service must be sent.
    if (kind := answer.get("issued_token_type")) != ACCESS_TOKEN:
        raise AuthorizationError(
            EXCHANGED, f"the server returned no access token, but a token of the type {cleaned(kind)}", issuer=at.issuer
        )
    tokens = _for_another(at, answer, asked_at, subject_token)
    # RFC 8693, section 2.2.1: a response without scopes grants the requested ones.
    if tokens.scopes is not None and (missing := frozenset(scopes) - tokens.scopes):
        raise AuthorizationError(
            EXCHANGED,
            f"the server did not grant the scopes {join_scopes(missing)}",
            issuer=at.issuer,
            advice=_ADVICE_ON_SCOPES,
        )
    return tokens


def on_behalf_of(at: TokenEndpoint, *, assertion: str, scopes: Collection[str]) -> Flow[Tokens]:
    """Exchange an access token as `subject_exchange` does, with the parameters that Entra wants.

    Args:
        at: The token endpoint, and the client that sends the request.
        assertion: The access token to exchange.
        scopes: The scopes to ask for; they name the service, too. The names of granted ones may differ from them.

    Raises:
        AuthorizationError: If the server grants nothing that can be used; the error's step is ``"token exchange"``.
    """
    form = {"grant_type": JWT_BEARER, "assertion": assertion, "requested_token_use": "on_behalf_of"}
    asked_at = at.clock()
    answer = yield from granted(at, EXCHANGED, at.url, with_target(form, scopes, None))
    return _for_another(at, answer, asked_at, assertion)


def _for_another(at: TokenEndpoint, answer: Mapping[str, Any], asked_at: float, subject_token: str) -> Tokens:
    """Return the tokens for another service that a response grants."""
    # Elsewhere a missing type passes for "Bearer". RFC 8693, section 2.2.1, requires the type, since a token need not
    # be for a service at all ("N_A").
    if "token_type" not in answer:
        raise AuthorizationError(EXCHANGED, "its response has no token_type", issuer=at.issuer)
    tokens = to_tokens(at, EXCHANGED, answer, asked_at)
    # A server that returns the token that it got would make this server pass it on, which MCP forbids (2026-07-28
    # `basic/authorization`, Access Token Privilege Restriction).
    if tokens.access_token == subject_token:
        raise AuthorizationError(EXCHANGED, "the server returned the caller's own token", issuer=at.issuer)
    # A lifetime that can't be read must not pass for an unknown one: such a token counts as expired already.
    if tokens.expires_at is None and answer.get("expires_in") is not None:
        return attrs.evolve(tokens, expires_at=asked_at)
    return tokens


def revoke(at: TokenEndpoint, *, endpoint: str, token: str, hint: str = "refresh_token") -> Flow[None]:
    """Revoke a token (RFC 7009).

    Args:
        at: The client that sends the request, and its token endpoint.
        endpoint: The revocation endpoint.
        token: The token to revoke.
        hint: The kind of the token: ``"refresh_token"`` or ``"access_token"``.

    Raises:
        AuthorizationError: If the server refuses; the error's step is ``"revocation"``.
    """
    form = {"token": token, "token_type_hint": hint}
    response = yield from post(at, "revocation", endpoint, form)
    # The body of a response with status 200 has no meaning (RFC 7009, section 2.2).
    if response.status != 200:
        raise _refused(at, "revocation", response, form)


def to_login(
    at: TokenEndpoint,
    tokens: Tokens,
    *,
    resource: str | None,
    asked: Collection[str] = (),
    revocation_endpoint: str | None = None,
) -> Login:
    """Return the login that begins with these tokens.

    Args:
        at: The endpoint that granted them.
        tokens: The tokens.
        resource: The resource that the tokens are for.
        asked: The scopes that were asked for.
        revocation_endpoint: Where to revoke the tokens.
    """
    return Login(
        resource=resource,
        issuer=at.issuer,
        # A workload has no client id, so an empty one is stored.
        client=at.client or ClientRecord("", "given"),
        token_endpoint=at.url,
        access_token=tokens.access_token,
        token_type=tokens.token_type,
        expires_at=tokens.expires_at,
        refresh_token=tokens.refresh_token,
        # RFC 6749, section 5.1: a response without scopes grants the requested ones.
        scopes=tokens.scopes or frozenset(asked) or None,
        asked=frozenset(asked),
        revocation_endpoint=revocation_endpoint,
        # The DPoP key is kept even if the access token is a bearer token, because the refresh token of a public client
        # is bound to the key (RFC 9449, section 5).
        dpop_key=at.prover.key if at.prover else None,
        id_token=tokens.id_token,
    )


def renewed(login: Login, tokens: Tokens) -> Login:
    """Return a login after a refresh: fields that the response lacks stay as they were (RFC 6749, section 6)."""
    return attrs.evolve(
        login,
        access_token=tokens.access_token,
        token_type=tokens.token_type,
        expires_at=tokens.expires_at,
        refresh_token=tokens.refresh_token or login.refresh_token,
        scopes=tokens.scopes or login.scopes,
        id_token=tokens.id_token or login.id_token,
    )


def post(at: TokenEndpoint, step: str, url: str, form: Mapping[str, str]) -> Flow[Fetched]:
    """Post a form as the client, and post it once more if the server asks for another DPoP nonce.

    Args:
        at: The client that sends the request, and its token endpoint.
        step: The step of the flow.
        url: The URL to post to: the token endpoint, or another endpoint of the same server.
        form: The parameters, without those of the client.

    Raises:
        AuthorizationError: If the client lacks the secret or the key by which it proves who it is.
    """
    # At most two requests are sent, because a server could demand another nonce each time.
    for last in (False, True):
        # Each request gets new credentials, because an assertion or a proof can be used only once.
        fields, proof_of_client = _authenticate(at, step)
        fields |= {"Content-Type": "application/x-www-form-urlencoded", "Accept": "application/json"}
        nonce = None
        if at.prover:
            nonce = at.prover.nonce(url, resource=False)
            fields["DPoP"] = at.prover.proof("POST", url)
        body = urlencode({**form, **proof_of_client}).encode()
        response: Fetched = yield Fetch(step, "POST", url, fields, body)
        if at.prover is None:
            break
        # Every response may bring a new nonce, even one that grants tokens (RFC 9449, section 8.2).
        at.prover.learn(url, response.headers, resource=False)
        # Another request is pointless if the server has sent no nonce other than the one that it refused.
        if last or error_code(response) != "use_dpop_nonce" or at.prover.nonce(url, resource=False) == nonce:
            break
    return response


def granted(at: TokenEndpoint, step: str, url: str, form: Mapping[str, str]) -> Flow[dict[str, Any]]:
    """Post a form, and return the JSON object in the response, which must grant the request.

    Args:
        at: The client that sends the request, and its token endpoint.
        step: The step of the flow.
        url: The URL to post to.
        form: The parameters, without those of the client.

    Raises:
        AuthorizationError: If the server responds with anything else.
    """
    response = yield from post(at, step, url, form)
    answer = json_object(response)
    # Some servers refuse a request with status 200 and an error in the body.
    if response.status != 200 or (answer is not None and "error" in answer):
        raise _refused(at, step, response, form)
    if answer is None:
        raise AuthorizationError(step, "the server's response is not a JSON object", issuer=at.issuer)
    return answer


def _ask(
    at: TokenEndpoint,
    step: str,
    grant: str,
    form: Mapping[str, str],
    *,
    scopes: Collection[str] = (),
    resource: str | None,
) -> Flow[Tokens]:
    asked_at = at.clock()
    answer = yield from granted(at, step, at.url, with_target({"grant_type": grant, **form}, scopes, resource))
    return to_tokens(at, step, answer, asked_at)


def to_tokens(at: TokenEndpoint, step: str, answer: Mapping[str, Any], asked_at: float) -> Tokens:
    """Return the tokens that a response grants.

    Raises:
        AuthorizationError: If there are no tokens that can be used.
    """
    try:
        tokens = read_tokens(answer, asked_at, proven=at.prover is not None)
    except ValueError as exc:
        raise AuthorizationError(step, str(exc), issuer=at.issuer) from None
    # Unless DPoP is required, a server may grant a bearer token in spite of a proof, and the token is used as a bearer
    # token.
    if at.require_dpop and tokens.token_type != "DPoP":
        problem = "DPoP is required, but the server granted a token that is bound to no key"
        raise AuthorizationError(step, problem, issuer=at.issuer, advice="allow such tokens: dpop='auto'")
    return tokens


def with_target(form: Mapping[str, str], scopes: Collection[str], resource: str | None) -> dict[str, str]:
    """Return a form with the parameters ``scope`` and ``resource`` added, if there are scopes and a resource."""
    scope = {"scope": join_scopes(scopes)} if scopes else {}
    # The resource is never normalized, because the server compares it with the text that it published.
    return {**form, **scope, **({} if resource is None else {"resource": resource})}


def _authenticate(at: TokenEndpoint, step: str) -> tuple[dict[str, str], dict[str, str]]:
    """Return the header fields and the form parameters that prove who the client is: by one method, never by two."""
    client = at.client
    if client is None:
        return {}, {}
    if client.method == "none":
        return {}, {"client_id": client.id}
    if client.method == "private_key_jwt":
        if at.key is None:
            raise AuthorizationError(step, f"the client {client.id!r} has no private key", issuer=at.issuer)
        assertion = at.key.assertion(client.id, at.issuer, at.clock)
        return {}, {"client_id": client.id, "client_assertion_type": _ASSERTION, "client_assertion": assertion}
    if client.secret is None:
        raise AuthorizationError(step, f"the client {client.id!r} has no secret", issuer=at.issuer)
    if client.method == "client_secret_post":
        return {}, {"client_id": client.id, "client_secret": client.secret}
    # The client_id is not in the body: some servers count it as a second authentication method, and RFC 6749, section
    # 2.3, allows only one.
    return {"Authorization": f"Basic {basic_pair(client.id, client.secret)}"}, {}


def basic_pair(id: str, secret: str) -> str:
    """Return a client's credentials for the Basic scheme: its id and its secret, encoded."""
    # RFC 6749, section 2.3.1: both are form-encoded first, so that a colon in the id is not read as the separator.
    return base64.b64encode(f"{quote_plus(id)}:{quote_plus(secret)}".encode()).decode()


def _refused(at: TokenEndpoint, step: str, response: Fetched, form: Mapping[str, str]) -> AuthorizationError:
    now, client = at.clock(), at.client
    hidden = [value for name, value in form.items() if name in _SECRET]
    # A response may both refuse and grant, and describe the error by what it grants.
    said = json_object(response) or {}
    hidden += [value for name in _GRANTED if isinstance(value := said.get(name), str)]
    advice = ""
    if client is not None and client.secret is not None:
        # The secret is hidden in every form in which it may have been sent, because the server may repeat any of them.
        hidden += client.secret, quote_plus(client.secret), basic_pair(client.id, client.secret)
        if client.secret_expires_at is not None and client.secret_expires_at <= now:
            advice = f"the secret of the client {client.id!r} has expired; get a new one"
    return refusal(step, at.issuer, response, now=now, secrets=hidden, advice=advice)
