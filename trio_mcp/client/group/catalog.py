"""What the servers of a group list, gathered from all of them at once, and remembered to find things by."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Iterator
from typing import Any, Generic, TypeVar

import attrs
import trio

from trio_mcp.client.client import Client
from trio_mcp.client.group.members import Member, Members, did_you_mean
from trio_mcp.errors import CapabilityError, LocalProtocolError, McpError, TrioMcpError
from trio_mcp.joined_names import JoinedNames
from trio_mcp.session.calls import USE_SESSION, Limit
from trio_mcp.types.error_codes import INVALID_PARAMS, METHOD_NOT_FOUND
from trio_mcp.uri_templates import MAX_URI, UriTemplate

__all__ = ["Catalog", "Listed", "about"]

ItemT = TypeVar("ItemT")

MAX_AT_ONCE = 16
"""Servers that are asked for a list at the same time."""

MAX_MATCH_WORK = 1_000_000
"""Characters of a URI times characters of the templates of one server that it is matched against."""


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


@contextlib.contextmanager
def about(server: str) -> Iterator[None]:
    """What the library raises inside names the server."""
    try:
        yield
    except TrioMcpError as exc:
        exc.server = exc.server or server
        raise


KINDS: dict[str, tuple[Callable[..., AsyncIterator[Any]], str]] = {
    "tools": (Client.iter_tools, "name"),
    "prompts": (Client.iter_prompts, "name"),
    "resources": (Client.iter_resources, "uri"),
    "resource_templates": (Client.iter_resource_templates, "uri_template"),
}
"""How a client lists each kind of thing, and what such a thing is known by."""

BY_URI = ("resources", "resource_templates")


class Catalog:
    """The lists of all servers of a group, and whose a name or a URI in them is.

    Args:
        members: The servers.
        names: The names in the group of their tools and prompts.
    """

    def __init__(self, members: Members, names: JoinedNames) -> None:
        self._members = members
        self._names = names

    # --- lists -----------------------------------------------------------------------------------------------------

    async def listed(self, kind: str, timeout: Limit = USE_SESSION) -> Listed[Any]:
        """Ask all servers for a list of a kind, one of `KINDS`."""
        return await self._gather(lambda member, client: self._list_of(kind, member, client, timeout))

    async def _list_of(self, kind: str, member: Member, client: Client, timeout: Limit = USE_SESSION) -> list[Any]:
        iterate, key = KINDS[kind]
        items = [item async for item in iterate(client, timeout=timeout)]
        if key == "name":
            named: dict[str, Any] = {}
            for item in items:
                name = self._names.join(member.name, item.name)
                named.setdefault(name, item.model_copy(update={"name": name}))
            items = list(named.values())
        member.lists[kind] = dict.fromkeys(getattr(item, key) for item in items)
        return items

    async def _gather(
        self, get: Callable[[Member, Client], Awaitable[list[ItemT]]], servers: Collection[str] | None = None
    ) -> Listed[ItemT]:
        """Ask servers, all of them by default, for a list each; one that fails costs no other anything."""
        found: dict[str, list[ItemT]] = {}
        errors: dict[str, Exception] = {}
        mistakes: list[Exception] = []
        limiter = trio.CapacityLimiter(MAX_AT_ONCE)

        async def ask(server: str) -> None:
            try:
                with about(server):
                    member = self._members.named(server)
                    client = await self._members.client(server)
                    async with limiter:
                        found[server] = await get(member, client)
            except CapabilityError:
                found[server] = []
            except (TypeError, ValueError) as exc:  # an argument of ours, so it is the same for all of them
                mistakes.append(exc)
            except Exception as exc:
                errors[server] = exc

        asked = list(self._members.by_name) if servers is None else servers
        await trio.lowlevel.checkpoint_if_cancelled()
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
        """As `ClientGroup.join`."""
        for each in (server, name):
            if not isinstance(each, str):
                raise TypeError(f"a name must be a string, got {each!r}")
        return self._names.join(server, name)

    def split(self, name: str) -> tuple[str, str]:
        """As `ClientGroup.split`."""
        pair = self._names.split(name) if isinstance(name, str) else None
        if pair is None or pair[0] not in self._members.by_name:
            raise LocalProtocolError(f"the group has no {name!r}{self._hint(name, 'tools', 'prompts')}")
        return pair

    async def find(self, name: str, what: str) -> tuple[str, str]:
        """As `split`; a shortened name that is not known yet is looked for in a new list.

        Args:
            name: The name in the group.
            what: What it is the name of: ``"tool"`` or ``"prompt"``.
        """
        if not isinstance(name, str):
            raise TypeError(f"a {what}'s name must be a string, got {name!r}")
        pair = self._names.split(name)
        if pair is None and self._names.is_shortened(name):
            await self.listed(f"{what}s")
            pair = self._names.split(name)
        if pair is None or pair[0] not in self._members.by_name:
            raise LocalProtocolError(f"the group has no {what} {name!r}{self._hint(name, f'{what}s')}")
        return pair

    def _hint(self, name: object, *kinds: str) -> str:
        known = [
            each for member in self._members.by_name.values() for kind in kinds for each in member.lists.get(kind, ())
        ]
        hint = did_you_mean(name, known)
        if hint or not self._members.by_name:
            return hint
        shown = ", ".join(map(repr, list(self._members.by_name)[:10]))
        return f"; a name is made of a server's and its own, as in 'server__name'; the servers are {shown}"

    @contextlib.contextmanager
    def using(self, server: str, what: str, name: str) -> Iterator[None]:
        """What is raised inside names the server, and a name close to one that it does not know."""
        try:
            with about(server):
                yield
        except McpError as exc:
            member = self._members.by_name.get(server)
            known = {} if member is None else member.lists.get(f"{what}s", {})
            if exc.code in (INVALID_PARAMS, METHOD_NOT_FOUND) and known and name not in known:
                exc.message += did_you_mean(name, known)
            raise

    # --- URIs ------------------------------------------------------------------------------------------------------

    async def server_of(self, uri: str) -> str:
        """The one server that has a resource or a template of this URI, or a template for it.

        Raises:
            LocalProtocolError: There is none, or more than one.
        """
        connected = [name for name, member in self._members.by_name.items() if member.client is not None]
        unknown = [name for name in connected if not self._members.by_name[name].lists.keys() >= set(BY_URI)]
        await self._learn(unknown)
        found = self._having(uri)
        if not found and unknown != connected:
            await self._learn(connected)  # what was learned before may have changed
            found = self._having(uri)
        if len(found) == 1:
            return found[0]
        if found:
            names = " and ".join(map(repr, found))
            raise LocalProtocolError(f"the servers {names} all have {uri!r}; say which with server={found[0]!r}")
        away = [repr(name) for name, member in self._members.by_name.items() if member.client is None]
        asked = f"; not connected, so not asked: {', '.join(away)}" if away else ""
        raise LocalProtocolError(
            f"no server of the group lists {uri!r} or has a template that it matches{asked}; "
            "if it is not listed, say whose it is with server=..."
        )

    def _having(self, uri: str) -> list[str]:
        """The servers that list a URI; if there is none, those with a template that it matches."""
        lists = {name: member.lists for name, member in self._members.by_name.items()}
        listing = [name for name, known in lists.items() if any(uri in known.get(kind, ()) for kind in BY_URI)]
        return listing or [
            name for name, known in lists.items() if has_template(uri, known.get("resource_templates", ()))
        ]

    async def _learn(self, servers: Collection[str]) -> None:
        async def ask(member: Member, client: Client) -> list[Any]:
            try:
                for kind in BY_URI:
                    await self._list_of(kind, member, client)
            except Exception:
                # It has been asked. What it did not tell is asked for again when nothing else is found.
                for kind in BY_URI:
                    member.lists.setdefault(kind, {})
                raise
            return []

        await self._gather(ask, servers)


def has_template(uri: str, templates: Iterable[str]) -> bool:
    """Whether a URI matches one of a server's templates. They are the server's, so the work is bounded."""
    work = 0
    for text in templates:
        if len(uri) > MAX_URI or not uri.startswith(text.partition("{")[0]):
            continue
        work += len(text) * len(uri)
        if work > MAX_MATCH_WORK:
            return False
        try:
            if UriTemplate(text).match(uri) is not None:
                return True
        except ValueError:
            pass  # no template, or one whose expansions can't be told from others
    return False
