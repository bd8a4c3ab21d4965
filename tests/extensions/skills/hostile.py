"""A server whose skills are what a test says they are."""

from __future__ import annotations

import base64
import contextlib
import hashlib
from collections.abc import AsyncIterator
from typing import Any

import attrs

from tests.extensions.skills.folders import IDENTIFIER, skill_text
from trio_mcp import Client, Context, McpError, Server
from trio_mcp.extensions import ClientSkills, Skills
from trio_mcp.types import BlobResourceContents, ReadResourceResult, TextResourceContents

__all__ = ["GOOD", "HostileServer", "digest_of", "entry_of", "hostile"]

GOOD = "skill://good/SKILL.md"


def digest_of(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def entry_of(uri: str, files: dict[str, bytes], **frontmatter: Any) -> dict[str, Any]:
    """Return the true entry of a skill, given its files by URI."""
    name = uri.split("/")[-2]
    return {
        "uri": uri,
        "frontmatter": {"name": name, "description": f"About {name}", **frontmatter},
        "resources": [{"uri": each, "digest": digest_of(data), "size": len(data)} for each, data in files.items()],
    }


@attrs.define(eq=False)
class HostileServer:
    """What the server sends, and what it was asked.

    Attributes:
        files: The content of each file, by URI; a `ReadResourceResult` is the whole response.
        entries: The entries that it lists and returns.
        settings: The settings that it declares.
        asked: The requests so far: method, and URI or None.
    """

    files: dict[str, Any] = attrs.Factory(lambda: {GOOD: skill_text("good").encode(), "skill://good/a.md": b"A"})
    entries: list[Any] = attrs.Factory(list)
    settings: dict[str, Any] = attrs.Factory(dict)
    asked: list[tuple[str, Any]] = attrs.Factory(list)
    directories: dict[str, list[str]] = attrs.Factory(dict)

    def __attrs_post_init__(self) -> None:
        if not self.entries:
            self.entries = [entry_of(GOOD, self.files)]

    def server(self) -> Server:
        """Return the server."""
        server = Server("hostile", extensions={IDENTIFIER: self.settings})

        async def list_skills(params: dict[str, Any], ctx: Context) -> dict[str, Any]:
            self.asked.append(("skills/list", None))
            return {"skills": self.entries, "ttlMs": 0, "cacheScope": "private"}

        async def get_skill(params: dict[str, Any], ctx: Context) -> dict[str, Any]:
            self.asked.append(("skills/get", params["uri"]))
            for each in self.entries:
                if isinstance(each, dict) and each.get("uri") == params["uri"]:
                    return {"skill": each, "ttlMs": 0, "cacheScope": "private"}
            raise McpError(-32602, "no such skill")

        async def read_directory(params: dict[str, Any], ctx: Context) -> dict[str, Any]:
            self.asked.append(("resources/directory/read", params["uri"]))
            return {"resources": [{"uri": each, "name": each} for each in self.directories[params["uri"]]]}

        async def read(path: str, ctx: Context) -> Any:
            uri = ctx.params["uri"]
            self.asked.append(("resources/read", uri))
            content = self.files[uri]
            if isinstance(content, ReadResourceResult):
                return content
            try:
                return TextResourceContents(uri=uri, text=content.decode())
            except UnicodeDecodeError:
                return BlobResourceContents(uri=uri, blob=base64.b64encode(content).decode())

        server.add_method("skills/list", list_skills)
        server.add_method("skills/get", get_skill)
        server.add_method("resources/directory/read", read_directory)
        for scheme in ("skill", "other+scheme"):
            server.add_resource(f"{scheme}://{{+path}}", read)
        return server


@contextlib.asynccontextmanager
async def hostile(server: HostileServer, mode: Any = "auto", **options: Any) -> AsyncIterator[ClientSkills]:
    """Connect a client to the server."""
    async with Client(server.server(), mode=mode, extensions=[Skills()], **options) as client:
        yield Skills.of(client)
