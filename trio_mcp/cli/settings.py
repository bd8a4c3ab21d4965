"""Reads the options of ``trio-mcp check`` from ``trio-mcp.toml`` or ``pyproject.toml`` in the current folder."""

from __future__ import annotations

import argparse
import tomllib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from trio_mcp._keywords import did_you_mean
from trio_mcp.cli.exits import Exit
from trio_mcp.cli.parser import COMMANDS, Argument

__all__ = [
    "FOR_CLIENTS",
    "FOR_ISSUERS",
    "FOR_RULES",
    "FOR_SERVERS",
    "NOT_FOR_ISSUERS",
    "add_settings",
    "is_given",
]

PLACES: Final = (("trio-mcp.toml", ("check",)), ("pyproject.toml", ("tool", "trio-mcp", "check")))
"""Each file, and the table in it; the first that has its table is read."""

MAX_FILE: Final = 1_000_000
"""The size of the largest file that is read, in bytes (an arbitrary choice)."""

FOR_RULES: Final = (
    *("rules", "examples", "time", "seed", "rate", "allow_writes", "tool", "report", "replays", "baseline"),
    *("write_baseline", "dry_run", "client", "protected", "auth_a", "auth_b", "auth_elsewhere", "auth_server"),
    *("issuers", "sign_in", "client_id"),
)
"""The options that say nothing about a snapshot."""

FOR_SERVERS: Final = (
    *("allow_writes", "tool", "header", "env", "auth", "rate", "snapshot"),
    *("auth_a", "auth_b", "auth_elsewhere", "auth_server"),
)
"""The options that say nothing about a client."""

FOR_CLIENTS: Final = ("protected",)
"""The options that say nothing about a server."""

FOR_ISSUERS: Final = ("sign_in", "client_id")
"""The options that are only for authorization servers."""

NOT_FOR_ISSUERS: Final = (
    *FOR_SERVERS,
    *FOR_CLIENTS,
    *("client", "revisions", "examples", "time", "seed", "timeout", "replays", "dry_run"),
)
"""The options that say nothing about authorization servers."""

_TABLES: Final = ("env", "header", "variable")
"""The options whose values are pairs, which a file has as a table."""


def is_given(options: argparse.Namespace, name: str) -> bool:
    """Return whether an option was given."""
    value = getattr(options, name)
    # 0 is a seed.
    return value is not None and value is not False and value != []


def add_settings(options: argparse.Namespace) -> None:
    """Add what the file says to the options of a command line, which come first.

    Only the current folder is searched: a file in a folder above may be someone else's, and can name files to write.

    Raises:
        Exit: If a file can't be read, or has an unknown key or a wrong value.
    """
    found = next(filter(None, (_table(name, path) for name, path in PLACES)), None)
    if found is None:
        return
    place, table = found
    known = {each.name.removeprefix("--"): each for each in _arguments()}
    read = {_name(known[key]): value for key, value in _values(place, table, known)}
    # The command line decides which of the others have a meaning.
    wanted = {name for name in read if not is_given(options, name)}
    if is_given(options, "snapshot"):
        wanted -= {*FOR_RULES}
    elif any(is_given(options, name) for name in FOR_RULES):
        wanted -= {"snapshot"}
    elif "snapshot" in wanted:
        wanted -= {*FOR_RULES}
    if is_given(options, "issuers") or ("issuers" in wanted and read["issuers"]):
        wanted -= {*NOT_FOR_ISSUERS}
    elif is_given(options, "client") or ("client" in wanted and read["client"]):
        wanted -= {*FOR_SERVERS, *FOR_ISSUERS}
    else:
        wanted -= {*FOR_CLIENTS, *FOR_ISSUERS}
    for name in wanted:
        setattr(options, name, read[name])


def _arguments() -> Iterator[Argument]:
    for group in COMMANDS["check"].groups().values():
        yield from (each for each in group if each.name.startswith("--"))


def _name(argument: Argument) -> str:
    return str(argument.settings.get("dest") or argument.name.removeprefix("--").replace("-", "_"))


def _table(file: str, path: tuple[str, ...]) -> tuple[str, Mapping[str, Any]] | None:
    """Return the place of a table, for messages, and the table; None if the file has no such table."""
    place = f"{file}: [{'.'.join(path)}]"
    try:
        with Path(file).open("rb") as opened:
            data = opened.read(MAX_FILE + 1)
        if len(data) > MAX_FILE:
            raise Exit(f"{file}: the file is too large; the limit is {MAX_FILE} bytes", hint=False)
        found: Any = tomllib.loads(data.decode())
    except FileNotFoundError:
        return None
    except OSError as exc:
        raise Exit(f"can't read {file}: {exc.strerror}", hint=False) from None
    except RecursionError:
        raise Exit(f"{file}: nested too deeply", hint=False) from None
    except ValueError as exc:  # also for bytes that are not UTF-8
        raise Exit(f"{file}: not valid TOML: {exc}", hint=False) from None
    for name in path:
        if name not in found:
            return None
        found = found[name]
        if not isinstance(found, dict):
            raise Exit(f"{place} must be a table, got {_shown(found)}", hint=False)
    return place, found


def _values(place: str, table: Mapping[str, Any], known: Mapping[str, Argument]) -> Iterator[tuple[str, Any]]:
    for key, value in table.items():
        if key not in known:
            meant = did_you_mean(key, known) or f"; the keys are {', '.join(known)}"
            raise Exit(f"{place} {_shown(key)}: unknown key{meant}", hint=False)
        try:
            yield key, _value(known[key], value)
        except argparse.ArgumentTypeError as exc:
            raise Exit(f"{place} {key}: {exc}", hint=False) from None


def _value(argument: Argument, value: Any) -> Any:
    """Return the value that the option has if the command line gives it.

    Raises:
        ArgumentTypeError: If the value is wrong; the message says what is allowed.
    """
    settings = argument.settings
    action = settings.get("action", "store")
    if action == "store_true":
        if not isinstance(value, bool):
            raise argparse.ArgumentTypeError(f"must be true or false; got {_shown(value)}")
        return value
    read: Callable[[str], Any] = settings.get("type", str)
    if (choices := settings.get("choices")) is not None:
        read = _one_of(choices)
    if action != "append":
        return _read(read, value)
    if argument.name.removeprefix("--") in _TABLES:
        if not isinstance(value, dict) or not all(isinstance(each, str) for each in value.values()):
            raise argparse.ArgumentTypeError(f"must be a table of strings; got {_shown(value)}")
        return [*value.items()]
    if isinstance(value, list) and all(isinstance(each, str) for each in value):
        return [_read(read, each) for each in value]
    if isinstance(value, str):
        return [_read(read, value)]
    raise argparse.ArgumentTypeError(f"must be a string, or a list of strings; got {_shown(value)}")


def _read(read: Callable[[str], Any], value: Any) -> Any:
    # On the command line, everything is a text. In a file, only numbers may stand for one.
    if isinstance(value, bool) or not isinstance(value, (str, int, float)):
        _refuse(read, value)
    if read is str and not isinstance(value, str):
        raise argparse.ArgumentTypeError(f"must be a string; got {_shown(value)}")
    try:
        return read(str(value))
    except argparse.ArgumentTypeError:
        _refuse(read, value)


def _refuse(read: Callable[[str], Any], value: Any) -> None:
    """Raise the error of a type for a value that it refuses."""
    wanted = "must be a string"
    try:
        read("")
    except argparse.ArgumentTypeError as exc:
        wanted = str(exc).partition("; got ")[0]
    raise argparse.ArgumentTypeError(f"{wanted}; got {_shown(value)}")


def _one_of(choices: tuple[str, ...]) -> Callable[[str], str]:
    def chosen(text: str) -> str:
        if text not in choices:
            raise argparse.ArgumentTypeError(f"must be one of {', '.join(choices)}; got {text!r}")
        return text

    return chosen


def _shown(value: Any) -> str:
    text = ascii(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
