"""The login at one server: how its tokens are refreshed, how tasks share it, and how it is stored."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Protocol
from urllib.parse import urlsplit

import attrs
import trio

from trio_mcp.auth.client.asking import Asker, Person
from trio_mcp.auth.client.stores.memory import TokenStore
from trio_mcp.auth.fetching import FetchFunction, drive
from trio_mcp.auth.rules.challenges import Wanted
from trio_mcp.auth.rules.dpop import Prover
from trio_mcp.auth.rules.login import Login
from trio_mcp.auth.rules.metadata import find_resource
from trio_mcp.auth.rules.steps import CallFunction, Fetch, Flow, ShowCode, Step, Wait
from trio_mcp.auth.rules.urls import UrlPolicy, same_issuer, without_query
from trio_mcp.auth.shared_work import Flight
from trio_mcp.errors import AuthorizationError

__all__ = ["Keeper", "Means", "Need", "differ_by_port"]

FINISH = 10
"""How many seconds a request for tokens may take, even if no task waits for it any more. An arbitrary choice."""


@attrs.frozen
class Need:
    """A need for a login, and the conditions that the login must meet.

    Attributes:
        server: The URL of the MCP server.
        wanted: What the server's response demands.
        scopes: Scopes that the login must have at least; empty unless an earlier login had too few.
        old: The last login at this server, if any. Only the authorization server that granted it may learn anything
            about it.
        redirect: The redirect URI; None if there is no redirection.
    """

    server: str
    wanted: Wanted
    scopes: frozenset[str] = frozenset()
    old: Login | None = None
    redirect: str | None = None


class Means(Protocol):
    """The means by which logins are obtained and renewed."""

    @property
    def asker(self) -> Asker | None:
        """The `Asker` that asks a person to sign in; None where there is no person to ask."""

    @property
    def asks(self) -> bool:
        """Whether a person may be asked, by the asker or by the program; if so, signing in pauses the timeouts."""

    def accepts(self, login: Login) -> bool:
        """Return whether a login from the store was obtained by these means, for this client."""

    def refusal(self, need: Need) -> AuthorizationError | None:
        """Return the error if no login can be obtained, whatever the server says; None if an attempt may succeed."""

    def obtain(self, need: Need) -> Flow[Login]:
        """Return a flow that gets a new login."""

    def renew(self, login: Login, prover: Prover | None) -> Flow[Login] | None:
        """Return a flow that renews a login without asking a person; None if that is not possible."""


class Keeper:
    """Keeps the login at one server, for all clients that share it in one run of Trio.

    A task with a token that works does not wait. All others wait for a `Flight`, which renews or obtains the login on
    behalf of every waiting task; at most one flight of each kind is under way.

    Args:
        server: The URL of the server.
        key: The key of the login in the store.
        means: The means by which logins are obtained.
        store: Where the login is kept.
        fetching: Returns a function that makes the HTTP exchanges of one flow.
        urls: The policy for the URLs that the server names: which of them are fetched.
        clock: Returns the time, in seconds since the epoch.

    Attributes:
        login: The last known login, or None.
        prover: Makes DPoP proofs with the login's key; None without DPoP.
        users: How many clients are using this keeper.
    """

    def __init__(
        self,
        server: str,
        key: str,
        means: Means,
        store: TokenStore,
        fetching: Callable[[], FetchFunction],
        urls: UrlPolicy,
        clock: Callable[[], float],
    ) -> None:
        self.server, self._key = server, key
        self.login: Login | None = None
        self.prover: Prover | None = None
        self.users = 0
        self._means, self._store, self._clock = means, store, clock
        self._fetching, self._urls = fetching, urls
        self._known: str | None = None  # the text in the store when it was last read or written
        self._loaded = False
        # There is at most one flight of each kind, so that a token can be refreshed while a person signs in.
        self._flights: dict[str, Flight] = {}

    async def load(self) -> None:
        """Read the login from the store, unless that has been done before."""
        await trio.lowlevel.checkpoint()
        if not self._loaded:
            text = await self._store.load(self._key)
            if not self._loaded:  # another task may have read the login in the meantime
                self._loaded = True
                self._read(text)

    async def close(self) -> None:
        """Wait, even when cancelled, for work under way that must not be interrupted."""
        # A run of Trio that ends also cancels the tasks of flights, and could so lose a refresh token that is on its
        # way. The wait is short: without waiters, a flight only finishes a request for tokens, which takes at most
        # `FINISH` seconds.
        with trio.CancelScope(shield=True):
            for flight in list(self._flights.values()):
                await flight.ended.wait()

    def usable(self, refused: Login | None = None) -> bool:
        """Return whether there is a token to try, other than the token of the refused login."""
        return self.login is not None and bool(self.login.access_token) and self.login is not refused

    def stale(self) -> bool:
        """Return whether the token has expired by our clock, and can be renewed."""
        login = self.login
        return (
            login is not None
            and login.expires_at is not None
            and self._clock() >= login.expires_at
            # A token that has expired but can't be renewed is sent nevertheless: the server's clock decides, and no
            # person is asked before the server has refused the token.
            and self._means.renew(login, self.prover) is not None
        )

    def nonce(self, url: str) -> str | None:
        """Return the nonce that the next DPoP proof for a URL of the server will contain, or None."""
        return None if self.prover is None else self.prover.nonce(url, resource=True)

    async def renew(self, refused: Login) -> bool:
        """Wait until the refused login has been replaced, without asking a person; the new one may have no tokens.

        Returns:
            Whether this process has obtained new tokens: False if another one has, or the login can't be renewed.

        Raises:
            AuthorizationError: If the renewal fails. The login stays as it was.
        """
        # The loop repeats if the flight ended because its waiters left, since nothing is known about the login then.
        while self.login is refused and self._means.renew(refused, self.prover) is not None:
            if flight := await self._shared("renewal", frozenset(), partial(self._renew, refused=refused)):
                return flight.fresh
        return False

    async def obtain(self, refused: Login | None, wanted: Wanted, scopes: frozenset[str] = frozenset()) -> bool:
        """Wait until there is a login with tokens, other than the one that was refused.

        Args:
            refused: The login that is not good enough, if any.
            wanted: The demands of the response that refused it.
            scopes: The scopes that the login must have.

        Returns:
            Whether the login is new: False if another process obtained it, or it was obtained for other scopes.

        Raises:
            AuthorizationError: If no login can be obtained.
        """
        # The loop repeats after a flight for other scopes: its login may lack scopes that this operation needs, and its
        # failure concerns only other operations.
        while not self.usable(refused):
            work = partial(self._obtain, refused=refused, wanted=wanted, scopes=scopes)
            if flight := await self._shared("login", scopes, work):
                return flight.fresh
        return False

    async def _shared(self, kind: str, scopes: frozenset[str], work: Callable[[Flight], Any]) -> Flight | None:
        """Wait for a flight, started if need be; return the flight if it covers the given scopes, otherwise None."""
        # There must be no checkpoint until the flight is in the dict, or two tasks would start one each.
        flight = self._flights.get(kind)
        if flight is None:
            flight = self._flights[kind] = Flight(scopes)
            flight.start(work, lambda: self._flights.pop(kind, None))
        if scopes <= flight.scopes and not flight.abandoned:
            await flight.wait()
            return flight
        # `flight.wait()` would raise the errors of other tasks, and keep alive a flight that those tasks have given up.
        await flight.ended.wait()
        return None

    async def _renew(self, flight: Flight, refused: Login) -> None:
        async with self._store.lock(self._key):
            # Another process may have refreshed the login first: then its refresh token is good, and ours is used up.
            # In this process, another task may have signed out or replaced the login in the meantime.
            if await self.reread() or self.login is not refused:
                return
            failure: AuthorizationError | None = None
            try:
                login = await self._refreshed(flight, refused)
            except AuthorizationError as error:
                failure = error
            # The failure is handled after the `except` block, because a cancellation inside that block would replace
            # the error.
            if failure is None:
                flight.fresh = True
                await self._keep(login)
            elif failure.error in ("invalid_grant", "invalid_client"):
                # Only these two codes end a login: after a 5xx or a timeout, its refresh token may still be valid.
                # Even with these codes, another process may have refreshed the login; the store has the new token then.
                if not await self.reread():
                    await self._drop(refused, failure)
            elif not await self._moved(flight, refused):
                raise failure

    async def _refreshed(self, flight: Flight, login: Login) -> Login:
        # A truncated response may have carried a new refresh token, so the old one is tried once more: most servers
        # allow that for a while. The second try is a new flow, since no proof and no assertion may be sent twice.
        until = trio.current_time() + FINISH
        # Both tries share one deadline, because other processes wait for the lock that is held during the tries.
        for last in (False, True):
            flow = self._means.renew(login, self.prover)
            assert flow is not None
            try:
                return await drive(flow, self._actor(flight, None, until))
            except AuthorizationError:
                # Any response is final: if the refresh token was rotated, sending the old one again may end the whole
                # login (RFC 9700, section 4.14).
                if flight.answered or last:
                    raise
        raise AssertionError("unreachable: the last try returns or raises")

    async def _moved(self, flight: Flight, login: Login) -> bool:
        """Return whether the server now names only other authorization servers: the old one may be gone for good."""
        flight.release()
        try:
            # A missing response alone does not end a login. But a server that now names another authorization server
            # won't accept tokens from the old one, so a new sign-in is due.
            found = await drive(find_resource(self.server, Wanted(), self._urls), self._actor(flight, None))
        except AuthorizationError:
            return False
        return found is not None and not any(same_issuer(each, login.issuer) for each in found.servers)

    async def _drop(self, login: Login, error: AuthorizationError) -> None:
        """Drop the part of a login that the authorization server has called invalid, and nothing else."""
        if error.error == "invalid_grant":
            # The client and the scopes are kept, so that the next sign-in need not register again, and asks for no
            # fewer scopes than before.
            await self._keep(attrs.evolve(login, access_token="", refresh_token=None, expires_at=None))
        elif login.client.origin == "registered":
            # A client that has registered itself can do so again. A client that the program supplied can't, and its
            # secret may be wrong only for the moment, so its login is kept.
            await self._keep(None)
        else:
            raise error

    async def _obtain(self, flight: Flight, refused: Login | None, wanted: Wanted, scopes: frozenset[str]) -> None:
        refusal = self._means.refusal(Need(self.server, wanted, scopes, self.login))
        if refusal is not None:
            # The store is read without the sign-in lock: another process may hold that lock for as long as a person
            # takes to sign in.
            if await self.reread() and self.usable(refused):
                return
            raise refusal
        # Signing in has a lock of its own, because a person may take minutes, and a refresh must not wait that long.
        async with self._store.lock(f"{self._key}#login"):
            # While this process waited for the lock, another one may have asked the person already.
            if await self.reread() and self.usable(refused):
                return
            async with contextlib.AsyncExitStack() as stack:
                person = await self._person(stack)
                need = Need(self.server, wanted, scopes, self.login, None if person is None else person.redirect)
                login = await drive(self._means.obtain(need), self._actor(flight, person))
            flight.fresh = True
            # Every process takes the sign-in lock before the store's lock for this login: with different orders, two
            # processes could wait for each other.
            async with self._store.lock(self._key):
                await self._keep(login)

    async def _person(self, stack: contextlib.AsyncExitStack) -> Person | None:
        """Return the person, who can be asked until the stack is closed; None where there is no person to ask."""
        asker = self._means.asker
        if asker is None:
            return None
        registered = None if self.login is None else self.login.client.redirect
        # Some authorization servers accept only the registered loopback port, so that one is tried first.
        if asker.redirect is not None and registered is not None and differ_by_port(asker.redirect, registered):
            with contextlib.suppress(AuthorizationError):  # raised if the port is taken
                return await stack.enter_async_context(asker.opened(registered))
        return await stack.enter_async_context(asker.opened(asker.redirect))

    def _actor(
        self, flight: Flight, person: Person | None, until: float = math.inf
    ) -> Callable[[Step], Awaitable[Any]]:
        """Return a function that carries out the steps of one flow."""
        fetch = self._fetching()
        # A shown code has to be entered by this time. Until then, the flow polls, so there is no single wait that a
        # timeout could end.
        entered_by = math.inf

        async def act(step: Step) -> Any:
            nonlocal fetch, entered_by
            match step:
                case Fetch(step="token" | "refresh"):
                    flight.hold()
                    # `answered` is reset for each request: the response to the first may ask for a nonce, and the
                    # response to the second may be cut off.
                    flight.answered = False
                    # The request is no longer cancelled when its waiters leave, so it needs a deadline of its own.
                    with trio.move_on_at(min(until, trio.current_time() + FINISH)):
                        response = await fetch(step)
                        flight.answered = True
                        return response
                    raise AuthorizationError(
                        step.step, f"the authorization server did not respond within {FINISH} seconds"
                    )
                case Fetch():
                    return await fetch(step)
                case Wait():
                    if person is not None and trio.current_time() + step.seconds > entered_by:
                        raise person.late()
                    await trio.sleep(step.seconds)
                    fetch = self._fetching()  # a flow that waits may last long, so its limits start over
                    return None
                case CallFunction():
                    return await step.function()
            # Only means with an asker make flows that ask a person.
            assert person is not None
            # The requests so far have brought no tokens, and a person may take minutes, so from here on the flight ends
            # when its last waiter leaves.
            flight.release()
            await self._doubt_client()
            if isinstance(step, ShowCode):
                timeout = person.asker.login_timeout
                entered_by = trio.current_time() + timeout
                return await person.asker.show_code(attrs.evolve(step, expires_in=min(step.expires_in, timeout)))
            return await person.ask(step)

        return act

    async def _doubt_client(self) -> None:
        # A server that has forgotten the client says so on a page, and not with a redirection. So if this sign-in ends
        # without tokens, the next one registers again.
        async with self._store.lock(self._key):
            if self.login is not None and not self.login.access_token:
                await self._keep(None)

    def _read(self, text: str | None) -> None:
        try:
            login = None if text is None else Login.from_json(text)
            self._take(login if login is not None and self._means.accepts(login) else None)
        except ValueError as error:
            # Damaged text never counts as a missing login: if it did, a person would be asked, and the text would be
            # overwritten.
            raise AuthorizationError(
                "store",
                f"what is stored for {without_query(self.server)} is not a login: {error}",
                advice="remove it (trio-mcp logout) and sign in again",
            ) from None
        self._known = text

    async def reread(self) -> bool:
        """Read the store again, and return whether it has changed."""
        text = await self._store.load(self._key)
        if text == self._known:
            return False
        self._read(text)
        return True

    async def _keep(self, login: Login | None) -> None:
        # The login is kept in memory first: if it can't be stored, at least this process continues with it.
        self._take(login)
        text = None if login is None else login.to_json()
        await self._store.save(self._key, text)
        self._known = text

    def _take(self, login: Login | None) -> None:
        key = None if login is None else login.dpop_key
        if key is None:
            self.prover = None
        elif self.prover is None or self.prover.key != key:
            # If the key is the same, the prover is kept, because it has learned nonces from the servers.
            self.prover = Prover(key, clock=self._clock)
        self.login = login


def differ_by_port(one: str, other: str) -> bool:
    """Return whether two redirect URIs are equal, apart from their ports."""
    first, second = urlsplit(one), urlsplit(other)
    return (first.scheme, first.hostname, first.path) == (second.scheme, second.hostname, second.path)
