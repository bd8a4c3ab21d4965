"""`ClientGroup`: many servers as one."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, Self

from trio_mcp.client.client import Client
from trio_mcp.client.config.mcp_servers import ConfigSource, load_config
from trio_mcp.client.group.listing import Listed
from trio_mcp.client.group.resources import GroupResources
from trio_mcp.client.results import ToolResult
from trio_mcp.session.requests import USE_SESSION, Limit
from trio_mcp.types.prompts import GetPromptResult, Prompt
from trio_mcp.types.tools import Tool

__all__ = ["ClientGroup"]


class ClientGroup(GroupResources):
    """Clients of many servers, used as one. Use it as an async context manager; it can be entered once.

    Each server has a task of its own that connects to it, and connects anew when it is lost. No server's failure is
    felt by the others. What is raised in the block leaves it as it is.

    A call to a server that is not connected waits, if it could be there within ``max_wait`` seconds, and otherwise
    raises `TransportError` at once, with the cause. What the library raises for a server names it, and has its name as
    ``server``.

    Args:
        servers: The target of each server, by its name in the group.
        require: What entering waits for: ``"all"`` servers must be connected, or entering raises what connecting
            to one of them has raised; with ``"any"`` it waits as well, but raises only if none could be connected to;
            ``"none"`` does not wait.
        max_wait: Seconds that a call waits for its server.
        reconnect: When servers are tried again; ``Reconnect(attempts=0)`` for never.
        on_status: Called, synchronously, with a server's name and its new `ServerStatus`. It must not block.
        per_server: For some servers, by name, arguments of the `Client` which count more than ``client_options``.
        client_options: Arguments of the `Client` of each server.

    Raises:
        TypeError, ValueError: An argument is not what it should be.

    Attributes:
        clients: The `Client` of each server that is connected now, by name.
    """

    @classmethod
    def from_config(cls, source: ConfigSource, *, environ: Mapping[str, str] | None = None, **arguments: Any) -> Self:
        """A group of the servers in a configuration as hosts have it: ``{"mcpServers": {"name": {"command": …}}}``.

        Args:
            source: The path of a JSON file, or what would be in it.
            environ: The variables for ``${NAME}`` in it; by default those of this process.
            arguments: Further arguments of `ClientGroup`.

        Raises:
            ConfigError: Something is wrong with it. The error lists everything that is, with file, line and server.
            TypeError, ValueError: An argument is not what it should be, or there is no transport for a server's URL.
        """
        return cls(load_config(source, environ=os.environ if environ is None else environ), **arguments)

    async def list_tools(self, *, timeout: Limit = USE_SESSION) -> Listed[Tool]:
        """Every tool of every server, all pages of it, from all servers at once.

        Args:
            timeout: Seconds to wait for each page.

        Returns:
            The tools, with their names in the group, and the errors of servers that gave no list.

        When cancelled, nothing runs any more.
        """

        async def get(server: str, client: Client) -> list[Tool]:
            tools: dict[str, Tool] = {}
            async for tool in client.iter_tools(timeout=timeout):
                name = self.join(server, tool.name)
                tools.setdefault(name, tool.model_copy(update={"name": name}))
            self._catalog(server).names["tool"] = list(tools)
            return list(tools.values())

        return await self._gather(get)

    async def list_prompts(self, *, timeout: Limit = USE_SESSION) -> Listed[Prompt]:
        """Every prompt of every server, with their names in the group. As `list_tools`."""

        async def get(server: str, client: Client) -> list[Prompt]:
            prompts: dict[str, Prompt] = {}
            async for prompt in client.iter_prompts(timeout=timeout):
                name = self.join(server, prompt.name)
                prompts.setdefault(name, prompt.model_copy(update={"name": name}))
            self._catalog(server).names["prompt"] = list(prompts)
            return list(prompts.values())

        return await self._gather(get)

    async def call_tool(self, name: str, arguments: Mapping[str, Any] | None = None, **options: Any) -> ToolResult:
        """Call a tool.

        Args:
            name: Its name in the group.
            arguments: Its arguments.
            options: Those of `Client.call_tool`: ``timeout``, ``on_progress`` and so on.

        Raises:
            LocalProtocolError: No server of the group can have such a tool.
            TransportError: Its server is not connected, or is lost before it has answered.
            McpError: The server refused, for example because it has no such tool.

        Further errors, which name the server, and cancellation as in `Client.call_tool`.
        """
        server, tool = await self._split_or_list(name, "tool", self.list_tools)
        with self._using(server, "tool", name):
            return await (await self._client(server)).call_tool(tool, arguments, **options)

    async def get_prompt(
        self, name: str, arguments: Mapping[str, str] | None = None, **options: Any
    ) -> GetPromptResult:
        """Fill in a prompt.

        Args:
            name: Its name in the group.
            arguments: Its arguments.
            options: Those of `Client.get_prompt`.

        Errors as in `call_tool`; further ones, which name the server, and cancellation as in `Client.get_prompt`.
        """
        server, prompt = await self._split_or_list(name, "prompt", self.list_prompts)
        with self._using(server, "prompt", name):
            return await (await self._client(server)).get_prompt(prompt, arguments, **options)
