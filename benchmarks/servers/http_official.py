"""The official SDK's server over HTTP, on uvicorn, as it comes; with the argument ``json`` it answers in JSON.

With the argument ``httptools``, too, uvicorn parses with that. Installed by ``pip install mcp`` alone, it uses h11.
"""

import socket
import sys

import anyio
import uvicorn

from benchmarks.servers.official import server


class Telling(uvicorn.Server):
    """A uvicorn server that prints its URL. It opens its own sockets, because one passed to it lacks TCP_NODELAY."""

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        print(f"http://127.0.0.1:{self.servers[0].sockets[0].getsockname()[1]}/mcp", flush=True)


async def main() -> None:
    app = server.streamable_http_app(json_response="json" in sys.argv)
    parser = "httptools" if "httptools" in sys.argv else "h11"
    config = uvicorn.Config(app, host="127.0.0.1", port=0, log_level="error", http=parser, timeout_keep_alive=3600)
    await Telling(config).serve()


if __name__ == "__main__":
    anyio.run(main)
