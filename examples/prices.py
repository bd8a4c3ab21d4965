"""A server over HTTP whose clients are told when a price or the list of tools changes.

$ python examples/prices.py          # a server and a client in one program
$ python examples/prices.py serve    # only the server, at http://127.0.0.1:8000/mcp
"""

import functools
import sys

import trio

from trio_mcp import Client, ResourceNotFound, ResourceUpdated, Server, ToolsListChanged

PRICES = {"apple": 30, "pear": 45}

server = Server("prices", version="1.0.0")


@server.resource("price://{item}")
async def price(item: str) -> int:
    """The price of an item."""
    if item not in PRICES:
        raise ResourceNotFound(f"price://{item}")
    return PRICES[item]


@server.tool
async def change_price(item: str, to: int) -> str:
    """Change the price of an item."""
    PRICES[item] = to
    server.notify_resource_updated(f"price://{item}")
    return f"{item}: {to}"


@server.tool
async def open_shop() -> None:
    """Begin to sell."""
    server.remove_tool("open_shop")
    server.add_tool(buy)  # clients that listen are told of both


async def buy(item: str, pieces: int) -> int:
    """Buy something."""
    return PRICES[item] * pieces


async def main() -> None:
    async with trio.open_nursery() as nursery:
        url = await nursery.start(functools.partial(server.serve_http, port=0))

        async with (
            Client(url) as listener,
            Client(url) as shop,
            listener.listen(tools_list_changed=True, resources=["price://pear"]) as events,
        ):
            await shop.call_tool("change_price", {"item": "pear", "to": 20})
            async for event in events:
                match event:
                    case ResourceUpdated(uri):
                        print("changed:", uri)
                        await shop.call_tool("open_shop")
                    case ToolsListChanged():
                        print("tools:", [tool.name async for tool in listener.iter_tools()])
                        break
        nursery.cancel_scope.cancel("all is shown")


if __name__ == "__main__":
    if "serve" in sys.argv[1:]:
        server.run("http", port=8000)
    else:
        trio.run(main)
