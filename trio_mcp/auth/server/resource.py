"""`ResourceServer`: which access tokens a server accepts, and how it responds to requests without one."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import logging
import re
from collections import OrderedDict
from collections.abc import AsyncIterator, Collection
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol, Unpack
from urllib.parse import parse_qsl

import attrs

from trio_mcp._checks import check_choice, check_hook, check_kind
from trio_mcp._keywords import refuse_unknown
from trio_mcp._log import logger
from trio_mcp._settings import completed
from trio_mcp.auth.fetching import Fetcher
from trio_mcp.auth.rules.jose import need_jose
from trio_mcp.auth.server.answers import Refusals
from trio_mcp.auth.server.claims import Claims, Demands, InvalidToken, TooEarly, Verify, canonical
from trio_mcp.auth.server.document import WELL_KNOWN, MetadataApp, checked_url, metadata_url, written
from trio_mcp.auth.server.jwt import JwtVerifier
from trio_mcp.auth.server.keys import NotYet, Unavailable
from trio_mcp.auth.server.options import ResourceOptions, checked_names
from trio_mcp.auth.server.proofs import PROOF_ALGORITHMS, CheckedProof, InvalidProof, NonceNeeded, Proofs
from trio_mcp.errors import AuthorizationError
from trio_mcp.http.rules.statuses import Refusal
from trio_mcp.http.server.asgi import HttpRequest
from trio_mcp.http.server.gate import LEEWAY
from trio_mcp.http.server.protection import Guard, Identified
from trio_mcp.principal import SCOPE, Principal

if TYPE_CHECKING:  # few servers have stores, or call services for their callers
    from trio_mcp.auth.server.exchange import Exchanges, TokenExchange
    from trio_mcp.stores.contract import Stores

__all__ = ["ResourceServer", "Verifier"]

MAX_TOKEN: Final = 16 * 1024
"""The maximum length of an Authorization field, in characters (arbitrary)."""
MAX_TOKENS: Final = 10_000
"""The maximum number of verified tokens that are remembered (arbitrary)."""

# The pattern is the syntax of a token in RFC 6750, section 2.1.
_TOKEN = re.compile(r"[A-Za-z0-9._~+/-]+=*")


class Verifier(Protocol):
    """An object that checks tokens, such as a `JwtVerifier`, with separate state for each run of the server."""

    def opened(self, setting: Demands) -> contextlib.AbstractAsyncContextManager[Verify]:
        """Return a context manager that yields the function that checks tokens."""


class ResourceServer:
    """The protection of a server: only requests with an access token that was issued for the server are accepted.

    Pass it as ``auth=`` when you serve the server over HTTP. The audience of each token is always checked.

    Args:
        resource: The URL by which clients know the server. Tokens must be for this URL, whatever the request has in
            ``Host`` or ``Forwarded``.
        issuers: The issuers of the authorization servers whose tokens are accepted.
        scopes: The scopes that every request needs. Tools, resources and prompts may need more (``scopes=``).
        verifier: Checks tokens; a `JwtVerifier` by default. It may also be an async function that is given a token and
            returns its `Claims`, or raises `InvalidToken`.
        dpop: Whether tokens may be bound to a key of the client, so that a stolen one is worth nothing (RFC 9449):
            "off", "accept" or "require". Needs the extra ``auth``, unless it is "off".
        exchange: Which services the server's functions may call on behalf of its callers; see `TokenExchange`.
        options: Further arguments; see `ResourceOptions`.

    Attributes:
        resource: The URL of the server.
        clock: Returns the time, in seconds since the epoch.
        scopes: The scopes that every request needs.
        metadata: The URL of the metadata (RFC 9728).

    Raises:
        ImportError: If the extra ``auth`` is needed, and is not installed.
        TypeError: If an argument is of the wrong type.
        ValueError: If an argument has a value that can't be used.
    """

    def __init__(
        self,
        resource: str,
        *,
        issuers: Collection[str],
        scopes: Collection[str] = (),
        verifier: Verifier | Verify | None = None,
        dpop: Literal["off", "accept", "require"] = "accept",
        exchange: TokenExchange | None = None,
        **options: Unpack[ResourceOptions],
    ) -> None:
        refuse_unknown(type(self), options, ResourceOptions)
        given = completed(ResourceOptions, options)
        self.resource = checked_url("resource", resource)
        self.clock = given["clock"]
        self.scopes = _scopes(scopes)
        self.metadata = metadata_url(resource)
        check_choice("dpop", dpop, ("off", "accept", "require"))
        if dpop != "off":
            need_jose(f"dpop={dpop!r}")
        self._includes, self._remember = given["includes"], given["remember"]
        fetch, audiences = given["fetch"], given["audiences"]
        self._verifier: Verifier = _verifier(verifier)
        self._setting = Demands(
            _issuers(issuers),
            # Each name is accepted unchanged, because an audience need not be a URL; a name that is a URL is accepted
            # in its canonical form as well.
            frozenset(map(canonical, (resource, *audiences))) | {resource, *audiences},
            fetch=(lambda issuer: Fetcher(issuer).flow()) if fetch is None else lambda issuer: fetch,
            clock=self.clock,
        )
        self._exchange = exchange
        if exchange is not None:
            from trio_mcp.auth.server.exchange import TokenExchange

            check_kind("exchange", exchange, kind=TokenExchange)
            exchange.issuer_among(self._setting.issuers)  # raises an error now if the issuer has to be named
        self._bearer = dpop != "require"
        self._proofs = None if dpop == "off" else Proofs(resource, given["nonces"], self.clock)
        algorithms = PROOF_ALGORITHMS if self._proofs else ()
        self._answers = Refusals(self.metadata, self.scopes, self._bearer, " ".join(algorithms))
        document = written(
            {
                "resource": resource,
                "authorization_servers": list(self._setting.issuers),
                # Scopes that only some tools need are left out, because without a challenge clients request every scope
                # in `scopes_supported`.
                "scopes_supported": sorted(self.scopes),
                "bearer_methods_supported": ["header"],
                "dpop_signing_alg_values_supported": algorithms,
                "dpop_bound_access_tokens_required": not self._bearer,
                "resource_name": given["name"],
                "resource_documentation": given["documentation"],
            }
        )
        # The document is served at the root, too, because not every client appends the path of the server's URL.
        below = self.metadata.partition(WELL_KNOWN)[2]
        self._documents = MappingProxyType({WELL_KNOWN: document, WELL_KNOWN + below: document})

    def document(self, path: str) -> bytes | None:
        """Return the metadata that is served at a path of the origin, as JSON; None if nothing is served there.

        Args:
            path: The path from the root of the origin.
        """
        return self._documents.get(path.rstrip("/"))

    def metadata_app(self) -> MetadataApp:
        """Return an ASGI application that serves the metadata.

        A server that is mounted below a path can't serve the metadata, which belongs at the root of the origin. Mount
        this application there.
        """
        return MetadataApp(self.document)

    def permit(self, principal: Principal, needed: Collection[str] = ()) -> Refusal | None:
        """Return the refusal, with a challenge, of a request that needs scopes; None if they are granted.

        Args:
            principal: Who makes the request.
            needed: The scopes that the request needs, in addition to those that every request needs.
        """
        wanted = self.scopes.union(needed) if needed else self.scopes
        if wanted <= principal.scopes:
            return None
        if self._includes is not None:
            includes = self._includes
            missing = wanted - principal.scopes
            if all(any(includes(granted, scope) for granted in principal.scopes) for scope in missing):
                return None
        return self._answers.scope(wanted)

    @contextlib.asynccontextmanager
    async def opened(self, stores: Stores | None = None, secret: bytes | None = None) -> AsyncIterator[Guard]:
        """Open the verifier for the duration of a block, and yield the guard that checks the tokens of requests.

        Args:
            stores: Where proofs are remembered, so that none works in two processes; None for this process's memory.
            secret: What nonces are made from in all processes, unless ``nonces=`` has it; None for one of this process.
        """
        if self._proofs is not None and secret is not None:
            self._proofs.share(secret)
        exchanges: Exchanges | None = None
        if self._exchange is not None:
            from trio_mcp.auth.server.exchange import Exchanges

            exchanges = Exchanges(self._exchange, self._setting.issuers, self._setting.fetch, self.clock)
        async with self._verifier.opened(self._setting) as verify:
            yield _Guard(
                verify, self._setting, self._answers, self._proofs, self._bearer, self._remember, stores, exchanges
            )

    def __repr__(self) -> str:
        return f"ResourceServer({self.resource!r}, issuers={list(self._setting.issuers)!r})"


@attrs.frozen
class _Known:
    """A token that was accepted."""

    identified: Identified
    key: str | None
    hash: str
    until: float


@attrs.define
class _Guard:
    """The guard of one run of the server: it checks the tokens of requests."""

    _verify: Verify
    _setting: Demands
    _answers: Refusals
    _proofs: Proofs | None
    _bearer: bool
    _remember: float
    _stores: Stores | None
    _exchanges: Exchanges | None
    # The keys of this dict are hashes, so that even a memory dump shows no tokens.
    _tokens: OrderedDict[bytes, _Known] = attrs.field(factory=OrderedDict, init=False)
    _warned_at: float = attrs.field(default=-float("inf"), init=False)

    async def identify(self, request: HttpRequest) -> Identified | Refusal:
        """Check the token of a request, without reading the body."""
        field = request.headers.get("authorization") or ""
        scheme, _, token = field.partition(" ")
        scheme = scheme.lower()
        digest = hashlib.sha256(token.encode(errors="replace")).digest()
        known = self._tokens.get(digest)
        if known is None or known.until <= self._setting.clock():
            known = None
        # The form of a token that is remembered was checked before, so it is checked again only if there is a query,
        # which may contain another token.
        if known is None or request.scope.get("query_string"):
            if (refusal := self._misformed(request, field, scheme, token)) is not None:
                return refusal
            found = known or await self._checked(token, digest)
            if isinstance(found, Refusal):
                return found
            known = found
        if known.key is None and scheme == "bearer" and self._bearer:
            outcome: Identified | Refusal = known.identified
        else:
            outcome = await self._proved(request, scheme, known)
        if self._exchanges is not None and isinstance(outcome, Identified):
            # The caller has the token, so it is made for each request, and not remembered.
            bound = known.key is not None or outcome.principal.claims.get("cnf") is not None
            caller = self._exchanges.caller(token, outcome.principal, bound=bound)
            return attrs.evolve(outcome, caller=caller)
        return outcome

    def _misformed(self, request: HttpRequest, field: str, scheme: str, token: str) -> Refusal | None:
        """Return the refusal of credentials that are malformed or in the wrong place; None if they are neither."""
        # A token in the URL is refused even if there is a valid one in the header: logs and histories contain URLs (RFC
        # 6750, section 5.3).
        if _has_token(request.scope.get("query_string", b"")):
            return self._answers.malformed("an access token must be sent in the Authorization header, never in the URL")
        if request.headers.count("authorization") > 1:
            return self._answers.malformed("the request must contain only one Authorization header")
        if scheme not in ("bearer", "dpop"):
            # A request with another scheme has no token, and gets the same response as one without credentials.
            return self._answers.nothing()
        if len(field) > MAX_TOKEN or not _TOKEN.fullmatch(token):
            return self._answers.malformed(
                f"the Authorization header must contain one token of at most {MAX_TOKEN} bytes"
            )
        if scheme == "dpop" and self._proofs is None:
            return self._answers.token("Bearer")
        if scheme == "bearer" and not self._bearer:
            return self._answers.token("DPoP")
        return None

    async def _proved(self, request: HttpRequest, scheme: str, known: _Known) -> Identified | Refusal:
        # If a token is not bound to a key, a proof adds nothing: a thief could make a key and a proof, too.
        if known.key is None:
            logger.info(
                "an access token was refused: it is not bound to a key, so it can be accepted only as a bearer token"
            )
            return self._answers.token("Bearer" if self._bearer else None)
        # RFC 9449, section 7.2: a bound token must not pass as a bearer token, or a thief would leave the proof out.
        if scheme != "dpop" or self._proofs is None:
            logger.info("an access token was refused: it is bound to a key, so it can be accepted only with DPoP")
            return self._answers.token("DPoP" if self._proofs else None)
        if request.headers.count("dpop") != 1:
            return self._answers.proof("the request must contain exactly one DPoP header")
        proof = request.headers.get("dpop")
        assert proof is not None
        try:
            checked = self._proofs.check(
                proof,
                method=request.method,
                path=request.scope["path"],
                token_hash=known.hash,
                key=known.key,
            )
            if self._stores is None:
                self._proofs.remember(checked.digest)
            elif (refusal := await self._remembered(checked, self._stores)) is not None:
                return refusal
        except InvalidProof as exc:
            logger.info("a DPoP proof is refused: %s", exc)
            return self._answers.proof(str(exc))
        except NonceNeeded:
            return self._answers.nonce(self._proofs.nonce())
        if checked.nonce is None:
            return known.identified
        return Identified(known.identified.principal, (("DPoP-Nonce", checked.nonce),))

    async def _remembered(self, proof: CheckedProof, stores: Stores) -> Refusal | None:
        """Remember a proof in the stores; return the refusal if they can't be used.

        Raises:
            InvalidProof: If the proof was used before.
        """
        from trio_mcp.stores.contract import StoreError  # deferred: few servers have stores

        try:
            await proof.remember_in(stores)
        except StoreError as exc:
            # This process's own memory, even with a nonce, would let a proof pass once in each process.
            self._tell(Unavailable(f"a DPoP proof can't be checked: {exc}"))
            return self._answers.forgetful()
        return None

    async def _checked(self, token: str, digest: bytes) -> _Known | Refusal:
        self._tokens.pop(digest, None)
        try:
            claims = await self._verify(token)
            if not isinstance(claims, Claims):
                raise TypeError(f"a verifier must return Claims or raise InvalidToken, got {type(claims).__name__}")
            # The verifier may be the program's own function, which may not have checked the issuer, the audience and
            # the times.
            self._setting.check(claims)
        except InvalidToken as exc:
            self._tell(exc)
            return self._answers.token()
        except (Unavailable, AuthorizationError) as exc:
            self._tell(exc if isinstance(exc, NotYet) else Unavailable(f"an access token can't be checked: {exc}"))
            return self._answers.unavailable()
        except Exception:
            logger.exception("checking an access token failed")
            return self._answers.broken()
        principal = Principal(
            claims.subject,
            claims.issuer,
            claims.client_id,
            claims.scopes,
            claims=claims.values,
            expires_at=claims.expires_at,
        )
        hash_ = base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
        # A token is remembered no longer than until its expiry, because the expiry of a remembered token is not checked
        # again.
        until = min(claims.expires_at + LEEWAY, self._setting.clock() + self._remember)
        known = _Known(Identified(principal), claims.key, hash_, until)
        if len(self._tokens) >= MAX_TOKENS:
            # An `OrderedDict` removes its first key in constant time; a plain dict would have to skip all deleted keys
            # to find it.
            self._tokens.popitem(last=False)
        self._tokens[digest] = known
        return known

    def _tell(self, problem: Exception) -> None:
        # Anyone can send bad tokens, so a bad token is not worth a warning. A problem that the operator has to solve is
        # logged as a warning, but only once a minute, so that such warnings don't fill the log.
        now = self._setting.clock()
        ours = isinstance(problem, TooEarly) or not isinstance(problem, (InvalidToken, NotYet))
        if seen := ours and now - self._warned_at > 60:
            self._warned_at = now
        logger.log(logging.WARNING if seen else logging.INFO, "%s", problem)


@attrs.frozen
class _Function:
    """A verifier that calls a function of the program."""

    _verify: Verify

    @contextlib.asynccontextmanager
    async def opened(self, setting: Demands) -> AsyncIterator[Verify]:
        yield self._verify


def _verifier(given: Any) -> Verifier:
    if given is None:
        return JwtVerifier()
    if isinstance(given, type):
        raise TypeError(f"verifier must be an object, not a class: write {given.__name__}(…)")
    if hasattr(given, "opened"):
        return given  # type: ignore[no-any-return]
    check_hook("verifier", given)
    return _Function(given)


def _issuers(given: Collection[str]) -> tuple[str, ...]:
    found = tuple(checked_url("issuers", each) for each in checked_names("issuers", given))
    if not found:
        raise ValueError("issuers must not be empty: name the authorization server whose tokens are accepted")
    return found


def _scopes(given: Collection[str]) -> frozenset[str]:
    for scope in checked_names("scopes", given):
        if not SCOPE.fullmatch(scope):
            raise ValueError(
                f"scopes contains {scope!r}, which is not a valid scope: a scope can't contain a space, a quote or a"
                " backslash"
            )
    # Refresh tokens don't concern resources (2026-07-28 `basic/authorization`, section Refresh Tokens).
    if "offline_access" in given:
        raise ValueError("scopes must not include 'offline_access': it is for clients and authorization servers")
    return frozenset(given)


def _has_token(query: bytes) -> bool:
    # A token in the URL has the name `access_token` (RFC 6750, section 2.3).
    try:
        # Latin-1 has a character for every byte, so any query can be decoded.
        pairs = parse_qsl(query.decode("latin-1"), keep_blank_values=True, max_num_fields=100)
    except ValueError:
        return True  # the query has too many parameters to look through
    return any(name.lower() == "access_token" for name, _ in pairs)
