"""The options of a client."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias, TypedDict, get_args

from trio_mcp._checks import check_choice, check_hook, check_kind
from trio_mcp._settings import Default
from trio_mcp.client.answers.sources import Answers
from trio_mcp.client.cache import ResponseCache
from trio_mcp.http.client.auth import Auth
from trio_mcp.jsonrpc.messages import Notification
from trio_mcp.principal import Principal
from trio_mcp.session.calls import USE_SESSION, Limit
from trio_mcp.session.limits import SessionOptions
from trio_mcp.session.middleware import Layers, Middleware, OutgoingCall
from trio_mcp.types.capabilities import ClientCapabilities
from trio_mcp.types.common import Implementation, LoggingLevel
from trio_mcp.types.notices import LoggingMessageNotificationParams
from trio_mcp.types.versions import REVISIONS

if TYPE_CHECKING:  # most clients have no extensions, so the module is loaded late
    from trio_mcp.client.extension import ClientExtension, HasClientSide

__all__ = ["ClientOptions", "MiddlewareFunction", "check_log_level"]

MODES = ("auto", "legacy", *REVISIONS)


MiddlewareFunction: TypeAlias = Callable[
    [OutgoingCall, Callable[[], Awaitable[dict[str, Any]]]], Awaitable[dict[str, Any]]
]
"""A function that wraps every request of a client: ``async (call, call_next) -> result``."""


def check_log_level(level: object) -> None:
    """Check that a level is one of `LoggingLevel`.

    Raises:
        TypeError: If it is not a string.
        ValueError: If there is no such level.
    """
    check_choice("a log level", level, get_args(LoggingLevel))


def _check_level(name: str, value: object) -> None:
    if value is not None:
        check_log_level(value)


def _check_middleware(name: str, value: Sequence[object]) -> None:
    Layers.check(value, "call")


class ClientOptions(TypedDict, total=False):
    """The keyword arguments of a `Client`, which a `ClientGroup`, a `ProxyServer` and a pytest fixture pass on.

    Attributes:
        auth: Signs in, and authorizes each request, for a server that is reached over HTTP or WebSocket; see
            `trio_mcp.auth`. `HttpServerParameters` may have an ``auth`` of their own.
        mode: ``"auto"`` finds out which era the server speaks; ``"legacy"`` sends ``initialize``; a revision
            opens the session as that revision requires, and accepts no other.
        timeout: Seconds that each call waits for its response, unless the call says otherwise; None waits forever. It
            overrides ``options.calls.timeout``. Connecting may take 30 seconds, or this time if it is shorter and there
            is a single way to the server; ``options.calls.connect_timeout`` sets another limit for connecting.
        client_info: The name and version with which the client identifies itself to the server.
        capabilities: Further capabilities to declare, as `ClientCapabilities` or plain data: those of requests that the
            program handles itself, and extensions of the protocol, each with its settings, as in
            ``{"extensions": {"com.example/feature": {}}}``. The capabilities for ``answers`` need not be given.
        answers: The answers to the server's questions: see `Answers`.
        options: The session's limits, timeouts and hooks.
        log_level: The least severe level of log messages that the server should send; see `Client.set_log_level`. A
            server that does not declare logging is not asked. With None, a server of the legacy era decides for itself
            what to send, and one of the modern era sends nothing.
        on_log: Called, sync or async, with each `LoggingMessageNotificationParams` from the server.
        on_message: Called, sync or async, with every `Notification` from the server.
        cache: Keeps lists and the results of `read_resource` for as long as the server allows. None, the default,
            caches nothing: each call asks the server.
        request_headers: Called with the method of each request, in the Trio task that sends it; returns HTTP header
            fields for that request, or None. Only for a server that is reached over HTTP. Nothing that such a client
            learns from a response serves another request: there can be no ``cache``, and output schemas are not
            checked. See the ``headers`` of `CallLimits`, which take precedence.
        principal: On whose behalf the client acts: a `Principal`, or a string (its subject). Clients that share a cache
            share its private entries only if they have the same principal; a client without one shares none.
        middleware: Functions ``async (call, call_next) -> result`` around every request of the program, the first
            outermost. An instance of a subclass of `trio_mcp.middleware.Middleware` also sees the handshake, the
            server's requests, and notifications in both directions.
        extensions: The extensions of the protocol that the client supports: each a `ClientExtension`, or an object with
            a ``client_side`` that is one; see `trio_mcp.extensions`. Or a mapping of identifiers to settings, for
            extensions that the program handles itself: the same as in ``capabilities``.
    """

    auth: Annotated[Auth | None, Default()]
    mode: Annotated[str, Default("auto", partial(check_choice, choices=MODES))]
    timeout: Annotated[Limit, Default(USE_SESSION)]
    client_info: Annotated[Implementation | None, Default(check=partial(check_kind, kind=Implementation))]
    capabilities: Annotated[ClientCapabilities | Mapping[str, Any] | None, Default()]
    answers: Annotated[Answers | None, Default()]
    options: Annotated[SessionOptions | None, Default()]
    log_level: Annotated[LoggingLevel | None, Default(check=_check_level)]
    on_log: Annotated[
        Callable[[LoggingMessageNotificationParams], Awaitable[object] | object] | None, Default(check=check_hook)
    ]
    on_message: Annotated[Callable[[Notification], Awaitable[object] | object] | None, Default(check=check_hook)]
    middleware: Annotated[Sequence[MiddlewareFunction | Middleware], Default((), _check_middleware)]
    extensions: Annotated["Sequence[ClientExtension | HasClientSide] | Mapping[str, Mapping[str, Any]]", Default(())]
    request_headers: Annotated[
        Callable[[str], Mapping[str, str] | None] | None, Default(check=partial(check_hook, sync=True))
    ]
    cache: Annotated[ResponseCache | None, Default(check=partial(check_kind, kind=ResponseCache))]
    principal: Annotated[str | Principal | None, Default()]
