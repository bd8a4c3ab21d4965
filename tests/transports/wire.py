"""A client that speaks raw NDJSON to a server process, and sees every byte of it."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.transports.support import DEADLINE, PACKAGE_ROOT

ENVIRONMENT = {**os.environ, "PYTHONPATH": PACKAGE_ROOT}
NOISY = [sys.executable, str(Path(__file__).with_name("noisy_server.py"))]

HANDSHAKE: list[dict[str, Any]] = [
    {
        "jsonrpc": "2.0",
        "id": 0,
        "method": "initialize",
        "params": {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "raw", "version": "1"}},
    },
    {"jsonrpc": "2.0", "method": "notifications/initialized"},
]


def call(request_id: int | str, tool: str, **arguments: Any) -> dict[str, Any]:
    params = {"name": tool, "arguments": arguments}
    return {"jsonrpc": "2.0", "id": request_id, "method": "tools/call", "params": params}


def ndjson(*messages: Any) -> bytes:
    """Messages as lines; bytes are taken as they are."""
    return b"".join(item if isinstance(item, bytes) else json.dumps(item).encode() + b"\n" for item in messages)


def script(code: str) -> list[str]:
    return [sys.executable, "-c", textwrap.dedent(code)]


# A server without the session layer: every message goes back as it came, with `max_message_size` as given.
ECHO = """
    import trio
    from trio_mcp import stdio_server
    async def main():
        async with stdio_server() as (read, write):
            async for item in read:
                await write.send(item)
    trio.run(main)
"""


class Wire:
    """The client's ends of a server's standard streams, as descriptors; -1 where there is none."""

    def __init__(self, process: subprocess.Popen[bytes], send_fd: int, receive_fd: int, error_fd: int) -> None:
        self.process = process
        self.send_fd, self._receive_fd, self._error_fd = send_fd, receive_fd, error_fd
        self.received = b""
        self.errors = b""

    def send(self, *messages: Any) -> None:
        data = ndjson(*messages)
        while data:
            data = data[os.write(self.send_fd, data) :]

    def receive(self) -> Any:
        """The next line."""
        seen = 0
        while self.received.find(b"\n", seen) < 0:
            seen = len(self.received)
            if not self._pump():
                raise EOFError(f"the wire ended; so far {self.received!r}, errors {self.errors!r}")
        line, self.received = self.received.split(b"\n", 1)
        return json.loads(line)

    def call(self, tool: str, **arguments: Any) -> Any:
        """Call a tool and give what it returned."""
        self.send(call("call", tool, **arguments))
        answer = self.receive()
        assert answer["id"] == "call", answer
        return answer["result"]["structuredContent"]["result"]

    def wait_for_error_text(self, text: str) -> None:
        while text.encode() not in self.errors:
            if not self._pump():
                raise EOFError(f"standard error ended without {text!r}: {self.errors!r}")

    def wait_for_output(self, *parts: bytes) -> None:
        """Wait until all of these have come on the wire, whether in a line or not."""
        while not all(part in self.received for part in parts):
            if not self._pump():
                raise EOFError(f"the wire ended without {parts!r}: {self.received!r}")

    def drain(self) -> bytes:
        """Read both streams to their ends; what is left of the output."""
        while self._pump():
            pass
        return self.received

    def _pump(self) -> bool:
        """Take what there is on either stream; False when both have ended."""
        waiting = [fd for fd in (self._receive_fd, self._error_fd) if fd >= 0]
        if not waiting:
            return False
        ready, _, _ = select.select(waiting, [], [], DEADLINE)
        assert ready, f"nothing came; so far {self.received!r}, errors {self.errors!r}"
        for fd in ready:
            try:
                data = os.read(fd, 65536)
            except OSError:  # a terminal whose other side is gone, a socket that was reset
                data = b""
            if fd == self._receive_fd:
                self.received += data
                self._receive_fd = fd if data else -1
            else:
                self.errors += data
                self._error_fd = fd if data else -1
        return True

    def close_input(self) -> None:
        os.close(self.send_fd)
        self.send_fd = -1

    def close_output(self) -> None:
        assert self.process.stdout is not None
        self.process.stdout.close()
        self._receive_fd = -1

    def exit(self) -> int:
        """Wait for the exit; both streams are read meanwhile."""
        end = time.monotonic() + DEADLINE
        self.drain()
        return self.process.wait(max(0.1, end - time.monotonic()))


@contextmanager
def serving(command: list[str] = NOISY, handshake: bool = True) -> Iterator[Wire]:
    """A server process with a pipe for each standard stream; killed on the way out if it is still there."""
    with subprocess.Popen(command, stdin=-1, stdout=-1, stderr=-1, env=ENVIRONMENT, bufsize=0) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        wire = Wire(process, os.dup(process.stdin.fileno()), process.stdout.fileno(), process.stderr.fileno())
        process.stdin.close()
        try:
            if handshake:
                wire.send(*HANDSHAKE)
                assert wire.receive()["id"] == 0
            yield wire
        finally:
            process.kill()
            if wire.send_fd >= 0:
                wire.close_input()


def run(command: list[str], sent: bytes) -> subprocess.CompletedProcess[bytes]:
    """As ``printf ... | server``: everything in one go, then the end of the input."""
    return subprocess.run(command, input=sent, capture_output=True, timeout=DEADLINE, env=ENVIRONMENT, check=False)
