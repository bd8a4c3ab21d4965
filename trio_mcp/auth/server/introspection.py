"""`IntrospectionVerifier`: asks the issuer about each token (RFC 7662), for tokens that say nothing themselves."""

from __future__ import annotations

import base64
import contextlib
from collections.abc import AsyncIterator
from typing import Final
from urllib.parse import quote_plus, urlencode

import trio
from pydantic_core import from_json

from trio_mcp._checks import check_text, check_url
from trio_mcp.auth.rules.steps import Fetch
from trio_mcp.auth.server.claims import Claims, InvalidToken, Setting, Verify, claims_of
from trio_mcp.auth.server.keys import Unavailable, metadata_of
from trio_mcp.errors import AuthorizationError

__all__ = ["IntrospectionVerifier"]

MAX_QUESTIONS: Final = 64
"""How many tokens are asked about at once; chosen. Others wait: whoever sends garbage must not flood the issuer."""


class IntrospectionVerifier:
    """Checks access tokens by asking their issuer about each of them, which then also knows of revoked ones.

    An answer is remembered for a minute.

    Args:
        client_id: This server's own id at the issuer.
        secret: Its secret.
        endpoint: The introspection endpoint, if the issuer's metadata does not name it.

    Raises:
        TypeError: If an argument is not a string.
        ValueError: If one is empty, or the endpoint is no URL.
    """

    def __init__(self, client_id: str, secret: str, *, endpoint: str | None = None) -> None:
        check_text("client_id", client_id)
        if not isinstance(secret, str) or not secret:  # never shown
            raise (ValueError if isinstance(secret, str) else TypeError)("secret must be a non-empty string")
        if endpoint is not None:
            check_url(endpoint, ("https", "http"))
        # RFC 6749, section 2.3.1: both are form-encoded before they are joined.
        pair = f"{quote_plus(client_id)}:{quote_plus(secret)}"
        self._credentials = "Basic " + base64.b64encode(pair.encode()).decode()
        self._endpoint = endpoint

    @contextlib.asynccontextmanager
    async def opened(self, setting: Setting) -> AsyncIterator[Verify]:
        """Return a block in which tokens can be checked.

        Args:
            setting: What the resource server says.

        Raises:
            ValueError: If there is more than one issuer: the token does not say whom to ask.
        """
        if len(setting.issuers) > 1:
            raise ValueError("IntrospectionVerifier is for one issuer: a token does not say whom to ask")
        issuer, endpoint = setting.issuers[0], self._endpoint
        limiter = trio.CapacityLimiter(MAX_QUESTIONS)

        async def verify(token: str) -> Claims:
            nonlocal issuer, endpoint
            async with limiter:
                fetch = setting.fetch(setting.issuers[0])
                try:
                    if endpoint is None:
                        server = await metadata_of(setting.issuers[0], fetch)
                        issuer, endpoint = server.issuer, server.introspection
                    if endpoint is None:
                        raise Unavailable(f"the metadata of {issuer} has no introspection_endpoint; pass endpoint=")
                    response = await fetch(self._question(endpoint, token))
                except AuthorizationError as exc:
                    raise Unavailable(str(exc)) from None
            if response.status != 200:
                raise Unavailable(f"{endpoint} responded with HTTP {response.status}")
            return _claims(response.body, issuer)

        yield verify

    def _question(self, endpoint: str, token: str) -> Fetch:
        fields = {
            "Accept": "application/json",
            "Content-Type": "application/x-www-form-urlencoded",
            "Authorization": self._credentials,
        }
        body = urlencode({"token": token, "token_type_hint": "access_token"}).encode()
        return Fetch("introspection", "POST", endpoint, fields, body)


def _claims(body: bytes, issuer: str) -> Claims:
    try:
        values = from_json(body)
    except ValueError:
        values = None
    if not isinstance(values, dict) or not isinstance(values.get("active"), bool):
        raise Unavailable(f"the answer of {issuer} is no introspection response")
    if not values["active"]:
        raise InvalidToken("its issuer says that it is not active")
    claims = claims_of(values, issuer)
    if claims.issuer != issuer:
        raise InvalidToken("it is of another issuer")
    return claims
