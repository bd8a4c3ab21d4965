"""The part of `Server` for what the protocol does not define: methods and notifications of your own, extensions."""

from __future__ import annotations

import copy
import functools
import inspect
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, TypeVar

import attrs
from pydantic import BaseModel, ValidationError

from trio_mcp.convert import as_object, brief
from trio_mcp.eras.capabilities import is_spec_method
from trio_mcp.errors import McpError, RemoteProtocolError
from trio_mcp.jsonrpc.messages import Notification
from trio_mcp.server.context import Context
from trio_mcp.server.core import ServerCore
from trio_mcp.server.functions.dependencies import read_dependencies
from trio_mcp.server.functions.handling import failure, run
from trio_mcp.server.functions.hints import is_async, resolved_hints
from trio_mcp.server.functions.providers import Depends, marker_in
from trio_mcp.server.functions.signature import Bound
from trio_mcp.types._base import WireModel
from trio_mcp.types.error_codes import INVALID_PARAMS, METHOD_NOT_FOUND

if TYPE_CHECKING:
    from trio_mcp.server.connection import Handler, NotificationHandler
    from trio_mcp.server.serving import Serving

__all__ = ["CustomMethods", "NotificationContext"]

FunctionT = TypeVar("FunctionT", bound=Callable[..., Any])
Model = type[BaseModel]


class ResultError(Exception):
    """The function returned what its method does not answer: a fault of the server's."""


@attrs.frozen
class NotificationContext:
    """What a handler of a notification knows beside its parameters.

    Attributes:
        method: The notification's.
        params: Its parameters, as plain data, ``_meta`` included.
        state: What the server's lifespan yielded; None without a lifespan.
    """

    method: str
    params: dict[str, Any]
    state: Any


class CustomMethods(ServerCore):
    """Declaring extensions, registering methods and notifications of one's own, and handling them."""

    def _capabilities(self, revision: str) -> dict[str, Any]:
        # Before 2026-07-28 the schema does not name it, but capabilities are no closed set there, and SEP-2133 puts it
        # into the handshake.
        extensions = {"extensions": copy.deepcopy(self.extensions)} if self.extensions else {}
        return {**super()._capabilities(revision), **extensions}

    def method(
        self, name: str, *, params: Model | None = None, result: Model | None = None, extension: str | None = None
    ) -> Callable[[FunctionT], FunctionT]:
        """Let a function answer a method of your own; the function itself stays as it is.

        ``@server.method("com.example/measure", params=Area, result=Size)``; see `add_method`.
        """

        def register(function: FunctionT) -> FunctionT:
            self.add_method(name, function, params=params, result=result, extension=extension)
            return function

        return register

    def add_method(
        self,
        name: str,
        function: Callable[..., Any],
        *,
        params: Model | None = None,
        result: Model | None = None,
        extension: str | None = None,
    ) -> None:
        """Let a function answer a method that the protocol does not define, in both eras.

        It is called with the parameters and the request's `Context`; further parameters may be dependencies. It returns
        a model, a mapping, or None for an empty result. Middleware surrounds it. An async function runs in the event
        loop, any other in a thread, which counts among ``max_sync_tools``. When a request is cancelled, the former is,
        too, but a thread is left to finish. What else it raises than `McpError` is logged, and the client gets -32603.

        Args:
            name: The method. Those of an extension begin with its prefix, as a rule: ``"com.example/measure"``.
            function: ``async (params, ctx) -> result``, or sync.
            params: The model that validates the parameters; invalid ones are answered with -32602. Without it the
                function gets plain data. ``_meta`` is left out, unless the model is one of `types`.
            result: The model of the result; another result is a failure of the function's.
            extension: The extension that the method belongs to, which the server must have declared. A client that has
                not declared it, too, gets -32021 (handshake era: -32601).

        Raises:
            TypeError: The function, its signature or a model can't be used.
            ValueError: The protocol defines the method, it is there already, or the extension is not declared.
        """
        what = f"method {_checked_name(name, function)!r}"
        self._check_method_free(name, what)
        if extension is not None and extension not in self.extensions:
            missing = f"{what}: the extension {extension!r} is not declared"
            raise ValueError(f"{missing}; pass extensions={{{extension!r}: {{}}}} to the Server")
        own = _CustomMethod(what, _binder(function, what), is_async(function), params, result, extension)
        self._install_method(name, own.handle)

    def notification(self, name: str, *, params: Model | None = None) -> Callable[[FunctionT], FunctionT]:
        """Have a function called for each notification of your own; the function itself stays as it is.

        ``@server.notification("com.example/ping")``; see `add_notification`.
        """

        def register(function: FunctionT) -> FunctionT:
            self.add_notification(name, function, params=params)
            return function

        return register

    def add_notification(
        self, name: str, function: Callable[..., Awaitable[object]], *, params: Model | None = None
    ) -> None:
        """Have a function called for each notification that the protocol does not define.

        A client's notifications are handled one after the other, in the order of arrival, so a slow function holds up
        the next one, and requests overtake it. No middleware surrounds it; what it raises is logged. When the client is
        gone, it is cancelled. In the modern era a client of Streamable HTTP has no way to send a notification.

        Args:
            name: The notification's method.
            function: ``async (params, ctx)``, where the latter is a `NotificationContext`.
            params: The model that validates the parameters, as in `add_method`; invalid ones go to ``on_error``.

        Raises:
            TypeError: The function or the model can't be used.
            ValueError: The protocol defines it, or it is there already.
        """
        what = f"notification {_checked_name(name, function)!r}"
        if not is_async(function):
            raise TypeError(f"{what}: its function must be async")
        self._check_notification_free(name, what)
        _check_model(params, what)

        async def handle(notification: Notification, serving: Serving) -> None:
            given = notification.params or {}
            try:
                values = _validated(given, params)
            except ValidationError as exc:
                raise RemoteProtocolError(f"invalid parameters of the {what}: {brief(exc)}") from None
            await function(values, NotificationContext(name, given, serving.states.get(self)))

        self._install_notification(name, handle)

    # Here and wherever this server is mounted: the names are the same there.

    def _check_method_free(self, name: str, what: str) -> None:
        for server in self._holders():
            if name in server._methods:
                raise ValueError(f"{what} is there already")

    def _install_method(self, name: str, handler: Handler) -> None:
        self._methods[name] = handler
        for mount in self._mounted_in:
            assert isinstance(mount.parent, CustomMethods)
            mount.parent._install_method(name, mount.handle)

    def _check_notification_free(self, name: str, what: str) -> None:
        for server in self._holders():
            if name in server._notification_handlers:
                raise ValueError(f"{what} is there already")

    def _install_notification(self, name: str, handler: NotificationHandler) -> None:
        for server in self._holders():
            server._notification_handlers[name] = handler


@attrs.frozen
class _CustomMethod:
    what: str
    bind: Callable[[Any, Context[Any]], Bound]
    is_async: bool
    params: Model | None
    result: Model | None
    extension: str | None

    def __attrs_post_init__(self) -> None:
        _check_model(self.params, self.what)
        _check_model(self.result, self.what)

    async def handle(self, server: ServerCore, context: Context[Any]) -> dict[str, Any]:
        if self.extension is not None and self.extension not in context.client_extensions:
            if not context.rules.missing_extension_error:
                raise McpError(
                    METHOD_NOT_FOUND,
                    f"unknown method {context.method!r}: the client has not declared the extension {self.extension!r}",
                )
            context.require_client_extension(self.extension)
        try:
            values = _validated(context.params, self.params)
        except ValidationError as exc:
            raise McpError(INVALID_PARAMS, f"invalid parameters for {context.method!r}: {brief(exc)}") from None
        try:
            return self._wire(await run(self.bind(values, context), self.is_async, server))
        except Exception as exc:
            raise failure(server, f"the {self.what} failed", exc, ResultError) from None

    def _wire(self, value: Any) -> dict[str, Any]:
        if self.result is not None and not isinstance(value, self.result):
            try:
                value = self.result.model_validate(value)
            except ValidationError as exc:
                raise ResultError(f"it returned no valid {self.result.__name__}: {brief(exc)}") from exc
        try:
            return {} if value is None else as_object(value, "its result")
        except TypeError as exc:
            raise ResultError(str(exc)) from None


def _checked_name(name: object, function: object) -> str:
    if not isinstance(name, str) or not name:
        raise TypeError(f"a method's name must be a string with something in it, got {name!r}")
    if is_spec_method(name):
        raise ValueError(f"the protocol defines {name!r}; a method of your own needs a name of your own")
    if name.startswith("rpc."):
        raise ValueError(f"{name!r}: JSON-RPC keeps names that begin with 'rpc.' for itself")
    if not callable(function) or isinstance(function, type):
        raise TypeError(f"{name!r} must be answered by a function, got {function!r}")
    return name


def _check_model(model: object, what: str) -> None:
    if model is not None and not (isinstance(model, type) and issubclass(model, BaseModel)):
        raise TypeError(f"{what}: params and result must be pydantic models, got {model!r}")


def _validated(given: dict[str, Any], model: Model | None) -> Any:
    """The parameters for a function, without the ``_meta`` of the modern era, which a strict model would refuse.

    Raises:
        ValidationError: They are invalid.
    """
    if model is not None and issubclass(model, WireModel):
        return model.from_wire(given)
    own = {name: value for name, value in given.items() if name != "_meta"}
    return own if model is None else model.model_validate(own)


def _binder(function: Callable[..., Any], what: str) -> Callable[[Any, Context[Any]], Bound]:
    """What binds parameters and context to a function, which may have dependencies besides.

    Raises:
        TypeError: It can't be called like that.
    """
    hints = resolved_hints(function, what, {"Context": Context, "Depends": Depends})
    signature = inspect.signature(function)
    markers: dict[str, Depends] = {}
    for name, parameter in signature.parameters.items():
        marker = marker_in(hints.get(name, parameter.annotation), parameter.default, f"{what}: the parameter {name!r}")
        if marker is not None:
            markers[name] = marker
    try:
        signature.bind(None, None, **dict.fromkeys(markers))
    except TypeError as exc:
        raise TypeError(f"{what}: its function must take (params, ctx), and dependencies by name: {exc}") from None
    if not markers:
        return lambda params, context: functools.partial(function, params, context)
    dependencies = read_dependencies(markers, is_async(function), Context, what)

    def bind(params: Any, context: Context[Any]) -> Bound:
        return dependencies.bind(lambda provided: functools.partial(function, params, context, **provided), context)

    return bind
