"""The steps that a flow yields, and the outcome of each.

A flow is a generator: it yields steps, is sent the outcome of each, and returns its result. So a flow reads from top to
bottom, and depends on neither an event loop nor a network. A flow that fails raises `AuthorizationError`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator, Mapping
from typing import Any, TypeAlias, TypeVar

import attrs

from trio_mcp.http.headers import Headers

__all__ = ["CallFunction", "Fetch", "Fetched", "Flow", "ShowCode", "SignIn", "Wait"]

ResultT = TypeVar("ResultT")


@attrs.frozen
class Fetch:
    """A step that makes an HTTP exchange. The outcome is a `Fetched`, whatever the status.

    The driver of the flow applies the URL policy, limits the size and the duration of the exchange, and raises an
    `AuthorizationError` into the flow if the exchange fails. Redirections are followed only for a GET, under the same
    policy.

    Attributes:
        step: The purpose, as `AuthorizationError.step` names it.
        method: The HTTP method.
        url: The URL, byte for byte.
        fields: The header fields.
        body: The body of a POST.
        limit: The maximum length of the response body, in bytes.
        same_origin: Whether a redirection to another origin is refused.
    """

    step: str
    method: str
    url: str
    # `fields` and `body` are left out of the repr, because a repr may get into a log: `fields` contains credentials and
    # proofs, and `body` contains codes and secrets.
    fields: Mapping[str, str] = attrs.field(factory=dict, repr=False)
    body: bytes = attrs.field(default=b"", repr=False)
    limit: int = 64 * 1024
    same_origin: bool = False


@attrs.frozen
class Fetched:
    """The response to a `Fetch`, read to its end."""

    status: int
    headers: Headers = attrs.field(repr=False)
    body: bytes = attrs.field(repr=False)


@attrs.frozen
class SignIn:
    """A step that lets a person sign in with a browser. The outcome is a mapping: the parameters of the redirection.

    Attributes:
        url: The URL to open.
        state: The ``state`` of the redirection to wait for; redirections with another one are not for this flow.
        redirect: The redirect URI, as it is in the URL.
        issuer: The authorization server, to show to the person.
    """

    # The URL is not in the repr, because its query contains the state.
    url: str = attrs.field(repr=False)
    state: str = attrs.field(repr=False)
    redirect: str
    issuer: str


@attrs.frozen
class ShowCode:
    """A step that shows a person where to enter a code (RFC 8628). The outcome is None; the flow continues at once."""

    url: str
    code: str = attrs.field(repr=False)
    complete_url: str | None
    expires_in: float


@attrs.frozen
class Wait:
    """A step that waits for a given number of seconds. The outcome is None."""

    seconds: float


@attrs.frozen
class CallFunction:
    """A step that calls a function of the program. The outcome is its result; its exceptions are raised into the flow.

    Attributes:
        function: An async function, which may take a long time.
    """

    function: Callable[[], Awaitable[Any]]


Step: TypeAlias = Fetch | SignIn | ShowCode | Wait | CallFunction
Flow: TypeAlias = Generator[Step, Any, ResultT]
