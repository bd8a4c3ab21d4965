"""Serves methods and notifications that users and extensions define, and declares the extensions."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ValidationError

from trio_mcp import _attrs as attrs
from trio_mcp._checks import check_text
from trio_mcp.convert import as_object, brief
from trio_mcp.eras.capabilities import declared_extensions, is_spec_method
from trio_mcp.eras.server_negotiation import ClientDeclaration
from trio_mcp.errors import McpError, RemoteProtocolError
from trio_mcp.jsonrpc.messages import Notification
from trio_mcp.server.context import ServedContext
from trio_mcp.server.features.caching import CacheHint
from trio_mcp.server.features.feature import FeatureSettings, Handler, Needs, RegisteredMethod
from trio_mcp.server.features.registry import Registry
from trio_mcp.server.functions.function import read_handler
from trio_mcp.server.functions.introspection import is_async
from trio_mcp.types._base import WireModel
from trio_mcp.types.error_codes import INVALID_PARAMS, METHOD_NOT_FOUND
from trio_mcp.types.versions import MODERN_REVISIONS, REVISIONS

if TYPE_CHECKING:  # few servers have extensions
    from trio_mcp.server.features.extension_parts import ExtensionMethod

__all__ = ["CustomFeature", "NotificationContext", "RegisteredNotification"]

NotificationHandler = Callable[[Notification, Mapping[Any, Any]], Awaitable[None]]
"""A function ``async (notification, states)``; ``states`` are the values that the lifespans of the run yielded."""

TAKEN = "{kind} {name!r} is already registered"

Model = type[BaseModel]


class ResultError(Exception):
    """The function returned a result that its method does not allow: a bug of the server."""


@attrs.frozen
class NotificationContext:
    """The context that the function for a notification gets in addition to the validated parameters.

    Attributes:
        method: The notification's method.
        params: The parameters as plain data, including ``_meta``.
        state: The value that the server's lifespan yielded; None without a lifespan.
    """

    method: str
    params: dict[str, Any]
    state: Any


@attrs.frozen
class RegisteredNotification:
    """A notification that the user or an extension defined, and the function that handles it.

    Attributes:
        name: The notification's method.
        handle: The function.
        extension: The identifier of the extension that it belongs to, if any.
        revisions: The revisions in which it exists.
    """

    name: str
    handle: NotificationHandler
    extension: str | None = None
    revisions: tuple[str, ...] = REVISIONS

    def is_open_to(self, client: ClientDeclaration | None) -> bool:
        """Return whether a client may send the notification.

        Args:
            client: What the client declared in the handshake; None in the modern era, where notifications come without
                a declaration.
        """
        if client is None:
            return any(each in MODERN_REVISIONS for each in self.revisions)
        declared = self.extension is None or self.extension in declared_extensions(client.capabilities)
        return declared and client.revision in self.revisions


class CustomFeature:
    """The user-defined methods and notifications of a server, and its extensions.

    Attributes:
        registry: The user-defined methods, by name; `Dispatch` learns of each method from it.
        methods: The handlers of the extensions' methods. They are not in the registry, because mounting copies the
            registry, and extensions are not mounted.
        needs: The functions that return the scopes of requests, by method: none here.
        notifications: The user-defined notifications, by name.
    """

    def __init__(self, settings: FeatureSettings) -> None:
        self.registry: Registry[RegisteredMethod] = Registry("method", TAKEN)
        self.notifications: Registry[RegisteredNotification] = Registry("notification", TAKEN)
        self.methods: dict[str, Handler] = {}
        self.needs: dict[str, Needs] = {}
        self._settings = settings
        self._of_extensions: dict[str, RegisteredNotification] = {}
        if settings.extensions is not None:
            for identifier, method in settings.extensions.methods:
                self.methods[method.name] = self._handler(identifier, method)
            for identifier, each in settings.extensions.notifications:
                handle = self._notification_handler(each.name, each.function, each.params)
                own = RegisteredNotification(each.name, handle, identifier, each.revisions)
                self._of_extensions[each.name] = own

    def capabilities(self, revision: str) -> dict[str, Any]:
        """Return the capabilities declared to a client of this revision."""
        # The schemas before 2026-07-28 don't define this capability, but they allow additional ones, and SEP-2133
        # declares extensions in the handshake.
        extensions = self._settings.extensions
        declared = {} if extensions is None else extensions.declared(revision)
        return {"extensions": declared} if declared else {}

    def notification(self, name: str, client: ClientDeclaration | None) -> RegisteredNotification | None:
        """Return the notification with a name; None if it is unknown, or if the client may not send it."""
        own = self._of_extensions.get(name) or self.notifications.get(name)
        return own if own is not None and own.is_open_to(client) else None

    def _handler(self, identifier: str, method: ExtensionMethod) -> Handler:
        what = f"method {method.name!r}"
        call = read_handler(method.function, self._settings.surroundings, what)
        return _CustomMethod(
            self._settings,
            what,
            call,
            method.params,
            method.result,
            None if method.open else identifier,
            frozenset(method.revisions),
            method.cacheable,
        ).handle

    def add_method(
        self,
        name: str,
        function: Callable[..., Any],
        params: Model | None,
        result: Model | None,
        extension: str | None,
    ) -> None:
        """Add a method; see `Server.add_method`."""
        what = f"method {_checked_name(name, function)!r}"
        self.registry.check_free(name)  # checked first, so that the error is not about the function
        if name in self.methods:
            raise ValueError(f"{what}: an extension of the server has this method")
        known = self._settings.extensions
        if extension is not None and (known is None or extension not in known):
            raise ValueError(
                f"{what}: the extension {extension!r} is not declared; "
                f"pass extensions={{{extension!r}: {{}}}} to the Server"
            )
        # Unlike for tools, no schema is made from the type hints, because the models already define the parameters and
        # the result.
        call = read_handler(function, self._settings.surroundings, what)
        own = _CustomMethod(self._settings, what, call, params, result, extension)
        self.registry.add(RegisteredMethod(name, own.handle))

    def add_notification(self, name: str, function: Callable[..., Awaitable[object]], params: Model | None) -> None:
        """Add a notification; see `Server.add_notification`."""
        what = f"notification {_checked_name(name, function)!r}"
        self.notifications.check_free(name)
        if name in self._of_extensions:
            raise ValueError(f"{what}: an extension of the server has this notification")
        self.notifications.add(RegisteredNotification(name, self._notification_handler(name, function, params)))

    def _notification_handler(
        self, name: str, function: Callable[..., Awaitable[object]], params: Model | None
    ) -> NotificationHandler:
        what = f"notification {name!r}"
        if not is_async(function):
            raise TypeError(f"{what}: its function must be async")
        _check_model(params, what)

        async def handle(notification: Notification, states: Mapping[Any, Any]) -> None:
            given = notification.params or {}
            try:
                values = _validated(given, params)
            except ValidationError as exc:
                # A notification has no response that could report the error, so the session passes the error to
                # `on_error`.
                raise RemoteProtocolError(f"invalid parameters for the {what}: {brief(exc)}") from None
            await function(values, NotificationContext(name, given, states.get(self._settings)))

        return handle


@attrs.frozen
class _CustomMethod:
    settings: FeatureSettings
    what: str
    call: Callable[[Any, ServedContext[Any]], Awaitable[Any]]
    params: Model | None
    result: Model | None
    extension: str | None
    revisions: frozenset[str] = frozenset(REVISIONS)
    cacheable: bool = False

    def __attrs_post_init__(self) -> None:
        _check_model(self.params, self.what)
        _check_model(self.result, self.what)

    async def handle(self, context: ServedContext[Any]) -> dict[str, Any]:
        if context.protocol_version not in self.revisions:
            raise McpError(METHOD_NOT_FOUND, f"unknown method {context.method!r}")
        if self.extension is not None and self.extension not in context.client_extensions:
            # The legacy era has no error code for a missing extension, so the method is unknown to the client.
            if not context.rules.missing_extension_error:
                raise McpError(
                    METHOD_NOT_FOUND,
                    f"unknown method {context.method!r}: the client has not declared the extension {self.extension!r}",
                )
            context.require_client_extension(self.extension)
        try:
            # The values may be secrets, so `brief` leaves them out of the error.
            values = _validated(context.params, self.params)
        except ValidationError as exc:
            raise McpError(INVALID_PARAMS, f"invalid parameters for {context.method!r}: {brief(exc)}") from None
        try:
            result = self._wire(await self.call(values, context))
        except Exception as exc:
            raise self.settings.failure(context, f"the {self.what} failed", exc, ResultError) from None
        return CacheHint().to_wire() | result if self.cacheable and context.rules.cache_hints else result

    def _wire(self, value: Any) -> dict[str, Any]:
        # An instance of the model is not validated again, because pydantic validated it on creation.
        if self.result is not None and not isinstance(value, self.result):
            try:
                value = self.result.model_validate(value)
            except ValidationError as exc:
                raise ResultError(f"its return value is not a valid {self.result.__name__}: {brief(exc)}") from exc
        try:
            return {} if value is None else as_object(value, "its result")
        except TypeError as exc:
            raise ResultError(str(exc)) from None


def _checked_name(name: str, function: object) -> str:
    check_text("a method's name", name)
    if is_spec_method(name):
        raise ValueError(f"the protocol defines {name!r}; choose a different name for your method or notification")
    if name.startswith("rpc."):  # reserved by JSON-RPC 2.0, section 4
        raise ValueError(f"{name!r}: JSON-RPC reserves names that begin with 'rpc.'; choose another name")
    if not callable(function) or isinstance(function, type):
        raise TypeError(f"{name!r} must be handled by a function, got {function!r}")
    return name


def _check_model(model: object, what: str) -> None:
    if model is not None and not (isinstance(model, type) and issubclass(model, BaseModel)):
        raise TypeError(f"{what}: params and result must be pydantic models, got {model!r}")


def _validated(given: dict[str, Any], model: Model | None) -> Any:
    """Return the parameters for a function, without the modern era's ``_meta``, which a strict model would refuse.

    Raises:
        ValidationError: If the parameters are invalid.
    """
    if model is not None and issubclass(model, WireModel):  # the protocol's own models have a field for `_meta`
        return model.from_wire(given)
    own = {name: value for name, value in given.items() if name != "_meta"}
    return own if model is None else model.model_validate(own)
