"""How programs get tokens: they look up the metadata, and request a grant that needs no person."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TypeAlias

import attrs

from trio_mcp.auth.client.asking import Asker
from trio_mcp.auth.client.login_refresh import Need
from trio_mcp.auth.client.options import TokenOptions
from trio_mcp.auth.rules.dpop import Prover, choose_prover
from trio_mcp.auth.rules.login import ClientRecord, Login
from trio_mcp.auth.rules.metadata import Discovered, discover
from trio_mcp.auth.rules.registration import RegisteredClient, register
from trio_mcp.auth.rules.scopes import select_scopes
from trio_mcp.auth.rules.steps import Flow
from trio_mcp.auth.rules.token_answers import Tokens
from trio_mcp.auth.rules.token_requests import TokenEndpoint, renewed, to_login
from trio_mcp.auth.rules.urls import same_issuer
from trio_mcp.errors import AuthorizationError

__all__ = ["AskFor", "MachineMeans"]

AskFor: TypeAlias = Callable[[TokenEndpoint, Collection[str], str | None], Flow[Tokens]]
"""A function that returns the flow that gets tokens from an endpoint, for scopes and a resource."""


@attrs.define(kw_only=True)
class MachineMeans:
    """How a program gets tokens for itself: an implementation of `trio_mcp.auth.client.login_refresh.Means`.

    Attributes:
        ask_for: Returns the flow that gets the tokens.
        grant: The grant type.
        client: The client at the authorization server; None if the grant needs none.
        issuer: The authorization server that gets all requests; None means the first one that a server names.
        options: The options that all clients have in common.
        again: Whether the grant is simply requested again once a token has expired.
        asks: Whether the program's own functions may ask a person.
    """

    ask_for: AskFor = attrs.field(kw_only=False)
    options: TokenOptions = attrs.field(kw_only=False)
    grant: str
    client: RegisteredClient | None
    issuer: str | None
    again: bool = True
    asks: bool = False
    # No `Asker` is needed, because only the program's own functions may ask a person.
    asker: Asker | None = attrs.field(default=None, init=False)

    def accepts(self, login: Login) -> bool:
        """Return True: the store of a program contains only its own logins."""
        return True

    def refusal(self, need: Need) -> AuthorizationError | None:
        """Return None: a program may always try to get a token."""
        return None

    def obtain(self, need: Need) -> Flow[Login]:
        """Return a flow that finds the authorization server, and requests tokens there."""
        prefer = [] if self.issuer is None else [self.issuer]
        options = self.options
        found: Discovered = yield from discover(need.server, need.wanted, options["urls"], prefer)
        # The issuer is settled before the first request that carries a secret or an assertion.
        self._settle(found.server.issuer)
        record = None
        if self.client is not None:
            record = yield from register(found.server, client=self.client, redirect=None, grants=(self.grant,))
        prover = choose_prover(options["dpop"], found, need.wanted, options["clock"])
        at = self._endpoint(found.server.issuer, found.server.need("token", "token"), record, prover)
        scopes = need.scopes | select_scopes(
            options["scopes"],
            challenged=need.wanted.scopes,
            listed=found.resource.scopes if found.resource else None,
            offered=found.server.scopes,
            # A client without a user can request a new token at any time, so it needs no refresh token.
            offline=False,
        )
        tokens = yield from self.ask_for(at, scopes, found.audience)
        return to_login(at, tokens, resource=found.audience, asked=scopes, revocation_endpoint=found.server.revocation)

    def renew(self, login: Login, prover: Prover | None) -> Flow[Login] | None:
        """Return a flow that requests a token at the same endpoint as before; None if a new login is needed instead."""
        # The login contains the token endpoint, so replacing an expired token takes one exchange and no search for
        # metadata.
        return self._renew(login, prover) if self.again else None

    def _renew(self, login: Login, prover: Prover | None) -> Flow[Login]:
        # If there is no client, the login contains only a placeholder for one, which must not be sent.
        at = self._endpoint(login.issuer, login.token_endpoint, login.client if self.client else None, prover)
        return renewed(login, (yield from self.ask_for(at, login.asked, login.resource)))

    def _endpoint(self, issuer: str, url: str, client: ClientRecord | None, prover: Prover | None) -> TokenEndpoint:
        return TokenEndpoint(
            issuer=issuer,
            url=url,
            client=client,
            key=self.client.key if self.client else None,
            prover=prover,
            require_dpop=self.options["dpop"] == "require",
            clock=self.options["clock"],
        )

    def _settle(self, issuer: str) -> None:
        """Commit to one authorization server: the program's credentials go to no other."""
        # The first authorization server is used for all MCP servers: a later MCP server could name one that it
        # controls, and so get the secret.
        if self.issuer is None:
            self.issuer = issuer
        if not same_issuer(self.issuer, issuer):
            problem = f"these credentials are for {self.issuer}, which is not the server's authorization server"
            advice = "make a separate auth= object for each authorization server, with its issuer"
            raise AuthorizationError("authorization server metadata", problem, issuer=issuer, advice=advice)
