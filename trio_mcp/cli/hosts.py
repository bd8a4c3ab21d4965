"""The hosts that `install` supports: where each lists its servers, and how it writes an entry."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import attrs

__all__ = ["HOSTS", "Host"]


@attrs.frozen(kw_only=True)
class Host:
    """A program that uses MCP servers.

    Attributes:
        title: The name of the host.
        table: The key under which its file lists the servers.
        user: `sys.platform` -> the file for all of a user's projects; ``other`` is for all other platforms.
        project: The file for one project, relative to the project's folder; empty if the host has none.
        names: A key of an entry in ``mcpServers`` -> the host's own name for it, if that differs.
        process: Further members of an entry with a command; a ``name`` is set to the server's name.
        remote: Further members of an entry with a URL; None if the file allows only commands.
        then: How to make the host read its file again, and where it shows the server.
        logs: Where to look if the server does not show up.
        yaml: Whether its file is YAML.
    """

    title: str
    table: str
    user: Mapping[str, str]
    project: str = ""
    names: Mapping[str, str] = attrs.field(factory=dict)
    process: Mapping[str, Any] = attrs.field(factory=dict)
    remote: Mapping[str, Any] | None = attrs.field(factory=dict)
    then: str
    logs: str
    yaml: bool = False

    def file(self, scope: str, platform: str, environ: Mapping[str, str]) -> Path:
        """Return the path of the host's file, which may not exist yet.

        Args:
            scope: ``"user"``, or ``"project"`` for the project in the current directory.
            platform: `sys.platform`.
            environ: The environment variables.

        Raises:
            RuntimeError: If the user has no home directory.
        """
        if scope == "project":
            return Path.cwd() / self.project
        home = Path(environ.get("HOME") or Path.home())
        folders = {
            "~": str(home),
            "CONFIG": environ.get("XDG_CONFIG_HOME") or str(home / ".config"),
            "APPDATA": environ.get("APPDATA") or str(home / "AppData" / "Roaming"),
        }
        first, _, rest = self.user.get(platform, self.user["other"]).partition("/")
        return Path(folders[first], *rest.split("/"))

    def entry(self, name: str, plain: Mapping[str, Any]) -> dict[str, Any]:
        """Convert an entry of ``mcpServers`` to the form that this host reads."""
        more = self.process if "command" in plain else self.remote or {}
        named = {"name": name} if "name" in more else {}
        return {**more, **named, **{self.names.get(key, key): value for key, value in plain.items()}}


# The paths and keys come from the hosts' documentation, as of the date in docs/how-to/hosts.md.
HOSTS = {
    "claude-desktop": Host(
        title="Claude Desktop",
        table="mcpServers",
        user={
            "darwin": "~/Library/Application Support/Claude/claude_desktop_config.json",
            "win32": "APPDATA/Claude/claude_desktop_config.json",
            "other": "CONFIG/Claude/claude_desktop_config.json",
        },
        remote=None,
        then="Quit Claude Desktop, not only its window, and start it again; Settings > Developer lists the server.",
        logs="mcp-server-{name}.log in ~/Library/Logs/Claude (macOS) or %APPDATA%\\Claude\\logs (Windows)",
    ),
    "claude-code": Host(
        title="Claude Code",
        table="mcpServers",
        user={"other": "~/.claude.json"},
        project=".mcp.json",
        process={"type": "stdio"},
        remote={"type": "http"},
        then="Start a new session; `claude mcp list` and /mcp show the server.",
        logs="claude --debug",
    ),
    "cursor": Host(
        title="Cursor",
        table="mcpServers",
        user={"other": "~/.cursor/mcp.json"},
        project=".cursor/mcp.json",
        then="Switch the server on in Cursor's list of MCP servers, in its settings.",
        logs="the panel Output, MCP Logs",
    ),
    "vscode": Host(
        title="VS Code",
        table="servers",
        user={
            "darwin": "~/Library/Application Support/Code/User/mcp.json",
            "win32": "APPDATA/Code/User/mcp.json",
            "other": "CONFIG/Code/User/mcp.json",
        },
        project=".vscode/mcp.json",
        process={"type": "stdio"},
        remote={"type": "http"},
        then="Run the command `MCP: List Servers`, choose the server, and start it.",
        logs="`MCP: List Servers`, the server, Show Output",
    ),
    "gemini-cli": Host(
        title="Gemini CLI",
        table="mcpServers",
        user={"other": "~/.gemini/settings.json"},
        project=".gemini/settings.json",
        names={"url": "httpUrl"},
        then="Start a new session; /mcp shows the server and its tools.",
        logs="gemini --debug",
    ),
    "goose": Host(
        title="Goose",
        table="extensions",
        user={
            "darwin": "~/.config/goose/config.yaml",
            "win32": "APPDATA/Block/goose/config/config.yaml",
            "other": "CONFIG/goose/config.yaml",
        },
        names={"command": "cmd", "env": "envs", "url": "uri"},
        process={"enabled": True, "type": "stdio", "name": "", "description": "", "timeout": 300},
        remote={"enabled": True, "type": "streamable_http", "name": "", "description": "", "timeout": 300},
        then="Start a new session; `goose info -v` shows the extension.",
        logs="~/.local/state/goose/logs (on Windows %APPDATA%\\Block\\goose\\data\\logs)",
        yaml=True,
    ),
    "zed": Host(
        title="Zed",
        table="context_servers",
        user={
            "darwin": "~/.config/zed/settings.json",
            "win32": "APPDATA/Zed/settings.json",
            "other": "CONFIG/zed/settings.json",
        },
        project=".zed/settings.json",
        then="Zed reads its file at once; the settings of the agent panel show a green dot beside the server.",
        logs="the command `zed: open log`",
    ),
}
