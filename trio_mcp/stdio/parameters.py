"""Defines and checks the parameters with which to start a server that communicates over its standard streams."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypeAlias

from trio_mcp import _attrs as attrs
from trio_mcp._checks import check_choice, check_seconds, check_text, validator

__all__ = ["StderrSink", "StdioServerParameters", "default_environment"]

StderrSink: TypeAlias = Literal["inherit", "discard"] | Callable[[str], Awaitable[object] | object]

# A program needs these variables to find its files and use the user's language; none of them contains a secret. The
# list is that of the official SDKs for POSIX, with the locale, TMPDIR and TZ added.
SAFE_VARIABLES = ("HOME", "LANG", "LC_ALL", "LOGNAME", "PATH", "SHELL", "TERM", "TMPDIR", "TZ", "USER")


def default_environment() -> dict[str, str]:
    """Return the environment variables that a server inherits from this process, to which ``env`` is added."""
    found = {name: os.environ[name] for name in SAFE_VARIABLES if name in os.environ}
    # Functions that a shell has exported are left out: they could run code in the child ("Shellshock").
    return {name: value for name, value in found.items() if not value.startswith("()")}


def _no_null(name: str, *values: str) -> None:
    """Check that no value contains a null character."""
    # A null character would end the string in the system call (`execve`).
    for value in values:
        if "\0" in value:
            raise ValueError(f"{name} must not contain a null character, got {value!r}")


def _check_command(instance: object, attribute: attrs.Attribute[Any], value: Any) -> None:
    check_text("command (the program; its arguments go into args)", value)
    _no_null("command", value)


def _as_tuple(value: Iterable[str]) -> Sequence[str]:
    # A string is an iterable of strings, too, but it is never meant as a list of arguments.
    if isinstance(value, (str, bytes)) or not isinstance(value, Iterable):
        raise TypeError(f"args must be a sequence of strings, got {value!r}")
    return tuple(value)


def _check_args(instance: object, attribute: attrs.Attribute[Any], value: Any) -> None:
    if not all(isinstance(item, str) for item in value):
        raise TypeError(f"args must be a sequence of strings, got {value!r}")
    _no_null("args", *value)


# A value of a wrong type is returned as it is: the validator, which runs after the converter, refuses it.
def _as_dict(value: Mapping[str, str] | None) -> Mapping[str, str]:
    if value is None:
        return {}
    return dict(value) if isinstance(value, Mapping) else value


def _check_env(instance: object, attribute: attrs.Attribute[Any], value: Any) -> None:
    # The values may be secrets, so no message shows them.
    if not isinstance(value, Mapping) or not all(isinstance(item, str) for pair in value.items() for item in pair):
        raise TypeError("env must map strings to strings")
    for name, content in value.items():
        if not name or "=" in name or "\0" in name:
            raise ValueError(f"env contains {name!r}, which can't be the name of an environment variable")
        if "\0" in content:
            raise ValueError(f"env: the value of {name!r} must not contain a null character")


def _check_cwd(instance: object, attribute: attrs.Attribute[Any], value: Any) -> None:
    if value is None:
        return
    if not isinstance(value, (str, os.PathLike)):
        raise TypeError(f"cwd must be a path or None, got {value!r}")
    _no_null("cwd", str(value))


def _check_stderr(instance: object, attribute: attrs.Attribute[Any], value: Any) -> None:
    if not callable(value):
        check_choice("stderr", value, ("inherit", "discard", "a function that takes a line"))


@attrs.frozen
class StdioServerParameters:
    """The parameters with which to start a server that communicates over its standard input and output.

    Attributes:
        command: The program: a name to look up in PATH, or a path.
        args: The program's arguments.
        env: Environment variables to add to a short list of safe ones (`default_environment`).
        cwd: The working directory of the process; None for that of this process.
        stderr: The destination of the server's standard error: ``"inherit"`` shows it on ours, ``"discard"`` drops it,
            and a callable (sync or async) gets it line by line, decoded, without the newline; lines over 8 KiB arrive
            in pieces. In each case the last lines are kept for error messages. A callback slower than the server makes
            the server wait once a few hundred lines are pending. A `Client` sends ``server/discover`` to find out the
            era of its server; lines that a legacy-era server prints about this request are dropped if the handshake
            succeeds.
        label: Text to show in brackets before each inherited line; a `ClientGroup` uses the server's name.
        shutdown_grace: Seconds that the process has to exit after its standard input was closed, and the same again
            after SIGTERM; then it is killed.

    Raises:
        TypeError: If an argument is of the wrong type.
        ValueError: If an argument has a value with which no process can be started.
    """

    command: str = attrs.field(validator=_check_command)
    args: Sequence[str] = attrs.field(default=(), converter=_as_tuple, validator=_check_args)
    env: Mapping[str, str] = attrs.field(default=None, converter=_as_dict, kw_only=True, validator=_check_env)
    cwd: str | Path | None = attrs.field(default=None, kw_only=True, validator=_check_cwd)
    stderr: StderrSink = attrs.field(default="inherit", kw_only=True, validator=_check_stderr)
    label: str | None = attrs.field(
        default=None, kw_only=True, validator=attrs.validators.optional(validator(check_text))
    )
    shutdown_grace: float = attrs.field(
        default=2.0, kw_only=True, validator=validator(check_seconds, zero=True, finite=True)
    )
