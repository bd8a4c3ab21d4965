"""Enterprise-managed authorization: an identity provider decides, and the person is not asked again by each server."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Collection, Mapping
from functools import partial
from typing import Any, ClassVar

from trio_mcp.auth.client.machine_means import MachineMeans
from trio_mcp.auth.client.machines import Machine, called
from trio_mcp.auth.fetching import FetchFunction
from trio_mcp.auth.rules.dpop import DpopUse
from trio_mcp.auth.rules.metadata import find_server
from trio_mcp.auth.rules.registration import RegisteredClient, register
from trio_mcp.auth.rules.steps import Flow
from trio_mcp.auth.rules.token_answers import Tokens
from trio_mcp.auth.rules.token_requests import JWT_BEARER, TOKEN_EXCHANGE, TokenEndpoint, jwt_bearer, token_exchange
from trio_mcp.auth.rules.urls import UrlPolicy

__all__ = ["IdentityAssertion"]


class IdentityAssertion(Machine):
    """Signs requests for a person whom an identity provider knows, as the organization allows (ID-JAG).

    The person has signed in to the program by the provider. The ID token of that is exchanged there for an assertion,
    and the assertion at the server's authorization server for a token.

    Args:
        idp: The issuer of the identity provider.
        id_token: An async function that returns the person's ID token, not yet expired; or the token itself.
        client: The program at the server's authorization server, with the secret or key that it has there.
        idp_client: The program at the identity provider, to which the ID token was issued.
        scopes: What to ask for; by default what the server asks for.
        dpop: Whether tokens are bound to a key: ``"auto"`` where the authorization server offers it, ``"require"``, or
            ``"off"``.
        urls: Which URLs that a server names are fetched.
        fetch: Makes the exchanges instead; for tests.
        clock: Tells the time, in seconds since the epoch.
    """

    extensions: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "io.modelcontextprotocol/enterprise-managed-authorization": {}
    }

    def __init__(
        self,
        idp: str,
        id_token: str | Callable[[], Awaitable[str]],
        *,
        client: RegisteredClient,
        idp_client: RegisteredClient,
        scopes: Collection[str] | None = None,
        dpop: DpopUse = "auto",
        urls: UrlPolicy | None = None,
        fetch: FetchFunction | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        policy = UrlPolicy() if urls is None else urls
        means = MachineMeans(
            partial(_ask, idp, id_token, idp_client, policy),
            grant=JWT_BEARER,
            client=client,
            issuer=client.issuer,
            scopes=scopes,
            dpop=dpop,
            urls=policy,
            clock=clock,
        )
        super().__init__(means, policy, fetch)


def _ask(
    idp: str,
    id_token: str | Callable[[], Awaitable[str]],
    idp_client: RegisteredClient,
    policy: UrlPolicy,
    at: TokenEndpoint,
    scopes: Collection[str],
    resource: str | None,
) -> Flow[Tokens]:
    # Fetched each time: providers move their endpoints, and this happens once in a token's life.
    provider = yield from find_server(idp, policy, idp)
    record = yield from register(provider, client=idp_client, redirect=None, grants=(TOKEN_EXCHANGE,))
    there = TokenEndpoint(
        issuer=provider.issuer,
        url=provider.need("token", "token exchange"),
        client=record,
        key=idp_client.key,
        clock=at.clock,
    )
    token = id_token if isinstance(id_token, str) else (yield from called("the ID token", there, id_token))
    assertion = yield from token_exchange(there, id_token=token, audience=at.issuer, scopes=scopes, resource=resource)
    return (yield from jwt_bearer(at, assertion=assertion, scopes=scopes, resource=resource))
