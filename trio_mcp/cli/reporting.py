"""Helpers of commands that run for a while: how Ctrl-C and SIGTERM end them, and the files that they write."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import trio

from trio_mcp._nursery import background_nursery
from trio_mcp.cli.exits import INTERRUPTED, OK, Exit

if TYPE_CHECKING:
    from trio_mcp.cli.terminal import ProgressBar

__all__ = ["check_writable", "until_interrupted", "until_signalled", "until_stopped", "write_text"]

T = TypeVar("T")


async def until_interrupted(work: Callable[[trio.Event], Awaitable[T]], bar: ProgressBar) -> tuple[T, int]:
    """Run a function; Ctrl-C or SIGTERM asks it to end with what it has, and a second signal ends it at once.

    However it ends, the processes that it has started have ended by then.

    Args:
        work: The function; it gets the event that asks it to end.
        bar: Its progress bar, which is erased at the end.

    Returns:
        The function's result, and the exit status for the signal: 0 without one.

    Raises:
        Exit: If there was a second signal.
    """
    stop = trio.Event()
    status = OK
    # With a receiver, Trio raises no `KeyboardInterrupt`, which could strike while the report is made, and SIGTERM
    # does not end this process alone, which would leave the target running.
    with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals, trio.CancelScope() as scope:

        async def listen() -> None:
            nonlocal status
            status = 128 + await anext(signals)  # as shells report it: see `exits`
            stop.set()
            # Otherwise the message would follow the bar on the same line.
            bar.clear()
            if status == INTERRUPTED:
                print("Stopping. Press Ctrl-C again to stop at once.", file=sys.stderr)
            status = 128 + await anext(signals)
            scope.cancel("interrupted twice")

        try:
            async with background_nursery() as nursery:
                nursery.start_soon(listen)
                return await work(stop), status
        finally:
            bar.clear()
    # Only the cancellation of the scope leads here, so this was the second signal: no report is left to give.
    raise Exit("", status)


async def until_stopped(wait: Callable[[], Awaitable[object]], work: Callable[[], Awaitable[T]]) -> T | None:
    """Return what a function returns, or None if it is cancelled first: what it has until then is of no use.

    Args:
        wait: Waits for what is to cancel the function, such as `trio.Event.wait`.
        work: The function.
    """
    with trio.CancelScope() as scope:

        async def listen() -> None:
            await wait()
            scope.cancel("told to end")

        async with background_nursery() as nursery:
            nursery.start_soon(listen)
            return await work()
    return None


async def until_signalled(work: Callable[[], Awaitable[object]]) -> int:
    """Run a function until it returns, or until SIGINT or SIGTERM cancels it; return the signal, or 0 without one."""
    received = 0
    # By default SIGTERM would end this process at once: a child process would outlive it, and no report be given.
    with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:

        async def signalled() -> None:
            nonlocal received
            received = await anext(signals)

        await until_stopped(signalled, work)
    return received


def check_writable(path: str) -> None:
    """Check, before there is anything to write, that a file can be written.

    Raises:
        Exit: If it can't; the message says why.
    """
    file = Path(path).resolve()
    if not os.access(file.parent, os.W_OK):
        raise Exit(f"can't write {path}: {file.parent} is not a folder that can be written to")
    if file.is_dir():
        raise Exit(f"can't write {path}: it is a folder")
    if file.exists() and not os.access(file, os.W_OK):
        raise Exit(f"can't write {path}: it may not be written to")


def write_text(path: str, text: str) -> None:
    """Write a file as UTF-8, whatever the locale says: a page names no other encoding.

    Raises:
        Exit: If it can't be written.
    """
    try:
        Path(path).write_text(text, encoding="utf-8")
    except OSError as exc:
        raise Exit(f"can't write {path}: {exc.strerror}", hint=False) from None
