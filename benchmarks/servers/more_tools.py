"""trio_mcp's server with tools for special scenarios: ``more_tools.py stdio|websocket|http``."""

import os
import sys
import time

import trio

from benchmarks.servers import http_ours, links
from benchmarks.servers.ours import server
from trio_mcp import Context


@server.tool
async def progress(count: int, ctx: Context) -> str:
    """Report progress this many times."""
    for number in range(count):
        await ctx.report_progress(number, count)
    return "done"


@server.tool
async def log(count: int, ctx: Context) -> str:
    """Log this many messages."""
    for number in range(count):
        await ctx.info(f"message {number} of {count}")
    return "done"


@server.tool
async def wait(number: int, file: str) -> None:
    """Append the number to a file, wait to be cancelled, and append it with the time."""
    fd = os.open(file, os.O_WRONLY | os.O_APPEND)
    os.write(fd, b"%d\n" % number)
    try:
        await trio.sleep_forever()
    finally:
        os.write(fd, b"%d %d\n" % (number, time.perf_counter_ns()))
        os.close(fd)


if __name__ == "__main__":
    transport = sys.argv[1]
    if transport == "stdio":
        server.run()
    elif transport == "http":
        sys.argv.pop(1)
        trio.run(http_ours.main)
    else:
        trio.run(links.main, transport, "")
