"""The server of official_server.py over HTTP, on uvicorn: both eras at /mcp, or HTTP+SSE at /sse. Prints its URL."""

from __future__ import annotations

import argparse
import socket

import uvicorn
from mcp.server.streamable_http import EventMessage
from official_server import server


class Events:
    """Keeps the events of each stream, so that a client can go on where it broke off."""

    def __init__(self) -> None:
        self.events: list[tuple[str, str, object]] = []

    async def store_event(self, stream_id, message):  # type: ignore[no-untyped-def]
        self.events.append((str(len(self.events)), stream_id, message))
        return self.events[-1][0]

    async def replay_events_after(self, last_event_id, send_callback):  # type: ignore[no-untyped-def]
        stream = next((stream for number, stream, _ in self.events if number == last_event_id), None)
        for number, of, message in self.events[int(last_event_id) + 1 :]:
            if of == stream and message is not None:
                await send_callback(EventMessage(message, number))
        return stream


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("kind", choices=["events", "json", "stateless", "resumable", "sse"])
    kind = parser.parse_args().kind
    if kind == "sse":
        app, path = server.sse_app(), "/sse"
    else:
        app, path = (
            server.streamable_http_app(
                json_response=kind == "json",
                stateless_http=kind == "stateless",
                event_store=Events() if kind == "resumable" else None,  # type: ignore[arg-type]
                retry_interval=100 if kind == "resumable" else None,
            ),
            "/mcp",
        )
    listener = socket.create_server(("127.0.0.1", 0))
    print(f"http://127.0.0.1:{listener.getsockname()[1]}{path}", flush=True)
    config = uvicorn.Config(app, log_level="critical", timeout_graceful_shutdown=1)
    uvicorn.Server(config).run(sockets=[listener])


if __name__ == "__main__":
    main()
