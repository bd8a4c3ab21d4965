"""``trio-mcp run --reload``: run the server in a child process, and restart it when a source file changes.

Over stdio the client keeps its connection: it is connected to this process, which passes messages on. A new server
process gets the ``initialize`` that the client sent to the first one.
"""

from __future__ import annotations

import os
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
    Incoming,
    Notification,
    Request,
    RequestId,
    Response,
    SessionMessage,
    TransportFailure,
)
from trio_mcp.stdio.client import stdio_client
from trio_mcp.stdio.parameters import StdioServerParameters
from trio_mcp.stdio.server import stdio_server
from trio_mcp.types.error_codes import INTERNAL_ERROR

__all__ = ["Relay", "reload_process", "reload_stdio", "source_files"]

INTERVAL = 0.5
"""Seconds between two checks of the files. Polling works on every platform, and on network drives."""

MAX_FILES = 10_000  # an arbitrary limit: a folder such as a home directory must not keep the disk busy
MAX_WAITING = 1000
"""How many messages from the client may wait for a server process. Further requests are refused rather than left
unread, since only by reading on can this process notice that the client has left."""
GRACE = 7.0
"""How many seconds a server process has to end: slightly more than it gives its own requests to finish."""

INITIALIZED = "notifications/initialized"
LISTS = ("tools", "prompts", "resources")


def source_files(folder: Path) -> dict[str, int]:
    """Return the Python files in and below a folder, except virtual environments, with their modification times."""
    found: dict[str, int] = {}
    for place, folders, files in os.walk(folder):
        if "pyvenv.cfg" in files:
            # A folder with this file is a virtual environment, with thousands of files that are not the user's source.
            folders.clear()
            continue
        folders[:] = [name for name in folders if not name.startswith((".", "__")) and name != "node_modules"]
        for name in files:
            if name.endswith(".py") and len(found) < MAX_FILES:
                path = os.path.join(place, name)
                try:
                    found[path] = os.stat(path).st_mtime_ns
                except OSError:
                    pass  # the file has been deleted since it was listed
    return found


async def _changed(folder: Path, before: dict[str, int]) -> str:
    """Wait until a file changes, and return its path."""
    while True:
        await trio.sleep(INTERVAL)
        # The files are looked up in a thread, because a large folder on a slow disk must not hold up messages.
        now = await trio.to_thread.run_sync(source_files, folder, abandon_on_cancel=True)
        if now != before:
            return min(path for path in now.keys() | before.keys() if now.get(path) != before.get(path))


def _say(text: str) -> None:
    print(f"trio-mcp run: {text}", file=sys.stderr, flush=True)


async def _anew_on_changes(folder: Path, serve: Callable[[], Awaitable[None]]) -> None:
    """Run ``serve`` until cancelled, and restart it whenever a file in the folder changes."""
    while True:
        # The files are listed before the server is started, so that a save during its import counts as a change, too.
        before = source_files(folder)
        async with trio.open_nursery() as generation:
            # Even if the server ends by itself, this loop waits for a change: saving a file starts the server again.
            generation.start_soon(serve)
            path = await _changed(folder, before)
            generation.cancel_scope.cancel("the source has changed")
        _say(f"{path} has changed: restarting")


async def reload_process(command: list[str], folder: Path) -> None:
    """Run a command until cancelled, restarting it whenever a file in the folder changes."""

    async def serve() -> None:
        # The process gets no standard input: it may be the terminal, which only this process should read.
        process = await trio.lowlevel.open_process(command, stdin=subprocess.DEVNULL)
        try:
            await trio.sleep_forever()
        finally:
            # The wait is shielded, because the port must be free before the next process is started.
            with trio.CancelScope(shield=True, deadline=trio.current_time() + GRACE):
                # The process may have ended by itself long before the change, with a syntax error for example.
                if process.returncode is None:
                    process.terminate()
                await process.wait()
            if process.returncode is None:
                process.kill()

    await _anew_on_changes(folder, serve)


async def reload_stdio(command: list[str], folder: Path) -> None:
    """Run a command that serves over standard input and output, restarting it on changes, until the client leaves."""
    # The command gets the whole environment, since the client started this process in place of the server.
    parameters = StdioServerParameters(command[0], command[1:], env=dict(os.environ))
    async with stdio_server() as (read, write), trio.open_nursery() as nursery:
        relay = Relay(write, parameters)
        nursery.start_soon(_anew_on_changes, folder, relay.serve)
        nursery.start_soon(relay.hand_on)
        async for item in read:
            # `from_client` never waits for a server, because only by reading on can this process notice that the client
            # has left.
            await relay.from_client(item.message)
        nursery.cancel_scope.cancel("the client has left")


class Relay:
    """Relays messages between one client and a succession of server processes."""

    def __init__(self, client: trio.abc.SendChannel[SessionMessage], parameters: StdioServerParameters) -> None:
        self._client = client
        self._parameters = parameters
        self._waiting, self._taken = trio.open_memory_channel[Incoming](MAX_WAITING)  # the client's messages
        self._server: trio.abc.SendChannel[SessionMessage] | None = None
        self._ready = trio.Event()  # set when a server takes messages, or has failed
        self._handshake: Request | None = None  # the client's `initialize`, replayed to each new server
        self._confirmed = False  # whether the client has sent `notifications/initialized`
        self._replayed: RequestId | None = None  # the id of the replay, whose response the client must not see
        self._asked: set[RequestId] = set()  # the client's requests without a response
        self._asking: set[RequestId] = set()  # the server's requests without a response

    async def serve(self) -> None:
        """Run one server process until it ends or this is cancelled."""
        self._not_ready()
        try:
            async with stdio_client(self._parameters) as (read, write):
                self._server = write
                if self._handshake is None:
                    self._ready.set()
                else:
                    # The replayed request keeps the client's id. No other request has this id, because the client
                    # already has the response to its own `initialize`, and won't use the id again.
                    self._replayed = self._handshake.id
                    await write.send(SessionMessage(self._handshake))
                async for item in read:
                    if isinstance(item.message, TransportFailure):
                        break
                    await self._from_server(item.message)
            _say("the server has ended; it will be restarted when its source changes")
        except (TransportError, trio.BrokenResourceError) as exc:
            _say(f"can't start the server: {exc}")
        finally:
            self._server = None
            unanswered, self._asked = self._asked, set()
            # Responses that the client still sends for the old server are dropped: the new one may use the same ids.
            self._asking.clear()
            self._replayed = None
            # The responses are shielded, because this task usually ends by cancellation, and every pending call must
            # still get one.
            with trio.CancelScope(shield=True, deadline=trio.current_time() + 1):
                for request_id in unanswered:
                    await self._refuse(
                        request_id, "the server was restarted because its source changed: send the request again"
                    )
            # An effective deadline of -inf means that this task was cancelled: the server is being replaced, and calls
            # wait for the next one.
            if trio.current_effective_deadline() > -float("inf"):
                # The server failed on its own (it is not being replaced): further calls are refused at once, until its
                # source changes.
                self._ready.set()
            else:
                self._not_ready()

    def _not_ready(self) -> None:
        # The event is replaced only if it is set, because otherwise `hand_on` may be waiting for it.
        if self._ready.is_set():
            self._ready = trio.Event()

    async def _refuse(self, request_id: RequestId, text: str) -> None:
        await self._to_client(ErrorResponse(request_id, ErrorData(INTERNAL_ERROR, text)))

    async def _to_client(self, message: Incoming) -> None:
        await _sent(self._client, message)  # if the client has left, `reload_stdio` notices that

    async def _to_server(self, message: Incoming) -> bool:
        return self._server is not None and await _sent(self._server, message)

    async def from_client(self, message: Incoming) -> None:
        """Queue a message from the client, without waiting for a server."""
        try:
            self._waiting.send_nowait(message)
        except trio.WouldBlock:
            # If the queue is full, a request is refused. Any other message is dropped, because it can't be responded
            # to.
            if isinstance(message, Request):
                await self._refuse(
                    message.id,
                    f"{MAX_WAITING} messages are already waiting for the server: send the request again later",
                )

    async def hand_on(self) -> None:
        """Pass the client's messages on, one after the other, whenever a server is ready."""
        async for message in self._taken:
            await self._ready.wait()
            await self._hand_on(message)

    async def _hand_on(self, message: Incoming) -> None:
        match message:
            case Request():
                if message.method == "initialize":
                    self._handshake = message
                # The id is noted before the request is sent, because the response may be read before this task runs
                # again.
                self._asked.add(message.id)
                # If the request can't be sent, the server has failed or is ending.
                if not await self._to_server(message):
                    self._asked.discard(message.id)
                    await self._refuse(message.id, "the server is not running: its standard error says why")
            case Response() | ErrorResponse():
                if message.id in self._asking:  # otherwise the response is for a server that has been replaced
                    self._asking.discard(message.id)
                    await self._to_server(message)
            case TransportFailure():
                pass  # malformed lines and lost links are not for the server
            case _:
                self._confirmed |= isinstance(message, Notification) and message.method == INITIALIZED
                await self._to_server(message)

    async def _from_server(self, message: Incoming) -> None:
        if isinstance(message, (Response, ErrorResponse)):
            if message.id is not None and message.id == self._replayed:
                self._replayed = None
                await self._begin_anew(message)
                return
            if message.id not in self._asked:  # the request has been refused, or was never made
                return
            await self._to_client(message)
            # The id is removed only after the response has been handed to the client: if this server is replaced before
            # that, the request is refused.
            self._asked.discard(message.id)
            return
        if isinstance(message, Request):
            # The response to this request must not reach the next server, which may use the same ids.
            self._asking.add(message.id)
        await self._to_client(message)

    async def _begin_anew(self, response: Response | ErrorResponse) -> None:
        """Complete the handshake replayed to a new server, and tell the client which lists may have changed."""
        # A client confirms only once, so its confirmation has to be replayed as well.
        if self._confirmed:
            await self._to_server(Notification(INITIALIZED))
        self._ready.set()
        declared: Any = response.result.get("capabilities") if isinstance(response, Response) else None
        # The changed server may offer other tools, prompts and resources, so the client is told to list them again.
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
