"""What a `Client` can be pointed at, and the link that it becomes."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Any, Protocol, TypeAlias, runtime_checkable

import trio

from trio_mcp._nursery import background_nursery
from trio_mcp.link import Link
from trio_mcp.transports.http_parameters import HttpServerParameters
from trio_mcp.transports.memory import memory_link_pair
from trio_mcp.transports.process import StdioServerParameters
from trio_mcp.transports.stdio_client import stdio_client

SERVER_GRACE = 2.0
"""Seconds that a server in memory is given to end, for example its lifespan, after its client has left."""

__all__ = ["LinkFactory", "Servable", "Target", "link_factory"]

LinkFactory: TypeAlias = Callable[[], contextlib.AbstractAsyncContextManager[Link]]


@runtime_checkable
class Servable(Protocol):
    """Something that can serve a link: a `trio_mcp.Server`. (This floor does not import it.)"""

    async def serve(self, link: Link, *, task_status: Any = ...) -> None: ...


Target: TypeAlias = StdioServerParameters | HttpServerParameters | Servable | LinkFactory


def link_factory(target: Target) -> LinkFactory:
    """The way to connect to a target.

    Raises:
        TypeError: It is none of the kinds of target.
        ValueError: It is a URL of a scheme for which there is no transport.
    """
    if isinstance(target, StdioServerParameters):
        return lambda: stdio_client(target)
    if isinstance(target, (str, HttpServerParameters)):
        scheme, separator, _ = (target if isinstance(target, str) else target.url).partition("://")
        if separator:
            raise ValueError(f"there is no transport for {scheme}:// URLs")
        raise TypeError(f"to start a server as a process, pass StdioServerParameters({target!r}, [arguments])")
    if isinstance(target, Servable):
        return lambda: _serve_in_memory(target)
    if callable(target):
        return target
    raise TypeError(
        "a target must be StdioServerParameters, a Server, or a callable that gives an async context manager which "
        f"yields a Link; got {type(target).__name__}"
    )


@contextlib.asynccontextmanager
async def _serve_in_memory(server: Servable) -> AsyncIterator[Link]:
    async with memory_link_pair() as (ours, theirs), background_nursery() as nursery:
        ended = trio.Event()

        async def serve(task_status: trio.TaskStatus[None]) -> None:  # noqa: ASYNC128 - the server calls it
            try:
                await server.serve(theirs, task_status=task_status)
            finally:
                ended.set()

        await nursery.start(serve)
        yield ours
        # Left without an exception: the server may end by itself, as it does when a client closes any other link.
        for channel in ours:
            await channel.aclose()
        with trio.move_on_after(SERVER_GRACE):
            await ended.wait()
