"""`CallerAuth`: authorizes the requests of a server's functions to other services, as the caller of each request."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Collection, Generator
from functools import partial
from typing import TYPE_CHECKING, Any

import httpx  # noqa: ASYNC127 - its clients take only objects of its own class
import trio

from trio_mcp._checks import check_text
from trio_mcp.auth.client.bearer import BearerToken
from trio_mcp.auth.rules.urls import UrlPolicy, same_origin
from trio_mcp.errors import AuthorizationError
from trio_mcp.http.client.auth import Auth, Pause, Signer, check_auth
from trio_mcp.server.caller import NoCallerToken
from trio_mcp.server.log_messages import CURRENT
from trio_mcp.session.middleware import CallNext, OutgoingCall

if TYPE_CHECKING:
    from trio_mcp.server.context import Context

__all__ = ["CallerAuth"]


class CallerAuth(httpx.Auth):
    """Authorizes requests to a service as the caller whose request a function serves; see `Context.token_for`.

    It is an ``auth=`` for httpx, whose client may be shared by all requests: each gets the token of its own caller. And
    it is an ``auth=`` for a `Client` that a function opens for its own request; the calls of other requests fail there.
    A `ProxyServer` opens a connection of its own for each request.

    Args:
        audience: The service, as ``TokenExchange(audiences=…)`` lists it.
        scopes: The scopes to ask for; by default all that are listed for the service.
        url: The URL of the service, unless that is the audience. Its origin gets tokens, and no other.
        otherwise: How a `Client` signs in that is opened outside of a request, such as that with which a `ProxyServer`
            learns what the other server offers; by default not at all.

    Raises:
        TypeError: If an argument is of the wrong type.
        ValueError: If the URL is missing, or tokens would be sent to it in the clear.
    """

    def __init__(
        self,
        audience: str,
        *,
        scopes: Collection[str] | None = None,
        url: str | None = None,
        otherwise: Auth | None = None,
    ) -> None:
        check_text("audience", audience)
        if isinstance(scopes, str):
            raise TypeError(f"scopes must be a list of strings; write {scopes.split()!r}")
        check_auth(otherwise)
        self._audience, self._scopes, self._otherwise = audience, scopes, otherwise
        self._url = audience if url is None else url
        try:
            UrlPolicy().check(self._url, self._url, "authorization")
        except AuthorizationError as exc:
            advice = "" if url is not None else "; pass url=, the URL of the service"
            raise ValueError(f"no tokens can be sent there: {exc.problem}{advice}") from None

    # --- httpx -------------------------------------------------------------------------------------------------------

    async def async_auth_flow(self, request: httpx.Request) -> AsyncGenerator[httpx.Request, httpx.Response]:
        """Authorize a request of an ``httpx.AsyncClient``."""
        if same_origin(str(request.url), self._url):
            request.headers["Authorization"] = f"Bearer {await self._token(_current())}"
        else:
            await trio.lowlevel.checkpoint()
        yield request

    def sync_auth_flow(self, request: httpx.Request) -> Generator[httpx.Request, httpx.Response]:
        """Authorize a request of an ``httpx.Client``, in the thread of a sync function."""
        if same_origin(str(request.url), self._url):
            token = trio.from_thread.run(self._token, _current())
            request.headers["Authorization"] = f"Bearer {token}"
        yield request

    async def _token(self, current: Context[Any] | None) -> str:
        if current is None:
            raise NoCallerToken(self._audience, "no request is being served here")
        return await current.token_for(self._audience, scopes=self._scopes)

    # --- a client of MCP ---------------------------------------------------------------------------------------------

    @contextlib.asynccontextmanager
    async def opened(self, server: str, pause: Pause) -> AsyncIterator[Signer]:
        """Return a context manager; inside its block, requests are authorized: see `trio_mcp.http.client.auth.Auth`.

        Raises:
            AuthorizationError: If the server is not the service.
        """
        # The tasks of a connection keep the context variables of the task that opens it, also when other requests use
        # it. So the connection is for one request, and `guard` keeps the others away.
        current = _current()
        auth: Auth
        if current is not None:
            auth = BearerToken(partial(self._token, current))
        elif self._otherwise is not None:
            auth = self._otherwise
        else:
            advice = "open the client in the function that needs it, or pass otherwise="
            raise NoCallerToken(self._audience, f"the client was not opened for a request; {advice}")
        if not same_origin(server, self._url):
            problem = f"the tokens are for {self._url}, but the server is {server}"
            raise AuthorizationError("authorization", problem, advice="pass url=, the URL of the server")
        async with auth.opened(server, pause) as signer:
            yield signer

    def guard(self) -> Any:
        """Return a middleware for a client that is made now: it refuses the calls of other requests."""
        return _Guard(self._audience, _current())

    def __repr__(self) -> str:
        return f"CallerAuth({self._audience!r})"


class _Guard:
    """A middleware that lets only the calls of one request pass; of none, if the client is not for a request."""

    def __init__(self, audience: str, owner: Context[Any] | None) -> None:
        self._audience, self._owner = audience, owner

    async def __call__(self, call: OutgoingCall, call_next: CallNext) -> dict[str, Any]:
        if _current() is not self._owner:
            raise NoCallerToken(
                self._audience, f"{call.method!r} is for another request than the one that this client was made for"
            )
        return await call_next()


def _current() -> Context[Any] | None:
    """Return the context of the request that is being served here, if any."""
    current: Any = CURRENT.get(None)
    return None if current is None else current[0]
