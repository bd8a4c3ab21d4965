"""A child process in a process group of its own, from its start to the end of the last of its descendants."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypeAlias

import attrs
import trio

from trio_mcp.errors import TransportError

__all__ = ["StderrSink", "StdioServerParameters", "copy_stderr", "default_environment", "end_process", "start_process"]

logger = logging.getLogger("trio_mcp")

StderrSink: TypeAlias = Literal["inherit", "discard"] | Callable[[str], Awaitable[object] | object]

# What a program needs to find its files and speak the user's language; nothing that could hold a secret.
SAFE_VARIABLES = ("HOME", "LANG", "LC_ALL", "LOGNAME", "PATH", "SHELL", "TERM", "TMPDIR", "TZ", "USER")

STDERR_LINE = 8192
"""Bytes after which a line of standard error without a newline is taken as it is."""

STDERR_TAIL = 20
"""Lines of standard error kept for the error message."""


def default_environment() -> dict[str, str]:
    """The variables that a server inherits besides those given to it."""
    found = {name: os.environ[name] for name in SAFE_VARIABLES if name in os.environ}
    # A shell function exported by bash, which could run code in the child.
    return {name: value for name, value in found.items() if not value.startswith("()")}


def _strings(instance: object, attribute: attrs.Attribute[Any], value: Any) -> None:
    if isinstance(value, (str, bytes)) or not all(isinstance(item, str) for item in value):
        raise TypeError(f"{attribute.name} must be a sequence of strings, got {value!r}")


def _environment(instance: object, attribute: attrs.Attribute[Any], value: Any) -> None:
    if not isinstance(value, Mapping) or not all(isinstance(x, str) for pair in value.items() for x in pair):
        raise TypeError("env must map strings to strings")


def _command(instance: object, attribute: attrs.Attribute[Any], value: Any) -> None:
    if not isinstance(value, str) or not value:
        raise TypeError(f"command must be a non-empty string (the program; its arguments go into args), got {value!r}")


def _stderr(instance: object, attribute: attrs.Attribute[Any], value: Any) -> None:
    if not callable(value) and value not in ("inherit", "discard"):
        raise ValueError(f"stderr must be 'inherit', 'discard' or a callable that takes a line, got {value!r}")


@attrs.frozen
class StdioServerParameters:
    """How to start a server that speaks over its standard input and output.

    Attributes:
        command: The program: a name to look up in PATH, or a path.
        args: Its arguments.
        env: Environment variables on top of a short safe list (`default_environment`).
        cwd: Its working directory; None for this process's own.
        stderr: What becomes of its standard error: ``"inherit"`` shows it on ours, ``"discard"`` drops it, and a
            callable (sync or async) gets it line by line. In each case the last lines are kept for error messages.
        shutdown_grace: Seconds that the process is given to exit, first after its standard input was closed, and
            again after SIGTERM; then it is killed.
    """

    command: str = attrs.field(validator=_command)
    args: Sequence[str] = attrs.field(default=(), validator=_strings)
    env: Mapping[str, str] = attrs.field(factory=dict, kw_only=True, validator=_environment)
    cwd: str | Path | None = attrs.field(default=None, kw_only=True)
    stderr: StderrSink = attrs.field(default="inherit", kw_only=True, validator=_stderr)
    shutdown_grace: float = attrs.field(default=2.0, kw_only=True)


async def start_process(params: StdioServerParameters) -> trio.Process:
    """Start the process, leader of a new group, with pipes for all three standard streams.

    Raises:
        TransportError: It can't be started; the message says why, and what to look at.
    """
    try:
        return await trio.lowlevel.open_process(
            [params.command, *params.args],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=default_environment() | dict(params.env),
            cwd=params.cwd,
            process_group=0,
        )
    except FileNotFoundError as exc:
        if params.cwd is not None and not Path(params.cwd).is_dir():  # noqa: ASYNC240 - on the way to an error
            raise TransportError(
                f"can't start {params.command!r}: the directory cwd={str(params.cwd)!r} does not exist"
            ) from exc
        advice = "check the spelling, or give its full path"
        raise TransportError(f"can't start {params.command!r}: no such command in PATH; {advice}") from exc
    except (OSError, ValueError) as exc:
        raise TransportError(f"can't start {params.command!r}: {exc}") from exc


async def end_process(process: trio.Process, grace: float) -> None:
    """End the process, if it is still there, and whatever is left of its group: SIGTERM, `grace` seconds, SIGKILL.

    When cancelled it still ends everything, with a moment in place of the grace.
    """
    try:
        if process.returncode is None:
            _signal_group(process, signal.SIGTERM)
            with trio.move_on_after(grace):
                await process.wait()
    finally:
        with trio.CancelScope(shield=True):  # bounded: after SIGKILL there is nothing left to wait for
            if process.returncode is None:
                _signal_group(process, signal.SIGTERM)
                with trio.move_on_after(TERM_MOMENT):
                    await process.wait()
            # Also after a clean exit: what the server has started may still be there.
            _signal_group(process, signal.SIGKILL)
            await process.wait()


TERM_MOMENT = 0.2
"""Seconds between SIGTERM and SIGKILL on a cancelled way out."""


def _signal_group(process: trio.Process, number: signal.Signals) -> None:
    try:
        os.killpg(process.pid, number)
    except (ProcessLookupError, PermissionError):  # nobody left; on macOS a zombie's group gives the latter
        pass


async def copy_stderr(stream: trio.abc.ReceiveStream, sink: StderrSink, tail: deque[str]) -> None:
    """Bring the child's standard error to where it should go, line by line, keeping the last lines in `tail`."""
    rest = b""
    while chunk := await _receive(stream):
        *lines, rest = (rest + chunk).split(b"\n")
        if len(rest) > STDERR_LINE:
            lines.append(rest)
            rest = b""
        for line in lines:
            await _put_line(line, sink, tail)
    if rest:
        await _put_line(rest, sink, tail)


async def _receive(stream: trio.abc.ReceiveStream) -> bytes | bytearray:
    try:
        return await stream.receive_some(STDERR_LINE)
    except trio.BrokenResourceError:
        return b""


async def _put_line(line: bytes, sink: StderrSink, tail: deque[str]) -> None:
    text = line.decode("utf-8", "replace").removesuffix("\r")
    tail.append(text)
    if sink == "discard":
        return
    if sink == "inherit":
        # In a thread: whoever reads our standard error may be slow, and must not stop the event loop.
        await trio.to_thread.run_sync(_write_stderr, line + b"\n", abandon_on_cancel=True)
        return
    assert not isinstance(sink, str)
    try:
        outcome = sink(text)
        if isinstance(outcome, Awaitable):
            await outcome
    except Exception:
        logger.exception("the callback for standard error failed")


def _write_stderr(data: bytes) -> None:
    try:
        while data:
            data = data[os.write(2, data) :]
    except OSError:
        pass  # our standard error is closed: nobody wants to see it
