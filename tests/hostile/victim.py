"""The server that is attacked: `python -m tests.hostile.victim FOLDER RUNNER`; without a folder over stdio.

It prints its addresses in one line of JSON, answers each line on its standard input with a line that gives its state,
and ends at SIGINT.
"""

from __future__ import annotations

import gc
import json
import logging
import os
import signal
import ssl
import sys
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import attrs
import psutil
import trio
from pydantic import Field

from tests.server.http.certificate import over_tls
from trio_mcp import Context, HttpOptions, MemoryEventStore, Server
from trio_mcp.low_level import stdio_server
from trio_mcp.sockets.serving import SocketSettings

COUNTED = ("requests", "bodies", "sessions", "sse_sessions", "exchanges", "streams", "unanswered", "websockets")
"""What must be zero at rest, of the statistics of an endpoint."""

marks: list[str] = []
server = Server("victim", version="1.0", instructions="Attack me.")


@server.tool
async def add(a: int, b: int) -> int:
    return a + b


@server.tool
async def echo(text: str) -> str:
    return text


@server.tool
async def route(
    region: Annotated[str, Field(json_schema_extra={"x-mcp-header": "Region"})] = "none",
    count: Annotated[int, Field(json_schema_extra={"x-mcp-header": "Count"})] = 0,
) -> str:
    return f"{region} {count}"


@server.tool
async def slow(seconds: float, ctx: Context) -> str:
    await ctx.report_progress(1)
    await trio.sleep(seconds)
    return "done"


@server.tool
async def mark() -> None:
    """Be called by none: each call of this tool comes after something that ends the connection."""
    marks.append("called")


@server.resource("text://poem")
async def poem() -> str:
    return "a poem"


@server.prompt
async def ask(topic: str) -> str:
    return topic


def names(task: trio.lowlevel.Task | None) -> Iterator[str]:
    """Yield the name of each task below one, and where it waits."""
    for nursery in [] if task is None else task.child_nurseries:
        for child in nursery.child_tasks:
            frames = [f"{frame.f_code.co_qualname}:{line}" for frame, line in child.iter_await_frames()]
            yield " > ".join([child.name, *frames[-6:]])
            yield from names(child)


def state() -> dict[str, Any]:
    """Return the figures that must not grow."""
    gc.collect()
    statistics = server.statistics()
    endpoints = [attrs.asdict(endpoint) for endpoint in statistics.http]
    process = psutil.Process()
    return {
        "tasks": trio.lowlevel.current_statistics().tasks_living,
        "names": dict(Counter(names(trio.lowlevel.current_root_task()))),
        "descriptors": process.num_fds(),
        "sessions": statistics.sessions,
        "running": statistics.running,
        "marks": len(marks),
        "listening": statistics.listening,
        "http": {name: sum(endpoint[name] for endpoint in endpoints) for name in COUNTED},
        "rss": process.memory_info().rss,
    }


async def serve(folder: Path, runner: str) -> None:
    options = HttpOptions(
        runner=runner,
        sse_path="/sse",
        websocket_path="/ws",
        event_store=MemoryEventStore(),
        max_message_size=262_144,
        max_sessions=10_000,
        session_timeout=2,
        body_timeout=2,
        write_timeout=3,
        keep_alive=1,
        ping_timeout=10,
        grace=1,
    )
    stop = trio.Event()
    config, _ = over_tls(folder)
    config.keep_alive_timeout = 5
    config.insecure_bind = ["127.0.0.1:0"]
    with trio.open_signal_receiver(signal.SIGINT) as signals:
        async with trio.open_nursery() as nursery:

            async def run(task_status: trio.TaskStatus[str]) -> None:
                await server.serve_http(config=config, options=options, shutdown=stop, task_status=task_status)
                nursery.cancel_scope.cancel()

            lines: SocketSettings = {"max_message_size": 262_144, "head_timeout": 2, "write_timeout": 3, "grace": 1}
            tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
            assert config.certfile is not None
            tls.load_cert_chain(config.certfile, config.keyfile)
            found = {
                "lines": await nursery.start(partial(server.serve_tcp, port=0, shutdown=stop, **lines)),
                "lines_tls": await nursery.start(
                    partial(server.serve_tcp, port=0, ssl_context=tls, shutdown=stop, **lines)
                ),
                "unix": await nursery.start(partial(server.serve_unix, folder / "lines", shutdown=stop, **lines)),
                "certificate": config.certfile,
            }
            others = listening()
            found["tls"] = await nursery.start(run)
            found["ports"] = [port for port in listening() if port not in others]

            async def answer() -> None:
                while await questions.receive_some():
                    print(json.dumps(state()), flush=True)

            questions = trio.lowlevel.FdStream(os.dup(0))
            nursery.start_soon(answer)
            print(json.dumps(found), flush=True)
            async for _ in signals:
                stop.set()


async def serve_lines() -> None:
    async with stdio_server(max_message_size=262_144) as link:
        await server.serve(link)


def listening() -> list[int]:
    """Return the ports that this process listens on."""
    found = psutil.Process().net_connections("tcp")
    return [connection.laddr.port for connection in found if connection.status == psutil.CONN_LISTEN]


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(name)s %(message)s")
    if len(sys.argv) > 1:
        trio.run(serve, Path(sys.argv[1]), sys.argv[2])
    else:
        trio.run(serve_lines)
