"""The official SDK's server over HTTP, on uvicorn: as it comes, or ``json``: it answers in JSON, not in events."""

import sys

import anyio
import uvicorn
from official import server


class Telling(uvicorn.Server):
    """Says where it listens. It opens its sockets itself: one that it is given would lack TCP_NODELAY."""

    async def startup(self, sockets=None):
        await super().startup(sockets)
        print(f"http://127.0.0.1:{self.servers[0].sockets[0].getsockname()[1]}/mcp", flush=True)


async def main() -> None:
    app = server.streamable_http_app(json_response=sys.argv[1:] == ["json"])
    await Telling(uvicorn.Config(app, host="127.0.0.1", port=0, log_level="error")).serve()


if __name__ == "__main__":
    anyio.run(main)
