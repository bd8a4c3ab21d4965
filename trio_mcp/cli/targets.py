"""The server named on the command line, and the connection to it."""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import json
import os
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from functools import partial
from http import HTTPStatus
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import attrs

from trio_mcp._keywords import did_you_mean
from trio_mcp.cli.answers import Given
from trio_mcp.cli.config import MODULE
from trio_mcp.cli.exits import NO_CONNECTION, USAGE, Exit
from trio_mcp.cli.messages import near_file
from trio_mcp.cli.signing_in import asking, signed, with_stored_token
from trio_mcp.cli.terminal import Dialogue, FormScript, has_terminal
from trio_mcp.cli.text import clean_line
from trio_mcp.client.answers.sources import Answers
from trio_mcp.client.client import Client
from trio_mcp.client.config.reading import Configured, MakeAuth, read_config
from trio_mcp.client.failover.parameters import FailoverParameters
from trio_mcp.client.targets import SCHEMES, Target
from trio_mcp.errors import HttpError, ProcessExited
from trio_mcp.http.client.auth import Auth
from trio_mcp.http.client.parameters import HttpServerParameters
from trio_mcp.session.limits import CallOptions, SessionOptions
from trio_mcp.sockets.addresses import read_address
from trio_mcp.stdio.parameters import StdioServerParameters
from trio_mcp.types.notices import LoggingMessageNotificationParams

__all__ = ["connected", "reached", "single_target", "target_of", "traced"]

# YAML is not read, but the error says so.
CONFIGS = (".json", ".jsonc", ".yaml", ".yml")


def target_of(options: argparse.Namespace, before: Callable[[], object] = lambda: None) -> Configured:
    """Return the target for a `Client`, which signs in if its server wants that.

    Args:
        options: The command line.
        before: Called before the user is asked to sign in.

    Raises:
        Exit: If the command line names no target, or an invalid one.
        ConfigError: If the configuration is invalid.
    """
    env, headers = dict(options.env), dict(options.header)
    try:
        process = options.process
        if process is None:
            make_auth = partial(_configured_auth, options.auth, before)
            found = _named(options.target, options.file_arguments, dict(options.variable), make_auth)
        else:
            found = StdioServerParameters(process[0], process[1:])
        if isinstance(found, StdioServerParameters):
            found = attrs.evolve(found, env={**found.env, **env})
        elif env:
            raise Exit("--env is for servers that are started as a process")
        if isinstance(found, HttpServerParameters):
            found = attrs.evolve(found, headers={**found.headers, **headers})
        elif headers:
            raise Exit("--header is for servers that are reached over HTTP or WebSocket")
        return signed(found, options.auth, before)
    except (TypeError, ValueError) as exc:
        raise Exit(str(exc)) from None


def single_target(options: argparse.Namespace, what: str) -> StdioServerParameters | HttpServerParameters | str:
    """Return the target for a command without a `Client`, with the token of a stored login.

    Args:
        options: The command line.
        what: The subject of the error about several ways to the server.

    Raises:
        Exit: If the command line names no target, an invalid one, or several ways to the server.
        ConfigError: If the configuration is invalid.
    """
    target = with_stored_token(target_of(options))
    if isinstance(target, FailoverParameters):
        raise Exit(f"{what} needs one way to the server, not several", hint=False)
    return target


def _configured_auth(how: str | None, before: Callable[[], object], settings: object) -> Auth:
    from trio_mcp.auth.client.settings import auth_of

    return auth_of(settings, **({} if how == "off" else asking(how, before)))


def _named(name: str, arguments: Sequence[str], variables: dict[str, str], make_auth: MakeAuth) -> Configured:
    file = name.partition(":")[0]
    # `mcp.json` could be a module of the official SDK.
    is_elsewhere = "://" in name or file.lower() in ("tcp", "tls", "unix") or name.partition("#")[0].endswith(CONFIGS)
    if not is_elsewhere and (file.endswith(".py") or _is_module(name)):
        if file.endswith(".py") and not os.path.isfile(file):
            raise Exit(f"there is no file {file!r}{near_file(file)}")
        # It runs in a process, as a host would start it: its output, and its crash, must not affect this one.
        # The process gets only a few variables; without this one it might not find the modules that this process finds.
        path = os.environ.get("PYTHONPATH", "")
        words = ["-m", "trio_mcp", "run", name, *(["--", *arguments] if arguments else ())]
        return StdioServerParameters(sys.executable, words, env={"PYTHONPATH": path} if path else {})
    if arguments:
        raise Exit(f"the words after -- are arguments for a server's file or module, but {name!r} is neither")
    return reached(name, variables, make_auth)


def _is_module(name: str) -> bool:
    match = MODULE.fullmatch(name)
    # A bare word may also be a mistyped command, so it counts only if there is such a module. Only the first package is
    # looked for, because what lies below could not be found without importing it.
    return match is not None and (match[2] is not None or _is_importable(match[1].partition(".")[0]))


def _is_importable(name: str) -> bool:
    try:
        # It may also be in the current directory, which `python -m` searches, too.
        return bool(PathFinder.find_spec(name, [os.getcwd()]) or importlib.util.find_spec(name))
    except (ImportError, ValueError):  # ValueError: a loaded module that has no spec
        return False


def reached(name: str, variables: dict[str, str], make_auth: MakeAuth) -> Configured:
    """Return the target that a URL, or an entry of a configuration, names.

    Args:
        name: The word of the command line.
        variables: The variables of the configuration.
        make_auth: Reads the ``"auth"`` of the entry.

    Raises:
        Exit: If it names no target.
        ConfigError: If the configuration is invalid.
    """
    # A URL is looked for first, since it may end in `.json` as a configuration does.
    scheme, separator, rest = name.partition(":")
    match scheme.lower():
        case "http" | "https" if rest.startswith("//"):
            return HttpServerParameters(name)
        case "ws" | "wss" if rest.startswith("//"):
            return HttpServerParameters(name, kind="ws")
        case "tcp" | "tls" | "unix" if separator:
            return read_address(name).url
    if rest.startswith("//"):
        meant = did_you_mean(f"{scheme}://", SCHEMES)
        raise Exit(f"a URL must begin with one of {', '.join(SCHEMES)}; got {f'{scheme}://'!r}{meant}")
    path, _, entry = name.partition("#")
    if path.endswith(CONFIGS):
        return _configured(path, entry, variables, make_auth)
    raise Exit(
        f"{name!r} is not a target: it must be a Python file, package.module:name, mcp.json#name or a URL; "
        f"a command that starts a server goes after --, at the end of the line"
    )


def _configured(path: str, name: str, variables: dict[str, str], make_auth: MakeAuth) -> Configured:
    config = read_config(path, variables=variables, make_auth=make_auth)
    if not name and len(config.names) != 1:
        raise Exit(f"{path} has several servers, or none: write {path}#NAME; its servers are: {config.listed}")
    # Only this entry is read: another may be invalid, or lack its variables.
    return config.target(name or config.names[0])


@contextlib.asynccontextmanager
async def connected(
    options: argparse.Namespace, before_asking: Callable[[], object], *, may_ask: bool = True
) -> AsyncIterator[Client]:
    """Connect to the server named on the command line, while the block runs.

    With a terminal, the server may ask its user. There is no language model to ask, except with ``--sample``.

    Args:
        options: The command line.
        before_asking: Called before the user is asked something on behalf of the server.
        may_ask: Whether the server may ask, if there is a terminal.
    """
    answers = _answers(options, before_asking) if may_ask else {}
    roots = [Path(root).resolve() for root in options.root] if options.root else None  # noqa: ASYNC240 - nothing runs yet
    settings: dict[str, Any] = {}
    if options.timeout is not None:
        calls = CallOptions(timeout=options.timeout, connect_timeout=options.timeout)
        settings["options"] = SessionOptions(calls=calls)
    if options.log_level is not None:
        settings |= {"log_level": options.log_level, "on_log": _show_log}
    target = traced(options, before_asking)
    try:
        client = Client(target, mode=options.mode, answers=Answers(roots=roots, **answers), **settings)
    except ValueError as exc:
        raise Exit(str(exc), USAGE) from None
    is_open = False
    try:
        async with client:
            is_open = True
            # Known only once connected.
            if (asking := answers.get("elicitation")) is not None and client.server_info is not None:
                asking.asker = client.server_info.name
            yield client
    except ProcessExited as exc:
        # If it was `trio-mcp run` and could not load the file, it has said why, and its status is the right one.
        if not is_open and exc.returncode and exc.stderr_tail.rpartition("\n")[2].startswith("trio-mcp run: "):
            raise Exit("", exc.returncode) from None
        # The error is shown without the standard error that it quotes: the process wrote that to ours already.
        shown = ProcessExited(exc.command, exc.returncode)
        shown.answered = exc.answered
        raise shown from None
    except HttpError as exc:
        url = exc.target.partition(" ")[2].rstrip("/")
        # Our own servers name the endpoint in the body.
        if exc.status == HTTPStatus.NOT_FOUND and not urlsplit(url).path and "/mcp" not in exc.excerpt:
            raise Exit(f"{exc}; did you mean {url}/mcp?", NO_CONNECTION) from None
        raise


def _answers(options: argparse.Namespace, before_asking: Callable[[], object]) -> dict[str, Any]:
    """Return the arguments of `Answers`: what the user is asked on a terminal, and what the command line answers."""
    found: dict[str, Any] = {}
    given: Given | None = getattr(options, "given", None)
    if has_terminal():
        found["elicitation"] = Dialogue(before_asking, given)
    # Without either, elicitation is not declared, so that the server knows not to ask.
    elif given:
        found |= {"elicitation": FormScript(given, options.command, before_asking), "elicitation_modes": ("form",)}
    if (text := getattr(options, "sample", None)) is not None:
        # Tools are declared, because a model may ignore those that it is offered.
        found |= {"sampling": lambda params: text, "sampling_features": ("tools",)}
    return found


def traced(options: argparse.Namespace, before: Callable[[], object] = lambda: None) -> Target:
    """Return the target for a `Client`; with ``--verbose``, one that shows what passes.

    Args:
        options: The command line.
        before: Called before anything is shown.

    Raises:
        Exit: If the command line names no target, or an invalid one.
        ConfigError: If the configuration is invalid.
    """
    target = target_of(options, before)
    if not options.verbose:
        return target
    # Imported late: it takes as long to import as everything else together.
    from trio_mcp.cli.trace import Trace

    return Trace(before).of(target)


def _show_log(message: LoggingMessageNotificationParams) -> None:
    data = message.data if isinstance(message.data, str) else json.dumps(message.data, ensure_ascii=False)
    name = f" {clean_line(message.logger)}" if message.logger else ""
    # Standard output is for the result alone, which a program may read.
    print(f"[{message.level}]{name}: {clean_line(data)}", file=sys.stderr)
