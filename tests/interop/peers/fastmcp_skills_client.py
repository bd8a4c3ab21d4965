"""FastMCP's client with skills: it lists them, reads each whole, and prints what came of it."""

from __future__ import annotations

import asyncio
import base64
import json
import sys
from typing import Any

from fastmcp import Client
from fastmcp.skills import SkillsClientExtension


async def main(url: str, unlisted: str) -> None:
    report: dict[str, Any] = {"skills": {}}
    async with Client(url, extensions=[SkillsClientExtension()]) as client:
        for entry in await client.list_skills():
            try:
                skill = await client.read_skill(entry.uri)
                files = {path: base64.b64encode(data).decode() for path, data in skill.files.items()}
            except ValueError as exc:
                files = {"error": str(exc)}
            report["skills"][entry.uri] = files
        report["unlisted"] = (await client.get_skill(unlisted)).uri
    print(json.dumps(report))


asyncio.run(main(*sys.argv[1:]))
