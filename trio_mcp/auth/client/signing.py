"""Authorizes requests with a login, and applies a remedy if a response refuses a request."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from functools import partial

import trio

from trio_mcp._nursery import closing
from trio_mcp.auth.client.login_refresh import Keeper, Means
from trio_mcp.auth.client.options import TokenOptions
from trio_mcp.auth.client.stores.memory import MemoryTokens, TokenStore
from trio_mcp.auth.fetching import Fetcher, FetchFunction
from trio_mcp.auth.rules.challenges import Wanted, read_wanted
from trio_mcp.auth.rules.login import Login
from trio_mcp.auth.rules.scopes import StepUps, join_scopes
from trio_mcp.auth.rules.urls import same_origin, without_query
from trio_mcp.errors import AuthorizationError
from trio_mcp.http.client.auth import Pause
from trio_mcp.http.headers import Headers

__all__ = ["Kept"]


class Kept:
    """An ``auth=`` object that keeps logins: one for each server, shared by all clients that it is passed to.

    Args:
        means: The means by which logins are obtained.
        options: All options; this class uses ``urls``, ``fetch`` and ``clock``.
        store: The store of the logins; in memory by default.
        suffix: The end of each key in the store, after the URL of the server.
    """

    def __init__(
        self,
        means: Means,
        options: TokenOptions,
        *,
        store: TokenStore | None = None,
        suffix: str = "",
    ) -> None:
        self.store = MemoryTokens() if store is None else store
        self._means, self._options, self._suffix = means, options, suffix
        # Each run of Trio has its own keepers, because tasks and events belong to a run. All runs share the store.
        self._keepers: trio.lowlevel.RunVar[dict[str, Keeper]] = trio.lowlevel.RunVar("keepers of logins")

    def fetching(self, server: str) -> FetchFunction:
        """Return a function that makes the HTTP exchanges of one flow for a server."""
        return self._options["fetch"] or Fetcher(server, self._options["urls"]).flow()

    @contextlib.asynccontextmanager
    async def opened(self, server: str, pause: Pause) -> AsyncIterator[_Signer]:
        """Return a context manager; inside its block, requests to a server are authorized.

        See `trio_mcp.http.client.auth.Auth`.
        """
        try:
            keepers = self._keepers.get()
        except LookupError:
            self._keepers.set(keepers := {})
        keeper = keepers.get(server)
        if keeper is None:
            fetching, options = partial(self.fetching, server), self._options
            keeper = keepers[server] = Keeper(
                server, server + self._suffix, self._means, self.store, fetching, options["urls"], options["clock"]
            )
        keeper.users += 1

        async def leave() -> None:
            keeper.users -= 1
            if not keeper.users:
                # The keeper is removed first, so that a client that is opened while it closes gets a new one.
                del keepers[server]
                await keeper.close()
            await trio.lowlevel.checkpoint()

        async with closing(leave):
            await keeper.load()
            # If no person can be asked, the client's timeouts keep running, in case a server hangs.
            yield _Signer(keeper, pause if self._means.asks else contextlib.nullcontext)

    async def forget(self, server: str) -> Login | None:
        """Remove a login from the store, and return it; None if there was no login that could be read."""
        key = server + self._suffix
        # The lock is taken because a refresh could otherwise store its new tokens after the removal.
        async with self.store.lock(key):
            text = await self.store.load(key)
            await self.store.save(key, None)
        try:
            keeper = self._keepers.get()[server]
        except LookupError:  # no client is using the login
            pass
        else:
            await keeper.reread()
        with contextlib.suppress(ValueError):
            # A text that is not a valid login has been removed, too, because the error that it causes elsewhere advises
            # signing out.
            return None if text is None else Login.from_json(text)
        return None


class _Signer:
    """Authorizes the requests to one server."""

    def __init__(self, keeper: Keeper, pause: Pause) -> None:
        self._keeper, self._pause = keeper, pause

    def attempt(self) -> _Attempt:
        """Return the authorization of a new operation."""
        return _Attempt(self._keeper, self._pause)

    async def login(self, good: Callable[[Login], bool]) -> Login:
        """Return the login, after a refresh or a new sign-in if it is not good enough.

        Args:
            good: Returns whether a login is good enough. The result of a new sign-in is returned in any case.
        """
        keeper = self._keeper
        if keeper.login is not None and not good(keeper.login):
            await keeper.renew(keeper.login)
        if keeper.login is None or not (keeper.usable() and good(keeper.login)):
            await keeper.obtain(keeper.login, Wanted())
        assert keeper.login is not None  # `obtain` raises an error if there is no login
        return keeper.login

    async def sign_in(self) -> None:
        """Sign in now, although no request has been refused."""
        with self._pause():
            await self._keeper.obtain(self._keeper.login, Wanted())


class _Attempt:
    """Authorizes the requests of one operation."""

    def __init__(self, keeper: Keeper, pause: Pause) -> None:
        self._keeper, self._pause = keeper, pause
        self._used: Login | None = None  # the login that the last request was signed with
        self._nonce: str | None = None  # the nonce in the proof of the last request
        self._url = ""
        self._asks = True
        self._nonces = 0
        self._refreshed = False  # whether the last token came from a refresh, and has not been accepted yet
        self._entered = False  # whether a person has signed in
        self._step_ups = StepUps()

    async def fields(self, method: str, url: str) -> Sequence[tuple[str, str]]:
        """Return the header fields that authorize a request."""
        keeper = self._keeper
        self._used, self._url = None, url
        self._asks = method != "DELETE"  # a DELETE ends a session, which is not worth a sign-in
        if not self._ours():
            return ()
        if keeper.stale() and keeper.login is not None:
            await keeper.renew(keeper.login)
        login = keeper.login
        if login is None or not keeper.usable():
            return ()
        # `again` has to know which token was refused: by then the keeper may have a newer one.
        self._used = login
        signed = [("Authorization", f"{login.token_type} {login.access_token}")]
        # The token's type decides whether a proof is sent: a login with a key may have a bearer token, if only its
        # refresh token is bound to the key (RFC 9449, section 5).
        if keeper.prover is not None and login.token_type == "DPoP":
            self._nonce = keeper.nonce(url)
            signed.append(("DPoP", keeper.prover.proof(method, url, login.access_token)))
        return signed

    def _ours(self) -> bool:
        # Only the origin is compared: the endpoint that HTTP+SSE announces need not be below the server's URL.
        return same_origin(self._url, self._keeper.server)

    async def again(self, status: int, headers: Headers) -> bool:
        """React to the head of a response, getting a new token if need be; return whether to send the request again."""
        if not self._ours():
            return False
        if (prover := self._keeper.prover) is not None:
            # Any response may carry a new nonce, not only one that refuses a request (RFC 9449, section 8.2).
            prover.learn(self._url, headers, resource=True)
        if status not in (401, 403):
            return False
        wanted = read_wanted(headers, token="" if self._used is None else self._used.access_token)
        remedies = _REMEDIES.get((status, wanted.error)) or _REMEDIES.get((status, None))
        if remedies is None:
            return False
        if status == 403:  # the token itself was accepted
            self._refreshed = False
        for remedy in remedies:
            if await remedy(self, wanted):
                return True
        raise self._refused(status, wanted)

    # The following methods are the remedies. Each returns whether the request is worth another try.

    async def with_nonce(self, wanted: Wanted) -> bool:
        self._nonces += 1
        # The current nonce is compared with the one that was sent, because another request may have learned the new
        # nonce first.
        return self._nonces <= _MOST_NONCES and self._keeper.nonce(self._url) != self._nonce

    async def with_newer(self, wanted: Wanted) -> bool:
        return self._keeper.usable(self._used)

    async def renewed(self, wanted: Wanted) -> bool:
        # If the server refuses a token that was just refreshed, another refresh will not help, but a new sign-in may.
        if self._used is None or self._refreshed:
            return False
        self._refreshed = await self._keeper.renew(self._used)
        return self._keeper.usable(self._used)

    async def signed_in(self, wanted: Wanted) -> bool:
        # A person is asked only once per operation: if the server refused even the new token, the person would
        # otherwise be asked forever.
        if self._entered or not self._asks:
            return False
        with self._pause():
            self._entered = await self._keeper.obtain(self._used, wanted)
        return True

    async def stepped_up(self, wanted: Wanted) -> bool:
        login = self._keeper.login
        granted = frozenset[str]() if login is None else login.scopes or frozenset()
        # If all these scopes were already granted, the server would refuse again.
        if wanted.scopes is None or wanted.scopes <= granted or not self._asks:
            return False
        more = self._step_ups.more(wanted.scopes, granted if login is None else granted | login.asked)
        if more is None:
            return False
        with self._pause():
            # A login for another operation, or from another process, does not count against this operation's limit.
            if await self._keeper.obtain(self._used, wanted, more):
                self._step_ups.took(more)
        return True

    def _refused(self, status: int, wanted: Wanted) -> AuthorizationError:
        server, login = without_query(self._keeper.server), self._keeper.login
        issuer = None if login is None else login.issuer
        if status == 403:
            scopes = f": it needs {join_scopes(wanted.scopes)}" if wanted.scopes else ""
            problem = f"{server} says that the granted scopes are not enough{scopes}"
            advice = "if more scopes can be granted now, sign out and sign in again"
        else:
            problem = f"{server} refused the token that was issued for it"
            advice = "check the clock of this machine, and whether the server accepts tokens from this issuer"
        return AuthorizationError("authorization", problem, issuer=issuer, error=wanted.error, advice=advice)


_MOST_NONCES = 5
"""How many nonces an operation tries.

An arbitrary choice; more than one is needed because concurrent requests may get each other's nonces.
"""

# The table has the remedies for each status and error code (None stands for any other error), in the order in which the
# remedies are tried: a person is asked to sign in only when nothing else helps.
_REMEDIES: dict[tuple[int, str | None], tuple[Callable[[_Attempt, Wanted], Awaitable[bool]], ...]] = {
    (401, "use_dpop_nonce"): (_Attempt.with_nonce,),
    (401, None): (_Attempt.renewed, _Attempt.signed_in),
    (403, "insufficient_scope"): (_Attempt.with_newer, _Attempt.stepped_up),
}
