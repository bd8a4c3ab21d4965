"""A server process that hands on what it gets on stdio to a Unix socket, and back: ``stdio_child.py serve|copy PATH``.

``serve`` does so with the messages of a `stdio_server`, ``copy`` with the bytes.
"""

from __future__ import annotations

import os
import sys

import trio

from trio_mcp import Notification
from trio_mcp.jsonrpc import Malformed
from trio_mcp.low_level import Link, SessionMessage, stdio_server, stream_link

LIMIT = 64 * 1024
"""The longest message that links over raw streams accept in the tests: here if there is a third argument."""

MALFORMED = "check/malformed"
"""The method of the notification that stands for a `Malformed`."""


async def hand_on(source: Link, target: Link) -> None:
    async with target.write:
        async for item in source.read:
            message = item.message
            if isinstance(message, Malformed):
                message = Notification(MALFORMED, {"reason": message.reason})
            await target.write.send(SessionMessage(message))


async def serve(stream: trio.SocketStream) -> None:
    limit = {"max_message_size": LIMIT} if sys.argv[3:] else {}
    async with stdio_server(**limit) as ours, stream_link(stream) as theirs, trio.open_nursery() as nursery:
        nursery.start_soon(hand_on, ours, theirs)
        await hand_on(theirs, ours)
        nursery.cancel_scope.cancel()  # a server that has nothing more to say exits


async def copy(stream: trio.SocketStream) -> None:
    async with trio.open_nursery() as nursery:

        @nursery.start_soon
        async def outgoing() -> None:
            async with trio.lowlevel.FdStream(os.dup(0)) as source:
                async for data in source:
                    await stream.send_all(data)
            await stream.send_eof()

        async with trio.lowlevel.FdStream(os.dup(1)) as target:
            os.close(1)
            async for data in stream:
                await target.send_all(data)
        nursery.cancel_scope.cancel()


async def main() -> None:
    async with await trio.open_unix_socket(sys.argv[2]) as stream:
        await {"serve": serve, "copy": copy}[sys.argv[1]](stream)


if __name__ == "__main__":
    trio.run(main)
