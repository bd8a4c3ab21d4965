"""``trio-mcp run --reload``: a client keeps its connection while the server is replaced."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio
from pydantic_core import to_json

from tests.peer import ME
from tests.waiting import eventually
from trio_mcp import Client, McpError, StdioServerParameters, ToolsListChanged, TransportError
from trio_mcp.cli.reload import MAX_WAITING, Relay, source_files
from trio_mcp.jsonrpc.messages import ErrorResponse, Notification, Request, SessionMessage

ROOT = Path(__file__).parents[2]
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT)}

SERVER = """
import trio
from trio_mcp import Context, Server
server = Server("reloaded", version="{version}")

@server.tool
async def version() -> str:
    return "{version}"

@server.tool
async def wait(ctx: Context) -> None:
    await ctx.report_progress(1)
    await trio.sleep_forever()

if __name__ == "__main__":
    server.run()
"""


class Source:
    """A server's source file; every change of it gets a later time."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "server.py"
        self._changes = 0

    def write(self, text: str) -> None:
        self.path.write_text(text)
        self._changes += 1
        later = time.time() + self._changes
        os.utime(self.path, (later, later))

    def version(self, number: int) -> None:
        self.write(SERVER.format(version=number))

    def client(self, **options: Any) -> Client:
        arguments = ["-m", "trio_mcp", "run", str(self.path), "--reload"]
        return Client(StdioServerParameters(sys.executable, arguments, env=ENVIRONMENT), **options)


@pytest.fixture
def source(tmp_path: Path) -> Source:
    made = Source(tmp_path)
    made.version(1)
    return made


async def version_of(client: Client) -> Any:
    return (await client.call_tool("version")).data


async def until(client: Client, version: str) -> None:
    """Call until the new server answers; in between calls may fail, each with a clear error."""

    async def answered() -> bool:
        try:
            return bool(await version_of(client) == version)
        except McpError as exc:
            if "was restarted" not in str(exc) and "is not running" not in str(exc):
                raise
            return False

    await eventually(answered)


@pytest.mark.parametrize("mode", ["2025-11-25", "2026-07-28"])
async def test_a_change_is_served_over_the_same_connection(source: Source, mode: str) -> None:
    with trio.fail_after(60):
        async with source.client(mode=mode) as client:
            assert await version_of(client) == "1"
            source.version(2)
            await until(client, "2")
            source.version(3)
            await until(client, "3")


async def test_a_call_in_flight_learns_that_the_server_was_replaced(source: Source) -> None:
    async def told() -> None:
        with pytest.raises(McpError, match="was restarted"):
            await client.call_tool("wait", on_progress=lambda _: source.version(2))

    with trio.fail_after(60):
        async with source.client() as client:
            await told()
            await until(client, "2")


async def test_a_response_that_could_not_be_passed_on_any_more_is_made_up_for(source: Source) -> None:
    """The server is replaced while its response waits for the client: the call gets an error, rather than nothing."""
    send, receive = trio.open_memory_channel[SessionMessage](0)
    relay = Relay(send, StdioServerParameters(sys.executable, [str(source.path)], env=ENVIRONMENT))
    params = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}}
    generation = trio.CancelScope()

    async def serve() -> None:
        with generation:
            await relay.serve()

    with trio.fail_after(60):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(relay.hand_on)
            nursery.start_soon(serve)
            await relay.from_client(Request(1, "initialize", params))
            await receive.receive()
            await relay.from_client(Notification("notifications/initialized"))
            await relay.from_client(Request(2, "tools/call", {"name": "version", "arguments": {}}))
            await eventually(lambda: send.statistics().tasks_waiting_send == 1)
            generation.cancel("the source has changed")
            await trio.testing.wait_all_tasks_blocked()
            message = (await receive.receive()).message
            nursery.cancel_scope.cancel()
    assert isinstance(message, ErrorResponse)
    assert message.id == 2
    assert "was restarted" in message.error.message


async def test_a_mistake_in_the_source_is_mended_by_the_next_change(source: Source) -> None:
    with trio.fail_after(60):
        async with source.client(mode="2025-11-25") as client:
            assert await version_of(client) == "1"
            source.write("this is not Python")

            async def broken() -> bool:
                try:
                    await version_of(client)
                except McpError as exc:
                    return "is not running" in str(exc)
                return False

            await eventually(broken)
            source.version(2)
            await until(client, "2")


async def test_a_legacy_client_is_told_that_the_lists_may_have_changed(source: Source) -> None:
    with trio.fail_after(60):
        async with source.client(mode="2025-11-25") as client, client.listen(tools_list_changed=True) as events:
            source.version(2)
            assert await anext(events) == ToolsListChanged()
            await until(client, "2")


HANGING = """
import os, pathlib, signal, time
for number in (signal.SIGTERM, signal.SIGINT):
    signal.signal(number, signal.SIG_IGN)
pathlib.Path(__file__).with_suffix(".pid").write_text(str(os.getpid()))
time.sleep(1000)
"""


@pytest.mark.parametrize("end", [None, signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.long)])
async def test_new_source_that_hangs_at_import_does_not_outlive_the_client(
    source: Source, end: signal.Signals | None
) -> None:
    """Not even if a request waits for the new server, and no matter how the client leaves."""

    async def send(method: str, request_id: int | None = None, **params: Any) -> None:
        message = {"jsonrpc": "2.0", "method": method, "params": params}
        await stdin.send_all(to_json(message if request_id is None else {**message, "id": request_id}) + b"\n")

    command = [sys.executable, "-m", "trio_mcp", "run", str(source.path), "--reload"]
    process = await trio.lowlevel.open_process(
        command, env=ENVIRONMENT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    stdin, stdout = process.stdin, process.stdout
    assert stdin is not None
    assert stdout is not None
    try:
        with trio.fail_after(60):
            async with stdin, stdout:
                await send("initialize", 1, protocolVersion="2025-11-25", capabilities={}, clientInfo=ME)
                while b"\n" not in await stdout.receive_some():
                    pass
                await send("notifications/initialized")
                source.write(HANGING)
                noted = source.path.with_suffix(".pid")
                await eventually(lambda: noted.exists() and noted.read_text())
                for request_id in range(2, MAX_WAITING + 50):
                    await send("tools/list", request_id)
                if end is not None:
                    process.send_signal(end)
                    await process.wait()
            with trio.fail_after(10):
                assert await process.wait() == (130 if end == signal.SIGINT else 0)
        assert not alive(int(noted.read_text()))
    finally:
        process.kill()
        await process.wait()


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return "zombie" not in Path(f"/proc/{pid}/status").read_text()


async def test_over_http_the_server_comes_back_at_the_same_address(source: Source) -> None:
    with trio.socket.socket() as probe:
        await probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    arguments = ["run", str(source.path), "--reload", "--transport", "http", "--port", str(port)]

    async def served(version: str) -> bool:
        try:
            async with Client(f"http://127.0.0.1:{port}/mcp", mode="2026-07-28") as client:
                return bool(await version_of(client) == version)
        except TransportError:  # not yet
            return False

    process = await trio.lowlevel.open_process(
        [sys.executable, "-m", "trio_mcp", *arguments], env=ENVIRONMENT, stderr=subprocess.DEVNULL
    )
    try:
        with trio.fail_after(60):
            for version in (1, 2):
                source.version(version)
                await eventually(partial(served, str(version)))
    finally:
        process.terminate()
        assert await process.wait() == 0
    with pytest.raises(TransportError):  # the server's process has ended with it
        async with Client(f"http://127.0.0.1:{port}/mcp", mode="2026-07-28"):
            pass


def test_environments_and_hidden_folders_are_not_watched(tmp_path: Path) -> None:
    for name in ("a.py", "sub/b.py", ".hidden/c.py", "env/pyvenv.cfg", "env/d.py", "__pycache__/e.py", "f.txt"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.touch()
    assert {Path(path).name for path in source_files(tmp_path)} == {"a.py", "b.py"}


@pytest.mark.parametrize("arguments", [["nothing.py"], ["x:y", "--transport", "http", "--port", "0"]])
def test_what_can_not_be_watched_is_refused(arguments: list[str]) -> None:
    command = [sys.executable, "-m", "trio_mcp", "run", "--reload", *arguments]
    done = subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
