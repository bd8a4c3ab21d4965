"""FastMCP's server on stdio as it comes; with ``http``, over HTTP on uvicorn, answering in JSON.

With ``tasks``, it has one more tool, whose calls become tasks. With ``mount``, its tools are those of a mounted server,
and with ``proxy URL``, of a server at a URL.
"""

import socket
import sys

import anyio
from fastmcp import FastMCP

server = FastMCP("benchmark", version="1.0.0")


@server.tool
async def add(a: int, b: int) -> int:
    """Add two integers."""
    return a + b


@server.tool
async def echo(text: str) -> str:
    """Give the text back."""
    return text


@server.tool
async def pause(seconds: float) -> str:
    """Sleep for a while."""
    await anyio.sleep(seconds)
    return "done"


def with_tasks() -> None:
    """Add a tool whose calls become tasks; other scenarios measure lists without it."""
    from fastmcp.utilities.tasks import TaskConfig
    from fastmcp_tasks import TasksExtension

    server.add_extension(TasksExtension())
    server.tool(add, name="add_task", task=TaskConfig(mode="required"))


def composed(kind: str, *url: str) -> FastMCP:
    """Return this server (``plain``), one that it is mounted in, or a proxy of it, or of a server at a URL."""
    if kind == "proxy":
        from fastmcp.server import create_proxy

        return create_proxy(*url or [server])
    if kind == "mount":
        main = FastMCP("main", version="1.0.0")
        main.mount(server)
        return main
    return server


async def over_http(server: FastMCP) -> None:
    import uvicorn

    class Telling(uvicorn.Server):
        """A uvicorn server that prints its URL. It opens its own sockets: one passed to it lacks TCP_NODELAY."""

        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets)
            print(f"http://127.0.0.1:{self.servers[0].sockets[0].getsockname()[1]}/mcp", flush=True)

    app = server.http_app(json_response=True)
    await Telling(uvicorn.Config(app, host="127.0.0.1", port=0, log_level="error", timeout_keep_alive=3600)).serve()


if __name__ == "__main__":
    if "tasks" in sys.argv:
        with_tasks()
    if "http" in sys.argv:
        proxied = sys.argv[sys.argv.index("proxy") + 1 :] if "proxy" in sys.argv else []
        kind = "proxy" if proxied else "mount" if "mount" in sys.argv else "plain"
        anyio.run(over_http, composed(kind, *proxied))
    else:
        server.run(show_banner=False)
