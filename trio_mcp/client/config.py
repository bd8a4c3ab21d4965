"""The configuration of servers that hosts use: ``mcpServers`` in a JSON file."""

from __future__ import annotations

import difflib
import json
import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Literal, TypeAlias

import attrs

from trio_mcp.client.failover.parameters import FailoverParameters
from trio_mcp.errors import ConfigError
from trio_mcp.http.client.parameters import HttpKind, HttpServerParameters
from trio_mcp.sockets.addresses import read_address
from trio_mcp.stdio.parameters import StdioServerParameters

__all__ = ["ConfigSource", "Configured", "expand", "load_config", "locate"]

ConfigSource: TypeAlias = str | os.PathLike[str] | Mapping[str, Any]

Configured: TypeAlias = StdioServerParameters | HttpServerParameters | FailoverParameters | str
"""A target for a `Client`, as a configuration describes it; a string is the URL of a socket."""

# Claude Desktop's name comes first, which most hosts use.
TABLES = ("mcpServers", "servers")
"""The keys under which hosts list their servers; the second is VS Code's."""

Kind: TypeAlias = HttpKind | Literal["socket"]

# Hosts spell them differently; "streamable-http" and "streamableHttp" are both in use.
TYPES: dict[str, Kind | None] = {
    "stdio": None,
    "http": "http",
    "streamable-http": "http",
    "streamableHttp": "http",
    "sse": "sse",
    "ws": "ws",
    "websocket": "ws",
    "tcp": "socket",
    "unix": "socket",
}

SCHEMES: dict[str, Kind] = {"ws": "ws", "wss": "ws", "tcp": "socket", "tls": "socket", "unix": "socket"}
"""What the scheme of a URL says about a server without a type; any other is left to HTTP."""

PROCESS_KEYS = ("command", "args", "env", "cwd")
URL_KEYS = ("url", "headers")
KEYS = (*PROCESS_KEYS, *URL_KEYS, "type", "disabled", "failover")

# A host's own settings, accepted so that its file can be used as it is; they don't affect how a server is reached.
HOST_KEYS = (
    *("alwaysAllow", "autoApprove", "description", "dev", "disabledTools", "enabledTools"),
    *("gallery", "icon", "name", "timeout", "trust", "version"),
)
"""Keys of a server's entry that are ignored."""

# The types in the words of JSON, for messages.
KINDS = {str: "a string", bool: "true or false", dict: "an object", list: "an array"}


def load_config(source: ConfigSource, *, environ: Mapping[str, str] | None = None) -> dict[str, Configured]:
    """Read the servers of a configuration: targets for a `Client`, by name, without those that are ``disabled``.

    Args:
        source: The path of a JSON file, or its content as a mapping: ``{"mcpServers": {"name": {"command": …}}}``.
        environ: The variables for ``${NAME}``; by default those of this process.

    Raises:
        ConfigError: If the configuration is invalid. It lists every problem, with file, line and server.
    """
    # Not `or`: an empty mapping says that no variable is set.
    variables = os.environ if environ is None else environ
    if isinstance(source, Mapping):
        return _Reader("the configuration", Places(), variables).read(source)
    if not isinstance(source, (str, os.PathLike)):
        raise TypeError(f"a configuration must be the path of a file or a mapping, got {type(source).__name__}")
    name = os.fspath(source)
    text = _text_of(name)
    try:
        content = json.loads(text)
    except json.JSONDecodeError as exc:
        # VS Code accepts comments in its own files, so a file that comes from there may have some.
        hint = "; JSON has no comments" if text.startswith(("//", "/*"), exc.pos) else ""
        problem = f"{name}:{exc.lineno}:{exc.colno}: not valid JSON: {exc.msg}{hint}"
        raise ConfigError(name, (problem,)) from None
    except RecursionError:
        raise ConfigError(name, (f"{name}: not a valid configuration: it is nested too deeply",)) from None
    return _Reader(name, locate(text), variables).read(content)


def _text_of(name: str) -> str:
    try:
        return Path(name).read_text("utf-8-sig")  # some editors write a byte order mark
    except OSError as exc:
        raise ConfigError(name, (f"{name}: can't be read: {exc.strerror or exc}",)) from exc
    except UnicodeDecodeError as exc:
        raise ConfigError(name, (f"{name}: not valid UTF-8: {exc.reason} at byte {exc.start}",)) from None


class _Reader:
    """Reads a configuration once, collecting all problems instead of stopping at the first."""

    def __init__(self, source: str, places: Places, variables: Mapping[str, str]) -> None:
        self._source = source
        self._places = places
        self._variables = variables
        self._problems: list[tuple[int, str]] = []

    def read(self, content: object) -> dict[str, Configured]:
        for path, line in self._places.repeated:
            self._problems.append((line, f"{self._source}:{line}: {_where(path)}the key appears twice"))
        servers = {}
        table = self._table(content)
        for name, entry in self._entries(content, table):
            path = (*table, name)
            if not isinstance(name, str) or not name:
                self._problem(path, "a server's name must be a non-empty string")
            elif (server := self._entry(path, entry)) is not None:
                servers[name] = server
        if self._problems:
            # In the order of the file.
            raise ConfigError(self._source, tuple(text for _, text in sorted(self._problems)))
        return servers

    def _problem(self, path: tuple[Any, ...], text: str) -> None:
        line = self._places.line(path)
        place = self._source if line is None else f"{self._source}:{line}"
        self._problems.append((line or 0, f"{place}: {_where(path)}{text}"))

    def _table(self, content: object) -> tuple[str, ...]:
        found = [name for name in TABLES if isinstance(content, Mapping) and name in content]
        if not isinstance(content, Mapping):
            self._problem((), f"must be an object with the key 'mcpServers', not {_kind(content)}")
        elif not found:
            near = difflib.get_close_matches("mcpServers", [key for key in content if isinstance(key, str)], 1)
            self._problem(tuple(near), "there is no key 'mcpServers' (or 'servers')")
        elif len(found) > 1:
            self._problem((found[1],), "there are both 'mcpServers' and 'servers'; keep one")
        return tuple(found[:1])

    def _entries(self, content: Any, table: tuple[str, ...]) -> Iterable[tuple[Any, Any]]:
        if not table:
            return ()
        entries = content[table[0]]
        if not isinstance(entries, Mapping):
            self._problem(table, f"must be an object, not {_kind(entries)}")
            return ()
        return entries.items()

    def _entry(self, path: tuple[Any, ...], entry: object) -> Configured | None:
        if not isinstance(entry, Mapping):
            self._problem(path, f"must be an object, not {_kind(entry)}")
            return None
        # First: an entry that is switched off may lack its variables, or be half written.
        if self._of(bool, path, entry, "disabled"):
            return None
        return self._failover(path, entry) if "failover" in entry else self._server(path, entry)

    def _failover(self, path: tuple[Any, ...], entry: Mapping[Any, Any]) -> FailoverParameters | None:
        before = len(self._problems)
        for key in entry:
            if key not in ("failover", "disabled", *HOST_KEYS):
                self._problem((*path, key), "not allowed beside 'failover': it belongs in the entries of the list")
        path = (*path, "failover")
        targets = []
        for index, each in enumerate(self._of(list, path[:-1], entry, "failover") or ()):
            if isinstance(each, Mapping) and "failover" in each:
                self._problem((*path, index), "can't be another list")
            elif (target := self._entry((*path, index), each)) is not None:
                targets.append(target)
        if len(self._problems) > before:
            return None
        if not targets:
            self._problem(path, "needs at least one entry that is not disabled")
            return None
        return FailoverParameters(targets)

    def _server(
        self, path: tuple[Any, ...], entry: Mapping[Any, Any]
    ) -> StdioServerParameters | HttpServerParameters | str | None:
        before = len(self._problems)
        for key in entry:
            if key not in KEYS and key not in HOST_KEYS:
                # `str`: a mapping given in place of a file may have keys of any type.
                near = difflib.get_close_matches(str(key), KEYS, 1)
                hint = f"; did you mean {near[0]!r}?" if near else f"; the keys are {', '.join(KEYS)}"
                self._problem((*path, key), f"unknown key{hint}")
        by_url = self._goes_by_url(path, entry)
        misplaced = PROCESS_KEYS if by_url else URL_KEYS
        for key in misplaced:
            if by_url is not None and key in entry:
                self._problem((*path, key), f"not allowed for a server with {'a url' if by_url else 'a command'}")
        # Types first: `_filled` takes whatever is neither a list nor an object for a string.
        if by_url is None or not self._has_all_types(path, entry):
            return None
        filled = {key: self._filled((*path, key), entry[key]) for key in (*PROCESS_KEYS, *URL_KEYS) if key in entry}
        # An entry with problems noted above would only fail below with a less precise message.
        if len(self._problems) > before:
            return None
        try:
            if not by_url:
                return StdioServerParameters(**filled)
            # Without a type, the scheme of the URL decides.
            kind = TYPES[entry["type"]] if "type" in entry else SCHEMES.get(filled["url"].partition(":")[0].lower())
            if kind != "socket":
                return HttpServerParameters(**filled, kind=kind or "http")
            if "headers" in filled:
                raise ValueError("a server on a socket takes no 'headers'")
            return read_address(filled["url"]).url
        except (TypeError, ValueError) as exc:
            self._problem(path, str(exc))
            return None

    def _goes_by_url(self, path: tuple[Any, ...], entry: Mapping[Any, Any]) -> bool | None:
        """Return whether the server has a URL rather than a command; None if its entry does not say."""
        kind = self._of(str, path, entry, "type")
        if kind is not None and kind not in TYPES:
            near = difflib.get_close_matches(kind, TYPES, 1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            self._problem((*path, "type"), f"must be one of {', '.join(TYPES)}{hint}")
            return None
        by_url = TYPES[kind] is not None if kind is not None else "url" in entry and "command" not in entry
        needed = "url" if by_url else "command"
        if needed not in entry:
            because = (
                "one of 'command', 'url' and 'failover'" if kind is None else f"{needed!r}, as its type is {kind!r}"
            )
            self._problem(path, f"needs {because}")
            return None
        return by_url

    def _has_all_types(self, path: tuple[Any, ...], entry: Mapping[Any, Any]) -> bool:
        before = len(self._problems)
        for key in ("command", "cwd", "url"):
            self._of(str, path, entry, key)
        for index, item in enumerate(self._of(list, path, entry, "args") or ()):
            if not isinstance(item, str):
                self._problem((*path, "args", index), f"must be a string, not {_kind(item)}")
        for key in ("env", "headers"):
            # Values must be strings, as environments and headers have nothing else: `"PORT": 8080` is reported, not
            # converted.
            for name, value in (self._of(dict, path, entry, key) or {}).items():
                if not isinstance(name, str) or not isinstance(value, str):
                    self._problem((*path, key, name), f"must be a string, not {_kind(value)}")
        return len(self._problems) == before

    def _of(self, kind: type, path: tuple[Any, ...], entry: Mapping[Any, Any], key: str) -> Any:
        """Return a value if it is present and of its type; note a problem if it has another type."""
        value = entry.get(key)
        # By the key, not by None: a null in the file is a wrong value, not a missing one.
        if key in entry and not isinstance(value, kind):
            self._problem((*path, key), f"must be {KINDS[kind]}, not {_kind(value)}")
            return None
        return value

    def _filled(self, path: tuple[Any, ...], value: Any) -> Any:
        """Return a value with the variables in all its strings filled in."""
        if isinstance(value, list):
            return [self._filled((*path, index), item) for index, item in enumerate(value)]
        if isinstance(value, dict):
            # Values only: a variable in the name of a variable or header would be a surprise.
            return {key: self._filled((*path, key), item) for key, item in value.items()}
        text, problems = expand(value, self._variables)
        for problem in problems:
            self._problem(path, problem)
        return text


def _where(path: tuple[Any, ...]) -> str:
    """Describe a path in words."""
    if not path:
        return ""
    if path[0] not in TABLES or len(path) == 1:
        return f"{path[0]}: "
    inner = "".join(f"[{key}]" if isinstance(key, int) else f".{key}" for key in path[2:])
    return f"server {path[1]!r}: " + (f"{inner[1:]}: " if inner else "")


def _kind(value: object) -> str:
    """Name a value's type in JSON's words, but never the value, which may be a secret."""
    if value is None:
        return "null"
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return "a number"
    return next((name for kind, name in KINDS.items() if isinstance(value, kind)), type(value).__name__)


# --- variables: ${NAME}, ${NAME:-default}, ${env:NAME} -------------------------------------------------------------

_REFERENCE = re.compile(r"\$\{([^}]*)\}")
# The names that POSIX shells accept.
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def expand(text: str, variables: Mapping[str, str]) -> tuple[str, list[str]]:
    """Fill in variables, once: a value that is filled in is not expanded again.

    As in a shell, a default counts if the variable is not set or empty.

    Args:
        text: The text.
        variables: The variables that are set.

    Returns:
        The expanded text, and the problems found.
    """
    problems: list[str] = []

    def value(reference: re.Match[str]) -> str:
        name, has_default, default = reference[1].partition(":-")
        name = name.removeprefix("env:")
        if not _NAME.fullmatch(name):
            problems.append(
                f"{reference[0]} can't be filled in; the forms are ${{NAME}}, ${{NAME:-default}} and ${{env:NAME}}"
            )
            return reference[0]
        if has_default:
            # `or`: an empty value counts as missing, like `:-` in a shell.
            return variables.get(name) or default
        if name not in variables:
            # An unset variable is a problem and not an empty text: a server without its token would fail later, and
            # less clearly.
            problems.append(f"the variable {name} is not set; set it, or give a default: ${{{name}:-default}}")
        return variables.get(name, reference[0])

    return _REFERENCE.sub(value, text), problems


# --- the lines of the keys in a JSON text, which json.loads does not report -------------------------------------------

Place: TypeAlias = tuple[str | int, ...]

# Strings with their escapes, punctuation, and runs of anything else (numbers, true, false, null).
_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\],:]|[^\s{}\[\],:"]+')


@attrs.frozen
class Places:
    """The lines of a JSON text, counted from 1, by the path of the value.

    Attributes:
        lines: The line of each key and each item of an array.
        repeated: The path and line of each key that its object already has.
    """

    lines: dict[Place, int] = attrs.field(factory=dict)
    repeated: list[tuple[Place, int]] = attrs.field(factory=list)

    def line(self, path: Place) -> int | None:
        """Return the line of a value, or of its nearest parent that has one."""
        while path and path not in self.lines:
            path = path[:-1]
        return self.lines.get(path)


@attrs.define
class _Container:
    path: Place
    is_object: bool
    key: str | int = 0
    expects_key: bool = True
    keys: set[str] = attrs.field(factory=set)


def locate(text: str) -> Places:
    """Find the lines of every key and every item.

    Args:
        text: Valid JSON: a parser has accepted it, so that one regular expression for tokens is enough.
    """
    places = Places()
    containers: list[_Container] = []
    line, counted = 1, 0
    for token in _TOKEN.finditer(text):
        # Counted from token to token, so the whole takes linear time.
        line += text.count("\n", counted, token.start())
        counted = token.start()
        inner = containers[-1] if containers else None
        mark = token[0]
        if mark in "}]":
            containers.pop()
        elif mark == ",":
            assert inner is not None
            inner.expects_key = True
            if isinstance(inner.key, int):
                inner.key += 1
        elif mark == ":":
            pass
        elif inner is not None and inner.is_object and inner.expects_key:
            # Decoded, as a parser takes two spellings of a key, with and without escapes, for the same.
            key = json.loads(mark)
            inner.key, inner.expects_key = key, False
            path = (*inner.path, key)
            if key in inner.keys:
                # A parser keeps the last one silently: the first server of that name would just be missing.
                places.repeated.append((path, line))
            inner.keys.add(key)
            places.lines[path] = line  # of the last one, which json.loads keeps
        else:
            path = () if inner is None else (*inner.path, inner.key)
            # Keys have their line already, and it is the better place for a message than that of the value.
            places.lines.setdefault(path, line)
            if mark in "{[":
                containers.append(_Container(path, mark == "{"))
    return places
