"""Runs a server as the main program of a process: handles Ctrl-C and SIGTERM, and sets the exit status."""

from __future__ import annotations

import contextlib
import signal
import sys
from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeAlias

import trio

from trio_mcp._nursery import background_nursery, start
from trio_mcp.errors import TransportError

__all__ = ["CHILD", "INTERRUPTED", "run_network", "run_stdio"]

Serve: TypeAlias = Callable[..., Awaitable[None]]

CHILD: Final = "TRIO_MCP_CHILD"
"""The environment variable that makes a process a child of the one that supervises it. It holds no secret."""

INTERRUPTED = 130
"""The exit status after Ctrl-C, by the shells' convention: 128 plus the number of SIGINT."""


def run_stdio(serve: Callable[[], Awaitable[None]], *, ends_on_sigterm: bool) -> None:
    """Serve standard input and output until the client closes them. Ctrl-C exits with status 130.

    If either stream is closed from the start or fails, say so on standard error, and exit with status 1.

    Args:
        serve: Serves standard input and output.
        ends_on_sigterm: Whether SIGTERM shuts down gracefully instead of at once.
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

    # Trio itself turns SIGINT into KeyboardInterrupt, and this exception ends the server as any other does.
    try:
        trio.run(serve_until_sigterm if ends_on_sigterm else serve)
    except KeyboardInterrupt:
        # Without this, the interpreter would print a traceback, although Ctrl-C is an ordinary way to stop a server.
        sys.exit(INTERRUPTED)
    except TransportError as exc:
        sys.exit(f"the server can't continue: {exc}")  # Python prints a string to stderr, and exits with status 1
    # SIGTERM has been caught, but to the parent process it must look as if the signal had ended this process.
    if terminated:
        sys.exit(128 + signal.SIGTERM)


def run_network(name: str, serve: Serve, arguments: dict[str, Any]) -> None:
    """Serve sockets until SIGINT or SIGTERM, then shut down gracefully; a second signal ends the server at once.

    Ctrl-C exits with status 130.

    Args:
        name: The server's name.
        serve: A function like `Server.serve_http`.
        arguments: The keyword arguments for ``serve``.
    """
    # After SIGTERM the status is 0, so that a supervisor sees no failure: SIGTERM is the ordinary way to stop a
    # service.
    if trio.run(_serve_until_signalled, name, serve, arguments) == signal.SIGINT:
        sys.exit(INTERRUPTED)


async def _serve_until_signalled(name: str, serve: Serve, arguments: dict[str, Any]) -> int:
    """Print the URL to standard error, and serve until the first signal; a second signal ends the server at once.

    Args:
        name: The server's name.
        serve: A function like `Server.serve_http`.
        arguments: The keyword arguments for ``serve``.

    Returns:
        The number of the first signal that arrived.
    """
    received: list[int] = []
    shutdown = trio.Event()
    with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        async with background_nursery() as nursery:

            async def await_signals() -> None:
                # Only the first signal decides the exit status. A second one, of either kind, just means that the user
                # is impatient.
                received.append(await anext(signals))
                shutdown.set()
                await anext(signals)
                nursery.cancel_scope.cancel("a second signal")

            async def serve_to_the_end(task_status: trio.TaskStatus[str]) -> None:  # noqa: ASYNC128 - passes it on
                await serve(shutdown=shutdown, task_status=task_status, **arguments)
                nursery.cancel_scope.cancel("the server has ended")

            nursery.start_soon(await_signals)
            url = await start(nursery, serve_to_the_end)
            with contextlib.suppress(OSError):  # standard error may be closed, or a file on a full disk
                print(f"{name} serves {url}", file=sys.stderr)
            await trio.sleep_forever()  # until the server ends or a second signal comes
    # The list is not empty: without a signal, `shutdown` is not set, and the server does not end by itself. If the
    # server fails instead, its exception passes through, and no number is returned.
    return received[0]
