"""The responses of a token endpoint: each either grants tokens or becomes an error that says why not."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterable, Mapping
from typing import Any, Final, Literal

import attrs

from trio_mcp.auth.rules.scopes import read_scopes
from trio_mcp.auth.rules.steps import Fetched
from trio_mcp.auth.rules.texts import cleaned, clock_ahead, json_object
from trio_mcp.errors import AuthorizationError
from trio_mcp.http.headers import Headers

__all__ = ["Tokens", "error_code", "id_token_holds", "read_tokens", "refusal", "seconds"]

# The pattern follows RFC 6749, appendix A.12. It has no space, so that a token can be sent in a header field.
_TOKEN = re.compile(r"[\x21-\x7e]+")
# The pattern follows RFC 6749, appendix A.17. It excludes lone surrogates, which JSON may contain, because they could
# not even be sent.
_TEXT = re.compile(r"[\x20-\x7e]+")
# Every JWT begins with these characters, and every assertion and every proof is a JWT.
_JWT: Final = "eyJ"
# RFC 6749, appendix A.7, allows more characters, but all registered error codes match this pattern.
_CODE = re.compile(r"[A-Za-z0-9._~:/-]{1,100}")
# A string of fewer characters may be part of any word, so it does not count as a secret.
_SHORTEST: Final = 4
# This maximum lifetime, in seconds, is about thirty years: if a token has a longer one, its expiry counts as unknown.
_MAX_LIFETIME: Final = 1e9
# An ID token must be valid for at least this many more seconds, so that there is time to send it to its provider before
# it expires.
_TO_SPARE: Final = 30
# A greater difference between the clocks, in seconds, is mentioned in the error: servers tolerate a few minutes at
# most.
_MAX_SKEW: Final = 120

_ADVICE: Final = {
    "invalid_client": "check the client's id and its secret or key",
    "invalid_grant": "the code, token or assertion has expired, was used before, or is for another client",
    "unauthorized_client": "allow this client the grant in the authorization server's settings",
    "unsupported_grant_type": "this authorization server does not support the grant of the request",
    "invalid_scope": "ask for scopes that the authorization server supports",
    "invalid_target": "the authorization server does not know the resource: register it there",
    "invalid_dpop_proof": "check this machine's clock, or pass dpop='off'",
    "access_denied": "the person, or a policy of the authorization server, denied access",
    "expired_token": "the code was not entered in time: start again",
}
"""The advice for the error codes of RFC 6749, 7009, 8628, 8707 and 9449."""


@attrs.frozen
class Tokens:
    """The tokens that a token endpoint granted.

    Attributes:
        access_token: The access token.
        token_type: The scheme of the access token.
        expires_at: When the access token expires, in seconds since the epoch; None if the response does not say.
        refresh_token: The new refresh token; None if the response has none, in which case the old one stays valid.
        scopes: The granted scopes; None if the response does not say, which means the requested ones.
        id_token: The ID token, if an OpenID provider sent one.
    """

    access_token: str = attrs.field(repr=False)
    token_type: Literal["Bearer", "DPoP"] = "Bearer"
    expires_at: float | None = None
    refresh_token: str | None = attrs.field(default=None, repr=False)
    scopes: frozenset[str] | None = None
    id_token: str | None = attrs.field(default=None, repr=False)


def read_tokens(granted: Mapping[str, Any], asked_at: float, *, proven: bool) -> Tokens:
    """Read the tokens that a token endpoint granted.

    Args:
        granted: The JSON object in the response.
        asked_at: When the request was made: a token's life may have begun then.
        proven: Whether the request had a DPoP proof.

    Raises:
        ValueError: If the object has no usable token; the message says why.
    """
    token = granted.get("access_token")
    if not (isinstance(token, str) and _TOKEN.fullmatch(token)):
        raise ValueError("its response has no usable access_token")
    given = granted.get("token_type", "Bearer")  # `token_type` is required, but some servers leave it out
    # The type is not case-sensitive (RFC 6749, section 5.1). A DPoP token is useless if the request had no proof,
    # because then the token is bound to some other key.
    kind = given.lower() if isinstance(given, str) else ""
    if kind not in ("bearer", "dpop") or (kind == "dpop" and not proven):
        raise ValueError(f"its token is of a type that was not asked for: {cleaned(given)}")
    lifetime = seconds(granted.get("expires_in"))
    return Tokens(
        access_token=token,
        token_type="DPoP" if kind == "dpop" else "Bearer",
        expires_at=None if lifetime is None else asked_at + lifetime,
        refresh_token=_text(granted.get("refresh_token")),
        scopes=_scopes(granted.get("scope")),
        id_token=_text(granted.get("id_token")),
    )


def id_token_holds(token: str | None, issuer: str, client_id: str, now: float) -> bool:
    """Return whether an ID token is from an issuer, for a client, and not about to expire (OpenID Connect, 3.1.3.7).

    The signature is not checked: the token came from the token endpoint itself, over TLS, and the servers that accept
    it check the signature.
    """
    try:
        payload = (token or "").split(".")[1]
        claims = json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
        audience, expires = claims["aud"], claims["exp"]
        is_for_us = client_id == audience if isinstance(audience, str) else client_id in audience
        return bool(claims["iss"] == issuer and is_for_us and expires > now + _TO_SPARE)
    except (ValueError, LookupError, TypeError, RecursionError):
        return False


def seconds(value: object) -> float | None:
    """Return a lifetime in seconds, given as a number or, by some servers, as a string; None for anything else."""
    if isinstance(value, str) and len(value) <= 20:
        try:
            value = float(value)
        except ValueError:
            return None
    # A bool is an int in Python, so `true` would count as one second.
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    # An int may be too large for a float, and then `math.isfinite` would raise an exception; a comparison never does.
    # NaN is neither above 0 nor below the limit, so it is refused, too.
    return float(value) if 0 < value <= _MAX_LIFETIME else None


def error_code(response: Fetched) -> str | None:
    """Return the error code that a response carries; None if it grants something, or says nothing about the grant.

    A server that is overloaded or broken (429, 5xx) says nothing about the grant, whatever it writes.
    """
    # Callers drop a login after `invalid_grant`. If an outage could look like that, everyone would have to sign in
    # again.
    if response.status == 429 or response.status >= 500:
        return None
    code = (json_object(response) or {}).get("error")
    return code if isinstance(code, str) and _CODE.fullmatch(code) else None


def refusal(
    step: str,
    issuer: str,
    response: Fetched,
    *,
    now: float,
    secrets: Iterable[str] = (),
    advice: str = "",
) -> AuthorizationError:
    """Return the error for a response that grants nothing.

    Args:
        step: The step of the flow that got the response.
        issuer: The authorization server that sent the response.
        response: The response.
        now: The current time, to detect a wrong clock.
        secrets: Strings that must not be shown, though the server may repeat them.
        advice: Advice that replaces the usual advice for the error code; an empty string replaces nothing.
    """
    # `secrets` contains no assertions and proofs, because each request has new ones. They are recognized by how they
    # begin.
    hidden = [_JWT, *(text for text in secrets if len(text) >= _SHORTEST)]
    code = error_code(response)
    # The server chooses the error code as well, and may repeat in it the very secret that it refuses.
    if code and any(secret in code for secret in hidden):
        code = None
    problem = f"the server responded with status {response.status}"
    if 300 <= response.status < 400:
        problem += ", a redirection, which is not followed with credentials"
    elif code is None:
        problem += " and no error code"
    elif description := _description(response, hidden):
        problem += f": {description}"
    advice = advice or _ADVICE.get(code or "", "")
    if skew := _skew(response.headers, now):
        advice = f"{skew}{'; ' if advice else ''}{advice}"
    return AuthorizationError(step, problem, issuer=issuer, error=code, advice=advice)


def _description(response: Fetched, hidden: Iterable[str]) -> str:
    said = (json_object(response) or {}).get("error_description")
    if isinstance(said, str) and any(secret in said for secret in hidden):
        return ""
    return (cleaned(said) or "").rstrip(".")


def _skew(headers: Headers, now: float) -> str:
    """Return a remark if this machine's clock and the server's differ by minutes; otherwise an empty string."""
    # Proofs and assertions are often refused because the clocks differ, but no error code says so.
    ahead = clock_ahead(headers, now)
    if abs(ahead) <= _MAX_SKEW:
        return ""
    return f"this machine's clock is {abs(ahead):.0f} s {'ahead of' if ahead > 0 else 'behind'} the server's"


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and _TEXT.fullmatch(value) else None


def _scopes(value: object) -> frozenset[str] | None:
    if isinstance(value, str):
        value = value.split()
    # Some servers send a list instead of a string.
    if not isinstance(value, list) or not value or not all(isinstance(scope, str) for scope in value):
        return None
    return read_scopes(" ".join(value)) or None
