"""A chat room over WebSocket: each member hears what the others say, as log messages of a call that stays open.

$ python examples/chat.py          # a server and two clients in one program
$ python examples/chat.py serve    # only the server, at ws://127.0.0.1:8000/
"""

import functools
import sys

import trio

from trio_mcp import Client, Context, Server, ToolError
from trio_mcp.types import LoggingMessageNotificationParams

server = Server("chat", version="1.0.0")
MEMBERS: dict[str, trio.MemorySendChannel[str]] = {}


@server.tool
async def join(name: str, ctx: Context) -> None:
    """Join the room, and hear what is said until you cancel the call."""
    if name in MEMBERS:
        raise ToolError(f"{name} is already in the room")
    MEMBERS[name], receive = trio.open_memory_channel[str](100)
    try:
        await ctx.info(f"welcome, {name}")
        async for line in receive:
            await ctx.info(line)
    finally:
        del MEMBERS[name]


@server.tool
async def say(name: str, text: str) -> list[str]:
    """Say something to all others in the room; return who missed it."""
    missed = []
    for other, channel in MEMBERS.items():
        try:
            if other != name:
                channel.send_nowait(f"{name}: {text}")
        except trio.WouldBlock:  # a member that does not read slows down no other
            missed.append(other)
    return missed


async def main() -> None:
    heard_send, heard = trio.open_memory_channel[str](10)

    def hear(message: LoggingMessageNotificationParams) -> None:
        heard_send.send_nowait(str(message.data))

    async with trio.open_nursery() as nursery:
        url = await nursery.start(functools.partial(server.serve_websocket, port=0))
        async with Client(url, log_level="info", on_log=hear) as ada, Client(url) as grace:
            nursery.start_soon(ada.call_tool, "join", {"name": "Ada"})
            print(await heard.receive())
            await grace.call_tool("say", {"name": "Grace", "text": "hello, Ada"})
            print(await heard.receive())
            nursery.cancel_scope.cancel("the chat is over")


if __name__ == "__main__":
    if "serve" in sys.argv[1:]:
        server.run("websocket", port=8000)
    else:
        trio.run(main)
