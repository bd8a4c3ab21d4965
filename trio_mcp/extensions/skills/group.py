"""The skills of a group: each is identified by its server and its URI, and is read from that server alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Unpack

import trio

from trio_mcp._checks import check_flag
from trio_mcp._keywords import refuse_unknown
from trio_mcp.client.group.catalog import MAX_AT_ONCE, about
from trio_mcp.errors import TrioMcpError
from trio_mcp.extensions.skills.client import get_skill, list_directory, list_skills
from trio_mcp.extensions.skills.entries import SkillEntry, SkillList
from trio_mcp.extensions.skills.loaded import LoadedSkill, Reader, load_skill
from trio_mcp.session.calls import USE_SESSION, CallLimits, Limit
from trio_mcp.types.resources import ReadResourceResult, Resource

if TYPE_CHECKING:
    from trio_mcp.client.group.client_group import ClientGroup

__all__ = ["GroupSkills"]


class GroupSkills:
    """The skills of all servers of a group: see `Skills.of`. A skill is identified by its server and its URI."""

    def __init__(self, group: ClientGroup) -> None:
        self._group = group

    async def entries(self, *, timeout: Limit = USE_SESSION) -> SkillList:
        """Return the skills that the servers list, in the order of the group's servers.

        All servers are asked at once, and the failure of one does not affect the others: see `SkillList.errors`.

        Args:
            timeout: Seconds to wait for each page.

        If the call is cancelled, every request is cancelled before this method returns.
        """
        found: dict[str, SkillList] = {}
        errors: dict[str, Exception] = {}
        limiter = trio.CapacityLimiter(MAX_AT_ONCE)

        async def ask(server: str) -> None:
            try:
                with about(server):
                    client = await self._group.connected(server, timeout=timeout)
                    async with limiter:
                        found[server] = await list_skills(client, server, timeout)
            except TrioMcpError as exc:
                errors[server] = exc

        await trio.lowlevel.checkpoint()
        servers = list(self._group.status)
        async with trio.open_nursery() as nursery:
            for server in servers:
                nursery.start_soon(ask, server)
        lists = [found[server] for server in servers if server in found]
        return SkillList(
            tuple(each for one in lists for each in one), tuple(each for one in lists for each in one.refused), errors
        )

    async def get(self, uri: str, *, server: str, **limits: Unpack[CallLimits]) -> SkillEntry:
        """Return the entry of a skill of one server, listed or not, as it is now.

        Args:
            uri: The URI of its ``SKILL.md``.
            server: The server's name in the group.
            limits: As in `ClientSkills.get`.

        Raises:
            LocalProtocolError: If there is no such server.
            TransportError: If it is not connected.

        Further errors, and cancellation, as in `ClientSkills.get`.
        """
        if limits:
            refuse_unknown(GroupSkills.get, limits, CallLimits)
        client = await self._group.connected(server, timeout=limits.get("timeout", USE_SESSION))
        with about(server):
            return await get_skill(client, server, uri, limits)

    async def load(
        self,
        skill: str | SkillEntry,
        *,
        server: str | None = None,
        allow_dynamic: bool = False,
        **limits: Unpack[CallLimits],
    ) -> LoadedSkill:
        """Fetch the ``SKILL.md`` of a skill from the server that the entry came from, and check it.

        Args:
            skill: As in `ClientSkills.load`.
            server: The server's name in the group, if ``skill`` is a URI.
            allow_dynamic: As in `ClientSkills.load`.
            limits: As in `ClientSkills.load`.

        Raises:
            TypeError: If a URI has no server, or an entry has one.
            TransportError: If the server is not connected.

        Further errors, and cancellation, as in `ClientSkills.load`. All files are read from the same server.
        """
        check_flag("allow_dynamic", allow_dynamic)
        if limits:
            refuse_unknown(GroupSkills.load, limits, CallLimits)
        if isinstance(skill, str) == (server is None):
            raise TypeError("give a SkillEntry, or a URI and server=…: the same URI may be that of two skills")
        await trio.lowlevel.checkpoint()
        entry = await self.get(skill, server=server or "", **limits) if isinstance(skill, str) else skill
        if not isinstance(entry, SkillEntry) or entry.server is None:
            raise TypeError(f"skill must be a SkillEntry of this group, or a URI, got {skill!r}")
        with about(entry.server):
            return await load_skill(entry, _reader_in(self._group, entry.server), allow_dynamic, limits)

    async def directory(self, uri: str, *, server: str, timeout: Limit = USE_SESSION) -> list[Resource]:
        """Return what is directly in a directory of one server at this moment.

        Args:
            uri: As in `ClientSkills.directory`.
            server: The server's name in the group.
            timeout: As in `ClientSkills.directory`.

        Errors and cancellation as in `ClientSkills.directory` and `get`.
        """
        client = await self._group.connected(server, timeout=timeout)
        with about(server):
            return await list_directory(client, uri, timeout)


def _reader_in(group: ClientGroup, server: str) -> Reader:
    async def read(uri: str, limits: CallLimits) -> ReadResourceResult:
        return await group.read_resource(uri, server=server, meta={}, **limits)

    return read
