"""The options of a check: those of `check_server`, of `check_client` and of `check_issuers`."""

from collections.abc import Awaitable, Callable, Collection, Sequence
from functools import partial
from typing import Annotated, Any, TypedDict

import trio

from trio_mcp._checks import (
    check_choices,
    check_count,
    check_flag,
    check_hook,
    check_kind,
    check_number,
    check_seconds,
    check_text,
)
from trio_mcp._settings import Default
from trio_mcp.conformance.credentials import Authority
from trio_mcp.conformance.outcomes import Progress
from trio_mcp.conformance.rules.model import Rule
from trio_mcp.types.versions import REVISIONS

__all__ = ["CheckOptions", "ClientCheckOptions", "IssuerCheckOptions", "ServerCheckOptions"]


def _check_revisions(name: str, value: Any) -> None:
    if value is not None:
        check_choices(name, value, REVISIONS)


def _check_rate(name: str, value: Any) -> None:
    if value is not None:
        check_number(name, value)
        if not value > 0:
            raise ValueError(f"{name} must be more than 0 requests a second, got {value!r}")


def _check_list(name: str, value: Any) -> None:
    # A string is refused although it is a collection: its items are single letters, which name no rule, revision or
    # tool.
    if value is not None and (isinstance(value, str) or not isinstance(value, Collection)):
        raise TypeError(f"{name} must be a list, got {value!r}")


def _check_id(name: str, value: Any) -> None:
    if value is not None:
        check_text(name, value)


def _check_authority(name: str, value: Any) -> None:
    if value is not None:
        check_kind(name, value, kind=Authority)


class CheckOptions(TypedDict, total=False):
    """The options that every check has.

    Attributes:
        revisions: The revisions to speak; by default the newest of each era that the target speaks.
        rules: The rules to check: ids, patterns such as ``cursor-*``, ``section:`` and the beginning of a section,
            ``level:`` and a level, or rules of your own; by default every rule for this side.
        time: Seconds after which nothing new begins. An example that is running then gets a few seconds more.
        seed: Determines everything that is random.
        baseline: The ids of rules that are known to be broken: their failures are not shrunk.
        deadline: Seconds that the target may take for a response.
        on_progress: Called with the progress after each example.
        stop: An event that, once set, ends the check early; the report has what was found until then.
    """

    revisions: Annotated[Sequence[str] | None, Default(None, _check_revisions)]
    rules: Annotated[Sequence[str | Rule] | None, Default(None, _check_list)]
    time: Annotated[float, Default(60.0, partial(check_seconds, zero=True))]
    seed: Annotated[int, Default(0, check_number)]
    baseline: Annotated[Collection[str], Default((), _check_list)]
    deadline: Annotated[float, Default(10.0, check_seconds)]
    on_progress: Annotated[Callable[[Progress], object] | None, Default(None, partial(check_hook, sync=True))]
    stop: Annotated[trio.Event | None, Default()]


class ServerCheckOptions(CheckOptions, total=False):
    """The options of `check_server`: those of `CheckOptions`, and these.

    Attributes:
        examples: How many plans are run.
        rate: The maximum number of requests to send per second.
        max_bytes: The maximum number of bytes that may pass, in both directions together.
        connect_timeout: Seconds that the handshake may take, including the start of a process.
        allow_writes: Whether to call every tool, not only those that are annotated as read-only.
        tools: The names of further tools that may be called.
        auth_a: The access token of a user, for a server over Streamable HTTP: all requests have it but those that try
            whether the server refuses others.
        auth_b: The access token of a second user, who must not see what is the first one's.
        auth_elsewhere: An access token of the same authorization server, for another resource.
        authority: The authorization server of the target, if it makes any token: an `AuthorizationServer` of
            `trio_mcp.auth.testing`, or an object like it. It makes the tokens of all users.
    """

    examples: Annotated[int, Default(200, check_count)]
    rate: Annotated[float | None, Default(None, _check_rate)]
    max_bytes: Annotated[int, Default(256 * 1024 * 1024, check_count)]
    connect_timeout: Annotated[float, Default(30.0, check_seconds)]
    allow_writes: Annotated[bool, Default(False, check_flag)]
    tools: Annotated[Collection[str], Default((), _check_list)]
    auth_a: Annotated[str | None, Default()]
    auth_b: Annotated[str | None, Default()]
    auth_elsewhere: Annotated[str | None, Default()]
    authority: Annotated[Authority | None, Default(None, _check_authority)]


class ClientCheckOptions(CheckOptions, total=False):
    """The options of `check_client`: those of `CheckOptions`, and these.

    Attributes:
        examples: How many generated servers the client is run against.
        patience: Seconds that the client may take for an example.
        protected: Whether the servers make the client sign in, so that the rules for authorization are checked.
    """

    examples: Annotated[int, Default(50, check_count)]
    patience: Annotated[float, Default(30.0, check_seconds)]
    protected: Annotated[bool, Default(False, check_flag)]


class IssuerCheckOptions(TypedDict, total=False):
    """The options of `check_issuers`.

    Attributes:
        rules: As in `CheckOptions`.
        baseline: As in `CheckOptions`.
        sign_in: Whether to sign in, too: to register a client, to ask for tokens, and to try what must be refused.
        client_id: The id of a public client that was registered beforehand, with the redirect URI
            ``http://127.0.0.1/callback`` at any port; by default the check registers one.
        show: Shows a person the page on which to sign in, as in `OAuth`; by default it opens the browser. It is called
            up to four times, or never if the authorization server redirects at once.
        login_timeout: Seconds that the person has each time.
        on_progress: As in `CheckOptions`; the examples are the authorization servers.
        stop: As in `CheckOptions`.
    """

    rules: Annotated[Sequence[str | Rule] | None, Default(None, _check_list)]
    baseline: Annotated[Collection[str], Default((), _check_list)]
    sign_in: Annotated[bool, Default(False, check_flag)]
    client_id: Annotated[str | None, Default(None, _check_id)]
    show: Annotated[Callable[[str], Awaitable[str | None]] | None, Default(None, check_hook)]
    login_timeout: Annotated[float, Default(300.0, check_seconds)]
    on_progress: Annotated[Callable[[Progress], object] | None, Default(None, partial(check_hook, sync=True))]
    stop: Annotated[trio.Event | None, Default()]
