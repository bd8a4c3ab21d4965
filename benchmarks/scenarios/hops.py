"""How many functions of the package, in how many files, one ``tools/call`` runs through: a reader's path."""

from __future__ import annotations

import http.client
import json
import subprocess
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from benchmarks.measure.processes import ProcessFailed, environment
from benchmarks.measure.samples import Group, Target
from benchmarks.servers.commands import installed_runners, server_command

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from benchmarks.options import Options

LEGACY, MODERN = "2025-11-25", "2026-07-28"
ERAS = {"modern": MODERN, "legacy": LEGACY}
FOR_CLIENT = "hypercorn"  # the runner of the server that the traced client calls
META = {
    "io.modelcontextprotocol/protocolVersion": MODERN,
    "io.modelcontextprotocol/clientInfo": {"name": "hops", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": {},
}
CLIENT = """
import json, os, sys, trio, trio_mcp
package, seen = os.path.dirname(trio_mcp.__file__), set()
def note(frame, event, argument):
    code = frame.f_code
    if event == "call" and code.co_filename.startswith(package):
        seen.add((code.co_filename, code.co_qualname))
async def main():
    async with trio_mcp.Client(sys.argv[1]) as client:
        await client.list_tools()
        for _ in range(5):
            await client.call_tool("add", {"a": 1, "b": 2})
        sys.setprofile(note)
        await client.call_tool("add", {"a": 1, "b": 2})
        sys.setprofile(None)
    print(json.dumps(sorted(seen)))
trio.run(main)
"""


def _seen(call: Callable[[str, dict[str, Any]], Any]) -> list[list[str]]:
    """Warm up, then trace one call, between the two that begin and end the trace."""
    for _ in range(5):
        call("add", {"a": 1, "b": 2})
    call("trace", {"on": True})
    call("add", {"a": 1, "b": 2})
    seen: list[list[str]] = json.loads(call("trace", {"on": False})["content"][0]["text"])
    return seen


def _text_of(answer: dict[str, Any]) -> Any:
    if "result" not in answer:
        raise ProcessFailed(f"the traced server answered {answer}")
    return answer["result"]


@contextmanager
def _traced(transport: str) -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(
        server_command("traced", transport), stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment()
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def _over_stdio() -> list[list[str]]:
    with _traced("stdio") as process:
        assert process.stdin is not None
        assert process.stdout is not None
        read, write = process.stdout, process.stdin

        def call(name: str, arguments: dict[str, Any]) -> Any:
            params = {"name": name, "arguments": arguments, "_meta": META}
            message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
            write.write(json.dumps(message).encode() + b"\n")
            write.flush()
            return _text_of(json.loads(read.readline()))

        return _seen(call)


class _Poster:
    """A client that posts the messages of one revision."""

    def __init__(self, url: str, revision: str) -> None:
        parts = urlsplit(url)
        self._connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=30)
        self._path = parts.path
        self._modern = revision == MODERN
        self._headers = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
        if not self._modern:
            info = {"name": "hops", "version": "1"}
            opening = {"protocolVersion": revision, "capabilities": {}, "clientInfo": info}
            session = self._post({"id": 0, "method": "initialize", "params": opening}).getheader("Mcp-Session-Id")
            self._headers |= {"Mcp-Session-Id": session or "", "MCP-Protocol-Version": revision}
            self._post({"method": "notifications/initialized"})

    def _post(self, message: dict[str, Any], **headers: str) -> http.client.HTTPResponse:
        body = json.dumps({"jsonrpc": "2.0", **message})
        self._connection.request("POST", self._path, body, {**self._headers, **headers})
        response = self._connection.getresponse()
        self.body = response.read()
        return response

    def call(self, name: str, arguments: dict[str, Any]) -> Any:
        params: dict[str, Any] = {"name": name, "arguments": arguments}
        headers = {}
        if self._modern:
            params["_meta"] = META
            headers = {"MCP-Protocol-Version": MODERN, "Mcp-Method": "tools/call", "Mcp-Name": name}
        self._post({"id": 1, "method": "tools/call", "params": params}, **headers)
        lines = self.body.split(b"\n")
        data = [line[5:] for line in lines if line.startswith(b"data:") and b'"result"' in line]
        return _text_of(json.loads(data[-1] if data else self.body))


def _over_http(runner: str) -> dict[str, list[list[str]]]:
    with _traced(runner) as process:
        assert process.stdout is not None
        url = process.stdout.readline().decode().strip()
        seen = {f"HTTP server on {runner}, {era}": _seen(_Poster(url, revision).call) for era, revision in ERAS.items()}
        if runner != FOR_CLIENT:
            return seen
        command = [sys.executable, "-c", CLIENT, url]
        ended = subprocess.run(command, env=environment(), capture_output=True, text=True, timeout=60, check=False)
        if ended.returncode:
            raise ProcessFailed(f"the traced client failed: {ended.stderr}")
        return {**seen, "client over HTTP": json.loads(ended.stdout)}


# One file more for servers than when the goals were set: what a tool returns is turned into a result by
# server/outputs.py, which tools share with the functions that a client's model may call. And one more on stdio, with a
# function: direct_channel.py, where a message passes from the transport to the session. That saves two of four task
# steps (tests/sockets/test_stream_link.py). The client's was (60, 18) while httpx carried the requests: its functions,
# and httpcore's, were more than the package's own, and did not count.
GOALS = {"stdio server": (46, 16), "HTTP server on h11, modern": (85, 19), "client over HTTP": (70, 20)}


def run(options: Options) -> Iterator[Group]:
    """Yield two groups: distinct functions, and the files in which they are."""
    options.progress("hops")
    seen = {"stdio server": _over_stdio()}
    for runner in installed_runners():
        seen |= _over_http(runner)
    for unit, index, count in (
        ("functions", 0, len),
        ("files", 1, lambda pairs: len({file for file, _ in pairs})),
    ):
        samples = {path: [float(count(pairs))] for path, pairs in seen.items()}
        goals = {path: Target("<=", goal[index]) for path, goal in GOALS.items()}
        yield Group("hops", f"{unit} of the package that one tools/call runs through", unit, samples, [], goals)
