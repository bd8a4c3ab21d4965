"""The bare limit of a WebSocket server on Trio: trio-websocket alone, which sends back what it gets."""

from functools import partial

import trio
from trio_websocket import ConnectionClosed, WebSocketRequest, serve_websocket


async def echo(request: WebSocketRequest) -> None:
    websocket = await request.accept(subprotocol="mcp")
    try:
        while True:
            await websocket.send_message(await websocket.get_message())
    except ConnectionClosed:
        pass


async def main() -> None:
    async with trio.open_nursery() as nursery:
        server = await nursery.start(partial(serve_websocket, echo, "127.0.0.1", 0, None))
        print(f"ws://127.0.0.1:{server.port}/mcp", flush=True)


if __name__ == "__main__":
    trio.run(main)
