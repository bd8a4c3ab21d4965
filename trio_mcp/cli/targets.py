"""Find the server that the command line names, and connect to it."""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import json
import os
import sys
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
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

# YAML files can't be read, but they are recognised as configurations, so that the error message says so.
CONFIGS = (".json", ".jsonc", ".yaml", ".yml")


def target_of(options: argparse.Namespace, before: Callable[[], object] = lambda: None) -> Configured:
    """Return the target for a `Client`; connecting to the target signs in if the server requires that.

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
        what: The subject of the error message about a server that can be reached in several ways.

    Raises:
        Exit: If the command line names no target, an invalid one, or several ways to reach the server.
        ConfigError: If the configuration is invalid.
    """
    target = with_stored_token(target_of(options))
    if isinstance(target, FailoverParameters):
        raise Exit(f"{what} needs one way to reach the server, not several", hint=False)
    return target


def _configured_auth(how: str | None, before: Callable[[], object], settings: object) -> Auth:
    from trio_mcp.auth.client.settings import auth_of

    return auth_of(settings, **({} if how == "off" else asking(how, before)))


def _named(name: str, arguments: Sequence[str], variables: dict[str, str], make_auth: MakeAuth) -> Configured:
    file = name.partition(":")[0]
    # Configurations are recognised first, because `mcp.json` could also be a module of the official SDK.
    is_elsewhere = "://" in name or file.lower() in ("tcp", "tls", "unix") or name.partition("#")[0].endswith(CONFIGS)
    if not is_elsewhere and (file.endswith(".py") or _is_module(name)):
        if file.endswith(".py") and not os.path.isfile(file):
            raise Exit(f"there is no file {file!r}{near_file(file)}")
        # The server runs in a child process, as a host would start it: its output, or a crash, must not affect this
        # process. The child gets only a few variables; without PYTHONPATH it might not find the modules that this
        # process finds.
        path = os.environ.get("PYTHONPATH", "")
        words = ["-m", "trio_mcp", "run", name, *(["--", *arguments] if arguments else ())]
        return StdioServerParameters(sys.executable, words, env={"PYTHONPATH": path} if path else {})
    if arguments:
        raise Exit(f"the words after -- are arguments for a server's file or module, but {name!r} is neither")
    return reached(name, variables, make_auth)


def _is_module(name: str) -> bool:
    match = MODULE.fullmatch(name)
    # A bare word may also be a mistyped command, so it counts as a module only if that module exists. Only the topmost
    # package is looked for, because a module in it could not be found without importing the package.
    return match is not None and (match[2] is not None or _is_importable(match[1].partition(".")[0]))


def _is_importable(name: str) -> bool:
    try:
        # The module may also be in the current directory, which `python -m` searches, too.
        return bool(PathFinder.find_spec(name, [os.getcwd()]) or importlib.util.find_spec(name))
    except (ImportError, ValueError):  # ValueError: a loaded module that has no spec
        return False


def reached(name: str, variables: dict[str, str], make_auth: MakeAuth) -> Configured:
    """Return the target that a URL, or an entry of a configuration, describes.

    Args:
        name: The command-line argument that names the server.
        variables: The variables of the configuration.
        make_auth: Reads the ``"auth"`` of the entry.

    Raises:
        Exit: If the argument names no target.
        ConfigError: If the configuration is invalid.
    """
    # URLs are recognised first, since they may end in `.json` as a configuration does.
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
        raise Exit(f"{path} does not have exactly one server: give {path}#NAME; its servers are: {config.listed}")
    # Only the entry of the named server is read: the others may be invalid, or lack their variables.
    return config.target(name or config.names[0])


@contextlib.asynccontextmanager
async def connected(
    options: argparse.Namespace, before_asking: Callable[[], object], *, answers: Mapping[str, Any] | None = None
) -> AsyncIterator[Client]:
    """Connect to the server named on the command line, and stay connected while the block runs.

    If there is a terminal, the server may ask its user. It may ask a language model only with ``--sample``, whose
    value is then the response.

    Args:
        options: The command line.
        before_asking: Called before the user is asked something on behalf of the server.
        answers: The arguments of `Answers`, if the server must ask neither the terminal nor the command line.
    """
    asking = None
    if answers is None:
        answers = _answers(options, before_asking)
        asking = answers.get("elicitation")
    roots = [Path(root).resolve() for root in options.root] if options.root else None  # noqa: ASYNC240 - nothing runs yet
    settings: dict[str, Any] = {}
    if options.timeout is not None:
        calls = CallOptions(timeout=options.timeout, connect_timeout=options.timeout)
        settings["options"] = SessionOptions(calls=calls)
    if options.log_level is not None:
        settings |= {"log_level": options.log_level, "on_log": _show_log}
    if options.command in ("call", "task"):  # a server must not turn any other request into a task
        from trio_mcp.extensions.tasks.extension import Tasks

        settings["extensions"] = [Tasks()]
    elif options.command == "skills":
        from trio_mcp.extensions.skills.extension import Skills

        settings["extensions"] = [Skills()]
    target = traced(options, before_asking)
    try:
        client = Client(target, mode=options.mode, answers=Answers(**{"roots": roots, **answers}), **settings)
    except ValueError as exc:
        raise Exit(str(exc), USAGE) from None
    is_open = False
    try:
        async with client:
            is_open = True
            # The server's name is known only once the client is connected.
            if asking is not None and client.server_info is not None:
                asking.asker = client.server_info.name
            yield client
    except ProcessExited as exc:
        # If the process was `trio-mcp run` and could not load the file, it has already said why, and its exit status is
        # the right one.
        if not is_open and exc.returncode and exc.stderr_tail.rpartition("\n")[2].startswith("trio-mcp run: "):
            raise Exit("", exc.returncode) from None
        # The error is shown without quoting the standard error of the server's process, which the user has already
        # seen.
        shown = ProcessExited(exc.command, exc.returncode)
        shown.answered = exc.answered
        raise shown from None
    except HttpError as exc:
        url = exc.target.partition(" ")[2].rstrip("/")
        # No hint is added if the body of the response already names the endpoint, as that of our own servers does.
        if exc.status == HTTPStatus.NOT_FOUND and not urlsplit(url).path and "/mcp" not in exc.excerpt:
            raise Exit(f"{exc}; did you mean {url}/mcp?", NO_CONNECTION) from None
        raise


def _answers(options: argparse.Namespace, before_asking: Callable[[], object]) -> dict[str, Any]:
    """Return the arguments of `Answers`, which let the server ask on a terminal, or answer from the command line."""
    found: dict[str, Any] = {}
    given: Given | None = getattr(options, "given", None)
    if has_terminal():
        found["elicitation"] = Dialogue(before_asking, given)
    # Without a terminal or given answers, elicitation is not declared, so that the server knows not to ask.
    elif given:
        found |= {"elicitation": FormScript(given, options.command, before_asking), "elicitation_modes": ("form",)}
    if (text := getattr(options, "sample", None)) is not None:
        # The use of tools is declared, because a model may ignore the tools that it is offered.
        found |= {"sampling": lambda params: text, "sampling_features": ("tools",)}
    return found


def traced(options: argparse.Namespace, before: Callable[[], object] = lambda: None) -> Target:
    """Return the target for a `Client`; with ``--verbose``, what passes over the link is shown.

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
    # This module is imported late, because its import takes as long as everything else together.
    from trio_mcp.cli.trace import Trace

    return Trace(before).of(target)


def _show_log(message: LoggingMessageNotificationParams) -> None:
    data = message.data if isinstance(message.data, str) else json.dumps(message.data, ensure_ascii=False)
    name = f" {clean_line(message.logger)}" if message.logger else ""
    # Log messages go to standard error: standard output is for the result alone, which a program may read.
    print(f"[{message.level}]{name}: {clean_line(data)}", file=sys.stderr)
