"""The grammar of the command line, as a table. It imports nothing heavy: ``--help`` and completion need only this."""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from typing import Any

import attrs

from trio_mcp._version import __version__
from trio_mcp.types.versions import REVISIONS

__all__ = ["COMMANDS", "Argument", "Command", "parse"]

TARGETS = """\
TARGET is one of
  server.py, server.py:name      a server's file, started as `trio-mcp run` does
  package.module:name            the same, by import name
  mcp.json#name                  an entry of an mcpServers file
  https://host/mcp               a URL, which may also begin with http:, ws:, wss:, tcp:, tls: or unix:
Instead of a TARGET, the line may end with -- COMMAND [ARGUMENT ...], a command that starts a server."""


class Argument:
    """An argument or option: its name, and the settings for `argparse`."""

    def __init__(self, name: str, **settings: Any) -> None:
        self.name = name
        self.settings = settings


@attrs.frozen
class Command:
    """A command.

    Attributes:
        help: Its purpose, in one line.
        arguments: Its own arguments and options.
        serves: Whether it has the options of a server over HTTP, WebSocket, TCP or a Unix socket.
        has_target: Whether it talks to a server, and so has a TARGET and the options of the connection.
        own_client: Whether it does so without a `Client`, and so has only the options for reaching the server.
    """

    help: str
    arguments: tuple[Argument, ...] = ()
    serves: bool = False
    has_target: bool = False
    own_client: bool = False

    def groups(self) -> dict[str | None, tuple[Argument, ...]]:
        """Return all arguments and options except the TARGET, under their headings in `--help`."""
        found: dict[str | None, tuple[Argument, ...]] = {None: self.arguments}
        if self.serves:
            found["for http, sse and websocket"] = HTTP
            found["for tcp and unix"] = SOCKETS
        if self.has_target:
            found["the connection"] = REACHING if self.own_client else CONNECTION
        return found


def _seconds(text: str) -> float:
    value = float(text)
    # NaN fails this comparison, too.
    if not 0 < value < math.inf:
        raise ValueError(text)
    return value


_seconds.__name__ = "number of seconds"  # argparse names the type by it: "invalid number of seconds value"


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


def _duration(text: str) -> float:
    return _seconds(text[:-1]) * UNITS[text[-1]] if text[-1:] in UNITS else _seconds(text)


UNITS = {"s": 1, "m": 60, "h": 3600}
_duration.__name__ = "time, such as 90s or 5m,"


def _positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise ValueError(text)
    return value


_positive.__name__ = "number from 1"

# Options of the commands that talk to a server.
REACHING = (
    Argument("--env", action="append", default=[], type=_pair, metavar="NAME=VALUE", help="a variable for its process"),
    Argument("--header", action="append", default=[], type=_header, metavar="'NAME: VALUE'", help="a header for a URL"),
    Argument(
        "--variable",
        action="append",
        default=[],
        type=_pair,
        metavar="NAME=VALUE",
        help="a variable of an mcpServers file, such as workspaceFolder or input:key",
    ),
)
CONNECTION = (
    Argument(
        "--mode",
        default="auto",
        choices=("auto", "legacy", *REVISIONS),
        metavar="MODE",
        help="auto (the default), legacy or a revision",
    ),
    *REACHING,
    Argument("--root", action="append", default=[], metavar="DIR", help="a directory the server may work in"),
    Argument("--timeout", type=_seconds, metavar="SECONDS", help="how long to wait for a response"),
    Argument(
        "--log-level",
        # Those of `LoggingLevel`, repeated because its module imports pydantic.
        choices=("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"),
        metavar="LEVEL",
        help="show the server's log messages of this level and above",
    ),
)
# Options of the commands that serve. Host and port are None unless given, so that the runner's defaults count.
SERVING = (
    Argument(
        "--transport", default="stdio", metavar="NAME", help="stdio (the default), http, sse, websocket, tcp, unix, ..."
    ),
    Argument("--host", help="the address to listen on; with 0.0.0.0, web pages need --allowed-host"),
    Argument("--port", type=int, help="the port to listen on; 0 picks a free one"),
)
# `store_const` rather than `store_true`, so that an option that is not given is None here, too.
HTTP = (
    Argument(
        "--runner",
        choices=("hypercorn", "h11", "httptools"),  # `RUNNERS`, repeated because its module imports attrs and more
        metavar="NAME",
        help="what speaks HTTP: hypercorn (the default), h11 or httptools, which are faster",
    ),
    Argument("--path", help="the path of the endpoint; for unix, that of the socket"),
    Argument("--sse-path", metavar="PATH", help="a path for HTTP+SSE as well, for old clients"),
    Argument("--stateless", action="store_const", const=True, help="keep no sessions"),
    Argument("--json-only", action="store_const", const=True, help="respond with JSON, never with a stream"),
    Argument("--allowed-host", action="append", metavar="NAME", help="a name by which the server may be reached"),
    Argument("--allowed-origin", action="append", metavar="ORIGIN", help="the origin of a web page; * for any"),
    Argument("--cors", action="store_const", const=True, help="let browsers pass responses to those pages"),
    Argument("--event-store", metavar="FILE", help="store what is sent, for clients whose connection breaks"),
)
SOCKETS = (
    Argument("--allow-remote", action="store_const", const=True, help="let other machines connect without TLS"),
    Argument("--certificate", metavar="FILE", help="serve TLS, with this certificate"),
    Argument("--key", metavar="FILE", help="the key of the certificate; by default it is in the same file"),
    Argument("--permissions", metavar="OCTAL", help="who may connect to the Unix socket; 600 by default"),
)
JSON = Argument("--json", action="store_true", help="print JSON")
# Options of `check`.
TIMEOUT = Argument("--timeout", type=_seconds, metavar="SECONDS", help="how long to wait for a response (10)")
CHECKING = (
    Argument("--client", action="store_true", help="check a client: -- COMMAND is started with the URL of a server"),
    Argument(
        "--revision",
        action="append",
        dest="revisions",
        choices=REVISIONS,
        metavar="REVISION",
        help="speak this revision; by default the newest of each era that it speaks",
    ),
    Argument(
        "--rules",
        action="append",
        metavar="RULES",
        help="only these: ids, patterns with * or section:PREFIX, with commas between them",
    ),
    Argument("--examples", type=_positive, metavar="N", help="how many examples to run (200; with --client 50)"),
    Argument("--time", type=_duration, default=60.0, metavar="TIME", help="how long to run at most (60s)"),
    Argument("--seed", type=int, default=0, metavar="N", help="the same seed sends the same messages (0)"),
    TIMEOUT,
    Argument("--rate", type=_seconds, metavar="N", help="send at most N requests a second"),
    Argument("--allow-writes", action="store_true", help="call every tool, not only those annotated read-only"),
    Argument("--tool", action="append", default=[], metavar="NAME", help="call this tool as well"),
    Argument(
        "--report",
        action="append",
        default=[],
        metavar="FILE",
        help="write a report: FILE.html, .json, .xml (JUnit), .sarif or .txt; can be repeated",
    ),
    Argument("--replays", metavar="DIR", help="where to write what replays a failure; by default beside the report"),
    Argument("--baseline", metavar="FILE", help="rules that are known to be broken, as lines of RULE: REASON"),
    Argument("--write-baseline", metavar="FILE", help="write the rules that are broken now as a baseline"),
    Argument("--dry-run", action="store_true", help="connect, list, and say what would be done"),
    JSON,
)

COMMANDS = {
    "run": Command(
        "serve a server's file",
        (
            Argument("server", metavar="FILE[:NAME]", help="a server's file, or package.module:name"),
            Argument("--reload", action="store_true", help="restart it when a Python file beside it changes"),
            *SERVING,
        ),
        serves=True,
    ),
    "bridge": Command(
        "serve what another server offers, over another transport", SERVING, serves=True, has_target=True
    ),
    "list": Command(
        "list what a server offers",
        (
            *(
                Argument(
                    f"--{kind}",
                    action="append_const",
                    dest="kinds",
                    const=kind,
                    help=f"list only the {kind}; can be combined",
                )
                for kind in ("tools", "prompts", "resources", "templates")
            ),
            JSON,
        ),
        has_target=True,
    ),
    "inspect": Command("show everything that a server says about itself and offers", (JSON,), has_target=True),
    "call": Command(
        "call a tool",
        (
            Argument("tool", metavar="TOOL"),
            Argument(
                "arguments",
                nargs="*",
                metavar="ARGUMENT",
                help="name=value, read by the tool's schema; name:=json; or one JSON object; "
                "- reads that object from standard input",
            ),
            Argument("--total-timeout", type=_seconds, metavar="SECONDS", help="how long the call may take in total"),
            JSON,
        ),
        has_target=True,
    ),
    "read": Command(
        "read a resource",
        (Argument("uri", metavar="URI"), Argument("--output", metavar="FILE", help="write it to a file"), JSON),
        has_target=True,
    ),
    "prompt": Command(
        "fill in a prompt",
        (
            Argument("prompt", metavar="NAME"),
            Argument("arguments", nargs="*", type=_pair, metavar="name=value"),
            JSON,
        ),
        has_target=True,
    ),
    "check": Command("check a server or client against the specification", CHECKING, has_target=True, own_client=True),
    "record": Command(
        "record what a client and a server say to each other",
        (
            Argument("file", metavar="FILE", help="the transcript to write"),
            Argument("--port", type=int, default=0, help="the port to listen on for a URL; by default a free one"),
        ),
        has_target=True,
        own_client=True,
    ),
    "replay": Command(
        "send once more what a recorded client said, and compare what comes back",
        (
            Argument("file", metavar="FILE", help="a transcript, or what `check` wrote for a failure"),
            TIMEOUT,
            JSON,
        ),
        has_target=True,
        own_client=True,
    ),
    "completion": Command(
        "print a script that completes commands and options", (Argument("shell", choices=("bash", "zsh", "fish")),)
    ),
    "demo": Command("start a server over each transport, call its tools, and show what happened"),
}


def _command_parser(name: str, *, process: bool = False) -> argparse.ArgumentParser:
    """Return the parser of one command.

    Args:
        name: The command.
        process: Whether the line ends with ``-- COMMAND``, so that there is no TARGET.
    """
    command = COMMANDS[name]
    parser = argparse.ArgumentParser(
        prog=f"trio-mcp {name}",
        description=f"{command.help[:1].upper()}{command.help[1:]}.",
        epilog=TARGETS if command.has_target else None,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        # A shortened option would mean something else, or nothing, once there is another one that begins like it.
        allow_abbrev=False,
    )
    # The file of `record` and `replay` comes first, as that of `cp` does.
    ahead = [each for each in command.arguments if each.name == "file"]
    for each in ahead:
        parser.add_argument(each.name, **each.settings)
    if command.has_target and not process:
        parser.add_argument("target", metavar="TARGET", help="the server; see below")
    for heading, arguments in command.groups().items():
        group = parser if heading is None else parser.add_argument_group(heading)
        for each in arguments:
            if each in ahead:
                continue
            group.add_argument(each.name, **each.settings)
    return parser


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """Parse a command line.

    Raises:
        SystemExit: After ``--help`` or ``--version``, with status 0; if the line is invalid, with status 2.
    """
    # Each command's parser is made when it is needed, instead of argparse's subparsers, which make all of them.
    width = max(map(len, COMMANDS))
    listing = "\n".join(f"  {name:{width}}  {command.help}" for name, command in COMMANDS.items())
    top = argparse.ArgumentParser(
        prog="trio-mcp",
        usage="trio-mcp [-h] [--version] COMMAND ...",
        description="The Model Context Protocol for Trio.",
        epilog=f"commands:\n{listing}\n\nSee `trio-mcp COMMAND --help` for more.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    top.add_argument("--version", action="version", version=f"trio-mcp {__version__}")
    name = arguments[0] if arguments else None
    if name is None or name not in COMMANDS:
        # `--help` and `--version`; anything else ends in an error here.
        if name is not None and name.startswith("-"):
            top.parse_args(arguments[:1])
        top.error(f"the command must be one of {', '.join(COMMANDS)}" + ("" if name is None else f"; got {name!r}"))
    rest = list(arguments[1:])
    process: list[str] | None = None
    # Cut off before argparse sees it: the command has options of its own.
    if COMMANDS[name].has_target and "--" in rest:
        at = rest.index("--")
        rest, process = rest[:at], rest[at + 1 :]
    parser = _command_parser(name, process=process is not None)
    if process == []:
        parser.error("-- must be followed by a command that starts a server")
    # Intermixed: options may stand between the positional arguments, `call TARGET --json TOOL`.
    options = parser.parse_intermixed_args(rest)
    options.command, options.process = name, process
    return options
