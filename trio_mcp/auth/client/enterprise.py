"""Enterprise-managed authorization: an identity provider decides, and the person is not asked again by each server."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping
from functools import partial
from typing import Any, ClassVar, TypeAlias, Unpack

from trio_mcp.auth.client.machines import Machine, called
from trio_mcp.auth.client.oauth import OAuth
from trio_mcp.auth.client.options import TokenOptions
from trio_mcp.auth.rules.metadata import find_server
from trio_mcp.auth.rules.registration import RegisteredClient, register
from trio_mcp.auth.rules.steps import CallFunction, Flow
from trio_mcp.auth.rules.token_answers import Tokens
from trio_mcp.auth.rules.token_requests import JWT_BEARER, TOKEN_EXCHANGE, TokenEndpoint, jwt_bearer, token_exchange
from trio_mcp.auth.rules.urls import UrlPolicy

__all__ = ["IdentityAssertion"]

Identify: TypeAlias = Callable[[Callable[[], float]], Flow[tuple[TokenEndpoint, str]]]
"""A function that takes a clock, and returns the flow that gets the provider's token endpoint and the ID token."""


class IdentityAssertion(Machine):
    """Authorizes requests on behalf of a person known to an identity provider, as the organization allows (ID-JAG).

    The person signs in at the provider, once for all servers. The provider exchanges the ID token for an assertion,
    and the server's authorization server exchanges the assertion for a token.

    Args:
        idp: The issuer of the identity provider.
        person: An `OAuth` with which the person signs in at the provider: its store keeps that login, and its client
            is registered there. Or an async function that returns the person's ID token, which must not have expired.
        client: The client that is registered at the server's authorization server, with its secret or key.
        idp_client: The client that is registered at the identity provider, and that the ID token from the function is
            issued to. Leave it out for an `OAuth`, which has its own.
        options: Further arguments; see `TokenOptions`.

    Raises:
        TypeError: If the client at the identity provider is given twice or not at all, or if ``person`` is neither an
            `OAuth` nor a function.
    """

    extensions: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "io.modelcontextprotocol/enterprise-managed-authorization": {}
    }

    def __init__(
        self,
        idp: str,
        person: OAuth | Callable[[], Awaitable[str]],
        *,
        client: RegisteredClient,
        idp_client: RegisteredClient | None = None,
        **options: Unpack[TokenOptions],
    ) -> None:
        if isinstance(person, OAuth):
            if idp_client is not None:
                raise TypeError("leave out idp_client: the person is an OAuth, which has a client of its own")
            identify: Identify = partial(_signed_in, idp, person)
        elif not callable(person):
            raise TypeError(f"the person must be an OAuth or an async function, got {type(person).__name__}")
        elif idp_client is None:
            raise TypeError("pass idp_client, the client to which the ID token is issued")
        else:
            identify = partial(_given, idp, person, idp_client, options.get("urls", UrlPolicy()))
        super().__init__(
            partial(_ask, identify),
            options,
            grant=JWT_BEARER,
            client=client,
            issuer=client.issuer,
            # Both an `OAuth` and a function may have to ask the person for the ID token, which takes longer than a
            # renewal may take.
            asks=True,
            again=False,
        )


def _ask(identify: Identify, at: TokenEndpoint, scopes: Collection[str], resource: str | None) -> Flow[Tokens]:
    there, id_token = yield from identify(at.clock)
    # The request goes to the provider, but the audience is the server's authorization server, which alone accepts the
    # assertion (draft-ietf-oauth-identity-assertion-authz-grant). The draft leaves `resource` to the client; the
    # conformance suite requires it.
    assertion = yield from token_exchange(
        there, id_token=id_token, audience=at.issuer, scopes=scopes, resource=resource
    )
    return (yield from jwt_bearer(at, assertion=assertion, scopes=scopes, resource=resource))


def _signed_in(idp: str, person: OAuth, clock: Callable[[], float]) -> Flow[tuple[TokenEndpoint, str]]:
    # A flow can't await, so the code that drives it makes the call.
    found: tuple[TokenEndpoint, str] = yield CallFunction(lambda: person.identity(idp))
    return found


def _given(
    idp: str,
    id_token: Callable[[], Awaitable[str]],
    client: RegisteredClient,
    policy: UrlPolicy,
    clock: Callable[[], float],
) -> Flow[tuple[TokenEndpoint, str]]:
    # The metadata is looked up each time, because providers may move their endpoints. One lookup in the lifetime of a
    # token costs little.
    provider = yield from find_server(idp, policy, idp)
    record = yield from register(provider, client=client, redirect=None, grants=(TOKEN_EXCHANGE,))
    there = TokenEndpoint(
        issuer=provider.issuer,
        url=provider.need("token", "token exchange"),
        client=record,
        key=client.key,
        clock=clock,
    )
    return there, (yield from called("the ID token", there, id_token))
