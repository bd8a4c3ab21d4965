"""A server as the main program of a process: what Ctrl-C and SIGTERM do to it, and its exit status."""

from __future__ import annotations

import contextlib
import signal
import sys
from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

import trio

from trio_mcp._nursery import background_nursery, start
from trio_mcp.errors import TransportError

__all__ = ["run_http", "run_stdio"]

Serve: TypeAlias = Callable[..., Awaitable[None]]

INTERRUPTED = 130
"""The exit status after Ctrl-C, as shells have it: 128 and the number of SIGINT."""


def run_stdio(serve: Callable[[], Awaitable[None]], *, ends_on_sigterm: bool) -> None:
    """Serve standard input and output until the client closes them. Ctrl-C ends the process with status 130.

    Where one of them is closed from the start, or fails, standard error says so, and the status is 1.

    Args:
        serve: Serves them.
        ends_on_sigterm: Whether SIGTERM ends it with grace, and not at once.
    """
    terminated = False

    async def serve_until_sigterm() -> None:
        async with background_nursery() as nursery:

            async def end_on_sigterm() -> None:
                nonlocal terminated
                with trio.open_signal_receiver(signal.SIGTERM) as signals:
                    async for _ in signals:
                        terminated = True
                        nursery.cancel_scope.cancel("SIGTERM")

            nursery.start_soon(end_on_sigterm)
            await serve()

    try:
        trio.run(serve_until_sigterm if ends_on_sigterm else serve)
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    except TransportError as exc:
        sys.exit(f"the server can't go on: {exc}")
    if terminated:
        sys.exit(128 + signal.SIGTERM)


def run_http(name: str, serve: Serve, arguments: dict[str, Any]) -> None:
    """Serve HTTP until SIGINT or SIGTERM, with grace; a second one ends it at once. Ctrl-C ends it with status 130.

    Args:
        name: The server's.
        serve: As `Server.serve_http`.
        arguments: What it takes.
    """
    if trio.run(_serve_until_signalled, name, serve, arguments) == signal.SIGINT:
        sys.exit(INTERRUPTED)


async def _serve_until_signalled(name: str, serve: Serve, arguments: dict[str, Any]) -> int:
    """Serve until the process is told to end, and say on stderr where; a second signal ends it at once.

    Args:
        name: The server's.
        serve: As `Server.serve_http`.
        arguments: What it takes.

    Returns:
        The signal.
    """
    received: list[int] = []
    with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        async with background_nursery() as nursery:

            async def second() -> None:
                await anext(signals)
                nursery.cancel_scope.cancel("told twice to end")

            async def first() -> None:
                received.append(await anext(signals))
                nursery.start_soon(second)

            async def serve_to_the_end(task_status: trio.TaskStatus[str]) -> None:  # noqa: ASYNC128 - it hands it on
                await serve(shutdown=first, task_status=task_status, **arguments)
                nursery.cancel_scope.cancel("the server has ended")

            url = await start(nursery, serve_to_the_end)
            with contextlib.suppress(OSError):  # standard error may go to a full disk
                print(f"{name} serves {url}", file=sys.stderr)
            await trio.sleep_forever()  # the end of the server cancels it
    return received[0]
