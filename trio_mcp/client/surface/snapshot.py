"""Snapshots: all that a server offers and says about itself, as a file that stays the same while the server does."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import Any, Final, Self

import trio

from trio_mcp import _attrs as attrs
from trio_mcp.client.client import Client
from trio_mcp.errors import McpError, RemoteProtocolError, TrioMcpError
from trio_mcp.schema.comparison import is_deeper
from trio_mcp.types.error_codes import METHOD_NOT_FOUND
from trio_mcp.types.versions import REVISIONS

__all__ = ["KINDS", "Snapshot", "SnapshotError"]

FORMAT: Final = "trio-mcp"
"""The key under which a file says what it is."""
VERSION: Final = 1
MAX_FILE: Final = 64 * 1024 * 1024
"""The size of the largest file that is read, in bytes (an arbitrary choice: far more than any server lists)."""

MAX_DEPTH: Final = 200
"""The depth to which an item may be nested (an arbitrary choice, far below Python's recursion limit)."""

KINDS: Final[dict[str, tuple[str, Callable[[Client], AsyncIterator[Any]], str]]] = {
    "tools": ("tools", Client.iter_tools, "name"),
    "prompts": ("prompts", Client.iter_prompts, "name"),
    "resources": ("resources", Client.iter_resources, "uri"),
    "templates": ("resources", Client.iter_resource_templates, "uriTemplate"),
}
"""For each kind of item: the capability that it needs, the method that lists it, and the member that identifies it."""


class SnapshotError(TrioMcpError):
    """A file is not a snapshot, or one that can't be compared: the message says why, in one line."""


@attrs.frozen
class Snapshot:
    """All that a server offers, and says about itself, at one time to one client, as plain JSON data.

    Attributes:
        revision: The revision of the protocol in which the server was asked.
        server_info: The server's ``serverInfo``, or None.
        capabilities: Its capabilities.
        instructions: Its instructions, or None.
        items: Its tools, prompts, resources and templates, by kind; each by its name, URI or URI template, in order.
    """

    revision: str
    server_info: Mapping[str, Any] | None
    capabilities: Mapping[str, Any]
    instructions: str | None
    items: Mapping[str, Mapping[str, Mapping[str, Any]]]

    @classmethod
    async def of(cls, client: Client) -> Self:
        """Ask a server for all its lists, and return the snapshot. A list that was not declared is empty.

        Raises:
            RemoteProtocolError: If the server lists two items of the same name, or what it says is nested too deeply.

        Further errors, and cancellation, are those of `Client.list_tools`.
        """
        await trio.lowlevel.checkpoint()  # a server may have no lists to ask for
        capabilities = client.capabilities
        info = None if client.server_info is None else client.server_info.to_wire()
        if is_deeper([capabilities.to_wire(), info], MAX_DEPTH):
            raise RemoteProtocolError("the server's capabilities are nested too deeply")
        items = {}
        for kind, (capability, iterate, key) in KINDS.items():
            found: list[dict[str, Any]] = []
            if getattr(capabilities, capability) is not None:
                try:
                    found = [item.to_wire() async for item in iterate(client)]
                except McpError as exc:
                    # A server that has resources need not have templates.
                    if kind != "templates" or exc.code != METHOD_NOT_FOUND:
                        raise
            items[kind] = _named(kind, found, key)
        return cls(
            client.protocol_version,
            info,
            capabilities.to_wire(),
            client.instructions,
            items,
        )

    @classmethod
    def read(cls, path: str | Path) -> Self:
        """Read a snapshot from a file.

        Raises:
            SnapshotError: If the file can't be read, is not a snapshot, or one of another version of the format.
        """
        try:
            with open(path, "rb") as file:
                data = file.read(MAX_FILE + 1)
        except FileNotFoundError:
            raise SnapshotError(f"there is no file {path}; `trio-mcp snapshot TARGET > {path}` writes it") from None
        except (OSError, ValueError) as exc:  # a ValueError: a path with a null character
            raise SnapshotError(f"can't read {path}: {getattr(exc, 'strerror', exc)}") from None
        if len(data) > MAX_FILE:
            raise SnapshotError(f"{path}: the file is too large; the limit is {MAX_FILE} bytes")
        try:
            return cls._from(json.loads(data))
        # A file may come from anywhere, so one that is nested too deeply is reported like any other malformed one.
        except (ValueError, RecursionError) as exc:
            reason = "nested too deeply" if isinstance(exc, RecursionError) else exc
            raise SnapshotError(f"{path}: this is not a snapshot of trio-mcp: {reason}") from None
        except SnapshotError as exc:
            raise SnapshotError(f"{path}: {exc}") from None

    @classmethod
    def _from(cls, found: Any) -> Self:
        if not isinstance(found, dict) or found.get(FORMAT) != "snapshot":
            raise ValueError('it does not begin with "trio-mcp": "snapshot"')
        if found.get("version") != VERSION:
            version = json.dumps(found.get("version"))[:20]
            raise SnapshotError(f"a snapshot of version {version} of the format; this trio-mcp reads version {VERSION}")
        if (revision := found.get("protocolVersion")) not in REVISIONS:
            raise SnapshotError(f"a snapshot of an unknown revision of the protocol: {json.dumps(revision)[:40]}")
        info, instructions = found.get("serverInfo"), found.get("instructions")
        if info is not None and not isinstance(info, dict):
            raise ValueError("serverInfo must be an object")
        if instructions is not None and not isinstance(instructions, str):
            raise ValueError("instructions must be a string")
        if not isinstance(found.get("capabilities"), dict) or is_deeper([found["capabilities"], info], MAX_DEPTH):
            raise ValueError("capabilities must be an object")
        items = {}
        for kind, (_, _, key) in KINDS.items():
            listed = found.get(kind)
            if not isinstance(listed, list) or not all(isinstance(each, dict) for each in listed):
                raise ValueError(f"{kind} must be a list of objects")
            if not all(isinstance(each.get(key), str) for each in listed):
                raise ValueError(f"each of the {kind} must have a {key}, a string")
            try:
                items[kind] = _named(kind, listed, key)
            except RemoteProtocolError as exc:
                raise ValueError(str(exc)) from None
        return cls(revision, info, found["capabilities"], instructions, items)

    def text(self) -> str:
        """Return the content of a file: sorted, so that the same server gives the same text, and ASCII only."""
        found = {
            FORMAT: "snapshot",
            "version": VERSION,
            "protocolVersion": self.revision,
            "serverInfo": self.server_info,
            "capabilities": self.capabilities,
            "instructions": self.instructions,
            **{kind: [*items.values()] for kind, items in self.items.items()},
        }
        # The kind of the file stands first; below that, members are sorted. Characters that could hide something from a
        # reader, or control a terminal, are escaped.
        members = [f"{json.dumps(name)}: {_indented(value)}" for name, value in found.items()]
        return "{\n  " + ",\n  ".join(members) + "\n}\n"


def _indented(value: Any) -> str:
    return json.dumps(value, indent=2, sort_keys=True).replace("\n", "\n  ")


def _named(kind: str, items: list[dict[str, Any]], key: str) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    for item in sorted(items, key=lambda each: str(each[key])):
        # Which of two a client uses depends on the client, so neither can be compared.
        if item[key] in found:
            raise RemoteProtocolError(f"the server lists {item[key][:100]!a} twice among its {kind}")
        if is_deeper(item, MAX_DEPTH):
            raise RemoteProtocolError(f"{item[key][:100]!a} is nested more than {MAX_DEPTH} levels deep")
        found[item[key]] = item
    return found
