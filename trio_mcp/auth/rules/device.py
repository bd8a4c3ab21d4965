"""The device grant (RFC 8628): a person signs in on another device, and the client polls until that has happened."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Any, Final

from trio_mcp.auth.rules.steps import Flow, ShowCode, Wait
from trio_mcp.auth.rules.token_answers import Tokens, seconds
from trio_mcp.auth.rules.token_requests import TokenEndpoint, granted, to_tokens, with_target
from trio_mcp.errors import AuthorizationError

__all__ = ["DEVICE_GRANT", "device"]

_STEP: Final = "device"
DEVICE_GRANT: Final = "urn:ietf:params:oauth:grant-type:device_code"
# The code is shown in a terminal, so it must not contain anything that could move the cursor.
_CODE = re.compile(r"[\x21-\x7e][\x20-\x7e]{0,63}")
# A person opens the URL, so `javascript:`, `file:` and control characters are not allowed.
_URL = re.compile(r"https?://[\x21-\x7e]{1,2000}")
# A code is valid for `_LIFETIME` seconds if the server names no lifetime, and for `_MAX_LIFETIME` seconds at most.
_LIFETIME: Final = 600.0
_MAX_LIFETIME: Final = 1800.0
# The intervals between polls are in seconds. `_INTERVAL` comes from RFC 8628, section 3.2, and `_SLOWER` from section
# 3.5; the two maximums are arbitrary choices.
_INTERVAL: Final = 5.0
_MAX_INTERVAL: Final = 60.0
_SLOWER: Final = 5.0
_MAX_FAILURES: Final = 5


def device(
    at: TokenEndpoint, *, endpoint: str, scopes: Collection[str] = (), resource: str | None = None
) -> Flow[Tokens]:
    """Get a code for a person to enter elsewhere, show it, and ask for tokens until the person has decided.

    Args:
        at: The token endpoint, and the client that asks there.
        endpoint: The device authorization endpoint.
        scopes: The scopes of the tokens.
        resource: The resource that the tokens are for.

    Raises:
        AuthorizationError: If the server or the person refuses, or the code expires; the error's step is ``"device"``.
    """
    ask = with_target({}, scopes, resource)
    if at.client is not None and at.client.method == "client_secret_basic":
        ask["client_id"] = at.client.id  # the id is sent in the form, too (RFC 8628, section 3.1)
    answer = yield from granted(at, _STEP, endpoint, ask)
    show = _read(at, answer)
    yield show
    # The scopes are sent only with the request for the code (RFC 8628, section 3.4).
    form = with_target({"grant_type": DEVICE_GRANT, "device_code": str(answer["device_code"])}, (), resource)
    interval, failures, waited = _interval(answer.get("interval")), 0, 0.0
    while waited < show.expires_in:
        yield Wait(interval)
        waited += interval
        asked_at = at.clock()
        try:
            answer = yield from granted(at, _STEP, at.url, form)
        except AuthorizationError as exc:
            # The client slows down if it has asked too often, a connection was lost, or the server is overloaded (RFC
            # 8628, section 3.5). Only failures in a row count: one lost connection must not invalidate the code that
            # the person is entering.
            failures = failures + 1 if exc.error is None else 0
            if exc.error not in ("authorization_pending", "slow_down", None) or failures > _MAX_FAILURES:
                raise
            if exc.error != "authorization_pending":
                interval = min(interval + _SLOWER, _MAX_INTERVAL)
        else:
            return to_tokens(at, _STEP, answer, asked_at)
    problem = f"the code was not entered within {waited:.0f} s"
    raise AuthorizationError(_STEP, problem, issuer=at.issuer, advice="start the sign-in again")


def _read(at: TokenEndpoint, answer: Mapping[str, Any]) -> ShowCode:
    code, user_code = answer.get("device_code"), answer.get("user_code")
    url = answer.get("verification_uri", answer.get("verification_url"))  # the second name is older than the standard
    complete = answer.get("verification_uri_complete")
    # The code must be ASCII: a lone surrogate, which JSON may contain, could not be sent back.
    if not (isinstance(code, str) and code.isascii() and code):
        raise AuthorizationError(_STEP, "the server's response has no device_code", issuer=at.issuer)
    if not (isinstance(user_code, str) and _CODE.fullmatch(user_code) and isinstance(url, str) and _URL.fullmatch(url)):
        raise AuthorizationError(
            _STEP, "the server's response has no user_code or no verification_uri that can be shown", issuer=at.issuer
        )
    return ShowCode(
        url=url,
        code=user_code,
        # The URL that contains the code is optional (RFC 8628, section 3.2): if it is invalid, the other URL and the
        # code are enough.
        complete_url=complete if isinstance(complete, str) and _URL.fullmatch(complete) else None,
        expires_in=min(seconds(answer.get("expires_in")) or _LIFETIME, _MAX_LIFETIME),
    )


def _interval(value: object) -> float:
    # The shortest interval is one second: if the server could ask for 0.001, the client would send thousands of
    # requests.
    return min(max(seconds(value) or _INTERVAL, 1.0), _MAX_INTERVAL)
