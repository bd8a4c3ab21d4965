"""Pins: the descriptions of tools that were approved, so that a server can't change one unnoticed.

A tool is pinned by the SHA-256 of its canonical JSON, below its server's command or URL, and below the principal for
whom it is listed. The name that a server gives itself plays no role, as a server can give itself any name.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, TypeAlias
from urllib.parse import urlsplit

from trio_mcp import _attrs as attrs
from trio_mcp._checks import as_written
from trio_mcp._files import PRIVATE, temporary
from trio_mcp._secrets import mask_words
from trio_mcp.client.failover.parameters import FailoverParameters
from trio_mcp.client.surface.drift import tool_drift
from trio_mcp.client.targets import Target, target_name
from trio_mcp.errors import ConfigError, ToolNotApproved
from trio_mcp.http.client.parameters import HttpServerParameters
from trio_mcp.principal import Principal, as_principal
from trio_mcp.schema.comparison import canonical, is_deeper
from trio_mcp.stdio.parameters import StdioServerParameters

__all__ = ["Owner", "Pins", "SeenTools", "Unapproved"]

FORMAT: Final = "trio-mcp"
VERSION: Final = 1
MAX_FILE: Final = 64 * 1024 * 1024
"""The size of the largest file that is read, in bytes (an arbitrary choice)."""
MAX_DEPTH: Final = 200
"""The depth to which a tool may be nested (an arbitrary choice, far below Python's recursion limit)."""

Tool: TypeAlias = Mapping[str, Any]
_Pinned: TypeAlias = dict[str, dict[str, dict[str, Tool]]]
"""Origin -> principal -> name -> the tool as it was approved."""


def _digest(tool: Tool) -> str:
    return hashlib.sha256(canonical(tool).encode()).hexdigest()


@attrs.frozen
class Owner:
    """Whose tools they are: the server's place in the group, where it comes from, and for whom it lists them.

    Attributes:
        server: The server's name in the group.
        origin: Its command, or its URL, without secrets.
        principal: On whose behalf it is asked; empty if the client has no principal.
    """

    server: str
    origin: str
    principal: str

    @classmethod
    def of(cls, server: str, target: Target, principal: str | Principal | None) -> Owner:
        """Return the owner of the tools of a client's target."""
        who = as_principal(principal, "principal")
        return cls(server, _origin(server, target), "" if who is None else " ".join(filter(None, who.identity)))


def _origin(server: str, target: Any) -> str:
    if isinstance(target, FailoverParameters):
        target = target.targets
    if isinstance(target, (list, tuple)):
        return ", ".join(_origin(server, each) for each in target)
    if isinstance(target, StdioServerParameters):
        command = mask_words(map(as_written, (target.command, *target.args)))
        # A relative path means another program in another folder.
        return f"command {command}" if target.cwd is None else f"command {command} in {os.fspath(target.cwd)}"
    if isinstance(target, (str, HttpServerParameters)):
        name = target_name(target)
        parts = urlsplit(name)
        # Schemes and hosts are case-insensitive (RFC 3986, section 3.2.2).
        return parts._replace(scheme=parts.scheme.lower(), netloc=parts.netloc.lower()).geturl()
    # A server in this process, or a function that connects, has no address: what it is called here stands for it.
    return f"program {server}"


@attrs.frozen
class Unapproved:
    """A tool that its server lists, and that was not approved as it is now.

    Attributes:
        owner: The server that lists it, and for whom.
        name: The server's own name for the tool.
        tool: The tool as it is listed now, as JSON data.
        approved: The tool as it was approved, or None if it is new.
    """

    owner: Owner
    name: str
    tool: Tool = attrs.field(repr=False)
    approved: Tool | None = attrs.field(default=None, repr=False)

    @property
    def fields(self) -> tuple[str, ...]:
        """The members that differ from those that were approved, such as ``description``; empty for a new tool."""
        if self.approved is None:
            return ()
        every = sorted(self.tool.keys() | self.approved.keys())
        missing = object()
        return tuple(
            name
            for name in every
            if (old := self.approved.get(name, missing)) is missing
            or (new := self.tool.get(name, missing)) is missing
            or canonical(old) != canonical(new)
        )

    @property
    def diff(self) -> tuple[str, ...]:
        """The changes, line by line, in printable ASCII: for a person, as a model may obey what it reads."""
        if self.approved is None:
            return ()
        return tuple(f"{each.effect}: {each.text}" for each in tool_drift(self.approved, self.tool, self.name))

    @property
    def error(self) -> ToolNotApproved:
        """The error for a call of this tool."""
        return ToolNotApproved(self.name, self.fields, self.diff)

    def __str__(self) -> str:
        return f"server {self.owner.server!r}: {self.error}"


class Pins:
    """The tools that are approved, and the file where they are kept.

    A `ClientGroup` makes it of ``pins=``, as ``group.pins``. Its methods read and write the file at once, in the task
    that calls them: it is small.

    Args:
        path: The file. If it does not exist yet, nothing is approved.

    Raises:
        ConfigError: If the file can't be read, or is malformed.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = Path(path)
        self._pinned = _read(self._path)
        self._new: list[Unapproved] = []

    def approve(self, *tools: Unapproved) -> None:
        """Approve tools as they are listed now; `save` keeps that."""
        for each in tools:
            if not isinstance(each, Unapproved):
                raise TypeError(f"only what is unapproved in a list of tools can be approved, got {each!r}")
        for each in tools:
            _pin(self._pinned, each)
            self._new.append(each)

    def save(self) -> None:
        """Write what was approved to the file, beside what other programs have approved there meanwhile.

        The file is replaced as a whole, and only its owner can read it.

        Raises:
            ConfigError: If the file can't be written, or has been damaged meanwhile.
        """
        pinned = _read(self._path)
        for each in self._new:
            _pin(pinned, each)
        try:
            _write(self._path, pinned)
        except OSError as exc:
            raise _unfit(self._path, f"can't write {self._path}: {exc.strerror}") from None
        self._pinned, self._new = pinned, []

    def unapproved(self, owner: Owner, name: str, tool: Tool) -> Unapproved | None:
        """Return what has to be approved of a tool; None if it is approved as it is."""
        known = self._pinned.get(owner.origin, {}).get(owner.principal, {}).get(name)
        if known is not None and _digest(known) == _digest(tool):
            return None
        return Unapproved(owner, name, tool, known)


class SeenTools:
    """The tools that a server has listed, until it says that they have changed, or is connected to again.

    Attributes:
        age: How often they may have changed.
        sure: Whether changes are announced; otherwise the list holds for one call.
    """

    def __init__(self) -> None:
        self.age = 0
        self.sure = True
        self._tools: dict[str, Tool] | None = None

    @property
    def known(self) -> Mapping[str, Tool] | None:
        """The tools by the server's own names; None if they have to be listed (again)."""
        return self._tools

    def forget(self) -> None:
        """Treat the tools as changed; a list that is on its way does not count."""
        self.age += 1
        self._tools = None

    def learn(self, tools: dict[str, Tool], age: int) -> None:
        """Keep the tools that the server has listed, unless it has changed since the list was asked for."""
        if age == self.age:
            self._tools = tools


def tool_data(tool: Any) -> Tool:
    """Return a tool as JSON data; one that is nested too deeply to be compared is replaced, and never approved."""
    data: dict[str, Any] = tool.to_wire()
    if is_deeper(data, MAX_DEPTH):
        # A tool that can't be compared is different each time.
        return {"name": tool.name, "nested more than": MAX_DEPTH, "seen": os.urandom(16).hex()}
    return data


# --- the file ---------------------------------------------------------------------------------------------------------


def _pin(pinned: _Pinned, each: Unapproved) -> None:
    pinned.setdefault(each.owner.origin, {}).setdefault(each.owner.principal, {})[each.name] = each.tool


def _unfit(path: Path, problem: str) -> ConfigError:
    return ConfigError(str(path), (problem,))


def _read(path: Path) -> _Pinned:
    try:
        with open(path, "rb") as file:
            data = file.read(MAX_FILE + 1)
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as exc:
        raise _unfit(path, f"can't read {path}: {getattr(exc, 'strerror', exc)}") from None
    try:
        if len(data) > MAX_FILE:
            raise ValueError(f"the file is larger than {MAX_FILE} bytes")
        return _pinned(json.loads(data))
    except RecursionError:
        raise _unfit(path, f"{path}: these are not the pins of trio-mcp: nested too deeply") from None
    except ValueError as exc:
        raise _unfit(path, f"{path}: these are not the pins of trio-mcp: {exc}") from None


def _pinned(found: Any) -> _Pinned:
    if not isinstance(found, dict) or found.get(FORMAT) != "pins":
        raise ValueError('it does not begin with "trio-mcp": "pins"')
    if found.get("version") != VERSION:
        raise ValueError(f"this trio-mcp reads version {VERSION} of the format")
    pinned: _Pinned = {}
    for origin, by_principal in _objects(found.get("servers"), "servers"):
        for principal, tools in _objects(by_principal, origin):
            for name, pin in _objects(tools, origin):
                where = f"the pin of {name[:100]!a} of {origin[:200]!a}"
                tool = pin.get("tool") if isinstance(pin, dict) else None
                if not isinstance(tool, dict) or is_deeper(tool, MAX_DEPTH):
                    raise ValueError(f"{where} has no tool")
                if pin.get("sha256") != _digest(tool):
                    raise ValueError(f"{where} is damaged: its sha256 is not that of its tool")
                pinned.setdefault(origin, {}).setdefault(principal, {})[name] = tool
    return pinned


def _objects(found: Any, what: str) -> Iterator[tuple[str, Any]]:
    if not isinstance(found, dict):
        raise ValueError(f"{what[:200]!a} must be an object")
    yield from found.items()


def _write(path: Path, pinned: _Pinned) -> None:
    servers = {
        origin: {
            principal: {name: {"sha256": _digest(tool), "tool": tool} for name, tool in tools.items()}
            for principal, tools in by_principal.items()
        }
        for origin, by_principal in pinned.items()
    }
    text = json.dumps({FORMAT: "pins", "version": VERSION, "servers": servers}, indent=2)
    with temporary(path, f"{text}\n".encode()) as written:
        os.chmod(written, PRIVATE)  # whatever the permissions of the old file
        os.replace(written, path)
