"""The bare limit over HTTP: hypercorn as it comes, with an application that only parses JSON and writes an answer."""

import sys
from collections.abc import Awaitable, Callable
from typing import Any

import trio
from hypercorn.config import Config
from hypercorn.trio import serve
from pydantic_core import from_json, to_json


async def app(scope: Any, receive: Callable[[], Awaitable[Any]], send: Callable[[Any], Awaitable[None]]) -> None:
    if scope["type"] != "http":
        raise RuntimeError("no lifespan")
    body = b""
    while True:
        event = await receive()
        body += event.get("body", b"")
        if not event.get("more_body"):
            break
    message = from_json(body)
    arguments = message["params"]["arguments"]
    value = arguments["a"] + arguments["b"]
    result = {"content": [{"type": "text", "text": str(value)}], "structuredContent": {"result": value}}
    answer = to_json({"jsonrpc": "2.0", "id": message["id"], "result": {"resultType": "complete", **result}})
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(answer)).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": answer})


async def main() -> None:
    config = Config()
    config.bind = ["127.0.0.1:0"]
    config.errorlog = None
    config.keep_alive_max_requests = sys.maxsize
    async with trio.open_nursery() as nursery:
        (bound,) = await nursery.start(serve, app, config)
        print(f"{bound}/mcp", flush=True)


if __name__ == "__main__":
    trio.run(main)
