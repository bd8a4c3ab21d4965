"""How a client gets its id: from the program, from its own metadata document, or by registration (RFC 7591)."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping
from typing import Any, Final, Literal, get_args

import attrs

from trio_mcp._checks import check_flag
from trio_mcp.auth.rules.jose import PrivateKeyJwt
from trio_mcp.auth.rules.login import AuthMethod, ClientRecord
from trio_mcp.auth.rules.metadata import AuthorizationServerMetadata
from trio_mcp.auth.rules.scopes import join_scopes
from trio_mcp.auth.rules.steps import Fetch, Fetched, Flow
from trio_mcp.auth.rules.texts import cleaned, json_object
from trio_mcp.auth.rules.urls import is_loopback, same_issuer, take_apart
from trio_mcp.errors import AuthorizationError
from trio_mcp.http.headers import JSON

__all__ = ["RegisteredClient", "check_document_url", "check_redirect", "choose_method", "register", "reusable"]

STEP: Final = "registration"

_VISIBLE = re.compile(r"[\x20-\x7e]{1,2000}")
"""The pattern of a client id or secret (RFC 6749, appendices A.1 and A.2). The maximum length is arbitrary."""

_ANY_PORT = re.compile(r"^(https?://[^/]*):0(?=/|$)")

_BY_HAND = "register a client with the authorization server's operator, and pass its id: client=RegisteredClient(…)"


@attrs.frozen
class RegisteredClient:
    """A client that was registered with an authorization server beforehand.

    Args:
        id: The ``client_id``.
        secret: The client's secret, if it has one.
        issuer: The issuer of the authorization server where the client is registered; no other server is sent the id
            or the secret.
        key: The client's private key, instead of a secret.
        method: How the client sends its secret; None to choose a method that the server's metadata allows.
        prompt: The ``prompt`` of each sign-in, such as ``"consent"`` or ``"select_account"`` (OpenID Connect). Some
            servers give no refresh token without ``"consent"``; others refuse every sign-in with it if an
            administrator has consented for everyone.
        resource: Whether requests for tokens name the MCP server in ``resource`` (RFC 8707), as MCP demands. False is
            for authorization servers that refuse the parameter, such as Entra. Then the scopes alone say which server
            a token is for, so ``issuer`` and ``OAuth(scopes=…)`` are needed, and no others are asked for.

    Raises:
        TypeError: If ``resource`` is not a boolean.
        ValueError: If the id or the secret is empty, or the method needs a secret and there is no secret.
    """

    id: str
    secret: str | None = attrs.field(default=None, repr=False, kw_only=True)
    issuer: str | None = attrs.field(default=None, kw_only=True)
    key: PrivateKeyJwt | None = attrs.field(default=None, kw_only=True)
    method: Literal["none", "client_secret_basic", "client_secret_post"] | None = attrs.field(
        default=None, kw_only=True
    )
    prompt: str | None = attrs.field(default=None, kw_only=True)
    resource: bool = attrs.field(default=True, kw_only=True)

    def __attrs_post_init__(self) -> None:
        if not self.id or self.secret == "":  # empty, for example, if an environment variable is not set
            raise ValueError(f"the {'secret' if self.id else 'id'} of RegisteredClient must not be empty")
        check_flag("resource", self.resource)
        if self.method not in (None, "none") and self.secret is None:
            raise ValueError(f"RegisteredClient({self.id!r}) has no secret for {self.method}; pass secret=")


def register(
    at: AuthorizationServerMetadata,
    *,
    client: RegisteredClient | None = None,
    metadata_url: str | None = None,
    redirect: str | None,
    scopes: Collection[str] = (),
    name: str = "trio_mcp",
    grants: Collection[str] = ("authorization_code", "refresh_token"),
) -> Flow[ClientRecord]:
    """Get a client's id: the given one, or else its metadata document's URL, or else one from a new registration.

    Args:
        at: The authorization server.
        client: The client that was registered beforehand, if any.
        metadata_url: The URL of the client's own metadata document.
        redirect: The redirect URI that will be used; None if there will be no redirection.
        scopes: All scopes that the client may ask for.
        name: The client's name, which is shown to people.
        grants: The grant types that the client uses.

    Raises:
        AuthorizationError: If the client can't get an id in any of these ways; the error's advice says what to set.
    """
    if client is not None:
        return _given(at, client, redirect)
    # The order of the ways to get an id is the one that 2025-11-25 recommends. Dynamic registration comes last, and
    # 2026-07-28 deprecates it.
    if metadata_url is not None and at.documents:
        return ClientRecord(metadata_url, "document", redirect=redirect)
    if at.registration is None:
        why = "its metadata names no registration_endpoint"
        if metadata_url is not None:
            why += ", and the server accepts no metadata documents of clients"
        raise AuthorizationError(STEP, why, issuer=at.issuer, advice=_BY_HAND)
    request: dict[str, Any] = {
        "client_name": name,
        # A server may refuse or replace grant types that it does not support (RFC 7591), so the client does not ask for
        # them.
        "grant_types": [grant for grant in grants if grant in (at.grants or grants)],
        "token_endpoint_auth_method": _method_to_ask_for(at.methods),
        # The device grant has no redirection that could carry a code, but a server assumes `code` if `response_types`
        # is missing (RFC 7591, section 2).
        "response_types": [] if redirect is None else ["code"],
        # 2026-07-28 requires `application_type`: without this member, OpenID providers assume "web", and may then
        # refuse a loopback redirect URI.
        "application_type": "native" if redirect is None or is_loopback(redirect) else "web",
    }
    if redirect is not None:
        request["redirect_uris"] = [redirect]
    # Some authorization servers refuse a registration with scopes that their metadata doesn't list, so then no scopes
    # are sent.
    named = frozenset(scopes) if at.scopes is None or at.scopes.issuperset(scopes) else None
    if named:
        request["scope"] = join_scopes(named)
    fields = {"Content-Type": JSON, "Accept": JSON}
    response: Fetched = yield Fetch(STEP, "POST", at.registration, fields, json.dumps(request).encode())
    if not 200 <= response.status < 300:
        raise _refused(at, response, redirect)
    answer = json_object(response)
    if answer is None:
        raise AuthorizationError(STEP, "the response is not a JSON object", issuer=at.issuer)
    return attrs.evolve(_read(at, answer, request, redirect), scopes=named)


def _given(at: AuthorizationServerMetadata, client: RegisteredClient, redirect: str | None) -> ClientRecord:
    # The issuer is checked before any request is sent, because the id and the secret are meant for `client.issuer`
    # only. A slash at the end may differ.
    if client.issuer is not None and not same_issuer(client.issuer, at.issuer):
        problem = f"the client {client.id!r} is registered with {client.issuer}, not with this authorization server"
        raise AuthorizationError(STEP, problem, issuer=at.issuer, advice=_BY_HAND)
    method = client.method or choose_method(at.methods, secret=client.secret is not None, key=client.key is not None)
    if method is None:
        problem = f"the server supports no authentication method that the client {client.id!r} could use"
        raise AuthorizationError(STEP, problem, issuer=at.issuer)
    return ClientRecord(client.id, "given", client.secret, method, redirect)


def _method_to_ask_for(methods: Collection[str] | None) -> AuthMethod:
    # A secret that anyone can register proves nothing, so it is asked for only where the server requires one.
    if methods is None or "none" in methods:
        return "none"
    # With Basic authentication, some servers require the client_id in the body as well, and others refuse it there, so
    # sending the secret in the body is preferred.
    if "client_secret_post" in methods:
        return "client_secret_post"
    return choose_method(methods, secret=True) or "none"


def _refused(at: AuthorizationServerMetadata, response: Fetched, redirect: str | None) -> AuthorizationError:
    answer = json_object(response) or {}
    error, description = cleaned(answer.get("error")), cleaned(answer.get("error_description"))
    advice = _BY_HAND
    # A failure with a 429 or 5xx may be temporary, so the advice to register by hand would be wrong.
    if response.status >= 500 or response.status == 429:
        advice = "try again later"
    elif error == "invalid_redirect_uri":
        advice = f"the server does not allow the redirect URI {redirect}; set redirect=, or {_BY_HAND}"
    problem = f"the server refused the registration with status {response.status}" + (
        f": {description}" if description else ""
    )
    return AuthorizationError(STEP, problem, issuer=at.issuer, error=error, advice=advice)


def _read(
    at: AuthorizationServerMetadata, answer: Mapping[str, Any], request: Mapping[str, Any], redirect: str | None
) -> ClientRecord:
    def unusable(what: str) -> AuthorizationError:
        return AuthorizationError(STEP, f"the response can't be used: {what}", issuer=at.issuer, advice=_BY_HAND)

    id, secret = answer.get("client_id"), answer.get("client_secret") or None
    if not isinstance(id, str) or not _VISIBLE.fullmatch(id):
        raise unusable("it has no valid client_id")
    if secret is not None and not (isinstance(secret, str) and _VISIBLE.fullmatch(secret)):
        raise unusable("its client_secret is not valid")
    registered = answer.get("redirect_uris")
    # RFC 7591, section 3.2.1, allows the server to replace the URI, but then no sign-in would lead back to this
    # program.
    if redirect is not None and isinstance(registered, list) and redirect not in registered:
        raise unusable("the registered redirect URI is not the one that was asked for")
    method: Any = answer.get("token_endpoint_auth_method")
    if method is None:
        method = request["token_endpoint_auth_method"]
        if (method == "none") is (secret is not None):  # the server chose another method, and didn't name it
            method = choose_method(at.methods, secret=secret is not None)
    # `private_key_jwt` can't work: no public key was registered with which the server could check an assertion.
    if method not in get_args(AuthMethod) or method == "private_key_jwt":
        raise unusable("it names an authentication method that was not asked for")
    if method != "none" and secret is None:
        raise unusable("it has no client_secret")
    expires: Any = answer.get("client_secret_expires_at")
    # 0 means that the secret never expires. A number that is too large for a date is treated the same way; it may not
    # even fit into a float.
    number = isinstance(expires, int | float) and not isinstance(expires, bool)
    limit = float(expires) if number and 0 < expires < 1e12 else None
    return ClientRecord(id, "registered", secret, method, redirect, limit if secret else None)


def reusable(record: ClientRecord, redirect: str | None, scopes: Collection[str], now: float) -> bool:
    """Return whether a client that was registered before can sign in again, at the same issuer.

    A client can't sign in again if its secret has expired, or if it was registered with another redirect URI or for
    fewer scopes. A client that did not register itself isn't reused either: `register` returns it again without asking
    the server.
    """
    if record.origin != "registered" or record.redirect != redirect:
        return False
    if record.secret_expires_at is not None and record.secret_expires_at <= now:
        return False
    return record.scopes is None or record.scopes.issuperset(scopes)


def choose_method(supported: Collection[str] | None, *, secret: bool, key: bool = False) -> AuthMethod | None:
    """Return how a client with these credentials proves who it is at the token endpoint, or None if it can't.

    Args:
        supported: The methods that the authorization server supports; None if it doesn't say.
        secret: Whether the client has a secret.
        key: Whether it has a private key.
    """
    if key:
        return "private_key_jwt" if supported is None or "private_key_jwt" in supported else None
    # Servers that support public clients don't always list "none", so the list is not consulted for them.
    if not secret:
        return "none"
    # RFC 8414, section 2: a server that doesn't list its methods supports `client_secret_basic`.
    known = _WITH_SECRET if supported is None else supported
    # Methods with a secret are preferred; if the server supports none of them, the secret is not sent.
    return next((method for method in (*_WITH_SECRET, _PUBLIC) if method in known), None)


_WITH_SECRET: Final[tuple[AuthMethod, ...]] = ("client_secret_basic", "client_secret_post")
_PUBLIC: Final[AuthMethod] = "none"


def check_document_url(url: str) -> None:
    """Check the URL of a client's metadata document: ``https``, with a path that has no dot segments.

    Raises:
        ValueError: If the URL can't be a client's id.
    """
    parts = take_apart(url)
    if not url.startswith("https://"):
        raise ValueError("is not https")
    if parts.path in ("", "/"):
        raise ValueError("has no path")
    if parts.dotted:
        raise ValueError("has a path with a segment . or ..")


def check_redirect(url: str) -> None:
    """Check that a redirect URI is on loopback or uses ``https`` (2026-07-28, section Communication Security).

    The port may be 0, which means any free port.

    Raises:
        ValueError: If the URI is malformed, or is neither on loopback nor ``https``.
    """
    # Port 0 is removed before the check, because `take_apart` refuses it.
    bare = _ANY_PORT.sub(r"\1", url)
    take_apart(bare)
    if not url.startswith("https://") and not (url.startswith("http://") and is_loopback(bare)):
        raise ValueError("is neither on loopback nor https; write, for example, 'http://127.0.0.1:0/callback'")
