"""The client's side of the skills extension: it lists skills, and loads them only if they are what was listed."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Unpack

import trio

from trio_mcp._checks import check_flag
from trio_mcp._keywords import refuse_unknown
from trio_mcp.client.access import ClientAccess
from trio_mcp.client.extension import ClientExtension
from trio_mcp.client.listing import MAX_PAGES
from trio_mcp.errors import CapabilityError, RemoteProtocolError
from trio_mcp.extensions.skills.entries import RefusedEntry, SkillEntry, SkillList, read_entry
from trio_mcp.extensions.skills.errors import SkillRefused
from trio_mcp.extensions.skills.loaded import LoadedSkill, Reader, load_skill
from trio_mcp.extensions.skills.rules import IDENTIFIER, METHODS, SKILL_REVISIONS
from trio_mcp.session.calls import USE_SESSION, CallLimits, Limit
from trio_mcp.types.resources import ListResourcesResult, ReadResourceResult, Resource

if TYPE_CHECKING:
    from trio_mcp.client.client import Client

__all__ = ["ClientSkills", "SkillsClientSide", "get_skill", "list_directory", "list_skills"]


class SkillsClientSide(ClientExtension):
    """The client's side of the extension."""

    identifier = IDENTIFIER
    methods = dict.fromkeys(METHODS)

    def settings(self, revision: str) -> dict[str, Any] | None:
        """Return no settings, in the revisions in which the extension is used."""
        return {} if revision in SKILL_REVISIONS else None

    def attach(self, client: Client, access: ClientAccess) -> ClientSkills:
        """Return the skills of the client's server."""
        return ClientSkills(client)


class ClientSkills:
    """The skills of a client's server: see `Skills.of`.

    Nothing is fetched ahead of need: `entries` and `get` fetch entries, `load` fetches one ``SKILL.md``.
    """

    def __init__(self, client: Client) -> None:
        self._client = client

    async def entries(self, *, timeout: Limit = USE_SESSION) -> SkillList:
        """Return the skills that the server lists, which may be some of its skills, or none.

        Args:
            timeout: Seconds to wait for each page.

        Returns:
            The entries. Those that break a rule are in `SkillList.refused`. If the server does not support skills, the
            list is empty, and nothing is sent.

        Raises:
            McpError: If the server refuses.
            RemoteProtocolError: If a page is malformed, or there are more than 1000.

        Further errors and cancellation as in `BaseSession.send_request`.
        """
        return await list_skills(self._client, None, timeout)

    async def get(self, uri: str, **limits: Unpack[CallLimits]) -> SkillEntry:
        """Return the entry of a skill, listed or not, as it is now.

        Args:
            uri: The URI of its ``SKILL.md``.
            limits: ``timeout`` and so on, as in `Client.request`.

        Raises:
            CapabilityError: If the server does not support skills.
            McpError: If the server has no such skill, or refuses for another reason.
            SkillRefused: If the entry breaks a rule, or is that of another skill.
            RemoteProtocolError: If the result is malformed.

        Further errors and cancellation as in `BaseSession.send_request`.
        """
        if limits:
            refuse_unknown(ClientSkills.get, limits, CallLimits)
        return await get_skill(self._client, None, uri, limits)

    async def load(
        self, skill: str | SkillEntry, *, allow_dynamic: bool = False, **limits: Unpack[CallLimits]
    ) -> LoadedSkill:
        """Fetch the ``SKILL.md`` of a skill, and check that it is what the entry describes.

        Load a skill only when the model needs it and the user has approved it: its text is untrusted, as is that of a
        tool's result.

        Args:
            skill: The entry, such as the one that the user has approved; or the URI, to get the entry first.
            allow_dynamic: Whether to load a skill of which nothing can be verified.
            limits: ``timeout`` and so on, as in `Client.read_resource`, for each request.

        Raises:
            SkillMismatch: If the size, the digest, or a field of the frontmatter differs.
            SkillRefused: If the entry breaks a rule, or the skill is dynamic and this is not allowed.
            CapabilityError: If the server does not support skills.
            McpError: If the server refuses.
            ImportError: If the YAML reader is not installed.

        Further errors and cancellation as in `BaseSession.send_request`.
        """
        check_flag("allow_dynamic", allow_dynamic)
        if limits:
            refuse_unknown(ClientSkills.load, limits, CallLimits)
        await trio.lowlevel.checkpoint()
        entry = await self.get(skill, **limits) if isinstance(skill, str) else skill
        return await load_skill(entry, self._reader(entry), allow_dynamic, limits)

    def _reader(self, entry: SkillEntry) -> Reader:
        if not isinstance(entry, SkillEntry):
            raise TypeError(f"skill must be a SkillEntry or a URI, got {type(entry).__name__}")
        # An entry of a group names the server that it came from, and this client may be one of another server.
        if entry.server is not None:
            raise ValueError(f"the entry comes from the server {entry.server!r} of a group; use Skills.of(group)")
        return _reader_of(self._client)

    async def directory(self, uri: str, *, timeout: Limit = USE_SESSION) -> list[Resource]:
        """Return what is directly in a directory at this moment, reading all pages.

        What is listed here and not in the entry of a skill must not be used as a file of that skill: get the entry
        again. The files of a loaded skill are those of `LoadedSkill.files`.

        Args:
            uri: The URI of the directory, without a slash at its end.
            timeout: Seconds to wait for each page.

        Raises:
            CapabilityError: If the server has not declared that it lists directories.
            McpError: If there is no such directory.
            RemoteProtocolError: If a page is malformed, or there are more than 1000.

        Further errors and cancellation as in `BaseSession.send_request`.
        """
        return await list_directory(self._client, uri, timeout)


# The content is verified against an entry that may be newer than a cached result. So no cache is asked, which a request
# with entries of `_meta`, even none, makes sure of.


def _reader_of(client: Client) -> Reader:
    async def read(uri: str, limits: CallLimits) -> ReadResourceResult:
        return await client.read_resource(uri, meta={}, **limits)

    return read


async def list_skills(client: Client, server: str | None, timeout: Limit) -> SkillList:
    client.attached(IDENTIFIER)  # raises if the client was made without the extension
    if IDENTIFIER not in client.extensions:
        await trio.lowlevel.checkpoint()
        return SkillList(())
    found: dict[str, SkillEntry] = {}
    refused: list[RefusedEntry] = []

    def take(item: Any) -> None:
        try:
            entry = read_entry(item, server)
            if entry.uri in found:
                raise SkillRefused(entry.uri, "the skill is listed twice")
            found[entry.uri] = entry
        except SkillRefused as exc:
            uri = item.get("uri") if isinstance(item, dict) else None
            refused.append(RefusedEntry(uri if isinstance(uri, str) else None, exc.reason, server))

    async def page(params: dict[str, Any]) -> dict[str, Any]:
        return await client.request("skills/list", params, timeout=timeout)

    await _every_page(page, "skills", take, {})
    return SkillList(tuple(found.values()), tuple(refused))


async def get_skill(client: Client, server: str | None, uri: str, limits: CallLimits) -> SkillEntry:
    if not isinstance(uri, str):
        raise TypeError(f"a URI must be a string, got {uri!r}")
    _check_declared(client, "skills/get")
    result = await client.request("skills/get", {"uri": uri}, **limits)
    if "skill" not in result:
        raise RemoteProtocolError("the result of 'skills/get' has no skill")
    entry = read_entry(result["skill"], server)
    if entry.uri != uri:
        raise SkillRefused(uri, f"the server has sent the entry of {entry.uri[:500]!r} instead")
    return entry


async def list_directory(client: Client, uri: str, timeout: Limit) -> list[Resource]:
    if not isinstance(uri, str):
        raise TypeError(f"a URI must be a string, got {uri!r}")
    method = "resources/directory/read"
    _check_declared(client, method)
    # Clients must not call the method otherwise (Capability Negotiation).
    if client.extensions[IDENTIFIER].get("directoryRead") is not True:
        raise CapabilityError(method, f"extensions.{IDENTIFIER}.directoryRead", "server")
    found: list[Resource] = []

    async def page(params: dict[str, Any]) -> dict[str, Any]:
        result = await client.request(method, params, timeout=timeout)
        found.extend(ListResourcesResult.from_wire(result).resources)
        return result

    await _every_page(page, "resources", lambda _: None, {"uri": uri})
    return found


async def _every_page(
    page: Callable[[dict[str, Any]], Awaitable[dict[str, Any]]],
    key: str,
    take: Callable[[Any], None],
    params: dict[str, Any],
) -> None:
    """Ask for one page after the other, and take each item.

    Raises:
        RemoteProtocolError: If a page is malformed, or there are more than `MAX_PAGES`.
    """
    for _ in range(MAX_PAGES):
        result = await page(dict(params))
        items, cursor = result.get(key), result.get("nextCursor")
        if not isinstance(items, list) or not (cursor is None or isinstance(cursor, str)):
            raise RemoteProtocolError(f"a page of {key} is malformed: it has no list {key!r}, or a strange cursor")
        for item in items:
            take(item)
        if cursor is None:
            return
        params["cursor"] = cursor
    raise RemoteProtocolError(f"the server's list of {key} has more than {MAX_PAGES} pages; giving up")


def _check_declared(client: Client, method: str) -> None:
    client.attached(IDENTIFIER)
    if IDENTIFIER not in client.extensions:
        raise CapabilityError(method, f"extensions.{IDENTIFIER}", "server")
