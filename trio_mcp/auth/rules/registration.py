"""How a client gets its id at an authorization server: given, by its own metadata document, or registered (RFC 7591)."""

from __future__ import annotations

from collections.abc import Collection

import attrs

from trio_mcp.auth.rules.login import AuthMethod, ClientRecord
from trio_mcp.auth.rules.metadata import AuthorizationServer
from trio_mcp.auth.rules.steps import Flow

__all__ = ["RegisteredClient", "check_document_url", "choose_method", "register", "reusable"]


@attrs.frozen
class RegisteredClient:
    """A client that was registered with an authorization server beforehand.

    Args:
        id: Its ``client_id``.
        secret: Its secret, if it has one.
        issuer: The issuer of the authorization server that knows it. At any other the client is refused.
        method: How it proves who it is at the token endpoint; None: as the authorization server's metadata allows.
    """

    id: str
    secret: str | None = attrs.field(default=None, repr=False, kw_only=True)
    issuer: str | None = attrs.field(default=None, kw_only=True)
    method: AuthMethod | None = attrs.field(default=None, kw_only=True)


def register(
    at: AuthorizationServer,
    *,
    client: RegisteredClient | None = None,
    metadata_url: str | None = None,
    redirect: str | None,
    scopes: Collection[str] = (),
    name: str = "trio_mcp",
    grants: Collection[str] = ("authorization_code", "refresh_token"),
) -> Flow[ClientRecord]:
    """Get a client's id: the one given, else its metadata document, else a new registration.

    Args:
        at: The authorization server.
        client: The client that was registered beforehand.
        metadata_url: The URL of the client's own metadata document.
        redirect: The redirect URI that will be used; None if nobody is redirected.
        scopes: All scopes that the client may ever ask for.
        name: The client's name, which people are shown.
        grants: The grant types that the client uses.

    Raises:
        AuthorizationError: If none of them is possible; the advice says what to set.
    """
    raise NotImplementedError
    yield


def reusable(record: ClientRecord, redirect: str | None, scopes: Collection[str], now: float) -> bool:
    """Return whether a client that was registered before can sign in again, at the same issuer.

    Not if its secret has expired, or if it was registered with another redirect URI or for fewer scopes.
    """
    raise NotImplementedError


def choose_method(supported: Collection[str] | None, *, secret: bool, key: bool = False) -> AuthMethod | None:
    """Return how a client with these credentials proves who it is at the token endpoint, or None if it can't.

    Args:
        supported: What the authorization server supports; None if it doesn't say.
        secret: Whether the client has a secret.
        key: Whether it has a private key.
    """
    raise NotImplementedError


def check_document_url(url: str) -> None:
    """Check the URL of a client's metadata document: ``https``, with a path, nothing hidden in it.

    Raises:
        ValueError: If it can't be a client's id.
    """
    raise NotImplementedError
