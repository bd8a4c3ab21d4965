"""`TokenExchange`: tokens for services behind a server, on behalf of the callers whose tokens it has accepted."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping
from functools import partial
from types import MappingProxyType
from typing import Any, Final, Literal

import attrs
import trio
from pydantic_core import to_json

from trio_mcp._checks import check_choice, check_kind, check_seconds, check_text
from trio_mcp.auth.fetching import FetchFunction, drive
from trio_mcp.auth.rules.metadata import AuthorizationServerMetadata
from trio_mcp.auth.rules.registration import RegisteredClient, register
from trio_mcp.auth.rules.steps import Flow
from trio_mcp.auth.rules.token_answers import Tokens
from trio_mcp.auth.rules.token_requests import (
    EXCHANGED,
    JWT_BEARER,
    TOKEN_EXCHANGE,
    TokenEndpoint,
    on_behalf_of,
    subject_exchange,
)
from trio_mcp.auth.rules.urls import same_issuer
from trio_mcp.auth.server.document import checked_url
from trio_mcp.auth.server.keys import FRESH, RETRY, metadata_of
from trio_mcp.auth.server.options import checked_names
from trio_mcp.auth.shared_work import Flight
from trio_mcp.convert import another
from trio_mcp.errors import AuthorizationError
from trio_mcp.http.headers import shown
from trio_mcp.principal import SCOPE, Principal
from trio_mcp.server.caller import NoCallerToken

__all__ = ["Exchanges", "TokenExchange", "TokenExchangeError"]

MAX_EXCHANGED_TOKENS: Final = 10_000
"""How many exchanged tokens are remembered; of more, the one that was used longest ago goes (arbitrary)."""
MAX_TOKEN_EXCHANGES: Final = 64
"""How many exchanges are under way at once; further ones wait (arbitrary): a crowd must not flood the server."""
MAX_WAITING_EXCHANGES: Final = 1_000
"""How many exchanges are under way or wait; further ones fail (arbitrary)."""
MARGIN: Final = 30.0
"""How many seconds before its expiry another token is obtained (arbitrary): it has to reach the service and be used."""
UNKNOWN_LIFE: Final = 60.0
"""For how many seconds a token is used if the response does not say how long it lives (arbitrary)."""


class TokenExchangeError(AuthorizationError):
    """No token for another service could be had on behalf of the caller. Its text shows no token.

    Attributes:
        audience: The service.
        problem: What went wrong: if the authorization server refused, its description, shortened.
        error: The OAuth error code in the server's response, such as ``"invalid_grant"``, or None.
        issuer: The authorization server, if it was asked.
        advice: What to do about the problem; empty if there is no advice.
    """

    def __init__(
        self, audience: str, problem: str, *, issuer: str | None = None, error: str | None = None, advice: str = ""
    ) -> None:
        super().__init__(EXCHANGED, problem, issuer=issuer, error=error, advice=advice)
        self.args = (audience, problem)  # `copy.copy` calls this constructor with these arguments
        self.audience = audience

    def _text(self) -> str:
        return f"no token for {shown(self.audience)}: {super()._text()}"


class TokenExchange:
    """Exchanges the tokens of callers for tokens with which a server calls other services on their behalf.

    Pass it to `ResourceServer`; a function of the server then calls `Context.token_for`.

    Args:
        audiences: The services, and for each the scopes that functions may ask for. No other service, and no other
            scope, can be asked for.
        client: The client by which this server is registered at the authorization server, with its secret or key.
        issuer: The authorization server; by default the client's, or else the only one of the `ResourceServer`. It gets
            only tokens that it has issued, unless the `ResourceServer` accepts none of its tokens.
        style: The parameters of the request: "rfc8693", or "on_behalf_of" for Entra.
        target: How a request of RFC 8693 names the service: as its "audience", its "resource", or "both".
        token_endpoint: Where the exchange is made; by default where the metadata of the authorization server says.
        remember: For how many seconds, at most, an exchanged token is used again.

    Raises:
        TypeError: If an argument is of the wrong type.
        ValueError: If an argument has a value that can't be used.
    """

    def __init__(
        self,
        audiences: Mapping[str, Collection[str]],
        *,
        client: RegisteredClient,
        issuer: str | None = None,
        style: Literal["rfc8693", "on_behalf_of"] = "rfc8693",
        target: Literal["audience", "resource", "both"] = "audience",
        token_endpoint: str | None = None,
        remember: float = 300.0,
    ) -> None:
        check_choice("style", style, _STYLES)
        check_choice("target", target, ("audience", "resource", "both"))
        check_seconds("remember", remember, zero=True, finite=True)
        self.audiences = _audiences(audiences, wanted=style == "on_behalf_of")
        check_kind("client", client, kind=RegisteredClient)
        if client.secret is None and client.key is None:
            raise ValueError(f"the client {client.id!r} needs a secret or a key: anyone could exchange tokens as it")
        for name, url in (("issuer", issuer), ("token_endpoint", token_endpoint)):
            if url is not None:
                checked_url(name, url, query=name == "token_endpoint")
        if issuer is not None and client.issuer is not None and not same_issuer(issuer, client.issuer):
            raise ValueError(f"the client {client.id!r} is registered with {client.issuer}, not with {issuer}")
        self.client = client
        self.issuer = client.issuer if issuer is None else issuer
        self.token_endpoint = token_endpoint
        self.remember = remember
        self.grant, self._ask = _STYLES[style]
        self._names = {"audience": (True, False), "resource": (False, True), "both": (True, True)}[target]

    def issuer_among(self, issuers: Collection[str]) -> str:
        """Return the authorization server, for a server that accepts tokens of these issuers.

        Raises:
            ValueError: If it has to be named.
        """
        if self.issuer is not None:
            return self.issuer
        if len(issuers) > 1:
            raise ValueError("TokenExchange needs issuer=, since the server accepts tokens of several issuers")
        return next(iter(issuers))

    def checked(self, audience: str, scopes: Collection[str] | None) -> frozenset[str]:
        """Return the scopes to ask for: the given ones, or by default all of the audience's.

        Raises:
            TypeError: If the scopes are not a list of strings.
            TokenExchangeError: If the operator has not listed the audience, or one of the scopes.
        """
        # The names may come from the text of a model, so they are shown shortened and escaped.
        if not isinstance(audience, str):
            raise TypeError(f"the audience must be a string, got {type(audience).__name__}")
        listed = self.audiences.get(audience)
        if listed is None:
            advice = "the operator lists them in TokenExchange(audiences=…)"
            raise TokenExchangeError(audience, "this server may not call that service", advice=advice)
        if scopes is None:
            return listed
        for scope in (wanted := frozenset(checked_names("scopes", scopes))):
            if scope not in listed:
                advice = f"the operator lists them in TokenExchange(audiences={{{audience!r}: …}})"
                raise TokenExchangeError(
                    audience, f"this server may not ask for the scope {shown(scope)}", advice=advice
                )
        return wanted

    def flow(self, at: TokenEndpoint, token: str, audience: str, scopes: frozenset[str]) -> Flow[Tokens]:
        """Return the flow that exchanges a token."""
        named, located = self._names
        return self._ask(at, token, audience if named else None, audience if located else None, scopes)

    def __repr__(self) -> str:
        return f"TokenExchange({list(self.audiences)!r}, client={self.client.id!r})"


def _by_rfc8693(
    at: TokenEndpoint, token: str, audience: str | None, resource: str | None, scopes: frozenset[str]
) -> Flow[Tokens]:
    return subject_exchange(at, subject_token=token, audience=audience, resource=resource, scopes=scopes)


def _by_entra(
    at: TokenEndpoint, token: str, audience: str | None, resource: str | None, scopes: frozenset[str]
) -> Flow[Tokens]:
    return on_behalf_of(at, assertion=token, scopes=scopes)  # the scopes name the service


_STYLES: Final[Mapping[str, tuple[str, Callable[..., Flow[Tokens]]]]] = {
    "rfc8693": (TOKEN_EXCHANGE, _by_rfc8693),
    "on_behalf_of": (JWT_BEARER, _by_entra),
}
"""For each style, the grant type and the function that returns the flow."""


def _audiences(given: Any, *, wanted: bool) -> Mapping[str, frozenset[str]]:
    if not isinstance(given, Mapping):
        raise TypeError(f"audiences must be a dict of scopes by service, got {type(given).__name__}")
    if not given:
        raise ValueError("audiences must not be empty: list the services that this server may call for its callers")
    for audience, scopes in given.items():
        check_text("an audience", audience)
        name = f"the scopes of {audience!r}"
        for scope in checked_names(name, scopes):
            if not SCOPE.fullmatch(scope):
                raise ValueError(f"{name} contain {scope!r}, which is not a valid scope")
        if wanted and not scopes:
            raise ValueError(f"{name} must not be empty: with style='on_behalf_of' they name the service")
    return MappingProxyType({audience: frozenset(scopes) for audience, scopes in given.items()})


@attrs.frozen
class _Kept:
    """An exchanged token, and until when it is used."""

    token: str = attrs.field(repr=False)
    until: float


@attrs.define(eq=False)
class _Sharing:
    """An exchange under way, and the token that it got."""

    flight: Flight = attrs.field(factory=Flight)
    token: str = attrs.field(default="", repr=False)


class Exchanges:
    """The exchanges of one run of a server, and the tokens that they got.

    Tasks that need the same token share one exchange, which goes on as long as one of them waits.

    Args:
        exchange: The settings.
        issuers: The issuers whose tokens the server accepts.
        fetch: Returns a function that makes the HTTP exchanges with an authorization server for one task.
        clock: Returns the time, in seconds since the epoch.

    Attributes:
        settings: The settings.
    """

    def __init__(
        self,
        exchange: TokenExchange,
        issuers: Collection[str],
        fetch: Callable[[str], FetchFunction],
        clock: Callable[[], float],
    ) -> None:
        self.settings = exchange
        self._issuer = exchange.issuer_among(issuers)
        # Another issuer's tokens are not shown to this one; a server that only exchanges tokens gets those of all.
        self._all = not any(same_issuer(each, self._issuer) for each in issuers)
        self._fetch = partial(fetch, self._issuer)
        self._clock = clock
        # The keys of both dicts are hashes.
        self._tokens: OrderedDict[bytes, _Kept] = OrderedDict()
        self._shared: dict[bytes, _Sharing] = {}
        self._limiter = trio.CapacityLimiter(MAX_TOKEN_EXCHANGES)
        self._finding = trio.Lock()
        self._at: TokenEndpoint | None = None
        self._problem: AuthorizationError | None = None
        self._looked_at = 0.0

    def caller(self, token: str, principal: Principal, *, bound: bool) -> _Caller:
        """Return the caller of a request.

        Args:
            token: The token of the request.
            principal: The principal of the token.
            bound: Whether the token is bound to a key, which only the client has.
        """
        why = ""
        if bound:
            # This server can't prove that it has the key (RFC 9449, section 7; RFC 8705, section 3).
            why = "the caller's token is bound to a key of the client, so only the client can use it"
        elif not self._all and not same_issuer(principal.issuer or "", self._issuer):
            why = f"the caller's token is from {principal.issuer}, but tokens are exchanged at {self._issuer}"
        return _Caller(self, token, principal.expires_at, why)

    async def token_for(
        self, subject: _Subject, expires_at: float | None, audience: str, scopes: frozenset[str]
    ) -> str:
        """Return a token for another service: a remembered one, or that of an exchange.

        Raises:
            NoCallerToken: If the caller's token has expired.
            TokenExchangeError: If the exchange fails.
        """
        key = subject.key(audience, scopes)
        while True:
            now = self._clock()
            if expires_at is not None and expires_at <= now:
                raise NoCallerToken(audience, "the caller's token has expired")
            kept = self._tokens.get(key)
            if kept is not None and kept.until > now:
                self._tokens.move_to_end(key)
                await trio.lowlevel.checkpoint()
                return kept.token
            # There must be no checkpoint until the exchange is in the dict, or two tasks would start one each.
            sharing = self._shared.get(key)
            if sharing is None:
                if len(self._shared) >= MAX_WAITING_EXCHANGES:
                    raise TokenExchangeError(
                        audience, f"{MAX_WAITING_EXCHANGES} exchanges are under way", issuer=self._issuer
                    )
                sharing = self._shared[key] = _Sharing()
                work = partial(self._run, sharing, key, subject, expires_at, audience, scopes)
                sharing.flight.start(work, partial(self._shared.pop, key, None))
            if not sharing.flight.abandoned:
                await sharing.flight.wait()
                return sharing.token
            # Its waiters have left, and it is ending; then this task starts another one.
            await sharing.flight.ended.wait()

    async def _run(
        self,
        sharing: _Sharing,
        key: bytes,
        subject: _Subject,
        expires_at: float | None,
        audience: str,
        scopes: frozenset[str],
        flight: Flight,
    ) -> None:
        async with self._limiter:
            outcome = await self._outcome(subject, audience, scopes)
        if isinstance(outcome, TokenExchangeError):
            raise outcome
        sharing.token = outcome.access_token
        now = self._clock()
        lasts = now + UNKNOWN_LIFE if outcome.expires_at is None else outcome.expires_at - MARGIN
        until = min(lasts, now + self.settings.remember, *(() if expires_at is None else (expires_at,)))
        self._tokens.pop(key, None)
        if until > now:
            if len(self._tokens) >= MAX_EXCHANGED_TOKENS:
                self._tokens.popitem(last=False)
            self._tokens[key] = _Kept(outcome.access_token, until)

    async def _outcome(self, subject: _Subject, audience: str, scopes: frozenset[str]) -> Tokens | TokenExchangeError:
        # The error is returned instead of raised: an exception that is raised while another is handled keeps that one,
        # and the frames of the flow have the caller's token among their variables, which some tools show.
        try:
            fetch = self._fetch()
            at = await self._found(fetch)
            return await drive(subject.flow(partial(self.settings.flow, at), audience, scopes), fetch)
        except AuthorizationError as exc:
            problem = exc.problem if exc.step == EXCHANGED else f"{exc.step}: {exc.problem}"
            return TokenExchangeError(audience, problem, issuer=self._issuer, error=exc.error, advice=exc.advice)
        except Exception as exc:  # `fetch` may be the program's own function, and its text may quote anything
            return TokenExchangeError(audience, f"{type(exc).__name__} in the exchange", issuer=self._issuer)

    async def _found(self, fetch: FetchFunction) -> TokenEndpoint:
        """Return the token endpoint, which is looked up again from time to time."""
        async with self._finding:  # concurrent exchanges share one search
            # Without `abs`, a clock that was set back would delay the next search until it had caught up.
            age = abs(self._clock() - self._looked_at)
            if self._at is not None and age <= FRESH:
                return self._at
            if self._problem is not None and age <= RETRY:
                raise another(self._problem)
            try:
                self._at, self._problem = await self._search(fetch), None
            except AuthorizationError as exc:
                self._at, self._problem = None, another(exc)
                raise
            finally:
                self._looked_at = self._clock()
            return self._at

    async def _search(self, fetch: FetchFunction) -> TokenEndpoint:
        exchange = self.settings
        if exchange.token_endpoint is None:
            server = await metadata_of(self._issuer, fetch)
        else:
            server = AuthorizationServerMetadata(self._issuer, token=exchange.token_endpoint)
        given = register(server, client=exchange.client, redirect=None, grants=(exchange.grant,))
        record = await drive(given, fetch)
        url, key = server.need("token", EXCHANGED), exchange.client.key
        return TokenEndpoint(issuer=server.issuer, url=url, client=record, key=key, clock=self._clock)


class _Subject:
    """The token of a caller. It can be exchanged and hashed; nothing shows it, and it can't be copied to elsewhere."""

    __slots__ = ("_token",)

    def __init__(self, token: str) -> None:
        self._token = token

    def key(self, audience: str, scopes: frozenset[str]) -> bytes:
        """Return the hash by which the exchanged token is remembered."""
        return hashlib.sha256(to_json([self._token, audience, sorted(scopes)])).digest()

    def flow(
        self, exchange: Callable[[str, str, frozenset[str]], Flow[Tokens]], audience: str, scopes: frozenset[str]
    ) -> Flow[Tokens]:
        """Return the flow that exchanges the token."""
        return exchange(self._token, audience, scopes)

    def __reduce__(self) -> Any:
        raise TypeError("the token of a caller can't be copied or stored")


class _Caller:
    """The caller of one request: an implementation of `trio_mcp.http.server.protection.Caller`."""

    __slots__ = ("_exchanges", "_expires_at", "_subject", "_why")

    def __init__(self, exchanges: Exchanges, token: str, expires_at: float | None, why: str) -> None:
        self._exchanges = exchanges
        self._subject = _Subject(token)
        self._expires_at = expires_at
        self._why = why

    async def token_for(self, audience: str, scopes: Collection[str] | None) -> str:
        """Return a token for another service."""
        named = self._exchanges.settings.checked(audience, scopes)
        if self._why:
            raise NoCallerToken(audience, self._why)
        return await self._exchanges.token_for(self._subject, self._expires_at, audience, named)
