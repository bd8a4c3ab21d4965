"""The parts of an extension that a server's features serve: methods, notifications, and fields of the listen filter."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any

from pydantic import BaseModel

from trio_mcp import _attrs as attrs
from trio_mcp._checks import check_flag, check_text, validator
from trio_mcp.server.context import Context
from trio_mcp.types.versions import REVISIONS

__all__ = ["ExtensionMethod", "ExtensionNotification", "ListenField"]


def _tuple(given: Iterable[str]) -> tuple[str, ...]:
    return tuple(given)


def _check_name(_: object, __: object, value: str) -> None:
    check_text("the name of an extension's method, notification or field", value)


def _check_revisions(_: object, __: object, value: tuple[str, ...]) -> None:
    unknown = [each for each in value if each not in REVISIONS]
    if unknown or not value:
        raise ValueError(f"revisions must be some of {', '.join(REVISIONS)}, got {value!r}")


@attrs.frozen(kw_only=True)
class ExtensionMethod:
    """A method that an extension adds to a server.

    A client that has not declared the extension gets -32021 (in the legacy era -32601), before the function is called,
    unless the method is ``open``.

    Attributes:
        name: The method. The protocol may define a method with this name only in other revisions.
        function: ``async (params, ctx) -> result``, or sync; see `Server.add_method`.
        params: The model that validates the parameters; without one, the function gets plain data.
        result: The model of the result, if there is one.
        revisions: The revisions in which the method exists.
        name_parameter: The parameter that the HTTP header ``Mcp-Name`` repeats, or None (2026-07-28
            `basic/transports/streamable-http`, Standard Request Headers).
        cacheable: Whether results have ``ttlMs`` and ``cacheScope`` in the modern era; by default those of a result
            that must not be cached.
        open: Whether clients that have not declared the extension may call the method, too.

    Raises:
        TypeError, ValueError: If a value is invalid.
    """

    name: str = attrs.field(validator=_check_name)
    function: Callable[..., Any]
    params: type[BaseModel] | None = None
    result: type[BaseModel] | None = None
    revisions: tuple[str, ...] = attrs.field(default=REVISIONS, converter=_tuple, validator=_check_revisions)
    name_parameter: str | None = None
    cacheable: bool = attrs.field(default=False, validator=validator(check_flag))
    open: bool = attrs.field(default=False, validator=validator(check_flag))


@attrs.frozen(kw_only=True)
class ExtensionNotification:
    """A notification that an extension lets clients send.

    In the legacy era, it is ignored if the client has not declared the extension in the handshake. In the modern era,
    notifications come without a declaration, so it is accepted from every client.

    Attributes:
        name: The notification's method.
        function: ``async (params, ctx)``, with a `NotificationContext` as ``ctx``.
        params: The model that validates the parameters.
        revisions: The revisions in which the notification exists.

    Raises:
        TypeError, ValueError: If a value is invalid.
    """

    name: str = attrs.field(validator=_check_name)
    function: Callable[[Any, Any], Awaitable[object]]
    params: type[BaseModel] | None = None
    revisions: tuple[str, ...] = attrs.field(default=REVISIONS, converter=_tuple, validator=_check_revisions)


@attrs.frozen(kw_only=True)
class ListenField:
    """A field that an extension adds to the filter of ``subscriptions/listen``.

    A client that sends the field without having declared the extension gets -32021.

    Attributes:
        name: The field's name.
        method: The notification that the field asks for.
        honor: ``async (value, ctx) -> (honored, keys)``: checks the value that the client sent, and returns the value
            for the acknowledgement, and the keys to listen for. It may raise `McpError` to refuse the request.
        params: ``(key, ctx) -> params``, sync: returns the parameters of the notification about a key, or None to send
            no notification. To send one, call `ExtensionRun.announce` with the method and the key.

    Raises:
        TypeError, ValueError: If a name is invalid.
    """

    name: str = attrs.field(validator=_check_name)
    method: str = attrs.field(validator=_check_name)
    honor: Callable[[Any, Context[Any]], Awaitable[tuple[Any, Sequence[str]]]]
    params: Callable[[str, Context[Any]], dict[str, Any] | None]
