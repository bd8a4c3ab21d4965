"""The bare limits on sockets: ``bare_links.py tcp|unix|websocket|http|events [PATH]``. Each prints its URL.

They frame, parse, validate and answer, and nothing else; over HTTP with h11, over WebSocket with trio-websocket.
"""

from __future__ import annotations

import sys
from functools import partial
from typing import Any

import h11
import trio
from pydantic_core import from_json, to_json
from trio_websocket import ConnectionClosed, WebSocketRequest, serve_websocket

from benchmarks.servers.bare import Writer, answer, result

CHUNK = 65536


async def lines(stream: trio.SocketStream) -> None:
    async with stream, trio.open_nursery() as nursery:
        writer = Writer(stream)
        nursery.start_soon(writer.run)
        parts: list[bytes] = []
        while chunk := bytes(await stream.receive_some(CHUNK)):
            *complete, rest = chunk.split(b"\n")
            for line in complete:
                message = from_json(b"".join([*parts, line]))
                parts.clear()
                nursery.start_soon(answer, message, writer)
            parts.append(rest)
        nursery.cancel_scope.cancel()


async def _answered(data: bytes | str) -> bytes:
    message = from_json(data)
    return to_json({"jsonrpc": "2.0", "id": message["id"], "result": await _result(message)})


async def _result(message: dict[str, Any]) -> dict[str, Any]:
    return await result(message["method"], message.get("params", {}))


async def websocket(request: WebSocketRequest) -> None:
    connection = await request.accept(subprotocol="mcp")
    try:
        while True:
            await connection.send_message((await _answered(await connection.get_message())).decode())
    except ConnectionClosed:
        pass


async def http(stream: trio.SocketStream) -> None:
    connection = h11.Connection(h11.SERVER)
    parts: list[bytes] = []
    async with stream:
        while True:
            event = connection.next_event()
            if event is h11.NEED_DATA:
                connection.receive_data(await stream.receive_some(CHUNK))
            elif isinstance(event, h11.Data):
                parts.append(bytes(event.data))
            elif isinstance(event, h11.EndOfMessage):
                data = await _answered(b"".join(parts))
                parts.clear()
                if sys.argv[1] == "events":
                    data = b"event: message\ndata: " + data + b"\n\n"
                    fields = [("Content-Type", "text/event-stream"), ("Transfer-Encoding", "chunked")]
                else:
                    fields = [("Content-Type", "application/json"), ("Content-Length", str(len(data)))]
                sent = [h11.Response(status_code=200, headers=fields), h11.Data(data=data), h11.EndOfMessage()]
                for each in sent:
                    for piece in connection.send_with_data_passthrough(each) or ():
                        await stream.send_all(piece)
                connection.start_next_cycle()
            elif isinstance(event, h11.ConnectionClosed):
                return


async def main(kind: str, path: str) -> None:
    async with trio.open_nursery() as nursery:
        if kind == "websocket":
            server = await nursery.start(
                partial(serve_websocket, websocket, "127.0.0.1", 0, None, max_message_size=1 << 26)
            )
            print(f"ws://127.0.0.1:{server.port}/mcp", flush=True)
            return
        if kind == "unix":
            socket = trio.socket.socket(trio.socket.AF_UNIX)
            await socket.bind(path)
            socket.listen()
            listeners: list[Any] = [trio.SocketListener(socket)]
            url = f"unix:{path}"
        else:
            listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
            port = listeners[0].socket.getsockname()[1]
            url = f"tcp://127.0.0.1:{port}" if kind == "tcp" else f"http://127.0.0.1:{port}/mcp"
        print(url, flush=True)
        await trio.serve_listeners(lines if kind in ("tcp", "unix") else http, listeners)


if __name__ == "__main__":
    trio.run(main, sys.argv[1], sys.argv[-1])
