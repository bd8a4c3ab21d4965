"""The grammar of the command line, as a table, without heavy imports: ``--help`` and completion need nothing else."""

from __future__ import annotations

import argparse
import itertools
import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NoReturn, TypeVar

import attrs

from trio_mcp._keywords import did_you_mean
from trio_mcp._version import __version__
from trio_mcp.cli.hosts import HOSTS
from trio_mcp.cli.messages import complaint
from trio_mcp.types.versions import REVISIONS

T = TypeVar("T")

__all__ = ["COMMANDS", "Argument", "Command", "parse"]

TARGETS = """\
TARGET is one of
  server.py, server.py:name    a server's file, started as `trio-mcp run` does
  package.module:name          the same, by import name
  mcp.json#name                an entry of an mcpServers file
  https://host/mcp             a URL; also http:, ws:, wss:, tcp:, tls:, unix:
After a file or module, the line may end with -- ARGUMENT ..., arguments for it.
Without a TARGET, the line may end with -- COMMAND ..., which starts a server."""


class Argument:
    """An argument or option: its name, and the settings for `argparse`.

    Args:
        name: The name, which begins with ``--`` if this is an option.
        otherwise: The end of the error message about a value that is not similar to any of the choices.
        settings: The keyword arguments of ``add_argument`` in `argparse`.
    """

    def __init__(self, name: str, *, otherwise: str = "", **settings: Any) -> None:
        self.name = name
        self.otherwise = otherwise
        self.settings = settings


@attrs.frozen
class Command:
    """A command of ``trio-mcp``.

    Attributes:
        help: The purpose of the command, in one line.
        arguments: Its own arguments and options.
        examples: Command lines for its `--help`.
        serves: Whether it has the options of a server over HTTP, WebSocket, TCP or a Unix socket.
        has_target: Whether it connects to a server, and therefore has a TARGET and the options of the connection.
        own_client: Whether it connects without a `Client`, and therefore has only the options for reaching the server.
        passes_arguments: Whether it has a FILE, which gets the words after ``--`` as its arguments.
    """

    help: str
    arguments: tuple[Argument, ...] = ()
    examples: tuple[str, ...] = attrs.field(default=(), kw_only=True)
    serves: bool = False
    has_target: bool = False
    own_client: bool = False
    passes_arguments: bool = False

    def groups(self) -> dict[str | None, tuple[Argument, ...]]:
        """Return all arguments and options except the TARGET, grouped by their headings in `--help`."""
        found: dict[str | None, tuple[Argument, ...]] = {None: self.arguments}
        if self.serves:
            found["for http, sse and websocket"] = HTTP
            found["for tcp and unix"] = SOCKETS
        if self.has_target:
            found["the connection"] = REACHING if self.own_client else CONNECTION
        return found


class _Parser(argparse.ArgumentParser):
    """A parser that reports errors in one line, without the usage, which takes ten lines for some commands."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, complaint(self.prog.removeprefix("trio-mcp").strip(), message, hint=True) + "\n")


def _one_of(choices: Sequence[str], otherwise: str) -> Callable[[str], str]:
    """Return a type for `argparse` that accepts these choices; its message is the same in every version of Python.

    Args:
        choices: The choices.
        otherwise: The end of the error message about a word that is not similar to any choice.
    """

    def chosen(text: str) -> str:
        if text not in choices:
            meant = did_you_mean(text, choices)
            raise argparse.ArgumentTypeError(f"must be one of {', '.join(choices)}; got {text!r}{meant or otherwise}")
        return text

    return chosen


def _typed(what: str, read: Callable[[str], T]) -> Callable[[str], T]:
    """Return a type for `argparse` whose error message says what the value must be."""

    def typed(text: str) -> T:
        try:
            return read(text)
        except ValueError:
            raise argparse.ArgumentTypeError(f"must be {what}; got {text!r}") from None

    return typed


def _above_zero(text: str) -> float:
    value = float(text)
    # The comparison is also false for NaN.
    if not 0 < value < math.inf:
        raise ValueError(text)
    return value


def _duration(text: str) -> float:
    return _above_zero(text[:-1]) * UNITS[text[-1]] if text[-1:] in UNITS else _above_zero(text)


def _from_one(text: str, most: float = math.inf) -> int:
    value = int(text)
    if not 1 <= value <= most:
        raise ValueError(text)
    return value


UNITS = {"s": 1, "m": 60, "h": 3600}
SECONDS = _typed("a number of seconds", _above_zero)
NUMBER = _typed("a number above 0", _above_zero)
TIME = _typed("a time, such as 90s or 5m", _duration)
WHOLE = _typed("a whole number", int)
FROM_ONE = _typed("a whole number of at least 1", _from_one)
PORT = _typed("a port from 1 to 65535", partial(_from_one, most=65535))
PROCESSES = _typed("a number of processes from 1 to 256", partial(_from_one, most=256))


def _ladder(text: str) -> tuple[int, ...]:
    steps = tuple(map(int, text.split(",")))
    # There must be 1 to 20 steps (arbitrary), each higher than the one before.
    if not 1 <= steps[0] <= steps[-1] <= MOST_IN_FLIGHT or [*steps] != sorted({*steps}) or len(steps) > 20:
        raise ValueError(text)
    return steps


# An arbitrary limit: with more calls in flight, a single client would only measure its own queue.
MOST_IN_FLIGHT = 1024
LADDER = _typed(f"up to 20 whole numbers in rising order, from 1 to {MOST_IN_FLIGHT}, such as 1,4,16,64", _ladder)


def _pair(text: str) -> tuple[str, str]:
    name, separator, value = text.partition("=")
    if not separator or not name:
        raise argparse.ArgumentTypeError(f"must have the form NAME=VALUE; got {text!r}")
    return name, value


def _header(text: str) -> tuple[str, str]:
    name, separator, value = text.partition(":")
    if not separator or not name:
        raise argparse.ArgumentTypeError("must have the form 'Name: value'")
    return name.strip(), value.strip()


VARIABLE = Argument(
    "--variable",
    action="append",
    default=[],
    type=_pair,
    metavar="NAME=VALUE",
    help="a variable of an mcpServers file, such as workspaceFolder or input:key",
)
# Options of the commands that talk to a server.
REACHING = (
    Argument("--env", action="append", default=[], type=_pair, metavar="NAME=VALUE", help="a variable for the process"),
    Argument("--header", action="append", default=[], type=_header, metavar="'NAME: VALUE'", help="a header for a URL"),
    VARIABLE,
    Argument(
        "--auth",
        choices=("browser", "paste", "device", "stored", "off"),
        metavar="HOW",
        help="how to sign in to a URL: browser (the default on a terminal), paste (use a browser elsewhere), device"
        " (enter a code elsewhere), stored (the default otherwise: only use stored logins) or off",
    ),
)
# Arguments of the commands that describe a server to a host.
ENTRY = (
    Argument("server", metavar="FILE", help="a server's file, package.module:name, or the URL of a server"),
    Argument("--name", metavar="NAME", help="what the host calls the server; by default, the name of the file"),
    REACHING[0],
)
VERBOSE = Argument(
    "--verbose",
    action="store_true",
    help="show each message, and the heads of HTTP, on standard error, without secrets",
)
MODE = Argument(
    "--mode",
    default="auto",
    choices=("auto", "legacy", *REVISIONS),
    metavar="MODE",
    help="auto (the default), legacy or a revision",
)
CONNECTION = (
    MODE,
    *REACHING,
    Argument("--root", action="append", default=[], metavar="DIR", help="a directory the server may work in"),
    Argument("--timeout", type=SECONDS, metavar="SECONDS", help="how long to connect, and to wait for a response"),
    Argument(
        "--log-level",
        # The levels of `LoggingLevel`. They are repeated here, because importing them would import pydantic.
        choices=("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"),
        metavar="LEVEL",
        help="show the server's log messages of this level and above",
    ),
    VERBOSE,
)
# Options of the commands that run a server. Host and port are None unless they are given, so that the runner's defaults
# apply.
SERVING = (
    Argument(
        "--transport", default="stdio", metavar="NAME", help="stdio (the default), http, sse, websocket, tcp, unix, ..."
    ),
    Argument("--host", help="the address to listen on; with 0.0.0.0, web pages need --allowed-host"),
    Argument("--port", type=WHOLE, help="the port to listen on; 0 picks a free one"),
)
# The flags use `store_const` rather than `store_true`, so that a flag that is not given is None rather than False.
HTTP = (
    Argument(
        "--runner",
        choices=("hypercorn", "h11", "httptools"),  # the names in `RUNNERS`, whose import is slow
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
    Argument("--processes", type=PROCESSES, metavar="N", help="serve with N processes, which are replaced if they end"),
    Argument("--event-store", metavar="FILE", help="store what is sent, for clients whose connection breaks"),
    Argument("--auth-issuer", action="append", metavar="URL", help="admit only tokens of this authorization server"),
    Argument("--auth-resource", metavar="URL", help="the URL of this server, which tokens must be for"),
    Argument("--auth-scope", action="append", metavar="SCOPE", help="a scope that every token must have"),
)
SOCKETS = (
    Argument("--allow-remote", action="store_const", const=True, help="let other machines connect without TLS"),
    Argument("--certificate", metavar="FILE", help="serve TLS, with this certificate"),
    Argument("--key", metavar="FILE", help="the key of the certificate; by default it is in the same file"),
    Argument("--permissions", metavar="OCTAL", help="who may connect to the Unix socket; 600 by default"),
)
JSON = Argument("--json", action="store_true", help="print JSON")
STORES = Argument(
    "--stores",
    metavar="PLACE",
    help="what the server has as stores=: the path of a file, or the URL of an engine such as Valkey",
)
# Options of the commands that try the tokens of a server.
TOKENS = (
    Argument(
        "--auth-a",
        metavar="SOURCE",
        help="check authorization: the token of a user is in env:NAME or file:PATH; login for the stored login",
    ),
    Argument("--auth-b", metavar="SOURCE", help="the token of a second user is in env:NAME or file:PATH"),
    Argument("--auth-elsewhere", metavar="SOURCE", help="a token for another server is in env:NAME or file:PATH"),
    Argument(
        "--auth-server",
        type=PORT,
        metavar="PORT",
        help="check authorization: run an authorization server at this port, which makes all tokens; the target must"
        " accept them",
    ),
)
# Options of `check`.
TIMEOUT = Argument("--timeout", type=SECONDS, metavar="SECONDS", help="how long to wait for a response (10)")
CHECKING = (
    Argument("--client", action="store_true", help="check a client: -- COMMAND is started with the URL of a server"),
    Argument(
        "--protected",
        action="store_true",
        help="with --client: make the client sign in, and check the rules for authorization, too",
    ),
    Argument(
        "--issuers",
        action="store_true",
        help="check the authorization servers that the server at TARGET names, instead of the server",
    ),
    Argument(
        "--sign-in",
        action="store_true",
        help="with --issuers: register a client, sign in several times, and try what must be refused",
    ),
    Argument("--client-id", metavar="ID", help="with --sign-in: the id of a client that was registered"),
    Argument(
        "--snapshot",
        metavar="FILE",
        help="instead of checking by rules, compare what the server offers with what `trio-mcp snapshot` has printed",
    ),
    Argument(
        "--revision",
        action="append",
        dest="revisions",
        choices=REVISIONS,
        metavar="REVISION",
        help="speak this revision; by default the newest of each era that the target speaks",
    ),
    Argument(
        "--rules",
        action="append",
        metavar="RULES",
        help="only these: ids, patterns with * or section:PREFIX or level:LEVEL, with commas between them",
    ),
    Argument("--examples", type=FROM_ONE, metavar="N", help="how many examples to run (200; with --client 50)"),
    Argument("--time", type=TIME, metavar="TIME", help="how long to run at most (60s)"),
    Argument("--seed", type=WHOLE, metavar="N", help="the same seed sends the same messages (0)"),
    TIMEOUT,
    Argument("--rate", type=NUMBER, metavar="N", help="send at most N requests a second"),
    Argument("--allow-writes", action="store_true", help="call every tool, not only those annotated read-only"),
    Argument("--tool", action="append", default=[], metavar="NAME", help="call this tool as well"),
    *TOKENS,
    Argument(
        "--report",
        action="append",
        default=[],
        metavar="FILE",
        help="write a report: FILE.html, .json, .xml (JUnit), .sarif or .txt; can be repeated",
    ),
    Argument("--replays", metavar="DIR", help="a folder for files that replay a failure; by default beside the report"),
    Argument("--baseline", metavar="FILE", help="rules that are known to be broken, as lines of RULE: REASON"),
    Argument("--write-baseline", metavar="FILE", help="write the rules that are broken now as a baseline"),
    Argument("--dry-run", action="store_true", help="connect, list, and say what would be done"),
    JSON,
)
# Options of the commands during which a server may ask for input.
ANSWERS = (
    Argument(
        "--answer",
        action="append",
        default=[],
        type=_pair,
        metavar="NAME=VALUE",
        help="the value of a field, for forms that the server asks to be filled in; can be repeated",
    ),
    Argument("--sample", metavar="TEXT", help="the text that a language model says, if the server asks for one"),
)
# Options of `bench`. The defaults of `BenchTerms` are repeated here, because importing that class is slow.
BENCHING = (
    Argument(
        "--tool",
        action="append",
        nargs="+",
        default=[],
        metavar=("NAME", "ARGUMENT"),
        help="call this tool, with arguments as for `call`; by default all that are annotated read-only, with generated"
        " arguments; can be repeated",
    ),
    Argument(
        "--ladder",
        type=LADDER,
        default=(1, 4, 16, 64),
        metavar="N,N,...",
        help="how many calls are in flight in each step (1,4,16,64)",
    ),
    Argument("--seconds", type=SECONDS, default=2.0, metavar="SECONDS", help="how long each step is measured (2)"),
    Argument("--max-calls", type=FROM_ONE, default=100_000, metavar="N", help="how many calls at most (100000)"),
    Argument("--max-time", type=TIME, default=300.0, metavar="TIME", help="how long it takes at most (5m)"),
    Argument("--seed", type=WHOLE, default=0, metavar="N", help="the same seed makes the same arguments (0)"),
    Argument("--compare", metavar="OTHER", help="measure this TARGET as well, in turns, and give the ratios"),
    Argument("--json", metavar="FILE", help="write the figures as JSON; - prints them in place of the table"),
    Argument("--html", metavar="FILE", help="write a page with the figures"),
)

COMMANDS = {
    "run": Command(
        "serve a server's file",
        (
            Argument("server", metavar="FILE[:NAME]", help="a server's file, or package.module:name"),
            Argument("--reload", action="store_true", help="restart the server when a Python file beside it changes"),
            Argument(
                "--log-level",
                choices=("debug", "info", "warning", "error"),
                metavar="LEVEL",
                help="show log messages of this level and above: debug, info, warning or error; from info on, each HTTP"
                " exchange as well",
            ),
            STORES,
            *SERVING,
        ),
        examples=(
            "trio-mcp run server.py",
            "trio-mcp run server.py --transport http --port 8000 --reload",
            "trio-mcp run server.py --transport http --processes 4 --stateless",
            "trio-mcp run package.module:server -- --root /data",
        ),
        serves=True,
        passes_arguments=True,
    ),
    "bridge": Command(
        "serve what another server offers, over another transport",
        SERVING,
        examples=(
            "trio-mcp bridge https://host.example/mcp",
            "trio-mcp bridge --transport http --port 8000 -- node server.js",
        ),
        serves=True,
        has_target=True,
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
        examples=("trio-mcp list server.py --tools", "trio-mcp list -- npx some-server --some-option"),
        has_target=True,
    ),
    "inspect": Command(
        "show everything that a server says about itself and offers",
        (JSON,),
        examples=("trio-mcp inspect server.py", "trio-mcp inspect https://host.example/mcp --json"),
        has_target=True,
    ),
    "snapshot": Command(
        "print all that a server offers, to compare with later",
        examples=("trio-mcp snapshot server.py > surface.json",),
        has_target=True,
    ),
    "call": Command(
        "call a tool",
        (
            Argument("tool", metavar="TOOL", nargs="?"),
            Argument(
                "arguments",
                nargs="*",
                metavar="ARGUMENT",
                help="name=value, read by the tool's schema; name:=json; or one JSON object; "
                "- reads that object from standard input",
                default=[],
            ),
            Argument("--total-timeout", type=SECONDS, metavar="SECONDS", help="how long the call may take in total"),
            Argument(
                "--detach", action="store_true", help="if the call becomes a task, print the task's id and don't wait"
            ),
            *ANSWERS,
            JSON,
        ),
        examples=(
            "trio-mcp call server.py price item=pear pieces=2",
            """trio-mcp call server.py price '{"item": "pear"}' --json""",
            "trio-mcp call server.py order --answer pieces=3",
        ),
        has_target=True,
    ),
    "task": Command(
        "look at a task that a call has become, wait for its result, or cancel it",
        (
            Argument("action", metavar="ACTION", choices=("get", "watch", "cancel"), help="get, watch or cancel"),
            Argument("id", metavar="ID", nargs="?", help="the task's id; - reads it from standard input"),
            Argument("--total-timeout", type=SECONDS, metavar="SECONDS", help="how long to wait for the result"),
            *ANSWERS,
            JSON,
        ),
        examples=(
            "trio-mcp task watch https://host.example/mcp 3f1c",
            "trio-mcp task cancel https://host.example/mcp 3f1c",
        ),
        has_target=True,
    ),
    "skills": Command(
        "list a server's skills, show one, or verify what the server sends of them",
        (
            Argument("action", metavar="ACTION", choices=("list", "show", "verify"), help="list, show or verify"),
            Argument("uri", metavar="URI", nargs="?", help="the URI of a SKILL.md; `verify` takes all without one"),
            JSON,
        ),
        examples=(
            "trio-mcp skills list server.py",
            "trio-mcp skills show server.py skill://pdf-forms/SKILL.md",
            "trio-mcp skills verify https://host.example/mcp",
        ),
        has_target=True,
    ),
    "read": Command(
        "read a resource",
        (
            Argument("uri", metavar="URI"),
            Argument("--output", metavar="FILE", help="write the resource to a file"),
            *ANSWERS,
            JSON,
        ),
        examples=("trio-mcp read server.py shop://hours", "trio-mcp read server.py shop://logo --output logo.png"),
        has_target=True,
    ),
    "prompt": Command(
        "fill in a prompt",
        (
            Argument("prompt", metavar="NAME", nargs="?"),
            Argument("arguments", nargs="*", type=_pair, metavar="name=value", default=[]),
            *ANSWERS,
            JSON,
        ),
        examples=("trio-mcp prompt server.py ad item=pear",),
        has_target=True,
    ),
    "worker": Command(
        "run the tasks of a server's file, without clients",
        (Argument("server", metavar="FILE[:NAME]", help="a server's file, or package.module:name"), STORES),
        examples=(
            "trio-mcp worker server.py",
            "trio-mcp worker server.py --stores valkeys://cache.example",
            "trio-mcp worker package.module:server -- --root /data",
        ),
        passes_arguments=True,
    ),
    "stores": Command(
        "say whether a file or an engine is fit for stores, and what lies there",
        (
            Argument("place", metavar="PLACE", help="the path or the URL that the server has as stores="),
            Argument(
                "--prefix", metavar="NAME", help="what the keys in an engine begin with: the server's name, mostly"
            ),
            JSON,
        ),
        examples=("trio-mcp stores desk.db", "trio-mcp stores valkeys://cache.example --prefix desk"),
    ),
    "login": Command(
        "sign in to a server, for all commands that use it later",
        (
            Argument("target", metavar="TARGET", help="a URL, or mcp.json#name"),
            Argument(
                "--scope", action="append", metavar="SCOPE", help="ask for this; by default, for what the server names"
            ),
            Argument(
                "--client-id",
                metavar="ID",
                help="the id of a client that was registered; its secret, if any, is in TRIO_MCP_CLIENT_SECRET",
            ),
            Argument("--device", action="store_true", help="show a code to enter in a browser on any device"),
            Argument("--no-browser", action="store_true", help="paste the URL that the sign-in ends on"),
            VARIABLE,
        ),
        examples=("trio-mcp login https://host.example/mcp", "trio-mcp login mcp.json#name --device"),
    ),
    "logout": Command(
        "drop and revoke a stored login",
        (
            Argument("target", metavar="TARGET", nargs="?", help="a URL, or mcp.json#name"),
            Argument("--all", action="store_true", help="drop all stored logins"),
            VARIABLE,
        ),
        examples=("trio-mcp logout https://host.example/mcp", "trio-mcp logout --all"),
    ),
    "logins": Command("list the stored logins", (JSON,), examples=("trio-mcp logins",)),
    "check": Command(
        "check a server or client against the specification",
        CHECKING,
        examples=(
            "trio-mcp check server.py --time 5m --report report.html",
            "trio-mcp check server.py --snapshot surface.json",
            "trio-mcp check --client -- python client.py",
            "trio-mcp check --issuers --sign-in https://host.example/mcp",
        ),
        has_target=True,
        own_client=True,
    ),
    "bench": Command(
        "measure how fast a server responds, with more and more calls in flight",
        BENCHING,
        examples=(
            "trio-mcp bench server.py",
            "trio-mcp bench https://host.example/mcp --tool search query=trio",
            "trio-mcp bench server.py --compare server2.py --html figures.html",
        ),
        has_target=True,
    ),
    "dev": Command(
        "open the MCP Inspector with a server, in your browser",
        (MODE, Argument("--port", type=PORT, metavar="PORT", help="the port of the Inspector's page")),
        examples=("trio-mcp dev server.py", "trio-mcp dev https://host.example/mcp", "trio-mcp dev -- node server.js"),
        has_target=True,
        own_client=True,
    ),
    "record": Command(
        "record what a client and a server say to each other",
        (
            Argument("file", metavar="FILE", help="the transcript to write"),
            Argument("--port", type=WHOLE, help="the port to listen on for a URL; by default a free one"),
            Argument("--path", help="the socket to listen on for a Unix socket; by default one in a new folder"),
        ),
        examples=(
            "trio-mcp record session.jsonl server.py",
            "trio-mcp record session.jsonl https://host.example/mcp --port 8000",
        ),
        has_target=True,
        own_client=True,
    ),
    "replay": Command(
        "send what a recorded client said, and compare the responses",
        (
            Argument("file", metavar="FILE", help="a transcript, or what `check` wrote for a failure"),
            Argument(
                "--as-server",
                action="store_true",
                help="take the server's part instead, without a TARGET: answer a client what was answered",
            ),
            Argument("--http", type=WHOLE, metavar="PORT", help="with --as-server, serve HTTP; 0 picks a free port"),
            *TOKENS,
            TIMEOUT,
            JSON,
        ),
        examples=(
            "trio-mcp replay session.jsonl server.py",
            "trio-mcp replay session.jsonl --as-server --http 8000",
        ),
        has_target=True,
        own_client=True,
    ),
    "new": Command(
        "make a project with a server and its tests",
        (
            Argument("name", metavar="NAME", help="the name of the project and of its folder"),
            Argument("--github", metavar="OWNER", help="add what publishing it from this owner's repository needs"),
        ),
        examples=("trio-mcp new word-counter", "trio-mcp new word-counter --github octocat"),
    ),
    "publish": Command(
        "check and write what publishing a server needs",
        (
            Argument("server", metavar="FILE[:NAME]", help="a server's file, or package.module:name"),
            Argument("--name", metavar="NAME", help="what the registry calls it, such as io.github.OWNER/word-counter"),
            Argument(
                "--write",
                action="append",
                default=[],
                choices=("server.json", "mcpb", "workflow"),
                metavar="WHAT",
                help="write server.json, mcpb (a bundle for hosts, in dist) or workflow (for GitHub); can be repeated",
            ),
            Argument("--force", action="store_true", help="replace files; what you added to server.json is kept"),
        ),
        examples=(
            "trio-mcp publish src/word_counter/server.py",
            "trio-mcp publish src/word_counter/server.py --write server.json --write mcpb",
        ),
        passes_arguments=True,
    ),
    "install": Command(
        "show a host's entry for a server, or write it",
        (
            Argument(
                "host",
                choices=tuple(HOSTS),
                metavar="HOST",
                help=", ".join(HOSTS),
                otherwise="; for any other host, `trio-mcp config` prints what to add to its file",
            ),
            *ENTRY,
            Argument(
                "--scope",
                choices=("user", "project"),
                default="user",
                metavar="SCOPE",
                help="whose file: user (yours, the default) or project (that of the current directory)",
            ),
            Argument("--write", action="store_true", help="write the host's file, after making a copy of it"),
            Argument("--force", action="store_true", help="replace a server of the same name"),
        ),
        examples=(
            "trio-mcp install claude-desktop server.py",
            "trio-mcp install vscode server.py --scope project --write",
            "trio-mcp install cursor server.py --env API_KEY=key -- --root /data",
            "trio-mcp install claude-code https://host.example/mcp --write",
        ),
        passes_arguments=True,
    ),
    "config": Command(
        "print the mcpServers entry of a server, for any other host",
        ENTRY,
        examples=("trio-mcp config server.py", "trio-mcp config server.py --name shop --env API_KEY=key"),
        passes_arguments=True,
    ),
    "completion": Command(
        "print a script that completes commands and options",
        (Argument("shell", choices=("bash", "zsh", "fish"), metavar="SHELL", help="bash, zsh or fish"),),
        examples=("trio-mcp completion bash > ~/.local/share/bash-completion/completions/trio-mcp",),
    ),
    "demo": Command("start a server over each transport, and call its tools", examples=("trio-mcp demo",)),
}


WHAT = {"call": "tool", "prompt": "prompt"}
"""Command -> the kind of thing that it passes arguments to, which is also the name of its positional argument."""

MEANT = {
    "version": "`trio-mcp --version`",
    "help": "`trio-mcp --help`",
    "serve": "`trio-mcp run`",
    "start": "`trio-mcp run`",
    "test": "`trio-mcp check`",
    "tools": "`trio-mcp list --tools`",
    "proxy": "`trio-mcp bridge`",
    "inspector": "`trio-mcp dev`",
}
"""Words that users of other programs may expect as commands, and what to write in place of each."""


def _command_parser(name: str, *, rest: bool = False) -> _Parser:
    """Return the parser of one command.

    Args:
        name: The command.
        rest: Whether more words follow after ``--``, so that the TARGET may be missing.
    """
    command = COMMANDS[name]
    examples = "\n".join(["examples:", *(f"  {each}" for each in command.examples)])
    about = (
        TARGETS if command.has_target else "The words after -- are for the file." if command.passes_arguments else ""
    )
    parser = _Parser(
        prog=f"trio-mcp {name}",
        description=f"{command.help[:1].upper()}{command.help[1:]}.",
        epilog=f"{about}\n\n{examples}".lstrip(),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        # Abbreviations are refused, because one would become ambiguous once another option begins with the same
        # letters.
        allow_abbrev=False,
    )
    # The file of `record` and `replay`, and the action of `task` and `skills`, come before the TARGET.
    ahead = [each for each in command.arguments if each.name in ("file", "action")]
    for each in ahead:
        parser.add_argument(each.name, **_for_argparse(each))
    if command.has_target:
        # For `bench` the TARGET may follow the arguments of `--tool`; see `_untangle`.
        optional = rest or name in ("bench", "replay")
        parser.add_argument("target", metavar="TARGET", nargs="?" if optional else None, help="the server; see below")
    for heading, arguments in command.groups().items():
        group = parser if heading is None else parser.add_argument_group(heading)
        for each in arguments:
            if each in ahead:
                continue
            group.add_argument(each.name, **_for_argparse(each))
    return parser


def _for_argparse(argument: Argument) -> dict[str, Any]:
    settings = dict(argument.settings)
    if "choices" in settings:
        settings["type"] = _one_of(settings.pop("choices"), argument.otherwise)
    return settings


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """Parse a command line.

    Raises:
        SystemExit: After ``--help`` or ``--version``, with status 0; if the line is invalid, with status 2.
    """
    name, *words = arguments or [""]
    command = COMMANDS.get(name)
    if command is None:
        _without_command(name)
    rest: list[str] | None = None
    # argparse must not see the words after `--`: they may include options of another program.
    if "--" in words and (command.has_target or command.passes_arguments):
        at = words.index("--")
        words, rest = words[:at], words[at + 1 :]
    parser = _command_parser(name, rest=rest is not None)
    # Options may stand between the positional arguments, as in `call TARGET --json TOOL`.
    options, extra = parser.parse_known_intermixed_args(words)
    if extra:
        known = [each.name for each in itertools.chain.from_iterable(command.groups().values())]
        option = next((each.partition("=")[0] for each in extra if each.startswith("-")), None)
        if option is None:
            parser.error(f"unexpected argument {extra[0]!r}")
        meant = did_you_mean(option, ["--help", *known])
        if name in WHAT and (given := option.lstrip("-")).isidentifier():
            meant += f" An argument of the {WHAT[name]}" if meant else f"; an argument of the {WHAT[name]}"
            meant += f" is written {given}=VALUE"
        parser.error(f"unknown option {option!r}{meant}")
    options.command, options.process, options.file_arguments = name, None, rest or []
    if name == "bench":
        _untangle(options, parser, rest)
    if name == "replay":
        _check_part(options, parser, rest)
    if command.has_target and rest is not None:
        _assign(options, parser, rest)
    if name == "task" and options.id is None:
        parser.error("the task's id is missing")
    if name == "skills" and options.action == "show" and options.uri is None:
        parser.error("the URI of the skill is missing")
    if name == "call" and options.tool is not None and _is_argument(options.tool):
        parser.error(f"the name of the tool must come before its arguments; got {options.tool!r}")
    return options


def _assign(options: argparse.Namespace, parser: _Parser, rest: list[str]) -> None:
    """Decide whether the words after ``--`` are a command, or arguments for the file that is the TARGET."""
    words = getattr(options, "arguments", None)
    what = WHAT.get(options.command)
    # If there is no TARGET, as in `call TOOL name=value -- COMMAND`, argparse has assigned each word one place too
    # early: it took the tool's name for the TARGET, and the first argument for the tool's name.
    if what is not None and options.target is not None:
        moved = getattr(options, what)
        if moved is not None and _is_argument(moved):
            try:
                options.arguments = [_pair(moved) if what == "prompt" else moved, *(words or [])]
            except argparse.ArgumentTypeError as exc:
                parser.error(f"argument name=value: {exc}")
            moved = None
        # A tool is not named like a file, so if the TARGET is a .py file, the words after -- are for it, even without a
        # tool.
        if moved is None and not (options.target.endswith(".py") and not options.arguments):
            setattr(options, what, options.target)
            options.target = None
    if options.command == "task" and options.id is None:
        options.id, options.target = options.target, None
    # A file, a module, an entry or the URL of a server can't end like the URI of a skill.
    if options.command == "skills" and options.uri is None and str(options.target).endswith("/SKILL.md"):
        options.uri, options.target = options.target, None
    if options.target is not None:
        return
    options.process, options.file_arguments = rest, []
    if not rest:
        parser.error("-- must be followed by a command that starts a server")


def _untangle(options: argparse.Namespace, parser: _Parser, rest: list[str] | None) -> None:
    """Find the TARGET among the arguments of a tool: `bench --tool NAME name=value TARGET`."""
    for words in options.tool:
        if len(words) > 1 and not _is_argument(words[-1]) and options.target is None and rest is None:
            options.target = words.pop()
        if wrong := [word for word in words[1:] if not _is_argument(word)]:
            parser.error(f"argument --tool: an argument must have the form name=value or name:=json; got {wrong[0]!r}")
    if options.target is None and rest is None:
        parser.error("the following arguments are required: TARGET")


def _check_part(options: argparse.Namespace, parser: _Parser, rest: list[str] | None) -> None:
    """Check that a replay has a TARGET, unless it takes the part of the server itself."""
    has_target = options.target is not None or rest is not None
    if options.as_server and has_target:
        parser.error("--as-server takes the server's part, so there must be no TARGET")
    if not options.as_server and options.http is not None:
        parser.error("--http is for --as-server")
    if not options.as_server and not has_target:
        parser.error("the following arguments are required: TARGET")


def _is_argument(word: str) -> bool:
    return "=" in word or word == "-" or word.lstrip().startswith("{")


def _without_command(name: str) -> NoReturn:
    """Show the program's help or version, or an error, for a line that does not begin with a known command."""
    width = max(map(len, COMMANDS))
    listing = "\n".join(f"  {each:{width}}  {command.help}" for each, command in COMMANDS.items())
    top = _Parser(
        prog="trio-mcp",
        usage="trio-mcp [-h] [--version] COMMAND ...",
        description="The Model Context Protocol for Trio.",
        epilog=f"commands:\n{listing}\n\nSee `trio-mcp COMMAND --help` for more, with examples.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    top.add_argument("--version", action="version", version=f"trio-mcp {__version__}")
    if name in ("-h", "--help", "--version"):
        top.parse_args([name])
    known = ", ".join(COMMANDS)
    if not name:
        top.error(f"a command must come first; the commands are {known}")
    if name.startswith("-"):
        theirs = {each.name for command in COMMANDS.values() for group in command.groups().values() for each in group}
        meant = "" if name in theirs else did_you_mean(name, ("--help", "--version"))
        top.error(f"{name!r} is not an option of trio-mcp{meant or '; the options of a command come after it'}")
    # If a target is given in place of a command, the user most likely wants to see what that server offers.
    if name.endswith((".py", ".json")) or "://" in name:
        top.error(f"the command is missing; did you mean `trio-mcp inspect {name!r}`?")
    if name in MEANT:
        top.error(f"{name!r} is not a command; did you mean {MEANT[name]}?")
    top.error(f"{name!r} is not a command{did_you_mean(name, COMMANDS) or f'; the commands are {known}'}")
