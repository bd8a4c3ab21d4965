"""How programs get tokens: the metadata is looked up, and a grant is asked for that needs no person."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TypeAlias, get_args

import attrs

from trio_mcp._checks import check_choice
from trio_mcp.auth.client.asking import Asker
from trio_mcp.auth.client.keeping import Need
from trio_mcp.auth.rules.dpop import DpopUse, Prover, choose_prover
from trio_mcp.auth.rules.jose import need_jose
from trio_mcp.auth.rules.login import ClientRecord, Login
from trio_mcp.auth.rules.metadata import Discovered, discover
from trio_mcp.auth.rules.registration import RegisteredClient, register
from trio_mcp.auth.rules.scopes import select_scopes
from trio_mcp.auth.rules.steps import Flow
from trio_mcp.auth.rules.token_answers import Tokens
from trio_mcp.auth.rules.token_requests import TokenEndpoint, renewed, to_login
from trio_mcp.auth.rules.urls import UrlPolicy, same_issuer
from trio_mcp.errors import AuthorizationError

__all__ = ["MachineMeans"]

AskFor: TypeAlias = Callable[[TokenEndpoint, Collection[str], str | None], Flow[Tokens]]
"""Makes the flow that gets tokens for scopes and a resource."""


@attrs.define(kw_only=True)
class MachineMeans:
    """The `trio_mcp.auth.client.keeping.Means` of a program.

    Attributes:
        ask_for: Gets the tokens.
        grant: The grant type.
        client: The client at the authorization server; None if the grant needs none.
        issuer: The authorization server that everything goes to; the first one met if that is None.
        scopes: What to ask for, or None for what the server asks for.
        dpop: Whether tokens are bound to a key.
        urls: Which URLs are allowed.
        clock: Tells the time.
        again: Whether the grant is simply asked for again once a token has expired.
        asks: Whether a function of the program is called that may ask a person.
    """

    ask_for: AskFor = attrs.field(kw_only=False)
    grant: str
    client: RegisteredClient | None
    issuer: str | None
    scopes: Collection[str] | None
    dpop: DpopUse
    urls: UrlPolicy | None
    clock: Callable[[], float]
    again: bool = True
    asks: bool = False
    # Not by the keeper, that is.
    asker: Asker | None = attrs.field(default=None, init=False)
    redirect: str | None = attrs.field(default=None, init=False)
    login_timeout: float = attrs.field(default=0.0, init=False)

    def __attrs_post_init__(self) -> None:
        """Refuse what can't work, such as scopes that would be an iterable of letters."""
        check_choice("dpop", self.dpop, get_args(DpopUse))
        if self.dpop == "require":
            need_jose("dpop='require'")
        if isinstance(self.scopes, str):
            raise TypeError(f"scopes must be a set of strings; write {set(self.scopes.split())!r}")

    def accepts(self, login: Login) -> bool:
        """Return whether a stored login is this program's: no others are in its store."""
        return True

    def refusal(self, need: Need) -> AuthorizationError | None:
        """Return None: without a person, it can always be tried."""
        return None

    def obtain(self, need: Need) -> Flow[Login]:
        """Return a flow that finds the authorization server, and asks there."""
        prefer = [] if self.issuer is None else [self.issuer]
        found: Discovered = yield from discover(need.server, need.wanted, self.urls or UrlPolicy(), prefer)
        # Before the first request that carries a secret or an assertion.
        self._settle(found.server.issuer)
        record = None
        if self.client is not None:
            record = yield from register(found.server, client=self.client, redirect=None, grants=(self.grant,))
        prover = choose_prover(self.dpop, found, need.wanted, self.clock)
        at = self._endpoint(found.server.issuer, found.server.need("token", "token"), record, prover)
        scopes = need.scopes | select_scopes(
            self.scopes,
            challenged=need.wanted.scopes,
            listed=found.resource.scopes if found.resource else None,
            offered=found.server.scopes,
            offline=False,  # a program asks again, and needs no refresh token
        )
        tokens = yield from self.ask_for(at, scopes, found.audience)
        return to_login(at, tokens, resource=found.audience, asked=scopes, revocation_endpoint=found.server.revocation)

    def renew(self, login: Login, prover: Prover | None) -> Flow[Login] | None:
        """Return a flow that asks again where the last token came from; None if everything is to be looked up anew."""
        # The login says where to ask, so an expired token costs one exchange and no search for metadata.
        return self._renew(login, prover) if self.again else None

    def _renew(self, login: Login, prover: Prover | None) -> Flow[Login]:
        # Without a client the login has only a placeholder for one, which must not be sent.
        at = self._endpoint(login.issuer, login.token_endpoint, login.client if self.client else None, prover)
        tokens = yield from self.ask_for(at, login.asked, login.resource)
        return renewed(login, tokens)

    def _endpoint(self, issuer: str, url: str, client: ClientRecord | None, prover: Prover | None) -> TokenEndpoint:
        return TokenEndpoint(
            issuer=issuer,
            url=url,
            client=client,
            key=self.client.key if self.client else None,
            prover=prover,
            require_dpop=self.dpop == "require",
            clock=self.clock,
        )

    def _settle(self, issuer: str) -> None:
        """Hold on to one authorization server: what proves who the program is goes to no other."""
        # The first one counts for all servers: one that comes later could name an authorization server of its own, and
        # so get the secret.
        if self.issuer is None:
            self.issuer = issuer
        if not same_issuer(self.issuer, issuer):
            problem = f"these credentials are for {self.issuer}, which is not the server's authorization server"
            advice = "make one auth= for each authorization server, with its issuer"
            raise AuthorizationError("authorization server metadata", problem, issuer=issuer, advice=advice)
