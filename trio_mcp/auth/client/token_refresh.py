"""The refresh of a token: a login is renewed without asking a person."""

from __future__ import annotations

from functools import partial

import attrs
import trio

from trio_mcp.auth.client.login_keeper import FINISH, Keeper
from trio_mcp.auth.client.shared_work import Flight
from trio_mcp.auth.fetching import drive
from trio_mcp.auth.rules.challenges import Wanted
from trio_mcp.auth.rules.login import Login
from trio_mcp.auth.rules.metadata import find_resource
from trio_mcp.auth.rules.urls import same_issuer
from trio_mcp.errors import AuthorizationError

__all__ = ["RefreshingKeeper"]


class RefreshingKeeper(Keeper):
    """Keeps the login at one server, and refreshes it; see `Keeper` for the arguments.

    One refresh runs at a time, in all processes that share the store.
    """

    def stale(self) -> bool:
        """Return whether the token has expired by our clock, and can be renewed."""
        login = self.login
        return (
            login is not None
            and login.expires_at is not None
            and self._clock() >= login.expires_at
            # A token that can't be renewed is sent even so: the server's clock decides, and no person is asked without
            # a refusal.
            and self._means.renew(login, self.prover) is not None
        )

    async def renew(self, refused: Login) -> bool:
        """Return once the refused login was replaced, without asking a person; the new one may have no tokens.

        Returns:
            Whether its tokens are new, rather than those that another process obtained.

        Raises:
            AuthorizationError: If that fails. The login stays as it was.
        """
        # Repeat this if the flight ended because its waiters left: then nothing is known about the login.
        while self.login is refused and self._means.renew(refused, self.prover) is not None:
            if flight := await self._shared("renewal", frozenset(), partial(self._renew, refused=refused)):
                return flight.fresh
        return False

    async def _renew(self, flight: Flight, refused: Login) -> None:
        async with self._store.lock(self._key):
            # Another process may have been here first: then its refresh token is good, and ours is used up.
            if await self.reread():
                return
            failure: AuthorizationError | None = None
            try:
                login = await self._refreshed(flight, refused)
            except AuthorizationError as error:
                failure = error
            # This comes after the block: a cancellation inside it would replace the error.
            if failure is None:
                flight.fresh = True
                await self._keep(login)
            elif failure.error in ("invalid_grant", "invalid_client"):
                # Only these two codes end a login: after a 5xx or a timeout its refresh token is as good as before.
                # Even then, another process may have refreshed it; the store has the new token.
                if not await self.reread():
                    await self._drop(refused, failure)
            elif not await self._moved(flight, refused):
                raise failure

    async def _refreshed(self, flight: Flight, login: Login) -> Login:
        # A truncated response may have carried a new refresh token, so the old one is tried once more: most servers
        # allow that for a while. The second try is a new flow, since no proof and no assertion may be sent twice.
        until = trio.current_time() + FINISH
        # Both tries share this time: the lock is held meanwhile, and other processes wait for it.
        for last in (False, True):
            flow = self._means.renew(login, self.prover)
            assert flow is not None
            try:
                return await drive(flow, self._actor(flight, None, until))
            except AuthorizationError:
                # Any response is final. A refresh token that comes again after its rotation may end the whole login
                # (RFC 9700, section 4.14).
                if flight.answered or last:
                    raise
        raise AssertionError("both tries returned or raised")

    async def _moved(self, flight: Flight, login: Login) -> bool:
        """Return whether the server has another authorization server now: the old one may be gone for good."""
        flight.release()
        try:
            # Silence ends no login. But a server that now names another authorization server won't accept tokens of the
            # old one, so a new sign-in is due.
            found = await drive(find_resource(self.server, Wanted(), self._urls), self._actor(flight, None))
        except AuthorizationError:
            return False
        return found is not None and not any(same_issuer(each, login.issuer) for each in found.servers)

    async def _drop(self, login: Login, error: AuthorizationError) -> None:
        """Drop the part of a login that a server says is invalid, and nothing else."""
        if error.error == "invalid_grant":
            # The client and the scopes stay: the next sign-in need not register again, and asks for no less than
            # before.
            await self._keep(attrs.evolve(login, access_token="", refresh_token=None, expires_at=None))
        elif login.client.origin == "registered":
            # A client that has registered itself can do so again. One that the program gave can't: a secret that is
            # wrong for now must lose nothing.
            await self._keep(None)
        else:
            raise error
