"""Programs that get tokens without a person: with their own credentials, or with an assertion from their platform."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping
from contextlib import AbstractAsyncContextManager
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Final, TypeAlias, Unpack

import trio

from trio_mcp._keywords import refuse_unknown
from trio_mcp._settings import completed
from trio_mcp.auth.client.machine_means import AskFor, MachineMeans
from trio_mcp.auth.client.options import TokenOptions
from trio_mcp.auth.client.signing import Kept
from trio_mcp.auth.rules.jose import PrivateKeyJwt
from trio_mcp.auth.rules.registration import RegisteredClient
from trio_mcp.auth.rules.steps import CallFunction, Flow
from trio_mcp.auth.rules.token_answers import Tokens
from trio_mcp.auth.rules.token_requests import JWT_BEARER, TokenEndpoint, client_credentials, jwt_bearer
from trio_mcp.errors import AuthorizationError
from trio_mcp.http.client.auth import Pause, Signer

__all__ = ["Assertion", "ClientCredentials", "WorkloadIdentity"]

Assertion: TypeAlias = Callable[[str, str, str | None], Awaitable[str]]
"""An async function that returns the assertion for an issuer, its token endpoint and a resource (or None)."""

# The longest assertion, in characters. An arbitrary choice: an assertion has to fit into a form that servers still
# accept.
_MAX_ASSERTION: Final = 64 * 1024


class Machine:
    """The base class of the ``auth=`` objects for programs, whatever credentials they have.

    Attributes:
        extensions: The protocol extensions that a client with this ``auth=`` declares.
    """

    extensions: ClassVar[Mapping[str, Mapping[str, Any]]] = {}

    def __init__(self, ask_for: AskFor, options: TokenOptions, **means: Any) -> None:
        refuse_unknown(type(self), options, TokenOptions)
        whole = completed(TokenOptions, options)
        self._kept = Kept(MachineMeans(ask_for, whole, **means), whole)

    def opened(self, server: str, pause: Pause) -> AbstractAsyncContextManager[Signer]:
        """Return a context manager; inside its block, requests are authorized: see `trio_mcp.http.client.auth.Auth`."""
        return self._kept.opened(server, pause)


class ClientCredentials(Machine):
    """Authorizes requests as the program itself, with its own credentials (RFC 6749, section 4.4).

    Args:
        client_id: The program's id at the authorization server.
        secret: The program's secret.
        key: The program's private key; better than a secret, because it never leaves the program.
        issuer: The authorization server where the program is registered. By default, it is the one that the first
            server names. Pass it, unless every server that you connect to may choose who gets the secret.
        options: Further arguments; see `TokenOptions`.

    Raises:
        ValueError: If neither a secret nor a key is given, or if both are.
    """

    extensions: ClassVar[Mapping[str, Mapping[str, Any]]] = {"io.modelcontextprotocol/oauth-client-credentials": {}}

    def __init__(
        self,
        client_id: str,
        *,
        secret: str | None = None,
        key: PrivateKeyJwt | None = None,
        issuer: str | None = None,
        **options: Unpack[TokenOptions],
    ) -> None:
        if (secret is None) == (key is None):
            raise ValueError("ClientCredentials needs either a secret or a key, and not both")
        client = RegisteredClient(client_id, secret=secret, key=key, issuer=issuer)
        super().__init__(client_credentials, options, grant="client_credentials", client=client, issuer=issuer)


class WorkloadIdentity(Machine):
    """Authorizes requests as a workload, with an assertion from its platform (RFC 7523); no client is registered.

    An assertion that is refused is not sent again, and nothing else is tried.

    Args:
        assertion: The file that the platform keeps up to date, or an async function that returns the assertion for an
            issuer, its token endpoint and a resource.
        issuer: The authorization server that trusts the platform. By default it is the one that the first server names.
            Pass it, unless every server that you connect to may choose who gets the assertion.
        options: Further arguments; see `TokenOptions`.
    """

    def __init__(
        self,
        assertion: Path | str | Assertion,
        *,
        issuer: str | None = None,
        **options: Unpack[TokenOptions],
    ) -> None:
        if not callable(assertion):
            assertion = partial(_read_assertion, Path(assertion))
        super().__init__(
            partial(_ask_as_workload, assertion),
            options,
            grant=JWT_BEARER,
            # The assertion alone says who asks: nothing was registered, so the request names no client (the draft of
            # SEP-1933).
            client=None,
            issuer=issuer,
            # The draft allows only one try, but a renewal would be tried again after a truncated response, so there are
            # no renewals.
            again=False,
        )


def _ask_as_workload(
    assertion: Assertion, at: TokenEndpoint, scopes: Collection[str], resource: str | None
) -> Flow[Tokens]:
    # The assertion is read for each request, because the platform keeps replacing it. The function gets both the issuer
    # and the token endpoint, because the audience is the token endpoint in the draft, but the issuer in the conformance
    # suite.
    text = yield from called("the assertion", at, lambda: assertion(at.issuer, at.url, resource))
    return (yield from jwt_bearer(at, assertion=text, scopes=scopes, resource=resource))


def called(what: str, at: TokenEndpoint, function: Callable[[], Awaitable[str]]) -> Flow[str]:
    """Call a function of the program that returns a signed text, such as an assertion or an ID token.

    Args:
        what: The name of the result, for error messages.
        at: The endpoint that the result will be sent to.
        function: The function of the program.

    Raises:
        AuthorizationError: If the function fails, or returns anything but a non-empty string.
    """
    try:
        text = yield CallFunction(function)
    except AuthorizationError:
        raise
    except Exception as exc:
        problem = f"{what} could not be obtained: {type(exc).__name__}"
        raise AuthorizationError("token", problem, issuer=at.issuer, advice="see the cause of this error") from exc
    if not isinstance(text, str) or not text:
        raise AuthorizationError(
            "token", f"{what} must be a non-empty string, got {type(text).__name__}", issuer=at.issuer
        )
    return text


async def _read_assertion(path: Path, issuer: str, endpoint: str, resource: str | None) -> str:
    try:
        async with await trio.open_file(path, encoding="ascii") as file:
            # One character beyond the limit shows that a file is too long, so a larger file need not be read whole.
            text = await file.read(_MAX_ASSERTION + 1)
    except (OSError, ValueError) as exc:  # ValueError: not ASCII
        reason = exc.strerror if isinstance(exc, OSError) else "the file is not ASCII text"
        problem = f"the assertion can't be read from {path}: {reason}"
        raise AuthorizationError(
            "token", problem, issuer=issuer, advice="let the platform write an assertion there"
        ) from None
    if len(text) > _MAX_ASSERTION:
        raise AuthorizationError("token", f"the content of {path} is too long for an assertion", issuer=issuer)
    # A line break at the end of the file is not part of the JWT.
    return text.strip()
