"""Defines the keyword arguments of `Server`, that is, all arguments but the name; a proxy shares some of them."""

import contextlib
import inspect
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias, TypedDict

from trio_mcp._checks import check_choices, check_hook, check_kind
from trio_mcp._settings import Default
from trio_mcp.server.features.feature import Identify, ListOptions, MiddlewareFunction, Visible
from trio_mcp.server.functions.sync_threads import FunctionOptions
from trio_mcp.server.input.options import InputOptions
from trio_mcp.session.limits import SessionOptions
from trio_mcp.session.middleware import Layers, Middleware
from trio_mcp.types.versions import REVISIONS

if TYPE_CHECKING:  # few servers have stores
    from trio_mcp.stores.contract import Stores
    from trio_mcp.stores.user_states import UserStateOptions

__all__ = ["Lifespan", "ProxyOptions", "ServerOptions"]

Lifespan: TypeAlias = Callable[[Any], contextlib.AbstractAsyncContextManager[Any]]
"""A function that is used as ``async with lifespan(server) as state`` around each run of a server."""


def _check_lifespan(name: str, value: object) -> None:
    # The usual mistake is to forget the decorator. Without this check, the mistake would show only when the server
    # runs.
    if inspect.isasyncgenfunction(value):
        raise TypeError(f"{name} must return an async context manager: decorate it with @asynccontextmanager")


def _check_middleware(name: str, value: Sequence[object]) -> None:
    Layers.check(value, "context")


def _check_principal(name: str, value: object) -> None:
    if value is not None and (not callable(value) or inspect.iscoroutinefunction(value)):
        raise TypeError(f"{name} must be a sync function of the context, got {value!r}")


def _check_user_state(name: str, value: object) -> None:
    if value is not None:
        from trio_mcp.stores.user_states import UserStateOptions  # imported late: few servers have stores

        check_kind(name, value, kind=UserStateOptions)


class ProxyOptions(TypedDict, total=False):
    """Arguments that a `Server` and a `ProxyServer` have in common.

    Attributes:
        version: The server's own version, not the protocol's; by default ``"0.0.0"``.
        instructions: Guidance for the model that uses the server.
        middleware: Functions ``async (context, call_next) -> result`` around every request that has a handler, the
            first outermost. A function may read or replace ``context.params``, call ``await call_next()`` or not, and
            read or replace the result (a plain dict). Exceptions pass through the middleware. An instance of a subclass
            of `trio_mcp.middleware.Middleware` also sees all other requests, and notifications in both directions.
        revisions: The protocol revisions to serve.
        expose_errors: Send clients the text of unexpected exceptions. For development only: it may contain secrets.
        lists: The length of the pages of lists, and how long clients may cache them.
        input: How functions ask for input: keys and limits.
        principal: ``(context) -> principal``, called for each request before its handler, to determine on whose behalf
            the request is made. It returns a `Principal`, a string (the principal's subject), or None if the principal
            is unknown. Handlers find the principal in `Context.principal`; only the same principal can resume a request
            that asks for input. If the function raises, the request fails.
        extensions: The protocol extensions: a list of objects (see `trio_mcp.extensions`), or of mappings that declare
            one with its settings, ``{"com.example/feature": {}}``; or one such mapping. A `ProxyServer` takes a list of
            those that it can hand on, which is `Tasks`.
        stores: What outlives requests, such as tasks and the messages of sessions: a `trio_mcp.stores.Stores`; the path
            of a file, for `SqliteStores`; or the URL of an engine, for `ValkeyStores` with the server's name as prefix.
            Each run opens it, and closes it at the end.
        options: Limits, timeouts and hooks of each session.
    """

    version: Annotated[str | None, Default()]
    instructions: Annotated[str | None, Default()]
    middleware: Annotated[Sequence[MiddlewareFunction | Middleware], Default((), _check_middleware)]
    revisions: Annotated[Sequence[str], Default(REVISIONS, partial(check_choices, choices=REVISIONS))]
    expose_errors: Annotated[bool, Default(False)]
    lists: Annotated[ListOptions | None, Default()]
    input: Annotated[InputOptions | None, Default()]
    principal: Annotated["Identify | None", Default(check=_check_principal)]
    extensions: Annotated["Iterable[Any] | Mapping[str, Mapping[str, Any]] | None", Default()]
    stores: Annotated["Stores | str | os.PathLike[str] | None", Default()]
    options: Annotated[SessionOptions | None, Default()]


class ServerOptions(ProxyOptions, total=False):
    """The keyword arguments of `Server`, that is, all arguments but the name: those of `ProxyOptions`, and these.

    Attributes:
        lifespan: An async context manager, ``async with lifespan(server) as state``, entered once per run (a stdio
            process, a listener, an in-memory client). Handlers find the state in `Context.state`.
        user_state: How the states of users are kept in the stores: see `Context.update_user_state`.
        functions: How the server describes functions, and how many synchronous ones run at once.
        visible: ``(context, entry) -> bool``, called with an `Entry` for each tool, resource, template and prompt that
            a request lists or names. It returns whether the entry exists for this client. If not, the entry is left out
            of lists, and a request that names it fails as if the name were unknown. If the function raises, the entry
            is hidden and the exception logged.
    """

    lifespan: Annotated[Lifespan | None, Default(check=_check_lifespan)]
    user_state: Annotated["UserStateOptions | None", Default(check=_check_user_state)]
    functions: Annotated[FunctionOptions | None, Default()]
    visible: Annotated[Visible | None, Default(check=partial(check_hook, sync=True))]
