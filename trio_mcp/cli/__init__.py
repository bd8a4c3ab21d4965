"""Floor 6: the command line."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Sequence

from trio_mcp.cli.exits import CLOSED_PIPE, INTERRUPTED, USAGE, Exit, exit_of
from trio_mcp.cli.parser import COMMANDS, parse
from trio_mcp.errors import TrioMcpError

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run ``trio-mcp``.

    Args:
        arguments: The command line without the program's name; by default that of the process.

    Returns:
        The exit status: see `trio_mcp.cli.exits`.
    """
    options = parse(sys.argv[1:] if arguments is None else arguments)
    try:
        # Only now: `--help` and completion load none of what the commands need.
        command = importlib.import_module(COMMANDS[options.command].module)
        status: int = command.run(options)
        sys.stdout.flush()
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        # Nobody reads on, as in `| head`. The interpreter would complain when it flushes the rest.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return CLOSED_PIPE
    except Exit as exc:
        return _complain(options.command, str(exc), exc.status)
    except TrioMcpError as exc:
        return _complain(options.command, str(exc), exit_of(exc))
    return status


def _complain(command: str, text: str, status: int) -> int:
    from trio_mcp.cli.text import clean

    hint = f"\nSee `trio-mcp {command} --help`." if status == USAGE else ""
    print(f"trio-mcp {command}: {clean(text)}{hint}", file=sys.stderr)
    return status
