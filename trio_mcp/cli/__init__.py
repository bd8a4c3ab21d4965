"""The command line of ``trio-mcp``."""

from __future__ import annotations

import argparse
import errno
import os
import sys
from collections.abc import Callable, Sequence

from trio_mcp.cli.exits import CLOSED_PIPE, FAILED, INTERRUPTED, USAGE, Exit, exit_of
from trio_mcp.cli.messages import complaint
from trio_mcp.cli.parser import parse
from trio_mcp.errors import TrioMcpError

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run ``trio-mcp``.

    Args:
        arguments: The command line without the program's name; by default the one that the process was started with.

    Returns:
        The exit status: see `trio_mcp.cli.exits`.
    """
    options = parse(sys.argv[1:] if arguments is None else arguments)
    try:
        os.getcwd()
    except FileNotFoundError:  # without a current folder, a relative file name has no meaning
        return _complain(options.command, "the current folder has been deleted; change to another one", FAILED, False)
    try:
        status = _command(options.command)(options)
        # The output is flushed before the interpreter exits, so that the errors for a closed pipe and a full disk can
        # still be handled.
        sys.stdout.flush()
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:  # the reader has closed the pipe, as in `| head`
        _drop_output()
        return CLOSED_PIPE
    except Exit as exc:
        return _complain(options.command, str(exc), exc.status, exc.hint, exc.traceback)
    except TrioMcpError as exc:
        status = exit_of(exc)
        return _complain(options.command, str(exc), status, status == USAGE)
    except OSError as exc:  # this clause is last, as some of our errors are OSErrors, too (TimeoutError)
        # Only an error from a full or broken disk is handled: any other OSError is a bug, whose traceback should be
        # seen.
        if exc.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO):
            raise
        _drop_output()
        return _complain(options.command, f"can't write the output: {exc.strerror}", FAILED, False)
    return status


def _command(name: str) -> Callable[[argparse.Namespace], int]:
    """Return the function that runs a command."""
    # Each command's module is imported only when that command runs, so that `--help` and `completion` start fast.
    match name:
        case "run":
            from trio_mcp.cli.run import run
        case "bridge":
            from trio_mcp.cli.run import bridge as run
        case "worker":
            from trio_mcp.cli.worker import run
        case "stores":
            from trio_mcp.cli.stores import run
        case "new":
            from trio_mcp.cli.new import run
        case "publish":
            from trio_mcp.cli.publish import run
        case "install":
            from trio_mcp.cli.install import run
        case "config":
            from trio_mcp.cli.config import run
        case "check":
            from trio_mcp.cli.check import run
        case "bench":
            from trio_mcp.cli.bench import run
        case "dev":
            from trio_mcp.cli.dev import run
        case "record":
            from trio_mcp.cli.record import run
        case "replay":
            from trio_mcp.cli.replay import run
        case "login" | "logout" | "logins":
            from trio_mcp.cli.logins import COMMANDS

            return COMMANDS[name]
        case _:
            return _other_command(name)
    return run


def _other_command(name: str) -> Callable[[argparse.Namespace], int]:
    match name:
        case "completion":
            from trio_mcp.cli.completion import run
        case "snapshot":
            from trio_mcp.cli.snapshot import run
        case "demo":
            from trio_mcp.cli.demo import run
        case _:
            from trio_mcp.cli.client_commands import run
    return run


def _drop_output() -> None:
    """Redirect standard output to the null device."""
    # On exit, the interpreter flushes standard output once more. If that flush failed, the interpreter would complain
    # on standard error and exit with status 120.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _complain(command: str, text: str, status: int, hint: bool, traceback: str = "") -> int:
    from trio_mcp.cli.text import clean

    if traceback:
        print(clean(traceback), file=sys.stderr)
    if text:
        print(complaint(command, clean(text), hint=hint), file=sys.stderr)
    return status
