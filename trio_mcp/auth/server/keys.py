"""The keys of an issuer: read from its JWKS, kept, and fetched again when it has changed them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

import trio
from pydantic_core import from_json

from trio_mcp._log import logger
from trio_mcp.auth.fetching import FetchFunction, drive
from trio_mcp.auth.rules.metadata import AuthorizationServerMetadata, find_server
from trio_mcp.auth.rules.steps import Fetch, Fetched
from trio_mcp.auth.rules.texts import clock_ahead
from trio_mcp.auth.rules.urls import UrlPolicy
from trio_mcp.auth.server.claims import InvalidToken
from trio_mcp.auth.server.jws import import_key, suits
from trio_mcp.errors import AuthorizationError
from trio_mcp.http.server.gate import LEEWAY

if TYPE_CHECKING:
    from joserfc.jwk import Key

__all__ = ["IssuerKeys", "KeySet", "NotYet", "Unavailable", "metadata_of"]

FRESH: Final = 600.0
"""How long keys are used before they are fetched again, in seconds (arbitrary, like this module's other limits)."""
STALE: Final = 3600.0
"""How long keys are used if they can't be fetched again, in seconds: a withdrawn key must not be used forever."""
RETRY: Final = 10.0
"""The minimum time between two fetches, in seconds, whatever tokens arrive: anyone can make up the id of a key."""
BEHIND: Final = 300.0
"""How many seconds out of date fetched keys may be: issuers use caches, and clocks differ."""
MAX_KEYS: Final = 100
MAX_JWKS: Final = 256 * 1024


class Unavailable(Exception):
    """A token can't be checked at the moment; the text says why."""


class NotYet(Unavailable):
    """A token may be signed with a new key, and it is too early to fetch the issuer's keys again."""


class KeySet:
    """The keys of a JWKS that can be used to check tokens.

    Args:
        document: The JWKS (RFC 7517, section 5).

    Raises:
        ValueError: If the JWKS is malformed, or has more than `MAX_KEYS` keys.
    """

    def __init__(self, document: Any) -> None:
        listed = document.get("keys") if isinstance(document, dict) else None
        if not isinstance(listed, list):
            raise ValueError("the key set is not a JWKS: expected a JSON object with a list named 'keys'")
        if len(listed) > MAX_KEYS:
            raise ValueError(f"the key set has {len(listed)} keys, more than {MAX_KEYS}")
        self._keys: list[Key] = []
        for jwk in listed:
            try:
                self._keys.append(import_key(jwk))
            except ValueError as exc:
                # One unsupported key must not make the others unusable (RFC 7517, section 5).
                logger.debug("a key of a JWKS is ignored: %s", exc)

    def __len__(self) -> int:
        return len(self._keys)

    def knows(self, kid: object) -> bool:
        """Return whether there is a key with this ``kid``."""
        return any(key.kid == kid for key in self._keys)

    def find(self, kid: object, algorithm: str) -> Sequence[Key]:
        """Return the keys that can have made a signature: those with this ``kid``; without one, the only suitable key.

        Args:
            kid: The ``kid`` in the header of the token, or None.
            algorithm: The algorithm of the signature.
        """
        found = [key for key in self._keys if (kid is None or key.kid == kid) and suits(key, algorithm)]
        # A token that does not name its key must not make the server try several keys.
        return found if kid is not None or len(found) == 1 else ()


class IssuerKeys:
    """The keys of one issuer, fetched when they are needed.

    Each fetch runs in its own task, so that it continues even if a task that waits for it is cancelled.

    Args:
        issuer: The issuer, as it is configured.
        url: The URL of the issuer's JWKS; None to take it from the issuer's metadata.
        fetch: Returns a function that makes the HTTP exchanges of one fetch.
        clock: Returns the time, in seconds since the epoch.
        nursery: The nursery in which fetches run.

    Attributes:
        issuer: The issuer, as configured; once its metadata has been fetched, as the metadata spells it.
    """

    def __init__(
        self,
        issuer: str,
        url: str | None,
        fetch: Callable[[], FetchFunction],
        clock: Callable[[], float],
        nursery: trio.Nursery,
    ) -> None:
        self.issuer = self._configured = issuer
        self._url = self._given = url
        self._fetch = fetch
        self._clock = clock
        self._nursery = nursery
        self._keys: KeySet | None = None
        # The three times are those when the last successful fetch began, when a fetch last failed, and when any fetch
        # last began or ended.
        self._fetched_at = self._failed_at = self._asked_at = -float("inf")
        # `_begun` is the number of fetches that have begun; `_succeeded` is the number of the last fetch that
        # succeeded.
        self._begun = self._succeeded = 0
        self._problem = ""
        self._under_way: trio.Event | None = None

    async def find(
        self, kid: object, algorithm: str, issued_at: float | None, fits: Callable[[Key], bool]
    ) -> Sequence[Key]:
        """Return the keys that can have made a signature.

        Args:
            kid: The ``kid`` in the header of the token, or None.
            algorithm: The algorithm of the signature.
            issued_at: The time at which the token claims to have been issued, or None.
            fits: Returns whether a key has made the signature; called only if the token does not name its key.

        Raises:
            InvalidToken: If the issuer has no such key.
            Unavailable: If the issuer does not respond, and there are no keys that may still be used; `NotYet` if the
                key may be a new one.
        """
        seen = self._begun
        age = self._clock() - self._fetched_at
        if age > STALE:
            await self._renew()
        # No task waits for this fetch: the present keys are good enough until the new ones have arrived.
        elif age > FRESH:
            self._start()
        if (keys := self._keys) is None or self._clock() - self._fetched_at > STALE:
            raise Unavailable(self._problem)

        def lacks_it(keys: KeySet) -> bool:
            if kid is not None:
                return not keys.knows(kid)
            # If the token does not name its key, there is at most one key to try, and the issuer may have replaced it.
            only = keys.find(None, algorithm)
            return bool(only) and not any(map(fits, only))

        if lacks_it(keys):
            await self._renew()
            keys = self._keys or keys
            if lacks_it(keys) and not self._is_settled(seen, issued_at):
                # The issuer may have begun to sign with a new key since the last fetch. A client with a token signed by
                # that key must not have to sign in again because made-up tokens have used up the fetch that would have
                # found the key.
                if self._failed_at > self._fetched_at:
                    raise Unavailable(self._problem)
                raise NotYet(
                    f"an access token can't be checked yet: its key is unknown, and the keys of {self._configured} "
                    f"were fetched less than {RETRY:.0f} s ago"
                )
        if not (found := keys.find(kid, algorithm)):
            raise InvalidToken("its issuer has no key that fits the token's header")
        return found

    def _is_settled(self, seen: int, issued_at: float | None) -> bool:
        """Return whether a key that was not found can't be a new one.

        Args:
            seen: How many fetches had begun when the token came.
            issued_at: The time at which the token claims to have been issued; if this time is false, the token is
                refused all the same, but with another reason.
        """
        return self._succeeded > seen or (issued_at is not None and issued_at + BEHIND < self._fetched_at)

    async def _renew(self) -> None:
        self._start()
        if self._under_way is not None:
            await self._under_way.wait()

    def _start(self) -> None:
        now = self._clock()
        # Without `abs`, a clock that was set back would delay the next fetch until it had caught up.
        if self._under_way is None and abs(now - self._asked_at) > RETRY:
            self._asked_at = now
            self._begun += 1
            self._under_way = trio.Event()
            self._nursery.start_soon(self._run, self._under_way, name=f"keys of {self._configured}")

    async def _run(self, done: trio.Event) -> None:
        try:
            self._keys = await self._fetched()
            self._fetched_at, self._succeeded = self._asked_at, self._begun
        except Exception as exc:  # `fetch` may be the program's own function
            # The keys may have moved, so the next fetch looks up their URL again.
            self._url = self._given
            self._failed_at = self._clock()
            self._problem = f"the keys of {self._configured} can't be fetched: {exc}"
            logger.warning("%s", self._problem)
        finally:
            self._asked_at = self._clock()
            self._under_way = None
            done.set()

    async def _fetched(self) -> KeySet:
        fetch = self._fetch()
        if self._url is None:
            server = await metadata_of(self._configured, fetch)
            if server.jwks is None:
                raise ValueError("its metadata has no jwks_uri; pass keys= to JwtVerifier, or use another verifier")
            self.issuer, self._url = server.issuer, server.jwks
        step = "keys"
        response = await fetch(Fetch(step, "GET", self._url, {"Accept": "application/json"}, limit=MAX_JWKS))
        if response.status != 200:
            raise AuthorizationError(step, f"{self._url} responded with HTTP {response.status}", issuer=self.issuer)
        self._compare_clocks(response)
        keys = KeySet(from_json(response.body))
        if not keys:
            raise ValueError("the key set has no key that can check signatures")
        return keys

    def _compare_clocks(self, response: Fetched) -> None:
        """Log a warning if the issuer's clock differs from ours: good tokens would seem expired, or not yet valid."""
        if abs(ahead := clock_ahead(response.headers, self._clock())) > LEEWAY:
            logger.warning(
                "the clock of this machine is %.0f s %s that of %s: tokens will be refused; set the clock",
                abs(ahead),
                "ahead of" if ahead > 0 else "behind",
                self._configured,
            )


async def metadata_of(issuer: str, fetch: FetchFunction) -> AuthorizationServerMetadata:
    """Find the metadata of an issuer.

    Raises:
        AuthorizationError: If no metadata is found, or the metadata belongs to another issuer.
    """
    # The program has configured the issuer, and so trusts it: for the URL policy, the issuer takes the place of the MCP
    # server.
    return await drive(find_server(issuer, UrlPolicy(), issuer), fetch)
