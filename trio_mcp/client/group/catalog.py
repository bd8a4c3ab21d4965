"""Gather the lists of all servers of a group at once, and remember them for looking up names and URIs."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Iterator
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import trio

from trio_mcp import _attrs as attrs
from trio_mcp._keywords import did_you_mean, similar_names
from trio_mcp.client.client import Client
from trio_mcp.client.group.members import GroupMember, Members
from trio_mcp.errors import (
    LocalProtocolError,
    McpError,
    RemoteProtocolError,
    ToolNotApproved,
    TrioMcpError,
    UnknownTool,
)
from trio_mcp.joined_names import JoinedNames
from trio_mcp.session.calls import USE_SESSION, CallLimits, Limit
from trio_mcp.types.error_codes import INVALID_PARAMS, METHOD_NOT_FOUND
from trio_mcp.uri_templates import MAX_URI, UriTemplate

if TYPE_CHECKING:
    from trio_mcp.client.group.pins import Pins, Unapproved

__all__ = ["Catalog", "Listed", "about"]

ItemT = TypeVar("ItemT")

MAX_AT_ONCE = 16
"""How many servers are asked for a list at the same time: enough to hide latency without a burst of requests."""

MAX_LISTINGS = 3
"""How often the tools of a server are listed for one call, if they change meanwhile (an arbitrary choice)."""

# The time that matching takes is proportional to the product of the lengths of the URI and the templates, and stays
# within milliseconds.
MAX_MATCH_WORK = 1_000_000
"""The limit per server when matching a URI: the length of the URI times the total length of the templates."""


@attrs.frozen
class Listed(Generic[ItemT]):
    """The lists that the servers of a group returned.

    Iterating yields the items of one server after the other.

    Attributes:
        by_server: The items of each server that returned a list, by its name; empty for a server that has not declared
            that it offers such items.
        errors: The exception raised for each server that returned no list, by the server's name.
        unapproved: The tools that were left out, because they were not approved as they are; only in a group with
            ``pins``.
    """

    by_server: dict[str, list[ItemT]]
    errors: dict[str, Exception]
    unapproved: tuple[Unapproved, ...] = ()

    def __iter__(self) -> Iterator[ItemT]:
        for items in self.by_server.values():
            yield from items

    def __len__(self) -> int:
        return sum(map(len, self.by_server.values()))


@contextlib.contextmanager
def about(server: str) -> Iterator[None]:
    """Add the server's name to every error that the library raises in the block."""
    try:
        yield
    except TrioMcpError as exc:
        exc.server = exc.server or server  # an error that names a server already keeps that name
        raise


KINDS: dict[str, tuple[Callable[..., AsyncIterator[Any]], str]] = {
    "tools": (Client.iter_tools, "name"),
    "prompts": (Client.iter_prompts, "name"),
    "resources": (Client.iter_resources, "uri"),
    "resource_templates": (Client.iter_resource_templates, "uri_template"),
}
"""For each kind of item: the method of `Client` that lists it, and the field that identifies an item."""

BY_URI = ("resources", "resource_templates")


class Catalog:
    """The lists of all servers of a group, and the look-up of names and URIs in them.

    Args:
        members: The servers.
        names: The group's names for their tools and prompts.
        pins: The tools that are approved; None if all are.
    """

    def __init__(self, members: Members, names: JoinedNames, pins: Pins | None = None) -> None:
        self._members = members
        self._names = names
        self._pins = pins

    # --- lists -----------------------------------------------------------------------------------------------------

    async def listed(self, kind: str, timeout: Limit = USE_SESSION) -> Listed[Any]:
        """Ask all servers for their lists of one kind, a key of `KINDS`."""
        apart: dict[str, list[Unapproved]] = {}

        async def get(member: GroupMember, client: Client) -> list[Any]:
            items, apart[member.name] = await self._list_of(kind, member, client, timeout)
            return items

        found = await self._gather(get, timeout=timeout)
        unapproved = [each for server in found.by_server for each in apart.get(server, ())]
        return attrs.evolve(found, unapproved=tuple(unapproved)) if unapproved else found

    async def _list_of(
        self, kind: str, member: GroupMember, client: Client, timeout: Limit = USE_SESSION
    ) -> tuple[list[Any], list[Unapproved]]:
        iterate, key = KINDS[kind]
        age = 0 if member.seen is None else member.seen.age
        items = [item async for item in iterate(client, timeout=timeout)]
        unapproved: list[Unapproved] = []
        if kind == "tools" and self._pins is not None:
            items, unapproved = self._judged(member, items, age)
        if key == "name":
            named: dict[str, Any] = {}
            for item in items:
                name = self._names.join(member.name, item.name)
                # If a server lists a name twice, only its first item is used, because the group's names must be unique.
                named.setdefault(name, item.model_copy(update={"name": name}))
            items = list(named.values())
        # Only names and URIs are remembered, because only look-ups need them; each listing asks the servers again.
        member.lists[kind] = dict.fromkeys(getattr(item, key) for item in items)
        return items, unapproved

    # --- pins ------------------------------------------------------------------------------------------------------

    def _judged(self, member: GroupMember, tools: list[Any], age: int) -> tuple[list[Any], list[Unapproved]]:
        """Return the tools that are approved, and the others."""
        from trio_mcp.client.group.pins import tool_data

        assert self._pins is not None
        assert member.seen is not None
        assert member.owner is not None
        # If a server lists a name twice, only its first tool is used.
        first: dict[str, Any] = {}
        for tool in tools:
            first.setdefault(tool.name, tool)
        data = {name: tool_data(tool) for name, tool in first.items()}
        member.seen.learn(data, age)
        found = {name: self._pins.unapproved(member.owner, name, each) for name, each in data.items()}
        return [first[name] for name, each in found.items() if each is None], [each for each in found.values() if each]

    async def check_approved(self, server: str, tool: str, client: Client, limits: CallLimits) -> None:
        """Check that a tool is approved as its server lists it now, and list its server's tools if that is not known.

        Raises:
            ToolNotApproved: If it is not.
            UnknownTool: If the server does not list it.
            LocalProtocolError: If the call has headers, for which the server may list other tools.
            RemoteProtocolError: If the server changes its list each time it is asked for it.
        """
        if self._pins is None:
            return
        if limits.get("headers"):
            raise LocalProtocolError(
                "a call in a group with pins can't have headers=: its tools are pinned without them"
            )
        member = self._members.named(server)
        seen = member.seen
        assert seen is not None
        assert member.owner is not None
        if not seen.sure:
            seen.forget()
        for _ in range(MAX_LISTINGS):
            if seen.known is not None:
                break
            await self._list_of("tools", member, client, limits.get("timeout", USE_SESSION))
        if seen.known is None:
            raise RemoteProtocolError(
                f"the server said {MAX_LISTINGS} times that its tools had changed, while listing them"
            )
        if tool not in seen.known:
            raise UnknownTool(tool, (), f"the server does not list the tool {tool[:200]!a}")
        # The tool is compared as it was listed: the next announcement of a change makes it unknown.
        if (problem := self._pins.unapproved(member.owner, tool, seen.known[tool])) is not None:
            raise problem.error

    async def _gather(
        self,
        get: Callable[[GroupMember, Client], Awaitable[list[ItemT]]],
        servers: Collection[str] | None = None,
        *,
        timeout: Limit = USE_SESSION,
    ) -> Listed[ItemT]:
        """Ask each server (by default all of them) for a list; the failure of one does not affect the others."""
        found: dict[str, list[ItemT]] = {}
        errors: dict[str, Exception] = {}
        mistakes: list[Exception] = []
        limiter = trio.CapacityLimiter(MAX_AT_ONCE)

        async def ask(server: str) -> None:
            try:
                with about(server):
                    member = self._members.named(server)
                    # The client is waited for outside the limiter, so that a server that is not connected does not
                    # delay requests to others.
                    client, _ = await self._members.client(server, {"timeout": timeout})
                    async with limiter:
                        found[server] = await get(member, client)
            # An argument is invalid. Every server gets the same ones, so the caller has made a mistake.
            except (TypeError, ValueError) as exc:
                mistakes.append(exc)
            except Exception as exc:
                errors[server] = exc

        # The names are copied, because servers may be added and removed while others are being asked.
        asked = list(self._members.by_name) if servers is None else servers
        # If there are no servers, the nursery runs no task that could notice a cancellation.
        await trio.lowlevel.checkpoint_if_cancelled()
        async with trio.open_nursery() as nursery:
            for server in asked:
                nursery.start_soon(ask, server)
        if mistakes:
            # The caller made a single mistake, so the error is raised once rather than listed for each server.
            raise mistakes[0]
        return Listed(
            # Both dicts are in the order of the servers, not of their responses.
            {server: found[server] for server in asked if server in found},
            {server: errors[server] for server in asked if server in errors},
        )

    # --- names -----------------------------------------------------------------------------------------------------

    def join(self, server: str, name: str) -> str:
        """Return the group's name for a server's tool or prompt; see `ClientGroup.join`."""
        for each in (server, name):
            if not isinstance(each, str):
                raise TypeError(f"a name must be a string, got {each!r}")
        return self._names.join(server, name)

    def split(self, name: str) -> tuple[str, str]:
        """Split a name used in the group into the server's name and the item's own name; see `ClientGroup.split`."""
        pair = self._names.split(name) if isinstance(name, str) else None
        if pair is None or pair[0] not in self._members.by_name:
            raise LocalProtocolError(f"the group has no tool or prompt {name!r}{self._hint(name, 'tools', 'prompts')}")
        return pair

    async def find(self, name: str, what: str, timeout: Limit = USE_SESSION) -> tuple[str, str]:
        """Split a name as `split` does, but ask the servers for their lists first if a shortened name is not known yet.

        Args:
            name: The name in the group.
            what: What the name refers to: ``"tool"`` or ``"prompt"``.
            timeout: The time limit of the call that uses the name.

        Raises:
            McpError: If no server of the group can have such a tool or prompt; for a tool, an `UnknownTool`. A server's
                own error would be an `McpError` as well, so programs that pass on names from a model have only one
                error to catch.
        """
        if not isinstance(name, str):
            raise TypeError(f"a {what}'s name must be a string, got {name!r}")
        pair = self._names.split(name)
        # A shortened name contains a hash, so its parts are known only if the group has made that name, while listing.
        if pair is None and self._names.is_shortened(name):
            await self.listed(f"{what}s", timeout)
            pair = self._names.split(name)
        if pair is None or pair[0] not in self._members.by_name:
            text = f"the group has no {what} {name!r}"
            if what == "tool" and (near := similar_names(name, self._known("tools"))):
                raise UnknownTool(name, near, text)
            text += self._hint(name, f"{what}s")
            raise UnknownTool(name, (), text) if what == "tool" else McpError(INVALID_PARAMS, text)
        return pair

    def _known(self, *kinds: str) -> list[str]:
        return [
            each for member in self._members.by_name.values() for kind in kinds for each in member.lists.get(kind, ())
        ]

    def _hint(self, name: object, *kinds: str) -> str:
        hint = did_you_mean(name, self._known(*kinds))
        if hint or not self._members.by_name:
            return hint
        # At most ten servers are shown, as a group may have hundreds.
        shown = ", ".join(map(repr, list(self._members.by_name)[:10]))
        return f"; names have the form 'server__name'; the servers are {shown}"

    @contextlib.contextmanager
    def using(self, server: str, what: str, name: str) -> Iterator[None]:
        """Add the server's name to errors raised in the block, and put the group's names into an `UnknownTool`."""
        try:
            with about(server):
                yield
        except ToolNotApproved:
            raise  # it suggests nothing
        except UnknownTool as exc:
            near = tuple(self._names.join(server, each) for each in exc.suggestions)
            unknown = UnknownTool(name, near, exc.message, exc.data)
            unknown.server = exc.server
            raise unknown from exc.__cause__
        except McpError as exc:
            # The server may have been removed from the group during the call.
            member = self._members.by_name.get(server)
            known = {} if member is None else member.lists.get(f"{what}s", {})
            # Servers report an unknown prompt with either code, but use INVALID_PARAMS for arguments as well, so a hint
            # is added only if the name is not listed.
            if what == "prompt" and exc.code in (INVALID_PARAMS, METHOD_NOT_FOUND) and known and name not in known:
                # The text is changed in place, so that the caller gets the server's own error, with its code and its
                # data.
                exc.message += did_you_mean(name, known)
            raise

    # --- URIs ------------------------------------------------------------------------------------------------------

    async def server_of(self, uri: str, timeout: Limit = USE_SESSION) -> str:
        """Return the one server that lists this URI, as a resource or a template, or has a template matching it.

        Args:
            uri: The URI, or the URI template.
            timeout: The time limit of the call that needs the server.

        Raises:
            McpError: If there is no such server.
            LocalProtocolError: If there is more than one such server.
        """
        connected = [name for name, member in self._members.by_name.items() if member.client is not None]
        # Only servers that have not listed their resources yet are asked first, so most look-ups send nothing.
        unknown = [name for name in connected if not self._members.by_name[name].lists.keys() >= set(BY_URI)]
        await self._learn(unknown, timeout)
        found = self._having(uri)
        if not found and unknown != connected:
            await self._learn(connected, timeout)  # what was learned before may have changed
            found = self._having(uri)
        if len(found) == 1:
            return found[0]
        if found:
            names = " and ".join(map(repr, found))
            raise LocalProtocolError(f"the servers {names} all have {uri!r}; choose one with server={found[0]!r}")
        away = [repr(name) for name, member in self._members.by_name.items() if member.client is None]
        asked = f"; these servers were not asked, because they are not connected: {', '.join(away)}" if away else ""
        # An `McpError` is raised because a server's own error would be one as well.
        raise McpError(
            INVALID_PARAMS,
            f"no server of the group lists {uri!r} or has a template that matches it{asked}; "
            "if the resource is not listed, name its server with server=...",
        )

    def _having(self, uri: str) -> list[str]:
        """Return the servers that list a URI or, if none does, those with a template matching it."""
        lists = {name: member.lists for name, member in self._members.by_name.items()}
        listing = [name for name, known in lists.items() if any(uri in known.get(kind, ()) for kind in BY_URI)]
        # Templates are used only if no server lists the URI: a listed URI is certain, but a template may match by
        # chance.
        return listing or [
            name for name, known in lists.items() if has_template(uri, known.get("resource_templates", ()))
        ]

    async def _learn(self, servers: Collection[str], timeout: Limit) -> None:
        async def ask(member: GroupMember, client: Client) -> list[Any]:
            try:
                for kind in BY_URI:
                    await self._list_of(kind, member, client, timeout)
            except Exception:
                # The server is marked as listed, so that the next look-up does not ask it again; but if `server_of`
                # finds nothing, it asks all servers again.
                for kind in BY_URI:
                    member.lists.setdefault(kind, {})
                raise
            return []

        await self._gather(ask, servers, timeout=timeout)


def has_template(uri: str, templates: Iterable[str]) -> bool:
    """Return whether a URI matches one of a server's templates."""
    # The work is limited, because the server chooses the templates.
    work = 0
    for text in templates:
        # The cheap test comes first: most templates are ruled out by their literal prefix.
        if len(uri) > MAX_URI or not uri.startswith(text.partition("{")[0]):
            continue
        work += len(text) * len(uri)
        # The work is counted before the template is even parsed, because parsing takes proportional time as well.
        if work > MAX_MATCH_WORK:
            return False
        try:
            if UriTemplate(text).match(uri) is not None:
                return True
        except ValueError:
            pass  # the template is malformed or ambiguous, so it can't be matched
    return False
