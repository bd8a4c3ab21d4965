"""The record of a login: all that a client needs to stay signed in without asking a person again."""

from __future__ import annotations

import functools
import json
from typing import Any, Final, Literal, TypeAlias, get_type_hints

import attrs
from pydantic import ConfigDict, ValidationError, create_model

__all__ = ["PROVIDER", "AuthMethod", "ClientRecord", "Login", "Origin"]

VERSION: Final = 1
"""The version of the format that `Login.to_json` writes."""

PROVIDER: Final = " (identity provider)"
"""The suffix of a store key for an identity provider, after its URL: an MCP server may have the same URL.

No URL contains a space, so the key can't be that of another server.
"""

AuthMethod: TypeAlias = Literal["none", "client_secret_basic", "client_secret_post", "private_key_jwt"]
"""How a client proves who it is at the token endpoint."""

Origin: TypeAlias = Literal["given", "document", "registered"]
"""The origin of a client's id: the program, the client's own metadata document, or dynamic registration."""


@attrs.frozen
class ClientRecord:
    """A client, as its authorization server sees it.

    Attributes:
        id: The ``client_id``.
        origin: Where the id comes from.
        secret: The client's secret; None for a public client.
        method: The method by which the client authenticates.
        redirect: The redirect URI that the client was registered with, if any.
        secret_expires_at: When the secret expires, in seconds since the epoch; None if it never does.
        scopes: The scopes that the client was registered for; None if there is no such limit.
    """

    id: str
    origin: Origin
    secret: str | None = attrs.field(default=None, repr=False)
    method: AuthMethod = "none"
    redirect: str | None = None
    secret_expires_at: float | None = None
    scopes: frozenset[str] | None = None


@attrs.frozen
class Login:
    """A login at one authorization server, for one resource.

    Attributes:
        resource: The resource that the tokens are for, byte for byte as it was sent; None if the server named none.
        issuer: The issuer of the authorization server, as in its own metadata.
        client: The client that signed in.
        token_endpoint: The URL of the token endpoint, for refreshes.
        access_token: The access token.
        token_type: The scheme of the access token: ``"Bearer"`` or ``"DPoP"``.
        expires_at: When the access token expires, in seconds since the epoch; None if that is not known.
        refresh_token: The refresh token, if there is one.
        scopes: The granted scopes; None if they are unknown.
        asked: The requested scopes.
        revocation_endpoint: Where to revoke tokens, if the server has such an endpoint.
        dpop_key: The private key for DPoP as a JWK in JSON; None without DPoP.
        id_token: The ID token of an OpenID provider, for an `IdentityAssertion`.
    """

    resource: str | None
    issuer: str
    client: ClientRecord
    token_endpoint: str
    access_token: str = attrs.field(repr=False)
    token_type: Literal["Bearer", "DPoP"] = "Bearer"
    expires_at: float | None = None
    refresh_token: str | None = attrs.field(default=None, repr=False)
    scopes: frozenset[str] | None = None
    asked: frozenset[str] = frozenset()
    revocation_endpoint: str | None = None
    dpop_key: str | None = attrs.field(default=None, repr=False)
    id_token: str | None = attrs.field(default=None, repr=False)

    def to_json(self) -> str:
        """Return the login as JSON, for a store. The text is secret."""
        # JSON has no sets: they become sorted lists, so that equal logins give equal text.
        return json.dumps({"version": VERSION, **attrs.asdict(self)}, default=sorted)

    @classmethod
    def from_json(cls, text: str) -> Login:
        """Return the login that `to_json` has written.

        Raises:
            ValueError: If the text is anything else; the message does not quote it.
        """
        try:
            found = _models().model_validate_json(text)
        except ValidationError as exc:
            # The error names only the field: pydantic's message, and a traceback with the cause, would quote the
            # tokens.
            where = ".".join(map(str, exc.errors(include_input=False, include_url=False)[0]["loc"]))
            raise ValueError(
                f"it was not written by this version of trio_mcp{where and f' (problem at {where!r})'}"
            ) from None
        fields = dict(found)
        del fields["version"]
        return cls(**{**fields, "client": ClientRecord(**dict(found.client))})


@functools.cache
def _models() -> Any:
    """Return a model that checks the text of `Login.to_json`; making it takes a moment, so it is cached."""
    return _model(Login, version=(Literal[1], ...), client=(_model(ClientRecord), ...))


def _model(kind: Any, **more: Any) -> Any:
    """Return a model that checks the fields of an attrs class strictly."""
    hints = get_type_hints(kind)
    fields: dict[str, Any] = {
        field.name: (hints[field.name], ... if field.default is attrs.NOTHING else field.default)
        for field in attrs.fields(kind)
    }
    # `hide_input_in_errors` isn't needed, because only the location of an error is shown.
    rules = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)
    return create_model(kind.__name__, __config__=rules, **(fields | more))
