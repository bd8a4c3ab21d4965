"""Read the files in which hosts list their servers: ``mcpServers`` and similar formats."""

from __future__ import annotations

import contextlib
import importlib
import json
import os
from collections.abc import Callable, Collection, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Literal, NoReturn, TypeAlias

from trio_mcp._checks import FilledText
from trio_mcp._keywords import did_you_mean, similar_names
from trio_mcp._log import logger
from trio_mcp.client.config.text import Place, Places, parsed, read_regular, without_comments
from trio_mcp.client.config.variables import expand, read_env_file
from trio_mcp.client.failover.parameters import FailoverParameters
from trio_mcp.client.targets import LinkFactory
from trio_mcp.errors import ConfigError
from trio_mcp.http.client.auth import Auth
from trio_mcp.http.client.parameters import HttpKind, HttpServerParameters
from trio_mcp.sockets.addresses import read_address
from trio_mcp.stdio.parameters import StdioServerParameters

__all__ = ["Config", "ConfigSource", "Configured", "MakeAuth", "load_config", "load_members", "read_config"]

MakeAuth: TypeAlias = Callable[[object], Auth]
"""Makes an ``auth=`` argument from the value of an entry's ``"auth"`` key, or raises `ValueError`."""

ConfigSource: TypeAlias = str | os.PathLike[str] | Mapping[str, Any]

Configured: TypeAlias = StdioServerParameters | HttpServerParameters | FailoverParameters | str
"""A target for a `Client`, as a configuration describes it; a string is the URL of a socket."""

# The first key is Claude Desktop's, which most hosts use.
TABLES = ("mcpServers", "servers", "context_servers", "extensions")
"""The keys under which hosts list their servers: the usual one, and those of VS Code, Zed and Goose."""

Kind: TypeAlias = HttpKind | Literal["socket"]

# Hosts use different names for the same type of transport.
TYPES: dict[str, Kind | None] = {
    "stdio": None,
    "http": "http",
    "streamable-http": "http",
    "streamableHttp": "http",
    "streamable_http": "http",
    "sse": "sse",
    "ws": "ws",
    "websocket": "ws",
    "tcp": "socket",
    "unix": "socket",
}

SCHEMES: dict[str, Kind] = {"ws": "ws", "wss": "ws", "tcp": "socket", "tls": "socket", "unix": "socket"}
"""The type of a server without a ``"type"`` in its entry, by the scheme of its URL; any other scheme means HTTP."""

PROCESS_KEYS = ("command", "args", "env", "envFile", "cwd")
URL_KEYS = ("url", "headers", "auth")
KEYS = (*PROCESS_KEYS, *URL_KEYS, "type", "disabled", "enabled", "failover")

# The names in OTHER_NAMES are used by Gemini CLI, Windsurf and some libraries. Goose's names are accepted only in
# Goose's own table; in any other table they count as mistakes.
OTHER_NAMES = {"httpUrl": "url", "serverUrl": "url", "transport": "type"}
GOOSE_NAMES = {"cmd": "command", "envs": "env", "uri": "url"}
"""The names that Goose gives to keys of an entry, each with our name for the same key."""

# These keys are hosts' own settings, accepted so that a host's file can be used as it is. They don't affect how a
# server is reached.
HOST_KEYS = (
    *("alwaysAllow", "alwaysLoad", "autoApprove", "available_tools", "bundled", "description", "dev", "disabledTools"),
    *("display_name", "enabledTools", "excludeTools", "extension", "gallery", "icon", "includeTools", "name"),
    *("sandbox", "sandboxEnabled", "settings", "source", "timeout", "trust", "version"),
)
"""Keys of a server's entry that are ignored."""

AUTH_KEYS = ("authProviderType", "env_keys", "headersHelper", "oauth", "targetAudience", "targetServiceAccount")
"""Keys that are ignored with a warning: they make a host provide credentials, which this library can't do."""

# The types of the extensions that are built into Goose.
BUILT_IN = ("builtin", "frontend", "inline_python", "platform")

# The names of the types in JSON, for use in messages.
KINDS = {str: "a string", bool: "true or false", dict: "an object", list: "an array"}


def load_config(
    source: ConfigSource,
    *,
    only: Collection[str] | None = None,
    environ: Mapping[str, str] | None = None,
    variables: Mapping[str, str] | None = None,
) -> dict[str, Configured]:
    """Read the enabled servers of a configuration, and return targets for a `Client` by server name.

    A key that no host is known to use is logged as a warning, unless it looks misspelt, which is an error.

    Args:
        source: The path of a JSON file, which may have comments, or its content as a mapping:
            ``{"mcpServers": {"name": {"command": …}}}``.
        only: The names of the servers to read. Other entries may be invalid, or use variables that are not set.
        environ: The variables for ``${NAME}``; by default those of this process.
        variables: The variables that a host defines in addition to the environment: ``{"workspaceFolder": …,
            "input:key": …}``.

    Raises:
        ConfigError: If the configuration is invalid, or a name in ``only`` is not that of an enabled server. The error
            lists every problem, with file, line and server.
    """
    config = read_config(source, environ=environ, variables=variables)
    # A string is itself a collection of strings, but a string passed as `only` is meant as one name.
    names = config.names if only is None else (only,) if isinstance(only, str) else only
    found: dict[str, Configured] = {}
    problems: list[str] = []
    for name in names:
        try:
            found[name] = config.target(name)
        except ConfigError as exc:
            problems += exc.problems
    if problems:
        raise ConfigError(config.source, tuple(problems))
    return found


def load_members(
    source: ConfigSource, *, environ: Mapping[str, str] | None = None, variables: Mapping[str, str] | None = None
) -> dict[str, Configured | LinkFactory]:
    """Read the servers of a configuration for a group that can do without some of them.

    A server whose entry is invalid becomes a target that fails with the `ConfigError`. In all other respects, this
    works like `load_config`.
    """
    config = read_config(source, environ=environ, variables=variables)
    found: dict[str, Configured | LinkFactory] = {}
    for name in config.names:
        try:
            found[name] = config.target(name)
        except ConfigError as exc:
            found[name] = partial(_fail, exc)
    return found


def _fail(error: ConfigError) -> NoReturn:
    # A new error is raised each time: a group sets the server's name on the errors that it catches.
    raise ConfigError(error.source, error.problems)


def _auth_of(settings: object) -> Auth:
    # The module is imported by name, and only when it is needed: this package is in a layer below `trio_mcp.auth`, and
    # few configurations use authorization.
    made: Auth = importlib.import_module("trio_mcp.auth.client.settings").auth_of(settings)
    return made


def read_config(
    source: ConfigSource,
    *,
    environ: Mapping[str, str] | None = None,
    variables: Mapping[str, str] | None = None,
    make_auth: MakeAuth = _auth_of,
) -> Config:
    """Read a configuration, but leave checking its servers to `Config.target`.

    The arguments mean the same as in `load_config`; ``make_auth`` reads the ``"auth"`` of each server.

    Raises:
        ConfigError: If the file can't be read or parsed, or has no valid table of servers.
    """
    # `environ or os.environ` would be wrong: an empty mapping means that no variable is set.
    environ = os.environ if environ is None else environ
    if isinstance(source, Mapping):
        return Config("the configuration", source, Places(), environ, variables or {}, None, make_auth)
    if not isinstance(source, (str, os.PathLike)):
        raise TypeError(f"a configuration must be the path of a file or a mapping, got {type(source).__name__}")
    name = os.fspath(source)
    if name.endswith((".yaml", ".yml")):
        instead = "name the server's own file, or parse the YAML yourself and pass the mapping to load_config()"
        raise ConfigError(name, (f"{name}: YAML is not supported: {instead}",))
    # Comments are accepted in every file, because hosts differ in which files may have them.
    text = without_comments(_text_of(name))
    try:
        content, places = parsed(text)
    except json.JSONDecodeError as exc:
        raise ConfigError(name, (f"{name}:{exc.lineno}:{exc.colno}: not valid JSON: {exc.msg}",)) from None
    except ValueError as exc:
        raise ConfigError(name, (f"{name}: not a valid configuration: {exc}",)) from None
    return Config(name, content, places, environ, variables or {}, Path(name).absolute().parent, make_auth)


def _text_of(name: str) -> str:
    try:
        return read_regular(Path(name)).decode("utf-8-sig")  # some editors write a byte order mark
    except OSError as exc:
        raise ConfigError(name, (f"{name}: can't be read: {exc.strerror or exc}",)) from exc
    except UnicodeDecodeError as exc:
        raise ConfigError(name, (f"{name}: not valid UTF-8: {exc.reason} at byte {exc.start}",)) from None
    except ValueError as exc:
        raise ConfigError(name, (f"{name}: {exc}",)) from None


class Config:
    """A configuration whose servers are checked one by one.

    Args:
        source: The name of the configuration, for messages.
        content: The parsed content.
        places: The positions of the values in the file.
        environ: As in `load_config`.
        variables: As in `load_config`.
        folder: The folder of the configuration file; None if there is no file.
        make_auth: As in `read_config`.

    Attributes:
        source: The argument.
        table: The key under which the configuration lists its servers.
        names: The names of the servers that are not disabled, in the order of the file.
        environ: The argument.
        variables: The argument, plus the variables that are known without it.
        folder: The folder that relative paths start from.
        make_auth: The argument.
        places: The argument.

    Raises:
        ConfigError: If the content has no valid table of servers.
    """

    def __init__(
        self,
        source: str,
        content: object,
        places: Places,
        environ: Mapping[str, str],
        variables: Mapping[str, str],
        folder: Path | None,
        make_auth: MakeAuth,
    ) -> None:
        self.make_auth = make_auth
        self.source, self.places, self.environ = source, places, environ
        self.table = self._table(content)
        assert isinstance(content, Mapping)
        self._entries: Mapping[Any, object] = content[self.table]
        if any(path == (self.table,) for path, _ in places.repeated):
            raise self.error((self.table,), "the key appears twice")
        # Cursor and VS Code keep this file in a folder of their own inside the workspace, so the workspace is the
        # parent of that folder.
        workspace = folder.parent if folder is not None and folder.name in (".cursor", ".vscode") else None
        known = {"pathSeparator": os.sep, "/": os.sep}
        with contextlib.suppress(RuntimeError):  # the user has no home directory, as in some containers
            known["userHome"] = str(Path.home())
        known |= {} if workspace is None else {"workspaceFolder": str(workspace)}
        self.variables = {**known, **_defaults(content.get("inputs")), **variables}
        if "workspaceFolder" in self.variables:
            base = os.path.basename(self.variables["workspaceFolder"])
            self.variables.setdefault("workspaceFolderBasename", base)
        self.folder = Path(self.variables.get("workspaceFolder") or folder or ".")
        names = [name for name, entry in self._entries.items() if not _is_off(entry)]
        self.names = tuple(sorted(names, key=lambda name: places.line((self.table, name)) or 0))
        # Repeated keys are grouped by server, so that `target` need not search all of them: a file may have thousands
        # of servers and of repeated keys.
        self._repeated: dict[Any, list[tuple[Place, int]]] = {}
        for each, line in places.repeated:
            if each[0] == self.table:
                self._repeated.setdefault(each[1], []).append((each, line))

    @property
    def listed(self) -> str:
        """The names of the enabled servers as one string, for messages."""
        return ", ".join(map(str, self.names)) or "none"

    def target(self, name: str) -> Configured:
        """Return the target for a server, and log warnings about its entry.

        Raises:
            ConfigError: If its entry is invalid, or there is no enabled server of that name. The error lists every
                problem.
        """
        if name not in self._entries or _is_off(self._entries[name]):
            meant = did_you_mean(name, map(str, self.names)) or f"; its servers are: {self.listed}"
            raise ConfigError(self.source, (f"{self.source} has no enabled server {name!r}{meant}",))
        path = (self.table, name)
        judge = _Judge(self)
        judge.problems += [
            (line, f"{self.source}:{line}: {_where(repeated)}the key appears twice")
            for repeated, line in self._repeated.get(name, ())
        ]
        found = None
        if not isinstance(name, str) or not name:
            judge.problem(path, "a server's name must be a non-empty string")
        else:
            found = judge.entry(path, self._entries[name])
        if judge.problems or found is None:
            # Sorting by line puts the problems in the order of the file.
            raise ConfigError(self.source, tuple(text for _, text in sorted(judge.problems)))
        for warning in judge.warnings:
            logger.warning("%s", warning)
        return found

    def error(self, path: tuple[Any, ...], text: str) -> ConfigError:
        """Return an error about a value of the configuration."""
        return ConfigError(self.source, (self.said(path, text)[1],))

    def said(self, path: tuple[Any, ...], text: str) -> tuple[int, str]:
        """Return the line of a value (0 if unknown), and a message that begins with the value's position."""
        line = self.places.line(path)
        place = self.source if line is None else f"{self.source}:{line}"
        return line or 0, f"{place}: {_where(path)}{text}"

    def _table(self, content: object) -> str:
        if not isinstance(content, Mapping):
            raise self.error((), f"must be an object with the key 'mcpServers', not {_kind(content)}")
        found = [name for name in TABLES if name in content]
        if not found:
            near = similar_names("mcpServers", [key for key in content if isinstance(key, str)], 1)
            raise self.error(near, f"there is no key 'mcpServers' (or {', '.join(map(repr, TABLES[1:3]))})")
        if found[:2] == ["mcpServers", "servers"]:
            raise self.error(("servers",), "there are both 'mcpServers' and 'servers'; keep one")
        if not isinstance(content[found[0]], Mapping):
            raise self.error((found[0],), f"must be an object, not {_kind(content[found[0]])}")
        return found[0]


def _defaults(inputs: object) -> dict[str, str]:
    """Return the default values of VS Code's ``inputs``, by the names of their variables."""
    return {
        f"input:{each['id']}": each["default"]
        for each in (inputs if isinstance(inputs, list) else ())
        if isinstance(each, Mapping) and isinstance(each.get("id"), str) and isinstance(each.get("default"), str)
    }


def _is_off(entry: object) -> bool:
    """Return whether an entry is disabled, or describes a server that only its host can start."""
    if not isinstance(entry, Mapping):
        return False
    if entry.get("disabled") is True or entry.get("enabled") is False or entry.get("type") in BUILT_IN:
        return True
    # Zed also lists the settings of its extensions in the table of servers; such an entry has neither a command nor a
    # URL.
    return "settings" in entry and "command" not in entry and "url" not in entry


class _Judge:
    """Reads the entry of one server, collecting all problems instead of stopping at the first."""

    def __init__(self, config: Config) -> None:
        self.problems: list[tuple[int, str]] = []
        self.warnings: list[str] = []
        self._config = config
        self._other_names = {**OTHER_NAMES, **(GOOSE_NAMES if config.table == "extensions" else {})}

    def problem(self, path: tuple[Any, ...], text: str) -> None:
        """Record a problem with the value at a path."""
        self.problems.append(self._config.said(path, text))

    def _warn(self, path: tuple[Any, ...], text: str) -> None:
        self.warnings.append(self._config.said(path, text)[1])

    def entry(self, path: tuple[Any, ...], entry: object) -> Configured | None:
        """Return the target that an entry describes; None if the entry has problems or is disabled."""
        if not isinstance(entry, Mapping):
            self.problem(path, f"must be an object, not {_kind(entry)}")
            return None
        # `disabled` and `enabled` are read first: a disabled entry may be incomplete, or use variables that are not
        # set.
        switches = [self._of(bool, path, entry, key) for key in ("disabled", "enabled")]
        if switches[0] or switches[1] is False:
            return None
        return self._failover(path, entry) if "failover" in entry else self._server(path, entry)

    def _failover(self, path: tuple[Any, ...], entry: Mapping[Any, Any]) -> FailoverParameters | None:
        before = len(self.problems)
        for key in entry:
            if key not in ("failover", "disabled", "enabled", *HOST_KEYS):
                self.problem((*path, key), "not allowed beside 'failover': put it in the entries of the failover list")
        path = (*path, "failover")
        targets = []
        for index, each in enumerate(self._of(list, path[:-1], entry, "failover") or ()):
            if isinstance(each, Mapping) and "failover" in each:
                self.problem((*path, index), "can't contain another failover list")
            elif (target := self.entry((*path, index), each)) is not None:
                targets.append(target)
        if len(self.problems) > before:
            return None
        if not targets:
            self.problem(path, "needs at least one entry that is not disabled")
            return None
        return FailoverParameters(targets)

    def _server(
        self, path: tuple[Any, ...], entry: Mapping[Any, Any]
    ) -> StdioServerParameters | HttpServerParameters | str | None:
        before = len(self.problems)
        entry = self._renamed(path, entry)
        self._look_at_keys(path, entry)
        by_url = self._goes_by_url(path, entry)
        misplaced = PROCESS_KEYS if by_url else URL_KEYS
        for key in misplaced:
            # An empty value is accepted, because some hosts write every key, even those that a server does not use.
            if by_url is not None and entry.get(key) not in (None, {}, [], ""):
                self.problem((*path, key), f"not allowed for a server with {'a url' if by_url else 'a command'}")
        # Types are checked before variables are filled in: `_filled` treats everything that is neither a list nor an
        # object as a string.
        if by_url is None or not self._has_all_types(path, entry):
            return None
        plain = {key: entry[key] for key in (URL_KEYS if by_url else PROCESS_KEYS) if key in entry}
        filled = {key: self._filled((*path, key), value) for key, value in plain.items()}
        if "envFile" in filled:
            filled["env"] = {**self._from_file(path, filled.pop("envFile")), **filled.get("env", {})}
            del plain["envFile"]
        # If the entry has problems, it is not made into a target: that could only fail with a less precise message.
        if len(self.problems) > before:
            return None
        # If the entry has no type, the scheme of the URL determines the type.
        scheme = filled.get("url", "").partition(":")[0].lower()
        kind = TYPES[entry["type"]] if "type" in entry else SCHEMES.get(scheme, "http" if by_url else None)
        try:
            if "auth" in filled:
                plain["auth"] = filled["auth"] = self._config.make_auth(filled["auth"])
        except (ValueError, ImportError) as exc:  # the texts show no values; an ImportError names a missing extra
            self.problem((*path, "auth"), str(exc))
            return None
        try:
            return _made(filled, kind)
        except (TypeError, ValueError):
            text = "not valid once its variables are filled in"
        # The text of this error might show a value, which may be a secret. So the target is made again without filling
        # in the variables. This usually fails for the same reason, and its text is safe to show.
        try:
            _made(plain, kind)
        except (TypeError, ValueError) as exc:
            text = str(exc)
        self.problem(path, text)
        return None

    def _renamed(self, path: tuple[Any, ...], entry: Mapping[Any, Any]) -> dict[Any, Any]:
        """Return a copy of an entry that uses our names for its keys."""
        found = dict(entry)
        for other, name in self._other_names.items():
            if other in found and name in found:
                self.problem((*path, other), f"means the same as {name!r}; keep one")
            elif other in found:
                found[name] = found.pop(other)
        return found

    def _look_at_keys(self, path: tuple[Any, ...], entry: Mapping[Any, Any]) -> None:
        for key in entry:
            if key in KEYS or key in HOST_KEYS or key in self._other_names:
                continue
            # `str()` is needed because a mapping, given in place of a file, may have keys of any type.
            near = similar_names(str(key), [each for each in KEYS if each not in entry], 1)
            near = (GOOSE_NAMES[key],) if key in GOOSE_NAMES else near
            if key in AUTH_KEYS:
                self._warn((*path, key), "this key is ignored; to authorize requests, use auth, headers or env")
            elif near:
                self.problem((*path, key), f"unknown key; did you mean {near[0]!r}?")
            else:
                self._warn((*path, key), "unknown key; it is ignored")

    def _from_file(self, path: tuple[Any, ...], name: str) -> dict[str, str]:
        try:
            return read_env_file(self._config.folder / name)
        except OSError as exc:
            self.problem((*path, "envFile"), f"can't be read: {exc.strerror or exc}")
        except ValueError as exc:
            self.problem((*path, "envFile"), str(exc))
        return {}

    def _goes_by_url(self, path: tuple[Any, ...], entry: Mapping[Any, Any]) -> bool | None:
        """Return whether the server has a URL rather than a command, or None if its entry does not say."""
        kind = self._of(str, path, entry, "type")
        if kind is not None and kind not in TYPES:
            self.problem((*path, "type"), f"must be one of {', '.join(TYPES)}{did_you_mean(kind, TYPES)}")
            return None
        by_url = TYPES[kind] is not None if kind is not None else "url" in entry and "command" not in entry
        needed = "url" if by_url else "command"
        if needed not in entry:
            because = (
                "one of 'command', 'url' and 'failover'" if kind is None else f"{needed!r}, as its type is {kind!r}"
            )
            self.problem(path, f"needs {because}")
            return None
        return by_url

    def _has_all_types(self, path: tuple[Any, ...], entry: Mapping[Any, Any]) -> bool:
        before = len(self.problems)
        for key in ("command", "cwd", "envFile", "url"):
            self._of(str, path, entry, key)
        for index, item in enumerate(self._of(list, path, entry, "args") or ()):
            if not isinstance(item, str):
                self.problem((*path, "args", index), f"must be a string, not {_kind(item)}")
        if "auth" in entry:
            self._check_auth((*path, "auth"), entry["auth"])
        for key in ("env", "headers"):
            # Environment variables and headers can only be strings, so a value such as `"PORT": 8080` is reported as a
            # problem, not converted.
            for name, value in (self._of(dict, path, entry, key) or {}).items():
                if not isinstance(name, str) or not isinstance(value, str):
                    self.problem((*path, key, name), f"must be a string, not {_kind(value)}")
        return len(self.problems) == before

    def _check_auth(self, path: tuple[Any, ...], value: object) -> None:
        # Only the types and the variables are checked: this module does not know what the object must contain.
        values = value.values() if isinstance(value, Mapping) else [value]
        flat = [
            each for one in values if not isinstance(one, bool) for each in (one if isinstance(one, list) else [one])
        ]
        if not isinstance(value, (str, dict)) or not all(isinstance(each, str) for each in flat):
            self.problem(path, "must be an object of strings, arrays of strings and booleans")

    def _of(self, kind: type, path: tuple[Any, ...], entry: Mapping[Any, Any], key: str) -> Any:
        """Return the value of a key if it has the given type; record a problem if it has another type."""
        value = entry.get(key)
        # The test is whether the key is present, not whether the value is None: a null in the file is a wrong value,
        # not a missing one.
        if key in entry and not isinstance(value, kind):
            self.problem((*path, key), f"must be {KINDS[kind]}, not {_kind(value)}")
            return None
        return value

    def _filled(self, path: tuple[Any, ...], value: Any) -> Any:
        """Return a value with the variables in all its strings filled in."""
        if isinstance(value, list):
            return [self._filled((*path, index), item) for index, item in enumerate(value)]
        if isinstance(value, dict):
            # Variables are filled in only in values, not in keys: a variable in the name of a header or of an
            # environment variable would be a surprise.
            return {key: self._filled((*path, key), item) for key, item in value.items()}
        if isinstance(value, bool):
            return value
        text, problems = expand(value, self._config.environ, self._config.variables)
        for problem in problems:
            self.problem(path, problem)
        if "${input:" in value:
            others = {key: each for key, each in self._config.variables.items() if not key.startswith("input:")}
            text = FilledText(text, expand(value, self._config.environ, others)[0])
        # Gemini CLI also fills in a variable that is written without braces; most other hosts don't.
        if value[:1] == "$" and value[1:].isidentifier():
            self._warn(path, "a variable without braces is not filled in; write ${NAME}")
        return text


def _made(settings: dict[str, Any], kind: Kind | None) -> StdioServerParameters | HttpServerParameters | str:
    """Make the target for a server. Invalid values raise `TypeError` or `ValueError`."""
    if kind is None:
        return StdioServerParameters(**settings)
    if kind != "socket":
        return HttpServerParameters(**settings, kind=kind)
    for key in ("headers", "auth"):
        if settings.get(key):
            raise ValueError(f"a server on a socket takes no {key!r}")
    return read_address(settings["url"]).url


def _where(path: tuple[Any, ...]) -> str:
    """Describe the path of a value in words, as a prefix for a message."""
    if not path:
        return ""
    if path[0] not in TABLES or len(path) == 1:
        return f"{_shown(path[0])}: "
    inner = "".join(f"[{key}]" if isinstance(key, int) else f".{_shown(key)}" for key in path[2:])
    return f"server {path[1]!r}: " + (f"{inner[1:]}: " if inner else "")


def _shown(key: object) -> str:
    """Return a key of the configuration as text that is safe in a message on a terminal."""
    return str(key) if str(key).isprintable() else repr(key)


def _kind(value: object) -> str:
    """Name a value's type in JSON's words, but never the value, which may be a secret."""
    if value is None:
        return "null"
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return "a number"
    return next((name for kind, name in KINDS.items() if isinstance(value, kind)), type(value).__name__)
