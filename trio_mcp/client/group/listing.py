"""What the servers of a group list, gathered from all of them at once, and remembered to find things by."""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import Any, Generic, TypeVar

import attrs
import trio

from trio_mcp.client.client import Client
from trio_mcp.client.group.connections import GroupConnections, did_you_mean
from trio_mcp.client.group.member import Member
from trio_mcp.client.targets import Target
from trio_mcp.errors import CapabilityError, LocalProtocolError, McpError, TrioMcpError
from trio_mcp.joined_names import JoinedNames
from trio_mcp.jsonrpc.messages import Notification
from trio_mcp.types.error_codes import INVALID_PARAMS, METHOD_NOT_FOUND

__all__ = ["GroupListing", "Listed", "about"]

ItemT = TypeVar("ItemT")

MAX_AT_ONCE = 16
"""Servers that are asked for a list at the same time."""


@attrs.frozen
class Listed(Generic[ItemT]):
    """A list of all servers of a group.

    Iterating gives the items of one server after the other.

    Attributes:
        by_server: The items of each server that gave a list, by its name. One that has not declared that it offers
            such things has none.
        errors: Why there is no list of the other servers, by their names.
    """

    by_server: dict[str, list[ItemT]]
    errors: dict[str, Exception]

    def __iter__(self) -> Iterator[ItemT]:
        for items in self.by_server.values():
            yield from items

    def __len__(self) -> int:
        return sum(map(len, self.by_server.values()))


@attrs.define
class Catalog:
    """What one server has listed since it was connected; None where it has not been asked.

    Attributes:
        names: The names in the group of its tools and of its prompts, by what they are.
        uris: The URIs of its resources.
        templates: Its URI templates.
    """

    names: dict[str, list[str]] = attrs.field(factory=dict)
    uris: frozenset[str] | None = None
    templates: tuple[str, ...] | None = None


@contextlib.contextmanager
def about(server: str) -> Iterator[None]:
    """What the library raises inside names the server."""
    try:
        yield
    except TrioMcpError as exc:
        exc.server = exc.server or server
        raise


class GroupListing(GroupConnections):
    """A group that asks all its servers, and knows things by name."""

    def __init__(self, servers: Mapping[str, Target], **options: Any) -> None:
        self._names = JoinedNames()
        self._catalogs: dict[str, Catalog] = {}
        super().__init__(servers, **options)

    def _new_member(self, name: str, target: Target, options: Mapping[str, Any]) -> Member:
        options = {**self._client_options, **options}
        callback = options.get("on_message")

        def on_message(notification: Notification) -> object:
            if notification.method == "notifications/resources/list_changed":
                self._forget_resources(name)
            return None if callback is None else callback(notification)

        return super()._new_member(name, target, {**options, "on_message": on_message})

    def _forget_resources(self, server: str) -> None:
        if server in self._catalogs:
            self._catalogs[server].uris = self._catalogs[server].templates = None

    def _forget(self, name: str) -> None:
        super()._forget(name)
        self._catalogs.pop(name, None)
        self._names.forget(name)

    def _status_changed(self, member: Member) -> None:
        if member.status.state == "connected":
            self._forget_resources(member.name)  # a server that was started anew may be another one
        super()._status_changed(member)

    def _catalog(self, server: str) -> Catalog:
        return self._catalogs.setdefault(server, Catalog()) if server in self._members else Catalog()

    async def _gather(
        self, get: Callable[[str, Client], Awaitable[list[ItemT]]], servers: list[str] | None = None
    ) -> Listed[ItemT]:
        """Ask servers, all of them by default, for a list each; one that fails costs no other anything."""
        found: dict[str, list[ItemT]] = {}
        errors: dict[str, Exception] = {}
        mistakes: list[Exception] = []
        limiter = trio.CapacityLimiter(MAX_AT_ONCE)

        async def ask(server: str) -> None:
            try:
                with about(server):
                    client = await self._client(server)
                    async with limiter:
                        found[server] = await get(server, client)
            except CapabilityError:
                found[server] = []
            except (TypeError, ValueError) as exc:  # an argument of ours, so it is the same for all of them
                mistakes.append(exc)
            except Exception as exc:
                errors[server] = exc

        asked = list(self._members) if servers is None else servers
        async with trio.open_nursery() as nursery:
            for server in asked:
                nursery.start_soon(ask, server)
        if mistakes:
            raise mistakes[0]
        return Listed(
            {server: found[server] for server in asked if server in found},
            {server: errors[server] for server in asked if server in errors},
        )

    # --- names -----------------------------------------------------------------------------------------------------

    def join(self, server: str, name: str) -> str:
        """The name that a server's tool or prompt has in the group: ``server__name``, or a shortened form of it.

        It depends on the two names alone.
        """
        for each in (server, name):
            if not isinstance(each, str):
                raise TypeError(f"a name must be a string, got {each!r}")
        return self._names.join(server, name)

    def split(self, name: str) -> tuple[str, str]:
        """The server that a name of the group stands for, and what the tool or prompt is called there.

        Raises:
            LocalProtocolError: It is no name of the group, or a shortened one that has not been listed yet.
        """
        pair = self._names.split(name) if isinstance(name, str) else None
        if pair is None or pair[0] not in self._members:
            raise LocalProtocolError(f"the group has no {name!r}{self._hint(name, self._known_names())}")
        return pair

    async def _split_or_list(self, name: str, what: str, listing: Callable[[], Awaitable[object]]) -> tuple[str, str]:
        """As `split`; a shortened name that is not known yet is looked for in a new list."""
        if not isinstance(name, str):
            raise TypeError(f"a {what}'s name must be a string, got {name!r}")
        pair = self._names.split(name)
        if pair is None and self._names.is_shortened(name):
            await listing()
            pair = self._names.split(name)
        if pair is None or pair[0] not in self._members:
            raise LocalProtocolError(f"the group has no {what} {name!r}{self._hint(name, self._known_names(what))}")
        return pair

    def _known_names(self, what: str | None = None) -> list[str]:
        kinds = ("tool", "prompt") if what is None else (what,)
        return [name for each in self._catalogs.values() for kind in kinds for name in each.names.get(kind, ())]

    def _hint(self, name: object, known: list[str]) -> str:
        hint = did_you_mean(name, known)
        if hint or not self._members:
            return hint
        shown = ", ".join(map(repr, list(self._members)[:10]))
        return f"; a name is made of a server's and its own, as in 'server__name'; the servers are {shown}"

    @contextlib.contextmanager
    def _using(self, server: str, what: str, name: str) -> Iterator[None]:
        """What is raised inside names the server, and a name close to one that it does not know."""
        try:
            with about(server):
                yield
        except McpError as exc:
            known = self._catalogs[server].names.get(what, []) if server in self._catalogs else []
            if exc.code in (INVALID_PARAMS, METHOD_NOT_FOUND) and known and name not in known:
                exc.message += did_you_mean(name, known)
            raise
