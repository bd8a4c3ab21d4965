"""The official Python SDK's server over HTTP, on uvicorn: stateless, with answers in JSON, which is its fastest."""

import anyio
import uvicorn
from official import server


class Telling(uvicorn.Server):
    """Says where it listens. It opens its sockets itself: one that it is given would lack TCP_NODELAY."""

    async def startup(self, sockets=None):
        await super().startup(sockets)
        print(f"http://127.0.0.1:{self.servers[0].sockets[0].getsockname()[1]}/mcp", flush=True)


async def main() -> None:
    app = server.streamable_http_app(stateless_http=True, json_response=True)
    await Telling(uvicorn.Config(app, host="127.0.0.1", port=0, log_level="error")).serve()


if __name__ == "__main__":
    anyio.run(main)
