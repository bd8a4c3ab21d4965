"""The command line's grammar, as a table. It loads nothing heavy: ``--help`` and completion need only this."""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Sequence

import attrs

from trio_mcp._version import __version__
from trio_mcp.types.versions import REVISIONS

__all__ = ["COMMANDS", "Command", "Parser", "command_parser", "parse"]

TARGETS = """\
TARGET is one of
  server.py, server.py:name      a server's file, started as `trio-mcp run` does
  package.module:name            the same, by its import name
  mcp.json#name                  an entry of an mcpServers file
  https://host/mcp               a URL
In place of a TARGET, the line may end in -- COMMAND [ARGUMENT ...], which starts a server."""


class Parser(argparse.ArgumentParser):
    """A parser whose arguments can be listed, for completion."""

    @property
    def actions(self) -> Sequence[argparse.Action]:
        """Its arguments and options, in their order."""
        return self._actions


@attrs.frozen
class Command:
    """A command.

    Attributes:
        help: What it does, in a line.
        declare: Adds its arguments.
        has_target: Whether it talks to a server.
    """

    help: str
    declare: Callable[[Parser], None]
    has_target: bool = False


def _seconds(text: str) -> float:
    value = float(text)
    if not 0 < value < math.inf:
        raise ValueError(text)
    return value


_seconds.__name__ = "number of seconds"  # what argparse calls it


def _pair(text: str) -> tuple[str, str]:
    name, separator, value = text.partition("=")
    if not separator or not name:
        raise argparse.ArgumentTypeError(f"{text!r} must have the form NAME=VALUE")
    return name, value


def _header(text: str) -> tuple[str, str]:
    name, separator, value = text.partition(":")
    if not separator or not name:
        raise argparse.ArgumentTypeError("a header must have the form 'Name: value'")
    return name.strip(), value.strip()


def _connection(parser: Parser) -> None:
    group = parser.add_argument_group("the connection")
    group.add_argument(
        "--mode",
        default="auto",
        choices=("auto", "legacy", *REVISIONS),
        metavar="MODE",
        help="auto (the default), legacy or a revision",
    )
    group.add_argument("--env", action="append", default=[], type=_pair, metavar="NAME=VALUE", help="for its process")
    group.add_argument("--header", action="append", default=[], type=_header, metavar="'NAME: VALUE'", help="for a URL")
    group.add_argument("--root", action="append", default=[], metavar="DIR", help="where the server may work")
    group.add_argument("--timeout", type=_seconds, metavar="SECONDS", help="to wait for an answer")
    group.add_argument(
        "--log-level",
        choices=("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"),
        metavar="LEVEL",
        help="show the server's log messages from this level on",
    )


def _json(parser: Parser) -> None:
    parser.add_argument("--json", action="store_true", help="print JSON")


def _run(parser: Parser) -> None:
    parser.add_argument("server", metavar="FILE[:NAME]", help="a server's file, or package.module:name")
    parser.add_argument("--reload", action="store_true", help="start it anew when a Python file beside it changes")
    _serving(parser)


def _serving(parser: Parser) -> None:
    parser.add_argument("--transport", default="stdio", metavar="NAME", help="stdio (the default), http, ...")
    parser.add_argument("--host", help="the address to listen on")
    parser.add_argument("--port", type=int, help="the port to listen on; 0 takes a free one")
    group = parser.add_argument_group("for http and sse")
    group.add_argument("--path", help="the path of the endpoint")
    group.add_argument("--sse-path", metavar="PATH", help="where to serve HTTP+SSE, too, for old clients")
    group.add_argument("--stateless", action="store_const", const=True, help="keep no sessions")
    group.add_argument("--json-only", action="store_const", const=True, help="answer with JSON, never with a stream")
    group.add_argument("--allowed-host", action="append", metavar="NAME", help="a name the server may be reached by")
    group.add_argument("--allowed-origin", action="append", metavar="ORIGIN", help="a page that may call; * for any")
    group.add_argument("--cors", action="store_const", const=True, help="let browsers hand answers to those pages")
    group.add_argument("--event-store", metavar="FILE", help="keep what is sent, for clients whose connection breaks")


def _list(parser: Parser) -> None:
    for kind in ("tools", "prompts", "resources", "templates"):
        parser.add_argument(
            f"--{kind}", action="append_const", dest="kinds", const=kind, help=f"only the {kind}, and others named"
        )
    _json(parser)


def _call(parser: Parser) -> None:
    parser.add_argument("tool", metavar="TOOL")
    parser.add_argument(
        "arguments",
        nargs="*",
        metavar="ARGUMENT",
        help="name=value, read by the tool's schema; name:=json; or one JSON object; - reads that from standard input",
    )
    parser.add_argument("--total-timeout", type=_seconds, metavar="SECONDS", help="how long the call may last at most")
    _json(parser)


def _read(parser: Parser) -> None:
    parser.add_argument("uri", metavar="URI")
    parser.add_argument("--output", metavar="FILE", help="write it to a file")
    _json(parser)


def _prompt(parser: Parser) -> None:
    parser.add_argument("prompt", metavar="NAME")
    parser.add_argument("arguments", nargs="*", type=_pair, metavar="name=value")
    _json(parser)


def _completion(parser: Parser) -> None:
    parser.add_argument("shell", choices=("bash", "zsh", "fish"))


COMMANDS = {
    "run": Command("serve a server's file", _run),
    "bridge": Command("serve what another server offers, over another transport", _serving, True),
    "list": Command("list what a server offers", _list, True),
    "inspect": Command("show all that a server says of itself and offers", _json, True),
    "call": Command("call a tool", _call, True),
    "read": Command("read a resource", _read, True),
    "prompt": Command("fill in a prompt", _prompt, True),
    "completion": Command("print a script that completes commands and options", _completion),
    "demo": Command("start a server over each transport, call its tools, and show what happened", lambda parser: None),
}


def command_parser(name: str, *, process: bool = False) -> Parser:
    """The parser of one command.

    Args:
        name: The command.
        process: Whether the line ends in ``-- COMMAND``, so that there is no TARGET.
    """
    command = COMMANDS[name]
    parser = Parser(
        prog=f"trio-mcp {name}",
        description=f"{command.help[:1].upper()}{command.help[1:]}.",
        epilog=TARGETS if command.has_target else None,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    if command.has_target and not process:
        parser.add_argument("target", metavar="TARGET", help="the server, see below")
    command.declare(parser)
    if command.has_target:
        _connection(parser)
    return parser


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """Read a command line.

    Raises:
        SystemExit: After ``--help`` or ``--version`` with status 0, after a wrong line with status 2.
    """
    width = max(map(len, COMMANDS))
    listing = "\n".join(f"  {name:{width}}  {command.help}" for name, command in COMMANDS.items())
    top = Parser(
        prog="trio-mcp",
        usage="trio-mcp [-h] [--version] COMMAND ...",
        description="The Model Context Protocol for Trio.",
        epilog=f"commands:\n{listing}\n\n`trio-mcp COMMAND --help` tells more.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    top.add_argument("--version", action="version", version=f"trio-mcp {__version__}")
    name = arguments[0] if arguments else None
    if name is None or name not in COMMANDS:
        if name is not None and name.startswith("-"):
            top.parse_args(arguments[:1])
        top.error(f"the command must be one of {', '.join(COMMANDS)}" + ("" if name is None else f"; got {name!r}"))
    rest = list(arguments[1:])
    process: list[str] | None = None
    if COMMANDS[name].has_target and "--" in rest:
        at = rest.index("--")
        rest, process = rest[:at], rest[at + 1 :]
    parser = command_parser(name, process=process is not None)
    if process == []:
        parser.error("after -- there must be a command that starts a server")
    options = parser.parse_intermixed_args(rest)
    options.command, options.process = name, process
    return options
