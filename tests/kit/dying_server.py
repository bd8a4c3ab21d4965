"""A server that goes wrong after some messages: ``python dying_server.py MARK TRANSPORT FAULT AFTER``.

Over stdio, or over a socket, whose port it prints. It is written with the standard library alone, as it must start
quickly, and has threads, as nothing in it may keep it from going wrong in the middle of something.
"""

from __future__ import annotations

import http.server
import json
import os
import queue
import signal
import socketserver
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

__all__ = ["FAULTS", "TRANSPORTS"]

FAULTS = ("silent", "stubborn", "half", "exits", "crashes", "floods", "hangs", "loses")
"""What it does once it has had its messages: it answers nothing any more; nor does it end when it is told to, and it
has a child like itself; it writes half of a response; it ends; it ends with an error; it writes without end; it never
answers anything; it loses some requests from then on, but no call of its tool, which might as well be slow."""

TRANSPORTS = ("stdio", "tcp", "http", "sse", "ws")

NOISE = b'{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"more"}}'

RESULTS: dict[str, Any] = {
    "initialize": {
        "protocolVersion": "2025-11-25",
        "capabilities": {"tools": {}, "logging": {}},
        "serverInfo": {"name": "dying", "version": "1"},
    },
    "ping": {},
    "tools/list": {
        "tools": [
            {
                "name": "echo",
                "description": "Say something again.",
                "inputSchema": {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]},
                "annotations": {"readOnlyHint": True},
            }
        ]
    },
}


class Dying:
    """What goes wrong, in one process, whatever the connection."""

    def __init__(self, mark: str, fault: str, after: int) -> None:
        self.mark = mark
        self.fault = fault
        self.after = 0 if fault == "hangs" else after
        self.heard = 0
        self.lock = threading.Lock()

    def tell(self) -> None:
        """Leave a file that says that it has gone wrong: on a busy machine a check may end before."""
        if os.path.isdir(self.mark):
            open(os.path.join(self.mark, "wrong"), "w").close()

    def answer(self, message: Any) -> bytes | None:
        """Return the response to a message, if it gets one; see `gone_wrong` for what else may happen."""
        if not isinstance(message, dict) or "id" not in message or "method" not in message:
            return None
        response: dict[str, Any] = {"jsonrpc": "2.0", "id": message["id"]}
        method, params = message["method"], message.get("params")
        params = params if isinstance(params, dict) else {}
        if method == "tools/call":
            arguments = params.get("arguments")
            text = arguments.get("text") if isinstance(arguments, dict) else None
            if params.get("name") != "echo" or not isinstance(text, str):
                response["error"] = {"code": -32602, "message": "echo takes a text"}
            else:
                response["result"] = {"content": [{"type": "text", "text": text}]}
        elif method in RESULTS:
            response["result"] = RESULTS[method]
        else:
            response["error"] = {"code": -32601, "message": f"no method {method}"}
        return json.dumps(response).encode()

    def take(self, data: bytes, say: Callable[[bytes], None], say_raw: Callable[[bytes], None]) -> None:
        """Take a message, and answer it as long as nothing is wrong yet."""
        with self.lock:
            self.heard += 1
            over = self.heard - self.after
        if over == 1 and self.fault != "loses":
            self.tell()
        try:
            message = json.loads(data)
        except (ValueError, RecursionError):
            say(b'{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"not JSON"}}')
            return
        answer = self.answer(message)
        method = message["method"] if answer is not None else ""
        if over <= 0:
            if answer is not None:
                say(answer)
            return
        match self.fault:
            case "exits" | "crashes":
                if answer is not None and self.fault == "exits":
                    say(answer)
                os._exit(self.fault == "crashes")
            case "half":
                say_raw((answer or NOISE)[:20])
                self.fault = "silent"
            case "floods":
                while True:
                    say(NOISE)
            case "loses" if answer is not None:
                if over % 3 or method == "tools/call":
                    say(answer)
                else:
                    self.tell()


def over_stdio(dying: Dying) -> None:
    """Serve lines."""
    out = sys.stdout.buffer

    def say_raw(data: bytes) -> None:
        out.write(data)
        out.flush()

    for line in sys.stdin.buffer:
        dying.take(line, lambda data: say_raw(data + b"\n"), say_raw)
    while dying.fault == "stubborn":
        time.sleep(60)


def serve(handler: type[socketserver.BaseRequestHandler]) -> None:
    """Serve connections on a port of the system's choice, which is printed."""

    class Serving(socketserver.ThreadingTCPServer):
        daemon_threads = True
        request_queue_size = 64

        def handle_error(self, request: Any, client_address: Any) -> None:
            pass  # the client has gone

    with Serving(("127.0.0.1", 0), handler) as server:
        print(server.server_address[1], flush=True)
        server.serve_forever()


def over_tcp(dying: Dying) -> None:
    """Serve lines over TCP."""

    class Handler(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            for line in self.rfile:
                dying.take(line, lambda data: self.say(data + b"\n"), self.say)

        def say(self, data: bytes) -> None:
            self.wfile.write(data)

    serve(Handler)


def over_http(dying: Dying, *, sse: bool) -> None:
    """Serve Streamable HTTP, in which each response is a stream of events, or HTTP+SSE."""
    streams: dict[str, queue.Queue[bytes]] = {}

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *args: Any) -> None:
            pass

        def begin(self, status: int, *, stream: bool = False) -> None:
            self.send_response(status)
            if stream:
                self.send_header("Content-Type", "text/event-stream")
                self.send_header("Connection", "close")
            else:
                self.send_header("Content-Length", "0")
            self.end_headers()
            self.close_connection = stream

        def do_GET(self) -> None:
            if not sse:
                self.begin(405)
                return
            name = str(id(self))
            mine = streams[name] = queue.Queue(1000)
            if dying.fault == "hangs":
                mine.get()
            self.begin(200, stream=True)
            self.wfile.write(b"event: endpoint\ndata: /post?" + name.encode() + b"\n\n")
            while True:
                self.wfile.write(mine.get())

        def do_DELETE(self) -> None:
            self.begin(405)

        def do_POST(self) -> None:
            data = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            begun = False
            if sse:
                self.begin(202)
                to = streams.get(self.path.partition("?")[2], queue.Queue(1000))
                dying.take(data, lambda text: to.put(b"data: " + text + b"\n\n"), to.put)
                return

            def say_raw(text: bytes) -> None:
                nonlocal begun
                if not begun:
                    self.begin(200, stream=True)
                    begun = True
                self.wfile.write(text)

            dying.take(data, lambda text: say_raw(b"data: " + text + b"\n\n"), say_raw)
            if not begun and dying.heard > dying.after and b'"id"' in data:
                threading.Event().wait()  # silent
            if not begun:
                self.begin(202)

    serve(Handler)


def over_websocket(dying: Dying) -> None:
    """Serve a WebSocket."""
    import wsproto
    from wsproto.events import AcceptConnection, CloseConnection, Ping, Request, TextMessage

    class Handler(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            protocol = wsproto.WSConnection(wsproto.ConnectionType.SERVER)
            text = ""
            if dying.fault == "hangs":
                threading.Event().wait()
            while data := self.request.recv(65536):
                protocol.receive_data(data)
                for event in protocol.events():
                    match event:
                        case Request():
                            self.request.sendall(protocol.send(AcceptConnection(subprotocol="mcp")))
                        case Ping():
                            self.request.sendall(protocol.send(event.response()))
                        case CloseConnection():
                            self.request.sendall(protocol.send(event.response()))
                            return
                        case TextMessage():
                            text += event.data
                            if event.message_finished:
                                whole, text = text.encode(), ""
                                dying.take(
                                    whole,
                                    lambda each: self.request.sendall(protocol.send(TextMessage(each.decode()))),
                                    lambda each: self.request.sendall(
                                        protocol.send(TextMessage(each.decode(), message_finished=False))
                                    ),
                                )

    serve(Handler)


def main(mark: str, transport: str, fault: str, after: str) -> None:
    """Serve until something ends this process; the mark, a folder, is for those who look whether it has ended."""
    if fault == "stubborn":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        code = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(300)"
        subprocess.Popen([sys.executable, "-c", code, mark])
    dying = Dying(mark, fault, int(after))
    match transport:
        case "stdio":
            over_stdio(dying)
        case "tcp":
            over_tcp(dying)
        case "ws":
            over_websocket(dying)
        case _:
            over_http(dying, sse=transport == "sse")


if __name__ == "__main__":
    main(*sys.argv[1:])
