"""``trio-mcp run --reload``: the server has a process of its own, which is started anew when a source file changes.

Over stdio the client keeps its connection: this process holds it, and passes messages on. A new server process gets the
handshake that the client has made with the first one.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import trio

from trio_mcp.errors import TransportError
from trio_mcp.jsonrpc.messages import (
    ErrorData,
    ErrorResponse,
    Failure,
    Incoming,
    Notification,
    Request,
    RequestId,
    Response,
    SessionMessage,
)
from trio_mcp.stdio.client import stdio_client
from trio_mcp.stdio.parameters import StdioServerParameters
from trio_mcp.stdio.server import stdio_server
from trio_mcp.types.error_codes import INTERNAL_ERROR

__all__ = ["reload_process", "reload_stdio", "source_files", "until_signalled"]

INTERVAL = 0.5
"""Seconds between two looks at the files."""

MAX_FILES = 10_000
MAX_WAITING = 1000
"""Messages of the client that wait for a server. More are refused: only who reads on sees that the client leaves."""
GRACE = 7.0
"""Seconds that a server process gets to end: a little more than it gives its requests."""

INITIALIZED = "notifications/initialized"
LISTS = ("tools", "prompts", "resources")


def source_files(folder: Path) -> dict[str, int]:
    """The Python files of a folder and below, each with the time of its last change; those of environments aside."""
    found: dict[str, int] = {}
    for place, folders, files in os.walk(folder):
        if "pyvenv.cfg" in files:
            folders.clear()
            continue
        folders[:] = [name for name in folders if not name.startswith((".", "__")) and name != "node_modules"]
        for name in files:
            if name.endswith(".py") and len(found) < MAX_FILES:
                path = os.path.join(place, name)
                try:
                    found[path] = os.stat(path).st_mtime_ns
                except OSError:
                    pass  # gone meanwhile
    return found


async def _changed(folder: Path, before: dict[str, int]) -> str:
    """Wait for a change, and say which file it is about."""
    while True:
        await trio.sleep(INTERVAL)
        now = await trio.to_thread.run_sync(source_files, folder, abandon_on_cancel=True)
        if now != before:
            return min(path for path in now.keys() | before.keys() if now.get(path) != before.get(path))


def _say(text: str) -> None:
    print(f"trio-mcp run: {text}", file=sys.stderr, flush=True)


async def until_signalled(serve: Callable[..., Awaitable[None]], *arguments: object) -> int:
    """Serve until that ends, or until SIGINT or SIGTERM; gives the signal, else 0.

    The server's process must not outlive this one.
    """
    received = 0
    with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:

        async def run() -> None:
            await serve(*arguments)
            nursery.cancel_scope.cancel("the client has left")

        async with trio.open_nursery() as nursery:
            nursery.start_soon(run)
            received = await anext(signals)
            nursery.cancel_scope.cancel("told to end")
    return received


async def _anew_on_changes(folder: Path, serve: Callable[[], Awaitable[None]]) -> None:
    """Serve, anew whenever a file in the folder changes, until cancelled."""
    while True:
        before = source_files(folder)
        async with trio.open_nursery() as generation:
            generation.start_soon(serve)
            path = await _changed(folder, before)
            generation.cancel_scope.cancel("the source has changed")
        _say(f"{path} has changed: starting anew")


async def reload_process(command: list[str], folder: Path) -> None:
    """Run a command, anew whenever a file in the folder changes, until cancelled."""

    async def serve() -> None:
        process = await trio.lowlevel.open_process(command, stdin=subprocess.DEVNULL)
        try:
            await trio.sleep_forever()
        finally:
            with trio.CancelScope(shield=True, deadline=trio.current_time() + GRACE):
                if process.returncode is None:
                    process.terminate()
                await process.wait()
            if process.returncode is None:
                process.kill()

    await _anew_on_changes(folder, serve)


async def reload_stdio(command: list[str], folder: Path) -> None:
    """Serve this process's standard streams with a command, anew whenever a file changes, until the client leaves."""
    parameters = StdioServerParameters(command[0], command[1:], env=dict(os.environ))
    async with stdio_server() as (read, write), trio.open_nursery() as nursery:
        relay = _Relay(write, parameters)
        nursery.start_soon(_anew_on_changes, folder, relay.serve)
        nursery.start_soon(relay.hand_on)
        async for item in read:
            await relay.from_client(item.message)
        nursery.cancel_scope.cancel("the client has left")


class _Relay:
    """Between one client and the server processes that follow each other."""

    def __init__(self, client: trio.abc.SendChannel[SessionMessage], parameters: StdioServerParameters) -> None:
        self._client = client
        self._parameters = parameters
        self._waiting, self._taken = trio.open_memory_channel[Incoming](MAX_WAITING)  # of the client's
        self._server: trio.abc.SendChannel[SessionMessage] | None = None
        self._ready = trio.Event()  # a server takes messages, or has failed
        self._handshake: Request | None = None
        self._confirmed = False
        self._replayed: RequestId | None = None
        self._asked: set[RequestId] = set()  # by the client
        self._asking: set[RequestId] = set()  # by the server

    async def serve(self) -> None:
        """One server process, until it ends or this is cancelled."""
        self._not_ready()
        try:
            async with stdio_client(self._parameters) as (read, write):
                self._server = write
                if self._handshake is None:
                    self._ready.set()
                else:
                    self._replayed = self._handshake.id
                    await write.send(SessionMessage(self._handshake))
                async for item in read:
                    if isinstance(item.message, Failure):
                        break
                    await self._from_server(item.message)
            _say("the server has ended; it is started again when its source changes")
        except (TransportError, trio.BrokenResourceError) as exc:
            _say(f"the server can't be started: {exc}")
        finally:
            self._server = None
            unanswered, self._asked = self._asked, set()
            self._asking.clear()
            self._replayed = None
            with trio.CancelScope(shield=True, deadline=trio.current_time() + 1):
                for request_id in unanswered:
                    await self._refuse(request_id, "the server was started anew, its source has changed: call again")
            if trio.current_effective_deadline() > -float("inf"):
                self._ready.set()  # it has failed: who asks now is told
            else:
                self._not_ready()

    def _not_ready(self) -> None:
        if self._ready.is_set():
            self._ready = trio.Event()

    async def _refuse(self, request_id: RequestId, text: str) -> None:
        await self._to_client(ErrorResponse(request_id, ErrorData(INTERNAL_ERROR, text)))

    async def _to_client(self, message: Incoming) -> None:
        await _sent(self._client, message)  # if the client has left, its end of the link says so

    async def _to_server(self, message: Incoming) -> bool:
        return self._server is not None and await _sent(self._server, message)

    async def from_client(self, message: Incoming) -> None:
        """Take what the client says, without waiting for a server."""
        try:
            self._waiting.send_nowait(message)
        except trio.WouldBlock:
            if isinstance(message, Request):
                await self._refuse(message.id, f"{MAX_WAITING} messages wait for the server already: call again later")

    async def hand_on(self) -> None:
        """Pass on what the client says, whenever there is a server."""
        async for message in self._taken:
            await self._ready.wait()
            await self._hand_on(message)

    async def _hand_on(self, message: Incoming) -> None:
        match message:
            case Request():
                if message.method == "initialize":
                    self._handshake = message
                self._asked.add(message.id)
                if not await self._to_server(message):
                    self._asked.discard(message.id)
                    await self._refuse(message.id, "the server does not run: its error output says why")
            case Response() | ErrorResponse():
                if message.id in self._asking:  # else it is for a server that has ended
                    self._asking.discard(message.id)
                    await self._to_server(message)
            case Failure():
                pass
            case _:
                self._confirmed |= isinstance(message, Notification) and message.method == INITIALIZED
                await self._to_server(message)

    async def _from_server(self, message: Incoming) -> None:
        if isinstance(message, (Response, ErrorResponse)):
            if message.id is not None and message.id == self._replayed:
                self._replayed = None
                await self._begin_anew(message)
                return
            if message.id not in self._asked:
                return
            self._asked.discard(message.id)
        elif isinstance(message, Request):
            self._asking.add(message.id)
        await self._to_client(message)

    async def _begin_anew(self, answer: Response | ErrorResponse) -> None:
        """The client has made its handshake: a new server's answer to it tells only what may have changed."""
        if self._confirmed:
            await self._to_server(Notification(INITIALIZED))
        self._ready.set()
        declared: Any = answer.result.get("capabilities") if isinstance(answer, Response) else None
        for name in LISTS:
            feature = declared.get(name) if isinstance(declared, dict) else None
            if self._confirmed and isinstance(feature, dict) and feature.get("listChanged"):
                await self._to_client(Notification(f"notifications/{name}/list_changed"))


async def _sent(write: trio.abc.SendChannel[SessionMessage], message: Incoming) -> bool:
    try:
        await write.send(SessionMessage(message))
    except (trio.BrokenResourceError, trio.ClosedResourceError):
        return False
    return True
