"""Authorizes requests with access tokens that the program itself supplies."""

from __future__ import annotations

import contextlib
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import TypeAlias

import trio

from trio_mcp.auth.rules.challenges import Wanted, read_wanted
from trio_mcp.auth.rules.urls import UrlPolicy, same_origin
from trio_mcp.errors import AuthorizationError
from trio_mcp.http.client.auth import Pause
from trio_mcp.http.headers import Headers

__all__ = ["BearerToken", "TokenFunction"]

TokenFunction: TypeAlias = Callable[[], Awaitable[str]]
"""An async function that returns a token that is valid now."""

# A token with a line break would begin another field of the request. RFC 6750, section 2.1, allows even fewer
# characters than this pattern.
_TOKEN = re.compile(r"[\x21-\x7e]+")


class BearerToken:
    """Authorizes requests with an access token that your program supplies.

    Args:
        token: The token; or an async function that returns one, which is called before the first request, and again
            when the server refuses the token.
        urls: Which servers get the token; by default those with HTTPS, and those on this machine.

    Raises:
        TypeError: If the token is neither a string nor a function.
        ValueError: If the token is empty, or contains a character that can't be sent.
    """

    def __init__(self, token: str | TokenFunction, *, urls: UrlPolicy | None = None) -> None:
        if not callable(token):
            _check(token)
        self._token = token
        self._urls = UrlPolicy() if urls is None else urls

    @contextlib.asynccontextmanager
    async def opened(self, server: str, pause: Pause) -> AsyncIterator[_Signer]:
        """Return a context manager; inside its block, requests are authorized: see `trio_mcp.http.client.auth.Auth`.

        Raises:
            AuthorizationError: If the token would be sent in the clear (RFC 6750, section 5.3).
        """
        if not server.lower().startswith("https:"):
            self._urls.check(server, server, "authorization")
        yield _Signer(server, self._token)


class _Signer:
    """Holds the token for one server; all operations at that server share it."""

    def __init__(self, server: str, token: str | TokenFunction) -> None:
        self.server = server
        self._source = token
        self._token = "" if callable(token) else token
        self._asking = trio.Lock()

    def attempt(self) -> _Attempt:
        """Return the authorization of a new operation."""
        return _Attempt(self)

    async def token(self, refused: str = "") -> str:
        """Return the token; if it equals ``refused``, first call the program's function for a new one."""
        # `_token` and `refused` are both empty at first, so the function is called before the first request, too.
        if self._token == refused and callable(self._source):
            # If several operations need a new token, the first one calls the function, and the others wait for the lock
            # and find that token. An operation whose token is still good does not wait.
            async with self._asking:
                if self._token == refused:
                    self._token = await _asked(self._source)
        return self._token


class _Attempt:
    """Authorizes the requests of one operation."""

    def __init__(self, signer: _Signer) -> None:
        self._signer = signer
        self._used = ""
        self._renewed = False

    async def fields(self, method: str, url: str) -> Sequence[tuple[str, str]]:
        """Return the header field that authorizes a request; nothing if the request goes to another origin."""
        if not same_origin(url, self._signer.server):
            return ()
        self._used = await self._signer.token()
        return (("Authorization", f"Bearer {self._used}"),)

    async def again(self, status: int, headers: Headers) -> bool:
        """Return whether to send the request once more, with another token."""
        # A request to another origin was sent without the token, so its refusal says nothing about the token.
        if status not in (401, 403) or not self._used:
            return False
        wanted = read_wanted(headers, token=self._used)
        # Each operation gets a new token only once: if the server refused every token that the caller's function
        # returns, the request would otherwise be repeated forever.
        if status == 401 and not self._renewed:
            self._renewed = True
            if await self._signer.token(self._used) != self._used:
                return True
        # A 403 with another error, or with no error code, has reasons that no other token would change.
        if status == 401 or wanted.error == "insufficient_scope":
            raise _refused(status, wanted)
        return False


def _refused(status: int, wanted: Wanted) -> AuthorizationError:
    if wanted.error == "insufficient_scope":
        scopes = " ".join(sorted(wanted.scopes or ()))
        problem, advice = "the token does not allow the request", f"get a token with the scopes {scopes}"
        return AuthorizationError("authorization", problem, error=wanted.error, advice=advice if scopes else "")
    problem = f"the server refused the token from BearerToken with status {status}"
    advice = "pass a token for this server that has not expired, or sign in with OAuth()"
    return AuthorizationError("token", problem, error=wanted.error, advice=advice)


async def _asked(source: TokenFunction) -> str:
    try:
        token = await source()
        _check(token)
    except AuthorizationError:
        raise
    except Exception as exc:  # whatever the program's function raises becomes an error of this call
        # Only the exception's type is shown, because its text may quote the token.
        problem = f"the function passed to BearerToken failed with {type(exc).__name__}"
        raise AuthorizationError("token", problem, advice="see the cause of this error") from exc
    return token


def _check(token: object) -> None:
    if not isinstance(token, str):
        raise TypeError(f"a bearer token must be a string, got {type(token).__name__}")
    if not _TOKEN.fullmatch(token):
        # The message does not quote the token, which is secret.
        raise ValueError(
            "a bearer token must be printable ASCII without spaces, and not empty; leave out the word Bearer"
        )
