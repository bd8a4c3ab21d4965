"""A web application of Starlette with pages of its own and an MCP server at /mcp, on hypercorn's Trio worker.

$ python examples/web_app.py                                          # starts it, and calls it
$ hypercorn -k trio --bind 127.0.0.1:8000 examples.web_app:app        # only serves it
"""

from functools import partial
from typing import cast

import httpx
import hypercorn.trio
import trio
from hypercorn.config import Config
from hypercorn.typing import ASGIFramework
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Mount, Route

from trio_mcp import Client, Server

VISITORS: list[str] = []

server = Server("visitors", version="1.0.0")


@server.tool
async def visitors() -> list[str]:
    """List who has visited the page."""
    return VISITORS


async def page(request: Request) -> PlainTextResponse:
    VISITORS.append(request.query_params.get("name", "a stranger"))
    return PlainTextResponse(f"Hello, {VISITORS[-1]}!")


mcp = server.asgi_app(path="/")
app = Starlette(routes=[Route("/", page), Mount("/mcp", mcp)], lifespan=mcp.lifespan)


async def main() -> None:
    config = Config()
    config.bind = ["127.0.0.1:0"]
    async with trio.open_nursery() as nursery:
        application = cast("ASGIFramework", app)  # the two have types of their own for the same thing
        (url,) = await nursery.start(partial(hypercorn.trio.serve, application, config, mode="asgi"))
        async with httpx.AsyncClient() as browser:
            print((await browser.get(url, params={"name": "Ada"})).text)
        async with Client(f"{url}/mcp/") as client:
            print((await client.call_tool("visitors")).data)
        nursery.cancel_scope.cancel("all is shown")


if __name__ == "__main__":
    trio.run(main)
