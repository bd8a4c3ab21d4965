"""Programs that get tokens without a person: by credentials of their own, or by what their platform says of them."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Collection, Mapping
from contextlib import AbstractAsyncContextManager
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Final, TypeAlias

import trio

from trio_mcp.auth.client.machine_means import MachineMeans
from trio_mcp.auth.client.signing import Kept
from trio_mcp.auth.fetching import FetchFunction
from trio_mcp.auth.rules.dpop import DpopUse
from trio_mcp.auth.rules.jose import PrivateKeyJwt
from trio_mcp.auth.rules.registration import RegisteredClient
from trio_mcp.auth.rules.steps import CallFunction, Flow
from trio_mcp.auth.rules.token_answers import Tokens
from trio_mcp.auth.rules.token_requests import JWT_BEARER, TokenEndpoint, client_credentials, jwt_bearer
from trio_mcp.auth.rules.urls import UrlPolicy
from trio_mcp.errors import AuthorizationError
from trio_mcp.http.client.auth import Pause, Signer

__all__ = ["Assertion", "ClientCredentials", "WorkloadIdentity"]

Assertion: TypeAlias = Callable[[str, str, str | None], Awaitable[str]]
"""Returns the assertion for an issuer, its token endpoint and a resource (None where none is named)."""

# Chosen; it has to fit into a form that servers read.
_MAX_ASSERTION: Final = 64 * 1024


class Machine:
    """An ``auth=`` of a program, whatever it has to show.

    Attributes:
        extensions: The extensions of the protocol that a client with it declares.
    """

    extensions: ClassVar[Mapping[str, Mapping[str, Any]]] = {}

    def __init__(self, means: MachineMeans, urls: UrlPolicy | None, fetch: FetchFunction | None) -> None:
        self._kept = Kept(means, urls=urls, fetch=fetch, clock=means.clock)

    def opened(self, server: str, pause: Pause) -> AbstractAsyncContextManager[Signer]:
        """Return a block in which requests are authorized; see `trio_mcp.http.client.auth.Auth`."""
        return self._kept.opened(server, pause)


class ClientCredentials(Machine):
    """Signs requests as the program itself, with credentials that an authorization server gave it (RFC 6749, 4.4).

    Args:
        client_id: The program's id at the authorization server.
        secret: Its secret.
        key: Its private key; better than a secret, because it never leaves the program.
        issuer: The authorization server that knows it. Without it, that is the one which the first server names: name
            it unless you trust each server that you connect to with the secret.
        scopes: What to ask for; by default what the server asks for.
        dpop: Whether tokens are bound to a key: ``"auto"`` where the authorization server offers it, ``"require"``, or
            ``"off"``.
        urls: Which URLs that a server names are fetched.
        fetch: Makes the exchanges instead; for tests.
        clock: Tells the time, in seconds since the epoch.

    Raises:
        ValueError: Unless there is either a secret or a key.
    """

    extensions: ClassVar[Mapping[str, Mapping[str, Any]]] = {"io.modelcontextprotocol/oauth-client-credentials": {}}

    def __init__(
        self,
        client_id: str,
        *,
        secret: str | None = None,
        key: PrivateKeyJwt | None = None,
        issuer: str | None = None,
        scopes: Collection[str] | None = None,
        dpop: DpopUse = "auto",
        urls: UrlPolicy | None = None,
        fetch: FetchFunction | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        if (secret is None) == (key is None):
            raise ValueError("ClientCredentials needs either a secret or a key, and not both")
        client = RegisteredClient(client_id, secret=secret, key=key, issuer=issuer)
        means = MachineMeans(
            _ask_as_client,
            grant="client_credentials",
            client=client,
            issuer=issuer,
            scopes=scopes,
            dpop=dpop,
            urls=urls,
            clock=clock,
        )
        super().__init__(means, urls, fetch)


class WorkloadIdentity(Machine):
    """Signs requests as a workload, by the assertion that its platform gives it (RFC 7523): nothing is registered.

    An assertion that is refused is not sent again, and nothing else is tried.

    Args:
        assertion: The file that the platform keeps fresh, or an async function that returns the assertion for an
            issuer, its token endpoint and a resource.
        issuer: The authorization server that trusts the platform. Without it, that is the one which the first server
            names: name it unless you trust each server that you connect to with the assertion.
        scopes: What to ask for; by default what the server asks for.
        dpop: Whether tokens are bound to a key: ``"auto"`` where the authorization server offers it, ``"require"``, or
            ``"off"``.
        urls: Which URLs that a server names are fetched.
        fetch: Makes the exchanges instead; for tests.
        clock: Tells the time, in seconds since the epoch.
    """

    def __init__(
        self,
        assertion: Path | str | Assertion,
        *,
        issuer: str | None = None,
        scopes: Collection[str] | None = None,
        dpop: DpopUse = "auto",
        urls: UrlPolicy | None = None,
        fetch: FetchFunction | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        if not callable(assertion):
            assertion = partial(_read_assertion, Path(assertion))
        means = MachineMeans(
            partial(_ask_as_workload, assertion),
            grant=JWT_BEARER,
            # The assertion alone says who asks: nothing was registered, so no client is named (the draft of SEP-1933).
            client=None,
            issuer=issuer,
            scopes=scopes,
            dpop=dpop,
            urls=urls,
            clock=clock,
            # The draft allows one try, but a renewal is tried again after an answer that was cut.
            again=False,
        )
        super().__init__(means, urls, fetch)


def _ask_as_client(at: TokenEndpoint, scopes: Collection[str], resource: str | None) -> Flow[Tokens]:
    return client_credentials(at, scopes=scopes, resource=resource)


def _ask_as_workload(
    assertion: Assertion, at: TokenEndpoint, scopes: Collection[str], resource: str | None
) -> Flow[Tokens]:
    # Each time anew, since the platform keeps replacing it. What the function makes of issuer and endpoint is up to it:
    # for the draft the audience is the token endpoint, for the conformance suite the issuer.
    text = yield from called("the assertion", at, lambda: assertion(at.issuer, at.url, resource))
    return (yield from jwt_bearer(at, assertion=text, scopes=scopes, resource=resource))


def called(what: str, at: TokenEndpoint, function: Callable[[], Awaitable[str]]) -> Flow[str]:
    """Call a function of the program that returns something signed.

    Args:
        what: What it returns.
        at: Where that will be sent.
        function: The function.

    Raises:
        AuthorizationError: If it fails, or returns something else.
    """
    try:
        text = yield CallFunction(function)
    except AuthorizationError:
        raise
    except Exception as exc:
        problem = f"{what} could not be had: {type(exc).__name__}"
        raise AuthorizationError("token", problem, issuer=at.issuer, advice="see the cause of this error") from exc
    if not isinstance(text, str) or not text:
        raise AuthorizationError("token", f"{what} is not a text, or is empty: {type(text).__name__}", issuer=at.issuer)
    return text


async def _read_assertion(path: Path, issuer: str, endpoint: str, resource: str | None) -> str:
    try:
        async with await trio.open_file(path, encoding="ascii") as file:
            # One more than is allowed tells that it is too long, however large the file is that was named by mistake.
            text = await file.read(_MAX_ASSERTION + 1)
    except (OSError, ValueError) as exc:  # ValueError: not ASCII
        reason = exc.strerror if isinstance(exc, OSError) else "it is not text"
        problem = f"the assertion can't be read from {path}: {reason}"
        raise AuthorizationError("token", problem, issuer=issuer, advice="let the platform put one there") from None
    if len(text) > _MAX_ASSERTION:
        raise AuthorizationError("token", f"what {path} holds is too long for an assertion", issuer=issuer)
    # A line break at the end of the file is not part of the JWT.
    return text.strip()
