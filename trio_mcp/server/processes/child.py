"""A child of the supervisor: what it has inherited, what it reports, and how it serves and ends."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable
from typing import Any, Final

import trio

from trio_mcp import _attrs as attrs
from trio_mcp._nursery import background_nursery, start
from trio_mcp.server.signals import CHILD

__all__ = ["BUSY", "EXTRA", "MAX_LINE", "READY", "Inherited", "inherited", "report_busy", "run_child"]

READY: Final = b"ready"
BUSY: Final = b"busy"
"""The first words of the lines that a child writes to the supervisor. Any line is a sign of life."""

BEAT = 2.0
"""Seconds between two signs of life. An arbitrary choice: it is far below any silence for which a child is killed."""

EXTRA = 5.0
"""How many seconds after its grace period a child that has been told to end is killed. An arbitrary choice."""

MAX_LINE: Final = 4096
"""The maximum length of a line in a pipe, in bytes. An arbitrary choice: ``PIPE_BUF`` of Linux."""


@attrs.frozen
class Inherited:
    """The secrets, sockets and pipes that a child process has from its supervisor.

    Attributes:
        key: 32 secret bytes, the same in all children of the supervisor: a key for what one of them seals and another
            one opens.
        nonce: 32 other secret bytes, for nonces that one of them gives and another one accepts.
        number: The number of the child, from 1 on. A child that replaces another one has the same number.
        sockets: The scheme and the socket of each address on which to accept connections.
        grace: The number of seconds that the supervisor gives requests under way when the child has to end.
        control: The descriptor of a pipe that ends with the supervisor.
        reports: The descriptor of a pipe to the supervisor.
    """

    key: bytes = attrs.field(repr=False)
    nonce: bytes = attrs.field(repr=False)
    number: int
    sockets: list[tuple[str, socket.socket]]
    grace: float
    control: int
    reports: int


_inherited: list[Inherited | None] = []
"""The result of `inherited`, from its first call on."""

_reading = threading.Lock()  # the first call may come from any thread


def inherited() -> Inherited | None:
    """Return what this process has inherited if it is a child of a supervisor, and None otherwise.

    The first call reads the mark in the environment and removes it, so that a process which a handler starts is no
    child.
    """
    with _reading:
        if not _inherited:
            _inherited.append(_read_mark(os.environ.pop(CHILD, None)))
    return _inherited[0]


def _read_mark(mark: str | None) -> Inherited | None:
    if mark is None:
        return None
    import json  # imported late: only a child needs it

    try:
        said = json.loads(mark)
        is_ours, has_ended = os.getppid() == said["supervisor"], _has_ended(said["control"])
    except (ValueError, TypeError, KeyError):
        return None  # the variable was not set by a supervisor
    if not is_ours:
        # A process that a child's program has started by itself does not have the pipe, or the pipe is still open at
        # its other end. Otherwise this is a child whose supervisor is gone, and must not take its place.
        if has_ended:
            sys.exit("the supervisor of this process has ended")
        return None
    sockets = [(scheme, socket.socket(fileno=descriptor)) for scheme, descriptor in said["sockets"]]
    for descriptor in (said["control"], said["reports"], *(sock.fileno() for _, sock in sockets)):
        # The descriptors stay open across `exec`, but a process that a handler starts must not have them: it would keep
        # the port open, and look alive to the supervisor.
        os.set_inheritable(descriptor, False)
    os.set_blocking(said["reports"], False)  # a supervisor that is stopped must not stop its children
    secrets = json.loads(_first_line(said["control"]))
    return Inherited(
        key=bytes.fromhex(secrets["key"]),
        nonce=bytes.fromhex(secrets["nonce"]),
        number=said["number"],
        sockets=sockets,
        grace=said["grace"],
        control=said["control"],
        reports=said["reports"],
    )


def _has_ended(control: int) -> bool:
    asked = select.poll()
    asked.register(control, 0)  # POLLHUP and POLLNVAL need no flag
    return any(event & select.POLLHUP for _, event in asked.poll(0))


def _first_line(control: int) -> bytes:
    # The supervisor has written the line before it started this process.
    line = b""
    while not line.endswith(b"\n") and len(line) < MAX_LINE:
        if not (piece := os.read(control, 1)):
            sys.exit("the supervisor of this process has ended")
        line += piece
    return line


def report_busy(seconds: float) -> None:
    """Tell the supervisor that this process could not write to its stores, because another process holds their lock.

    The supervisor then kills a child that has been silent for `trio_mcp.server.processes.supervisor.LEASE` seconds: it
    may have been stopped inside a transaction. Returns at once, from any thread; does nothing outside of a child.

    Args:
        seconds: How long the attempt has waited for the lock.
    """
    if (mine := inherited()) is not None:
        _report(mine, b"%s %.3f" % (BUSY, seconds))


def _report(mine: Inherited, line: bytes) -> None:
    # A short line is written whole or not at all (pipe(7)). If the pipe is full, the supervisor is stopped, and the
    # line is left out; if the supervisor has ended, this process is about to end, too.
    with contextlib.suppress(OSError):
        os.write(mine.reports, line + b"\n")


# --- serving ----------------------------------------------------------------------------------------------------------


def run_child(mine: Inherited, serve: Callable[..., Any], arguments: dict[str, Any]) -> None:
    """Serve until the supervisor sends SIGTERM or has ended, then shut down gracefully.

    Further signals change nothing: the supervisor itself kills a child that takes too long. So a child does not mind
    that a service manager sends each signal to all processes of a service.

    Args:
        mine: What this process has inherited.
        serve: A function like `Server.serve_http`, which serves on the sockets inherited.
        arguments: The keyword arguments for ``serve``.
    """
    trio.run(_serve_until_told, mine, serve, arguments)


async def _serve_until_told(mine: Inherited, serve: Callable[..., Any], arguments: dict[str, Any]) -> None:
    shutdown = trio.Event()
    token = trio.lowlevel.current_trio_token()
    # A thread and not a task, because a handler may block the event loop.
    watch = threading.Thread(target=_watch_supervisor, args=(mine, token, shutdown), daemon=True)
    # SIGHUP is received as well, or it would end this process: a program such as `systemctl kill` sends it to all.
    with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM, signal.SIGHUP) as signals:
        watch.start()
        async with background_nursery() as nursery:

            async def await_signals() -> None:
                async for number in signals:
                    if number != signal.SIGHUP:
                        shutdown.set()

            async def beat() -> None:
                while True:
                    _report(mine, b"")
                    # Listeners of the stores look at the same moments, so that the process wakes up once for both.
                    await trio.sleep(BEAT - trio.current_time() % BEAT)

            async def serve_to_the_end(task_status: trio.TaskStatus[str]) -> None:  # noqa: ASYNC128 - passes it on
                await serve(shutdown=shutdown, task_status=task_status, **arguments)
                nursery.cancel_scope.cancel("the server has ended")

            nursery.start_soon(await_signals)
            nursery.start_soon(beat)
            await start(nursery, serve_to_the_end)
            _report(mine, READY)
            await trio.sleep_forever()  # until the server ends


def _watch_supervisor(mine: Inherited, token: trio.lowlevel.TrioToken, shutdown: trio.Event) -> None:
    """Shut this process down when the supervisor has ended, and end it if that takes too long."""
    while os.read(mine.control, MAX_LINE):
        pass  # the supervisor writes nothing more
    with contextlib.suppress(trio.RunFinishedError):
        token.run_sync_soon(shutdown.set)
    # Without a supervisor, a process whose event loop is blocked has to end itself. `sleep` takes no infinite time.
    time.sleep(min(mine.grace, threading.TIMEOUT_MAX / 2) + EXTRA)
    os._exit(1)
