"""A stdio server on FastMCP that serves a folder of skills."""

from __future__ import annotations

import sys

from fastmcp import FastMCP
from fastmcp.skills.provider import SkillsDirectoryProvider

server = FastMCP("skills")
server.add_provider(SkillsDirectoryProvider(sys.argv[1]))

if __name__ == "__main__":
    server.run(show_banner=False)
