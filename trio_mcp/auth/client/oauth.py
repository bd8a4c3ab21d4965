"""`OAuth`: a person signs in, once, and the client stays signed in."""

from __future__ import annotations

import contextlib
import shlex
from collections.abc import Awaitable, Callable, Collection
from typing import Unpack

import attrs

from trio_mcp._checks import check_hook, check_seconds
from trio_mcp._keywords import refuse_unknown
from trio_mcp._settings import completed
from trio_mcp.auth.client.asking import Asker, Show
from trio_mcp.auth.client.browser import open_browser
from trio_mcp.auth.client.login_refresh import Need
from trio_mcp.auth.client.options import TokenOptions
from trio_mcp.auth.client.signing import Kept
from trio_mcp.auth.client.stores.memory import TokenStore
from trio_mcp.auth.client.terminal import show_code
from trio_mcp.auth.fetching import FetchFunction, drive
from trio_mcp.auth.rules.authorization import authorize, require_pkce
from trio_mcp.auth.rules.device import DEVICE_GRANT, device
from trio_mcp.auth.rules.dpop import Prover, choose_prover
from trio_mcp.auth.rules.login import PROVIDER, ClientRecord, Login
from trio_mcp.auth.rules.metadata import Discovered, discover, find_server
from trio_mcp.auth.rules.registration import RegisteredClient, check_document_url, check_redirect, register, reusable
from trio_mcp.auth.rules.scopes import OFFLINE, select_scopes
from trio_mcp.auth.rules.steps import Flow, ShowCode
from trio_mcp.auth.rules.token_answers import id_token_holds
from trio_mcp.auth.rules.token_requests import (
    TokenEndpoint,
    exchange_code,
    refresh,
    renewed,
    revoke,
    to_login,
)
from trio_mcp.auth.rules.urls import same_issuer, without_query
from trio_mcp.errors import AuthorizationError, LoginRequired
from trio_mcp.http.client.auth import Pause, Signer

__all__ = ["OAuth"]


class OAuth:
    """Signs in with OAuth 2.1, and stays signed in; see the page "Sign in to a server" in the docs.

    A server that wants a login is asked which authorization server issues its tokens. A person signs in there, in a
    browser, and the login is kept in the store. From then on it is refreshed when necessary, and a person is asked
    again only when nothing else helps.

    One object may serve any number of clients, for any servers; each server has its own login.

    Args:
        client: A client that was registered beforehand. Without one, the client's id is the URL of its metadata
            document, or the client registers itself.
        metadata_url: The URL of the client's own metadata document, for authorization servers that accept those.
        store: Where logins are kept; in memory by default.
        show: Shows a person the URL to open; for example, `open_browser` or `paste_redirect`. None: there is no person
            to ask, and `LoginRequired` is raised instead.
        redirect: The redirect URI; on loopback, port 0 means any free port. None: the person enters a code in a browser
            elsewhere (RFC 8628).
        login_timeout: How long a person has to sign in, in seconds. This time counts against no other timeout.
        assume_pkce: Issuers that are known to support PKCE although their metadata does not say so. Any other issuer
            is refused if its metadata does not say so.
        show_code: Shows a person the code to enter, if there is no redirect; on stderr by default.
        options: Further arguments, such as ``scopes``; see `TokenOptions`.

    Attributes:
        store: Where logins are kept.

    Raises:
        TypeError: If an argument is of the wrong type.
        ValueError: If ``metadata_url`` can't be a client's id, ``redirect`` is neither on loopback nor https, or
            another argument has a value that can't be used.
    """

    def __init__(
        self,
        *,
        client: RegisteredClient | None = None,
        metadata_url: str | None = None,
        store: TokenStore | None = None,
        show: Show | None = open_browser,
        redirect: str | None = "http://127.0.0.1:0/callback",
        login_timeout: float = 300,
        assume_pkce: Collection[str] = (),
        show_code: Callable[[ShowCode], Awaitable[None]] = show_code,
        **options: Unpack[TokenOptions],
    ) -> None:
        refuse_unknown(type(self), options, TokenOptions)
        whole = completed(TokenOptions, options)
        if isinstance(assume_pkce, str):
            raise TypeError(f"assume_pkce must be a set of issuers; write {{{assume_pkce!r}}}")
        if client is not None and not isinstance(client, RegisteredClient):
            raise TypeError(f"client must be a RegisteredClient, got {type(client).__name__}")
        if client is not None and not client.resource and not (client.issuer and whole["scopes"]):
            raise ValueError(
                "a client with resource=False needs issuer=, and OAuth needs scopes=: see RegisteredClient"
            )
        if store is not None and not all(hasattr(store, each) for each in ("load", "save", "lock")):
            raise TypeError(f"store must be a TokenStore, such as FileTokens(), got {type(store).__name__}")
        for name, url, check in (
            ("metadata_url", metadata_url, check_document_url),
            ("redirect", redirect, check_redirect),
        ):
            try:
                if url is not None:
                    check(url)
            except ValueError as exc:
                raise ValueError(f"{name} {url!r} {exc}") from None
        check_hook("show", show)
        check_seconds("login_timeout", login_timeout)
        self._means = _SigningIn(
            whole,
            client=client,
            metadata_url=metadata_url,
            asker=None if show is None else Asker(show, show_code, redirect, login_timeout),
            assume_pkce=frozenset(assume_pkce),
        )
        self._kept = Kept(self._means, whole, store=store)
        self.store = self._kept.store
        # A login at a provider is only for the ID token: its access token signs no request to a server, so binding that
        # token to a key would serve no purpose.
        there: TokenOptions = {**whole, "scopes": {*(whole["scopes"] or ()), "openid"}, "dpop": "off"}
        at_providers = attrs.evolve(self._means, options=there, provider=True)
        self._at_providers = Kept(at_providers, there, store=self.store, suffix=PROVIDER)

    def opened(self, server: str, pause: Pause) -> contextlib.AbstractAsyncContextManager[Signer]:
        """Return a context manager; inside its block, requests to a server are authorized. Called by the client."""
        return self._kept.opened(server, pause)

    async def sign_in(self, server: str) -> None:
        """Let a person sign in now, whether there is a login or not.

        Args:
            server: The URL of the server.

        Raises:
            AuthorizationError: If the sign-in fails.
        """
        # No client is waiting for this sign-in, so there are no timeouts to pause.
        async with self._kept.opened(server, contextlib.nullcontext) as signer:
            await signer.sign_in()

    async def identity(self, issuer: str) -> tuple[TokenEndpoint, str]:
        """Return the person's ID token of an identity provider (OpenID Connect), and the provider's token endpoint.

        The person signs in at the provider if need be. `IdentityAssertion` calls this method.

        Args:
            issuer: The issuer of the identity provider.

        Raises:
            AuthorizationError: If the sign-in fails, or brings no valid ID token.
        """
        async with self._at_providers.opened(issuer, contextlib.nullcontext) as signer:
            login = await signer.login(lambda login: self._means.is_identified(login))
        if not self._means.is_identified(login):
            problem = "the identity provider gave no ID token for this client, or gave one that has expired"
            raise AuthorizationError("token", problem, issuer=issuer, advice="check the clock of this machine")
        return self._means.endpoint(login.issuer, login.token_endpoint, login.client, None), login.id_token or ""

    async def sign_out(self, server: str) -> bool:
        """Drop the login at a server or an identity provider, and revoke its token.

        Args:
            server: The URL of the server, or the issuer of the provider. If a URL is both, both logins are dropped.

        Returns:
            Whether there was a login.

        Raises:
            AuthorizationError: If the login was dropped but could not be revoked, or if the store can't be written.
        """
        found = False
        failure: AuthorizationError | None = None
        for kept in (self._kept, self._at_providers):
            try:
                # The login is removed from the store first, so that it is gone even if the authorization server does
                # not respond.
                login = await kept.forget(server)
                if login is not None:
                    found = True
                    await self._revoke(login, kept.fetching(server))
            except AuthorizationError as error:  # the next login is dropped in spite of this error
                failure = failure or error
        if failure is not None:
            raise failure
        return found

    async def _revoke(self, login: Login, fetch: FetchFunction) -> None:
        # A revocation asks no person, so the fetch function is all that the flow needs.
        if flow := self._means.revoke(login):
            await drive(flow, fetch)


@attrs.frozen
class _SigningIn:
    """The means by which a person signs in; the attributes are the arguments of `OAuth`."""

    options: TokenOptions
    client: RegisteredClient | None
    metadata_url: str | None
    asker: Asker | None
    assume_pkce: frozenset[str]
    provider: bool = False  # whether the server is an identity provider, not an MCP server

    @property
    def asks(self) -> bool:
        """Whether a person may be asked."""
        return self.asker is not None

    def accepts(self, login: Login) -> bool:
        client = self.client
        if client is None:
            return True
        # The issuer in the metadata may differ from the configured one by a trailing slash, as at a sign-in.
        return login.client.id == client.id and (client.issuer is None or same_issuer(client.issuer, login.issuer))

    def refusal(self, need: Need) -> LoginRequired | None:
        if self.asker is not None:
            return None
        # The command is quoted, since it may be copied into a shell, and the server has chosen the scopes.
        scopes = [f"--scope={each}" for each in sorted(need.scopes)]
        words = ["trio-mcp", "login", without_query(need.server), *scopes]
        wants = "a login with more scopes" if need.scopes else "a login"
        return LoginRequired(
            "authorization",
            f"{without_query(need.server)} wants {wants}, and there is no person to ask here",
            advice=f"sign in first: {shlex.join(words)}",
        )

    def obtain(self, need: Need) -> Flow[Login]:
        old = need.old
        # A client is registered at one authorization server and of no use to others, so the client decides which one is
        # asked.
        client, prefer = self.client, None if old is None else old.issuer
        if client is not None:
            client = attrs.evolve(client, issuer=client.issuer or prefer)
            prefer = client.issuer
        found = yield from self._find(need, prefer)
        if client is not None and not client.resource:
            found = attrs.evolve(found, named=False)
        server, resource = found.server, found.resource
        if need.redirect is not None:
            # PKCE is checked first, so that no client is registered that could never be used. The device grant needs no
            # PKCE: it has no redirection from which a code could be stolen.
            require_pkce(server, self.assume_pkce)
        # Another authorization server must not learn anything about the login at the old one.
        if old is not None and old.issuer != server.issuer:
            old = None
        scopes = need.scopes | select_scopes(
            self.options["scopes"],
            challenged=need.wanted.scopes,
            listed=None if resource is None else resource.scopes,
            offered=server.scopes,
        )
        if not found.named:
            # Nothing but the scopes says which server the token is for, so a server must not choose them: it could
            # get itself a token for some other one.
            scopes &= frozenset(self.options["scopes"] or ()) | {OFFLINE}
        if old is not None:
            # The new token replaces the old one, so it also needs the scopes that other operations have already asked
            # for: two operations with different scopes would otherwise ask a person again and again, in turn.
            scopes |= old.asked
        known = self._known(old, found, need.redirect, scopes)
        while True:
            record = known or (
                yield from register(
                    server,
                    client=client,
                    metadata_url=self.metadata_url,
                    redirect=need.redirect,
                    scopes=scopes,
                    grants=_DEVICE_GRANTS if need.redirect is None else _CODE_GRANTS,
                )
            )
            try:
                return (yield from self._authorized(need, found, record, scopes))
            except AuthorizationError as error:
                # The server has forgotten the registration, so the client registers again. If the server forgets the
                # new registration, too, that is an error.
                if known is None or error.error != "invalid_client":
                    raise
                known = None

    def _find(self, need: Need, prefer: str | None) -> Flow[Discovered]:
        if self.provider:
            # The program itself has named the issuer, so no MCP server has to be asked for it.
            return Discovered(None, (yield from find_server(need.server, self.options["urls"], need.server)))
        return (yield from discover(need.server, need.wanted, self.options["urls"], (prefer,) if prefer else ()))

    def _known(
        self, old: Login | None, found: Discovered, redirect: str | None, scopes: frozenset[str]
    ) -> ClientRecord | None:
        """Return the client that registered itself earlier, if it can be used again."""
        # A client that the program supplied is used as it is, and a client with a metadata document has the same id
        # everywhere, so neither registers itself.
        if self.client is not None or (self.metadata_url is not None and found.server.documents):
            return None
        if old is None or old.client.origin != "registered":
            return None
        return old.client if reusable(old.client, redirect, scopes, self.options["clock"]()) else None

    def _authorized(self, need: Need, found: Discovered, client: ClientRecord, scopes: frozenset[str]) -> Flow[Login]:
        server = found.server
        prover = choose_prover(self.options["dpop"], found, need.wanted, self.options["clock"])
        at = self.endpoint(server.issuer, server.need("token", "token"), client, prover)
        if need.redirect is None:
            endpoint = server.need("device", "device")
            tokens = yield from device(at, endpoint=endpoint, scopes=scopes, resource=found.audience)
        else:
            code = yield from authorize(
                found,
                client,
                redirect=need.redirect,
                scopes=scopes,
                assume_pkce=self.assume_pkce,
                # The thumbprint binds the authorization code to the key, too (RFC 9449, section 10).
                thumbprint=None if prover is None else prover.thumbprint,
                prompt=None if self.client is None else self.client.prompt,
            )
            tokens = yield from exchange_code(
                at, code=code.code, verifier=code.verifier, redirect=code.redirect, resource=found.audience
            )
        return to_login(at, tokens, resource=found.audience, asked=scopes, revocation_endpoint=server.revocation)

    def endpoint(self, issuer: str, url: str, client: ClientRecord, prover: Prover | None) -> TokenEndpoint:
        return TokenEndpoint(
            issuer,
            url,
            client,
            key=None if self.client is None else self.client.key,
            prover=prover,
            require_dpop=self.options["dpop"] == "require",
            clock=self.options["clock"],
        )

    def is_identified(self, login: Login) -> bool:
        """Return whether a login has a valid ID token that is not about to expire."""
        return id_token_holds(login.id_token, login.issuer, login.client.id, self.options["clock"]())

    def renew(self, login: Login, prover: Prover | None) -> Flow[Login] | None:
        return None if login.refresh_token is None else self._refreshed(login, login.refresh_token, prover)

    def _refreshed(self, login: Login, refresh_token: str, prover: Prover | None) -> Flow[Login]:
        client = login.client
        if self.client is not None:  # the secret may have changed since the sign-in
            client = attrs.evolve(client, secret=self.client.secret)
        at = self.endpoint(login.issuer, login.token_endpoint, client, prover)
        return renewed(login, (yield from refresh(at, refresh_token=refresh_token, resource=login.resource)))

    def revoke(self, login: Login) -> Flow[None] | None:
        """Return a flow that revokes a login; None if there is no token to revoke, or no revocation endpoint."""
        # A server that revokes a refresh token should also revoke the access tokens of that login (RFC 7009, section
        # 2.1).
        token = login.refresh_token or login.access_token
        if login.revocation_endpoint is None or not token:
            return None
        at = self.endpoint(login.issuer, login.token_endpoint, login.client, None)
        hint = "refresh_token" if login.refresh_token else "access_token"
        return revoke(at, endpoint=login.revocation_endpoint, token=token, hint=hint)


_CODE_GRANTS = ("authorization_code", "refresh_token")
_DEVICE_GRANTS = (DEVICE_GRANT, "refresh_token")
