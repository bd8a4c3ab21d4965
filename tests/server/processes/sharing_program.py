"""A server with several processes: ``python sharing_program.py '{"stores": "desk.db", …}'``.

They share a file, or an engine, whose URL then stands in place of the path.
"""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import sys
from typing import Any

from pydantic import BaseModel

from trio_mcp import Context, Principal, Server
from trio_mcp.server.places import stores_at
from trio_mcp.server.processes import child, slots, supervisor
from trio_mcp.stores import SqliteStores, UserStateOptions

ROOMS: dict[str, Any] = {"child": child, "slots": slots, "supervisor": supervisor}


class Answer(BaseModel):
    text: str


class Count(BaseModel):
    value: int = 0


def make(stores: str, timeout: float, **words: Any) -> Server:
    server = Server(
        "desk",
        stores=stores_at(stores, "desk") if "://" in stores else SqliteStores(stores, timeout=timeout),
        principal=lambda ctx: Principal("ann"),
        user_state=UserStateOptions(trust_principal=True),
        **words,
    )

    @server.tool
    async def pid() -> int:
        return os.getpid()

    @server.tool
    async def ask(ctx: Context) -> list[int]:
        """The processes that have asked, and that have got the answer."""
        first: int = await ctx.once("pid", os.getpid)
        await ctx.elicit("Go on?", Answer)
        return [first, os.getpid()]

    @server.tool
    async def touch() -> int:
        server.notify_resource_updated("desk://lamp")
        return os.getpid()

    @server.tool
    async def count(ctx: Context) -> int:
        def more(found: Count) -> Count:
            found.value += 1
            return found

        return (await ctx.update_user_state(Count, more)).value

    @server.tool
    async def hold() -> None:
        """Stop this process inside a transaction."""
        connection = sqlite3.connect(stores, isolation_level=None)
        connection.execute("BEGIN IMMEDIATE")
        os.kill(os.getpid(), signal.SIGSTOP)

    @server.resource("desk://lamp")
    async def lamp() -> str:
        return "on"

    return server


def main() -> None:
    settings = json.loads(sys.argv[1])
    for name, value in settings.pop("constants", {}).items():
        room, constant = name.split(".")
        setattr(ROOMS[room], constant, value)
    make(settings.pop("stores"), settings.pop("timeout", 5.0)).run("http", **settings)


if __name__ == "__main__":
    main()
