"""trio_mcp's server with a tool that writes down which functions of the package a call runs through.

``traced.py stdio`` serves standard input and output, ``traced.py http`` prints its URL and serves that.
"""

import json
import os
import sys
from types import FrameType
from typing import Any

import trio

import trio_mcp
from trio_mcp import Server

PACKAGE = os.path.dirname(trio_mcp.__file__)

server = Server("traced")
seen: set[tuple[str, str]] = set()


def note(frame: FrameType, event: str, argument: Any) -> None:
    """Note a call of the package's own code: what attrs has generated has no file."""
    code = frame.f_code
    if event == "call" and code.co_filename.startswith(PACKAGE):
        seen.add((code.co_filename, code.co_qualname))


@server.tool
async def add(a: int, b: int) -> int:
    """Add."""
    return a + b


@server.tool
async def trace(on: bool) -> str:
    """Begin, or end and tell what was seen since, as JSON. Everything runs in this one thread."""
    if on:
        seen.clear()
        sys.setprofile(note)
        return ""
    sys.setprofile(None)
    return json.dumps(sorted(seen))


async def serve_http() -> None:
    async with trio.open_nursery() as nursery:
        print(await nursery.start(server.serve_http, "127.0.0.1", 0), flush=True)


if __name__ == "__main__":
    if sys.argv[1] == "stdio":
        server.run()
    else:
        trio.run(serve_http)
