"""`ClientGroup`: clients of many servers, used as one."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any, Self, Unpack, overload

import trio

from trio_mcp._keywords import refuse_unknown
from trio_mcp._nursery import EnteredOnce
from trio_mcp._settings import completed, settings_of
from trio_mcp.client.client import Client
from trio_mcp.client.config.reading import ConfigSource, load_config, load_members
from trio_mcp.client.group.catalog import Catalog, Listed, about
from trio_mcp.client.group.members import ConnectedClients, Members, ServerStatus
from trio_mcp.client.group.options import GroupOptions
from trio_mcp.client.listing import Audience, check_audience, is_for
from trio_mcp.client.options import ClientOptions
from trio_mcp.client.targets import Target, authorized
from trio_mcp.client.tool_results import DataT, ToolResult
from trio_mcp.errors import LocalProtocolError
from trio_mcp.http.client.auth import check_auth
from trio_mcp.joined_names import JoinedNames
from trio_mcp.retrying import Backoff
from trio_mcp.session.calls import USE_SESSION, CallLimits, Limit
from trio_mcp.types.completion import CompleteResult, PromptReference, ResourceTemplateReference
from trio_mcp.types.prompts import GetPromptResult, Prompt
from trio_mcp.types.resources import ReadResourceResult, Resource, ResourceTemplate
from trio_mcp.types.tools import Tool

if TYPE_CHECKING:
    from pydantic import TypeAdapter

    from trio_mcp.client.group.pins import Pins

__all__ = ["ClientGroup"]

RECONNECT = Backoff(first=0.5, longest=60.0, attempts=None)
"""The default delays between attempts to connect to a server. The attempts never end, as a server may come back."""


class ClientGroup(EnteredOnce):
    """Clients of many servers, used as one: an async context manager that can be entered once.

    Each server has its own task, which connects to it and reconnects when the connection is lost. The failure of one
    server does not affect the others. An exception raised in the block propagates unchanged.

    A call to a server that is not connected waits if the server could be back within ``max_wait`` seconds; otherwise
    the call raises `TransportError` at once, with the cause. Errors that the library raises for a server name the
    server in their text, and in their attribute ``server``.

    Args:
        servers: The target of each server, by its name in the group.
        settings: The options of `GroupOptions`: those of the group, such as ``require``, and arguments for the `Client`
            of each server, such as ``timeout``. ``auth`` is for servers with a URL.

    Raises:
        TypeError, ValueError: If an argument is invalid.

    Attributes:
        clients: The `Client` of each server that is connected now, by name.
    """

    def __init__(self, servers: Mapping[str, Target], **settings: Unpack[GroupOptions]) -> None:
        refuse_unknown(ClientGroup, settings, GroupOptions)
        if not isinstance(servers, Mapping):
            raise TypeError(f"servers must map names to targets, got {type(servers).__name__}")
        of_clients = settings_of(ClientOptions)
        self._client_options: Any = {name: value for name, value in settings.items() if name in of_clients}
        # The arguments of the clients are not checked together: each client checks its own, so that errors name the
        # server.
        own = {name: value for name, value in settings.items() if name not in of_clients}
        given = completed(GroupOptions, own)
        per_server = given["per_server"] or {}
        # An unknown name is refused: if it is misspelt, the server would silently be left without its options.
        for name in per_server:
            if name not in servers:
                raise ValueError(f"per_server has options for {name!r}, but there is no such server")
        # `Members` and `Catalog` share the names, so that the shortened names of a server are forgotten when the server
        # is removed.
        names = JoinedNames()
        # `auth` is kept apart from the other options, because the group may also have servers that are processes, which
        # take no `auth`.
        self._auth = self._client_options.pop("auth", None)
        self._pins: Pins | None = None
        if given["pins"] is not None:
            # This module is imported late, because few programs pin tools.
            from trio_mcp.client.group.pins import Pins

            self._pins = Pins(given["pins"])
        check_auth(self._auth)
        self._members = Members(
            require=given["require"],
            max_wait=given["max_wait"],
            reconnect=given["reconnect"] or RECONNECT,
            on_status=given["on_status"],
            on_removed=names.forget,
            pinned=self._pins is not None,
        )
        self._catalog = Catalog(self._members, names, self._pins)
        self.clients: Mapping[str, Client] = ConnectedClients(self._members.by_name)
        for name, target in servers.items():
            # If an argument of one of the clients is invalid, `Members.new` raises an error, before anything is
            # started.
            options = per_server.get(name, {})
            self._members.new(name, self._authorized(target, options), {**self._client_options, **options})

    @classmethod
    def from_config(
        cls,
        source: ConfigSource,
        *,
        environ: Mapping[str, str] | None = None,
        variables: Mapping[str, str] | None = None,
        **arguments: Unpack[GroupOptions],
    ) -> Self:
        """Make a group of the servers in a host's configuration: ``{"mcpServers": {"name": {"command": …}}}``.

        Args:
            source: The path of a JSON file, or its content as a mapping.
            environ: The variables for ``${NAME}`` in the configuration; by default those of this process.
            variables: The variables that a host defines in addition to the environment: ``{"workspaceFolder": …,
                "input:key": …}``.
            arguments: Further arguments of `ClientGroup`.

        Raises:
            ConfigError: If the configuration is invalid. The error lists every problem, with file, line and server.
                Unless ``require`` is ``"all"``, an invalid entry does not raise here; only its own server fails.
            TypeError, ValueError: If an argument is invalid, or there is no transport for a server's URL.
        """
        load = load_config if arguments.get("require", "all") == "all" else load_members
        return cls(load(source, environ=environ, variables=variables), **arguments)

    # --- the servers -----------------------------------------------------------------------------------------------

    def _lifetime(self) -> AbstractAsyncContextManager[None]:
        return self._members.running()

    async def aclose(self) -> None:
        """Close all connections, gracefully and at the same time, from any task. Closing again does nothing.

        Pending calls raise `SessionClosed`. Closing takes as long as the slowest client needs. If the call is
        cancelled, the clients are closed without waiting.
        """
        await self._members.aclose()

    async def add(self, name: str, target: Target, **client_options: Unpack[ClientOptions]) -> None:
        """Add a server while the group is in use.

        With ``require="all"``, a failure to connect is raised, and the server is not added. Otherwise a server that
        can't be reached is added anyway and tried again; with ``"none"`` this does not even wait.

        Args:
            name: The name of the server, which must be new to the group.
            target: As for a `Client`.
            client_options: Arguments of the `Client`; they override those for all servers.

        Raises:
            TypeError, ValueError: If an argument is invalid, or the group has a server of that name.
            LocalProtocolError: If the group has not been entered, or is closed.

        If the call is cancelled, the server is not added.
        """
        refuse_unknown(ClientGroup.add, client_options, ClientOptions)
        target = self._authorized(target, client_options)
        await self._members.add(name, target, {**self._client_options, **client_options})

    def _authorized(self, target: Target, own: ClientOptions) -> Target:
        return target if "auth" in own else authorized(target, self._auth, optional=True)

    async def remove(self, name: str) -> None:
        """Remove a server from the group and close its connection.

        Calls waiting for the server raise `SessionClosed`. Its name can be used again at once. If the call is
        cancelled, the connection is closed without waiting.

        Raises:
            LocalProtocolError: If there is no such server.
        """
        await self._members.remove(name)

    @property
    def status(self) -> dict[str, ServerStatus]:
        """The status of each server, by name."""
        return {name: member.status for name, member in self._members.by_name.items()}

    async def connected(self, server: str, *, timeout: Limit = USE_SESSION) -> Client:
        """Return the client of one server, for methods that the group does not have.

        The client of a server that is not connected is waited for, as a call would wait for it.

        Args:
            server: The server's name in the group.
            timeout: Seconds that a call would wait for its response; the wait for the server is no longer.

        Raises:
            LocalProtocolError: If there is no such server.
            TransportError: If the server is not connected in time.
        """
        await trio.lowlevel.checkpoint()
        with about(server):
            client, _ = await self._members.client(server, {"timeout": timeout})
            return client

    @property
    def pins(self) -> Pins:
        """The tools that are approved; what is unapproved is in ``list_tools()``.

        Raises:
            LocalProtocolError: If the group was made without ``pins``.
        """
        if self._pins is None:
            raise LocalProtocolError("the group pins no tools; make it with pins='pins.json'")
        return self._pins

    # --- names -----------------------------------------------------------------------------------------------------

    def join(self, server: str, name: str) -> str:
        """Return the group's name for a server's tool or prompt: ``server__name``, or a shortened form of it.

        The result depends on the two names alone.
        """
        return self._catalog.join(server, name)

    def split(self, name: str) -> tuple[str, str]:
        """Return the server that a name used in the group refers to, and the server's own name for the tool or prompt.

        Raises:
            LocalProtocolError: If the group has no such name, or it is a shortened one that has not been listed yet.
        """
        return self._catalog.split(name)

    # --- tools and prompts -----------------------------------------------------------------------------------------

    async def list_tools(self, *, timeout: Limit = USE_SESSION, audience: Audience | None = None) -> Listed[Tool]:
        """Return every tool of every server, asking all servers at once and reading all pages.

        Args:
            timeout: Seconds to wait for each page.
            audience: As in `Client.list_tools`.

        Returns:
            The tools, under their names in the group, and the errors of servers that returned no list.

        If the call is cancelled, every request is cancelled before this method returns.
        """
        check_audience(audience)
        listed: Listed[Tool] = await self._catalog.listed("tools", timeout)
        if audience is None:
            return listed
        kept = {name: [each for each in tools if is_for(each, audience)] for name, tools in listed.by_server.items()}
        return Listed(kept, listed.errors, listed.unapproved)

    async def list_prompts(self, *, timeout: Limit = USE_SESSION) -> Listed[Prompt]:
        """Return every prompt of every server, under its name in the group, in the same way as `list_tools`."""
        return await self._catalog.listed("prompts", timeout)

    @overload
    async def call_tool(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = ...,
        *,
        result_type: type[DataT] | TypeAdapter[DataT] | None = ...,
        meta: Mapping[str, Any] | None = ...,
        **limits: Unpack[CallLimits],
    ) -> ToolResult[DataT]: ...

    @overload
    async def call_tool(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = ...,
        *,
        result_type: Any,
        meta: Mapping[str, Any] | None = ...,
        **limits: Unpack[CallLimits],
    ) -> ToolResult[Any]: ...

    async def call_tool(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        result_type: Any = None,
        meta: Mapping[str, Any] | None = None,
        **limits: Unpack[CallLimits],
    ) -> ToolResult:
        """Call a tool of one of the servers.

        Args:
            name: The tool's name in the group.
            arguments: The tool's arguments.
            result_type: As in `Client.call_tool`.
            meta: Further entries for the request's ``_meta``.
            limits: ``timeout``, ``on_progress`` and so on, as in `Client.call_tool`.

        Raises:
            UnknownTool: If no server of the group can have such a tool, or its server does not have it. The suggestions
                are names of the group. A `ToolNotApproved` if it is not approved as it is now, in a group with
                ``pins``.
            TransportError: If its server is not connected, or is lost before it responds.
            McpError: If the server refuses.

        Further errors, which name the server, and cancellation are as in `Client.call_tool`.
        """
        # `find` may list tools, to learn what a shortened name refers to. The server's client is looked up only after
        # that, because the connection may have been replaced meanwhile.
        server, tool = await self._catalog.find(name, "tool", _patience(limits))
        with self._catalog.using(server, "tool", name):
            client, limits = await self._members.client(server, limits)
            await self._catalog.check_approved(server, tool, client, limits)
            answer: ToolResult = await client.call_tool(tool, arguments, result_type=result_type, meta=meta, **limits)
            return answer

    async def get_prompt(
        self,
        name: str,
        arguments: Mapping[str, str] | None = None,
        *,
        meta: Mapping[str, Any] | None = None,
        **limits: Unpack[CallLimits],
    ) -> GetPromptResult:
        """Get a prompt with its arguments filled in.

        Args:
            name: The prompt's name in the group.
            arguments: The prompt's arguments.
            meta: As in `Client.get_prompt`.
            limits: ``timeout`` and so on, as in `Client.get_prompt`.

        Raises:
            McpError: If no server of the group can have such a prompt, or its server refuses.
            TransportError: If its server is not connected, or is lost before it responds.

        Further errors, which name the server, and cancellation are as in `Client.get_prompt`.
        """
        server, prompt = await self._catalog.find(name, "prompt", _patience(limits))
        with self._catalog.using(server, "prompt", name):
            client, limits = await self._members.client(server, limits)
            return await client.get_prompt(prompt, arguments, meta=meta, **limits)

    # --- resources, and completion of arguments ----------------------------------------------------------------------

    async def list_resources(self, *, timeout: Limit = USE_SESSION) -> Listed[Resource]:
        """Return every resource of every server, asking all servers at once and reading all pages.

        Args:
            timeout: Seconds to wait for each page.

        Returns:
            The resources by server, as their servers describe them, and the errors of servers that returned no list.

        If the call is cancelled, every request is cancelled before this method returns.
        """
        return await self._catalog.listed("resources", timeout)

    async def list_resource_templates(self, *, timeout: Limit = USE_SESSION) -> Listed[ResourceTemplate]:
        """Return every resource template of every server, in the same way as `list_resources`."""
        return await self._catalog.listed("resource_templates", timeout)

    async def read_resource(
        self,
        uri: str,
        *,
        server: str | None = None,
        meta: Mapping[str, Any] | None = None,
        **limits: Unpack[CallLimits],
    ) -> ReadResourceResult:
        """Read a resource.

        Args:
            uri: The resource's URI.
            server: The server to read from. None picks the server that lists the URI, or if no server does, the one
                with a template that matches it. Servers that are not connected are considered only if they have listed
                their resources before.
            meta: As in `Client.read_resource`.
            limits: ``timeout`` and so on, as in `Client.read_resource`.

        Raises:
            TypeError: If the URI is not a string.
            McpError: If no server has the resource, or its server refuses.
            LocalProtocolError: If several servers have it; the error names them.
            TransportError: If its server is not connected, or is lost.

        Further errors, which name the server, and cancellation are as in `Client.read_resource`.
        """
        if not isinstance(uri, str):
            raise TypeError(f"a URI must be a string, got {uri!r}")
        if server is None:
            server = await self._catalog.server_of(uri, _patience(limits))
        with about(server):
            client, limits = await self._members.client(server, limits)
            return await client.read_resource(uri, meta=meta, **limits)

    async def complete(
        self,
        ref: PromptReference | ResourceTemplateReference,
        argument: str,
        value: str = "",
        *,
        server: str | None = None,
        context: Mapping[str, str] | None = None,
        timeout: Limit = USE_SESSION,
        meta: Mapping[str, Any] | None = None,
    ) -> CompleteResult:
        """Ask for completions of a prompt's argument or a resource template's variable.

        Args:
            ref: The prompt, by its name in the group, or the template.
            argument: The name of the argument.
            value: The part typed so far.
            server: The server of the template; None picks the one that lists it.
            context: As in `Client.complete`.
            timeout: Seconds to wait.
            meta: Further entries for the request's ``_meta``.

        Raises:
            McpError: If no server has the prompt or the template, or its server refuses.
            LocalProtocolError: If several servers have it; the error names them.

        Further errors, which name the server, and cancellation are as in `Client.complete`.
        """
        if isinstance(ref, PromptReference):
            server, name = await self._catalog.find(ref.name, "prompt", timeout)
            # The reference is copied, so that the caller's object keeps the name in the group.
            ref = ref.model_copy(update={"name": name})
        # A URI template has no prefix that names its server, so the server is looked up as for a URI.
        elif server is None and isinstance(ref, ResourceTemplateReference):
            server = await self._catalog.server_of(ref.uri, timeout)
        if server is None:
            raise TypeError(f"ref must be a PromptReference or a ResourceTemplateReference, got {type(ref).__name__}")
        with about(server):
            client, _ = await self._members.client(server, {"timeout": timeout})
            return await client.complete(ref, argument, value, context=context, timeout=timeout, meta=meta)


def _patience(limits: CallLimits) -> Limit:
    """Return the time limit of the requests that precede a call, such as those for lists."""
    own = limits.get("timeout", USE_SESSION), limits.get("total_timeout", USE_SESSION)
    return min((each for each in own if isinstance(each, int | float)), default=own[0])
