"""A server to measure clients against: raw sockets, so fast that no client waits for it.

It has one tool, ``add``, and knows as much of both eras as a client needs to call it. With the argument ``sse`` it
answers in event streams; with ``heads``, no two heads of its responses are the same.
"""

import itertools
import json
import selectors
import socket
import sys
from typing import Any

LEGACY_VERSION, MODERN_VERSION = "2025-11-25", "2026-07-28"

NUMBER = {"type": "integer"}
TOOL = {
    "name": "add",
    "inputSchema": {"type": "object", "properties": {"a": NUMBER, "b": NUMBER}, "required": ["a", "b"]},
    "outputSchema": {"type": "object", "properties": {"result": NUMBER}, "required": ["result"]},
}
INFO = {"name": "fast", "version": "1.0.0"}
CACHEABLE = {"ttlMs": 3_600_000, "cacheScope": "public"}
CAPABILITIES: dict[str, Any] = {"tools": {}}
RESULTS: dict[str, dict[str, Any]] = {
    "initialize": {"protocolVersion": LEGACY_VERSION, "capabilities": CAPABILITIES, "serverInfo": INFO},
    "server/discover": {"supportedVersions": [MODERN_VERSION], "capabilities": CAPABILITIES, **CACHEABLE},
    "tools/list": {"tools": [TOOL], **CACHEABLE},
}
STAMP = {"resultType": "complete", "_meta": {"io.modelcontextprotocol/serverInfo": INFO}}
EVENTS = sys.argv[1:] == ["sse"]
DIFFERS = (b"Differs: %d\r\n" % number for number in itertools.count())
NEW_HEADS = sys.argv[1:] == ["heads"]


def answer_to(message: dict[str, Any]) -> dict[str, Any]:
    method, params = message["method"], message.get("params") or {}
    if method == "tools/call":
        value = params["arguments"]["a"] + params["arguments"]["b"]
        result = {"content": [{"type": "text", "text": str(value)}], "structuredContent": {"result": value}}
    elif method in RESULTS:
        result = RESULTS[method]
    else:
        error = {"code": -32601, "message": "Method not found"}
        return {"jsonrpc": "2.0", "id": message["id"], "error": error}
    if "_meta" in params:
        result = {**STAMP, **result}
    return {"jsonrpc": "2.0", "id": message["id"], "result": result}


def respond(method: bytes, body: bytes) -> bytes:
    """Return the bytes of the response to an HTTP request."""
    if method == b"DELETE":
        return b"HTTP/1.1 204 No Content\r\n\r\n"
    if method != b"POST":
        return b"HTTP/1.1 405 Method Not Allowed\r\nAllow: POST, DELETE\r\nContent-Length: 0\r\n\r\n"
    message = json.loads(body)
    if "id" not in message:
        return b"HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\n\r\n"
    text = json.dumps(answer_to(message), separators=(",", ":")).encode()
    head = b"HTTP/1.1 200 OK\r\n" + (next(DIFFERS) if NEW_HEADS else b"")
    if message["method"] == "initialize":
        head += b"Mcp-Session-Id: the-only-one\r\n"
    if EVENTS:
        event = b"event: message\r\ndata: %b\r\n\r\n" % text
        head += b"Content-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
        return b"%b%x\r\n%b\r\n0\r\n\r\n" % (head, len(event), event)
    return b"%bContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b" % (head, len(text), text)


def serve_connection(connection: socket.socket, buffer: bytes) -> bytes | None:
    """Read once, and answer every complete request. Return the rest of the buffer, or None at the end."""
    data = connection.recv(65536)
    if not data:
        return None
    buffer += data
    while True:
        head, blank, rest = buffer.partition(b"\r\n\r\n")
        length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0] or 0)
        if not blank or len(rest) < length:
            return buffer
        connection.sendall(respond(head.partition(b" ")[0], rest[:length]))
        buffer = rest[length:]


def main() -> None:
    listener = socket.create_server(("127.0.0.1", 0), backlog=100)
    print(f"http://127.0.0.1:{listener.getsockname()[1]}/mcp", flush=True)
    selector = selectors.DefaultSelector()
    selector.register(listener, selectors.EVENT_READ)
    buffers: dict[socket.socket, bytes] = {}
    while True:
        for key, _ in selector.select():
            if key.fileobj is listener:
                connection, _ = listener.accept()
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                buffers[connection] = b""
                selector.register(connection, selectors.EVENT_READ, connection)
                continue
            connection = key.data
            try:
                left = serve_connection(connection, buffers.pop(connection))
            except ConnectionError:
                left = None
            if left is None:
                selector.unregister(connection)
                connection.close()
            else:
                buffers[connection] = left


if __name__ == "__main__":
    main()
