"""`Middleware`, which sees every message of a client or a server, and the functions that pass messages through it."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, Final, TypeAlias, TypeVar

from trio_mcp import _attrs as attrs
from trio_mcp._checks import accepts
from trio_mcp._log import logger
from trio_mcp.jsonrpc.messages import Batch, Incoming, Notification, RequestId, SessionMessage
from trio_mcp.session.sink import Owner, SessionSink

__all__ = [
    "NO_LAYERS",
    "CallNext",
    "Layers",
    "Middleware",
    "OutgoingCall",
    "OutgoingNotifications",
    "Surround",
    "passed_in",
    "surround",
]

CallNext: TypeAlias = Callable[[], Awaitable[dict[str, Any]]]
"""Passes a request on to the next middleware, and returns its result or raises its error."""

Surround: TypeAlias = Callable[[Any, CallNext], Awaitable[dict[str, Any]]]
"""A function ``async (context or call, call_next) -> result`` that surrounds a request."""

Change: TypeAlias = Callable[[Notification], Notification | None]
"""A function that returns a notification, a replacement, or None to drop it."""

KEPT: Final = frozenset({"notifications/cancelled", "notifications/initialized"})
"""The notifications that middleware sees, but can neither replace nor drop: requests and the handshake need them."""


@attrs.define
class OutgoingCall:
    """A request about to be sent. A middleware may replace its method and parameters.

    Attributes:
        method: The method of the request.
        params: The parameters of the request, as plain data.
        protocol_version: The negotiated revision, or the one that a request of the handshake proposes; replacing it has
            no effect.
        request_id: The id that the request had in the last attempt to send it; None before the first attempt.
        way: For a client with several ways to its server, the name of the way that carried the session when the last
            attempt ended; otherwise None.
        switches: How many times another way to the server took over during the last attempt.
    """

    method: str
    params: dict[str, Any]
    protocol_version: str
    request_id: RequestId | None = None
    way: str | None = None
    switches: int = 0


class Middleware:
    """Sees, changes, drops or responds to the messages of a `Server` or a `Client`; the same class serves both.

    Override the methods that you need; by default, each passes everything on unchanged. In a list of middleware, the
    first is the outermost, nearest to the peer: messages that arrive pass it first, and messages that are sent pass it
    last.

    A middleware sees only valid messages. It does not see those that the library itself refuses: malformed messages,
    requests without a valid declaration of the client, and requests that lack a scope.
    """

    # The type of the context is Any, so that a subclass for servers may annotate it as `Context`.
    async def handle_request(self, context: Any, call_next: CallNext) -> dict[str, Any]:
        """Surround a request from the peer, inside its cancel scope.

        A server sees each request of its clients: those with a handler, ``initialize``, ``server/discover``, ``ping``,
        and those with an unknown method, for which ``call_next`` raises `McpError`. ``initialize``,
        ``server/discover`` and ``ping`` have already taken effect when the middleware sees them, because the next
        message may depend on it: only the response can be changed. A ``ping`` before the handshake is not seen.

        A client sees the server's questions and pings. In the modern era, questions come in a result and not as
        requests, but pass through this method, too; the id in their context is then the key of the question.

        Args:
            context: The request: on a server a `Context`, on a client a `RequestContext`. Its ``params`` may be
                replaced.
            call_next: Passes the request on, and returns the result or raises the error; it may be called several
                times, or not at all.

        Returns:
            The result, a plain dict.

        Raises:
            McpError: To respond with this error. Any other exception becomes an internal error, and is logged.

        If the peer cancels the request, ``call_next`` raises `trio.Cancelled`.
        """
        return await call_next()

    def handle_notification(self, notification: Notification) -> Notification | None:
        """Look at a notification from the peer, before it has any effect.

        This includes progress, log messages and changes. The method is not async, because notifications keep their
        order. The next message is read only when it has returned, so it must return quickly.

        Args:
            notification: The notification, which must not be modified in place. ``notifications/cancelled`` and
                ``notifications/initialized`` can't be replaced or dropped.

        Returns:
            The notification, a replacement, or None to drop it.

        Raises:
            RemoteProtocolError: To drop the notification, and report a fault of the peer to ``on_error``. Any other
                exception drops the notification, too, and is logged.
        """
        return notification

    async def send_request(self, call: OutgoingCall, call_next: CallNext) -> dict[str, Any]:
        """Surround a request to the peer.

        A client sends calls, and the requests of the handshake: ``initialize``, ``server/discover``, and
        ``logging/setLevel`` if the client has a log level. Requests with which a transport restores a session on a new
        connection are not seen. A server sends requests only in the legacy era: the questions of its handlers.

        Args:
            call: The request. Its method and its parameters may be replaced.
            call_next: Sends the request, and returns the result or raises the error; it may be called several times, or
                not at all. Each call sends a new request.

        Returns:
            The result, a plain dict.

        Raises:
            Exception: Any exception reaches the caller.

        If the caller is cancelled, ``call_next`` raises `trio.Cancelled`.
        """
        return await call_next()

    def send_notification(self, notification: Notification) -> Notification | None:
        """Look at a notification to the peer, before it is sent.

        This includes progress, log messages, changes, acknowledgements of subscriptions, and custom notifications. The
        method is not async, because notifications keep their order, and some are sent by code that must not wait. So it
        must return quickly.

        Args:
            notification: The notification, which must not be modified in place. ``notifications/cancelled`` and
                ``notifications/initialized`` can't be replaced or dropped.

        Returns:
            The notification, a replacement, or None to drop it.

        Raises:
            Exception: The notification is not sent, unless it is a cancellation. The exception is raised where the
                notification is sent, or logged if no function waits for that, as with changes and cancellations.
        """
        return notification


_CONTRACTS: Final = {"handle_request": 2, "handle_notification": 1, "send_request": 2, "send_notification": 1}
"""The number of arguments with which each method of a middleware is called."""


@attrs.frozen
class Layers:
    """The methods that the middleware of one side overrides, each in the order in which messages pass them.

    Attributes:
        handle_request: Around each request from the peer.
        handle_notification: For notifications from the peer.
        send_request: Around each request to the peer.
        send_notification: For notifications to the peer.
    """

    handle_request: tuple[Surround, ...] = ()
    handle_notification: tuple[Change, ...] = ()
    send_request: tuple[Surround, ...] = ()
    send_notification: tuple[Change, ...] = ()

    @classmethod
    def of(cls, given: Iterable[object]) -> Layers:
        """Return the layers of the instances of `Middleware` in a list."""
        own = [each for each in given if isinstance(each, Middleware)]
        return cls(
            _overriding(own, "handle_request"),
            _overriding(own, "handle_notification"),
            _overriding(own, "send_request"),
            # A notification that is sent comes from inside, so the innermost middleware sees it first.
            _overriding(reversed(own), "send_notification"),
        )

    @staticmethod
    def with_functions(given: Iterable[object], method: str) -> tuple[Surround, ...]:
        """Return the layers of one method, including the plain functions of the list."""
        return _overriding(given, method)

    @staticmethod
    def check(given: Sequence[object], what: str) -> None:
        """Check a list of middleware.

        Args:
            given: The list.
            what: The first argument of a plain function: ``"context"`` or ``"call"``.

        Raises:
            TypeError: If an item is neither a function with two arguments nor an instance of `Middleware`, or a method
                of an instance takes other arguments, or is async where it must not be.
        """
        if isinstance(given, Middleware) or not isinstance(given, Iterable):
            raise TypeError(f"middleware must be a list; write middleware=[{given!r}]")
        for each in given:
            if isinstance(each, type):  # a class can be called, but most likely its parentheses were forgotten
                raise TypeError(f"a middleware must be an instance: write {each.__name__}(), not {each.__name__}")
            if isinstance(each, Middleware):
                _check_methods(each)
            elif not callable(each) or not accepts(each, 2):
                raise TypeError(
                    f"a middleware must be an async function of ({what}, call_next), or an instance of a subclass of "
                    f"trio_mcp.middleware.Middleware; got {each!r}"
                )


NO_LAYERS: Final = Layers()


def _overrides(middleware: Middleware, method: str) -> bool:
    return getattr(getattr(middleware, method), "__func__", None) is not getattr(Middleware, method)


def _overriding(given: Iterable[object], method: str) -> tuple[Any, ...]:
    return tuple(
        getattr(each, method) if isinstance(each, Middleware) else each
        for each in given
        if not isinstance(each, Middleware) or _overrides(each, method)
    )


def _check_methods(middleware: Middleware) -> None:
    for name, count in _CONTRACTS.items():
        method = getattr(middleware, name)
        what = f"{type(middleware).__name__}.{name}"
        if not callable(method) or not accepts(method, count):
            taken = "(notification)" if count == 1 else "(context or call, call_next)"
            raise TypeError(f"{what} must take {taken}")
        is_async = inspect.iscoroutinefunction(method)
        if count == 1 and is_async:
            raise TypeError(f"{what} must not be async: notifications keep their order, and must not wait")
        if count == 2 and not is_async and inspect.isfunction(getattr(method, "__func__", None)):
            raise TypeError(f"{what} must be async")


SubjectT = TypeVar("SubjectT")


async def surround(
    layers: Sequence[Surround], subject: SubjectT, last: Callable[[], Awaitable[dict[str, Any]]]
) -> dict[str, Any]:
    """Pass a request through middleware.

    Args:
        layers: The middleware, the outermost first.
        subject: The context or the call that each middleware sees.
        last: The function that the innermost middleware calls.

    Raises:
        TypeError: If a middleware does not return a dict.
    """
    result = await _through(layers, subject, last)
    # It is an easy mistake to return no result. Without this check, the None would cause an error far from the mistake.
    if not isinstance(result, dict):
        raise TypeError(f"a middleware must return the result, a dict; got {type(result).__name__}")
    return result


def _through(layers: Sequence[Surround], subject: object, last: CallNext) -> Awaitable[dict[str, Any]]:
    # This recursion needs no prepared chain. Each middleware gets a function and not a coroutine, because it may call
    # it several times.
    if not layers:
        return last()
    if len(layers) == 1:  # the usual case costs a call less
        return layers[0](subject, last)
    return layers[0](subject, lambda: _through(layers[1:], subject, last))


def _changed(layers: Sequence[Change], notification: Notification) -> Notification | None:
    """Pass a notification through middleware; return it or its replacement, or None if it was dropped."""
    result: Notification | None = notification
    for layer in layers:
        assert result is not None
        result = layer(result)
        if notification.method in KEPT:
            result = notification
        elif result is None:
            return None
        elif type(result) is not Notification:
            raise TypeError(
                f"a middleware must return a Notification, or None to drop it; got {type(result).__name__} for "
                f"{notification.method[:100]!r}"
            )
    # A replacement counts as many bytes as the message that arrived: the size bounds the messages that wait.
    return result if result is notification or result is None else attrs.evolve(result, size=notification.size)


def passed_in(layers: Sequence[Change], message: Incoming, report: Callable[[Exception], object]) -> Incoming | None:
    """Pass the notifications in an incoming message through middleware.

    Args:
        layers: The middleware, the outermost first.
        message: The message, which may be a batch.
        report: Called with each exception that a middleware raises.

    Returns:
        The message with its notifications replaced or dropped; None if all of it was dropped.
    """
    if type(message) is Batch:
        items: list[Any] = [passed_in(layers, each, report) for each in message.items]
        left = tuple(each for each in items if each is not None)
        return Batch(left) if left else None
    if type(message) is not Notification:
        return message
    try:
        return _changed(layers, message)
    except Exception as exc:
        report(exc)
        return message if message.method in KEPT else None


class OutgoingNotifications:
    """A sink that passes notifications through middleware, and all messages on to another sink.

    Args:
        sink: The other sink.
        layers: The middleware, the innermost first.
    """

    def __init__(self, sink: Any, layers: Sequence[Change]) -> None:
        self._sink: SessionSink = sink
        self._layers = layers
        # These methods do not concern notifications, so the other sink's are used directly.
        self.room = self._sink.room
        self.release = self._sink.release
        self.close_stream = self._sink.close_stream

    @property
    def has_room(self) -> bool:
        return self._sink.has_room

    def put(self, message: SessionMessage, owner: Owner = None) -> None:
        """Send a message.

        Raises:
            Exception: What a middleware raises; then nothing is sent.
        """
        given = message.message
        if type(given) is Notification:
            left = _changed(self._layers, given)
            if left is None:
                return
            message = attrs.evolve(message, message=left)
        self._sink.put(message, owner)

    def put_control(self, message: SessionMessage) -> bool:
        given = message.message
        if type(given) is Notification:
            # The notification is a cancellation, which must be sent whatever a middleware does. The task that sends it
            # is being cancelled, so an exception must not leave this method.
            try:
                _changed(self._layers, given)
            except Exception:
                logger.exception("a middleware failed for %r", given.method)
        return self._sink.put_control(message)

    @property
    def waiting(self) -> tuple[int, int]:
        return self._sink.waiting

    @property
    def idle(self) -> bool:
        return self._sink.idle

    async def flush(self) -> None:
        await self._sink.flush()

    def give_up(self) -> None:
        self._sink.give_up()

    async def aclose(self) -> None:
        await self._sink.aclose()
