"""`Client` without ``await``."""

from __future__ import annotations

import inspect
import weakref
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, AbstractContextManager, contextmanager
from functools import partial, wraps
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, Self, TypeVar, Unpack, cast

import trio

from trio_mcp import _attrs as attrs
from trio_mcp.blocking.portal import Portal
from trio_mcp.client.answers.sources import Answers
from trio_mcp.client.client import Client as _Async, ClientStatistics
from trio_mcp.client.failover.parameters import TransportStatus
from trio_mcp.client.options import ClientOptions
from trio_mcp.client.subscriptions import ChangeEvent, Subscription as AsyncSubscription
from trio_mcp.client.targets import Target
from trio_mcp.session.limits import SessionOptions
from trio_mcp.types.capabilities import ServerCapabilities
from trio_mcp.types.common import Implementation
from trio_mcp.types.subscriptions import SubscriptionFilter

__all__ = ["Client", "Subscription"]

P = ParamSpec("P")
T = TypeVar("T")


def _blocking(method: Callable[Concatenate[_Async, P], Awaitable[T]]) -> Callable[Concatenate[Client, P], T]:
    """Return a method of `Client` that calls an async method of the async client, with the same arguments."""

    @wraps(method)
    def call(self: Client, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self._portal.call(partial(method, self._client, *args, **self._with_hook(kwargs)))

    return call


def _iterating(
    method: Callable[Concatenate[_Async, P], AsyncIterator[T]],
) -> Callable[Concatenate[Client, P], Iterator[T]]:
    """Return a method of `Client` that iterates over what a method of the async client yields."""

    @wraps(method)
    def call(self: Client, /, *args: P.args, **kwargs: P.kwargs) -> Iterator[T]:
        # The iterators of the async client are generators.
        return self._portal.iterate(cast("AsyncGenerator[T]", method(self._client, *args, **kwargs)))

    return call


def _listening(
    method: Callable[Concatenate[_Async, P], AbstractAsyncContextManager[AsyncSubscription]],
) -> Callable[Concatenate[Client, P], AbstractContextManager[Subscription]]:
    """Return a method of `Client` that is a ``with`` block in place of an ``async with`` one."""

    @contextmanager
    def block(portal: Portal, manager: AbstractAsyncContextManager[AsyncSubscription]) -> Iterator[Subscription]:
        with portal.block(manager) as events:
            yield Subscription(portal, events)

    @wraps(method)
    def call(self: Client, /, *args: P.args, **kwargs: P.kwargs) -> AbstractContextManager[Subscription]:
        return block(self._portal, method(self._client, *args, **kwargs))

    return call


class Client:
    """A client of one server for programs that are not async. Use it in a ``with`` block; it can be entered once.

    It has the methods of `trio_mcp.Client`, without ``await``: they block, and return and raise the same. Entering
    starts a thread in which Trio runs, and connects; leaving closes the connection and ends the thread. All threads may
    use one client at once, with up to `MOST_CALLS` calls under way; to the server they are one client, with one
    identity.

    Ctrl-C during a call cancels it, tells the server, waits ``options.close_grace`` seconds for its end, and raises
    `KeyboardInterrupt`; a second Ctrl-C does not wait. If the program ends within the block, the connection is closed.

    Callbacks (``on_log``, ``on_message``, ``on_progress``, ``answers``) may be plain functions that block: each call
    has a thread of its own. They can't use the client itself, which waits for them. An async function runs in Trio's
    thread.

    Args:
        target: As for `trio_mcp.Client`.
        settings: As for `trio_mcp.Client`: see `ClientOptions`.

    Raises:
        TypeError, ValueError: If an argument is invalid.

    Each method raises `LocalProtocolError` in a process that was forked later and in a callback of the client,
    `SessionClosed` after the block, and `RuntimeError` in a thread with a running event loop, which it would stop; it
    works in the kernel of a notebook.
    """

    def __init__(self, target: Target, **settings: Unpack[ClientOptions]) -> None:
        options = settings.get("options")
        grace = (options if isinstance(options, SessionOptions) else SessionOptions()).close_grace
        # The portal comes first, because the callbacks need it.
        self._portal = Portal("blocking Client", grace)
        self._client = _Async(target, **self._with_callbacks(settings))
        # Ctrl-C may strike where a with block begins or ends, so that it is never left.
        weakref.finalize(self, self._portal.leave).atexit = False

    def _with_callbacks(self, settings: ClientOptions) -> ClientOptions:
        """Return settings with async functions in place of plain ones."""
        changed: dict[str, Any] = {
            name: self._hook(settings[name]) for name in ("on_log", "on_message") if name in settings
        }
        if isinstance(answers := settings.get("answers"), Answers):
            names = ("elicitation", "sampling", "roots")
            changed["answers"] = attrs.evolve(answers, **{name: self._hook(getattr(answers, name)) for name in names})
        return cast("ClientOptions", {**settings, **changed})

    def _with_hook(self, limits: Mapping[str, Any]) -> Mapping[str, Any]:
        return {**limits, "on_progress": self._hook(limits["on_progress"])} if "on_progress" in limits else limits

    def _hook(self, hook: Any) -> Any:
        is_plain = callable(hook) and not inspect.iscoroutinefunction(hook)
        return self._portal.in_thread(hook) if is_plain else hook

    # --- the connection ------------------------------------------------------------------------------------------

    def __enter__(self) -> Self:
        try:
            self._portal.start(self._client)
            return self
        except BaseException:  # Ctrl-C at the last moment
            self._portal.stop(failed=True)
            raise

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._portal.stop(failed=exc is not None)

    def close(self) -> None:
        """Close the connection before the block ends; calls that are under way in other threads raise `SessionClosed`.

        Any thread may call this. Closing again does nothing.
        """
        self._portal.stop()

    @property
    def server_info(self) -> Implementation | None:
        """The server's name and version; None if it has not told them."""
        return self._client.server_info

    @property
    def capabilities(self) -> ServerCapabilities:
        """The capabilities that the server has declared."""
        return self._client.capabilities

    @property
    def extensions(self) -> dict[str, dict[str, Any]]:
        """The extensions that the server has declared, with their settings."""
        return self._client.extensions

    @property
    def instructions(self) -> str | None:
        """How the server wants to be used; None if it does not say."""
        return self._client.instructions

    @property
    def protocol_version(self) -> str:
        """The revision that the client and the server speak."""
        return self._client.protocol_version

    @property
    def transport(self) -> TransportStatus:
        """The status of the link, and of all ways to reach the server."""
        return self._client.transport

    def statistics(self) -> ClientStatistics:
        """Return what the client is doing, and how much it has done; see `trio_mcp.Client.statistics`."""
        return self._portal.call(partial(_at_once, self._client.statistics))

    # --- requests ------------------------------------------------------------------------------------------------

    request = _blocking(_Async.request)
    finish = _blocking(_Async.finish)
    ping = _blocking(_Async.ping)
    notify = _blocking(_Async.notify)

    list_tools = _blocking(_Async.list_tools)
    iter_tools = _iterating(_Async.iter_tools)
    call_tool = _blocking(_Async.call_tool)
    call_tool_once = _blocking(_Async.call_tool_once)

    list_resources = _blocking(_Async.list_resources)
    iter_resources = _iterating(_Async.iter_resources)
    list_resource_templates = _blocking(_Async.list_resource_templates)
    iter_resource_templates = _iterating(_Async.iter_resource_templates)
    read_resource = _blocking(_Async.read_resource)
    read_resource_once = _blocking(_Async.read_resource_once)
    subscribe_resource = _blocking(_Async.subscribe_resource)
    unsubscribe_resource = _blocking(_Async.unsubscribe_resource)

    list_prompts = _blocking(_Async.list_prompts)
    iter_prompts = _iterating(_Async.iter_prompts)
    get_prompt = _blocking(_Async.get_prompt)
    get_prompt_once = _blocking(_Async.get_prompt_once)
    complete = _blocking(_Async.complete)

    set_log_level = _blocking(_Async.set_log_level)
    set_roots = _blocking(_Async.set_roots)

    listen = _listening(_Async.listen)


async def _at_once(function: Callable[[], T]) -> T:
    """Call a function that must run in Trio's thread."""
    await trio.lowlevel.checkpoint()
    return function()


class Subscription(Iterator[ChangeEvent]):
    """The events of a `Client.listen` block: ``for event in events``; see `trio_mcp.Subscription`."""

    def __init__(self, portal: Portal, events: AsyncSubscription) -> None:
        self._portal, self._events = portal, events

    @property
    def honored(self) -> SubscriptionFilter:
        """The part of the request that the server has agreed to; no other events come."""
        return self._events.honored

    @property
    def ended(self) -> bool:
        """Whether the server has ended the subscription without an error; then the loop ends as well."""
        return self._events.ended

    @property
    def waiting(self) -> int:
        """The number of events waiting to be taken."""
        return self._events.waiting

    def __next__(self) -> ChangeEvent:
        """Wait for the next event and return it."""
        try:
            return self._portal.call(self._events.__anext__)
        except StopAsyncIteration:
            raise StopIteration from None
