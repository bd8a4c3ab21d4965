"""Helpers for commands that run for a while: they handle Ctrl-C and SIGTERM, and write files."""

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
    """Run a function; Ctrl-C or SIGTERM asks it to end with what it has, and a second signal cancels it.

    However the function ends, the processes that it has started have ended, too, before this returns or raises.

    Args:
        work: The function; it gets the event that asks it to end.
        bar: The function's progress bar, which is erased at the end.

    Returns:
        The function's result, and the exit status for the signal, or 0 if there was none.

    Raises:
        Exit: If there was a second signal.
    """
    stop = trio.Event()
    status = OK
    # With a receiver, Trio raises no `KeyboardInterrupt`, which could strike while the report is made, and SIGTERM does
    # not end this process at once, which would leave the target running.
    with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals, trio.CancelScope() as scope:

        async def listen() -> None:
            nonlocal status
            status = 128 + await anext(signals)  # the status that shells report for a signal: see `exits`
            stop.set()
            # The progress bar is cleared, because otherwise the message would follow the bar on the same line.
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
    # The block has not returned, so its scope was cancelled: there was a second signal, and there is no report.
    raise Exit("", status)


async def until_stopped(wait: Callable[[], Awaitable[object]], work: Callable[[], Awaitable[T]]) -> T | None:
    """Run a function until it returns, or until another one does, which cancels it.

    Args:
        wait: A function that returns when ``work`` is to be cancelled, for example `trio.Event.wait`.
        work: The function to run.

    Returns:
        The function's result; None if it was cancelled.
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
    # By default SIGTERM would end this process at once: a child process would outlive it, and there would be no report.
    with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:

        async def signalled() -> None:
            nonlocal received
            received = await anext(signals)

        await until_stopped(signalled, work)
    return received


def check_writable(path: str) -> None:
    """Check that a file can be written, before there is anything to write.

    Raises:
        Exit: If the file can't be written; the message says why.
    """
    file = Path(path).resolve()
    if not os.access(file.parent, os.W_OK):
        raise Exit(f"can't write {path}: {file.parent} is not a folder that can be written to")
    if file.is_dir():
        raise Exit(f"can't write {path}: it is a folder")
    if file.exists() and not os.access(file, os.W_OK):
        raise Exit(f"can't write {path}: you have no permission to write to it")


def write_text(path: str, text: str) -> None:
    """Write a file as UTF-8, whatever the locale: an HTML report declares this encoding.

    Raises:
        Exit: If the file can't be written.
    """
    try:
        Path(path).write_text(text, encoding="utf-8")
    except OSError as exc:
        raise Exit(f"can't write {path}: {exc.strerror}", hint=False) from None
